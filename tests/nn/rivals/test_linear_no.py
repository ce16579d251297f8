from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from funcattn.nn import Stencil
from funcattn.nn.rivals.flare import routed
from funcattn.nn.rivals.linear_no import LinearNOAttention
from funcattn.ops import Average, lift, projector

WIDTH, HEADS = 8, 2


def made(**options: object) -> LinearNOAttention:
    """A small layer in float64 with weights of order one, the same in every run."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        layer = LinearNOAttention(WIDTH, HEADS, bases=5, **options).double()
        for parameter in layer.parameters():
            if parameter.ndim >= 2:
                nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
            else:
                parameter += 0.1 * torch.randn_like(parameter)
    return layer


def random(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def assert_equal_to_rounding(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def affine(layer: nn.Linear, x: Tensor) -> Tensor:
    return x @ layer.weight.T + layer.bias


def obvious(layer: LinearNOAttention, x: Tensor, source: Tensor, weights: Tensor) -> Tensor:
    """One sample and one head at a time, with the matrices of the equation."""
    outs = []
    for one, other, w in zip(x, source, weights, strict=True):
        parts = []
        for h in range(HEADS):
            of_query, of_key = (
                affine(layer.features.map, p).chunk(HEADS, dim=-1)[h] for p in (one, other)
            )
            phi, psi = (of_query @ layer.query_map.T).exp(), (of_key @ layer.key_map.T).exp()
            phi = phi / phi.sum(1, keepdim=True)
            psi = torch.diag(w) @ psi
            psi = psi / psi.sum(0, keepdim=True)
            parts.append((phi @ psi.T) @ of_key)
        outs.append(affine(layer.to_output, torch.cat(parts, dim=-1)))
    return torch.stack(outs)


@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
def test_agrees_with_the_obvious_form_in_value_and_every_gradient(
    cross: bool, generator: torch.Generator
) -> None:
    layer = made()
    x = random(2, 11, WIDTH, generator=generator).requires_grad_()
    context = random(2, 9, WIDTH, generator=generator).requires_grad_()
    weights, there = (torch.rand(2, m, generator=generator).double() + 0.1 for m in (11, 9))
    mask = torch.ones(2, 11, dtype=torch.bool)
    mask[1, -2:] = False
    if cross:
        out = layer(x, context, weights=(weights, there), mask=(mask, None))
        expected = obvious(layer, x, context, there)
    else:
        out = layer(x, weights=weights, mask=mask)
        expected = obvious(layer, x, x, weights * mask)
    # What masked points get is of no meaning.
    out, expected = out[mask], expected[mask]
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-11)

    cotangent = random(*out.shape, generator=generator)
    named = {"x": x, **({"context": context} if cross else {}), **dict(layer.named_parameters())}
    ours, theirs = (
        torch.autograd.grad((result * cotangent).sum(), list(named.values()))
        for result in (out, expected)
    )
    for name, one, other in zip(named, ours, theirs, strict=True):
        assert (one - other).norm() <= 1e-10 * other.norm(), name
        assert other.norm() > 1e-6, name


def test_constant_fields_pass_through(generator: torch.Generator) -> None:
    """With features that differ from point to point in one channel of a head only."""
    layer, x = made(), random(2, 20, WIDTH, generator=generator)
    varying = torch.tensor([True, False, False, False] * HEADS)
    with torch.no_grad():
        layer.features.map.weight[~varying] = 0
    layer.to_output = nn.Identity()
    out = layer(x)
    constant = layer.features.map.bias[~varying]
    assert_equal_to_rounding(out[..., ~varying], constant.expand(2, 20, -1))
    assert out[..., varying].std(1).min() > 1e-3


def test_one_map_on_both_sides_is_transolver_with_point_weights(
    generator: torch.Generator,
) -> None:
    """The weights are the sums over the basis that softmax over the points does not divide by."""
    features, value = random(2, 2, 1, 15, 4, generator=generator)
    latents = random(1, 6, 4, generator=generator)
    scores = features @ latents.mT
    phi, sums = scores.softmax(-1), scores.exp().sum(-1, keepdim=True)

    def transolver(weights: Tensor) -> Tensor:
        """Its averages and back, without attention between them."""
        return lift(phi, projector(phi, Average(epsilon=0.0), weights=weights[:, 0, :, 0])(value))

    out = routed(latents, latents, features, features, value)
    assert_equal_to_rounding(out, transolver(sums))
    plain = transolver(torch.ones_like(sums))
    assert (out - plain).abs().max() > 1e-3
    weighted = routed(latents, latents, features, features, value, weights=1 / sums)
    assert_equal_to_rounding(weighted, plain)


def test_the_two_sides_have_maps_of_their_own(generator: torch.Generator) -> None:
    layer, x = made(), random(2, 20, WIDTH, generator=generator)
    out = layer(x)
    with torch.no_grad():
        layer.query_map.copy_(layer.key_map)
    assert (layer(x) - out).abs().max() > 1e-3


def test_both_maps_start_orthogonal() -> None:
    layer = LinearNOAttention(64, heads=4, bases=16)
    for start in (layer.query_map, layer.key_map):
        torch.testing.assert_close(start @ start.T, torch.eye(16), rtol=0, atol=1e-5)


class TestPointsAreASetWithWeights:
    def test_permuting_points_permutes_results(self, generator: torch.Generator) -> None:
        layer, x = made(), random(2, 20, WIDTH, generator=generator)
        order = torch.randperm(20, generator=generator)
        assert_equal_to_rounding(layer(x[:, order]), layer(x)[:, order])
        assert_equal_to_rounding(layer(x, x[:, order]), layer(x))

    def test_masking_points_is_dropping_them(self, generator: torch.Generator) -> None:
        layer, x = made(), random(3, 20, WIDTH, generator=generator)
        weights = torch.rand(3, 20, generator=generator).double() + 0.1
        mask = torch.rand(3, 20, generator=generator) < 0.6
        out = layer(x, weights=weights, mask=mask)
        garbage = layer(torch.where(mask[..., None], x, 50 * x + 1), weights=weights, mask=mask)
        assert_equal_to_rounding(garbage[mask], out[mask])
        for one, w, kept, result in zip(x, weights, mask, out, strict=True):
            alone = layer(one[kept][None], weights=w[kept][None])
            assert_equal_to_rounding(result[kept], alone[0])

    def test_weight_two_is_two_copies(self, generator: torch.Generator) -> None:
        layer, x = made(), random(2, 20, WIDTH, generator=generator)
        weights = torch.ones(2, 20, dtype=torch.float64)
        weights[:, :3] = 2
        weighted = layer(x, weights=weights)
        assert_equal_to_rounding(weighted, layer(torch.cat([x, x[:, :3]], dim=1))[:, :20])
        assert (weighted - layer(x)).abs().max() > 1e-3

    def test_only_ratios_of_weights_matter(self, generator: torch.Generator) -> None:
        layer, x = made(), random(2, 20, WIDTH, generator=generator)
        equal = torch.full((2, 20), 0.01, dtype=torch.float64)
        assert_equal_to_rounding(layer(x, weights=equal), layer(x))


def test_flops_are_linear_in_the_number_of_points() -> None:
    layer = made()

    def flops(n: int) -> int:
        # Fused kernels hide theirs.
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            layer(torch.zeros(1, n, WIDTH, dtype=torch.float64))
        return counter.get_total_flops()

    assert flops(400) - flops(200) == 2 * (flops(200) - flops(100)) > 0


class TestPrecision:
    def test_large_features_are_safe_in_float32(self, generator: torch.Generator) -> None:
        """Scores reach 1e5, and the exponential of 89 is too large already."""
        layer = made().float()
        x = (1e3 * torch.randn(2, 50, WIDTH, generator=generator)).requires_grad_()
        mask = torch.arange(50) < torch.tensor([[50], [41]])
        out = layer(x, mask=mask)
        assert out.isfinite().all()
        out.square().mean().backward()
        for name, tensor in {"x": x, **dict(layer.named_parameters())}.items():
            assert tensor.grad is not None, name
            assert tensor.grad.isfinite().all(), name

    @pytest.mark.parametrize("how", ["bfloat16", "autocast"])
    def test_bfloat16_and_autocast_stay_close_to_float64(
        self, how: str, generator: torch.Generator
    ) -> None:
        layer, x = made(), random(2, 300, WIDTH, generator=generator)
        mask = torch.arange(300) < torch.tensor([[300], [257]])
        exact = layer(x, mask=mask)
        if how == "bfloat16":
            out = layer.bfloat16()(x.bfloat16(), mask=mask)
            assert out.dtype == torch.bfloat16
        else:
            with torch.autocast("cpu", torch.bfloat16):
                out = layer.float()(x.float(), mask=mask)
        assert (out.double() - exact)[mask].norm() < 0.03 * exact[mask].norm()


class TestErrors:
    def test_width_is_a_multiple_of_heads(self) -> None:
        with pytest.raises(ValueError, match="width: expected a multiple of heads=3, got 8"):
            LinearNOAttention(8, heads=3)

    def test_a_stencil_does_not_go_with_a_context(self) -> None:
        layer = LinearNOAttention(WIDTH, HEADS, bases=5, features=partial(Stencil, reach=0.4))
        x = torch.zeros(2, 12, WIDTH)
        assert layer(x, grid=(3, 4)).shape == x.shape
        with pytest.raises(ValueError, match=r"grid: .*context"):
            layer(x, x.clone(), grid=(3, 4))

    def test_there_is_a_basis(self) -> None:
        with pytest.raises(ValueError, match="bases: expected at least 1, got 0"):
            LinearNOAttention(8, bases=0)
