"""Public benchmark files: what is written comes back, and what is not such a file is refused."""

import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from funcattn.data.matlab import Format, read_matlab, write_matlab
from funcattn.data.public_files import (
    AIRFOIL,
    BURGERS,
    DARCY,
    DARCY_NOTCH,
    ELASTICITY,
    NAVIER_STOKES,
    PIPE,
    PLASTICITY,
    Fields,
    PublicLayout,
    measure_public,
    read_public,
    write_public,
)

read_burgers, write_burgers = partial(read_public, BURGERS), partial(write_public, BURGERS)
read_darcy, write_darcy = partial(read_public, DARCY), partial(write_public, DARCY)
read_darcy_notch = partial(read_public, DARCY_NOTCH)
write_darcy_notch = partial(write_public, DARCY_NOTCH)
read_navier_stokes = partial(read_public, NAVIER_STOKES)
write_navier_stokes = partial(write_public, NAVIER_STOKES)
read_plasticity, write_plasticity = (
    partial(read_public, PLASTICITY),
    partial(write_public, PLASTICITY),
)

TRAIN, TEST = "piececonst_r421_N1024_smooth1.mat", "piececonst_r421_N1024_smooth2.mat"
SHAPES = {
    "burgers": {"initial": (5, 8), "final": (5, 8)},
    "darcy": {"permeability": (5, 9, 9), "pressure": (5, 9, 9)},
    "darcy_notch": {"boundary": (5, 9), "solution": (5, 9, 9)},
    "navier_stokes": {"vorticity": (5, 3, 8, 8)},
    "plasticity": {"die": (5, 17), "motion": (5, 17, 9, 3, 4)},
    "elasticity": {"points": (5, 7, 2), "stress": (5, 7)},
    "airfoil": {"x": (5, 13, 9), "y": (5, 13, 9), "flow": (5, 5, 13, 9)},
    "pipe": {"x": (5, 9, 5), "y": (5, 9, 5), "flow": (5, 3, 9, 5)},
}
OPTIONAL = {
    "elasticity": {"radius": (5, 42), "coefficients": (5, 10)},
    "airfoil": {"design": (5, 8)},
    "pipe": {},
}


@dataclass(frozen=True)
class Benchmark:
    name: str
    file: str
    variables: tuple[str, ...]
    read: Callable[..., Fields]
    write: Callable[..., Path]

    def arrays(self, seed: int = 0) -> dict[str, np.ndarray]:
        return numbers(SHAPES[self.name], seed)


def counted(layout: PublicLayout, path: Path) -> dict[str, int]:
    return {part: sizes["samples"] for part, sizes in measure_public(layout, path).items()}


