from dataclasses import replace

import numpy as np
import pytest
import torch

from funcattn.data import Store, collate
from funcattn.pde import burgers
from funcattn.tasks.burgers import Burgers, BurgersData

SMOKE = Burgers.defaults("smoke", "modern")


def test_the_test_is_on_a_finer_grid(store: Store) -> None:
    splits = Burgers(SMOKE).splits(store)
    assert splits.train[0].grid == splits.validation[0].grid == (32,)
    assert splits.test[0].grid == (128,)
    spacing = splits.test[0].positions.diff(dim=0)
    torch.testing.assert_close(spacing, torch.full_like(spacing, 1 / 128))


def test_the_circle_is_two_pi_long_and_the_former_set_is_a_setting_away(store: Store) -> None:
    former = replace(SMOKE, data=replace(SMOKE.data, length=1.0))
    tasks = [Burgers(settings) for settings in (SMOKE, former)]
    assert tasks[0].recipe().key(0) != tasks[1].recipe().key(0)
    (now, was) = (task.splits(store).test[0] for task in tasks)
    assert now.values is not None
    torch.testing.assert_close(now.values, was.values)
    expected = burgers.solve(now.values[:, 0].double().numpy(), length=2 * np.pi)
    torch.testing.assert_close(
        now.target[:, 0].double(), torch.from_numpy(expected), atol=1e-5, rtol=0
    )
    assert was.target.std() < 0.1 * now.target.std()


def test_the_loss_is_that_of_the_paper(store: Store, generator: torch.Generator) -> None:
    task = Burgers(SMOKE)
    splits = task.splits(store)
    batch = collate([splits.train[i] for i in range(3)])
    prediction = batch.target + 0.01 * torch.randn(batch.target.shape, generator=generator)
    error, truth = (prediction - batch.target)[..., 0], batch.target[..., 0]

    def slope(u: torch.Tensor) -> torch.Tensor:
        return u[:, [*range(1, 32), 0]] - u[:, [31, *range(31)]]

    by_hand = error.norm(dim=1) / truth.norm(dim=1)
    by_hand += 0.1 * slope(error).norm(dim=1) / slope(truth).norm(dim=1)
    torch.testing.assert_close(task.loss(prediction, batch), by_hand)


def test_the_papers_settings() -> None:
    settings = Burgers.defaults("paper", "paper")
    how, data = settings.optimisation, settings.data
    assert (how.optimiser, how.rate, how.epochs, how.batch) == ("adam", 1e-3, 100, 8)
    assert how.rate / how.start_divisor == how.rate / how.start_divisor / how.end_divisor
    assert (data.nodes, data.nodes // data.use_every, data.train, data.test) == (
        8192,
        2048,
        1024,
        100,
    )
    network = settings.network
    assert (network.width, network.layers, network.heads, network.bases) == (92, 4, 1, 64)
    assert round(network.width * network.mlp_ratio) == 200
    assert network.ridge == pytest.approx(1 / (1 + np.exp(-2)), abs=1e-3)


@pytest.mark.parametrize("name", ["use_every", "test_every"])
@pytest.mark.parametrize("value", [0, 3, -4])
def test_strides_divide_the_circle(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"^{name}: expected a divisor of nodes = 128.*{value}"):
        BurgersData(nodes=128, **{name: value})
