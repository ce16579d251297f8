"""Public benchmark files: what is written comes back, and what is not such a file is refused."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from funcattn.data import public_files
from funcattn.data.matlab import Format, read_matlab, write_matlab
from funcattn.data.public_files import (
    BURGERS,
    DARCY,
    DARCY_NOTCH,
    NAVIER_STOKES,
    Fields,
    count_public,
    read_public,
    write_public,
)

read_burgers, write_burgers = partial(read_public, BURGERS), partial(write_public, BURGERS)
read_darcy, write_darcy = partial(read_public, DARCY), partial(write_public, DARCY)
read_darcy_notch = partial(read_public, DARCY_NOTCH)
write_darcy_notch = partial(write_public, DARCY_NOTCH)
read_navier_stokes = partial(read_public, NAVIER_STOKES)
write_navier_stokes = partial(write_public, NAVIER_STOKES)

TRAIN, TEST = "piececonst_r421_N1024_smooth1.mat", "piececonst_r421_N1024_smooth2.mat"
SHAPES = {
    "burgers": {"initial": (5, 8), "final": (5, 8)},
    "darcy": {"permeability": (5, 9, 9), "pressure": (5, 9, 9)},
    "darcy_notch": {"boundary": (5, 9), "solution": (5, 9, 9)},
    "navier_stokes": {"vorticity": (5, 3, 8, 8)},
}


@dataclass(frozen=True)
class Benchmark:
    name: str
    file: str
    variables: tuple[str, ...]
    read: Callable[..., Fields]
    write: Callable[..., Path]

    def arrays(self, seed: int = 0) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        return {name: rng.normal(size=shape) for name, shape in SHAPES[self.name].items()}


BENCHMARKS = (
    Benchmark("burgers", "burgers_data_R10.mat", ("a", "u"), read_burgers, write_burgers),
    Benchmark(
        "darcy",
        TRAIN,
        ("coeff", "sol"),
        partial(read_darcy, part="train"),
        partial(write_darcy, part="train"),
    ),
    Benchmark(
        "darcy_notch",
        "Darcy_Triangular_FNO.mat",
        ("boundCoeff", "sol"),
        read_darcy_notch,
        write_darcy_notch,
    ),
    Benchmark(
        "navier_stokes",
        "NavierStokes_V1e-5_N1200_T20.mat",
        ("u",),
        read_navier_stokes,
        write_navier_stokes,
    ),
)
of_each = pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda each: each.name)
in_both = pytest.mark.parametrize("fmt", ["5", "7.3"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that already has the test file of Darcy, the companion of what a test writes."""
    write_darcy(tmp_path, BENCHMARKS[1].arrays(seed=1), "test")
    return tmp_path


def change_file(path: Path, change: Callable[[dict[str, Any]], Mapping[str, Any] | None]) -> None:
    """Write a file again after its variables were changed."""
    variables = {name: each for name, each in loadmat(path).items() if name[0] != "_"}
    savemat(path, change(variables) or variables)


def assert_same(read: Fields, arrays: Mapping[str, np.ndarray]) -> None:
    assert list(read) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == array.dtype
        assert read[name].flags.c_contiguous


@of_each
@in_both
def test_arrays_come_back_as_they_were(folder: Path, benchmark: Benchmark, fmt: Format) -> None:
    arrays = benchmark.arrays()
    benchmark.write(folder, arrays, format=fmt)
    assert (folder / benchmark.file).is_file()
    assert_same(benchmark.read(folder), arrays)
    assert_same(benchmark.read(folder / benchmark.file), arrays)
    assert_same(benchmark.read(str(folder)), arrays)


@of_each
@in_both
def test_rows_and_stride(folder: Path, benchmark: Benchmark, fmt: Format) -> None:
    arrays = benchmark.arrays()
    benchmark.write(folder, arrays, format=fmt)
    read = benchmark.read(folder, rows=slice(-3, None), stride=4)
    # Space is what is left after samples and frames.
    everything = slice(None)
    for name, array in arrays.items():
        skipped = 2 if name == "vorticity" else 1
        where = (slice(-3, None), *[everything] * (skipped - 1))
        where += (slice(None, None, 4),) * (array.ndim - skipped)
        np.testing.assert_array_equal(read[name], array[where])


