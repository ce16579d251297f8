"""Numeric arrays in MATLAB files, formats 5 and 7.3.

Format 5 (`save -v6` and `-v7`) is read and written by scipy, format 7.3 is HDF5 behind a header of
512 bytes. Which of the two a file is, its first bytes say, not its name.

MATLAB stores the first axis fastest and HDF5 files show their axes reversed; here an array has the
axes that MATLAB shows, in C order, whatever the format. It also has MATLAB's type: format 5 packs
doubles that are whole numbers into bytes, and they come back as doubles.

Only full, real, numeric arrays are read or written. Cells, structures, objects, text, logicals,
sparse and complex arrays are refused.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from funcattn.data.foreign import check_file, check_size, open_hdf5, reading
from funcattn.data.sandbox import read_apart
from funcattn.files import whole_file
from funcattn.lazy import LazyModule

if TYPE_CHECKING:
    import h5py
else:
    h5py = LazyModule("h5py")

Format = Literal["5", "7.3"]
ALL_ROWS = slice(None)

NUMERIC: dict[str, np.dtype[Any]] = {
    "double": np.dtype(np.float64),
    "single": np.dtype(np.float32),
    **{
        f"{kind}{bits}": np.dtype(f"{kind}{bits}")
        for kind in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
}
# The last four bytes of the 128-byte header: the version, then MI in the file's byte order.
_VERSIONS: dict[bytes, Format] = {b"\0\1IM": "5", b"\1\0MI": "5", b"\0\2IM": "7.3"}
_USER_BLOCK = 512
_EXPECTED = "a whole MATLAB file"
_LARGEST = 2**31
# What is found in the place of a MATLAB file, by its first bytes, and what to do then.
_STRANGERS = {
    b"version https://git-lfs": ("a git-lfs pointer in its place", "fetch it by `git lfs pull`"),
    b"PK\3\4": ("a zip archive", "unpack it"),
    b"<": ("a web page saved under this name", "download the file itself"),
    b"\x89HDF": (
        "plain HDF5 without MATLAB's header, so that the order of its axes is not known",
        "save it by MATLAB or by write_matlab",
    ),
}


@dataclass(frozen=True)
class MatlabVariable:
    """What a file tells of a variable before it is read: shape and MATLAB class."""

    shape: tuple[int, ...]
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} {self.shape}"


def list_matlab(path: str | Path) -> dict[str, MatlabVariable]:
    """The variables of a MATLAB file, of any kind, without their values.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no MATLAB file of format 5 or 7.3, or a damaged one.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_matlab(Path(folder, "a.mat"), {"u": np.zeros((4, 3)), "t": np.arange(5)})
        ...     list_matlab(Path(folder, "a.mat"))["u"]
        MatlabVariable(shape=(4, 3), kind='double')
    """
    path = Path(path)
    variables: dict[str, MatlabVariable] = {}
    if _format(path) == "5":
        facts, _ = read_apart(path, "matlab_list", expected=_EXPECTED)
        for name, shape, kind in facts["variables"]:
            # Of two variables with one name the first counts, as it does for loadmat.
            variables.setdefault(name, MatlabVariable(tuple(shape), kind))
    else:
        with _named_damage(path), open_hdf5(path, _EXPECTED) as file:
            # MATLAB keeps the contents of cells and objects in groups like #refs#.
            names = [name for name in file if not name.startswith("#")]
            variables = {name: _hdf5_variable(file[name]) for name in names}
    return variables


def read_matlab(
    path: str | Path,
    names: Sequence[str],
    *,
    rows: slice = ALL_ROWS,
    stride: int | Sequence[int] = 1,
) -> dict[str, npt.NDArray[Any]]:
    """Read numeric arrays from a MATLAB file of format 5 or 7.3.

    Memory: of format 7.3 only the selection is read. Of format 5 scipy has to read a variable
    whole; variables are read one after the other, and only the selection is kept. Both need twice
    the selection for a moment, to put it into C order.

    Args:
        path: the file, whatever its suffix.
        names: variables to read; others may be there and are left alone.
        rows: which entries of the first axis, within the file (a negative start counts from the
            end), step at least 1.
        stride: take every stride-th entry of the axes after the first; one number for all of them,
            or one for each.

    Returns:
        The arrays by name, in C order, in MATLAB's type (double, single, int8 to uint64). MATLAB
        has no arrays below two axes, so a vector is (1, n) or (n, 1).

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: not a MATLAB file, damaged, a variable is not there or is not numeric, or the
            selection does not fit.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.mat")
        ...     write_matlab(path, {"u": np.arange(12.0).reshape(2, 6)}, format="7.3")
        ...     read_matlab(path, ["u"], rows=slice(1, None), stride=3)
        {'u': array([[6., 9.]])}
    """
    path = Path(path)
    variables = list_matlab(path)
    missing = [name for name in names if name not in variables]
    if missing:
        raise ValueError(
            f"{path}: expected the variables {', '.join(names)}, got {describe(variables)}: "
            f"{', '.join(missing)} missing; check that this is the file you mean, and all of it"
        )
    chosen = {name: _selection(path, name, variables[name], rows, stride) for name in names}
    read = _read_5 if _format(path) == "5" else _read_73
    arrays = {}
    for name, selection in chosen.items():
        with _named_damage(path):
            part = read(path, name, selection)
        dtype = NUMERIC[variables[name].kind]
        if not np.can_cast(part.dtype, dtype, "safe"):
            raise ValueError(
                f"{path}: expected real numbers of class {variables[name].kind} in {name}, got "
                f"{part.dtype}: convert the variable in MATLAB, by real and double for instance"
            )
        # Always a copy: a view would keep all of the variable in memory.
        arrays[name] = np.array(part, dtype=dtype, order="C")
    return arrays


def write_matlab(
    path: str | Path,
    arrays: Mapping[str, npt.NDArray[Any]],
    *,
    format: Format = "5",  # noqa: A002
) -> None:
    """Write numeric arrays as a MATLAB file, which appears whole or not at all.

    Args:
        path: the file; one that exists is replaced.
        arrays: by variable name; float64, float32 or integers of 8 to 64 bits, not empty. Arrays
            below two axes become (1, n), as MATLAB has none.
        format: "5" is read by every MATLAB since version 5 and by scipy, but holds at most 2 GiB a
            variable; "7.3" has no limit.

    Raises:
        ValueError: a name or an array that the file cannot hold.
    """
    path = Path(path)
    if format not in ("5", "7.3"):
        raise ValueError(f'format: expected "5" or "7.3", got {format!r}')
    if not arrays:
        raise ValueError(f"{path}: expected at least one array to write, got none")
    numbers: dict[str, npt.NDArray[Any]] = {}
    for name, array in arrays.items():
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,62}", name):
            raise ValueError(
                f"{path}: expected variable names of letters, digits and _, a letter first, at "
                f"most 63, got {name!r}: rename it"
            )
        numbers[name] = np.atleast_2d(array)
        if _native(numbers[name].dtype) not in NUMERIC.values():
            raise ValueError(
                f"{path}: expected real numeric arrays, got {name} of type {array.dtype}: convert "
                "it, to float64 for instance"
            )
        if not numbers[name].size:
            raise ValueError(
                f"{path}: expected arrays that are not empty, got {name} of shape {array.shape}: "
                "leave it out"
            )
        if format == "5" and numbers[name].nbytes >= _LARGEST:
            raise ValueError(
                f"{path}: expected less than 2 GiB a variable in format 5, got {name} with "
                f'{numbers[name].nbytes / 2**30:.1f} GiB: write it with format="7.3"'
            )
    with whole_file(path) as aside:
        if format == "5":
            from scipy.io import savemat

            savemat(aside, numbers, appendmat=False)
        else:
            _write_73(aside, numbers)


def describe(variables: Mapping[str, MatlabVariable]) -> str:
    """The variables of a file in words, for messages."""
    return ", ".join(f"{name}: {variable}" for name, variable in variables.items()) or "none"


def _format(path: Path) -> Format:
    """The format by the first bytes, or an error that says what the file is instead."""
    check_file(path)
    with path.open("rb") as stream:
        head = stream.read(_USER_BLOCK)
    if head[124:128] in _VERSIONS:
        return _VERSIONS[head[124:128]]
    found, remedy = "a file of another kind", "save it again by MATLAB with -v7 or -v7.3"
    if len(head) < 128:
        found, remedy = f"{len(head)} bytes" if head else "an empty file", "download it again"
    for start, stranger in _STRANGERS.items():
        # Web pages may begin with blanks or a byte order mark.
        if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(start):
            found, remedy = stranger
    raise ValueError(f"{path}: expected a MATLAB file of format 5 or 7.3, got {found}: {remedy}")


def _hdf5_variable(item: "h5py.Dataset | h5py.Group") -> MatlabVariable:
    label = item.attrs.get("MATLAB_class", b"without MATLAB_class")
    kind = label.decode() if isinstance(label, bytes) else str(label)
    if not isinstance(item, h5py.Dataset):
        # Structures, and sparse arrays, whose class is that of their values.
        return MatlabVariable((), f"group of {kind}")
    # Of an empty array the values are its shape.
    return MatlabVariable((0,) if "MATLAB_empty" in item.attrs else item.shape[::-1], kind)


def _named_damage(path: Path) -> AbstractContextManager[None]:
    """Whatever a damaged byte leads scipy or HDF5 to raise becomes one error that says so."""
    return reading(path, _EXPECTED)


def _selection(
    path: Path, name: str, variable: MatlabVariable, rows: slice, stride: int | Sequence[int]
) -> tuple[slice, ...]:
    """What to take of each axis of a variable that can be read."""
    if variable.kind not in NUMERIC or 0 in variable.shape or len(variable.shape) < 2:
        raise ValueError(
            f"{path}: expected a full numeric array in {name}, not empty, with two axes or more, "
            f"got {variable}: convert it in MATLAB, by double or full for instance"
        )
    count, *further = variable.shape
    steps = [stride] * len(further) if isinstance(stride, int) else list(stride)
    if len(steps) != len(further) or min(steps) < 1:
        raise ValueError(
            f"stride: expected a number from 1 on, or {len(further)} of them, one for each axis of "
            f"{name} {variable.shape} after the first, got {stride}"
        )
    ends = [end for end in (rows.start, rows.stop) if end is not None]
    step = 1 if rows.step is None else rows.step
    if step < 1 or any(abs(end) > count for end in ends) or not range(count)[rows]:
        raise ValueError(
            f"{path}: expected rows among the {count} of {name}, in steps from 1 on, got {rows}: "
            "ask for fewer, or take a file that has more"
        )
    return slice(*rows.indices(count)), *(slice(None, None, step) for step in steps)


def _read_5(path: Path, name: str, selection: tuple[slice, ...]) -> npt.NDArray[Any]:
    # In a process of its own: on damaged files scipy may end it.
    parts = [[each.start, each.stop, each.step] for each in selection]
    return read_apart(path, "matlab_read", name, parts, expected=_EXPECTED)[1]["part"]


def _read_73(path: Path, name: str, selection: tuple[slice, ...]) -> npt.NDArray[Any]:
    with open_hdf5(path, _EXPECTED) as file:
        dataset = file[name]
        length = path.stat().st_size
        for shape in (dataset.shape, dataset.chunks or ()):
            check_size(path, name, shape, dataset.dtype.itemsize, kept=length)
        if dataset.external or dataset.is_virtual:
            raise ValueError(f"{name} lies in another file")
        part: npt.NDArray[Any] = dataset[selection[::-1]]
    return part.T


def _write_73(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    # The earliest layout of HDF5 is read by the oldest MATLAB that knows format 7.3.
    with h5py.File(path, "w", userblock_size=_USER_BLOCK, libver="earliest") as file:
        for name, array in arrays.items():
            dtype = _native(array.dtype)
            kind = next(kind for kind, known in NUMERIC.items() if known == dtype)
            dataset = file.create_dataset(name, data=array.T, dtype=dtype)
            # MATLAB wants text of fixed length.
            dataset.attrs["MATLAB_class"] = np.bytes_(kind)
    title = b"MATLAB 7.3 MAT-file, Platform: funcattn, HDF5 schema 1.00 ."
    with path.open("r+b") as stream:
        # 116 characters of text, 8 bytes that are not used, the version.
        stream.write(title.ljust(116) + bytes(8) + b"\0\2IM")


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("=")
