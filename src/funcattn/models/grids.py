"""What networks on grids share: features as channels on the grid, padding, maps at each point.

All see indices, and the positions only as input channels, so that the grid may be curved. They
refuse masks; weights of the points change nothing.

Axes: b batch, c channel, k feature, n point, o output channel.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.base import FieldNetwork
from funcattn.nn.points import Points, check_grid, per_dimension
from funcattn.problem import Problem

CONVOLUTIONS: dict[int, type[nn.Conv1d | nn.Conv2d | nn.Conv3d]] = {
    1: nn.Conv1d,
    2: nn.Conv2d,
    3: nn.Conv3d,
}
"""By the number of axes."""


class OnGrid(FieldNetwork):
    """A network on a grid of 1, 2 or 3 axes, from the features at its points.

    `on_grid` is to be filled in.
    """

    takes_mask = False

    def __init__(self, space: int, inputs: int, outputs: int, *, time: bool) -> None:
        super().__init__(space, inputs, outputs, time=time)
        if space not in CONVOLUTIONS:
            raise ValueError(f"space: expected a grid of 1, 2 or 3 axes, got {space}")

    def fields(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n o"]:
        """Position, time and values as channels on the grid, and back to the points."""
        features = self.features_of(values, time, points)
        grid = check_grid(points.grid, features.shape[1], dims=self.space)
        x = features.mT.unflatten(-1, grid)  # (b, n, k) -> (b, k, *grid)
        return self.on_grid(x.contiguous()).flatten(2).mT  # (b, o, *grid) -> (b, n, o)

    @abstractmethod
    def on_grid(self, x: Float[Tensor, "b k *grid"]) -> Float[Tensor, "b o *grid"]:
        """From the features on the grid to the outputs."""


class GridNetwork(OnGrid):
    """A network on a grid that has modes, and padding where the grid is not periodic."""

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        modes: int | Sequence[int],
        padding: float | Sequence[float],
        time: bool,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        self.modes = (modes,) * space if isinstance(modes, int) else tuple(modes)
        if len(self.modes) != space or min(self.modes) < 1:
            raise ValueError(
                f"modes: expected a positive number, or one for each of {space} axes, got {modes}"
            )
        self.padding = per_dimension(padding, space)
        if not all(0 <= p <= 1 for p in self.padding):
            raise ValueError(f"padding: expected fractions of the axes in [0, 1], got {padding}")

    def padded(self, grid: Sequence[int]) -> list[int]:
        """The axis lengths with padding."""
        pairs = zip(self.padding, grid, strict=True)
        return [length + round(fraction * length) for fraction, length in pairs]


def padding_of(problem: Problem) -> float:
    """Where space is not a torus, a tenth of each axis keeps its ends apart."""
    return 0.0 if problem.periodic else 0.1


def at_points(linear: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A convolution over flattened points, on a grid of any number of axes."""
    return linear(x.flatten(2)).unflatten(2, x.shape[2:])


def extended(x: Tensor, grid: Sequence[int]) -> Tensor:
    """A field on a larger grid: zeros at the end of each axis."""
    more = [there - here for here, there in zip(x.shape[2:], grid, strict=True)]
    return F.pad(x, [part for gap in reversed(more) for part in (0, gap)])


def cut(x: Tensor, grid: Sequence[int]) -> Tensor:
    """The part of a field that `extended` had."""
    for axis, length in enumerate(grid, start=2):
        x = x.narrow(axis, 0, length)
    return x


class InstanceNorm(nn.Module):
    """Each channel of each sample with mean 0 and variance 1 over the grid, times a gain, plus."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain, self.shift = (
            nn.Parameter(torch.ones(channels)),
            nn.Parameter(torch.zeros(channels)),
        )

    def forward(self, x: Float[Tensor, "b c *grid"]) -> Float[Tensor, "b c *grid"]:
        """Normalised; a grid of one point becomes the shift."""
        axes = tuple(range(2, x.ndim))
        centred = x - x.mean(axes, keepdim=True)
        scale = (centred.square().mean(axes, keepdim=True) + 1e-5).rsqrt()
        shape = (-1, *(1,) * len(axes))
        return centred * scale * self.gain.view(shape) + self.shift.view(shape)
