"""The one door for files that others made.

Nothing in a file is believed before it is checked against the file's own length and the memory that
may be used: a file of a kilobyte that declares a terabyte is refused before a byte is allocated.
Whatever a library raises on damaged bytes becomes a `FileError`, which names the file, what was
expected, what came, and what to do. Formats whose libraries may end the whole process are read in a
process of their own; see `funcattn.data.sandbox`.

HDF5 files that we write carry a checksum per chunk, a digest per array and one of the whole file,
which are checked when they are read. Archives of numpy (.npz) carry a checksum per array by nature.
"""

import hashlib
import json
import math
import os
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from funcattn.arrays import Array
from funcattn.data.sealed import check_seal, seal
from funcattn.files import whole_file

if TYPE_CHECKING:
    import h5py

MOST_PACKED = 2000
"""No compressor in use makes more bytes out of one; deflate, for instance, makes 1032."""
_ALWAYS = 2**20
"""So many bytes are always allowed, whatever the length of the file."""
_MEMBERS = 100_000
_DIGEST, _DIGESTS = "funcattn_sha256", "funcattn_digests"
_PACKERS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class FileError(ValueError):
    """A file that is not what was expected."""

    def __init__(self, path: str | Path, expected: str, got: str, advice: str) -> None:
        super().__init__(f"{path}: expected {expected}, got {got}: {advice}")
        self.path, self.expected, self.got, self.advice = Path(path), expected, got, advice

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.expected, self.got, self.advice)


