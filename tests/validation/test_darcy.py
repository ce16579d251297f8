"""The Darcy solver against exact solutions, a direct solve, and the symmetries of the equation."""

from bisect import bisect_left

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.linalg import spsolve

from funcattn.pde import darcy
from funcattn.pde.random_fields import neumann_field


def two_valued(points: int, seed: int = 0) -> np.ndarray:
    return darcy.permeability(neumann_field(points, rng=np.random.default_rng(seed)))


def assembled(a: np.ndarray) -> coo_array:
    """The five-point matrix over the inner nodes, entry by entry."""
    n = len(a)
    rows, columns, values = [], [], []
    for i in range(1, n - 1):
        for j in range(1, n - 1):
            here = (i - 1) * (n - 2) + j - 1
            for di, dj in ((1, 0), (-1, 0), (0, 1), (0, -1)):
                face = (a[i, j] + a[i + di, j + dj]) / 2 * (n - 1) ** 2
                rows.append(here)
                columns.append(here)
                values.append(face)
                if 0 < i + di < n - 1 and 0 < j + dj < n - 1:
                    rows.append(here)
                    columns.append(here + di * (n - 2) + dj)
                    values.append(-face)
    return coo_array((values, (rows, columns)), shape=((n - 2) ** 2, (n - 2) ** 2))


def iterations_needed(a: np.ndarray) -> int:
    def solved_in(count: int) -> bool:
        try:
            darcy.solve(a, max_iterations=count)
        except RuntimeError:
            return False
        return True

    return bisect_left(range(26), True, key=solved_in)


def test_manufactured_solution_converges_at_second_order() -> None:
    errors = []
    for points in (33, 65, 129):
        x, y = np.meshgrid(*2 * [np.linspace(0.0, 1.0, points)], indexing="ij")
        a = np.exp(x - y / 2)
        exact = np.sin(np.pi * x) * np.sin(2 * np.pi * y)
        u_x = np.pi * np.cos(np.pi * x) * np.sin(2 * np.pi * y)
        u_y = 2 * np.pi * np.sin(np.pi * x) * np.cos(2 * np.pi * y)
        # div(a grad u) = a (u_x - u_y / 2 + Laplace u), because a_x = a and a_y = -a / 2.
        forcing = -a * (u_x - u_y / 2 - 5 * np.pi**2 * exact)
        errors.append(abs(darcy.solve(a, forcing) - exact).max())
    assert errors[-1] < 1e-3
    np.testing.assert_allclose(np.log2(np.array(errors[:-1]) / errors[1:]), 2.0, atol=0.1)


@pytest.mark.parametrize("points", [3, 4, 43])
def test_agrees_with_a_direct_sparse_solve(points: int) -> None:
    rng = np.random.default_rng(1)
    a = two_valued(points)
    forcing = rng.standard_normal((points, points))
    u = darcy.solve(a, forcing, tolerance=1e-10)
    direct = spsolve(assembled(a).tocsc(), forcing[1:-1, 1:-1].ravel())
    inside = u[1:-1, 1:-1].ravel()
    assert np.linalg.norm(inside - direct) <= 1e-8 * np.linalg.norm(direct)


@pytest.mark.parametrize("tolerance", [1e-3, 1e-8])
def test_pressure_meets_the_tolerance_without_extra_iterations(tolerance: float) -> None:
    a = two_valued(43)
    u = darcy.solve(a, tolerance=tolerance)
    residual = assembled(a) @ u[1:-1, 1:-1].ravel() - 1.0
    # One iteration gains a factor of about 3.
    assert tolerance / 10 < np.sqrt(np.mean(residual**2)) <= tolerance


def test_iterations_are_few_and_do_not_grow_with_the_grid() -> None:
    counts = [iterations_needed(two_valued(points)) for points in (43, 85, 169, 337)]
    assert max(counts) <= 25, counts
    assert max(counts) - min(counts) <= 2, counts


def test_constant_permeability_takes_one_iteration() -> None:
    assert iterations_needed(np.full((43, 43), 7.0)) == 1


