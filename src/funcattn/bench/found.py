"""The measurements, looked up by what one wants to know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from funcattn.bench.candidates import Scope, Shape

Record = Mapping[str, Any]


@dataclass(frozen=True)
class TextTable:
    """Cells under headers."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """As the documentation has it.

        >>> print(TextTable(["a", "b"], [["1", "2"]]).markdown())
        | a | b |
        | --- | ---: |
        | 1 | 2 |
        """
        line = "| --- |" + " ---: |" * (len(self.headers) - 1)
        cells = [f"| {' | '.join(row)} |" for row in (self.headers, *self.rows)]
        return "\n".join([cells[0], line, *cells[1:]])

    def within(self, width: int) -> list["TextTable"]:
        """In parts of so many characters, each with the first column.

        >>> [part.headers for part in TextTable(["n", "10", "20", "30"], []).within(11)]
        [('n', '10', '20'), ('n', '30')]
        """
        first, *others = zip(self.headers, *self.rows, strict=True)
        parts: list[list[tuple[str, ...]]] = []
        room = 0
        for column in others:
            needed = 2 + max(map(len, column))  # two spaces between columns
            if not parts or needed > room:
                parts.append([first])
                room = width - 2 - max(map(len, first))
            parts[-1].append(column)
            room -= needed
        return [
            TextTable(headers, rows) for headers, *rows in (zip(*p, strict=True) for p in parts)
        ]


class Found:
    """What was measured with so many threads."""

    def __init__(self, records: Mapping[str, Record], threads: int = 1) -> None:
        self.records = [r for r in records.values() if r["threads"] == threads]
        self.feats = {r["feat"]: r for r in self.records if "feat" in r}

    def cases(
        self, part: Scope, shape: Shape | None = None, allocator: str = "default"
    ) -> list[Record]:
        """The records of a part, and of a shape if given, by growing number of points."""
        chosen = [
            r
            for r in self.records
            if r.get("part") == part
            and r["allocator"] == allocator
            and (shape is None or Shape(**r["shape"]) == shape)
        ]
        return sorted(chosen, key=lambda r: r["points"])

    def case(
        self, part: Scope, shape: Shape, points: int, allocator: str = "default"
    ) -> Record | None:
        """The record at one number of points, if there is one."""
        return next((r for r in self.cases(part, shape, allocator) if r["points"] == points), None)

    def shapes(self) -> list[Shape]:
        """Those of the layers, in the order in which they were measured."""
        return list(dict.fromkeys(Shape(**r["shape"]) for r in self.cases("layer")))


def seconds(record: Record | None, name: str, kind: str) -> float | None:
    """The median of a candidate in a record, None where it was not timed."""
    return None if record is None else _of(record, name).get(kind, {}).get("median")


def bytes_per_point(record: Record | None, name: str, kind: str) -> float | None:
    """The memory of a candidate in a record, None where it was not measured."""
    if record is None:
        return None
    return _of(record, name).get("memory", {}).get(kind, {}).get("bytes per point")


def of_peak(record: Record | None, name: str, kind: str) -> float | None:
    """The rate of a candidate's matrix products over that of the machine's best."""
    took = seconds(record, name, kind)
    if record is None or took is None:
        return None
    count = record["candidates"][name][kind]["operations"]
    return None if count is None else count / took / record["rates"]["matrix product"]


def failure(record: Record, name: str, kind: str) -> str | None:
    """Why a candidate was not timed, None where it was or was not tried."""
    found = _of(record, name)
    said = found.get("agreement", {}).get("failed") or found.get(kind, {}).get("failed")
    return str(said) if said else None


def in_milliseconds(seconds: float) -> str:
    """As tables show it.

    >>> in_milliseconds(0.0123), in_milliseconds(1.5)
    ('12.3', '1,500')
    """
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:,.0f}"


def ratio(over: float | None, under: float | None) -> float | None:
    """A quotient of what may be missing."""
    return None if over is None or under is None else over / under


def _of(record: Record, name: str) -> Mapping[str, Any]:
    return record["candidates"].get(name, {})
