"""Measure bands, scores of unlike inputs, audits and break-even of runs, for results/trust.json.

    python benchmarks/trust.py models/darcy models/burgers runs/airfrans --cache CACHE

Each run is copied and calibrated, and its bands are checked on fresh samples that calibration has
not seen; so is the score on samples from other distributions. What is measured goes into one file,
by task; what it has of the same commit and weights is not measured again.
"""

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from funcattn.data import Sample, Store, collate
from funcattn.files import write_text
from funcattn.pde import burgers, darcy, elasticity
from funcattn.pde.errors import NotConvergedError
from funcattn.pde.random_fields import neumann_field
from funcattn.provenance import facts
from funcattn.serve.bands import Bands, field_parts
from funcattn.training.checkpoint import weights_digest
from funcattn.trust.audit import audit
from funcattn.trust.bands import calibrate, scores
from funcattn.trust.breakeven import breakeven
from funcattn.trust.familiar import area_under_curve, familiarity_of, learn_familiarity
from funcattn.trust.ladders import LADDERS
from funcattn.trust.subject import FRESH, Subject, open_subject

COVERAGES = (0.5, 0.8, 0.9, 0.95)


def main() -> None:
    """Measure run after run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/trust.json"))
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=150)
    parser.add_argument("--asked", type=int, default=200)
    parser.add_argument("--solved", type=int, default=6, help="samples of a break-even")
    parser.add_argument("--examined", type=int, default=20, help="samples of an audit")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    command = " ".join(["python", *(Path(a).name if "/" in a else a for a in sys.argv)])
    with tempfile.TemporaryDirectory() as copies:
        for folder in asked.runs:
            copy = shutil.copytree(folder, Path(copies) / folder.name)
            subject = open_subject(copy, Store(asked.cache))
            for part in asked.parts:
                if _kept(asked.out, subject, part):
                    continue
                found = PARTS[part](subject, asked)
                if found:
                    _keep(asked.out, subject, part, found, command)
                    print(subject.task.name, part, json.dumps(found)[:400], flush=True)


def _bands(subject: Subject, asked: Any) -> dict[str, Any]:
    """Coverage on fresh samples, as trained and on a finer grid, by kind of spread."""
    fresh = subject.fresh(asked.asked, 2 * FRESH)
    found: dict[str, Any] = {}
    for kind in ("constant", "learned"):
        bands = calibrate(subject, count=asked.samples, spread=kind, command="benchmarks/trust.py")
        found[kind] = {"as trained": _covered(subject, bands, fresh)}
        for words, changes in FINER.get(subject.task.name, {}).items():
            finer = subject.fresh(asked.asked // 2, 2 * FRESH, **changes)
            found[kind][words] = _covered(subject, bands, finer)
    return found


FINER: dict[str, dict[str, dict[str, Any]]] = {
    "darcy": {"twice the points per axis": {"use_every": 5}},
    "burgers": {"four times the points": {"use_every": 1}},
}


def _covered(subject: Subject, bands: Bands, samples: Any) -> dict[str, Any]:
    """By field: how many samples are inside at all points, and how wide the band is."""
    scored = list(scores(subject, bands, [samples[i] for i in range(len(samples))]))
    inside = {
        name: {
            str(c): float(
                np.mean([s.worst[name] <= bands.factor(name, s.points, c) for s in scored])
            )
            for c in COVERAGES
        }
        for name in bands.worst
    }
    return {
        "points": len(samples[0].positions),
        "calibration samples": bands.samples,
        "asked": len(scored),
        "inside at all points": inside,
        "error below its bound": {
            str(c): float(np.mean([s.errors["all"] <= bands.error_bound("all", c) for s in scored]))
            for c in COVERAGES
        },
        "quantities within their bounds": {
            name: {
                str(c): float(
                    np.mean([s.quantities[name] <= bands.quantity_bound(name, c) for s in scored])
                )
                for c in COVERAGES
            }
            for name in bands.quantities
        },
        "mean width at 90 % over the deviation of the field": _widths(subject, bands, samples),
    }


def _widths(subject: Subject, bands: Bands, samples: Any, count: int = 20) -> dict[str, float]:
    problem = subject.task.problem
    targets = torch.cat([samples[i].target for i in range(count)])
    widths = []
    for i in range(count):
        batch = collate([samples[i]])
        said = subject.predictions(batch)
        ends = bands.around(problem, said, batch.positions, batch.values)
        widths.append((ends.upper - ends.lower)[0])
    found = {}
    for name, part in field_parts(problem, targets.shape[1:]).items():
        deviation = float(targets[..., part].std())
        if deviation > 0:  # the eddy viscosity of potential flows is 0
            found[name] = float(torch.cat(widths)[..., part].mean()) / deviation
    return found


def _unlike(subject: Subject, asked: Any) -> dict[str, Any]:
    """Area under the ROC curve, and how often others are flagged."""
    others = OTHERS.get(subject.task.name, {})
    if not others or _name(subject) == "airfrans":
        return {}
    known = learn_familiarity(subject)
    count = asked.asked // 2
    inside = subject.fresh(count, 2 * FRESH)
    plain = familiarity_of(subject, known, [inside[i] for i in range(count)])
    found: dict[str, Any] = {
        "flagged of fresh samples as trained": float(np.mean([s.worst > 1 for s in plain])),
        "error as trained": float(subject.errors(inside).mean()),
    }
    for words, make in others.items():
        samples = make(subject, count)
        scored = familiarity_of(subject, known, samples)
        found[words] = {
            "area under the ROC curve": area_under_curve(
                [s.worst for s in plain], [s.worst for s in scored]
            ),
            "of the distance alone": area_under_curve(
                [s.distance for s in plain], [s.distance for s in scored]
            ),
            "of the nearest alone": area_under_curve(
                [s.nearest for s in plain], [s.nearest for s in scored]
            ),
            "flagged": float(np.mean([s.worst > 1 for s in scored])),
            "error": float(subject.errors(samples).mean()),
        }
    return found


def _darcy(low: float, high: float, tau: float) -> Any:
    def make(subject: Subject, count: int) -> list[Sample]:
        data: Any = subject.task.data
        made = []
        for place in range(count):
            rng = np.random.default_rng([7, place])
            a = darcy.permeability(neumann_field(data.nodes, tau=tau, rng=rng), low, high)
            u, every = darcy.solve(a), data.use_every
            fields = {
                "permeability": a[None, ::every, ::every].astype(np.float32),
                "pressure": u[None, ::every, ::every].astype(np.float32),
            }
            made.append(subject.task.samples(fields)[0])  # type: ignore[attr-defined]
        return made

    return make


def _elasticity(**changes: Any) -> Any:
    def make(subject: Subject, count: int) -> list[Sample]:
        made = []
        for place in range(count):
            one = elasticity.sample(rng=np.random.default_rng([7, place]), **changes)
            fields = {name: one[name][None].astype(np.float32) for name in ("points", "stress")}
            made.append(subject.task.samples(fields)[0])  # type: ignore[attr-defined]
        return made

    return make


def _burgers(**changes: Any) -> Any:
    def make(subject: Subject, count: int) -> list[Sample]:
        data: Any = subject.task.data
        made: list[Sample] = []
        draw = 0
        while len(made) < count:
            rng = np.random.default_rng([7, draw])
            draw += 1
            try:
                one = burgers.sample(points=data.nodes, rng=rng, **changes)
            except NotConvergedError:
                continue  # as the store does, another draw
            fields = {
                n: one[n][None, :: data.use_every].astype(np.float32) for n in ("initial", "final")
            }
            made.append(subject.task.samples(fields)[0])  # type: ignore[attr-defined]
        return made

    return make


def _outside_split(subject: Subject, count: int) -> list[Sample]:
    """Of AirfRANS' splits, the test: both ends of the range."""
    test = subject.splits.test
    return [test[i] for i in range(min(count, len(test)))]


