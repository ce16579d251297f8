"""Stopped in any way at any moment, a run that is resumed ends at the same numbers, to the bit."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric

from funcattn.data import Store
from funcattn.settings import RunSettings, changed
from funcattn.tasks import TASKS
from funcattn.tasks.darcy import Darcy
from funcattn.training import run as run_module
from funcattn.training.checkpoint import CheckpointError, load_checkpoint, model_tensors
from funcattn.training.kept import best_checkpoint
from funcattn.training.loop import Interrupted, State, Trainer
from funcattn.training.run import train
from funcattn.training.setup import RunError, build_network

# With rates at which validation gets better over several epochs, so that the best weights change.
PLAIN: dict[str, Any] = {"optimisation": {"rate": 0.1}}
KINDS: dict[str, dict[str, Any]] = {
    "muon, dropout, average": {
        "network": {"dropout": 0.2},
        "optimisation": {"optimiser": "muon", "ema": 0.8, "rate": 0.01},
    },
    "adamw, accumulated, shared basis": {
        "network": {"share_basis": True},
        "optimisation": {
            "optimiser": "adamw",
            "batch": 2,
            "accumulate": 2,
            "schedule": "cosine",
            "rate": 0.03,
        },
    },
    "adam, steps": {
        "optimisation": {
            "optimiser": "adam",
            "schedule": "step",
            "step_epochs": 1,
            "clip": None,
            "rate": 0.03,
        }
    },
    "adamw, constant": {
        "optimisation": {
            "optimiser": "adamw",
            "schedule": "constant",
            "reduction": "sum",
            "rate": 0.03,
        }
    },
}


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Without waiting for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


def settings_of(changes: dict[str, Any], epochs: int, seconds: float = 0) -> RunSettings:
    """Three steps per epoch; a checkpoint after each of them, or after each epoch only."""
    settings = changed(Darcy.defaults("smoke", "modern"), changes)
    every = {"checkpoint_seconds": seconds, "optimisation": {"epochs": epochs}}
    return changed(settings, every)


def uninterrupted(changes: dict[str, Any], epochs: int, folder: Path, store: Store) -> Path:
    """The run that nothing happens to."""
    train(settings_of(changes, epochs, seconds=1e6), folder, store=store)
    return folder


def outcome(folder: Path) -> dict[str, Any]:
    """What a run came to, without when and where."""
    record = json.loads((folder / "record.json").read_text())
    names = ("test", "test_values", "validation", "best_epoch", "epochs", "data")
    return {name: record[name] for name in names} | {
        "jsonl": (folder / "metrics.jsonl").read_text(),
        "csv": (folder / "metrics.csv").read_text(),
    }


def check_same(folder: Path, other: Path) -> None:
    """Numbers, logs and the best weights of two runs are equal to the bit."""
    assert outcome(folder) == outcome(other)
    ours, theirs = (best_checkpoint(f).tensors["model"] for f in (folder, other))
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name
    for run in (folder, other):
        kept = sorted(path.name for path in (run / "checkpoints").iterdir())
        assert not [name for name in kept if name.startswith(".")]
        assert len([name for name in kept if name.startswith("step-")]) <= 2


class Processes:
    """The command in processes of its own, forked from one that has imported it already."""

    forks = """
import json, os, sys
from funcattn import cli
import funcattn.cli.train
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        log, *sys.argv[1:] = json.loads(line)
        os.dup2(os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), 1)
        os.dup2(1, 2)
        cli.main()
        sys.exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

    def __init__(self, log: Path) -> None:
        self.log = log
        environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.forks],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.input, self.output = self.process.stdin, self.process.stdout

    def start(self, *arguments: str) -> int:
        """Start the command; its process id."""
        self.input.write(json.dumps([str(self.log), *arguments]) + "\n")
        self.input.flush()
        return int(self.output.readline())

    def end(self) -> int:
        """Wait for the command; its exit code, or the signal that ended it, negative."""
        return int(self.output.readline())

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    running = Processes(tmp_path_factory.mktemp("log") / "log")
    yield running
    running.close()


