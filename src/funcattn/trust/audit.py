"""The audit of a run: one page that tries to break it, and the same as JSON.

Samples are fresh ones of the solver, or those of the test where there is none.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from funcattn.export import AGREEMENT, example_inputs, fixed_grid, to_onnx
from funcattn.files import write_text
from funcattn.provenance import facts
from funcattn.trust import checks
from funcattn.trust.checks import Check, Examined, not_applicable
from funcattn.trust.pages import bands_section
from funcattn.trust.subject import FRESH, Subject
from funcattn.viz.plots import curves, histogram
from funcattn.viz.report import Picture, Section, Table, write_report

SAMPLES = 40
CHECKS: tuple[Callable[[Examined], Check], ...] = (
    checks.tail,
    checks.resolution,
    checks.subsets,
    checks.patches,
    checks.symmetries,
    checks.waves,
    checks.noise,
    checks.residual,
    checks.cost,
    checks.determinism,
)


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
    asked = (*CHECKS, export)
    found = []
    for place, check in enumerate(asked, 1):
        found.append(check(examined))
        advance(place, len(asked))
    return Audit(source, found, examined.errors.tolist())


def export(examined: Examined) -> Check:
    """The network as an ONNX file, beside PyTorch."""
    asked = (
        f"The ONNX file of the network must give what PyTorch gives, up to {AGREEMENT:g} of the "
        "largest value."
    )
    title, subject = "Export", examined.subject
    network = subject.run.network
    example = example_inputs(subject.task, network, weights=subject.task.weighted)
    try:
        with tempfile.TemporaryDirectory() as folder:
            grid = fixed_grid(subject.task, network)
            to_onnx(network, Path(folder) / "network.onnx", example, grid=grid)
    except ModuleNotFoundError as error:
        return not_applicable(title, asked, f"{error.name} is not installed")
    except ValueError as error:
        return not_applicable(title, asked, f"the network cannot be written: {error}")
    except RuntimeError as error:
        return Check(title, asked, "fails", str(error).splitlines()[0])
    return Check(title, asked, "passes", "the file and the network agree")


def write_audit(path: Path, subject: Subject, found: Audit, command: str) -> None:
    """The page, and the JSON beside it."""
    record = {
        "run": subject.run.settings.task,
        "summary": found.in_words(),
        "samples": found.source,
        "thresholds": dict(checks.THRESHOLDS),
        "checks": [asdict(check) for check in found.checks],
        "errors": list(found.errors),
        "command": command,
        **facts(),
        "settings": asdict(subject.run.settings),
    }
    write_text(path.with_suffix(".json"), json.dumps(record, indent=1) + "\n")
    write_report(
        path,
        title=f"Audit: {subject.task.title}",
        summary=f"{found.in_words()} Of {found.source}.",
        sections=[*_sections(subject, found), *_facts(record)],
    )


def _sections(subject: Subject, found: Audit) -> Iterator[Section]:
    rows = [(check.title, check.outcome, check.said) for check in found.checks]
    yield Section("Verdicts", "", [Table(("check", "verdict", "found"), rows)])
    yield from bands_section(subject.run)
    for check in found.checks:
        tables = [Table(check.headings, check.rows)] if check.rows else []
        pictures = []
        if check.lines:
            figure = curves(check.lines, x_label=check.axes[0], y_label=check.axes[1])
            pictures.append(Picture(figure, f"{check.axes[1]} over {check.axes[0]}"))
        if check.title == "The tail of the error":
            figure = histogram(found.errors, x_label=subject.task.headline.replace("_", " "))
            pictures.append(Picture(figure, "the error of every sample"))
        text = f"{check.asked} Verdict: {check.outcome}; {check.said}."
        yield Section(check.title, text, tables, pictures)


def _facts(record: dict[str, Any]) -> Iterator[Section]:
    names = ("command", "commit", "machine", "threads", "versions")
    rows = [
        (name, value if isinstance(value := record[name], str) else json.dumps(value))
        for name in names
    ]
    yield Section("How this was made", "", [Table(("what", "value"), rows)])
