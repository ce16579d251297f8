"""`funcattn inspect`."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from funcattn.cli import commands
from funcattn.cli.terminal import progress, refuse
from funcattn.data.cases import look, open_folder
from funcattn.fitting.pictures import draw_cases
from funcattn.fitting.plan import proposed, write_plan


@dataclass(frozen=True)
class Inspect(commands.Inspect):
    """`funcattn inspect`."""

    def run(self, rest: list[str], console: Console) -> None:
        """Read everything once, print, draw, and write the plan."""
        refuse(rest)
        cases = open_folder(self.cases, parameters=self.parameters, numbered=self.numbered)
        with progress(console) as bars:
            bar = bars.add_task("reading", total=len(cases))
            report = look(
                cases, progress=lambda done, total: bars.update(bar, completed=done, total=total)
            )
        console.print(str(report), markup=False, highlight=False, soft_wrap=True)
        if not report.readable:
            return
        name = Path(self.cases).stem.replace("*", "") or "cases"
        plan = self.plan or Path(f"{name}.toml")
        picture = self.picture or plan.with_suffix(".png")
        draw_cases(picture, cases)
        console.print(f"picture: {picture}", markup=False, soft_wrap=True)
        if plan.exists():
            console.print(f"{plan} is there already and stays as it is", markup=False)
            return
        parameters = None if self.parameters is None else str(self.parameters)
        found = proposed(cases, report, str(self.cases), parameters, numbered=self.numbered)
        write_plan(plan, found, report)
        console.print(
            f"plan: {plan}; edit it, then: funcattn fit {plan}", markup=False, soft_wrap=True
        )
