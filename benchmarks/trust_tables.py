"""The tables of docs/trust.md from results/trust.json, and the page with them in their places."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from funcattn.bench.report import filled

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "trust.md", ROOT / "results" / "trust.json"
NO_FIELD = ("airfrans", "eddy viscosity")
"""Is 0 in potential flows."""


def page() -> str:
    """What docs/trust.md has to be."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    return filled(PAGE.read_text(encoding="utf-8"), parts(results))


def parts(results: Mapping[str, Any]) -> dict[str, str]:
    """The tables, by name."""
    return {
        "runs": _table(("run", "trained by", "test error"), _runs(results)),
        "bands": _table(
            ("run", "points", "spread", "50 %", "80 %", "90 %", "95 %", "width at 90 %"),
            _bands(results),
        ),
        "quantities": _table(("run", "quantity", "50 %", "80 %", "90 %", "95 %"), _within(results)),
        "unlike": _table(
            ("run", "other inputs", "area under the ROC curve", "flagged", "error", "as trained"),
            _unlike(results),
        ),
        "alarms": "; ".join(
            f"{name} {_percent(each['flagged of fresh samples as trained'])}"
            for name, each in _of("unlike", results)
        )
        + ".",
        "audits": _table(("run", *AUDITED.values()), _audits(results)),
        "breakeven": _table(
            (
                "task",
                "error",
                "prediction, ms",
                "solver with that error, ms",
                "its mesh",
                "speed-up",
                "(over the data's solver)",
                "data, s",
                "training, s",
                "pays after",
            ),
            _breakeven(results),
        ),
        "made": _made(results),
    }


def _of(part: str, results: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, measured in results.items():
        if part in measured:
            yield name, measured[part]["found"]


def _runs(results: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for name, measured in results.items():
        first = next(iter(measured.values()))
        metric, value = next(iter(first["test"].items()))
        yield name, f"`{first['training']}`", f"{value:.3g} ({metric.replace('_', ' ')})"


def _bands(results: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for name, found in _of("bands", results):
        for spread, grids in found.items():
            for grid, measured in grids.items():
                for field, inside in measured["inside at all points"].items():
                    if (name, field) == NO_FIELD:
                        continue
                    words = [name] if grid == "as trained" else [name, grid]
                    words += [field] if len(measured["inside at all points"]) > 1 else []
                    width = measured["mean width at 90 % over the deviation of the field"][field]
                    shares = [_percent(share) for share in inside.values()]
                    yield ", ".join(words), str(measured["points"]), spread, *shares, f"{width:.2g}"


def _within(results: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for name, found in _of("bands", results):
        measured = found["constant"]["as trained"]
        rows = {
            "relative L2 error": measured["error below its bound"],
            **measured["quantities within their bounds"],
        }
        for quantity, inside in rows.items():
            if not quantity.endswith(NO_FIELD[1]):
                yield name, quantity, *(_percent(share) for share in inside.values())


def _unlike(results: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for name, found in _of("unlike", results):
        for others, measured in found.items():
            if isinstance(measured, dict):
                yield (
                    name,
                    others,
                    f"{measured['area under the ROC curve']:.3f}",
                    _percent(measured["flagged"]),
                    f"{measured['error']:.3g}",
                    f"{found['error as trained']:.3g}",
                )


AUDITED = {
    "The tail of the error": "tail",
    "Other resolutions": "resolution",
    "Order and subsets of the points": "order, subsets",
    "A refined patch": "patch",
    "Symmetries": "symmetries",
    "Wave numbers": "waves",
    "Noise in the input": "noise",
    "Residual of the equation": "residual",
    "Time and memory over the points": "cost",
    "Determinism": "determinism",
    "Export": "export",
}
OUTCOMES = {"passes": "passes", "fails": "**fails**", "not applicable": "-"}


def _audits(results: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for name, found in _of("audit", results):
        yield name, *(OUTCOMES[found["checks"][title]["outcome"]] for title in AUDITED)


def _breakeven(results: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for name, found in _of("breakeven", results):
        equal = found["equal"] or "that of the data"
        solver = found["speed_up"] * found["inference_seconds"]
        error, pays = found["error"], found["predictions"]
        yield (
            name,
            f"{error:.3g} (mean square)" if name == "airfrans" else _percent(error),
            f"{1e3 * found['inference_seconds']:.3g}",
            f"{1e3 * solver:.3g}",
            equal,
            _times(found["speed_up"]),
            _times(found["weak_speed_up"]),
            f"{found['data_seconds']:.3g}",
            f"{found['training_seconds']:.3g}",
            "never" if pays is None else f"{pays:,.0f}",
        )


def _made(results: Mapping[str, Any]) -> str:
    """Commands and commits behind the numbers, each once."""
    said = {
        (each["command"], each["commit"], each["machine"])
        for measured in results.values()
        for each in measured.values()
    }
    return "\n".join(
        f"- `{command}`, commit {commit}, {machine}" for command, commit, machine in sorted(said)
    )


def _times(factor: float) -> str:
    return f"{factor:.2g}" if factor < 100 else f"{factor:.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _table(headings: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
