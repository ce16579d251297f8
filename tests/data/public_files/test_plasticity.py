"""The file of plasticity has its blocks the other way round, and about another origin."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

of_one = pytest.mark.parametrize("benchmark", ["plasticity"], indirect=True)
in_both = pytest.mark.parametrize("benchmark", ["plasticity", "plasticity in 7.3"], indirect=True)


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
@pytest.mark.parametrize("stride", [1, 10])
def test_blocks_are_turned_and_moved_to_our_origin(
    tmp_path: Path, benchmark: Any, stride: int
) -> None:
    benchmark.save(tmp_path, public_blocks())
    read = benchmark.read(tmp_path, stride=stride)
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
def test_what_was_read_is_written_as_it_was(tmp_path: Path, benchmark: Any) -> None:
    stored = public_blocks()
    benchmark.save(tmp_path, stored)
    benchmark.write(tmp_path, benchmark.read(tmp_path))
    again = benchmark.load(tmp_path)
    np.testing.assert_array_equal(again["input"], stored["input"])
    np.testing.assert_allclose(again["output"], stored["output"], rtol=0, atol=1e-14)
    np.testing.assert_array_equal(again["output"][..., 2:], stored["output"][..., 2:])


@of_one
def test_single_precision_survives_another_origin(tmp_path: Path, benchmark: Any) -> None:
    ours = {name: array.astype(np.float32) for name, array in benchmark.arrays().items()}
    benchmark.write(tmp_path, ours)
    for name, array in benchmark.read(tmp_path).items():
        np.testing.assert_array_equal(array.astype(np.float32), ours[name])
    stored = {name: array.astype(np.float32) for name, array in benchmark.load(tmp_path).items()}
    benchmark.save(tmp_path, stored)
    read = benchmark.read(tmp_path)["motion"]
    assert read.dtype == np.float32
    # The spacing of single precision at 49.65.
    np.testing.assert_allclose(read, ours["motion"], rtol=0, atol=4e-6)


@of_one
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
def test_another_grid_is_refused(
    tmp_path: Path, benchmark: Any, change: Callable[[np.ndarray], np.ndarray], stride: int
) -> None:
    stored = public_blocks()
    # Displacements of the last frame that do not fit its positions.
    stored["output"][..., -1, 2:] *= 2000
    benchmark.save(tmp_path, stored)
    assert benchmark.read(tmp_path, stride=stride)
    benchmark.save(tmp_path, {**stored, "output": change(stored["output"])})
    with pytest.raises(
        ValueError, match=r"expected x - u_x of frame 0 from 0 to 50 .* \(in the file: 0\.35 to"
    ):
        benchmark.read(tmp_path, stride=stride)


@of_one
@pytest.mark.parametrize(("channel", "sign"), [(0, 1), (1, 1), (2, -1), (3, -1)])
def test_points_may_be_off_their_grid_by_a_hundredth_of_a_spacing(
    tmp_path: Path, benchmark: Any, channel: int, sign: int
) -> None:
    # A spacing is 0.5; of a single point of a single sample, too.
    for off, refused in ((0.0049, False), (0.0051, True), (-0.0051, True)):
        stored = public_blocks()
        stored["output"][1, 40, 7, 0, channel] += sign * off
        benchmark.save(tmp_path, stored)
        if refused:
            with pytest.raises(ValueError, match=r"got values up to .*0\.0051"):
                benchmark.read(tmp_path)
        else:
            ours = benchmark.read(tmp_path)
    ours["motion"][1, 40, 7, 0, channel] += 0.1
    with pytest.raises(ValueError, match=r"ours\.mat: expected x - u_x of frame 0 .* got .*0\.1"):
        benchmark.write(tmp_path / "ours.mat", ours)
    assert not (tmp_path / "ours.mat").exists()


@of_one
def test_other_resolutions_are_read(tmp_path: Path, benchmark: Any) -> None:
    benchmark.save(tmp_path, public_blocks(columns=21, rows=11))
    read = benchmark.read(tmp_path, stride=10)["motion"]
    np.testing.assert_allclose(read[0, :, 0, 0, 0], [0, 25, 50], rtol=0, atol=1e-13)
    np.testing.assert_allclose(read[0, 0, :, 0, 1], [15, 0], rtol=0, atol=1e-13)
    with pytest.raises(ValueError, match=r"stride: expected a divisor of 10, .* 21 x 11 points"):
        benchmark.read(tmp_path, stride=4)


@of_one
def test_there_are_four_channels(tmp_path: Path, benchmark: Any) -> None:
    stored = public_blocks()
    benchmark.save(tmp_path, {**stored, "output": stored["output"][..., :2]})
    benchmark.assert_refused(
        tmp_path,
        r"output: expected shape \(samples 2, x 101, y, frames, channels 4\), got",
    )


@pytest.mark.parametrize("benchmark", ["plasticity in 7.3"], indirect=True)
def test_another_origin_costs_one_copy_in_format_73(tmp_path: Path, benchmark: Any) -> None:
    arrays = {name: array.repeat(100, 0) for name, array in benchmark.arrays().items()}
    tracemalloc.start()
    try:
        benchmark.write(tmp_path, arrays)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert arrays["motion"].nbytes < peak < 1.2 * arrays["motion"].nbytes
