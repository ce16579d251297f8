"""Coverage is compared with its exact law: of t new samples, as many lie inside as a beta-binomial
number with the rank k and m + 1 - k says."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from funcattn.data import Sample, collate
from funcattn.problem import Field, Problem
from funcattn.serve.bands import (
    BANDS,
    SPREAD,
    TooFewSamplesError,
    conformal_quantile,
    read_bands,
)
from funcattn.surrogate import OutsideTrainingWarning, Surrogate
from funcattn.training.setup import RunError
from funcattn.trust.bands import calibrate, scores
from funcattn.trust.subject import FRESH

from .conftest import noisy_samples

COVERAGES = (0.5, 0.8, 0.9, 0.95)


def assert_covered(inside: int, asked: int, scored: int, coverage: float) -> None:
    rank = math.ceil((scored + 1) * coverage - 1e-9)
    law = stats.betabinom(asked, rank, scored + 1 - rank)
    low, high = law.ppf(0.001), law.ppf(0.999)
    assert low <= inside <= high, (inside, low, high)


def least_inside(asked: int, scored: int, coverage: float) -> float:
    rank = math.ceil((scored + 1) * coverage - 1e-9)
    return float(stats.betabinom(asked, rank, scored + 1 - rank).ppf(0.001))


def how_many_inside(subject, bands, samples, name) -> dict[float, int]:
    """Of the samples, by coverage."""
    scored = list(scores(subject, bands, samples))
    return {
        coverage: sum(
            each.worst[name] <= bands.factor(name, each.points, coverage) for each in scored
        )
        for coverage in COVERAGES
    }


class Oracle:
    """Knows the operator, not the noise."""

    problem = Problem(1, (), (Field("value"),))
    target_axes = (1,)
    name, headline = "oracle", "relative_l2"

    class data:  # noqa: N801
        path = "a file"
        classes = ()


@pytest.fixture
def oracle(untrained, monkeypatch):
    subject = replace(untrained("darcy"), task=Oracle())
    monkeypatch.setattr(
        type(subject), "predictions", lambda _, batch: torch.sin(6 * batch.positions)[None]
    )
    return subject


@pytest.mark.parametrize("spread", ["constant", "learned"])
def test_noise_of_known_size_is_covered_as_promised(oracle, spread):
    bands = calibrate(oracle, samples=noisy_samples(150, 40, 1), spread=spread)
    inside = how_many_inside(oracle, bands, noisy_samples(150, 40, 2), "value")
    for coverage in COVERAGES:
        assert_covered(inside[coverage], 150, bands.samples, coverage)


@pytest.mark.parametrize("points", [10, 200])
def test_calibration_at_another_resolution_keeps_the_promise_there(oracle, points):
    bands = calibrate(oracle, samples=noisy_samples(100, points, 1), spread="constant")
    assert bands.points == points
    inside = how_many_inside(oracle, bands, noisy_samples(150, points, 2), "value")
    for coverage in COVERAGES:
        assert_covered(inside[coverage], 150, bands.samples, coverage)


def test_the_factor_is_the_quantile_of_the_largest_of_many_normal_numbers(oracle):
    samples = [replace(s, target=torch.sin(6 * s.positions) + n) for s, n in _plain(500, 40)]
    bands = calibrate(oracle, coverage=0.9, samples=samples, spread="constant")
    # P(all of 40 below q) = (2 Phi(q) - 1)^40, which for the k-th of m scores is a beta number.
    reached = (2 * stats.norm.cdf(bands.factor("value", 40)) - 1) ** 40
    rank = math.ceil(501 * 0.9)
    low, high = stats.beta(rank, 501 - rank).ppf([0.001, 0.999])
    assert low < reached < high
    # Independent noise is the worst case of another number of points: the estimate has to follow,
    # and may be too wide, as the tail of a normal number falls faster than exponentially.
    four = stats.norm.ppf((1 + 0.9 ** (1 / 160)) / 2)
    assert 0.98 * four < bands.factor("value", 160) < 1.1 * four
    assert bands.factor("value", 10) == bands.factor("value", 40)


def _plain(count, points):
    random = torch.Generator().manual_seed(0)
    for _ in range(count):
        x = torch.rand(points, 1, generator=random)
        yield Sample(x, None, x), torch.randn(points, 1, generator=random)


def test_a_learned_spread_is_wide_where_the_noise_is(oracle):
    bands = calibrate(oracle, samples=noisy_samples(150, 40, 1), spread="learned")
    ends = torch.tensor([[[0.05], [0.95]]])
    low, high = bands.spread_of(Oracle.problem, torch.sin(6 * ends)[None], ends, None)[0]
    assert 2.0 < float(high / low) < 3.5  # exactly (1 + 1.9) / (1 + 0.1) = 2.6
    constant = calibrate(oracle, samples=noisy_samples(150, 40, 1), spread="constant")
    widths = []
    for each in (bands, constant):
        x = torch.linspace(0, 1, 40).reshape(1, 40, 1)
        around = each.around(Oracle.problem, torch.sin(6 * x)[None], x, None)
        widths.append(float((around.upper - around.lower).mean()))
    assert widths[0] < widths[1]


def test_another_number_of_points_keeps_the_coverage(oracle):
    bands = calibrate(oracle, samples=noisy_samples(150, 80, 1), spread="learned")
    least = {coverage: least_inside(100, bands.samples, coverage) for coverage in COVERAGES}
    fewer, more = noisy_samples(100, 20, 2), noisy_samples(100, 1280, 2)
    for samples in (fewer, more):
        inside = how_many_inside(oracle, bands, samples, "value")
        assert all(inside[coverage] >= least[coverage] for coverage in COVERAGES)
    unwidened = how_many_inside(oracle, replace(bands, points=10**9), more, "value")
    assert all(unwidened[coverage] < least[coverage] for coverage in COVERAGES)


def test_too_few_samples_are_said(oracle):
    with pytest.raises(TooFewSamplesError, match=r"at least 19 calibration samples, got 18"):
        calibrate(oracle, coverage=0.95, samples=noisy_samples(18, 5, 0))
    assert calibrate(oracle, coverage=0.95, samples=noisy_samples(19, 5, 0)).samples == 19


@pytest.mark.parametrize("coverage", [0.0, 1.0, 90.0])
def test_a_coverage_is_a_share(coverage):
    with pytest.raises(ValueError, match="between 0 and 1"):
        conformal_quantile([1.0] * 100, coverage)


def test_bounds_of_errors_and_quantities_hold(oracle):
    def largest_slope(field, sample):
        order = sample.positions[:, 0].argsort()
        return float(field[order, 0].diff().abs().max())

    slope = {"slope": largest_slope}
    bands = calibrate(oracle, samples=noisy_samples(100, 40, 1), quantities=slope)
    found = list(scores(oracle, bands, noisy_samples(100, 40, 2), slope))
    assert set(bands.quantities) == {
        "maximum of value",
        "minimum of value",
        "mean of value",
        "slope",
    }
    for name in bands.quantities:
        inside = sum(each.quantities[name] <= bands.quantity_bound(name) for each in found)
        assert_covered(inside, 100, bands.samples, 0.9)
    inside = sum(each.errors["all"] <= bands.error_bound() for each in found)
    assert_covered(inside, 100, bands.samples, 0.9)


def test_bands_come_back_as_they_were_kept(untrained):
    subject = untrained("darcy")
    kept = calibrate(subject, count=60, command="a test")
    read = read_bands(subject.run)
    assert read is not None
    assert replace(read, model=None) == replace(kept, model=None)
    batch = collate([subject.fresh(60)[0]])
    said = subject.predictions(batch)
    problem = subject.task.problem
    for mine, theirs in zip(
        *(each.around(problem, said, batch.positions, batch.values) for each in (kept, read)),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("name", [BANDS, SPREAD])
def test_changed_bands_are_refused(untrained, name):
    subject = untrained("darcy")
    calibrate(subject, count=60)
    path = subject.run.folder / name
    path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))
    with pytest.raises(RunError, match="changed"):
        read_bands(subject.run)


def test_bands_of_other_weights_are_refused(untrained):
    subject = untrained("darcy", networks=2)
    calibrate(subject, count=20)
    vars(subject.run)["network"] = subject.networks[1]
    with pytest.raises(RunError, match="calibrate again"):
        read_bands(subject.run)


@pytest.mark.parametrize("networks", [1, 3])
@pytest.mark.parametrize(
    "task",
    [
        "darcy",
        "burgers",
        *(
            pytest.param(name, marks=pytest.mark.full)
            for name in (
                "elasticity",
                "few_shot",
                "darcy_notch",
                "pipe",
                "navier_stokes",
                "plasticity",
                "airfoil",
                "airfrans",
            )
        ),
    ],
)
def test_every_task_is_covered_as_promised(untrained, task, networks):
    subject = untrained(task, networks)
    count = 60 if task in ("darcy", "burgers", "elasticity", "few_shot") else 45
    bands = calibrate(subject, coverage=0.9, count=count)
    assert bands.spread == ("ensemble" if networks > 1 else "learned")
    found = list(scores(subject, bands, subject.fresh(count, 2 * FRESH)))
    for name in bands.worst:
        for coverage in COVERAGES:
            if math.ceil((bands.samples + 1) * coverage - 1e-9) > bands.samples:
                continue
            inside = sum(s.worst[name] <= bands.factor(name, s.points, coverage) for s in found)
            assert_covered(inside, count, bands.samples, coverage)


def test_airfoils_have_a_bound_of_their_lift(untrained):
    subject = untrained("airfrans")
    subject = replace(subject, task=type(subject.task)(subject.run.settings))  # as it is opened
    bands = calibrate(subject, coverage=0.8, count=8)
    assert "lift" in bands.quantities
    assert "drag" not in bands.quantities  # panels slip


def test_a_finer_grid_is_covered(untrained):
    """By the estimate with an ensemble, which the grid means nothing to; else by samples of it."""
    ensemble = untrained("darcy", 3)
    fine = ensemble.fresh(60, 2 * FRESH, use_every=1)
    assert len(fine[0].positions) == 17**2
    bands = calibrate(ensemble, coverage=0.8, count=60)
    inside = how_many_inside(ensemble, bands, fine, "pressure")
    for coverage in COVERAGES:
        assert inside[coverage] >= least_inside(60, bands.samples, coverage)
    alone = untrained("darcy")
    bands = calibrate(alone, coverage=0.8, samples=alone.fresh(60, use_every=1))
    assert bands.points == 17**2
    inside = how_many_inside(alone, bands, fine, "pressure")
    for coverage in COVERAGES:
        assert_covered(inside[coverage], 60, bands.samples, coverage)


def test_own_data_from_fit_to_bands(tmp_path):
    random = np.random.default_rng(0)
    sources = random.normal(size=(60, 6, 6))
    size = {"width": 8, "layers": 1, "heads": 2, "bases": 4}
    surrogate = Surrogate(
        epochs=1,
        network=size,
        calibration=0.3,
        ensemble=2,
        folder=tmp_path / "run",
        yardsticks=False,
    ).fit(sources, 2 * sources + random.normal(size=sources.shape))
    splits = surrogate.splits()
    assert len(splits.calibration) == 18
    bands = surrogate.calibrate(0.9)
    assert (bands.samples, bands.spread, bands.networks) == (18, "ensemble", 2)
    assert "put aside" in bands.source
    new = random.normal(size=(100, 6, 6))
    truth = 2 * new + random.normal(size=new.shape)
    warnings.simplefilter("ignore", OutsideTrainingWarning)  # of the 100, some are rare ones
    for loaded in (surrogate, Surrogate.load(tmp_path / "run")):
        mean, lower, upper = loaded.bands(new)
        np.testing.assert_allclose(mean, loaded.predict(new), rtol=1e-5)
        inside = ((lower <= truth) & (truth <= upper)).all((1, 2)).sum()
        assert_covered(int(inside), 100, 18, 0.9)
    narrower = loaded.bands(new, coverage=0.5)
    assert (narrower.upper - narrower.lower < upper - lower).all()


def test_cases_can_be_given_and_validation_is_said():
    random = np.random.default_rng(0)
    sources = random.normal(size=(40, 6, 6))
    size = {"width": 8, "layers": 1, "heads": 2, "bases": 4}
    surrogate = Surrogate(epochs=1, network=size, yardsticks=False).fit(sources, sources)
    assert "chose the epoch" in surrogate.calibrate(0.8).source
    more = random.normal(size=(12, 6, 6))
    assert surrogate.calibrate(0.9, more, more).samples == 12
    with pytest.raises(TooFewSamplesError, match="at least 99"):
        surrogate.calibrate(0.99, more, more)


def test_labels_have_no_bands():
    random = np.random.default_rng(0)
    sources = random.normal(size=(30, 5, 5))
    size = {"width": 8, "layers": 1, "heads": 2, "bases": 4}
    surrogate = Surrogate(epochs=1, network=size, yardsticks=False)
    surrogate.fit(sources, (sources > 0).astype(int))
    with pytest.raises(ValueError, match="classifies points"):
        surrogate.calibrate()
