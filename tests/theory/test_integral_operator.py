"""Functional attention is a quadrature of an integral operator on the unit square.

With smooth q, k, v and softmax bases given by formulas, the output at fixed points must go to
    out(x) = integral of Phi(x) C Psi(y)^T v(y) dy      (over the mass of Psi, for `average`)
where q~, k~ in C are integrals too: at n^-1/2 for random points, at the quadrature's own order for
points with weights.
"""

import numpy as np
import pytest
import torch
from torch import Tensor

from funcattn.ops import functional_attention

DTYPE = torch.float64
# Where the output is looked at: these have weight 0, so they are read but not summed over.
PROBES = torch.tensor([[0.1, 0.2], [0.5, 0.5], [0.9, 0.3], [0.35, 0.85]], dtype=DTYPE)
with_a_limit = pytest.mark.parametrize("projection", ["inner_product", "average"])


def queries(x: Tensor) -> Tensor:
    a, b = x.unbind(-1)
    return torch.stack([torch.sin(3 * a) + b, torch.exp(-a * b), a - 2 * b**2], dim=-1)


def keys(x: Tensor) -> Tensor:
    a, b = x.unbind(-1)
    return torch.stack([torch.cos(2 * a - b), 1 + a * b, torch.sin(4 * b)], dim=-1)


def values(x: Tensor) -> Tensor:
    a, b = x.unbind(-1)
    return torch.stack([torch.exp(a) * torch.cos(3 * b), a**2 - b], dim=-1)


def query_basis(x: Tensor) -> Tensor:
    a, b = x.unbind(-1)
    return torch.stack([3 * a, 2 * b, 2 - a - b, 4 * a * b], dim=-1).softmax(-1)


def key_basis(x: Tensor) -> Tensor:
    a, b = x.unbind(-1)
    return torch.stack([2 * a - b, 3 * b, torch.sin(5 * a), 1 - b], dim=-1).softmax(-1)


def output_at_probes(points: Tensor, weights: Tensor, projection: str) -> Tensor:
    """Attention over points (b n 2) with weights (b n), at the probes: (b p e)."""
    b, p = len(points), len(PROBES)
    query_points = torch.cat([PROBES.expand(b, -1, -1), points], dim=1)
    query_weights = torch.cat([torch.zeros(b, p, dtype=DTYPE), weights], dim=1)
    out = functional_attention(
        queries(query_points)[:, None],
        keys(points)[:, None],
        values(points)[:, None],
        query_basis(query_points)[:, None],
        key_basis(points)[:, None],
        ridge=0.05,
        projection=projection,
        weights=(query_weights, weights),
    )
    return out[:, 0, :p]


def tensor_rule(nodes: np.ndarray, weights: np.ndarray) -> tuple[Tensor, Tensor]:
    """Points (1 n 2) and weights (1 n) of a rule on [0, 1], taken along both axes."""
    x, w = torch.tensor(nodes, dtype=DTYPE), torch.tensor(weights, dtype=DTYPE)
    return torch.cartesian_prod(x, x)[None], torch.outer(w, w).flatten()[None]


def gauss(count: int) -> tuple[Tensor, Tensor]:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return tensor_rule((nodes + 1) / 2, weights / 2)


def trapezoid(intervals: int) -> tuple[Tensor, Tensor]:
    weights = np.full(intervals + 1, 1 / intervals)
    weights[[0, -1]] /= 2
    return tensor_rule(np.linspace(0, 1, intervals + 1), weights)


def midpoint(intervals: int) -> tuple[Tensor, Tensor]:
    return tensor_rule((np.arange(intervals) + 0.5) / intervals, np.full(intervals, 1 / intervals))


def the_limit(projection: str) -> Tensor:
    return output_at_probes(*gauss(40), projection)


def rms(error: Tensor) -> float:
    return error.square().mean().sqrt().item()


def slope(counts: list[int], errors: list[float]) -> float:
    """Of log error against log count, by least squares."""
    return float(np.polyfit(np.log(counts), np.log(errors), 1)[0])


@with_a_limit
def test_the_limit_is_resolved(projection) -> None:
    """Gauss rules converge geometrically for analytic functions, here to rounding."""
    coarser = output_at_probes(*gauss(30), projection)
    torch.testing.assert_close(coarser, the_limit(projection), rtol=0, atol=1e-13)


@with_a_limit
def test_the_limit_is_an_integral_against_a_kernel(projection) -> None:
    """The kernel (Phi C Psi^T)(x, y) is built from unit impulses in place of v."""
    points, weights = gauss(8)
    impulses = torch.eye(64, dtype=DTYPE)[None, None]
    kernel_times_weights = functional_attention(
        queries(points)[:, None],
        keys(points)[:, None],
        impulses,
        query_basis(points)[:, None],
        key_basis(points)[:, None],
        ridge=0.05,
        projection=projection,
        weights=weights,
    )
    kernel = kernel_times_weights / weights[:, None, None, :]
    out = functional_attention(
        queries(points)[:, None],
        keys(points)[:, None],
        values(points)[:, None],
        query_basis(points)[:, None],
        key_basis(points)[:, None],
        ridge=0.05,
        projection=projection,
        weights=weights,
    )
    integral = kernel @ (weights[:, None, :, None] * values(points)[:, None])
    torch.testing.assert_close(integral, out, rtol=0, atol=1e-13)


@with_a_limit
def test_random_points_converge_at_the_monte_carlo_rate(generator, projection) -> None:
    expected = the_limit(projection)
    counts, errors = [2**k for k in range(8, 15)], []
    for count in counts:
        seeds = 2**20 // count  # at least 64, and as many points in all at every count
        points = torch.rand(seeds, count, 2, generator=generator, dtype=DTYPE)
        out = output_at_probes(points, torch.ones(seeds, count, dtype=DTYPE), projection)
        errors.append(rms(out - expected))
    assert -0.6 < slope(counts, errors) < -0.4
    assert errors[-1] < 0.03 * rms(expected)


@with_a_limit
@pytest.mark.parametrize("rule", [trapezoid, midpoint])
def test_a_grid_with_weights_converges_at_second_order(projection, rule) -> None:
    expected = the_limit(projection)
    counts = [8, 16, 32, 64]
    errors = [rms(output_at_probes(*rule(count), projection) - expected) for count in counts]
    assert slope(counts, errors) == pytest.approx(-2, abs=0.05)


def test_a_grid_with_weights_beats_random_points(generator) -> None:
    """A thousand points of a grid against sixteen thousand random ones."""
    expected = the_limit("inner_product")
    points = torch.rand(1, 2**14, 2, generator=generator, dtype=DTYPE)
    at_random = output_at_probes(points, torch.ones(1, 2**14, dtype=DTYPE), "inner_product")
    on_grid = output_at_probes(*trapezoid(32), "inner_product")
    assert rms(on_grid - expected) < 0.2 * rms(at_random - expected)


def test_the_bare_transpose_has_no_limit_but_grows_like_n(generator) -> None:
    """The factor |Omega| / n, which the paper's proof absorbs in lambda, is in v~ as well."""
    counts = [2**10, 2**12, 2**14]
    sizes = []
    for count in counts:
        points = torch.rand(16, count, 2, generator=generator, dtype=DTYPE)
        sizes.append(rms(output_at_probes(points, torch.ones(16, count).double(), "transpose")))
    assert slope(counts, sizes) == pytest.approx(1, abs=0.05)


def test_the_transpose_with_weights_that_integrate_is_the_inner_product() -> None:
    points, weights = gauss(12)
    out, expected = (output_at_probes(points, weights, p) for p in ("transpose", "inner_product"))
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-13)
