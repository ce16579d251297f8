"""`funcattn export`."""

from dataclasses import dataclass

import torch
from rich.console import Console
from torch import Tensor

from funcattn.cli import commands
from funcattn.cli.terminal import check_output, refuse
from funcattn.export import axes_of, to_onnx
from funcattn.models import MODELS
from funcattn.nn.feature_maps import GridConvolution, Stencil
from funcattn.serve import Predictor, load


@dataclass(frozen=True)
class Export(commands.Export):
    """`funcattn export`."""

    def run(self, rest: list[str], console: Console) -> None:
        """Translate with a sign of life, as it takes a while."""
        refuse(rest)
        check_output(self.output)
        predictor = load(self.run_folder, accept_edited=self.accept_edited)
        weights = self.weights or predictor.task.weighted
        example = _example(predictor, mask=self.mask, weights=weights)
        with console.status(f"{self.output}: translating, and comparing with the network"):
            to_onnx(predictor.surrogate, self.output, example, grid=_fixed_grid(predictor))
        inputs = ", ".join(
            f"{name} ({' '.join(axes_of(name, tensor))})" for name, tensor in example.items()
        )
        console.print(f"{self.output}: takes {inputs}", markup=False, soft_wrap=True)


def _fixed_grid(predictor: Predictor) -> tuple[int, ...] | None:
    """The grid of the training samples where the network cannot do without one."""
    on_grid = MODELS[predictor.task.settings.model].needs_grid or any(
        isinstance(module, Stencil | GridConvolution) for module in predictor.surrogate.modules()
    )
    return predictor.task.grid if on_grid else None


def _example(predictor: Predictor, *, mask: bool, weights: bool) -> dict[str, Tensor]:
    """Inputs of the shapes that a run's network takes, within the range of its training samples."""
    task, surrogate = predictor.task, predictor.surrogate
    n = task.points or 100
    random = torch.Generator().manual_seed(0)
    dtype = surrogate.position_range.dtype

    def within(known: Tensor) -> Tensor:
        low, high = known
        return low + (high - low) * torch.rand(1, n, len(low), generator=random, dtype=dtype)

    example = {"positions": within(surrogate.position_range)}
    if task.problem.inputs:
        example["values"] = within(surrogate.value_range)
    if task.problem.time:
        example["time"] = torch.zeros(1, dtype=dtype)
    if task.problem.context:
        example["context"] = torch.rand(1, 10, 2, generator=random, dtype=dtype)
    if mask:
        example["mask"] = torch.ones(1, n, dtype=torch.bool)
    if weights:
        example["weights"] = torch.full((1, n), 1 / n, dtype=dtype)
    return example
