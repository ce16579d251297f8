import math
from dataclasses import replace

import pytest
import torch

from funcattn.models import build_model
from funcattn.problem import Field, Problem
from funcattn.settings import FunctionalSettings, OptimisationSettings
from funcattn.training.optimisation import build_optimisers, build_schedule

RATE = 0.01
STEPS, EPOCHS = 4, 5
TOTAL = STEPS * EPOCHS


def network(share_basis: bool = False, reach: float | None = 1 / 8) -> torch.nn.Module:
    settings = FunctionalSettings(
        width=8, layers=3, heads=2, bases=3, reach=reach, share_basis=share_basis
    )
    return build_model("funcattn", settings, Problem(2, (Field("a"),), (Field("u"),)))


def rates(settings: OptimisationSettings) -> tuple[list[float], list[tuple[float, float]]]:
    """The learning rate and the betas of each step."""
    (optimiser,) = build_optimisers(network(), settings)
    schedule = build_schedule(optimiser, settings, STEPS)
    group = optimiser.param_groups[0]
    seen = []
    for _ in range(settings.epochs * STEPS):
        seen.append((group["lr"], group["betas"]))
        optimiser.step()
        schedule.step()
    return [rate for rate, _ in seen], [betas for _, betas in seen]


def cosine(start: float, end: float, part: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * part))


@pytest.mark.parametrize("warm_up", [0.0, 0.3, 0.5])
def test_one_cycle_rises_and_falls_by_cosines_and_betas_mirror_it(warm_up: float) -> None:
    how = OptimisationSettings(rate=RATE, epochs=EPOCHS, warm_up=warm_up)
    got, betas = rates(how)
    peak = warm_up * TOTAL - 1  # the step of the highest rate
    start, end = RATE / how.start_divisor, RATE / how.start_divisor / how.end_divisor
    for step in range(TOTAL):
        if step <= peak:
            part = step / peak
            rate, beta = cosine(start, RATE, part), cosine(0.95, 0.85, part)
        else:
            part = (step - peak) / (TOTAL - 1 - peak)
            rate, beta = cosine(RATE, end, part), cosine(0.85, 0.95, part)
        assert got[step] == pytest.approx(rate, rel=1e-9, abs=1e-15)
        assert betas[step] == (pytest.approx(beta), 0.999)
    assert got[-1] == pytest.approx(end, rel=1e-6)


