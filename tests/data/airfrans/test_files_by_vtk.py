"""Cases whose files VTK wrote, with cells of its own, are read as those of our own files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from funcattn.data.airfrans import read_case
from funcattn.data.vtk_xml import VtkPoints

NAME = "airFoil2D_SST_58.831_-3.563_2.815_4.916_10.078"
WALLS, LAYERS = 40, 5


def write_by_vtk(
    path: Path, data: VtkPoints, chains: list[np.ndarray], mode: str = "Appended"
) -> None:
    """Write points by VTK itself: with quadrilaterals as .vtu, with lines as .vtp."""
    vtk_io = pytest.importorskip("vtkmodules.vtkIOXML")
    from vtkmodules.util.numpy_support import numpy_to_vtk, numpy_to_vtkIdTypeArray
    from vtkmodules.vtkCommonCore import vtkPoints
    from vtkmodules.vtkCommonDataModel import (
        VTK_QUAD,
        vtkCellArray,
        vtkPolyData,
        vtkUnstructuredGrid,
    )

    places, cells = vtkPoints(), vtkCellArray()
    places.SetData(numpy_to_vtk(data.points, deep=True))
    cells.SetData(
        numpy_to_vtkIdTypeArray(np.cumsum([0, *map(len, chains)]), deep=True),
        numpy_to_vtkIdTypeArray(np.concatenate(chains), deep=True),
    )
    if path.suffix == ".vtu":
        grid, writer = vtkUnstructuredGrid(), vtk_io.vtkXMLUnstructuredGridWriter()
        grid.SetCells(VTK_QUAD, cells)
    else:
        grid, writer = vtkPolyData(), vtk_io.vtkXMLPolyDataWriter()
        grid.SetLines(cells)
    grid.SetPoints(places)
    for name, values in data.values.items():
        array = numpy_to_vtk(values, deep=True)
        array.SetName(name)
        grid.GetPointData().AddArray(array)
    size = numpy_to_vtk(np.ones(len(chains)), deep=True)
    size.SetName("Length" if path.suffix == ".vtp" else "Area")
    grid.GetCellData().AddArray(size)
    writer.SetInputData(grid)
    writer.SetFileName(str(path))
    getattr(writer, f"SetDataModeTo{mode}")()
    assert writer.Write() == 1


@pytest.mark.parametrize("mode", ["Ascii", "Binary", "Appended"])
def test_files_with_cells_by_vtk(
    tmp_path: Path, hand: Any, assert_same: Callable[..., None], mode: str
) -> None:
    expected = hand.read(tmp_path)
    here, around = np.arange(WALLS), np.roll(np.arange(WALLS), -1)
    quads = [
        hand.place[[WALLS * k + a, WALLS * k + b, WALLS * (k + 1) + b, WALLS * (k + 1) + a]]
        for k in range(LAYERS - 1)
        for a, b in zip(here, around, strict=True)
    ]
    write_by_vtk(tmp_path / NAME / f"{NAME}_internal.vtu", hand.mesh, quads, mode)
    edges = list(hand.outline.edges)
    write_by_vtk(tmp_path / NAME / f"{NAME}_aerofoil.vtp", hand.outline, edges, mode)
    assert_same(read_case(tmp_path, NAME), expected)


@pytest.mark.parametrize("kind", ["one chain", "clockwise", "with a last point", "closed twice"])
def test_outlines_of_all_kinds_by_vtk(
    tmp_path: Path, hand: Any, assert_same: Callable[..., None], kind: str
) -> None:
    """Whatever cells VTK stores for it, an outline is the same."""
    expected = hand.read(tmp_path)
    at, outline = np.argsort(hand.mixed), hand.outline
    chain = np.append(at, at[0])[:: -1 if kind == "clockwise" else 1]
    if kind in ("with a last point", "closed twice"):
        chain = np.array([*at, WALLS, *(at[:1] if kind == "closed twice" else [])])
        points, normals = (
            np.concatenate([a, a[at[:1]]]) for a in (outline.points, outline.values["Normals"])
        )
        outline = VtkPoints(points, {"Normals": normals})
    write_by_vtk(tmp_path / NAME / f"{NAME}_aerofoil.vtp", outline, [chain])
    assert_same(read_case(tmp_path, NAME), expected)
