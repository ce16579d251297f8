"""Cases of every ending and layout that `open_folder` reads: see mutations.py.

A case of several files is a folder, of which one file is damaged.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mutations import Arrays, Kind

Axes = Mapping[str, tuple[tuple[str, ...], np.ndarray]]
EXODUS = (".e", ".ex2", ".exo", ".exii", ".g")


def read_cases(path: Path) -> Arrays:
    """Everything in every case of a file or folder."""
    from funcattn.data.cases import open_folder

    found: Arrays = {}
    for number, case in enumerate(open_folder(path)):
        found |= {f"{number} {name}": each for name, each in read_whole(case).items()}
    return found


def read_whole(case: Any) -> Arrays:
    """Everything in a case."""
    return {
        "positions": case.positions,
        **case.fields,
        **case.categories,
        **case.parameters,
        **({} if case.times is None else {"times": case.times}),
        **({} if case.grid is None else {"grid": case.grid}),
        **({} if case.cells is None else {
            "connectivity": case.cells.connectivity, "types": case.cells.types}),
    }  # fmt: skip


def block() -> Any:
    """A small block of cells with fields on it."""
    import pyvista

    made = pyvista.ImageData(dimensions=(3, 4, 3))
    made.point_data["u"] = np.random.default_rng(0).normal(size=36)
    made.cell_data["m"] = np.arange(12)
    return made


def write_mesh(path: Path) -> None:
    """A mesh in one file, by PyVista or by VTK's own writers."""
    import pyvista
    from vtkmodules.vtkIOExodus import vtkExodusIIWriter
    from vtkmodules.vtkIOHDF import vtkHDFWriter

    mesh = block()
    shaped = {
        ".vts": mesh.cast_to_structured_grid,
        ".vtr": mesh.cast_to_rectilinear_grid,
        ".vti": lambda: mesh,
        ".vtp": lambda: pyvista.Sphere(theta_resolution=6, phi_resolution=6),
    }
    for surface in (".stl", ".ply", ".obj"):
        shaped[surface] = shaped[".vtp"]
    grid = shaped.get(path.suffix, mesh.cast_to_unstructured_grid)()
    if path.suffix not in (*EXODUS, ".vtkhdf"):
        grid.save(path)
        return
    writer = vtkHDFWriter() if path.suffix == ".vtkhdf" else vtkExodusIIWriter()
    grid.cell_data.clear()  # VTK's writer of Exodus dies of whole numbers
    writer.SetFileName(str(path))
    writer.SetInputData(grid)
    writer.Write()


def write_blocks(folder: Path) -> None:
    """Two blocks in files of their own, and the file that names them."""
    import pyvista

    folder.mkdir()
    grid = block().cast_to_unstructured_grid()
    pyvista.MultiBlock([grid, grid.translate((5.0, 0.0, 0.0))]).save(folder / "a.vtm")


def write_pieces(ending: str) -> Callable[[Path], None]:
    """A mesh in pieces, and the file that names them."""

    def write(folder: Path) -> None:
        from vtkmodules import vtkIOParallelXML

        kinds = {
            ".pvtu": ("Unstructured", block().cast_to_unstructured_grid),
            ".pvts": ("Structured", block().cast_to_structured_grid),
            ".pvtr": ("Rectilinear", block().cast_to_rectilinear_grid),
        }
        name, mesh = kinds[ending]
        writer = getattr(vtkIOParallelXML, f"vtkXMLP{name}GridWriter")()
        folder.mkdir()
        writer.SetFileName(str(folder / f"a{ending}"))
        writer.SetInputData(mesh())
        writer.SetNumberOfPieces(1)
        writer.Write()

    return write


def write_series(folder: Path) -> None:
    """A mesh at three times, and ParaView's two ways to say so; one of them is read."""
    folder.mkdir()
    mesh = block().cast_to_unstructured_grid()
    for number in range(3):
        mesh["u"] = np.sin(np.arange(36.0) + number)
        mesh.save(folder / f"flow_{number}.vtu")


