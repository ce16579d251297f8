"""The loop does what it says: order, averages, clipping, the choice of the epoch, bad losses."""

import json
import os
import random
import threading
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor

from funcattn.data import Batch, Sample, Store
from funcattn.settings import RunSettings, changed
from funcattn.tasks import TASKS, Splits
from funcattn.tasks.darcy import Darcy
from funcattn.training import run as run_module
from funcattn.training.checkpoint import load_checkpoint, model_tensors
from funcattn.training.evaluation import evaluate
from funcattn.training.kept import best_checkpoint
from funcattn.training.loop import NonFiniteLossError, State, Trainer
from funcattn.training.run import Run, train
from funcattn.training.setup import build_network


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without waiting for the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(autouse=True)
def one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test puts in place of the Darcy task is gone after it."""
    monkeypatch.setitem(TASKS, "darcy", Darcy)


def smoke(**optimisation: Any) -> RunSettings:
    """12 training, 4 validation, 4 test samples; three steps per epoch."""
    return changed(Darcy.defaults("smoke", "modern"), {"optimisation": optimisation})


def random_states() -> tuple[object, ...]:
    numpy = np.random.get_state()[1].tobytes()  # noqa: NPY002
    return torch.get_rng_state().tolist(), numpy, random.getstate()


def weights(folder: Path) -> dict[str, Tensor]:
    return dict(best_checkpoint(folder).tensors["model"])


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def numbers(folder: Path) -> dict[str, Any]:
    """What a run came to, without when and where."""
    record = json.loads((folder / "record.json").read_text())
    names = ("test", "test_values", "validation", "best_epoch", "epochs", "data")
    history = (folder / "metrics.jsonl").read_text()
    return {"history": history} | {name: record[name] for name in names}


def trainer_of(
    settings: RunSettings,
    store: Store,
    folder: Path,
    on_step: Callable[[State, int], None] = lambda *_: None,
) -> Trainer:
    task = TASKS["darcy"](settings)
    splits = task.splits(store)
    surrogate = build_network(task)
    run_module._fit(surrogate, splits, task.problem.output_channels)
    fabric = Fabric(accelerator="cpu", devices=1, precision=settings.precision)
    return Trainer(task, splits, surrogate, folder, fabric=fabric, on_step=on_step)


def test_one_seed_gives_the_same_run_to_the_bit_and_another_does_not(
    tmp_path: Path, store: Store
) -> None:
    settings = changed(smoke(), {"network": {"dropout": 0.2}})
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(changed(settings, {"seed": seed}), tmp_path / name, store=store)
    assert numbers(tmp_path / "a") == numbers(tmp_path / "b")
    assert equal(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert numbers(tmp_path / "a")["test_values"] != numbers(tmp_path / "c")["test_values"]
    assert not equal(weights(tmp_path / "a"), weights(tmp_path / "c"))


@pytest.mark.usefixtures("as_a_user")  # the checks of types draw items to look at by random()
def test_training_neither_reads_nor_moves_the_global_random_states(
    tmp_path: Path, store: Store
) -> None:
    settings = changed(smoke(epochs=1), {"network": {"dropout": 0.2}})
    records = []
    for name, seed in (("a", 3), ("b", 4)):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        before = random_states()
        train(settings, tmp_path / name, store=store)
        assert random_states() == before
        records.append(numbers(tmp_path / name))
    assert records[0] == records[1]


def test_dropout_and_order_differ_from_epoch_to_epoch(tmp_path: Path, store: Store) -> None:
    seen: list[list[float]] = []

    class Watched(Darcy):
        def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
            assert batch.values is not None
            seen.append(batch.values.mean((1, 2)).tolist())
            return super().loss(prediction, batch)

    TASKS["darcy"] = Watched
    train(smoke(epochs=2), tmp_path / "a", store=store)
    first, second = [*chain(*seen[:3])], [*chain(*seen[3:])]
    assert first != second
    assert sorted(first) == sorted(second)  # each sample once per epoch


def test_augmentation_gets_its_own_randomness_for_each_epoch_and_sample(
    tmp_path: Path, store: Store
) -> None:
    drawn: list[float] = []

    class Augmented(Darcy):
        def augmented(self, sample: Sample, random: torch.Generator) -> Sample:
            drawn.append(float(torch.rand((), generator=random)))
            return sample

    TASKS["darcy"] = Augmented
    train(smoke(epochs=2), tmp_path / "a", store=store)
    assert len(set(drawn)) == len(drawn) == 24
    first, drawn[:] = list(drawn), []
    train(smoke(epochs=2), tmp_path / "b", store=store)
    assert drawn == first


def test_two_batches_accumulated_are_one_batch_of_both(tmp_path: Path, store: Store) -> None:
    for name, batch, accumulate in (("a", 8, 1), ("b", 4, 2)):
        how = {"batch": batch, "accumulate": accumulate, "optimiser": "adamw", "ema": 0.5}
        settings = changed(smoke(**how), {"precision": "64-true"})
        train(settings, tmp_path / name, store=store)
    assert len(numbers(tmp_path / "a")["history"].splitlines()) == 3
    a, b = weights(tmp_path / "a"), weights(tmp_path / "b")
    for name, tensor in a.items():
        torch.testing.assert_close(b[name], tensor, atol=1e-6, rtol=1e-6)


def test_sum_and_mean_reduction_differ_by_the_number_of_samples(
    tmp_path: Path, store: Store
) -> None:
    norms = []
    for reduction in ("sum", "mean"):
        settings = smoke(reduction=reduction, clip=None, batch=4)
        trainer = trainer_of(settings, store, tmp_path)
        norms.append(gradients(trainer))
    torch.testing.assert_close(norms[0], 4 * norms[1], rtol=1e-4, atol=0)


def gradients(trainer: Trainer) -> Tensor:
    """The norm of all gradients as the optimisers get them in a first step."""
    seen: list[Tensor] = []

    def look(optimiser: torch.optim.Optimizer, *_: object) -> None:
        seen.extend(p.grad.norm() for g in optimiser.param_groups for p in g["params"])

    for optimiser in trainer.optimisers:
        getattr(optimiser, "optimizer", optimiser).register_step_pre_hook(look)
    trainer._train(0, 0, torch.arange(4))
    assert len(seen) == len(list(trainer.surrogate.parameters()))
    return torch.stack(seen).norm()


def test_clipping_bounds_the_norm_over_both_optimisers(tmp_path: Path, store: Store) -> None:
    free = gradients(trainer_of(smoke(clip=None), store, tmp_path))
    small = float(free) / 3
    clipped = gradients(trainer_of(smoke(clip=small), store, tmp_path))
    assert float(clipped) == pytest.approx(small, rel=1e-4)
    untouched = gradients(trainer_of(smoke(clip=2 * float(free)), store, tmp_path))
    assert torch.equal(untouched, free)


def test_the_moving_average_is_what_its_formula_says(tmp_path: Path, store: Store) -> None:
    seen: list[dict[str, Tensor]] = []
    averages: list[dict[str, Tensor]] = []

    def keep(state: State, _: int) -> None:
        if not state.step:  # told after an epoch, not after a step
            return
        seen.append({n: p.detach().clone() for n, p in trainer.surrogate.named_parameters()})
        averages.append(
            {n: t.detach().clone() for n, t in model_tensors(trainer.evaluated).items()}
        )

    trainer = trainer_of(smoke(ema=0.7), store, tmp_path, keep)
    start = {n: p.detach().clone() for n, p in trainer.surrogate.named_parameters()}
    trainer.run()
    assert len(seen) == 9
    assert trainer.averaged is not None
    assert trainer.evaluated is trainer.averaged
    for name, averaged in trainer.averaged.named_parameters():
        # 0.7^9 of the start, and 0.3 * 0.7^(8 - k) of the weights after step k.
        expected = 0.7**9 * start[name]
        for step, then in enumerate(seen):
            expected = expected + 0.3 * 0.7 ** (8 - step) * then[name]
        torch.testing.assert_close(averaged.detach(), expected)
    # Normalisers are not averaged, and the average is what is validated and kept.
    assert torch.equal(trainer.averaged.position_range, trainer.surrogate.position_range)
    best = trainer.state.best_epoch
    assert best is not None
    assert equal(weights(tmp_path), averages[3 * best - 1])


def test_the_rate_in_the_history_is_the_one_of_the_last_step(tmp_path: Path, store: Store) -> None:
    settings = smoke(optimiser="adamw", rate=1e-3)
    train(settings, tmp_path / "a", store=store)
    lines = [json.loads(line) for line in numbers(tmp_path / "a")["history"].splitlines()]
    how = settings.optimisation
    end = how.rate / how.start_divisor / how.end_divisor
    assert lines[-1]["rate"] == pytest.approx(end)
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert all(np.isfinite(list(line.values())).all() for line in lines)


class Counted(list[Sample]):
    """Samples that count how often they are read."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        return super().__getitem__(index)


