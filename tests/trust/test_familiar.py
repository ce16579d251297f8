from dataclasses import replace

import numpy as np
import pytest
import torch

from funcattn.data import collate
from funcattn.serve.familiar import FILE, pooled, read_familiarity, watched
from funcattn.serve.predictor import OutsideTrainingWarning, Predictor
from funcattn.surrogate import OutsideTrainingWarning as OutsideCases
from funcattn.surrogate import Surrogate
from funcattn.tasks.own import rows_of_sample
from funcattn.training.setup import RunError
from funcattn.trust.familiar import area_under_curve, familiarity_of, learn_familiarity
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
    with pytest.warns(OutsideCases, match="unlike the training data"):
        surrogate.predict(stripes)
