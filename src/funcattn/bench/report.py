"""Tables and pictures from the measurements, and the page of the documentation that holds them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from funcattn.bench import alone, targets
from funcattn.bench.candidates import CANDIDATES, OURS, REFERENCE, Scope, Shape
from funcattn.bench.figure import curves
from funcattn.bench.found import (
    Found,
    Record,
    TextTable,
    bytes_per_point,
    failure,
    in_milliseconds,
    of_peak,
    ratio,
    seconds,
)
from funcattn.bench.measure import KINDS
from funcattn.files import write_text
from funcattn.provenance import machine_of
from funcattn.viz.saving import write_figure

SUMMARY_SIZES = (2**10, 2**12, 2**14, 2**16, 2**18, 2**20)


def over_points(found: Found, part: Scope, shape: Shape, kind: str) -> TextTable:
    """Milliseconds of every candidate over the number of points, with the default allocator."""
    records = found.cases(part, shape)
    rows = [
        [name, *(_milliseconds(record, name, kind) for record in records)]
        for name in CANDIDATES[part]
        if any(name in record["candidates"] for record in records)
    ]
    return TextTable([f"{kind}, ms", *(f"{record['points']:,}" for record in records)], rows)


def memory_over_points(found: Found, part: Scope, shape: Shape, kind: str) -> TextTable:
    """MiB by which the peak of every candidate rises, over the number of points."""
    records = [
        record
        for record in found.cases(part, shape)
        if any("memory" in candidate for candidate in record["candidates"].values())
    ]
    rows = []
    for name in CANDIDATES[part]:
        each = [bytes_per_point(record, name, kind) for record in records]
        if any(value is not None for value in each):
            cells = [
                "-" if value is None else f"{value * record['points'] / 2**20:,.0f}"
                for value, record in zip(each, records, strict=True)
            ]
            rows.append([name, *cells])
    return TextTable([f"{kind}, MiB", *(f"{record['points']:,}" for record in records)], rows)


def detail(found: Found, shape: Shape) -> TextTable:
    """Everything that is known of the layers at one number of points.

    That of the targets, or the largest that was measured.
    """
    sizes = [record["points"] for record in found.cases("layer", shape)]
    points = targets.POINTS if targets.POINTS in sizes else max(sizes)
    default = found.case("layer", shape, points)
    kept = found.case("layer", shape, points, "kept pages")
    assert default is not None
    headers, columns = [f"{points:,} points"], []
    for kind in KINDS["layer"]:
        headers += [
            f"{kind}, ms",
            "quartiles",
            "pages kept, ms",
            "of peak",
            "of copy",
            "B per point",
        ]
        columns.append(kind)
    rows = []
    for name in default["candidates"]:
        row = [name]
        for kind in columns:
            row += [
                _milliseconds(default, name, kind),
                _quartiles(default, name, kind),
                "-" if kept is None else _milliseconds(kept, name, kind),
                _percent(of_peak(default, name, kind)),
                _percent(_of_copy(default, name, kind)),
                _shown(bytes_per_point(default, name, kind), ".0f"),
            ]
        rows.append(row)
    return TextTable(headers, rows)


def winners(found: Found, part: Scope, shape: Shape) -> TextTable:
    """The fastest baseline at each number of points, and how much faster functional attention is.

    Numbers of points with no baseline at all are left out.
    """
    kinds = KINDS[part]
    headers = ["points"]
    for kind in kinds:
        headers += [f"{kind}: fastest baseline", "we are faster by"]
        headers += ["leanest baseline", "we are leaner by"]
    rows = []
    baselines = [name for name, candidate in CANDIDATES[part].items() if not candidate.functional]
    for record in found.cases(part, shape):
        if not any(name in record["candidates"] for name in baselines):
            continue
        row = [f"{record['points']:,}"]
        for kind in kinds:
            for measure in (seconds, bytes_per_point):
                values = {
                    name: value
                    for name in baselines
                    if (value := measure(record, name, kind)) is not None
                }
                best = min(values, key=lambda name: values[name]) if values else None
                gain = ratio(values.get(best or ""), measure(record, OURS, kind))
                row += [best or "-", _times(gain)]
        rows.append(row)
    return TextTable(headers, rows)


def not_measured(found: Found) -> list[str]:
    """What failed, ran out of memory or was left out, in words."""
    said: dict[str, list[int]] = {}
    for record in found.cases("layer") + found.cases("model"):
        where = f"{record['part']} {Shape(**record['shape'])}"
        for name in record["candidates"]:
            for kind in KINDS[record["part"]]:
                why = failure(record, name, kind)
                if why:
                    said.setdefault(f"{where}, {name}, {kind}: {why}", []).append(record["points"])
        for name in record["too slow"]:
            text = f"{where}, {name}: not timed, as its time grows with the square of the points"
            said.setdefault(text, []).append(record["points"])
    return [
        f"{text} ({', '.join(f'{n:,}' for n in sorted(points))} points)"
        for text, points in said.items()
    ]


def feats(found: Found) -> TextTable:
    """Single calls with very many points."""
    rows = [
        [
            record["title"],
            f"{record['points']:,}",
            f"{record['seconds']:.0f}",
            f"{record['rise'] / 2**30:.2f}",
            f"{record['process'] / 2**30:.2f}",
        ]
        for record in found.feats.values()
        if "seconds" in record
    ]
    return TextTable(
        ["", "points", "seconds", "memory of the call, GiB", "of the process, GiB"], rows
    )


def summary(found: Found) -> str:
    """One paragraph and one table: the layer of the targets at a few sizes."""
    shape, records = targets.EIGHT, found.cases("layer", targets.EIGHT)
    chosen = [record for record in records if record["points"] in SUMMARY_SIZES]
    if not chosen:
        return _NOTHING
    headers = ["points"]
    for kind in KINDS["layer"]:
        headers += [f"{kind}, ms", "reference form takes", "fastest baseline takes"]
    headers += ["memory of a forward pass, MiB"]
    rows = []
    for record in chosen:
        row = [f"{record['points']:,}"]
        for kind in KINDS["layer"]:
            ours = seconds(record, OURS, kind)
            best = _fastest_baseline(record, kind)
            row += [
                _milliseconds(record, OURS, kind),
                _times(ratio(seconds(record, REFERENCE, kind), ours)),
                "-"
                if best is None
                else f"{_times(ratio(seconds(record, best, kind), ours))} ({best})",
            ]
        memory = bytes_per_point(record, OURS, KINDS["layer"][0])
        row.append("-" if memory is None else f"{memory * record['points'] / 2**20:,.0f}")
        rows.append(row)
    states = [row[-1] for row in targets.table(found).rows]
    text = (
        f"One layer of functional attention, width {shape.width}, {shape.bases} bases and "
        f"{shape.heads} heads, in float32 on one CPU core. A factor such as 2.20x says how long "
        "the other method takes compared with ours: above 1 ours is faster, below 1 the other. The "
        "reference form is the same layer as one would first write it; baselines are other "
        f"attentions of the same size. Of {len(states)} targets {states.count('reached')} are "
        f"reached and {states.count('not reached')} are not; all are listed below."
    )
    return f"{text}\n\n{TextTable(headers, rows).markdown()}"


def _fastest_baseline(record: Record, kind: str) -> str | None:
    names = [name for name, candidate in CANDIDATES["layer"].items() if not candidate.functional]
    taken = {name: t for name in names if (t := seconds(record, name, kind)) is not None}
    return min(taken, key=lambda name: taken[name]) if taken else None


def how_made(found: Found) -> str:
    """Commits, machines, loads, rates and commands behind the tables."""
    records = found.records
    if not records:
        return "Nothing was measured yet."
    timed = [record for record in records if "rates" in record]

    def between(values: list[float], form: str) -> str:
        return f"{min(values):{form}} to {max(values):{form}}" if values else "-"

    def every(name: str) -> str:
        return ", ".join(sorted({str(record[name]) for record in records}))

    faults = []
    for allocator in dict.fromkeys(record["allocator"] for record in timed):
        seen = [float(r["page_faults"]) for r in timed if r["allocator"] == allocator]
        faults.append(f"{allocator} allocator {between(seen, '.0f')}")
    versions = sorted({record["versions"]["torch"] for record in records})
    machines = sorted({machine_of(record) for record in records})
    loads = between([record["load"] for record in timed], ".1f")
    return "\n".join(
        [
            f"- Commit {every('commit')}; seed {every('seed')}.",
            f"- Machine: {'; '.join(machines)}; threads: {every('threads')}; torch "
            f"{', '.join(versions)}. Load of the machine before a process started: {loads}.",
            "- Matrix product of 2048 x 2048 float32, best of each process: "
            f"{between([record['rates']['matrix product'] / 1e9 for record in timed], '.0f')} "
            "GFLOP/s; copy, read and written bytes together: "
            f"{between([record['rates']['copy'] / 1e9 for record in timed], '.1f')} GB/s.",
            f"- Page faults when a buffer of 64 MiB is made once more: {'; '.join(faults)}.",
            "- Commands:\n",
            "```",
            *sorted({record["command"] for record in records}),
            "```",
        ]
    )


def blocks(found: Found, pictures: str = "pictures") -> dict[str, str]:
    """The parts of the page, by the names of their markers."""
    of_shapes, won = [], []
    for shape in found.shapes():
        title = (
            f"Width {shape.width}, {shape.bases} bases, {shape.heads} head{'s' * (shape.heads > 1)}"
        )
        of_shapes += [f"### {title}", f"![{title}]({pictures}/{picture_name(shape)}.png)"]
        of_shapes += [over_points(found, "layer", shape, k).markdown() for k in KINDS["layer"]]
        of_shapes += [detail(found, shape).markdown()]
        won += [f"**{title}**", winners(found, "layer", shape).markdown()]
    of_models = []
    for record in found.cases("model")[:1]:
        shape = Shape(**record["shape"])
        of_models += [f"![Whole networks]({pictures}/{PICTURE_OF_NETWORKS}.png)"]
        of_models += [over_points(found, "model", shape, k).markdown() for k in KINDS["model"]]
        of_models += [memory_over_points(found, "model", shape, KINDS["model"][1]).markdown()]
        of_models += [winners(found, "model", shape).markdown()]
    missing = not_measured(found)
    return {
        "summary": summary(found),
        "made": how_made(found),
        "targets": targets.table(found).markdown(),
        "alone": alone.table(found).markdown(),
        "winners": "\n\n".join(won) or _NOTHING,
        "layers": "\n\n".join(of_shapes) or _NOTHING,
        "models": "\n\n".join(of_models) or _NOTHING,
        "scale": feats(found).markdown() if found.feats else _NOTHING,
        "missing": "\n".join(f"- {line}" for line in missing) or "Nothing.",
    }


_NOTHING = "Not measured yet."


def filled(page: str, parts: Mapping[str, str]) -> str:
    """A page with what stands between `<!-- bench: NAME -->` and `<!-- end -->` replaced.

    >>> filled("a <!-- bench: made -->old<!-- end --> z", {"made": "new"})
    'a <!-- bench: made -->\\nnew\\n<!-- end --> z'
    """

    def replaced(match: re.Match[str]) -> str:
        name = match[2]
        if name not in parts:
            raise ValueError(f"marker: expected one of {', '.join(parts)}, got {name!r}")
        return f"{match[1]}\n{parts[name]}\n{match[3]}"

    marker = r"(<!-- bench: (\w+) -->).*?(<!-- end -->)"
    return re.sub(marker, replaced, page, flags=re.DOTALL)


PICTURE_OF_NETWORKS = "bench-networks"


def picture_name(shape: Shape) -> str:
    """Of the picture of a shape, without its ending."""
    return f"bench-{str(shape).replace('/', '-')}"


def write_pictures(found: Found, folder: Path) -> list[Path]:
    """The curves of the layers of every shape, and of the networks, as PNG and SVG."""
    drawn = {picture_name(shape): found.cases("layer", shape) for shape in found.shapes()}
    if networks := found.cases("model"):
        drawn[PICTURE_OF_NETWORKS] = networks
    return [
        path
        for name, records in drawn.items()
        for path in write_figure(curves(records), folder / name)
    ]


def write_page(found: Found, page: Path) -> None:
    """Fill the tables of a page."""
    write_text(page, filled(page.read_text(), blocks(found)))


def _milliseconds(record: Record, name: str, kind: str) -> str:
    took = seconds(record, name, kind)
    if took is not None:
        return in_milliseconds(took)
    why = failure(record, name, kind)
    return "-" if why is None else ("no memory" if why == "out of memory" else "failed")


def _quartiles(record: Record, name: str, kind: str) -> str:
    found: Mapping[str, Any] = record["candidates"][name].get(kind, {})
    low, high = found.get("quartiles", (None, None))
    return "-" if low is None else f"{in_milliseconds(low)} - {in_milliseconds(high)}"


def _of_copy(record: Record, name: str, kind: str) -> float | None:
    """The least traffic there is, of the input, the output and their gradients, over a copy's."""
    took = seconds(record, name, kind)
    fields = 2 if kind == KINDS["layer"][0] else 4
    traffic = 4 * fields * record["points"] * record["shape"]["width"]
    return None if took is None else traffic / took / record["rates"]["copy"]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _times(factor: float | None) -> str:
    return "-" if factor is None else f"{factor:.2f}x"


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"
