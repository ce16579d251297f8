"""Damages files of every kind that the package reads, and counts what comes of it.

    python benchmarks/mutations.py [--each 300] [--seed 0] [--out results/mutations.json]

A reading ends in one of these ways:
    same       the numbers are those of the sound file: the damage was in what nobody reads
    refused    a FileError, or another of the package's own errors, names the file
    other      other numbers; foreign files without checksums cannot do better
    wrong      other numbers although the file has checksums, a bare error of a library, a crash
The last kind must not occur.
"""

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, Any]
OUTCOMES = ("same", "refused", "other", "wrong")


@dataclass(frozen=True)
class Kind:
    """A kind of file: how a sound one is written, how it is read, whether damage is noticed."""

    name: str
    suffix: str
    write: Callable[[Path], None]
    read: Callable[[Path], Arrays]
    checked: bool = False


def sample() -> dict[str, np.ndarray]:
    """Arrays of a small case."""
    rng = np.random.default_rng(0)
    return {
        "positions": rng.normal(size=(30, 2)),
        "u": rng.normal(size=(30, 3)).astype(np.float32),
        "kind": (np.arange(30) % 3).astype(np.int32),
    }


def kinds() -> list[Kind]:
    """Every kind of file that the package reads."""
    import h5py
    import pyvista
    from scipy.io import netcdf_file

    from funcattn.data.cases import open_folder, read_mesh, read_table
    from funcattn.data.foreign import read_hdf5, read_npz, write_hdf5, write_npz
    from funcattn.data.matlab import list_matlab, read_matlab, write_matlab
    from funcattn.data.npy import open_npy, write_npy
    from funcattn.data.rna import RnaFile, read_labels, read_off_vertices
    from funcattn.data.vtk_xml import VtkPoints, read_vtk, write_vtk

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

    def plain_hdf5(path: Path) -> None:
        with h5py.File(path, "w") as file:
            for name, each in arrays.items():
                file[name] = each

    def mesh(path: Path) -> None:
        block = pyvista.ImageData(dimensions=(3, 4, 3))
        block.point_data["u"] = rng.normal(size=36)
        block.cell_data["m"] = np.arange(12)
        kind = path.suffix
        if kind == ".vts":
            block.cast_to_structured_grid().save(path)
        elif kind in (".vtu", ".vtk"):
            block.cast_to_unstructured_grid().save(path)
        else:
            pyvista.Sphere(theta_resolution=6, phi_resolution=6).save(path)

    def case(path: Path) -> Arrays:
        return whole(read_mesh(path))

    def one(path: Path) -> Arrays:
        return whole(open_folder(path)[0])

    def whole(each: Any) -> Arrays:
        cells = {} if each.cells is None else vars(each.cells)
        return {
            "positions": each.positions,
            **each.fields,
            **each.categories,
            **each.parameters,
            **{f"cells {name}": cells[name] for name in ("connectivity", "types") if cells},
        }

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

    def text(words: str) -> Callable[[Path], None]:
        return lambda path: path.write_text(words) and None

    table = "file,angle,speed\n" + "".join(f"case_{k},{k},{k / 7}\n" for k in range(9))
    off = "OFF\n4 4 6\n" + "".join(f"{k} {k * k} {-k}.5\n" for k in range(4)) + "3 0 1 2\n" * 4
    return [
        Kind("npz", ".npz", lambda p: write_npz(p, arrays), read_npz, checked=True),
        Kind("packed npz", ".npz", packed, read_npz, checked=True),
        Kind("npz as a case", ".npz", lambda p: write_npz(p, arrays), one, checked=True),
        Kind("npy", ".npy", lambda p: write_npy({p: arrays["u"]}), npy),
        Kind("our HDF5", ".h5", lambda p: write_hdf5(p, arrays), read_hdf5, checked=True),
        Kind("foreign HDF5", ".h5", foreign_hdf5, read_hdf5),
        Kind("plain HDF5", ".h5", plain_hdf5, read_hdf5),
        Kind("HDF5 as a case", ".h5", foreign_hdf5, one),
        Kind("MATLAB 5", ".mat", lambda p: write_matlab(p, arrays), matlab),
        Kind("MATLAB 7.3", ".mat", lambda p: write_matlab(p, arrays, format="7.3"), matlab),
        Kind("NetCDF 3", ".nc", netcdf, one),
        Kind("RNA", ".npz", rna, clouds, checked=True),
        Kind("OFF", ".off", text(off), lambda p: {"v": read_off_vertices(p)}),
        Kind("labels", ".txt", text("0\n5\n17\n" * 9), lambda p: {"l": read_labels(p)}),
        Kind("CSV", ".csv", text(table), lambda p: dict(read_table(p))),
        Kind("Parquet", ".parquet", parquet, lambda p: dict(read_table(p))),
        Kind("VTU by us", ".vtu", lambda p: write_vtk(p, points), ours),
        *(Kind(f"{s[1:].upper()} by PyVista", s, mesh, case) for s in
          (".vtu", ".vtk", ".vts", ".vtp", ".stl", ".ply", ".obj")),
    ]  # fmt: skip


