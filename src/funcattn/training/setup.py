"""A run's settings and its network, from its folder."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from funcattn import documents
from funcattn.data.foreign import memory_budget
from funcattn.errors import FuncattnError
from funcattn.models import NormalisedNetwork, build_model
from funcattn.problem import Problem
from funcattn.settings import RunSettings, shown
from funcattn.tasks import TASKS, Task
from funcattn.training.settings import saved_settings

_BUILT_FOR_A_BOX = {"functional_operator", "gaot", "geo_fno", "gino", "lno"}


class RunError(FuncattnError):
    """A run folder that cannot be used as asked."""


def build_network(task: Task) -> NormalisedNetwork:
    """The task's network with its normalisers, its weights drawn from the seed of the run."""
    settings = task.settings
    check_memory(settings, task.problem)
    with torch.random.fork_rng(devices=[]):
        # Weights are drawn on the CPU; the random state of other devices is left alone.
        torch.default_generator.manual_seed(settings.seed)
        network = build_model(settings.model, settings.network, task.problem)
    surrogate = NormalisedNetwork(
        network,
        space=task.problem.space,
        inputs=task.problem.input_channels,
        outputs=task.problem.output_channels,
        normalise_inputs="input" in task.normalised,
        normalise_outputs="output" in task.normalised,
        unit_free=task.unit_free,
    )
    return surrogate.double() if settings.precision == "64-true" else surrogate


def box_of(problem: Problem) -> list[list[float]]:
    """The box that a problem's points lie in, as a checkpoint keeps it."""
    return [list(corner) for corner in problem.box]


def check_box(document: Mapping[str, Any], task: Task, where: Path) -> None:
    """Refuse weights that were trained with points in another box than the task has now.

    Some networks are built for a box, and others would not notice: with the same weights, in
    another box, they give other numbers. Checkpoints of earlier versions do not hold it; of these,
    only the box of RNA clouds has changed since.

    Raises:
        RunError: which box was expected, and which one came.
    """
    settings, now = task.settings, box_of(task.problem)
    kept = document.get("box")
    if kept is None:
        by_the_box = (
            settings.model in _BUILT_FOR_A_BOX
            or getattr(settings.network, "lattice", None) is not None
            or getattr(settings.network, "basis", None) == "fourier"
        )
        if settings.task == "rna" and by_the_box:
            raise RunError(
                f"{where}: expected weights that say in which box their points lay, as earlier "
                f"versions took [0, 1] for RNA clouds, got none, for {settings.model}, which "
                "depends on it; train it again"
            )
    elif kept != now:
        raise RunError(
            f"{where}: expected weights that were trained with points in the box {now} of the task "
            f"{settings.task}, got those of {shown(kept)}; train it again"
        )


def check_memory(settings: RunSettings, problem: Problem) -> None:
    """Refuse a network whose weights do not fit into memory, before any of it is made.

    Raises:
        ValueError: how much it would need.
    """
    try:
        network = without_numbers(settings, problem)
    except RuntimeError as error:
        raise ValueError(
            f"network: expected settings of a network that can be built, got {settings.network}: "
            f"{str(error).splitlines()[0]}"
        ) from error
    tensors = [*network.parameters(), *network.buffers()]
    needed, budget = sum(tensor.nbytes for tensor in tensors), memory_budget()
    if needed > budget:
        raise ValueError(
            f"network: expected weights that fit into {budget / 1e9:.3g} GB, half of this "
            f"machine's memory, got {needed / 1e9:.3g} GB of them with {settings.network}; make "
            "it smaller"
        )


def without_numbers(settings: RunSettings, problem: Problem) -> nn.Module:
    """The network on the meta device: tensors with sizes, and no memory for their numbers."""
    with torch.device("meta"), _NothingDrawn():
        return build_model(settings.model, settings.network, problem)


class _NothingDrawn(TorchFunctionMode):
    """No numbers are drawn or scaled, as tensors without numbers have none.

    PyTorch does this on the meta device in Python, by modules whose import takes most of a second.
    Whatever else a network does, it does as usual.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call the function, or leave it out."""
        kwargs = kwargs or {}
        name = func.__name__
        if name in ("normal_", "uniform_", "kaiming_uniform_"):
            return args[0] if args else kwargs["tensor"]  # as `nn.init` hands it on
        if name in ("randn", "rand"):
            return torch.empty(*args, **{k: v for k, v in kwargs.items() if k != "generator"})
        is_scaled = name in ("mul", "div", "__rmul__") and isinstance(args[1], int | float)
        if is_scaled and (args[0].is_floating_point() or args[0].is_complex()):
            return args[0]
        return func(*args, **kwargs)


def device_named(name: str) -> torch.device:
    """The device of that name, `auto` being an accelerator where there is one.

    >>> device_named("cpu")
    device(type='cpu')
    """
    there = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if name == "auto":
        return there or torch.device("cpu")
    known = ["auto", "cpu"]
    if there is not None:
        known += [f"{there.type}:{i}" for i in range(torch.accelerator.device_count())]
    if name not in known and (there is None or name != there.type):
        raise ValueError(f"device: expected one of {', '.join(known)}, got {name!r}")
    return torch.device(name)


def read_settings(folder: Path) -> RunSettings:
    """The settings of a run."""
    path = folder / "settings.json"
    if not path.exists():
        raise RunError(f"{folder}: expected the folder of a run, got one without settings.json")
    saved = read_json(path)
    if not isinstance(saved, dict) or "task" not in saved:
        raise RunError(f"{path}: expected the settings of a run, with its task, got {shown(saved)}")
    name = saved["task"]
    if not isinstance(name, str) or name not in TASKS:
        raise RunError(f"{path}: expected a task among {', '.join(TASKS)}, got {shown(name)}")
    try:
        return saved_settings(saved)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_json(path: Path, shape: Any = Any) -> Any:
    """What a JSON file of a run holds.

    Raises:
        RunError: it is no JSON file, of another shape, or larger or deeper than any run writes.
    """
    try:
        return documents.read_json(path, shape)
    except documents.DocumentError as error:
        raise RunError(str(error)) from error
