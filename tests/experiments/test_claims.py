"""Verdicts are computed from numbers."""

from typing import Any

import pytest

from funcattn.experiments import EXPERIMENTS
from funcattn.experiments.engine.claims import Below, Falls, First, Near

PDE, BASES, RIDGE = EXPERIMENTS["pde"], EXPERIMENTS["bases"], EXPERIMENTS["ridge"]
FIRST = First("first", "funcattn", "darcy")


def seeds(error: float) -> list[float]:
    """Three of them, one percent apart."""
    return [0.99 * error, error, 1.01 * error]


def test_first_holds_with_its_margin(made: Any) -> None:
    outcome = made.with_errors(
        PDE,
        {
            ("funcattn", "darcy"): seeds(0.022),
            ("transolver", "darcy"): seeds(0.04),
            ("lno", "darcy"): seeds(0.025),
        },
    )
    assert str(FIRST.verdict(outcome)) == (
        "first: holds; the error of LNO is 1.14 times that of Functional attention; "
        "2 of 23 other methods have a run (tier cpu, 3 seeds)"
    )


def test_first_is_against_methods_that_the_paper_has_not_too(made: Any) -> None:
    errors = {"funcattn": 0.03, "transolver": 0.04, "flare": 0.02, "linear_no": 0.05}
    outcome = made.with_errors(PDE, {(row, "darcy"): seeds(error) for row, error in errors.items()})
    assert str(FIRST.verdict(outcome)) == (
        "first: does not hold; the error of Functional attention is 1.5 times that of FLARE (not "
        "in the paper); among the methods of the paper, the error of Transolver is 1.33 times that "
        "of Functional attention; 3 of 23 other methods have a run (tier cpu, 3 seeds)"
    )


def test_first_is_undecided_within_the_spread_of_the_seeds(made: Any) -> None:
    outcome = made.with_errors(
        PDE,
        {("funcattn", "darcy"): [0.03, 0.034], ("transolver", "darcy"): [0.031, 0.031, 0.031]},
    )
    said = str(FIRST.verdict(outcome))
    assert said.startswith(
        "first: undecided; the error of Functional attention is 1.03 times that of Transolver; "
    )
    assert "(tier cpu, 2 seeds: p = 0." in said


def test_one_seed_of_each_decides_nothing(made: Any) -> None:
    errors = {("funcattn", "darcy"): [0.03], ("transolver", "darcy"): [0.09]}
    said = str(FIRST.verdict(made.with_errors(PDE, errors)))
    assert said.startswith("first: undecided; ")
    assert said.endswith("(tier cpu, 1 seed: one seed each)")


def test_one_seed_is_taken_to_vary_as_its_rivals_do(made: Any) -> None:
    errors = {("funcattn", "darcy"): seeds(0.03), ("transolver", "darcy"): [0.04]}
    assert FIRST.verdict(made.with_errors(PDE, errors)).holds == "holds"


def test_first_is_not_yet_decided(made: Any) -> None:
    outcome = made.with_errors(PDE, {("transolver", "darcy"): [0.03]})
    assert str(FIRST.verdict(outcome)) == "first: not yet"


def test_alone_is_not_first(made: Any) -> None:
    outcome = made.with_errors(PDE, {("funcattn", "darcy"): [0.03]})
    assert str(FIRST.verdict(outcome)) == "first: not yet; no other method has a run"


def test_larger_may_be_better(made: Any) -> None:
    rna = EXPERIMENTS["rna"]
    for model, values in (("funcattn", seeds(0.6)), ("transolver", seeds(0.5))):
        for seed, value in enumerate(values):
            made.add(rna.trials[model, "accuracy"], {"test": {"accuracy": value}}, seed=seed)
    verdict = rna.claims[0].verdict(made.outcome(rna))
    assert verdict.holds == "holds"
    assert verdict.details == (
        "the accuracy of Functional attention is 1.2 times that of Transolver; "
        "1 of 6 other methods have a run (tier cpu, 3 seeds)"
    )


def test_a_method_that_is_not_here_is_named(made: Any) -> None:
    notch = EXPERIMENTS["darcy_notch"]
    verdict = First("w", "dgfno", "error").verdict(made.outcome(notch))
    assert str(verdict) == "w: not yet; dgFNO+: it is FNO here"


def test_results_of_older_code_are_marked(made: Any) -> None:
    made.add(PDE.trials["funcattn", "darcy"], {"test": {"relative_l2": 0.1}}, code="old")
    outcome = made.with_errors(PDE, {("fno", "darcy"): seeds(0.2)})
    assert str(FIRST.verdict(outcome)).endswith("(tier cpu, 1 seed, by older code)")


@pytest.mark.parametrize(("factor", "holds"), [(1.9, "holds"), (2.1, "does not hold")])
def test_below_by_a_factor_in_some_column(made: Any, factor: float, holds: str) -> None:
    outcome = made.with_errors(
        PDE,
        {
            ("funcattn", "darcy"): seeds(0.1),
            ("fno", "darcy"): seeds(0.2),
            ("funcattn", "pipe"): seeds(0.1),
            ("fno", "pipe"): seeds(0.1),
        },
    )
    claim = Below("b", "funcattn", "fno", ("pipe", "darcy", "airfoil"), factor)
    verdict = claim.verdict(outcome)
    assert verdict.holds == holds
    assert "the error of FNO is 2 times that of Functional attention" in verdict.details


def test_below_across_columns(made: Any) -> None:
    outcome = made.with_errors(
        PDE, {("funcattn", "darcy"): seeds(0.1), ("fno", "pipe"): seeds(0.3)}
    )
    claim = Below("b", "funcattn", "fno", ("darcy",), than_columns=("pipe",))
    assert claim.verdict(outcome).holds == "holds"
    assert Below("b", "funcattn", "fno", ("pipe",)).verdict(outcome).holds == "not yet"


def test_near_the_best(made: Any) -> None:
    outcome = made.with_errors(
        BASES,
        {
            ("64", "elasticity"): [0.104, 0.104, 0.1041],
            ("128", "elasticity"): [0.1, 0.1, 0.1001],
            ("16", "elasticity"): [0.2, 0.2, 0.2001],
        },
    )
    near = Near("n", "elasticity", 0.05, "64").verdict(outcome)
    assert near.holds == "holds"
    assert near.details == (
        "the error of 64 functions is 1.04 times that of 128 functions, the best; "
        "3 of 6 settings have a run (tier cpu, 3 seeds)"
    )
    assert Near("n", "elasticity", 0.03, "64").verdict(outcome).holds == "does not hold"
    assert Near("n", "elasticity", 0.5).verdict(outcome).holds == "does not hold"
    assert Near("n", "elasticity", 1.01).verdict(outcome).holds == "holds"
    assert Near("n", "darcy", 0.5).verdict(outcome).holds == "not yet"


@pytest.mark.parametrize(("last", "holds"), [(5.0, "holds"), (50.0, "does not hold")])
def test_falls(made: Any, last: float, holds: str) -> None:
    for start, value in (("0", 30.0), ("3", 20.0), ("6", last)):
        trial = RIDGE.trials[start, "condition"]
        assert (
            Falls("f", "condition", ("0", "3", "6")).verdict(made.outcome(RIDGE)).holds == "not yet"
        )
        for seed, each in enumerate(seeds(value)):
            made.add(trial, {"measured": {"condition": each}}, seed=seed)
    verdict = Falls("f", "condition", ("0", "3", "6")).verdict(made.outcome(RIDGE))
    assert verdict.holds == holds
    assert f"30 at alpha = 0, 20 at alpha = 3, {last:g} at alpha = 6" in verdict.details