class Scripted(Darcy):
    """A task whose validation follows a script, so that the best epoch is known before."""

    headline: ClassVar = "score"
    script: ClassVar[list[float]] = [2.0, 3.0, 1.0, 2.0]
    calls: ClassVar[list[float]] = []
    test: ClassVar[Counted] = Counted()

    def splits(self, store: Store) -> Splits:
        made = super().splits(store)
        Scripted.test = Counted(made.test[i] for i in range(len(made.test)))
        return Splits(made.train, made.validation, Scripted.test, made.fingerprint)

    def metrics(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        # One batch of validation an epoch, and one of test at the end.
        epoch = len(Scripted.calls)
        Scripted.calls.append(self.script[epoch] if epoch < len(self.script) else -1.0)
        score = torch.full((len(batch),), Scripted.calls[-1])
        return super().metrics(prediction, batch) | {"score": score}


class Larger(Scripted):
    larger_is_better: ClassVar[bool] = True


@pytest.mark.usefixtures("as_a_user")  # the checks of types read samples
@pytest.mark.parametrize(("kind", "best"), [(Scripted, 3), (Larger, 2)])
def test_the_epoch_is_chosen_on_validation_and_its_weights_are_tested_once(
    tmp_path: Path, store: Store, kind: type[Scripted], best: int
) -> None:
    TASKS["darcy"] = kind
    kind.calls.clear()
    after: list[dict[str, Tensor]] = []

    def keep(state: State, steps: int) -> None:
        if state.step == steps:
            model = watched[0].surrogate
            after.append({name: t.detach().clone() for name, t in model_tensors(model).items()})

    watched: list[Trainer] = []
    original = run_module.Trainer

    def watch(*arguments: Any, **options: Any) -> Trainer:
        watched.append(original(*arguments, **options))
        return watched[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "Trainer", watch)
        record = train(smoke(epochs=4), tmp_path / "a", store=store, on_step=keep).record
    assert record["best_epoch"] == best
    assert record["validation"] == kind.script[best - 1]
    assert len(kind.calls) == 5  # four epochs and one test
    assert kind.test.reads == len(kind.test) == record["test_samples"]
    assert record["test_note"] == f"read once, with the weights of epoch {best}"
    # The weights kept are those of the best epoch and not the last ones, and they are what was
    # tested.
    kept = weights(tmp_path / "a")
    assert equal(kept, after[best - 1])
    assert not equal(kept, after[-1])
    task = Darcy(smoke(epochs=4))
    surrogate = build_network(task)
    run_module.restore_model(surrogate, kept)
    fabric = Fabric(accelerator="cpu", devices=1)
    values, _ = evaluate(task, surrogate, task.splits(store).test, fabric)
    assert record["test_values"]["relative_l2"] == values["relative_l2"]


def test_an_equal_value_does_not_replace_the_best(tmp_path: Path, store: Store) -> None:
    class Level(Scripted):
        script: ClassVar[list[float]] = [2.0, 1.0, 1.0, 1.0]

    TASKS["darcy"] = Level
    Level.calls.clear()
    assert train(smoke(epochs=4), tmp_path / "a", store=store).record["best_epoch"] == 2


class Raw(Darcy):
    """Without normalisers, one training sample has no target."""

    normalised: ClassVar = frozenset()

    def splits(self, store: Store) -> Splits:
        made = super().splits(store)
        targets = made.train.targets.copy()  # type: ignore[attr-defined]
        targets[5, 3, 3] = np.nan
        made.train.targets = targets  # type: ignore[attr-defined]
        return made


def test_a_loss_that_is_no_number_stops_the_run_and_its_batch_is_kept(
    tmp_path: Path, store: Store
) -> None:
    TASKS["darcy"] = Raw
    settings = changed(smoke(), {"checkpoint_seconds": 0})
    with pytest.raises(NonFiniteLossError) as caught:
        train(settings, tmp_path / "a", store=store)
    message = str(caught.value)
    assert "training samples [5] is not finite in epoch 1, step" in message
    (kept,) = (tmp_path / "a").glob("bad_batch_epoch1_step*")
    assert str(kept) in message
    batch = load_checkpoint(kept)
    places = batch.document["samples"]
    assert batch.document["bad"] == [5]
    assert batch.document["losses"][places.index(5)] == "nan"
    wrong = batch.tensors["batch"]["target"].isnan()
    assert wrong.sum() == 1
    assert wrong[places.index(5), 3 * 9 + 3, 0]


def test_a_bad_loss_late_in_a_run_leaves_the_checkpoints_before_it(
    tmp_path: Path, store: Store
) -> None:
    class Late(Darcy):
        calls: ClassVar[list[int]] = []

        def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
            Late.calls.append(1)
            losses = super().loss(prediction, batch)
            return losses * (torch.nan if len(Late.calls) == 5 else 1)

    TASKS["darcy"] = Late
    with pytest.raises(NonFiniteLossError, match="in epoch 2, step 2"):
        train(smoke(), tmp_path / "a", store=store)
    (only,) = (tmp_path / "a" / "checkpoints").glob("step-*")
    assert only.name == "step-000000003"
    assert load_checkpoint(only).document["state"]["epoch"] == 1
    assert all(tensor.isfinite().all() for tensor in weights(tmp_path / "a").values())
    # The step that failed was not taken; what comes after a resume is as if it had never been.
    train(smoke(), tmp_path / "a", store=store, resume=True)
    TASKS["darcy"] = Darcy
    train(smoke(), tmp_path / "b", store=store)
    assert numbers(tmp_path / "a") == numbers(tmp_path / "b")


def test_a_gradient_that_is_no_number_is_not_taken_as_a_step(tmp_path: Path, store: Store) -> None:
    class Steep(Darcy):
        def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
            # 0 at 0, where its slope is infinite.
            return super().loss(prediction, batch) + (0 * prediction).square().sum((1, 2)).sqrt()

    TASKS["darcy"] = Steep
    with pytest.raises(NonFiniteLossError, match=r"gradient of training samples \[.*\] is not fin"):
        train(smoke(), tmp_path / "a", store=store)
    assert not list((tmp_path / "a").glob("checkpoints/step-*"))


def test_a_validation_that_is_no_number_stops_the_run(tmp_path: Path, store: Store) -> None:
    class Lost(Scripted):
        script: ClassVar[list[float]] = [2.0, float("nan"), 1.0]

    TASKS["darcy"] = Lost
    Lost.calls.clear()
    with pytest.raises(NonFiniteLossError, match="validation score is not finite after epoch 2"):
        train(smoke(), tmp_path / "a", store=store)


def test_a_sample_that_is_no_number_is_refused_before_training_where_it_would_spoil_statistics(
    tmp_path: Path, store: Store
) -> None:
    class Spoiled(Raw):
        normalised: ClassVar = frozenset({"output"})

    TASKS["darcy"] = Spoiled
    with pytest.raises(ValueError, match="expected finite values, got others in field 5"):
        train(smoke(), tmp_path / "a", store=store)


@pytest.mark.parametrize("part", ["train", "validation", "test"])
def test_a_split_without_samples_is_refused(tmp_path: Path, store: Store, part: str) -> None:
    class Without(Darcy):
        def splits(self, store: Store) -> Splits:
            made = super().splits(store)
            parts = {name: getattr(made, name) for name in ("train", "validation", "test")}
            parts[part] = []
            return Splits(**parts, fingerprint=made.fingerprint)

    TASKS["darcy"] = Without
    splits = Without(smoke()).splits(store)
    surrogate = build_network(Darcy(smoke()))
    fabric = Fabric(accelerator="cpu", devices=1)
    with pytest.raises(ValueError, match=f"data.{part}: expected at least one sample"):
        Trainer(Darcy(smoke()), splits, surrogate, tmp_path, fabric=fabric)


def test_a_run_may_be_started_from_a_thread(tmp_path: Path, store: Store) -> None:
    # Signals can only be handled in the main thread.
    runs: list[Run] = []
    thread = threading.Thread(
        target=lambda: runs.append(train(smoke(epochs=1), tmp_path / "a", store=store))
    )
    thread.start()
    thread.join()
    assert runs[0].record["epochs"] == 1


@pytest.mark.parametrize("precision", ["64-true", "bf16-mixed"])
def test_other_precisions_train(tmp_path: Path, store: Store, precision: str) -> None:
    settings = changed(smoke(epochs=1, ema=0.5), {"precision": precision})
    record = train(settings, tmp_path / "a", store=store).record
    dtype = torch.float64 if precision == "64-true" else torch.float32
    assert {tensor.dtype for tensor in weights(tmp_path / "a").values()} == {dtype}
    assert 0 < record["test"]["relative_l2"] < 2
