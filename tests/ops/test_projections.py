"""Fields to coefficients and back: what each projection promises."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from funcattn.ops import (
    Average,
    Basis,
    InnerProduct,
    Projection,
    PseudoInverse,
    Transpose,
    functional_attention,
    lift,
    projector,
)

DTYPE = torch.float64
NAMED = {
    "transpose": Transpose(),
    "inner_product": InnerProduct(),
    "average": Average(),
    "pinv": PseudoInverse(),
}
every_projection = pytest.mark.parametrize("name", NAMED)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-13) -> None:
    """Within the rounding of short sums, relative to the largest entry."""
    scale = expected.abs().max().item()
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance * scale)


def random(generator: torch.Generator, *shape: int, dtype: torch.dtype = DTYPE) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=dtype)


@pytest.fixture
def basis(generator) -> Tensor:
    return random(generator, 2, 3, 17, 4).softmax(-1)


@pytest.fixture
def weights(generator) -> Tensor:
    return 0.5 + torch.rand(2, 17, generator=generator, dtype=DTYPE)


def test_transpose_is_the_weighted_sum_over_points(generator, basis, weights) -> None:
    field = random(generator, 2, 3, 17, 2)
    expected = torch.zeros(2, 3, 4, 2, dtype=DTYPE)
    for point in range(17):
        term = basis[:, :, point, :, None] * field[:, :, point, None, :]
        expected += weights[:, point, None, None, None] * term
    close(projector(basis, "transpose", weights=weights)(field), expected)


def test_a_complex_basis_is_conjugated() -> None:
    """Under its own conjugate, exp(2 pi i x) on a grid has coefficient one, and not zero."""
    positions = torch.arange(8, dtype=DTYPE) / 8
    basis = torch.exp(2j * torch.pi * positions)[None, None, :, None]
    close(projector(basis, "inner_product")(basis), torch.ones(1, 1, 1, 1, dtype=basis.dtype))


def test_inner_product_of_an_orthonormal_basis_gives_the_coefficients_back(generator) -> None:
    orthonormal = torch.linalg.qr(random(generator, 2, 3, 17, 4)).Q * 17**0.5
    coefficients = random(generator, 2, 3, 4, 2)
    close(projector(orthonormal, "inner_product")(lift(orthonormal, coefficients)), coefficients)


def test_average_of_a_constant_is_the_constant(basis, weights) -> None:
    """To 1e-8, its `epsilon`, relative to a mass that is near the mean one."""
    constant = torch.full((2, 3, 17, 1), 3.7, dtype=DTYPE)
    coefficients = projector(basis, "average", weights=weights)(constant)
    close(coefficients, torch.full((2, 3, 4, 1), 3.7, dtype=DTYPE), tolerance=1e-7)


def test_average_stays_within_the_range_of_the_field(generator, basis, weights) -> None:
    field = 5 + torch.rand(2, 3, 17, 2, generator=generator, dtype=DTYPE)
    coefficients = projector(basis, Average(epsilon=0.0), weights=weights)(field)
    assert (coefficients > field.amin(-2, keepdim=True)).all()
    assert (coefficients < field.amax(-2, keepdim=True)).all()


def test_average_gives_zero_for_a_function_that_vanishes_everywhere(generator, basis) -> None:
    basis = torch.cat([basis, torch.zeros_like(basis[..., :1])], dim=-1).requires_grad_()
    coefficients = projector(basis, "average")(random(generator, 2, 3, 17, 2))
    assert (coefficients[:, :, -1] == 0).all()
    assert (coefficients[:, :, :-1] != 0).all()
    coefficients.square().sum().backward()
    assert basis.grad.isfinite().all()


def test_pinv_gives_the_coefficients_of_a_field_in_the_span_back(generator, basis, weights) -> None:
    coefficients = random(generator, 2, 3, 4, 2)
    field = lift(basis, coefficients)
    errors = [
        (projector(basis, PseudoInverse(t), weights=weights)(field) - coefficients).norm()
        for t in (1e-4, 1e-6, 1e-8)
    ]
    # The bias of the stabiliser is proportional to it.
    assert errors[0] / errors[1] == pytest.approx(100, rel=0.05)
    assert errors[1] / errors[2] == pytest.approx(100, rel=0.05)


def test_pinv_is_the_weighted_least_squares_fit(generator, basis, weights) -> None:
    field = random(generator, 2, 3, 17, 2)
    root = weights.sqrt()[:, None, :, None]
    expected = torch.linalg.lstsq(root * basis, root * field).solution
    fitted = projector(basis, PseudoInverse(tikhonov=1e-13), weights=weights)(field)
    # The Gram matrix of 17 points and 4 functions has condition < 1e3: 1e3 * 1e-13.
    close(fitted, expected, tolerance=1e-9)


@every_projection
def test_weights_of_one_are_no_weights(generator, basis, name) -> None:
    field = random(generator, 2, 3, 17, 2)
    ones = torch.ones(2, 17, dtype=DTYPE)
    close(projector(basis, name, weights=ones)(field), projector(basis, name)(field))


@every_projection
def test_one_row_of_weights_serves_the_whole_batch(generator, basis, weights, name) -> None:
    field = random(generator, 2, 3, 17, 2)
    row, mask = weights[0], torch.arange(17) < 14
    once = projector(basis, name, weights=row, mask=mask)(field)
    rows = projector(basis, name, weights=row.expand(2, -1), mask=mask.expand(2, -1))(field)
    assert torch.equal(once, rows)


@every_projection
def test_a_mask_is_a_weight_of_zero(generator, basis, name) -> None:
    field = random(generator, 2, 3, 17, 2)
    mask = torch.rand(2, 17, generator=generator) < 0.7
    masked = projector(basis, name, mask=mask)(field)
    assert torch.equal(masked, projector(basis, name, weights=mask.to(DTYPE))(field))


@every_projection
def test_a_name_stands_for_an_object(generator, basis, name) -> None:
    field = random(generator, 2, 3, 17, 2)
    assert isinstance(NAMED[name], Projection)
    assert torch.equal(projector(basis, name)(field), projector(basis, NAMED[name])(field))


def test_a_projection_of_ones_own_is_used(generator, basis) -> None:
    @dataclass(frozen=True)
    class Doubled:
        def statistic(self, basis: Basis, weights: Tensor | None) -> float:  # noqa: ARG002
            return 2.0

        def coefficients(self, moments: Tensor, statistic: Tensor | float) -> Tensor:
            return moments * statistic

    x = random(generator, 2, 3, 17, 5)
    own = functional_attention(x, x, x, basis, basis, ridge=0.4, projection=Doubled())
    # Both q~ and k~ are doubled, so the ridge counts a quarter, and v~ is doubled.
    plain = functional_attention(x, x, x, basis, basis, ridge=0.1, projection="transpose")
    close(own, 2 * plain, tolerance=1e-12)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
    ids=str,
)
@every_projection
def test_sums_over_points_are_float32_or_longer(generator, basis, name, given, expected) -> None:
    project = projector(basis.to(given), name)
    field = random(generator, 2, 3, 17, 2).to(given)
    assert project(field).dtype == expected
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(projector(basis.to(given), name)(field), project(field))


def test_lift_is_zero_at_masked_points_only(generator, basis) -> None:
    mask = torch.arange(17) < torch.tensor([[17], [12]])
    field = lift(basis, random(generator, 2, 3, 4, 2), mask=mask)
    assert (field[1, :, 12:] == 0).all()
    assert (field[0] != 0).all()
    assert (field[1, :, :12] != 0).all()


@every_projection
def test_a_point_of_weight_zero_still_receives(generator, basis, name) -> None:
    """It has no part in the sums, but unlike a masked point it has a value of the output."""
    x = random(generator, 2, 3, 17, 5)
    weights = torch.ones(2, 17, dtype=DTYPE)
    weights[:, 0] = 0
    out = functional_attention(x, x, x, basis, basis, ridge=0.1, projection=name, weights=weights)
    assert (out[:, :, 0] != 0).all()
    moved = x.clone()
    moved[:, :, 0] += 1
    again = functional_attention(
        moved, moved, moved, basis, basis, ridge=0.1, projection=name, weights=weights
    )
    assert torch.equal(again, out)
