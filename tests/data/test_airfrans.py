"""The folder of AirfRANS: a case by hand gives the features it should, and ours come back."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from funcattn.data.airfrans import (
    VISCOSITY,
    CaseName,
    case_name,
    parse_name,
    public_split,
    read_case,
    read_manifest,
    write_cases,
)
from funcattn.data.vtk_xml import VtkPoints, read_vtk, write_vtk
from funcattn.pde.naca import four_digit
from funcattn.pde.panel import sample, signed_distance

NAME = "airFoil2D_SST_58.831_-3.563_2.815_4.916_10.078"
FIVE = "airFoil2D_SST_43.597_5.932_3.551_3.1_1.0_18.252"
WALLS, LAYERS = 40, 5


class Hand:
    """A case as the public set has it, with all that should be read from it.

    The mesh are layers of nodes around NACA 2410, which grow from the wall; the fluid rests there.
    Both files have their points in an order of their own, in the plane z = 0.5, single precision.
    """

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        polygon = four_digit(2.815, 4.916, 10.078, panels=WALLS)
        self.wall = polygon[:-1].astype(np.float32)  # counterclockwise, trailing edge first
        closed = np.concatenate([self.wall[-1:], self.wall, self.wall[:1]]).astype(np.float64)
        edge = np.diff(closed, axis=0)
        across = np.stack([edge[:, 1], -edge[:, 0]], axis=1)  # to the right of the way: outwards
        across /= np.linalg.norm(across, axis=1)[:, None]
        self.normal = across[:-1] + across[1:]
        self.normal /= np.linalg.norm(self.normal, axis=1)[:, None]
        size = np.linalg.norm(edge, axis=1)
        self.length = 0.5 * (size[:-1] + size[1:])
        layers = [self.wall + 0.3 * k * k * (self.wall - [0.4, 0.01]) for k in range(LAYERS)]
        nodes = np.concatenate(layers).astype(np.float32)
        self.order = np.concatenate([np.arange(WALLS), WALLS + rng.permutation(len(nodes) - WALLS)])
        outside = signed_distance(closed[1:], nodes[WALLS:].astype(np.float64))
        distance = np.concatenate([np.zeros(WALLS), outside])
        self.columns = {
            "position": nodes,
            "distance": distance.astype(np.float32),
            "velocity": (np.tanh(9 * distance)[:, None] * [50.0, -3.0]).astype(np.float32),
            "pressure": rng.normal(size=len(nodes)).astype(np.float32),
            "nut": rng.random(len(nodes)).astype(np.float32),
        }
        # Surface nodes are scattered among the others, whose order is then that of the answer.
        places = rng.permutation(len(nodes))
        first = np.sort(places[WALLS:])
        self.place = np.empty(len(nodes), np.int64)  # of each node in the file
        self.place[:WALLS], self.place[self.order[WALLS:]] = places[:WALLS], first
        in_file = np.argsort(self.place)
        flat = np.full((len(nodes), 1), 0.5, np.float32)
        self.mesh = VtkPoints(
            np.hstack([nodes, flat])[in_file],
            {
                "U": np.hstack([self.columns["velocity"], 0 * flat])[in_file],
                "p": self.columns["pressure"][in_file],
                "nut": self.columns["nut"][in_file],
                "implicit_distance": -self.columns["distance"][in_file],
            },
        )
        mixed = rng.permutation(WALLS)
        at = np.argsort(mixed)  # of each wall node in the outline
        edges = np.stack([at, np.roll(at, -1)], axis=1)[rng.permutation(WALLS)]
        edges[::3] = edges[::3, ::-1]
        inwards = np.hstack([-self.normal, np.zeros((WALLS, 1))]).astype(np.float32)
        self.outline = VtkPoints(
            np.hstack([self.wall, flat[:WALLS]])[mixed],
            {"Normals": inwards[mixed], "p": self.columns["pressure"][:WALLS][mixed]},
            edges,
        )
        self.mixed = mixed

    def write(self, folder: Path, name: str = NAME) -> Path:
        (folder / name).mkdir(exist_ok=True)
        write_vtk(folder / name / f"{name}_internal.vtu", self.mesh)
        write_vtk(folder / name / f"{name}_aerofoil.vtp", self.outline)
        return folder

    def change_mesh(self, **values: np.ndarray) -> "Hand":
        self.mesh = replace(self.mesh, values={**self.mesh.values, **values})
        return self

    def change_outline(self, **values: np.ndarray) -> "Hand":
        self.outline = replace(self.outline, values={**self.outline.values, **values})
        return self


@pytest.fixture
def hand() -> Hand:
    return Hand()


def assert_same(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> None:
    assert set(one) == set(other)
    for key in one:
        np.testing.assert_array_equal(one[key], other[key], err_msg=key)
        assert one[key].dtype == other[key].dtype, key


def test_the_features_of_a_case_one_by_one(tmp_path: Path, hand: Hand) -> None:
    case = read_case(hand.write(tmp_path), NAME)
    nodes = WALLS * LAYERS
    assert {key: case[key].shape for key in case} == {
        "position": (nodes, 2),
        "features": (nodes, 7),
        "target": (nodes, 4),
        "surface": (nodes,),
        "length": (WALLS,),
        **dict.fromkeys(["speed", "incidence", "reynolds", "family"], ()),
        "digits": (4,),
    }
    np.testing.assert_array_equal(case["surface"], np.arange(nodes) < WALLS)
    np.testing.assert_array_equal(case["position"], hand.columns["position"][hand.order])
    x, y, u, v, distance, normal_x, normal_y = case["features"].T
    np.testing.assert_array_equal(np.stack([x, y], axis=1), case["position"])
    angle = -3.563 * np.pi / 180
    np.testing.assert_allclose(u, 58.831 * np.cos(angle), rtol=1e-7)
    np.testing.assert_allclose(v, 58.831 * np.sin(angle), rtol=1e-7)
    np.testing.assert_array_equal(distance, hand.columns["distance"][hand.order])
    assert (distance[:WALLS] == 0).all()
    assert (distance[WALLS:] > 0).all()
    normal = np.stack([normal_x, normal_y], axis=1)
    np.testing.assert_allclose(normal[:WALLS], hand.normal, atol=1e-7)
    assert (normal[WALLS:] == 0).all()
    for column, name in ((case["target"][:, :2], "velocity"), (case["target"][:, 2], "pressure")):
        np.testing.assert_array_equal(column, hand.columns[name][hand.order])
    np.testing.assert_array_equal(case["target"][:, 3], hand.columns["nut"][hand.order])
    assert (case["target"][:WALLS, :2] == 0).all()
    np.testing.assert_allclose(case["length"], hand.length, rtol=1e-6)
    for key in ("position", "features", "target", "length"):
        assert case[key].dtype == np.float32


def test_numbers_of_a_case(tmp_path: Path, hand: Hand) -> None:
    hand.write(tmp_path)
    case = read_case(tmp_path, NAME)
    assert [case[key].item() for key in ("speed", "incidence", "family")] == [58.831, -3.563, 4]
    assert case["reynolds"] == pytest.approx(58.831 / 1.56e-5)
    assert case["digits"].tolist() == [2.815, 4.916, 0, 10.078]
    assert not {"shear", "lift", "drag"} & set(case)
    case = read_case(hand.write(tmp_path, FIVE), FIVE)
    assert (case["family"], case["digits"].tolist()) == (5, [3.551, 3.1, 1, 18.252])


def test_surface_nodes_go_round_the_body_with_the_body_on_their_left(
    tmp_path: Path, hand: Hand
) -> None:
    case = read_case(hand.write(tmp_path), NAME)
    wall = case["position"][case["surface"]].astype(np.float64)
    normal, length = case["features"][case["surface"], 5:], case["length"]
    assert wall[:, 0].argmax() == 0
    assert wall[1, 1] > wall[-1, 1]
    # Gauss: normals out of the body close, and their flux of x / 2 is its area.
    x, y = wall.T
    area = 0.5 * (x @ np.roll(y, -1) - y @ np.roll(x, -1))
    assert area > 0
    # A corner has no normal of its own: that leaves a few percent, at the trailing edge most.
    assert 0.5 * np.sum((wall * normal).sum(axis=1) * length) == pytest.approx(area, rel=0.1)
    np.testing.assert_allclose(length @ normal, 0, atol=0.02)
    perimeter = np.linalg.norm(wall - np.roll(wall, 1, axis=0), axis=1).sum()
    assert length.sum() == pytest.approx(perimeter)


@pytest.mark.parametrize("seed", range(1, 6))
def test_the_order_in_the_files_does_not_matter(tmp_path: Path, seed: int) -> None:
    hand, other = Hand(0), Hand(seed)
    hand.write(tmp_path, NAME)
    other.write(tmp_path, FIVE)
    one, two = read_case(tmp_path, NAME), read_case(tmp_path, FIVE)
    walls = slice(0, WALLS)
    # Unless the file begins right after the trailing edge, which is told from its first point.
    turned = np.roll(np.arange(WALLS), -1 if other.mixed[0] == 1 else 0)
    np.testing.assert_array_equal(two["position"][walls], one["position"][walls][turned])
    np.testing.assert_array_equal(two["features"][walls, 4:], one["features"][walls, 4:][turned])
    np.testing.assert_array_equal(two["length"], one["length"][turned])


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
def test_files_with_cells_by_vtk(tmp_path: Path, hand: Hand, mode: str) -> None:
    expected = read_case(hand.write(tmp_path), NAME)
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
def test_outlines_of_all_kinds_by_vtk(tmp_path: Path, hand: Hand, kind: str) -> None:
    """Whatever cells VTK stores for it, an outline is the same."""
    expected = read_case(hand.write(tmp_path), NAME)
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


def test_a_blunt_trailing_edge_begins_with_its_upper_corner(tmp_path: Path, hand: Hand) -> None:
    # The trailing edge is moved up, and its neighbour below it down, to the same x.
    raised = hand.wall.copy()
    raised[0], raised[-1] = (1.0, 0.002), (1.0, -0.002)
    shift = (raised - hand.wall)[[0, -1]]
    for of, points in ((hand.place, hand.mesh.points), (hand.mixed.argsort(), hand.outline.points)):
        points[of[[0, WALLS - 1]], :2] += shift
    case = read_case(hand.write(tmp_path), NAME)
    np.testing.assert_array_equal(case["position"][:WALLS], raised)


@pytest.mark.parametrize("what", ["normals", "distance", "double", "third coordinate"])
def test_other_conventions_give_the_same_features(tmp_path: Path, hand: Hand, what: str) -> None:
    expected = read_case(hand.write(tmp_path), NAME)
    mesh, outline = hand.mesh, hand.outline
    if what == "normals":
        hand.change_outline(Normals=-outline.values["Normals"])
    elif what == "distance":
        hand.change_mesh(implicit_distance=-mesh.values["implicit_distance"])
    elif what == "double":
        # Nodes in double precision off the outline's single precision by less than its rounding.
        off = np.array([4e-8, -4e-8, 0.0])
        hand.mesh = replace(mesh, points=mesh.points + off)
        expected = {
            key: value.astype(np.float64) if value.dtype == np.float32 else value
            for key, value in expected.items()
        }
    else:
        hand.change_mesh(U=mesh.values["U"][:, :2])
        hand.change_outline(Normals=outline.values["Normals"][:, :2])
    case = read_case(hand.write(tmp_path), NAME)
    assert set(case) == set(expected)
    for key in case:
        np.testing.assert_allclose(case[key], expected[key], rtol=1e-6, atol=1e-7, err_msg=key)
        assert case[key].dtype == expected[key].dtype


def test_distance_on_the_surface_is_zero_whatever_the_file_says(tmp_path: Path, hand: Hand) -> None:
    expected = read_case(hand.write(tmp_path), NAME)
    off = hand.mesh.values["implicit_distance"] + np.float32(1e-9)
    case = read_case(hand.change_mesh(implicit_distance=off).write(tmp_path), NAME)
    assert (case["features"][:WALLS, 4] == 0).all()
    np.testing.assert_allclose(case["features"], expected["features"], atol=2e-9)


def test_nodes_in_one_place_share_its_length(tmp_path: Path, hand: Hand) -> None:
    expected = read_case(hand.write(tmp_path), NAME)
    again = hand.place[7]  # a wall node a second time, at the end of the file
    hand.mesh = VtkPoints(
        np.concatenate([hand.mesh.points, hand.mesh.points[[again]]]),
        {key: np.concatenate([a, a[[again]]]) for key, a in hand.mesh.values.items()},
    )
    case = read_case(hand.write(tmp_path), NAME)
    assert case["surface"].sum() == WALLS + 1
    np.testing.assert_array_equal(case["position"][7], case["position"][8])
    np.testing.assert_array_equal(np.delete(case["features"], 8, axis=0), expected["features"])
    assert case["length"][7] == case["length"][8] == expected["length"][7] / 2
    assert case["length"].sum() == pytest.approx(expected["length"].sum())


def test_shear_is_read_where_it_is(tmp_path: Path, hand: Hand) -> None:
    shear = np.random.default_rng(0).random((WALLS, 2)) * [1.0, -0.1]
    hand.change_outline(wallShearStress=shear[hand.mixed])
    case = read_case(hand.write(tmp_path), NAME)
    np.testing.assert_array_equal(case["shear"], shear.astype(np.float32))


def test_a_box_keeps_the_nodes_in_it(tmp_path: Path, hand: Hand) -> None:
    case = read_case(hand.write(tmp_path), NAME)
    low, high = [-0.5, -0.3], [1.4, 0.2]
    cropped = read_case(tmp_path, NAME, box=[low, high])
    inside = np.array([(low <= p).all() and (p <= high).all() for p in case["position"]])
    assert WALLS < inside.sum() < len(inside)
    for key in ("position", "features", "target", "surface"):
        np.testing.assert_array_equal(cropped[key], case[key][inside])
    np.testing.assert_array_equal(cropped["length"], case["length"])
    with pytest.raises(ValueError, match="expected a box around the airfoil"):
        read_case(tmp_path, NAME, box=[[0.5, -1], [2, 1]])
    with pytest.raises(ValueError, match=r"expected two corners, shape \(2, 2\), got \(4,\)"):
        read_case(tmp_path, NAME, box=[-2, 4, -1, 1])


def wrong(hand: Hand, what: str) -> None:
    """Make a case wrong in one way."""
    mesh, outline, wall_node = hand.mesh, hand.outline, hand.place[0]
    fluid_node = hand.place[WALLS + 3]
    u, normals = mesh.values["U"], outline.values["Normals"]
    if what == "node at rest":
        u[fluid_node] = 0
    elif what == "wall node missing":
        mesh.points[wall_node, :2] += 0.001
    elif what == "wall node cut away":
        mesh.points[wall_node, :2] += 0.001
        u[wall_node] = 1
    elif what == "two planes":
        mesh.points[::2, 2] = 0
    elif what == "millimetres":
        hand.mesh = replace(mesh, points=mesh.points * 1000)
    elif what == "open":
        hand.outline = replace(outline, edges=outline.edges[1:])
    elif what == "no edges":
        hand.outline = replace(outline, edges=outline.edges[:0])
    elif what == "branch":
        hand.outline = replace(outline, edges=np.concatenate([outline.edges, [[0, 20]]]))
    elif what == "two loops":
        at = hand.mixed.argsort()
        halves = [np.stack([part, np.roll(part, 1)], axis=1) for part in (at[:20], at[20:])]
        hand.outline = replace(outline, edges=np.concatenate(halves))
    elif what == "flat":
        for points in (mesh.points, outline.points):
            points[:, 1] = 0
    elif what == "tangents":
        hand.change_outline(Normals=normals[:, [1, 0, 2]] * np.float32([1, -1, 0]))
    elif what == "mixed normals":
        normals[: WALLS // 2] *= -1
    elif what == "long normals":
        hand.change_outline(Normals=2 * normals)
    elif what == "shear backwards":
        hand.change_outline(wallShearStress=np.tile([-1.0, 0, 0], (WALLS, 1)))
    elif what == "shear in another unit":
        hand.change_outline(wallShearStress=np.tile([1e30, 0, 0], (WALLS, 1)))
    elif what == "lengths":
        hand.change_outline(length=np.ones(WALLS))
    elif what == "negative lengths":
        hand.change_outline(length=np.append(-0.1, np.full(WALLS - 1, 2.12 / (WALLS - 1))))
    elif what == "stream":
        hand.mesh = replace(mesh, numbers={"stream": np.array([58.0, 3.0])})
    elif what == "digits":
        hand.mesh = replace(mesh, numbers={"digits": np.array([2.0, 4.0, 12.0])})
    elif what == "pressure missing":
        del mesh.values["p"]  # type: ignore[attr-defined]
    elif what == "pressure of three components":
        hand.change_mesh(p=u)
    elif what == "speed instead of velocity":
        hand.change_mesh(U=u[:, 0])
    elif what == "not a number":
        mesh.values["p"][fluid_node] = np.nan
    elif what == "infinite normal":
        normals[3] = np.inf


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("node at rest", "got 0 points without one and 1 nodes at rest: take mesh and outline"),
        ("wall node missing", "got 1 points without one and 1 nodes at rest"),
        ("wall node cut away", "got 1 points without one and 0 nodes at rest"),
        ("two planes", "expected a mesh in one plane z, in chords, got x, y and z from"),
        ("millimetres", "expected a mesh in one plane z, in chords"),
        ("open", "expected an outline that is one closed chain of 40 points, got 39 edges"),
        ("no edges", "expected an outline that is one closed chain of 40 points, got 0 edges"),
        ("branch", "expected an outline that is one closed chain of 40 points, got 41 edges"),
        ("two loops", "expected an outline that is one closed chain of 40 points, got 40 edges"),
        ("flat", "expected an outline that is one closed chain"),
        ("tangents", "expected Normals of length 1 across the outline, all to one side"),
        ("mixed normals", "expected Normals of length 1 across the outline, all to one side"),
        ("long normals", "expected Normals of length 1 across the outline, all to one side"),
        ("shear backwards", r"the opposite \(as OpenFOAM has it\): change unit or sign"),
        ("shear in another unit", r"below the square of the speed, .* got up to 1e\+30"),
        ("lengths", r"expected lengths that sum to the perimeter, 2\.\d+, got 1.0 .* sum 40.0"),
        ("negative lengths", r"expected lengths that sum to the perimeter, 2\.\d+, got -0.1"),
        ("stream", r"expected stream near \[58\.7\S* +-3\.6\S*\], as the name says, got \[58"),
        ("digits", r"expected digits near .*, as the name says, got \[ 2\. +4\. 12\.\]"),
        ("pressure missing", r"internal\.vtu: expected p in the point data, got U, nut, implicit"),
        ("pressure of three components", r"internal\.vtu: .* \(3 components in p, not 1\)"),
        ("speed instead of velocity", r"internal\.vtu: .* \(1 components in U, not 2\)"),
        ("not a number", r"internal\.vtu: .* \(1 numbers in p that are NaN or infinite\)"),
        ("infinite normal", r"aerofoil\.vtp: .* \(3 numbers in Normals that are NaN or infinite\)"),
    ],
)
def test_cases_that_are_wrong(tmp_path: Path, hand: Hand, what: str, message: str) -> None:
    wrong(hand, what)
    with pytest.raises(ValueError, match=message):
        read_case(hand.write(tmp_path), NAME)


def test_values_at_cells_are_refused(tmp_path: Path, hand: Hand) -> None:
    path = hand.write(tmp_path) / NAME / f"{NAME}_internal.vtu"
    content = path.read_bytes().replace(b"PointData>", b"CellData>")
    path.write_bytes(content)
    with pytest.raises(ValueError, match="values at cells are not read; turn them into point data"):
        read_case(tmp_path, NAME)


@pytest.mark.parametrize("part", ["internal.vtu", "aerofoil.vtp"])
def test_files_that_are_missing_or_cut_off(tmp_path: Path, hand: Hand, part: str) -> None:
    path = hand.write(tmp_path) / NAME / f"{NAME}_{part}"
    content = path.read_bytes()
    for kept in (0, 100, len(content) // 2, len(content) - 9):
        path.write_bytes(content[:kept])
        with pytest.raises(ValueError, match=f"{part}: expected a whole XML file of VTK"):
            read_case(tmp_path, NAME)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"{part}: expected a file of the case, got none"):
        read_case(tmp_path, NAME)


BAD_NAMES = [
    *("", "..", "/etc/passwd", "airFoil2D_SST", f"../{NAME}", f"{NAME}/..", f"{NAME}/{NAME}"),
    *(f"{NAME}_", f"{NAME}\n", f" {NAME}", NAME.replace("_", "-"), f"{NAME}_1_2", f"{NAME[:-7]}"),
    *(NAME.replace("58.831", word) for word in ("nan", "0.0", "-5.0", "1e3", "58..8", ".")),
    NAME.replace("58", "5\uff18"),  # a digit, but of another script
    NAME.replace("58", "9" * 400),
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=range(len(BAD_NAMES)))
def test_names_that_are_none_are_refused_everywhere(tmp_path: Path, name: str) -> None:
    message = "expected a name like airFoil2D_SST_58.831_-3.563_2.815_4.916_10.078"
    with pytest.raises(ValueError, match=message):
        parse_name(name)
    with pytest.raises(ValueError, match=message):
        read_case(tmp_path, name)
    with pytest.raises(ValueError, match=message):
        write_cases(tmp_path / "set", {name: {}}, {"full_train": []})
    (tmp_path / "manifest.json").write_text(json.dumps({"full_train": [NAME, name]}))
    with pytest.raises(ValueError, match=rf"manifest\.json: full_train: {message}"):
        read_manifest(tmp_path)
    assert not (tmp_path / "set").exists()


def test_names_are_those_of_the_public_set() -> None:
    four = CaseName(58.831, -3.563, (2.815, 4.916, 10.078))
    five = CaseName(43.597, 5.932, (3.551, 3.1, 1.0, 18.252))
    assert (parse_name(NAME), parse_name(FIVE)) == (four, five)
    assert (case_name(*four), case_name(*five)) == (NAME, FIVE)
    assert case_name(31.28349, -1e-5, (0.0, 0.0, 14.32)) == "airFoil2D_SST_31.283_0.0_0.0_0.0_14.32"
    assert parse_name("airFoil2D_SST_31_-0.0_0_6.98_14.32") == (31, 0, (0, 6.98, 14.32))


@pytest.mark.parametrize(
    ("speed", "incidence", "digits"),
    [
        (0.0001, 2.0, (2.0, 4.0, 12.0)),
        (50.0, np.nan, (2.0, 4.0, 12.0)),
        (np.inf, 2.0, (2.0, 4.0, 12.0)),
        (50.0, 2.0, (4.0, 12.0)),
        (50.0, 2.0, (2.0, 3.0, 0.0, 1.0, 12.0)),
    ],
    ids=["no speed", "no incidence", "infinite speed", "two digits", "five digits"],
)
def test_numbers_that_make_no_name(speed: float, incidence: float, digits: tuple[float]) -> None:
    with pytest.raises(ValueError, match="expected a name like airFoil2D_SST"):
        case_name(speed, incidence, digits)


def test_a_manifest(tmp_path: Path) -> None:
    lists = {"full_train": [NAME], "full_test": [FIVE], "scarce_train": [NAME], "aoa_test": []}
    (tmp_path / "manifest.json").write_text(json.dumps(lists))
    assert read_manifest(tmp_path) == lists
    assert read_manifest(str(tmp_path)) == lists


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "expected lists of cases in JSON"),
        ('{"full_train": [', "expected lists of cases in JSON"),
        ("[" * 100_000, "expected lists of cases in JSON"),
        (b"\xff\xfe{", "expected lists of cases in JSON"),
        ("[]", "expected lists of names by their keys"),
        ("{}", "expected lists of names by their keys"),
        ('{"full_train": "abc"}', "expected lists of names by their keys"),
        ('{"full_train": [1]}', "expected lists of names by their keys"),
        (f'{{"full_train": ["{NAME}", "{NAME}"]}}', f"once in full_train .*, got {NAME} more"),
        (f'{{"aoa_train": ["{NAME}"], "aoa_test": ["{NAME}"]}}', "once in aoa_train and the test"),
    ],
    ids=range(10),
)
def test_manifests_that_are_none(tmp_path: Path, content: str | bytes, message: str) -> None:
    content = content.encode() if isinstance(content, str) else content
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(ValueError, match=rf"manifest\.json: .*{message}"):
        read_manifest(tmp_path)


def test_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"manifest\.json: expected the lists of cases"):
        read_manifest(tmp_path)


def solved(seed: int, **parameters: int) -> tuple[str, dict[str, np.ndarray]]:
    """A case of our own, and its name."""
    rng = np.random.default_rng(seed)
    case = sample(**{"panels": 60, "field_points": 150} | parameters, rng=rng)
    digits = case["digits"][[0, 1, 3] if case["family"] == 4 else [0, 1, 2, 3]]
    speed = float(np.hypot(*case["features"][0, 2:4]))
    return case_name(speed, float(case["incidence"]), digits.tolist()), dict(case)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cases_of_our_own_come_back_to_the_bit(tmp_path: Path, dtype: type) -> None:
    cases = dict(solved(seed) for seed in range(8))
    assert {case["family"].item() for case in cases.values()} == {4, 5}
    for case in cases.values():
        for key in ("position", "features", "target", "length", "shear"):
            case[key] = case[key].astype(dtype)
    names = list(cases)
    splits = {"full_train": names[:6], "full_test": tuple(names[6:])}
    write_cases(tmp_path / "new" / "set", cases, splits)
    assert read_manifest(tmp_path / "new" / "set") == {
        "full_train": names[:6],
        "full_test": names[6:],
    }
    for name, case in cases.items():
        read = read_case(tmp_path / "new" / "set", name)
        speed = read.pop("speed")
        assert_same(read, case)
        assert speed == pytest.approx(case["reynolds"] * VISCOSITY, rel=1e-6)
    root = tmp_path / "new" / "set"
    files = {path.relative_to(root).as_posix() for path in root.rglob("*")}
    expected = {f"{n}/{n}_{part}" for n in names for part in ("internal.vtu", "aerofoil.vtp")}
    assert {file for file in files if "/" in file} == expected
    assert {file for file in files if "/" not in file} == {"manifest.json", *names}


def test_what_was_read_can_be_written(tmp_path: Path, hand: Hand) -> None:
    shear = np.random.default_rng(0).random((WALLS, 2)).astype(np.float32)
    hand.change_outline(wallShearStress=shear[hand.mixed])
    case = read_case(hand.write(tmp_path), NAME)
    write_cases(tmp_path / "again", {NAME: case}, {"full_train": [NAME]})
    assert_same(read_case(tmp_path / "again", NAME), case)


def test_files_of_our_own_are_what_public_loaders_expect(tmp_path: Path) -> None:
    """By their rules: edges of two points, normals into the body, and forces from both."""
    vtk_io = pytest.importorskip("vtkmodules.vtkIOXML")
    from vtkmodules.util.numpy_support import vtk_to_numpy

    name, case = solved(0, panels=200)
    write_cases(tmp_path, {name: case}, {"full_train": [name]})
    reader = vtk_io.vtkXMLPolyDataReader()
    reader.SetFileName(str(tmp_path / name / f"{name}_aerofoil.vtp"))
    reader.Update()
    outline = reader.GetOutput()
    values = outline.GetPointData()
    points = vtk_to_numpy(outline.GetPoints().GetData())
    p, normals = (vtk_to_numpy(values.GetArray(key)) for key in ("p", "Normals"))
    first, second = vtk_to_numpy(outline.GetLines().GetConnectivityArray()).reshape(-1, 2).T
    length = np.linalg.norm(points[second] - points[first], axis=1)
    middle = 0.25 * (p[first] + p[second])[:, None] * (normals[first] + normals[second])
    force = length @ middle  # pressure pushes along the normals into the body
    speed, angle, _ = parse_name(name)
    angle *= np.pi / 180
    lift = 2 * (force[1] * np.cos(angle) - force[0] * np.sin(angle)) / speed**2
    assert lift == pytest.approx(case["lift"].item(), rel=0.01)
    mesh = read_vtk(tmp_path / name / f"{name}_internal.vtu", {"implicit_distance": 1})
    assert (mesh.values["implicit_distance"] <= 0).all()


class Lazy(Mapping[str, dict[str, np.ndarray]]):
    """Cases that are made when asked for, and forgotten."""

    def __init__(self, seeds: range) -> None:
        self.names = {solved(seed)[0]: seed for seed in seeds}
        self.asked: list[str] = []

    def __getitem__(self, name: str) -> dict[str, np.ndarray]:
        self.asked.append(name)
        return solved(self.names[name])[1]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


@pytest.mark.usefixtures("as_a_user")
def test_cases_are_asked_for_one_by_one(tmp_path: Path) -> None:
    cases = Lazy(range(3))
    write_cases(tmp_path, cases, {"full_train": list(cases)})
    assert cases.asked == list(cases)


def test_the_manifest_comes_last(tmp_path: Path) -> None:
    cases = dict(solved(seed) for seed in range(2))
    good, bad = cases
    cases[bad]["target"][3, 2] = np.nan
    with pytest.raises(ValueError, match=f"{bad}: expected target finite"):
        write_cases(tmp_path, cases, {"full_train": [good]})
    assert [path.name for path in tmp_path.iterdir()] == [good]
    assert read_case(tmp_path, good)["lift"] == cases[good]["lift"]


def test_splits_that_do_not_fit(tmp_path: Path) -> None:
    name, case = solved(0)
    for splits, message in (
        ({"full_train": [name, NAME]}, f"splits: expected names of cases, got {NAME}"),
        ({"full_train": [name], "full_test": [name]}, "expected every case once in full_train"),
        ({"full_train": [".."]}, "expected a name like"),
        ({}, "expected lists of names by their keys"),
    ):
        with pytest.raises(ValueError, match=message):
            write_cases(tmp_path, {name: case}, splits)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda case: case.pop("length"), "expected the arrays position, .*, got position"),
        (lambda case: case.update(colour=np.zeros(3)), "at most .* averaged, got .*, colour"),
        (lambda case: case.update(target=case["target"][1:]), r"target finite .* \(210, 4\), got"),
        (lambda case: case.update(features=case["features"][:, 1:]), r"\(210, 7\), got .*\(210, 6"),
        (lambda case: case.update(length=case["length"][1:]), r"shear finite .* \(59, 2\)"),
        (lambda case: case.update(surface=case["surface"][::-1]), "60 surface nodes, .* in other"),
        (
            lambda case: case["surface"].__setitem__(60, True),
            "expected 60 surface nodes, .* got 61",
        ),
        (lambda case: case.update(position=case["position"] + 1), "got features .* otherwise"),
        (lambda case: case["features"].__setitem__((5, 2), 50.0), "got features .* otherwise"),
        (lambda case: case["features"].__setitem__((5, 4), 0.1), "got features .* otherwise"),
        (lambda case: case["features"].__setitem__((99, 5), 1.0), "got features .* otherwise"),
        (lambda case: case["features"].__setitem__((99, 4), -0.1), "got features .* otherwise"),
        (lambda case: case.update(target=case["target"].astype(np.float32)), "one precision"),
        (lambda case: case.update(lift=np.array([1.0])), "got lift .* otherwise"),
        (lambda case: case.update(drag=np.array(np.nan)), "got drag .* otherwise"),
        (lambda case: case.update(incidence=np.array(9.0)), "expected incidence near"),
        (lambda case: case.update(family=9 - case["family"]), "expected family near"),
        (lambda case: case.update(shear=-case["shear"]), "change unit or sign"),
    ],
    ids=range(18),
)
def test_cases_that_would_not_come_back(tmp_path: Path, change: Any, message: str) -> None:
    name, case = solved(0)
    change(case)
    with pytest.raises(ValueError, match=message):
        write_cases(tmp_path, {name: case}, {"full_train": [name]})
    assert not list(tmp_path.iterdir())


def test_surface_nodes_in_another_order_would_not_come_back(tmp_path: Path) -> None:
    name, case = solved(0)
    for order in (np.roll(np.arange(60), 7), np.arange(60)[::-1]):
        turned = dict(case)
        for key in ("position", "features", "target"):
            turned[key] = np.concatenate([case[key][:60][order], case[key][60:]])
        for key in ("length", "shear"):
            turned[key] = case[key][order]
        with pytest.raises(ValueError, match="counterclockwise from the trailing edge"):
            write_cases(tmp_path, {name: turned}, {"full_train": [name]})


def test_splits_of_a_thousand_cases() -> None:
    rng = np.random.default_rng(0)
    reynolds, incidence = rng.uniform(2e6, 6e6, 1000), rng.uniform(-5, 15, 1000)
    parts = {
        name: public_split(name, reynolds, incidence)
        for name in ("full", "scarce", "reynolds", "aoa")
    }
    for name, (train, test) in parts.items():
        expected = np.arange(800, 1000) if name == "scarce" else np.arange(1000)
        both = test if name == "scarce" else np.sort(np.concatenate([train, test]))
        np.testing.assert_array_equal(both, expected)
        assert train.dtype == test.dtype == np.int64
    np.testing.assert_array_equal(parts["full"][0], np.arange(800))
    np.testing.assert_array_equal(parts["scarce"][0], np.arange(200))
    # A half and three quarters of the ranges, as the 504 and 804 of the public set: within three
    # standard deviations, 16 and 14.
    assert abs(len(parts["reynolds"][0]) - 500) < 48
    assert abs(len(parts["aoa"][0]) - 750) < 42


def test_the_ends_of_the_ranges_are_for_the_test() -> None:
    reynolds = [2e6, 3e6, 3.0001e6, 4e6, 4.9999e6, 5e6, 6e6]
    assert [part.tolist() for part in public_split("reynolds", reynolds, [0.0] * 7)] == [
        [2, 3, 4],
        [0, 1, 5, 6],
    ]
    incidence = [-5, -2.5, -2.49, 0, 12.49, 12.5, 15]
    assert [part.tolist() for part in public_split("aoa", [4e6] * 7, incidence)] == [
        [2, 3, 4],
        [0, 1, 5, 6],
    ]
    assert [part.tolist() for part in public_split("full", [4e6] * 7, incidence)] == [
        [0, 1, 2, 3, 4],
        [5, 6],
    ]
    assert public_split("scarce", [4e6] * 7, incidence)[0].tolist() == [0]


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize(
    ("name", "reynolds", "incidence", "message"),
    [
        ("half", [4e6], [0.0], "expected a split among full, scarce, reynolds, aoa, got 'half'"),
        ("full", [4e6, 4e6], [0.0], r"for each case, got shapes \(2,\) and \(1,\)"),
        ("full", [[4e6]], [[0.0]], r"for each case, got shapes \(1, 1\) and \(1, 1\)"),
        ("full", [np.nan, 4e6], [0.0, 0.0], "expected a finite Reynolds number"),
        ("full", [], [], "got 0 and 0 of 0: take more cases"),
        ("scarce", [4e6] * 4, [0.0] * 4, "scarce: expected cases .* got 0 and 1 of 4"),
        ("reynolds", [4e6, 4e6], [0.0, 0.0], "reynolds: expected cases .* got 2 and 0 of 2"),
        ("aoa", [4e6, 4e6], [14.0, 13.0], "aoa: expected cases .* got 0 and 2 of 2"),
    ],
    ids=range(8),
)
def test_splits_that_are_none(
    name: Any, reynolds: list[float], incidence: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        public_split(name, reynolds, incidence)
