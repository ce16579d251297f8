import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from funcattn.models.fourier_multiplier import FourierMultiplier


def seeded(*channels_and_modes: Any, **options: Any) -> FourierMultiplier:
    """In float64, and the same in every run."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return FourierMultiplier(*channels_and_modes, **options).double()


def torus(*grid: int) -> list[Tensor]:
    """Coordinates in [0, 1) of the points of a periodic grid, each of the shape of the grid."""
    axes = [torch.arange(n, dtype=torch.float64) / n for n in grid]
    return list(torch.meshgrid(*axes, indexing="ij"))


@pytest.mark.parametrize("factorization", [None, "Tucker"], ids=["dense", "tucker"])
@pytest.mark.parametrize(
    ("grid", "modes", "out"),
    [
        ((9,), (4,), None),
        ((8,), (4,), (13,)),
        ((6, 7), (3, 2), None),
        ((7, 8), (2, 4), None),
        ((9, 8), (3, 3), (6, 7)),
        ((6, 7), (3, 2), (12, 11)),
        ((5, 4, 7), (2, 2, 3), None),
        ((5, 4, 7), (2, 1, 3), (4, 6, 8)),
    ],
    ids=str,
)
def test_multiplies_fourier_coefficients(
    grid: tuple[int, ...],
    modes: tuple[int, ...],
    out: tuple[int, ...] | None,
    factorization: str | None,
    uniform: Any,
    assert_equal_to_rounding: Any,
) -> None:
    """Against sums of waves written out, one coefficient at a time."""
    layer = seeded(2, 3, modes, factorization=factorization, rank=0.7)
    x = uniform(2, 2, *grid)
    points, weight = torus(*grid), layer.weight().detach()
    expected = torch.zeros(2, 3, *(out or grid), dtype=torch.float64) + layer.bias.detach()
    ranges = [range(-m, m) for m in modes[:-1]] + [range(modes[-1])]
    for k in itertools.product(*ranges):
        wave = torch.exp(-2j * math.pi * sum(f * y for f, y in zip(k, points, strict=True)))
        coefficient = (x * wave).flatten(2).mean(-1)  # (b, i)
        matrix = weight[(slice(None), slice(None), *k)]  # negative k count from the end
        places = sum(f * y for f, y in zip(k, torus(*(out or grid)), strict=True))
        wave = torch.exp(2j * math.pi * places)
        part = (coefficient @ matrix).view(2, 3, *(1,) * len(grid)) * wave
        expected += (2 if k[-1] else 1) * part.real
    assert_equal_to_rounding(layer(x, output_shape=out).detach(), expected)


def test_is_the_spectral_convolution_of_neuralop_where_that_is_right(uniform: Any) -> None:
    """On axes of even length, in single precision."""
    from neuralop.layers.spectral_convolution import SpectralConv

    ours, theirs = FourierMultiplier(2, 3, (3, 4)), SpectralConv(2, 3, (6, 6))
    with torch.no_grad():
        theirs.weight.tensor.copy_(torch.fft.fftshift(ours.weight(), dim=2))
        theirs.bias.copy_(ours.bias)
    x = uniform(2, 2, 8, 10).float()
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=1e-6)


@pytest.mark.parametrize("factor", [0.5, 2.0, 1.5])
def test_changes_the_resolution_of_a_field_and_nothing_else(
    factor: float, assert_equal_to_rounding: Any
) -> None:
    layer = seeded(1, 1, (3, 3), resolution_scaling_factor=[factor] * 2)
    same = seeded(1, 1, (3, 3))

    def field(*grid: int) -> Tensor:
        x, y = torus(*grid)
        wave = torch.sin(2 * math.pi * (2 * x - y)) + torch.cos(2 * math.pi * (x + 2 * y))
        return wave[None, None]

    sizes = [round(factor * n) for n in (14, 13)]
    assert_equal_to_rounding(layer(field(14, 13)), same(field(*sizes)))


def test_full_rank_represents_any_dense_weight(uniform: Any, assert_equal_to_rounding: Any) -> None:
    dense = seeded(2, 3, (2, 3))
    tucker = seeded(2, 3, (2, 3), factorization="Tucker", rank=1.0)
    core, *factors = tucker.parts
    assert [tuple(f.shape) for f in factors] == [(n, n, 2) for n in (2, 3, 4, 3)]
    with torch.no_grad():
        # A unitary change of basis on each axis, undone in the core.
        rotated = dense.weight()
        for axis, factor in enumerate(factors):
            unitary, _ = torch.linalg.qr(torch.view_as_complex(factor))
            factor.copy_(torch.view_as_real(unitary))
            rotated = torch.tensordot(rotated, unitary.conj(), dims=([0], [0]))
            assert rotated.ndim == 4, axis
        core.copy_(torch.view_as_real(rotated))
        tucker.bias.copy_(dense.bias)
    assert_equal_to_rounding(tucker.weight(), dense.weight())
    x = uniform(2, 2, 5, 7)
    assert_equal_to_rounding(tucker(x), dense(x))


def test_starts_with_entries_of_the_same_size_dense_or_factorised() -> None:
    dense, tucker = (seeded(24, 24, (6, 6), factorization=of, rank=0.3) for of in (None, "Tucker"))
    assert dense.weight().abs().square().mean().item() == pytest.approx(1 / 24, rel=0.05)
    assert tucker.weight().abs().square().mean().item() == pytest.approx(1 / 24, rel=0.5)


def test_keeps_the_precision_of_its_input_but_computes_in_float32_at_least() -> None:
    layer, x = FourierMultiplier(2, 2, (2, 2)), torch.rand(1, 2, 4, 4)
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        assert layer(x.to(dtype)).dtype == dtype
    torch.testing.assert_close(layer(x.bfloat16()), layer(x.bfloat16().float()).bfloat16())


@pytest.mark.parametrize(
    ("grid", "out"), [((6, 5), None), ((5, 6), None), ((8, 8), (8, 5))], ids=str
)
def test_too_few_points_for_the_modes_are_refused(
    grid: tuple[int, ...], out: Sequence[int] | None
) -> None:
    with pytest.raises(ValueError, match="at least 6 points on an axis with 3 modes, got 5"):
        FourierMultiplier(1, 1, (3, 3))(torch.zeros(1, 1, *grid), output_shape=out)
