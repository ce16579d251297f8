"""Store the numbers by which results are judged, after a change of the numbers on purpose.

    python benchmarks/record_fingerprints.py [TASK or NETWORK ...]

Repeats the short run of each network on each task of the paper's tables (of some tasks or networks
only, if named). Where it gives the stored numbers, nothing changes, and the results stay valid.
Where it gives other numbers, these replace the stored ones, and results by the older code are
marked as such. Takes a few minutes.
"""

import json
import sys
import tempfile
from pathlib import Path

from funcattn.data import Store
from funcattn.experiments import EXPERIMENTS
from funcattn.experiments.engine import fingerprints
from funcattn.files import write_text
from funcattn.provenance import commit

FILE = Path(fingerprints.__file__).parents[1] / fingerprints.FILE


def main() -> None:
    """Run, compare, and store what differs."""
    every = (trial for experiment in EXPERIMENTS.values() for trial in experiment.wanted())
    trials = fingerprints.by_key(every)
    runs = json.loads(FILE.read_text())["runs"] if FILE.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for key, trial in trials.items():
            if sys.argv[1:] and not {trial.task, trial.model} & set(sys.argv[1:]):
                continue
            numbers = fingerprints.computed(trial, Store(Path(folder)))
            if key in runs:
                apart = fingerprints.difference(runs[key]["numbers"], numbers)
                if apart <= fingerprints.TOLERANCE:
                    print(f"{key}: the same within {apart:.2g}", flush=True)
                    continue
                print(f"{key}: other numbers, by {apart:.2g}", flush=True)
            else:
                print(f"{key}: new", flush=True)
            runs[key] = {"numbers": numbers, "commit": commit()}
    lines = (f"{json.dumps(key)}: {json.dumps(runs[key])}" for key in trials if key in runs)
    write_text(FILE, '{"runs": {\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    main()
