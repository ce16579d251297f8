"""Commands for people's own simulations."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from funcattn.cli.commands.options import Name


@dataclass(frozen=True)
class Inspect:
    """Look at a folder of your own simulations: what is there, and what is odd.

    Writes a TOML file with what could be learned, to be edited and given to `funcattn fit`.
    """

    cases: Name
    """A folder, a pattern in quotes such as 'runs/*/result.vtu', or a file."""
    parameters: Path | None = None
    """A table (CSV, Parquet) with a row of numbers per case."""
    numbered: bool = False
    """Files that only differ in a number at the end, like flow_001.vtu, are times of one case."""
    plan: Path | None = None
    """The TOML file to write; default: the name of the folder, here."""
    picture: Path | None = None
    """A picture of some cases to write, .png; default: beside the TOML file."""


@dataclass(frozen=True)
class Fit:
    """Fit a surrogate to your own simulations, and compare it with yardsticks.

    CASES is a folder, a pattern or a file, with the names of the fields to predict by --outputs; or
    the TOML file of `funcattn inspect`, whose values the options replace. Ctrl-C saves and leaves;
    the same command goes on.
    """

    cases: Name
    outputs: tuple[str, ...] = ()
    """Fields to predict; a category is classified."""
    inputs: tuple[str, ...] | None = None
    """Fields, categories and parameters that are given, besides the geometry; default: the
    parameters that differ between the cases."""
    parameters: Path | None = None
    """A table (CSV, Parquet) with a row of numbers per case."""
    numbered: bool = False
    """Files that only differ in a number at the end, like flow_001.vtu, are times of one case."""
    out: Path | None = None
    """Folder of the run; default runs/ and the name of the cases."""
    budget: str | None = None
    """Time to fit, such as 90s, 20min, 2h; decides the size of the network and the epochs."""
    model: str | None = None
    """The network; `funcattn list models` shows them."""
    epochs: int | None = None
    group_by: str | None = None
    """Cases with one value of this parameter or column stay together."""
    part_by: str | None = None
    """A column that says train, validation or test."""
    time: Literal["steady", "steps", "times"] | None = None
    """Series: the next frame from the last ones, or the field at any time."""
    history: int | None = None
    """Frames from which the next one is predicted."""
    patience: int | None = None
    """Epochs without a better validation after which training ends."""
    warm_start: Path | None = None
    """A run whose weights are the start."""
    ensemble: int | None = None
    """Networks with seeds one after another, whose mean is the prediction."""
    calibration: float | None = None
    """Share of the cases (below 1) or their number, put aside for bands around predictions."""
    bands: bool = False
    """Calibrate bands around predictions, in which the truth lies with 90 % probability. 15 % of
    the cases, at least 9, are put aside for that unless --calibration says otherwise."""
    learning_curve: bool = False
    """Also train with half and a quarter of the cases, to see what more of them would give."""
    seed: int | None = None
    device: str | None = None
    """Where to compute: auto, cpu, cuda, cuda:1, mps."""
