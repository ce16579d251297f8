"""Commands that repeat the paper's experiments and measure speed."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from funcattn.cli.commands.options import Cache
from funcattn.cli.terminal import CACHE
from funcattn.settings import Profile

HOME = Path("runs/reproduce")
"""Of what `reproduce` makes, unless its options name other places."""


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
    cache: Cache = CACHE

    @property
    def results_folder(self) -> Path:
        """Where results are kept."""
        return self.results or HOME / ("smoke" if self.tier == "smoke" else "results")


@dataclass(frozen=True)
class Bench:
    """Measure time and memory of functional attention beside the reference form and baselines.

    What the same code has measured is not measured again: after an interruption, the same command
    continues. The whole takes two and a half hours on an idle machine; --quick takes two minutes.
    """

    quick: bool = False
    """One shape, three sizes, few rounds, nothing compiled, no whole networks."""
    sizes: tuple[int, ...] = ()
    """Numbers of points; default: 512 and powers of four from 2^10 to 2^20, for width 256 to 2^16;
    for networks 972, 7225 and powers of four from 2^10 to 2^16. By default, measurements at other
    sizes are left out of the file."""
    shapes: tuple[Literal["128/64/8", "128/64/1", "256/32/8"], ...] = ()
    """Width, bases and heads of layers; default: all three, with --quick the first."""
    parts: tuple[Literal["layer", "model", "alone", "scale"], ...] = ("layer", "model", "alone")
    """Layers and networks of 8 layers, all candidates in turns in one process; ours and the nearest
    baseline, each alone in its process; single calls with a million points and more."""
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
