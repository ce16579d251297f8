"""What to measure, in which processes, and the file that keeps it."""

import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from funcattn import bench, models, nn, ops
from funcattn.bench.alone import PROCESSES, Alone, merged
from funcattn.bench.candidates import CANDIDATES, Scope, Shape
from funcattn.bench.measure import Job, Say
from funcattn.documents import read_json
from funcattn.files import write_text
from funcattn.processes import leashed
from funcattn.processor import name as processor_name
from funcattn.provenance import facts

Allocator = Literal["default", "kept pages"]

ALLOCATORS: Mapping[Allocator, Mapping[str, str]] = {
    "default": {},
    # Nothing is mapped by itself, nothing is given back, and the heap grows by 64 MiB at a time.
    "kept pages": {
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(2**40),
        "MALLOC_TOP_PAD_": str(2**26),
    },
}
_OF_ALLOCATORS = {*ALLOCATORS["kept pages"], "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"}

SHAPES = (Shape(128, 64, 8), Shape(128, 64, 1), Shape(256, 32, 8))
LAYER_SIZES = (512, *(4**k for k in range(5, 11)))
"""Points of layers: few, and the powers of four from a thousand to a million."""
LARGEST: Mapping[Shape, int] = {SHAPES[2]: 2**16}
"""Where a shape ends before."""
MODEL_SIZES = tuple(sorted((972, 7225, *(4**k for k in range(5, 9)))))
"""Points of networks: those of the tasks Elasticity and Darcy, and the same powers, as far as
baselines go."""
BASELINES_IN_MODELS_UP_TO = 2**16
"""Points up to which networks of other attentions are measured: beyond, each takes minutes."""
WEIGHED_FROM = 2**12
"""Points from which memory is measured: below, what a process does besides is as large."""
FEWER_ROUNDS: Mapping[Scope, Mapping[int, int]] = {
    "layer": {2**18: 3, 2**20: 2},
    "model": {2**16: 2},
}
"""Rounds that are enough from so many points on: calls take seconds, or minutes, and are steady."""


@dataclass(frozen=True)
class Effort:
    """How long is measured."""

    rounds: int = 5
    """Of all candidates, at least."""
    seconds: float = 1.5
    """For a candidate, about, where that is more than the rounds."""
    quadratic_up_to: int = 2**14
    """Points up to which layers of quadratic cost are measured; networks of them up to half."""
    compiled: bool = True
    """Whether compiled candidates, which have to be compiled first, are measured."""


@dataclass(frozen=True)
class Comparison:
    """Candidates of one part at one size, side by side."""

    part: Scope
    shape: Shape
    points: int
    allocator: Allocator
    threads: int = 1

    @property
    def key(self) -> str:
        """Its name in the file."""
        return (
            f"{self.part} {self.shape}, {self.points} points, {self.allocator}, "
            f"{_threads(self.threads)}"
        )


def code_version() -> str:
    """Of everything that decides what is measured: a digest of the sources, and PyTorch's version.

    Not the commit, which changes with every word in the documentation.
    """
    folders = [Path(package.__path__[0]) for package in (ops, nn, models, bench)]
    sources = ("*.py", "*.c", "*.h")
    ours = [
        path for folder in folders[:2] for kind in sources for path in sorted(folder.rglob(kind))
    ]
    ours += [folders[2] / "operator_transformer.py"]
    names = ("alone", "candidates", "child", "measure", "memory", "reference_form")
    ours += [folders[3] / f"{name}.py" for name in names]
    digest = hashlib.sha256(torch.__version__.encode())
    for path in ours:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@dataclass(frozen=True)
class Work:
    """Something to measure, and its name in the file."""

    key: str
    measure: Callable[[Say], dict[str, Any]]
    """Told where to say how far it is."""


