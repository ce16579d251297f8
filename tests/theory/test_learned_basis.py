"""The learned basis as generalised piecewise constants (the paper's Proposition on the basis)."""

import pytest
import torch
from torch import Tensor

from funcattn.nn.bases import LearnedBasis, split_heads
from funcattn.nn.points import Points

WIDTH, HEADS, FUNCTIONS = 12, 3, 5


def learned_basis(temperature: float) -> LearnedBasis:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        basis = LearnedBasis(WIDTH, HEADS, FUNCTIONS, temperature=temperature, bounds=None)
    return basis.double()


def features(generator: torch.Generator) -> Tensor:
    return torch.randn(2, 50, WIDTH, generator=generator, dtype=torch.float64)


def scores(x: Tensor) -> Tensor:
    """s_j(x), which the softmax divides by the temperature, (b h n g)."""
    basis = learned_basis(temperature=1.0)
    return basis.scores(split_heads(basis.features(x, Points()), HEADS)).detach()


def values(x: Tensor, temperature: float) -> Tensor:
    return learned_basis(temperature)(x, Points()).detach()


def gap_to_runner_up(x: Tensor) -> Tensor:
    best = scores(x).topk(2).values
    return best[..., 0] - best[..., 1]


def off_the_winner(x: Tensor, temperature: float) -> Tensor:
    """1 - phi_j* at each point, as the sum of the others so that it does not cancel."""
    winner = torch.nn.functional.one_hot(scores(x).argmax(-1), FUNCTIONS).bool()
    return values(x, temperature).masked_fill(winner, 0).sum(-1)


@pytest.mark.parametrize("temperature", [1e-3, 0.1, 1.0, 100.0])
def test_it_is_a_partition_of_unity(generator, temperature) -> None:
    phi = values(features(generator), temperature)
    assert phi.shape == (2, HEADS, 50, FUNCTIONS)
    assert (phi >= 0).all()
    torch.testing.assert_close(phi.sum(-1), torch.ones(2, HEADS, 50).double(), rtol=0, atol=1e-15)


@pytest.mark.parametrize("temperature", [1.0, 0.3, 0.1, 0.03, 0.01])
def test_it_leaves_the_hard_partition_at_the_exponential_rate_of_the_proof(
    generator, temperature
) -> None:
    """exp(-gap / tau) / g <= 1 - phi_j* <= (g - 1) exp(-gap / tau), from both sides."""
    x = features(generator)
    distance = off_the_winner(x, temperature)
    rate = torch.exp(-gap_to_runner_up(x) / temperature)
    rounding = 1e-12  # exp turns a relative error of the score into 1e-16 * score / tau
    assert (distance <= (FUNCTIONS - 1) * rate * (1 + rounding)).all()
    assert (distance >= rate / FUNCTIONS * (1 - rounding)).all()


def test_it_becomes_the_indicators_of_where_each_score_is_largest(generator) -> None:
    x = features(generator)
    indicators = torch.nn.functional.one_hot(scores(x).argmax(-1), FUNCTIONS).double()
    assert indicators.sum((0, 1, 2)).min() > 0  # every function wins somewhere
    temperature = gap_to_runner_up(x).min().item() / 40  # exp(-40) = 4e-18
    torch.testing.assert_close(values(x, temperature), indicators, rtol=0, atol=1e-15)
    assert (values(x, 1.0) - indicators).abs().max() > 0.5


def test_functions_that_tie_share_the_point_however_cold(generator) -> None:
    """The limit is the indicator only where the largest score is unique."""
    basis = learned_basis(1e-3)
    with torch.no_grad():
        basis.scores.weight[1] = basis.scores.weight[0]
    phi = basis(features(generator), Points()).detach()
    torch.testing.assert_close(phi[..., 0], phi[..., 1], rtol=0, atol=0)
    assert phi[..., 0].max().item() == pytest.approx(0.5, abs=1e-12)
