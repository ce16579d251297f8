import itertools

import pytest
import torch
from torch import Tensor, nn

from funcattn.nn import Points
from funcattn.nn.rivals.linear import kernel_attention
from funcattn.nn.rivals.performer import (
    PerformerAttention,
    log_positive_features,
    random_directions,
)
from funcattn.nn.rivals.softmax import SoftmaxAttention

KINDS = pytest.mark.parametrize("orthogonal", [True, False], ids=["orthogonal", "independent"])

WIDTH, HEADS = 8, 2


def made(seed: int = 0, *, random_features: int = 16, **options: object) -> PerformerAttention:
    """A small layer in float64, the same in every run, with parameters of order one."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        layer = PerformerAttention(WIDTH, HEADS, random_features, **options).double()
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


def drawn(count: int, channels: int, *, generator: torch.Generator, **options: bool) -> Tensor:
    return random_directions(count, channels, generator=generator, **options).double()


def dense(query: Tensor, key: Tensor, value: Tensor, directions: Tensor, weights: Tensor) -> Tensor:
    """The matrix of all pairs by the features themselves, its rows normalised; weights (b m)."""

    def features(x: Tensor) -> Tensor:
        y = x / x.shape[-1] ** 0.25
        return torch.exp(y @ directions.T) * torch.exp(-(y * y).sum(-1, keepdim=True) / 2)

    kernel = features(query) @ features(key).mT * weights[:, None, None, :]
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
        layer.directions,
        effective,
    )
    expected = torch.cat(heads.unbind(1), dim=-1) @ layer.to_output.weight.T + layer.to_output.bias
    named = {"x": x, **({"context": source} if cross else {}), **dict(layer.named_parameters())}
    assert_same_value_and_gradients(out, expected, named, generator)


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
        self, generator: torch.Generator
    ) -> None:
        x = random(2, 1, 4, 3, generator=generator).requires_grad_()
        directions = drawn(5, 3, generator=generator).requires_grad_()
        assert torch.autograd.gradcheck(log_positive_features, (x, directions))

    def test_they_are_exponents_and_not_shortened(self, generator: torch.Generator) -> None:
        x = random(1, 1, 5, 8, generator=generator).bfloat16()
        directions = drawn(6, 8, generator=generator).float()
        with torch.autocast("cpu", torch.bfloat16):
            short = log_positive_features(x, directions)
        assert short.dtype == torch.float32
        assert torch.equal(short, log_positive_features(x.float(), directions))

    @KINDS
    def test_they_estimate_the_softmax_kernel_without_bias(
        self, orthogonal: bool, generator: torch.Generator
    ) -> None:
        q, k = 0.3 * random(2, 8, generator=generator)
        exact = torch.exp(q @ k / 8**0.5)
        estimates = kernel(q, k, draws=20_000, orthogonal=orthogonal, generator=generator)
        deviation = estimates.std() / len(estimates) ** 0.5
        assert deviation < 0.005 * exact
        assert (estimates.mean() - exact).abs() < 3 * deviation

    def test_right_angles_lessen_the_error(self, generator: torch.Generator) -> None:
        ratios = []
        for q, k in 0.3 * random(20, 2, 8, generator=generator):
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


def test_it_converges_to_softmax_attention(generator: torch.Generator) -> None:
    query, key, value = random(3, 1, 1, 30, 8, generator=generator)
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


def test_the_layer_converges_to_the_softmax_layer(generator: torch.Generator) -> None:
    x = 0.2 * random(2, 10, WIDTH, generator=generator)
    weights = uniform(2, 10, generator=generator)
    softmax = SoftmaxAttention(WIDTH, HEADS).double()
    errors = []
    for count in (8, 8192):
        layer = made(random_features=count)
        shared = {k: v for k, v in layer.state_dict().items() if k != "directions"}
        softmax.load_state_dict(shared)
        errors.append((layer(x, weights=weights) - softmax(x, weights=weights)).norm().item())
    assert errors[0] > 0.3
    assert errors[1] < 0.02


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

    def test_weight_two_is_two_copies(self, generator: torch.Generator) -> None:
        layer, x = made(), random(2, 9, WIDTH, generator=generator)
        weights = torch.ones(2, 9, dtype=torch.float64)
        weights[:, :3] = 2
        weighted = layer(x, weights=weights)
        assert_equal_to_rounding(weighted, layer(torch.cat([x, x[:, :3]], dim=1))[:, :9])
        assert (weighted - layer(x)).abs().max() > 1e-3

    def test_permuting_points_permutes_results(self, generator: torch.Generator) -> None:
        layer, x = made(), random(2, 9, WIDTH, generator=generator)
        weights, order = uniform(2, 9, generator=generator), torch.randperm(9, generator=generator)
        permuted = layer(x[:, order], weights=weights[:, order])
        assert_equal_to_rounding(permuted, layer(x, weights=weights)[:, order])


class TestRedraw:
    def test_directions_are_saved_with_the_model_and_not_trained(
        self, generator: torch.Generator
    ) -> None:
        saved, loaded = made(seed=0), made(seed=1)
        x = random(2, 9, WIDTH, generator=generator)
        assert "directions" not in dict(saved.named_parameters())
        loaded.load_state_dict(saved.state_dict())
        assert torch.equal(saved(x), loaded(x))

    def test_it_draws_from_the_generator(self, generator: torch.Generator) -> None:
        layer, x = made(), random(2, 9, WIDTH, generator=generator)
        before = layer(x)
        layer.redraw(torch.Generator().manual_seed(1))
        after = layer(x)
        assert (after - before).abs().max() > 1e-3
        layer.redraw(torch.Generator().manual_seed(2))
        layer.redraw(torch.Generator().manual_seed(1))
        assert torch.equal(layer(x), after)

    @KINDS
    def test_it_keeps_the_kind(self, orthogonal: bool, generator: torch.Generator) -> None:
        layer = made(orthogonal=orthogonal)
        for _ in range(2):
            for block in layer.directions.split(WIDTH // HEADS):
                angles = block @ block.T - torch.diag(block.square().sum(-1))
                assert (angles.abs().max() < 1e-5) == orthogonal
            layer.redraw(generator)


class TestNumbers:
    def test_large_scores_neither_overflow_nor_vanish(self, generator: torch.Generator) -> None:
        # q . k / sqrt d is about 1e3 here, and the logarithms of the features as large.
        layer = made().float()
        query, key = 60 * random(2, 2, HEADS, 6, 4, generator=generator).float()
        value = random(2, HEADS, 6, 4, generator=generator).float()
        query.requires_grad_()
        assert (query @ key.mT).abs().max() / 2 > 1e3
        out = layer.combine(query, key, value, Points(), Points())
        low, high = value.amin(-2, keepdim=True), value.amax(-2, keepdim=True)
        assert ((low - 1e-5 <= out) & (out <= high + 1e-5)).all()
        out.square().sum().backward()
        assert query.grad.isfinite().all()

    def test_under_autocast_it_stays_close_to_float64(self, generator: torch.Generator) -> None:
        layer, x = made(), random(2, 20, WIDTH, generator=generator)
        weights, mask = uniform(2, 20, generator=generator), torch.arange(20).expand(2, 20) < 15
        exact = layer(x, weights=weights, mask=mask)
        with torch.autocast("cpu", torch.bfloat16):
            out = layer.float()(x.float(), weights=weights.float(), mask=mask)
        assert ((out - exact).norm() / exact.norm()).item() < 0.03
        (out * out).sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())

    def test_no_matrix_of_all_pairs_is_made(self) -> None:
        # It would have 10^10 entries.
        with torch.no_grad():
            out = PerformerAttention(WIDTH, HEADS, 8)(torch.ones(1, 100_000, WIDTH))
        assert out.isfinite().all()


def test_there_is_at_least_one_feature() -> None:
    with pytest.raises(ValueError, match="random_features: expected at least 1, got 0"):
        PerformerAttention(WIDTH, HEADS, random_features=0)