def work_of_comparison(case: Comparison, effort: Effort) -> Work:
    """The candidates of a comparison, side by side."""
    of_model = case.part == "model"
    without_baselines = of_model and case.points > BASELINES_IN_MODELS_UP_TO
    known = {
        name: candidate
        for name, candidate in CANDIDATES[case.part].items()
        if (effort.compiled or not candidate.compiled)
        and (candidate.functional or not without_baselines)
    }
    ends = case.points > (effort.quadratic_up_to // 2 if of_model else effort.quadratic_up_to)
    names = tuple(name for name, candidate in known.items() if not (ends and candidate.quadratic))
    fewer = (rounds for n, rounds in FEWER_ROUNDS[case.part].items() if case.points >= n)
    job = Job(
        what="time",
        part=case.part,
        shape=case.shape,
        points=case.points,
        candidates=names,
        rounds=min([effort.rounds, *fewer]),
        seconds=effort.seconds,
    )

    def measure(say: Say) -> dict[str, Any]:
        found = in_a_child(asdict(job), case.allocator, case.threads, say)
        if case.allocator == "default" and case.points >= WEIGHED_FROM:
            weigh = asdict(job) | {"what": "memory"}
            weighed = in_a_child(weigh, case.allocator, case.threads, say)
            for name, memory in weighed["candidates"].items():
                found["candidates"][name]["memory"] = memory
        return {**asdict(case), **found, "too slow": [name for name in known if name not in names]}

    return Work(case.key, measure)


def work_of_alone(case: Alone, threads: int) -> Work:
    """The candidates of a case, each alone, in turns."""

    def measure(say: Say) -> dict[str, Any]:
        took: list[dict[str, dict[str, float]]] = []
        for index in range(PROCESSES):
            took.append({})
            for name in case.candidates:
                say(f"process {index + 1} of {PROCESSES}, {name}")
                asked = {"what": "alone", "case": asdict(case), "candidate": name}
                took[-1][name] = in_a_child(asked, "default", threads, say)
        return dict(merged(case, threads, took))

    return Work(f"{case.key}, {_threads(threads)}", measure)


def work_of_feat(name: str, threads: int) -> Work:
    """A single call with very many points."""

    def measure(say: Say) -> dict[str, Any]:
        found = in_a_child({"what": "scale", "name": name}, "default", threads, say)
        return {**found, "feat": name, "threads": threads}

    return Work(f"scale {name}, {_threads(threads)}", measure)


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"


def environment_of(allocator: Allocator) -> dict[str, str]:
    """This process's environment, but with another allocator."""
    others = {name: value for name, value in os.environ.items() if name not in _OF_ALLOCATORS}
    return {**others, **ALLOCATORS[allocator]}


def in_a_child(
    asked: Mapping[str, Any], allocator: Allocator, threads: int, say: Say
) -> dict[str, Any]:
    """What a fresh process finds that is asked for something (`funcattn.bench.child`).

    Raises:
        ChildProcessError: it ended without an answer.
    """
    environment = {**environment_of(allocator), "OMP_NUM_THREADS": str(threads)}
    with (
        tempfile.TemporaryFile("w+") as complaints,
        subprocess.Popen(
            leashed([sys.executable, "-m", "funcattn.bench.child"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            env=environment,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({**asked, "threads": threads}))
            process.stdin.close()
            found = None
            for line in process.stdout:
                answer = json.loads(line)
                found = answer.get("found")
                if found is None:
                    say(answer["said"])
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        if code or found is None:
            complaints.seek(0)
            last = (complaints.read().strip().splitlines() or ["without a word"])[-1]
            raise ChildProcessError(f"a process that measures ended with code {code}: {last}")
    return dict(found)


def _as_fast_as_this(records: Sequence[Mapping[str, Any]]) -> bool:
    """Whether matrix products had about the rate that they have here."""
    rates = [
        (record["rates"]["matrix product"], record["threads"])
        for record in records
        if "rates" in record
    ]
    here = {
        threads: in_a_child({"what": "product rate"}, "default", threads, _say_nothing)["rate"]
        for threads in {threads for _, threads in rates}
    }
    ratios = [rate / here[threads] for rate, threads in rates]
    return bool(ratios) and 1 / _ALIKE < statistics.median(ratios) < _ALIKE


def _say_nothing(text: str) -> None:
    """Where nobody listens."""


_ALIKE = 1.25
"""Rates of matrix products that differ by less are those of one kind of processor."""
MEASUREMENTS = {"measurements": {...: {"threads": int}}}
"""The shape of the file."""


class Measurements:
    """The measurements in a JSON file, by their keys."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, dict[str, Any]] = {}
        if path.exists():
            self.records = read_json(path, MEASUREMENTS)["measurements"]

    def has(self, key: str, version: str) -> bool:
        """Whether that was measured with this version of the code."""
        return self.records.get(key, {}).get("code") == version

    def drop(self, unwanted: Callable[[Mapping[str, Any]], bool], wanted: Iterable[str]) -> int:
        """Forget the unwanted that are not among the wanted keys, and say how many.

        The file is written with the next measurement.
        """
        kept = set(wanted)
        gone = [key for key, r in self.records.items() if key not in kept and unwanted(r)]
        for key in gone:
            del self.records[key]
        return len(gone)

    def refuse_another_processor(self) -> None:
        """Whether times of this processor may stand beside those of the file.

        Earlier versions did not name it. Those measurements are known by the rate of their matrix
        products.

        Raises:
            ValueError: some of them are another's, or cannot be known.
        """
        here = processor_name()
        records = list(self.records.values())
        named = {record["processor"] for record in records if "processor" in record}
        unnamed = [record for record in records if "processor" not in record]
        if unnamed and not _as_fast_as_this(unnamed):
            named.add("not named")
        if others := sorted(named - {here}):
            raise ValueError(
                f"{self.path}: expected measurements of this processor, {here}, "
                f"got some of another one ({'; '.join(others)}), whose times do not compare with "
                "them; choose another file (--out), or remove this one to measure all anew"
            )

    def keep(self, key: str, record: Mapping[str, Any], version: str, command: str) -> None:
        """Add a measurement, and write all of them."""
        made = {"code": version, "command": command, "seed": 0, **facts()}
        self.records[key] = {**record, **made, "threads": record["threads"]}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # A line each: what is measured anew shows as such in a comparison of versions.
        lines = (f"{json.dumps(name)}: {json.dumps(kept)}" for name, kept in self.records.items())
        write_text(self.path, '{"measurements": {\n' + ",\n".join(lines) + "\n}}\n")


def run(
    wanted: Iterable[Work],
    results: Measurements,
    *,
    command: str,
    again: bool,
    on_work: Callable[[str], Say],
) -> list[str]:
    """Measure what is not there yet, and return what could not be measured.

    on_work is called with the name of each, also of those that are there, and returns a function
    that shows progress.

    Raises:
        ValueError: results has measurements of another processor.
    """
    failures = []
    for work in wanted:
        say, version = on_work(work.key), code_version()
        if results.has(work.key, version) and not again:
            continue
        results.refuse_another_processor()
        try:
            results.keep(work.key, work.measure(say), version, command)
        except ChildProcessError as error:
            failures.append(f"{work.key}: {error}")
    return failures