def mutations(content: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Damaged copies: bits, bytes, cuts, splices, and swaps of one type for another."""
    rng = np.random.default_rng(seed)
    swaps = [
        *((b"<f8", b"<i8"), (b"<f4", b"|O4"), (b"Float64", b"Float32"), (b"UInt64", b"Float64")),
        *((b"Int64", b"Int32"), (b"float", b"int"), (b"double", b"char"), (b"False", b"True")),
        *((b"1", b"9"), (b".", b"e"), (b"\n", b"\0"), (b"0", b"-")),
    ]
    for number in range(count):
        data = bytearray(content)
        place = int(rng.integers(len(data)))
        match number % 6:
            case 0:
                data[place] ^= 1 << int(rng.integers(8))
            case 1:
                data[place] = int(rng.integers(256))
            case 2:
                del data[place:]
            case 3:
                other = int(rng.integers(len(data)))
                length = int(rng.integers(1, 64))
                data[place : place + length] = data[other : other + length]
            case 4:
                width = int(rng.choice([2, 4, 8]))
                extreme = rng.choice([b"\xff", b"\x7f", b"\x80", b"\0"])
                data[place : place + width] = bytes(extreme) * width
            case 5:
                old, new = swaps[int(rng.integers(len(swaps)))]
                places = data.count(old)
                start = -1
                for _ in range(int(rng.integers(places)) + 1 if places else 0):
                    start = data.find(old, start + 1)
                if start >= 0:
                    data[start : start + len(old)] = new
        yield bytes(data)


def same(first: Arrays, second: Arrays) -> bool:
    """Whether two readings are equal to the bit."""
    if first.keys() != second.keys():
        return False
    return all(
        np.shape(first[name]) == np.shape(second[name])
        and np.array_equal(np.asarray(first[name]), np.asarray(second[name]))
        for name in first
    )


def outcome(kind: Kind, path: Path, sound: Arrays) -> tuple[str, str]:
    """What comes of reading a damaged file, and the error where it is wrong."""
    try:
        read = kind.read(path)
    except (ValueError, FileNotFoundError) as error:
        if str(path) in str(error) and "pickle" not in str(error):
            return "refused", ""
        return "wrong", f"{type(error).__name__}: {error}"
    except Exception as error:
        return "wrong", f"{type(error).__name__}: {error}"
    if same(read, sound):
        return "same", ""
    return ("wrong", "other numbers") if kind.checked else ("other", "")


def attack(kind: Kind, folder: Path, count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """The outcomes of so many mutations, and what went wrong."""
    good = folder / f"good{kind.suffix}"
    kind.write(good)
    sound = kind.read(good)
    assert same(sound, kind.read(good)), f"{kind.name}: a sound file is not read the same twice"
    counts: Counter[str] = Counter()
    wrongs = []
    bad = folder / f"bad{kind.suffix}"
    for number, content in enumerate(mutations(good.read_bytes(), count, seed)):
        bad.write_bytes(content)
        result, words = outcome(kind, bad, sound)
        counts[result] += 1
        if words:
            wrongs.append(f"{kind.name} {number}: {words[:200]}")
    return counts, wrongs


def main() -> None:
    """Attack every kind, print the table, keep it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--each", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    table = {}
    print(f"{'kind':20} {'files':>6} " + " ".join(f"{name:>8}" for name in OUTCOMES))
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds():
            if options.only and options.only not in kind.name:
                continue
            counts, wrongs = attack(kind, Path(folder), options.each, options.seed)
            table[kind.name] = {name: counts[name] for name in OUTCOMES}
            numbers = " ".join(f"{counts[name]:8}" for name in OUTCOMES)
            print(f"{kind.name:20} {options.each:6} {numbers}", flush=True)
            for words in wrongs[:5]:
                print(f"    {words}")
    if options.out:
        facts = {"mutations per kind": options.each, "seed": options.seed}
        kept = json.loads(options.out.read_text()) if options.only and options.out.exists() else {}
        if kept and {name: kept[name] for name in facts} != facts:
            parser.error(f"{options.out}: --only needs the numbers of mutations and seed in it")
        everything = {**kept.get("kinds", {}), **table}
        options.out.write_text(json.dumps({**facts, "kinds": everything}, indent=1) + "\n")


if __name__ == "__main__":
    main()
