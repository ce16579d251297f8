import pytest
import torch
from torch import Tensor, nn

from funcattn.nn import Points
from funcattn.nn.rivals.linformer import LinformerAttention, linformer_attention
from funcattn.nn.rivals.softmax import SoftmaxAttention

POINTS, PROJECTED = 7, 3

WIDTH, HEADS = 8, 2


def made(projected: int = PROJECTED, **options: object) -> LinformerAttention:
    """A small layer in float64, the same in every run, with parameters of order one."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        layer = LinformerAttention(WIDTH, HEADS, projected, points=POINTS, **options).double()
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


def obvious(layer: LinformerAttention, x: Tensor, source: Tensor, weights: Tensor) -> Tensor:
    """Row by row, with the projections as sums over points; weights (b m)."""
    query = heads_of(layer.to_query, x)
    key, value = heads_of(layer.to_key, source), heads_of(layer.to_value, source)
    of_keys = layer.key_projection
    of_values = of_keys if layer.value_projection is None else layer.value_projection
    out = []
    for b in range(len(x)):
        heads = []
        for h in range(HEADS):
            few_keys, few_values = (
                torch.stack(
                    [
                        sum(row[j] * weights[b, j] * field[b, h, j] for j in range(POINTS))
                        for row in projection
                    ]
                )
                for projection, field in ((of_keys, key), (of_values, value))
            )
            factors = (query[b, h] @ few_keys.T / (WIDTH / HEADS) ** 0.5).exp()
            heads.append(factors @ few_values / factors.sum(-1, keepdim=True))
        out.append(torch.cat(heads, dim=-1) @ layer.to_output.weight.T + layer.to_output.bias)
    return torch.stack(out)


@pytest.mark.parametrize("one", [False, True], ids=["two projections", "one projection"])
@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("masked", [False, True], ids=["all points", "masked"])
@pytest.mark.parametrize("weighted", [False, True], ids=["alike", "weighted"])
def test_agrees_with_the_obvious_form_in_value_and_every_gradient(
    one: bool, cross: bool, masked: bool, weighted: bool, generator: torch.Generator
) -> None:
    layer = made(one_projection=one)
    source = random(2, POINTS, WIDTH, generator=generator).requires_grad_()
    x = random(2, 5, WIDTH, generator=generator).requires_grad_() if cross else source
    weights = uniform(2, POINTS, generator=generator) + 0.1 if weighted else None
    mask = torch.arange(POINTS) < torch.tensor([[4], [3]]) if masked else None
    out = layer(
        x,
        source if cross else None,
        mask=(None, mask) if cross else mask,
        weights=(None, weights) if cross else weights,
    )
    real = torch.ones(2, POINTS, dtype=torch.float64) if mask is None else mask.double()
    effective = real if weights is None else weights * real
    # One on average over the real points.
    effective = effective * (real.sum(-1) / effective.sum(-1)).unsqueeze(-1)
    expected = obvious(layer, x, source, effective)
    named = {"x": x, **({"context": source} if cross else {}), **dict(layer.named_parameters())}
    assert_same_value_and_gradients(out, expected, named, generator)


def test_its_gradients_are_those_of_finite_differences(generator: torch.Generator) -> None:
    query = random(2, 1, 4, 3, generator=generator)
    key, value = random(2, 2, 1, 5, 3, generator=generator)
    projections = random(2, 2, 5, generator=generator)
    weights = uniform(2, 1, 5, 1, generator=generator)
    inputs = [t.detach().requires_grad_() for t in (query, key, value, *projections, weights)]
    assert torch.autograd.gradcheck(linformer_attention, inputs)


class TestItIsSoftmaxAttention:
    def test_with_identities_as_projections(self, generator: torch.Generator) -> None:
        layer, softmax = made(projected=POINTS), SoftmaxAttention(WIDTH, HEADS).double()
        state = layer.state_dict()
        for name in ("key_projection", "value_projection"):
            state.pop(name).copy_(torch.eye(POINTS))
        softmax.load_state_dict(state)
        x = random(2, POINTS, WIDTH, generator=generator)
        assert_equal_to_rounding(layer(x), softmax(x))

    def test_with_any_permutation_as_projection(self, generator: torch.Generator) -> None:
        layer, softmax = made(projected=POINTS), SoftmaxAttention(WIDTH, HEADS).double()
        state = layer.state_dict()
        order = torch.randperm(POINTS, generator=generator)
        for name in ("key_projection", "value_projection"):
            state.pop(name).copy_(torch.eye(POINTS)[order])
        softmax.load_state_dict(state)
        x = random(2, POINTS, WIDTH, generator=generator)
        assert_equal_to_rounding(layer(x), softmax(x))

    def test_of_few_keys_as_means_of_segments(self, generator: torch.Generator) -> None:
        projection = torch.tensor([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]], dtype=torch.float64)
        query, key, value = random(3, 2, HEADS, 4, 3, generator=generator)
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


def test_one_projection_is_half_the_parameters() -> None:
    one, two = (
        sum(p.numel() for name, p in made(one_projection=one).named_parameters() if "proj" in name)
        for one in (True, False)
    )
    assert (one, two) == (PROJECTED * POINTS, 2 * PROJECTED * POINTS)


class TestPoints:
    def test_what_stands_at_masked_points_does_not_matter(self, generator: torch.Generator) -> None:
        layer, x = made(), random(2, POINTS, WIDTH, generator=generator)
        mask = torch.arange(POINTS) < torch.tensor([[POINTS], [4]])
        changed = torch.where(mask[..., None], x, 1e6)
        out, other = layer(x, mask=mask), layer(changed, mask=mask)
        assert_equal_to_rounding(out[mask], other[mask])

    def test_masked_points_are_dropped_with_their_columns(self, generator: torch.Generator) -> None:
        layer, x = made(), random(2, POINTS, WIDTH, generator=generator)
        mask = torch.arange(POINTS) % 3 != 1
        short = LinformerAttention(WIDTH, HEADS, PROJECTED, points=int(mask.sum())).double()
        state = layer.state_dict()
        for name in ("key_projection", "value_projection"):
            state[name] = state[name][:, mask]
        short.load_state_dict(state)
        out = layer(x, mask=mask.expand(2, POINTS))[:, mask]
        assert_equal_to_rounding(out, short(x[:, mask]))

    def test_the_number_of_queries_is_free_and_so_is_their_order(
        self, generator: torch.Generator
    ) -> None:
        layer, context = made(), random(2, POINTS, WIDTH, generator=generator)
        x, order = random(2, 11, WIDTH, generator=generator), torch.arange(11).flip(0)
        out = layer(x, context)
        assert_equal_to_rounding(layer(x[:, order], context), out[:, order])
        assert_equal_to_rounding(layer(x[:, :2], context), out[:, :2])

    def test_the_order_of_the_keys_is_not(self, generator: torch.Generator) -> None:
        layer, x = made(), random(2, POINTS, WIDTH, generator=generator)
        assert (layer(x, x.flip(1)) - layer(x)).abs().max() > 1e-2

    def test_the_scale_of_weights_does_not_matter(self, generator: torch.Generator) -> None:
        layer, x = made(), random(2, POINTS, WIDTH, generator=generator)
        weights = uniform(2, POINTS, generator=generator)
        assert_equal_to_rounding(layer(x, weights=5 * weights), layer(x, weights=weights))
        assert_equal_to_rounding(layer(x, weights=torch.full_like(weights, 0.3)), layer(x))


class TestNumbers:
    def test_large_scores_do_not_overflow(self, generator: torch.Generator) -> None:
        layer = made().float()
        query, key = 60 * random(2, 2, HEADS, POINTS, 4, generator=generator).float()
        value = random(2, HEADS, POINTS, 4, generator=generator).float()
        query.requires_grad_()
        out = layer.combine(query, key, value, Points(), Points())
        out.square().sum().backward()
        assert out.isfinite().all()
        assert query.grad.isfinite().all()

    def test_under_autocast_it_stays_close_to_float64(self, generator: torch.Generator) -> None:
        layer, x = made(), random(2, POINTS, WIDTH, generator=generator)
        weights, mask = (
            uniform(2, POINTS, generator=generator),
            torch.arange(POINTS).expand(2, -1) < 5,
        )
        exact = layer(x, weights=weights, mask=mask)
        with torch.autocast("cpu", torch.bfloat16):
            out = layer.float()(x.float(), weights=weights.float(), mask=mask)
        assert ((out - exact).norm() / exact.norm()).item() < 0.03
        (out * out).sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


class TestErrors:
    def test_the_number_of_points_cannot_change(self) -> None:
        x = torch.zeros(2, 6, WIDTH, dtype=torch.float64)
        with pytest.raises(ValueError, match=r"points: expected 7 .*, got 6; .*column for each"):
            made()(x)

    def test_nor_can_that_of_a_context(self) -> None:
        x = torch.zeros(2, POINTS, WIDTH, dtype=torch.float64)
        with pytest.raises(ValueError, match=r"points: expected 7 .*, got 6; .*column for each"):
            made()(x, x[:, :6])

    @pytest.mark.parametrize("name", ["projected", "points"])
    def test_sizes_are_at_least_one(self, name: str) -> None:
        sizes = {"projected": 3, "points": 7, name: 0}
        with pytest.raises(ValueError, match=f"{name}: expected at least 1, got 0"):
            LinformerAttention(WIDTH, HEADS, **sizes)
