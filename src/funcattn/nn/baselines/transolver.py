"""Transolver's attention between a few averages of the points.

Wu, Luo, Wang, Wang and Long, Transolver: A Fast Transformer Solver for PDEs on General Geometries,
ICML 2024.
"""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.attentions import ATTENTIONS, AttentionEntry, layer_of
from funcattn.nn.baselines.base import Baseline
from funcattn.nn.baselines.galerkin import integral_attention
from funcattn.nn.bases import LearnedBasis, split_heads
from funcattn.nn.feature_maps import FeatureMap, Pointwise, linear
from funcattn.nn.points import Points
from funcattn.ops import BasisFunctions, Projection, ProjectionName, lift, projector
from funcattn.settings import SizedAttentionSettings


class TransolverAttention(Baseline):
    """Physics-attention: softmax attention between the coefficients of a learned basis.

        f~ = P(Phi) f                                              (g x d), averages of the field
        out = Phi softmax(q~ k~^T / sqrt d) v~,  q~, k~, v~ = f~ W_q, f~ W_k, f~ W_v     (n x d)

    with Phi a partition of unity (`LearnedBasis`), f a map of the features, and d x d maps that the
    heads share: `FunctionalAttention` with a softmax in place of its ridge solution. Linear in n;
    the paper calls basis functions slices, and coefficients tokens. bases: g. basis, features,
    projection: as in `FunctionalAttention`.

    Relative to the paper: averages are over the mass of each basis function alone, not over
    mass + 1e-5; the temperature is bounded for points too, not on grids only; dropout is at the
    output only, not among the coefficients; the map to the slices starts orthogonal, as its layer
    in the public code does, whose whole network then starts all linear maps anew with deviation
    0.02; on grids the neighbours are at a fixed distance
    (`Stencil`); masks, weights and cross-attention, where keys and values are coefficients of the
    context, are ours.

    >>> import torch
    >>> layer = TransolverAttention(width=64, heads=4, bases=16)
    >>> layer(torch.randn(2, 1000, 64)).shape
    torch.Size([2, 1000, 64])
    """

    def __init__(
        self,
        width: int,
        heads: int = 8,
        bases: int = 64,
        *,
        basis: nn.Module | None = None,
        features: FeatureMap = Pointwise,
        projection: Projection | ProjectionName = "average",
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, dropout=dropout)
        self.projection = projection
        if basis is None:
            basis = LearnedBasis(width, heads, bases, features=features)
        self.basis = basis
        self.features = features(width, width)
        channels = width // heads
        self.to_query, self.to_key, self.to_value = (
            linear(channels, channels, bias=False) for _ in range(3)
        )

    def attend(
        self, x: Tensor, source: Tensor, here: Points, there: Points
    ) -> Float[Tensor, "b h n d"]:
        """Project, attend, lift."""
        basis = key_basis = self.basis(x, here)
        of_query = of_key = self._coefficients(x, here, basis)
        if there is not here:
            key_basis = self.basis(source, there)
            of_key = self._coefficients(source, there, key_basis)
        query, key, value = self.to_query(of_query), self.to_key(of_key), self.to_value(of_key)
        if self.shows:
            self.show(lambda: (basis, key_basis), query=query, key=key, value=value)
        return lift(basis, self.between(query, key, value), mask=here.mask)

    def between(
        self,
        query: Float[Tensor, "b h g d"],
        key: Float[Tensor, "b h g d"],
        value: Float[Tensor, "b h g d"],
    ) -> Float[Tensor, "b h g d"]:
        """The attention between coefficients."""
        return F.scaled_dot_product_attention(query, key, value)

    def _coefficients(
        self, x: Tensor, points: Points, basis: Tensor | BasisFunctions
    ) -> Float[Tensor, "b h g d"]:
        field = split_heads(self.features(x, points), self.heads)
        project = projector(basis, self.projection, weights=points.weights, mask=points.mask)
        return project(field).to(field.dtype)

    def share_basis_with(self, other: "TransolverAttention") -> None:
        """Use the basis of another layer, and its value features, from now on."""
        self.basis, self.features = other.basis, other.features


class GalerkinCoefficients(TransolverAttention):
    """Galerkin attention in the place of the softmax: a cell of the paper's table of mechanisms.

        out = Phi q~ (norm k~)^T (norm v~) / g

    with norms over the channels of a head, without a gain or a shift.

    >>> import torch
    >>> GalerkinCoefficients(width=64, heads=4, bases=16)(torch.randn(2, 1000, 64)).shape
    torch.Size([2, 1000, 64])
    """

    def between(
        self,
        query: Float[Tensor, "b h g d"],
        key: Float[Tensor, "b h g d"],
        value: Float[Tensor, "b h g d"],
    ) -> Float[Tensor, "b h g d"]:
        """Linear in queries, and in the number of functions."""
        key, value = (F.layer_norm(part, part.shape[-1:]) for part in (key, value))
        return integral_attention(query, key, value)


ATTENTIONS.register(
    "transolver",
    AttentionEntry(
        "Transformer with softmax attention between averages over learned slices",
        "Wu et al., Transolver, ICML 2024",
        when="The strongest published baseline on many meshes; public checkpoints load.",
        settings=SizedAttentionSettings,
        layer=layer_of(TransolverAttention, bases="bases"),
    ),
)
