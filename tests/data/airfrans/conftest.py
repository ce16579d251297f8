"""A case of AirfRANS by hand, and cases of our own."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

# funcattn is imported in functions: not before the shape checks are in place.

NAME = "airFoil2D_SST_58.831_-3.563_2.815_4.916_10.078"
WALLS, LAYERS = 40, 5


class Hand:
    """A case as the public set has it, with all that should be read from it.

    The mesh are layers of nodes around NACA 2410, which grow from the wall; the fluid rests there.
    Both files have their points in an order of their own, in the plane z = 0.5, single precision.
    """

    def __init__(self, seed: int = 0) -> None:
        from funcattn.data.vtk_xml import VtkPoints
        from funcattn.pde.naca import four_digit
        from funcattn.pde.panel import signed_distance

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
        from funcattn.data.vtk_xml import write_vtk

        (folder / name).mkdir(exist_ok=True)
        write_vtk(folder / name / f"{name}_internal.vtu", self.mesh)
        write_vtk(folder / name / f"{name}_aerofoil.vtp", self.outline)
        return folder

    def read(self, folder: Path, name: str = NAME) -> dict[str, np.ndarray]:
        """What is read after it was written."""
        from funcattn.data.airfrans import read_case

        return read_case(self.write(folder, name), name)

    def change_mesh(self, **values: np.ndarray) -> None:
        self.mesh = replace(self.mesh, values={**self.mesh.values, **values})

    def change_outline(self, **values: np.ndarray) -> None:
        self.outline = replace(self.outline, values={**self.outline.values, **values})


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def solved() -> Callable[..., tuple[str, dict[str, np.ndarray]]]:
    """Makes a case of our own, and its name."""

    def solve(seed: int, **parameters: int) -> tuple[str, dict[str, np.ndarray]]:
        from funcattn.data.airfrans import case_name
        from funcattn.pde.panel import sample

        rng = np.random.default_rng(seed)
        case = sample(**{"panels": 60, "field_points": 150} | parameters, rng=rng)
        digits = case["digits"][[0, 1, 3] if case["family"] == 4 else [0, 1, 2, 3]]
        speed = float(np.hypot(*case["features"][0, 2:4]))
        return case_name(speed, float(case["incidence"]), digits.tolist()), dict(case)

    return solve


@pytest.fixture
def assert_same() -> Callable[..., None]:
    """Compares cases to the bit."""

    def compare(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> None:
        assert set(one) == set(other)
        for key in one:
            np.testing.assert_array_equal(one[key], other[key], err_msg=key)
            assert one[key].dtype == other[key].dtype, key

    return compare
