"""`funcattn predict`."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from zipfile import BadZipFile

import h5py
import numpy as np
import tyro
from rich.console import Console

from funcattn.data.npy import open_npy
from funcattn.serve.predictor import load
from funcattn.terminal import progress, refuse

File = Annotated[Path, tyro.conf.Positional]


@dataclass(frozen=True)
class Predict:
    """Predict with a trained run.

    INPUT is .npz or .h5 with arrays `positions` (b n s), and `values` (b n i), `mask`, `weights`,
    `context`, `grid` where needed; OUTPUT, of either kind, gets `prediction` (b n o).

    With --streamed, for one mesh that is larger than memory, INPUT is a folder with positions.npy
    (n s), and values.npy (n i), weights.npy (n) where needed, and OUTPUT is .npy, (n o).
    """

    run_folder: File
    input: File
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    streamed: bool = False
    """Exact, chunk by chunk: nothing is loaded as a whole."""
    scratch: Path | None = None
    """With --streamed: a folder on a disk with room for all features, which saves most of the
    work."""

    def run(self, rest: list[str], console: Console) -> None:
        """Read, predict, write."""
        refuse(rest)
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
        prediction = load(self.run_folder).predict(
            arrays.pop("positions"),
            grid=None if grid is None else [int(length) for length in grid],
            **arrays,
        )
        _write_array(self.output, "prediction", prediction)
        console.print(f"{self.output}: prediction {prediction.shape}", markup=False, soft_wrap=True)

    def _streamed(self, console: Console) -> None:
        """From files to a file, with progress."""
        positions = open_npy(self.input / "positions.npy")
        values, weights = (
            open_npy(path) if path.exists() else None
            for path in (self.input / "values.npy", self.input / "weights.npy")
        )
        with progress(console) as bars:
            bar = bars.add_task("points, layer by layer", total=None)
            load(self.run_folder).predict_streamed(
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
    if path.suffix in (".h5", ".hdf5"):
        with h5py.File(path) as file:
            return {name: np.asarray(file[name]) for name in file}
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return dict(file)
    except (BadZipFile, TypeError) as error:
        raise ValueError(f"{path}: expected an .npz file, got {error}") from error


def _check_suffix(path: Path) -> None:
    if path.suffix not in (".npz", ".h5", ".hdf5"):
        raise ValueError(f"{path}: expected a name that ends in .npz, .h5 or .hdf5")


def _write_array(path: Path, name: str, array: Any) -> None:
    aside = path.with_name(f".{path.name}.part")
    if path.suffix in (".h5", ".hdf5"):
        with h5py.File(aside, "w") as file:
            file[name] = array
    else:
        with aside.open("wb") as stream:
            np.savez(stream, **{name: array})
    os.replace(aside, path)
