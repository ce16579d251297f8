"""Fingerprints: which trials share one, what they notice, and that today's code gives them."""

import math
from dataclasses import replace
from typing import Any

import pytest

from funcattn.data import Store
from funcattn.experiments import EXPERIMENTS
from funcattn.experiments.engine.fingerprints import (
    TOLERANCE,
    Fingerprint,
    by_key,
    computed,
    difference,
    fingerprint_key,
    fingerprint_of,
    stored,
)
from funcattn.experiments.engine.trial import Trial

ALL = by_key(trial for experiment in EXPERIMENTS.values() for trial in experiment.wanted())
FEW = ("darcy funcattn", "few_shot transolver", "rna funcattn")
"""A grid, observations as context, and scattered points with labels."""


def check(key: str, store: Store) -> None:
    numbers = computed(ALL[key], store)
    apart = difference(stored()[key].numbers, numbers)
    assert apart <= TOLERANCE, (stored()[key].numbers, numbers)


@pytest.mark.parametrize("key", FEW)
def test_the_code_gives_the_stored_numbers(key: str, store: Store) -> None:
    check(key, store)


@pytest.mark.full
@pytest.mark.parametrize("key", [key for key in ALL if key not in FEW])
def test_the_code_gives_all_stored_numbers(key: str, store: Store) -> None:
    check(key, store)


@pytest.mark.parametrize(
    "changes", [{"optimisation": {"rate": 1.1e-3}}, {"network": {"ridge": 0.51}}]
)
def test_a_small_change_of_the_method_is_noticed(changes: dict[str, Any], store: Store) -> None:
    other = replace(ALL["darcy funcattn"], changes=changes)
    numbers = computed(other, store)
    assert TOLERANCE < difference(stored()["darcy funcattn"].numbers, numbers) < 1


def test_sizes_share_a_fingerprint_and_methods_do_not() -> None:
    bases = Trial("darcy", changes={"network": {"bases": 16}})
    pinv = Trial("darcy", changes={"network": {"projection": "pinv"}})
    assert fingerprint_key(bases) == fingerprint_key(Trial("darcy")) == "darcy funcattn"
    assert fingerprint_key(pinv) == "darcy funcattn projection=pinv"
    assert by_key([bases])["darcy funcattn"].changes == {"network": {}}


def test_the_name_is_that_of_the_numbers() -> None:
    one, same, other = (Fingerprint({"train_loss": [x]}, ("old",)) for x in (0.5, 0.5, 0.25))
    assert one.name == same.name != other.name
    assert one.names == {one.name, "old"}


def test_numbers_that_are_not_finite_differ() -> None:
    assert difference({"a": [math.nan]}, {"a": [1.0]}) == math.inf
    assert difference({"a": [1.0]}, {"b": [1.0]}) == math.inf
    assert difference({"a": [0.0, math.nan]}, {"a": [0.0, math.nan]}) == 0.0


def test_a_trial_without_stored_numbers_is_refused() -> None:
    trial = Trial("darcy", changes={"network": {"basis": "fourier"}})
    with pytest.raises(ValueError, match=r"darcy funcattn basis=fourier: expected .* record them"):
        fingerprint_of(trial)
