import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import Tensor

from funcattn.data import Batch, Sample, Store, collate
from funcattn.models.few_shot import FewShotRegressor
from funcattn.settings import Preset, Profile, changed
from funcattn.tasks.base import Splits
from funcattn.tasks.few_shot import (
    BASELINES,
    FewShot,
    FewShotData,
    Sinusoids,
    error_by_observations,
)
from funcattn.training.settings import with_model

NOWHERE = Store(Path("not used"))


def task(**data: int | str) -> FewShot:
    settings = FewShot.defaults("smoke", "paper")
    return FewShot(replace(settings, data=replace(settings.data, **data)))


def splits(**data: int | str) -> Splits:
    return task(**data).splits(NOWHERE)


def amplitude_and_phase(sample: Sample) -> tuple[float, float]:
    """Of the sinusoid that fits the sample's targets; a sin(x - c) is linear in sin and cos."""
    x = sample.positions.double()
    u, v = torch.linalg.lstsq(
        torch.cat([x.sin(), -x.cos()], dim=1), sample.target.double()
    ).solution
    return math.hypot(u, v), math.atan2(v, u) % (2 * math.pi)


def assert_same(one: Sample, other: Sample) -> None:
    assert torch.equal(one.positions, other.positions)
    assert torch.equal(one.target, other.target)
    assert one.context is not None
    assert other.context is not None
    assert torch.equal(one.context, other.context)


def test_samples_are_sinusoids_within_the_ranges_of_the_paper() -> None:
    samples = Sinusoids(0, 0, 400, observations=6, queries=50)
    found = []
    for sample in samples:
        a, c = amplitude_and_phase(sample)
        found.append((a, c))
        assert sample.values is None
        assert sample.context is not None
        assert sample.context.shape == (6, 2)
        x, y = sample.context.T
        torch.testing.assert_close(y, a * torch.sin(x - c), rtol=0, atol=1e-4)
        assert sample.positions.abs().max() <= 6
        assert x.abs().max() <= 6
    a, c = torch.tensor(found).T
    for values, low, high in ((a, 0.1, 5.0), (c, 0.0, math.pi)):
        assert low - 1e-4 <= values.min() < low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) < values.max() <= high + 1e-4
        assert values.mean().item() == pytest.approx((low + high) / 2, rel=0.06)
    x = torch.cat([sample.context[:, 0] for sample in samples if sample.context is not None])
    assert x.std().item() == pytest.approx(12 / math.sqrt(12), rel=0.03)


def test_queries_are_in_order_so_that_they_can_be_drawn() -> None:
    sample = Sinusoids(0, 0, 1, observations=3, queries=40)[0]
    assert (sample.positions.diff(dim=0) > 0).all()


def test_a_sample_depends_on_seed_stream_and_index_alone() -> None:
    stream = Sinusoids(3, 1, 10, observations=5, queries=7)
    torch.rand(1)
    again = Sinusoids(3, 1, 10, observations=5, queries=7)
    assert_same(again[4], stream[4])  # whatever was asked for before
    assert_same(Sinusoids(3, 1, 5, observations=5, queries=7)[4], stream[4])
    for other in (
        Sinusoids(4, 1, 10, observations=5, queries=7)[4],
        Sinusoids(3, 2, 10, observations=5, queries=7)[4],
        stream[5],
    ):
        assert not torch.equal(other.target, stream[4].target)


def test_does_not_touch_the_global_random_state() -> None:
    before = torch.get_rng_state()
    Sinusoids(0, 0, 2, observations=3, queries=3)[0]
    assert torch.equal(torch.get_rng_state(), before)


def test_a_stream_is_a_sequence() -> None:
    stream = Sinusoids(0, 0, 5, observations=3, queries=4)
    assert len(stream) == len(list(stream)) == 5
    assert_same(stream[-1], stream[4])
    for one, other in zip(stream[1:4], [stream[1], stream[2], stream[3]], strict=True):
        assert_same(one, other)
    with pytest.raises(IndexError):
        stream[5]
    assert_same(pickle.loads(pickle.dumps(stream))[2], stream[2])


def test_splits_have_the_given_lengths_and_nothing_in_common() -> None:
    parts = splits(train=30, validation=20, test=10)
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [30, 20, 10]
    firsts = {
        float(sample.target[0])
        for part in (parts.train, parts.validation, parts.test)
        for sample in part
    }
    assert len(firsts) == 60


def test_the_fingerprint_tells_whether_the_data_changed() -> None:
    one = splits()
    assert splits().fingerprint == one.fingerprint
    for change in ({"seed": 1}, {"observations": 31}, {"queries": 19}, {"train": 63}):
        assert splits(**change).fingerprint != one.fingerprint


def test_every_epoch_trains_on_new_functions(generator: torch.Generator) -> None:
    few_shot = task(observations=7, queries=11)
    sample = Sinusoids(0, 0, 1, observations=7, queries=11)[0]
    fresh = [few_shot.augmented(sample, generator) for _ in range(3)]
    for other in fresh:
        assert other.positions.shape == (11, 1)
        assert other.context is not None
        assert other.context.shape == (7, 2)
    assert len({float(s.target[0]) for s in [sample, *fresh]}) == 4
    assert_same(few_shot.augmented(sample, generator.manual_seed(0)), fresh[0])


