"""Benchmarks with all their arrays in one MATLAB file."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from funcattn.data.matlab import write_matlab

ALONE = ["burgers", "darcy_notch", "navier_stokes", "plasticity"]
NAMES = [*ALONE, "darcy"]
of_each = pytest.mark.parametrize("benchmark", NAMES, indirect=True)


@of_each
def test_variables_beside_the_known_ones_are_left_alone(folder: Path, benchmark: Any) -> None:
    (file,) = benchmark.write(folder, benchmark.arrays())
    known = {name: array for name, array in loadmat(file).items() if name[0] != "_"}
    savemat(file, {"extra": "text", "Kcoeff": np.nan, **known})
    benchmark.assert_read(benchmark.arrays(), folder)


@pytest.mark.parametrize("benchmark", ALONE, indirect=True)
def test_a_file_that_is_alone_may_have_any_name(tmp_path: Path, benchmark: Any) -> None:
    (file,) = benchmark.write(tmp_path / "mine.mat", benchmark.arrays())
    assert list(tmp_path.iterdir()) == [file] == [tmp_path / "mine.mat"]
    benchmark.assert_read(benchmark.arrays(), file.rename(tmp_path / "mine.data"))


@pytest.mark.parametrize(
    "benchmark", [*NAMES, *(f"{name} in 7.3" for name in NAMES)], indirect=True
)
def test_other_variables_are_listed(folder: Path, benchmark: Any) -> None:
    file, first = benchmark.files[0], next(iter(benchmark.variables.values()))
    write_matlab(folder / file, {"x": np.ones((2, 3))}, format=benchmark.format)
    benchmark.assert_refused(
        folder,
        rf"{file}: expected {first} \(samples, .* got x: double \(2, 3\): this is not a {file}",
    )


@of_each
@pytest.mark.parametrize("name", NAMES)
def test_files_of_other_benchmarks_are_refused(folder: Path, benchmark: Any, name: str) -> None:
    other = replace(benchmark, name=name)
    (file,) = other.write(folder, other.arrays())
    file.rename(folder / benchmark.files[0])
    if name == benchmark.name:
        benchmark.assert_read(benchmark.arrays(), folder)
    else:
        benchmark.assert_refused(folder, rf"{benchmark.files[0]}: expected .*, got ")
