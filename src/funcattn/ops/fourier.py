"""Fourier functions: as a matrix at any coordinates, or on a grid by the fast transform.

The functions are real and orthonormal on the unit box: 1, and sqrt(2) cos(2 pi k.x) and
sqrt(2) sin(2 pi k.x) for the wave vectors k of one half of the lattice |k_i| <= modes_i. A unitary
change of basis leaves functional attention as it is, so these do what exp(2 pi i k.x) would.
"""

import itertools
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from funcattn.ops.linalg import at_least_float32, full_precision


def wave_vectors(modes: Sequence[int]) -> list[tuple[int, ...]]:
    """The half of the lattice |k_i| <= modes_i whose first nonzero entry is positive."""
    lattice = itertools.product(*(range(-m, m + 1) for m in modes))
    return [k for k in lattice if k > (0,) * len(modes)]


def fourier_values(
    positions: Float[Tensor, "*batch n s"], modes: Sequence[int]
) -> Float[Tensor, "*batch n g"]:
    """The functions at positions scaled to the unit box; g = product of (2 modes_i + 1).

    In float32 at least: a phase of many periods has no digits left in a shorter type.
    """
    dtype = at_least_float32(positions.dtype)
    waves = torch.tensor(wave_vectors(modes), dtype=dtype, device=positions.device)
    with full_precision(positions.device):
        phase = 2 * math.pi * positions.to(dtype) @ waves.T
    cosines, sines = math.sqrt(2) * phase.cos(), math.sqrt(2) * phase.sin()
    return torch.cat([torch.ones_like(phase[..., :1]), cosines, sines], dim=-1)


class GridFourier:
    """The same functions at the n points i/N of a periodic grid, applied by the fast transform.

    `BasisFunctions` for real fields; cost n log n a channel, and no n x g matrix.
    """

    def __init__(
        self, grid: Sequence[int], modes: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> None:
        if len(grid) != len(modes):
            raise ValueError(f"modes: expected one number a grid axis {tuple(grid)}, got {modes}")
        if any(points < 2 * m + 1 for points, m in zip(grid, modes, strict=True)):
            raise ValueError(
                f"grid: expected at least {tuple(2 * m + 1 for m in modes)} points to carry the "
                f"modes {tuple(modes)}, got {tuple(grid)}; use fewer modes or a finer grid"
            )
        self.grid, self.dtype, self.device = tuple(grid), dtype, device
        waves = wave_vectors(modes)
        self.shape = (1, 1, math.prod(grid), 2 * len(waves) + 1)
        # Index of each wave vector in the flattened spectrum, zero first; negative ones wrap.
        self._places = torch.tensor(
            [
                sum(
                    (k % points) * math.prod(self.grid[axis + 1 :])
                    for axis, (k, points) in enumerate(zip(wave, self.grid, strict=True))
                )
                for wave in [(0,) * len(modes), *waves]
            ],
            device=device,
        )

    def analyse(self, field: Float[Tensor, "b h n d"]) -> Float[Tensor, "b h g d"]:
        """Sums over points of function times field."""
        if field.is_complex():
            raise TypeError("field: expected real values for a real basis on a grid, got complex")
        axes = tuple(range(2, 2 + len(self.grid)))
        spectrum = torch.fft.fftn(field.unflatten(2, self.grid), dim=axes).flatten(2, axes[-1])
        kept = spectrum[:, :, self._places]
        waves = math.sqrt(2) * kept[:, :, 1:]
        return torch.cat([kept[:, :, :1].real, waves.real, -waves.imag], dim=2)

    def synthesise(self, coefficients: Float[Tensor, "b h g d"]) -> Float[Tensor, "b h n d"]:
        """Values at the points: the real part of sum (c_k - i s_k) sqrt(2) exp(2 pi i k.x)."""
        half = len(self._places) - 1
        mean, cosines, sines = coefficients.split([1, half, half], dim=2)
        waves = math.sqrt(2) * torch.complex(cosines, -sines)
        kept = torch.cat([mean.to(waves.dtype), waves], dim=2)
        b, h, _, d = coefficients.shape
        spectrum = kept.new_zeros(b, h, self.shape[2], d).index_copy(2, self._places, kept)
        axes = tuple(range(2, 2 + len(self.grid)))
        values = torch.fft.ifftn(spectrum.unflatten(2, self.grid), dim=axes, norm="forward")
        return values.real.flatten(2, axes[-1])
