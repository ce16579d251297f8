"""Typed settings: everything that decides the numbers of a run.

Tasks give the defaults, a TOML file and the command line change them, and a run keeps the result
beside what it made.
"""

import reprlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from funcattn.registry import unknown

Profile = Literal["paper", "cpu", "smoke"]
Preset = Literal["paper", "modern"]


_LARGEST = 2**20
"""No number of a network's settings is larger."""
DEEPEST = 256
"""Nor are there more layers, or repetitions within one."""


@dataclass(frozen=True)
class NetworkSettings:
    """The settings of a network; each kind of network has a class of its own, beside it.

    The classes that stand here are those which tasks speak of: the paper's own networks.
    """

    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {
        "layers": (1, DEEPEST),
        "mlp_ratio": (0, DEEPEST),
    }
    """Least and most of some settings, with those of the classes that this one is made from. Other
    whole numbers go from 1, other real ones from 0, to a million."""
    before: ClassVar[Mapping[str, Any]] = {}
    """Of settings that came later with another default: what runs had that do not name them."""

    def __post_init__(self) -> None:
        declared = [vars(kind).get("bounds", {}) for kind in reversed(type(self).__mro__)]
        bounds = {name: pair for each in declared for name, pair in each.items()}
        for f in fields(self):
            whole = int in (f.type, *get_args(f.type))
            least, most = bounds.get(f.name, (1 if whole else 0, _LARGEST))
            value = getattr(self, f.name)
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, bool) or not isinstance(number, int | float):
                    continue
                if not least <= number <= most:
                    raise ValueError(
                        f"{f.name}: expected a number from {least} to {most}, got {number}"
                    )


