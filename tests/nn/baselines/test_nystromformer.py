import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from funcattn.nn import Points
from funcattn.nn.baselines.nystromformer import (
    NystromAttention,
    iterative_pseudo_inverse,
    landmark_means,
    nystrom_attention,
)
from funcattn.nn.baselines.softmax import SoftmaxAttention

WIDTH, HEADS = 8, 2
LANDMARKS = 4


@pytest.fixture
def layer(made: Any) -> NystromAttention:
    return made(NystromAttention, landmarks=LANDMARKS)


def shares(query: Tensor, key: Tensor, weights: Tensor) -> Tensor:
    """Softmax over the keys, which count with their weights."""
    factors = weights * (query @ key.T / query.shape[-1] ** 0.5).exp()
    return factors / factors.sum(-1, keepdim=True)


def segments(points: int) -> list[list[int]]:
    """The points of each landmark that has any."""
    found = [[i for i in range(points) if i * LANDMARKS // points == g] for g in range(LANDMARKS)]
    return [segment for segment in found if segment]


def means(field: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Of one sample and head, and the weights of the segments."""
    of = [torch.tensor(segment) for segment in segments(len(field))]
    mass = torch.stack([weights[i].sum() for i in of])
    return torch.stack([weights[i] @ field[i] / weights[i].sum() for i in of]), mass


def obvious(
    query: Tensor, key: Tensor, value: Tensor, weights: Tensor, *, here: Points, **_: object
) -> Tensor:
    """Without what has no weight."""
    kept = here.weights > 0
    few_queries, _ = means(query[kept], here.weights[kept])
    key, value, weights = (t[weights > 0] for t in (key, value, weights))
    if len(key) <= LANDMARKS:
        return shares(query, key, weights) @ value
    few_keys, mass = means(key, weights)
    matrix = shares(few_queries, few_keys, mass)
    inverse = matrix.T / (matrix.sum(0).max() * matrix.sum(1).max())
    identity = torch.eye(len(matrix), dtype=matrix.dtype)
    for _ in range(6):
        p = matrix @ inverse
        inverse = inverse @ (13 * identity - 15 * p + 7 * p @ p - p @ p @ p) / 4
    return shares(query, few_keys, mass) @ inverse @ shares(few_queries, key, weights) @ value


def test_agrees_with_the_obvious_form_in_value_and_every_gradient(
    layer: NystromAttention, compared: Any
) -> None:
    compared.by_heads(
        layer,
        obvious,
        # With segments even and uneven, and samples with no more points than landmarks.
        source=(9, 8, 7, 4, 3, 2),
        queries=(6, 3, 6, 5, 4, 1),
        # That bias shifts all scores of a query alike.
        idle=["to_key.map.bias"],
    )


class TestItIsSoftmaxAttention:
    @pytest.fixture
    def softmax(self, layer: NystromAttention) -> SoftmaxAttention:
        softmax = SoftmaxAttention(WIDTH, HEADS).double()
        softmax.load_state_dict(layer.state_dict())
        return softmax

    @pytest.mark.parametrize("points", [3, 4], ids=["fewer points", "as many points"])
    def test_where_landmarks_suffice(
        self,
        points: int,
        cross: bool,
        layer: NystromAttention,
        softmax: SoftmaxAttention,
        random: Any,
        uniform: Any,
        assert_equal_to_rounding: Any,
    ) -> None:
        x = random(2, points, WIDTH)
        weights = uniform(2, points)
        if cross:
            many = random(2, 9, WIDTH)
            out, exact = (of(many, x, weights=(None, weights)) for of in (layer, softmax))
        else:
            out, exact = (of(x, weights=weights) for of in (layer, softmax))
        assert_equal_to_rounding(out, exact)

    def test_not_where_they_do_not(
        self, layer: NystromAttention, softmax: SoftmaxAttention, random: Any
    ) -> None:
        x = random(2, 9, WIDTH)
        assert (layer(x) - softmax(x)).abs().max() > 1e-2

    @pytest.mark.parametrize("lengths", [(2, 2, 2, 2), (3, 2, 2, 2)], ids=["even", "uneven"])
    def test_where_points_of_a_segment_are_equal(
        self, lengths: tuple[int, ...], random: Any
    ) -> None:
        # Then the matrix of all pairs has the rank of the landmarks, and nothing is lost.
        query, key = 2 * random(2, 1, 1, LANDMARKS, 4)
        repeats = torch.tensor(lengths)
        query, key = (x.repeat_interleave(repeats, dim=-2) for x in (query, key))
        value = random(1, 1, sum(lengths), 4)
        exact = (query @ key.mT / 2).softmax(-1) @ value
        errors = [
            (nystrom_attention(query, key, value, landmarks=4, iterations=steps) - exact)
            .abs()
            .max()
            .item()
            for steps in (1, 6, 15)
        ]
        assert errors[0] > errors[1] > errors[2]
        assert errors[2] < 1e-11

    def test_the_closer_the_more_landmarks(self) -> None:
        t = torch.linspace(0, 1, 96, dtype=torch.float64).view(1, 1, -1, 1)
        phases = torch.arange(4, dtype=torch.float64)
        query, key = torch.sin(6 * t + phases), torch.cos(7 * t + phases)
        value = torch.sin(7 * t + phases)
        exact = (query @ key.mT / 2).softmax(-1) @ value
        errors = [
            (nystrom_attention(query, key, value, landmarks=g) - exact).norm() / exact.norm()
            for g in (2, 3, 4, 6, 8)
        ]
        for few, more in itertools.pairwise(errors):
            assert more < 0.5 * few
        assert errors[-1] < 3e-3


class TestLandmarks:
    @pytest.mark.parametrize("points", [4, 5, 7, 8, 11, 64], ids=lambda n: f"{n} points")
    def test_segments_differ_by_at_most_one_point(
        self, points: int, assert_equal_to_rounding: Any
    ) -> None:
        index = torch.arange(points, dtype=torch.float64).view(1, 1, -1, 1)
        centres, mass = landmark_means(index, LANDMARKS)
        assert mass.sum() == points
        assert mass.max() - mass.min() <= (1 if points % LANDMARKS else 0)
        ends = mass.flatten().cumsum(0)
        expected = (ends + ends - mass.flatten() - 1) / 2  # of consecutive numbers
        assert_equal_to_rounding(centres.flatten(), expected)

    def test_points_without_weight_are_absent(
        self, random: Any, uniform: Any, assert_equal_to_rounding: Any
    ) -> None:
        field = random(2, HEADS, 11, 3)
        weights = uniform(2, 1, 11, 1)
        kept = torch.tensor([0, 2, 3, 4, 7, 8, 9])
        dropped = torch.tensor([1, 5, 6, 10])
        weights[:, :, dropped] = 0
        for ours, theirs in zip(
            landmark_means(field, LANDMARKS, weights),
            landmark_means(field[:, :, kept], LANDMARKS, weights[:, :, kept]),
            strict=True,
        ):
            assert_equal_to_rounding(ours, theirs)

    def test_landmarks_without_points_are_zero(
        self, random: Any, assert_equal_to_rounding: Any
    ) -> None:
        field = random(1, 1, 3, 2)
        centres, mass = landmark_means(field, 5)
        assert mass.flatten().tolist() == [1, 1, 0, 1, 0]
        assert_equal_to_rounding(centres[0, 0, [0, 1, 3]], field[0, 0])
        assert not centres[0, 0, [2, 4]].any()

    def test_their_gradients_are_those_of_finite_differences(
        self, random: Any, uniform: Any
    ) -> None:
        field = random(2, 2, 7, 2).requires_grad_()
        weights = (uniform(2, 1, 7, 1) + 0.1).requires_grad_()
        assert torch.autograd.gradcheck(lambda x, w: landmark_means(x, 3, w), (field, weights))


class TestPseudoInverse:
    @pytest.mark.parametrize("shape", [(5, 5), (6, 4), (4, 6)], ids=["square", "tall", "wide"])
    def test_it_converges_to_the_pseudo_inverse(self, shape: tuple[int, int], random: Any) -> None:
        matrix = random(3, *shape)
        # The scales of a batch do not touch each other.
        matrix = matrix * torch.tensor([1e-3, 1.0, 1e3], dtype=torch.float64).view(-1, 1, 1)
        inverse = torch.linalg.pinv(matrix)
        out = iterative_pseudo_inverse(matrix, 25)
        torch.testing.assert_close(out, inverse, rtol=1e-9, atol=0)

    def test_rows_and_columns_of_zeros_stay_apart(
        self, random: Any, assert_equal_to_rounding: Any
    ) -> None:
        matrix = torch.zeros(5, 5, dtype=torch.float64)
        matrix[:4, :4] = random(4, 4)
        out = iterative_pseudo_inverse(matrix)
        assert_equal_to_rounding(out[:4, :4], iterative_pseudo_inverse(matrix[:4, :4]))
        assert not out[4].any()
        assert not out[:, 4].any()

    def test_it_is_of_third_order_and_never_too_large(self, assert_equal_to_rounding: Any) -> None:
        singular = torch.tensor([1.0, 0.9, 0.3, 0.01], dtype=torch.float64)
        matrix = torch.diag(singular)
        left = [
            1 - singular * iterative_pseudo_inverse(matrix, steps).diagonal() for steps in range(9)
        ]
        for before, after in itertools.pairwise(left):
            assert_equal_to_rounding(after, before**3 * (3 + before) / 4)
            assert (after > -1e-12).all()

    def test_its_gradients_are_those_of_finite_differences(self, random: Any) -> None:
        matrix = random(2, 4, 3).requires_grad_()
        assert torch.autograd.gradcheck(lambda a: iterative_pseudo_inverse(a, 3), (matrix,))


def test_its_gradients_are_those_of_finite_differences(random: Any, uniform: Any) -> None:
    query, key, value = random(3, 1, 1, 5, 2)
    weights = uniform(2, 1, 1, 5, 1) + 0.1
    inputs = [t.detach().requires_grad_() for t in (query, key, value, *weights)]
    assert torch.autograd.gradcheck(lambda *given: nystrom_attention(*given, landmarks=2), inputs)


class TestPoints:
    def test_weight_two_is_two_copies_where_landmarks_suffice(
        self, layer: NystromAttention, random: Any, assert_equal_to_rounding: Any
    ) -> None:
        x = random(2, 3, WIDTH)
        weights = torch.tensor([[2, 1, 1]], dtype=torch.float64).expand(2, 3)
        weighted = layer(x, weights=weights)
        assert_equal_to_rounding(weighted, layer(torch.cat([x[:, :1], x], dim=1))[:, 1:])
        assert (weighted - layer(x)).abs().max() > 1e-3

    def test_the_order_matters_only_where_landmarks_do_not_suffice(
        self,
        layer: NystromAttention,
        random: Any,
        assert_equal_to_rounding: Any,
        generator: torch.Generator,
    ) -> None:
        x = random(2, 9, WIDTH)
        order = torch.tensor([2, 0, 1])
        assert_equal_to_rounding(layer(x[:, order]), layer(x[:, :3])[:, order])
        order = torch.randperm(9, generator=generator)
        assert (layer(x[:, order]) - layer(x)[:, order]).abs().max() > 1e-2


class TestSkip:
    def test_it_adds_a_convolution_of_the_values_along_the_points(
        self, made: Any, random: Any, assert_equal_to_rounding: Any, generator: torch.Generator
    ) -> None:
        layer = made(NystromAttention, landmarks=LANDMARKS, skip=3)
        query, key, value = random(3, 2, HEADS, 9, 4)
        mask = torch.rand(2, 9, generator=generator) < 0.8
        at = Points(mask=mask)
        out = layer.combine(query, key, value, at, at)
        filters, layer.skip = layer.skip.weight, None
        without = layer.combine(query, key, value, at, at)
        for b, h, i in itertools.product(range(2), range(HEADS), range(9)):
            expected = sum(
                filters[h, 0, o + 1, 0] * value[b, h, i + o]
                for o in (-1, 0, 1)
                if 0 <= i + o < 9 and mask[b, i + o]
            )
            assert_equal_to_rounding((out - without)[b, h, i], without.new_zeros(4) + expected)

    def test_padding_at_the_end_changes_nothing(
        self, made: Any, random: Any, assert_equal_to_rounding: Any
    ) -> None:
        layer, x = made(NystromAttention, landmarks=LANDMARKS, skip=5), random(2, 9, WIDTH)
        mask = torch.arange(9) < torch.tensor([[9], [6]])
        assert_equal_to_rounding(layer(x, mask=mask)[1:, :6], layer(x[1:, :6]))

    def test_it_does_not_go_with_a_context(self, made: Any) -> None:
        x = torch.zeros(2, 9, WIDTH, dtype=torch.float64)
        with pytest.raises(ValueError, match="context: NystromAttention attends from points to"):
            made(NystromAttention, landmarks=LANDMARKS, skip=3)(x, x)


def test_the_pseudo_inverse_is_not_shortened() -> None:
    t = torch.linspace(0, 1, 96).view(1, 1, -1, 1)
    phases = torch.arange(4)
    fields = (torch.sin(6 * t + phases), torch.cos(7 * t + phases), torch.sin(7 * t + phases))
    fields = [field.bfloat16() for field in fields]
    exact = nystrom_attention(*(field.double() for field in fields), landmarks=8)
    with torch.autocast("cpu", torch.bfloat16):
        out = nystrom_attention(*fields, landmarks=8)
    # All in bfloat16 it would be 0.009; that of values and results alone is 0.003.
    assert ((out - exact).norm() / exact.norm()).item() < 0.005


class TestErrors:
    @pytest.mark.parametrize("name", ["landmarks", "iterations"])
    def test_sizes_are_at_least_one(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"{name}: expected at least 1, got 0"):
            NystromAttention(WIDTH, HEADS, **{name: 0})

    @pytest.mark.parametrize("skip", [2, -3], ids=["even", "negative"])
    def test_a_convolution_has_a_middle(self, skip: int) -> None:
        with pytest.raises(ValueError, match="skip: expected 0 or an odd number of points, got"):
            NystromAttention(WIDTH, HEADS, skip=skip)
