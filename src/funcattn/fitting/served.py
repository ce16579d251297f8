"""Runs as the service takes them: benchmarks', and those on people's own data."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from funcattn.arrays import Array
from funcattn.data import collate
from funcattn.data.cases import Case, open_folder, write_case
from funcattn.data.npy import open_npy
from funcattn.fitting.fitted import MESH
from funcattn.fitting.predicting import beside
from funcattn.fitting.scoring import outside
from funcattn.problem import Field
from funcattn.registry import unknown
from funcattn.serve.encoding import numbers
from funcattn.serve.model import FILES, BenchmarkModel, Question, ServedModel
from funcattn.serve.predictor import Predictor, Told
from funcattn.surrogate import Surrogate
from funcattn.tasks.own import OwnData
from funcattn.tasks.own_samples import sample_of
from funcattn.training.bundled import run_folder
from funcattn.training.run import Run

_NAME = re.compile(r"\w[\w.-]{0,99}")


def served(folder: str | Path) -> ServedModel:
    """The model of a run: its folder, the file of `funcattn pack`, or a name that comes with us."""
    path = run_folder(folder)
    name = path.resolve().name.removesuffix(".zip")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{folder}: expected a name of letters, digits, dots and dashes, got {name!r}; "
            "rename the folder"
        )
    if path.suffix == ".zip" or isinstance(Run(path).settings.data, OwnData):
        return OwnModel(name, Surrogate.load(path))
    return BenchmarkModel(name, Run(path))


class OwnModel(ServedModel):
    """A run on people's own data."""

    def __init__(self, name: str, surrogate: Surrogate) -> None:
        run = surrogate.run
        super().__init__(name, Predictor(surrogate.task, run.network, run), run)
        self.surrogate, self.own = surrogate, surrogate.data
        mesh = surrogate.run.folder / MESH
        self._mesh = (
            np.array(open_npy(surrogate.run.file(MESH)), np.float64) if mesh.exists() else None
        )
        if self._drawable:
            self.count_layers(self.asked({"parameters": {}}))

    @property
    def kind(self) -> str:
        """Its own."""
        return "own"

    @property
    def outputs(self) -> Sequence[Field]:
        """The fields that are sought; of labels, the label."""
        return self.own.outputs

    def description(self) -> dict[str, Any]:
        """All that a page needs to know; of labels, which there are."""
        found = super().description()
        if self.own.classes:
            found["outputs"][0]["labels"] = [int(label) for label in self.own.classes]
        return found

    @property
    def frames(self) -> int | None:
        """Those of training; a file may ask for other times."""
        return None if self.own.kind == "steady" else self.own.frames

    @property
    def _sliders(self) -> list[dict[str, Any]]:
        """Numbers of a case, with the ranges of training."""
        known, found = self.run.network.value_range, []
        start = self.own.history * self.own.output_channels if self.own.kind == "steps" else 0
        for each in self.own.inputs:
            if each.kind == "parameter":
                low, high = (float(end) for end in known[:, start])
                found.append(
                    {
                        "name": each.name,
                        "label": each.name,
                        "min": low,
                        "max": high,
                        "default": (low + high) / 2,
                        "step": (high - low) / 200 or 1.0,
                        "unit": each.unit or None,
                    }
                )
            start += each.width
        return found

    @property
    def _drawable(self) -> bool:
        """Whether numbers alone are an input."""
        plain = all(each.kind == "parameter" for each in self.own.inputs)
        return plain and self._mesh is not None and self.own.kind == "steady"

    def form(self) -> dict[str, Any]:
        """Sliders, or a file."""
        return {
            "kind": "sliders" if self._drawable else "upload",
            "sliders": self._sliders,
            "upload": list(FILES),
            "random": False,
        }

    def answer(self, question: Question, out: Tensor) -> dict[str, Array]:
        """The fields by name; of labels, the labels."""
        if not self.own.classes:
            if self.own.kind == "steady":
                return super().answer(question, out)
            shaped = out.float().cpu().numpy()[0].swapaxes(0, 1)  # (n t o) -> (t n o)
            found, start = {}, 0
            for each in self.outputs:
                values = shaped[..., start : start + each.channels]
                found[each.name] = values[..., 0] if each.channels == 1 else values
                start += each.channels
            return found
        labels = np.array([int(label) for label in self.own.classes])
        return {self.outputs[0].name: labels[out[0].argmax(-1).cpu().numpy()]}

    def asked(self, request: Mapping[str, Any]) -> Question:
        """From numbers of a case on the mesh of training, or from points and fields."""
        known = ["parameters", "positions", "fields", "grid", "layer", "head", "refine"]
        for name in request:
            if name not in known:
                raise ValueError(unknown("body", str(name)[:100], known))
        if "positions" in request:
            positions = numbers("positions", request["positions"]).astype(np.float64)
        elif self._mesh is not None:
            positions = self._mesh
        else:
            raise ValueError(
                "positions: expected an array (n, s), as the cases of training had different "
                "meshes, got none; send them, or a file"
            )
        fields = _named("fields", request.get("fields", {}))
        given = _named("parameters", request.get("parameters", {}))
        parameters = {slider["name"]: slider["default"] for slider in self._sliders}
        for name, value in given.items():
            if name not in parameters:
                raise ValueError(unknown("parameters", name[:100], list(parameters)))
            if value.ndim or not np.isfinite(value):
                raise ValueError(f"parameters, {name}: expected one finite number, got another")
            parameters[name] = float(value)
        grid = request.get("grid")
        if grid is not None and not (
            isinstance(grid, list) and all(type(each) is int and each > 0 for each in grid)
        ):
            raise ValueError(f"grid: expected axis lengths, got {str(grid)[:100]}")
        case = Case(
            "body",
            positions,
            {name: each for name, each in fields.items() if each.dtype.kind == "f"},
            parameters,
            {name: each for name, each in fields.items() if each.dtype.kind != "f"},
            grid=None if grid is None else tuple(grid),
        )
        return self._of_case(case)

    def asked_by_file(
        self, path: Path, settings: Mapping[str, float], defaults: Mapping[str, float]
    ) -> Question:
        """From a file with one case; settings win over its own numbers, these over defaults."""
        cases = open_folder(str(path))
        if len(cases) != 1:
            raise ValueError(f"body: expected a file with one case, got {len(cases)}")
        known = [slider["name"] for slider in self._sliders]
        for kind, given in (("set", settings), ("default", defaults)):
            for name in given:
                if name not in known:
                    raise ValueError(unknown(kind, name[:100], known))
        own = cases[0].parameters
        return self._of_case(cases[0].with_parameters({**defaults, **own, **settings}))

    def _of_case(self, case: Case) -> Question:
        sample = sample_of(case, self.own, target=False)
        found = [
            f"{words}; the prediction may be far off"
            for words in outside(sample, self.own, self.run.network)
        ]
        known = self.run.network.position_range
        batch = collate([sample]).to(known.device, known.dtype)
        for name in ("positions", "values"):
            tensor = getattr(batch, name)
            if tensor is not None and not bool(tensor.isfinite().all()):
                raise ValueError(f"{name}: expected finite numbers, got some that are not")
        return Question(batch, found, case=case)

    def write(self, path: Path, question: Question, told: Told) -> None:
        """The case with the predicted fields beside its own."""
        case = question.case
        assert case is not None

        def named(out: Tensor) -> Case:
            return self.surrogate.predicted_case(case, out[0].float().cpu())

        written, new = beside(case, named(told.fields), self.surrogate)
        for end, tensor in (("lower", told.lower), ("upper", told.upper)):
            if tensor is not None:
                its = named(tensor)
                new |= {f"{each.name}_{end}": its[each.name] for each in self.outputs}
        write_case(path, written, new)


def _named(what: str, given: Any) -> dict[str, Array]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{what}: expected names with values, got {type(given).__name__}")
    return {str(name): numbers(str(name)[:100], each) for name, each in given.items()}
