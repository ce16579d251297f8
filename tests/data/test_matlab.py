"""MATLAB files of our own: both formats give the same arrays, and appear whole or not at all."""

import os
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from scipy.io import loadmat

from funcattn.data import matlab
from funcattn.data.matlab import Format, read_matlab, write_matlab

TYPES = ["f8", "f4", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
in_both = pytest.mark.parametrize("fmt", ["5", "7.3"])


def numbers(*shape: int, dtype: str = "f8") -> np.ndarray:
    """Values that tell every place from every other, as far as the type can."""
    array = np.arange(-3, np.prod(shape) - 3).reshape(shape).astype(dtype)
    return array + 0.5 if array.dtype.kind == "f" else array


@in_both
@pytest.mark.parametrize("dtype", TYPES)
def test_arrays_come_back_as_they_were(tmp_path: Path, fmt: Format, dtype: str) -> None:
    kept = {"u": numbers(2, 3, 4, 5, dtype=dtype), "second_1": numbers(3, 7, dtype=dtype)}
    write_matlab(tmp_path / "a.mat", kept, format=fmt)
    read = read_matlab(tmp_path / "a.mat", ["second_1", "u"])
    assert list(read) == ["second_1", "u"]
    for name, array in kept.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == dtype
        assert read[name].dtype.isnative
        assert read[name].flags.c_contiguous


@in_both
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(np.asfortranarray, id="fortran"),
        pytest.param(lambda a: a[::-1, ::2, 1:], id="view"),
        pytest.param(lambda a: a.astype(">f8"), id="big_endian"),
        pytest.param(lambda a: np.broadcast_to(a[:1], (6, 4, 5)), id="broadcast"),
    ],
)
def test_order_in_memory_does_not_matter(tmp_path: Path, fmt: Format, change: Any) -> None:
    array = change(numbers(3, 4, 5))
    write_matlab(tmp_path / "a.mat", {"u": array}, format=fmt)
    np.testing.assert_array_equal(read_matlab(tmp_path / "a.mat", ["u"])["u"], array)


@in_both
def test_vectors_and_scalars_are_rows_as_in_matlab(tmp_path: Path, fmt: Format) -> None:
    write_matlab(tmp_path / "a.mat", {"t": numbers(5), "s": np.array(2.5)}, format=fmt)
    read = read_matlab(tmp_path / "a.mat", ["t", "s"])
    np.testing.assert_array_equal(read["t"], numbers(1, 5))
    np.testing.assert_array_equal(read["s"], [[2.5]])


@in_both
@pytest.mark.parametrize(
    ("rows", "stride"),
    [
        pytest.param(slice(2, 5), 1, id="rows"),
        pytest.param(slice(-3, None), 1, id="last"),
        pytest.param(slice(None, -2), 2, id="all_but_last"),
        pytest.param(slice(1, 8, 3), 2, id="every_third"),
        pytest.param(slice(0, 8), 3, id="stride"),
        pytest.param(slice(None), (1, 4, 2), id="stride_of_each_axis"),
        pytest.param(slice(7, 8), [5, 1, 1], id="last_row"),
    ],
)
def test_selection_is_that_of_numpy(tmp_path: Path, fmt: Format, rows: slice, stride: Any) -> None:
    array = numbers(8, 5, 7, 4)
    write_matlab(tmp_path / "a.mat", {"u": array}, format=fmt)
    i, j, k = (stride,) * 3 if isinstance(stride, int) else stride
    read = read_matlab(tmp_path / "a.mat", ["u"], rows=rows, stride=stride)["u"]
    np.testing.assert_array_equal(read, array[rows, ::i, ::j, ::k])
    assert read.flags.c_contiguous


@in_both
def test_only_the_selection_stays_in_memory(tmp_path: Path, fmt: Format) -> None:
    array = np.ones((512, 64, 64))
    write_matlab(tmp_path / "a.mat", {"u": array}, format=fmt)
    tracemalloc.start()
    try:
        part = read_matlab(tmp_path / "a.mat", ["u"], rows=slice(10, 20), stride=8)["u"]
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert part.shape == (10, 8, 8)
    assert kept < array.nbytes / 50
    # Format 5 is read whole, but by another process.
    assert peak < array.nbytes / 50


