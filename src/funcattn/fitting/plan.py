"""What `funcattn fit` does, as a TOML file that a person can edit."""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from funcattn.data.cases import Cases, Report
from funcattn.files import write_text
from funcattn.settings import changed
from funcattn.tasks.subsets import Subset


@dataclass(frozen=True)
class FitPlan:
    """Where the cases are, what is learned from them, and how."""

    cases: str = ""
    """The folder, pattern or file with the cases."""
    outputs: tuple[str, ...] = ()
    """Fields to predict; a category is classified."""
    inputs: tuple[str, ...] | None = None
    """Fields, categories and parameters that are given, besides the geometry; not said: the
    parameters that differ between the cases."""
    parameters: str | None = None
    """A table (CSV, Parquet) with a row of numbers per case."""
    numbered: bool = False
    """Files that only differ in a number at the end are the times of one case."""
    out: str = ""
    """Folder of the run; not said: runs/ and the name of the cases."""
    budget: str = "5 min"
    """Time to fit, which decides the size of the network and the epochs."""
    model: str | None = None
    """The network; `funcattn list models` shows them."""
    epochs: int | None = None
    batch: int | None = None
    rate: float | None = None
    network: dict[str, Any] = field(default_factory=dict)
    """Settings of the network, such as width = 64."""
    validation: float = 0.15
    """Share of the cases (below 1) or their number, to choose the epoch by."""
    test: float = 0.15
    """Share of the cases (below 1) or their number, for the one test."""
    group_by: str = ""
    """Cases with one value of this parameter or column stay together."""
    part_by: str = ""
    """A column that says train, validation or test."""
    time: Literal["steady", "steps", "times"] | None = None
    """Series: the next frame from the last ones, or the field at any time."""
    history: int = 1
    """Frames from which the next one is predicted."""
    weights: bool | None = None
    """Whether sums over points use quadrature weights; not said: where all cases have some."""
    points: int | None = None
    """Points of a case that a step sees; not said: all, or a part of large meshes."""
    points_by: Subset = "random"
    """How they are drawn: random, or farthest from each other."""
    patience: int | None = None
    """Epochs without a better validation after which training ends."""
    warm_start: str | None = None
    """A run whose weights are the start."""
    ensemble: int = 1
    """Networks with seeds one after another, whose mean is the prediction."""
    calibration: float = 0.0
    """Share of the cases (below 1) or their number, put aside for bands around predictions."""
    bands: bool = False
    """Calibrate these bands after the fit."""
    yardsticks: bool = True
    seed: int = 0
    device: str = "auto"

    @property
    def folder(self) -> Path:
        """Where the run goes."""
        if self.out:
            return Path(self.out)
        name = Path(self.cases).stem.replace("*", "") or "fit"
        return Path("runs") / name


def read_plan(path: Path) -> FitPlan:
    """A plan from a TOML file; paths in it are relative to the file."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: expected a TOML file, got {error}") from error
    network = values.pop("network", {})
    plan: FitPlan = changed(FitPlan(), values, where=str(path))
    if not isinstance(network, dict):
        raise ValueError(f"{path}: expected settings of the network by name, got {network!r}")
    beside = {
        name: str(path.parent / value)
        for name in ("cases", "parameters", "warm_start", "out")
        if (value := getattr(plan, name))
    }
    made: FitPlan = changed(plan, beside)
    return _with(made, network=network)


def _with(plan: FitPlan, **changes: Any) -> FitPlan:
    return FitPlan(**{**{f.name: getattr(plan, f.name) for f in fields(plan)}, **changes})


def proposed(
    cases: Cases, report: Report, where: str, parameters: str | None, *, numbered: bool = False
) -> FitPlan:
    """What to learn, as far as the cases show it: parameters and categories in, fields out."""
    first = cases[0]
    kinds = {each.name: each for each in report.summaries}
    varying = [
        name
        for name in (*first.parameters, *first.categories)
        if name in kinds and kinds[name].deviation > 0 and kinds[name].cases == report.cases
    ]
    outputs = [
        name
        for name in first.fields
        if name in kinds and kinds[name].deviation > 0 and kinds[name].cases == report.cases
    ]
    return FitPlan(
        cases=where,
        outputs=tuple(outputs),
        inputs=tuple(varying),
        parameters=parameters,
        numbered=numbered,
    )


def write_plan(path: Path, plan: FitPlan, report: Report) -> None:
    """A TOML file with what is proposed, and what could be said besides."""
    names = {
        kind: [each.name for each in report.summaries if each.kind == kind]
        for kind in ("field", "category", "parameter")
    }
    lines = [
        f"# Edit this, then: funcattn fit {path}",
        "",
        f"cases = {_toml(plan.cases)}",
        *([f"parameters = {_toml(plan.parameters)}"] if plan.parameters else []),
        *(["numbered = true"] if plan.numbered else []),
        "",
        "# Fields to predict. Remove those that are given, and those that do not matter.",
        f"# There are: {_listed(names['field'])}; to classify: {_listed(names['category'])}.",
        f"outputs = {_toml(plan.outputs)}",
        "",
        "# What is given besides the geometry: fields, categories (types of points), parameters.",
        f"# There are parameters: {_listed(names['parameter'])}.",
        f"inputs = {_toml(plan.inputs or ())}",
        "",
        f"budget = {_toml(plan.budget)}",
        f"out = {_toml(str(plan.folder))}",
        f"validation = {plan.validation}",
        f"test = {plan.test}",
        f"seed = {plan.seed}",
        "",
        "# More that can be said:",
        '# group_by = "geometry"    # cases with one value of this column stay together',
        "# epochs = 100             # in place of what the budget gives",
        "# network = { width = 64, layers = 4 }",
    ]
    if report.times:
        lines.insert(-3, 'time = "steps"              # or "times": the field at any time')
    write_text(path, "\n".join(lines) + "\n")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _toml(value: Any) -> str:
    """Text and lists of texts; JSON's are TOML's."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