@of_each
def test_single_precision_stays_and_whole_numbers_become_double(
    folder: Path, benchmark: Benchmark
) -> None:
    arrays = {name: array.astype(np.float32) for name, array in benchmark.arrays().items()}
    benchmark.write(folder, arrays)
    assert_same(benchmark.read(folder), arrays)
    variable = benchmark.variables[0]
    change_file(folder / benchmark.file, lambda old: {**old, variable: np.sign(old[variable])})
    change_file(
        folder / benchmark.file, lambda old: {**old, variable: old[variable].astype(np.int16)}
    )
    name = next(iter(arrays))
    read = benchmark.read(folder)[name]
    assert read.dtype == np.float64
    np.testing.assert_array_equal(read, np.sign(arrays[name]))


def test_burgers_file_has_the_public_layout(tmp_path: Path) -> None:
    arrays = BENCHMARKS[0].arrays()
    write_burgers(tmp_path, arrays)
    stored = loadmat(tmp_path / "burgers_data_R10.mat")
    np.testing.assert_array_equal(stored["a"], arrays["initial"])
    np.testing.assert_array_equal(stored["u"], arrays["final"])


def test_darcy_files_have_the_public_layout(tmp_path: Path) -> None:
    for seed, (part, file) in enumerate((("train", TRAIN), ("test", TEST))):
        arrays = BENCHMARKS[1].arrays(seed)
        write_darcy(tmp_path, arrays, part)  # type: ignore[arg-type]
        stored = loadmat(tmp_path / file)
        np.testing.assert_array_equal(stored["coeff"], arrays["permeability"])
        np.testing.assert_array_equal(stored["sol"], arrays["pressure"])


def test_notch_file_has_the_public_layout(tmp_path: Path) -> None:
    arrays = BENCHMARKS[2].arrays()
    write_darcy_notch(tmp_path, arrays)
    stored = loadmat(tmp_path / "Darcy_Triangular_FNO.mat")
    x = np.linspace(0, 1, 9)
    for sample in range(5):
        np.testing.assert_array_equal(stored["sol"][sample], arrays["solution"][sample])
        for j in range(9):
            np.testing.assert_array_equal(
                stored["boundCoeff"][sample, j], arrays["boundary"][sample]
            )
            np.testing.assert_array_equal(stored["coord_x"][sample, j], x)
            np.testing.assert_array_equal(stored["coord_y"][sample, :, j], x)


def test_navier_stokes_file_has_the_public_layout(tmp_path: Path) -> None:
    file = tmp_path / "NavierStokes_V1e-5_N1200_T20.mat"
    vorticity = BENCHMARKS[3].arrays()["vorticity"]
    write_navier_stokes(tmp_path, {"vorticity": vorticity})
    stored = loadmat(file)
    assert stored["u"].shape == (5, 8, 8, 3)
    for frame in range(3):
        np.testing.assert_array_equal(stored["u"][..., frame], vorticity[:, frame])
    assert "a" not in stored
    initial, time = vorticity[:, 0] + 1, np.array([1.0, 2.0, 3.0])
    write_navier_stokes(tmp_path, {"vorticity": vorticity, "initial": initial, "time": time})
    stored = loadmat(file)
    np.testing.assert_array_equal(stored["a"], initial)
    np.testing.assert_array_equal(stored["t"], time[None])
    assert_same(read_navier_stokes(file), {"vorticity": vorticity})


@of_each
def test_variables_beside_the_known_ones_are_left_alone(folder: Path, benchmark: Benchmark) -> None:
    benchmark.write(folder, benchmark.arrays())
    change_file(folder / benchmark.file, lambda old: {"extra": "text", "Kcoeff": np.nan, **old})
    assert_same(benchmark.read(folder), benchmark.arrays())


@pytest.mark.parametrize("benchmark", [BENCHMARKS[0], *BENCHMARKS[2:]], ids=lambda each: each.name)
def test_a_single_file_may_have_any_name(tmp_path: Path, benchmark: Benchmark) -> None:
    benchmark.write(tmp_path / "mine.mat", benchmark.arrays())
    assert [file.name for file in tmp_path.iterdir()] == ["mine.mat"]
    (tmp_path / "mine.mat").rename(tmp_path / "mine.data")
    assert_same(benchmark.read(tmp_path / "mine.data"), benchmark.arrays())


