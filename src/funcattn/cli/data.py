"""`funcattn generate`."""

from dataclasses import dataclass

from rich.console import Console

from funcattn.cli import commands
from funcattn.cli.settings import open_store, resolved, size_in_words
from funcattn.cli.terminal import progress
from funcattn.tasks import TASKS, Generated


@dataclass(frozen=True)
class Generate(commands.Generate):
    """`funcattn generate`."""

    def run(self, rest: list[str], console: Console) -> None:
        """Make data with progress."""
        if self.seed is not None:
            rest = [*rest, "--data.seed", str(self.seed)]
        settings = resolved(self.task, self.profile, "modern", None, rest)
        task = TASKS[self.task](settings)
        if not isinstance(task, Generated):
            raise ValueError(f"generate: {task.name} has no data to make: {task.title}")
        count = task.count if self.samples is None else self.samples
        with progress(console) as bars:
            bar = bars.add_task(f"{self.task}, samples", total=count)
            store = open_store(
                self.cache,
                lambda done, total: bars.update(bar, completed=done, total=total),
                self.profile,
                workers=self.workers,
                scheduler=self.scheduler,
            )
            made = store.made(task.recipe(), task.settings.data.seed, count)
            bars.update(bar, completed=count)
        said = made.provenance
        console.print(
            f"{said['samples']} samples, {said['rejected']} draws rejected, "
            f"{size_in_words(said['bytes'])}: {made.path}",
            soft_wrap=True,
        )
        if self.public is not None:
            for path in task.write_public(made, self.public, self.public_format):
                console.print(f"{path}", markup=False, soft_wrap=True)
