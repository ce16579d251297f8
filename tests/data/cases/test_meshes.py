from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from funcattn.data.cases import Cells, open_folder, read_mesh
from funcattn.data.foreign import FileError

pyvista = pytest.importorskip("pyvista")


def test_a_mesh_has_fields_categories_parameters_cells_and_weights(
    plate: Callable[..., Any], tmp_path: Path
) -> None:
    grid = plate()
    grid.save(tmp_path / "a.vtu")
    case = read_mesh(tmp_path / "a.vtu")
    assert case.name == "a"
    np.testing.assert_array_equal(case["pressure"], grid.point_data["pressure"])
    assert case["velocity"].shape == (20, 3)
    assert set(case.categories) == {"kind", "material"}
    assert case.parameters == {"speed": 3.0}
    assert case.cells is not None
    np.testing.assert_array_equal(case.cells.connectivity, grid.cell_connectivity)
    np.testing.assert_array_equal(case.cell_fields["source"], grid.cell_data["source"])


def test_cell_data_is_brought_to_points_as_vtk_does_it(
    plate: Callable[..., Any], tmp_path: Path
) -> None:
    grid = plate()
    grid.save(tmp_path / "a.vtu")
    expected = grid.cell_data_to_point_data().point_data["source"]
    np.testing.assert_allclose(read_mesh(tmp_path / "a.vtu")["source"], expected, rtol=1e-12)


@pytest.mark.parametrize("suffix", [".vtu", ".vtk", ".vtp", ".vts", ".vti", ".vtr", ".stl", ".ply"])
def test_weights_sum_to_the_size_of_the_mesh(suffix: str, tmp_path: Path) -> None:
    block = pyvista.ImageData(dimensions=(3, 4, 5), spacing=(0.5, 1.0, 0.25))
    kinds = {
        ".vtu": block.cast_to_unstructured_grid,
        ".vtk": block.cast_to_unstructured_grid,
        ".vts": block.cast_to_structured_grid,
        ".vti": lambda: block,
        ".vtr": block.cast_to_rectilinear_grid,
    }
    mesh = kinds[suffix]() if suffix in kinds else pyvista.Sphere()
    mesh.save(tmp_path / f"a{suffix}")
    case = read_mesh(tmp_path / f"a{suffix}")
    assert case.weights is not None
    expected = mesh.volume if suffix in kinds else mesh.area
    assert case.weights.sum() == pytest.approx(expected, rel=1e-5)
    assert (case.weights > 0).all()


def test_cells_of_the_plane_are_cut_into_triangles() -> None:
    corners = np.array([0, 1, 2, 0, 1, 4, 3, 0, 1, 3, 4, 0, 1, 2, 3, 4])
    cells = Cells(corners, np.array([0, 3, 7, 11, 16]), np.array([5, 9, 8, 7]))
    triangles = cells.triangles()
    assert triangles is not None
    cut = {tuple(each) for each in triangles.tolist()}
    # A triangle, a quadrilateral, the same one as VTK's pixel, and a pentagon.
    assert cut == {(0, 1, 2), (0, 1, 4), (0, 4, 3), (0, 2, 3), (0, 3, 4)}
    assert len(triangles) == 1 + 2 + 2 + 3
    assert Cells(np.arange(4), np.array([0, 4]), np.array([10])).triangles() is None


def test_a_structured_mesh_knows_its_grid_in_our_order(tmp_path: Path) -> None:
    block = pyvista.ImageData(dimensions=(3, 4, 5))
    block.save(tmp_path / "a.vti")
    case = read_mesh(tmp_path / "a.vti")
    assert case.grid == (5, 4, 3)
    # The last axis of the grid is the fastest, and that is x.
    assert np.ptp(case.positions.reshape(5, 4, 3, 3)[0, 0], axis=0).tolist() == [2.0, 0.0, 0.0]


