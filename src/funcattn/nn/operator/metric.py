"""Functional attention in a learned metric: a Galerkin solve with a learned coefficient.

Axes: b batch, n point, h head, k basis function, c width.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.operator.spectral import (
    Family,
    GridFunctions,
    axis_functions,
    axis_weights,
    inverse_lengths,
    on_grid,
    table,
)
from funcattn.nn.points import Points
from funcattn.ops.linalg import full_precision, solve_by_elimination, with_digits_to_spare


class MetricAttention(nn.Module):
    """Solves with the stiffness matrix of a coefficient that the features choose.

        kappa = softplus(f w + b + 0.5)                                 (n), positive
        c     = D Phi^T W f,   D = diag(1 / r_j),   r_j = |k_j| (1 for the constant function)
        S     = diag(exp lambda_j) + D <grad phi_i, grad phi_j>_{kappa W} D / p^2
        out   = Phi D S^-1 c

    with wave vectors k_j, p = pi (2 pi on a circle), and lambda_j learned for each function. With
    kappa the coefficient a of -div(a grad u) = f and lambda -> -infinity, out is p^2 times the
    Galerkin solution in the span of Phi. As functional attention it is the map C = S^-1 between
    coefficients, whose ridge couples the functions and knows each of them.

    modes: functions per axis; a coarser grid uses those that it carries. family: sines vanish at
    the ends of the axes. heads: parts of the channels with a coefficient each.

    The matrix is assembled axis by axis from products of functions along an axis: the cost per
    point is modes^2 of the last axis, and nothing of the size points times functions is formed.

    >>> layer = MetricAttention(8, (3, 4), "sine")
    >>> layer(torch.randn(2, 7 * 9, 8), Points(grid=(7, 9))).shape
    torch.Size([2, 63, 8])
    """

    def __init__(
        self, width: int, modes: Sequence[int], family: Family = "sine", *, heads: int = 1
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width: expected a multiple of heads={heads}, got {width}")
        self.modes, self.family, self.heads = tuple(modes), family, heads
        self.to_coefficient = nn.Linear(width, heads)
        # One axis, as it is no matrix for optimisers.
        self.log_ridge = nn.Parameter(torch.full((math.prod(self.modes),), math.log(0.1)))

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b n c"]:
        """To coefficients, through the solve, and back."""
        field = on_grid(x, points, dims=len(self.modes))
        functions = GridFunctions(self.family, field.shape[1:-1], self.modes)
        with full_precision(x.device):
            inverse, system = self._system(functions, self.coefficient(x, points).to(field.dtype))
            c = functions.coefficients(field).flatten(0, -3)  # (k, b, c)
            right = c.movedim(0, 1).unflatten(-1, (self.heads, -1)).movedim(-2, 1)  # (b, h, k, e)
            solved = inverse[:, None] * with_digits_to_spare(
                solve_by_elimination, system, inverse[:, None] * right
            )
            z = solved.movedim(1, -2).flatten(-2).movedim(1, 0)  # (k, b, c)
            out = functions.fields(z.unflatten(0, functions.counts))
        return out.flatten(1, -2).to(x.dtype)

    def coefficient(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b n h"]:
        """kappa, which the features choose; 0 at masked points."""
        kappa = F.softplus(self.to_coefficient(x) + 0.5)
        return kappa if points.mask is None else kappa.masked_fill(~points.mask.unsqueeze(-1), 0)

    @torch.no_grad()
    def map(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b h k k"]:
        """C = D S^-1 D, which carries the coefficients: to look at, as `forward` never forms it."""
        field = on_grid(x, points, dims=len(self.modes))
        functions = GridFunctions(self.family, field.shape[1:-1], self.modes)
        inverse, system = self._system(functions, self.coefficient(x, points).to(field.dtype))
        found = inverse[:, None] * torch.linalg.inv(system.double()) * inverse
        return found.to(x.dtype)

    def _system(
        self, functions: GridFunctions, kappa: Float[Tensor, "b n h"]
    ) -> tuple[Float[Tensor, " k"], Float[Tensor, "b h k k"]]:
        """The diagonal of D, and S."""
        kept = tuple(slice(count) for count in functions.counts)
        ridge = self.log_ridge.view(self.modes)[kept].flatten().to(kappa.dtype).exp()
        inverse = table(inverse_lengths, self.family, functions.counts, like=kappa)  # (k,)
        system = self._stiffness(functions, kappa.unflatten(1, functions.grid))
        system = system * inverse[:, None] * inverse
        # However large the coefficient is, the ridge is not lost in its rounding.
        size = system.detach().diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)
        rounding = 8 * torch.finfo(system.dtype).eps * size
        return inverse, system + torch.diag_embed(ridge + rounding)

    def _stiffness(
        self, functions: GridFunctions, kappa: Float[Tensor, "b *grid h"]
    ) -> Float[Tensor, "b h k k"]:
        """<grad phi_i, grad phi_j>_{kappa W} / p^2, a sum over the axes of the gradient."""
        dims = len(functions.grid)
        period = 2 * math.pi if self.family == "fourier" else math.pi
        plain, sloped = (
            [
                table(_pairs, self.family, n, count, slope, period, like=kappa)
                for n, count in zip(functions.grid, functions.counts, strict=True)
            ]
            for slope in (False, True)
        )
        total: Tensor | None = None
        for along in range(dims):
            part = kappa.movedim(-1, 1)  # (b, h, *grid)
            for axis in reversed(range(dims)):
                # (b, h, *rest, n, *pairs) -> (b, h, *rest, *pairs, k, k)
                pairs = (sloped if axis == along else plain)[axis]
                part = torch.tensordot(part, pairs, dims=([2 + axis], [0]))
            total = part if total is None else total + part
        assert total is not None
        # (b, h, i_s, j_s, ..., i_1, j_1) -> (b, h, i_1 .. i_s, j_1 .. j_s)
        order = [2 + 2 * (dims - 1 - axis) for axis in range(dims)]
        matrix = total.permute(0, 1, *order, *(place + 1 for place in order))
        size = math.prod(functions.counts)
        return matrix.reshape(*matrix.shape[:2], size, size)


def _pairs(
    family: Family, points: int, count: int, slope: bool, period: float
) -> Float[Tensor, "n k k"]:
    """Products of every two functions at the points of a line, times the quadrature weights."""
    values = axis_functions(family, points, count, slope=slope) / (period if slope else 1.0)
    return axis_weights(family, points)[:, None, None] * values[:, :, None] * values[:, None, :]
