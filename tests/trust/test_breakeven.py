import inspect
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from funcattn.data import Sample, StoredSet
from funcattn.pde import airfrans, darcy_notch
from funcattn.tasks import TASKS
from funcattn.trust.breakeven import BreakEven, breakeven
from funcattn.trust.ladders import LADDERS, Rung, _moved, climb


def rung(error: float, seconds: float) -> Rung:
    return Rung({"nodes": 1}, error, seconds)


@pytest.fixture
def found() -> BreakEven:
    return BreakEven(
        task="darcy",
        model="funcattn",
        samples=1,
        error=0.05,
        data_seconds=100.0,
        training_seconds=50.0,
        training_note="as given",
        inference_seconds=0.01,
        rungs=[rung(0.2, 0.001), rung(0.04, 0.04), rung(0.045, 0.05), rung(0.001, 1.0)],
        reference_seconds=1.0,
    )


def test_the_cheapest_mesh_with_the_same_error_is_the_baseline(found):
    assert found.equal == rung(0.04, 0.04)
    assert found.speed_up == pytest.approx(4)
    assert found.weak_speed_up == pytest.approx(100)
    assert found.predictions == pytest.approx(150 / 0.03)
    assert "pays after 5,000 predictions" in found.in_words()


def test_a_slower_surrogate_never_pays(found):
    slow = replace(found, inference_seconds=0.05)
    assert math.isinf(slow.predictions)
    assert "never pays" in slow.in_words()


def test_where_no_mesh_is_as_accurate_the_data_s_counts(found):
    better = replace(found, error=1e-4)
    assert better.equal is None
    assert better.solver_seconds == 1.0


@pytest.mark.parametrize("name", ["darcy", "burgers", "elasticity"])
def test_finer_meshes_come_nearer_to_the_sample(name, untrained, monkeypatch):
    """The last rung is the mesh of the data, with the same draws: its error is that of float32."""
    subject = untrained(name)
    recipe = subject.task.recipe()
    last = {
        "darcy": {"nodes": 17, "keep": 1},
        "burgers": {"points": 128},
        "elasticity": {},
    }[name]
    coarse = {
        "darcy": {"nodes": 9, "keep": 1},
        "burgers": {"points": 48},
        "elasticity": {"around": 12, "radial": 1},
    }[name]
    monkeypatch.setitem(LADDERS, name, [coarse, last])
    assert recipe.parameters is not None
    data = subject.task.data
    first = data.train + data.validation
    samples = [subject.splits.test[i] for i in range(2)]
    rungs = list(climb(subject, samples, range(first, first + 2)))
    assert rungs[-1].error < 1e-5 < rungs[0].error < 1
    assert all(each.seconds > 0 for each in rungs)


def test_other_draws_are_seen(untrained, monkeypatch):
    """At other places of the set are other samples: nothing is compared with itself."""
    subject = untrained("darcy")
    monkeypatch.setitem(LADDERS, "darcy", [{"nodes": 17, "keep": 1}])
    samples = [subject.splits.test[0]]
    assert next(iter(climb(subject, samples, [0]))).error > 0.05


def test_a_sample_of_a_later_draw_is_solved_again(untrained, monkeypatch):
    """Where the first draw of a sample did not converge, its ladder has the draw that did."""
    subject = untrained("darcy")
    monkeypatch.setitem(LADDERS, "darcy", [{"nodes": 17, "keep": 1}])
    samples = [subject.splits.test[0]]
    first = subject.task.data.train + subject.task.data.validation
    monkeypatch.setattr(StoredSet, "attempts", lambda self, row: 2)  # noqa: ARG005
    assert next(iter(climb(subject, samples, [first]))).error > 0.05


def test_fewer_panels_come_nearer_to_the_sample(untrained, monkeypatch):
    """The last rung has the panels of the data: the same flow, on the airfoil and off it."""
    subject = untrained("airfrans")
    monkeypatch.setitem(LADDERS, "airfrans", [{"panels": n} for n in (20, 60, 200)])
    data = subject.task.data
    first = data.train + data.validation
    samples = [subject.splits.test[i] for i in range(2)]
    rungs = list(climb(subject, samples, range(first, first + 2)))
    errors = [each.error for each in rungs]
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    assert errors[2] < 1e-8  # mean square, of float32