def flags(settings: dict[str, Any], before: str = "--") -> list[str]:
    """Nested settings as flags of the command."""
    made: list[str] = []
    for name, value in settings.items():
        flag = before + name.replace("_", "-")
        if isinstance(value, dict):
            made += flags(value, f"{flag}.")
        elif isinstance(value, bool):
            made.append(flag)
        else:
            made += [flag, str(value)]
    return made


def command(changes: dict[str, Any], epochs: int, folder: Path, store: Store) -> list[str]:
    """The command line of `settings_of`; with --resume where the run has begun."""
    optimisation = changes.get("optimisation", {}) | {"epochs": epochs}
    made = [
        "train",
        "darcy",
        "--profile",
        "smoke",
        "--cache",
        str(store.folder),
        "--out",
        str(folder),
    ]
    made += flags(changes | {"checkpoint_seconds": 0, "optimisation": optimisation})
    return [*made, *(["--resume"] if (folder / "settings.json").exists() else [])]


def check_whole(folder: Path) -> None:
    """What was last written is whole."""
    for kind in ("step", "best"):
        for newest in sorted((folder / "checkpoints").glob(f"{kind}-*"))[-1:]:
            load_checkpoint(newest)


@pytest.mark.parametrize("kind", list(KINDS)[:2])
def test_killed_at_random_moments_and_resumed(
    tmp_path: Path, store: Store, processes: Processes, kind: str
) -> None:
    moments = random.Random(kind)
    for _ in range(3):
        killed = processes.start(*command(KINDS[kind], 8, tmp_path / "a", store))
        time.sleep(moments.uniform(0.2, 1.2))
        os.kill(killed, signal.SIGKILL)
        assert processes.end() in (-signal.SIGKILL, 0), processes.log.read_text()
        check_whole(tmp_path / "a")
    begun = (tmp_path / "a" / "settings.json").exists()
    train(settings_of(KINDS[kind], 8), tmp_path / "a", store=store, resume=begun)
    check_same(tmp_path / "a", uninterrupted(KINDS[kind], 8, tmp_path / "b", store))


@pytest.mark.full
def test_killed_forty_times_and_resumed(tmp_path: Path, store: Store) -> None:
    moments = random.Random(0)
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    for number, kind in enumerate(list(KINDS)[:2] * 20):
        folder = tmp_path / f"a{number % 2}"
        line = command(KINDS[kind], 60, folder, store)
        running = subprocess.Popen(
            [sys.executable, "-m", "funcattn", *line],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(moments.uniform(2, 6))
        running.kill()
        _, errors = running.communicate()
        assert running.returncode in (-signal.SIGKILL, 0), errors
        check_whole(folder)
    for number, kind in enumerate(list(KINDS)[:2]):
        folder = tmp_path / f"a{number}"
        train(settings_of(KINDS[kind], 60), folder, store=store, resume=True)
        check_same(folder, uninterrupted(KINDS[kind], 60, tmp_path / f"b{number}", store))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_command_after_its_step_with_all_saved(
    tmp_path: Path,
    store: Store,
    processes: Processes,
    until: Callable[..., None],
    number: signal.Signals,
    code: int,
) -> None:
    folder = tmp_path / "a"
    child = processes.start(*command(PLAIN, 12, folder, store))
    until(lambda: list(folder.glob("checkpoints/step-*")))
    # While one trains there, nobody else may.
    with pytest.raises(RunError, match="another process is training into this folder"):
        train(settings_of(PLAIN, 12), folder, store=store, resume=True)
    os.kill(child, number)
    assert processes.end() == code
    said = " ".join(processes.log.read_text().split())
    assert f"Stopped by {number.name}; everything is saved. Go on with --resume." in said
    assert "Traceback" not in said
    assert not (folder / "record.json").exists()
    check_whole(folder)
    steps = max(int(path.name.split("-")[1]) for path in folder.glob("checkpoints/step-*"))
    assert 0 < steps < 36
    train(settings_of(PLAIN, 12), folder, store=store, resume=True)
    check_same(folder, uninterrupted(PLAIN, 12, tmp_path / "b", store))


def stopped(
    settings: RunSettings, folder: Path, store: Store, after: int, resume: bool = False
) -> None:
    """Run until so many steps are done, and ask it to stop there."""

    def ask(state: State, steps: int) -> None:
        if state.epoch * steps + state.step == after:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted, match="SIGINT"):
        train(settings, folder, store=store, on_step=ask, resume=resume)
    assert signal.getsignal(signal.SIGINT) is before
    assert sorted(folder.glob("checkpoints/step-*"))[-1].name == f"step-{after:09d}"


