"""A network with all that prediction needs: its normalisers, and the range it was trained on."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

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
        if values is not None and self.input_normaliser is not None:
            values = self.input_normaliser(values)
        out: Tensor = self.network(positions, values, mask=mask, **points)
        if self.output_normaliser is not None:
            out = self.output_normaliser.inverse(out)
        return out if mask is None else out.masked_fill(~mask.unsqueeze(-1), 0)


def _range(fields: list[Tensor]) -> Tensor:
    """Smallest and largest value of each channel, (2 k)."""
    lows, highs = zip(*((field.amin(0), field.amax(0)) for field in fields), strict=True)
    return torch.stack([torch.stack(lows).amin(0), torch.stack(highs).amax(0)])
