"""Which cases train, which choose the epoch, and which are kept for the one test.

The parts are a function of the cases' names and a seed: the order in which cases are listed does
not matter, and a case that is added later leaves most of the others where they were.
"""

import hashlib
import json
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal, get_args

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = get_args(Part)
CALIBRATION = "calibration"
"""Cases put aside for the bands of predictions: a part beside the others, often without cases."""


def split_cases(
    names: Sequence[str],
    *,
    validation: float | int = 0.15,
    test: float | int = 0.15,
    calibration: float | int = 0,
    seed: int = 0,
    groups: Sequence[Hashable] | None = None,
    parts: Sequence[str] | None = None,
) -> dict[str, list[int]]:
    """The places of the cases of each part, in the order of the names given.

    names: of the cases, each once.
    validation, test: fractions of all cases if below 1, else numbers of cases; all others train.
    calibration: the same for cases put aside; 0: none. The test and validation stay what they are
        without them.
    groups: one key per case; cases of one group (one geometry, say) go to the same part, so that
        parts become somewhat larger or smaller than asked for.
    parts: one of "train", "validation", "test", "calibration" per case, in place of drawing them.

    >>> split_cases([f"case{i}" for i in range(10)], validation=0.2, test=1)["test"]
    [3]
    """
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if list(names).count(name) > 1})
        raise ValueError(f"names: expected each case once, got {', '.join(twice[:3])} again")
    if parts is not None:
        return _as_told(names, parts)
    for name, size in (("validation", validation), ("test", test)):
        if not size > 0:
            raise ValueError(
                f"{name}: expected a fraction of the cases or a number of them above 0, got {size}"
            )
    keys = list(names) if groups is None else [_text(key) for key in groups]
    if len(keys) != len(names):
        raise ValueError(
            f"groups: expected one key for each of {len(names)} cases, got {len(keys)}"
        )
    members: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        members.setdefault(key, []).append(place)
    order = sorted(members, key=lambda key: _shuffled(seed, key))
    sizes: dict[str, float | int] = {"test": test, "validation": validation}
    if calibration:
        sizes[CALIBRATION] = calibration
    found: dict[str, list[int]] = {part: [] for part in sizes}
    for part, size in sizes.items():
        wanted = max(round(size * len(names)), 1) if size < 1 else round(size)
        while order and len(found[part]) < wanted:
            found[part] += members[order.pop(0)]
    rest = [place for key in order for place in members[key]]
    if not rest:
        what = "cases" if groups is None else f"cases in {len(members)} groups"
        raise ValueError(
            f"split: expected cases left for training after {validation:g} for validation and "
            f"{test:g} for the test{_and(calibration)}, got none of {len(names)} {what}; ask for "
            "fewer, or add cases"
        )
    return {"train": sorted(rest), **{part: sorted(places) for part, places in found.items()}}


def _and(calibration: float | int) -> str:
    return f" and {calibration:g} for calibration" if calibration else ""


def _as_told(names: Sequence[str], parts: Sequence[str]) -> dict[str, list[int]]:
    if len(parts) != len(names):
        raise ValueError(f"parts: expected one for each of {len(names)} cases, got {len(parts)}")
    found: Mapping[str, list[int]] = {part: [] for part in (*PARTS, CALIBRATION)}
    for place, part in enumerate(parts):
        if part not in found:
            raise ValueError(
                f"case {names[place]}: expected its part to be one of {', '.join(found)}, got "
                f"{part!r}"
            )
        found[part].append(place)
    if empty := [part for part in PARTS if not found[part]]:
        raise ValueError(f"parts: expected cases in each of them, got none in {', '.join(empty)}")
    return {part: places for part, places in found.items() if places}


def _text(key: Hashable) -> str:
    return key if isinstance(key, str) else repr(key)


def _shuffled(seed: int, key: str) -> bytes:
    """A place in a random order that depends on the seed and the key alone."""
    return hashlib.sha256(json.dumps([seed, key]).encode()).digest()
