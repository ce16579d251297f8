import io
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from funcattn.models.lno import LNO, cross_attention
from funcattn.nn.points import Points

NAN = float("nan")


def made(space: int = 2, inputs: int = 1, outputs: int = 1, **options: object) -> LNO:
    """A small network in float64, the same in every run.

    Its scores are of order one, so that attention is not nearly an average.
    """
    options = {"width": 8, "layers": 2, "latents": 5, "heads": 2, "projector": 1} | options
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model = LNO(space, inputs, outputs, **options).double()
        torch.nn.init.normal_(model.trunk.lift.weight, std=3.0)
        torch.nn.init.normal_(model.attention.head.weight, std=3.0)
    return model


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
    values = uniform(3, 11, inputs, generator=generator) if inputs else None
    at = uniform(3, generator=generator) if time else None
    out = model(uniform(3, 11, space, generator=generator), values, time=at)
    assert out.shape == (3, 11, 2)
    (out * uniform(3, 11, 2, generator=generator)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 1e-12, name


class TestCrossAttention:
    def test_sums_to_one_over_points_one_way_and_latent_points_the_other(
        self, generator: torch.Generator
    ) -> None:
        scores = 5 * uniform(2, 9, 4, generator=generator)
        mask = torch.arange(9) < torch.tensor([[9], [6]])
        weights = uniform(2, 9, generator=generator)
        to_latent, to_points = cross_attention(scores, Points(mask=mask, weights=weights))
        ones = torch.ones(2, 9, dtype=torch.float64)
        assert_equal_to_rounding(to_latent.sum(1), ones[:, :4])
        assert_equal_to_rounding(to_points.sum(2), ones)
        assert not to_latent[1, 6:].any()
        expected = torch.where(mask, weights, 0)[..., None] * scores.exp()
        assert_equal_to_rounding(to_latent, expected / expected.sum(1, keepdim=True))

    def test_constants_pass_both_ways(self, generator: torch.Generator) -> None:
        scores = 5 * uniform(1, 9, 4, generator=generator)
        to_latent, to_points = cross_attention(scores, Points())
        constant = torch.full((1, 9, 1), 2.5, dtype=torch.float64)
        assert_equal_to_rounding(to_points @ (to_latent.mT @ constant), constant)


def test_is_encode_transformer_decode(generator: torch.Generator) -> None:
    """Point by point and head by head, for one sample."""
    model = made(time=True)
    positions, values = uniform(1, 7, 2, generator=generator), uniform(1, 7, 1, generator=generator)
    time = uniform(1, generator=generator)

    def perceptron(layer: torch.nn.Module, x: Tensor) -> Tensor:
        x = F.gelu(layer.lift(x))
        return layer.head(x + F.gelu(layer.layers[0](x)))

    coordinates = torch.cat([positions[0], time.expand(7, 1)], dim=-1)
    scores = perceptron(model.attention, perceptron(model.trunk, coordinates))
    features = perceptron(model.branch, torch.cat([coordinates, values[0]], dim=-1))
    latent = torch.stack([scores[:, g].softmax(0) @ features for g in range(5)])
    for block in model.blocks:
        y = block.attention_norm(latent)
        heads = []
        for head in (slice(0, 4), slice(4, 8)):
            query, key, value = (
                of(y)[:, head] for of in (block.to_query, block.to_key, block.to_value)
            )
            heads.append((query @ key.T / math.sqrt(4)).softmax(-1) @ value)
        latent = latent + block.to_output(torch.cat(heads, dim=-1))
        expand, _, contract = block.mlp
        latent = latent + contract(F.gelu(expand(block.mlp_norm(latent))))
    expected = perceptron(model.head, scores.softmax(-1) @ latent)
    assert_equal_to_rounding(model(positions, values, time=time)[0], expected)


def test_permuting_points_permutes_results(generator: torch.Generator) -> None:
    model, order = made(), torch.randperm(20, generator=generator)
    positions, values = uniform(2, 2, 20, 2, generator=generator)
    values, weights = values[..., :1], values[..., 1]
    out = model(positions, values, weights=weights)
    permuted = model(positions[:, order], values[:, order], weights=weights[:, order])
    assert_equal_to_rounding(permuted, out[:, order])


def test_points_see_each_other(generator: torch.Generator) -> None:
    model = made()
    positions, values = uniform(1, 6, 2, generator=generator), uniform(1, 6, 1, generator=generator)
    jacobian = torch.autograd.functional.jacobian(lambda u: model(positions, u), values)
    assert (jacobian.abs() > 1e-8).all()


def test_weight_two_is_two_copies(generator: torch.Generator) -> None:
    model = made()
    positions, values = uniform(1, 9, 2, generator=generator), uniform(1, 9, 1, generator=generator)
    weights = torch.ones(1, 9, dtype=torch.float64)
    weights[:, :2] = 2
    copied = model(*(torch.cat([x, x[:, :2]], dim=1) for x in (positions, values)))
    assert_equal_to_rounding(model(positions, values, weights=weights), copied[:, :9])


def test_a_padded_batch_is_its_samples_one_by_one_gradients_included(
    generator: torch.Generator,
) -> None:
    model, lengths = made(), [12, 1, 7]
    samples = [uniform(1, n, 4, generator=generator).split([2, 1, 1], -1) for n in lengths]
    alone = [model(x, u, weights=w[..., 0]) for x, u, w in samples]
    sum(out.square().sum() for out in alone).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    mask = torch.arange(12) < torch.tensor(lengths)[:, None]
    padded = torch.full((3, 12, 4), NAN, dtype=torch.float64)
    for i, parts in enumerate(samples):
        padded[i, : lengths[i]] = torch.cat(parts, dim=-1)[0]
    out = model(padded[..., :2], padded[..., 2:3], mask=mask, weights=padded[..., 3])
    for i, n in enumerate(lengths):
        assert_equal_to_rounding(out[i : i + 1, :n], alone[i])
        assert not out[i, n:].any()
    out.square().sum().backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-9)


