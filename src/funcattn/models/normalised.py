"""A network with all that prediction needs: its normalisers, and the range it was trained on."""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from funcattn.models.encoded import Encoded
from funcattn.models.stacked import StackedNetwork
from funcattn.nn.normaliser import BENCHMARK_OFFSET, Normaliser
from funcattn.ops import without_padding


@runtime_checkable
class FitsToSolutions(Protocol):
    """A network that takes something from the training data before it is trained."""

    def fit_to(self, targets: Iterable[Tensor], /) -> None:
        """targets: of each sample, as the network is to give them."""


class NormalisedNetwork(nn.Module):
    """Real units in, real units out; called as its network is.

    unit_free: no unit matters, neither that of the positions nor that of a field. Positions are
        centred and divided by half of the largest extent of the training data, so that they lie
        between -1 and 1, and deviations are used as they are. The benchmarks do without, as their
        positions lie in a box of size 1 by construction.
    """

    position_range: Tensor
    value_range: Tensor
    position_centre: Tensor
    position_length: Tensor

    def __init__(
        self,
        network: nn.Module,
        *,
        space: int,
        inputs: int,
        outputs: int,
        normalise_inputs: bool,
        normalise_outputs: bool,
        unit_free: bool = False,
    ) -> None:
        super().__init__()
        self.network, self.unit_free = network, unit_free
        offset = 0.0 if unit_free else BENCHMARK_OFFSET
        self.input_normaliser = (
            Normaliser(inputs, offset=offset) if normalise_inputs and inputs else None
        )
        self.output_normaliser = Normaliser(outputs, offset=offset) if normalise_outputs else None
        self.register_buffer("position_range", torch.zeros(2, space))
        self.register_buffer("value_range", torch.zeros(2, inputs))
        if unit_free:
            self.register_buffer("position_centre", torch.zeros(space))
            self.register_buffer("position_length", torch.ones(()))

    def fit(
        self, positions: Iterable[Tensor], values: Iterable[Tensor], targets: Iterable[Tensor]
    ) -> None:
        """Take normalisers and ranges from the training samples: (n s), (n i), (n o) each.

        Where no unit matters, NaN in a target stands for a value that is not known.
        """
        positions, values = list(positions), list(values)
        # Networks that take something from the solutions too; labels are not looked at.
        takers = [m.fit_to for m in self.network.modules() if isinstance(m, FitsToSolutions)]
        if takers:
            targets = list(targets)
        self.position_range.copy_(_range(positions))
        if values:
            self.value_range.copy_(_range(values))
        if self.unit_free:
            # In float64, as the positions may lie far from the origin.
            low, high = _range([p.double() for p in positions])
            self.position_centre.copy_((low + high) / 2)
            extent = (high - low).amax()
            self.position_length.copy_(torch.where(extent > 0, extent / 2, 1.0))
        if self.input_normaliser is not None:
            self.input_normaliser.fit(values)
        if self.output_normaliser is not None:
            self.output_normaliser.fit(targets, missing=self.unit_free)
        for fit_to in takers:
            out = self.output_normaliser
            fit_to(targets if out is None else [out(target) for target in targets])

    def forward(
        self,
        positions: Tensor,
        values: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        **points: object,
    ) -> Tensor:
        """The output fields, in real units; 0 at masked points."""
        out = self.network(self.placed(positions), self.normalised(values), mask=mask, **points)
        return without_padding(self.in_units(out), mask)

    def encode(
        self,
        positions: Tensor,
        values: Tensor | None = None,
        *,
        time: Tensor | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Encoded:
        """All that a mesh has to say to any point, for `query`; see `StackedNetwork`."""
        positions, values = self.placed(positions), self.normalised(values)
        return self.stacked().encode(positions, values, time=time, mask=mask, weights=weights)

    def query(
        self,
        encoded: Encoded,
        positions: Tensor,
        values: Tensor | None = None,
        *,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The output fields of an encoded mesh at any points, in real units; 0 at masked points."""
        positions, values = self.placed(positions), self.normalised(values)
        out = self.in_units(self.stacked().query(encoded, positions, values, mask=mask))
        return without_padding(out, mask)

    def placed(self, positions: Tensor) -> Tensor:
        """Positions as the network wants them."""
        if not self.unit_free:
            return positions
        return (positions - self.position_centre) / self.position_length

    def normalised(self, values: Tensor | None) -> Tensor | None:
        """Input values as the network wants them."""
        if values is None or self.input_normaliser is None:
            return values
        return self.input_normaliser(values)

    def in_units(self, out: Tensor) -> Tensor:
        """What the network gives, in real units."""
        return out if self.output_normaliser is None else self.output_normaliser.inverse(out)

    def stacked(self) -> StackedNetwork:
        """The network, where it is of the kind that can be encoded."""
        if not isinstance(self.network, StackedNetwork):
            raise ValueError(
                "encode: expected a network whose blocks read a mesh through "
                f"coefficients, got {type(self.network).__name__}; call it on all points at once"
            )
        return self.network


def _range(fields: list[Tensor]) -> Tensor:
    """Smallest and largest value of each channel, (2 k)."""
    lows, highs = zip(*((field.amin(0), field.amax(0)) for field in fields), strict=True)
    return torch.stack([torch.stack(lows).amin(0), torch.stack(highs).amax(0)])
