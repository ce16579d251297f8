"""Mean 0 and deviation 1, channel by channel, kept with the network."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Normaliser(nn.Module):
    """One mean and one deviation a channel, over all points of all training samples."""

    mean: Tensor
    scale: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("scale", torch.ones(channels))

    def fit(self, fields: Iterable[Float[Tensor, "_ k"]]) -> None:
        """Take the statistics of these fields; one pass, in float64."""
        count, mean, spread = 0, torch.zeros(1).double(), torch.zeros(1).double()
        for place, field in enumerate(fields):
            if not bool(field.isfinite().all()):
                raise ValueError(f"fields: expected finite values, got others in field {place}")
            # Chan's update: exact for fields of any sizes, without keeping them.
            field = field.double()
            n, its_mean = len(field), field.mean(0)
            shift = its_mean - mean
            spread = (
                spread + (field - its_mean).square().sum(0) + shift**2 * count * n / (count + n)
            )
            mean = mean + shift * n / (count + n)
            count += n
        if count < 2:
            raise ValueError(f"fields: expected at least two points to normalise by, got {count}")
        self.mean.copy_(mean)
        deviation = (spread / (count - 1)).sqrt()
        # A constant channel is shifted only: over its rounding errors it would be anything.
        constant = deviation <= 1e-12 * mean.abs()
        self.scale.copy_((deviation + 1e-8).masked_fill(constant, 1.0))

    def forward(self, x: Float[Tensor, "*b k"]) -> Float[Tensor, "*b k"]:
        """Real units to normalised ones."""
        return (x - self.mean) / self.scale

    def inverse(self, x: Float[Tensor, "*b k"]) -> Float[Tensor, "*b k"]:
        """Normalised units to real ones."""
        return x * self.scale + self.mean
