import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from funcattn.nn import Points
from funcattn.nn.baselines.linear import kernel_attention
from funcattn.nn.baselines.performer import (
    PerformerAttention,
    log_positive_features,
    random_directions,
)
from funcattn.nn.baselines.softmax import SoftmaxAttention

KINDS = pytest.mark.parametrize("orthogonal", [True, False], ids=["orthogonal", "independent"])

WIDTH, HEADS = 8, 2


def drawn(count: int, channels: int, *, generator: torch.Generator, **options: bool) -> Tensor:
    return random_directions(count, channels, generator=generator, **options).double()


def dense(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: Tensor,
    *,
    layer: PerformerAttention,
    **_: object,
) -> Tensor:
    """The matrix of all pairs by the features themselves, its rows normalised."""

    def features(x: Tensor) -> Tensor:
        y = x / x.shape[-1] ** 0.25
        return torch.exp(y @ layer.directions.T) * torch.exp(-(y * y).sum(-1, keepdim=True) / 2)

    kernel = features(query) @ features(key).T * weights
    return (kernel / kernel.sum(-1, keepdim=True)) @ value


def test_agrees_with_the_dense_form_in_value_and_every_gradient(compared: Any, made: Any) -> None:
    compared.by_heads(made(PerformerAttention, random_features=16), dense)


class TestDirections:
    def test_they_are_at_right_angles_in_blocks(self, generator: torch.Generator) -> None:
        directions = drawn(10, 4, generator=generator)
        assert directions.shape == (10, 4)
        unit = directions / directions.norm(dim=-1, keepdim=True)
        for block in unit.split(4):
            products = block @ block.T
            # Drawn in float32.
            torch.testing.assert_close(
                products, torch.eye(len(block), dtype=torch.float64), rtol=0, atol=1e-6
            )
        assert (unit[:4] @ unit[4:8].T).abs().max() > 0.1

    @KINDS
    def test_each_is_standard_normal(self, orthogonal: bool, generator: torch.Generator) -> None:
        directions = drawn(20_000, 3, orthogonal=orthogonal, generator=generator)
        # So many know their moments to about 0.01.
        assert directions.mean(0).abs().max() < 0.03
        covariance = directions.T @ directions / len(directions)
        assert (covariance - torch.eye(3)).abs().max() < 0.03
        fourth = directions.norm(dim=-1).pow(4).mean().item()
        assert abs(fourth - 15) < 0.5  # d (d + 2)


class TestFeatures:
    def test_their_gradients_are_those_of_finite_differences(
        self, random: Any, generator: torch.Generator
    ) -> None:
        x = random(2, 1, 4, 3).requires_grad_()
        directions = drawn(5, 3, generator=generator).requires_grad_()
        assert torch.autograd.gradcheck(log_positive_features, (x, directions))

    def test_they_are_exponents_and_not_shortened(
        self, random: Any, generator: torch.Generator
    ) -> None:
        x = random(1, 1, 5, 8).bfloat16()
        directions = drawn(6, 8, generator=generator).float()
        with torch.autocast("cpu", torch.bfloat16):
            short = log_positive_features(x, directions)
        assert short.dtype == torch.float32
        assert torch.equal(short, log_positive_features(x.float(), directions))

    @KINDS
    def test_they_estimate_the_softmax_kernel_without_bias(
        self, orthogonal: bool, random: Any, generator: torch.Generator
    ) -> None:
        q, k = 0.3 * random(2, 8)
        exact = torch.exp(q @ k / 8**0.5)
        estimates = kernel(q, k, draws=20_000, orthogonal=orthogonal, generator=generator)
        deviation = estimates.std() / len(estimates) ** 0.5
        assert deviation < 0.005 * exact
        assert (estimates.mean() - exact).abs() < 3 * deviation

    def test_right_angles_lessen_the_error(self, random: Any, generator: torch.Generator) -> None:
        ratios = []
        for q, k in 0.3 * random(20, 2, 8):
            exact = torch.exp(q @ k / 8**0.5)
            at_right_angles, independent = (
                (kernel(q, k, draws=2000, orthogonal=orthogonal, generator=generator) - exact)
                .square()
                .mean()
                for orthogonal in (True, False)
            )
            ratios.append((at_right_angles / independent).item())
        assert sum(ratios) / len(ratios) < 0.92