def numbers(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    if "motion" in arrays:
        # Displaced from the grid of the block, in every frame.
        x, y = np.linspace(0, 50, 17)[:, None, None], np.linspace(15, 0, 9)[:, None]
        arrays["motion"][..., 0] = x + arrays["motion"][..., 2]
        arrays["motion"][..., 1] = y + arrays["motion"][..., 3]
    return arrays


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
    Benchmark(
        "plasticity", "plas_N987_T20.mat", ("input", "output"), read_plasticity, write_plasticity
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
        # Another origin rounds to the spacing of numbers up to 64, there and back.
        exact = name != "motion"
        np.testing.assert_allclose(read[name], array, rtol=0, atol=0 if exact else 1e-14)
        assert read[name].dtype == (array.dtype if exact else np.float64)
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
    # Space comes after the samples, and after the frames of Navier-Stokes.
    cuts = {2: np.s_[-3:, ::4], 3: np.s_[-3:, ::4, ::4], 4: np.s_[-3:, :, ::4, ::4]}
    cuts[5] = cuts[3]
    assert_same(read, {name: array[cuts[array.ndim]] for name, array in arrays.items()})


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
        ValueError, match=rf"{benchmark.file}: {variable}: expected shape \({expected}\).* got \("
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
    if array.ndim > 2 and name != "motion":
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
    layouts = (BURGERS, DARCY, DARCY_NOTCH, NAVIER_STOKES, PLASTICITY)
    assert [name for layout in layouts for name in layout.files.values()] == [
        "burgers_data_R10.mat",
        "piececonst_r421_N1024_smooth1.mat",
        "piececonst_r421_N1024_smooth2.mat",
        "Darcy_Triangular_FNO.mat",
        "NavierStokes_V1e-5_N1200_T20.mat",
        "plas_N987_T20.mat",
    ]


def test_samples_are_counted_by_file(folder: Path) -> None:
    few = {name: array[:3] for name, array in BENCHMARKS[1].arrays().items()}
    write_darcy(folder, few, "train", format="7.3")
    assert counted(DARCY, folder) == {"train": 3, "test": 5}
    assert counted(DARCY, folder / TEST) == {"train": 3, "test": 5}
    write_burgers(folder, BENCHMARKS[0].arrays())
    assert counted(BURGERS, folder) == {"all": 5}
    with pytest.raises(ValueError, match=r"this is not a burgers_data_R10\.mat"):
        measure_public(BURGERS, folder / TRAIN)
    with pytest.raises(FileNotFoundError, match=r"Darcy_Triangular_FNO\.mat"):
        measure_public(DARCY_NOTCH, folder)


def public_blocks(columns: int = 101, rows: int = 31) -> dict[str, np.ndarray]:
    """Two samples as plas_N987_T20.mat has them, by the formulas that describe it."""
    sample, i, j, frame = np.ogrid[:2, :columns, :rows, :3]
    step_x, step_y = 50 / (columns - 1), 15 / (rows - 1)
    u_x = 1e-3 * (1 + sample) * (i + 2) * frame + 0 * j
    u_y = -1e-4 * (1 + sample) * (j + 3) * frame + 0 * i
    output = np.stack([0.35 - step_x * i + u_x, 14.9 - step_y * j + u_y, u_x, u_y], axis=-1)
    # The die is listed with rising x, the block with falling x.
    x = 0.35 - 50 + step_x * np.arange(columns)
    return {"input": 15 + np.array([[1], [2]]) * (x + 49.65), "output": output}


@in_both
def test_plasticity_is_turned_and_moved_to_our_origin(tmp_path: Path, fmt: Format) -> None:
    stored = public_blocks()
    write_matlab(tmp_path / "plas_N987_T20.mat", stored, format=fmt)
    for stride in (1, 10):
        read = read_plasticity(tmp_path, stride=stride)
        column, row = np.arange(101)[::stride], np.arange(31)[::stride]
        assert read["motion"].shape == (2, len(column), len(row), 3, 4)
        for sample, frame in ((0, 0), (1, 2)):
            x, y, u_x, u_y = np.moveaxis(read["motion"][sample, :, :, frame], -1, 0)
            # What is right of the others, and last here, is first in the file.
            np.testing.assert_allclose(
                u_x[:, 0], 1e-3 * (1 + sample) * (102 - column) * frame, rtol=0, atol=1e-14
            )
            np.testing.assert_allclose(
                u_y[0], -1e-4 * (1 + sample) * (row + 3) * frame, rtol=0, atol=1e-14
            )
            np.testing.assert_allclose(x - u_x, 0.5 * column[:, None] + 0 * row, atol=1e-13)
            np.testing.assert_allclose(y - u_y, 15 - 0.5 * row + 0 * column[:, None], atol=1e-13)
        np.testing.assert_allclose(read["die"][0], 15 + 0.5 * column, rtol=0, atol=1e-13)


@in_both
def test_plasticity_file_has_the_public_layout(tmp_path: Path, fmt: Format) -> None:
    stored = public_blocks()
    write_matlab(tmp_path / "plas_N987_T20.mat", stored)
    write_plasticity(tmp_path / "ours.mat", read_plasticity(tmp_path), format=fmt)
    again = read_matlab(tmp_path / "ours.mat", ["input", "output"])
    np.testing.assert_array_equal(again["input"], stored["input"])
    np.testing.assert_allclose(again["output"], stored["output"], rtol=0, atol=1e-14)
    np.testing.assert_array_equal(again["output"][..., 2:], stored["output"][..., 2:])


def test_single_precision_survives_another_origin(tmp_path: Path) -> None:
    ours = {name: array.astype(np.float32) for name, array in numbers(SHAPES["plasticity"]).items()}
    write_plasticity(tmp_path, ours)
    for name, array in read_plasticity(tmp_path).items():
        np.testing.assert_array_equal(array.astype(np.float32), ours[name])
    change_file(
        tmp_path / "plas_N987_T20.mat",
        lambda old: {name: array.astype(np.float32) for name, array in old.items()},
    )
    read = read_plasticity(tmp_path)["motion"]
    assert read.dtype == np.float32
    # The spacing of single precision at 49.65.
    np.testing.assert_allclose(read, ours["motion"], rtol=0, atol=4e-6)


@pytest.mark.parametrize("stride", [1, 10])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda old: old[:, ::-1], id="rising_x"),
        pytest.param(lambda old: old[:, :, ::-1], id="from_the_bottom"),
        pytest.param(lambda old: np.add(old, [49.65, 0, 0, 0]), id="origin_of_x"),
        pytest.param(lambda old: np.add(old, [0, 0.1, 0, 0]), id="origin_of_y"),
        pytest.param(lambda old: 1e-3 * old, id="metres"),
        pytest.param(lambda old: old[..., [2, 3, 0, 1]], id="displacement_first"),
        pytest.param(lambda old: old[..., ::-1, :], id="frames_from_the_last"),
    ],
)
def test_plasticity_on_another_grid_is_refused(
    tmp_path: Path, change: Callable[[np.ndarray], np.ndarray], stride: int
) -> None:
    stored = public_blocks()
    # Displacements of the last frame that do not fit its positions.
    stored["output"][..., -1, 2:] *= 2000
    write_matlab(tmp_path / "plas_N987_T20.mat", stored)
    assert read_plasticity(tmp_path, stride=stride)
    stored["output"] = change(stored["output"])
    write_matlab(tmp_path / "plas_N987_T20.mat", stored)
    with pytest.raises(
        ValueError, match=r"expected x - u_x of frame 0 from 0 to 50 .* \(in the file: 0\.35 to"
    ):
        read_plasticity(tmp_path, stride=stride)


