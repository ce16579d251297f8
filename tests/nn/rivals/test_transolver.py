from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from funcattn.models import OperatorTransformer
from funcattn.nn import LearnedBasis, Stencil
from funcattn.nn.rivals.transolver import TransolverAttention

WIDTH, HEADS = 8, 2


def made(**options: object) -> TransolverAttention:
    """A small layer in float64 with weights of order one, the same in every run."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        layer = TransolverAttention(WIDTH, HEADS, bases=5, **options).double()
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


def obvious(
    layer: TransolverAttention, x: Tensor, source: Tensor, weights: Tensor, there: Tensor
) -> Tensor:
    """One sample and one head at a time, with the matrices of the equation."""

    def basis_and_coefficients(points: Tensor, w: Tensor, h: int) -> tuple[Tensor, Tensor]:
        features = affine(layer.basis.features.map, points).chunk(HEADS, dim=-1)[h]
        scores = affine(layer.basis.scores, features) / layer.basis.temperature[h].clamp(0.1, 5)
        phi = scores.exp() / scores.exp().sum(1, keepdim=True)
        mass = phi.T @ w
        field = affine(layer.features.map, points).chunk(HEADS, dim=-1)[h]
        stabilised = mass + 1e-8 * mass.mean()
        return phi, torch.diag(1 / stabilised) @ phi.T @ torch.diag(w) @ field

    outs = []
    for one, other, w, u in zip(x, source, weights, there, strict=True):
        parts = []
        for h in range(HEADS):
            phi, of_query = basis_and_coefficients(one, w, h)
            _, of_key = basis_and_coefficients(other, u, h)
            q, k, v = (
                c @ m.weight.T
                for c, m in (
                    (of_query, layer.to_query),
                    (of_key, layer.to_key),
                    (of_key, layer.to_value),
                )
            )
            grown = (q @ k.T / q.shape[1] ** 0.5).exp()
            parts.append(phi @ (grown / grown.sum(1, keepdim=True)) @ v)
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
        expected = obvious(layer, x, context, weights * mask, there)
    else:
        out = layer(x, weights=weights, mask=mask)
        expected = obvious(layer, x, x, weights * mask, weights * mask)
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
    """Averages, softmax and the partition of unity all keep constants."""
    layer, x = made(), random(2, 20, WIDTH, generator=generator)
    with torch.no_grad():
        layer.features.map.weight.zero_()
        layer.to_output.weight.copy_(torch.eye(WIDTH))
        layer.to_output.bias.zero_()
    constant = layer.features.map.bias.unflatten(0, (HEADS, -1)) @ layer.to_value.weight.T
    # Averages are over mass (1 + 1e-8).
    out = layer(x)
    torch.testing.assert_close(out, constant.flatten().expand_as(out), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("bases", [1, 4])
def test_rank_of_the_map_between_points_is_at_most_the_number_of_bases(
    bases: int, generator: torch.Generator
) -> None:
    layer, x = TransolverAttention(32, 1, bases).double(), random(1, 20, 32, generator=generator)
    layer.to_output = nn.Identity()
    assert torch.linalg.matrix_rank(layer(x)[0]) <= bases


def test_the_basis_is_shared_on_request(generator: torch.Generator) -> None:
    attention = partial(TransolverAttention, heads=HEADS, bases=5)
    model = OperatorTransformer(
        2, 1, 1, width=WIDTH, layers=2, attention=attention, share_basis=True
    )
    first, second = (block.attention for block in model.blocks)
    assert second.basis is first.basis
    assert second.features is first.features
    assert second.to_query is not first.to_query
    positions, values = torch.rand(2, 30, 3, generator=generator).split([2, 1], dim=-1)
    model(positions, values).square().mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_given_basis_and_projection_are_used(generator: torch.Generator) -> None:
    x = random(2, 20, WIDTH, generator=generator)
    basis = LearnedBasis(WIDTH, HEADS, 3, temperature=0.1).double()
    assert made(basis=basis).basis is basis
    summed, averaged = made(projection="transpose"), made()
    assert (summed(x) - averaged(x)).abs().max() > 1e-3


def test_masked_points_receive_the_bias_of_the_last_map_only(generator: torch.Generator) -> None:
    layer, x = made(), random(2, 20, WIDTH, generator=generator)
    mask = torch.arange(20) < torch.tensor([[20], [13]])
    out = layer(x, mask=mask)[~mask]
    assert_equal_to_rounding(out, layer.to_output.bias.expand_as(out))


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
            TransolverAttention(8, heads=3)

    def test_a_stencil_does_not_go_with_a_context(self) -> None:
        layer = TransolverAttention(WIDTH, HEADS, bases=5, features=partial(Stencil, reach=0.4))
        x = torch.zeros(2, 12, WIDTH)
        assert layer(x, grid=(3, 4)).shape == x.shape
        with pytest.raises(ValueError, match=r"grid: .*context"):
            layer(x, x.clone(), grid=(3, 4))
