"""`funcattn list` and `info`."""

import os
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

import torch
from rich.console import Console
from rich.table import Table

from funcattn._version import __version__
from funcattn.cli import commands
from funcattn.cli.settings import resolved, size_in_words
from funcattn.cli.terminal import print_table, refuse
from funcattn.data import Store
from funcattn.models import MODELS
from funcattn.ops import native
from funcattn.registry import did_you_mean
from funcattn.tasks import TASKS, Generated
from funcattn.training.cost import model_cost
from funcattn.training.report import sample_picture
from funcattn.training.run import Run


@dataclass(frozen=True)
class List(commands.List):
    """`funcattn list`."""

    def run(self, rest: list[str], console: Console) -> None:
        """Print tables."""
        refuse(rest)
        if self.what == "models":
            self._models(console)
            return
        tasks = Table("task", "what it is", "input", "output", box=None)
        for name, task in TASKS.items():
            problem = task.problem
            given = [f"{problem.space}-D points", *(field.name for field in problem.inputs)]
            sought = ", ".join(field.name for field in problem.outputs)
            tasks.add_row(name, task.title, ", ".join(given), sought)
        models = Table("model", "what it is", "paper", box=None)
        for name, model in MODELS.items():
            models.add_row(name, model.title, model.paper)
        console.print(tasks, "", models)
        sets = Table("data made", "samples", "size", "how", box=None)
        for stored in (kept := Store(self.cache).sets()):
            said = stored.provenance
            parameters = ", ".join(f"{name} {value}" for name, value in said["parameters"].items())
            sets.add_row(
                said["name"],
                str(said["samples"]),
                size_in_words(said["bytes"]),
                f"seed {said['seed']}, {parameters}",
            )
        if kept:
            console.print("", sets, f"in {self.cache}", soft_wrap=True)

    def _models(self, console: Console) -> None:
        """What each network costs for the task."""
        TASKS.named(self.task)
        rows = []
        for name, entry in MODELS.items():
            settings = resolved(self.task, self.profile, "modern", None, ["--model", name])
            try:
                parameters, operations = model_cost(TASKS[self.task](settings))
                cost = [f"{parameters:,}", f"{operations / 1e9:.3g}"]
            except (ValueError, ModuleNotFoundError) as error:
                cost = [str(error).rpartition(": ")[2], ""]
            rows.append((name, *cost, entry.takes, entry.paper))
        print_table(console, ("model", "parameters", "GFLOP", "takes", "paper"), rows)
        console.print(
            f"\nfor {self.task} at profile {self.profile}; GFLOP: matrix products, convolutions "
            "and attention of one call on one sample, without Fourier transforms and solves",
            soft_wrap=True,
        )


@dataclass(frozen=True)
class Info(commands.Info):
    """`funcattn info`."""

    def run(self, rest: list[str], console: Console) -> None:
        """Print them; of a data set that was made, also draw a few samples."""
        if self.what is None:
            refuse(rest)
            print_table(console, ("", ""), list(_installation().items()))
            return
        if self.what not in TASKS:
            self._run_folder(self.what, rest, console)
            return
        settings = resolved(self.what, self.profile, self.preset, None, rest)
        task, store = TASKS[self.what](settings), Store(self.cache)
        console.print(task.title)
        console.print_json(data=asdict(settings))
        if not isinstance(task, Generated) or settings.data.path is not None:
            return
        stored = store.find(task.recipe(), settings.data.seed)
        if stored is None:
            console.print(
                f"Its data was not made yet: funcattn generate {task.name} --profile {self.profile}"
            )
            return
        console.print(f"{stored.path}:", markup=False, soft_wrap=True)
        console.print_json(data=stored.provenance)
        if len(stored) >= task.count:
            picture = stored.path.with_suffix(".png")
            sample_picture(task, store).savefig(picture, bbox_inches="tight", dpi=80)
            console.print(f"A few samples: {picture}", markup=False, soft_wrap=True)

    def _run_folder(self, what: str, rest: list[str], console: Console) -> None:
        refuse(rest)
        run = Run(what, accept_edited=self.accept_edited)
        if not run.folder.exists():
            raise ValueError(
                f"{what}: expected the folder of a run, or a task: one of {', '.join(TASKS)}"
                f"{did_you_mean(what, TASKS)}"
            )
        settings = run.settings
        if run.finished:
            hidden = ("settings", "test_values")
            console.print_json(data={k: v for k, v in run.record.items() if k not in hidden})
        else:
            state = run.state
            best = (
                ""
                if state.best_value is None
                else (
                    f", the best in epoch {state.best_epoch} with validation "
                    f"{run.task.headline} {state.best_value:.4g}"
                )
            )
            console.print(
                f"Unfinished: {state.epoch} of {settings.optimisation.epochs} epochs{best}. Go on "
                f"by funcattn train {settings.task} --out {run.folder} --resume",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
        console.print_json(data=asdict(settings))


def _installation() -> dict[str, str]:
    """What this installation computes with."""
    gpus = [torch.cuda.get_device_name(place) for place in range(torch.cuda.device_count())]
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = "not installed"
    return {
        "funcattn": __version__,
        "torch": torch.__version__,
        "cores": f"{os.cpu_count()}",
        "GPUs": ", ".join(gpus) or "none",
        "passes in C, for CPUs": native.state(),
        "Triton, for GPUs": triton,
    }
