"""Commands that say how far a run can be trusted."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from funcattn.cli.commands.options import WORKERS, AcceptEdited, Cache, File, Page, Workers
from funcattn.cli.terminal import CACHE


@dataclass(frozen=True)
class Calibrate:
    """Find bands around the predictions of a run within which the truth lies, and keep them there.

    By split-conformal prediction, with samples that nothing in the run has seen: fresh ones of the
    solver; of own data those that `funcattn fit --bands` put aside, or those of --cases. `predict`
    then writes the ends of the bands too. Settings of the data can be given, to calibrate at
    another resolution, for example --data.use-every 5.
    """

    run_folder: File
    coverage: float = 0.9
    """How often the truth is to lie inside the band at all points of a sample together."""
    samples: int = 150
    """Fresh samples to make, where a solver makes them."""
    cases: Path | None = None
    """Own data: a folder, pattern or file of cases that the fit has not seen."""
    parameters: Path | None = None
    """Own data: a table (CSV, Parquet) with a row of numbers for each of these cases."""
    spread: Literal["ensemble", "learned", "constant"] | None = None
    """Where the band is wide; default: as the networks of an ensemble differ, else as learned from
    a third of the samples, else (with few samples) the same everywhere."""
    accept_edited: AcceptEdited = False
    workers: Workers = WORKERS
    cache: Cache = CACHE


@dataclass(frozen=True)
class Audit:
    """Try to break a run, and write one page with a verdict for each attempt.

    Other resolutions, orders and subsets of the points, refined patches, symmetries, the tail of
    the error, wave numbers, noise, the residual of the equation, time and memory, determinism,
    export. Beside the page stands the same as JSON.
    """

    run_folder: File
    output: Page = None
    """The HTML file; default: audit.html in the folder."""
    samples: int = 40
    """Fresh ones of the solver, or of the test where there is none."""
    accept_edited: AcceptEdited = False
    workers: Workers = WORKERS
    cache: Cache = CACHE


@dataclass(frozen=True)
class Breakeven:
    """What a run costs and saves, beside our solver made as inaccurate as the run is.

    The cost of data, training and inference in CPU seconds, against the solver on the coarser mesh,
    or with the looser tolerance, that has the same error: after how many predictions does it pay?
    Beside the page stands the same as JSON.
    """

    run_folder: File
    output: Page = None
    """The HTML file; default: breakeven.html in the folder."""
    samples: int = 6
    """Of the test, that are solved on every mesh."""
    training_seconds: float | None = None
    """CPU time of the training, of runs that have not recorded it."""
    accept_edited: AcceptEdited = False
    workers: Workers = WORKERS
    cache: Cache = CACHE


@dataclass(frozen=True)
class Verify:
    """Score a run, a packed run, or a line of results again from scratch: does its number hold?

    PATH is the folder of a run or its .zip file, the name of a run that comes with the package, a
    file of results (.jsonl), or a folder of these.
    The data of a benchmark is made again by its seed; what results/experiments holds is trained
    again, as its weights are not kept. Ends with 1 if a number does not hold.
    """

    path: File
    line: int | None = None
    """Of a file of results, counted from 1; default: all."""
    most_seconds: float = 600.0
    """CPU time that training a line again may take."""
    cached: bool = False
    """Take the data of benchmarks from the cache, if its fingerprint is the recorded one."""
    workers: Workers = WORKERS
    cache: Cache = CACHE
