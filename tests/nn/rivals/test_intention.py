from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from funcattn.nn import AdditiveRidge, Stencil
from funcattn.nn.rivals.intention import Intention, intention
from funcattn.ops import functional_attention

WIDTH, HEADS = 8, 2
RIDGES = {"fixed": lambda: 0.05, "learned a head": partial(AdditiveRidge, 0.05, heads=HEADS)}


def made(**options: object) -> Intention:
    """A small layer in float64 with weights of order one, the same in every run."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        layer = Intention(WIDTH, HEADS, **options).double()
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


def heads_of(layer: nn.Module, x: Tensor) -> list[Tensor]:
    return list((x @ layer.map.weight.T + layer.map.bias).chunk(HEADS, dim=-1))


def obvious(layer: Intention, x: Tensor, source: Tensor, weights: Tensor) -> Tensor:
    """One sample and one head at a time, with the matrices of the equation."""
    strength = layer.ridge
    if isinstance(strength, AdditiveRidge):
        strength = strength.log_strength.exp()
    strength = strength * torch.ones(HEADS, dtype=x.dtype)
    outs = []
    for one, other, w in zip(x, source, weights, strict=True):
        share = torch.diag(w / w.sum())
        parts = []
        for h in range(HEADS):
            q = heads_of(layer.to_query, one)[h]
            k, v = (heads_of(m, other)[h] for m in (layer.to_key, layer.to_value))
            system = k.T @ share @ k + strength[h] * torch.eye(k.shape[1], dtype=x.dtype)
            parts.append(q @ torch.linalg.inv(system) @ k.T @ share @ v)
        joined = torch.cat(parts, dim=-1)
        outs.append(joined @ layer.to_output.weight.T + layer.to_output.bias)
    return torch.stack(outs)


@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("few", [False, True], ids=["many keys", "fewer keys than channels"])
def test_agrees_with_the_obvious_form_in_value_and_every_gradient(
    ridge: str, cross: bool, few: bool, generator: torch.Generator
) -> None:
    layer = made(ridge=RIDGES[ridge]())
    n, m = (3, 2) if few else (11, 9)
    x = random(2, n, WIDTH, generator=generator).requires_grad_()
    context = random(2, m, WIDTH, generator=generator).requires_grad_()
    weights, there = (torch.rand(2, k, generator=generator).double() + 0.1 for k in (n, m))
    mask = torch.ones(2, n, dtype=torch.bool)
    mask[1, -1] = False
    if cross:
        out = layer(x, context, weights=(weights, there), mask=(mask, None))
        expected = obvious(layer, x, context, there)
    else:
        out = layer(x, weights=weights, mask=mask)
        expected = obvious(layer, x, x, weights * mask)
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
@pytest.mark.parametrize("m", [2, 7])
def test_gradcheck(weighted: bool, m: int, generator: torch.Generator) -> None:
    query, key, value = (
        random(2, 2, k, e, generator=generator).requires_grad_()
        for k, e in ((5, 3), (m, 3), (m, 4))
    )
    ridge = torch.tensor([0.1, 0.3], dtype=torch.float64, requires_grad=True)
    weights = torch.rand(2, 1, m, 1, generator=generator).double() if weighted else None
    assert torch.autograd.gradcheck(
        lambda q, k, v, r: intention(q, k, v, ridge=r, weights=weights), (query, key, value, ridge)
    )


class TestLeastSquares:
    def test_is_the_regression_of_values_on_keys_at_the_queries(
        self, generator: torch.Generator
    ) -> None:
        query, key, value = (
            random(1, 1, k, e, generator=generator) for k, e in ((5, 4), (30, 4), (30, 3))
        )
        coefficients, *_ = np.linalg.lstsq(key[0, 0].numpy(), value[0, 0].numpy(), rcond=None)
        out = intention(query, key, value, ridge=1e-12)
        # The ridge and the rounding beside it are 1e-12, the Gram matrix is of order 30.
        np.testing.assert_allclose(out[0, 0], query[0, 0].numpy() @ coefficients, atol=1e-11)

    def test_a_ridge_is_so_many_observations_of_zero(self, generator: torch.Generator) -> None:
        query, key, value = (
            random(1, 1, k, e, generator=generator) for k, e in ((5, 4), (30, 4), (30, 3))
        )
        keys = np.concatenate([key[0, 0], np.sqrt(0.7) * np.eye(4)])
        values = np.concatenate([value[0, 0], np.zeros((4, 3))])
        coefficients, *_ = np.linalg.lstsq(keys, values, rcond=None)
        out = intention(query, key, value, ridge=0.7)
        np.testing.assert_allclose(out[0, 0], query[0, 0].numpy() @ coefficients, atol=1e-12)

    def test_returns_the_values_where_queries_are_keys_and_few(
        self, generator: torch.Generator
    ) -> None:
        key, value = (
            random(2, 3, 4, 6, generator=generator),
            random(2, 3, 4, 5, generator=generator),
        )
        torch.testing.assert_close(
            intention(key, key, value, ridge=1e-11), value, rtol=0, atol=1e-8
        )

    def test_is_linear_in_the_values(self, generator: torch.Generator) -> None:
        query, key = (random(2, 3, k, 4, generator=generator) for k in (5, 9))
        one, other = random(2, 2, 3, 9, 4, generator=generator)
        carried = partial(intention, query, key, ridge=0.1)
        assert_equal_to_rounding(carried(2 * one - other), 2 * carried(one) - carried(other))

    def test_is_functional_attention_with_the_points_as_basis(
        self, generator: torch.Generator
    ) -> None:
        query, key, value = (random(2, 3, 6, 4, generator=generator) for _ in range(3))
        points = torch.eye(6, dtype=torch.float64)[None, None]
        expected = functional_attention(
            query, key, value, points, points, ridge=0.1, projection="transpose"
        )
        out = intention(query, key, value, ridge=0.1)
        # 10 eps of the trace 24 are added to the ridge.
        torch.testing.assert_close(out, expected, rtol=1e-11, atol=1e-11)


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
        with FlopCounterMode(display=False) as counter:
            layer(torch.zeros(1, n, WIDTH, dtype=torch.float64))
        return counter.get_total_flops()

    assert flops(400) - flops(200) == 2 * (flops(200) - flops(100)) > 0


class TestPrecision:
    @pytest.mark.parametrize("rank", [1, 3, 16], ids=lambda rank: f"rank {rank}")
    def test_large_keys_of_any_rank_are_safe_in_float32(
        self, rank: int, generator: torch.Generator
    ) -> None:
        """The Gram matrix reaches 1e10, where the ridge is far below its rounding."""
        key = torch.randn(2, 2, 5000, rank, generator=generator) @ torch.randn(
            rank, 16, generator=generator
        )
        key = (1e3 * key).requires_grad_()
        out = intention(key, key, key, ridge=1e-3)
        # Values that depend linearly on the keys are found, whatever the rank.
        assert (out - key).norm() < 1e-3 * key.norm()
        out.square().mean().backward()
        assert key.grad is not None
        assert key.grad.isfinite().all()

    @pytest.mark.parametrize("how", ["bfloat16", "autocast"])
    def test_bfloat16_and_autocast_stay_close_to_float64(
        self, how: str, generator: torch.Generator
    ) -> None:
        layer, x = made(ridge=0.1), random(2, 300, WIDTH, generator=generator)
        mask = torch.arange(300) < torch.tensor([[300], [257]])
        exact = layer(x, mask=mask)
        if how == "bfloat16":
            out = layer.bfloat16()(x.bfloat16(), mask=mask)
            assert out.dtype == torch.bfloat16
        else:
            with torch.autocast("cpu", torch.bfloat16):
                out = layer.float()(x.float(), mask=mask)
        assert (out.double() - exact).norm() < 0.03 * exact.norm()


class TestErrors:
    @pytest.mark.parametrize("ridge", [0.0, -1.0, float("inf"), float("nan")])
    def test_a_ridge_is_finite_and_positive(self, ridge: float) -> None:
        with pytest.raises(ValueError, match="ridge: expected a finite number greater than 0"):
            Intention(WIDTH, HEADS, ridge=ridge)

    def test_width_is_a_multiple_of_heads(self) -> None:
        with pytest.raises(ValueError, match="width: expected a multiple of heads=3, got 8"):
            Intention(8, heads=3)

    def test_a_stencil_does_not_go_with_a_context(self) -> None:
        layer = Intention(WIDTH, HEADS, features=partial(Stencil, reach=0.4))
        x = torch.zeros(2, 12, WIDTH)
        assert layer(x, grid=(3, 4)).shape == x.shape
        with pytest.raises(ValueError, match=r"grid: .*context"):
            layer(x, x.clone(), grid=(3, 4))
