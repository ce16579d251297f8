"""Intention: least squares instead of softmax.

Garnelo and Czarnecki, Exploring the Space of Key-Value-Query Models with Intention, 2023
(arXiv 2305.10203).
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from funcattn.nn.attentions import ATTENTIONS, AttentionEntry, layer_of
from funcattn.nn.baselines.base import QueriesKeysValues, measure
from funcattn.nn.feature_maps import FeatureMap, Pointwise
from funcattn.nn.points import Points
from funcattn.nn.ridges import AdditiveRidge
from funcattn.ops import Form, Show, transport
from funcattn.ops.linalg import at_least_float32
from funcattn.settings import AttentionSettings


def intention(
    query: Float[Tensor, "b h n d"],
    key: Float[Tensor, "b h m d"],
    value: Float[Tensor, "b h m e"],
    *,
    ridge: float | Tensor,
    weights: Float[Tensor, "b 1 m 1"] | None = None,
    form: Form = "auto",
    show: Show | None = None,
) -> Float[Tensor, "b h n e"]:
    """q (k^T W k + lambda I)^-1 k^T W v: the ridge regression of v on k, evaluated at q.

    Linear in n and m, and in the values. It is functional attention without a basis, where the
    points are their own coefficients (`funcattn.ops.transport`). ridge: lambda > 0, one number or
    one per head. weights: the diagonal of W; None: ones, as in the paper. form, show: as in
    `transport`. In float32 at least.

    >>> import torch
    >>> key = torch.randn(1, 1, 50, 4)
    >>> slopes = torch.tensor([[1.0], [-2.0], [4.0], [3.0]])
    >>> found = intention(torch.eye(4)[None, None], key, key @ slopes, ridge=1e-4)
    >>> torch.allclose(found, slopes, atol=1e-3)
    True
    """
    dtype = at_least_float32(query.dtype, key.dtype, value.dtype)
    query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    if weights is not None:
        root = weights.to(dtype).sqrt()
        key, value = root * key, root * value
    # Rounding of k^T W k may exceed a fixed lambda once keys have grown, so as much is added.
    with torch.no_grad():
        rounding = 10 * torch.finfo(dtype).eps * key.square().sum((-2, -1))
    return transport(query, key, value, ridge=ridge + rounding, form=form, show=show)


class Intention(QueriesKeysValues):
    """out = q (k^T W k + lambda m I)^-1 k^T W v, with W the measure of the points, of trace m.

    Time and memory are linear in n. ridge: lambda, a fixed number, or `AdditiveRidge(...)` to learn
    it.

    Relative to the paper: its ridge alpha is lambda m here, so that it does not fade on finer
    meshes; masks and weights are ours; its variant with a softmax of the n x m matrix is left out.

    >>> import torch
    >>> Intention(width=64, heads=4)(torch.randn(2, 1000, 64)).shape
    torch.Size([2, 1000, 64])
    """

    def __init__(
        self,
        width: int,
        heads: int = 8,
        *,
        ridge: AdditiveRidge | float = 1e-3,
        features: FeatureMap = Pointwise,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, features=features, dropout=dropout)
        if not isinstance(ridge, AdditiveRidge) and not 0 < ridge < math.inf:
            raise ValueError(
                f"ridge: expected a finite number greater than 0, or an AdditiveRidge, got {ridge}"
            )
        self.ridge = ridge

    def combine(
        self,
        query: Float[Tensor, "b h n d"],
        key: Float[Tensor, "b h m d"],
        value: Float[Tensor, "b h m d"],
        here: Points,  # noqa: ARG002
        there: Points,
    ) -> Float[Tensor, "b h n d"]:
        """Regress the values on the keys, evaluate at the queries."""
        ridge = self.ridge().strength if isinstance(self.ridge, AdditiveRidge) else self.ridge
        # Sums over points are done in float32 at least.
        key = key.to(at_least_float32(key.dtype))
        weights = measure(there, key)
        count = key.shape[-2] if weights is None else weights.sum((-2, -1))  # number, or (b, 1)
        # One form whatever m is, so that a traced layer takes any number of points.
        return intention(
            query,
            key,
            value,
            ridge=ridge * count,
            weights=weights,
            form="dual",
            show=(lambda system: self.show(system=system)) if self.shows else None,
        )


ATTENTIONS.register(
    "intention",
    AttentionEntry(
        "Transformer with ridge regression of values on keys",
        "Garnelo and Czarnecki, Exploring the Space of Key-Value-Query Models, 2023",
        when="Least squares without a basis; a regressor of a few observations.",
        settings=AttentionSettings,
        layer=layer_of(Intention),
    ),
)
