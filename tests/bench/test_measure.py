"""Agreement, times, operations and memory."""

import re
import time
from collections.abc import Callable
from dataclasses import asdict, replace

import pytest
import torch
from torch import Tensor, nn

from funcattn.bench import measure, memory
from funcattn.bench.candidates import (
    CHECKPOINTED,
    LAYERS,
    NETWORKS,
    OURS,
    PLAIN,
    REFERENCE,
    STREAMED,
    Candidate,
    Shape,
)
from funcattn.bench.measure import Job, agreement, calls, inputs, interleaved, operations
from funcattn.bench.runner import in_a_child
from funcattn.bench.scale import FEATS, measure_feat
from funcattn.nn import FunctionalAttention

SMALL = Shape(16, 5, 2)


def nothing(text: str) -> None:
    """Nobody listens."""


class Biased(FunctionalAttention):
    """A form with a wrong output."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 1.001


class WrongBackward(FunctionalAttention):
    """A form whose output is right and whose gradients are not."""

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        return 1.01 * out - 0.01 * out.detach()


class Broken(FunctionalAttention):
    """A form that stops."""

    def forward(self, x: Tensor) -> Tensor:  # noqa: ARG002
        raise KeyError("chunk")


class NotANumber(FunctionalAttention):
    """A form with a hole in it."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * torch.nan


@pytest.fixture
def with_form(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[FunctionalAttention]], None]:
    """Puts a form among the candidates, as "ours"."""

    def put(kind: type[FunctionalAttention]) -> None:
        def build(shape: Shape, points: int) -> nn.Module:  # noqa: ARG001
            return kind(shape.width, shape.heads, shape.bases)

        monkeypatch.setitem(LAYERS, OURS, Candidate(build, functional=True))

    return put


@pytest.fixture(autouse=True)
def quick_yardsticks(monkeypatch: pytest.MonkeyPatch) -> None:
    works = {"matrix product": lambda: sum(range(100)), "copy": lambda: sum(range(100))}
    amounts = dict.fromkeys(works, 1.0)
    monkeypatch.setattr(measure, "machine_yardsticks", lambda: (works, amounts))


def job(*names: str) -> Job:
    return Job("time", "layer", SMALL, 40, names, rounds=2, seconds=0.0)


def test_every_layer_is_timed_and_ours_agree() -> None:
    names = tuple(name for name, candidate in LAYERS.items() if not candidate.compiled)
    found = measure.measure_time(job(*names), nothing)["candidates"]
    for name in names:
        assert found[name].keys() >= {"forward", "forward + backward"}, found[name]
        for kind in ("forward", "forward + backward"):
            timed = found[name][kind]
            assert 0 < timed["quartiles"][0] <= timed["median"] <= timed["quartiles"][1]
            assert timed["operations"] > 0
        assert ("agreement" in found[name]) == LAYERS[name].functional


def test_a_network_is_timed_in_training_steps() -> None:
    names = [name for name, candidate in NETWORKS.items() if not candidate.compiled]
    assert {OURS, CHECKPOINTED, REFERENCE, "linformer", "softmax"} < set(names)
    found = measure.measure_time(replace(job(*names), part="model"), nothing)["candidates"]
    for name in names:
        assert found[name]["forward"]["operations"] > 0
        assert "median" in found[name]["training step"]
        compared = {"agreement"} if NETWORKS[name].functional else set()
        assert found[name].keys() == {"forward", "training step"} | compared
        if compared:
            assert found[name]["agreement"]["output"] < 1e-9


def test_operations_are_counted_once_for_all_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting takes memory: a form that just fits would be said to run out of it."""
    counted: list[bool] = []

    def count(call: measure.Call, *, run_plainly: bool = False) -> int | None:
        counted.append(not run_plainly)
        return operations(call, run_plainly=run_plainly)

    monkeypatch.setattr(measure, "operations", count)
    asked = replace(job(OURS, PLAIN, CHECKPOINTED, "linear_no"), part="model")
    found = measure.measure_time(asked, nothing)["candidates"]
    assert counted == 2 * [False, True, False, True]
    amounts = [found[name]["training step"]["operations"] for name in asked.candidates]
    assert amounts[0] == amounts[1] == amounts[2] != amounts[3]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Biased, "output is off by 0.001"),
        (WrongBackward, "gradient of .* is off by 0.01"),
        (NotANumber, "off by nan"),
        (Broken, "chunk"),
    ],
    ids=["output", "gradient", "nan", "exception"],
)
def test_a_form_that_fails_is_reported_and_not_timed(
    kind: type[FunctionalAttention],
    said: str,
    with_form: Callable[[type[FunctionalAttention]], None],
) -> None:
    with_form(kind)
    found = measure.measure_time(job(OURS, PLAIN), nothing)["candidates"]
    assert found[OURS].keys() == {"agreement"}
    assert re.search(said, found[OURS]["agreement"]["failed"])
    assert "median" in found[PLAIN]["forward"]


def test_errors_of_agreement_are_relative() -> None:
    truth = (torch.tensor([0.0, 200.0]), {"w": torch.tensor([3.0, 4.0])})
    found = (torch.tensor([0.0, 200.001]), {"w": torch.tensor([3.0, 4.0001])})
    said = agreement(found, truth)
    assert said["output"] == pytest.approx(5e-6, rel=0.05)
    assert said["gradient"] == pytest.approx(2e-5, rel=0.05)
    assert "failed" not in said


def test_candidates_take_turns() -> None:
    order: list[str] = []

    def note(name: str) -> Callable[[], object]:
        return lambda: order.append(name)

    took, failed = interleaved(
        {"a": note("a"), "b": note("b")},
        rounds=4,
        seconds=0.0,
        yardsticks={"y": note("y")},
        say=nothing,
    )
    rounds = [order[start : start + 3] for start in range(0, 12, 3)]
    assert [sorted(each) for each in rounds] == [["a", "b", "y"]] * 4
    assert len({tuple(each) for each in rounds}) > 1
    assert {name: len(times) for name, times in took.items()} == {"a": 4, "b": 4, "y": 4}
    assert not failed


def busy(seconds: float) -> None:
    """Compute for so long; a sleep would take no CPU time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_slow_candidate_does_not_take_the_rounds_of_the_others() -> None:
    took, _ = interleaved(
        {"quick": lambda: busy(0.001), "slow": lambda: busy(0.1)},
        rounds=2,
        seconds=0.1,
        yardsticks={},
        say=nothing,
    )
    assert len(took["slow"]) == 2
    assert len(took["quick"]) > 4


