"""Cases that are arrays and tables, for mutated_cases.py."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from mutated_cases import read_cases, read_whole
from mutations import Arrays, Kind

Axes = Mapping[str, tuple[tuple[str, ...], np.ndarray]]


def labelled() -> Axes:
    """Arrays with named axes, as of xarray."""
    rng = np.random.default_rng(0)
    return {
        "time": (("time",), np.array([0.0, 0.1, 0.4])),
        "y": (("y",), np.arange(3.0)),
        "x": (("x",), 2 * np.arange(4.0)),
        "u": (("time", "y", "x"), rng.random((3, 3, 4))),
        "mass": ((), np.array(1.5)),
    }


def write_netcdf_3(version: int) -> Callable[[Path], None]:
    """NetCDF's classic format, with offsets of 32 or of 64 bits; numbers are packed."""

    def write(path: Path) -> None:
        from scipy.io import netcdf_file

        with netcdf_file(path, "w", version=version) as file:
            for axes, values in labelled().values():
                for axis, length in zip(axes, values.shape, strict=True):
                    if axis not in file.dimensions:
                        file.createDimension(axis, length)
            for name, (axes, values) in labelled().items():
                made = file.createVariable(name, "h" if name == "u" else "d", axes)
                made[...] = np.round(values / 1e-4) if name == "u" else values
                if name == "u":
                    made.scale_factor, made.add_offset, made.units = 1e-4, 0.5, "m/s"

    return write


def write_netcdf_4(path: Path) -> None:
    """NetCDF 4 is HDF5 with scales."""
    import h5py

    with h5py.File(path, "w") as file:
        for name, (_, values) in labelled().items():
            file[name] = values
        file["u"].attrs["scale_factor"], file["u"].attrs["units"] = 2.0, "m/s"
        for axis in ("time", "y", "x"):
            file[axis].make_scale(axis)
        for place, axis in enumerate(("time", "y", "x")):
            file["u"].dims[place].attach_scale(file[axis])


def write_blosc(folder: Path) -> None:
    """A group of Zarr in format 2, packed by Blosc, as most are."""
    import numcodecs
    import zarr

    group = zarr.open_group(str(folder), mode="w", zarr_format=2)
    for name, (axes, values) in labelled().items():
        made = group.create_array(name, data=values, compressors=numcodecs.Blosc())
        made.attrs["_ARRAY_DIMENSIONS"] = list(axes)


def write_zarr(version: int) -> Callable[[Path], None]:
    """A group of Zarr; in format 2 axes are named as xarray does."""

    def write(folder: Path) -> None:
        import zarr

        group = zarr.open_group(str(folder), mode="w", zarr_format=version)  # type: ignore[arg-type]
        for name, (axes, values) in labelled().items():
            made = group.create_array(
                name, data=values, **({"dimension_names": axes} if version == 3 else {})
            )  # type: ignore[call-overload]
            if version == 2:
                made.attrs["_ARRAY_DIMENSIONS"] = list(axes)

    return write


def stacked() -> dict[str, np.ndarray]:
    """Arrays of three cases."""
    rng = np.random.default_rng(0)
    return {"a": rng.random((3, 4, 5)), "u": rng.random((3, 4, 5, 2)), "angle": np.arange(3.0)}


def pdebench() -> dict[str, np.ndarray]:
    """Two cases of PDEBench, in one array."""
    rng = np.random.default_rng(0)
    return {
        "tensor": rng.random((2, 3, 4)).astype(np.float32),
        "x-coordinate": np.linspace(0, 1, 4),
        "t-coordinate": np.linspace(0, 2, 4),
    }


def pdebench_groups() -> dict[str, np.ndarray]:
    """Two cases of PDEBench, each in a group of its own."""
    rng = np.random.default_rng(0)
    found = {}
    for group in ("0000", "0001"):
        found |= {
            f"{group}/data": rng.random((3, 4, 5, 1)).astype(np.float32),
            f"{group}/grid/x": np.linspace(0, 1, 4),
            f"{group}/grid/y": np.linspace(0, 1, 5),
            f"{group}/grid/t": np.linspace(0, 2, 3),
        }
    return found


def write_the_well(path: Path) -> None:
    """Two trajectories of The Well."""
    import h5py

    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file.attrs["n_trajectories"] = 2
        file["dimensions/time"] = np.linspace(0, 1, 3)
        file["dimensions/x"], file["dimensions/y"] = np.linspace(0, 1, 4), np.linspace(0, 1, 5)
        file["dimensions"].attrs["spatial_dims"] = ["x", "y"]
        file["t0_fields/p"] = rng.random((2, 3, 4, 5)).astype(np.float32)
        file["t1_fields/v"] = rng.random((2, 3, 4, 5, 2)).astype(np.float32)
        file["t2_fields/s"] = rng.random((2, 3, 4, 5, 2, 2)).astype(np.float32)
        file["scalars/re"] = np.array(7.5)
        for name in ("t0_fields/p", "t1_fields/v", "t2_fields/s"):
            file[name].attrs["sample_varying"] = file[name].attrs["time_varying"] = True


