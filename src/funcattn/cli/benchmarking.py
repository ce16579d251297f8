"""What `funcattn bench` does: choose what to measure, measure with progress, print and draw."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from funcattn.bench import alone, targets
from funcattn.bench.candidates import LAYERS_OF_MODEL, Shape
from funcattn.bench.found import Found, TextTable
from funcattn.bench.measure import KINDS, Say
from funcattn.bench.report import not_measured, over_points, write_page, write_pictures
from funcattn.bench.runner import (
    ALLOCATORS,
    LARGEST,
    LAYER_SIZES,
    MODEL_SIZES,
    SHAPES,
    Comparison,
    Effort,
    Measurements,
    Work,
    run,
    work_of_alone,
    work_of_comparison,
    work_of_feat,
)
from funcattn.bench.scale import FEATS
from funcattn.cli.commands import Bench
from funcattn.cli.terminal import command_line

QUICK = Effort(rounds=3, seconds=0.05, quadratic_up_to=2**12, compiled=False)
QUICK_SIZES = (2**10, 2**12, 2**14)


class Benchmarking:
    """One call of the command."""

    def __init__(self, options: Bench, console: Console) -> None:
        self.options, self.console = options, console

    def run(self) -> None:
        """Measure with progress, print tables, draw."""
        out = self.options.file
        results = Measurements(out)
        failures = [] if self.options.report_only else self._measure(results)
        found = Found(results.records, self.options.threads)
        for shape in found.shapes():
            self.console.print(f"\nlayer {shape}: width, bases, heads; default allocator")
            for kind in KINDS["layer"]:
                _print_parts(self.console, over_points(found, "layer", shape, kind))
        if found.cases("model"):
            self.console.print(f"\nnetwork of {LAYERS_OF_MODEL} layers; default allocator")
            for kind in KINDS["model"]:
                _print_parts(self.console, over_points(found, "model", SHAPES[0], kind))
        if "alone" in {record.get("part") for record in found.records}:
            self.console.print("\nall candidates alone in their processes")
            _print_parts(self.console, alone.table(found))
        self.console.print("", _rich(targets.table(found)))
        for line in not_measured(found):
            self.console.print(line, markup=False, soft_wrap=True)
        for path in (out, *write_pictures(found, self.options.pictures or out.parent)):
            self.console.print(str(path), markup=False, soft_wrap=True)
        if self.options.page is not None:
            write_page(found, self.options.page)
            self.console.print(str(self.options.page), markup=False, soft_wrap=True)
        if failures:
            raise ChildProcessError("; ".join(failures))

    def _measure(self, results: Measurements) -> list[str]:
        wanted = self._work()
        if gone := self._drop_other_sizes(results, wanted):
            said = f"measurements at other sizes, left out of {results.path}: {gone}"
            self.console.print(said, markup=False, soft_wrap=True)
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
        ) as progress:
            bar = progress.add_task("", total=len(wanted))
            keys = {work.key: index for index, work in enumerate(wanted)}

            def on_work(key: str) -> Say:
                progress.update(bar, completed=keys[key], description=key)
                return lambda text: progress.update(bar, description=f"{key}: {text}")

            command = command_line()
            failures = run(
                wanted, results, command=command, again=self.options.again, on_work=on_work
            )
            progress.update(bar, completed=len(wanted), description="measured")
        return failures

    def _drop_other_sizes(self, results: Measurements, wanted: Sequence[Work]) -> int:
        """Without sizes of one's own, tables and pictures are of the usual ones alone."""
        options = self.options
        if options.sizes or options.quick:
            return 0

        def unwanted(record: Mapping[str, Any]) -> bool:
            return (
                record.get("part") in options.parts
                and record["threads"] == options.threads
                and (not options.shapes or str(Shape(**record["shape"])) in options.shapes)
            )

        return results.drop(unwanted, (work.key for work in wanted))

    def _work(self) -> list[Work]:
        """What is asked for, small sizes first."""
        effort = QUICK if self.options.quick else Effort()
        layers = self.options.sizes or (QUICK_SIZES if self.options.quick else LAYER_SIZES)
        models = () if self.options.quick else self.options.sizes or MODEL_SIZES
        shapes = [shape for shape in SHAPES if str(shape) in self.options.shapes]
        wanted = []
        if "layer" in self.options.parts:
            wanted += [
                Comparison("layer", shape, points, allocator, self.options.threads)
                for points in layers
                for shape in shapes or (SHAPES[:1] if self.options.quick else SHAPES)
                if self.options.sizes or points <= LARGEST.get(shape, points)
                for allocator in ALLOCATORS
                if allocator == "default" or (not self.options.quick and points == targets.POINTS)
            ]
        if "model" in self.options.parts:
            wanted += [
                Comparison("model", SHAPES[0], n, "default", self.options.threads) for n in models
            ]
        work = [work_of_comparison(case, effort) for case in wanted]
        if "alone" in self.options.parts and not self.options.quick:
            work += [
                work_of_alone(case, self.options.threads)
                for case in alone.CASES
                if (not shapes or case.shape in shapes)
                and (not self.options.sizes or case.points in self.options.sizes)
            ]
        if "scale" in self.options.parts:
            work += [work_of_feat(name, self.options.threads) for name in FEATS]
        return work


def _print_parts(console: Console, table: TextTable) -> None:
    """A table over many sizes, below each other what does not fit side by side."""
    for part in table.within(console.width):
        console.print(_rich(part))


def _rich(table: TextTable) -> Table:
    shown = Table(box=None)
    for index, header in enumerate(table.headers):
        # Numbers stay whole where the window is narrow.
        shown.add_column(header, justify="right" if index else "left", no_wrap=index > 0)
    for row in table.rows:
        shown.add_row(*row)
    return shown