@pytest.mark.parametrize("given", ["", TRAIN, TEST], ids=["folder", "train", "test"])
def test_darcy_finds_both_files_by_any_of_them(folder: Path, given: str) -> None:
    write_darcy(folder / given, BENCHMARKS[1].arrays(seed=0), "train")
    for seed, part in enumerate(("train", "test")):
        read = read_darcy(folder / given, part)  # type: ignore[arg-type]
        assert_same(read, BENCHMARKS[1].arrays(seed))


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("given", ["", TRAIN, TEST], ids=["folder", "train", "test"])
def test_darcy_without_its_companion_is_refused(folder: Path, given: str, part: Any) -> None:
    with pytest.raises(
        FileNotFoundError, match=rf"{TRAIN}: expected {TRAIN} and {TEST}, got .* but {TEST} in its"
    ):
        read_darcy(folder / given, part)


def test_darcy_files_are_told_apart_by_name(folder: Path) -> None:
    (folder / TEST).rename(folder / "mine.mat")
    with pytest.raises(ValueError, match=rf"mine\.mat: expected a folder .* {TRAIN} or {TEST}"):
        read_darcy(folder / "mine.mat", "test")
    with pytest.raises(ValueError, match=r"absent: expected a folder that exists"):
        write_darcy(folder / "absent", BENCHMARKS[1].arrays(), "test")


@pytest.mark.usefixtures("as_a_user")
def test_unknown_part_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="part: expected one of train, test, got 'validation'"):
        read_darcy(folder, "validation")  # type: ignore[arg-type]


@of_each
def test_missing_file_names_those_beside_it(tmp_path: Path, benchmark: Benchmark) -> None:
    write_matlab(tmp_path / "other.mat", {"u": np.ones((2, 2))})
    with pytest.raises(
        FileNotFoundError, match=rf"{benchmark.file}: expected .* but other\.mat in"
    ):
        benchmark.read(tmp_path)
    with pytest.raises(FileNotFoundError, match=rf"{benchmark.file}: .* no \.mat file in its"):
        benchmark.read(tmp_path / "absent" / benchmark.file)


@of_each
@in_both
def test_other_variables_are_listed(folder: Path, benchmark: Benchmark, fmt: Format) -> None:
    write_matlab(folder / benchmark.file, {"x": np.ones((2, 3))}, format=fmt)
    expected = rf"{benchmark.variables[0]} \(samples, .* got x: double \(2, 3\): this is not a "
    with pytest.raises(ValueError, match=rf"{benchmark.file}: expected {expected}"):
        benchmark.read(folder)


@of_each
def test_files_of_other_benchmarks_are_refused(folder: Path, benchmark: Benchmark) -> None:
    for other in BENCHMARKS:
        if other.name != benchmark.name:
            other.write(folder, other.arrays())
            (folder / other.file).rename(folder / benchmark.file)
            with pytest.raises(ValueError, match=rf"{benchmark.file}: expected .*, got "):
                benchmark.read(folder)


@of_each
@in_both
def test_wrong_number_of_axes_is_refused(folder: Path, benchmark: Benchmark, fmt: Format) -> None:
    benchmark.write(folder, benchmark.arrays())
    stored = {
        name: array for name, array in loadmat(folder / benchmark.file).items() if name[0] != "_"
    }
    stored[benchmark.variables[-1]] = stored[benchmark.variables[-1]][..., None].repeat(2, -1)
    write_matlab(folder / benchmark.file, stored, format=fmt)
    with pytest.raises(ValueError, match=rf"{benchmark.file}: expected .* \(samples, .*, got .*:"):
        benchmark.read(folder)


@pytest.mark.parametrize(
    ("benchmark", "variable", "cut", "expected"),
    [
        pytest.param(BENCHMARKS[0], "u", np.s_[:-1], "samples 5, x 8", id="burgers_samples"),
        pytest.param(BENCHMARKS[0], "u", np.s_[:, ::2], "samples 5, x 8", id="burgers_points"),
        pytest.param(BENCHMARKS[1], "sol", np.s_[1:], "samples 5, x 9, y 9", id="darcy_samples"),
        pytest.param(
            BENCHMARKS[1], "sol", np.s_[:, ::2, ::2], "samples 5, x 9, y 9", id="darcy_points"
        ),
        pytest.param(BENCHMARKS[1], "coeff", np.s_[:, 1:], "samples, x, y", id="darcy_not_square"),
        pytest.param(
            BENCHMARKS[2], "coord_y", np.s_[:3], "samples 5, y 9, x 9", id="notch_coordinates"
        ),
        pytest.param(
            BENCHMARKS[3], "u", np.s_[:, :, 1:], "samples, x, y, frames", id="navier_not_square"
        ),
    ],
)
def test_arrays_that_do_not_agree_are_refused(
    folder: Path, benchmark: Benchmark, variable: str, cut: Any, expected: str
) -> None:
    benchmark.write(folder, benchmark.arrays())
    change_file(folder / benchmark.file, lambda old: {**old, variable: old[variable][cut]})
    with pytest.raises(
        ValueError, match=rf"{benchmark.file}: {variable}: expected shape \({expected}\), .* got \("
    ):
        benchmark.read(folder)


