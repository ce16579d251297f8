"""Cases whose files are damaged, or do not fit together, are refused and told why."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from funcattn.data.airfrans import read_case

NAME = "airFoil2D_SST_58.831_-3.563_2.815_4.916_10.078"
WALLS = 40


def put(array: np.ndarray, place: Any, values: Any) -> None:
    array[place] = values


def move_wall(hand: Any, velocity: float) -> None:
    hand.mesh.points[hand.place[0], :2] += 0.001
    hand.mesh.values["U"][hand.place[0]] = velocity


def draw(hand: Any, *edges: np.ndarray) -> None:
    hand.outline = replace(hand.outline, edges=np.concatenate(edges))


def round_of(chain: np.ndarray) -> np.ndarray:
    return np.stack([chain, np.roll(chain, 1)], axis=1)


def change_field(hand: Any, **fields: Any) -> None:
    hand.mesh = replace(hand.mesh, **fields)


FLUID = WALLS + 3
AT_REST = "got {} points without one and {} nodes at rest: take mesh and outline"
PLANE = "expected a mesh in one plane z, in chords, got x, y and z from"
CHAIN = "expected an outline that is one closed chain of {} points, got {} edges"
NORMALS = "expected Normals of length 1 across the outline, all to one side"
LENGTHS = r"expected lengths that sum to the perimeter, 2\.\d+, got"
WRONG = [
    ("node at rest", lambda h: put(h.mesh.values["U"], h.place[FLUID], 0), AT_REST.format(0, 1)),
    ("wall node missing", lambda h: move_wall(h, velocity=0), AT_REST.format(1, 1)),
    ("wall node cut away", lambda h: move_wall(h, velocity=1), AT_REST.format(1, 0)),
    ("two planes", lambda h: put(h.mesh.points, np.s_[::2, 2], 0), PLANE),
    ("millimetres", lambda h: change_field(h, points=h.mesh.points * 1000), PLANE),
    ("open", lambda h: draw(h, h.outline.edges[1:]), CHAIN.format(40, 39)),
    ("no edges", lambda h: draw(h, h.outline.edges[:0]), CHAIN.format(40, 0)),
    ("branch", lambda h: draw(h, h.outline.edges, [[0, 20]]), CHAIN.format(40, 41)),
    (
        "two loops",
        lambda h: draw(h, *map(round_of, np.split(h.mixed.argsort(), [20]))),
        CHAIN.format(40, 40),
    ),
    (
        "flat",
        lambda h: [put(f.points, np.s_[:, 1], 0) for f in (h.mesh, h.outline)],
        CHAIN.split(" of")[0],
    ),
    (
        "tangents",
        lambda h: h.change_outline(Normals=h.outline.values["Normals"][:, [1, 0, 2]] * [1, -1, 0]),
        NORMALS,
    ),
    ("mixed normals", lambda h: h.outline.values["Normals"][:20].__imul__(-1), NORMALS),
    ("long normals", lambda h: h.outline.values["Normals"].__imul__(2), NORMALS),
    (
        "shear backwards",
        lambda h: h.change_outline(wallShearStress=np.tile([-1.0, 0, 0], (WALLS, 1))),
        r"the opposite \(as OpenFOAM has it\): change unit or sign",
    ),
    (
        "shear in another unit",
        lambda h: h.change_outline(wallShearStress=np.tile([1e30, 0, 0], (WALLS, 1))),
        r"below the square of the speed, .* got up to 1e\+30",
    ),
    ("lengths", lambda h: h.change_outline(length=np.ones(WALLS)), f"{LENGTHS} 1.0 .* sum 40.0"),
    (
        "negative lengths",
        lambda h: h.change_outline(length=np.append(-0.1, np.full(39, 2.12 / 39))),
        f"{LENGTHS} -0.1",
    ),
    (
        "stream",
        lambda h: change_field(h, numbers={"stream": np.array([58.0, 3.0])}),
        r"expected stream near \[58\.7\S* +-3\.6\S*\], as the name says, got \[58",
    ),
    (
        "digits",
        lambda h: change_field(h, numbers={"digits": np.array([2.0, 4.0, 12.0])}),
        r"expected digits near .*, as the name says, got \[ 2\. +4\. 12\.\]",
    ),
    (
        "pressure missing",
        lambda h: h.mesh.values.pop("p"),
        r"internal\.vtu: expected p in the point data, got U, nut, implicit",
    ),
    (
        "pressure of three components",
        lambda h: h.change_mesh(p=h.mesh.values["U"]),
        r"internal\.vtu: .* \(ValueError: 3 components in p, not 1\)",
    ),
    (
        "speed instead of velocity",
        lambda h: h.change_mesh(U=h.mesh.values["U"][:, 0]),
        r"internal\.vtu: .* \(ValueError: 1 components in U, not 2\)",
    ),
    (
        "not a number",
        lambda h: put(h.mesh.values["p"], h.place[FLUID], np.nan),
        r"internal\.vtu: .* \(ValueError: 1 numbers in p that are NaN or infinite\)",
    ),
    (
        "infinite normal",
        lambda h: put(h.outline.values["Normals"], 3, np.inf),
        r"aerofoil\.vtp: .* \(ValueError: 3 numbers in Normals that are NaN or infinite\)",
    ),
]


@pytest.mark.parametrize(
    ("change", "message"), [each[1:] for each in WRONG], ids=[each[0] for each in WRONG]
)
def test_cases_that_are_wrong(
    tmp_path: Path, hand: Any, change: Callable[[Any], object], message: str
) -> None:
    change(hand)
    with pytest.raises(ValueError, match=message):
        hand.read(tmp_path)


def test_values_at_cells_are_refused(tmp_path: Path, hand: Any) -> None:
    path = hand.write(tmp_path) / NAME / f"{NAME}_internal.vtu"
    path.write_bytes(path.read_bytes().replace(b"PointData>", b"CellData>"))
    with pytest.raises(ValueError, match="values at cells are not read; turn them into point data"):
        read_case(tmp_path, NAME)


@pytest.mark.parametrize("part", ["internal.vtu", "aerofoil.vtp"])
def test_files_that_are_missing_or_cut_off(tmp_path: Path, hand: Any, part: str) -> None:
    path = hand.write(tmp_path) / NAME / f"{NAME}_{part}"
    content = path.read_bytes()
    for kept in (0, 100, len(content) // 2, len(content) - 9):
        path.write_bytes(content[:kept])
        with pytest.raises(ValueError, match=f"{part}: expected a whole XML file of VTK"):
            read_case(tmp_path, NAME)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"{part}: expected a file of the case, got none"):
        read_case(tmp_path, NAME)
