"""Pictures of test samples: a case of each, drawn as its kind of points asks for.

Axes: n point, s space dimension, i input channel, o output channel, t frame, m observation.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from funcattn.arrays import Floats
from funcattn.problem import PictureKind
from funcattn.viz.canvases import MOST_POINTS, Canvas, Line, canvas
from funcattn.viz.figures import (
    MOST_FRAMES,
    MOST_NAMED_LABELS,
    LabelRow,
    LineCase,
    Panel,
    Row,
    frame_strip,
    label_rows,
    line_cases,
    point_rows,
)
from funcattn.viz.report import Picture

FieldArray = npt.NDArray[np.floating] | npt.NDArray[np.integer]

MOST_CHANNELS = 4
SMALL = 5_000
"""So many points are enough for the small pictures of galleries and strips."""
_SHARED = "Truth and prediction share one colour range."


@dataclass(frozen=True)
class Case:
    """One test sample, as numpy arrays."""

    label: str
    """Why it is shown: best, median, worst."""
    error: float
    positions: FieldArray
    """(n s)"""
    grid: tuple[int, ...] | None
    inputs: FieldArray | None
    """(n i)"""
    truth: FieldArray
    """(n o) fields, (n,) whole numbers for labels, or (n t) and (n t o) for frames."""
    prediction: FieldArray
    """Shaped as the truth; labels as labels."""
    context: FieldArray | None = None
    """(m 2): places and values at which a function on a line was observed."""
    on_body: npt.NDArray[np.bool_] | None = None
    """(n,): which points lie on the surface of a body, whose inside stays blank."""
    corners: npt.NDArray[np.int64] | None = None
    """(k 3): the triangles of a mesh in the plane; otherwise they are found from the points."""
    input_names: Sequence[str] = ()
    """One per channel; empty: they are numbered."""
    output_names: Sequence[str] = ()

    @property
    def labelled(self) -> bool:
        """Whether the truth is labels, not a field."""
        return self.truth.ndim == 1 and bool(np.issubdtype(self.truth.dtype, np.integer))


def check_case(case: Case, picture: PictureKind) -> None:
    """Refuse what cannot be drawn so, and say what was expected."""

    def expect(sound: bool, what: str, expected: str, got: object) -> None:
        if not sound:
            raise ValueError(f"case {case.label!r}, {what}: expected {expected}, got {got}")

    shape = case.positions.shape
    expect(len(shape) == 2 and min(shape) > 0, "positions", "(points, space dimensions)", shape)
    n, s = shape
    expect(s <= 3, "positions", "at most 3 columns to draw", f"{s}; pass those to draw")
    grid = case.grid
    expect(
        grid is None or int(np.prod(grid)) == n,
        "grid",
        f"axis lengths whose product is the number of positions, {n}",
        grid,
    )
    needs_grid = "a grid for the picture 'grid'; points without one are a 'cloud'"
    expect(picture != "grid" or grid is not None, "grid", needs_grid, None)
    on_line = "one column for the picture 'line'; points of the plane are a 'cloud'"
    expect(picture != "line" or s == 1, "positions", on_line, s)
    ranks = (2, 3) if picture == "frames" else (1, 2)
    layouts = "(n, t) or (n, t, o)" if picture == "frames" else "(n, o), or (n,) for labels,"
    truth, prediction = case.truth.shape, case.prediction.shape
    expect(
        len(truth) in ranks and truth[0] == n and min(truth) > 0,
        "truth",
        f"{layouts} with n = {n} positions for the picture {picture!r}",
        truth,
    )
    expect(prediction == truth, "prediction", f"the shape of the truth, {truth}", prediction)
    expect(
        not case.labelled or np.issubdtype(case.prediction.dtype, np.integer),
        "prediction",
        "labels as whole numbers, as in the truth",
        f"{case.prediction.dtype}; pass the argmax",
    )
    if case.inputs is not None:
        expected = f"({n}, channels), one row a position"
        got = case.inputs.shape
        expect(len(got) == 2 and got[0] == n, "inputs", expected, got)
    if case.context is not None:
        got = case.context.shape
        expect(len(got) == 2 and got[1] == 2, "context", "(observations, 2): place and value", got)


def case_pictures(cases: Sequence[Case], picture: PictureKind) -> Iterator[Picture]:
    """Truth, prediction and error of all cases, which are of one kind; captions say the rest."""
    if picture == "frames":
        return _frames(cases)
    if isinstance(case_canvas(cases[0], picture), Line):
        return _lines(cases, picture)
    if cases[0].labelled:
        return _labels(cases, picture)
    return _fields(cases, picture)


def _fields(cases: Sequence[Case], picture: PictureKind) -> Iterator[Picture]:
    """One picture of all cases where each fits into a row; else one for each."""
    rows = []
    for case in cases:
        place = case_canvas(case, picture)
        inputs = _input_panels(case)
        outputs = _output_panels(case)
        if len(inputs) <= 1 and len(outputs) == 1:
            rows.append(Row(case_name(case), place, [*inputs, *outputs[0]]))
            continue
        parts = [Row("input", place, inputs)] if inputs else []
        for number, panels in enumerate(outputs, start=1):
            parts.append(Row(_output_name(case, number, len(outputs)), place, panels))
        caption = (
            f"{case_name(case).capitalize()}: {'inputs, ' if inputs else ''}truth, prediction and "
            f"absolute error. {_SHARED} {_remarks(picture, [case], [place])}"
        )
        yield Picture(point_rows(parts), caption.strip())
    if rows:
        whose = ", ".join(row.name for row in rows)
        titles = ", ".join(panel.title for panel in rows[0].panels)
        remarks = _remarks(picture, cases, [row.canvas for row in rows])
        caption = f"{whose.capitalize()}: {titles}. {_SHARED} {remarks}"
        yield Picture(point_rows(rows), caption.strip())


def _labels(cases: Sequence[Case], picture: PictureKind) -> Iterator[Picture]:
    places = [case_canvas(case, picture) for case in cases]
    rows = [
        LabelRow(case_name(case), place, _whole(case.truth), _whole(case.prediction))
        for case, place in zip(cases, places, strict=True)
    ]
    labels = len(np.unique(np.concatenate([np.append(r.truth, r.prediction) for r in rows])))
    whose = ", ".join(row.name for row in rows)
    caption = f"{whose.capitalize()}: true labels, predicted labels, and the wrong points in red."
    if labels > MOST_NAMED_LABELS:
        caption += f" {labels:,} labels occur; colours only tell them apart, and some are alike."
    caption += f" {_remarks(picture, cases, places)}"
    yield Picture(label_rows(rows), caption.strip())


def _lines(cases: Sequence[Case], picture: PictureKind) -> Iterator[Picture]:
    outputs = max(_channels(case.truth).shape[1] for case in cases)
    for output in range(min(MOST_CHANNELS, outputs)):
        having = [case for case in cases if output < _channels(case.truth).shape[1]]
        for start in range(0, len(having), 3):
            shown = having[start : start + 3]
            places = [case_canvas(case, picture) for case in shown]
            drawn = []
            for case in shown:
                n, s = case.positions.shape
                drawn.append(
                    LineCase(
                        case_name(case),
                        floats(case.positions)[:, 0] if s == 1 else np.arange(n, dtype=np.float64),
                        _channels(case.truth)[:, output],
                        _channels(case.prediction)[:, output],
                        _shown_inputs(case),
                        None if case.context is None else floats(case.context),
                    )
                )
            which = f"{_output_name(having[0], output + 1, outputs)} of " if outputs > 1 else ""
            whose = ", ".join(case.name for case in drawn)
            seen = ", observations as dots" if any(c.context is not None for c in shown) else ""
            caption = (
                f"{which}{whose}: truth as a black line, prediction as a dashed orange line{seen}; "
                f"below, prediction minus truth. {_remarks(picture, shown, places)}"
            )
            yield Picture(line_cases(drawn), (caption[0].upper() + caption[1:]).strip())


def _frames(cases: Sequence[Case]) -> Iterator[Picture]:
    for case in cases:
        place = case_canvas(case, "frames", most=SMALL)
        truth, prediction = (_frame_channels(part) for part in (case.truth, case.prediction))
        frames, outputs = truth.shape[1:]
        for output in range(min(MOST_CHANNELS, outputs)):
            which = f", {_output_name(case, output + 1, outputs)}" if outputs > 1 else ""
            some = f"{MOST_FRAMES} of {frames} frames" if frames > MOST_FRAMES else "frames"
            caption = (
                f"{case_name(case).capitalize()}{which}: {some} of truth, prediction and absolute "
                f"error. {_SHARED} {_remarks('frames', [case], [place])}"
            )
            figure = frame_strip(place, truth[:, :, output], prediction[:, :, output])
            yield Picture(figure, caption.strip())


def case_canvas(case: Case, picture: PictureKind, *, most: int = MOST_POINTS) -> Canvas:
    """Where the fields of a case are drawn."""
    grid = None if picture == "cloud" else case.grid
    return canvas(
        floats(case.positions), grid, most=most, on_body=case.on_body, corners=case.corners
    )


def case_name(case: Case) -> str:
    """Why it is shown, and its error."""
    return f"{case.label} ({case.error:.3g})"


def not_finite(name: str, values: FieldArray, then: str) -> str:
    """A sentence on values that cannot be drawn, with a space before it; empty without such."""
    lost = int((~np.isfinite(values)).sum())
    return f" {name}: {lost:,} of {values.size:,} values are not finite; {then}." if lost else ""


def _input_panels(case: Case) -> list[Panel]:
    inputs = _shown_inputs(case)
    if inputs is None:
        return []
    count = inputs.shape[1]
    names = case.input_names or (
        [f"input {c + 1}" for c in range(count)] if count > 1 else ["input"]
    )
    return [Panel(name, inputs[:, c], colours="cividis") for c, name in enumerate(names[:count])]


def _output_name(case: Case, number: int, outputs: int) -> str:
    """The name of a channel, which counts from 1."""
    if case.output_names:
        return case.output_names[number - 1]
    return f"output {number}" if outputs > 1 else "output"


def _output_panels(case: Case) -> list[list[Panel]]:
    """Truth, prediction and absolute error of each channel that is shown."""
    return [
        [
            Panel("truth", truth, scale="value"),
            Panel("prediction", prediction, scale="value"),
            Panel("absolute error", np.abs(prediction - truth), "magma", from_zero=True),
        ]
        for truth, prediction in zip(
            _channels(case.truth).T[:MOST_CHANNELS],
            _channels(case.prediction).T[:MOST_CHANNELS],
            strict=True,
        )
    ]


def _shown_inputs(case: Case) -> Floats | None:
    if case.inputs is None or not case.inputs.shape[1]:
        return None
    return floats(case.inputs)[:, :MOST_CHANNELS]


def _remarks(picture: PictureKind, cases: Sequence[Case], places: Sequence[Canvas]) -> str:
    """What the pictures leave out, in sentences."""
    said = list(dict.fromkeys(note for place in places for note in place.notes))
    for case in cases:
        frames = picture == "frames"  # which are drawn without their inputs
        outputs = case.truth.shape[2:] if frames else case.truth.shape[1:]
        inputs = () if case.inputs is None or frames else case.inputs.shape[1:]
        for kind, channels in (("input", inputs), ("output", outputs)):
            if channels and channels[0] > MOST_CHANNELS:
                said.append(
                    f"The first {MOST_CHANNELS} of {channels[0]} {kind} channels are shown."
                )
        for kind in ("inputs", "truth", "prediction", "context"):
            values = getattr(case, kind)
            if values is not None:
                said.append(not_finite(f"{case.label}, {kind}", values, "left blank").strip())
    return " ".join(dict.fromkeys(filter(None, said)))


def floats(values: FieldArray) -> Floats:
    """The same numbers in float64."""
    return values.astype(np.float64)


def _whole(values: FieldArray) -> npt.NDArray[np.int64]:
    return values.astype(np.int64)


def _channels(values: FieldArray) -> Floats:
    """(n,) or (n o) -> (n o)"""
    return floats(values).reshape(len(values), -1)


def _frame_channels(values: FieldArray) -> Floats:
    """(n t) or (n t o) -> (n t o)"""
    return floats(values).reshape(*values.shape[:2], -1)