def test_surface_cells_beside_volumes_give_a_surface(tmp_path: Path) -> None:
    block = pyvista.ImageData(dimensions=(3, 3, 3)).cast_to_unstructured_grid()
    both = block.merge(block.extract_surface(algorithm="dataset_surface"), merge_points=True)
    both.save(tmp_path / "a.vtu")
    case = read_mesh(tmp_path / "a.vtu")
    assert case.weights is not None
    assert case.surface is not None
    assert case.weights.sum() == pytest.approx(8.0)
    assert case.surface.sum() == pytest.approx(24.0)
    middle = (case.positions == 1.0).all(axis=1)
    assert case.surface[middle].tolist() == [0.0]


def test_a_cloud_has_no_weights(tmp_path: Path) -> None:
    pyvista.PolyData(np.eye(3)).save(tmp_path / "a.vtp")
    assert read_mesh(tmp_path / "a.vtp").weights is None


def test_polyhedra_are_read(tmp_path: Path) -> None:
    faces = [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 5, 4], [1, 2, 6, 5], [2, 3, 7, 6], [3, 0, 4, 7]]
    stream = [len(faces)] + [entry for face in faces for entry in (len(face), *face)]
    corners = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], float)
    points = np.concatenate([corners, corners + np.array([0, 0, 1])])
    grid = pyvista.UnstructuredGrid([len(stream), *stream], [42], points)
    grid.save(tmp_path / "a.vtu")
    case = read_mesh(tmp_path / "a.vtu")
    assert case.weights is not None
    assert case.weights.sum() == pytest.approx(1.0)


def test_blocks_are_joined_and_numbered(tmp_path: Path) -> None:
    block = pyvista.ImageData(dimensions=(3, 3, 3)).cast_to_unstructured_grid()
    block["u"] = np.arange(27.0)
    pyvista.MultiBlock([block, block.translate((5.0, 0.0, 0.0))]).save(tmp_path / "a.vtm")
    case = read_mesh(tmp_path / "a.vtm")
    assert np.bincount(case["block"]).tolist() == [27, 27]
    assert case.weights is not None
    assert case.weights.sum() == pytest.approx(16.0)


def test_exodus_and_xdmf_files_are_read(tmp_path: Path) -> None:
    from vtkmodules.vtkIOExodus import vtkExodusIIWriter
    from vtkmodules.vtkIOXdmf2 import vtkXdmfWriter

    block = pyvista.ImageData(dimensions=(3, 4, 5)).cast_to_unstructured_grid()
    block["u"] = np.arange(60.0)
    names = (("a.exo", vtkExodusIIWriter), ("a.g", vtkExodusIIWriter), ("b.xdmf", vtkXdmfWriter),
             ("c.xmf", vtkXdmfWriter))  # fmt: skip
    for name, kind in names:
        writer = kind()
        writer.SetFileName(str(tmp_path / name))
        writer.SetInputData(block)
        writer.Write()
        case = read_mesh(tmp_path / name)
        np.testing.assert_array_equal(np.sort(case["u"]), np.arange(60.0))
        assert case.weights is not None
        assert case.weights.sum() == pytest.approx(24.0)


@pytest.mark.parametrize("kind", ["Unstructured", "Structured", "Rectilinear"])
def test_pieces_in_a_folder_are_one_case(kind: str, tmp_path: Path) -> None:
    from vtkmodules import vtkIOParallelXML

    block = pyvista.ImageData(dimensions=(3, 4, 5))
    block["u"] = np.arange(60.0)
    writer = getattr(vtkIOParallelXML, f"vtkXMLP{kind}GridWriter")()
    writer.SetFileName(str(tmp_path / f"a.pvt{kind[0].lower()}"))
    writer.SetInputData(getattr(block, f"cast_to_{kind.lower()}_grid")())
    writer.Write()
    (case,) = open_folder(tmp_path)
    np.testing.assert_array_equal(case["u"], np.arange(60.0))
    assert case.grid == (None if kind == "Unstructured" else (5, 4, 3))


