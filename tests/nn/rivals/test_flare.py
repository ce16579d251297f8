from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from funcattn.nn import Stencil
from funcattn.nn.rivals.flare import FlareAttention, ResidualMlp, routed

WIDTH, HEADS = 8, 2


def made(**options: object) -> FlareAttention:
    """A small layer in float64 with weights of order one, the same in every run."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        layer = FlareAttention(WIDTH, HEADS, latents=5, **options).double()
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


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2


def network(layer: ResidualMlp, x: Tensor) -> Tensor:
    for m in (layer.first.map, *layer.hidden):
        x = x + gelu(affine(m, x))
    return x + affine(layer.last, x)


def mixing(latents: Tensor, points: Tensor, key: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """W_dec and W_enc of one head."""
    encode, decode = (latents @ key.T).exp() * w, (points @ latents.T).exp()
    return decode / decode.sum(1, keepdim=True), encode / encode.sum(1, keepdim=True)


def obvious(layer: FlareAttention, x: Tensor, source: Tensor, weights: Tensor) -> Tensor:
    """One sample and one head at a time, with the n x m matrix."""
    outs = []
    for one, other, w in zip(x, source, weights, strict=True):
        points, key = (network(layer.to_key, p).chunk(HEADS, dim=-1) for p in (one, other))
        value = network(layer.to_value, other).chunk(HEADS, dim=-1)
        parts = []
        for h in range(HEADS):
            decode, encode = mixing(layer.latents[h], points[h], key[h], w)
            parts.append((decode @ encode) @ value[h])
        outs.append(affine(layer.to_output, torch.cat(parts, dim=-1)))
    return torch.stack(outs)


@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("depth", [0, 3])
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
        assert (one - other).norm() <= 1e-10 * other.norm(), name
        assert other.norm() > 1e-6, name


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_gradcheck(weighted: bool, generator: torch.Generator) -> None:
    inputs = [
        random(*shape, generator=generator).requires_grad_()
        for shape in ((2, 3, 4), (2, 3, 4), (2, 2, 5, 4), (2, 2, 6, 4), (2, 2, 6, 2))
    ]
    weights = torch.rand(2, 1, 6, 1, generator=generator).double() + 0.1 if weighted else None
    assert torch.autograd.gradcheck(lambda *given: routed(*given, weights=weights), inputs)


class TestTheMatrixBetweenThePoints:
    @pytest.fixture
    def matrix(self, generator: torch.Generator) -> Tensor:
        """W of three heads with four latents, from its action on the unit vectors."""
        latents, points, key = (
            random(*shape, generator=generator)
            for shape in ((3, 4, 6), (2, 3, 15, 6), (2, 3, 12, 6))
        )
        identity = torch.eye(12, dtype=torch.float64).expand(2, 3, 12, 12)
        weights = torch.rand(2, 1, 12, 1, generator=generator).double()
        return routed(latents, latents, points, key, identity, weights=weights)

    def test_has_as_many_ranks_as_latents(self, matrix: Tensor) -> None:
        assert (torch.linalg.matrix_rank(matrix) == 4).all()

    def test_is_stochastic(self, matrix: Tensor) -> None:
        assert (matrix > 0).all()
        assert_equal_to_rounding(matrix.sum(-1), torch.ones(2, 3, 15, dtype=torch.float64))


def test_each_head_has_latents_of_its_own(generator: torch.Generator) -> None:
    layer, x = made(), random(2, 20, WIDTH, generator=generator)
    layer.to_output = nn.Identity()
    before = layer(x)
    with torch.no_grad():
        layer.latents[1] += 1
    first, second = (layer(x) - before).abs().amax((0, 1)).chunk(HEADS)
    assert not first.any()
    assert (second > 1e-6).all()


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
            FlareAttention(8, heads=3)

    def test_a_stencil_does_not_go_with_a_context(self) -> None:
        layer = FlareAttention(WIDTH, HEADS, latents=5, features=partial(Stencil, reach=0.4))
        x = torch.zeros(2, 12, WIDTH)
        assert layer(x, grid=(3, 4)).shape == x.shape
        with pytest.raises(ValueError, match=r"grid: .*context"):
            layer(x, x.clone(), grid=(3, 4))

    def test_there_is_a_latent(self) -> None:
        with pytest.raises(ValueError, match="latents: expected at least 1 a head, got 0"):
            FlareAttention(8, latents=0)

    def test_depth_is_not_negative(self) -> None:
        with pytest.raises(ValueError, match="depth: expected 0 or more hidden layers, got -1"):
            FlareAttention(8, depth=-1)
