"""What all networks of a race share."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from funcattn.nn import Points
from funcattn.nn.operator import FourierFeatures, Surroundings
from funcattn.tasks import TASKS, Task
from funcattn.training.recipe import Featured, network_of
from funcattn.training.settings import default_settings


def task_of(name: str, model: str) -> Task:
    return TASKS[name](default_settings(name, "smoke", "modern", model))


@pytest.mark.parametrize("model", ["fno", "funcattn", "transolver", "flare"])
def test_the_shared_recipe_gives_baselines_its_start_and_its_features(model: str) -> None:
    task = task_of("darcy", model)
    there, here = (network_of(task, recipe).network for recipe in ("task", "shared"))
    assert isinstance(here, Featured)
    maps = [m for m in here.modules() if isinstance(m, torch.nn.Linear)]
    wide = [m for m in maps if m.weight.numel() > 200]
    for m in wide:
        assert float(m.weight.detach().std()) * m.in_features**0.5 == pytest.approx(1, abs=0.25)
    count = [sum(p.numel() for p in n.parameters()) for n in (there, here)]
    assert count[1] > count[0]  # the lift takes more features


class Kept(nn.Module):
    """Returns its values, and keeps what else it is called with."""

    def forward(self, positions: Tensor, values: Tensor, **points: Any) -> Tensor:
        self.given = {"positions": positions, **points}
        return values


@pytest.mark.parametrize("weighted", [False, True], ids=["bare", "weights"])
@pytest.mark.parametrize("masked", [False, True], ids=["all points", "masked"])
def test_a_network_gets_the_features_beside_its_values(
    masked: bool, weighted: bool, uniform: Any
) -> None:
    positions, values, mask = uniform(2, 30, 2), uniform(2, 30, 1), uniform(2, 30) < 0.7
    weights = uniform(2, 30) if weighted else None
    features = FourierFeatures(2, waves=3).double()
    around = Surroundings.from_least(1 / 8, 2)
    real = Points(positions, None, mask if masked else None, weights).without_padding()
    assert real.positions is not None
    wanted = torch.cat([values, features(real.positions), around(real)], dim=-1)
    if masked:
        # Whatever stands at padding.
        positions = torch.where(mask[..., None], positions, torch.nan)
        weights = None if weights is None else torch.where(mask, weights, torch.nan)
    kept = Kept()
    featured = Featured(kept, features, around)
    known = featured(positions, values, mask=real.mask, weights=weights, grid=None)
    assert torch.equal(known, wanted)
    assert kept.given.keys() == {"positions", "mask", "weights", "grid"}
    assert kept.given["weights"] is weights
    alone = featured(positions, mask=real.mask, weights=weights)
    assert torch.equal(alone, wanted[..., 1:])
    without = Featured(kept, features)(positions, values, mask=real.mask)
    assert torch.equal(without, wanted[..., : -around.channels])


@pytest.mark.parametrize("model", ["linear_no", "transolver", "funcattn", "gnot", "pointnet"])
def test_a_baseline_sees_surroundings_as_our_network_does(model: str) -> None:
    network = network_of(task_of("elasticity", model), "shared", 1 / 16).network.double().eval()
    ours = task_of("elasticity", "functional_operator")
    changed = replace(ours.settings.network, surroundings=1 / 16)
    own = network_of(type(ours)(replace(ours.settings, network=changed)), "shared").network
    assert isinstance(network, Featured)
    assert network.surroundings is not None
    assert network.surroundings.lattices == own.surroundings.lattices
    x = torch.rand(2, 40, 2, generator=torch.Generator().manual_seed(0)).double()
    mask = torch.arange(40) < torch.tensor([[40], [31]])
    padded = torch.where(mask[..., None], x, torch.nan)
    with torch.no_grad():
        out = network(padded, mask=mask)
        torch.testing.assert_close(out[1:, :31], network(x[1:, :31]), rtol=0, atol=1e-10)
        assert not out[1:, 31:].any()