GMSH_4 = """$MeshFormat
4.1 0 8
$EndMeshFormat
$Entities
1 1 1 0
9 0 0 0 0
1 0 0 0 1 0 0 1 7 2 9 -9
1 0 0 0 1 1 0 1 5 1 1
$EndEntities
$Nodes
2 5 1 9
0 9 0 1
9
0.5 0.5 0
2 1 0 4
1
2
3
4
0 0 0
1 0 0
1 1 0
0 1 0
$EndNodes
$Elements
3 4 1 4
0 9 15 1
1 9
1 1 1 1
2 1 2
2 1 2 2
3 1 2 3
4 1 3 4
$EndElements
"""
GMSH_2 = """$MeshFormat
2.2 0 8
$EndMeshFormat
$Nodes
5
9 0.5 0.5 0
1 0 0 0
2 1 0 0
3 1 1 0
4 0 1 0
$EndNodes
$Elements
4
1 15 2 0 9 9
2 1 2 7 1 1 2
3 2 2 5 1 1 2 3
4 2 2 5 1 1 3 4
$EndElements
"""
GMSH_DATA = """$NodeData
1
"u"
1
0.0
3
0
1
4
4 40.0
3 30.0
2 20.0
1 10.0
$EndNodeData
"""


class TestGmsh:
    @pytest.mark.parametrize("words", [GMSH_4, GMSH_2], ids=["4.1", "2.2"])
    def test_is_read_with_its_groups_and_fields(self, words: str, tmp_path: Path) -> None:
        (tmp_path / "a.msh").write_text(words + GMSH_DATA)
        case = read_mesh(tmp_path / "a.msh")
        corners = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]
        np.testing.assert_array_equal(case.positions, corners)  # not that of no cell
        np.testing.assert_array_equal(case["u"], [10, 20, 30, 40])
        # The edge at the bottom is group 7, the inside group 5.
        np.testing.assert_array_equal(case["physical_group"], [7, 7, 5, 5])
        assert case.cells is not None
        np.testing.assert_array_equal(case.cells.types, [3, 5, 5])
        np.testing.assert_allclose(case.weights, [1 / 3, 1 / 6, 1 / 3, 1 / 6])

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("hello", "format none; save it as format 4.1 or 2.2"),
            (GMSH_4.replace("4.1 0 8", "3 0 8"), "format 3;"),
            (GMSH_4[:200], "one that ends within Nodes"),
            (GMSH_4.replace("2 1 0 4", "2 1 0 400"), "lines where 400 were announced"),
            (GMSH_4.replace("4 1 3 4", "4 1 3 8"), "nodes that are not there"),
            (GMSH_4.replace("2 1 2 2\n", "2 1 99 2\n"), "elements of type 99"),
            (GMSH_4 + "\0", "one in binary; save it as text"),
        ],
        ids=["text", "format", "cut", "count", "nodes", "type", "binary"],
    )
    def test_that_is_damaged_says_how(self, words: str, message: str, tmp_path: Path) -> None:
        (tmp_path / "a.msh").write_text(words)
        with pytest.raises(FileError, match=rf"a\.msh: expected a mesh.* got .*{message}"):
            read_mesh(tmp_path / "a.msh")


FOAM = "FoamFile {{ version 2.0; format ascii; class {}; object {}; }}\n{}"


@pytest.fixture
def openfoam(tmp_path: Path) -> Path:
    """A case of one cell at two times."""
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
    case = tmp_path / "runs" / "case.1"
    for folder in ("system", "constant/polyMesh", "0", "5"):
        (case / folder).mkdir(parents=True)
    (case / "system" / "controlDict").write_text(
        FOAM.format("dictionary", "controlDict", "startTime 0; endTime 5; deltaT 1;")
    )
    for name, (kind, words) in mesh.items():
        (case / "constant" / "polyMesh" / name).write_text(FOAM.format(kind, name, words))
    for time, value in (("0", 1), ("5", 7)):
        (case / time / "p").write_text(
            FOAM.format(
                "volScalarField",
                "p",
                f"dimensions [0 2 -2 0 0 0 0]; internalField uniform {value};"
                "boundaryField { walls { type zeroGradient; } }",
            )
        )
    return case


