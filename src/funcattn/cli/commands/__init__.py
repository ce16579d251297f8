"""What can be asked of the command: one class per subcommand, with its options and their help.

Nothing here is heavy to import, so that help and tab completion come at once. What is asked is done
by the class of the same name in the module of `DONE_IN`, which is imported when it is needed.
"""

from funcattn.cli.commands.options import WORKERS
from funcattn.cli.commands.own import Fit, Inspect
from funcattn.cli.commands.paper import Bench, Reproduce
from funcattn.cli.commands.showing import Info, List
from funcattn.cli.commands.training import Compare, Evaluate, Generate, Race, Train
from funcattn.cli.commands.trust import Audit, Breakeven, Calibrate, Verify
from funcattn.cli.commands.using import Export, Pack, Predict, Report, Serve

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

__all__ = [
    "DONE_IN",
    "ON_FREE_CORES",
    "SAY_THREADS",
    "WORKERS",
    "Audit",
    "Bench",
    "Breakeven",
    "Calibrate",
    "Command",
    "Compare",
    "Evaluate",
    "Export",
    "Fit",
    "Generate",
    "Info",
    "Inspect",
    "List",
    "Pack",
    "Predict",
    "Race",
    "Report",
    "Reproduce",
    "Serve",
    "Train",
    "Verify",
]