def test_gives_nearly_the_same_field_on_more_points() -> None:
    """With quadrature weights, what changes with the resolution falls as the spacing squared."""
    model = made(1)

    def on(points: int) -> Tensor:
        x = torch.linspace(0, 1, points, dtype=torch.float64).view(1, -1, 1)
        weights = torch.ones(1, points, dtype=torch.float64)
        weights[:, [0, -1]] = 0.5
        return model(x, torch.sin(3 * x), weights=weights).detach()[0, :, 0]

    differences = [(on(n) - on(2 * n - 1)[::2]).abs().max().item() for n in (17, 33, 65)]
    assert differences[0] < 0.05
    assert math.log2(differences[0] / differences[1]) == pytest.approx(2, abs=0.25)
    assert math.log2(differences[1] / differences[2]) == pytest.approx(2, abs=0.25)


def test_has_the_parameters_of_the_published_network_for_darcy_flow() -> None:
    """762 113 in the public code, less the biases of the keys."""
    model = LNO(2, 1, 1)
    c, latents, blocks = 128, 256, 4
    residual = 2 * (c + 1) * c
    trunk, branch = ((k + 1) * c + residual + (c + 1) * c for k in (2, 3))
    attention, head = ((c + 1) * c + residual + (c + 1) * o for o in (latents, 1))
    block = 4 * (c + 1) * c + 2 * 2 * c + (c + 1) * 2 * c + (2 * c + 1) * c
    expected = trunk + branch + attention + head + blocks * block
    assert expected == 762_113
    assert sum(p.numel() for p in model.parameters()) == expected - blocks * c


def test_saving_and_loading_reproduces_results_exactly(generator: torch.Generator) -> None:
    saved, loaded = made(), made()
    for parameter in loaded.parameters():
        parameter.data += 0.1
    inputs = tuple(uniform(2, 9, k, generator=generator) for k in (2, 1))
    assert not torch.equal(saved(*inputs), loaded(*inputs))
    file = io.BytesIO()
    torch.save(saved.state_dict(), file)
    file.seek(0)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(saved(*inputs), loaded(*inputs))


@pytest.mark.usefixtures("as_a_user")  # for speed
def test_learns_a_map_that_needs_other_points() -> None:
    """A wave of unknown phase to its quarter period: no point can do it alone."""
    shift = torch.tensor([0.1, 0.4, 0.6, 0.9])[:, None]
    x = torch.arange(16) / 16
    phase = 2 * math.pi * (x + shift)
    positions, u, target = x.expand(4, -1).unsqueeze(-1), phase.sin()[..., None], phase.cos()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LNO(1, 1, 1, width=32, layers=1, latents=16, heads=4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=400)
    for _ in range(400):
        optimizer.zero_grad()
        out = model(positions, u)[..., 0]
        loss = ((out - target).norm(dim=-1) / target.norm(dim=-1)).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
    assert loss.item() < 0.05


def test_width_is_a_multiple_of_the_heads() -> None:
    with pytest.raises(ValueError, match="width: expected a multiple of heads=3, got 8"):
        made(heads=3)
