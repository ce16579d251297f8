"""A run as the service knows it: questions in, fields out."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from funcattn.arrays import Array
from funcattn.data import Batch
from funcattn.data.cases import Case, write_case
from funcattn.data.cases.meshes import read_mesh
from funcattn.data.foreign import read_hdf5, read_npz, write_hdf5, write_npz
from funcattn.problem import Field, Problem, slices
from funcattn.registry import unknown
from funcattn.serve.drawn import EDITORS, REFINEMENTS, Drawing, Editor
from funcattn.serve.encoding import numbers, with_arrays
from funcattn.serve.finer import in_words
from funcattn.serve.geometry import of_case, of_drawing
from funcattn.serve.inside import looked_inside
from funcattn.serve.predictor import Predictor, Told
from funcattn.tasks import Task
from funcattn.training.run import Run

ARRAYS = ("positions", "values", "weights", "context")
FILES = (".vtu", ".npz", ".h5")
"""Kinds of files that are taken, and given back."""


@dataclass(frozen=True)
class Question:
    """One prediction that is asked for."""

    batch: Batch
    warnings: Sequence[str] = ()
    drawing: Drawing | None = None
    single: bool = True
    """Whether the answer has no axis of samples."""
    case: Case | None = None
    """The file that was sent, where that is a mesh."""

    @property
    def key(self) -> tuple[Any, ...]:
        """Questions with the same key can be answered together."""
        parts = [getattr(self.batch, each.name) for each in fields(self.batch)]
        return tuple(tuple(p.shape[1:]) if isinstance(p, Tensor) else p for p in parts)

    @property
    def geometry(self) -> dict[str, Any]:
        """Where its points are, where they were drawn or came in a mesh of one's own."""
        if self.drawing is not None:
            return of_drawing(self.drawing)
        return {} if self.case is None else of_case(self.case)


