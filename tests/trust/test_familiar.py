import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from funcattn.data import collate
from funcattn.serve.familiar import FILE, OutsideTrainingWarning, pooled, read_familiarity, watched
from funcattn.serve.predictor import Predictor
from funcattn.surrogate import Surrogate
from funcattn.tasks.own import rows_of_sample
from funcattn.training.setup import RunError
from funcattn.trust.familiar import (
    SHARE,
    area_under_curve,
    familiarity_of,
    learn_familiarity,
    learned,
)
from funcattn.trust.subject import FRESH


def test_other_inputs_score_higher_and_are_warned_of(untrained):
    subject = untrained("darcy")
    known = learn_familiarity(subject)
    inside = subject.fresh(20, 2 * FRESH)
    outside = [_uniform(sample) for sample in inside]
    scores = [
        [score.worst for score in familiarity_of(subject, known, samples)]
        for samples in (inside, outside)
    ]
    assert area_under_curve(*scores) > 0.95
    predictor = Predictor(subject.task, subject.run.network)
    predictor.run = subject.run
    sample = outside[0]
    with pytest.warns(OutsideTrainingWarning, match="unlike the training data"):
        predictor.predict(sample.positions, sample.values, grid=sample.grid)
    found = predictor.familiarity(sample.positions, sample.values, grid=sample.grid)
    assert found[0].worst == pytest.approx(scores[1][0], rel=1e-4)


def _uniform(sample):
    """Within the range of the values, and without the other one of the two."""
    return replace(sample, values=torch.full_like(sample.values, 12.0))


def test_what_is_kept_comes_back(untrained):
    subject = untrained("darcy")
    kept, read = learn_familiarity(subject), read_familiarity(subject.run)
    samples = subject.fresh(3, 2 * FRESH)
    assert familiarity_of(subject, kept, samples) == familiarity_of(subject, read, samples)
    path = subject.run.folder / FILE
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(RunError, match="changed"):
        read_familiarity(subject.run)


def test_validation_samples_are_mostly_below_the_limit(untrained):
    subject = untrained("burgers")
    known = learn_familiarity(subject)
    held = subject.splits.validation
    scores = familiarity_of(subject, known, [held[i] for i in range(len(held))])
    assert max(score.worst for score in scores) <= 1 + 1e-9


def pooled_samples(count: int, seed: int) -> dict[str, torch.Tensor]:
    """Features of two layers, correlated and with heavy tails."""
    random = np.random.default_rng(seed)
    size = np.exp(0.5 * random.standard_normal((count, 1)))
    mixed = random.standard_normal((count, 9)) @ np.random.default_rng(0).standard_normal((9, 9))
    features = torch.from_numpy(size * mixed)
    return {"input": features[:, :3], "blocks.0": features[:, 3:]}


@pytest.mark.parametrize("held", [39, 100, 250])
def test_false_alarms_are_as_many_as_promised(held):
    """By one limit for both distances; a limit for each would be passed more often."""
    train, new = pooled_samples(200, 1), pooled_samples(2000, 2)
    validation = pooled_samples(held, 3)
    known = learned(train, validation)
    flagged = sum(score.worst > 1 for score in known.scores(new))
    rank = math.ceil((held + 1) * SHARE)
    law = stats.betabinom(2000, held + 1 - rank, rank)
    assert law.ppf(0.001) <= flagged <= law.ppf(0.999)
    # The promise is that of an average over calibrations.
    rates = []
    for seed in range(100, 120):
        known = learned(train, pooled_samples(held, seed))
        rates.append(np.mean([score.worst > 1 for score in known.scores(new)]))
    assert np.mean(rates) == pytest.approx(1 - rank / (held + 1), abs=0.02)


def test_either_distance_raises_the_alarm():
    known = learned(pooled_samples(200, 1), pooled_samples(99, 3))
    far = {name: 100 + rows for name, rows in pooled_samples(1, 4).items()}
    score = known.scores(far)[0]
    assert min(score) > 1
    assert (known.distances(far) / known.limits)[0].tolist() == pytest.approx(list(score))
    assert known.held == 99


def test_padding_does_not_count(untrained):
    subject = untrained("elasticity")
    samples = [subject.splits.train[i] for i in range(2)]
    short = rows_of_sample(samples[1], torch.arange(500))
    network = subject.run.network
    found = []
    for batch in (collate([samples[0], short]), collate([short])):
        with torch.no_grad(), watched(network) as seen:
            out = subject.task.predict(network, batch)
        found.append(pooled(batch, seen, out))
    assert len(found[0]) > 3  # input, blocks, output
    for name in found[0]:
        torch.testing.assert_close(found[0][name][1:], found[1][name], rtol=1e-3, atol=1e-5)


def test_own_cases_unlike_training_are_warned_of():
    random = np.random.default_rng(0)
    sources = random.normal(size=(40, 6, 6))
    size = {"width": 8, "layers": 1, "heads": 2, "bases": 4}
    surrogate = Surrogate(epochs=1, network=size, yardsticks=False).fit(sources, sources)
    surrogate.calibrate(0.8)
    stripes = np.broadcast_to(2.0 * (-1.0) ** np.arange(6), (1, 6, 6))
    with pytest.warns(OutsideTrainingWarning, match="unlike the training data"):
        surrogate.predict(stripes)


def test_own_cases_on_a_finer_grid_are_not_unlike_training():
    sizes = np.random.default_rng(0).normal(size=(40, 2, 1, 1))

    def sources(points):
        x, y = np.meshgrid(*2 * [np.linspace(0, 1, points)], indexing="ij")
        return sizes[:, 0] * np.cos(np.pi * x) + sizes[:, 1] * np.sin(np.pi * y)

    size = {"width": 8, "layers": 1, "heads": 2, "bases": 4}
    surrogate = Surrogate(epochs=1, network=size, yardsticks=False).fit(sources(6), sources(6))
    surrogate.calibrate(0.8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OutsideTrainingWarning)
        surrogate.predict(sources(6)[:3])
        surrogate.predict(sources(26)[:3])
