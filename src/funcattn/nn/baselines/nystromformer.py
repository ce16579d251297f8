"""Nystromformer.

Xiong et al., Nyströmformer: A Nyström-Based Algorithm for Approximating Self-Attention, AAAI 2021.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.attentions import ATTENTIONS, AttentionEntry, layer_of
from funcattn.nn.baselines.base import QueriesKeysValues, measure
from funcattn.nn.feature_maps import FeatureMap, Pointwise
from funcattn.nn.points import Points
from funcattn.ops import without_padding
from funcattn.ops.linalg import at_least_float32, full_precision, identity_like
from funcattn.settings import DEEPEST, SizedAttentionSettings


def nystrom_attention(
    query: Float[Tensor, "b h n d"],
    key: Float[Tensor, "b h m d"],
    value: Float[Tensor, "b h m d"],
    query_weights: Float[Tensor, "#b 1 n 1"] | None = None,
    key_weights: Float[Tensor, "#b 1 m 1"] | None = None,
    *,
    landmarks: int = 64,
    iterations: int = 6,
) -> Float[Tensor, "b h n d"]:
    """Softmax attention by a Nystrom approximation through g landmarks q~ and k~.

    out = S(q, k~) S(q~, k~)^+ S(q~, k) v,    S(a, b) = softmax over b of a b^T / sqrt d

    Landmarks are means over segments of consecutive points (`landmark_means`). In S, a key point
    counts with its weight and a landmark with the weight of its segment. ^+ is
    `iterative_pseudo_inverse`. Time grows with (n + m) g, memory with n + m.

    Points of weight 0 are as good as absent. Where a sample has no more than g key points, each is
    its own landmark and S(q, k) v is computed exactly.

    >>> import torch
    >>> query, key, value = torch.randn(3, 2, 4, 100, 16)  # 2 samples, 4 heads, 100 points
    >>> nystrom_attention(query, key, value, landmarks=10).shape
    torch.Size([2, 4, 100, 16])
    """
    if key.shape[-2] <= landmarks:
        return _softmax_attention(query, key, value, key_weights)
    few_queries, query_mass = landmark_means(query, landmarks, query_weights)
    few_keys, key_mass = landmark_means(key, landmarks, key_weights)
    with full_precision(query.device):
        scores = few_queries @ few_keys.mT * key.shape[-1] ** -0.5 + key_mass.log().mT
        # A landmark without points is a row, or by its mass a column, of zeros, and the same holds
        # for the pseudo-inverse.
        between = scores.softmax(-1) * (query_mass > 0)
        inverse = iterative_pseudo_inverse(between, iterations)
    at_landmarks = _softmax_attention(few_queries.to(query.dtype), key, value, key_weights)
    with full_precision(query.device):
        moved = inverse @ at_landmarks.to(inverse.dtype)
        if key_weights is not None:
            few_values, _ = landmark_means(value, landmarks, key_weights)
            exact = (key_weights > 0).sum(-2, keepdim=True) <= landmarks
            moved = torch.where(exact, few_values, moved)
    # Segments of the same size need no bias, without which faster kernels may run.
    even = key_weights is None and key.shape[-2] % landmarks == 0
    mass = None if even else key_mass
    return _softmax_attention(query, few_keys.to(key.dtype), moved.to(value.dtype), mass)


def landmark_means(
    field: Float[Tensor, "b h n d"],
    landmarks: int,
    weights: Float[Tensor, "#b 1 n 1"] | None = None,
) -> tuple[Float[Tensor, "b h g d"], Float[Tensor, "b 1 g 1"]]:
    """Means of a field over g segments of consecutive points, and the weight of each segment.

    Point i of the r that have weight is in segment floor(i g / r), so that segments differ by at
    most one point, and by none where g divides r. Where r < g, some are empty: their weight is 0,
    and their mean too. In float32 at least.

    >>> import torch
    >>> field = torch.tensor([1.0, 3.0, 5.0, 9.0]).view(1, 1, 4, 1)
    >>> means, mass = landmark_means(field, 2)
    >>> means.flatten().tolist(), mass.flatten().tolist()
    ([2.0, 7.0], [2.0, 2.0])
    """
    batch, points = len(field), field.shape[-2]
    field = field.to(at_least_float32(field.dtype))
    if weights is None:
        weights = field.new_ones(1, 1, points, 1)
    weights = weights.to(field.dtype).expand(batch, -1, -1, -1)
    real = (weights > 0).reshape(batch, points)
    before = real.cumsum(-1) - real.long()
    segment = before * landmarks // real.sum(-1, keepdim=True)
    # A point without weight behind the last real one has no segment; any will do.
    segment = segment.clamp(max=landmarks - 1)
    rows = segment + landmarks * torch.arange(batch, device=field.device).unsqueeze(-1)

    def summed(x: Tensor) -> Tensor:
        """Sums over segments, (b k n e) -> (b k g e)."""
        at_points = x.transpose(1, 2).flatten(2).flatten(0, 1)  # (b, k, n, e) -> (b n, k e)
        sums = x.new_zeros(batch * landmarks, at_points.shape[-1])
        sums = sums.index_add(0, rows.flatten(), at_points)
        # (b g, k e) -> (b, k, g, e)
        return sums.view(batch, landmarks, x.shape[1], -1).transpose(1, 2)

    mass = summed(weights)
    return summed(weights * field) / torch.where(mass > 0, mass, 1), mass


def iterative_pseudo_inverse(
    matrix: Float[Tensor, "*batch g k"], iterations: int = 6
) -> Float[Tensor, "*batch k g"]:
    """The Moore-Penrose inverse A^+, by iterations without a factorisation.

    Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4, from Z = A^T / (|A|_1 |A|_inf): of third order
    once it is close. Small singular values take more iterations; until then their part in Z is too
    small, never too large.

    >>> import torch
    >>> iterative_pseudo_inverse(torch.tensor([[2.0, 0.0], [0.0, 4.0]]), 20)
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    size = matrix.abs()
    largest_column, largest_row = size.sum(-2).amax(-1), size.sum(-1).amax(-1)
    inverse = matrix.mT / (largest_column * largest_row)[..., None, None]
    for _ in range(iterations):
        product = matrix @ inverse
        identity = identity_like(product)
        inner = 15 * identity - product @ (7 * identity - product)
        inverse = inverse @ (13 * identity - product @ inner) / 4
    return inverse


