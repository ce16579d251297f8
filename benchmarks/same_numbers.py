"""Whether a change of the code left the numbers of the experiments as they were.

    python benchmarks/same_numbers.py COMMIT "what changed" [--within 1e-6] [--rna PATH]
        [--but-for NETWORK ...]

Trains, at tier smoke, each network on each task that the paper's experiments have results of, by
the code of a commit and by the code as it is, and compares every number of every epoch and of the
test: to the last bit, or, where a change only rounds otherwise, within a relative difference. If
all are the same, results/experiments/same_numbers.json gets an entry with the largest difference,
and results by the code of the commit count as those of the code as it is, but for networks that
were changed on purpose.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from funcattn.data import Store
from funcattn.experiments import results
from funcattn.experiments.tiers import tier_settings
from funcattn.experiments.version import code_version
from funcattn.provenance import facts
from funcattn.training.checkpoint import write_whole
from funcattn.training.run import train

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "experiments"


def trained(task: str, model: str, out: Path, cache: Path, rna: str) -> dict[str, Any]:
    """All numbers of a run, by the code that this process has."""
    settings = tier_settings(task, model, "smoke")
    if task == "rna":
        settings = replace(settings, data=replace(settings.data, path=rna))
    record = train(settings, out, store=Store(cache, workers=1), command="")
    lines = (out / "metrics.jsonl").read_text().splitlines()
    epochs = [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]
    return {"version": code_version(task), "epochs": epochs, "test": record["test"]}


def by_code_in(checkout: Path, *asked: str) -> dict[str, Any]:
    """The same by the code of a checkout."""
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    call = [sys.executable, __file__, "--child", *asked]
    said = subprocess.run(
        call, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def numbers(found: object) -> Iterator[float]:
    """All numbers of a run, in their order."""
    if isinstance(found, dict):
        for name in sorted(found):
            yield from numbers(found[name])
    elif isinstance(found, list):
        for each in found:
            yield from numbers(each)
    elif isinstance(found, int | float):
        yield float(found)


def difference(one: object, other: object) -> float:
    """The largest relative one; infinite where the runs have not the same numbers of them."""
    pairs = list(zip_longest(numbers(one), numbers(other), fillvalue=math.nan))
    differences = [0.0 if a == b else abs(a - b) / max(abs(a), abs(b)) for a, b in pairs]
    return max((math.inf if math.isnan(d) else d for d in differences), default=0.0)


def compared(
    before: Path, work: Path, rna: str | None, but_for: Sequence[str], within: float
) -> tuple[dict[str, list[str]], float]:
    """The two versions of each task, and the largest difference; exits where that is too large."""
    versions, largest = {}, 0.0
    for path in sorted(RESULTS.glob("*.jsonl")):
        task = path.stem
        if task == "rna" and rna is None:
            sys.exit("rna: expected the data set, as there are results of it; give --rna PATH")
        for model in sorted({line["model"] for line in results.read_lines(path)} - {*but_for}):
            found = []
            for name, checkout in (("before", before), ("after", ROOT)):
                out = work / f"{task}-{model}-{name}"
                found.append(by_code_in(checkout, task, model, str(out), str(work), rna or ""))
            old, new = (one.pop("version") for one in found)
            apart = difference(*found)
            if apart > within:
                sys.exit(f"{task}, {model}: other numbers\n{found[0]}\n{found[1]}")
            print(f"{task}, {model}: the same within {apart:.2g}, {old} and {new}", flush=True)
            versions[task], largest = [old, new], max(largest, apart)
    return versions, largest


def main() -> None:
    """Compare, and note that they are the same."""
    if sys.argv[1:2] == ["--child"]:
        task, model, out, cache, rna = sys.argv[2:]
        print(json.dumps(trained(task, model, Path(out), Path(cache), rna)))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commit")
    parser.add_argument("why")
    parser.add_argument("--within", type=float, default=0.0)
    parser.add_argument("--rna")
    parser.add_argument("--but-for", nargs="*", default=[], metavar="NETWORK")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(before)], check=True)
        subprocess.run(["git", "-C", str(before), "checkout", "-q", asked.commit], check=True)
        versions, largest = compared(before, Path(folder), asked.rna, asked.but_for, asked.within)
    entry = {"why": asked.why, "before": asked.commit, "code": versions, **facts()}
    entry["largest difference"] = largest
    if asked.but_for:
        entry["but_for"] = asked.but_for
    entries = [*results.same_numbers(RESULTS), entry]
    write_whole(RESULTS / results.SAME_NUMBERS, json.dumps(entries, indent=1) + "\n")


if __name__ == "__main__":
    main()