@pytest.mark.parametrize(("channel", "sign"), [(0, 1), (1, 1), (2, -1), (3, -1)])
def test_plasticity_may_be_off_its_grid_by_a_hundredth_of_a_spacing(
    tmp_path: Path, channel: int, sign: int
) -> None:
    # A spacing is 0.5; of a single point of a single sample, too.
    for off, refused in ((0.0049, False), (0.0051, True), (-0.0051, True)):
        stored = public_blocks()
        stored["output"][1, 40, 7, 0, channel] += sign * off
        write_matlab(tmp_path / "plas_N987_T20.mat", stored)
        if refused:
            with pytest.raises(ValueError, match=r"got values up to .*0\.0051"):
                read_plasticity(tmp_path)
        else:
            ours = read_plasticity(tmp_path)
    ours["motion"][1, 40, 7, 0, channel] += 0.1
    with pytest.raises(ValueError, match=r"ours\.mat: expected x - u_x of frame 0 .* got .*0\.1"):
        write_plasticity(tmp_path / "ours.mat", ours)
    assert not (tmp_path / "ours.mat").exists()


def test_plasticity_of_other_resolutions_is_read(tmp_path: Path) -> None:
    write_matlab(tmp_path / "plas_N987_T20.mat", public_blocks(columns=21, rows=11))
    read = read_plasticity(tmp_path, stride=10)["motion"]
    np.testing.assert_allclose(read[0, :, 0, 0, 0], [0, 25, 50], rtol=0, atol=1e-13)
    np.testing.assert_allclose(read[0, 0, :, 0, 1], [15, 0], rtol=0, atol=1e-13)
    with pytest.raises(ValueError, match=r"stride: expected a divisor of 10, .* 21 x 11 points"):
        read_plasticity(tmp_path, stride=4)


def test_plasticity_has_four_channels(tmp_path: Path) -> None:
    stored = public_blocks()
    stored["output"] = stored["output"][..., :2]
    write_matlab(tmp_path / "plas_N987_T20.mat", stored)
    with pytest.raises(
        ValueError, match=r"output: expected shape \(samples 2, x 101, y, frames, channels 4\), got"
    ):
        read_plasticity(tmp_path)


