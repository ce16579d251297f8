from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from funcattn.nn import Stencil
from funcattn.nn.rivals.perceiver import PerceiverAttention

WIDTH, HEADS = 8, 2


def made(**options: object) -> PerceiverAttention:
    """A small layer in float64 with weights of order one, the same in every run."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        layer = PerceiverAttention(WIDTH, HEADS, latents=5, **options).double()
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


def softmax_attention(query: Tensor, key: Tensor, value: Tensor, w: Tensor) -> Tensor:
    """Of all heads, side by side, each key counted w times."""
    parts = []
    for q, k, v in zip(*(t.chunk(HEADS, dim=-1) for t in (query, key, value)), strict=True):
        grown = (q @ k.T / q.shape[1] ** 0.5).exp() * w
        parts.append(grown / grown.sum(1, keepdim=True) @ v)
    return torch.cat(parts, dim=-1)


def normalised(layer: nn.LayerNorm, z: Tensor) -> Tensor:
    centred = z - z.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.weight + (
        layer.bias
    )


def obvious(layer: PerceiverAttention, x: Tensor, source: Tensor, weights: Tensor) -> Tensor:
    """One sample at a time."""
    alike = torch.ones(len(layer.latents), dtype=x.dtype)
    outs = []
    for one, other, w in zip(x, source, weights, strict=True):
        asked = affine(layer.latent_query, normalised(layer.start_norm, layer.latents))
        key, value = (affine(m.map, other) for m in (layer.to_key, layer.to_value))
        z = layer.latents + affine(layer.to_latents, softmax_attention(asked, key, value, w))
        for inner in layer.layers:
            u = normalised(inner.attention_norm, z)
            query, key = affine(inner.to_query, u), u @ inner.to_key.weight.T
            value = affine(inner.to_value, u)
            z = z + affine(inner.to_output, softmax_attention(query, key, value, alike))
            hidden = affine(inner.mlp[0], normalised(inner.mlp_norm, z))
            hidden = hidden * (1 + torch.erf(hidden / 2**0.5)) / 2
            z = z + affine(inner.mlp[2], hidden)
        z = normalised(layer.latent_norm, z)
        query = affine(layer.to_query.map, one)
        key, value = z @ layer.latent_key.weight.T, affine(layer.latent_value, z)
        outs.append(affine(layer.to_output, softmax_attention(query, key, value, alike)))
    return torch.stack(outs)


@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("depth", [0, 2], ids=["no latent layers", "two latent layers"])
def test_agrees_with_the_obvious_form_in_value_and_every_gradient(
    cross: bool, depth: int, generator: torch.Generator
) -> None:
    layer = made(depth=depth)
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
        if name == "to_key.map.bias":  # shifts all scores of a latent alike
            assert max(one.norm(), other.norm()) < 1e-12
            continue
        assert (one - other).norm() <= 1e-10 * other.norm(), name
        assert other.norm() > 1e-6, name


def test_points_that_ask_alike_receive_alike(generator: torch.Generator) -> None:
    """All that reaches a point goes through the latents and its own query."""
    layer, x = made(depth=1), random(2, 20, WIDTH, generator=generator)
    x[:, 7] = x[:, 3]
    out = layer(x)
    assert_equal_to_rounding(out[:, 7], out[:, 3])
    moved = x.clone()
    moved[:, 0] += 1
    assert ((layer(moved) - out)[:, 1:].abs().amax(-1) > 1e-6).all()


def test_the_latents_start_apart_and_read_differently(generator: torch.Generator) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = PerceiverAttention(32, heads=2, latents=6)
    assert layer.latents.std().item() == pytest.approx(0.02, rel=0.3)
    seen = []
    layer.to_latents.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    layer(torch.randn(1, 50, 32, generator=generator))
    assert torch.pdist(seen[0][0]).min() > 1e-3


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
            PerceiverAttention(8, heads=3)

    def test_a_stencil_does_not_go_with_a_context(self) -> None:
        layer = PerceiverAttention(WIDTH, HEADS, latents=5, features=partial(Stencil, reach=0.4))
        x = torch.zeros(2, 12, WIDTH)
        assert layer(x, grid=(3, 4)).shape == x.shape
        with pytest.raises(ValueError, match=r"grid: .*context"):
            layer(x, x.clone(), grid=(3, 4))

    def test_there_is_a_latent(self) -> None:
        with pytest.raises(ValueError, match="latents: expected at least 1, got 0"):
            PerceiverAttention(8, latents=0)

    def test_depth_is_not_negative(self) -> None:
        with pytest.raises(ValueError, match="depth: expected 0 or more latent layers, got -1"):
            PerceiverAttention(8, depth=-1)
