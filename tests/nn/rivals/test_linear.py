import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn import Points
from funcattn.nn.rivals.linear import LinearAttention, kernel_attention, log_elu_plus_one

WIDTH, HEADS = 8, 2


def made(**options: object) -> LinearAttention:
    """A small layer in float64, the same in every run, with parameters of order one."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        layer = LinearAttention(WIDTH, HEADS, **options).double()
        for parameter in layer.parameters():
            parameter += torch.randn_like(parameter) / 2
    return layer


def random(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def uniform(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=generator)


def assert_equal_to_rounding(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def heads_of(feature_map: nn.Module, x: Tensor) -> Tensor:
    mapped = torch.einsum("ki,bni->bnk", feature_map.map.weight, x) + feature_map.map.bias
    return torch.stack(mapped.chunk(HEADS, dim=-1), dim=1)


def assert_same_value_and_gradients(
    out: Tensor, expected: Tensor, named: dict[str, Tensor], generator: torch.Generator
) -> None:
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-11)
    cotangent = random(*out.shape, generator=generator)
    ours, theirs = (
        torch.autograd.grad((result * cotangent).sum(), list(named.values()))
        for result in (out, expected)
    )
    for name, one, other in zip(named, ours, theirs, strict=True):
        assert other.any(), name
        assert (one - other).norm() < 1e-10 * other.norm(), name


def dense(query: Tensor, key: Tensor, value: Tensor, weights: Tensor) -> Tensor:
    """The matrix of all pairs, its rows normalised; weights (b m)."""
    kernel = (F.elu(query) + 1) @ (F.elu(key) + 1).mT * weights[:, None, None, :]
    return (kernel / kernel.sum(-1, keepdim=True)) @ value


@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("masked", [False, True], ids=["all points", "masked"])
@pytest.mark.parametrize("weighted", [False, True], ids=["alike", "weighted"])
def test_agrees_with_the_dense_form_in_value_and_every_gradient(
    cross: bool, masked: bool, weighted: bool, generator: torch.Generator
) -> None:
    layer = made()
    x = random(2, 7, WIDTH, generator=generator).requires_grad_()
    context = random(2, 5, WIDTH, generator=generator).requires_grad_() if cross else None
    source = x if context is None else context
    weights = uniform(*source.shape[:2], generator=generator) + 0.1 if weighted else None
    mask = torch.arange(source.shape[1]) < torch.tensor([[4], [3]]) if masked else None
    out = layer(
        x,
        context,
        mask=(None, mask) if cross else mask,
        weights=(None, weights) if cross else weights,
    )
    effective = torch.ones(source.shape[:2], dtype=torch.float64)
    effective = effective if weights is None else effective * weights
    effective = effective if mask is None else effective * mask
    heads = dense(
        heads_of(layer.to_query, x),
        heads_of(layer.to_key, source),
        heads_of(layer.to_value, source),
        effective,
    )
    expected = torch.cat(heads.unbind(1), dim=-1) @ layer.to_output.weight.T + layer.to_output.bias
    named = {"x": x, **({"context": source} if cross else {}), **dict(layer.named_parameters())}
    assert_same_value_and_gradients(out, expected, named, generator)


class TestKernelAttention:
    @pytest.mark.parametrize("weighted", [False, True], ids=["alike", "weighted"])
    def test_its_gradients_are_those_of_finite_differences(
        self, weighted: bool, generator: torch.Generator
    ) -> None:
        log_query = random(2, 1, 4, 3, generator=generator).requires_grad_()
        log_key = random(2, 1, 5, 3, generator=generator).requires_grad_()
        value = random(2, 1, 5, 2, generator=generator).requires_grad_()
        inputs = [log_query, log_key, value]
        if weighted:
            inputs.append((uniform(2, 1, 5, 1, generator=generator) + 0.1).requires_grad_())
        assert torch.autograd.gradcheck(kernel_attention, inputs)

    def test_it_is_linear_in_the_values(self, generator: torch.Generator) -> None:
        log_query, log_key = random(2, 2, 1, 6, 3, generator=generator)
        one, other = random(2, 2, 1, 6, 4, generator=generator)
        both = kernel_attention(log_query, log_key, 2 * one - 3 * other)
        apart = [kernel_attention(log_query, log_key, value) for value in (one, other)]
        assert_equal_to_rounding(both, 2 * apart[0] - 3 * apart[1])

    def test_a_constant_stays_what_it_is(self, generator: torch.Generator) -> None:
        log_query, log_key = 5 * random(2, 2, 1, 6, 3, generator=generator)
        value = torch.ones(2, 1, 6, 4, dtype=torch.float64)
        assert_equal_to_rounding(kernel_attention(log_query, log_key, value), value)

    def test_features_of_any_size_are_exact_in_float32(self, generator: torch.Generator) -> None:
        # exp of these neither fits into float32 nor into float64; the sums are taken in exponents.
        log_query = 1e3 * random(1, 1, 6, 3, generator=generator)
        log_key = 1e3 * random(1, 1, 5, 3, generator=generator)
        value = random(1, 1, 5, 2, generator=generator)
        scores = (log_query.unsqueeze(-2) + log_key.unsqueeze(-3)).logsumexp(-1)
        expected = scores.softmax(-1) @ value
        out = kernel_attention(log_query.float(), log_key.float(), value.float())
        torch.testing.assert_close(out.double(), expected, rtol=0, atol=1e-3)


class TestFeatures:
    def test_they_are_the_logarithm_of_elu_plus_one(self) -> None:
        x = torch.linspace(-5, 5, 101, dtype=torch.float64)
        assert_equal_to_rounding(log_elu_plus_one(x), (F.elu(x) + 1).log())

    def test_they_are_exponents_and_not_shortened(self) -> None:
        x = torch.tensor([-100.5, 300.0], dtype=torch.bfloat16)
        out = log_elu_plus_one(x)
        assert out.dtype == torch.float32
        torch.testing.assert_close(out, torch.stack([x[0].float(), x[1].float().log1p()]))

    def test_their_slope_is_one_at_zero_and_finite_everywhere(self) -> None:
        x = torch.tensor([-1e4, -1.0, 0.0, 1.0, 1e4], dtype=torch.float64, requires_grad=True)
        log_elu_plus_one(x).sum().backward()
        slopes = torch.tensor([1, 1, 1, 1 / 2, 1 / (1 + 1e4)], dtype=torch.float64)
        assert_equal_to_rounding(x.grad, slopes)


class TestPointsAreASetWithWeights:
    def test_masked_points_are_dropped(self, generator: torch.Generator) -> None:
        layer, x = made(), random(2, 9, WIDTH, generator=generator)
        mask = torch.rand(9, generator=generator) < 0.6
        weights = uniform(2, 9, generator=generator)
        out = layer(x, mask=mask.expand(2, 9), weights=weights)[:, mask]
        assert_equal_to_rounding(out, layer(x[:, mask], weights=weights[:, mask]))

    def test_what_stands_at_masked_points_does_not_matter(self, generator: torch.Generator) -> None:
        layer, x = made(), random(2, 9, WIDTH, generator=generator)
        mask = torch.arange(9) < torch.tensor([[9], [4]])
        changed = torch.where(mask[..., None], x, 1e6)
        out, other = layer(x, mask=mask), layer(changed, mask=mask)
        assert_equal_to_rounding(out[mask], other[mask])
        assert_equal_to_rounding(out[1:, :4], layer(x[1:, :4]))

    @pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
    def test_weight_two_is_two_copies(self, cross: bool, generator: torch.Generator) -> None:
        layer, x = made(), random(2, 9, WIDTH, generator=generator)
        weights = torch.ones(2, 9, dtype=torch.float64)
        weights[:, :3] = 2
        copied = torch.cat([x, x[:, :3]], dim=1)
        if cross:
            weighted = layer(x, x.flip(1), weights=(None, weights.flip(1)))
            assert_equal_to_rounding(weighted, layer(x, copied))
        else:
            weighted = layer(x, weights=weights)
            assert_equal_to_rounding(weighted, layer(copied)[:, :9])
        assert (weighted - layer(x)).abs().max() > 1e-3

    def test_permuting_points_permutes_results(self, generator: torch.Generator) -> None:
        layer, x = made(), random(2, 9, WIDTH, generator=generator)
        weights, order = uniform(2, 9, generator=generator), torch.randperm(9, generator=generator)
        permuted = layer(x[:, order], weights=weights[:, order])
        assert_equal_to_rounding(permuted, layer(x, weights=weights)[:, order])


@pytest.mark.parametrize("sign", [1, -1], ids=["positive", "negative"])
def test_large_features_neither_overflow_nor_vanish(sign: int, generator: torch.Generator) -> None:
    # In float32 elu(-1e3) + 1 is 0 for every channel, and so would be the denominator.
    layer = made().float()
    query, key = sign * 1e3 * (1 + random(2, 2, HEADS, 6, 4, generator=generator).float().abs())
    value = random(2, HEADS, 6, 4, generator=generator).float()
    query.requires_grad_()
    out = layer.combine(query, key, value, Points(), Points())
    assert ((value.amin(-2, keepdim=True) <= out) & (out <= value.amax(-2, keepdim=True))).all()
    out.square().sum().backward()
    assert query.grad.isfinite().all()


def test_under_autocast_it_stays_close_to_float64(generator: torch.Generator) -> None:
    layer, x = made(), random(2, 20, WIDTH, generator=generator)
    weights, mask = uniform(2, 20, generator=generator), torch.arange(20).expand(2, 20) < 15
    exact = layer(x, weights=weights, mask=mask)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer.float()(x.float(), weights=weights.float(), mask=mask)
    assert ((out - exact).norm() / exact.norm()).item() < 0.03
    (out * out).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


def test_no_matrix_of_all_pairs_is_made() -> None:
    # It would have 10^10 entries.
    with torch.no_grad():
        out = LinearAttention(WIDTH, HEADS)(torch.ones(1, 100_000, WIDTH))
    assert out.isfinite().all()


def test_width_is_a_multiple_of_heads() -> None:
    with pytest.raises(ValueError, match="width: expected a multiple of heads=3, got 8"):
        LinearAttention(8, heads=3)