def write_pvd(folder: Path) -> None:
    """A series as a .pvd file."""
    write_series(folder)
    entries = "".join(
        f'<DataSet timestep="{0.5 * n}" part="0" file="flow_{n}.vtu"/>\n' for n in range(3)
    )
    (folder / "flow.pvd").write_text(
        f'<VTKFile type="Collection" version="0.1">\n<Collection>\n{entries}'
        "</Collection>\n</VTKFile>\n"
    )


def write_list(folder: Path) -> None:
    """A series as ParaView's list in JSON."""
    write_series(folder)
    entries = ", ".join(f'{{"name": "flow_{n}.vtu", "time": {n / 2}}}' for n in range(3))
    (folder / "flow.vtu.series").write_text(f'{{"files": [{entries}]}}')


def write_xdmf(ending: str) -> Callable[[Path], None]:
    """Numbers in an HDF5 file, and the file that tells what they are."""

    def write(folder: Path) -> None:
        from vtkmodules.vtkIOXdmf2 import vtkXdmfWriter

        folder.mkdir()
        writer = vtkXdmfWriter()
        writer.SetFileName(str(folder / f"a{ending}"))
        writer.SetHeavyDataFileName(str(folder / "a.h5"))
        writer.SetLightDataLimit(10)
        writer.SetInputData(block().cast_to_unstructured_grid())
        writer.Write()

    return write


def write_ensight(folder: Path) -> None:
    """A case of EnSight Gold as text: a mesh of one cell, and a field at two times."""
    folder.mkdir()
    (folder / "a.case").write_text(
        "FORMAT\ntype: ensight gold\n\nGEOMETRY\nmodel: a.geo\n\nVARIABLE\n"
        "scalar per node: 1 u a.u**\n\nTIME\ntime set: 1\nnumber of steps: 2\n"
        "filename start number: 0\nfilename increment: 1\ntime values: 0.0 0.5\n"
    )
    corners = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)]
    places = "".join(f"{corner[axis]:12.5e}\n" for axis in range(3) for corner in corners)
    (folder / "a.geo").write_text(
        "a mesh\nof one cell\nnode id off\nelement id off\npart\n"
        f"{1:10}\nplate\ncoordinates\n{4:10}\n{places}quad4\n{1:10}\n"
        f"{1:10}{2:10}{3:10}{4:10}\n"
    )
    for step in range(2):
        values = "".join(f"{step + corner / 7:12.5e}\n" for corner in range(4))
        (folder / f"a.u{step:02}").write_text(f"u\npart\n{1:10}\ncoordinates\n{values}")


def write_openfoam(folder: Path) -> None:
    """A case of OpenFOAM of one cell at two times."""
    head = "FoamFile {{ version 2.0; format ascii; class {}; object {}; }}\n{}\n"
    mesh = {
        "points": ("vectorField", "((0 0 0)(1 0 0)(0 1 0)(1 1 0)(0 0 1)(1 0 1)(0 1 1)(1 1 1))"),
        "faces": (
            "faceList",
            "6(4(0 2 3 1) 4(4 5 7 6) 4(0 1 5 4) 4(2 6 7 3) 4(0 4 6 2) 4(1 3 7 5))",
        ),
        "owner": ("labelList", "6(0 0 0 0 0 0)"),
        "neighbour": ("labelList", "0()"),
        "boundary": ("polyBoundaryMesh", "1(walls { type wall; nFaces 6; startFace 0; })"),
    }
    for below in ("system", "constant/polyMesh", "0", "5"):
        (folder / below).mkdir(parents=True)
    times = "startTime 0; endTime 5; deltaT 1;"
    (folder / "system/controlDict").write_text(head.format("dictionary", "controlDict", times))
    for name, (kind, words) in mesh.items():
        (folder / "constant/polyMesh" / name).write_text(head.format(kind, name, words))
    for time, value in (("0", 1), ("5", 7)):
        field = f"dimensions [0 2 -2 0 0 0 0]; internalField uniform {value};"
        walls = "boundaryField { walls { type zeroGradient; } }"
        (folder / time / "p").write_text(head.format("volScalarField", "p", f"{field} {walls}"))


def write_foam(folder: Path) -> None:
    """The same with the empty file that ParaView opens, which we read as any other."""
    write_openfoam(folder)
    (folder / "a.foam").write_text("an OpenFOAM case\n")


