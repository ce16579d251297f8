import io
import math
import sys

import pytest
import torch
from torch import Tensor, nn

from funcattn.models.gino import GINO, neighbours

NAN = float("nan")


def made(space: int = 2, inputs: int = 1, outputs: int = 1, **options: object) -> GINO:
    """A small network in float64, the same in every run."""
    small = {"width": 4, "layers": 2, "modes": 2, "latent": 5, "radius": 0.3, "kernel": (6,)}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return GINO(space, inputs, outputs, **(small | options)).double()


def uniform(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=generator)


def assert_equal_to_rounding(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("time", [False, True], ids=["steady", "time"])
@pytest.mark.parametrize("inputs", [0, 3], ids=["geometry", "values"])
@pytest.mark.parametrize("space", [1, 2, 3])
def test_every_parameter_gets_a_gradient(
    space: int, inputs: int, time: bool, generator: torch.Generator
) -> None:
    model = made(space, inputs, 2, time=time)
    values = uniform(3, 30, inputs, generator=generator) if inputs else None
    at = uniform(3, generator=generator) if time else None
    out = model(uniform(3, 30, space, generator=generator), values, time=at)
    assert out.shape == (3, 30, 2)
    (out * uniform(3, 30, 2, generator=generator)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 1e-12, name


def test_is_the_network_of_neuralop_on_lifted_features(generator: torch.Generator) -> None:
    """Its own forward, which loops over the points; in single precision."""
    model = made(latent=(5, 6)).float()
    positions = torch.rand(1, 40, 2, generator=generator)
    values = torch.rand(3, 40, 1, generator=generator)
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
def test_takes_any_points_in_the_box(n: int, generator: torch.Generator) -> None:
    """Those furthest from the grid too, the middles of its cells, with a radius just enough."""
    model = made(radius=0.177)
    positions = uniform(1, n, 2, generator=generator)
    positions = torch.cat([positions, (positions * 4).floor().clamp(0, 3) / 4 + 1 / 8], dim=1)
    out = model(positions, positions[..., :1])
    assert out.shape == (1, 2 * n, 1)
    assert out.isfinite().all()


def test_permuting_points_permutes_results(generator: torch.Generator) -> None:
    model, order = made(), torch.randperm(20, generator=generator)
    positions, values = uniform(2, 2, 20, 2, generator=generator)
    values, weights = values[..., :1], values[..., 1]
    out = model(positions, values, weights=weights)
    permuted = model(positions[:, order], values[:, order], weights=weights[:, order])
    assert_equal_to_rounding(permuted, out[:, order])


def test_weight_two_is_two_copies(generator: torch.Generator) -> None:
    model = made()
    positions, values = (uniform(1, 15, k, generator=generator) for k in (2, 1))
    weights = torch.ones(1, 15, dtype=torch.float64)
    weights[:, :4] = 2
    copied = model(*(torch.cat([x, x[:, :4]], dim=1) for x in (positions, values)))
    weighted = model(positions, values, weights=weights)
    assert_equal_to_rounding(weighted, copied[:, :15])
    assert (weighted - model(positions, values)).abs().max() > 1e-6


def test_shared_points_give_what_each_sample_gives_alone(generator: torch.Generator) -> None:
    model = made()
    positions = uniform(1, 15, 2, generator=generator).expand(3, -1, -1)
    values, weights = uniform(3, 15, 1, generator=generator), uniform(3, 15, generator=generator)
    together = model(positions, values, weights=weights)
    for b in range(3):
        of = slice(b, b + 1)
        alone = model(positions[of], values[of], weights=weights[of])
        assert_equal_to_rounding(together[of], alone)


def test_a_padded_batch_is_its_samples_one_by_one_gradients_included(
    generator: torch.Generator,
) -> None:
    model, lengths = made(), [12, 1, 7]
    samples = [uniform(1, n, 4, generator=generator).split([2, 1, 1], -1) for n in lengths]
    alone = [model(x, u, weights=w[..., 0]) for x, u, w in samples]
    sum(out.square().sum() for out in alone).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    # Padding anywhere, not only at the end.
    mask = torch.zeros(3, 12, dtype=torch.bool)
    padded = torch.full((3, 12, 4), NAN, dtype=torch.float64)
    for i, parts in enumerate(samples):
        mask[i, torch.randperm(12, generator=generator)[: lengths[i]]] = True
        padded[i, mask[i]] = torch.cat(parts, dim=-1)[0]
    out = model(padded[..., :2], padded[..., 2:3], mask=mask, weights=padded[..., 3])
    for i in range(3):
        assert_equal_to_rounding(out[i, mask[i]], alone[i][0])
        assert not out[i, ~mask[i]].any()
    out.square().sum().backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-9)


def test_padding_of_samples_with_the_same_points_is_never_looked_at(
    generator: torch.Generator,
) -> None:
    model, mask = made(), torch.arange(12).expand(2, -1) < 9
    positions = uniform(1, 12, 2, generator=generator).expand(2, -1, -1)
    values = uniform(2, 12, 1, generator=generator)
    out = model(positions, values, mask=mask)
    assert_equal_to_rounding(out[:, :9], model(positions[:, :9], values[:, :9]))
    assert not out[:, 9:].any()


def test_more_points_of_the_same_field_give_nearly_the_same_result() -> None:
    """The means over more and more points of a grid converge."""
    model = made(1, latent=5, modes=2, radius=0.3)

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


def test_the_box_is_the_unit_box_to_all_but_the_lift(generator: torch.Generator) -> None:
    model, moved = made(), made(lower=(-1.0, 2.0), upper=(3.0, 2.5))
    with torch.no_grad():
        for network in (model, moved):
            network.lift.weight[:, :2] = 0
    positions, values = (uniform(2, 15, k, generator=generator) for k in (2, 1))
    there = positions * torch.tensor([4.0, 0.5]).double() + torch.tensor([-1.0, 2.0]).double()
    torch.testing.assert_close(moved(there, values), model(positions, values), rtol=0, atol=1e-9)


def test_neighbours_are_all_pairs_within_the_radius_in_pieces_too(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = uniform(13, 2, generator=generator), uniform(9, 2, generator=generator)
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


def test_is_the_same_in_single_precision_to_single_rounding(generator: torch.Generator) -> None:
    model = made()
    positions, values = (uniform(2, 15, k, generator=generator) for k in (2, 1))
    out = model(positions, values)
    single = model.float()(positions.float(), values.float())
    assert (out.dtype, single.dtype) == (torch.float64, torch.float32)
    torch.testing.assert_close(single.double(), out, rtol=0, atol=1e-5)


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


def test_saving_and_loading_reproduces_results_exactly(generator: torch.Generator) -> None:
    saved, loaded = made(), made()
    for parameter in loaded.parameters():
        parameter.data += 0.1
    inputs = tuple(uniform(2, 9, k, generator=generator) for k in (2, 1))
    assert not torch.equal(saved(*inputs), loaded(*inputs))
    file = io.BytesIO()
    torch.save(nn.Sequential(saved).state_dict(), file)
    file.seek(0)
    nn.Sequential(loaded).load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(saved(*inputs), loaded(*inputs))


@pytest.mark.usefixtures("as_a_user")  # for speed
def test_learns_a_map_that_needs_other_points() -> None:
    """A wave of unknown phase to its quarter period: no point can do it alone."""
    shift = torch.tensor([0.1, 0.4, 0.6, 0.9])[:, None]
    x = torch.arange(16) / 16
    phase = 2 * math.pi * (x + shift)
    positions, u, target = x.expand(4, -1).unsqueeze(-1), phase.sin()[..., None], phase.cos()
    model = made(1, width=8, modes=4, latent=8, radius=0.2, kernel=(16,)).float()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=150)
    for _ in range(150):
        optimizer.zero_grad()
        out = model(positions, u)[..., 0]
        loss = ((out - target).norm(dim=-1) / target.norm(dim=-1)).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
    assert loss.item() < 0.03


@pytest.mark.usefixtures("as_a_user")
class TestErrors:
    def test_points_far_from_the_box_are_refused(self) -> None:
        positions = torch.tensor([[[0.5, 0.5], [1.2, 0.5], [1.5, 0.5]]]).double()
        with pytest.raises(ValueError, match=r"positions: expected all within .* got 1 that are"):
            made()(positions, positions[..., :1])

    def test_the_radius_reaches_a_point_of_the_grid(self) -> None:
        with pytest.raises(ValueError, match=r"radius: expected more than 0.1768, .* got 0.1768"):
            made(radius=math.sqrt(2) / 8)
        made(radius=0.177)

    def test_the_grid_carries_the_modes(self) -> None:
        with pytest.raises(ValueError, match=r"latent: expected at least twice .* got \(5, 6\)"):
            made(latent=(5, 6), modes=3)

    @pytest.mark.parametrize("name", ["latent", "modes"])
    @pytest.mark.parametrize("numbers", [0, (4,), (4, 4, 4), (4, 0)], ids=str)
    def test_there_is_a_positive_number_for_each_axis(
        self, name: str, numbers: int | tuple[int, ...]
    ) -> None:
        with pytest.raises(ValueError, match=f"{name}: expected a positive number"):
            made(**{name: numbers})

    def test_the_box_has_an_inside(self) -> None:
        with pytest.raises(ValueError, match="upper: expected to be above lower"):
            made(lower=(0.0, 1.0))

    def test_without_neuralop_the_error_says_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "neuralop.models", None)
        with pytest.raises(ModuleNotFoundError, match=r"GINO needs .*'funcattn\[rivals\]'"):
            made()
