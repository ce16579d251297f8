"""Networks as ONNX files, for runtimes without PyTorch."""

import logging
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from funcattn.files import whole_file
from funcattn.models import MODELS, NormalisedNetwork
from funcattn.tasks import Task

AGREEMENT = 1e-4
"""Largest difference between the file and the network, relative to the largest value."""


def to_onnx(
    model: nn.Module,
    path: str | Path,
    example: Mapping[str, Tensor],
    *,
    grid: tuple[int, ...] | None = None,
) -> None:
    """Write a network as an ONNX file that takes any number of samples and points.

    model: called by names, as `model(positions=..., values=..., ...)`.
    example: the inputs of the file, by name; all have the batch first, and those with more than one
        axis the points next, where `context` has points of its own. At least two points; the values
        do not matter.
    grid: for a network that looks at a grid; the file then takes this grid only.

    The file is compared with the network before it is put in its place.

        example = {"positions": torch.rand(1, 9, 2), "values": torch.rand(1, 9, 1)}
        to_onnx(model.eval(), "model.onnx", example)
    """
    path = Path(path)
    if path.suffix != ".onnx":
        raise ValueError(f"{path}: expected a name that ends in .onnx")
    if model.training:
        raise ValueError(
            "model: expected one in evaluation, got one in training; call model.eval()"
        )
    few = [name for name, tensor in example.items() if tensor.ndim > 1 and tensor.shape[1] < 2]
    if few:
        raise ValueError(f"example: expected at least two points, got fewer in {', '.join(few)}")
    # An axis of length one would be taken for one that never changes.
    example = {name: torch.cat([tensor, tensor]) for name, tensor in example.items()}
    called = _CalledByNames(model, tuple(example), grid)
    tensors = tuple(example.values())
    watch = _CanBeWritten()  # type: ignore[no-untyped-call]
    with torch.no_grad(), watch:
        expected = called(*tensors)
    with whole_file(path) as aside:
        _translated(called, tensors, fixed=grid is not None).save(aside)
        _check_agreement(aside, example, expected)


class _CalledByNames(nn.Module):
    """A network with its inputs in a row, as the file takes them."""

    def __init__(
        self, model: nn.Module, names: tuple[str, ...], grid: tuple[int, ...] | None
    ) -> None:
        super().__init__()
        self.model, self.names = model, names
        self.fixed: dict[str, Any] = {} if grid is None else {"grid": grid}

    def forward(self, *tensors: Tensor) -> Tensor:
        """The network's output."""
        return self.model(**dict(zip(self.names, tensors, strict=True)), **self.fixed)


class _CanBeWritten(TorchDispatchMode):
    """Raises at the first operation that cannot be written for ONNX.

    It has no complex numbers.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if any(isinstance(leaf, Tensor) and leaf.is_complex() for leaf in tree_leaves(result)):
            raise ValueError(
                f"model: expected real numbers throughout, which is all that ONNX has, got complex "
                f"ones from {func}; use a basis without a fast Fourier transform (LearnedBasis, or "
                "FourierBasis of the positions), or `torch.export`"
            )
        return result


@contextmanager
def _only_errors(name: str) -> Iterator[None]:
    """A logger that does not speak of packages which are not needed."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _translated(called: _CalledByNames, tensors: tuple[Tensor, ...], *, fixed: bool) -> Any:
    """The network in ONNX's words."""
    axes = tuple(
        dict(enumerate(axes_of(name, tensor)[: 1 if fixed else 2]))
        for name, tensor in zip(called.names, tensors, strict=True)
    )
    try:
        with warnings.catch_warnings(), _only_errors("torch.onnx"):
            # Of the translator about itself.
            warnings.simplefilter("ignore")
            return torch.onnx.export(
                called,
                tensors,
                dynamo=True,
                verbose=False,
                input_names=list(called.names),
                output_names=["prediction"],
                dynamic_shapes=(axes,),
            )
    except torch.onnx.OnnxExporterError as error:
        causes = [str(cause).strip().splitlines()[0] for cause in _causes(error)]
        raise ValueError(
            f"model: expected operations that ONNX has, got others: {causes[-1]}; use "
            "`torch.export`, which takes all of them"
        ) from error


def _check_agreement(path: Path, example: Mapping[str, Tensor], expected: Tensor) -> None:
    """Run the file, and compare."""
    from onnxruntime import InferenceSession

    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {name: tensor.numpy() for name, tensor in example.items()})
    off = (torch.from_numpy(got) - expected).abs().max() / expected.abs().max()
    if not bool(off <= AGREEMENT):
        raise ValueError(
            f"the file does not do what the network does: expected differences below {AGREEMENT:g} "
            f"of the largest value, got {off:g}; use `torch.export`"
        )


def axes_of(name: str, tensor: Tensor) -> tuple[str, ...]:
    """What the axes of an input are called in the file."""
    points = "m" if name == "context" else "n"
    return ("b", points, *(str(size) for size in tensor.shape[2:]))[: tensor.ndim]


def _causes(error: BaseException) -> list[BaseException]:
    """An error and what it came from, the origin last."""
    found = [error]
    while (cause := found[-1].__cause__) is not None:
        found.append(cause)
    return found


def _grid(task: Task) -> tuple[int, ...] | None:
    """Of the training samples; None where they have none."""
    return task.grid or tuple(getattr(task.data, "axes", ())) or None


def fixed_grid(task: Task, network: NormalisedNetwork) -> tuple[int, ...] | None:
    """The grid of the training samples where the network cannot do without one."""
    grid = _grid(task)
    if grid is None or MODELS[task.settings.model].needs_grid:
        return grid
    try:
        with torch.no_grad():
            network(**example_inputs(task, network))
    except ValueError:
        return grid
    return None


def example_inputs(
    task: Task, network: NormalisedNetwork, *, mask: bool = False, weights: bool = False
) -> dict[str, Tensor]:
    """Inputs of the shapes that a run's network takes, within the range of its training samples."""
    grid = _grid(task)
    n = math.prod(grid) if grid else task.points or 100
    random = torch.Generator().manual_seed(0)
    dtype = network.position_range.dtype

    def within(known: Tensor) -> Tensor:
        low, high = known
        return low + (high - low) * torch.rand(1, n, len(low), generator=random, dtype=dtype)

    example = {"positions": within(network.position_range)}
    if task.problem.inputs:
        example["values"] = within(network.value_range)
    if task.problem.time:
        example["time"] = torch.zeros(1, dtype=dtype)
    if task.problem.context:
        example["context"] = torch.rand(1, 10, 2, generator=random, dtype=dtype)
    if mask:
        example["mask"] = torch.ones(1, n, dtype=torch.bool)
    if weights:
        example["weights"] = torch.full((1, n), 1 / n, dtype=dtype)
    return example
