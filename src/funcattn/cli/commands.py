"""What can be asked of the command: one class per subcommand, with its options and their help.

Nothing here is heavy to import, so that help and tab completion come at once. What is asked is done
by the class of the same name in the module of `DONE_IN`, which is imported when it is needed.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from funcattn.cli.terminal import CACHE
from funcattn.processes import free_cores
from funcattn.settings import Preset, Profile

Name = Annotated[str, tyro.conf.Positional]
File = Annotated[Path, tyro.conf.Positional]
Output = Annotated[Path, tyro.conf.arg(aliases=["-o"])]
WORKERS = free_cores()
HOME = Path("runs/reproduce")
"""Of what `reproduce` makes, unless its options name other places."""


@dataclass(frozen=True)
class Train:
    """Train a network on a task, choose the epoch on validation data, test once, report.

    Any setting of `funcattn info TASK` can be given too, for example --network.width 32
    --optimisation.epochs 10 --data.train 200 --seed 1. Ctrl-C finishes the step and saves;
    --resume goes on from there, also after a crash.
    """

    task: Name
    """What to learn; `funcattn list` shows the tasks."""
    out: Path | None = None
    """Folder of the run; default runs/TASK-PROFILE-seedSEED."""
    profile: Profile = "cpu"
    """How large: as in the paper (wants a GPU), for two cores, or tiny."""
    preset: Preset = "modern"
    """How trained: by Muon and AdamW, or as in the paper."""
    config: Path | None = None
    """A TOML or JSON file with settings; it goes over the defaults, and flags go over it."""
    resume: bool = False
    """Go on with the run in the folder, with its settings."""
    device: str = "auto"
    """Where to train: auto, cpu, cuda, cuda:1, mps; auto is an accelerator where there is one."""
    devices: int = 1
    """Processes that train together on this machine; with torchrun, what it starts."""
    data: Path | None = None
    """Read the samples from this file or folder, instead of making them."""
    workers: int = WORKERS
    """Processes that make samples."""
    ensemble: int = 1
    """Networks with seeds one after another, whose mean is the prediction."""
    bands: bool = False
    """Calibrate too, as `funcattn calibrate` does."""
    logger: Literal["tensorboard", "wandb"] | None = None
    """Send the curves to TensorBoard or to Weights & Biases too."""
    cache: Path = CACHE
    """Where made data is kept; also the environment variable FUNCATTN_CACHE."""


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
    accept_edited: bool = False
    """Take the files of the run as they are, though they were changed after training."""
    workers: int = WORKERS
    cache: Path = CACHE


@dataclass(frozen=True)
class Audit:
    """Try to break a run, and write one page with a verdict for each attempt.

    Other resolutions, orders and subsets of the points, refined patches, symmetries, the tail of
    the error, wave numbers, noise, the residual of the equation, time and memory, determinism,
    export. Beside the page stands the same as JSON.
    """

    run_folder: File
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """The HTML file; default: audit.html in the folder."""
    samples: int = 40
    """Fresh ones of the solver, or of the test where there is none."""
    accept_edited: bool = False
    """Take the files of the run as they are, though they were changed after training."""
    workers: int = WORKERS
    cache: Path = CACHE


@dataclass(frozen=True)
class Breakeven:
    """What a run costs and saves, beside our solver made as inaccurate as the run is.

    The cost of data, training and inference in CPU seconds, against the solver on the coarser mesh,
    or with the looser tolerance, that has the same error: after how many predictions does it pay?
    Beside the page stands the same as JSON.
    """

    run_folder: File
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """The HTML file; default: breakeven.html in the folder."""
    samples: int = 6
    """Of the test, that are solved on every mesh."""
    training_seconds: float | None = None
    """CPU time of the training, of runs that have not recorded it."""
    accept_edited: bool = False
    """Take the files of the run as they are, though they were changed after training."""
    workers: int = WORKERS
    cache: Path = CACHE


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
    workers: int = WORKERS
    cache: Path = CACHE


@dataclass(frozen=True)
class Compare:
    """Train several networks on one task, alike in everything else, and put the tests in a table.

    Settings as with train; sizes of a network are its own, as `funcattn list models` shows them.
    The folder gets one run per network; stopped at any moment, the same command goes on.
    """

    task: Name
    """What to learn; `funcattn list` shows the tasks."""
    models: list[str] = field(default_factory=lambda: ["funcattn", "transolver"])
    """Which networks; `funcattn list models` shows them."""
    out: Path | None = None
    """Folder of the runs and of comparison.md; default runs/compare-TASK-PROFILE-seedSEED."""
    profile: Profile = "cpu"
    preset: Preset = "modern"
    config: Path | None = None
    """A TOML or JSON file with settings."""
    workers: int = WORKERS
    cache: Path = CACHE


@dataclass(frozen=True)
class Generate:
    """Make the data of a task and keep it in the cache folder.

    Settings as with train, for example --data.nodes 85. Sample i depends on the seed and on i
    alone: asked for more samples later, a set is extended. Stopped at any moment, the same command
    goes on.
    """

    task: Name
    """Whose data; `funcattn list` shows the tasks."""
    profile: Profile = "cpu"
    """How large: as in the paper, for two cores, or tiny."""
    samples: int | None = None
    """How many; default: as many as the task trains, validates and tests with."""
    seed: int | None = None
    """Of the data; default: the task's."""
    workers: int = WORKERS
    """Processes that make samples; they change nothing in the result."""
    scheduler: str | None = None
    """Address of a Dask scheduler (tcp://HOST:PORT), whose workers then make the samples."""
    public: Path | None = None
    """Write the set to this folder too, in the layout of the benchmark's original files."""
    public_format: Literal["5", "7.3"] = "7.3"
    """MATLAB's format of those files."""
    cache: Path = CACHE
    """Where made data is kept; also the environment variable FUNCATTN_CACHE."""