def test_the_last_time_of_an_openfoam_case_is_read(openfoam: Path) -> None:
    case = read_mesh(openfoam)
    assert set(case["p"].tolist()) == {7.0}
    assert case.weights is not None
    assert case.weights.sum() == pytest.approx(1.0)
    series = read_mesh(openfoam, series=True)
    assert series.times is not None
    assert series.times.tolist() == [0.0, 5.0]
    assert series["p"][0].tolist() == [1.0, 7.0]


def test_openfoam_cases_in_a_folder_are_found(openfoam: Path) -> None:
    assert open_folder(openfoam.parent).names == ["case.1"]


class TestASeries:
    def frames(self, plate: Callable[..., Any], folder: Path) -> list[Any]:
        made = []
        for number in range(3):
            grid = plate(seed=number)
            grid.save(folder / f"flow_{number}.vtu")
            made.append(grid)
        return made

    def test_of_a_pvd_file_has_times_along_the_second_axis(
        self, plate: Callable[..., Any], tmp_path: Path
    ) -> None:
        frames = self.frames(plate, tmp_path)
        entries = "".join(
            f'<DataSet timestep="{0.5 * n}" part="0" file="flow_{n}.vtu"/>' for n in range(3)
        )
        (tmp_path / "flow.pvd").write_text(
            f'<VTKFile type="Collection" version="0.1"><Collection>{entries}</Collection></VTKFile>'
        )
        case = read_mesh(tmp_path / "flow.pvd")
        assert case.times is not None
        assert case.times.tolist() == [0.0, 0.5, 1.0]
        assert case["velocity"].shape == (20, 3, 3)
        for number, frame in enumerate(frames):
            np.testing.assert_array_equal(case["pressure"][:, number], frame["pressure"])
        last = read_mesh(tmp_path / "flow.pvd", series=False)
        np.testing.assert_array_equal(last["pressure"], frames[2]["pressure"])

    def test_of_paraviews_list_is_the_same(self, plate: Callable[..., Any], tmp_path: Path) -> None:
        self.frames(plate, tmp_path)
        (tmp_path / "flow.vtu.series").write_text(
            '{"files": [{"name": "flow_0.vtu", "time": 0}, {"name": "flow_2.vtu", "time": 2.5}]}'
        )
        case = read_mesh(tmp_path / "flow.vtu.series")
        assert case.times is not None
        assert case.times.tolist() == [0.0, 2.5]

    def test_on_meshes_that_differ_is_refused(
        self, plate: Callable[..., Any], tmp_path: Path
    ) -> None:
        plate(5).save(tmp_path / "a.vtu")
        plate(6).save(tmp_path / "b.vtu")
        (tmp_path / "c.series").write_text(
            '{"files": [{"name": "a.vtu", "time": 0}, {"name": "b.vtu", "time": 1}]}'
        )
        with pytest.raises(FileError, match="expected one mesh at all times, got other points"):
            read_mesh(tmp_path / "c.series")


class TestBadFiles:
    def test_that_are_cut_off_are_refused_with_their_name(
        self, plate: Callable[..., Any], tmp_path: Path
    ) -> None:
        plate().save(tmp_path / "a.vtu")
        content = (tmp_path / "a.vtu").read_bytes()
        (tmp_path / "b.vtu").write_bytes(content[: len(content) // 2])
        with pytest.raises(FileError, match=r"b\.vtu: expected a mesh that PyVista reads, got"):
            read_mesh(tmp_path / "b.vtu")

    def test_that_are_not_there_say_so(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"nothing\.vtu"):
            read_mesh(tmp_path / "nothing.vtu")

    def test_with_positions_that_are_not_finite_are_refused(
        self, plate: Callable[..., Any], tmp_path: Path
    ) -> None:
        grid = plate()
        grid.points[3, 1] = np.nan
        grid.save(tmp_path / "a.vtu")
        with pytest.raises(ValueError, match=r"a\.vtu: expected finite positions"):
            read_mesh(tmp_path / "a.vtu")
