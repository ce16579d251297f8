"""What is in a collection of cases, and what is odd about it, before one learns from it."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from funcattn.arrays import Array, Floats
from funcattn.data.cases.case import Case
from funcattn.data.cases.collection import Cases
from funcattn.data.foreign import FileError

APART = 1000.0
"""Cases whose sizes differ by this factor are taken to be in other units."""
FEW, VERY_FEW = 50, 10
"""Fewer cases than these rarely suffice."""

ALIKE = 3
"""So many findings of one kind are told one by one."""

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """Something odd: where, what was expected, what came, and what to do."""

    severity: Severity
    file: str
    field: str
    expected: str
    got: str
    advice: str

    def __str__(self) -> str:
        where = f"{self.file}, {self.field}" if self.field else self.file
        return f"{self.severity}: {where}: expected {self.expected}, got {self.got}: {self.advice}"


@dataclass(frozen=True)
class Summary:
    """A field, category or parameter over all cases."""

    name: str
    kind: Literal["field", "category", "parameter"]
    channels: int
    minimum: float
    maximum: float
    mean: float
    deviation: float
    missing: int
    """Values that are NaN or infinite."""
    unit: str = ""
    cases: int = 0
    """How many have it."""


@dataclass(frozen=True)
class Report:
    """What is there, and what is odd; `str` gives it as text, `as_dict` as plain data."""

    cases: int
    readable: int
    points: tuple[int, int, int]
    """Fewest, median, most per case."""
    space: int
    """Axes of space."""
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    grid: tuple[int, ...] | None
    """That of all cases, where they have one."""
    times: int
    """Times per case, 0 where there is no series."""
    weights: bool
    """Whether all cases have weights of their points."""
    summaries: tuple[Summary, ...] = ()
    findings: tuple[Finding, ...] = field(default=())

    @property
    def errors(self) -> list[Finding]:
        """Findings with which no surrogate can be fitted."""
        return [each for each in self.findings if each.severity == "error"]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        fewest, median, most = self.points
        sizes = f"{fewest}" if fewest == most else f"{fewest} to {most} (median {median})"
        lines = [
            f"{self.cases} cases, {sizes} points each, {self.space} axes of space",
            *([f"grid {' x '.join(map(str, self.grid))}"] if self.grid else []),
            *([f"{self.times} times each"] if self.times else []),
            f"from {_row(self.lower)} to {_row(self.upper)}",
            f"weights of points: {'from the mesh' if self.weights else 'none'}",
            "",
            f"{'name':24} {'kind':10} {'width':>5} {'minimum':>12} {'maximum':>12} "
            f"{'mean':>12} {'deviation':>12}  unit",
        ]
        for each in self.summaries:
            numbers = (each.minimum, each.maximum, each.mean, each.deviation)
            lines.append(
                f"{each.name[:24]:24} {each.kind:10} {each.channels:5} "
                f"{' '.join(f'{number:12.4g}' for number in numbers)}  {each.unit}"
            )
        return "\n".join([*lines, "", *(self.told or ["nothing odd"])])

    @property
    def told(self) -> list[str]:
        """The findings as lines; of many that are alike in all but the file, the first ones."""
        alike: dict[tuple[str, ...], list[Finding]] = defaultdict(list)
        for each in self.findings:
            alike[each.severity, each.field, each.expected, each.advice].append(each)
        lines = []
        for same in alike.values():
            lines += [str(each) for each in same[:ALIKE]]
            if len(same) > ALIKE:
                lines.append(f"{same[0].severity}: the same of {len(same) - ALIKE} other cases")
        return lines


def look(
    cases: Cases,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,  # noqa: ARG005
) -> Report:
    """Read all cases once, one at a time, and tell what is there and what is odd.

    A case that cannot be read is a finding, and the others are still looked at. Where the
    collection knows its inputs and outputs, it is also checked whether equal inputs have equal
    outputs.
    """
    seen: list[_Seen] = []
    findings: list[Finding] = []
    for index in range(len(cases)):
        try:
            seen.append(_Seen(cases[index], cases))
        except FileError as error:
            findings.append(
                Finding("error", str(error.path), "", error.expected, error.got, error.advice)
            )
        except (OSError, ValueError) as error:
            findings.append(
                Finding(
                    "error",
                    cases.names[index],
                    "",
                    "a case that can be read",
                    str(error),
                    "repair it, or take it out",
                )
            )
        progress(index + 1, len(cases))
    if not seen:
        return Report(len(cases), 0, (0, 0, 0), 0, (), (), None, 0, False, (), tuple(findings))
    for check in (_few, _frames, _dimensions, _twice, _ambiguous):
        findings += check(seen)
    names = list(dict.fromkeys(name for each in seen for name in each.statistics))
    summaries = []
    for name in names:
        having = [each for each in seen if name in each.statistics]
        summaries.append(_summary(name, having))
        findings += _field_findings(name, having, seen)
    sizes = sorted(each.points for each in seen)
    grids = {each.grid for each in seen}
    space = max(each.space for each in seen)
    full = [each for each in seen if each.space == space]
    order = {"error": 0, "warning": 1, "note": 2}
    return Report(
        cases=len(cases),
        readable=len(seen),
        points=(sizes[0], sizes[len(sizes) // 2], sizes[-1]),
        space=space,
        lower=tuple(np.min([each.lower for each in full], axis=0).tolist()),
        upper=tuple(np.max([each.upper for each in full], axis=0).tolist()),
        grid=grids.pop() if len(grids) == 1 else None,
        times=max(each.times for each in seen),
        weights=all(each.weights for each in seen),
        summaries=tuple(summaries),
        findings=tuple(sorted(findings, key=lambda each: order[each.severity])),
    )


@dataclass(frozen=True)
class _Statistics:
    """Of the finite values of one field in one case; per component."""

    kind: Literal["field", "category", "parameter"]
    count: int
    missing: int
    minimum: Floats
    maximum: Floats
    total: float
    squares: float
    unit: str

    @property
    def size(self) -> float:
        """The largest magnitude."""
        largest: float = np.maximum(abs(self.minimum), abs(self.maximum)).max(initial=0.0)
        return float(largest)


class _Seen:
    """What is kept of a case that was read."""

    def __init__(self, case: Case, cases: Cases) -> None:
        self.name = str(case.source or case.name)
        if case.source is not None and case.name != case.source.stem:
            self.name = f"{case.source} ({case.name})"
        self.points, self.space = case.positions.shape
        self.grid, self.times = case.grid, 0 if case.times is None else len(case.times)
        self.weights = case.weights is not None
        self.lower, self.upper = case.positions.min(axis=0), case.positions.max(axis=0)
        self.statistics = {
            name: _statistics(kind, values, case.units.get(name, ""))
            for kind, group in (
                ("field", case.fields),
                ("category", case.categories),
                ("parameter", {name: np.array([v]) for name, v in case.parameters.items()}),
            )
            for name, values in group.items()
        }
        known = [name for name in cases.inputs if name in case.names]
        inputs = {name: case[name] for name in known}
        outputs = {name: case[name] for name in cases.outputs if name in case.names}
        if case.times is not None:  # a series goes on from its first frame, which is given
            inputs |= {f"first {name}": case[name][:, 0] for name in outputs if name in case.fields}
        self.inputs = _digest({"positions": case.positions, **inputs})
        self.outputs = _digest(outputs) if outputs else None
        self.whole = _digest(
            {"positions": case.positions, **{name: case[name] for name in sorted(case.names)}}
        )


def _statistics(kind: Any, values: Array, unit: str) -> _Statistics:
    numbers = np.asarray(values, np.float64)
    flat = numbers.reshape(-1, numbers.shape[-1] if numbers.ndim > 1 else 1)
    finite = np.isfinite(flat)
    count = int(finite.sum())
    kept = np.where(finite, flat, 0.0)
    with np.errstate(over="ignore"):
        return _Statistics(
            kind=kind,
            count=count,
            missing=flat.size - count,
            minimum=np.where(finite, flat, np.inf).min(axis=0, initial=np.inf),
            maximum=np.where(finite, flat, -np.inf).max(axis=0, initial=-np.inf),
            total=float(kept.sum()),
            squares=float(np.square(kept).sum()),
            unit=unit,
        )


def _digest(arrays: Mapping[str, Array]) -> str:
    total = hashlib.sha256()
    for name, values in arrays.items():
        total.update(f"{name}{values.shape}{values.dtype}".encode())
        total.update(np.ascontiguousarray(values).tobytes())
    return total.hexdigest()


def _summary(name: str, having: list[_Seen]) -> Summary:
    parts = [each.statistics[name] for each in having]
    count = sum(each.count for each in parts)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = sum(each.total for each in parts) / max(count, 1)
        square = sum(each.squares for each in parts) / max(count, 1)
        deviation = float(np.sqrt(max(square - mean * mean, 0.0)))
    return Summary(
        name=name,
        kind=parts[0].kind,
        channels=max(len(each.minimum) for each in parts),
        minimum=float(min(each.minimum.min() for each in parts)),
        maximum=float(max(each.maximum.max() for each in parts)),
        mean=mean,
        deviation=deviation,
        missing=sum(each.missing for each in parts),
        unit=next((each.unit for each in parts if each.unit), ""),
        cases=len(having),
    )


def _field_findings(name: str, having: list[_Seen], seen: list[_Seen]) -> Iterable[Finding]:
    """What is odd about one field."""
    parts = [each.statistics[name] for each in having]
    if len(having) < len(seen):
        without = next(each.name for each in seen if name not in each.statistics)
        yield Finding(
            "warning", without, name, "it in every case",
            f"it in {len(having)} of {len(seen)} cases", "add it, or do not use it",
        )  # fmt: skip
    usual_width, odd = _odd_one(having, [len(each.minimum) for each in parts])
    if odd is not None:
        yield Finding(
            "error", odd.name, name, f"{usual_width} components, as in most cases",
            f"{len(odd.statistics[name].minimum)}", "write the same components in all files",
        )  # fmt: skip
        return
    for each, part in zip(having, parts, strict=True):
        if part.missing:
            yield Finding(
                "warning", each.name, name, "finite values",
                f"{part.missing} that are NaN or infinite",
                "missing outputs are left out of the loss; repair inputs, or take the case out",
            )  # fmt: skip
    if len({each.unit for each in parts}) > 1:
        units = sorted({each.unit or "none" for each in parts})
        yield Finding(
            "error", "all cases", name, "one unit", ", ".join(units), "convert them to one"
        )
    low = np.min([each.minimum for each in parts], axis=0)
    high = np.max([each.maximum for each in parts], axis=0)
    constant = np.flatnonzero(low == high)
    if len(constant) and parts[0].kind != "category":
        which = "" if len(low) == 1 else f" in components {constant.tolist()}"
        yield Finding(
            "warning", "all cases", name, "values that differ", f"only {low[constant[0]]:g}{which}",
            "nothing can be learned from or about it: leave it out",
        )  # fmt: skip
    sizes = np.array([each.size for each in parts])
    usual = float(np.median(sizes[sizes > 0])) if (sizes > 0).any() else 0.0
    if parts[0].kind == "field" and usual > 0:
        for each, size in zip(having, sizes, strict=True):
            if size > APART * usual or 0 < size < usual / APART:
                yield Finding(
                    "warning", each.name, name, f"magnitudes near {usual:.3g}, as in other cases",
                    f"{size:.3g}", "check its unit",
                )  # fmt: skip


def _odd_one(seen: list[_Seen], numbers: list[int]) -> "tuple[int, _Seen | None]":
    """The commonest of the numbers, and the first case that has another."""
    usual = Counter(numbers).most_common(1)[0][0]
    others = (each for each, number in zip(seen, numbers, strict=True) if number != usual)
    return usual, next(others, None)


def _few(seen: list[_Seen]) -> Iterable[Finding]:
    if len(seen) < FEW:
        yield Finding(
            "error" if len(seen) < VERY_FEW else "warning", "all cases", "",
            f"{FEW} cases or more", f"{len(seen)}",
            "make more; with so few, the error on new cases is hardly known",
        )  # fmt: skip


def _dimensions(seen: list[_Seen]) -> Iterable[Finding]:
    usual, odd = _odd_one(seen, [each.space for each in seen])
    if odd is not None:
        yield Finding(
            "error", odd.name, "positions", f"{usual} axes of space, as in most cases",
            f"{odd.space}", "give the axes to keep",
        )  # fmt: skip
    usual, odd = _odd_one(seen, [each.times for each in seen])
    if odd is not None:
        yield Finding(
            "error", odd.name, "times", f"{usual} times, as in most cases",
            f"{odd.times}", "cut the series to equal length",
        )  # fmt: skip


def _frames(seen: list[_Seen]) -> Iterable[Finding]:
    """Meshes in other units or at other places than the rest."""
    alike = [each for each in seen if each.space == seen[0].space]
    extents = np.array([float((each.upper - each.lower).max()) for each in alike])
    usual = float(np.median(extents))
    centres = np.array([(each.upper + each.lower) / 2 for each in alike])
    middle = np.median(centres, axis=0)
    for each, extent, centre in zip(alike, extents, centres, strict=True):
        if usual > 0 and not usual / APART * 1.0001 < extent < usual * APART * 0.9999:
            yield Finding(
                "error", each.name, "positions", f"an extent near {usual:.3g}, as in other cases",
                f"{extent:.3g}", "convert it to the same unit of length",
            )  # fmt: skip
        elif usual > 0 and np.abs(centre - middle).max() > 10.0 * max(usual, extent):
            yield Finding(
                "warning", each.name, "positions", f"a mesh around {_row(middle.tolist())}",
                f"one around {_row(centre.tolist())}", "move it to the same system of coordinates",
            )  # fmt: skip


def _twice(seen: list[_Seen]) -> Iterable[Finding]:
    groups: dict[str, list[str]] = defaultdict(list)
    for each in seen:
        groups[each.whole].append(each.name)
    for names in groups.values():
        if len(names) > 1:
            yield Finding(
                "warning", names[1], "", "every case once", f"the same as {names[0]}",
                "take one out: copies in training and test make the error look too small",
            )  # fmt: skip


def _ambiguous(seen: list[_Seen]) -> Iterable[Finding]:
    groups: dict[str, list[_Seen]] = defaultdict(list)
    for each in seen:
        if each.outputs is not None:
            groups[each.inputs].append(each)
    for same in groups.values():
        other = [each for each in same if each.outputs != same[0].outputs]
        if other:
            yield Finding(
                "error", other[0].name, "", "equal outputs for equal inputs",
                f"the inputs of {same[0].name} with other outputs",
                "something that decides the outputs is missing among the inputs: add it",
            )  # fmt: skip


def _row(numbers: Iterable[float]) -> str:
    return f"({', '.join(f'{number:.4g}' for number in numbers)})"
