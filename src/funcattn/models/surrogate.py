"""A network with all that prediction needs: its normalisers, and the range it was trained on."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from funcattn.models.encoded import Encoded
from funcattn.models.operator_transformer import OperatorTransformer
from funcattn.nn import Normaliser


class Surrogate(nn.Module):
    """Real units in, real units out; called as its network is."""

    position_range: Tensor
    value_range: Tensor

    def __init__(
        self,
        network: nn.Module,
        *,
        space: int,
        inputs: int,
        outputs: int,
        normalise_inputs: bool,
        normalise_outputs: bool,
    ) -> None:
        super().__init__()
        self.network = network
        self.input_normaliser = Normaliser(inputs) if normalise_inputs and inputs else None
        self.output_normaliser = Normaliser(outputs) if normalise_outputs else None
        self.register_buffer("position_range", torch.zeros(2, space))
        self.register_buffer("value_range", torch.zeros(2, inputs))

    def fit(
        self, positions: Iterable[Tensor], values: Iterable[Tensor], targets: Iterable[Tensor]
    ) -> None:
        """Take normalisers and ranges from the training samples: (n s), (n i), (n o) each."""
        positions, values = list(positions), list(values)
        self.position_range.copy_(_range(positions))
        if values:
            self.value_range.copy_(_range(values))
        if self.input_normaliser is not None:
            self.input_normaliser.fit(values)
        if self.output_normaliser is not None:
            self.output_normaliser.fit(targets)

    def forward(
        self,
        positions: Tensor,
        values: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        **points: object,
    ) -> Tensor:
        """The output fields, in real units; 0 at masked points."""
        out = self.in_units(self.network(positions, self.normalised(values), mask=mask, **points))
        return out if mask is None else out.masked_fill(~mask.unsqueeze(-1), 0)

    def encode(
        self,
        positions: Tensor,
        values: Tensor | None = None,
        *,
        time: Tensor | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Encoded:
        """All that a mesh has to say to any point, for `query`; see `OperatorTransformer`."""
        values = self.normalised(values)
        return self.transformer().encode(positions, values, time=time, mask=mask, weights=weights)

    def query(
        self,
        encoded: Encoded,
        positions: Tensor,
        values: Tensor | None = None,
        *,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The output fields of an encoded mesh at any points, in real units; 0 at masked points."""
        values = self.normalised(values)
        out = self.in_units(self.transformer().query(encoded, positions, values, mask=mask))
        return out if mask is None else out.masked_fill(~mask.unsqueeze(-1), 0)

    def normalised(self, values: Tensor | None) -> Tensor | None:
        """Input values as the network wants them."""
        if values is None or self.input_normaliser is None:
            return values
        return self.input_normaliser(values)

    def in_units(self, out: Tensor) -> Tensor:
        """What the network gives, in real units."""
        return out if self.output_normaliser is None else self.output_normaliser.inverse(out)

    def transformer(self) -> OperatorTransformer:
        """The network, where it is of the kind that can be encoded."""
        if not isinstance(self.network, OperatorTransformer):
            raise ValueError(
                "encode: expected an OperatorTransformer, whose layers read a mesh through "
                f"coefficients, got {type(self.network).__name__}; call it on all points at once"
            )
        return self.network


def _range(fields: list[Tensor]) -> Tensor:
    """Smallest and largest value of each channel, (2 k)."""
    lows, highs = zip(*((field.amin(0), field.amax(0)) for field in fields), strict=True)
    return torch.stack([torch.stack(lows).amin(0), torch.stack(highs).amax(0)])
