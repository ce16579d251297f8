"""Softmax attention, and with it what all baselines share: the call, its checks, the measure."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from funcattn import debug
from funcattn.nn import Points
from funcattn.nn.baselines.base import measure
from funcattn.nn.baselines.softmax import SoftmaxAttention

WIDTH, HEADS = 8, 2


def obvious(query: Tensor, key: Tensor, value: Tensor, weights: Tensor, **_: object) -> Tensor:
    """Point by point, over the points that count."""
    real = weights > 0
    rows = []
    for q in query:
        factors = weights[real] * (key[real] @ q / (WIDTH / HEADS) ** 0.5).exp()
        rows.append(factors @ value[real] / factors.sum())
    return torch.stack(rows)


def test_agrees_with_the_obvious_form_in_value_and_every_gradient(compared: Any, made: Any) -> None:
    # That bias shifts all scores of a query alike.
    compared.by_heads(made(SoftmaxAttention), obvious, idle=["to_key.map.bias"])


def test_every_result_is_a_mean_of_values(
    made: Any, random: Any, assert_equal_to_rounding: Any
) -> None:
    layer = made(SoftmaxAttention)
    query, key, value = 4 * random(3, 2, HEADS, 6, 4)
    out = layer.combine(query, key, value, Points(), Points())
    low, high = value.amin(-2, keepdim=True), value.amax(-2, keepdim=True)
    assert ((low <= out) & (out <= high)).all()
    ones = layer.combine(query, key, torch.ones_like(value), Points(), Points())
    assert_equal_to_rounding(ones, torch.ones_like(ones))


class TestMeasure:
    LIKE = torch.zeros(2, 3, 4, 1, dtype=torch.float64)

    def test_nothing_given_is_nothing_to_do(self) -> None:
        assert measure(Points(), self.LIKE) is None

    def test_a_mask_alone_counts_ones_and_zeros(self) -> None:
        mask = torch.tensor([[True, True, False, True], [True, False, False, False]])
        assert torch.equal(measure(Points(mask=mask), self.LIKE)[:, 0, :, 0], mask.double())

    def test_weights_are_one_on_average_over_real_points(
        self, uniform: Any, assert_equal_to_rounding: Any
    ) -> None:
        weights = 7 * uniform(2, 4)
        mask = torch.tensor([[True, True, False, True], [True, False, False, True]])
        out = measure(Points(mask=mask, weights=weights), self.LIKE)[:, 0, :, 0]
        assert_equal_to_rounding(out.sum(-1), torch.tensor([3.0, 2.0], dtype=torch.float64))
        assert not out[~mask].any()
        assert_equal_to_rounding(out[0, 1] / out[0, 0], weights[0, 1] / weights[0, 0])
        alone = measure(Points(weights=weights), self.LIKE)[:, 0, :, 0]
        assert_equal_to_rounding(alone, weights / weights.mean(-1, keepdim=True))


@pytest.mark.parametrize("size", [1e3, 1e6], ids=["scores of 1e3", "scores of 1e6"])
def test_large_scores_pick_the_nearest_key(size: float, made: Any, random: Any) -> None:
    layer = made(SoftmaxAttention).float()
    key, value = random(2, 2, HEADS, 6, 4).float()
    key = F.normalize(key, dim=-1)
    out = layer.combine(size * key, key, value, Points(), Points())
    torch.testing.assert_close(out, value)


class OfItself(SoftmaxAttention):
    takes_context = False


class TestErrors:
    X = torch.zeros(2, 5, WIDTH, dtype=torch.float64)

    @pytest.fixture
    def layer(self, made: Any) -> SoftmaxAttention:
        return made(SoftmaxAttention)

    def test_a_method_may_refuse_a_context(self) -> None:
        layer = OfItself(WIDTH, HEADS).double()
        assert layer(self.X).shape == self.X.shape
        with pytest.raises(ValueError, match="context: OfItself attends from points to themselves"):
            layer(self.X, self.X)

    def test_one_mask_does_not_serve_two_sides(self, layer: SoftmaxAttention) -> None:
        mask = torch.ones(2, 3, dtype=torch.bool)
        with pytest.raises(ValueError, match=r"mask: expected .* each of 5 points.* pair"):
            layer(self.X, self.X[:, :3], mask=mask)

    def test_a_mask_is_boolean(self, layer: SoftmaxAttention) -> None:
        with pytest.raises(TypeError, match="mask: expected a boolean tensor"):
            layer(self.X, mask=torch.ones(2, 5))

    @pytest.mark.parametrize("side", [0, 1], ids=["of x", "of the context"])
    def test_a_sample_has_at_least_one_point(self, side: int, layer: SoftmaxAttention) -> None:
        masks = [None, None]
        masks[side] = torch.tensor([[True], [False]]).expand(2, 5)
        with pytest.raises(ValueError, match=r"mask: every point is masked in row \[1\]"):
            layer(self.X, self.X.clone(), mask=tuple(masks))

    def test_weights_belong_to_the_samples(self, layer: SoftmaxAttention) -> None:
        with pytest.raises(ValueError, match="weights: expected those of 2 samples, got shape"):
            layer(self.X, weights=torch.ones(3, 5))

    def test_weights_are_not_negative(self, layer: SoftmaxAttention) -> None:
        with pytest.raises(ValueError, match="weights: expected finite numbers, none of them neg"):
            layer(self.X, weights=-torch.ones(2, 5))

    def test_debug_names_values_that_are_not_finite(self, layer: SoftmaxAttention) -> None:
        with debug(), pytest.raises(ValueError, match="context: expected finite values, got"):
            layer(self.X, torch.full_like(self.X, torch.nan))