def test_doubling_the_permeability_halves_the_pressure() -> None:
    a = two_valued(43)
    np.testing.assert_allclose(darcy.solve(2 * a), darcy.solve(a) / 2, rtol=1e-12)


def test_pressure_is_linear_in_the_forcing() -> None:
    a = two_valued(43)
    first, second = np.random.default_rng(2).standard_normal((2, 43, 43))
    both = darcy.solve(a, first + 3 * second, tolerance=1e-11)
    parts = darcy.solve(a, first, tolerance=1e-11) + 3 * darcy.solve(a, second, tolerance=1e-11)
    np.testing.assert_allclose(both, parts, rtol=0, atol=1e-9 * abs(both).max())


@pytest.mark.parametrize("move", [np.transpose, np.flipud, np.fliplr, np.rot90])
def test_transforming_the_permeability_transforms_the_pressure(move) -> None:  # type: ignore[no-untyped-def]
    a = two_valued(43)
    u = darcy.solve(a)
    np.testing.assert_allclose(darcy.solve(move(a)), move(u), rtol=1e-11)
    assert abs(move(u) - u).max() > 1e-3 * u.max()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_solution_obeys_the_maximum_principle(seed: int) -> None:
    u = darcy.solve(two_valued(43, seed))
    assert (u[1:-1, 1:-1] > 0).all()
    for side in (u[0], u[-1], u[:, 0], u[:, -1]):
        np.testing.assert_array_equal(side, 0.0)


def test_more_permeable_ground_lowers_the_mean_pressure() -> None:
    # mean(u) is the energy of the flow, between the energies for constant 12 and constant 3.
    means = [darcy.solve(a).mean() for a in (np.full((43, 43), 12.0), two_valued(43))]
    means.append(darcy.solve(np.full((43, 43), 3.0)).mean())
    assert means[0] < means[1] < means[2]


def test_batch_equals_solving_one_by_one() -> None:
    a = np.stack([two_valued(22, seed) for seed in range(6)]).reshape(2, 3, 22, 22)
    forcing = np.random.default_rng(3).standard_normal((3, 22, 22))
    u = darcy.solve(a, forcing)
    assert u.shape == a.shape
    for i, j in np.ndindex(2, 3):
        np.testing.assert_array_equal(u[i, j], darcy.solve(a[i, j], forcing[j]))
    # One permeability with several forcings.
    np.testing.assert_array_equal(darcy.solve(a[0, 1], forcing)[1], u[0, 1])


def test_zero_forcing_gives_zero_pressure() -> None:
    np.testing.assert_array_equal(darcy.solve(two_valued(9), 0.0), np.zeros((9, 9)))


def test_single_precision_input_is_solved_in_double() -> None:
    a = two_valued(22)
    u = darcy.solve(a.astype(np.float32))
    assert u.dtype == np.float64
    np.testing.assert_array_equal(u, darcy.solve(a))


def test_inputs_are_left_untouched() -> None:
    a, forcing = two_valued(22), np.ones((22, 22))
    kept = a.copy()
    darcy.solve(a, forcing)
    np.testing.assert_array_equal(a, kept)
    np.testing.assert_array_equal(forcing, 1.0)


def test_permeability_thresholds_at_zero() -> None:
    np.testing.assert_array_equal(darcy.permeability(np.array([-1.0, 0.0, 1.0])), [3.0, 12.0, 12.0])
    np.testing.assert_array_equal(darcy.permeability(np.array([-1.0, 1.0]), 0.5, 2.0), [0.5, 2.0])
    assert darcy.permeability(np.array([-1.0, 1.0], dtype=np.float32)).dtype == np.float64


def drawn(nodes: int, *seed: int, keep: int = 1) -> tuple[np.ndarray, np.ndarray]:
    fields = darcy.sample(nodes=nodes, keep=keep, rng=np.random.default_rng(seed))
    return fields["permeability"], fields["pressure"]


