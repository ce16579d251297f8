"""Basis functions at the points.

A basis is any module called as `basis(x, points)`, with features x (b n c) and the point set
`points`, that returns the values of its functions (b h n g), where b and h may be 1, or an object
that applies them by a fast transform (`funcattn.ops.BasisFunctions`).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from funcattn.nn.feature_maps import FeatureMap, Pointwise
from funcattn.nn.points import Points, check_grid, per_dimension
from funcattn.ops import GridFourier, fourier_values, projector
from funcattn.ops.linalg import at_least_float32, full_precision, identity_like


def split_heads(x: Float[Tensor, "b n c"], heads: int) -> Float[Tensor, "b h n d"]:
    """(b, n, h d) -> (b, h, n, d), a view."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class LearnedBasis(nn.Module):
    """Phi = softmax over g of scores(features(x)) / temperature: a learned partition of unity.

    As the temperature goes to 0, the functions become the indicators of a partition. The scores are
    one linear map d -> g for all heads, orthogonal at the start; each head learns a temperature,
    which is kept within `bounds` (None: not bounded).
    """

    def __init__(
        self,
        width: int,
        heads: int,
        bases: int,
        *,
        features: FeatureMap = Pointwise,
        temperature: float = 0.5,
        bounds: tuple[float, float] | None = (0.1, 5.0),
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width: expected a multiple of heads={heads}, got {width}")
        if bounds is not None and not 0 < bounds[0] <= temperature <= bounds[1]:
            raise ValueError(
                f"temperature: expected a value within bounds={bounds}, got {temperature}"
            )
        self.heads, self.bases, self.bounds = heads, bases, bounds
        self.features = features(width, width)
        self.scores = nn.Linear(width // heads, bases)
        nn.init.orthogonal_(self.scores.weight)
        nn.init.zeros_(self.scores.bias)
        self.temperature = nn.Parameter(torch.full((heads,), temperature))

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b h n g"]:
        """The functions' values; they sum to one at every point."""
        features = split_heads(self.features(x, points), self.heads)
        return (self.scores(features) / self.bounded_temperature()[:, None, None]).softmax(-1)

    def bounded_temperature(self) -> Float[Tensor, " h"]:
        """The temperature of each head, within the bounds."""
        return self.temperature if self.bounds is None else self.temperature.clamp(*self.bounds)


class OrthonormalBasis(nn.Module):
    """Another basis, orthonormalised: Phi L^-H with L L^H the Gram matrix of Phi.

    Orthonormal in the inner product over the points with weights that sum to one, so it goes with
    `projection="inner_product"`. `tikhonov`, relative to the mean diagonal of the Gram matrix,
    keeps nearly dependent functions (a softmax basis has many, early in training) from being blown
    up: those come out shorter than one instead. In float32 it must stay above about 1e-7 g.
    """

    def __init__(self, basis: nn.Module, *, tikhonov: float = 1e-4) -> None:
        super().__init__()
        self.basis, self.tikhonov = basis, tikhonov

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b h n g"]:
        """The orthonormalised functions' values, in float32 at least."""
        values = self.basis(x, points)
        with full_precision(values.device):
            values = values.to(at_least_float32(values.dtype))
            inner = projector(values, "inner_product", weights=points.weights, mask=points.mask)
            gram = inner(values)
            shift = self.tikhonov * gram.diagonal(dim1=-2, dim2=-1).real.mean(-1)[..., None, None]
            factor = torch.linalg.cholesky_ex(gram + shift * identity_like(gram)).L
            return torch.linalg.solve_triangular(factor.mH, values, upper=True, left=False)


class FourierBasis(nn.Module):
    """Fixed Fourier functions of the positions, at any points, periodic over a box.

    Orthonormal over the box, so it goes with `projection="inner_product"`. modes: the largest wave
    number on each axis; g = product of (2 modes + 1). lower, upper: corners of the box, for all
    axes or one number per axis.
    """

    def __init__(
        self,
        modes: Sequence[int],
        *,
        lower: float | Sequence[float] = 0.0,
        upper: float | Sequence[float] = 1.0,
    ) -> None:
        super().__init__()
        self.modes = _checked_modes(modes)
        self.lower = per_dimension(lower, len(self.modes))
        self.upper = per_dimension(upper, len(self.modes))

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b 1 n g"]:  # noqa: ARG002
        """The functions at the positions; the features are not looked at."""
        positions = points.positions
        if positions is None or positions.shape[-1] != len(self.modes):
            raise ValueError(
                f"positions: expected (b, n, {len(self.modes)}) for modes {self.modes}, got "
                f"{None if positions is None else tuple(positions.shape)}; pass `positions=...`"
            )
        positions = positions.to(at_least_float32(positions.dtype))
        lower, upper = positions.new_tensor(self.lower), positions.new_tensor(self.upper)
        return fourier_values((positions - lower) / (upper - lower), self.modes).unsqueeze(1)


class GridFourierBasis(nn.Module):
    """The same functions of the grid index i/N, applied by the fast transform: no n x g matrix.

    Periodic in the index, whatever the positions are. It goes with `projection="inner_product"`.
    """

    def __init__(self, modes: Sequence[int]) -> None:
        super().__init__()
        self.modes = _checked_modes(modes)

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> GridFourier:
        """The transform for the grid of `points`."""
        grid = check_grid(points.grid, x.shape[1], dims=len(self.modes))
        return GridFourier(grid, self.modes, x.dtype, x.device)


def _checked_modes(modes: Sequence[int]) -> tuple[int, ...]:
    if not 1 <= len(modes) <= 3 or any(m < 0 for m in modes) or not any(modes):
        raise ValueError(f"modes: expected one wave number for each of 1 to 3 axes, got {modes}")
    return tuple(modes)