@pytest.mark.skipif(torch.get_num_threads() > 1, reason="with threads the clock counts")
def test_waiting_for_others_is_not_counted() -> None:
    took, _ = interleaved(
        {"waits": lambda: time.sleep(0.02)}, rounds=2, seconds=0.0, yardsticks={}, say=nothing
    )
    assert max(took["waits"]) < 0.01


def test_a_candidate_that_runs_out_of_memory_later_is_out() -> None:
    left = iter(range(2))

    def call() -> None:
        if next(left, None) is None:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ...")

    took, failed = interleaved(
        {"a": call, "b": lambda: None}, rounds=4, seconds=0.0, yardsticks={}, say=nothing
    )
    assert failed == {"a": "out of memory"}
    assert len(took["b"]) == 4


@pytest.mark.parametrize("shape", [SMALL, Shape(12, 7, 1)], ids=str)
@pytest.mark.parametrize("name", [PLAIN, REFERENCE])
def test_operations_are_those_of_the_formula(shape: Shape, name: str) -> None:
    """What each further point costs: three maps c x c; scores, projection and lift of c x g each.

    A product has two more in its gradient.
    """
    c, g = shape.width, shape.bases
    by_kind = {}
    for points in (50, 51):
        module = LAYERS[name].build(shape, points)
        given = inputs("layer", shape, points)
        for kind, call in calls("layer", module, given).items():
            by_kind.setdefault(kind, []).append(operations(call))
    forward, both = (few and more - few for few, more in by_kind.values())
    assert forward == 2 * (3 * c * c + 3 * c * g)
    assert both == 3 * forward


def test_operations_of_fused_attention_are_counted() -> None:
    n, c = 300, SMALL.width
    module = LAYERS["softmax"].build(SMALL, n)
    forward, both = calls("layer", module, inputs("layer", SMALL, n)).values()
    assert operations(forward) == 4 * 2 * n * c * c + 2 * 2 * n * n * c
    # Backward computes the weights again: five products of n x n x d for the two of forward.
    assert operations(both) == 3 * 4 * 2 * n * c * c + 7 * 2 * n * n * c


@pytest.mark.full
def test_streaming_holds_no_basis() -> None:
    asked = Job("memory", "layer", Shape(64, 32, 8), 2**16, (PLAIN, STREAMED))
    rises = in_a_child(asdict(asked), "default", 1, nothing)["candidates"]
    for kind in ("forward", "forward + backward"):
        # The basis alone is 1 kB per point; the buffers of a chunk, 6 MB, are 0.1 kB.
        streamed, plain = (rises[name][kind]["bytes per point"] for name in (STREAMED, PLAIN))
        assert streamed < 1000 < plain
    output = 4 * 64
    assert rises[STREAMED]["forward"]["bytes per point"] > output


def test_a_fork_that_dies_is_reported() -> None:
    def fail() -> dict[str, int]:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ...")

    assert memory.in_a_fork(fail) == {"failed": "out of memory"}
    assert memory.in_a_fork(lambda: {"a": 1}) == {"a": 1}


@pytest.mark.parametrize("name", FEATS)
def test_feats_are_measured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    few = replace(FEATS[name], points=300)
    monkeypatch.setitem(FEATS, name, few)  # type: ignore[arg-type]
    found = measure_feat(name, said.append)
    assert found["points"] == 300
    assert found["seconds"] > 0
    if few.output is None:
        assert found["counted"] == found["process"] > 2**26  # PyTorch itself is larger
    else:
        assert found["counted"] == found["rise"] - few.output
    assert said[-1] == ("100.0%" if name == "inference" else "300 points")
