"""The audit of a run: one page that tries to break it, and the same as JSON.

Samples are fresh ones of the solver, or those of the test where there is none.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from funcattn.files import write_text
from funcattn.provenance import facts
from funcattn.trust.checks import CHECKS, THRESHOLDS, Check, Examined
from funcattn.trust.pages import bands_section, made_section
from funcattn.trust.subject import FRESH, Subject
from funcattn.viz.plots import curves, histogram
from funcattn.viz.report import Picture, Section, Table, write_report

SAMPLES = 40


@dataclass(frozen=True)
class Audit:
    """What all checks found."""

    source: str
    """Which samples were used, in words."""
    checks: Sequence[Check]
    errors: Sequence[float]

    @property
    def failed(self) -> list[str]:
        """Titles of the checks that the run does not pass."""
        return [check.title for check in self.checks if check.outcome == "fails"]

    def in_words(self) -> str:
        """The counts, and what failed."""
        passed = sum(check.outcome == "passes" for check in self.checks)
        skipped = sum(check.outcome == "not applicable" for check in self.checks)
        text = f"{passed} checks passed, {len(self.failed)} failed, {skipped} not applicable"
        return f"{text}. Failed: {', '.join(self.failed)}." if self.failed else f"{text}."


def audit(
    subject: Subject,
    *,
    count: int = SAMPLES,
    advance: Callable[[int, int], None] = lambda done, total: None,  # noqa: ARG005
) -> Audit:
    """Try to break a run in every way there is a check for.

    advance: called with (done, total) after each check.
    """
    if subject.labels:
        raise ValueError("audit: expected a run that predicts fields, got one that classifies")
    if subject.has_solver:
        samples: Any = subject.fresh(count, 3 * FRESH)
        source = f"{count} fresh samples of the solver, seen by nothing before"
    else:
        test = subject.splits.test
        samples = [test[i] for i in range(min(count, len(test)))]
        source = f"{len(samples)} samples of the test"
    _ = subject.splits  # some tasks take scales of their metrics from there
    examined = Examined(subject, samples)
    found = []
    for place, check in enumerate(CHECKS, 1):
        found.append(check(examined))
        advance(place, len(CHECKS))
    return Audit(source, found, examined.errors.tolist())


def write_audit(path: Path, subject: Subject, found: Audit, command: str) -> None:
    """The page, and the JSON beside it."""
    record = {
        "run": subject.run.settings.task,
        "summary": found.in_words(),
        "samples": found.source,
        "thresholds": dict(THRESHOLDS),
        "checks": [check.as_dict() for check in found.checks],
        "errors": list(found.errors),
        "command": command,
        **facts(),
        "settings": asdict(subject.run.settings),
    }
    write_text(path.with_suffix(".json"), json.dumps(record, indent=1) + "\n")
    write_report(
        path,
        title=f"Audit: {subject.task.title}",
        summary=f"{found.in_words()} Examined with {found.source}.",
        sections=[*_sections(subject, found), made_section(record)],
    )


def _sections(subject: Subject, found: Audit) -> Iterator[Section]:
    rows = [(check.title, check.outcome, check.found.said) for check in found.checks]
    yield Section("Verdicts", "", [Table(("check", "verdict", "found"), rows)])
    yield from bands_section(subject.run)
    for check in found.checks:
        its = check.found
        tables = [Table(its.headings, its.rows)] if its.rows else []
        pictures = []
        if its.lines:
            figure = curves(its.lines, x_label=its.axes[0], y_label=its.axes[1])
            pictures.append(Picture(figure, f"{its.axes[1]} over {its.axes[0]}"))
        if its.values:
            name = subject.task.headline.replace("_", " ")
            figure = histogram(its.values, x_label=name, y_label="samples")
            pictures.append(Picture(figure, "the error of every sample"))
        word = "Not applicable" if check.outcome == "not applicable" else "Found"
        text = f"{check.asked} {word}: {its.said}."
        yield Section(check.title, text, tables, pictures, verdict=check.outcome)
