"""`funcattn fit`."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rich.console import Console

from funcattn.cli import commands
from funcattn.cli.terminal import command_line, print_table, progress, refuse
from funcattn.data.cases import look, open_folder
from funcattn.fitting.plan import FitPlan, read_plan
from funcattn.serve.bands import TooFewSamplesError, least_samples
from funcattn.surrogate import DEFAULT_MODEL, Surrogate
from funcattn.training.loop import State

BANDS_SHARE = 0.15
"""Of the cases, put aside to calibrate bands."""
COVERAGE = 0.9
"""Of these bands."""


@dataclass(frozen=True)
class Fit(commands.Fit):
    """`funcattn fit`."""

    def run(self, rest: list[str], console: Console) -> None:
        """Look at the cases, train with progress, compare, report."""
        refuse(rest)
        plan = self._plan()
        cases = open_folder(
            plan.cases,
            outputs=plan.outputs,
            inputs=plan.inputs or (),
            parameters=plan.parameters,
            numbered=plan.numbered,
        )
        report = look(cases)
        for line in report.told:
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        if report.errors:
            raise ValueError(
                f"{plan.cases}: expected cases without errors, got {len(report.errors)}, see above"
            )
        surrogate = Surrogate(
            model=plan.model or DEFAULT_MODEL,
            budget=plan.budget,
            epochs=plan.epochs,
            batch=plan.batch,
            rate=plan.rate,
            network=plan.network or None,
            validation=plan.validation,
            test=plan.test,
            group_by=plan.group_by,
            part_by=plan.part_by,
            time=plan.time,
            history=plan.history,
            weights=plan.weights,
            points=plan.points,
            points_by=plan.points_by,
            patience=plan.patience,
            warm_start=plan.warm_start,
            ensemble=plan.ensemble,
            calibration=_put_aside(plan, len(cases)) if plan.bands else plan.calibration,
            yardsticks=plan.yardsticks,
            seed=plan.seed,
            folder=plan.folder,
            device=plan.device,
        )
        with progress(console) as bars:
            bar = bars.add_task("measuring a step", total=None)

            def on_step(state: State, per_epoch: int) -> None:
                epochs = surrogate.planned_epochs
                text = f"epoch {min(state.epoch + 1, epochs)} of {epochs}"
                if state.best_value is not None:
                    text += f", best validation {state.best_value:.4g} (epoch {state.best_epoch})"
                done = state.epoch * per_epoch + state.step
                bars.update(bar, completed=done, total=epochs * per_epoch, description=text)

            surrogate.fit(
                cases,
                plan.outputs,
                inputs=plan.inputs,
                parameters=plan.parameters,
                numbered=plan.numbered,
                source=plan.cases,
                on_step=on_step,
                command=command_line(),
            )
        if plan.bands:
            try:
                told = surrogate.calibrate(COVERAGE, command=command_line()).in_words()
            except TooFewSamplesError as error:  # groups of cases go to one part together
                told = f"no bands: {error}"
            console.print(told, markup=False, highlight=False, soft_wrap=True)
        if self.learning_curve:
            with console.status("with fewer cases"):
                surrogate.learning_curve()
        _print(surrogate, console)
        console.print(f"report: {surrogate.report()}", markup=False, soft_wrap=True)

    def _plan(self) -> FitPlan:
        """The plan of the file, if there is one, with the options over it."""
        path = Path(self.cases)
        plan = read_plan(path) if path.suffix == ".toml" else FitPlan(cases=self.cases)
        values: dict[str, Any] = {f.name: getattr(plan, f.name) for f in fields(plan)}
        for name in values:
            given = getattr(self, name, None)
            said = given is not None and given is not False and given != ()
            if said and name != "cases":
                values[name] = str(given) if isinstance(given, Path) else given
        plan = FitPlan(**values)
        if not plan.outputs:
            raise ValueError(
                "--outputs: expected the names of the fields to predict, got none; "
                f"`funcattn inspect {self.cases}` shows them"
            )
        return plan


def _put_aside(plan: FitPlan, cases: int) -> float:
    """How many cases are for bands: as the plan says, or 15 %, and as many as the coverage needs.

    Raises:
        TooFewSamplesError: there are not enough; said now, not after the training.
    """
    least = least_samples(COVERAGE)
    asked = plan.calibration or max(BANDS_SHARE, least / cases)
    count = round(asked * cases) if asked < 1 else asked
    if plan.part_by or (count >= least and 3 * count <= cases):
        return asked
    raise TooFewSamplesError(
        f"bands: expected at least {least} cases to put aside, a third of all at most, for a "
        f"coverage of {100 * COVERAGE:g} %, got {count:g} of {cases}; give more cases, or fit "
        "without bands and then: funcattn calibrate RUN --cases NEW"
    )


def _print(surrogate: Surrogate, console: Console) -> None:
    """The error beside the yardsticks', per field in its unit."""
    names = [each.name for each in surrogate.data.outputs if not surrogate.data.classes]
    units = {each.name: f" [{each.unit}]" if each.unit else "" for each in surrogate.data.outputs}
    found = {"this surrogate": surrogate.tested, **surrogate.comparison}
    rows = [
        [label, f"{100 * numbers['error']:.3g} %", *(f"{numbers[name]:.4g}" for name in names)]
        for label, numbers in sorted(found.items(), key=lambda item: item[1]["error"])
    ]
    headers = ["prediction of the test cases", "error", *(f"{n}{units[n]}" for n in names)]
    print_table(console, headers, rows)
    for line in surrogate.remarks():
        console.print(line, markup=False, highlight=False, soft_wrap=True)
