"""Attention on a learned partition, beside its formula written out."""

from typing import Any

import pytest
import torch
from torch import Tensor

from funcattn.nn.operator import PartitionAttention

STEPS: dict[str, dict[str, bool]] = {
    "mixer": {},
    "no mixer": {"mixer": False},
    "no solve": {"solve": False, "mlp": True},
}


@pytest.fixture(params=STEPS)
def layer(request: Any) -> PartitionAttention:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return PartitionAttention(6, 4, **STEPS[request.param]).double()


def normed(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()


def obvious(layer: PartitionAttention, x: Tensor, weights: Tensor) -> Tensor:
    """One sample (n, c), step by step, with explicit matrices and an explicit inverse."""
    phi = (layer.sharpness * (x @ layer.scores.weight.T + layer.scores.bias)).softmax(-1)
    w = torch.diag(weights)
    mass = (phi.T @ w).sum(-1)
    mass = mass + 1e-8 * mass.mean()  # as the projection "average" has it
    y = torch.diag(1 / mass) @ phi.T @ w @ x
    y = y @ layer.to_field.weight.T + layer.to_field.bias
    step = layer.transport
    if step is not None:
        y = y + transported(step, normed(y))
    if layer.mixer is not None:
        y = y + latent(layer.mixer, normed(y).T).T
    if layer.mlp is not None:
        y = y + latent(layer.mlp, normed(y))
    return phi @ y @ layer.to_output.weight.T + layer.to_output.bias


def transported(step: Any, s: Tensor) -> Tensor:
    q, k, v = (s @ to.weight.T for to in (step.to_query, step.to_key, step.to_value))
    q, k = (t / (t.square().mean(-1, keepdim=True) + 1e-6).sqrt() for t in (q, k))
    d = k.shape[-1]
    ridge = step.log_ridge.exp() * torch.trace(k.T @ k) / d
    return q @ torch.linalg.inv(k.T @ k + ridge * torch.eye(d).double()) @ k.T @ v


def latent(step: Any, s: Tensor) -> Tensor:
    hidden = torch.nn.functional.gelu(s @ step.expand.weight.T + step.expand.bias)
    return hidden @ step.contract.weight.T + step.contract.bias


def test_it_is_its_formula(
    layer: PartitionAttention, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    x, weights = uniform(3, 20, 6), uniform(3, 20)
    out = layer(x, weights=weights)
    for i in range(3):
        assert_equal_to_rounding(out[i], obvious(layer, x[i], weights[i]))


def test_permuting_points_permutes_results(
    layer: PartitionAttention, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    x, weights, order = uniform(2, 20, 6), uniform(2, 20), uniform(20).argsort()
    permuted = layer(x[:, order], weights=weights[:, order])
    assert_equal_to_rounding(permuted, layer(x, weights=weights)[:, order])


def test_weight_two_is_two_copies(
    layer: PartitionAttention, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    x = uniform(1, 15, 6)
    weights = torch.ones(1, 15).double()
    weights[:, :4] = 2
    copied = layer(torch.cat([x, x[:, :4]], 1))
    assert_equal_to_rounding(layer(x, weights=weights), copied[:, :15])


def test_finer_points_with_their_weights_change_little(layer: PartitionAttention) -> None:
    """The sums are quadratures: the error falls as that of the midpoint rule, by four."""

    def at_probe(n: int) -> Tensor:
        places = (torch.arange(n).double() + 0.5) / n
        places = torch.cat([torch.tensor([0.1, 0.5, 0.7]).double(), places])
        x = torch.stack([(places * k).sin() for k in range(1, 7)], -1)[None]
        weights = torch.cat([torch.zeros(3), torch.ones(n) / n])[None].double()
        return layer(x, weights=weights)[0, :3]

    exact = at_probe(20_000)
    errors = [(at_probe(n) - exact).abs().max() for n in (20, 40, 80)]
    assert 3.5 < errors[0] / errors[1] < 4.5
    assert 3.5 < errors[1] / errors[2] < 4.5


def test_scaling_the_weights_changes_nothing(
    layer: PartitionAttention, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    x, weights = uniform(2, 20, 6), uniform(2, 20)
    assert_equal_to_rounding(layer(x, weights=weights), layer(x, weights=1e-3 * weights))


@pytest.mark.parametrize("sharpness", [1e1, 1e2, 1e3, 1e6])
def test_functions_with_hardly_any_point_give_finite_results_and_gradients(
    layer: PartitionAttention, sharpness: float, generator: torch.Generator
) -> None:
    layer.float()
    torch.nn.init.constant_(layer.sharpness, sharpness)
    x = torch.randn(2, 5, 6, generator=generator).requires_grad_()
    out = layer(x)
    out.sum().backward()
    assert out.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()
