"""Numeric arrays, one per .npy file: opened without being read, written whole or not at all.

Only real numbers are read or written. Python objects, which numpy would unpickle, are refused, and
so are text, logicals, complex numbers, records and empty arrays.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from funcattn.data.foreign import check_file, reading
from funcattn.files import whole_file


def open_npy(path: str | Path) -> npt.NDArray[Any]:
    """Open a .npy file as an array that cannot be written to, whose values stay on disk until used.

    The array has the order in memory and the byte order of the file; numpy works with any, and
    `np.array(part, dtype.newbyteorder("="), order="C")` makes a part of it an ordinary array.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no .npy file, is damaged, or holds something else than real numbers.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.npy")
        ...     write_npy({path: np.arange(12.0).reshape(2, 6)})
        ...     np.array(open_npy(path)[1:, ::3])
        array([[6., 9.]])
    """
    path = Path(path)
    check_file(path)
    with path.open("rb") as stream:
        head = stream.read(40)
    if not head.startswith(np.lib.format.MAGIC_PREFIX):
        # A web page, a git-lfs pointer, an archive or a pickle: its beginning tells.
        found = f"one that begins with {head!r}" if head else "an empty one"
        raise ValueError(
            f"{path}: expected a .npy file, got {found}: download the file itself, or save the "
            "array by numpy.save"
        )
    with reading(
        path,
        "a whole .npy file of plain numbers",
        "download or copy it again, or save its numbers as an array of floats",
    ):
        array = np.lib.format.open_memmap(path, mode="r")
    size, whole = path.stat().st_size, array.offset + array.nbytes
    if size != whole:
        raise ValueError(
            f"{path}: expected {whole} bytes, as its header says, got {size}: the file is damaged; "
            "download or copy it again"
        )
    _check_numbers(path, array)
    return array


def write_npy(arrays: Mapping[Path, npt.NDArray[Any]]) -> None:
    """Write arrays as .npy files, in C order, each whole or not at all.

    Files that exist are replaced, and only when all the new ones are on disk beside them. One
    array at a time is copied, and only where it is not in C order already.

    Args:
        arrays: by file; of real numbers in any order of axes and bytes, not empty.

    Raises:
        ValueError: an array is not of that kind; nothing is written then.
    """
    for path, array in arrays.items():
        _check_numbers(path, array)
    with ExitStack() as stack:
        # All are renamed at the end, when all have been written.
        asides = {path: stack.enter_context(whole_file(path)) for path in arrays}
        for path, aside in asides.items():
            native = arrays[path].dtype.newbyteorder("=")
            with aside.open("wb") as stream:
                # Without a name, so that the copy goes before the next one is made.
                np.save(stream, np.asarray(arrays[path], native, order="C"), allow_pickle=False)


def _check_numbers(path: Path, array: npt.NDArray[Any]) -> None:
    if array.dtype.kind not in "fiu" or not array.size:
        raise ValueError(
            f"{path}: expected an array of real numbers that is not empty, got type {array.dtype} "
            f"and shape {array.shape}: convert it, to float64 for instance"
        )
