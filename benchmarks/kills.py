"""Kills commands at random moments (kill -9), goes on, and compares the end with a quiet one.

    python benchmarks/kills.py [--kills 100] [--seed 0] [--only WORDS] [--out results/kills.json]

Each job is run once without interruption, which tells how long each of its stages takes: starting,
making data, working, saving, testing and reporting. Then it is killed, in a stage that is drawn, at
a moment of it that is drawn, and started again by the same command, until it comes to its end,
whose numbers have to be equal to the bit. (Moments drawn from the whole time would mostly be of the
start, which takes longest in jobs so small.) Times that are measured differ anyway: of them, those
that were kept before a kill have to be kept. With --out, the table is written at each end, and the
same command goes on after it; remove the file to begin again.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Outcome = dict[str, Any]
Files = dict[Path, int]
"""When each was changed last, in nanoseconds."""


@dataclass(frozen=True)
class Job:
    """A command that is killed; what it comes to, and what of it stays however often it is."""

    name: str
    command: Callable[[Path], list[str]]
    outcome: Callable[[Path], Outcome]
    share: int
    """Of a hundred kills."""
    kept: Callable[[Path], Outcome] = field(default=lambda folder: {})  # noqa: ARG005


def sum_of(*contents: bytes) -> str:
    """Short for the bits of contents."""
    return hashlib.sha256(b"".join(contents)).hexdigest()[:16]


def training(task: str, *more: str) -> Job:
    """Training, from making the data to the report."""

    def command(folder: Path) -> list[str]:
        begun = (folder / "run/settings.json").exists()
        words = ["train", task, "--profile", "smoke", "--cache", "data", "--out", "run"]
        words += ["--checkpoint-seconds", "0", *more]
        return [*words, *(["--resume"] if begun else [])]

    def outcome(folder: Path) -> Outcome:
        from funcattn.training.run import Run

        run = Run(folder / "run")
        names = ("test", "test_values", "validation", "best_epoch", "epochs", "data")
        weights = {name: t.numpy().tobytes() for name, t in run.best.tensors["model"].items()}
        left = [path.name for path in (folder / "run/checkpoints").glob(".*")]
        return {
            **{name: run.record[name] for name in names},
            "history": run.history,
            "weights": sum_of(*(weights[name] for name in sorted(weights))),
            "report": run.report.exists(),
            "remains": left,
        }

    return Job(f"train {task}", command, outcome, share=20)


def sets(folder: Path) -> Outcome:
    """The content of made data, without what it cost."""
    from funcattn.data import Store

    found = {}
    for each in Store(folder / "data").sets():
        rows = range(len(each))
        fields = each.provenance["fields"]
        found[each.path.name] = {n: sum_of(each.read(n, rows).tobytes()) for n in sorted(fields)}
    return found


def lines(folder: Path, pattern: str) -> list[dict[str, Any]]:
    """The lines of records."""
    texts = [path.read_text() for path in sorted(folder.glob(pattern))]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def reproduced(folder: Path) -> Outcome:
    """What an experiment came to; only where tables were built is it at its end."""
    names = ("identity", "test", "curve", "validation", "data")
    found = lines(folder, "results/*.jsonl")
    built = (folder / "results/results.md").exists()
    return {"lines": [{n: line[n] for n in names} for line in found], "page": built}


def raced(folder: Path) -> Outcome:
    """The errors of a race, by piece; with so little time all make the least number of steps."""
    found = [line for line in lines(folder, "races/*.jsonl") if line["key"]["piece"] != "unit"]
    names = ("validation", "test")
    return {
        json.dumps(line["key"], sort_keys=True): {n: line[n] for n in names if n in line}
        for line in found
    }


def measured(folder: Path) -> Outcome:
    """Measurements, which are other ones each time."""
    path = folder / "bench/bench.json"
    found: Outcome = json.loads(path.read_text())["measurements"] if path.exists() else {}
    return found


JOBS = [
    training("darcy", "--optimisation.epochs", "8"),
    training("few_shot", "--optimisation.epochs", "6"),
    training("burgers", "--optimisation.epochs", "8"),
    Job(
        "generate darcy",
        lambda _: ["generate", "darcy", "--profile", "smoke", "--samples", "400", "--cache",
                   "data"],
        sets,
        share=12,
    ),
    Job(
        "reproduce",
        lambda _: ["reproduce", "few_shot", "--models", "softmax", "--tier", "smoke", "--results",
                   "results", "--queue", "queue", "--cache", "data"],
        reproduced,
        share=10,
    ),
    Job(
        "race",
        lambda _: ["race", "darcy", "--models", "fno", "--budget", "0.01s", "--profile", "smoke",
                   "--seeds", "2", "--out", "races", "--cache", "data"],
        raced,
        share=10,
        kept=raced,
    ),
    Job(
        "bench",
        lambda _: ["bench", "--quick", "--sizes", "128", "256", "--out", "bench/bench.json"],
        lambda folder: {"measured": sorted(measured(folder))},
        share=8,
        kept=measured,
    ),
]  # fmt: skip


def started(job: Job, folder: Path) -> subprocess.Popen[str]:
    """The command of a job in a folder of its own, and in a group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "funcattn", *job.command(folder)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def files(folder: Path) -> Files:
    """Everything in a folder, also while it is being changed."""
    found = {}
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(place, name)
            with suppress(FileNotFoundError):
                found[path] = path.stat().st_mtime_ns
    return found


