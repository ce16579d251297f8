"""`funcattn predict`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from funcattn.cli import commands
from funcattn.cli.terminal import check_output, progress, refuse
from funcattn.data.foreign import FileError, read_hdf5, read_npz, write_hdf5, write_npz
from funcattn.data.npy import open_npy
from funcattn.serve.predictor import Predictor, load
from funcattn.tasks.own import OwnData
from funcattn.training.bundled import run_folder
from funcattn.training.run import Run


@dataclass(frozen=True)
class Predict(commands.Predict):
    """`funcattn predict`."""

    def run(self, rest: list[str], console: Console) -> None:
        """Read, predict, write."""
        refuse(rest)
        folder = run_folder(self.run_folder)
        if folder.suffix == ".zip" or isinstance(Run(folder).settings.data, OwnData):
            self._own(console)
            return
        if self.set or self.parameters is not None:
            raise ValueError("--set, --parameters: expected a run on own data, got a benchmark's")
        check_output(self.output)
        if self.streamed:
            self._streamed(console)
            return
        if self.scratch is not None:
            raise ValueError("--scratch: expected --streamed with it, got it alone")
        _check_suffix(self.output)
        arrays = _read_arrays(self.input)
        unknown = arrays.keys() - {"positions", "values", "mask", "weights", "context", "grid"}
        if unknown or "positions" not in arrays:
            raise ValueError(
                f"{self.input}: expected positions, and values, mask, weights, context or grid, "
                f"got {', '.join(sorted(arrays)) or 'nothing'}"
            )
        grid = arrays.pop("grid", None)
        predictor = self._predictor()
        positions = arrays.pop("positions")
        lengths = None if grid is None else _lengths(self.input, grid)
        if predictor.calibrated is None:
            found = {"prediction": predictor.predict(positions, grid=lengths, **arrays)}
        else:
            names = ("prediction", "prediction_lower", "prediction_upper")
            banded = predictor.bands(positions, grid=lengths, **arrays)
            found = dict(zip(names, banded, strict=True))
            console.print(predictor.calibrated.in_words(), markup=False, soft_wrap=True)
        (write_hdf5 if self.output.suffix in (".h5", ".hdf5") else write_npz)(self.output, found)
        words = ", ".join(f"{name} {array.shape}" for name, array in found.items())
        console.print(f"{self.output}: {words}", markup=False, soft_wrap=True)

    def _own(self, console: Console) -> None:
        """Files of cases in, files of cases out."""
        from funcattn.fitting.predicting import predict_files, settings_of
        from funcattn.surrogate import Surrogate

        if self.streamed or self.scratch is not None:
            raise ValueError(
                "--streamed, --scratch: expected a benchmark's run, got one on own data, which "
                "predicts large meshes chunk by chunk by itself"
            )
        surrogate = Surrogate.load(self.run_folder, self.device, accept_edited=self.accept_edited)
        for path in predict_files(
            surrogate,
            self.input,
            self.output,
            parameters=self.parameters,
            numbers=settings_of(self.set),
        ):
            console.print(f"{path}", markup=False, soft_wrap=True)

    def _predictor(self) -> Predictor:
        return load(self.run_folder, self.device, accept_edited=self.accept_edited)

    def _streamed(self, console: Console) -> None:
        """From files to a file, with progress."""
        positions = open_npy(self.input / "positions.npy")
        values, weights = (
            open_npy(path) if path.exists() else None
            for path in (self.input / "values.npy", self.input / "weights.npy")
        )
        with progress(console) as bars:
            bar = bars.add_task("points, layer by layer", total=None)
            self._predictor().predict_streamed(
                positions,
                values,
                weights=weights,
                out=self.output,
                scratch=self.scratch,
                progress=lambda done, total: bars.update(bar, completed=done, total=total),
            )
        console.print(f"{self.output}: prediction", markup=False, soft_wrap=True)


def _read_arrays(path: Path) -> dict[str, Any]:
    _check_suffix(path)
    return read_hdf5(path) if path.suffix in (".h5", ".hdf5") else read_npz(path)


def _lengths(path: Path, grid: Any) -> list[int]:
    """The axis lengths of a grid from the array of a file."""
    if grid.ndim != 1 or grid.dtype.kind not in "iuf" or (grid != grid.round()).any():
        raise FileError(
            path, "whole numbers in grid, one per axis", f"{grid}", "give the axis lengths"
        )
    return [int(length) for length in grid]


def _check_suffix(path: Path) -> None:
    if path.suffix not in (".npz", ".h5", ".hdf5"):
        raise ValueError(f"{path}: expected a name that ends in .npz, .h5 or .hdf5")