@pytest.mark.parametrize("name", sorted(LADDERS))
def test_every_rung_takes_parameters_of_its_solver(name):
    task = TASKS[name]
    known = inspect.signature(panel_rung if name == "airfrans" else recipe_of(task)).parameters
    for changes in LADDERS[name]:
        assert set(changes) <= set(known)


def recipe_of(task):
    return task(task.defaults("smoke", "modern")).recipe().make


def panel_rung(*, panels):
    return airfrans.outline(airfrans.draw_design(np.random.default_rng(0)), panels=panels)


def test_every_spacing_of_the_notch_is_one_of_its_solver():
    coarsest = LADDERS["darcy_notch"][0]
    assert darcy_notch.sample(nodes=11, rng=np.random.default_rng(0), **coarsest)


def test_coarse_vorticity_can_be_solved(untrained, monkeypatch):
    """With longer steps too, for all samples: a rung that fails for one of them is none."""
    subject = untrained("navier_stokes")
    monkeypatch.setitem(LADDERS, "navier_stokes", LADDERS["navier_stokes"][:2])
    data = subject.task.data
    first = data.train + data.validation
    samples = [subject.splits.test[i] for i in range(2)]
    assert len(list(climb(subject, samples, range(first, first + 2)))) == 2


def test_every_mesh_of_elasticity_can_be_solved(untrained):
    """No rung is left out without a word for a mesh that there is not."""
    subject = untrained("elasticity")
    data = subject.task.data
    first = data.train + data.validation
    rungs = list(climb(subject, [subject.splits.test[0]], [first]))
    assert [rung.changes for rung in rungs] == LADDERS["elasticity"]
    assert rungs[-2].error < 0.01  # linear elasticity
    assert rungs[-2].seconds < rungs[-1].seconds


def test_a_run_tested_outside_of_its_range_is_refused(untrained):
    subject = untrained("airfrans")
    subject.task.data = replace(subject.task.data, split="reynolds")
    with pytest.raises(ValueError, match="split full"):
        breakeven(subject)


def test_smooth_fields_are_interpolated_well():
    def on(n: int) -> Sample:
        x = torch.linspace(0, 1, n)
        field = torch.sin(2 * x)[:, None] * torch.cos(x)[None]
        places = torch.stack(torch.meshgrid(x, x, indexing="ij"), -1).reshape(-1, 2)
        return Sample(places, None, field.reshape(-1, 1), grid=(n, n))

    found = _moved(on(9), on(23), periodic=False)
    truth = on(23).target
    lost = {kind: float((field - truth).abs().max()) for kind, field in found.items()}
    assert lost["linear"] < 1e-2
    assert lost["cubic"] < lost["linear"] / 10
    wave = torch.sin(2 * np.pi * torch.arange(16) / 16)[:, None]
    coarse = Sample(torch.zeros(16, 1), None, wave, grid=(16,))
    fine = Sample(torch.zeros(40, 1), None, torch.zeros(40, 1), grid=(40,))
    exact = torch.sin(2 * np.pi * torch.arange(40) / 40)[:, None]
    spectral = _moved(coarse, fine, periodic=True)["fourier"]
    torch.testing.assert_close(spectral.float(), exact, atol=1e-5, rtol=0)
    # A finer field is taken at the points that are asked for, short waves included.
    rough = torch.randn(32, 1, generator=torch.Generator().manual_seed(0))
    finer = Sample(torch.zeros(32, 1), None, rough, grid=(32,))
    wanted = Sample(torch.zeros(8, 1), None, torch.zeros(8, 1), grid=(8,))
    taken = _moved(finer, wanted, periodic=True)["fourier"]
    torch.testing.assert_close(taken.float(), rough[::4])


def test_data_from_elsewhere_are_refused(untrained):
    subject = untrained("darcy")
    task = subject.task
    elsewhere = replace(task.data, path="a.mat")
    task.data = elsewhere
    with pytest.raises(ValueError, match="a solver of ours made"):
        breakeven(subject)