@in_both
def test_a_part_of_a_column_does_not_keep_the_column(tmp_path: Path, fmt: Format) -> None:
    # It is contiguous in either order, so that a view of it would pass for a copy.
    write_matlab(tmp_path / "a.mat", {"u": numbers(1000, 1)}, format=fmt)
    part = read_matlab(tmp_path / "a.mat", ["u"], rows=slice(2, 4))["u"]
    np.testing.assert_array_equal(part, numbers(1000, 1)[2:4])
    assert part.base is None


@in_both
def test_the_first_bytes_decide_not_the_name(tmp_path: Path, fmt: Format) -> None:
    for name in ("a", "a.txt"):
        write_matlab(tmp_path / name, {"u": numbers(2, 3)}, format=fmt)
    write_matlab(tmp_path / "a.mat", {"other": numbers(2, 2)})
    for name in ("a", "a.txt"):
        np.testing.assert_array_equal(read_matlab(tmp_path / name, ["u"])["u"], numbers(2, 3))


def test_format_5_is_read_by_scipy(tmp_path: Path) -> None:
    write_matlab(tmp_path / "a.mat", {"u": numbers(2, 3, 4), "t": numbers(5)}, format="5")
    read = loadmat(tmp_path / "a.mat")
    np.testing.assert_array_equal(read["u"], numbers(2, 3, 4))
    assert read["t"].shape == (1, 5)
    assert read["__version__"] == "1.0"


