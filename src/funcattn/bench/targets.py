"""What the layer, the network and one machine should reach, and what they did."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from funcattn.bench import alone
from funcattn.bench.alone import CASES, Alone
from funcattn.bench.candidates import (
    COMPILED,
    HALF,
    LAYERS,
    NEAREST,
    OURS,
    REFERENCE,
    STREAMED,
    Scope,
    Shape,
)
from funcattn.bench.found import Found, TextTable, bytes_per_point, of_peak, ratio, seconds
from funcattn.bench.measure import KINDS
from funcattn.bench.scale import FEATS

EIGHT, ONE = Shape(128, 64, 8), Shape(128, 64, 1)
POINTS = 2**14
"""At which layers are looked at closely, with both allocators."""
FORWARD, BACKWARD = KINDS["layer"]
STEP = KINDS["model"][1]
GROWING = (2**14, 2**16, 2**18, 2**20)
"""Sizes over which the time per point should not change; measured sizes between them count."""
FORMS = {OURS: "", "functional, stored": ", stored", STREAMED: ", streamed"}
"""Forms whose time per point should not change; by itself, the layer switches between them."""


@dataclass(frozen=True)
class Target:
    """A number to reach."""

    title: str
    wanted: float
    got: Callable[[Found], float | None]
    """None where it was not measured."""
    least: bool = True
    """Whether more is better."""
    unit: str = "x"

    def row(self, found: Found) -> list[str]:
        """Title, what is wanted, what came, and whether that is enough."""
        got = self.got(found)
        sign = "at least" if self.least else "at most"
        wanted = f"{sign} {_number(self.wanted, self.unit)}"
        if got is None:
            return [self.title, wanted, "-", "not measured"]
        enough = got >= self.wanted if self.least else got <= self.wanted
        return [self.title, wanted, _number(got, self.unit), "reached" if enough else "not reached"]


def table(found: Found) -> TextTable:
    """All targets."""
    return TextTable(["", "to reach", "measured", ""], [target.row(found) for target in TARGETS])


def _number(value: float, unit: str) -> str:
    if unit == "%":
        return f"{100 * value:.0f} %"
    return f"{value:.3g} {unit}".replace(" x", "x")


def _faster(shape: Shape, kind: str, allocator: str = "default") -> Callable[[Found], float | None]:
    def got(found: Found) -> float | None:
        record = found.case("layer", shape, POINTS, allocator)
        return ratio(seconds(record, REFERENCE, kind), seconds(record, OURS, kind))

    return got


def _fraction(kind: str) -> Callable[[Found], float | None]:
    return lambda found: of_peak(found.case("layer", EIGHT, POINTS), OURS, kind)


def _against_baselines(shape: Shape, kind: str) -> Callable[[Found], float | None]:
    def got(found: Found) -> float | None:
        record = found.case("layer", shape, POINTS)
        baselines = [seconds(record, name, kind) for name, c in LAYERS.items() if not c.functional]
        timed = [baseline for baseline in baselines if baseline is not None]
        # One that was left out could have been the fastest.
        return (
            ratio(min(timed), seconds(record, OURS, kind)) if len(timed) == len(baselines) else None
        )

    return got


def _memory(shape: Shape, kind: str) -> Callable[[Found], float | None]:
    def got(found: Found) -> float | None:
        return ratio(bytes_per_point(found.case("layer", shape, POINTS), STREAMED, kind), 1e3)

    return got


def _step(points: int, form: str) -> Callable[[Found], float | None]:
    def got(found: Found) -> float | None:
        record = found.case("model", EIGHT, points)
        return ratio(seconds(record, REFERENCE, STEP), seconds(record, form, STEP))

    return got


def _flat(kind: str, form: str) -> Callable[[Found], float | None]:
    def got(found: Found) -> float | None:
        took = {r["points"]: seconds(r, form, kind) for r in found.cases("layer", EIGHT)}
        times = {n: t / n for n, t in took.items() if t and GROWING[0] <= n <= GROWING[-1]}
        if not times.keys() >= set(GROWING):
            return None
        return max(times.values()) / min(times.values()) - 1

    return got


def _feat(name: str) -> Callable[[Found], float | None]:
    return lambda found: found.feats[name]["counted"] / 2**30 if name in found.feats else None


def _least(
    cases: Sequence[Alone], kind: str, than: str, who: str = OURS
) -> Callable[[Found], float | None]:
    def got(found: Found) -> float | None:
        factors = [alone.faster(found, case, kind, than, who) for case in cases]
        known = [factor for factor in factors if factor is not None]
        return min(known) if len(known) == len(cases) else None

    return got


def _cases(part: Scope, shape: Shape, batch: int = 1, *, at: int | None = None) -> list[Alone]:
    return [
        case
        for case in CASES
        if (case.part, case.shape, case.batch) == (part, shape, batch)
        and (at is None or case.points == at)
    ]


def _alone_targets() -> list[Target]:
    """With each candidate alone in its process."""
    on_clouds, one_head = _cases("layer", EIGHT), _cases("layer", ONE)
    groups = [
        ("8 heads, 512 points to a million", on_clouds, 1.0),
        ("8 heads, 8 times 972 points", _cases("layer", EIGHT, 8), 1.0),
        ("1 head, 2,048 points to a million", one_head, 2.0),
    ]
    targets = [
        Target(
            f"alone: {title}, {kind}: faster than LinearNO", wanted, _least(cases, kind, NEAREST)
        )
        for title, cases, wanted in groups
        for kind in KINDS["layer"]
    ]
    small, middle = _cases("model", EIGHT, 4), _cases("model", EIGHT)
    for title, cases, wanted in (("4 times 972", small, 1.3), ("7,225", middle, 1.4)):
        step = f"alone: training step, {title} points"
        targets += [
            Target(f"{step}: faster than the reference", wanted, _least(cases, STEP, REFERENCE)),
            Target(f"{step}: faster than LinearNO's", 1.0, _least(cases, STEP, NEAREST)),
        ]
    large = _cases("layer", EIGHT, at=POINTS)
    for what, cases, kind in (
        ("8 heads, 16,384 points, forward", large, FORWARD),
        ("8 heads, 16,384 points, forward + backward", large, BACKWARD),
        ("training step, 4 times 972 points", small, STEP),
    ):
        title = f"alone: {what}: bfloat16 faster than float32"
        targets.append(Target(title, 1.4, _least(cases, kind, OURS, HALF)))
    return targets


def _heads(shape: Shape) -> str:
    return "8 heads" if shape == EIGHT else "1 head"


def _layer_targets() -> list[Target]:
    targets = []
    for shape, faster, alike, memory in (
        (EIGHT, (2.0, 2.7), (1.3, 1.6), (0.7, 1.3)),
        (ONE, (3.0, 2.8), (2.0, 2.0), (0.7, 1.3)),
    ):
        for index, kind in enumerate(KINDS["layer"]):
            at = f"{_heads(shape)}, {kind}"
            targets += [
                Target(f"{at}: faster than the reference", faster[index], _faster(shape, kind)),
                Target(
                    f"{at}: the same, both with an allocator that keeps its pages",
                    alike[index],
                    _faster(shape, kind, "kept pages"),
                ),
                Target(
                    f"{at}: faster than the fastest baseline", 1.0, _against_baselines(shape, kind)
                ),
                Target(
                    f"{at}: peak memory, streamed",
                    memory[index],
                    _memory(shape, kind),
                    least=False,
                    unit="kB per point",
                ),
            ]
    return targets


TARGETS: Sequence[Target] = (
    *_alone_targets(),
    *_layer_targets(),
    *(
        Target(f"8 heads, {kind}: of the matrix-product peak", wanted, _fraction(kind), unit="%")
        for kind, wanted in ((FORWARD, 0.55), (BACKWARD, 0.58))
    ),
    *(
        Target(
            f"training step{words}, {points} points: faster than the reference",
            wanted,
            _step(points, form),
        )
        for points, wanted in ((7225, 1.3), (972, 1.2))
        for form, words in {OURS: "", COMPILED: ", compiled"}.items()
    ),
    *(
        Target(
            f"8 heads, {kind}{words}: spread of the time per point, 2^14 to 2^20 points",
            0.2,
            _flat(kind, form),
            least=False,
            unit="%",
        )
        for kind in KINDS["layer"]
        for form, words in FORMS.items()
    ),
    *(
        Target(feat.title, feat.limit / 2**30, _feat(name), least=False, unit="GiB")
        for name, feat in FEATS.items()
    ),
)