@of_each
@in_both
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(
    folder: Path, benchmark: Benchmark, fmt: Format, value: float
) -> None:
    benchmark.write(folder, benchmark.arrays())
    whole = read_matlab(folder / benchmark.file, benchmark.variables)
    for variable in benchmark.variables:
        broken = whole[variable].copy()
        # In all of y, so that the boundary of the notch stays constant along it.
        broken[4, ..., 2] = value
        write_matlab(folder / benchmark.file, {**whole, variable: broken}, format=fmt)
        with pytest.raises(
            ValueError, match=rf"{benchmark.file}: expected finite .* in {variable}"
        ):
            benchmark.read(folder)
        # What is not asked for is not looked at.
        assert benchmark.read(folder, rows=slice(0, 4))


@of_each
@in_both
@pytest.mark.parametrize("left", [0.0, 0.01, 0.1, 0.4, 0.8, 0.99])
def test_file_cut_short_is_refused(
    folder: Path, benchmark: Benchmark, fmt: Format, left: float
) -> None:
    benchmark.write(folder, benchmark.arrays(), format=fmt)
    file = folder / benchmark.file
    content = file.read_bytes()
    file.write_bytes(content[: int(left * len(content))])
    with pytest.raises(ValueError, match=rf"{benchmark.file}: expected "):
        benchmark.read(folder)


@of_each
@pytest.mark.parametrize(
    ("content", "found"),
    [
        pytest.param(b"<!doctype html><title>Too many requests</title>", "a web page", id="html"),
        pytest.param(b"version https://git-lfs.github.com/spec/v1\n", "a git-lfs", id="git_lfs"),
        pytest.param(b"", "an empty file", id="empty"),
    ],
)
def test_what_is_no_matlab_file_is_named(
    folder: Path, benchmark: Benchmark, content: bytes, found: str
) -> None:
    (folder / benchmark.file).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{benchmark.file}: .* got {found}"):
        benchmark.read(folder)


@of_each
@pytest.mark.parametrize("stride", [0, -2, 3])
def test_strides_that_break_the_grid_are_refused(
    folder: Path, benchmark: Benchmark, stride: int
) -> None:
    benchmark.write(folder, benchmark.arrays())
    with pytest.raises(ValueError, match=rf"stride: expected a divisor of 8, .* got {stride}"):
        benchmark.read(folder, stride=stride)


@of_each
def test_rows_beyond_the_file_are_refused(folder: Path, benchmark: Benchmark) -> None:
    benchmark.write(folder, benchmark.arrays())
    with pytest.raises(ValueError, match=r"expected rows among the 5 of .* got slice\(0, 6"):
        benchmark.read(folder, rows=slice(0, 6))


@in_both
def test_notch_boundary_must_not_change_along_y(tmp_path: Path, fmt: Format) -> None:
    file = tmp_path / "Darcy_Triangular_FNO.mat"
    write_darcy_notch(file, BENCHMARKS[2].arrays())
    stored = read_matlab(file, ["boundCoeff", "sol"])
    exchanged = {**stored, "boundCoeff": stored["boundCoeff"].swapaxes(1, 2)}
    write_matlab(file, exchanged, format=fmt)
    with pytest.raises(ValueError, match=r"boundCoeff \(samples, y, x\) to be constant along y"):
        read_darcy_notch(file)
    stored["boundCoeff"][3, 7, 2] += 1e-9
    write_matlab(file, stored, format=fmt)
    with pytest.raises(ValueError, match=r"constant along y, got changes up to 1e-09"):
        read_darcy_notch(file)