def write_rows(path: Path) -> None:
    """Three cases of different sizes in the rows of a table."""
    import pyarrow
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    positions = [rng.random((n, 2)) for n in (4, 6, 5)]
    table = pyarrow.table(
        {
            "positions": [each.tolist() for each in positions],
            "u": [each.sum(1).tolist() for each in positions],
            "angle": [1.0, 2.0, 3.0],
        }
    )
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=2)
        return
    with pyarrow.ipc.new_file(path, table.schema) as sink:
        sink.write_table(table, max_chunksize=2)


def write_stream(path: Path) -> None:
    """Three cases on a grid, as `datasets` of Hugging Face keeps them."""
    import pyarrow

    arrays = stacked()
    table = pyarrow.table({name: each.tolist() for name, each in arrays.items()})
    with pyarrow.ipc.new_stream(path, table.schema) as sink:
        sink.write_table(table, max_chunksize=2)


def with_parameters(path: Path) -> Arrays:
    """A case with numbers from a table beside it, which is what is damaged."""
    from funcattn.data.cases import open_folder

    (table,) = path.glob("table.*")
    return read_whole(open_folder(path / "a.npz", parameters=table)[0])


def write_parameters(ending: str) -> Callable[[Path], None]:
    """A case and a table."""

    def write(folder: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        folder.mkdir()
        np.savez(folder / "a.npz", positions=np.eye(2), u=np.ones(2))
        if ending == ".csv":
            (folder / "table.csv").write_text("file;angle;speed\nb;2,5;3\na;1,25;7\n")
            return
        table = pyarrow.table({"file": ["b", "a"], "angle": [1.0, 2.0]})
        pyarrow.parquet.write_table(table, folder / f"table{ending}")

    return write


def kinds() -> list[Kind]:
    """Files of arrays in every layout, and tables."""
    from funcattn.data.foreign import write_hdf5
    from funcattn.data.matlab import write_matlab

    def hdf5(arrays: dict[str, np.ndarray]) -> Callable[[Path], None]:
        def write(path: Path) -> None:
            import h5py

            with h5py.File(path, "w") as file:
                for name, each in arrays.items():
                    file[name] = each

        return write

    def npy(folder: Path) -> None:
        folder.mkdir()
        np.save(folder / "u.npy", stacked()["u"])

    def matlab(path: Path) -> None:
        arrays = {**stacked(), "angle": np.arange(3.0)[:, None]}
        write_matlab(path, arrays)

    one = {"positions": np.random.default_rng(0).random((9, 2)), "u": np.arange(9.0)}
    zarr = {2: ("u/0.0.0", "u/.zarray", ".zgroup", "u/.zattrs"), 3: ("u/c/0/0/0", "u/zarr.json",
            "zarr.json")}  # fmt: skip
    return [
        Kind("npy as cases", "", npy, read_cases, inside="u.npy"),
        Kind("npz as cases", ".npz", lambda p: np.savez(p, **stacked()), read_cases, checked=True),
        Kind("our HDF5 as a case", ".hdf5", lambda p: write_hdf5(p, one), read_cases, checked=True),
        Kind("MATLAB as cases", ".mat", matlab, read_cases),
        Kind("PDEBench", ".hdf5", hdf5(pdebench()), read_cases),
        Kind("PDEBench by groups", ".h5", hdf5(pdebench_groups()), read_cases),
        Kind("The Well", ".hdf5", write_the_well, read_cases),
        Kind("NetCDF 3, labelled", ".nc", write_netcdf_3(1), read_cases),
        Kind("NetCDF 3 of 64 bits", ".nc", write_netcdf_3(2), read_cases),
        Kind("NetCDF 4", ".nc", write_netcdf_4, read_cases),
        *(Kind(f"Zarr {version}: {name}", ".zarr", write_zarr(version), read_cases, inside=name)
          for version, names in zarr.items() for name in names),
        Kind("Zarr 2: Blosc", ".zarr", write_blosc, read_cases, inside="u/0.0.0"),
        Kind("Arrow", ".arrow", write_rows, read_cases),
        Kind("Arrow of datasets", ".arrow", write_stream, read_cases),
        Kind("Parquet rows", ".parquet", write_rows, read_cases),
        *(Kind(f"parameters ({s})", "", write_parameters(s), with_parameters, inside=f"table{s}")
          for s in (".csv", ".parquet", ".pq")),
    ]  # fmt: skip
