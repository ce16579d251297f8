"""The networks by name: what each can take, and how it is built from its settings.

A network registers in its own file, with its settings beside it. That gives it the command line,
the comparison, the table of the documentation and the tests over all networks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from torch import nn

from funcattn.nn.attentions import ATTENTIONS
from funcattn.nn.linear import with_fast_products
from funcattn.problem import Problem
from funcattn.registry import Registry
from funcattn.settings import NetworkSettings, Profile

Changes = Mapping[str, Any]
"""Of a network's settings."""


@dataclass(frozen=True)
class Form:
    """A network for one kind of problem: its settings, and how it is built from them."""

    settings: type[NetworkSettings]
    build: Callable[[Any, Problem], nn.Module]


def from_settings(
    network: Callable[..., nn.Module], **decided: Callable[[Problem], Any]
) -> Callable[[NetworkSettings, Problem], nn.Module]:
    """How a network is built whose options have the names of its settings.

    decided: further options, and how the problem decides them.
    """

    def build(settings: NetworkSettings, problem: Problem) -> nn.Module:
        return network(
            problem.space,
            problem.input_channels,
            problem.output_channels,
            **vars(settings),
            **{name: of(problem) for name, of in decided.items()},
            time=problem.time,
        )

    return build


@dataclass(frozen=True)
class ModelEntry:
    """A network that can be built from settings."""

    title: str
    paper: str = ""
    """Authors, name of the method, venue, year."""
    when: str = ""
    """When to choose it, in a sentence."""
    fields: Form | None = None
    """For problems from fields to fields."""
    observations: Form | None = None
    """For the regression of a function from a few observations."""
    needs_grid: bool = False
    needs_size: bool = False
    """Whether all samples must have one number of points, known when it is built."""
    spaces: tuple[int, ...] | None = None
    """Dimensions of space that it is made for; None: any."""
    muon: bool = False
    """Whether it declares matrices for Muon (`matrices_for_muon`)."""
    cost: Literal["n", "n log n", "n²"] = "n"
    """How its time grows with the number n of points."""
    published: Changes = field(default_factory=dict)
    """Settings of its own paper or public code, where they are not those of the task."""
    of_task: Mapping[str, Changes] = field(default_factory=dict)
    """Those that its paper has for some tasks, by their names."""
    small: Changes = field(default_factory=dict)
    """Settings on two cores."""
    tiny: Changes = field(default_factory=dict)
    """Settings in tests."""
    recipe: Changes = field(default_factory=dict)
    """Of the optimisation, in place of the modern preset's."""

    @property
    def takes(self) -> str:
        """What data it can take, in words."""
        if self.fields is None:
            return "observations"
        words = "grids" if self.needs_grid else "points, grids"
        if self.needs_size:
            words += ", all of one size"
        if self.spaces:
            words += f", in {' or '.join(map(str, self.spaces))} dimensions"
        return words + (", observations" if self.observations else "")

    def settings(
        self, problem: Problem, given: NetworkSettings, *, task: str = "", profile: Profile
    ) -> NetworkSettings:
        """The network's settings for a task, from those that the task has for its own network.

        What decides the size of an attention is the same for all of them. Networks of other kinds
        come with settings of their own.
        """
        kind = self.form(problem).settings
        shared = {f.name: getattr(given, f.name) for f in fields(kind) if hasattr(given, f.name)}
        own = {
            "paper": self.of_task.get(task, {}),
            "cpu": self.small,
            "smoke": self.tiny,
        }[profile]
        return kind(**{**shared, **self.published, **own})

    def form(self, problem: Problem) -> Form:
        """How it is built for a problem.

        Raises:
            ValueError: it cannot take the problem.
        """
        form = self.observations if problem.context else self.fields
        if form is None:
            raise ValueError(f"it does not take {'observations' if problem.context else 'fields'}")
        return form

    def refusal(self, problem: Problem) -> str | None:
        """Why it cannot take a problem, None if it can."""
        try:
            self.form(problem)
        except ValueError as error:
            return str(error)
        if self.needs_grid and not problem.grid:
            return "it needs points on a grid"
        if self.spaces and problem.space not in self.spaces:
            numbers = " or ".join(map(str, self.spaces))
            return f"it needs a space of {numbers} dimensions, and this one has {problem.space}"
        if self.needs_size and problem.points is None:
            return "it needs the same number of points in all samples, in training and test"
        return None


MODELS: Registry[ModelEntry] = Registry(
    "model",
    {
        **dict.fromkeys(("funcattn", "no_attention", *ATTENTIONS), "funcattn.models.transformers"),
        "coefficient_attention": "funcattn.models.transformers",
        "functional_operator": "funcattn.models.functional_operator",
        "fno": "funcattn.models.fno",
        "tfno": "funcattn.models.neuralop",
        "uno": "funcattn.models.neuralop",
        "f_fno": "funcattn.models.f_fno",
        "u_fno": "funcattn.models.u_fno",
        "unet": "funcattn.models.unet",
        "cno": "funcattn.models.cno",
        "lsm": "funcattn.models.lsm",
        "mwt": "funcattn.models.mwt",
        "wno": "funcattn.models.wno",
        "factformer": "funcattn.models.factformer",
        "ht_net": "funcattn.models.ht_net",
        "geo_fno": "funcattn.models.geo_fno",
        "gino": "funcattn.models.gino",
        "gaot": "funcattn.models.gaot",
        "lno": "funcattn.models.lno",
        "gnot": "funcattn.models.gnot",
        "oformer": "funcattn.models.oformer",
        "ono": "funcattn.models.ono",
        "deeponet": "funcattn.models.deeponet",
        "pod_deeponet": "funcattn.models.pod_deeponet",
        "pointnet": "funcattn.models.pointnet",
        "pointnet2": "funcattn.models.pointnet2",
        "pcnn": "funcattn.models.pcnn",
        "sphnet": "funcattn.models.sphnet",
        "diffusion_net": "funcattn.models.diffusion_net",
        "graphsage": "funcattn.models.graphs",
        "graph_unet": "funcattn.models.graph_unet",
        "meshgraphnet": "funcattn.models.graphs",
        "gno": "funcattn.models.graphs",
        "mlp": "funcattn.models.mlp",
    },
    group="funcattn.models",
)


def build_model(name: str, settings: NetworkSettings, problem: Problem) -> nn.Module:
    """The network of that name for a problem.

    Raises:
        ValueError: there is none, it cannot take the problem, or the settings are those of another.
    """
    entry = MODELS.named(name)
    if (why := entry.refusal(problem)) is not None:
        able = [other for other, e in MODELS.items() if e.refusal(problem) is None]
        raise ValueError(
            f"model: expected one that takes this task, which {', '.join(able)} do, got {name!r}: "
            f"{why}"
        )
    form = entry.form(problem)
    if type(settings) is not form.settings:
        raise ValueError(
            f"network: expected {form.settings.__name__} for {name!r}, got "
            f"{type(settings).__name__}; take them from the network's entry in MODELS"
        )
    return with_fast_products(form.build(settings, problem))