def test_format_73_is_what_matlab_wants(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    arrays = {"u": numbers(2, 3, 4), "n": numbers(2, 2, dtype="int16"), "s": np.ones((1, 1), "f4")}
    write_matlab(path, arrays, format="7.3")
    content = path.read_bytes()
    assert content.startswith(b"MATLAB 7.3 MAT-file, ")
    assert b"\0" not in content[:116]
    assert content[116:128] == bytes(8) + b"\x00\x02IM"
    assert content[128:512] == bytes(384)
    # The superblock of version 0 is known to every version of HDF5.
    assert content[512:521] == b"\x89HDF\r\n\x1a\n\0"
    with h5py.File(path) as file:
        assert file.userblock_size == 512
        assert file["u"].shape == (4, 3, 2)
        np.testing.assert_array_equal(file["u"][()].T, arrays["u"])
        for name, kind in (("u", b"double"), ("n", b"int16"), ("s", b"single")):
            assert file[name].attrs["MATLAB_class"] == kind
            label = file[name].attrs.get_id("MATLAB_class")
            assert not label.get_type().is_variable_str()
            assert label.shape == ()


def test_format_73_of_the_same_arrays_is_the_same_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_matlab(tmp_path / name, {"u": numbers(2, 3, 4)}, format="7.3")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@in_both
def test_missing_variables_are_named_with_those_found(tmp_path: Path, fmt: Format) -> None:
    write_matlab(tmp_path / "a.mat", {"u": numbers(2, 3), "v": numbers(1, 1)}, format=fmt)
    with pytest.raises(
        ValueError,
        match=r"a\.mat: expected the variables a, u, u/x, got u: double \(2, 3\), v: double "
        r"\(1, 1\): a, u/x missing",
    ):
        read_matlab(tmp_path / "a.mat", ["a", "u", "u/x"])


@in_both
@pytest.mark.parametrize(
    "rows",
    [slice(0, 9), slice(-9, None), slice(8, None), slice(5, 5), slice(None, None, -1)],
    ids=["beyond", "before", "after", "none", "backwards"],
)
def test_rows_that_are_not_there_are_refused(tmp_path: Path, fmt: Format, rows: slice) -> None:
    write_matlab(tmp_path / "a.mat", {"u": numbers(8, 5)}, format=fmt)
    with pytest.raises(ValueError, match=r"expected rows among the 8 of u, .* got slice\("):
        read_matlab(tmp_path / "a.mat", ["u"], rows=rows)


@in_both
@pytest.mark.parametrize("stride", [0, -1, (1,), (1, 2, 3), (2, 0)], ids=str)
def test_strides_that_do_not_fit_are_refused(tmp_path: Path, fmt: Format, stride: Any) -> None:
    write_matlab(tmp_path / "a.mat", {"u": numbers(3, 4, 5)}, format=fmt)
    with pytest.raises(ValueError, match=r"stride: expected a number .* or 2 of them, .* got"):
        read_matlab(tmp_path / "a.mat", ["u"], stride=stride)


@in_both
@pytest.mark.parametrize(
    "array",
    [
        np.ones((2, 2), bool),
        np.ones((2, 2), complex),
        np.ones((2, 2), np.float16),
        np.ones((2, 2), np.longdouble),
        np.array([["a"]]),
        np.array([[None]]),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_that_are_not_numeric_are_not_written(
    tmp_path: Path, fmt: Format, array: np.ndarray
) -> None:
    with pytest.raises(ValueError, match=r"expected real numeric arrays, got u of type"):
        write_matlab(tmp_path / "a.mat", {"u": array}, format=fmt)
    assert not list(tmp_path.iterdir())


@in_both
def test_empty_arrays_are_not_written(tmp_path: Path, fmt: Format) -> None:
    with pytest.raises(ValueError, match=r"not empty, got u of shape \(0, 3\): leave it out"):
        write_matlab(tmp_path / "a.mat", {"t": numbers(2, 2), "u": np.ones((0, 3))}, format=fmt)
    assert not list(tmp_path.iterdir())


@in_both
@pytest.mark.parametrize("name", ["", "1a", "_a", "a b", "a/b", "#refs#", "ä", "a" * 64, "a\n"])
def test_names_that_matlab_cannot_have_are_refused(tmp_path: Path, fmt: Format, name: str) -> None:
    with pytest.raises(ValueError, match=r"expected variable names of letters, .* got "):
        write_matlab(tmp_path / "a.mat", {name: numbers(2, 2)}, format=fmt)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("as_a_user")
def test_nothing_to_write_and_unknown_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.mat: expected at least one array to write, got none"):
        write_matlab(tmp_path / "a.mat", {})
    with pytest.raises(ValueError, match=r'format: expected "5" or "7.3", got \'4\''):
        write_matlab(tmp_path / "a.mat", {"u": numbers(2, 2)}, format="4")  # type: ignore[arg-type]


def test_format_5_beyond_its_limit_names_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A view of one number that takes 2 GiB when it is written.
    large = np.broadcast_to(0.0, (2**14, 2**14))
    with pytest.raises(ValueError, match=r'less than 2 GiB .* got u with 2\.0 GiB: .*"7\.3"'):
        write_matlab(tmp_path / "a.mat", {"u": large})
    monkeypatch.setattr(matlab, "_LARGEST", 32)
    write_matlab(tmp_path / "a.mat", {"u": numbers(1, 3)})
    write_matlab(tmp_path / "b.mat", {"u": numbers(2, 2)}, format="7.3")
    with pytest.raises(ValueError, match="less than 2 GiB"):
        write_matlab(tmp_path / "a.mat", {"u": numbers(2, 2)})


@in_both
def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, fmt: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, *_: Any, **__: Any) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    path = tmp_path / "a.mat"
    write_matlab(path, {"u": numbers(2, 3)}, format=fmt)
    monkeypatch.setattr("scipy.io.savemat", fail)
    monkeypatch.setattr(matlab, "_write_73", fail)
    with pytest.raises(OSError, match="disk full"):
        write_matlab(path, {"u": numbers(4, 3)}, format=fmt)
    assert list(tmp_path.iterdir()) == [path]
    np.testing.assert_array_equal(read_matlab(path, ["u"])["u"], numbers(2, 3))


@in_both
def test_a_write_replaces_the_file_at_once(
    tmp_path: Path, fmt: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.mat"
    write_matlab(path, {"u": numbers(2, 3)}, format=fmt)
    replace = os.replace

    def watched(aside: Path, target: Path) -> None:
        # What is renamed is whole, and the old file is there until then.
        np.testing.assert_array_equal(read_matlab(aside, ["u"])["u"], numbers(4, 3))
        np.testing.assert_array_equal(read_matlab(target, ["u"])["u"], numbers(2, 3))
        replace(aside, target)

    monkeypatch.setattr(os, "replace", watched)
    write_matlab(path, {"u": numbers(4, 3)}, format=fmt)
    assert list(tmp_path.iterdir()) == [path]
    np.testing.assert_array_equal(read_matlab(path, ["u"])["u"], numbers(4, 3))
