"""Cases that are meshes and series of them, for mutated_cases.py."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mutated_cases import read_cases
from mutations import Kind

EXODUS = (".e", ".ex2", ".exo", ".exii", ".g")


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


def kinds() -> list[Kind]:
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