@dataclass(frozen=True)
class Evaluate:
    """Metrics of a trained run on its validation samples, or once more on its test samples."""

    run_folder: File
    split: Literal["validation", "test"] = "validation"
    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:1, mps."""
    accept_edited: bool = False
    """Take the files of the run as they are, though they were changed after training."""
    cache: Path = CACHE


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


@dataclass(frozen=True)
class Report:
    """Write the report of a run again, from its folder and its data."""

    run_folder: File
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """The HTML file; default: report.html in the folder."""
    accept_edited: bool = False
    """Take the files of the run as they are, though they were changed after training."""
    cache: Path = CACHE


@dataclass(frozen=True)
class Pack:
    """Put what a trained run needs to predict into one file, which `funcattn.load` takes."""

    run_folder: File
    output: Output
    """The file to write, .zip."""


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
    device: str = "cpu"
    """Where to compute: auto, cpu, cuda, cuda:1, mps."""
    streamed: bool = False
    """Exact, chunk by chunk: nothing is loaded as a whole."""
    scratch: Path | None = None
    """With --streamed: a folder on a disk with room for all features, which saves most of the
    work."""
    parameters: Path | None = None
    """Own data: a table (CSV, Parquet) with a row of numbers per case."""
    set: tuple[str, ...] = ()
    """Own data: parameters of all cases, such as angle=3 speed=2."""
    accept_edited: bool = False
    """Take the files of the run as they are, though they were changed after training."""


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
class List:
    """The tasks, the networks, and the data that was made; or the networks for one task."""

    what: Annotated[Literal["all", "models"], tyro.conf.Positional] = "all"
    """models: what each network costs in the configuration of a task, and which cannot take it."""
    task: str = "darcy"
    """Whose configuration."""
    profile: Profile = "cpu"
    cache: Path = CACHE


@dataclass(frozen=True)
class Info:
    """The settings of a task and its data set, or the settings and results of a run.

    Without a name: versions, devices, and which of its fast forms this installation has.
    """

    what: Annotated[str | None, tyro.conf.Positional] = None
    """A task's name or a run's folder."""
    profile: Profile = "cpu"
    preset: Preset = "modern"
    accept_edited: bool = False
    """Take the files of the run as they are, though they were changed after training."""
    cache: Path = CACHE


@dataclass(frozen=True)
class Reproduce:
    """Run the paper's experiments, and put the numbers beside the paper's.

    A run is skipped if it has a result with the same settings by code that gives today's numbers.
    After an interruption, the same command continues. At the end the tables, figures and verdicts
    are built again. All files go below runs/reproduce unless options name other places.
    """

    experiments: Annotated[list[str], tyro.conf.Positional] = field(default_factory=list)
    """Experiments by name or by number in the paper, or "all"; --list shows them."""
    tier: Profile = "cpu"
    """Size of the runs: as in the paper (needs a GPU), for two CPU cores, or tiny."""
    only: list[str] = field(default_factory=list)
    """Run only these tasks."""
    models: list[str] = field(default_factory=list)
    """Run only these networks."""
    rows: list[str] = field(default_factory=list)
    """Run only these rows of the tables, such as 16 and 64 of bases."""
    seeds: int = 1
    """Number of seeds: 0, 1, ..."""
    workers: int = 1
    """Runs side by side, each with one thread (or OMP_NUM_THREADS)."""
    rerun: bool = False
    """Run also what has a result."""
    show: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Show all experiments and how much of each has been run."""
    tables: bool = False
    """Run nothing; build tables, figures and the page from the results that exist."""
    check: bool = False
    """Run nothing but short runs that test whether today's code still gives the numbers of the
    results; takes minutes."""
    rna: Path | None = None
    """The RNA Surface Segmentation Dataset: its folder, or a file made from it."""
    queue: Path = HOME / "queue"
    """Folder of runs in progress, and of weights for pictures."""
    results: Path | None = None
    """Folder of the results; default runs/reproduce/results, or runs/reproduce/smoke at tier
    smoke."""
    page: Path | None = None
    """The page of results; default results.md in the folder of the results."""
    bench: Path = Path("runs/bench/bench.json")
    """The file that `funcattn bench` wrote."""
    cache: Path = CACHE
    """Folder of made data; also set by the environment variable FUNCATTN_CACHE."""

    @property
    def results_folder(self) -> Path:
        """Where results are kept."""
        return self.results or HOME / ("smoke" if self.tier == "smoke" else "results")