def test_loss_and_metric_are_the_mean_squared_error(generator: torch.Generator) -> None:
    batch = collate(Sinusoids(0, 0, 3, observations=5, queries=8)[:])
    prediction = torch.randn(3, 8, 1, generator=generator)
    expected = (prediction - batch.target).square().mean(dim=(1, 2))
    few_shot = task()
    torch.testing.assert_close(few_shot.loss(prediction, batch), expected)
    metrics = few_shot.metrics(prediction, batch)
    assert list(metrics) == ["mse"] == [few_shot.headline]
    torch.testing.assert_close(metrics["mse"], expected)


def test_the_network_is_given_the_observations() -> None:
    few_shot, seen = task(), {}

    def network(positions: Tensor, values: Tensor | None, **others: object) -> Tensor:
        seen.update(others, values=values)
        return positions

    batch: Batch = collate(Sinusoids(0, 0, 3, observations=5, queries=8)[:])
    assert torch.equal(few_shot.predict(network, batch), batch.positions)
    assert seen == {
        "context": batch.context,
        "values": None,
        "grid": None,
        "mask": None,
        "weights": None,
    }


@pytest.mark.parametrize("preset", get_args(Preset))
@pytest.mark.parametrize("profile", get_args(Profile))
def test_a_network_of_the_default_settings_takes_a_batch(profile: Profile, preset: Preset) -> None:
    settings = FewShot.defaults(profile, preset)
    few_shot, how = FewShot(settings), settings.network
    parts = few_shot.splits(NOWHERE)
    network = FewShotRegressor(how.width, how.layers, how.bases, ridge=how.ridge)
    batch = collate(parts.train[: settings.optimisation.batch])
    loss = few_shot.loss(few_shot.predict(network, batch), batch)
    assert loss.shape == (settings.optimisation.batch,)
    assert loss.isfinite().all()


def test_the_paper_trains_for_50_000_iterations_of_8() -> None:
    settings = FewShot.defaults("paper", "paper")
    how = settings.optimisation
    assert how.batch == 8
    assert how.epochs * settings.data.train == 50_000 * 8
    assert (how.optimiser, how.schedule, how.rate, how.weight_decay) == ("adam", "cosine", 1e-4, 0)
    assert (settings.data.observations, settings.data.queries) == (32, 200)


@pytest.mark.parametrize(
    ("model", "width", "rate"),
    [("intention", 1000, 3e-4), ("transolver", 256, 1e-4), ("softmax", 256, 1e-3)],
)
def test_baselines_have_the_public_settings(model: str, width: int, rate: float) -> None:
    ours = FewShot.defaults("paper", "paper")
    theirs = changed(with_model(ours, model, "paper"), BASELINES[model])
    assert (theirs.model, theirs.network.width, theirs.optimisation.rate) == (model, width, rate)
    assert theirs.data == ours.data
    assert theirs.optimisation.epochs == ours.optimisation.epochs


def test_errors_by_observations_are_of_the_same_functions_at_every_size() -> None:
    seen: dict[int, list[Tensor]] = {}

    def network(positions: Tensor, *, context: Tensor) -> Tensor:
        seen.setdefault(context.shape[1], []).append(positions)
        return torch.zeros_like(positions)

    errors = error_by_observations(network, (2, 6), tasks=30, seed=0, queries=9, batch=7)
    assert list(errors) == [2, 6]
    assert torch.equal(torch.cat(seen[2]), torch.cat(seen[6]))
    assert torch.cat(seen[2]).shape == (30, 9, 1)
    assert errors[2] == errors[6]
    # Of zero, the error is the mean square of the functions.
    functions = Sinusoids(0, 3, 30, observations=2, queries=9)
    square = sum(float(s.target.square().mean()) for s in functions) / 30
    assert errors[2] == pytest.approx(square, rel=1e-5)
    assert error_by_observations(network, (2,), 30, 1, queries=9) != {2: errors[2]}


def test_errors_by_observations_are_those_of_the_network_and_leave_no_graph() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = FewShotRegressor(width=8, std=0.5)
    together = error_by_observations(network, (1, 5), tasks=6, queries=10, batch=6)
    apart = error_by_observations(network, (1, 5), tasks=6, queries=10, batch=1)
    assert together == pytest.approx(apart)
    assert all(parameter.grad is None for parameter in network.parameters())


def test_a_path_is_refused() -> None:
    with pytest.raises(ValueError, match=r"data\.path: sinusoids are made, not read"):
        splits(path="somewhere")


@pytest.mark.parametrize("name", ["observations", "queries"])
def test_there_is_something_to_see_and_to_tell(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected at least 1 point, got 0"):
        FewShotData(**{name: 0})


def test_seeds_are_not_negative() -> None:
    with pytest.raises(ValueError, match="seed: expected a number that is not negative, got -1"):
        FewShotData(seed=-1)
