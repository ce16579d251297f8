import json

import numpy as np
import pytest
import torch

from funcattn.export import example_inputs
from funcattn.pde import darcy, darcy_notch, panel
from funcattn.trust import checks
from funcattn.trust.audit import audit, write_audit
from funcattn.trust.checks import THRESHOLDS, Examined
from funcattn.trust.checks.errors import octaves
from funcattn.trust.checks.residuals import (
    bernoulli_residual,
    darcy_residual,
    notch_residual,
)
from funcattn.trust.subject import FRESH


@pytest.mark.usefixtures("as_a_user")
def test_the_page_has_a_verdict_for_every_check(untrained, tmp_path):
    subject = untrained("darcy")
    found = audit(subject, count=6)
    outcomes = {check.title: check.outcome for check in found.checks}
    assert len(outcomes) == 11
    assert outcomes["Determinism"] == "passes"
    said = {check.title: check.found.said for check in found.checks}
    assert outcomes["Export"] == "passes", said["Export"]
    path = tmp_path / "audit.html"
    write_audit(path, subject, found, "a test")
    page = path.read_text()
    for check in found.checks:
        heading = page.split(f"<h2>{check.title} ")[1].split("</h2>")[0]
        assert f">{check.outcome}<" in heading
    document = json.loads(path.with_suffix(".json").read_text())
    assert "{" not in page.split("How this was made")[1]  # no raw JSON for people
    assert document["thresholds"] == dict(THRESHOLDS)
    assert [each["outcome"] for each in document["checks"]] == list(outcomes.values())
    # An untrained network does not solve the equation, and is caught.
    assert outcomes["Wave numbers"] == "fails"


def test_clouds_are_asked_in_other_orders_and_refined(untrained):
    subject = untrained("elasticity")
    examined = Examined(subject, subject.fresh(3, 3 * FRESH))
    assert examined.takes_clouds
    assert checks.subsets(examined).found.numbers["order"] < 1e-4
    refined = checks.patches(examined)
    assert refined.outcome == "passes"
    assert refined.found.numbers["with weights"] < refined.found.numbers["without"]


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
    assert checks.cost(Examined(subject, samples, sizes=(1, 2, 4))).outcome == "fails"


def test_the_residual_sees_what_is_no_solution():
    a = darcy.sample(nodes=33, rng=np.random.default_rng(0))["permeability"]
    u = darcy.solve(a)
    assert darcy_residual(a, u) < 1e-6  # the scheme of the solver
    assert darcy_residual(a, 1.2 * u) == pytest.approx(0.2, rel=1e-4)


def test_the_residual_of_the_notch_sees_what_is_no_solution():
    b = np.ones(101)
    u = darcy_notch.solve(b).T
    assert notch_residual(u) < 0.3  # nearly all of it beside the corners of the notch
    x, y = np.meshgrid(*[np.linspace(0, 1, 101)] * 2, indexing="ij")
    assert notch_residual(-2.5 * (x**2 + y**2)) < 1e-8  # Laplace of it is -10
    assert notch_residual(x + y) == pytest.approx(1.0)


def test_the_residual_of_a_potential_flow_is_bernoulli_s():
    drawn = panel.sample(panels=60, field_points=50, rng=np.random.default_rng(0))
    stream, flow = drawn["features"][0, 2:4], drawn["target"]
    assert bernoulli_residual(stream, flow) < 1e-12
    flow[:, 2] *= 1.3
    assert bernoulli_residual(stream, flow) == pytest.approx(0.3)


@pytest.mark.parametrize("name", ["darcy", "darcy_notch", "airfrans"])
def test_the_truth_passes_the_check_of_the_residual(name, untrained, monkeypatch):
    subject = untrained(name)
    samples = subject.fresh(2, 3 * FRESH)
    examined = Examined(subject, samples)
    assert checks.residual(examined).outcome == "fails"  # of an untrained network
    monkeypatch.setattr(type(subject), "predicted", lambda _, sample: sample.target)
    assert checks.residual(examined).outcome == "passes"


def test_octaves_hold_all_energy():
    values = np.random.default_rng(0).normal(size=(12, 9, 1))
    for periodic in (True, False):
        found = octaves(values, periodic)
        assert sum(found.values()) == pytest.approx(np.square(values).sum())
    wave = np.sin(2 * np.pi * 5 * np.arange(32) / 32)[:, None]
    found = octaves(wave, True)
    assert max(found, key=lambda octave: found[octave]) == 2  # 4 to 8


def test_the_example_of_an_export_has_the_grid_of_the_samples(untrained):
    """Also where the test has another one, as that of Burgers has."""
    subject = untrained("burgers")
    example = example_inputs(subject.task, subject.run.network)
    assert example["positions"].shape[1] == np.prod(subject.task.grid)


def test_a_tail_is_seen(untrained):
    subject = untrained("darcy")
    examined = Examined(subject, subject.fresh(3, 3 * FRESH))
    vars(examined)["errors"] = torch.tensor([1.0] * 15 + [9.0] * 2)
    assert checks.tail(examined).outcome == "fails"
    vars(examined)["errors"] = torch.ones(20)
    assert checks.tail(examined).outcome == "passes"
