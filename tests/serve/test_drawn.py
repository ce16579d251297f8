"""Inputs from what people draw: the points and fields of the training set, and its answers."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from funcattn.pde import airfoil, burgers, darcy, elasticity, navier_stokes, panel, pipe, plasticity
from funcattn.serve.drawn import EDITORS, REFINEMENTS, Editor
from funcattn.tasks import TASKS

Draw = Callable[[np.random.Generator], dict[str, Any]]


def editor_of(task: str, **changes: Any) -> Editor:
    data = asdict(TASKS[task].defaults("smoke", "modern").data)
    return EDITORS[task](data | changes)


def silent(done: float) -> None:
    """No progress."""


@pytest.mark.parametrize("task", list(EDITORS))
def test_default_and_random_parameters_are_inputs_of_the_task(task: str) -> None:
    editor, problem = editor_of(task), TASKS[task].problem
    form = editor.form()
    assert form["kind"] in ("paint", "curve", "handles", "sliders", "stir", "points")
    for parameters in (editor.default(), editor.random(np.random.default_rng(0))):
        sizes = []
        for refine in REFINEMENTS[:2]:
            drawing = editor.draw(parameters, refine)
            n = len(drawing.positions)
            assert drawing.positions.shape == (n, problem.space)
            assert (drawing.values is None) == (problem.input_channels == 0)
            if drawing.values is not None:
                assert drawing.values.shape == (n, problem.input_channels)
            if drawing.grid is not None:
                assert int(np.prod(drawing.grid)) == n
            if drawing.places is not None:
                assert drawing.places.shape == (n, 2)
            if drawing.triangles is not None:
                assert drawing.triangles.shape[1] == 3
                assert 0 <= drawing.triangles.min() <= drawing.triangles.max() < n
            sizes.append(n)
        assert sizes[1] > 1.5 * sizes[0]


@pytest.mark.parametrize("task", list(EDITORS))
def test_what_is_drawn_at_random_differs_by_seed_alone(task: str) -> None:
    editor = editor_of(task)
    first, again, other = (editor.random(np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not all(np.array_equal(first[name], other[name]) for name in first)


def test_the_stress_is_that_of_the_training_set() -> None:
    editor, rng = editor_of("elasticity"), np.random.default_rng(3)
    parameters = editor.random(rng)
    sample = elasticity.sample(rng=np.random.default_rng(3))
    np.testing.assert_allclose(editor.draw(parameters, 1).positions, sample["points"], atol=1e-12)
    found = editor.solve(parameters, 1, silent)["von Mises stress"]
    np.testing.assert_allclose(found, sample["stress"], rtol=1e-8)


def test_triangles_fill_the_sheet_between_the_outermost_points() -> None:
    drawing = editor_of("elasticity").draw({"radii": [0.3] * 11}, 1)
    assert drawing.triangles is not None
    a, b, c = drawing.positions[drawing.triangles].swapaxes(0, 1)
    areas = 0.5 * ((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0])
    # All turn the same way, so that none overlaps another.
    assert (areas < 0).all() or (areas > 0).all()
    assert 0.55 < abs(areas.sum()) < 1 - np.pi * 0.3**2


def test_the_flow_in_a_pipe_is_that_of_the_training_set() -> None:
    editor = editor_of("pipe", nodes=17, use_every=2)
    parameters = editor.random(np.random.default_rng(5))
    design = np.concatenate([parameters["heights"], parameters["slopes"]])
    x, y, start = pipe.channel(design, 17)
    drawing = editor.draw(parameters, 1)
    assert drawing.values is not None
    np.testing.assert_array_equal(drawing.values.reshape(9, 9, 2)[..., 1], y[::2, ::2])
    found = editor.solve(parameters, 1, silent)["velocity along x"]
    truth = pipe.solve(x, y, start).velocity[0, ::2, ::2]
    np.testing.assert_array_equal(found, truth.ravel())


def test_the_flow_past_an_airfoil_is_that_of_the_training_set() -> None:
    editor = editor_of("airfoil", use_every=5, coarsening=2)
    parameters = editor.random(np.random.default_rng(2))
    sample = airfoil.sample(
        wake_cells=25, surface_cells=60, normal_cells=25, stride=5, rng=np.random.default_rng(2)
    )
    drawing = editor.draw(parameters, 1)
    places = drawing.positions.reshape(*sample["x"].shape, 2)
    np.testing.assert_array_equal(places, np.stack([sample["x"], sample["y"]], axis=-1))
    seen: list[float] = []
    found = editor.solve(parameters, 1, seen.append)["Mach number"]
    np.testing.assert_array_equal(found, sample["flow"][4].ravel())
    assert seen[-1] == 1.0
    assert min(seen) >= 0.0


def test_the_motion_of_a_block_is_that_of_the_training_set() -> None:
    editor = editor_of("plasticity", coarsening=10)
    parameters = editor.random(np.random.default_rng(4))
    sample = plasticity.sample(columns=11, rows=4, rng=np.random.default_rng(4))
    drawing = editor.draw(parameters, 1)
    assert drawing.values is not None
    np.testing.assert_allclose(drawing.values.reshape(11, 4)[:, 0], sample["die"])
    found = editor.solve(parameters, 1, silent)
    motion = sample["motion"].reshape(44, 20, 4)
    np.testing.assert_array_equal(found["position"], motion[..., :2].swapaxes(0, 1))
    np.testing.assert_array_equal(found["displacement"][-1], motion[:, -1, 2:])
    assert drawing.places is not None
    np.testing.assert_allclose(drawing.places, motion[:, 0, :2])


def test_the_flow_by_panels_is_that_of_the_training_set() -> None:
    editor = editor_of("airfrans", field_points=50)
    parameters = editor.random(np.random.default_rng(1))
    sample = panel.sample(field_points=50, rng=np.random.default_rng(1))
    drawing = editor.draw(parameters, 1)
    on = sample["surface"].astype(bool)
    assert drawing.values is not None
    np.testing.assert_allclose(drawing.values[: on.sum()], sample["features"][on])
    found = editor.solve(parameters, 1, silent)
    np.testing.assert_allclose(found["velocity"][: on.sum()], sample["target"][on, :2])


def test_a_curve_is_read_as_the_polynomial_through_its_values() -> None:
    editor = editor_of("burgers", nodes=128, use_every=4)
    x = np.arange(16) / 16
    drawing = editor.draw({"initial": np.sin(2 * np.pi * x)}, 1)
    assert drawing.values is not None
    np.testing.assert_allclose(drawing.values, np.sin(2 * np.pi * drawing.positions), atol=1e-12)
    # More values than points of the grid.
    x = np.arange(100) / 100
    fine = editor.draw({"initial": np.sin(2 * np.pi * x)}, 1)
    assert fine.values is not None
    np.testing.assert_allclose(fine.values, drawing.values, atol=1e-12)
    found = editor.solve({"initial": np.sin(2 * np.pi * x)}, 1, silent)["final velocity"]
    wave = np.sin(2 * np.pi * np.arange(128) / 128)
    truth = burgers.solve(wave, viscosity=0.1, length=2 * np.pi)[::4]
    np.testing.assert_allclose(found, truth, atol=1e-10)


def test_a_painted_field_keeps_its_place_at_every_resolution() -> None:
    editor = editor_of("darcy", nodes=17, use_every=2)
    painted = np.full((4, 8), 3.0)
    painted[3, 0] = 12.0
    for refine in REFINEMENTS:
        drawing = editor.draw({"permeability": painted}, refine)
        assert drawing.values is not None
        x, y = drawing.positions.T
        inside = (x >= 0.75) & (y < 0.125)
        np.testing.assert_array_equal(drawing.values[:, 0] == 12.0, inside)
    found = editor.solve({"permeability": np.full((2, 2), 3.0)}, 1, silent)["pressure"]
    np.testing.assert_allclose(found, darcy.solve(np.full((17, 17), 3.0))[::2, ::2].ravel())


def test_frames_of_a_stirred_fluid_follow_each_other() -> None:
    editor = editor_of("navier_stokes", nodes=16, use_every=2)
    parameters = editor.default()
    given = editor.draw(parameters, 1).values
    sought = editor.solve(parameters, 1, silent)["vorticity"]
    assert given is not None
    assert (given.shape, sought.shape) == ((64, 10), (10, 64))
    x = np.arange(16) / 16

    def bell(centre: float) -> Any:
        away = (x - centre + 0.5) % 1.0 - 0.5
        return sum(np.exp(-0.5 * ((away + k) / 0.12) ** 2) for k in (-1, 0, 1))

    start = np.outer(bell(0.35) - bell(0.65), bell(0.5))
    frames = navier_stokes.solve(
        start - start.mean(), navier_stokes.diagonal_forcing(16), times=[1.0, 11.0]
    )
    np.testing.assert_allclose(given[:, 0], frames[0, ::2, ::2].ravel(), atol=1e-10)
    np.testing.assert_allclose(sought[0], frames[1, ::2, ::2].ravel(), atol=1e-6)


BAD: dict[str, list[dict[str, Any]]] = {
    "darcy": [
        {},
        {"permeability": 3},
        {"permeability": [[3, -1], [3, 3]]},
        {"permeability": [[3, float("nan")], [3, 3]]},
        {"permeability": [["a", "b"], ["c", "d"]]},
        {"permeability": [[1, 2], [3]]},
        {"permeability": np.full((600, 2), 3.0)},
        {"permeabilty": np.full((6, 6), 3.0)},
    ],
    "burgers": [{"initial": [1, 2]}, {"initial": [1e40, 0, 0]}, {"initial": None}],
    "navier_stokes": [{"vortices": [[0, 0, 1]]}, {"vortices": [[0, 0, 1, 0.0]]}, {"vortices": []}],
    "elasticity": [{"radii": [0.3] * 10}, {"radii": [0.5] * 11}, {"radii": [True] * 11}],
    "plasticity": [{"heights": [1e9] * 8}],
    "airfoil": [{"upper_rear": 0.2}, {"upper_rear": [0.0]}, {"mach": 0.8}],
    "pipe": [{"heights": [0, 0, 0]}, {"heights": [0, 0, 0, 0], "slopes": [9, 0, 0, 0, 0]}],
    "airfrans": [{"family": 6}, {"thickness": 90}, {"incidence": 80}],
    "few_shot": [{"observations": [[1, 2, 3]]}, {"observations": [[0, 0]] * 201}],
}


@pytest.mark.parametrize(
    ("task", "parameters"), [(task, each) for task, all_of in BAD.items() for each in all_of]
)
def test_parameters_that_are_none_are_refused_in_words(
    task: str, parameters: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"expected .*, got|expected one of"):
        editor_of(task).draw(parameters, 1)


def test_a_task_without_a_solver_says_so() -> None:
    editor = editor_of("few_shot")
    assert not editor.solver
    with pytest.raises(ValueError, match="few_shot, which has none"):
        editor.solve(editor.default(), 1, silent)
