from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from funcattn.nn import Points
from funcattn.nn.baselines.linear import LinearAttention, kernel_attention, log_elu_plus_one

HEADS = 2


def dense(query: Tensor, key: Tensor, value: Tensor, weights: Tensor, **_: object) -> Tensor:
    """The matrix of all pairs, its rows normalised."""
    kernel = (F.elu(query) + 1) @ (F.elu(key) + 1).T * weights
    return (kernel / kernel.sum(-1, keepdim=True)) @ value


def test_agrees_with_the_dense_form_in_value_and_every_gradient(compared: Any, made: Any) -> None:
    compared.by_heads(made(LinearAttention), dense)


class TestKernelAttention:
    def test_its_gradients_are_those_of_finite_differences(
        self, weighted: bool, random: Any, uniform: Any
    ) -> None:
        inputs = [random(2, 1, 4, 3), random(2, 1, 5, 3), random(2, 1, 5, 2)]
        if weighted:
            inputs.append(uniform(2, 1, 5, 1) + 0.1)
        assert torch.autograd.gradcheck(kernel_attention, [t.requires_grad_() for t in inputs])

    def test_it_is_linear_in_the_values(self, random: Any, assert_equal_to_rounding: Any) -> None:
        log_query, log_key = random(2, 2, 1, 6, 3)
        one, other = random(2, 2, 1, 6, 4)
        both = kernel_attention(log_query, log_key, 2 * one - 3 * other)
        apart = [kernel_attention(log_query, log_key, value) for value in (one, other)]
        assert_equal_to_rounding(both, 2 * apart[0] - 3 * apart[1])

    def test_a_constant_stays_what_it_is(self, random: Any, assert_equal_to_rounding: Any) -> None:
        log_query, log_key = 5 * random(2, 2, 1, 6, 3)
        value = torch.ones(2, 1, 6, 4, dtype=torch.float64)
        assert_equal_to_rounding(kernel_attention(log_query, log_key, value), value)

    def test_features_of_any_size_are_exact_in_float32(self, random: Any) -> None:
        # exp of these neither fits into float32 nor into float64; the sums are taken in exponents.
        log_query, log_key = 1e3 * random(1, 1, 6, 3), 1e3 * random(1, 1, 5, 3)
        value = random(1, 1, 5, 2)
        scores = (log_query.unsqueeze(-2) + log_key.unsqueeze(-3)).logsumexp(-1)
        expected = scores.softmax(-1) @ value
        out = kernel_attention(log_query.float(), log_key.float(), value.float())
        torch.testing.assert_close(out.double(), expected, rtol=0, atol=1e-3)


class TestFeatures:
    def test_they_are_the_logarithm_of_elu_plus_one(self, assert_equal_to_rounding: Any) -> None:
        x = torch.linspace(-5, 5, 101, dtype=torch.float64)
        assert_equal_to_rounding(log_elu_plus_one(x), (F.elu(x) + 1).log())

    def test_they_are_exponents_and_not_shortened(self) -> None:
        x = torch.tensor([-100.5, 300.0], dtype=torch.bfloat16)
        out = log_elu_plus_one(x)
        assert out.dtype == torch.float32
        torch.testing.assert_close(out, torch.stack([x[0].float(), x[1].float().log1p()]))

    def test_their_slope_is_one_at_zero_and_finite_everywhere(
        self, assert_equal_to_rounding: Any
    ) -> None:
        x = torch.tensor([-1e4, -1.0, 0.0, 1.0, 1e4], dtype=torch.float64, requires_grad=True)
        log_elu_plus_one(x).sum().backward()
        slopes = torch.tensor([1, 1, 1, 1 / 2, 1 / (1 + 1e4)], dtype=torch.float64)
        assert_equal_to_rounding(x.grad, slopes)


@pytest.mark.parametrize("sign", [1, -1], ids=["positive", "negative"])
def test_large_features_neither_overflow_nor_vanish(sign: int, made: Any, random: Any) -> None:
    # In float32 elu(-1e3) + 1 is 0 for every channel, and so would be the denominator.
    layer = made(LinearAttention).float()
    query, key = sign * 1e3 * (1 + random(2, 2, HEADS, 6, 4).float().abs())
    value = random(2, HEADS, 6, 4).float()
    query.requires_grad_()
    out = layer.combine(query, key, value, Points(), Points())
    assert ((value.amin(-2, keepdim=True) <= out) & (out <= value.amax(-2, keepdim=True))).all()
    out.square().sum().backward()
    assert query.grad.isfinite().all()
