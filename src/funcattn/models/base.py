"""What all whole networks on points share: the call, its checks, the features at the points.

Axes: b batch, n point, s space dimension, i input channel, o output channel, k feature.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from funcattn.models.matrices import matrices, parameters_for_adamw
from funcattn.nn.points import Points
from funcattn.ops import without_padding
from funcattn.ops.checks import check_batch, check_point_weights


class FieldNetwork(nn.Module, ABC):
    """A network from fields on points to fields on the same points: the call and its checks.

    space, inputs, outputs: dimension of space, channels of the input values (0: the geometry alone
        is the input) and of the output.
    time: the call takes a time for each sample.

    A network fills in `fields`. What it cannot do it refuses when it is built, or at the call where
    only the call shows it.
    """

    takes_mask: ClassVar[bool] = True
    """Whether samples of different sizes can share a batch."""
    spreads: bool = False
    """Whether its points can be spread over ranks, of which some have none."""
    for_adamw: Sequence[str] = ("encoding", "lift", "time", "head")
    """Parts that AdamW moves whatever the recipe, by name, where there are such."""

    def __init__(self, space: int, inputs: int, outputs: int, *, time: bool) -> None:
        super().__init__()
        self.space, self.inputs, self.outputs, self.timed = space, inputs, outputs, time
        self.coordinates = space + time
        """Channels of `coordinates_of`: position and time."""
        self.features = self.coordinates + inputs
        """Channels of `features_of`: position, time and values."""

    def forward(
        self,
        positions: Float[Tensor, "b n s"],
        values: Float[Tensor, "b n i"] | None = None,
        *,
        grid: tuple[int, ...] | None = None,
        time: Float[Tensor, " b"] | None = None,
        mask: Bool[Tensor, "b n"] | None = None,
        weights: Float[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n o"]:
        """The output fields at the points; 0 at masked points.

        grid: axis lengths where the points form a grid, row-major. mask: True at real points; what
        stands at the others is never looked at. weights: quadrature weights or cell volumes.
        """
        values, points = self.at_the_door(values, time, Points(positions, grid, mask, weights))
        return points.cleared(self.fields(values, time, points))

    @abstractmethod
    def fields(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n o"]:
        """The output fields; what it gives at masked points does not matter."""

    def matrices_for_muon(self) -> list[nn.Parameter]:
        """All that AdamW is not to move."""
        kept = set(parameters_for_adamw(self))
        return [matrix for matrix in matrices([self]) if matrix not in kept]

    def coordinates_of(self, time: Tensor | None, points: Points) -> Float[Tensor, "b n k"]:
        """The position of each point, with the time of its sample."""
        assert points.positions is not None
        if time is None:
            return points.positions
        return torch.cat([points.positions, _at_each_point(time, points.positions)], dim=-1)

    def features_of(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n k"]:
        """All that is known at each point: position, time and values."""
        coordinates = self.coordinates_of(time, points)
        return coordinates if values is None else torch.cat([coordinates, values], dim=-1)

    def at_the_door(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> tuple[Tensor | None, Points]:
        """The input, checked, with 0 at masked points, whatever stood there."""
        positions, mask = points.positions, points.mask
        assert positions is not None
        self.check(positions, values, time)
        check_point_weights(None, mask, positions.shape[1], shard=self.spreads)
        check_batch(positions.shape[0], mask=mask, weights=points.weights)
        if mask is not None and not self.takes_mask:
            raise ValueError(
                f"mask: expected none, as {type(self).__name__} takes samples with all of "
                "their points only; put samples of different sizes into different batches"
            )
        points = points.without_padding()
        check_point_weights(points.weights, mask, positions.shape[1], shard=self.spreads)
        return without_padding(values, mask), points

    def check(self, positions: Tensor, values: Tensor | None, time: Tensor | None) -> None:
        """Shapes at the door, in words."""
        if positions.ndim != 3 or positions.shape[-1] != self.space:
            raise ValueError(
                f"positions: expected (b, n, {self.space}), got {tuple(positions.shape)}"
            )
        b, n = positions.shape[:2]
        got: tuple[int, ...] | None = None if values is None else tuple(values.shape)
        wanted: tuple[int, ...] | None = (b, n, self.inputs) if self.inputs else None
        if got != wanted:
            raise ValueError(
                f"values: expected {wanted or 'none, the model was built with inputs=0'}, got {got}"
            )
        got = None if time is None else tuple(time.shape)
        wanted = (b,) if self.timed else None
        if got != wanted:
            raise ValueError(
                f"time: expected {wanted}, as the model was built with time={self.timed}, got {got}"
            )


def _at_each_point(time: Float[Tensor, " b"], positions: Tensor) -> Float[Tensor, "b n 1"]:
    return time.to(positions.dtype).view(-1, 1, 1).expand(-1, positions.shape[1], -1)