def kernel(
    q: Tensor, k: Tensor, *, draws: int, orthogonal: bool, generator: torch.Generator
) -> Tensor:
    """Estimates of exp(q . k / sqrt d), each from one block of as many directions as channels."""
    directions = drawn(draws * len(q), len(q), orthogonal=orthogonal, generator=generator)
    of_q, of_k = (log_positive_features(x, directions).exp() for x in (q, k))
    return draws * (of_q * of_k).view(draws, -1).sum(-1)


def test_it_converges_to_softmax_attention(random: Any, generator: torch.Generator) -> None:
    query, key, value = random(3, 1, 1, 30, 8)
    query, key = 0.3 * query, 0.3 * key
    exact = (query @ key.mT / 8**0.5).softmax(-1) @ value
    errors = []
    for count in (16, 64, 256, 1024):
        squares = []
        for _ in range(20):
            directions = drawn(count, 8, generator=generator)
            of_query, of_key = (log_positive_features(x, directions) for x in (query, key))
            out = kernel_attention(of_query, of_key, value)
            squares.append((out - exact).square().mean())
        errors.append(torch.stack(squares).mean().sqrt().item())
    # 1 / sqrt(count): half the error for four times the features.
    for coarse, fine in itertools.pairwise(errors):
        assert 1.75 < coarse / fine < 2.25
    assert errors[-1] < 0.02 * exact.square().mean().sqrt()


def test_the_layer_converges_to_the_softmax_layer(made: Any, random: Any, uniform: Any) -> None:
    x = 0.2 * random(2, 10, WIDTH)
    weights = uniform(2, 10)
    softmax = SoftmaxAttention(WIDTH, HEADS).double()
    errors = []
    for count in (8, 8192):
        layer = made(PerformerAttention, random_features=count)
        shared = {k: v for k, v in layer.state_dict().items() if k != "directions"}
        softmax.load_state_dict(shared)
        errors.append((layer(x, weights=weights) - softmax(x, weights=weights)).norm().item())
    assert errors[0] > 0.3
    assert errors[1] < 0.02


class TestRedraw:
    def test_directions_are_saved_with_the_model_and_not_trained(
        self, made: Any, random: Any
    ) -> None:
        saved, loaded = (made(PerformerAttention, random_features=16, seed=seed) for seed in (0, 1))
        x = random(2, 9, WIDTH)
        assert "directions" not in dict(saved.named_parameters())
        loaded.load_state_dict(saved.state_dict())
        assert torch.equal(saved(x), loaded(x))

    def test_it_draws_from_the_generator(self, made: Any, random: Any) -> None:
        layer, x = made(PerformerAttention, random_features=16), random(2, 9, WIDTH)
        before = layer(x)
        layer.redraw(torch.Generator().manual_seed(1))
        after = layer(x)
        assert (after - before).abs().max() > 1e-3
        layer.redraw(torch.Generator().manual_seed(2))
        layer.redraw(torch.Generator().manual_seed(1))
        assert torch.equal(layer(x), after)

    @KINDS
    def test_it_keeps_the_kind(
        self, orthogonal: bool, made: Any, generator: torch.Generator
    ) -> None:
        layer = made(PerformerAttention, random_features=16, orthogonal=orthogonal)
        for _ in range(2):
            for block in layer.directions.split(WIDTH // HEADS):
                angles = block @ block.T - torch.diag(block.square().sum(-1))
                assert (angles.abs().max() < 1e-5) == orthogonal
            layer.redraw(generator)


def test_large_scores_neither_overflow_nor_vanish(made: Any, random: Any) -> None:
    # q . k / sqrt d is about 1e3 here, and the logarithms of the features as large.
    layer = made(PerformerAttention, random_features=16).float()
    query, key = 60 * random(2, 2, HEADS, 6, 4).float()
    value = random(2, HEADS, 6, 4).float()
    query.requires_grad_()
    assert (query @ key.mT).abs().max() / 2 > 1e3
    out = layer.combine(query, key, value, Points(), Points())
    low, high = value.amin(-2, keepdim=True), value.amax(-2, keepdim=True)
    assert ((low - 1e-5 <= out) & (out <= high + 1e-5)).all()
    out.square().sum().backward()
    assert query.grad.isfinite().all()


def test_there_is_at_least_one_feature() -> None:
    with pytest.raises(ValueError, match="random_features: expected at least 1, got 0"):
        PerformerAttention(WIDTH, HEADS, random_features=0)