def memory_budget() -> int:
    """How many bytes reading one file may take: half of the machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, OSError, ValueError):
        return 2**32  # where the system does not tell


def check_file(path: Path) -> None:
    """Refuse what is no ordinary file: a pipe, for instance, would be waited for for ever.

    Raises:
        FileNotFoundError: there is nothing at this path.
    """
    if path.is_file():
        return
    if path.exists():
        raise FileError(path, "a file", "a folder or a device", "give the path of a file")
    raise FileNotFoundError(2, "No such file: expected one, got nothing", str(path))


@contextmanager
def reading(path: Path, expected: str, advice: str = "download or copy it again") -> Iterator[None]:
    """Whatever a library raises meanwhile becomes a `FileError`.

    Files that do not exist, or that may not be read, keep their own error.
    """
    try:
        yield
    except (FileError, FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except MemoryError as error:
        raise FileError(
            path, expected, "one for which the memory does not suffice", "read a part of it"
        ) from error
    except Exception as error:
        words = " ".join(str(error).split())[:300]
        # Numpy's advice to allow pickles would run code of the file.
        if "pickle" in words:
            words = "Python objects or text in the place of numbers"
        got = f"one that is cut short or damaged, or of another kind ({type(error).__name__}: "
        raise FileError(path, expected, f"{got}{words})", advice) from error


def most_bytes(kept: int) -> int:
    """How many bytes of an array so many bytes of a file may stand for."""
    return min(memory_budget(), MOST_PACKED * kept + _ALWAYS)


def check_size(path: Path, name: str, shape: Collection[int], item: int, *, kept: int) -> int:
    """The bytes of an array, if so many can come from the `kept` bytes that store it."""
    size = math.prod(shape) * item
    if size > most_bytes(kept):
        raise FileError(
            path,
            f"arrays that fit into its {kept} bytes and into {memory_budget()} bytes of memory",
            f"{name} of shape {tuple(shape)}, {size} bytes",
            "the file is damaged, or too large to be read as a whole",
        )
    return size


def check_numbers(path: Path, name: str, array: Array, kinds: str = "fiub") -> Array:
    """The array, if it holds real numbers (or what else is allowed), in native byte order."""
    kind = array.dtype.kind
    # Floats of more than 8 bytes differ between machines.
    if kind not in kinds or (kind not in "US" and array.dtype.itemsize > 8):
        raise FileError(
            path,
            f"real numbers in {name}",
            f"{array.dtype} of shape {array.shape}",
            "convert them, to float64 for instance",
        )
    return np.asarray(array, array.dtype.newbyteorder("="), order="C")


def read_text(path: Path) -> str:
    """The content of a text file, which has to be UTF-8 and to fit into memory."""
    check_file(path)
    check_size(path, "its text", (path.stat().st_size,), 1, kept=path.stat().st_size)
    with reading(path, "text in UTF-8", "save it so"):
        return path.read_bytes().decode("utf-8-sig")


def read_npz(
    path: str | Path,
    names: Collection[str] | None = None,
    *,
    words: Collection[str] = (),
    expected: str = "an .npz file of numpy",
) -> dict[str, Array]:
    """The arrays of an .npz file, all of them or those named.

    Args:
        path: the file.
        names: which arrays; each has to be there.
        words: arrays that may hold text. All others hold numbers or logicals.
        expected: what the file should be, for messages.

    Raises:
        FileNotFoundError: there is no such file.
        FileError: it is no .npz file, is damaged, holds something else, or is too large.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     np.savez(Path(folder, "a.npz"), u=np.arange(3.0))
        ...     read_npz(Path(folder, "a.npz"))
        {'u': array([0., 1., 2.])}
    """
    path = Path(path)
    check_file(path)
    arrays = {}
    with reading(path, expected), zipfile.ZipFile(path) as archive:
        members = {each.filename.removesuffix(".npy"): each for each in archive.infolist()}
        if _entries(path) not in (len(archive.infolist()), 0xFFFF):
            raise ValueError("its list of arrays is not as long as it says")
        if len(members) < len(archive.infolist()) or len(members) > _MEMBERS:
            raise ValueError("two arrays of one name, or far too many of them")
        for name in _wanted(path, names, members):
            arrays[name] = _member(path, archive, name, members[name], words)
    return arrays


def _entries(path: Path) -> int:
    """How many members an archive says that it has, 65535 where there are more.

    Python's zipfile does not compare, so that damage could hide a member.
    """
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - 22 - 2**16))
        end = stream.read()
    start = end.rindex(b"PK\5\6")
    return int.from_bytes(end[start + 10 : start + 12], "little")


def _wanted(path: Path, names: Collection[str] | None, known: Mapping[str, Any]) -> Collection[str]:
    if names is None:
        return known
    if missing := [name for name in names if name not in known]:
        raise FileError(
            path,
            f"the arrays {', '.join(names)}",
            ", ".join(sorted(known)[:50]) or "none",
            f"add {', '.join(missing)}, or take another file",
        )
    return names


def _member(
    path: Path,
    archive: zipfile.ZipFile,
    name: str,
    info: zipfile.ZipInfo,
    words: Collection[str],
) -> Array:
    """One array of an archive; its header is checked before its numbers are read."""
    if info.flag_bits & 1 or info.compress_type not in _PACKERS:
        raise ValueError(f"{name} is encrypted, or packed by an unusual method")
    check_size(path, name, (info.file_size,), 1, kept=path.stat().st_size)
    with archive.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise ValueError(f"{name} is written in version {version} of numpy's format")
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject:
            raise FileError(
                path, f"numbers in {name}", "Python objects", "save it as an array of numbers"
            )
        if min(shape, default=0) < 0 or size > info.file_size:
            raise ValueError(f"{name} declares {dtype} of shape {shape}")
        raw = bytearray(stream.read(size))
        # To the end, where the checksum is compared.
        if len(raw) != size or stream.read(1):
            raise ValueError(f"{name} has not the {size} bytes that its shape {shape} needs")
    array = np.frombuffer(raw, dtype).reshape(shape, order="F" if fortran else "C")
    return check_numbers(path, name, array, "fiubUS" if name in words else "fiub")


@contextmanager
def open_hdf5(path: str | Path, expected: str = "an HDF5 file") -> Iterator["h5py.File"]:
    """An HDF5 file to read from; what goes wrong meanwhile becomes a `FileError`.

    Some damaged files end the process that reads them. So those of others are first read as a whole
    in a process of its own, and ours are compared with their digest.
    """
    import h5py

    from funcattn.data.sandbox import try_hdf5

    path = Path(path)
    check_file(path)
    with reading(path, expected):
        ours = check_seal(path)
    if not ours:
        try_hdf5(path, expected)
    with (
        reading(path, expected),
        # A reader needs no lock, and some network and read-only file systems have none to give.
        h5py.File(path, "r", locking=False) as file,
    ):
        yield file


def hdf5_datasets(path: Path, file: "h5py.File") -> dict[str, "h5py.Dataset"]:
    """The arrays of numbers in an open file by their names, `group/name` where there are groups.

    What lies in other files is left out: so a file cannot make us read another one.
    """
    import h5py

    datasets: dict[str, h5py.Dataset] = {}

    def visit(name: str, item: object) -> None:
        if (
            isinstance(item, h5py.Dataset)
            and item.shape is not None
            and item.dtype.kind in "fiub"
            and not item.external
            and not item.is_virtual
        ):
            datasets[name] = item
        if len(datasets) > _MEMBERS:
            raise ValueError("far too many arrays")

    with reading(path, "an HDF5 file"):
        file.visititems(visit)
    return datasets


def hdf5_part(path: Path, name: str, dataset: "h5py.Dataset", part: Any = ()) -> Array:
    """A part of a dataset, if the file can hold what it declares; checked where it is ours."""
    length = path.stat().st_size
    if part == ():
        check_size(path, name, dataset.shape, dataset.dtype.itemsize, kept=length)
    if dataset.chunks is not None:
        # A chunk is unpacked as a whole, whatever is asked of it.
        check_size(path, name, dataset.chunks, dataset.dtype.itemsize, kept=length)
    with reading(path, f"numbers in {name}"):
        values = check_numbers(path, name, np.asarray(dataset[part]))
        signed = dataset.attrs.get(_DIGEST) if part == () else None
        if signed is not None and signed != _digest(values):
            raise ValueError("its checksum is another")
    return values


def read_hdf5(path: str | Path, names: Collection[str] | None = None) -> dict[str, Array]:
    """The arrays of numbers of an HDF5 file, all of them or those named; see `read_npz`.

    A file of `write_hdf5` is refused when any array in it is not as it was written.
    """
    path = Path(path)
    with open_hdf5(path) as file:
        datasets = hdf5_datasets(path, file)
        if _DIGESTS in file.attrs:
            signed = json.loads(file.attrs[_DIGESTS])
            kept = {name: each.attrs.get(_DIGEST) for name, each in datasets.items()}
            if signed != kept:
                raise ValueError("its arrays are not those that were written")
        return {
            name: hdf5_part(path, name, datasets[name]) for name in _wanted(path, names, datasets)
        }


def write_hdf5(
    path: str | Path,
    arrays: Mapping[str, Array],
    *,
    units: Mapping[str, str] | None = None,
) -> None:
    """Write arrays of numbers with their checksums; the file appears whole or not at all."""
    import h5py

    path = Path(path)
    with whole_file(path) as aside:
        with h5py.File(aside, "w") as file:
            digests = {}
            for name, array in arrays.items():
                values = check_numbers(path, name, np.asarray(array))
                # Checksums are of chunks, and numbers without axes have none.
                dataset = file.create_dataset(
                    name, data=values, fletcher32=True if values.size and values.ndim else None
                )
                digests[name] = dataset.attrs[_DIGEST] = _digest(values)
                if units and name in units:
                    dataset.attrs["units"] = units[name]
            file.attrs[_DIGESTS] = json.dumps(digests)
        seal(aside)


def write_npz(path: str | Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as an .npz file, which appears whole or not at all."""
    path = Path(path)
    with whole_file(path) as aside, aside.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **dict(arrays))


def _digest(values: Array) -> str:
    """Of the numbers, their type and their shape."""
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    head = f"{little.dtype.str}{values.shape}".encode()
    return hashlib.sha256(head + np.ascontiguousarray(little).tobytes()).hexdigest()
