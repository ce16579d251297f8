from typing import Any

import pytest
import torch
from torch import Tensor

from funcattn.nn.baselines.linformer import LinformerAttention, linformer_attention
from funcattn.nn.baselines.softmax import SoftmaxAttention

WIDTH, HEADS = 8, 2
POINTS, PROJECTED = 7, 3
SMALL = {"points": POINTS, "projected": PROJECTED}


def obvious(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: Tensor,
    *,
    layer: LinformerAttention,
    **_: object,
) -> Tensor:
    """With the projections as sums over points."""
    of_keys = layer.key_projection
    of_values = of_keys if layer.value_projection is None else layer.value_projection
    # One on average over the real points.
    weights = weights * ((weights > 0).sum() / weights.sum())
    few_keys, few_values = (
        torch.stack([sum(row[j] * weights[j] * field[j] for j in range(POINTS)) for row in to_few])
        for to_few, field in ((of_keys, key), (of_values, value))
    )
    factors = (query @ few_keys.T / (WIDTH / HEADS) ** 0.5).exp()
    return factors @ few_values / factors.sum(-1, keepdim=True)


@pytest.mark.parametrize("one", [False, True], ids=["two projections", "one projection"])
def test_agrees_with_the_obvious_form_in_value_and_every_gradient(
    one: bool, compared: Any, made: Any
) -> None:
    layer = made(LinformerAttention, **SMALL, one_projection=one)
    compared.by_heads(layer, obvious, source=(POINTS, 4, 3), queries=(5, 4, 3))


def test_its_gradients_are_those_of_finite_differences(random: Any, uniform: Any) -> None:
    query = random(2, 1, 4, 3)
    key, value = random(2, 2, 1, 5, 3)
    projections = random(2, 2, 5)
    weights = uniform(2, 1, 5, 1)
    inputs = [t.detach().requires_grad_() for t in (query, key, value, *projections, weights)]
    assert torch.autograd.gradcheck(linformer_attention, inputs)


class TestItIsSoftmaxAttention:
    @pytest.mark.parametrize("permuted", [False, True], ids=["identities", "a permutation"])
    def test_with_such_projections(
        self,
        permuted: bool,
        made: Any,
        random: Any,
        assert_equal_to_rounding: Any,
        generator: torch.Generator,
    ) -> None:
        layer = made(LinformerAttention, points=POINTS, projected=POINTS)
        softmax = SoftmaxAttention(WIDTH, HEADS).double()
        state = layer.state_dict()
        order = torch.randperm(POINTS, generator=generator) if permuted else slice(None)
        for name in ("key_projection", "value_projection"):
            state.pop(name).copy_(torch.eye(POINTS)[order])
        softmax.load_state_dict(state)
        x = random(2, POINTS, WIDTH)
        assert_equal_to_rounding(layer(x), softmax(x))

    def test_of_few_keys_as_means_of_segments(
        self, random: Any, assert_equal_to_rounding: Any
    ) -> None:
        projection = torch.tensor([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]], dtype=torch.float64)
        query, key, value = random(3, 2, HEADS, 4, 3)
        out = linformer_attention(query, key, value, projection, projection)
        means = [field.unflatten(-2, (2, 2)).mean(-2) for field in (key, value)]
        exact = (query @ means[0].mT / 3**0.5).softmax(-1) @ means[1]
        assert_equal_to_rounding(out, exact)


def test_projections_start_by_keeping_lengths() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = LinformerAttention(WIDTH, HEADS, 64, points=500)
    for projection in (layer.key_projection, layer.value_projection):
        assert abs(projection.std().item() * 64**0.5 - 1) < 0.02
        squares = projection.square().sum(0)  # of the images of unit vectors
        assert abs(squares.mean().item() - 1) < 0.02


def test_one_projection_is_half_the_parameters(made: Any) -> None:
    one, two = (
        sum(
            p.numel()
            for name, p in made(LinformerAttention, **SMALL, one_projection=one).named_parameters()
            if "proj" in name
        )
        for one in (True, False)
    )
    assert (one, two) == (PROJECTED * POINTS, 2 * PROJECTED * POINTS)


class TestPoints:
    def test_masked_points_are_dropped_with_their_columns(
        self, made: Any, random: Any, assert_equal_to_rounding: Any
    ) -> None:
        layer, x = made(LinformerAttention, **SMALL), random(2, POINTS, WIDTH)
        mask = torch.arange(POINTS) % 3 != 1
        short = LinformerAttention(WIDTH, HEADS, PROJECTED, points=int(mask.sum())).double()
        state = layer.state_dict()
        for name in ("key_projection", "value_projection"):
            state[name] = state[name][:, mask]
        short.load_state_dict(state)
        out = layer(x, mask=mask.expand(2, POINTS))[:, mask]
        assert_equal_to_rounding(out, short(x[:, mask]))

    def test_the_order_of_the_keys_matters(self, made: Any, random: Any) -> None:
        layer, x = made(LinformerAttention, **SMALL), random(2, POINTS, WIDTH)
        assert (layer(x, x.flip(1)) - layer(x)).abs().max() > 1e-2


class TestErrors:
    def test_the_number_of_points_cannot_change(self, cross: bool, made: Any) -> None:
        layer, x = made(LinformerAttention, **SMALL), torch.zeros(2, POINTS, WIDTH).double()
        with pytest.raises(ValueError, match=r"points: expected 7 .*, got 6; .*column for each"):
            layer(*((x, x[:, :6]) if cross else (x[:, :6],)))

    @pytest.mark.parametrize("name", ["projected", "points"])
    def test_sizes_are_at_least_one(self, name: str) -> None:
        sizes = {"projected": 3, "points": 7, name: 0}
        with pytest.raises(ValueError, match=f"{name}: expected at least 1, got 0"):
            LinformerAttention(WIDTH, HEADS, **sizes)