def test_notch_coordinates_are_not_needed(tmp_path: Path) -> None:
    file = tmp_path / "Darcy_Triangular_FNO.mat"
    write_darcy_notch(file, BENCHMARKS[2].arrays())
    write_matlab(file, read_matlab(file, ["boundCoeff", "sol"]))
    assert_same(read_darcy_notch(file), BENCHMARKS[2].arrays())


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda x: 2 * x, r"coord_x from 0 to 1 in equal steps, got 0\.0 to 2\.0"),
        (lambda x: x**2, r"coord_x from 0 to 1 in equal steps, got 0\.0 to 1\.0 or other steps"),
        (lambda x: 1 - x, "coord_x from 0 to 1 in equal steps"),
        (lambda x: x.swapaxes(1, 2), r"coord_x \(samples, y, x\) to be constant along y"),
    ],
    ids=["longer", "graded", "reversed", "exchanged"],
)
def test_notch_coordinates_of_another_grid_are_refused(
    tmp_path: Path, change: Callable[[np.ndarray], np.ndarray], found: str
) -> None:
    write_darcy_notch(tmp_path, BENCHMARKS[2].arrays())
    change_file(
        tmp_path / "Darcy_Triangular_FNO.mat",
        lambda old: {**old, "coord_x": change(old["coord_x"])},
    )
    with pytest.raises(ValueError, match=rf"Darcy_Triangular_FNO.mat: expected {found}"):
        read_darcy_notch(tmp_path)


def test_notch_coordinates_may_be_rounded(tmp_path: Path) -> None:
    write_darcy_notch(tmp_path, BENCHMARKS[2].arrays())
    change_file(
        tmp_path / "Darcy_Triangular_FNO.mat",
        lambda old: {**old, "coord_x": (old["coord_x"] + 1e-6).astype(np.float32)},
    )
    assert_same(read_darcy_notch(tmp_path), BENCHMARKS[2].arrays())


@of_each
def test_arrays_that_are_no_set_are_not_written(tmp_path: Path, benchmark: Benchmark) -> None:
    arrays = benchmark.arrays()
    name, array = next(reversed(arrays.items()))
    wrong: dict[str, tuple[dict[str, np.ndarray], str]] = {
        "missing": ({}, rf"expected the arrays .*{name}.* got none"),
        "unknown": ({**arrays, "more": array}, "expected the arrays .* got .*more"),
        "axes": ({**arrays, name: array[0]}, rf"{name}: expected shape \(samples.*, got \("),
        "finite": ({**arrays, name: array * np.inf}, rf"expected finite values, got .* in {name}"),
    }
    if array.ndim > 2:
        wrong["square"] = ({**arrays, name: array[..., 1:]}, rf"{name}: expected shape \(samples")
    if len(arrays) > 1:
        wrong["samples"] = ({**arrays, name: array[1:]}, rf"{name}: expected shape \(samples 5, ")
    for given, message in wrong.values():
        with pytest.raises(ValueError, match=message):
            benchmark.write(tmp_path, given)
    with pytest.raises(ValueError, match=r"absent: expected a folder that exists, or "):
        benchmark.write(tmp_path / "absent", arrays)
    assert not list(tmp_path.iterdir())


def test_optional_arrays_must_agree_too(tmp_path: Path) -> None:
    vorticity = BENCHMARKS[3].arrays()["vorticity"]
    for name, array in (("initial", vorticity[1:, 0]), ("time", np.arange(4.0))):
        with pytest.raises(ValueError, match=rf"{name}: expected shape \("):
            write_navier_stokes(tmp_path, {"vorticity": vorticity, name: array})


def test_layouts_name_the_public_files() -> None:
    layouts = (
        public_files.BURGERS,
        public_files.DARCY,
        public_files.DARCY_NOTCH,
        public_files.NAVIER_STOKES,
    )
    assert [name for layout in layouts for name in layout.files.values()] == [
        "burgers_data_R10.mat",
        "piececonst_r421_N1024_smooth1.mat",
        "piececonst_r421_N1024_smooth2.mat",
        "Darcy_Triangular_FNO.mat",
        "NavierStokes_V1e-5_N1200_T20.mat",
    ]


def test_samples_are_counted_by_file(folder: Path) -> None:
    few = {name: array[:3] for name, array in BENCHMARKS[1].arrays().items()}
    write_darcy(folder, few, "train", format="7.3")
    assert count_public(DARCY, folder) == {"train": 3, "test": 5}
    assert count_public(DARCY, folder / TEST) == {"train": 3, "test": 5}
    write_burgers(folder, BENCHMARKS[0].arrays())
    assert count_public(BURGERS, folder) == {"all": 5}
    with pytest.raises(ValueError, match=r"this is not a burgers_data_R10\.mat"):
        count_public(BURGERS, folder / TRAIN)
    with pytest.raises(FileNotFoundError, match=r"Darcy_Triangular_FNO\.mat"):
        count_public(DARCY_NOTCH, folder)