@dataclass
class ServedModel(ABC):
    """What is asked of a run. Its network is called by one thread at a time."""

    name: str
    predictor: Predictor
    run: Run
    editor: Editor | None = field(default=None, init=False)
    layers: int = field(default=0, init=False)
    """Layers whose basis and map can be seen."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """How it is drawn: grid, series, cloud, frames, few_shot or own."""

    def told(self, batch: Batch) -> Told:
        """What the run says, shaped as the target; raises ValueError where that is nothing."""
        return self.predictor.told(batch)

    @abstractmethod
    def asked(self, request: Mapping[str, Any]) -> Question:
        """A question from the names and values of a request; raises ValueError."""

    @abstractmethod
    def asked_by_file(
        self, path: Path, settings: Mapping[str, float], defaults: Mapping[str, float]
    ) -> Question:
        """A question from a file; raises ValueError."""

    @abstractmethod
    def write(self, path: Path, question: Question, told: Told) -> None:
        """Write the answer to a question of a file, in the same format."""

    @abstractmethod
    def form(self) -> dict[str, Any]:
        """How inputs are made by hand."""

    @property
    def task(self) -> Task[Any]:
        """What the run was trained for."""
        return self.predictor.task

    @property
    def problem(self) -> Problem:
        """The fields by name."""
        return self.task.problem

    @property
    def outputs(self) -> Sequence[Field]:
        """The fields that are sought."""
        return self.problem.outputs

    @property
    def frames(self) -> int | None:
        """How many fields follow each other in time."""
        found: int | None = getattr(self.task, "frames", None)
        return found

    def answer(self, question: Question, out: Tensor) -> dict[str, Array]:
        """The fields by name, with points last but for the channels: (n), (n c), (t n), (t n c)."""
        b, n = out.shape[:2]
        array = out.float().cpu().numpy()
        frames = array.shape[2] if self.problem.time or self.kind == "frames" else None
        channels = sum(each.channels for each in self.outputs)
        # (b n t c) or (b n c) -> (b t n c) or (b n c)
        shaped = array.reshape(b, n, *([] if frames is None else [frames]), channels)
        shaped = shaped if frames is None else shaped.swapaxes(1, 2)
        found = {}
        for name, part in slices(self.outputs).items():
            values = shaped[..., part]
            values = values[..., 0] if part.stop - part.start == 1 else values
            found[name] = values[0] if question.single else values
        return found

    def draw(self, request: Mapping[str, Any], most_points: int) -> Drawing:
        """The input that the parameters of a request describe."""
        editor = self._editor()
        parameters, refine = drawn(request)
        drawing = editor.draw(parameters, refine)
        if len(drawing.positions) > most_points:
            raise ValueError(
                f"refine: expected at most {most_points} points, got {len(drawing.positions)}"
            )
        return drawing

    def _editor(self) -> Editor:
        if self.editor is None:
            raise ValueError(
                f"parameters: expected a task whose inputs can be drawn, got {self.task.name}; "
                "send positions and values, or a file"
            )
        return self.editor

    def random(self, seed: int | None) -> dict[str, Any]:
        """Parameters drawn from the law of the training set."""
        return self._editor().random(np.random.default_rng(seed))

    def summary(self) -> dict[str, Any]:
        """A line of the list of models."""
        return {
            "name": self.name,
            "title": self.task.title,
            "task": self.task.name,
            "kind": self.kind,
            "summary": f"{_names(self.problem.inputs) or 'geometry'} to {_names(self.outputs)}",
        }

    def description(self) -> dict[str, Any]:
        """All that a page needs to know; arrays as such."""
        problem, known = self.problem, self.run.network
        lower, upper = problem.box
        editor = self.editor
        sample = None
        if editor is not None:
            parameters = editor.default()
            sample = {"parameters": parameters, **of_drawing(editor.draw(parameters, 1))}
        return {
            **self.summary(),
            "space": problem.space,
            "grid": None if self.task.grid is None else list(self.task.grid),
            "periodic": problem.periodic,
            "lower": list(lower),
            "upper": list(upper),
            "inputs": _ranges(problem.inputs, known.value_range),
            "outputs": _ranges(self.outputs, None, self._record.get("output_range", {})),
            "frames": self.frames,
            "editor": self.form(),
            "view": None if editor is None or editor.view is None else list(editor.view),
            "sample": sample,
            "solver": editor is not None and editor.solver,
            "bands": self._promise(),
            "layers": self.layers,
            "refine": list(REFINEMENTS) if editor is not None else [1],
            "record": self._how_good(),
        }

    def _promise(self) -> dict[str, Any] | None:
        """What the bands of the run promise, None where it was not calibrated."""
        bands = self.predictor.calibrated
        if bands is None:
            return None
        return {"coverage": bands.coverage, "points": bands.points, "words": bands.in_words()}

    def warned(self, told: Told, grid: Sequence[int] | None) -> list[str]:
        """Warnings about samples unlike the training data, and those said on their grid."""
        on_their_grid = told.raised is not None and any(told.raised)
        return self._unlike(told) + ([in_words(self.task, grid)] if on_their_grid else [])

    def _unlike(self, told: Told) -> list[str]:
        familiar = self.predictor.familiar
        if familiar is None or told.scores is None:
            return []
        many = len(told.scores) > 1
        return [
            (f"sample {place}: " if many else "this input is ") + familiar.in_words(score.worst)
            for place, score in enumerate(told.scores)
            if score.worst > 1
        ]

    @cached_property
    def _record(self) -> dict[str, Any]:
        return self.run.record if self.run.finished else {}

    def _how_good(self) -> dict[str, Any] | None:
        """The error of the run, and how it was made."""
        record, metric = self._record, self.task.headline
        if not record:
            return None
        return {
            "error": record["test"].get(metric),
            "metric": metric,
            "command": record.get("command"),
            "seed": self.run.settings.seed,
            "commit": record.get("commit"),
        }

    def inspected(self, question: Question, layer: int, head: int) -> dict[str, Any]:
        """What one head of a layer shows; see `looked_inside`."""
        network = self.run.network
        return looked_inside(network, lambda: self.predictor.told(question.batch), layer, head)

    def count_layers(self, question: Question) -> None:
        """Note how many layers can be seen, from any question."""
        with suppress(ValueError):  # a network without layers of this kind
            self.layers = self.inspected(question, 0, 0)["layers"]


class BenchmarkModel(ServedModel):
    """A run of one of the tasks."""

    def __init__(self, name: str, run: Run) -> None:
        super().__init__(name, Predictor(run.task, run.network, run), run)
        if run.task.name in EDITORS:
            self.editor = EDITORS[run.task.name](asdict(run.settings.data))
            self.count_layers(self.asked({"parameters": self.editor.default()}))

    @property
    def kind(self) -> str:
        """As the task is drawn."""
        if self.problem.context:
            return "few_shot"
        return {"line": "series"}.get(self.task.picture, self.task.picture)

    def form(self) -> dict[str, Any]:
        """That of its editor, or a file."""
        if self.editor is None:
            return {"kind": "upload", "upload": [".npz", ".h5"], "random": False}
        return {**self.editor.form(), "upload": list(FILES)}

    def asked(self, request: Mapping[str, Any]) -> Question:
        """From parameters, or from arrays as `Predictor.predict` takes them."""
        if "parameters" in request:
            parameters, refine = drawn(request)
            drawing = self._editor().draw(parameters, refine)
            batch, outside = self.predictor.prepared(
                drawing.positions, drawing.values, context=drawing.context, grid=drawing.grid
            )
            return Question(batch, [*outside, *self._few(batch)], drawing)
        _only(request, [*ARRAYS, "mask", "grid", "layer", "head"])
        arrays = {name: numbers(name, request[name]) for name in ARRAYS if name in request}
        if "mask" in request:
            arrays["mask"] = numbers("mask", request["mask"], "b")
        return self._question(arrays, request.get("grid"))

    def _few(self, batch: Batch) -> list[str]:
        """A warning about fewer observations than the network was trained with."""
        wanted = getattr(self.task.data, "observations", 0)
        got = 0 if batch.context is None else batch.context.shape[1]
        if got >= wanted:
            return []
        return [
            f"observations: the network was trained with {wanted} and is given {got}; the "
            "prediction may be far off"
        ]

    def _question(self, arrays: dict[str, Any], grid: Any) -> Question:
        if "positions" not in arrays:
            raise ValueError("positions: expected an array (n, s), or parameters, got neither")
        positions = arrays.pop("positions")
        if positions.ndim not in (2, 3):
            raise ValueError(f"positions: expected (n, s) or (b, n, s), got {positions.shape}")
        lengths = None if grid is None else _lengths(grid)
        batch, outside = self.predictor.prepared(positions, **arrays, grid=lengths)
        return Question(batch, [*outside, *self._few(batch)], single=positions.ndim == 2)

    def asked_by_file(
        self, path: Path, settings: Mapping[str, float], defaults: Mapping[str, float]
    ) -> Question:
        """From arrays as `funcattn predict` takes them, or from a mesh with the input fields."""
        if settings or defaults:
            raise ValueError("set: expected a run on own data, got a benchmark's")
        if path.suffix == ".vtu":
            case = read_mesh(path)
            given = [
                numbers(each.name, _on_points(case, each)).reshape(len(case), each.channels)
                for each in self.problem.inputs
            ]
            arrays = {"positions": np.asarray(case.positions)}
            if given:
                arrays["values"] = np.concatenate(given, axis=1)
            # Cells of a mesh do not say that its points form the grid of training.
            grid = self.task.grid
            same = grid is not None and int(np.prod(grid)) == len(case)
            return replace(self._question(arrays, list(grid) if grid and same else None), case=case)
        arrays = dict(read_hdf5(path) if path.suffix == ".h5" else read_npz(path))
        _only(arrays, [*ARRAYS, "mask", "grid"])
        lengths = arrays.pop("grid", None)
        question = self._question(
            dict(arrays), None if lengths is None else np.ravel(lengths).tolist()
        )
        if not question.single:
            return question
        # What was sent is shown as what is drawn.
        sent = Drawing(
            arrays["positions"],
            arrays.get("values"),
            arrays.get("context"),
            grid=question.batch.grid,
        )
        return replace(question, drawing=sent)

    def write(self, path: Path, question: Question, told: Told) -> None:
        """The prediction as `funcattn predict` writes it, or beside the fields of the mesh."""
        ends = {"lower": told.lower, "upper": told.upper}
        parts = {"predicted": told.fields} | {k: t for k, t in ends.items() if t is not None}
        if question.case is not None:
            new: dict[str, Array] = {}
            for part, tensor in parts.items():
                for name, values in self.answer(question, tensor).items():
                    if self.kind == "frames":
                        new |= {f"{name}_{part}_{t}": frame for t, frame in enumerate(values)}
                    else:
                        new[f"{name}_{part}"] = values
            write_case(path, question.case, new)
            return
        arrays = {
            "prediction" if part == "predicted" else f"prediction_{part}": (
                tensor[0] if question.single else tensor
            ).numpy(force=True)
            for part, tensor in parts.items()
        }
        (write_hdf5 if path.suffix == ".h5" else write_npz)(path, arrays)


def drawn(request: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """The parameters of a request, and how fine the input is to be."""
    _only(request, ["parameters", "refine", "layer", "head"])
    parameters = request.get("parameters")
    if not isinstance(parameters, Mapping):
        raise ValueError(f"parameters: expected names with values, got {type(parameters).__name__}")
    refine = request.get("refine", 1)
    if type(refine) is not int or refine not in REFINEMENTS:
        raise ValueError(f"refine: expected one of {REFINEMENTS}, got {str(refine)[:50]}")
    return with_arrays(parameters), refine


def _names(of: Sequence[Field]) -> str:
    return ", ".join(each.name for each in of)


def _only(given: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise ValueError(unknown("body", str(name)[:100], known))


def _lengths(grid: Any) -> tuple[int, ...]:
    """The axis lengths of a grid as a request has them."""
    if not isinstance(grid, list | tuple) or not all(
        isinstance(each, int | float) and float(each).is_integer() for each in grid
    ):
        raise ValueError(f"grid: expected axis lengths, got {str(grid)[:100]}")
    return tuple(int(each) for each in grid)


def _on_points(case: Case, wanted: Field) -> Array:
    if wanted.name not in case.names:
        raise ValueError(
            f"body: expected a field {wanted.name!r} on the points of the mesh, got "
            f"{', '.join(case.names) or 'none'}"
        )
    values = case[wanted.name]
    if values.size != len(case) * wanted.channels:
        raise ValueError(
            f"{wanted.name}: expected {wanted.channels} numbers per point, got {values.shape}"
        )
    return values


def _ranges(
    of: Sequence[Field], known: Tensor | None, noted: Mapping[str, Sequence[float]] | None = None
) -> list[dict[str, Any]]:
    """The fields with the ranges that were seen in training, over their channels.

    known: (2 k), of all channels. noted: of fields by name, where that is what is known.
    """
    found = []
    for each, part in zip(of, slices(of).values(), strict=True):
        low, high = (noted or {}).get(each.name, (None, None))
        if known is not None:
            low, high = float(known[0, part].min()), float(known[1, part].max())
        found.append(
            {
                "name": each.name,
                "unit": each.unit or None,
                "channels": each.channels,
                "min": low,
                "max": high,
            }
        )
    return found
