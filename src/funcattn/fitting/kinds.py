"""What people hand over, as cases, and predicted fields in the kind that was handed over.

Arrays come back as arrays, lists as lists, dictionaries as dictionaries, cases and files as cases.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from funcattn.arrays import Array
from funcattn.data.cases import Case, Cases, from_arrays, open_folder, read_table
from funcattn.tasks.own import OwnData

AnyCases = Sequence[Case] | Cases
KEPT_BYTES = 2 * 2**30
"""Cases are kept in memory up to this size; more are read again when they are asked for."""


@dataclass(frozen=True)
class Handed:
    """Cases, and how they came."""

    cases: Sequence[Case]
    inputs: tuple[str, ...] | None
    """Names that go in; None where that is open."""
    outputs: tuple[str, ...]
    kind: str
    """arrays, lists, cases, or case for a single one."""
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Columns of the table of parameters that are no numbers, one word per case."""


class KeptCases(Sequence[Case]):
    """Cases that are read once while there is room for them."""

    def __init__(self, cases: AnyCases) -> None:
        self._cases, self._kept, self._room = cases, dict[int, Case](), KEPT_BYTES

    def __len__(self) -> int:
        return len(self._cases)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index not in self._kept:
            if not 0 <= index < len(self):
                raise IndexError(index)
            case = self._cases[index]
            arrays = [*case.fields.values(), *case.categories.values(), case.positions]
            size = sum(array.nbytes for array in arrays)
            if size > self._room:
                return case
            self._room -= size
            self._kept[index] = case
        return self._kept[index]


def handed(
    data: Any,
    outputs: Any = None,
    *,
    inputs: Sequence[str] | None = None,
    positions: Any = None,
    parameters: Any = None,
    grid: Sequence[int] | None = None,
    times: Any = None,
    names: Sequence[str] | None = None,
    numbered: bool = False,
) -> Handed:
    """Cases from arrays, lists, dictionaries, cases, or the path of a file or folder.

    Of paths and cases, `inputs` and `outputs` are names; of arrays, `outputs` are arrays too.
    """
    if isinstance(data, str | Path):
        cases = open_folder(str(data), parameters=parameters, numbered=numbered)
        single = not Path(data).is_dir() and len(cases) == 1
        got = _of_cases(cases, outputs, inputs, "case" if single else "cases")
        return replace(got, words=_words(parameters, cases))
    if isinstance(data, Case):
        return _of_cases([data], outputs, inputs, "case")
    if isinstance(data, Cases) or (
        isinstance(data, Sequence) and len(data) > 0 and isinstance(data[0], Case)
    ):
        got = _of_cases(data, outputs, inputs, "cases")
        return replace(got, words=_words(parameters, data))
    if isinstance(outputs, str) or (
        isinstance(outputs, Sequence) and outputs and isinstance(outputs[0], str)
    ):
        raise ValueError(
            "outputs: expected arrays beside the arrays of the inputs, got names; names choose "
            "fields of a folder or of cases"
        )
    data, outputs, positions, parameters = (
        _plain(each) for each in (data, outputs, positions, parameters)
    )
    made = from_arrays(
        data,
        outputs,
        positions=positions,
        parameters=parameters,
        grid=grid,
        times=times,
        names=names,
    )
    ragged = any(_is_list(each) for each in (*_parts(data), *_parts(outputs), positions))
    return Handed(KeptCases(made), made.inputs, made.outputs, "lists" if ragged else "arrays")


def _of_cases(cases: AnyCases, outputs: Any, inputs: Sequence[str] | None, kind: str) -> Handed:
    names = (outputs,) if isinstance(outputs, str) else tuple(outputs or ())
    given = None if inputs is None else ((inputs,) if isinstance(inputs, str) else tuple(inputs))
    if isinstance(cases, Cases):
        names = names or cases.outputs
        given = given if given is not None else (cases.inputs or None)
    return Handed(KeptCases(cases), given, names, kind)


def _words(parameters: Any, cases: AnyCases) -> dict[str, list[str]]:
    """The columns of words of a table, in the order of the cases."""
    if not isinstance(parameters, str | Path):
        return {}
    columns = read_table(parameters)
    names = cases.names if isinstance(cases, Cases) else [case.name for case in cases]
    texts = {name: column for name, column in columns.items() if isinstance(column, list)}
    for rows in texts.values():
        places = {Path(row).stem: place for place, row in enumerate(rows)}
        if all(Path(name).name in places for name in names):
            order = [places[Path(name).name] for name in names]
            return {name: [column[i] for i in order] for name, column in texts.items()}
    return {}


def _plain(given: Any) -> Any:
    """Tensors as arrays, also within lists and dictionaries."""
    if isinstance(given, Mapping):
        return {name: _plain(each) for name, each in given.items()}
    if isinstance(given, list | tuple):
        return [_plain(each) for each in given]
    if hasattr(given, "detach"):
        return given.detach().cpu().numpy()
    return given


def _parts(given: Any) -> list[Any]:
    return list(given.values()) if isinstance(given, Mapping) else [given]


def _is_list(given: Any) -> bool:
    return isinstance(given, list | tuple) and len(given) > 0 and np.ndim(given[0]) > 0


def field_grid(data: Any, own: OwnData) -> tuple[int, ...] | None:
    """The grid of arrays handed over for prediction, by the space that the run knows."""
    fields = [each.name for each in own.inputs if each.kind == "field"] or ["input"]
    given = _plain(data)
    parts = given if isinstance(given, Mapping) else {"input": given}
    for name in fields:
        shape = np.shape(parts[name]) if name in parts else ()
        if len(shape) > own.space:
            return tuple(shape[1 : 1 + own.space])
    return own.axes or None


def handed_back(
    kind: str, cases: Sequence[Case], fields: list[dict[str, Array]], own: OwnData
) -> Any:
    """Predicted fields, (n c) or (n t c) of each case by name, in the kind that was handed over."""
    if kind in ("case", "cases"):
        made = [_with_fields(case, each, own) for case, each in zip(cases, fields, strict=True)]
        return made[0] if kind == "case" else made
    shaped: dict[str, Any] = {}
    for output in own.outputs:
        parts = []
        for case, each in zip(cases, fields, strict=True):
            values = each[output.name]
            if output.name in own.scalars and not own.classes:
                values = values[..., 0]
            if case.grid is not None:
                values = values.reshape(*case.grid, *values.shape[1:])
            parts.append(values)
        same = kind == "arrays" and len({part.shape for part in parts}) == 1
        shaped[output.name] = np.stack(parts) if same else parts
    return shaped["output"] if list(shaped) == ["output"] else shaped


def _with_fields(case: Case, fields: Mapping[str, Array], own: OwnData) -> Case:
    """The case with predicted fields in the place of those that it had under these names."""
    scalars = {
        name: v[..., 0] if name in own.scalars and not own.classes else v
        for name, v in fields.items()
    }
    times = case.times
    others = dict(case.fields)
    if own.kind == "steps":
        frames = next(iter(scalars.values())).shape[1]
        if times is None or len(times) != own.history + frames:
            times = np.arange(frames, dtype=np.float64)
        else:
            times = times[own.history :]
        others = {}
    kept = {name: values for name, values in others.items() if name not in scalars}
    if own.classes:
        return replace(case, categories={**case.categories, **scalars})
    return replace(case, fields={**kept, **scalars}, times=times)