@dataclass(frozen=True)
class TransformerSettings(NetworkSettings):
    """What every transformer of blocks has, whatever its attention."""

    width: int = 128
    """Channels inside."""
    layers: int = 8
    mlp_ratio: float = 1.0
    """Hidden over outer width of the point-wise networks."""
    lattice: int | None = None
    """Positions as distances to a lattice of so many nodes per axis; None: coordinates."""
    dropout: float = 0.0
    checkpoint: bool = False
    """Blocks are computed again for the gradient instead of kept: less memory, one forward pass
    more."""

    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {"dropout": (0, 1)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width * self.mlp_ratio < 1:
            raise ValueError(
                f"mlp_ratio: expected at least one hidden channel, got {self.mlp_ratio}"
            )


@dataclass(frozen=True)
class AttentionSettings(TransformerSettings):
    """A transformer whose attention has heads."""

    heads: int = 8
    reach: float | tuple[float, ...] | None = None
    """Reach of the stencils as a fraction of the axis, one number or one per axis; None: point-wise
    features."""


@dataclass(frozen=True)
class SizedAttentionSettings(AttentionSettings):
    """A transformer whose attention has a size of its own."""

    bases: int = 64
    """Basis functions per head; what a method calls slices, latents, landmarks, random features or
    projections."""


@dataclass(frozen=True)
class FunctionalSettings(SizedAttentionSettings):
    """The transformer with functional attention."""

    share_basis: bool = False
    """All layers use the basis modules of the first."""
    basis: Literal["learned", "orthonormal", "fourier"] = "learned"
    """Learned, the same orthonormalised, or fixed waves, about as many as there are bases."""
    projection: Literal["average", "transpose", "pinv"] = "average"
    """How coefficients are made; other bases than the learned one have the inner product in the
    place of the average."""
    ridge: float = 0.5
    """Where the learned weight of the convex ridge starts."""


@dataclass(frozen=True)
class RegressorSettings(NetworkSettings):
    """A network that regresses a function from a few observations of it."""

    width: int = 128
    """Channels of the encoder."""
    layers: int = 4
    """Layers of the encoder."""


@dataclass(frozen=True)
class FunctionalRegressorSettings(RegressorSettings):
    """Ridge regression on averages of the observations: the paper's."""

    bases: int = 8
    """Averages."""
    ridge: float = 1e-4
    """Weight of the convex ridge."""


OLD_NETWORK_NAMES = frozenset(
    {
        "width",
        "layers",
        "heads",
        "bases",
        "mlp_ratio",
        "share_basis",
        "reach",
        "lattice",
        "modes",
        "basis",
        "projection",
        "ridge",
        "dropout",
        "checkpoint",
    }
)
"""Settings that every run kept, whatever its network, before networks had settings of their own."""


def without_idle(kind: type[NetworkSettings], saved: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a network as an old run kept them, without those that it has no use for.

    >>> without_idle(RegressorSettings, {"width": 16, "heads": 3, "modes": 12})
    {'width': 16}
    """
    idle = OLD_NETWORK_NAMES - {f.name for f in fields(kind)}
    return {name: value for name, value in saved.items() if name not in idle}


@dataclass(frozen=True)
class OptimisationSettings:
    """How the weights are moved; the defaults are those of the paper's PDE benchmarks."""

    optimiser: Literal["adam", "adamw", "muon", "muon_batched", "lion", "soap"] = "adamw"
    """muon: Muon for the matrices that the network declares, AdamW for the rest. muon_batched: the
    same in full precision, all matrices of one shape at once; mode-wise weights, kernels of
    convolutions and stencils included. lion, soap: for all of the network, with `rate`, of which
    Lion wants a third to a tenth of AdamW's."""
    epochs: int = 500
    batch: int = 4
    accumulate: int = 1
    """Batches whose gradients are added before a step."""
    rate: float = 1e-3
    """Peak learning rate of all but Muon."""
    muon_rate: float = 1e-2
    """Peak learning rate of Muon; chosen on validation data of two tasks (results/muon.json)."""
    weight_decay: float = 1e-5
    schedule: Literal["one_cycle", "cosine", "step", "constant"] = "one_cycle"
    warm_up: float = 0.3
    """Fraction of the steps in which a one-cycle schedule rises."""
    start_divisor: float = 25.0
    """A one-cycle schedule starts at the peak rate over this."""
    end_divisor: float = 1e4
    """A one-cycle schedule ends at its start over this."""
    step_epochs: int = 100
    """A step schedule halves the rate every so many epochs."""
    reduction: Literal["mean", "sum"] = "mean"
    """Of the losses of a batch; with sum, as in public scripts, clipping meets larger gradients."""
    clip: float | None = None
    """Largest norm of the gradient."""
    ema: float | None = None
    """Decay of a moving average of the weights, which is then what is evaluated and kept."""
    patience: int | None = None
    """Training ends after so many epochs without a better validation; None: after the last one."""

    def __post_init__(self) -> None:
        counts = ("epochs", "batch", "accumulate", "step_epochs", "patience")
        for name in (*counts, "rate", "muon_rate", "start_divisor", "end_divisor", "clip"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name}: expected a positive number, got {value}")
        if not 0 <= self.warm_up < 1:
            raise ValueError(f"warm_up: expected a fraction of the steps, got {self.warm_up}")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"ema: expected a decay between 0 and 1, got {self.ema}")


MUON_RECIPE: Mapping[str, Any] = {
    "optimiser": "muon_batched",
    "batch": 4,
    "rate": 2e-3,
    "muon_rate": 2e-2,
    "weight_decay": 0.0,
    "warm_up": 0.1,
    "clip": 1.0,
    "ema": 0.99,
}
"""Of short trainings on one core: what races give all networks, before the search of the rate."""


@dataclass(frozen=True)
class DataSettings:
    """Which samples; tasks add what their generation needs."""

    train: int = 1000
    validation: int = 100
    test: int = 200
    seed: int = 0
    """Of the data, not of the training."""
    path: str | None = None
    """Read the samples from here instead of making them."""

    old_names: ClassVar[Mapping[str, str]] = {}
    """Of settings that were renamed: the old name, and today's."""
    before: ClassVar[Mapping[str, Any]] = {}
    """Of settings that came later with another default: what runs had that do not name them."""

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            if not 0 <= getattr(self, name) < 2**31:
                raise ValueError(f"{name}: expected a number of samples, got {getattr(self, name)}")

    def from_old_names(self, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Changes of these settings that may use old names, by today's."""
        return {self.old_names.get(name, name): value for name, value in changes.items()}


@dataclass(frozen=True)
class RunSettings:
    """A whole run."""

    task: str
    model: str = "funcattn"
    seed: int = 0
    """Of the starting weights, the order of the samples, dropout and augmentation."""
    data: DataSettings = field(default_factory=DataSettings)
    network: NetworkSettings = field(default_factory=FunctionalSettings)
    optimisation: OptimisationSettings = field(default_factory=OptimisationSettings)
    precision: Literal["32-true", "64-true", "bf16-mixed"] = "32-true"
    checkpoint_seconds: float = 30.0
    """A checkpoint is written after each epoch, and within one as often as this."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed: expected a number from 0 to 2**63 - 1, got {self.seed}")


def changed(settings: Any, changes: Mapping[str, Any], where: str = "settings") -> Any:
    """The settings with some values replaced, nested as in TOML or JSON, names and types checked.

    Settings of data that were renamed are taken by their old names too.

    >>> changed(RunSettings(task="darcy"), {"seed": 3, "network": {"width": 64}}).network.width
    64
    """
    if not isinstance(changes, Mapping):
        raise ValueError(f"{where}: expected names with values, got {shown(changes)}")
    if isinstance(settings, DataSettings):
        changes = settings.from_old_names(changes)
    hints = get_type_hints(type(settings))
    known = [f.name for f in fields(settings)]
    values = {}
    for name, value in changes.items():
        if name not in known:
            raise ValueError(unknown(where, name, known))
        old = getattr(settings, name)
        if is_dataclass(old) and isinstance(value, Mapping):
            values[name] = changed(old, value, f"{where}.{name}")
        else:
            values[name] = _checked(value, hints[name], f"{where}.{name}")
    try:
        return replace(settings, **values)
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from error


_OVERFLOWS = 2.0**127
"""Larger numbers are not finite in single precision."""


def shown(value: object) -> str:
    """A value for a message: long and deep ones are cut.

    >>> shown([1, [2, [3, [4, [5, [6, [7]]]]]]])
    '[1, [2, [3, [4, [5, [...]]]]]]'
    """
    return reprlib.repr(value)


def _checked(value: Any, hint: Any, where: str) -> Any:
    """The value as the type hint has it: whole numbers as floats, lists as tuples."""
    for number in value if isinstance(value, list | tuple) else (value,):
        if isinstance(number, int | float) and not -_OVERFLOWS < number < _OVERFLOWS:
            raise ValueError(f"{where}: expected a finite number, got {shown(value)}")
    kinds = (hint,) if get_origin(hint) in (Literal, tuple) else get_args(hint) or (hint,)
    for kind in kinds:
        if get_origin(kind) is Literal and isinstance(value, Hashable) and value in get_args(kind):
            return value
        if kind is float and type(value) is int:
            return float(value)
        if get_origin(kind) is tuple and isinstance(value, list | tuple):
            each = get_args(kind)[0]
            if is_dataclass(each) and all(isinstance(v, each | Mapping) for v in value):
                return tuple(_made(v, each, f"{where}[{i}]") for i, v in enumerate(value))
            if all(type(v) is each or (each is float and type(v) is int) for v in value):
                return tuple(each(v) for v in value)
        if type(value) is kind:
            return value
    words = ", ".join(_words(kind) for kind in kinds)
    raise ValueError(f"{where}: expected {words}, got {shown(value)}")


def _made(value: Any, kind: Any, where: str) -> Any:
    """A dataclass from its values by name; those without a default have to be there."""
    if isinstance(value, kind):
        return value
    hints = get_type_hints(kind)
    for name in value:
        if name not in hints:
            raise ValueError(unknown(where, name, hints))
    try:
        return kind(
            **{name: _checked(v, hints[name], f"{where}.{name}") for name, v in value.items()}
        )
    except TypeError as error:
        raise ValueError(f"{where}: expected {kind.__name__}, got {value!r} ({error})") from error


def _words(kind: Any) -> str:
    """A type as a reader should see it."""
    if get_origin(kind) is Literal:
        return ", ".join(str(value) for value in get_args(kind))
    if get_origin(kind) is tuple:
        each = {float: "numbers", int: "whole numbers", str: "words"}
        return f"a list of {each.get(get_args(kind)[0], 'values')}"
    return str(kind.__name__)
