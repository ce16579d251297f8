"""The file of Darcy with a notch repeats its boundary along y, and its grid for every sample."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FILE = "Darcy_Triangular_FNO.mat"
pytestmark = pytest.mark.parametrize(
    "benchmark", ["darcy_notch", "darcy_notch in 7.3"], indirect=True
)


def test_the_grid_is_that_of_the_unit_square(tmp_path: Path, benchmark: Any) -> None:
    benchmark.write(tmp_path, benchmark.arrays())
    stored, x = benchmark.load(tmp_path), np.linspace(0, 1, 9)
    np.testing.assert_array_equal(stored["coord_x"], np.tile(x, (5, 9, 1)))
    np.testing.assert_array_equal(stored["coord_y"], np.tile(x[:, None], (5, 1, 9)))


def test_the_grid_is_not_needed(tmp_path: Path, benchmark: Any) -> None:
    benchmark.save(tmp_path, benchmark.stored(benchmark.arrays()))
    assert set(benchmark.load(tmp_path)) == {"boundCoeff", "sol"}
    benchmark.assert_read(benchmark.arrays(), tmp_path)


def test_the_grid_may_be_rounded(tmp_path: Path, benchmark: Any) -> None:
    benchmark.write(tmp_path, benchmark.arrays())
    stored = benchmark.load(tmp_path)
    stored["coord_x"] = (stored["coord_x"] + 1e-6).astype(np.float32)
    benchmark.save(tmp_path, stored)
    benchmark.assert_read(benchmark.arrays(), tmp_path)


def changed_at_a_point(values: np.ndarray) -> np.ndarray:
    values[3, 7, 2] += 1e-9
    return values


def exchanged(values: np.ndarray) -> np.ndarray:
    return values.swapaxes(1, 2)


@pytest.mark.parametrize(
    ("variable", "change", "message"),
    [
        ("coord_x", lambda x: 2 * x, r"expected coord_x from 0 .* steps, got 0\.0 to 2\.0"),
        ("coord_y", lambda y: 2 * y, r"expected coord_y from 0 .* steps, got 0\.0 to 2\.0"),
        ("coord_x", np.square, r"expected coord_x from 0 .* got 0\.0 to 1\.0 or other steps"),
        ("coord_x", lambda x: 1 - x, "expected coord_x from 0 to 1 in equal steps"),
        ("coord_x", exchanged, r"expected coord_x \(samples, y, x\) to be constant along y"),
        ("coord_y", lambda y: y[:3], r"coord_y: expected shape \(samples 5, y 9, x 9\).* got \(3"),
        ("boundCoeff", exchanged, r"expected boundCoeff \(samples, y, x\) .* constant along y"),
        ("boundCoeff", changed_at_a_point, "constant along y, got changes up to 1e-09"),
    ],
    ids=[
        *("longer_x", "longer_y", "graded", "reversed", "exchanged", "of_fewer_samples"),
        *("boundary_exchanged", "boundary_changed"),
    ],
)
def test_another_grid_or_a_boundary_that_changes_along_y_is_refused(
    tmp_path: Path,
    benchmark: Any,
    variable: str,
    change: Callable[[np.ndarray], np.ndarray],
    message: str,
) -> None:
    benchmark.write(tmp_path, benchmark.arrays())
    stored = benchmark.load(tmp_path)
    benchmark.save(tmp_path, {**stored, variable: change(stored[variable])})
    with pytest.raises(ValueError, match=rf"{FILE}: .*{message}"):
        benchmark.read(tmp_path)