@pytest.mark.parametrize("kind", KINDS)
def test_stopped_within_epochs_and_between_them(tmp_path: Path, store: Store, kind: str) -> None:
    # Steps 2 and 4 lie within epochs, 3 ends the first, 9 the last: there only the test is left.
    settings = settings_of(KINDS[kind], 3)
    folder = tmp_path / "a"
    for place, after in enumerate((2, 3, 4, 9)):
        stopped(settings, folder, store, after, resume=place > 0)
    train(settings, folder, store=store, resume=True)
    check_same(folder, uninterrupted(KINDS[kind], 3, tmp_path / "b", store))


def test_a_resumed_schedule_gives_the_rates_of_the_uninterrupted_one(
    tmp_path: Path, store: Store
) -> None:
    settings = settings_of(KINDS["muon, dropout, average"], 3)
    seen: dict[str, list[tuple[float, ...]]] = {"a": [], "b": []}
    running: list[Trainer] = []

    class Watched(Trainer):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            running.append(self)

    def note(run: str, state: State, steps: int) -> None:
        if not state.step:  # told after an epoch, not after a step
            return
        groups = [o.param_groups[0] for o in running[-1].optimisers]
        seen[run].append((*(g["lr"] for g in groups), *groups[-1]["betas"]))
        if run == "a" and state.epoch * steps + state.step == 4 and len(seen["a"]) == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "Trainer", Watched)
        with pytest.raises(Interrupted, match="SIGTERM"):
            train(settings, tmp_path / "a", store=store, on_step=lambda *s: note("a", *s))
        train(settings, tmp_path / "a", store=store, on_step=lambda *s: note("a", *s), resume=True)
        train(settings, tmp_path / "b", store=store, on_step=lambda *s: note("b", *s))
    assert seen["a"] == seen["b"]
    assert len(set(seen["a"])) == 9


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Path:
    """A run that nothing happened to."""
    return uninterrupted(PLAIN, 3, tmp_path_factory.mktemp("runs") / "reference", store)


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Path:
    """The same run, stopped after five steps of nine."""
    folder = tmp_path_factory.mktemp("runs") / "half"
    stopped(settings_of(PLAIN, 3), folder, store, 5)
    return folder


@pytest.fixture
def run(half: Path, tmp_path: Path) -> Path:
    """A copy of the stopped run."""
    shutil.copytree(half, tmp_path / "run")
    assert [p.name for p in steps_of(tmp_path / "run")] == ["step-000000004", "step-000000005"]
    return tmp_path / "run"


def steps_of(run: Path) -> list[Path]:
    return sorted(run.glob("checkpoints/step-*"))


