"""Sections of reports about trust."""

from collections.abc import Iterator, Mapping
from typing import Any

from funcattn.serve.bands import Bands, TooFewSamplesError, read_bands
from funcattn.training.run import Run
from funcattn.viz.report import Section, Table

COVERAGES = (0.5, 0.8, 0.9, 0.95)


def bands_section(run: Run) -> Iterator[Section]:
    """What the bands of a run promise; nothing where it was not calibrated."""
    bands = read_bands(run)
    if bands is None:
        return
    promised = [c for c in sorted({*COVERAGES, bands.coverage}) if _possible(bands, c)]
    headings = ("with probability", *(f"{100 * c:g} %" for c in promised))
    rows = [
        *(
            (
                f"{name}: factor of the spread",
                *(f"{bands.factor(name, 0, c):.3g}" for c in promised),
            )
            for name in bands.worst
        ),
        *(
            (
                f"relative L2 error below, {name}",
                *(_percent(bands.error_bound(name, c)) for c in promised),
            )
            for name in bands.errors
        ),
        *(
            (f"{name} within", *(f"{bands.quantity_bound(name, c):.3g}" for c in promised))
            for name in bands.quantities
        ),
    ]
    text = (
        f"{bands.in_words()}. The spread is {_SPREADS[bands.spread]}. On more points than the "
        f"{bands.points} of calibration the band is widened by an estimate. Of a quantity of "
        "interest, the distance between that of the truth and that of the prediction."
    )
    yield Section("Bands", text, [Table(headings, rows)])


def made_section(record: Mapping[str, Any]) -> Section:
    """The command, the machine and the versions behind a page."""
    names = ("command", "commit", "machine", "processor", "threads", "versions")
    rows = [(name, _plain(record[name])) for name in names if name in record]
    return Section("How this was made", "", [Table(("what", "value"), rows)])


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    return str(value)


_SPREADS = {
    "ensemble": "how far the networks of the ensemble lie apart",
    "learned": "what a small network has learned of the errors",
    "constant": "the same everywhere: 1 in the unit of the field",
}


def _possible(bands: Bands, coverage: float) -> bool:
    try:
        bands.error_bound("all", coverage)
    except TooFewSamplesError:
        return False
    return True


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
