"""A case by hand gives the features it should, whoever wrote its files and in whatever order."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from funcattn.data.airfrans import read_case
from funcattn.data.vtk_xml import VtkPoints

NAME = "airFoil2D_SST_58.831_-3.563_2.815_4.916_10.078"
FIVE = "airFoil2D_SST_43.597_5.932_3.551_3.1_1.0_18.252"
WALLS, LAYERS = 40, 5


def test_the_features_of_a_case_one_by_one(tmp_path: Path, hand: Any) -> None:
    case = hand.read(tmp_path)
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


def test_numbers_of_a_case(tmp_path: Path, hand: Any) -> None:
    case = hand.read(tmp_path)
    assert [case[key].item() for key in ("speed", "incidence", "family")] == [58.831, -3.563, 4]
    assert case["reynolds"] == pytest.approx(58.831 / 1.56e-5)
    assert case["digits"].tolist() == [2.815, 4.916, 0, 10.078]
    assert not {"shear", "lift", "drag"} & set(case)
    case = hand.read(tmp_path, FIVE)
    assert (case["family"], case["digits"].tolist()) == (5, [3.551, 3.1, 1, 18.252])


def test_surface_nodes_go_round_the_body_with_the_body_on_their_left(
    tmp_path: Path, hand: Any
) -> None:
    case = hand.read(tmp_path)
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
def test_the_order_in_the_files_does_not_matter(tmp_path: Path, hand: Any, seed: int) -> None:
    other = type(hand)(seed)
    one, two = hand.read(tmp_path), other.read(tmp_path)
    walls = slice(0, WALLS)
    # Unless the file begins right after the trailing edge, which is told from its first point.
    turned = np.roll(np.arange(WALLS), -1 if other.mixed[0] == 1 else 0)
    np.testing.assert_array_equal(two["position"][walls], one["position"][walls][turned])
    np.testing.assert_array_equal(two["features"][walls, 4:], one["features"][walls, 4:][turned])
    np.testing.assert_array_equal(two["length"], one["length"][turned])


@pytest.mark.parametrize("kind", ["one chain", "clockwise", "with a last point", "closed twice"])
def test_outlines_of_all_kinds(
    tmp_path: Path, hand: Any, assert_same: Callable[..., None], kind: str
) -> None:
    """Whatever lines it is drawn by, an outline is the same."""
    expected = hand.read(tmp_path)
    at, points, normals = hand.mixed.argsort(), hand.outline.points, hand.outline.values["Normals"]
    chain = np.append(at, at[0])[:: -1 if kind == "clockwise" else 1]
    if kind in ("with a last point", "closed twice"):
        chain = np.array([*at, WALLS, *(at[:1] if kind == "closed twice" else [])])
        points, normals = (np.concatenate([a, a[at[:1]]]) for a in (points, normals))
    edges = np.stack([chain[:-1], chain[1:]], axis=1)
    hand.outline = VtkPoints(points, {"Normals": normals}, edges)
    assert_same(hand.read(tmp_path), expected)


def test_a_blunt_trailing_edge_begins_with_its_upper_corner(tmp_path: Path, hand: Any) -> None:
    # The trailing edge is moved up, and its neighbour below it down, to the same x.
    raised = hand.wall.copy()
    raised[0], raised[-1] = (1.0, 0.002), (1.0, -0.002)
    shift = (raised - hand.wall)[[0, -1]]
    for of, points in ((hand.place, hand.mesh.points), (hand.mixed.argsort(), hand.outline.points)):
        points[of[[0, WALLS - 1]], :2] += shift
    case = hand.read(tmp_path)
    np.testing.assert_array_equal(case["position"][:WALLS], raised)


@pytest.mark.parametrize("what", ["normals", "distance", "double", "third coordinate"])
def test_other_conventions_give_the_same_features(tmp_path: Path, hand: Any, what: str) -> None:
    expected = hand.read(tmp_path)
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
    case = hand.read(tmp_path)
    assert set(case) == set(expected)
    for key in case:
        np.testing.assert_allclose(case[key], expected[key], rtol=1e-6, atol=1e-7, err_msg=key)
        assert case[key].dtype == expected[key].dtype


def test_distance_on_the_surface_is_zero_whatever_the_file_says(tmp_path: Path, hand: Any) -> None:
    expected = hand.read(tmp_path)
    off = hand.mesh.values["implicit_distance"] + np.float32(1e-9)
    hand.change_mesh(implicit_distance=off)
    case = hand.read(tmp_path)
    assert (case["features"][:WALLS, 4] == 0).all()
    np.testing.assert_allclose(case["features"], expected["features"], atol=2e-9)


def test_nodes_in_one_place_share_its_length(tmp_path: Path, hand: Any) -> None:
    expected = hand.read(tmp_path)
    again = hand.place[7]  # a wall node a second time, at the end of the file
    hand.mesh = VtkPoints(
        np.concatenate([hand.mesh.points, hand.mesh.points[[again]]]),
        {key: np.concatenate([a, a[[again]]]) for key, a in hand.mesh.values.items()},
    )
    case = hand.read(tmp_path)
    assert case["surface"].sum() == WALLS + 1
    np.testing.assert_array_equal(case["position"][7], case["position"][8])
    np.testing.assert_array_equal(np.delete(case["features"], 8, axis=0), expected["features"])
    assert case["length"][7] == case["length"][8] == expected["length"][7] / 2
    assert case["length"].sum() == pytest.approx(expected["length"].sum())


def test_shear_is_read_where_it_is(tmp_path: Path, hand: Any) -> None:
    shear = np.random.default_rng(0).random((WALLS, 2)) * [1.0, -0.1]
    hand.change_outline(wallShearStress=shear[hand.mixed])
    case = hand.read(tmp_path)
    np.testing.assert_array_equal(case["shear"], shear.astype(np.float32))


def test_a_box_keeps_the_nodes_in_it(tmp_path: Path, hand: Any) -> None:
    case = hand.read(tmp_path)
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
