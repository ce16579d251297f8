import itertools

import pytest
import torch
from torch import Tensor, nn

from funcattn.nn import Points, Pointwise
from funcattn.nn.rivals.galerkin import (
    FourierAttention,
    GalerkinAttention,
    HeadNorm,
    diagonally_dominant,
    integral_attention,
)

Layer = GalerkinAttention | FourierAttention
TYPES = {"galerkin": GalerkinAttention, "fourier": FourierAttention}

WIDTH, HEADS = 8, 2


def made(kind: str, **options: object) -> Layer:
    """A small layer in float64, the same in every run, with parameters of order one."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        layer = TYPES[kind](WIDTH, HEADS, **options).double()
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


def normed(x: Tensor, norm: HeadNorm) -> Tensor:
    """Over the channels of a head, with its own scale and shift."""
    centred = x - x.mean(-1, keepdim=True)
    deviation = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return centred / deviation * norm.weight + norm.bias


def obvious(
    layer: Layer,
    x: Tensor,
    source: Tensor,
    weights: Tensor,
    positions: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """By the n x m matrix; weights (b m)."""
    query = heads_of(layer.to_query, x)
    key, value = heads_of(layer.to_key, source), heads_of(layer.to_value, source)
    key = normed(key, layer.norms["key"])
    if isinstance(layer, GalerkinAttention):
        value = normed(value, layer.norms["value"])
    else:
        query = normed(query, layer.norms["query"])
    if positions is not None:
        here, there = (torch.stack([p] * HEADS, dim=1) for p in positions)
        query = torch.cat([here, query], dim=-1)
        key, value = (torch.cat([there, field], dim=-1) for field in (key, value))
    matrix = query @ key.mT * (weights / weights.sum(-1, keepdim=True))[:, None, None, :]
    if isinstance(layer, FourierAttention):
        matrix = matrix / query.shape[-1] ** 0.5
    heads = torch.cat((matrix @ value).unbind(1), dim=-1)
    return heads @ layer.to_output.weight.T + layer.to_output.bias


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("dims", [0, 2], ids=["no positions", "positions"])
@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("masked", [False, True], ids=["all points", "masked"])
@pytest.mark.parametrize("weighted", [False, True], ids=["alike", "weighted"])
def test_agrees_with_the_obvious_form_in_value_and_every_gradient(
    kind: str, dims: int, cross: bool, masked: bool, weighted: bool, generator: torch.Generator
) -> None:
    layer = made(kind, positions_dims=dims)
    x = random(2, 7, WIDTH, generator=generator).requires_grad_()
    context = random(2, 5, WIDTH, generator=generator).requires_grad_() if cross else None
    source = x if context is None else context
    weights = uniform(*source.shape[:2], generator=generator) + 0.1 if weighted else None
    mask = torch.arange(source.shape[1]) < torch.tensor([[4], [3]]) if masked else None
    positions = None
    if dims:
        here = uniform(2, 7, dims, generator=generator).requires_grad_()
        there = uniform(2, 5, dims, generator=generator).requires_grad_() if cross else here
        positions = here, there
    out = layer(
        x,
        context,
        positions=positions,
        mask=(None, mask) if cross else mask,
        weights=(None, weights) if cross else weights,
    )
    effective = torch.ones(source.shape[:2], dtype=torch.float64)
    effective = effective if weights is None else effective * weights
    effective = effective if mask is None else effective * mask
    expected = obvious(layer, x, source, effective, positions)
    named = {"x": x, **({"context": source} if cross else {}), **dict(layer.named_parameters())}
    if positions is not None:
        named["positions"] = positions[0]
        named["positions of the context"] = positions[1]
    assert_same_value_and_gradients(out, expected, named, generator)


class TestIntegralAttention:
    @pytest.mark.parametrize("weighted", [False, True], ids=["alike", "weighted"])
    def test_its_gradients_are_those_of_finite_differences(
        self, weighted: bool, generator: torch.Generator
    ) -> None:
        query = random(2, 1, 4, 3, generator=generator).requires_grad_()
        key = random(2, 1, 5, 3, generator=generator).requires_grad_()
        value = random(2, 1, 5, 2, generator=generator).requires_grad_()
        inputs = [query, key, value]
        if weighted:
            inputs.append((uniform(2, 1, 5, 1, generator=generator) + 0.1).requires_grad_())
        assert torch.autograd.gradcheck(integral_attention, inputs)

    @pytest.mark.parametrize("which", [0, 1, 2], ids=["queries", "keys", "values"])
    def test_it_is_linear_in_each(self, which: int, generator: torch.Generator) -> None:
        fields = list(random(3, 2, 1, 6, 4, generator=generator))
        one, other = random(2, 2, 1, 6, 4, generator=generator)

        def at(field: Tensor) -> Tensor:
            return integral_attention(*fields[:which], field, *fields[which + 1 :])

        assert_equal_to_rounding(at(2 * one - 3 * other), 2 * at(one) - 3 * at(other))

    def test_sums_over_keys_first_are_sums_over_values_last(
        self, generator: torch.Generator
    ) -> None:
        query, key, value = random(3, 2, 1, 6, 4, generator=generator)
        quadratic = (query @ key.mT) @ value / 6
        assert_equal_to_rounding(integral_attention(query, key, value), quadratic)


def test_what_is_linear_in_the_layers(generator: torch.Generator) -> None:
    fields = list(random(3, 2, HEADS, 6, 4, generator=generator))
    for kind, linear in {"galerkin": [0], "fourier": [2]}.items():
        layer = made(kind)
        before = layer.combine(*fields, Points(), Points())
        for which in range(3):
            scaled = [2 * field if i == which else field for i, field in enumerate(fields)]
            difference = layer.combine(*scaled, Points(), Points()) - 2 * before
            assert (difference.abs().max() < 1e-12) == (which in linear), (kind, which)


@pytest.mark.parametrize("kind", TYPES)
def test_it_is_an_integral_that_converges_as_the_mesh_is_refined(kind: str) -> None:
    layer = made(kind, positions_dims=1)
    frequencies = torch.arange(1, WIDTH + 1, dtype=torch.float64)

    def field(positions: Tensor) -> Tensor:
        return torch.sin(frequencies * positions + frequencies)

    here = torch.linspace(0, 1, 4, dtype=torch.float64).view(1, -1, 1)

    def on_mesh(points: int, *, quadrature: bool) -> Tensor:
        """At the same four points, from an uneven mesh: dense at 0, by the trapezoidal rule."""
        there = torch.linspace(0, 1, points, dtype=torch.float64).square()
        steps = there.diff()
        zero = torch.zeros(1, dtype=torch.float64)
        weights = (torch.cat([zero, steps]) + torch.cat([steps, zero])) / 2
        return layer(
            field(here),
            field(there.view(1, -1, 1)),
            positions=(here, there.view(1, -1, 1)),
            weights=(None, weights.unsqueeze(0)) if quadrature else None,
        )

    fine = on_mesh(20_001, quadrature=True)
    errors = [
        (on_mesh(points, quadrature=True) - fine).norm().item() for points in (51, 101, 201, 401)
    ]
    for coarse, finer in itertools.pairwise(errors):
        assert 3.9 < coarse / finer < 4.1  # second order
    # Counting all points alike is an integral too, but with the density of the mesh.
    unweighted = on_mesh(20_001, quadrature=False)
    assert (unweighted - fine).norm() > 100 * errors[0]


@pytest.mark.parametrize("kind", TYPES)
class TestPointsAreASetWithWeights:
    def test_repeating_all_points_changes_nothing(
        self, kind: str, generator: torch.Generator
    ) -> None:
        layer, x = made(kind), random(2, 9, WIDTH, generator=generator)
        assert_equal_to_rounding(layer(x.repeat(1, 3, 1)), layer(x).repeat(1, 3, 1))

    def test_masked_points_are_dropped(self, kind: str, generator: torch.Generator) -> None:
        layer, x = made(kind), random(2, 9, WIDTH, generator=generator)
        mask = torch.rand(9, generator=generator) < 0.6
        weights = uniform(2, 9, generator=generator)
        out = layer(x, mask=mask.expand(2, 9), weights=weights)[:, mask]
        assert_equal_to_rounding(out, layer(x[:, mask], weights=weights[:, mask]))

    def test_what_stands_at_masked_points_does_not_matter(
        self, kind: str, generator: torch.Generator
    ) -> None:
        layer = made(kind, positions_dims=2)
        x, positions = (
            random(2, 9, WIDTH, generator=generator),
            uniform(2, 9, 2, generator=generator),
        )
        mask = torch.arange(9) < torch.tensor([[9], [4]])
        out = layer(x, positions=positions, mask=mask)
        other = layer(
            torch.where(mask[..., None], x, 1e6),
            positions=torch.where(mask[..., None], positions, 1e6),
            mask=mask,
        )
        assert_equal_to_rounding(out[mask], other[mask])
        alone = layer(x[1:, :4], positions=positions[1:, :4])
        assert_equal_to_rounding(out[1:, :4], alone)

    def test_weight_two_is_two_copies(self, kind: str, generator: torch.Generator) -> None:
        layer, x = made(kind), random(2, 9, WIDTH, generator=generator)
        weights = torch.ones(2, 9, dtype=torch.float64)
        weights[:, :3] = 2
        weighted = layer(x, weights=weights)
        assert_equal_to_rounding(weighted, layer(torch.cat([x, x[:, :3]], dim=1))[:, :9])
        assert (weighted - layer(x)).abs().max() > 1e-3

    def test_permuting_points_permutes_results(self, kind: str, generator: torch.Generator) -> None:
        layer, x = made(kind), random(2, 9, WIDTH, generator=generator)
        weights, order = uniform(2, 9, generator=generator), torch.randperm(9, generator=generator)
        permuted = layer(x[:, order], weights=weights[:, order])
        assert_equal_to_rounding(permuted, layer(x, weights=weights)[:, order])


def test_every_head_has_a_norm_of_its_own(generator: torch.Generator) -> None:
    norm, x = HeadNorm(HEADS, 4).double(), random(2, HEADS, 5, 4, generator=generator)
    before = norm(x)
    norm.weight.data[1] += 1
    norm.bias.data[1] -= 1
    first, second = norm(x).unbind(1)
    assert torch.equal(first, before[:, 0])
    assert_equal_to_rounding(second, 2 * before[:, 1] - 1)


class TestNumbers:
    @pytest.mark.parametrize("kind", TYPES)
    def test_fields_that_are_constant_over_the_channels_have_gradients(self, kind: str) -> None:
        layer = made(kind)
        fields = [torch.full((1, HEADS, 5, 4), 1e3, dtype=torch.float64) for _ in range(3)]
        for field in fields:
            field.requires_grad_()
        layer.combine(*fields, Points(), Points()).sum().backward()
        assert all(field.grad.isfinite().all() for field in fields)

    @pytest.mark.parametrize("kind", TYPES)
    @pytest.mark.parametrize("dims", [0, 2], ids=["no positions", "positions"])
    def test_under_autocast_it_stays_close_to_float64(
        self, kind: str, dims: int, generator: torch.Generator
    ) -> None:
        layer, x = made(kind, positions_dims=dims), random(2, 20, WIDTH, generator=generator)
        positions = uniform(2, 20, 2, generator=generator)
        weights, mask = uniform(2, 20, generator=generator), torch.arange(20).expand(2, 20) < 15
        exact = layer(x, positions=positions, weights=weights, mask=mask)
        with torch.autocast("cpu", torch.bfloat16):
            out = layer.float()(
                x.float(), positions=positions.float(), weights=weights.float(), mask=mask
            )
        assert ((out - exact).norm() / exact.norm()).item() < 0.03
        (out * out).sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())

    @pytest.mark.parametrize("kind", TYPES)
    def test_no_matrix_of_all_pairs_is_made(self, kind: str) -> None:
        # It would have 10^10 entries.
        with torch.no_grad():
            out = TYPES[kind](WIDTH, HEADS)(torch.ones(1, 100_000, WIDTH))
        assert out.isfinite().all()


class TestStart:
    def test_maps_start_diagonally_dominant(self) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            layer = diagonally_dominant(100, 100, gain=0.01, diagonal=0.02)
        noise = layer.map.weight - 0.02 * torch.eye(100)
        bound = 0.01 * (6 / 200) ** 0.5
        assert 0.98 * bound < noise.abs().max() <= bound * (1 + 1e-5)
        assert not layer.map.bias.any()

    @pytest.mark.parametrize("kind", TYPES)
    def test_that_is_the_default(self, kind: str) -> None:
        layer, plain = TYPES[kind](64, 4), TYPES[kind](64, 4, features=Pointwise)
        for name in ("to_query", "to_key", "to_value"):
            ours, others = (
                of.get_submodule(name).map.weight - 0.01 * torch.eye(64) for of in (layer, plain)
            )
            assert ours.abs().max() < 0.01 * (6 / 128) ** 0.5 * 1.001
            assert others.abs().max() > 0.03


class TestErrors:
    X = torch.zeros(2, 5, WIDTH, dtype=torch.float64)

    @pytest.mark.parametrize("kind", TYPES)
    @pytest.mark.parametrize(
        ("positions", "got"),
        [(None, "None"), (torch.zeros(2, 5, 3), r"\(2, 5, 3\)")],
        ids=["none", "of another space"],
    )
    def test_positions_have_the_dimension_of_the_layer(
        self, kind: str, positions: Tensor | None, got: str
    ) -> None:
        layer = made(kind, positions_dims=2)
        with pytest.raises(ValueError, match=rf"positions: expected \(b, n, 2\), .*got {got}"):
            layer(self.X, positions=positions)

    @pytest.mark.parametrize("kind", TYPES)
    def test_a_context_needs_positions_too(self, kind: str) -> None:
        layer = made(kind, positions_dims=2)
        with pytest.raises(ValueError, match=r"positions: expected \(b, n, 2\), .*got None"):
            layer(self.X, self.X, positions=(torch.zeros(2, 5, 2), None))

    @pytest.mark.parametrize("kind", TYPES)
    def test_a_norm_needs_two_channels(self, kind: str) -> None:
        with pytest.raises(ValueError, match="width: expected at least 2 channels a head"):
            TYPES[kind](4, heads=4)
