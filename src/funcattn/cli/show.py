"""`funcattn list` and `info`."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

from funcattn.cli.settings import Name, resolved, size_in_words
from funcattn.data import Store
from funcattn.models import MODELS
from funcattn.settings import Preset, Profile
from funcattn.tasks import TASKS, Generated
from funcattn.terminal import CACHE, refuse
from funcattn.training.cost import model_cost
from funcattn.training.report import sample_picture
from funcattn.training.setup import read_settings


@dataclass(frozen=True)
class List:
    """The tasks, the networks, and the data that was made; or the networks for one task."""

    what: Annotated[Literal["all", "models"], tyro.conf.Positional] = "all"
    """models: what each network costs in the configuration of a task, and which cannot take it."""
    task: str = "darcy"
    """Whose configuration."""
    profile: Profile = "cpu"
    cache: Path = CACHE

    def run(self, rest: list[str], console: Console) -> None:
        """Print tables."""
        refuse(rest)
        if self.what == "models":
            self._models(console)
            return
        tasks = Table("task", "what it is", "input", "output", box=None)
        for name, task in TASKS.items():
            shape = f"{task.space}-D points" + (f", {task.inputs} values" if task.inputs else "")
            tasks.add_row(name, task.title, shape, str(task.outputs))
        models = Table("model", "what it is", "paper", box=None)
        for name, model in MODELS.items():
            models.add_row(name, model.title, model.paper)
        console.print(tasks, "", models)
        sets = Table("data made", "samples", "size", "how", box=None)
        for stored in (kept := Store(self.cache).sets()):
            said = stored.provenance
            how = ", ".join(f"{name} {value}" for name, value in said["parameters"].items())
            sets.add_row(
                said["name"],
                str(said["samples"]),
                size_in_words(said["bytes"]),
                f"seed {said['seed']}, {how}",
            )
        if kept:
            console.print("", sets, f"in {self.cache}", soft_wrap=True)

    def _models(self, console: Console) -> None:
        """What each network costs for the task."""
        table = Table("model", "parameters", "GFLOP", "takes", "paper", box=None)
        for name, entry in MODELS.items():
            settings = resolved(self.task, self.profile, "modern", None, ["--model", name])
            try:
                parameters, operations = model_cost(TASKS[self.task](settings))
                cost = [f"{parameters:,}", f"{operations / 1e9:.3g}"]
            except (ValueError, ModuleNotFoundError) as error:
                cost = [str(error).rpartition(": ")[2], ""]
            table.add_row(name, *cost, entry.takes, entry.paper)
        console.print(
            table,
            f"\nfor {self.task} at profile {self.profile}; GFLOP: matrix products, convolutions "
            "and attention of one call on one sample, without Fourier transforms and solves",
            soft_wrap=True,
        )


@dataclass(frozen=True)
class Info:
    """The settings of a task and its data set, or the settings and results of a run."""

    what: Name
    """A task's name or a run's folder."""
    profile: Profile = "cpu"
    preset: Preset = "modern"
    cache: Path = CACHE

    def run(self, rest: list[str], console: Console) -> None:
        """Print them; of a data set that was made, also draw a few samples."""
        if self.what not in TASKS:
            self._run_folder(rest, console)
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

    def _run_folder(self, rest: list[str], console: Console) -> None:
        refuse(rest)
        settings = read_settings(Path(self.what))
        record = Path(self.what) / "record.json"
        if record.exists():
            shown = json.loads(record.read_text())
            console.print_json(
                data={k: v for k, v in shown.items() if k not in ("settings", "test_values")}
            )
        console.print_json(data=asdict(settings))
