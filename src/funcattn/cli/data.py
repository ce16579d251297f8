"""`funcattn generate`."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from funcattn.cli.settings import WORKERS, Name, open_store, resolved, size_in_words
from funcattn.data.matlab import Format as MatlabFormat
from funcattn.settings import Profile
from funcattn.tasks import TASKS, Generated
from funcattn.terminal import CACHE, progress


@dataclass(frozen=True)
class Generate:
    """Make the data of a task and keep it in the cache folder.

    Settings as with train, for example --data.nodes 85. Sample i depends on the seed and on i
    alone: asked for more samples later, a set is extended. Stopped at any moment, the same command
    goes on.
    """

    task: Name
    """Whose data; `funcattn list` shows the tasks."""
    profile: Profile = "cpu"
    """How large: as in the paper, for two cores, or tiny."""
    samples: int | None = None
    """How many; default: as many as the task trains, validates and tests with."""
    seed: int | None = None
    """Of the data; default: the task's."""
    workers: int = WORKERS
    """Processes that make samples; they change nothing in the result."""
    scheduler: str | None = None
    """Address of a Dask scheduler (tcp://HOST:PORT), whose workers then make the samples."""
    public: Path | None = None
    """Write the set to this folder too, in the layout of the benchmark's original files."""
    public_format: MatlabFormat = "7.3"
    """MATLAB's format of those files."""
    cache: Path = CACHE
    """Where made data is kept; also the environment variable FUNCATTN_CACHE."""

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