INP = (
    "4 2 1 0 0\n1 0 0 0\n2 1 0 0\n3 1 1 0\n4 0 1 0\n1 1 tri 1 2 3\n2 1 tri 1 3 4\n1 1\nu, none\n"
    "1 0.5\n2 1.5\n3 2.5\n4 3.5\n"
)
_DATA = '$NodeData\n1\n"u"\n1\n0.0\n3\n0\n1\n4\n4 40.0\n3 30.0\n2 20.0\n1 10.0\n$EndNodeData\n'
GMSH_4 = (
    "$MeshFormat\n4.1 0 8\n$EndMeshFormat\n$Entities\n1 1 1 0\n9 0 0 0 0\n"
    "1 0 0 0 1 0 0 1 7 2 9 -9\n1 0 0 0 1 1 0 1 5 1 1\n$EndEntities\n$Nodes\n2 5 1 9\n0 9 0 1\n9\n"
    "0.5 0.5 0\n2 1 0 4\n1\n2\n3\n4\n0 0 0\n1 0 0\n1 1 0\n0 1 0\n$EndNodes\n$Elements\n3 4 1 4\n"
    f"0 9 15 1\n1 9\n1 1 1 1\n2 1 2\n2 1 2 2\n3 1 2 3\n4 1 3 4\n$EndElements\n{_DATA}"
)
GMSH_2 = (
    "$MeshFormat\n2.2 0 8\n$EndMeshFormat\n$Nodes\n5\n9 0.5 0.5 0\n1 0 0 0\n2 1 0 0\n3 1 1 0\n"
    "4 0 1 0\n$EndNodes\n$Elements\n4\n1 15 2 0 9 9\n2 1 2 7 1 1 2\n3 2 2 5 1 1 2 3\n"
    f"4 2 2 5 1 1 3 4\n$EndElements\n{_DATA}"
)


def write_cgns(path: Path, time: float = 0.0) -> None:
    """A square of two triangles with a field on its corners and a number, as PLAID writes it."""
    import h5py

    def node(parent: Any, name: str, label: str, kind: str, data: Any = None) -> Any:
        made = parent.create_group(name, track_order=True)
        for key, word, length in (("name", name, 33), ("label", label, 33), ("type", kind, 3)):
            made.attrs[key] = np.array(word.encode(), f"S{length}")
        made.attrs["flags"] = np.array([1], np.int32)
        if data is not None:
            words = isinstance(data, str)
            made[" data"] = np.frombuffer(data.encode(), np.int8) if words else data
        return made

    with h5py.File(path, "w") as file:
        file.attrs["name"] = np.array(b"HDF5 MotherNode", "S33")
        file.attrs["label"] = np.array(b"Root Node of HDF5 File", "S33")
        file.attrs["type"] = np.array(b"MT", "S3")
        file[" format"] = np.frombuffer(b"IEEE_LITTLE_32\0", np.int8)
        file[" hdf5version"] = np.frombuffer(b"HDF5 Version 1.14.0".ljust(33, b"\0"), np.int8)
        four = np.array([4.0], np.float32)
        node(file, "CGNSLibraryVersion", "CGNSLibraryVersion_t", "R4", four)
        base = node(file, "Base_2_2", "CGNSBase_t", "I4", np.array([2, 2], np.int32))
        when = node(base, "Time", "BaseIterativeData_t", "I4", np.array([1], np.int32))
        node(when, "TimeValues", "DataArray_t", "R8", np.array([time]))
        zone = node(base, "Zone", "Zone_t", "I8", np.array([[4], [2], [0]]))
        node(zone, "ZoneType", "ZoneType_t", "C1", "Unstructured")
        places = node(zone, "GridCoordinates", "GridCoordinates_t", "MT")
        node(places, "CoordinateX", "DataArray_t", "R8", np.array([0.0, 1, 1, 0]))
        node(places, "CoordinateY", "DataArray_t", "R8", np.array([0.0, 0, 1, 1]))
        cells = node(zone, "Elements_TRI_3", "Elements_t", "I4", np.array([5, 0], np.int32))
        node(cells, "ElementRange", "IndexRange_t", "I8", np.array([1, 2]))
        corners = np.array([1, 2, 3, 1, 3, 4])
        node(cells, "ElementConnectivity", "DataArray_t", "I8", corners)
        fields = node(zone, "VertexFields", "FlowSolution_t", "MT")
        node(fields, "GridLocation", "GridLocation_t", "C1", "Vertex")
        node(fields, "u", "DataArray_t", "R8", time + np.arange(4.0))
        known = node(file, "Global", "CGNSBase_t", "I4", np.array([1, 1], np.int32))
        node(known, "angle", "DataArray_t", "R8", np.array([2.5]))


