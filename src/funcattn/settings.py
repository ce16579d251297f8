"""Typed settings: everything that decides the numbers of a run.

Tasks give the defaults, a TOML file and the command line change them, and a run keeps the result
beside what it made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

Profile = Literal["paper", "cpu", "smoke"]
Preset = Literal["paper", "modern"]


@dataclass(frozen=True)
class NetworkSettings:
    """The network; what a kind of network has no use for, it refuses."""

    width: int = 128
    """Channels inside."""
    layers: int = 8
    heads: int = 8
    bases: int = 64
    """Basis functions of a head."""
    mlp_ratio: float = 1.0
    """Hidden over outer width of the point-wise networks."""
    share_basis: bool = False
    """All layers use the basis modules of the first."""
    reach: float | tuple[float, ...] | None = None
    """Reach of the stencils as a fraction of the axis, one number or one an axis; None: point-wise
    features."""
    lattice: int | None = None
    """Positions as distances to a lattice of so many nodes an axis; None: coordinates."""
    modes: int = 12
    """Fourier modes an axis, of networks that have such."""
    basis: Literal["learned", "orthonormal", "fourier"] = "learned"
    """Of functional attention: learned, the same orthonormalised, or fixed waves, about as many as
    there are bases."""
    projection: Literal["average", "transpose", "pinv"] = "average"
    """How functional attention makes coefficients; other bases than the learned one have the inner
    product in the place of the average."""
    ridge: float = 0.5
    """Where the learned weight of the convex ridge starts."""
    dropout: float = 0.0
    checkpoint: bool = False
    """Blocks are computed again for the gradient instead of kept: less memory, one forward pass
    more."""


@dataclass(frozen=True)
class OptimisationSettings:
    """How the weights are moved; the defaults are those of the paper's PDE benchmarks."""

    optimiser: Literal["adam", "adamw", "muon"] = "adamw"
    """muon: Muon for the matrices of the blocks, AdamW for the rest."""
    epochs: int = 500
    batch: int = 4
    accumulate: int = 1
    """Batches whose gradients are added before a step."""
    rate: float = 1e-3
    """Peak learning rate of Adam and AdamW."""
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

    def __post_init__(self) -> None:
        counts = ("epochs", "batch", "accumulate", "step_epochs")
        for name in (*counts, "rate", "muon_rate", "start_divisor", "end_divisor", "clip"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name}: expected a positive number, got {value}")
        if not 0 <= self.warm_up < 1:
            raise ValueError(f"warm_up: expected a fraction of the steps, got {self.warm_up}")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"ema: expected a decay between 0 and 1, got {self.ema}")


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

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: expected a number of samples, got {getattr(self, name)}")


@dataclass(frozen=True)
class RunSettings:
    """A whole run."""

    task: str
    model: str = "funcattn"
    seed: int = 0
    """Of the starting weights, the order of the samples, dropout and augmentation."""
    data: DataSettings = field(default_factory=DataSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    optimisation: OptimisationSettings = field(default_factory=OptimisationSettings)
    precision: Literal["32-true", "64-true", "bf16-mixed"] = "32-true"
    checkpoint_seconds: float = 30.0
    """A checkpoint is written after each epoch, and within one as often as this."""


def changed(settings: Any, changes: Mapping[str, Any], where: str = "settings") -> Any:
    """The settings with some values replaced, nested as in TOML or JSON, names and types checked.

    >>> changed(RunSettings(task="darcy"), {"seed": 3, "network": {"width": 64}}).network.width
    64
    """
    if not isinstance(changes, Mapping):
        raise ValueError(f"{where}: expected names with values, got {changes!r}")
    hints = get_type_hints(type(settings))
    values = {}
    for name, value in changes.items():
        if name not in hints:
            raise ValueError(f"{where}: expected one of {', '.join(hints)}, got {name!r}")
        old = getattr(settings, name)
        if is_dataclass(old) and isinstance(value, Mapping):
            values[name] = changed(old, value, f"{where}.{name}")
            continue
        wanted = get_args(hints[name]) or (hints[name],)
        literal = get_origin(hints[name]) is Literal
        if isinstance(value, int) and not isinstance(value, bool) and float in wanted:
            value = float(value)
        if tuple[float, ...] in wanted and _are_numbers(value):
            values[name] = tuple(float(number) for number in value)
            continue
        if value not in wanted if literal else type(value) not in wanted:
            shown = ", ".join(_words(kind) for kind in wanted)
            raise ValueError(f"{where}.{name}: expected {shown}, got {value!r}")
        values[name] = value
    return replace(settings, **values)


def _are_numbers(value: object) -> bool:
    return isinstance(value, list | tuple) and all(type(v) in (int, float) for v in value)


def _words(kind: Any) -> str:
    """A type, or a value of a literal, as a reader should see it."""
    if kind == tuple[float, ...]:
        return "a list of numbers"
    return kind if isinstance(kind, str) else str(kind.__name__)
