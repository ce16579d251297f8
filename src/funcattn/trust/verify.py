"""Whether a recorded number holds: scored again from scratch.

Of a run, the test data is made again from its seed, in a folder of its own, and the weights are
scored on it. Of a line of results, whose weights are not kept, the network is trained again too.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from funcattn.data import Store
from funcattn.errors import FuncattnError
from funcattn.experiments.engine.results import read_lines
from funcattn.tasks.own import OwnData
from funcattn.training.bundled import run_folder
from funcattn.training.ensemble import metrics_of_mean, read_test
from funcattn.training.run import train
from funcattn.training.settings import saved_settings
from funcattn.trust.subject import Subject, open_subject

SCORED = 1e-3
"""Relative difference of a number that the same weights give on another machine."""
TRAINED = 0.05
"""The same of a training of its own, where rounding makes another network."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Verdict:
    """One number that was recorded, and what was found."""

    what: str
    metric: str
    recorded: float
    found: float | None
    tolerance: float
    note: str = ""

    @property
    def holds(self) -> bool | None:
        """None where it was not computed."""
        if self.found is None:
            return None
        room = self.tolerance * max(abs(self.recorded), abs(self.found))
        return abs(self.found - self.recorded) <= room

    @property
    def in_words(self) -> str:
        """Of a table."""
        return {True: "holds", False: "DOES NOT HOLD", None: "not computed"}[self.holds]


def verify(
    path: str | Path,
    *,
    store: Store | None = None,
    workers: int = 1,
    line: int | None = None,
    most_seconds: float = 600.0,
    say: Say = lambda words: None,  # noqa: ARG005
) -> Iterator[Verdict]:
    """Score what is at a path again: a run, a packed run, a file of results, or a folder of these.

    path: also the name of a run that comes with the package, where nothing of that name is there.
    store: where the data of benchmarks is taken from; None: it is made again, by so many workers.
    line: of a file of results, counted from 1; None: all.
    most_seconds: a line is trained again if it was trained in less CPU time.
    """
    path = Path(path)
    if not path.exists():
        path = run_folder(path)
    if path.suffix == ".jsonl":
        yield from _lines(path, line, most_seconds, store, workers, say)
        return
    if line is not None:
        raise ValueError(f"--line: expected a file of results, .jsonl, got {path}")
    if path.suffix == ".zip" or (path / "settings.json").exists():
        yield from _run(path, store, workers, say)
        return
    inside = [
        each
        for each in sorted(path.glob("*"))
        if each.suffix in (".zip", ".jsonl") or (each / "settings.json").exists()
    ]
    if not inside:
        raise ValueError(
            f"{path}: expected a run, a file of results (.jsonl), or a folder with some of these, "
            "got none"
        )
    for each in inside:
        yield from verify(each, store=store, workers=workers, most_seconds=most_seconds, say=say)


def _run(path: Path, store: Store | None, workers: int, say: Say) -> Iterator[Verdict]:
    """The test of a run, with its own weights."""
    say(f"{path}: making its data again, and scoring")
    with tempfile.TemporaryDirectory() as fresh:
        subject = open_subject(path, store or Store(Path(fresh), workers))
        record = subject.run.record
        data = _data(subject, str(record["data"]))
        found = metrics_of_mean(subject.task, [subject.run.network], subject.splits.test)
        yield from _compared(str(path), record["test"], subject.task.summary(found), SCORED, data)
        mean = read_test(subject.run)
        if mean:
            found = metrics_of_mean(subject.task, subject.networks, subject.splits.test)
            name = f"{path}, mean of {len(subject.networks)}"
            yield from _compared(name, mean, subject.task.summary(found), SCORED, data)


def _data(subject: Subject, recorded: str) -> str:
    """That the samples are the recorded ones, in words.

    Raises:
        FuncattnError: they are not.
    """
    found = subject.splits.fingerprint
    if found != recorded:
        raise FuncattnError(
            f"{subject.run.folder}: expected data with the recorded fingerprint {recorded}, got "
            f"{found}: the data, or the solver, is not the one of the record"
        )
    made = "read again" if isinstance(subject.task.data, OwnData) else "made again by its seed"
    return f"data {made}, the same to the last bit"


def _lines(
    path: Path,
    number: int | None,
    most_seconds: float,
    store: Store | None,
    workers: int,
    say: Say,
) -> Iterator[Verdict]:
    """Lines of results, each trained again."""
    lines = read_lines(path)
    if number is not None and not 1 <= number <= len(lines):
        raise ValueError(f"--line: expected 1 to {len(lines)} in {path}, got {number}")
    for place, line in enumerate(lines, 1):
        if number in (None, place):
            yield from _line(f"{path.name}, line {place}", line, most_seconds, store, workers, say)


def _line(
    name: str,
    line: Mapping[str, Any],
    most_seconds: float,
    store: Store | None,
    workers: int,
    say: Say,
) -> Iterator[Verdict]:
    settings = saved_settings(line["settings"])
    what = f"{name}: {line['task']}, {line['model']}, seed {line['seed']}"
    cost = float(line["cpu_seconds"])
    if cost > most_seconds:
        for metric, value in line["test"].items():
            note = f"its training took {cost:.0f} CPU seconds; allow it by --most-seconds"
            yield Verdict(what, metric, value, None, TRAINED, note)
        return
    say(f"{what}: training again, which took {cost:.0f} CPU seconds")
    with tempfile.TemporaryDirectory() as folder:
        fresh = store or Store(Path(folder) / "data", workers)
        run = train(settings, Path(folder) / "run", store=fresh, command="funcattn verify")
        record = run.record
    same = "the same data" if record["data"] == line["data"] else "OTHER DATA than recorded"
    yield from _compared(what, line["test"], record["test"], TRAINED, f"trained again, {same}")


def _compared(
    what: str,
    recorded: Mapping[str, float],
    found: Mapping[str, float],
    tolerance: float,
    note: str,
) -> Iterator[Verdict]:
    for metric, value in recorded.items():
        yield Verdict(what, metric, value, found.get(metric), tolerance, note)