def write_plaid(folder: Path) -> None:
    """A data set of PLAID: a sample at two times, with its numbers."""
    meshes = folder / "data/train/sample_000000000/meshes"
    meshes.mkdir(parents=True)
    for step in range(2):
        write_cgns(meshes / f"mesh_{step:09}.cgns", step / 2)
    (meshes.parent / "scalars.csv").write_text("speed,mass\n20.25,1.5\n")


def write_airfrans(folder: Path) -> None:
    """A data set of AirfRANS as `open_folder` reads it."""
    import json

    name = "airFoil2D_SST_43.597_5.932_3.551_3.1_1.0_18.252"
    (folder / name).mkdir(parents=True)
    block().cast_to_unstructured_grid().save(folder / name / f"{name}_internal.vtu")
    lists = {"full_train": [name], "full_test": []}
    (folder / "manifest.json").write_text(json.dumps(lists))


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


def mesh_kinds() -> list[Kind]:
    """Meshes and series of them."""

    def text(words: str) -> Callable[[Path], None]:
        return lambda path: path.write_text(words) and None

    def inside(
        name: str, write: Callable[[Path], None], file: str, *, unread: bool = False
    ) -> Kind:
        return Kind(name, "", write, read_cases, inside=file, unread=unread)

    one_file = (".vtu", ".vtk", ".vts", ".vtp", ".stl", ".ply", ".obj", ".vtr", ".vti", ".vtkhdf")
    return [
        *(Kind(f"{s[1:].upper()} by PyVista", s, write_mesh, read_cases) for s in one_file),
        *(Kind(f"Exodus ({s})", s, write_mesh, read_cases) for s in EXODUS),
        inside("blocks (.vtm)", write_blocks, "*.vtm"),
        inside("blocks: one of them", write_blocks, "*/*_0.vtu"),
        *(inside(f"pieces ({s})", write_pieces(s), f"*{s}") for s in (".pvtu", ".pvts", ".pvtr")),
        inside("pieces: one of them", write_pieces(".pvtu"), "*.vtu"),
        inside("series (.pvd)", write_pvd, "*.pvd"),
        inside("series: one of it", write_pvd, "flow_1.vtu"),
        inside("series (.series)", write_list, "*.series"),
        *(inside(f"XDMF ({s})", write_xdmf(s), f"*{s}") for s in (".xdmf", ".xmf")),
        inside("XDMF: its numbers", write_xdmf(".xdmf"), "a.h5"),
        *(inside(f"EnSight ({name})", write_ensight, name) for name in
          ("a.case", "a.geo", "a.u01")),
        *(inside(f"OpenFOAM ({name})", write_openfoam, name) for name in
          ("constant/polyMesh/points", "constant/polyMesh/faces",
           "constant/polyMesh/owner", "constant/polyMesh/boundary", "5/p")),
        inside("OpenFOAM (.foam)", write_foam, "*.foam", unread=True),
        inside("OpenFOAM (controlDict)", write_openfoam, "system/controlDict", unread=True),
        Kind("UCD (.inp)", ".inp", text(INP), read_cases),
        Kind("Gmsh 4.1", ".msh", text(GMSH_4), read_cases),
        Kind("Gmsh 2.2", ".msh", text(GMSH_2), read_cases),
        Kind("CGNS", ".cgns", write_cgns, read_cases),
        inside("PLAID: a mesh", write_plaid, "data/*/*/meshes/mesh_000000001.cgns"),
        inside("PLAID: numbers", write_plaid, "data/*/*/scalars.csv"),
        inside("AirfRANS as cases", write_airfrans, "*/*_internal.vtu"),
    ]  # fmt: skip


def array_kinds() -> list[Kind]:
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


def kinds() -> list[Kind]:
    """All of them."""
    return [*mesh_kinds(), *array_kinds()]
