"""Functional attention on a learned partition, whose basis functions have an identity.

Axes: b batch, n point, g basis function, c width, d channel of queries and keys.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.points import Points
from funcattn.ops.linalg import at_least_float32, full_precision, identity_like, solve_positive

_LEAST_MASS = 1e-6
"""Of a function, as a part of the total weight: an empty one has coefficients near 0, and its
gradients stay finite."""


class PartitionAttention(nn.Module):
    """Functional attention with normalised queries and keys, an identity term and a mixer.

        Phi = softmax_g(rho (h Wb + b))                 (n x g), a partition of unity, rho learned
        y   = Phi^T W (h Wf) / Phi^T W 1                (g x c), averages over the points
        s   = norm(y),  q = rms(s Wq),  k = rms(s Wk),  v = s Wv
        y  <- y + q (k^T k + e^r tr(k^T k) / d I)^-1 k^T v
        y  <- y + (M2 gelu(M1 norm(y)^T))^T             M1 (2g x g), M2 (g x 2g)
        out = (Phi y) Wo                                (n x c)

    W holds the quadrature weights of the points, 0 at masked ones. The ridge e^r, which is learned,
    is relative to the trace, so that it means the same for coefficients of any size. What is
    between y and its end depends on which function is which only in the mixer; without it (`mixer`
    = False) and with q, k, v linear in y the map would be y M with one matrix M for all functions.

    Linear in points; no mesh; permuting the points permutes the result.

    >>> layer = PartitionAttention(width=32, bases=16)
    >>> layer(torch.randn(2, 100, 32), Points()).shape
    torch.Size([2, 100, 32])
    """

    def __init__(self, width: int, bases: int = 64, *, mixer: bool = True) -> None:
        super().__init__()
        self.scores = nn.Linear(width, bases)
        self.sharpness = nn.Parameter(torch.ones(()))
        self.to_field = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.to_query, self.to_key, self.to_value = (
            nn.Linear(width, width, bias=False) for _ in range(3)
        )
        self.log_ridge = nn.Parameter(torch.tensor(-2.0))
        self.mixer_norm = nn.LayerNorm(width) if mixer else None
        self.expand = nn.Linear(bases, 2 * bases) if mixer else None
        self.contract = nn.Linear(2 * bases, bases) if mixer else None
        self.to_output = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b n c"]:
        """From the points to coefficients, and back to the same points."""
        basis = self.basis(x)
        return self.read(basis, self.coefficients(x, basis, points))

    def basis(self, x: Float[Tensor, "b n c"]) -> Float[Tensor, "b n g"]:
        """The functions' values, which sum to one at every point."""
        weight, bias = self.scores.weight, self.scores.bias
        return F.linear(x, self.sharpness * weight, self.sharpness * bias).softmax(-1)

    def coefficients(
        self, x: Float[Tensor, "b n c"], basis: Float[Tensor, "b n g"], points: Points
    ) -> Float[Tensor, "b g c"]:
        """All that the points have to say to any point."""
        # The functions sum to one, so that the maps before and after the basis can act on the few
        # coefficients in place of the many points.
        y = self.to_field(self._averages(x, basis, points))
        y = y + self._transported(self.norm(y))
        if self.mixer_norm is None or self.expand is None or self.contract is None:
            return y
        return y + self.contract(F.gelu(self.expand(self.mixer_norm(y).mT))).mT

    def read(
        self, basis: Float[Tensor, "b n g"], coefficients: Float[Tensor, "b g c"]
    ) -> Float[Tensor, "b n c"]:
        """The field at the points where the basis is given."""
        return basis @ self.to_output(coefficients)

    def _averages(self, field: Tensor, basis: Tensor, points: Points) -> Tensor:
        counted = basis
        if points.weights is not None:
            counted = counted * points.weights.unsqueeze(-1).to(basis.dtype)
        counted, field = points.cleared(counted), points.cleared(field)
        mass = counted.sum(1)  # (b, g)
        # The masses sum to the total weight.
        least = _LEAST_MASS * mass.detach().sum(-1, keepdim=True)
        return (counted.mT @ field) / torch.maximum(mass, least).unsqueeze(-1)

    def _transported(self, s: Tensor) -> Tensor:
        query, key = (_of_length_one(to(s)) for to in (self.to_query, self.to_key))
        value = self.to_value(s)
        dtype = s.dtype
        with full_precision(s.device):
            query, key, value = (t.to(at_least_float32(dtype)) for t in (query, key, value))
            gram = key.mT @ key  # (b, d, d)
            size = gram.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
            system = gram + self.log_ridge.to(gram.dtype).exp() * size * identity_like(gram)
            return (query @ solve_positive(system, key.mT @ value)).to(dtype)


def _of_length_one(x: Tensor) -> Tensor:
    """Each row over its root mean square."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
