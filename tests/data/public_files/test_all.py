"""What all public files have in common: arrays come back, and what is no such file is refused."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

STEPS = {
    **dict.fromkeys(["initial", "final", "boundary", "die"], (4,)),
    **dict.fromkeys(["permeability", "pressure", "solution", "x", "y"], (4, 4)),
    **dict.fromkeys(["vorticity", "flow"], (1, 4, 4)),
    "motion": (4, 4, 1, 1),
    # Without a grid.
    "points": (1, 1),
    "stress": (1,),
}
"""Those of a stride of 4, along the axes after the samples."""


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_arrays_come_back_as_they_were(folder: Path, benchmark: Any, dtype: type) -> None:
    arrays = {name: array.astype(dtype) for name, array in benchmark.arrays().items()}
    before = set(folder.iterdir())
    written = benchmark.write(folder, arrays)
    assert set(written) == set(folder.iterdir()) - before
    assert {file.name for file in written} == {benchmark.file(name) for name in arrays}
    for path in (folder, str(folder), *(folder / name for name in benchmark.names)):
        benchmark.assert_read(arrays, path)
        assert benchmark.measure(path) == dict.fromkeys(benchmark.parts, 5)


def test_files_have_the_public_layout(folder: Path, benchmark: Any) -> None:
    # The format of MATLAB does not matter, least of all to .npy files.
    for optional, each in ((False, benchmark), (True, replace(benchmark, format="7.3"))):
        arrays = benchmark.arrays(optional=optional)
        each.write(folder / benchmark.names[-1], arrays)
        found, stored = benchmark.load(folder), benchmark.stored(arrays)
        # The coordinates are of the notch alone.
        assert set(found) - {"coord_x", "coord_y"} == set(stored)
        for variable, array in stored.items():
            np.testing.assert_array_equal(found[variable], array)
            assert found[variable].flags.c_contiguous
    # Arrays that are optional are written, not read.
    benchmark.assert_read(benchmark.arrays(), folder)


@pytest.mark.parametrize(
    "rows",
    [slice(-2, None), slice(1, 4), slice(0, 5, 2), slice(None, -3)],
    ids=["last", "middle", "every_second", "all_but_last"],
)
def test_rows_and_stride(folder: Path, benchmark: Any, rows: slice) -> None:
    arrays = benchmark.arrays()
    benchmark.write(folder, arrays)
    stride = 1 if benchmark.name == "elasticity" else 4
    for name in arrays:
        assert benchmark.layout.every(name, stride) == STEPS[name]
    expected = {
        name: array[(rows, *(slice(None, None, step) for step in STEPS[name]))]
        for name, array in arrays.items()
    }
    benchmark.assert_read(expected, folder, rows=rows, stride=stride)


@pytest.mark.parametrize(
    ("change", "dtype"),
    [
        pytest.param(np.asfortranarray, np.float64, id="fortran"),
        pytest.param(lambda array: array.astype(">f8"), np.float64, id="big_endian"),
        pytest.param(lambda array: array.astype(np.float32), np.float32, id="single"),
        pytest.param(lambda array: (100 * array).astype(np.int16), np.float64, id="integers"),
    ],
)
def test_files_of_any_order_and_type_are_read(
    folder: Path, benchmark: Any, change: Callable[[np.ndarray], np.ndarray], dtype: type
) -> None:
    arrays, stored = benchmark.arrays(), benchmark.stored(benchmark.arrays())
    for name, variable in benchmark.variables.items():
        # What moves would not start from its grid any more.
        if name != "motion":
            arrays[name] = change(arrays[name]).astype(dtype)
            stored[variable] = change(stored[variable])
    benchmark.save(folder, stored)
    expected = {name: array[1:4] for name, array in arrays.items()}
    benchmark.assert_read(expected, folder, rows=slice(1, 4))


@pytest.mark.parametrize(
    "rows",
    [slice(0, 6), slice(-6, None), slice(5, None), slice(3, 3), slice(None, None, -1)],
    ids=["beyond", "before", "after", "none", "backwards"],
)
def test_rows_beyond_the_file_are_refused(folder: Path, benchmark: Any, rows: slice) -> None:
    benchmark.write(folder, benchmark.arrays())
    message = rf"{benchmark.files[0]}: expected rows among the 5 of .* got {re.escape(str(rows))}"
    with pytest.raises(ValueError, match=message):
        benchmark.read(folder, rows=rows)


@pytest.mark.parametrize(
    ("benchmark", "points", "cells"),
    [
        ("burgers", "8", 8),
        ("darcy", "9 x 9", 8),
        ("darcy_notch", "9 x 9", 8),
        ("navier_stokes", "8 x 8", 8),
        ("plasticity", "17 x 9", 8),
        ("airfoil", "13 x 9", 4),
        ("pipe", "9 x 5", 4),
    ],
    indirect=["benchmark"],
)
def test_strides_that_break_the_grid_are_refused(
    folder: Path, benchmark: Any, points: str, cells: int
) -> None:
    benchmark.write(folder, benchmark.arrays())
    for stride in (0, -1, -2, 3, 12, 2 * cells):
        message = rf"stride: expected a divisor of {cells}, .* the {points} points .* got {stride}$"
        with pytest.raises(ValueError, match=message):
            benchmark.read(folder, stride=stride)


def test_missing_file_names_those_beside_it(tmp_path: Path, benchmark: Any) -> None:
    kind = ".npy" if benchmark.apart else ".mat"
    (tmp_path / f"other{kind}").touch()
    for missing in benchmark.files:
        for part in benchmark.parts:
            benchmark.write(tmp_path, benchmark.arrays(), part)
        (tmp_path / missing).unlink()
        beside = sorted({*benchmark.files, f"other{kind}"} - {missing})
        message = re.escape(
            f"{missing}: expected {' and '.join(benchmark.files)}, got no such file, but "
            f"{', '.join(beside)} in its folder: put it there"
        )
        for path in (tmp_path, *(tmp_path / file for file in benchmark.files)):
            benchmark.assert_refused(path, message, FileNotFoundError)
            with pytest.raises(FileNotFoundError, match=message):
                benchmark.read(path, benchmark.parts[-1])
    first = benchmark.files[0]
    benchmark.assert_refused(
        tmp_path / "absent" / first,
        rf"{first}: expected .* but no \{kind} file in its folder: put it there",
        FileNotFoundError,
    )


@pytest.mark.parametrize(
    "benchmark", ["darcy", "elasticity", "airfoil", "pipe"], indirect=["benchmark"]
)
def test_several_files_are_told_apart_by_name(folder: Path, benchmark: Any) -> None:
    mine = benchmark.write(folder, benchmark.arrays())[0].rename(folder / "mine")
    names = re.escape(" or ".join(benchmark.names))
    benchmark.assert_refused(mine, rf"mine: expected a folder that exists, or {names} in it")


def test_arrays_with_other_axes_are_refused(folder: Path, benchmark: Any) -> None:
    stored = benchmark.stored(benchmark.arrays())
    variable, array = stored.popitem()
    stored[variable] = array[..., None].repeat(2, -1)
    benchmark.save(folder, stored)
    file = variable if benchmark.apart else benchmark.files[0]
    benchmark.assert_refused(
        folder,
        rf"{file}: expected .*{variable} \(.*samples.*\), got .*(float64|{variable}: double) "
        rf"{re.escape(str(stored[variable].shape))}: this is not a {file}; take another file",
    )


@pytest.mark.parametrize(
    ("benchmark", "array", "cut", "expected"),
    [
        ("burgers", "final", np.s_[:-1], "samples 5, x 8)"),
        ("burgers", "final", np.s_[:, ::2], "samples 5, x 8)"),
        ("darcy", "pressure", np.s_[1:], "samples 5, x 9, y 9), x and y of one length"),
        ("darcy", "pressure", np.s_[:, ::2, ::2], "samples 5, x 9, y 9), x and y of one length"),
        ("darcy", "permeability", np.s_[:, 1:], "samples, x, y), x and y of one length"),
        ("darcy_notch", "solution", np.s_[..., 1:], "samples 5, y 9, x 9), x and y of one length"),
        ("navier_stokes", "vorticity", np.s_[..., 1:], "samples, x, y, frames), x and y of one"),
        ("elasticity", "points", np.s_[..., :1], "points, coordinates 2, samples), got"),
        ("elasticity", "stress", np.s_[:-1], "points 7, samples 5), got"),
        ("elasticity", "stress", np.s_[:, 1:], "points 7, samples 5), got"),
        ("airfoil", "y", np.s_[:, ::2], "samples 5, x 13, y 9), got"),
        ("airfoil", "flow", np.s_[:, :4], "samples 5, channels 5, x 13, y 9), got"),
        ("pipe", "flow", np.s_[:4], "samples 5, channels 3, x 9, y 5), got"),
        ("pipe", "flow", np.s_[..., :4], "samples 5, channels 3, x 9, y 5), got"),
    ],
    indirect=["benchmark"],
    ids=range(14),
)
def test_arrays_that_do_not_agree_are_neither_read_nor_written(
    folder: Path, benchmark: Any, array: str, cut: Any, expected: str
) -> None:
    arrays = benchmark.arrays()
    arrays[array] = arrays[array][cut]
    benchmark.save(folder, benchmark.stored(arrays))
    file = benchmark.file(array)
    message = f"{file}: {benchmark.variables[array]}: expected shape ({expected}"
    benchmark.assert_refused(folder, rf"{re.escape(message)}.* \(")
    with pytest.raises(ValueError, match=rf"{file}: {array}: expected shape \("):
        benchmark.write(folder, arrays)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_neither_read_nor_written(
    folder: Path, benchmark: Any, value: float
) -> None:
    for name, variable in benchmark.variables.items():
        arrays = benchmark.arrays()
        arrays[name][4, ..., 1] = value
        benchmark.save(folder, benchmark.stored(arrays))
        message = rf"{benchmark.file(name)}: expected finite values, got .* in "
        with pytest.raises(ValueError, match=f"{message}{variable} that"):
            benchmark.read(folder)
        # What is not asked for is not looked at.
        assert benchmark.read(folder, rows=slice(0, 4))
        with pytest.raises(ValueError, match=f"{message}{name} that"):
            benchmark.write(folder, arrays)


@pytest.mark.parametrize("left", [0.0, 0.01, 0.1, 0.4, 0.8, 0.99])
def test_a_file_cut_short_is_refused(folder: Path, benchmark: Any, left: float) -> None:
    for file in benchmark.write(folder, benchmark.arrays()):
        content = file.read_bytes()
        file.write_bytes(content[: int(left * len(content))])
        if benchmark.apart:
            benchmark.assert_refused(folder, rf"{file.name}: expected a .*\.npy file")
        with pytest.raises(ValueError, match=f"{file.name}: expected "):
            benchmark.read(folder)
        file.write_bytes(content)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        pytest.param(b"<!doctype html><title>Too many", "a web page|b'<!doctype", id="html"),
        pytest.param(b"version https://git-lfs.github.com", "a git-lfs|b'version", id="git_lfs"),
        pytest.param(b"", "an empty (file|one)", id="empty"),
    ],
)
def test_what_is_no_such_file_is_named(
    folder: Path, benchmark: Any, content: bytes, found: str
) -> None:
    for file in benchmark.write(folder, benchmark.arrays()):
        whole = file.read_bytes()
        file.write_bytes(content)
        kind = r"\.npy" if benchmark.apart else "MATLAB"
        benchmark.assert_refused(folder, rf"{file.name}: expected a {kind} file.* got .*({found})")
        file.write_bytes(whole)


def test_arrays_that_are_no_set_are_not_written(tmp_path: Path, benchmark: Any) -> None:
    arrays = benchmark.arrays()
    last, array = next(reversed(arrays.items()))
    missing = {name: values for name, values in arrays.items() if name != last}
    wrong: list[tuple[dict[str, np.ndarray], str]] = [
        ({}, rf"expected the arrays .*{last}.* got none"),
        (missing, rf"expected the arrays .*{last}.* got {', '.join(missing)}"),
        ({**arrays, "more": array}, "expected the arrays .* got .*more"),
        ({**arrays, last: array[0]}, rf"{last}: expected shape \(samples.*, got \("),
        ({name: a[:0] for name, a in arrays.items()}, "expected at least one sample .* got none"),
    ]
    if missing:
        samples = rf"{last}: expected shape \(samples 5, .*, got \("
        wrong += [({**arrays, last: array[1:]}, f"{samples}4, ")]
        wrong += [({**arrays, last: array[:0]}, f"{samples}0, ")]
    for given, message in wrong:
        with pytest.raises(ValueError, match=message):
            benchmark.write(tmp_path, given)
    with pytest.raises(ValueError, match=r"absent: expected a folder that exists, or "):
        benchmark.write(tmp_path / "absent", arrays)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("benchmark", "array", "expected"),
    [
        ("navier_stokes", "initial", "samples 5, x 8, y 8), x and y of one length"),
        ("navier_stokes", "time", "frames 3), x and y of one length"),
        ("elasticity", "radius", "samples 5, angles 42)"),
        ("elasticity", "coefficients", "samples 5, coefficients 10)"),
        ("airfoil", "design", "samples 5, design 8)"),
    ],
    indirect=["benchmark"],
)
def test_optional_arrays_must_agree_too(
    tmp_path: Path, benchmark: Any, array: str, expected: str
) -> None:
    arrays = benchmark.arrays(optional=True)
    for axis in range(arrays[array].ndim):
        cut = np.delete(arrays[array], 0, axis)
        message = re.escape(f"{array}: expected shape ({expected}, got {cut.shape}")
        with pytest.raises(ValueError, match=message):
            benchmark.write(tmp_path, {**arrays, array: cut})
