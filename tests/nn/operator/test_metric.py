"""Attention in a learned metric, beside matrices written out."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from funcattn.nn import Points
from funcattn.nn.operator import MetricAttention
from funcattn.nn.operator.spectral import (
    Family,
    GridFunctions,
    axis_functions,
    axis_weights,
    frequencies,
)
from funcattn.ops.linalg import (
    NotPositiveError,
    solve_by_elimination,
    with_digits_to_spare,
)


def kronecker(tables: list[Tensor]) -> Tensor:
    product = torch.ones(1, 1).double()
    for table in tables:
        product = torch.kron(product, table)
    return product


def obvious(layer: MetricAttention, x: Tensor, grid: tuple[int, ...]) -> Tensor:
    """One sample (n, c): gradients at all points, the matrix as one product, its inverse."""
    family, modes = layer.family, layer.modes
    plain = [axis_functions(family, n, m) for n, m in zip(grid, modes, strict=True)]
    slopes = [axis_functions(family, n, m, slope=True) for n, m in zip(grid, modes, strict=True)]
    phi = kronecker(plain)
    w = kronecker([axis_weights(family, n)[:, None] for n in grid]).flatten()
    kappa = F.softplus(x @ layer.to_coefficient.weight.T + layer.to_coefficient.bias + 0.5)
    k = torch.stack(torch.meshgrid(*[frequencies(family, m) for m in modes], indexing="ij"), -1)
    r = k.square().sum(-1).flatten().sqrt()
    d = torch.diag(1 / torch.where(r == 0, 1.0, r))
    period = (2 if family == "fourier" else 1) * math.pi
    c = d @ phi.T @ torch.diag(w) @ x
    parts = []
    for head, own in enumerate(c.chunk(layer.heads, -1)):
        stiffness = torch.zeros(len(r), len(r)).double()
        for axis in range(len(grid)):
            gradient = kronecker([*plain[:axis], slopes[axis], *plain[axis + 1 :]]) / period
            stiffness += gradient.T @ torch.diag(w * kappa[:, head]) @ gradient
        system = torch.diag(layer.log_ridge.flatten().exp()) + d @ stiffness @ d
        parts.append(phi @ d @ torch.linalg.inv(system) @ own)
    return torch.cat(parts, -1)


@pytest.mark.parametrize("family", ["sine", "cosine", "fourier"])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize(
    ("grid", "modes"), [((9,), (4,)), ((7, 9), (3, 4)), ((5, 6, 7), (2, 3, 2))], ids=str
)
def test_it_is_its_formula(
    family: Family,
    heads: int,
    grid: tuple[int, ...],
    modes: tuple[int, ...],
    uniform: Any,
    assert_equal_to_rounding: Any,
) -> None:
    layer = MetricAttention(4, modes, family, heads=heads).double()
    torch.nn.init.normal_(layer.log_ridge)
    torch.nn.init.normal_(layer.to_coefficient.weight)
    x = uniform(2, math.prod(grid), 4) - 0.5
    out = layer(x, Points(grid=grid))
    for i in range(2):
        assert_equal_to_rounding(out[i], obvious(layer, x[i], grid))


def test_finer_grids_of_a_smooth_field_agree_more_and_more() -> None:
    layer = MetricAttention(2, (4,), "sine").double()

    def at_ends_and_quarters(n: int) -> Tensor:
        x = torch.linspace(0, 1, n).double()
        field = torch.stack([x.exp(), (3 * x).cos()], -1)[None]
        return layer(field, Points(grid=(n,)))[0, :: (n - 1) // 4]

    exact = at_ends_and_quarters(4097)
    errors = [(at_ends_and_quarters(n) - exact).abs().max() for n in (17, 33, 65)]
    assert 3.5 < errors[0] / errors[1] < 4.5  # the trapezoid rule
    assert 3.5 < errors[1] / errors[2] < 4.5


def test_heads_share_the_width() -> None:
    with pytest.raises(ValueError, match="width: expected a multiple of heads=3, got 4"):
        MetricAttention(4, (2,), heads=3)


def test_a_system_that_is_lost_is_refused_in_words() -> None:
    layer = MetricAttention(4, (3, 4), "sine")
    torch.nn.init.constant_(layer.log_ridge, -200.0)
    torch.nn.init.constant_(layer.to_coefficient.bias, -1e4)
    with pytest.raises(NotPositiveError, match="check the units of the input"):
        layer(torch.zeros(1, 63, 4), Points(grid=(7, 9)))


def test_a_system_that_is_lost_in_single_precision_is_solved_in_double(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a network is asked for many steps before it is trained, its fields can be large."""
    layer = MetricAttention(4, (3, 4), "sine")
    x = torch.rand(1, 63, 4)
    expected = layer(x, Points(grid=(7, 9)))

    def only_in_double(matrix: Tensor, right: Tensor) -> Tensor:
        if matrix.dtype == torch.float32:
            raise NotPositiveError("lost in rounding")
        return solve_by_elimination(matrix, right)

    monkeypatch.setattr("funcattn.nn.operator.metric.solve_by_elimination", only_in_double)
    out = layer(x, Points(grid=(7, 9)))
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, expected)


def test_elimination_that_cancels_is_done_with_more_digits() -> None:
    # The last pivot is 2^-36 in full, and 0 in float32, in whatever order it is computed.
    system = torch.tensor([[[1 + 2**-12, 1], [1, 1 - 2**-12 + 2**-24]]])
    right = torch.ones(1, 2, 1)
    with pytest.raises(NotPositiveError):
        solve_by_elimination(system, right)
    assert with_digits_to_spare(solve_by_elimination, system, right).isfinite().all()


def test_a_ridge_is_not_lost_beside_a_large_coefficient() -> None:
    """Where a network is asked for many steps before it is trained, its fields can be large."""
    layer = MetricAttention(1, (12,), "sine")
    torch.nn.init.constant_(layer.to_coefficient.weight, 1.0)
    x = torch.full((1, 33, 1), -1e4)
    x[:, 16] = 1e9  # a coefficient of 0 at all points but the middle one, so of rank 1
    out = layer(x, Points(grid=(33,)))
    assert out.isfinite().all()


def test_the_map_carries_the_coefficients() -> None:
    torch.manual_seed(0)
    layer = MetricAttention(6, (3, 4), "sine", heads=2).double()
    x, points = torch.randn(2, 63, 6).double(), Points(grid=(7, 9))
    functions = GridFunctions("sine", (7, 9), (3, 4))
    c = functions.coefficients(x.view(2, 7, 9, 6)).flatten(0, 1)  # (k, b, c)
    carried = torch.einsum("bhij,jbhe->ibhe", layer.map(x, points), c.unflatten(-1, (2, 3)))
    out = functions.fields(carried.flatten(-2).unflatten(0, (3, 4))).flatten(1, 2)
    torch.testing.assert_close(out, layer(x, points))