def test_another_origin_costs_one_copy_in_format_73(tmp_path: Path) -> None:
    arrays = {name: array.repeat(100, 0) for name, array in BENCHMARKS[4].arrays().items()}
    tracemalloc.start()
    try:
        write_plasticity(tmp_path, arrays, format="7.3")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert arrays["motion"].nbytes < peak < 1.2 * arrays["motion"].nbytes


# From here on: benchmarks with an .npy file for every array.

NPY: dict[str, tuple[PublicLayout, dict[str, str]]] = {
    "elasticity": (
        ELASTICITY,
        {
            "points": "Random_UnitCell_XY_10.npy",
            "stress": "Random_UnitCell_sigma_10.npy",
            "radius": "Random_UnitCell_rr_10.npy",
            "coefficients": "Random_UnitCell_theta_10.npy",
        },
    ),
    "airfoil": (
        AIRFOIL,
        {
            "x": "NACA_Cylinder_X.npy",
            "y": "NACA_Cylinder_Y.npy",
            "flow": "NACA_Cylinder_Q.npy",
            "design": "NACA_theta.npy",
        },
    ),
    "pipe": (PIPE, {"x": "Pipe_X.npy", "y": "Pipe_Y.npy", "flow": "Pipe_Q.npy"}),
}
of_npy = pytest.mark.parametrize("name", NPY)
in_the_last = pytest.mark.parametrize(
    ("name", "array"), [("elasticity", "stress"), ("airfoil", "flow"), ("pipe", "flow")]
)


def as_stored(name: str, array: np.ndarray) -> np.ndarray:
    """One of our arrays with the axes that its public file has."""
    moved = {"points": (1, 2, 0), "stress": (1, 0), "radius": (1, 0)}
    return array.transpose(moved.get(name, range(array.ndim)))


