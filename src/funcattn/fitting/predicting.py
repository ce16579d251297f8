"""Prediction from files to files, by a surrogate."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from funcattn.arrays import Array
from funcattn.data.cases import Case, open_folder, write_case
from funcattn.data.cases.case import unknown

if TYPE_CHECKING:
    from funcattn.fitting.fitted import FittedSurrogate

ENDINGS = (".vtu", ".npz", ".h5", ".hdf5")


def settings_of(words: Sequence[str]) -> dict[str, float]:
    """Numbers by name from words such as angle=3.

    >>> settings_of(["angle=3", "speed=2.5"])
    {'angle': 3.0, 'speed': 2.5}
    """
    numbers = {}
    for word in words:
        name, sign, value = word.partition("=")
        try:
            if not (name and sign):
                raise ValueError
            numbers[name] = float(value)
        except ValueError:
            raise ValueError(f"--set: expected NAME=NUMBER, got {word!r}") from None
    return numbers


def predict_files(
    surrogate: "FittedSurrogate",
    source: Path,
    target: Path,
    *,
    parameters: Path | None = None,
    numbers: Mapping[str, float] | None = None,
) -> Iterator[Path]:
    """Predict the cases of a file or folder, and write each; the files that were written.

    target: a file where there is one case, else a folder, whose files are named after the cases.
    """
    known = [each.name for each in surrogate.data.inputs if each.kind == "parameter"]
    for name in numbers or {}:
        if name not in known:
            raise ValueError(f"--set: {unknown(name, known)}")
    cases = open_folder(str(source), parameters=parameters, numbered=surrogate.data.numbered)
    many = len(cases) > 1 or source.is_dir()
    if not many and target.suffix.lower() not in ENDINGS:
        raise ValueError(f"{target}: expected a name that ends in {', '.join(ENDINGS)}")
    if many and target.suffix:
        raise ValueError(f"{target}: expected a folder for {len(cases)} cases, got a file's name")
    if many:
        target.mkdir(parents=True, exist_ok=True)
    for place in range(len(cases)):
        case = cases[place].with_parameters(dict(numbers or {}))
        path = target
        if many:
            ending = ".npz" if case.cells is None or case.times is not None else ".vtu"
            path = target / f"{case.name}{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
        if surrogate.calibrated is None:
            predicted, ends = surrogate.predict(case), {}
        else:
            predicted, *found = surrogate.bands(case)
            ends = dict(zip(("lower", "upper"), found, strict=True))
        written, new = beside(case, predicted, surrogate)
        for end, its in ends.items():
            new |= {f"{each.name}_{end}": its[each.name] for each in surrogate.data.outputs}
        write_case(path, written, new)
        yield path


def beside(
    case: Case, predicted: Case, surrogate: "FittedSurrogate"
) -> tuple[Case, dict[str, Array]]:
    """The case, and the predicted fields as NAME_predicted with NAME_error where the truth is."""
    own = surrogate.data
    new: dict[str, Array] = {}
    for each in own.outputs:
        guess = predicted[each.name]
        new[f"{each.name}_predicted"] = guess
        if each.name not in case.names:
            continue
        truth = case[each.name]
        if own.kind == "steps":
            truth = truth[:, own.history :]
        if own.classes:
            new[f"{each.name}_error"] = (guess != truth).astype(np.int64)
        elif truth.shape == guess.shape:
            new[f"{each.name}_error"] = guess - truth
    if own.kind != "steps":
        return case, new
    # The frames to come are the times of the file; those before them are left out. Fields of the
    # case go with them, unless it only has the frames before.
    fields, last = {}, 0 if predicted.times is None else len(predicted.times)
    if case.times is not None and last and len(case.times) >= own.history + last:
        fields = {name: values[:, -last:] for name, values in case.fields.items()}
    return replace(predicted, fields=fields), new


__all__ = ["beside", "predict_files", "settings_of"]
