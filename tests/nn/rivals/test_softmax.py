"""Softmax attention, and with it what all rivals share: the call, its checks, the measure."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from funcattn import OperatorTransformer, debug
from funcattn.nn import Points, Stencil
from funcattn.nn.rivals.base import measure
from funcattn.nn.rivals.softmax import SoftmaxAttention

WIDTH, HEADS = 8, 2


def made(**options: object) -> SoftmaxAttention:
    """A small layer in float64, the same in every run, with parameters of order one."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        layer = SoftmaxAttention(WIDTH, HEADS, **options).double()
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
        size = other.norm().item()
        # The bias of the keys shifts all scores of a query alike, which changes nothing.
        assert size > 1e-6 or name == "to_key.map.bias", name
        assert (one - other).norm().item() < 1e-10 * max(size, 1e-3), name


def obvious(layer: SoftmaxAttention, x: Tensor, source: Tensor, weights: Tensor) -> Tensor:
    """Point by point, over the points that count."""
    query = heads_of(layer.to_query, x)
    key, value = heads_of(layer.to_key, source), heads_of(layer.to_value, source)
    rows = []
    for b in range(len(x)):
        real = weights[b] > 0
        for i in range(x.shape[1]):
            heads = []
            for h in range(HEADS):
                scores = key[b, h, real] @ query[b, h, i] / (WIDTH / HEADS) ** 0.5
                factors = weights[b, real] * scores.exp()
                heads.append(factors @ value[b, h, real] / factors.sum())
            rows.append(layer.to_output.weight @ torch.cat(heads) + layer.to_output.bias)
    return torch.stack(rows).view(x.shape)