def damage(folder: Path, how: str) -> None:
    path = folder / "optimiser0.safetensors"
    if how == "gone":
        path.unlink()
    elif how == "folder":
        shutil.rmtree(folder)
        folder.mkdir()
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content[: len(content) // 3] if how == "cut" else content)


@pytest.mark.parametrize("how", ["cut", "altered", "gone", "folder"])
def test_a_damaged_checkpoint_has_another_behind_it(
    run: Path, reference: Path, store: Store, how: str
) -> None:
    damage(steps_of(run)[-1], how)
    # Stopped again at the step of the damaged one, which must have been written anew.
    stopped(settings_of(PLAIN, 3), run, store, 5, resume=True)
    load_checkpoint(steps_of(run)[-1])
    train(settings_of(PLAIN, 3), run, store=store, resume=True)
    check_same(run, reference)


def test_where_all_checkpoints_are_damaged_nothing_is_guessed(run: Path, store: Store) -> None:
    for folder, how in zip(steps_of(run), ("cut", "gone"), strict=True):
        damage(folder, how)
    with pytest.raises(
        CheckpointError, match=r"no checkpoint of the run is whole: .*step-0.*step-0"
    ):
        train(settings_of(PLAIN, 3), run, store=store, resume=True)
    assert len(steps_of(run)) == 2


def test_the_remains_of_kills_are_cleared(run: Path, reference: Path, store: Store) -> None:
    checkpoints = run / "checkpoints"
    shutil.copytree(steps_of(run)[-1], checkpoints / ".step-000000006.part")
    # Killed after the best weights of the second epoch were written and before its checkpoint: the
    # epoch is trained again, and may come out otherwise on another machine.
    shutil.copytree(checkpoints / "best-000001", checkpoints / "best-000002")
    # Killed while an old checkpoint was removed.
    shutil.copytree(steps_of(run)[0], checkpoints / "step-000000003")
    (checkpoints / "step-000000003" / "checksums.json").unlink()
    train(settings_of(PLAIN, 3), run, store=store, resume=True)
    check_same(run, reference)


def test_killed_between_the_last_checkpoint_and_the_removal_of_an_old_one(
    reference: Path, store: Store, tmp_path: Path
) -> None:
    """No other checkpoint will be written, and no other will be removed after it."""
    run = tmp_path / "run"
    shutil.copytree(reference, run)
    (run / "record.json").unlink()
    last = steps_of(run)[-1]
    for number in range(3):
        shutil.copytree(last, last.with_name(f"step-{number:09d}"))
    train(settings_of(PLAIN, 3, seconds=1e6), run, store=store, resume=True)
    check_same(run, reference)


def test_best_weights_are_kept_as_long_as_a_checkpoint_remembers_them(
    tmp_path: Path, store: Store
) -> None:
    seen: list[tuple[set[int], set[int]]] = []

    class Watched(Trainer):
        def save(self) -> None:
            super().save()
            folders = (self.folder / "checkpoints").iterdir()
            names = [path.name.split("-") for path in folders]
            best = {int(number) for kind, number in names if kind == "best"}
            remembered = {
                load_checkpoint(folder).document["state"]["best_epoch"]
                for folder in steps_of(self.folder)
            }
            seen.append((best, remembered - {None}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "Trainer", Watched)
        train(settings_of(KINDS["adamw, constant"], 4), tmp_path / "a", store=store)
    assert len(seen) == 12
    assert len(set.union(*(remembered for _, remembered in seen))) > 1
    for best, remembered in seen:
        assert remembered <= best
        assert len(best) <= 2


def test_before_the_first_checkpoint_a_run_begins_again(
    run: Path, reference: Path, store: Store
) -> None:
    shutil.rmtree(run / "checkpoints")
    train(settings_of(PLAIN, 3), run, store=store, resume=True)
    check_same(run, reference)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"network": {"width": 24}}, r"network\.width was 16 and is 24"),
        ({"optimisation": {"optimiser": "adamw"}}, "optimisation.optimiser was muon and is adamw"),
        ({"optimisation": {"ema": 0.9}}, "optimisation.ema was None and is 0.9"),
        (
            {"optimisation": {"rate": 0.5, "clip": 2.0}},
            r"clip was 1.0 and is 2.0; .*rate was",
        ),
        ({"seed": 1}, "settings of the run were changed since .*: seed was 0 and is 1"),
        ({"data": {"seed": 1}}, "the data changed since the run began"),
    ],
)
def test_settings_that_do_not_fit_the_checkpoint_are_refused(
    run: Path, store: Store, changes: dict[str, Any], said: str
) -> None:
    path = run / "settings.json"
    saved = json.loads(path.read_text())
    for part, values in changes.items():
        saved[part] = saved[part] | values if isinstance(values, dict) else values
    path.write_text(json.dumps(saved))
    with pytest.raises(CheckpointError, match=said):
        train(settings_of(PLAIN, 3), run, store=store, resume=True)
    assert len(steps_of(run)) == 2


