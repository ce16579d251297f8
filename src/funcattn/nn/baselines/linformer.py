"""Linformer (Wang et al., Linformer: Self-Attention with Linear Complexity, 2020)."""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.attentions import ATTENTIONS, AttentionEntry, layer_of
from funcattn.nn.baselines.base import QueriesKeysValues, measure
from funcattn.nn.feature_maps import FeatureMap, Pointwise
from funcattn.nn.points import Points
from funcattn.problem import Problem
from funcattn.settings import SizedAttentionSettings


def linformer_attention(
    query: Float[Tensor, "b h n d"],
    key: Float[Tensor, "b h m d"],
    value: Float[Tensor, "b h m d"],
    key_projection: Float[Tensor, "g m"],
    value_projection: Float[Tensor, "g m"],
    weights: Float[Tensor, "#b 1 m 1"] | None = None,
) -> Float[Tensor, "b h n d"]:
    """Softmax attention to g combinations E k and F v of the keys and values.

    out = softmax(q (E W k)^T / sqrt d) F W v, with W the weights of the points, 0 at masked ones.
    Time grows with (n + m) g, memory with n + m.

    >>> import torch
    >>> query, key, value = torch.randn(3, 2, 4, 100, 16)  # 2 samples, 4 heads, 100 points
    >>> projection = torch.randn(10, 100)
    >>> linformer_attention(query, key, value, projection, projection).shape
    torch.Size([2, 4, 100, 16])
    """
    if weights is not None:
        key, value = weights.to(key.dtype) * key, weights.to(value.dtype) * value
    key = torch.einsum("gm,bhmd->bhgd", key_projection, key)
    value = torch.einsum("gm,bhmd->bhgd", value_projection, value)
    return F.scaled_dot_product_attention(query, key, value)


class LinformerAttention(QueriesKeysValues):
    """`linformer_attention` with learned projections, which the heads share.

    The projections have a column for each key point, so the layer is for one number of points in
    one order. A context must have that number too; the points of x that attend to it are free.

    points: their number.
    projected: g.
    one_projection: keys and values share their projection too (the paper's key-value sharing).

    Entries of the projections start normal with variance 1 / g, as in the paper's theorems: then
    they keep lengths, in the mean.

    Relative to the paper: weights and masks are ours. A masked point adds nothing to the
    combinations; all g of them are attended to, whatever is masked.

    >>> import torch
    >>> LinformerAttention(width=64, heads=4, points=1000)(torch.randn(2, 1000, 64)).shape
    torch.Size([2, 1000, 64])
    """

    def __init__(
        self,
        width: int,
        heads: int = 8,
        projected: int = 256,
        *,
        points: int,
        one_projection: bool = False,
        features: FeatureMap = Pointwise,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, features=features, dropout=dropout)
        for name, size in (("projected", projected), ("points", points)):
            if size < 1:
                raise ValueError(f"{name}: expected at least 1, got {size}")
        self.points = points
        deviation = projected**-0.5
        self.key_projection = nn.Parameter(deviation * torch.randn(projected, points))
        self.value_projection = (
            None if one_projection else nn.Parameter(deviation * torch.randn(projected, points))
        )

    def combine(
        self,
        query: Float[Tensor, "b h n d"],
        key: Float[Tensor, "b h m d"],
        value: Float[Tensor, "b h m d"],
        here: Points,  # noqa: ARG002
        there: Points,
    ) -> Float[Tensor, "b h n d"]:
        """Project, attend."""
        if key.shape[-2] != self.points:
            raise ValueError(
                f"points: expected {self.points} to attend to, got {key.shape[-2]}; the learned "
                "projections have a column for each point, so the number cannot change: pad and "
                f"mask smaller samples, or build the layer with points={key.shape[-2]}"
            )
        to_values = self.key_projection if self.value_projection is None else self.value_projection
        return linformer_attention(
            query, key, value, self.key_projection, to_values, measure(there, key)
        )


def _layer(settings: SizedAttentionSettings, problem: Problem) -> nn.Module:
    if problem.points is None:
        raise ValueError("points: expected the number of points of all samples, got None")
    attention = partial(LinformerAttention, points=problem.points)
    return layer_of(attention, projected="bases")(settings, problem)


ATTENTIONS.register(
    "linformer",
    AttentionEntry(
        "Transformer with attention to learned mixtures of the points",
        "Wang et al., Linformer, 2020",
        when="All samples have the same points in the same order.",
        settings=SizedAttentionSettings,
        layer=_layer,
        needs_size=True,
    ),
)
