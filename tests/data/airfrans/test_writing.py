"""Cases of our own come back to the bit, and what would not is not written."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from funcattn.data.airfrans import VISCOSITY, parse_name, read_case, read_manifest, write_cases
from funcattn.data.vtk_xml import read_vtk

NAME = "airFoil2D_SST_58.831_-3.563_2.815_4.916_10.078"
WALLS = 40
Solved = Callable[..., tuple[str, dict[str, np.ndarray]]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cases_of_our_own_come_back_to_the_bit(
    tmp_path: Path, solved: Solved, assert_same: Callable[..., None], dtype: type
) -> None:
    cases = dict(solved(seed) for seed in range(8))
    assert {case["family"].item() for case in cases.values()} == {4, 5}
    for case in cases.values():
        for key in ("position", "features", "target", "length", "shear"):
            case[key] = case[key].astype(dtype)
    names = list(cases)
    splits = {"full_train": names[:6], "full_test": tuple(names[6:])}
    root = tmp_path / "new" / "set"
    write_cases(root, cases, splits)
    assert read_manifest(root) == {"full_train": names[:6], "full_test": names[6:]}
    for name, case in cases.items():
        read = read_case(root, name)
        speed = read.pop("speed")
        assert_same(read, case)
        assert speed == pytest.approx(case["reynolds"] * VISCOSITY, rel=1e-6)
    files = {path.relative_to(root).as_posix() for path in root.rglob("*")}
    expected = {f"{n}/{n}_{part}" for n in names for part in ("internal.vtu", "aerofoil.vtp")}
    assert {file for file in files if "/" in file} == expected
    assert {file for file in files if "/" not in file} == {"manifest.json", *names}


def test_what_was_read_can_be_written(
    tmp_path: Path, hand: Any, assert_same: Callable[..., None]
) -> None:
    shear = np.random.default_rng(0).random((WALLS, 2)).astype(np.float32)
    hand.change_outline(wallShearStress=shear[hand.mixed])
    case = hand.read(tmp_path)
    write_cases(tmp_path / "again", {NAME: case}, {"full_train": [NAME]})
    assert_same(read_case(tmp_path / "again", NAME), case)


def test_files_of_our_own_are_what_public_loaders_expect(tmp_path: Path, solved: Solved) -> None:
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


class Watched(dict[str, dict[str, np.ndarray]]):
    """Cases that note when they are asked for."""

    def __init__(self, cases: Iterable[tuple[str, dict[str, np.ndarray]]]) -> None:
        super().__init__(cases)
        self.asked: list[str] = []

    def __getitem__(self, name: str) -> dict[str, np.ndarray]:
        self.asked.append(name)
        return super().__getitem__(name)


@pytest.mark.usefixtures("as_a_user")
def test_cases_are_asked_for_one_by_one(tmp_path: Path, solved: Solved) -> None:
    cases = Watched(solved(seed) for seed in range(3))
    write_cases(tmp_path, cases, {"full_train": list(cases)})
    assert cases.asked == list(cases)


def test_the_manifest_comes_last(tmp_path: Path, solved: Solved) -> None:
    cases = dict(solved(seed) for seed in range(2))
    good, bad = cases
    cases[bad]["target"][3, 2] = np.nan
    with pytest.raises(ValueError, match=f"{bad}: expected target finite"):
        write_cases(tmp_path, cases, {"full_train": [good]})
    assert [path.name for path in tmp_path.iterdir()] == [good]
    assert read_case(tmp_path, good)["lift"] == cases[good]["lift"]


def test_splits_that_do_not_fit(tmp_path: Path, solved: Solved) -> None:
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
def test_cases_that_would_not_come_back(
    tmp_path: Path, solved: Solved, change: Any, message: str
) -> None:
    name, case = solved(0)
    change(case)
    with pytest.raises(ValueError, match=message):
        write_cases(tmp_path, {name: case}, {"full_train": [name]})
    assert not list(tmp_path.iterdir())


def test_surface_nodes_in_another_order_would_not_come_back(tmp_path: Path, solved: Solved) -> None:
    name, case = solved(0)
    for order in (np.roll(np.arange(60), 7), np.arange(60)[::-1]):
        turned = dict(case)
        for key in ("position", "features", "target"):
            turned[key] = np.concatenate([case[key][:60][order], case[key][60:]])
        for key in ("length", "shear"):
            turned[key] = case[key][order]
        with pytest.raises(ValueError, match="counterclockwise from the trailing edge"):
            write_cases(tmp_path, {name: turned}, {"full_train": [name]})
