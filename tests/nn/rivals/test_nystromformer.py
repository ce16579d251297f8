import itertools

import pytest
import torch
from torch import Tensor, nn

from funcattn.nn import Points
from funcattn.nn.rivals.nystromformer import (
    NystromAttention,
    iterative_pseudo_inverse,
    landmark_means,
    nystrom_attention,
)
from funcattn.nn.rivals.softmax import SoftmaxAttention

LANDMARKS = 4

WIDTH, HEADS = 8, 2


def made(**options: object) -> NystromAttention:
    """A small layer in float64, the same in every run, with parameters of order one."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        layer = NystromAttention(WIDTH, HEADS, LANDMARKS, **options).double()
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


def obvious_head(
    query: Tensor, key: Tensor, value: Tensor, query_weights: Tensor, key_weights: Tensor
) -> Tensor:
    """One sample and head, without what has no weight."""
    kept = query_weights > 0
    few_queries, _ = means(query[kept], query_weights[kept])
    key, value, key_weights = (t[key_weights > 0] for t in (key, value, key_weights))
    if len(key) <= LANDMARKS:
        return shares(query, key, key_weights) @ value
    few_keys, mass = means(key, key_weights)
    matrix = shares(few_queries, few_keys, mass)
    inverse = matrix.T / (matrix.sum(0).max() * matrix.sum(1).max())
    identity = torch.eye(len(matrix), dtype=matrix.dtype)
    for _ in range(6):
        p = matrix @ inverse
        inverse = inverse @ (13 * identity - 15 * p + 7 * p @ p - p @ p @ p) / 4
    return shares(query, few_keys, mass) @ inverse @ shares(few_queries, key, key_weights) @ value


def obvious(
    layer: NystromAttention, x: Tensor, source: Tensor, weights: Tensor, source_weights: Tensor
) -> Tensor:
    query = heads_of(layer.to_query, x)
    key, value = heads_of(layer.to_key, source), heads_of(layer.to_value, source)
    samples = []
    for b in range(len(x)):
        heads = [
            obvious_head(query[b, h], key[b, h], value[b, h], weights[b], source_weights[b])
            for h in range(HEADS)
        ]
        samples.append(torch.cat(heads, dim=-1) @ layer.to_output.weight.T + layer.to_output.bias)
    return torch.stack(samples)


REAL = {
    "all points": (9, 9),
    "even segments": (8, 8),
    "uneven, ragged": (9, 7),
    "one sample exact": (9, 3),
    "all exact": (4, 2),
}


@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("weighted", [False, True], ids=["alike", "weighted"])
@pytest.mark.parametrize("real", REAL)
def test_agrees_with_the_obvious_form_in_value_and_every_gradient(
    cross: bool, weighted: bool, real: str, generator: torch.Generator
) -> None:
    layer = made()
    source = random(2, 9, WIDTH, generator=generator).requires_grad_()
    mask = torch.arange(9) < torch.tensor(REAL[real]).unsqueeze(-1)
    weights = uniform(2, 9, generator=generator) + 0.1 if weighted else None
    ones = torch.ones(2, 9, dtype=torch.float64)
    effective = (ones if weights is None else weights) * mask
    given = None if real == "all points" else mask
    if cross:
        # Six points, of which one sample has fewer real ones than landmarks.
        x = random(2, 6, WIDTH, generator=generator).requires_grad_()
        x_mask = torch.arange(6) < torch.tensor([[6], [3]])
        out = layer(x, source, mask=(x_mask, given), weights=(None, weights))
        expected = obvious(layer, x, source, x_mask.double(), effective)
        named = {"x": x, "context": source}
    else:
        x = source
        out = layer(x, mask=given, weights=weights)
        expected = obvious(layer, x, x, effective, effective)
        named = {"x": x}
    named |= dict(layer.named_parameters())
    assert_same_value_and_gradients(out, expected, named, generator)


class TestItIsSoftmaxAttention:
    @pytest.mark.parametrize("points", [3, 4], ids=["fewer points", "as many points"])
    @pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
    def test_where_landmarks_suffice(
        self, points: int, cross: bool, generator: torch.Generator
    ) -> None:
        layer, softmax = made(), SoftmaxAttention(WIDTH, HEADS).double()
        softmax.load_state_dict(layer.state_dict())
        x = random(2, points, WIDTH, generator=generator)
        weights = uniform(2, points, generator=generator)
        if cross:
            many = random(2, 9, WIDTH, generator=generator)
            out, exact = (of(many, x, weights=(None, weights)) for of in (layer, softmax))
        else:
            out, exact = (of(x, weights=weights) for of in (layer, softmax))
        assert_equal_to_rounding(out, exact)

    def test_not_where_they_do_not(self, generator: torch.Generator) -> None:
        layer, softmax = made(), SoftmaxAttention(WIDTH, HEADS).double()
        softmax.load_state_dict(layer.state_dict())
        x = random(2, 9, WIDTH, generator=generator)
        assert (layer(x) - softmax(x)).abs().max() > 1e-2

    @pytest.mark.parametrize("lengths", [(2, 2, 2, 2), (3, 2, 2, 2)], ids=["even", "uneven"])
    def test_where_points_of_a_segment_are_equal(
        self, lengths: tuple[int, ...], generator: torch.Generator
    ) -> None:
        # Then the matrix of all pairs has the rank of the landmarks, and nothing is lost.
        query, key = 2 * random(2, 1, 1, LANDMARKS, 4, generator=generator)
        repeats = torch.tensor(lengths)
        query, key = (x.repeat_interleave(repeats, dim=-2) for x in (query, key))
        value = random(1, 1, sum(lengths), 4, generator=generator)
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
    def test_segments_differ_by_at_most_one_point(self, points: int) -> None:
        index = torch.arange(points, dtype=torch.float64).view(1, 1, -1, 1)
        centres, mass = landmark_means(index, LANDMARKS)
        assert mass.sum() == points
        assert mass.max() - mass.min() <= (1 if points % LANDMARKS else 0)
        ends = mass.flatten().cumsum(0)
        expected = (ends + ends - mass.flatten() - 1) / 2  # of consecutive numbers
        assert_equal_to_rounding(centres.flatten(), expected)

    def test_points_without_weight_are_absent(self, generator: torch.Generator) -> None:
        field = random(2, HEADS, 11, 3, generator=generator)
        weights = uniform(2, 1, 11, 1, generator=generator)
        kept = torch.tensor([0, 2, 3, 4, 7, 8, 9])
        dropped = torch.tensor([1, 5, 6, 10])
        weights[:, :, dropped] = 0
        for ours, theirs in zip(
            landmark_means(field, LANDMARKS, weights),
            landmark_means(field[:, :, kept], LANDMARKS, weights[:, :, kept]),
            strict=True,
        ):
            assert_equal_to_rounding(ours, theirs)

    def test_landmarks_without_points_are_zero(self, generator: torch.Generator) -> None:
        field = random(1, 1, 3, 2, generator=generator)
        centres, mass = landmark_means(field, 5)
        assert mass.flatten().tolist() == [1, 1, 0, 1, 0]
        assert_equal_to_rounding(centres[0, 0, [0, 1, 3]], field[0, 0])
        assert not centres[0, 0, [2, 4]].any()

    def test_their_gradients_are_those_of_finite_differences(
        self, generator: torch.Generator
    ) -> None:
        field = random(2, 2, 7, 2, generator=generator).requires_grad_()
        weights = (uniform(2, 1, 7, 1, generator=generator) + 0.1).requires_grad_()
        assert torch.autograd.gradcheck(lambda x, w: landmark_means(x, 3, w), (field, weights))


class TestPseudoInverse:
    @pytest.mark.parametrize("shape", [(5, 5), (6, 4), (4, 6)], ids=["square", "tall", "wide"])
    def test_it_converges_to_the_pseudo_inverse(
        self, shape: tuple[int, int], generator: torch.Generator
    ) -> None:
        matrix = random(3, *shape, generator=generator)
        # The scales of a batch do not touch each other.
        matrix = matrix * torch.tensor([1e-3, 1.0, 1e3], dtype=torch.float64).view(-1, 1, 1)
        inverse = torch.linalg.pinv(matrix)
        out = iterative_pseudo_inverse(matrix, 25)
        torch.testing.assert_close(out, inverse, rtol=1e-9, atol=0)

    def test_rows_and_columns_of_zeros_stay_apart(self, generator: torch.Generator) -> None:
        matrix = torch.zeros(5, 5, dtype=torch.float64)
        matrix[:4, :4] = random(4, 4, generator=generator)
        out = iterative_pseudo_inverse(matrix)
        assert_equal_to_rounding(out[:4, :4], iterative_pseudo_inverse(matrix[:4, :4]))
        assert not out[4].any()
        assert not out[:, 4].any()

    def test_it_is_of_third_order_and_never_too_large(self) -> None:
        singular = torch.tensor([1.0, 0.9, 0.3, 0.01], dtype=torch.float64)
        matrix = torch.diag(singular)
        left = [
            1 - singular * iterative_pseudo_inverse(matrix, steps).diagonal() for steps in range(9)
        ]
        for before, after in itertools.pairwise(left):
            assert_equal_to_rounding(after, before**3 * (3 + before) / 4)
            assert (after > -1e-12).all()

    def test_its_gradients_are_those_of_finite_differences(
        self, generator: torch.Generator
    ) -> None:
        matrix = random(2, 4, 3, generator=generator).requires_grad_()
        assert torch.autograd.gradcheck(lambda a: iterative_pseudo_inverse(a, 3), (matrix,))


def test_its_gradients_are_those_of_finite_differences(generator: torch.Generator) -> None:
    query, key, value = random(3, 1, 1, 5, 2, generator=generator)
    weights = uniform(2, 1, 1, 5, 1, generator=generator) + 0.1
    inputs = [t.detach().requires_grad_() for t in (query, key, value, *weights)]
    assert torch.autograd.gradcheck(lambda *given: nystrom_attention(*given, landmarks=2), inputs)


class TestPoints:
    @pytest.mark.parametrize("keep", [0.3, 0.8], ids=["exact", "by landmarks"])
    def test_masked_points_are_dropped(self, keep: float, generator: torch.Generator) -> None:
        layer, x = made(), random(2, 10, WIDTH, generator=generator)
        mask = torch.arange(10) * 0.37 % 1 < keep
        weights = uniform(2, 10, generator=generator)
        assert (int(mask.sum()) <= LANDMARKS) == (keep == 0.3)
        out = layer(x, mask=mask.expand(2, 10), weights=weights)[:, mask]
        assert_equal_to_rounding(out, layer(x[:, mask], weights=weights[:, mask]))
        # Points without weight are as good as masked.
        without = layer(x, weights=weights * mask)[:, mask]
        assert_equal_to_rounding(out, without)

    @pytest.mark.parametrize("real", [3, 4, 7], ids=lambda n: f"{n} real points")
    @pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
    def test_what_stands_at_masked_points_does_not_matter(
        self, real: int, cross: bool, generator: torch.Generator
    ) -> None:
        layer, x = made(), random(2, 9, WIDTH, generator=generator)
        other = random(2, 8, WIDTH, generator=generator) if cross else None
        mask = torch.arange(9) < torch.tensor([[9], [real]])
        changed = torch.where(mask[..., None], x, 1e6)
        out = layer(x, other, mask=(mask, None) if cross else mask)
        same = layer(changed, other, mask=(mask, None) if cross else mask)
        assert_equal_to_rounding(out[mask], same[mask])
        alone = layer(x[1:, :real], None if other is None else other[1:])
        assert_equal_to_rounding(out[1:, :real], alone)

    def test_padding_of_the_context_changes_nothing(self, generator: torch.Generator) -> None:
        layer, x = made(), random(2, 6, WIDTH, generator=generator)
        context = random(2, 9, WIDTH, generator=generator)
        mask = torch.arange(9) < torch.tensor([[3], [7]])
        out = layer(x, context, mask=(None, mask))
        for b, real in enumerate((3, 7)):
            one = slice(b, b + 1)
            assert_equal_to_rounding(out[one], layer(x[one], context[one, :real]))

    def test_a_sample_does_not_see_its_batch_neighbours(self, generator: torch.Generator) -> None:
        layer = made()
        scale = torch.tensor([0.1, 1.0, 3.0], dtype=torch.float64).view(-1, 1, 1)
        x = scale * random(3, 9, WIDTH, generator=generator)
        together = layer(x)
        for b in range(3):
            assert_equal_to_rounding(together[b : b + 1], layer(x[b : b + 1]))

    def test_repeating_all_points_in_place_changes_nothing(
        self, generator: torch.Generator
    ) -> None:
        layer, x = made(), random(2, 8, WIDTH, generator=generator)
        repeated = layer(x.repeat_interleave(3, dim=1))
        assert_equal_to_rounding(repeated, layer(x).repeat_interleave(3, dim=1))

    def test_weight_two_is_two_copies_where_landmarks_suffice(
        self, generator: torch.Generator
    ) -> None:
        layer, x = made(), random(2, 3, WIDTH, generator=generator)
        weights = torch.tensor([[2, 1, 1]], dtype=torch.float64).expand(2, 3)
        weighted = layer(x, weights=weights)
        assert_equal_to_rounding(weighted, layer(torch.cat([x[:, :1], x], dim=1))[:, 1:])
        assert (weighted - layer(x)).abs().max() > 1e-3

    def test_the_scale_of_weights_does_not_matter(self, generator: torch.Generator) -> None:
        layer, x = made(), random(2, 9, WIDTH, generator=generator)
        weights = uniform(2, 9, generator=generator)
        assert_equal_to_rounding(layer(x, weights=5 * weights), layer(x, weights=weights))
        assert_equal_to_rounding(layer(x, weights=torch.full_like(weights, 0.3)), layer(x))

    def test_the_order_matters_only_where_landmarks_do_not_suffice(
        self, generator: torch.Generator
    ) -> None:
        layer, x = made(), random(2, 9, WIDTH, generator=generator)
        order = torch.tensor([2, 0, 1])
        assert_equal_to_rounding(layer(x[:, order]), layer(x[:, :3])[:, order])
        order = torch.randperm(9, generator=generator)
        assert (layer(x[:, order]) - layer(x)[:, order]).abs().max() > 1e-2


class TestSkip:
    def test_it_adds_a_convolution_of_the_values_along_the_points(
        self, generator: torch.Generator
    ) -> None:
        layer = made(skip=3)
        x = random(2, 9, WIDTH, generator=generator)
        mask = torch.rand(2, 9, generator=generator) < 0.8
        value = heads_of(layer.to_value, x)
        out = layer.combine(
            heads_of(layer.to_query, x), heads_of(layer.to_key, x), value, *2 * [Points(mask=mask)]
        )
        filters, layer.skip = layer.skip.weight, None
        without = layer.combine(
            heads_of(layer.to_query, x), heads_of(layer.to_key, x), value, *2 * [Points(mask=mask)]
        )
        for b, h, i in itertools.product(range(2), range(HEADS), range(9)):
            expected = sum(
                filters[h, 0, o + 1, 0] * value[b, h, i + o]
                for o in (-1, 0, 1)
                if 0 <= i + o < 9 and mask[b, i + o]
            )
            assert_equal_to_rounding((out - without)[b, h, i], without.new_zeros(4) + expected)

    def test_padding_at_the_end_changes_nothing(self, generator: torch.Generator) -> None:
        layer, x = made(skip=5), random(2, 9, WIDTH, generator=generator)
        mask = torch.arange(9) < torch.tensor([[9], [6]])
        assert_equal_to_rounding(layer(x, mask=mask)[1:, :6], layer(x[1:, :6]))

    def test_it_does_not_go_with_a_context(self) -> None:
        x = torch.zeros(2, 9, WIDTH, dtype=torch.float64)
        with pytest.raises(ValueError, match="context: NystromAttention attends from points to"):
            made(skip=3)(x, x)


class TestNumbers:
    def test_large_scores_do_not_overflow(self, generator: torch.Generator) -> None:
        layer = made().float()
        query, key = 60 * random(2, 2, HEADS, 9, 4, generator=generator).float()
        value = random(2, HEADS, 9, 4, generator=generator).float()
        query.requires_grad_()
        assert (query @ key.mT).abs().max() / 2 > 1e3
        out = layer.combine(query, key, value, Points(), Points())
        out.square().sum().backward()
        assert out.isfinite().all()
        assert query.grad.isfinite().all()

    @pytest.mark.parametrize("skip", [0, 3], ids=["alone", "with convolution"])
    def test_under_autocast_it_stays_close_to_float64(
        self, skip: int, generator: torch.Generator
    ) -> None:
        layer, x = made(skip=skip), random(2, 20, WIDTH, generator=generator)
        weights, mask = uniform(2, 20, generator=generator), torch.arange(20).expand(2, 20) < 15
        exact = layer(x, weights=weights, mask=mask)
        with torch.autocast("cpu", torch.bfloat16):
            out = layer.float()(x.float(), weights=weights.float(), mask=mask)
        assert ((out - exact).norm() / exact.norm()).item() < 0.03
        (out * out).sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())

    def test_the_pseudo_inverse_is_not_shortened(self) -> None:
        t = torch.linspace(0, 1, 96).view(1, 1, -1, 1)
        phases = torch.arange(4)
        fields = (torch.sin(6 * t + phases), torch.cos(7 * t + phases), torch.sin(7 * t + phases))
        fields = [field.bfloat16() for field in fields]
        exact = nystrom_attention(*(field.double() for field in fields), landmarks=8)
        with torch.autocast("cpu", torch.bfloat16):
            out = nystrom_attention(*fields, landmarks=8)
        # All in bfloat16 it would be 0.009; that of values and results alone is 0.003.
        assert ((out - exact).norm() / exact.norm()).item() < 0.005

    def test_no_matrix_of_all_pairs_is_made(self) -> None:
        # It would have 10^10 entries.
        with torch.no_grad():
            out = NystromAttention(WIDTH, HEADS, 4)(torch.ones(1, 100_000, WIDTH))
        assert out.isfinite().all()


class TestErrors:
    @pytest.mark.parametrize("name", ["landmarks", "iterations"])
    def test_sizes_are_at_least_one(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"{name}: expected at least 1, got 0"):
            NystromAttention(WIDTH, HEADS, **{name: 0})

    @pytest.mark.parametrize("skip", [2, -3], ids=["even", "negative"])
    def test_a_convolution_has_a_middle(self, skip: int) -> None:
        with pytest.raises(ValueError, match="skip: expected 0 or an odd number of points, got"):
            NystromAttention(WIDTH, HEADS, skip=skip)
