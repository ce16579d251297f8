"""Functional attention on a learned partition, whose basis functions have an identity.

Axes: b batch, n point, g basis function, c width, d channel of queries and keys.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.attention import Attention
from funcattn.nn.points import Points
from funcattn.ops import Additive, Moments, Solution, Sums, lift, transport
from funcattn.ops.native.products import linear
from funcattn.ops.sharding import Ranks


class PartitionAttention(Attention):
    """Functional attention with normalised queries and keys, an identity term and a mixer.

        Phi = softmax_g(rho (h Wb + b))                 (n x g), a partition of unity, rho learned
        y   = Phi^T W (h Wf) / Phi^T W 1                (g x c), averages over the points
        s   = norm(y),  q = rms(s Wq),  k = rms(s Wk),  v = s Wv
        y  <- y + q (k^T k + e^r tr(k^T k) / d I)^-1 k^T v
        y  <- y + (M2 gelu(M1 norm(y)^T))^T             M1 (2g x g), M2 (g x 2g)
        y  <- y + gelu(norm(y) W1) W2                   where asked for (`mlp`)
        out = (Phi y) Wo                                (n x c)

    W holds the quadrature weights of the points, 0 at masked ones. The ridge e^r, which is learned,
    is relative to the trace, so that it means the same for coefficients of any size. What is
    between y and its end depends on which function is which only in the mixer; without it (`mixer`
    = False) and with q, k, v linear in y the map would be y M with one matrix M for all functions.

    It is called as `FunctionalAttention` is, and has the same halves: `encode` and `read`,
    `moments` and `carried`. With a context, averages are over the context's points. Linear in
    points; no mesh; permuting the points permutes the result.

    Relative to the paper: one head; queries and keys are normalised; the values are added to the
    coefficients instead of replacing them; the mixer. `solve`, `mixer` and `mlp` choose the steps
    on the coefficients, so that each can be left out and measured.

    >>> layer = PartitionAttention(width=32, bases=16)
    >>> x = torch.randn(2, 100, 32)
    >>> layer(x).shape
    torch.Size([2, 100, 32])
    >>> layer.inspect(x).map.shape  # C
    torch.Size([2, 1, 16, 16])
    """

    def __init__(
        self,
        width: int,
        bases: int = 32,
        *,
        solve: bool = True,
        mixer: bool = True,
        mlp: bool = False,
    ) -> None:
        super().__init__(width, heads=1)
        self.ranks: Ranks | None = None
        """Over which the points are spread; set by `funcattn.spread_points`."""
        self.scores = nn.Linear(width, bases)
        self.sharpness = nn.Parameter(torch.ones(()))
        self.to_field = nn.Linear(width, width)
        self.transport = Transport(width) if solve else None
        self.mixer = LatentMlp(width, bases) if mixer else None
        self.mlp = LatentMlp(width, width) if mlp else None
        self.add_output(width, dropout=0.0)

    def attend(
        self, x: Tensor, source: Tensor, here: Points, there: Points
    ) -> Float[Tensor, "b 1 n c"]:
        """Through the coefficients of the source's points, read at those of x."""
        basis = self.basis(x)
        key_basis = basis if there is here else self.basis(source)
        coefficients = self._carried(
            self._moments(source, key_basis, there), bases=(basis, key_basis)
        )
        return lift(basis, coefficients, mask=here.mask)

    def mix(self, out: Float[Tensor, "b 1 n c"], dtype: torch.dtype) -> Float[Tensor, "b n c"]:
        """The one head; the output's map was done on the coefficients."""
        return out.squeeze(1).to(dtype)

    def basis(self, x: Float[Tensor, "b n c"]) -> Float[Tensor, "b 1 n g"]:
        """The functions' values, which sum to one at every point."""
        weight, bias = self.scores.weight, self.scores.bias
        scores = linear(x, self.sharpness * weight, self.sharpness * bias)
        return scores.softmax(-1).unsqueeze(1)

    def moments(
        self,
        x: Float[Tensor, "b n c"],
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> tuple[Moments]:
        """The sums over the points of x, which may be some of a mesh that comes in parts."""
        here = Points(positions, None, mask, weights)
        return (self._moments(x, self.basis(x), here, shard=True),)

    def carried(self, moments: Sequence[Moments]) -> Float[Tensor, "b 1 g c"]:
        """What a mesh has to say to any point, in a few coefficients, from its moments."""
        (of_mesh,) = moments
        return self._carried(of_mesh)

    def encode(
        self,
        x: Float[Tensor, "b n c"],
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Float[Tensor, "b 1 g c"]:
        """What the points of x have to say to any point: `read(x, encode(x))` is `forward(x)`."""
        here = Points(positions, None, mask, weights)
        return self._carried(self._moments(x, self.basis(x), here))

    def read(
        self,
        x: Float[Tensor, "b n c"],
        coefficients: Float[Tensor, "b 1 g c"],
        *,
        positions: Tensor | None = None,  # noqa: ARG002
        mask: Tensor | None = None,
    ) -> Float[Tensor, "b n c"]:
        """What `encode` has kept, as the points of x see it; these may be any others."""
        return self.mix(lift(self.basis(x), coefficients, mask=mask), x.dtype)

    def check_points(self, x: Tensor, source: Tensor, here: Points, there: Points) -> None:
        """Done by the sums, which know whether other ranks have points too."""

    def _moments(self, x: Tensor, basis: Tensor, there: Points, *, shard: bool = False) -> Moments:
        """The sums over these points; shard: others are summed elsewhere."""
        spread = self.ranks is not None
        weights = there.counted(x) if spread else there.weights
        sums = Sums(basis, weights=weights, mask=there.mask, shard=shard or spread)
        return sums(there.cleared(x).unsqueeze(1))

    def _carried(self, moments: Moments, bases: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """From the sums to what is read: averages, the steps on them, and the output's map."""
        if self.ranks is not None:
            moments = moments.over_ranks(self.ranks.group)
        (averages,) = moments.coefficients("average")
        # The functions sum to one, so that the maps before and after the basis can act on the few
        # coefficients in place of the many points.
        y = self.to_field(averages.to(self.to_field.weight.dtype))
        if self.transport is not None:
            y = y + self.transport(y, self.shown(lambda: bases or (None, None)))
        elif self.shows:
            self.show(lambda: bases or (None, None))
        if self.mixer is not None:
            y = y + self.mixer(y, along_functions=True)
        if self.mlp is not None:
            y = y + self.mlp(y, along_functions=False)
        return self.to_output(y)


class Transport(nn.Module):
    """C v between coefficients (b 1 g c), of normalised queries and keys."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.to_query, self.to_key, self.to_value = (
            nn.Linear(width, width, bias=False) for _ in range(3)
        )
        self.log_ridge = nn.Parameter(torch.tensor(-2.0))

    def forward(self, y: Tensor, show: Callable[[Solution], None] | None) -> Tensor:
        """The values, carried by the map from keys to queries; show: called with the solution."""
        s = self.norm(y)
        query, key = (_of_length_one(to(s)) for to in (self.to_query, self.to_key))
        value = self.to_value(s)
        size = key.square().sum((-2, -1)) / key.shape[-1]  # (b, 1), the mean diagonal
        ridge = Additive(self.log_ridge.exp() * size)
        systems: list[Tensor] = []
        out = transport(query, key, value, ridge=ridge, show=systems.append)
        if show is not None:
            show(Solution(query, key, value, ridge, "auto", systems[-1]))
        return out.to(y.dtype)


class LatentMlp(nn.Module):
    """W2 gelu(W1 norm(y)) along the functions or along the channels of coefficients (b 1 g c)."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand, self.contract = nn.Linear(length, 2 * length), nn.Linear(2 * length, length)

    def forward(self, y: Tensor, *, along_functions: bool) -> Tensor:
        """What is added to the coefficients."""
        s = self.norm(y).mT if along_functions else self.norm(y)
        out = self.contract(F.gelu(self.expand(s)))
        return out.mT if along_functions else out


def _of_length_one(x: Tensor) -> Tensor:
    """Each row over its root mean square."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
