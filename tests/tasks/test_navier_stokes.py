import pytest
import torch
from lightning_fabric import Fabric

from funcattn.data import Store, collate
from funcattn.serve import Predictor
from funcattn.settings import changed
from funcattn.tasks.navier_stokes import NavierStokes, NavierStokesData
from funcattn.training.evaluation import evaluate
from funcattn.training.report import _look
from funcattn.training.setup import build_network

SMOKE = NavierStokes.defaults("smoke", "modern")


def test_ten_frames_go_in_and_the_next_ten_come_out(store: Store) -> None:
    task = NavierStokes(SMOKE)
    frames = store.made(task.recipe(), 0, task.count).read("vorticity", range(1))[0]
    sample = task.splits(store).train[0]
    assert frames.shape == (20, 8, 8)
    for t in range(10):
        torch.testing.assert_close(sample.values[:, t].reshape(8, 8), torch.from_numpy(frames[t]))
        torch.testing.assert_close(
            sample.target[:, t].reshape(8, 8), torch.from_numpy(frames[10 + t])
        )


def test_the_loss_is_a_mean_over_frames_and_the_metric_is_over_all_of_them(store: Store) -> None:
    task = NavierStokes(SMOKE)
    batch = collate([task.splits(store).train[0]])
    scale = torch.ones(10)
    scale[3], scale[9] = 2.0, 3.0
    prediction = batch.target * scale
    assert task.loss(prediction, batch).item() == pytest.approx((1 + 2) / 10)
    found = task.metrics(prediction, batch)
    size = batch.target[0].norm(dim=0)
    expected = (size[3] ** 2 + 4 * size[9] ** 2).sqrt() / size.norm()
    assert found["relative_l2"].item() == pytest.approx(expected.item(), rel=1e-5)
    assert found["relative_l2_last_frame"].item() == pytest.approx(2)


def test_a_predictor_gives_all_frames(store: Store) -> None:
    task = NavierStokes(SMOKE)
    splits = task.splits(store)
    surrogate = build_network(task)
    surrogate.fit(
        [s.positions for s in splits.train[:]],
        [s.values for s in splits.train[:]],
        [s.target for s in splits.train[:]],
    )
    sample = splits.test[0]
    predicted = Predictor(task, surrogate).predict(
        sample.positions, sample.values, grid=sample.grid, weights=sample.weights
    )
    assert predicted.shape == (64, 10)
    with torch.no_grad():
        expected = task.predict(surrogate.eval(), collate([sample]))[0]
    torch.testing.assert_close(predicted, expected)


def test_layers_are_counted_once_though_the_network_is_called_for_each_frame(store: Store) -> None:
    task = NavierStokes(SMOKE)
    sample = task.splits(store).test[0]
    surrogate = build_network(task)
    fabric = Fabric(accelerator="cpu", devices=1)
    assert len(evaluate(task, surrogate, [sample], fabric)[1]) == SMOKE.network.layers == 2
    assert list(_look(task, surrogate, sample)[1]) == ["layer 1", "layer 2"]


def test_the_papers_settings() -> None:
    settings = NavierStokes.defaults("paper", "paper")
    how, network = settings.optimisation, settings.network
    assert (how.batch, how.clip, how.epochs, how.optimiser) == (2, 0.1, 500, "adamw")
    assert (network.width, network.bases, network.lattice) == (256, 32, 8)
    assert not network.share_basis
    assert (settings.data.nodes, settings.data.store_every, settings.data.use_every) == (256, 4, 4)


@pytest.mark.parametrize("every", [0, 5, -1])
def test_a_grid_that_is_not_nested_is_refused(every: int) -> None:
    with pytest.raises(ValueError, match=f"use_every: expected a divisor of nodes = 256.*{every}"):
        NavierStokesData(use_every=every)
    with pytest.raises(ValueError, match=r"store_every: expected a divisor of use_every = 2, .* 4"):
        NavierStokesData(use_every=2)


@pytest.mark.parametrize(
    ("old", "nodes", "store_every", "use_every"),
    [
        ({"nodes": 256, "keep": 64, "stride": 1}, 256, 4, 4),
        ({"nodes": 16, "keep": 8, "stride": 2}, 16, 2, 4),
        ({"keep": 32}, 256, 8, 8),
        ({"stride": 4}, 256, 4, 16),
    ],
)
def test_old_settings_of_the_grid_mean_what_they_meant(
    old: dict[str, int], nodes: int, store_every: int, use_every: int
) -> None:
    data = changed(NavierStokesData(), old)
    assert data == NavierStokesData(nodes=nodes, store_every=store_every, use_every=use_every)


def test_an_old_number_of_stored_points_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="keep: expected a divisor of nodes = 256, got 60"):
        changed(NavierStokesData(), {"keep": 60})
