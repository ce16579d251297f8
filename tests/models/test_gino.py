import math
from typing import Any

import pytest
import torch
from torch import Tensor

from funcattn.models.gino import GINO, neighbours


def test_is_the_network_of_neuralop_on_lifted_features(made: Any, uniform: Any) -> None:
    """Its own forward, which loops over the points; in single precision."""
    model = made("gino", latent=(5, 6)).float()
    positions, values = uniform(1, 40, 2).float(), uniform(3, 40, 1).float()
    axes = (torch.linspace(0, 1, n) for n in (5, 6))
    grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)[None]
    features = torch.cat([positions.expand(3, -1, -1), values], dim=-1)
    expected = model.network(
        input_geom=positions,
        latent_queries=grid,
        output_queries=positions,
        x=model.lift(features),
        latent_features=grid.expand(3, -1, -1, -1),
    )
    out = model(positions.expand(3, -1, -1), values)
    assert expected.std() > 1e-3
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("n", [1, 7, 40], ids=lambda n: f"{n} points")
def test_takes_any_points_in_the_box(n: int, made: Any, uniform: Any) -> None:
    """Those furthest from the grid too, the middles of its cells, with a radius just enough."""
    model = made("gino", radius=0.177)
    positions = uniform(1, n, 2)
    positions = torch.cat([positions, (positions * 4).floor().clamp(0, 3) / 4 + 1 / 8], dim=1)
    out = model(positions, positions[..., :1])
    assert out.shape == (1, 2 * n, 1)
    assert out.isfinite().all()


def test_shared_points_give_what_each_sample_gives_alone(
    made: Any, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    model = made("gino")
    positions = uniform(1, 15, 2).expand(3, -1, -1)
    values, weights = uniform(3, 15, 1), uniform(3, 15)
    together = model(positions, values, weights=weights)
    for b in range(3):
        of = slice(b, b + 1)
        alone = model(positions[of], values[of], weights=weights[of])
        assert_equal_to_rounding(together[of], alone)


def test_padding_of_samples_with_the_same_points_is_never_looked_at(
    made: Any, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    model, mask = made("gino"), torch.arange(12).expand(2, -1) < 9
    positions = uniform(1, 12, 2).expand(2, -1, -1)
    values = uniform(2, 12, 1)
    out = model(positions, values, mask=mask)
    assert_equal_to_rounding(out[:, :9], model(positions[:, :9], values[:, :9]))
    assert not out[:, 9:].any()


def test_more_points_of_the_same_field_give_nearly_the_same_result(made: Any) -> None:
    """The means over more and more points of a grid converge."""
    model = made("gino", 1, latent=5, modes=2, radius=0.3)

    def on(points: int) -> Tensor:
        x = (torch.arange(points, dtype=torch.float64) + 0.5).view(1, -1, 1) / points
        return model(x, torch.sin(3 * x)).detach()[0, :, 0]

    finest = on(5 * 3**5)
    errors = []
    for refinement in (3, 27, 81):
        every = 3**5 // refinement
        errors.append((on(5 * refinement) - finest[every // 2 :: every]).abs().max().item())
    assert errors[0] < 0.1
    assert errors[1] < errors[0] / 3
    assert errors[2] < errors[1] / 2


def test_the_box_is_the_unit_box_to_all_but_the_lift(made: Any, uniform: Any) -> None:
    model, moved = made("gino"), made("gino", lower=(-1.0, 2.0), upper=(3.0, 2.5))
    with torch.no_grad():
        for network in (model, moved):
            network.lift.weight[:, :2] = 0
    positions, values = (uniform(2, 15, k) for k in (2, 1))
    there = positions * torch.tensor([4.0, 0.5]).double() + torch.tensor([-1.0, 2.0]).double()
    torch.testing.assert_close(moved(there, values), model(positions, values), rtol=0, atol=1e-9)


def test_neighbours_are_all_pairs_within_the_radius_in_pieces_too(
    monkeypatch: pytest.MonkeyPatch, uniform: Any
) -> None:
    source, target = uniform(13, 2), uniform(9, 2)
    expected = {
        (n, m)
        for n in range(13)
        for m in range(9)
        if math.dist(source[n].tolist(), target[m].tolist()) <= 0.3
    }
    assert 0 < len(expected) < 13 * 9
    for most in (1, 30, 10_000):
        monkeypatch.setattr("funcattn.models.gino._MOST_DISTANCES", most)
        pairs = torch.stack(neighbours(source, target, 0.3), dim=-1).tolist()
        assert len(pairs) == len(expected)
        assert {tuple(pair) for pair in pairs} == expected


def test_has_the_parameters_that_its_parts_have() -> None:
    width, s, modes = 32, 2, 12
    lift = (3 + 1) * width
    kernel = (16 * s + 1) * 80 + 2 * (80 + 1) * 80 + (80 + 1) * width
    to_layers = (width + s + 1) * 2 * width + (2 * width + 1) * width
    beside = width + width**2 + (width + 1) * 16 + (16 + 1) * width + width
    layers = 4 * (2 * width**2 * (2 * modes) * modes + beside)
    head = (width + 1) * 4 * width + (4 * width + 1)
    expected = lift + 2 * kernel + to_layers + layers + head
    assert sum(p.numel() for p in GINO(2, 1, 1).parameters()) == expected == 2_413_121


@pytest.mark.usefixtures("as_a_user")
class TestErrors:
    def test_points_far_from_the_box_are_refused(self, made: Any) -> None:
        positions = torch.tensor([[[0.5, 0.5], [1.2, 0.5], [1.5, 0.5]]]).double()
        with pytest.raises(ValueError, match=r"positions: expected all within .* got 1 that are"):
            made("gino")(positions, positions[..., :1])

    def test_the_radius_reaches_a_point_of_the_grid(self, made: Any) -> None:
        with pytest.raises(ValueError, match=r"radius: expected more than 0.1768, .* got 0.1768"):
            made("gino", radius=math.sqrt(2) / 8)
        made("gino", radius=0.177)

    def test_the_grid_carries_the_modes(self, made: Any) -> None:
        with pytest.raises(ValueError, match=r"latent: expected at least twice .* got \(5, 6\)"):
            made("gino", latent=(5, 6), modes=3)

    @pytest.mark.parametrize("name", ["latent", "modes"])
    @pytest.mark.parametrize("numbers", [0, (4,), (4, 4, 4), (4, 0)], ids=str)
    def test_there_is_a_positive_number_for_each_axis(
        self, name: str, numbers: int | tuple[int, ...], made: Any
    ) -> None:
        with pytest.raises(ValueError, match=f"{name}: expected a positive number"):
            made("gino", **{name: numbers})

    def test_the_box_has_an_inside(self, made: Any) -> None:
        with pytest.raises(ValueError, match="upper: expected to be above lower"):
            made("gino", lower=(0.0, 1.0))
