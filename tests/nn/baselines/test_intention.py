from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from funcattn.nn import AdditiveRidge
from funcattn.nn.baselines.intention import Intention, intention
from funcattn.ops import functional_attention

WIDTH, HEADS = 8, 2
RIDGES = {"fixed": lambda: 0.05, "learned a head": partial(AdditiveRidge, 0.05, heads=HEADS)}


def obvious(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: Tensor,
    *,
    layer: Intention,
    head: int,
    **_: object,
) -> Tensor:
    """With the matrices of the equation."""
    ridge = layer.ridge
    strength = ridge.log_strength.exp()[head] if isinstance(ridge, AdditiveRidge) else ridge
    share = torch.diag(weights / weights.sum())
    system = key.T @ share @ key + strength * torch.eye(key.shape[1], dtype=key.dtype)
    return query @ torch.linalg.inv(system) @ key.T @ share @ value


@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("few", [False, True], ids=["many keys", "fewer keys than channels"])
def test_agrees_with_the_obvious_form_in_value_and_every_gradient(
    ridge: str, few: bool, compared: Any, made: Any
) -> None:
    sizes = {"source": (3, 2, 2), "queries": (3, 3, 2)} if few else {}
    compared.by_heads(made(Intention, ridge=RIDGES[ridge]()), obvious, **sizes)


@pytest.mark.parametrize("m", [2, 7])
def test_gradcheck(weighted: bool, m: int, random: Any, uniform: Any) -> None:
    query, key, value = (random(2, 2, k, e).requires_grad_() for k, e in ((5, 3), (m, 3), (m, 4)))
    ridge = torch.tensor([0.1, 0.3], dtype=torch.float64, requires_grad=True)
    weights = uniform(2, 1, m, 1) if weighted else None
    assert torch.autograd.gradcheck(
        lambda q, k, v, r: intention(q, k, v, ridge=r, weights=weights), (query, key, value, ridge)
    )


class TestLeastSquares:
    def test_is_the_regression_of_values_on_keys_at_the_queries(self, random: Any) -> None:
        query, key, value = (random(1, 1, k, e) for k, e in ((5, 4), (30, 4), (30, 3)))
        coefficients, *_ = np.linalg.lstsq(key[0, 0].numpy(), value[0, 0].numpy(), rcond=None)
        out = intention(query, key, value, ridge=1e-12)
        # The ridge and the rounding beside it are 1e-12, the Gram matrix is of order 30.
        np.testing.assert_allclose(out[0, 0], query[0, 0].numpy() @ coefficients, atol=1e-11)

    def test_a_ridge_is_so_many_observations_of_zero(self, random: Any) -> None:
        query, key, value = (random(1, 1, k, e) for k, e in ((5, 4), (30, 4), (30, 3)))
        keys = np.concatenate([key[0, 0], np.sqrt(0.7) * np.eye(4)])
        values = np.concatenate([value[0, 0], np.zeros((4, 3))])
        coefficients, *_ = np.linalg.lstsq(keys, values, rcond=None)
        out = intention(query, key, value, ridge=0.7)
        np.testing.assert_allclose(out[0, 0], query[0, 0].numpy() @ coefficients, atol=1e-12)

    def test_returns_the_values_where_queries_are_keys_and_few(self, random: Any) -> None:
        key, value = random(2, 3, 4, 6), random(2, 3, 4, 5)
        torch.testing.assert_close(
            intention(key, key, value, ridge=1e-11), value, rtol=0, atol=1e-8
        )

    def test_is_linear_in_the_values(self, random: Any, assert_equal_to_rounding: Any) -> None:
        query, key = (random(2, 3, k, 4) for k in (5, 9))
        one, other = random(2, 2, 3, 9, 4)
        carried = partial(intention, query, key, ridge=0.1)
        assert_equal_to_rounding(carried(2 * one - other), 2 * carried(one) - carried(other))

    def test_is_functional_attention_with_the_points_as_basis(self, random: Any) -> None:
        query, key, value = (random(2, 3, 6, 4) for _ in range(3))
        points = torch.eye(6, dtype=torch.float64)[None, None]
        expected = functional_attention(
            query, key, value, points, points, ridge=0.1, projection="transpose"
        )
        out = intention(query, key, value, ridge=0.1)
        # 10 eps of the trace 24 are added to the ridge.
        torch.testing.assert_close(out, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("rank", [1, 3, 16], ids=lambda rank: f"rank {rank}")
def test_large_keys_of_any_rank_are_safe_in_float32(rank: int, generator: torch.Generator) -> None:
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


@pytest.mark.parametrize("ridge", [0.0, -1.0, float("inf"), float("nan")])
def test_a_ridge_is_finite_and_positive(ridge: float) -> None:
    with pytest.raises(ValueError, match="ridge: expected a finite number greater than 0"):
        Intention(WIDTH, HEADS, ridge=ridge)
