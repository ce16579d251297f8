from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from funcattn.data.cases import Case, from_arrays, open_folder, read_mesh, write_case
from funcattn.data.foreign import FileError

pyvista = pytest.importorskip("pyvista")


def test_a_vtu_opens_in_pyvista_with_the_same_cells_and_new_fields_beside_the_old(
    plates: Path, tmp_path: Path
) -> None:
    case = open_folder(plates)[1]
    new = np.random.default_rng(0).normal(size=(len(case), 2))
    write_case(tmp_path / "out.vtu", case, {"velocity predicted": new})
    old, written = pyvista.read(plates / "plate_2.vtu"), pyvista.read(tmp_path / "out.vtu")
    np.testing.assert_array_equal(written.points, old.points)
    np.testing.assert_array_equal(written.cell_connectivity, old.cell_connectivity)
    np.testing.assert_array_equal(written.celltypes, old.celltypes)
    for name in ("pressure", "velocity", "kind"):
        np.testing.assert_array_equal(written.point_data[name], old.point_data[name])
    for name in ("material", "source"):
        np.testing.assert_array_equal(written.cell_data[name], old.cell_data[name])
    # Vectors in the plane are vectors in space there, so that ParaView draws arrows.
    np.testing.assert_array_equal(written["velocity predicted"][:, :2], new)
    assert written["velocity predicted"].shape == (len(case), 3)
    assert written.field_data["speed"][0] == 5.0


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_arrays_come_back_as_the_same_case(plates: Path, tmp_path: Path, suffix: str) -> None:
    case = open_folder(plates)[0]
    write_case(tmp_path / f"plate_1{suffix}", case)
    again = open_folder(tmp_path / f"plate_1{suffix}")[0]
    assert again.parameters == case.parameters
    assert again.cells is not None
    assert case.cells is not None
    np.testing.assert_array_equal(again.positions, case.positions)
    np.testing.assert_array_equal(again.weights, case.weights)
    np.testing.assert_array_equal(again.cells.connectivity, case.cells.connectivity)
    for kind in ("fields", "categories", "cell_fields"):
        assert getattr(again, kind).keys() == getattr(case, kind).keys()
        for name, each in getattr(case, kind).items():
            np.testing.assert_array_equal(getattr(again, kind)[name], each)


def test_polyhedra_are_written_back(tmp_path: Path) -> None:
    faces = [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 5, 4], [1, 2, 6, 5], [2, 3, 7, 6], [3, 0, 4, 7]]
    stream = [len(faces)] + [entry for face in faces for entry in (len(face), *face)]
    corners = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], float)
    points = np.concatenate([corners, corners + np.array([0, 0, 1]), [[0.5, 0.5, 2.0]]])
    cells = [len(stream), *stream, 5, 4, 5, 6, 7, 8]
    pyvista.UnstructuredGrid(cells, [42, 14], points).save(tmp_path / "a.vtu")
    write_case(tmp_path / "b.vtu", read_mesh(tmp_path / "a.vtu"))
    again = pyvista.read(tmp_path / "b.vtu")
    assert again.volume == pytest.approx(1.0 + 1.0 / 3.0)
    assert again.get_cell(0).n_faces == 6


def test_a_cloud_becomes_points_that_can_be_seen(tmp_path: Path) -> None:
    case = Case("cloud", np.random.default_rng(0).normal(size=(7, 2)), {"u": np.arange(7.0)})
    write_case(tmp_path / "a.vtu", case)
    assert pyvista.read(tmp_path / "a.vtu").n_cells == 7


def test_a_field_that_does_not_fit_is_refused_and_nothing_written(tmp_path: Path) -> None:
    case = from_arrays(np.zeros((1, 8)))[0]
    with pytest.raises(ValueError, match=r"u: expected shape \(8,\)"):
        write_case(tmp_path / "a.npz", case, {"u": np.zeros(7)})
    with pytest.raises(FileError, match="a name that ends in"):
        write_case(tmp_path / "a.txt", case)
    assert list(tmp_path.iterdir()) == []


def test_a_structured_grid_is_written_with_its_cells(
    tmp_path: Path, plate: Callable[..., Any]
) -> None:
    del plate
    block = pyvista.ImageData(dimensions=(3, 4, 1)).cast_to_structured_grid()
    block.save(tmp_path / "a.vts")
    write_case(tmp_path / "b.vtu", open_folder(tmp_path / "a.vts")[0])
    assert pyvista.read(tmp_path / "b.vtu").area == pytest.approx(6.0)
