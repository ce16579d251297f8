import json

import numpy as np
import pytest
import torch

from funcattn.pde import darcy
from funcattn.trust import checks
from funcattn.trust.audit import audit, write_audit
from funcattn.trust.checks import THRESHOLDS, Examined, darcy_residual
from funcattn.trust.subject import FRESH


@pytest.mark.usefixtures("as_a_user")
def test_the_page_has_a_verdict_for_every_check(untrained, tmp_path):
    subject = untrained("darcy")
    found = audit(subject, count=6)
    outcomes = {check.title: check.outcome for check in found.checks}
    assert len(outcomes) == 11
    assert outcomes["Determinism"] == "passes"
    said = {check.title: check.said for check in found.checks}
    assert outcomes["Export"] == "passes", said["Export"]
    path = tmp_path / "audit.html"
    write_audit(path, subject, found, "a test")
    page = path.read_text()
    for check in found.checks:
        assert f"Verdict: {check.outcome}" in page
        assert check.title in page
    document = json.loads(path.with_suffix(".json").read_text())
    assert document["thresholds"] == dict(THRESHOLDS)
    assert [each["outcome"] for each in document["checks"]] == list(outcomes.values())
    # An untrained network does not solve the equation, and is caught.
    assert outcomes["Wave numbers"] == "fails"


def test_clouds_are_asked_in_other_orders_and_refined(untrained):
    subject = untrained("elasticity")
    examined = Examined(subject, subject.fresh(3, 3 * FRESH))
    assert examined.takes_clouds
    assert checks.subsets(examined).numbers["order"] < 1e-4
    refined = checks.patches(examined)
    assert refined.outcome == "passes"
    assert refined.numbers["with weights"] < refined.numbers["without"]


def test_a_network_that_reads_the_order_fails(untrained, monkeypatch):
    subject = untrained("elasticity")

    def by_order(_, batch):
        return torch.arange(batch.positions.shape[1]).float().expand(1, len(batch), -1)[..., None]

    monkeypatch.setattr(type(subject), "predictions", by_order)
    examined = Examined(subject, subject.fresh(2, 3 * FRESH))
    assert checks.subsets(examined).outcome == "fails"


def test_a_network_that_grows_with_the_points_fails(untrained, monkeypatch):
    subject = untrained("elasticity")
    samples = subject.fresh(1, 3 * FRESH)

    def all_pairs(_, batch):
        torch.cdist(batch.positions, batch.positions).square().sum()
        return batch.positions[None, ..., :1]

    monkeypatch.setattr(type(subject), "predictions", all_pairs)
    assert checks.cost(Examined(subject, samples), sizes=(1, 2, 4)).outcome == "fails"


def test_the_residual_sees_what_is_no_solution():
    a = darcy.sample(nodes=33, rng=np.random.default_rng(0))["permeability"]
    u = darcy.solve(a)
    assert darcy_residual(a, u) < 1e-6  # the scheme of the solver
    assert darcy_residual(a, 1.2 * u) == pytest.approx(0.2, rel=1e-4)


def test_octaves_hold_all_energy():
    values = np.random.default_rng(0).normal(size=(12, 9, 1))
    for periodic in (True, False):
        octaves = checks._octaves(values, periodic)
        assert sum(octaves.values()) == pytest.approx(np.square(values).sum())
    wave = np.sin(2 * np.pi * 5 * np.arange(32) / 32)[:, None]
    octaves = checks._octaves(wave, True)
    assert max(octaves, key=lambda octave: octaves[octave]) == 2  # 4 to 8


def test_a_tail_is_seen(untrained):
    subject = untrained("darcy")
    examined = Examined(subject, subject.fresh(3, 3 * FRESH))
    vars(examined)["errors"] = torch.tensor([1.0] * 15 + [9.0] * 2)
    assert checks.tail(examined).outcome == "fails"
    vars(examined)["errors"] = torch.ones(20)
    assert checks.tail(examined).outcome == "passes"