def stage(before: Files, now: Files) -> str:
    """Where a job is, by what is in its folder and was not, or was otherwise, when it started."""
    new = {path for path, changed in now.items() if before.get(path) != changed}
    if not new:
        return "starting"
    if any(path.suffix == ".shards" for path in now):
        return "making data"
    if any(path.name.startswith(".") and ".part" in path.name for path in new):
        return "saving"
    # Logs are written when the training is at its end.
    return "testing or report" if any(path.name == "metrics.csv" for path in now) else "at work"


def watched(
    process: "subprocess.Popen[str]", folder: Path, aim: tuple[str, float] = ("", 0.0)
) -> dict[str, float]:
    """Seconds by stage, until the job ends, or has spent so many in one stage."""
    before = files(folder)
    spent: dict[str, float] = {}
    clock = time.monotonic()
    where, moment = aim
    while process.poll() is None and spent.get(where, -1.0) < moment:
        now = stage(before, files(folder))
        passed = time.monotonic() - clock
        clock += passed
        spent[now] = spent.get(now, 0.0) + passed
        time.sleep(0.001)
    return spent


def killed(job: Job, folder: Path, aim: tuple[str, float]) -> str:
    """Kill a job in a stage, after so many seconds of it; where it was, or empty if it had ended.

    A stage may be short: where it is over before the kill, the next one is where the job was.
    """
    before = files(folder)
    process = started(job, folder)
    watched(process, folder, aim)
    with_id = process.pid
    process.kill()
    said, _ = process.communicate()
    deadline = time.monotonic() + 60
    while alive(with_id):  # the children of a process that was killed end by themselves
        assert time.monotonic() < deadline, f"{job.name}: a child process outlived its parent"
        time.sleep(0.01)
    assert process.returncode in (0, -signal.SIGKILL), f"{job.name}: {said}"
    return stage(before, files(folder)) if process.returncode else ""


def alive(group: int) -> bool:
    """Whether a group has processes that have not ended."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def finished(job: Job, folder: Path) -> tuple[Outcome, dict[str, float]]:
    """What a job comes to when nothing happens to it any more, and how long each stage takes."""
    process = started(job, folder)
    spent = watched(process, folder)
    said, _ = process.communicate()
    assert process.returncode == 0, f"{job.name}: {said}"
    return job.outcome(folder), spent


def attack(
    job: Job, folder: Path, kills: int, seed: int, before: Mapping[str, Any] | None = None
) -> Iterator[dict[str, Any]]:
    """Kill a job so many times; at each end, the kills by stage and the ends that were the same.

    `before` is where an earlier attack was stopped.
    """
    stages, ends = (Counter(before["stages"]), before["ends"]) if before else (Counter[str](), 0)
    quiet = folder / "quiet"
    quiet.mkdir(parents=True)
    expected, lengths = finished(job, quiet)
    while stages.total() < kills:
        chance = random.Random(f"{job.name} {seed} {ends}")
        victim = folder / f"victim{ends}"
        victim.mkdir()
        ended, kept = False, job.kept(victim)
        while not ended and stages.total() < kills:
            where = chance.choice(sorted(lengths))
            # In its first half: a command that goes on has less to do than the quiet one.
            where = killed(job, victim, (where, chance.uniform(0.0, lengths[where] / 2)))
            ended = not where
            if where:
                stages[where] += 1
                kept = job.kept(victim)
        found = job.outcome(victim) if ended else finished(job, victim)[0]
        assert found == expected, f"{job.name}: expected {expected}, got {found}"
        now = job.kept(victim)
        assert kept == {name: now.get(name) for name in kept}, f"{job.name}: lost what it had"
        ends += 1
        shutil.rmtree(victim)
        yield {"kills": stages.total(), "stages": dict(sorted(stages.items())), "ends": ends}


def main() -> None:
    """Attack every job, print the table, keep it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    from funcattn.files import write_text
    from funcattn.provenance import facts

    made = {"command": "python benchmarks/kills.py", **facts()}
    asked = {"seed": options.seed, "of": options.kills, "commit": made["commit"]}
    kept = json.loads(options.out.read_text()) if options.out and options.out.exists() else asked
    if {name: kept.get(name) for name in asked} != asked:
        parser.error(f"{options.out} is of another number of kills, seed or commit; remove it")
    table: dict[str, dict[str, Any]] = kept.get("jobs", {})
    for job in JOBS:
        if options.only not in job.name:
            continue
        count = -(-job.share * options.kills // 100)
        done = table.get(job.name)
        if done is None or done["kills"] < count:
            with tempfile.TemporaryDirectory() as folder:
                for now in attack(job, Path(folder), count, options.seed, done):
                    table[job.name] = now
                    if options.out:
                        text = json.dumps({**asked, **made, "jobs": table}, indent=1)
                        write_text(options.out, text + "\n")
        each = table[job.name]
        where = ", ".join(f"{count} {name}" for name, count in each["stages"].items())
        print(f"{job.name:16} {each['kills']:3} kills ({where}), {each['ends']} ends", flush=True)


if __name__ == "__main__":
    main()
