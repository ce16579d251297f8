"""Mean 0 and deviation 1, channel by channel, kept with the network."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

BENCHMARK_OFFSET = 1e-8
"""What the benchmarks add to every deviation; their numbers were made with it."""


class Normaliser(nn.Module):
    """One mean and one deviation per channel, over all points of all training samples.

    offset: added to each deviation. With 0 the unit of a field does not matter: fields times any
    number come out the same. The benchmarks' 1e-8 is harmless for fields near 1 and ruins small
    ones.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, channels: int, *, offset: float = BENCHMARK_OFFSET) -> None:
        super().__init__()
        self.offset = offset
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("scale", torch.ones(channels))

    def fit(self, fields: Iterable[Float[Tensor, "_ k"]], *, missing: bool = False) -> None:
        """Take the statistics of these fields; one pass, in float64.

        missing: NaN stands for a value that is not known, and is left out.
        """
        count = torch.zeros(1).double()
        mean, spread = torch.zeros(1).double(), torch.zeros(1).double()
        for place, field in enumerate(fields):
            known = ~field.isnan() if missing else torch.ones((), dtype=torch.bool)
            if not bool((field.isfinite() | ~known).all()):
                raise ValueError(f"fields: expected finite values, got others in field {place}")
            # Chan's update: exact for fields of any sizes, without keeping them.
            field = field.double()
            if bool(known.all()):
                n, its_mean = torch.full_like(count, len(field)), field.mean(0)
            else:
                n = known.sum(0).double()
                its_mean = field.nansum(0) / n.clamp(min=1)
            total = (count + n).clamp(min=1)
            shift = its_mean - mean
            differences = (field - its_mean).masked_fill(~known, 0)
            spread = spread + differences.square().sum(0) + shift**2 * count * n / total
            mean = mean + shift * n / total
            count = count + n
        if int(count.min()) < 2:
            got = int(count.min())
            raise ValueError(f"fields: expected at least two points to normalise by, got {got}")
        self.mean.copy_(mean)
        deviation = (spread / (count - 1)).sqrt()
        # A constant channel is shifted only: over its rounding errors it would be anything.
        constant = deviation <= 1e-12 * mean.abs()
        self.scale.copy_((deviation + self.offset).masked_fill(constant, 1.0))

    def forward(self, x: Float[Tensor, "*b k"]) -> Float[Tensor, "*b k"]:
        """Real units to normalised ones."""
        return (x - self.mean) / self.scale

    def inverse(self, x: Float[Tensor, "*b k"]) -> Float[Tensor, "*b k"]:
        """Normalised units to real ones."""
        return x * self.scale + self.mean
