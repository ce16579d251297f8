"""`funcattn bench`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from funcattn.bench import targets
from funcattn.bench.candidates import LAYERS_OF_MODEL
from funcattn.bench.found import Found, Table
from funcattn.bench.measure import KINDS, Say
from funcattn.bench.report import not_measured, over_points, write_page, write_pictures
from funcattn.bench.runner import (
    ALLOCATORS,
    LAYER_SIZES,
    MODEL_SIZES,
    SHAPES,
    Case,
    Effort,
    Results,
    Work,
    run,
    work_of_case,
    work_of_feat,
)
from funcattn.bench.scale import FEATS
from funcattn.terminal import command_line, refuse

RESULTS, QUICK_RESULTS = Path("results/bench.json"), Path("runs/bench-quick/bench.json")
QUICK = Effort(rounds=3, seconds=0.05, quadratic_up_to=2**12, compiled=False)
QUICK_SIZES = (2**10, 2**12, 2**14)


@dataclass(frozen=True)
class Bench:
    """Time and weigh functional attention beside the reference form and other attentions.

    What was measured with the same code is not measured again: stopped at any moment, the same
    command goes on. Hours on a quiet machine; --quick takes two minutes.
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
    """File of the measurements; default results/bench.json, or runs/bench-quick/bench.json."""
    pictures: Path | None = None
    """Folder of the pictures; default: that of the measurements."""
    page: Path | None = None
    """A page whose tables are to be filled, such as docs/speed.md."""
    again: bool = False
    """Measure also what is there already."""
    report_only: bool = False
    """Measure nothing: tables and pictures of what is there."""

    def run(self, rest: list[str], console: Console) -> None:
        """Measure with progress, print tables, draw."""
        refuse(rest)
        out = self.out or (QUICK_RESULTS if self.quick else RESULTS)
        results = Results(out)
        failures = [] if self.report_only else self._measure(results, console)
        found = Found(results.records, self.threads)
        for shape in found.shapes():
            console.print(f"\nlayer {shape}: width, bases, heads; default allocator")
            for kind in KINDS["layer"]:
                _print_parts(console, over_points(found, "layer", shape, kind))
        if found.cases("model"):
            console.print(f"\nnetwork of {LAYERS_OF_MODEL} layers; default allocator")
            for kind in KINDS["model"]:
                _print_parts(console, over_points(found, "model", SHAPES[0], kind))
        console.print("", _rich(targets.table(found)))
        for line in not_measured(found):
            console.print(line, markup=False, soft_wrap=True)
        for path in (out, *write_pictures(found, self.pictures or out.parent)):
            console.print(str(path), markup=False, soft_wrap=True)
        if self.page is not None:
            write_page(found, self.page)
            console.print(str(self.page), markup=False, soft_wrap=True)
        if failures:
            raise ChildProcessError("; ".join(failures))

    def _measure(self, results: Results, console: Console) -> list[str]:
        wanted = self._work()
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        ) as progress:
            bar = progress.add_task("", total=len(wanted))
            keys = {work.key: index for index, work in enumerate(wanted)}

            def on_work(key: str) -> Say:
                progress.update(bar, completed=keys[key], description=key)
                return lambda text: progress.update(bar, description=f"{key}: {text}")

            command = command_line()
            failures = run(wanted, results, command=command, again=self.again, on_work=on_work)
            progress.update(bar, completed=len(wanted), description="measured")
        return failures

    def _work(self) -> list[Work]:
        """What is asked for, small sizes first."""
        effort = QUICK if self.quick else Effort()
        layers = self.sizes or (QUICK_SIZES if self.quick else LAYER_SIZES)
        models = () if self.quick else self.sizes or MODEL_SIZES
        shapes = [shape for shape in SHAPES if str(shape) in self.shapes]
        wanted = []
        if "layer" in self.parts:
            wanted += [
                Case("layer", shape, points, allocator, self.threads)
                for points in layers
                for shape in shapes or (SHAPES[:1] if self.quick else SHAPES)
                for allocator in ALLOCATORS
                if allocator == "default" or (not self.quick and points == targets.POINTS)
            ]
        if "model" in self.parts:
            wanted += [Case("model", SHAPES[0], n, "default", self.threads) for n in models]
        work = [work_of_case(case, effort) for case in wanted]
        if "scale" in self.parts:
            work += [work_of_feat(name, self.threads) for name in FEATS]
        return work


def _print_parts(console: Console, table: Table) -> None:
    """A table over many sizes, below each other what does not fit side by side."""
    for part in table.within(console.width):
        console.print(_rich(part))


def _rich(table: Table) -> RichTable:
    shown = RichTable(box=None)
    for index, header in enumerate(table.headers):
        # Numbers stay whole where the window is narrow.
        shown.add_column(header, justify="right" if index else "left", no_wrap=index > 0)
    for row in table.rows:
        shown.add_row(*row)
    return shown
