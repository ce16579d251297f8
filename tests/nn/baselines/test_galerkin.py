import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from funcattn.nn import Points, Pointwise
from funcattn.nn.baselines.galerkin import (
    FourierAttention,
    GalerkinAttention,
    HeadNorm,
    diagonally_dominant,
    integral_attention,
)

Layer = GalerkinAttention | FourierAttention
TYPES = {"galerkin": GalerkinAttention, "fourier": FourierAttention}

WIDTH, HEADS = 8, 2


def normed(x: Tensor, norm: HeadNorm, head: int) -> Tensor:
    """Over the channels of a head, with its own scale and shift."""
    centred = x - x.mean(-1, keepdim=True)
    deviation = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return centred / deviation * norm.weight[head] + norm.bias[head]


def obvious(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: Tensor,
    *,
    layer: Layer,
    head: int,
    here: Points,
    there: Points,
) -> Tensor:
    """By the n x m matrix."""
    key = normed(key, layer.norms["key"], head)
    if isinstance(layer, GalerkinAttention):
        value = normed(value, layer.norms["value"], head)
    else:
        query = normed(query, layer.norms["query"], head)
    if there.positions is not None:
        query = torch.cat([here.positions, query], dim=-1)
        key, value = (torch.cat([there.positions, field], dim=-1) for field in (key, value))
    matrix = query @ key.T * (weights / weights.sum())
    if isinstance(layer, FourierAttention):
        matrix = matrix / query.shape[-1] ** 0.5
    return matrix @ value


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("dims", [0, 2], ids=["no positions", "positions"])
def test_agrees_with_the_obvious_form_in_value_and_every_gradient(
    kind: str, dims: int, compared: Any, made: Any
) -> None:
    layer = made(TYPES[kind], positions_dims=dims)
    compared.by_heads(layer, obvious, positions_dims=dims)


class TestIntegralAttention:
    def test_its_gradients_are_those_of_finite_differences(
        self, weighted: bool, random: Any, uniform: Any
    ) -> None:
        inputs = [random(2, 1, 4, 3), random(2, 1, 5, 3), random(2, 1, 5, 2)]
        if weighted:
            inputs.append(uniform(2, 1, 5, 1) + 0.1)
        assert torch.autograd.gradcheck(integral_attention, [t.requires_grad_() for t in inputs])

    @pytest.mark.parametrize("which", [0, 1, 2], ids=["queries", "keys", "values"])
    def test_it_is_linear_in_each(
        self, which: int, random: Any, assert_equal_to_rounding: Any
    ) -> None:
        fields = list(random(3, 2, 1, 6, 4))
        one, other = random(2, 2, 1, 6, 4)

        def at(field: Tensor) -> Tensor:
            return integral_attention(*fields[:which], field, *fields[which + 1 :])

        assert_equal_to_rounding(at(2 * one - 3 * other), 2 * at(one) - 3 * at(other))

    def test_sums_over_keys_first_are_sums_over_values_last(
        self, random: Any, assert_equal_to_rounding: Any
    ) -> None:
        query, key, value = random(3, 2, 1, 6, 4)
        quadratic = (query @ key.mT) @ value / 6
        assert_equal_to_rounding(integral_attention(query, key, value), quadratic)


def test_what_is_linear_in_the_layers(made: Any, random: Any) -> None:
    fields = list(random(3, 2, HEADS, 6, 4))
    for kind, linear in {"galerkin": [0], "fourier": [2]}.items():
        layer = made(TYPES[kind])
        before = layer.combine(*fields, Points(), Points())
        for which in range(3):
            scaled = [2 * field if i == which else field for i, field in enumerate(fields)]
            difference = layer.combine(*scaled, Points(), Points()) - 2 * before
            assert (difference.abs().max() < 1e-12) == (which in linear), (kind, which)


@pytest.mark.parametrize("kind", TYPES)
def test_it_is_an_integral_that_converges_as_the_mesh_is_refined(kind: str, made: Any) -> None:
    layer = made(TYPES[kind], positions_dims=1)
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
def test_what_stands_at_masked_points_does_not_matter(
    kind: str, made: Any, random: Any, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    layer = made(TYPES[kind], positions_dims=2)
    x, positions = random(2, 9, WIDTH), uniform(2, 9, 2)
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


def test_every_head_has_a_norm_of_its_own(random: Any, assert_equal_to_rounding: Any) -> None:
    norm, x = HeadNorm(HEADS, 4).double(), random(2, HEADS, 5, 4)
    before = norm(x)
    norm.weight.data[1] += 1
    norm.bias.data[1] -= 1
    first, second = norm(x).unbind(1)
    assert torch.equal(first, before[:, 0])
    assert_equal_to_rounding(second, 2 * before[:, 1] - 1)


@pytest.mark.parametrize("kind", TYPES)
def test_fields_that_are_constant_over_the_channels_have_gradients(kind: str, made: Any) -> None:
    layer = made(TYPES[kind])
    fields = [torch.full((1, HEADS, 5, 4), 1e3, dtype=torch.float64) for _ in range(3)]
    for field in fields:
        field.requires_grad_()
    layer.combine(*fields, Points(), Points()).sum().backward()
    assert all(field.grad.isfinite().all() for field in fields)


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
        self, kind: str, positions: Tensor | None, got: str, made: Any
    ) -> None:
        layer = made(TYPES[kind], positions_dims=2)
        with pytest.raises(ValueError, match=rf"positions: expected \(b, n, 2\), .*got {got}"):
            layer(self.X, positions=positions)

    @pytest.mark.parametrize("kind", TYPES)
    def test_a_context_needs_positions_too(self, kind: str, made: Any) -> None:
        layer = made(TYPES[kind], positions_dims=2)
        with pytest.raises(ValueError, match=r"positions: expected \(b, n, 2\), .*got None"):
            layer(self.X, self.X, positions=(torch.zeros(2, 5, 2), None))

    @pytest.mark.parametrize("kind", TYPES)
    def test_a_norm_needs_two_channels(self, kind: str) -> None:
        with pytest.raises(ValueError, match="width: expected at least 2 channels per head"):
            TYPES[kind](4, heads=4)