OTHERS: dict[str, dict[str, Any]] = {
    "darcy": {
        "contrast 12 : 6 instead of 12 : 3": _darcy(6.0, 12.0, 3.0),
        "contrast 24 : 3": _darcy(3.0, 24.0, 3.0),
        "shorter lengths (tau 6 instead of 3)": _darcy(3.0, 12.0, 6.0),
        "longer lengths (tau 1.5)": _darcy(3.0, 12.0, 1.5),
    },
    "elasticity": {
        "rougher voids (amplitude 8 instead of 4)": _elasticity(amplitude=8.0),
        "smoother voids (amplitude 1)": _elasticity(amplitude=1.0),
        "voids of one wave": _elasticity(modes=1),
    },
    "burgers": {
        "viscosity 0.07 instead of 0.1 (the input is the same)": _burgers(viscosity=0.07),
        "1.4 times the initial velocity": _burgers(scale=35.0),
        "shorter waves (tau 10 instead of 5)": _burgers(tau=10.0, scale=50.0),
    },
    "airfrans": {"both ends of the range of the split": _outside_split},
}


def _breakeven(subject: Subject, asked: Any) -> dict[str, Any]:
    inside = getattr(subject.task.data, "split", "full") == "full"
    if subject.task.name not in LADDERS or not inside:
        return {}
    found = breakeven(subject, count=asked.solved)
    return {
        **asdict(found),
        "summary": found.in_words(),
        "speed_up": found.speed_up,
        "weak_speed_up": found.weak_speed_up,
        "equal": None if found.equal is None else found.equal.in_words(),
        "predictions": found.predictions if np.isfinite(found.predictions) else None,
    }


def _audit(subject: Subject, asked: Any) -> dict[str, Any]:
    """Verdicts, numbers and curves."""
    found = audit(subject, count=asked.examined)
    kept = ("asked", "outcome", "said", "lines", "axes", "numbers")
    checks = {check.title: {name: check.as_dict()[name] for name in kept} for check in found.checks}
    return {"summary": found.in_words(), "samples": found.source, "checks": checks}


PARTS = {"bands": _bands, "unlike": _unlike, "breakeven": _breakeven, "audit": _audit}


def _name(subject: Subject) -> str:
    split = getattr(subject.task.data, "split", "full")
    return subject.task.name if split == "full" else f"{subject.task.name}, {split}"


def _kept(path: Path, subject: Subject, part: str) -> bool:
    old = json.loads(path.read_text()) if path.exists() else {}
    there = old.get(_name(subject), {}).get(part, {})
    wanted = (facts()["commit"], weights_digest(subject.run.network))
    return (there.get("commit"), there.get("weights")) == wanted


def _keep(path: Path, subject: Subject, part: str, found: dict[str, Any], command: str) -> None:
    """Beside what was measured before, with how it was made."""
    old = json.loads(path.read_text()) if path.exists() else {}
    record = subject.run.record
    old.setdefault(_name(subject), {})[part] = {
        "found": found,
        "model": subject.run.settings.model,
        "test": record["test"],
        "training": record["command"],
        "seed": subject.run.settings.seed,
        "weights": weights_digest(subject.run.network),
        "command": command,
        **facts(),
    }
    write_text(path, json.dumps(old, indent=1) + "\n")


if __name__ == "__main__":
    main()