@dataclass(frozen=True)
class Bench:
    """Measure time and memory of functional attention beside the reference form and baselines.

    What the same code has measured is not measured again: after an interruption, the same command
    continues. The whole takes hours on an idle machine; --quick takes two minutes.
    """

    quick: bool = False
    """One shape, three sizes, few rounds, nothing compiled, no whole networks."""
    sizes: tuple[int, ...] = ()
    """Numbers of points; default: 2^7 to 2^20, for networks also 972 and 7225."""
    shapes: tuple[Literal["128/64/8", "128/64/1", "256/32/8"], ...] = ()
    """Width, bases and heads of layers; default: all three, with --quick the first."""
    parts: tuple[Literal["layer", "model", "scale"], ...] = ("layer", "model")
    """Layers, networks of 8 layers, single calls with a million points and more."""
    threads: int = 1
    out: Path | None = None
    """File of the measurements; default runs/bench/bench.json, or runs/bench-quick/bench.json."""
    pictures: Path | None = None
    """Folder of the pictures; default: the folder of the measurements."""
    page: Path | None = None
    """A page whose tables are to be filled, such as docs/speed.md."""
    again: bool = False
    """Measure also what has been measured."""
    report_only: bool = False
    """Measure nothing; make tables and pictures from the measurements that exist."""

    @property
    def file(self) -> Path:
        """Where the measurements are kept."""
        return self.out or Path("runs") / ("bench-quick" if self.quick else "bench") / "bench.json"


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
    accept_edited: bool = False
    """Take the files of the run as they are, though they were changed after training."""


@dataclass(frozen=True)
class Race:
    """Train several networks on a task, each with the same CPU time on one core, and compare.

    All get the same search of the rate on validation data and the same recipe. Stopped at any
    moment, the same command goes on.
    """

    task: Name
    """On which; `funcattn list` shows the tasks."""
    models: list[str] = field(default_factory=lambda: ["functional_operator", "funcattn"])
    """Which networks; `funcattn list models` shows them. With other settings than a task's own:
    transolver:layers=3,bases=64."""
    budget: str = "120s"
    """CPU time of each training: a number with s, m or h."""
    seeds: int = 3
    """Trainings with seeds 0, 1, ..."""
    recipe: Literal["shared", "task", "both"] = "shared"
    """One recipe for all, the task's own optimisation, or both in turn."""
    profile: Profile = "cpu"
    """How large: as in the paper (wants a GPU), for two cores, or tiny."""
    out: Path = Path("runs/races")
    """Folder of the records, one file per task."""
    cache: Path = CACHE
    """Where made data is kept; also the environment variable FUNCATTN_CACHE."""


Command = (
    Inspect
    | Fit
    | Train
    | Compare
    | Race
    | Generate
    | Evaluate
    | Calibrate
    | Audit
    | Breakeven
    | Verify
    | Predict
    | Report
    | Serve
    | Pack
    | List
    | Info
    | Reproduce
    | Bench
    | Export
)

DONE_IN: dict[type, str] = {
    Inspect: "inspect",
    Fit: "fit",
    Report: "report",
    Pack: "pack",
    Serve: "serve",
    Train: "train",
    Compare: "train",
    Race: "race",
    Generate: "data",
    Evaluate: "train",
    Calibrate: "trust",
    Audit: "trust",
    Breakeven: "trust",
    Verify: "trust",
    Predict: "predict",
    List: "show",
    Info: "show",
    Reproduce: "reproduce",
    Bench: "bench",
    Export: "export",
}
"""Modules of this package."""
ON_FREE_CORES = (Fit, Predict, Report, Evaluate, Calibrate)
"""They use all cores that are free. Others compute with one thread: numbers and times that are
compared mean the same, however busy the machine was."""
SAY_THREADS = (Fit,)
"""They take long, and say with how many threads; `train` says it itself."""