def _softmax_attention(query: Tensor, key: Tensor, value: Tensor, weights: Tensor | None) -> Tensor:
    """Softmax attention to keys that count with their weights (b 1 m 1)."""
    bias = None if weights is None else weights.to(query.dtype).log().mT
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias)


class NystromAttention(QueriesKeysValues):
    """`nystrom_attention`, with an optional convolution of the values beside it.

    It looks at the order of the points: segments are runs of consecutive ones. So points should be
    ordered such that neighbours follow each other, and permuting them is not harmless, unless there
    are no more than landmarks, where it is softmax attention.

    landmarks, iterations: g, and steps of the pseudo-inverse. More steps are not always better:
        what the landmarks miss is magnified where their matrix is nearly singular.
    skip: length (odd) of a convolution along the points, one filter a head, that is added to the
        result; 0: none, as points have no such order in general. For sequences the published code
        takes 33 or 35. Masked points count as 0 and keep their place. It excludes a context, whose
        values are not at the points of x.

    Relative to the paper: the pseudo-inverse of each matrix starts at its own scale, not at one for
    the whole batch, so that samples do not see each other; segments may be uneven; the convolution
    is off; weights, masks and contexts are ours.

    >>> import torch
    >>> NystromAttention(width=64, heads=4)(torch.randn(2, 1000, 64)).shape
    torch.Size([2, 1000, 64])
    """

    def __init__(
        self,
        width: int,
        heads: int = 8,
        landmarks: int = 64,
        *,
        iterations: int = 6,
        skip: int = 0,
        features: FeatureMap = Pointwise,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, features=features, dropout=dropout)
        for name, size in (("landmarks", landmarks), ("iterations", iterations)):
            if size < 1:
                raise ValueError(f"{name}: expected at least 1, got {size}")
        if skip < 0 or (skip > 0 and skip % 2 == 0):
            raise ValueError(f"skip: expected 0 or an odd number of points, got {skip}")
        self.landmarks, self.iterations = landmarks, iterations
        self.takes_context = not skip
        self.skip = (
            nn.Conv2d(heads, heads, (skip, 1), padding=(skip // 2, 0), groups=heads, bias=False)
            if skip
            else None
        )

    def combine(
        self,
        query: Float[Tensor, "b h n d"],
        key: Float[Tensor, "b h m d"],
        value: Float[Tensor, "b h m d"],
        here: Points,
        there: Points,
    ) -> Float[Tensor, "b h n d"]:
        """Through the landmarks, and beside them."""
        out = nystrom_attention(
            query,
            key,
            value,
            measure(here, query),
            measure(there, key),
            landmarks=self.landmarks,
            iterations=self.iterations,
        )
        if self.skip is None:
            return out
        return out + self.skip(without_padding(value, there.mask, axis=-2))


@dataclass(frozen=True)
class NystromSettings(SizedAttentionSettings):
    """A transformer with this attention; `bases` is the number of landmarks."""

    iterations: int = 6
    """Steps towards the pseudo-inverse."""

    bounds: ClassVar = {"iterations": (1, DEEPEST)}


ATTENTIONS.register(
    "nystromformer",
    AttentionEntry(
        "Transformer with softmax attention by way of landmarks",
        "Xiong et al., Nystromformer, AAAI 2021",
        when="Softmax attention on many points, listed so that neighbours are near each other.",
        settings=NystromSettings,
        layer=layer_of(NystromAttention, landmarks="bases", iterations="iterations"),
    ),
)
