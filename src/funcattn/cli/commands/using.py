"""Commands that put a trained run to use."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from funcattn.cli.commands.options import AcceptEdited, Cache, Device, File, Output, Page
from funcattn.cli.terminal import CACHE


@dataclass(frozen=True)
class Predict:
    """Predict with a trained run: its folder, or a name that comes with funcattn, such as darcy.

    Of a run on own data, INPUT is a file or folder of cases, and OUTPUT a file (.vtu, .npz, .h5) or
    a folder: the same points, cells and fields, with the predicted ones beside them as
    NAME_predicted, and where INPUT has the truth, NAME_error.

    Otherwise INPUT is .npz or .h5 with arrays `positions` (b n s), and `values` (b n i), `mask`,
    `weights`, `context`, `grid` where needed; OUTPUT, of either kind, gets `prediction` (b n o).

    With --streamed, for one mesh that is larger than memory, INPUT is a folder with positions.npy
    (n s), and values.npy (n i), weights.npy (n) where needed, and OUTPUT is .npy, (n o).
    """

    run_folder: File
    input: File
    output: Output
    device: Device = "cpu"
    streamed: bool = False
    """Exact, chunk by chunk: nothing is loaded as a whole."""
    scratch: Path | None = None
    """With --streamed: a folder on a disk with room for all features, which saves most of the
    work."""
    parameters: Path | None = None
    """Own data: a table (CSV, Parquet) with a row of numbers per case."""
    set: tuple[str, ...] = ()
    """Own data: parameters of all cases, such as angle=3 speed=2."""
    accept_edited: AcceptEdited = False


@dataclass(frozen=True)
class Report:
    """Write the report of a run again, from its folder and its data."""

    run_folder: File
    output: Page = None
    """The HTML file; default: report.html in the folder."""
    accept_edited: AcceptEdited = False
    cache: Cache = CACHE


@dataclass(frozen=True)
class Serve:
    """Serve trained runs over HTTP, with a page to play with them.

    Open the address that it prints; /docs there describes the API. Without a token only this
    machine can ask. SIGTERM and Ctrl-C finish what runs.
    """

    runs: Annotated[list[str], tyro.conf.Positional] = field(default_factory=list)
    """Folders of runs, files of `funcattn pack`, or names of the runs that come with funcattn;
    default: all of these."""
    host: str = "127.0.0.1"
    """Address to listen at; any but this machine's own needs a token."""
    port: int = 8000
    """0: any that is free."""
    workers: int = 1
    """Processes that answer."""
    threads: int = 0
    """Threads of each network; 0: free cores over workers."""
    token: str = ""
    """Asked for with every request; better set by the environment variable FUNCATTN_TOKEN, which
    other users of the machine do not see."""
    allow_origin: tuple[str, ...] = ()
    """Pages of other hosts that may ask, such as https://example.org."""
    max_points: int = 300_000
    """Points of a question."""
    max_body: int = 64
    """Megabytes of a request."""
    queue: int = 64
    """Requests at a time, per worker; others are told to come again."""
    timeout: float = 30.0
    """Seconds that a request may take."""
    solve_timeout: float = 600.0
    """Seconds that a solver may take."""


@dataclass(frozen=True)
class Pack:
    """Put what a trained run needs to predict into one file, which `funcattn.load` takes."""

    run_folder: File
    output: Output
    """The file to write, .zip."""


@dataclass(frozen=True)
class Export:
    """Write a trained run as an ONNX file: real units in, real units out.

    The file takes `positions` (b n s), and `values` (b n i), `time` (b) and `context` (b m 2) where
    the task has them, for any number of samples and points, and gives `prediction` (b n o). Of a
    network that looks at a grid, it takes the grid of the training samples only. Of a task in time
    it is one call of the network, for one frame.
    """

    run_folder: File
    output: Output
    """The file to write, .onnx."""
    mask: bool = False
    """The file takes `mask` (b n) too, True at real points."""
    weights: bool = False
    """The file takes the points' `weights` (b n) too; always where the network was trained with
    them."""
    accept_edited: AcceptEdited = False
