"""Files that others write, of every kind that the package reads: see mutations.py."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mutated_cases
import numpy as np
from mutated_cases import read_cases
from mutations import Arrays, Kind


def sample() -> dict[str, np.ndarray]:
    """Arrays of a small case."""
    rng = np.random.default_rng(0)
    return {
        "positions": rng.normal(size=(30, 2)),
        "u": rng.normal(size=(30, 3)).astype(np.float32),
        "kind": (np.arange(30) % 3).astype(np.int32),
    }


def kinds() -> list[Kind]:
    """Every kind of them."""
    import h5py
    from scipy.io import netcdf_file

    from funcattn.data.airfrans import case_name, read_case, read_manifest, write_cases
    from funcattn.data.cases import read_table
    from funcattn.data.foreign import read_hdf5, read_npz, write_hdf5, write_npz
    from funcattn.data.matlab import list_matlab, read_matlab, write_matlab
    from funcattn.data.npy import open_npy, write_npy
    from funcattn.data.public_files import read_public, write_public
    from funcattn.data.public_layouts import BURGERS, ELASTICITY
    from funcattn.data.rna import RnaFile, open_rna, read_labels, read_off_vertices
    from funcattn.data.vtk_xml import VtkPoints, read_vtk, write_vtk
    from funcattn.pde import panel

    arrays = sample()
    rng = np.random.default_rng(1)

    def packed(path: Path) -> None:
        np.savez_compressed(path, **arrays)

    def npy(path: Path) -> Arrays:
        return {"u": np.array(open_npy(path))}

    def foreign_hdf5(path: Path) -> None:
        with h5py.File(path, "w") as file:
            for name, each in arrays.items():
                file.create_dataset(name, data=each, compression="gzip")

    def chunked_hdf5(path: Path) -> None:
        how: Any = {"compression": "gzip", "shuffle": True, "fletcher32": True}
        with h5py.File(path, "w") as file:
            for name, each in arrays.items():
                most = (None, *each.shape[1:])
                file.create_dataset(
                    name, data=each, chunks=(1, *each.shape[1:]), maxshape=most, **how
                )

    def plain_hdf5(path: Path) -> None:
        with h5py.File(path, "w") as file:
            for name, each in arrays.items():
                file[name] = each

    def matlab(path: Path) -> Arrays:
        return dict(read_matlab(path, list(list_matlab(path))))

    def rna(path: Path) -> None:
        np.savez(
            path,
            points=rng.normal(size=(12, 3)).astype(np.float32),
            labels=np.arange(12),
            count=np.array([5, 7]),
            name=np.array(["a", "b"]),
            split=np.array(["train", "test"]),
        )

    def clouds(path: Path) -> Arrays:
        data = RnaFile(path)
        read = data.read([*data.train, *data.test])
        return {
            f"{each.name} {k}": a for each in read for k, a in enumerate((each.points, each.labels))
        }

    def netcdf(path: Path) -> None:
        with netcdf_file(path, "w") as file:
            for name, each in arrays.items():
                axes = [f"{name}{k}" for k in range(each.ndim)]
                for axis, length in zip(axes, each.shape, strict=True):
                    file.createDimension(axis, length)
                file.createVariable(name, each.dtype.str[1:], axes)[:] = each

    def parquet(path: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.table({"file": ["a", "b", "c"], "angle": [1.0, 2.0, 3.0]})
        pyarrow.parquet.write_table(table, path)

    points = VtkPoints(
        rng.normal(size=(30, 3)), {"p": rng.normal(size=30)}, numbers={"s": np.ones(1)}
    )

    def ours(path: Path) -> Arrays:
        got = read_vtk(path, {"p": 1}, numbers=("s",))
        return {"points": got.points, **got.values, **got.numbers}

    def rna_folder(folder: Path) -> None:
        for part in ("off", "labels"):
            (folder / part).mkdir(parents=True)
        for name in ("a", "b"):
            (folder / f"off/{name}.off").write_text(off)
            (folder / f"labels/{name}.txt").write_text("0\n5\n17\n3\n")
        (folder / "train.txt").write_text("a.off\n")
        (folder / "test.txt").write_text("b.off\n")

    def surfaces(folder: Path) -> Arrays:
        data = open_rna(folder)
        return {each.name: each.points for each in data.read([*data.train, *data.test])}

    def airfrans(folder: Path) -> None:
        case = panel.sample(panels=30, field_points=20, rng=np.random.default_rng(0))
        speed = float(np.hypot(*case["features"][0, 2:4]))
        digits = case["digits"][[0, 1, 3] if case["family"] == 4 else [0, 1, 2, 3]]
        name = case_name(speed, float(case["incidence"]), digits.tolist())
        write_cases(folder, {name: case}, {"full_train": [name]})

    def flow(folder: Path) -> Arrays:
        (name,) = read_manifest(folder)["full_train"]
        return dict(read_case(folder, name))

    def burgers(folder: Path) -> None:
        folder.mkdir()
        wave = np.sin(2 * np.pi * np.arange(8) / 8) * np.ones((3, 1))
        write_public(BURGERS, folder, {"initial": wave, "final": wave / 7})

    def elasticity(folder: Path) -> None:
        folder.mkdir()
        points = np.random.default_rng(0).random((3, 6, 2))
        write_public(ELASTICITY, folder, {"points": points, "stress": points[..., 0]})

    def text(words: str) -> Callable[[Path], None]:
        return lambda path: path.write_text(words) and None

    table = "file,angle,speed\n" + "".join(f"case_{k},{k},{k / 7}\n" for k in range(9))
    off = "OFF\n4 4 6\n" + "".join(f"{k} {k * k} {-k}.5\n" for k in range(4)) + "3 0 1 2\n" * 4
    return [
        Kind("npz", ".npz", lambda p: write_npz(p, arrays), read_npz, checked=True),
        Kind("packed npz", ".npz", packed, read_npz, checked=True),
        Kind("npz as a case", ".npz", lambda p: write_npz(p, arrays), read_cases, checked=True),
        Kind("npy", ".npy", lambda p: write_npy({p: arrays["u"]}), npy),
        Kind("our HDF5", ".h5", lambda p: write_hdf5(p, arrays), read_hdf5, checked=True),
        Kind("foreign HDF5", ".h5", foreign_hdf5, read_hdf5),
        Kind("chunked HDF5", ".h5", chunked_hdf5, read_hdf5),
        Kind("plain HDF5", ".h5", plain_hdf5, read_hdf5),
        Kind("HDF5 as a case", ".h5", foreign_hdf5, read_cases),
        Kind("MATLAB 5", ".mat", lambda p: write_matlab(p, arrays), matlab),
        Kind("MATLAB 7.3", ".mat", lambda p: write_matlab(p, arrays, format="7.3"), matlab),
        Kind("NetCDF 3", ".nc", netcdf, read_cases),
        Kind("RNA", ".npz", rna, clouds, checked=True),
        Kind("OFF", ".off", text(off), lambda p: {"v": read_off_vertices(p)}),
        Kind("labels", ".txt", text("0\n5\n17\n" * 9), lambda p: {"l": read_labels(p)}),
        Kind("CSV", ".csv", text(table), lambda p: dict(read_table(p))),
        Kind("Parquet", ".parquet", parquet, lambda p: dict(read_table(p))),
        Kind("VTU by us", ".vtu", lambda p: write_vtk(p, points), ours),
        Kind("RNA: a list", "", rna_folder, surfaces, inside="train.txt"),
        Kind("AirfRANS: a mesh", "", airfrans, flow, inside="*/*_internal.vtu"),
        Kind("AirfRANS: an outline", "", airfrans, flow, inside="*/*_aerofoil.vtp"),
        Kind("public MATLAB", "", burgers, lambda p: dict(read_public(BURGERS, p)),
             inside="*.mat"),
        Kind("public npy", "", elasticity, lambda p: dict(read_public(ELASTICITY, p)),
             inside="*sigma*.npy"),
        *mutated_cases.kinds(),
    ]  # fmt: skip