def test_what_decides_no_number_may_be_changed(run: Path, reference: Path, store: Store) -> None:
    path = run / "settings.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"checkpoint_seconds": 1e3}))
    train(settings_of(PLAIN, 3), run, store=store, resume=True)
    check_same(run, reference)


@pytest.mark.parametrize(
    ("content", "kind"),
    [("{", RunError), ("[]", RunError), ("{}", RunError), ('{"task": "x"}', RunError),
     ('{"task": "darcy", "sed": 1}', ValueError)],
)  # fmt: skip
def test_settings_that_are_none_are_refused(
    run: Path, store: Store, content: str, kind: type[Exception]
) -> None:
    (run / "settings.json").write_text(content)
    with pytest.raises(kind, match="settings"):
        train(settings_of(PLAIN, 3), run, store=store, resume=True)


def test_a_run_is_not_overwritten_and_none_is_resumed_where_there_is_none(
    run: Path, tmp_path: Path, store: Store
) -> None:
    before = sorted(path.name for path in run.rglob("*"))
    with pytest.raises(RunError, match="holds a run already: resume it, or choose another folder"):
        train(settings_of(PLAIN, 3), run, store=store)
    assert sorted(path.name for path in run.rglob("*")) == before
    with pytest.raises(RunError, match=r"expected a run to resume, got no settings\.json there"):
        train(settings_of(PLAIN, 3), tmp_path / "none", store=store, resume=True)
    assert not (tmp_path / "none").exists()


def test_a_finished_run_is_not_tested_again(
    reference: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = json.loads((reference / "record.json").read_text())

    def touched(*_: object) -> None:
        raise AssertionError("the data of a finished run was read")

    monkeypatch.setattr(TASKS["darcy"], "splits", touched)
    assert train(settings_of(PLAIN, 3), reference, store=store, resume=True).record == record


def test_a_disk_that_fills_up_ends_the_run_and_room_lets_it_go_on(
    run: Path, reference: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuse)
        with pytest.raises(CheckpointError, match=r"No space left .* saved before is untouched"):
            train(settings_of(PLAIN, 3), run, store=store, resume=True)
    assert [path.name for path in run.rglob("*.part")] == []
    assert steps_of(run)[-1].name == "step-000000005"
    train(settings_of(PLAIN, 3), run, store=store, resume=True)
    check_same(run, reference)


def test_the_state_after_a_resume_is_that_of_the_checkpoint(run: Path, store: Store) -> None:
    saved = load_checkpoint(steps_of(run)[-1])
    task = Darcy(settings_of(PLAIN, 3))
    surrogate = build_network(task)
    fabric = Fabric(accelerator="cpu", devices=1)
    trainer = Trainer(task, task.splits(store), surrogate, run, fabric=fabric)
    assert trainer.resume()
    assert (trainer.state.epoch, trainer.state.step) == (1, 2)
    assert vars(trainer.state) == saved.document["state"]
    for name, tensor in model_tensors(trainer.surrogate).items():
        assert torch.equal(tensor, saved.tensors["model"][name]), name