@pytest.mark.parametrize(
    ("schedule", "closed"),
    [
        ("cosine", lambda step: RATE / 2 * (1 + math.cos(math.pi * step / TOTAL))),
        ("step", lambda step: RATE * 0.5 ** (step // (2 * STEPS))),
        ("constant", lambda step: RATE),  # noqa: ARG005
    ],
)
def test_the_other_schedules_follow_their_closed_forms(schedule, closed) -> None:
    how = OptimisationSettings(rate=RATE, epochs=EPOCHS, schedule=schedule, step_epochs=2)
    got, betas = rates(how)
    assert got == pytest.approx([closed(step) for step in range(TOTAL)], rel=1e-9)
    assert set(betas) == {(0.9, 0.999)}


def test_muon_follows_the_same_cycle_from_its_own_rate_and_keeps_its_momentum() -> None:
    how = OptimisationSettings(optimiser="muon", rate=RATE, muon_rate=0.5, epochs=EPOCHS)
    optimisers = build_optimisers(network(), how)
    schedules = [build_schedule(o, how, STEPS) for o in optimisers]
    for _ in range(TOTAL):
        muon, adamw = (o.param_groups[0] for o in optimisers)
        assert muon["lr"] / adamw["lr"] == pytest.approx(0.5 / RATE)
        assert muon["momentum"] == 0.95
        for optimiser, schedule in zip(optimisers, schedules, strict=True):
            optimiser.step()
            schedule.step()


@pytest.mark.parametrize(("epochs", "warm_up"), [(1, 0.25), (5, 0.05), (1, 0.0), (1, 0.9)])
def test_a_cycle_of_few_steps_has_only_finite_rates(epochs: int, warm_up: float) -> None:
    # A rise of exactly one step (1 * 4 * 0.25 and 5 * 4 * 0.05) makes PyTorch divide by zero.
    got, _ = rates(OptimisationSettings(rate=RATE, epochs=epochs, warm_up=warm_up))
    assert all(0 < rate <= RATE for rate in got)


@pytest.mark.parametrize("share_basis", [False, True])
def test_muon_gets_the_matrices_of_the_blocks_and_adamw_the_rest(share_basis: bool) -> None:
    model = network(share_basis)
    muon, adamw = build_optimisers(model, OptimisationSettings(optimiser="muon"))
    assert isinstance(muon, torch.optim.Muon)
    assert isinstance(adamw, torch.optim.AdamW)
    taken = [[id(p) for group in o.param_groups for p in group["params"]] for o in (muon, adamw)]
    matrices = {
        id(p) for name, p in model.named_parameters() if name.startswith("blocks.") and p.ndim == 2
    }
    assert set(taken[0]) == matrices
    assert set(taken[1]) == {id(p) for p in model.parameters()} - matrices
    # Each once, also what layers share.
    assert len(taken[0] + taken[1]) == len(set(taken[0] + taken[1])) == len([*model.parameters()])
    assert {name.split(".")[0] for name, p in model.named_parameters() if p.ndim == 2} > {"blocks"}


def test_sharing_the_basis_leaves_fewer_parameters_to_move() -> None:
    how = OptimisationSettings(optimiser="muon")
    counts = [
        sum(
            len(group["params"])
            for o in build_optimisers(network(s), how)
            for group in o.param_groups
        )
        for s in (False, True)
    ]
    assert counts[1] < counts[0]


def test_frozen_parameters_are_left_alone() -> None:
    model = network()
    frozen = {id(p) for p in model.parameters() if p.ndim == 2}
    for parameter in model.parameters():
        parameter.requires_grad = id(parameter) not in frozen
    (optimiser,) = build_optimisers(model, OptimisationSettings())
    assert not frozen & {id(p) for group in optimiser.param_groups for p in group["params"]}
    with pytest.raises(ValueError, match="'muon' expects a network that declares matrices for it"):
        build_optimisers(model, OptimisationSettings(optimiser="muon"))


@pytest.mark.parametrize(("name", "decoupled"), [("adam", False), ("adamw", True)])
def test_adam_and_adamw_get_rate_and_decay(name, decoupled: bool) -> None:
    how = replace(OptimisationSettings(), optimiser=name, rate=RATE, weight_decay=0.3)
    (optimiser,) = build_optimisers(network(), how)
    group = optimiser.param_groups[0]
    assert (group["lr"], group["weight_decay"]) == (RATE, 0.3)
    assert group["decoupled_weight_decay"] is decoupled


def test_batched_muon_has_the_same_shares_of_the_parameters_as_muon() -> None:
    model = network(reach=None)
    one, other = (
        build_optimisers(model, OptimisationSettings(optimiser=name))
        for name in ("muon", "muon_batched")
    )
    for ours, theirs in zip(one, other, strict=True):
        taken = [{id(p) for p in o.param_groups[0]["params"]} for o in (ours, theirs)]
        assert taken[0] == taken[1]


def test_batched_muon_also_moves_the_stencils() -> None:
    model = network()
    taken = [
        {
            id(p)
            for p in build_optimisers(model, OptimisationSettings(optimiser=name))[0].param_groups[
                0
            ]["params"]
        }
        for name in ("muon", "muon_batched")
    ]
    names = {name for name, p in model.named_parameters() if id(p) in taken[1] - taken[0]}
    assert names == {
        f"blocks.{i}.attention.{part}.weight"
        for i in range(3)
        for part in ("basis.features", "features")
    }
