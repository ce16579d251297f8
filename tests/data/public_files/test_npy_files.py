"""Benchmarks with an .npy file for every array."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

of_each = pytest.mark.parametrize("benchmark", ["elasticity", "airfoil", "pipe"], indirect=True)
of_elasticity = pytest.mark.parametrize("benchmark", ["elasticity"], indirect=True)


@of_each
def test_only_the_selection_is_read(tmp_path: Path, benchmark: Any) -> None:
    arrays = {name: array.repeat(400, 0) for name, array in benchmark.arrays().items()}
    benchmark.save(tmp_path, benchmark.stored(arrays))
    last = {name: array[-20:] for name, array in arrays.items()}
    selected = sum(array.nbytes for array in last.values())
    tracemalloc.start()
    try:
        read = benchmark.read(tmp_path, rows=slice(-20, None))
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for name in last:
        np.testing.assert_array_equal(read[name], last[name])
    # Beside it there are an array in the order of its file, and some kilobytes of headers.
    assert kept < selected + 2**15
    assert peak < 2 * selected + 2**16 < sum(array.nbytes for array in arrays.values()) / 2


@of_elasticity
def test_writing_copies_one_array_at_a_time(tmp_path: Path, benchmark: Any) -> None:
    arrays = {name: array.repeat(2000, 0) for name, array in benchmark.arrays().items()}
    tracemalloc.start()
    try:
        benchmark.write(tmp_path, arrays)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.1 * arrays["points"].nbytes


@of_elasticity
@pytest.mark.parametrize("stride", [2, 0, -1])
def test_without_a_grid_there_is_no_stride(tmp_path: Path, benchmark: Any, stride: int) -> None:
    benchmark.write(tmp_path, benchmark.arrays())
    message = rf"stride: expected 1, because these points form no grid .* got {stride}"
    with pytest.raises(ValueError, match=message):
        benchmark.read(tmp_path, stride=stride)
    with pytest.raises(ValueError, match=message):
        benchmark.layout.every("stress", stride)


@of_each
def test_objects_are_refused(tmp_path: Path, benchmark: Any) -> None:
    *_, file = benchmark.write(tmp_path, benchmark.arrays())
    np.save(file, np.array([{}, None]), allow_pickle=True)
    benchmark.assert_refused(tmp_path, rf"{file.name}: expected a .*\.npy file of plain numbers")


@pytest.mark.parametrize(
    ("benchmark", "left"),
    [
        ("elasticity", "Random_UnitCell_rr_10.npy or Random_UnitCell_theta_10.npy"),
        ("airfoil", "NACA_theta.npy"),
    ],
    indirect=["benchmark"],
)
def test_optional_files_of_other_samples_do_not_stay(
    tmp_path: Path, benchmark: Any, left: str
) -> None:
    written = benchmark.write(tmp_path, benchmark.arrays(optional=True))
    before = {file: file.read_bytes() for file in written}
    with pytest.raises(ValueError, match=rf"expected no {left}, .* delete the file"):
        benchmark.write(tmp_path, benchmark.arrays(seed=1))
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
