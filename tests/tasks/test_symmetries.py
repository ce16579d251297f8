"""What a symmetry makes of a sample is what the solver makes of the changed input."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree

from funcattn.data import Sample
from funcattn.pde import burgers, darcy, darcy_notch, elasticity, pipe, plasticity
from funcattn.pde import navier_stokes as flows
from funcattn.pde.elasticity_mesh import void_radius
from funcattn.tasks import TASKS
from funcattn.training.settings import default_settings

SHARE = 0.25
RANDOM = np.random.default_rng(0)
PERMEABILITY = darcy.sample(nodes=17, rng=RANDOM)["permeability"]
CURVE = burgers.sample(points=64, rng=RANDOM)["initial"]
VORTICITY = flows.sample(points=32, keep=32, frames=1, rng=RANDOM)["vorticity"][0]
BOUNDARY = darcy_notch.sample(nodes=41, rng=RANDOM)["boundary"]
CHANNEL = RANDOM.uniform(-0.4, 0.4, 9)
DIE = RANDOM.uniform(0, 8, 5)
VOID = RANDOM.normal(size=10)


def sample_of(name: str, **fields: np.ndarray) -> Sample:
    """What the task makes of one result of its solver."""
    task = TASKS[name](default_settings(name, "smoke", "modern"))
    return task.samples({key: value[None] for key, value in fields.items()})[0]


def darcy_flow(a: np.ndarray) -> Sample:
    return sample_of("darcy", permeability=a, pressure=darcy.solve(a, tolerance=1e-12))


def wave(initial: np.ndarray) -> Sample:
    return sample_of("burgers", initial=initial, final=burgers.solve(initial))


def flow(initial: np.ndarray) -> Sample:
    times = [0.1 * k for k in range(1, 21)]
    frames = flows.solve(initial, flows.diagonal_forcing(len(initial)), times=times)
    return sample_of("navier_stokes", vorticity=frames)


def notch(boundary: np.ndarray) -> Sample:
    return sample_of("darcy_notch", boundary=boundary, solution=darcy_notch.solve(boundary))


def channel(design: np.ndarray) -> Sample:
    x, y, velocity = pipe.channel(design, nodes=17)
    solved = pipe.solve(x, y, velocity)
    return sample_of("pipe", x=x, y=y, flow=solved.velocity)


def forging(knots: np.ndarray) -> Sample:
    solved = plasticity.solve(knots, columns=11, rows=4, frames=20)
    return sample_of("plasticity", die=solved["die"], motion=solved["motion"])


def sheet(coefficients: np.ndarray) -> Sample:
    solved = elasticity.solve(partial(void_radius, coefficients))
    return sample_of("elasticity", points=solved["points"], stress=solved["stress"])


def other_force_sign(w: np.ndarray) -> np.ndarray:
    return -np.roll(w.T, len(w) // 2, 0)


WAVES = np.arange(1, 6)
CASES: dict[tuple[str, str], tuple[Callable[..., Sample], np.ndarray, np.ndarray]] = {
    ("darcy", "mirrored along x"): (darcy_flow, PERMEABILITY, PERMEABILITY[::-1].copy()),
    ("darcy", "mirrored along y"): (darcy_flow, PERMEABILITY, PERMEABILITY[:, ::-1].copy()),
    ("darcy", "x and y exchanged"): (darcy_flow, PERMEABILITY, PERMEABILITY.T.copy()),
    ("burgers", "shifted"): (wave, CURVE, np.roll(CURVE, 16)),
    ("burgers", "mirrored, with the other sign"): (wave, CURVE, -np.roll(CURVE[::-1], 1)),
    ("navier_stokes", "shifted along the diagonal"): (
        flow,
        VORTICITY,
        np.roll(VORTICITY, (8, -8), (0, 1)),
    ),
    ("navier_stokes", "x and y exchanged, half a period, with the other sign"): (
        flow,
        VORTICITY,
        other_force_sign(VORTICITY),
    ),
    ("darcy_notch", "mirrored along x"): (notch, BOUNDARY, BOUNDARY[::-1].copy()),
    ("pipe", "upside down"): (channel, CHANNEL, -CHANNEL),
    ("plasticity", "mirrored along x"): (forging, DIE, DIE[::-1].copy()),
    ("elasticity", "mirrored along x"): (
        sheet,
        VOID,
        (VOID.reshape(5, 2) * np.stack([(-1.0) ** WAVES, -((-1.0) ** WAVES)], -1)).ravel(),
    ),
}


def test_every_symmetry_has_its_solver_here() -> None:
    declared = {(name, words) for name, task in TASKS.items() for words in task.symmetries}
    assert declared == CASES.keys()


@pytest.mark.parametrize(("name", "words"), [*CASES])
def test_a_moved_sample_is_the_solution_of_the_moved_input(name: str, words: str) -> None:
    solve, given, changed = CASES[name, words]
    first, second = solve(given), solve(changed)
    got = TASKS[name].symmetries[words](first, SHARE)
    order = torch.arange(len(got.positions))
    if got.grid is None:  # the points of a cloud have no order
        distance, partner = cKDTree(got.positions.numpy()).query(second.positions.numpy())
        assert distance.max() < 1e-6
        order = torch.from_numpy(partner)
    for part in ("positions", "values", "target"):
        mine, theirs = getattr(got, part), getattr(second, part)
        if mine is not None:
            torch.testing.assert_close(mine[order], theirs, rtol=0, atol=2e-5 * theirs.abs().max())
    scale = second.target.abs().max()
    assert (first.target - second.target).abs().max() > 0.01 * scale  # it does something