def save_public(name: str, folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Public files, written by numpy alone."""
    for each, array in arrays.items():
        np.save(folder / NPY[name][1][each], np.ascontiguousarray(as_stored(each, array)))


@of_npy
def test_npy_arrays_come_back_as_they_were(tmp_path: Path, name: str) -> None:
    layout, files = NPY[name]
    arrays = numbers(SHAPES[name])
    written = write_public(layout, tmp_path, arrays)
    assert sorted(written) == sorted(tmp_path.iterdir())
    assert {file.name for file in written} == {files[each] for each in arrays}
    for path in (tmp_path, str(tmp_path), *(tmp_path / file for file in files.values())):
        assert_same(read_public(layout, path), arrays)
        assert counted(layout, path) == {"all": 5}


@of_npy
def test_npy_files_have_the_public_layout(tmp_path: Path, name: str) -> None:
    layout, files = NPY[name]
    arrays = numbers({**SHAPES[name], **OPTIONAL[name]})
    write_public(layout, tmp_path / layout.files["all"], arrays, format="7.3")
    assert {file.name for file in tmp_path.iterdir()} == set(files.values())
    for each, file in files.items():
        stored = np.load(tmp_path / file, allow_pickle=False)
        np.testing.assert_array_equal(stored, as_stored(each, arrays[each]))
        assert stored.flags.c_contiguous
    # Arrays that are optional are written, not read.
    assert_same(read_public(layout, tmp_path), numbers(SHAPES[name]))


def test_every_number_of_the_npy_files_is_in_its_place(tmp_path: Path) -> None:
    point, coordinate, sample = np.ogrid[:6, :2, :4]
    xy = 1000.0 * sample + 10 * point + coordinate
    np.save(tmp_path / "Random_UnitCell_XY_10.npy", xy)
    np.save(tmp_path / "Random_UnitCell_sigma_10.npy", xy[:, 0] + 0.5)
    read = read_public(ELASTICITY, tmp_path, rows=slice(1, 3))
    assert read["points"].shape == (2, 6, 2)
    assert read["points"][1, 5, 1] == 2051
    assert read["stress"].shape == (2, 6)
    assert read["stress"][0, 4] == 1040.5
    sample, channel, i, j = np.ogrid[:4, :5, :9, :5]
    q = 10000.0 * sample + 1000 * channel + 10 * i + j
    for layout, count in ((AIRFOIL, 5), (PIPE, 3)):
        for each, values in (("x", q[:, 0] + 0.25), ("y", q[:, 0] + 0.5), ("flow", q[:, :count])):
            np.save(tmp_path / layout.arrays[each].variable, values)
        read = read_public(layout, tmp_path, rows=slice(-2, None), stride=2)
        assert {each: array.shape for each, array in read.items()} == {
            "x": (2, 5, 3),
            "y": (2, 5, 3),
            "flow": (2, count, 5, 3),
        }
        assert read["x"][1, 3, 1] == 30062.25
        assert read["y"][0, 4, 2] == 20084.5
        assert read["flow"][1, 2, 1, 2] == 32024


@of_npy
@pytest.mark.parametrize(
    "rows",
    [slice(-2, None), slice(1, 4), slice(0, 5, 2), slice(None, -3)],
    ids=["last", "middle", "every_second", "all_but_last"],
)
def test_npy_rows_and_stride(tmp_path: Path, name: str, rows: slice) -> None:
    layout, _ = NPY[name]
    arrays = numbers(SHAPES[name])
    save_public(name, tmp_path, arrays)
    stride = 1 if name == "elasticity" else 4
    steps = {each: layout.every(each, stride) for each in arrays}
    assert steps == (
        {"points": (1, 1), "stress": (1,)}
        if name == "elasticity"
        else {"x": (4, 4), "y": (4, 4), "flow": (1, 4, 4)}
    )
    assert_same(
        read_public(layout, tmp_path, rows=rows, stride=stride),
        {
            each: array[(rows, *(slice(None, None, step) for step in steps[each]))]
            for each, array in arrays.items()
        },
    )


@of_npy
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(np.asfortranarray, id="fortran"),
        pytest.param(lambda array: array.astype(">f8"), id="big_endian"),
        pytest.param(lambda array: array.astype(np.float32), id="single"),
        pytest.param(lambda array: (100 * array).astype(np.int16), id="integers"),
    ],
)
def test_npy_files_of_any_order_and_type_are_read(
    tmp_path: Path, name: str, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    layout, files = NPY[name]
    arrays = numbers(SHAPES[name])
    for each, array in arrays.items():
        np.save(tmp_path / files[each], change(as_stored(each, array)))
    read = read_public(layout, tmp_path, rows=slice(1, 4))
    for each, array in arrays.items():
        expected = change(array)
        np.testing.assert_array_equal(read[each], expected[1:4])
        assert read[each].dtype == (np.float32 if expected.dtype == np.float32 else np.float64)
        assert read[each].dtype.isnative
        assert read[each].flags.c_contiguous


@of_npy
def test_of_npy_files_only_the_selection_is_read(tmp_path: Path, name: str) -> None:
    layout, _ = NPY[name]
    arrays = {each: array.repeat(400, 0) for each, array in numbers(SHAPES[name]).items()}
    save_public(name, tmp_path, arrays)
    selected = sum(array[-20:].nbytes for array in arrays.values())
    tracemalloc.start()
    try:
        read = read_public(layout, tmp_path, rows=slice(-20, None))
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert_same(read, {each: array[-20:] for each, array in arrays.items()})
    # Beside it there are an array in the order of its file, and some kilobytes of headers.
    assert kept < selected + 2**15
    assert peak < 2 * selected + 2**16 < sum(array.nbytes for array in arrays.values()) / 2


def test_writing_npy_files_copies_one_array_at_a_time(tmp_path: Path) -> None:
    arrays = {each: array.repeat(2000, 0) for each, array in numbers(SHAPES["elasticity"]).items()}
    tracemalloc.start()
    try:
        write_public(ELASTICITY, tmp_path, arrays)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.1 * arrays["points"].nbytes


def test_without_a_grid_there_is_no_stride(tmp_path: Path) -> None:
    write_public(ELASTICITY, tmp_path, numbers(SHAPES["elasticity"]))
    for stride in (2, 0, -1):
        message = rf"stride: expected 1, because these points form no grid .* got {stride}"
        with pytest.raises(ValueError, match=message):
            read_public(ELASTICITY, tmp_path, stride=stride)
        with pytest.raises(ValueError, match=message):
            ELASTICITY.every("stress", stride)


@pytest.mark.parametrize("stride", [0, -1, 3, 8, 12])
def test_npy_strides_divide_both_axes(tmp_path: Path, stride: int) -> None:
    save_public("airfoil", tmp_path, numbers(SHAPES["airfoil"]))
    message = rf"stride: expected a divisor of 4, .* 13 x 9 points in .* got {stride}"
    with pytest.raises(ValueError, match=message):
        read_public(AIRFOIL, tmp_path, stride=stride)


@of_npy
@pytest.mark.parametrize(
    "rows",
    [slice(0, 6), slice(-6, None), slice(5, None), slice(3, 3), slice(None, None, -1)],
    ids=["beyond", "before", "after", "none", "backwards"],
)
def test_npy_rows_beyond_the_file_are_refused(tmp_path: Path, name: str, rows: slice) -> None:
    save_public(name, tmp_path, numbers(SHAPES[name]))
    with pytest.raises(ValueError, match=r"\.npy: expected rows among the 5 of .* got slice\("):
        read_public(NPY[name][0], tmp_path, rows=rows)


@of_npy
def test_missing_npy_file_names_those_beside_it(tmp_path: Path, name: str) -> None:
    layout, files = NPY[name]
    needed = [files[each] for each in SHAPES[name]]
    for each in SHAPES[name]:
        save_public(name, tmp_path, numbers(SHAPES[name]))
        (tmp_path / files[each]).unlink()
        beside = ", ".join(sorted(file for file in needed if file != files[each]))
        for act in (read_public, measure_public):
            with pytest.raises(
                FileNotFoundError,
                match=rf"{files[each]}: expected {' and '.join(needed)}, got .* but {beside} in",
            ):
                act(layout, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no \.npy file in its folder: put it there"):
        read_public(layout, tmp_path / "absent" / needed[0])


@of_npy
def test_npy_files_are_told_apart_by_name(tmp_path: Path, name: str) -> None:
    layout, files = NPY[name]
    save_public(name, tmp_path, numbers(SHAPES[name]))
    np.save(tmp_path / "mine.npy", np.ones((5, 7)))
    names = " or ".join(files.values())
    with pytest.raises(
        ValueError, match=rf"mine\.npy: expected a folder that exists, or {names} in"
    ):
        read_public(layout, tmp_path / "mine.npy")


@pytest.mark.parametrize(
    ("name", "array", "change", "expected"),
    [
        pytest.param(
            "elasticity", "points", np.s_[:, :, :1], "points, coordinates 2, samples", id="line"
        ),
        pytest.param(
            "elasticity", "stress", np.s_[:-1], "points 7, samples 5", id="elasticity_samples"
        ),
        pytest.param(
            "elasticity", "stress", np.s_[:, 1:], "points 7, samples 5", id="elasticity_points"
        ),
        pytest.param("airfoil", "y", np.s_[:, ::2], "samples 5, x 13, y 9", id="airfoil_points"),
        pytest.param(
            "airfoil", "flow", np.s_[:, :4], "samples 5, channels 5, x 13, y 9", id="airfoil_mach"
        ),
        pytest.param(
            "pipe", "flow", np.s_[:4], "samples 5, channels 3, x 9, y 5", id="pipe_samples"
        ),
        pytest.param(
            "pipe", "flow", np.s_[..., :4], "samples 5, channels 3, x 9, y 5", id="pipe_points"
        ),
    ],
)
def test_npy_arrays_that_do_not_agree_are_refused(
    tmp_path: Path, name: str, array: str, change: Any, expected: str
) -> None:
    layout, files = NPY[name]
    arrays = numbers(SHAPES[name])
    arrays[array] = arrays[array][change]
    save_public(name, tmp_path, arrays)
    for act in (read_public, measure_public):
        with pytest.raises(
            ValueError, match=rf"{files[array]}: .*expected shape \({expected}\), got \("
        ):
            act(layout, tmp_path)
    with pytest.raises(ValueError, match=rf"{files[array]}: {array}: expected shape \("):
        write_public(layout, tmp_path, arrays)


@in_the_last
def test_npy_files_with_other_axes_are_refused(tmp_path: Path, name: str, array: str) -> None:
    layout, files = NPY[name]
    save_public(name, tmp_path, numbers(SHAPES[name]))
    np.save(tmp_path / files[array], np.ones((2, 3, 4), np.float32))
    with pytest.raises(
        ValueError,
        match=rf"{files[array]}: expected {files[array]} \(.*samples.*\), got float32 \(2, 3, 4\): "
        rf"this is not a {files[array]}; take another file",
    ):
        read_public(layout, tmp_path)


@in_the_last
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_npy_values_that_are_not_finite_are_refused(
    tmp_path: Path, name: str, array: str, value: float
) -> None:
    layout, files = NPY[name]
    arrays = numbers(SHAPES[name])
    arrays[array][4, ..., 2] = value
    save_public(name, tmp_path, arrays)
    with pytest.raises(ValueError, match=rf"{files[array]}: expected finite .* in {files[array]}"):
        read_public(layout, tmp_path)
    # What is not asked for is not looked at.
    assert read_public(layout, tmp_path, rows=slice(0, 4))
    with pytest.raises(ValueError, match=rf"expected finite values, got .* in {array}"):
        write_public(layout, tmp_path, arrays)


@in_the_last
def test_damaged_npy_files_are_refused(tmp_path: Path, name: str, array: str) -> None:
    layout, files = NPY[name]
    save_public(name, tmp_path, numbers(SHAPES[name]))
    file = tmp_path / files[array]
    content = file.read_bytes()
    np.save(file, np.array([{}, None]), allow_pickle=True)
    pickled = file.read_bytes()
    for wrong in (content[:-1], content[:200], content[:20], b"", pickled, b"<!doctype html>"):
        file.write_bytes(wrong)
        for act in (read_public, measure_public):
            with pytest.raises(ValueError, match=rf"{files[array]}: expected a .*\.npy file"):
                act(layout, tmp_path)


@of_npy
def test_arrays_that_are_no_set_are_not_written_as_npy(tmp_path: Path, name: str) -> None:
    layout, _ = NPY[name]
    arrays = numbers(SHAPES[name])
    last, array = next(reversed(arrays.items()))
    missing = {each: values for each, values in arrays.items() if each != last}
    wrong: tuple[tuple[dict[str, np.ndarray], str], ...] = (
        (missing, rf"expected the arrays .*{last}.* got .*"),
        ({**arrays, "more": array}, "expected the arrays .* got .*more"),
        ({**arrays, last: array[0]}, rf"{last}: expected shape \(samples 5, .*, got \("),
        ({**arrays, last: array[:0]}, rf"{last}: expected shape \(samples 5, .*, got \(0, "),
        ({each: values[:0] for each, values in arrays.items()}, "expected an array .* not empty"),
    )
    for given, message in wrong:
        with pytest.raises(ValueError, match=message):
            write_public(layout, tmp_path, given)
    with pytest.raises(ValueError, match=r"absent: expected a folder that exists, or "):
        write_public(layout, tmp_path / "absent", arrays)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "array", "expected"),
    [
        ("elasticity", "radius", "samples 5, angles 42"),
        ("elasticity", "coefficients", "samples 5, coefficients 10"),
        ("airfoil", "design", "samples 5, design 8"),
    ],
)
def test_optional_npy_arrays_must_agree_too(
    tmp_path: Path, name: str, array: str, expected: str
) -> None:
    arrays = numbers({**SHAPES[name], **OPTIONAL[name]})
    for cut in (np.s_[1:], np.s_[:, 1:]):
        with pytest.raises(ValueError, match=rf"{array}: expected shape \({expected}\), got"):
            write_public(NPY[name][0], tmp_path, {**arrays, array: arrays[array][cut]})


@pytest.mark.parametrize("name", ["elasticity", "airfoil"])
def test_optional_npy_files_of_other_samples_do_not_stay(tmp_path: Path, name: str) -> None:
    layout, files = NPY[name]
    write_public(layout, tmp_path, numbers({**SHAPES[name], **OPTIONAL[name]}))
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    left = " or ".join(files[each] for each in OPTIONAL[name])
    with pytest.raises(ValueError, match=rf"expected no {left}, .* delete the file"):
        write_public(layout, tmp_path, numbers(SHAPES[name], seed=1))
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
