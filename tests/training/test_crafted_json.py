"""JSON that somebody crafted, drawn by hypothesis, is read or refused by words, never by accident.

Sound documents with a part that is another value, is missing, or has a new name beside it.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from funcattn.cli.guard import speaks_for_itself
from funcattn.data import Store
from funcattn.settings import changed
from funcattn.tasks import TASKS
from funcattn.tasks.darcy import Darcy
from funcattn.training.checkpoint import (
    Checkpoint,
    load_checkpoint,
    restore_optimiser,
    save_checkpoint,
)
from funcattn.training.loop import saved_state
from funcattn.training.optimisation import build_optimisers
from funcattn.training.run import Run, train
from funcattn.training.settings import default_settings, saved_settings
from funcattn.training.setup import build_network, check_memory

pytestmark = pytest.mark.usefixtures("as_a_user")

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, -1, 2**31, 2**63, 10**30, 10**400])
    | st.floats()
    | st.sampled_from([1e-320, 1e308, -0.0])
    | st.text(max_size=8)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)
SETTINGS = changed(
    Darcy.defaults("smoke", "modern"),
    {"optimisation": {"epochs": 1}, "network": {"width": 8, "bases": 3}},
)


def places(document: Any) -> list[tuple[Any, Any]]:
    """Every place in a document: what holds it, and its name or number there."""
    found: list[tuple[Any, Any]] = []
    below = [document]
    while below:
        each = below.pop()
        for name, value in each.items() if isinstance(each, dict) else enumerate(each):
            found.append((each, name))
            if isinstance(value, dict | list):
                below.append(value)
    return found


def crafted(document: Any, data: st.DataObject) -> Any:
    """The document with one to three parts changed."""
    made = json.loads(json.dumps(document))
    for _ in range(data.draw(st.integers(1, 3))):
        if not (all_places := places(made)):
            break
        holder, name = data.draw(st.sampled_from(all_places))
        match data.draw(st.sampled_from(["change", "remove", "add"])):
            case "change":
                holder[name] = data.draw(VALUES)
            case "remove":
                del holder[name]
            case "add" if isinstance(holder, dict):
                holder[data.draw(st.text(max_size=6))] = data.draw(VALUES)
            case _:
                holder.append(data.draw(VALUES))
    return made


def many(count: int) -> Callable[[Any], Any]:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def refused(act: Callable[[], object]) -> bool:
    """Whether something was refused by words; any other error is an error of the test."""
    try:
        act()
    except Exception as error:
        assert speaks_for_itself(error), error  # noqa: PT017
        assert "expected" in str(error) or "checkpoint" in str(error), error  # noqa: PT017
        return True
    return False


@pytest.fixture(params=[1, pytest.param(10, marks=pytest.mark.full)], ids=["", "ten times"])
def times(request: pytest.FixtureRequest) -> int:
    """As many examples as usual, or more."""
    return int(request.param)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        train(SETTINGS, folder, store=store)
    return folder


def test_settings(trained: Path, times: int) -> None:
    ends = []

    @many(120 * times)
    @given(st.data())
    def attack(data: st.DataObject) -> None:
        document = crafted(json.loads((trained / "settings.json").read_text()), data)

        def build() -> None:
            read = saved_settings(document)
            task = TASKS[read.task](read)
            check_memory(read, task.problem)

        ends.append(refused(build))

    attack()
    assert 20 < sum(ends) < len(ends)


@pytest.mark.parametrize("task", ["few_shot", "airfrans", "own"])
def test_settings_of_other_tasks(task: str, times: int) -> None:
    from dataclasses import asdict

    sound = json.loads(json.dumps(asdict(default_settings(task, "smoke", "modern"))))

    @many(40 * times)
    @given(st.data())
    def attack(data: st.DataObject) -> None:
        refused(lambda: saved_settings(crafted(sound, data)))

    attack()


def test_records_and_histories(trained: Path, tmp_path: Path, times: int) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    record = json.loads((run / "record.json").read_text())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    ends = []

    @many(60 * times)
    @given(st.data())
    def attack(data: st.DataObject) -> None:
        (run / "record.json").write_text(json.dumps(crafted(record, data)))
        made = crafted(lines, data)
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in made))
        read = Run(run, accept_edited=True)
        ends.append(refused(lambda: read.record))
        ends.append(refused(lambda: read.history))

    attack()
    assert 10 < sum(ends) < len(ends)


def test_states_of_checkpoints(trained: Path, tmp_path: Path, times: int) -> None:
    (step,) = (trained / "checkpoints").glob("step-*")
    sound = load_checkpoint(step)
    network = build_network(Darcy(SETTINGS))
    ends = []

    @many(60 * times)
    @given(st.data())
    def attack(data: st.DataObject) -> None:
        folder = tmp_path / "step-000000001"
        shutil.rmtree(folder, ignore_errors=True)
        save_checkpoint(folder, Checkpoint(sound.tensors, crafted(sound.document, data)))

        def restore() -> None:
            saved = load_checkpoint(folder)
            saved_state(saved)
            saved.part("fingerprint", str)
            saved_settings(saved.part("settings", dict))
            ours = build_optimisers(network, SETTINGS.optimisation)
            kept = saved.part("optimisers", list)
            for place, (optimiser, its) in enumerate(zip(ours, kept, strict=False)):
                restore_optimiser(optimiser, saved.group(f"optimiser{place}"), its)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda _: None)
            ends.append(refused(restore))

    attack()
    assert 10 < sum(ends) < len(ends)