def test_sample_depends_only_on_its_generator() -> None:
    a, u = drawn(43, 5, 8)
    drawn(43, 5, 9)
    again = drawn(43, 5, 8)
    np.testing.assert_array_equal(a, again[0])
    np.testing.assert_array_equal(u, again[1])
    np.testing.assert_array_equal(u, darcy.solve(a))
    for seed in ((5, 9), (6, 8), (8, 5)):
        other = drawn(43, *seed)
        assert (a != other[0]).mean() > 0.05
        assert abs(u - other[1]).max() > 1e-2 * u.max()


def test_sample_keeps_a_nested_grid() -> None:
    a, u = drawn(43, 5, 8)
    for whole, kept in zip((a, u), drawn(43, 5, 8, keep=3), strict=True):
        np.testing.assert_array_equal(whole[::3, ::3], kept)
    for keep in (0, 4, -1):
        with pytest.raises(ValueError, match=f"keep: expected a divisor of nodes - 1 = 42.*{keep}"):
            drawn(43, 0, keep=keep)


def test_finer_grids_approach_the_same_sample() -> None:
    fine = drawn(337, 0, 3)[1]
    errors = []
    for points in (22, 43, 85):
        u = drawn(points, 0, 3)[1]
        stride = 336 // (points - 1)
        reference = fine[::stride, ::stride]
        errors.append(np.linalg.norm(u - reference) / np.linalg.norm(reference))
    assert errors[0] > 1.5 * errors[1] > 1.5**2 * errors[2], errors
    assert errors[2] < 0.02


@pytest.mark.parametrize("shape", [(5, 6), (2, 5, 6), (5,), ()])
def test_grid_that_is_not_square_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected a square grid .* got \(.*resample"):
        darcy.solve(np.ones(shape))


def test_grid_without_inner_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at least 3 points per axis, got 2"):
        darcy.solve(np.ones((2, 2)))
    with pytest.raises(ValueError, match="expected at least 3 points per axis, got 2"):
        drawn(2, 0)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_permeability_that_is_not_positive_and_finite_is_refused(value: float) -> None:
    a = np.ones((2, 5, 5))
    a[1, 2, 3] = value
    with pytest.raises(ValueError, match=f"positive, finite permeability, got .*{value}"):
        darcy.solve(a)


@pytest.mark.parametrize("forcing", [np.ones(5), np.ones((4, 4)), np.nan, np.full((5, 5), np.inf)])
def test_forcing_that_does_not_fit_is_refused(forcing: np.ndarray) -> None:
    with pytest.raises(
        ValueError, match=r"finite forcing, a number or shape \(\.\.\., 5, 5\), got"
    ):
        darcy.solve(np.ones((5, 5)), forcing)


@pytest.mark.parametrize("tolerance", [0.0, -1e-8, 1.0, np.nan])
def test_tolerance_out_of_range_is_refused(tolerance: float) -> None:
    with pytest.raises(ValueError, match=f"expected 0 < tolerance < 1, got {tolerance}"):
        darcy.solve(np.ones((5, 5)), tolerance=tolerance)


def test_field_with_missing_values_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a finite field, got NaN or infinity"):
        darcy.permeability(np.array([0.0, np.nan]))


def test_too_few_iterations_raise_with_the_residual_and_the_sample() -> None:
    a = two_valued(43)
    with pytest.raises(RuntimeError, match=r"1\.0e-08 within 5 iterations, got \d\.\de-0[1-4]:"):
        darcy.solve(a, max_iterations=5)
    batch = np.stack([np.ones((43, 43)), a])
    with pytest.raises(RuntimeError, match=r"got .* in sample \(1,\): allow more iterations"):
        darcy.solve(batch, max_iterations=5)


def test_tolerance_below_rounding_raises_instead_of_claiming_success() -> None:
    with pytest.raises(RuntimeError, match=r"1\.0e-15 within 200 iterations, got \d\.\de-1[1-4]"):
        darcy.solve(two_valued(85), tolerance=1e-15)