@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("masked", [False, True], ids=["all points", "masked"])
@pytest.mark.parametrize("weighted", [False, True], ids=["alike", "weighted"])
def test_agrees_with_the_obvious_form_in_value_and_every_gradient(
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
    named = {"x": x, **({"context": source} if cross else {}), **dict(layer.named_parameters())}
    expected = obvious(layer, x, source, effective)
    assert_same_value_and_gradients(out, expected, named, generator)


def test_weights_of_the_queries_do_not_matter_to_a_context(generator: torch.Generator) -> None:
    layer = made()
    x, context = random(2, 9, WIDTH, generator=generator).split([5, 4], dim=1)
    weights, mask = uniform(2, 5, generator=generator), torch.arange(5).expand(2, 5) < 3
    weighted = layer(x, context, weights=(weights, None), mask=(mask, None))
    assert_equal_to_rounding(weighted, layer(x, context))


def test_every_result_is_a_mean_of_values(generator: torch.Generator) -> None:
    layer, x = made(), 3 * random(2, 6, WIDTH, generator=generator)
    query, key, value = (heads_of(m, x) for m in (layer.to_query, layer.to_key, layer.to_value))
    out = layer.combine(query, key, value, Points(), Points())
    low, high = value.amin(-2, keepdim=True), value.amax(-2, keepdim=True)
    assert ((low <= out) & (out <= high)).all()
    ones = layer.combine(query, key, torch.ones_like(value), Points(), Points())
    assert_equal_to_rounding(ones, torch.ones_like(ones))


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

    def test_a_sample_does_not_see_its_batch_neighbours(self, generator: torch.Generator) -> None:
        layer, x = made(), random(3, 9, WIDTH, generator=generator)
        weights = uniform(3, 9, generator=generator)
        together = layer(x, weights=weights)
        assert_equal_to_rounding(together[1:2], layer(x[1:2], weights=weights[1:2]))


class TestMeasure:
    LIKE = torch.zeros(2, 3, 4, 1, dtype=torch.float64)

    def test_nothing_given_is_nothing_to_do(self) -> None:
        assert measure(Points(), self.LIKE) is None

    def test_a_mask_alone_counts_ones_and_zeros(self) -> None:
        mask = torch.tensor([[True, True, False, True], [True, False, False, False]])
        assert torch.equal(measure(Points(mask=mask), self.LIKE)[:, 0, :, 0], mask.double())

    def test_weights_are_one_on_average_over_real_points(self, generator: torch.Generator) -> None:
        weights = 7 * uniform(2, 4, generator=generator)
        mask = torch.tensor([[True, True, False, True], [True, False, False, True]])
        out = measure(Points(mask=mask, weights=weights), self.LIKE)[:, 0, :, 0]
        assert_equal_to_rounding(out.sum(-1), torch.tensor([3.0, 2.0], dtype=torch.float64))
        assert not out[~mask].any()
        assert_equal_to_rounding(out[0, 1] / out[0, 0], weights[0, 1] / weights[0, 0])
        alone = measure(Points(weights=weights), self.LIKE)[:, 0, :, 0]
        assert_equal_to_rounding(alone, weights / weights.mean(-1, keepdim=True))


@pytest.mark.parametrize("size", [1e3, 1e6], ids=["scores of 1e3", "scores of 1e6"])
def test_large_scores_pick_the_nearest_key(size: float, generator: torch.Generator) -> None:
    layer, x = made().float(), random(2, 6, WIDTH, generator=generator).float()
    query = heads_of(layer.to_query, x)
    value = heads_of(layer.to_value, x)
    query = size * torch.nn.functional.normalize(query, dim=-1)
    key = query / size
    out = layer.combine(query, key, value, Points(), Points())
    torch.testing.assert_close(out, value)


def test_under_autocast_it_stays_close_to_float64(generator: torch.Generator) -> None:
    layer, x = made(), random(2, 20, WIDTH, generator=generator)
    weights, mask = uniform(2, 20, generator=generator), torch.arange(20).expand(2, 20) < 15
    exact = layer(x, weights=weights, mask=mask)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer.float()(x.float(), weights=weights.float(), mask=mask)
    assert ((out - exact).norm() / exact.norm()).item() < 0.03
    (out * out).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


def test_stencils_make_queries_keys_and_values_on_a_grid(generator: torch.Generator) -> None:
    layer = SoftmaxAttention(WIDTH, HEADS, features=partial(Stencil, reach=0.5)).double()
    x = random(2, 12, WIDTH, generator=generator)
    mask = torch.rand(2, 12, generator=generator) < 0.7
    out = layer(x, grid=(3, 4), mask=mask)
    # Masked points are not even seen by the stencils.
    changed = torch.where(mask[..., None], x, 10 * x + 1)
    assert_equal_to_rounding(layer(changed, grid=(3, 4), mask=mask)[mask], out[mask])
    with pytest.raises(ValueError, match=r"grid: .*context"):
        layer(x, x.clone(), grid=(3, 4))


def test_it_is_an_attention_of_the_operator_transformer(generator: torch.Generator) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = OperatorTransformer(
            2, 1, 1, width=WIDTH, layers=2, attention=partial(SoftmaxAttention, heads=HEADS)
        ).double()
    positions, values = uniform(2, 9, 2, generator=generator), random(2, 9, 1, generator=generator)
    mask = torch.arange(9) < torch.tensor([[9], [4]])
    out = model(positions, values, mask=mask)
    assert_equal_to_rounding(out[1:, :4], model(positions[1:, :4], values[1:, :4]))


def test_dropout_acts_in_training_only(generator: torch.Generator) -> None:
    layer, x = made(dropout=0.5), random(2, 12, WIDTH, generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        dropped = layer.train()(x) == 0
    assert 0.3 < dropped.double().mean() < 0.7
    assert torch.equal(layer.eval()(x), made()(x))


class OfItself(SoftmaxAttention):
    takes_context = False


class TestErrors:
    X = torch.zeros(2, 5, WIDTH, dtype=torch.float64)

    def test_width_is_a_multiple_of_heads(self) -> None:
        with pytest.raises(ValueError, match="width: expected a multiple of heads=3, got 8"):
            SoftmaxAttention(8, heads=3)

    def test_a_method_may_refuse_a_context(self) -> None:
        layer = OfItself(WIDTH, HEADS).double()
        assert layer(self.X).shape == self.X.shape
        with pytest.raises(ValueError, match="context: OfItself attends from points to themselves"):
            layer(self.X, self.X)

    def test_one_mask_does_not_serve_two_sides(self) -> None:
        mask = torch.ones(2, 3, dtype=torch.bool)
        with pytest.raises(ValueError, match=r"mask: expected .* each of 5 points.* pair"):
            made()(self.X, self.X[:, :3], mask=mask)

    def test_a_mask_is_boolean(self) -> None:
        with pytest.raises(TypeError, match="mask: expected a boolean tensor"):
            made()(self.X, mask=torch.ones(2, 5))

    @pytest.mark.parametrize("side", [0, 1], ids=["of x", "of the context"])
    def test_a_sample_has_at_least_one_point(self, side: int) -> None:
        masks = [None, None]
        masks[side] = torch.tensor([[True], [False]]).expand(2, 5)
        with pytest.raises(ValueError, match=r"mask: every point is masked in row \[1\]"):
            made()(self.X, self.X.clone(), mask=tuple(masks))

    def test_weights_belong_to_the_samples(self) -> None:
        with pytest.raises(ValueError, match="weights: expected those of 2 samples, got shape"):
            made()(self.X, weights=torch.ones(3, 5))

    def test_weights_are_not_negative(self) -> None:
        with pytest.raises(ValueError, match="weights: expected finite numbers, none of them neg"):
            made()(self.X, weights=-torch.ones(2, 5))

    def test_debug_names_values_that_are_not_finite(self) -> None:
        with debug(), pytest.raises(ValueError, match="context: expected finite values, got"):
            made()(self.X, torch.full_like(self.X, torch.nan))
