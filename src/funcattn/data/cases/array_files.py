"""Named arrays in files of many kinds, opened without being read: a part is read when asked for.

.npz and .npy of numpy, .h5 and .hdf5, .mat of MATLAB, .nc of NetCDF, folders .zarr.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from funcattn.arrays import Array
from funcattn.data.foreign import (
    FileError,
    check_file,
    check_numbers,
    check_size,
    hdf5_datasets,
    hdf5_part,
    memory_budget,
    open_hdf5,
    read_npz,
    reading,
)

SUFFIXES = (".npz", ".npy", ".h5", ".hdf5", ".mat", ".nc", ".zarr")


class LazyArray:
    """An array in a file: it has a shape and gives a part for an index of its first axis."""

    def __init__(self, file: "ArrayFile", name: str, shape: tuple[int, ...], dtype: Any) -> None:
        self.file, self.name, self.shape, self.dtype = file, name, shape, np.dtype(dtype)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: Any) -> Array:
        return self.file.read(self.name, part)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        del copy
        return np.asarray(self.file.read(self.name), dtype)


class ArrayFile(Mapping[str, LazyArray]):
    """The arrays of a file by name; see `open_arrays`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _arrays(self) -> dict[str, LazyArray]:
        return {name: LazyArray(self, name, *each) for name, each in self.described().items()}

    def __getitem__(self, name: str) -> LazyArray:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def described(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Shape and type of each array."""
        raise NotImplementedError

    def read(self, name: str, part: Any = ()) -> Array:
        """An array or a part of it."""
        raise NotImplementedError

    def units(self) -> dict[str, str]:
        """Units by array, where the file has them."""
        return {}

    def axes(self) -> dict[str, tuple[str, ...]]:
        """The names of the axes by array, where the file has them."""
        return {}

    @classmethod
    def opened(cls, path: Path) -> "ArrayFile":
        """The file, if it can be opened."""
        file = cls(path)
        with reading(path, "a file of arrays"):
            len(file)
        return file


class _Npz(ArrayFile):
    @cached_property
    def _content(self) -> dict[str, Array]:
        return read_npz(self.path)

    def described(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        return {name: (each.shape, each.dtype) for name, each in self._content.items()}

    def read(self, name: str, part: Any = ()) -> Array:
        return np.asarray(self._content[name][part])


class _Npy(ArrayFile):
    @cached_property
    def _content(self) -> Array:
        from funcattn.data.npy import open_npy

        return open_npy(self.path)

    def described(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        return {self.path.stem: (self._content.shape, self._content.dtype)}

    def read(self, name: str, part: Any = ()) -> Array:
        return check_numbers(self.path, name, np.array(self._content[part]))


class _Hdf5(ArrayFile):
    def described(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        with open_hdf5(self.path) as file:
            return {
                name: (each.shape, each.dtype)
                for name, each in hdf5_datasets(self.path, file).items()
            }

    def read(self, name: str, part: Any = ()) -> Array:
        with open_hdf5(self.path) as file:
            return self.unpacked(file[name], hdf5_part(self.path, name, file[name], part))

    def unpacked(self, dataset: Any, values: Array) -> Array:
        """The numbers that stored ones stand for."""
        del dataset
        return values

    def units(self) -> dict[str, str]:
        found = {}
        with open_hdf5(self.path) as file:
            for name, each in hdf5_datasets(self.path, file).items():
                unit = each.attrs.get("units", each.attrs.get("unit"))
                if isinstance(unit, bytes | str):
                    found[name] = (
                        unit.decode("utf-8", "replace") if isinstance(unit, bytes) else unit
                    )
        return found


def _unpacked(values: Array, attributes: Mapping[str, Any]) -> Array:
    """NetCDF packs numbers by a scale and an offset, and marks those that are missing."""
    missing = [
        np.ravel(attributes[key])[0] for key in ("_FillValue", "missing_value") if key in attributes
    ]
    scale, offset = (
        np.ravel(attributes[key])[0] if key in attributes else neutral
        for key, neutral in (("scale_factor", 1.0), ("add_offset", 0.0))
    )
    holes = np.isin(values, missing) if missing else np.zeros((), bool)
    if (scale, offset) == (1.0, 0.0) and not holes.any():
        return values
    exact = values.astype(np.float64) * float(scale) + float(offset)
    return np.where(holes, np.nan, exact).astype(
        np.float32 if values.dtype == np.float32 else np.float64
    )


class _NetCdf4(_Hdf5):
    def axes(self) -> dict[str, tuple[str, ...]]:
        found = {}
        with open_hdf5(self.path) as file:
            for name, each in hdf5_datasets(self.path, file).items():
                # An axis is named after the data set that is its scale.
                scales = [axis[0].name.rpartition("/")[2] for axis in each.dims if len(axis)]
                if len(scales) == len(each.dims):
                    found[name] = tuple(scales)
                elif each.attrs.get("CLASS") == b"DIMENSION_SCALE" and each.ndim == 1:
                    found[name] = (name,)
        return {name: axes for name, axes in found.items() if name in self}

    def unpacked(self, dataset: Any, values: Array) -> Array:
        return _unpacked(values, dict(dataset.attrs))


class _NetCdf3(ArrayFile):
    def _open(self) -> Any:
        from scipy.io import netcdf_file

        return netcdf_file(self.path, "r", mmap=False)

    def described(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        with reading(self.path, "a NetCDF file"), self._open() as file:
            return {
                name: (each.shape, each.data.dtype)
                for name, each in file.variables.items()
                if each.data.dtype.kind in "fiu"
            }

    def read(self, name: str, part: Any = ()) -> Array:
        with reading(self.path, "a NetCDF file"), self._open() as file:
            variable = file.variables[name]
            values = check_numbers(self.path, name, np.array(variable.data[part]))
            return _unpacked(values, variable._attributes)

    def units(self) -> dict[str, str]:
        with reading(self.path, "a NetCDF file"), self._open() as file:
            return {
                name: each._attributes["units"].decode("utf-8", "replace")
                for name, each in file.variables.items()
                if isinstance(each._attributes.get("units"), bytes)
            }

    def axes(self) -> dict[str, tuple[str, ...]]:
        with reading(self.path, "a NetCDF file"), self._open() as file:
            return {name: tuple(file.variables[name].dimensions) for name in self}


class _Matlab(ArrayFile):
    def described(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        from funcattn.data.matlab import NUMERIC, list_matlab

        return {
            name: (each.shape, NUMERIC[each.kind])
            for name, each in list_matlab(self.path).items()
            if each.kind in NUMERIC and len(each.shape) > 1 and 0 not in each.shape
        }

    def read(self, name: str, part: Any = ()) -> Array:
        from funcattn.data.matlab import read_matlab

        if isinstance(part, int):
            row = range(self[name].shape[0])[part]
            return read_matlab(self.path, [name], rows=slice(row, row + 1))[name][0]
        return read_matlab(self.path, [name])[name][part]


class _Zarr(ArrayFile):
    @cached_property
    def _content(self) -> Any:
        try:
            import zarr
        except ModuleNotFoundError:
            raise FileError(
                self.path,
                "zarr, which reads folders of this kind",
                "no such package",
                "pip install 'funcattn[zarr]'",
            ) from None
        return zarr.open_group(str(self.path), mode="r")

    def described(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        with reading(self.path, "a Zarr group"):
            return {
                name: (each.shape, each.dtype)
                for name, each in self._content.arrays()
                if each.dtype.kind in "fiub"
            }

    def read(self, name: str, part: Any = ()) -> Array:
        with reading(self.path, f"numbers in {name}"):
            array = self._content[name]
            for shape in (array.chunks, array.shape[1:] if isinstance(part, int) else array.shape):
                check_size(self.path, name, shape, array.dtype.itemsize, kept=memory_budget())
            return check_numbers(self.path, name, np.asarray(array[part if part != () else ...]))

    def units(self) -> dict[str, str]:
        with reading(self.path, "a Zarr group"):
            return {
                name: str(each.attrs["units"])
                for name, each in self._content.arrays()
                if "units" in each.attrs
            }

    def axes(self) -> dict[str, tuple[str, ...]]:
        with reading(self.path, "a Zarr group"):
            found = {}
            for name, each in self._content.arrays():
                # By xarray, and in its way for the format 2 of Zarr.
                named = getattr(each.metadata, "dimension_names", None)
                named = named or each.attrs.get("_ARRAY_DIMENSIONS")
                if name in self and (named or not each.ndim):
                    found[name] = tuple(str(axis) for axis in named or ())
            return found


def open_arrays(path: str | Path) -> ArrayFile:
    """The arrays of numbers in a file, by name; groups of HDF5 as `group/name`.

    Raises:
        FileNotFoundError: there is no such file.
        FileError: it is of another kind or damaged.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    kinds: dict[str, type[ArrayFile]] = {
        ".npz": _Npz,
        ".npy": _Npy,
        ".h5": _Hdf5,
        ".hdf5": _Hdf5,
        ".mat": _Matlab,
        ".zarr": _Zarr,
    }
    if suffix == ".nc":
        check_file(path)
        with path.open("rb") as stream:
            return (_NetCdf3 if stream.read(3) == b"CDF" else _NetCdf4).opened(path)
    if suffix not in kinds:
        raise FileError(
            path,
            f"a name that ends in {', '.join(SUFFIXES)}",
            path.suffix or "no ending",
            "rename or convert it",
        )
    if suffix != ".zarr":
        check_file(path)
    elif not path.is_dir():
        raise FileNotFoundError(2, "expected a folder of Zarr", str(path))
    return kinds[suffix].opened(path)
