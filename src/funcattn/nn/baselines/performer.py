"""Performer (Choromanski et al., Rethinking Attention with Performers, ICLR 2021)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from funcattn.nn.attentions import ATTENTIONS, AttentionEntry, layer_of
from funcattn.nn.baselines.base import QueriesKeysValues, measure
from funcattn.nn.baselines.linear import kernel_attention
from funcattn.nn.feature_maps import FeatureMap, Pointwise
from funcattn.nn.points import Points
from funcattn.ops.linalg import at_least_float32, full_precision
from funcattn.settings import SizedAttentionSettings


def random_directions(
    count: int,
    channels: int,
    *,
    orthogonal: bool = True,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "g d"]:
    """Normal random vectors; `orthogonal`: at right angles to each other in blocks of `channels`.

    Each vector by itself is standard normal either way. Drawn from `generator`, or from the one of
    torch.
    """
    if not orthogonal:
        return torch.randn(count, channels, generator=generator)
    blocks = -(-count // channels)
    gaussian = torch.randn(blocks, channels, channels, generator=generator)
    frames, triangles = torch.linalg.qr(gaussian)
    # With the signs of R's diagonal moved to Q, every rotation is equally likely.
    frames = frames * triangles.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    lengths = torch.randn(count, channels, generator=generator).norm(dim=-1, keepdim=True)
    return (lengths * frames.flatten(0, 1)[:count]).contiguous()


def log_positive_features(
    x: Float[Tensor, "*points d"], directions: Float[Tensor, "g d"]
) -> Float[Tensor, "*points g"]:
    """log phi(x) with phi(q) . phi(k) = exp(q . k / sqrt d) in the mean over the directions.

    phi_g(x) = exp(w_g . y - |y|^2 / 2) / sqrt(number of directions), y = x / d^(1/4); in float32 at
    least.

    >>> import torch
    >>> q, k = torch.tensor([[0.3, -0.5], [0.2, 0.4]])
    >>> w = random_directions(4000, 2, generator=torch.Generator().manual_seed(0))
    >>> estimate = log_positive_features(q, w).exp() @ log_positive_features(k, w).exp()
    >>> exact = torch.exp(q @ k / 2**0.5)
    >>> bool(abs(estimate - exact) < 0.01)
    True
    """
    count, channels = directions.shape
    with full_precision(x.device):
        y = x.to(at_least_float32(x.dtype)) * channels**-0.25
        shift = (y.square().sum(-1, keepdim=True) + math.log(count)) / 2
        return y @ directions.mT.to(y.dtype) - shift


class PerformerAttention(QueriesKeysValues):
    """`kernel_attention` with random positive features of the softmax kernel (FAVOR+).

    It converges to softmax attention as `random_features` (g) grows, with an error of the order of
    1 / sqrt g that grows quickly with the size of queries and keys. Time and memory grow with
    (n + m) g.

    random_features, orthogonal: number and kind of the directions of `random_directions`, which all
        heads share. They are drawn at construction, and saved with the model.

    Relative to the paper: nothing is added to the features, since exponents are shifted exactly
    (`kernel_attention`) instead of by the largest one; directions are drawn anew only by `redraw`;
    only the form for all points at once, not the causal one; weights and masks are ours.

    >>> import torch
    >>> PerformerAttention(width=64, heads=4)(torch.randn(2, 1000, 64)).shape
    torch.Size([2, 1000, 64])
    """

    directions: Tensor

    def __init__(
        self,
        width: int,
        heads: int = 8,
        random_features: int = 256,
        *,
        orthogonal: bool = True,
        features: FeatureMap = Pointwise,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, features=features, dropout=dropout)
        if random_features < 1:
            raise ValueError(f"random_features: expected at least 1, got {random_features}")
        self.orthogonal = orthogonal
        drawn = random_directions(random_features, width // heads, orthogonal=orthogonal)
        self.register_buffer("directions", drawn)

    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Draw new directions, as the paper does now and then during training.

        Drawn on the CPU, from `generator` or from torch's own.
        """
        self.directions.copy_(
            random_directions(
                *self.directions.shape, orthogonal=self.orthogonal, generator=generator
            )
        )

    def combine(
        self,
        query: Float[Tensor, "b h n d"],
        key: Float[Tensor, "b h m d"],
        value: Float[Tensor, "b h m d"],
        here: Points,  # noqa: ARG002
        there: Points,
    ) -> Float[Tensor, "b h n d"]:
        """Features of queries and keys, then the two sums."""
        log_key = log_positive_features(key, self.directions)
        log_query = log_positive_features(query, self.directions)
        return kernel_attention(log_query, log_key, value, measure(there, log_key))


ATTENTIONS.register(
    "performer",
    AttentionEntry(
        "Transformer with softmax attention by random features",
        "Choromanski et al., Rethinking Attention with Performers, ICLR 2021",
        when="Softmax attention on many points, where a random error of it is acceptable.",
        settings=SizedAttentionSettings,
        layer=layer_of(PerformerAttention, random_features="bases"),
    ),
)
