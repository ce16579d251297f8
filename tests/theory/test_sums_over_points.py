"""Points enter only through sums: their order, padding, copies and chunks cannot matter."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from funcattn.ops import (
    Average,
    InnerProduct,
    PseudoInverse,
    Transpose,
    analyse,
    functional_attention,
    projector,
)

DTYPE = torch.float64
MEAN_LIKE = {"inner_product": InnerProduct(), "average": Average(), "pinv": PseudoInverse()}
EVERY = {"transpose": Transpose()} | MEAN_LIKE
every_projection = pytest.mark.parametrize("projection", EVERY)
every_mean = pytest.mark.parametrize("projection", MEAN_LIKE)
either_side = pytest.mark.parametrize("side", ["query", "key"])

# Sums in another order differ by 1e-16, times condition numbers of about 1e3.
TOLERANCE = 1e-12


@dataclass(frozen=True)
class Points:
    """One side: fields (b h n d), basis (b h n g), weights and mask (b n)."""

    fields: tuple[Tensor, ...]
    basis: Tensor
    weights: Tensor
    mask: Tensor

    @staticmethod
    def random(generator: torch.Generator, count: int, channels: tuple[int, ...]) -> "Points":
        return Points(
            tuple(torch.randn(2, 3, count, d, generator=generator, dtype=DTYPE) for d in channels),
            torch.randn(2, 3, count, 4, generator=generator, dtype=DTYPE).softmax(-1),
            0.5 + torch.rand(2, count, generator=generator, dtype=DTYPE),
            torch.ones(2, count, dtype=torch.bool),
        )

    def select(self, index: Tensor | slice) -> "Points":
        """Points picked by index: a permutation, copies, or a part."""
        return Points(
            tuple(field[:, :, index] for field in self.fields),
            self.basis[:, :, index],
            self.weights[:, index],
            self.mask[:, index],
        )

    def followed_by(self, other: "Points") -> "Points":
        return Points(
            tuple(torch.cat(pair, dim=2) for pair in zip(self.fields, other.fields, strict=True)),
            torch.cat([self.basis, other.basis], dim=2),
            torch.cat([self.weights, other.weights], dim=1),
            torch.cat([self.mask, other.mask], dim=1),
        )


@pytest.fixture
def queries(generator) -> Points:
    return Points.random(generator, 19, (5,))


@pytest.fixture
def keys(generator) -> Points:
    return Points.random(generator, 23, (5, 2))


def attend(queries: Points, keys: Points, projection: str, ridge: float = 0.1) -> Tensor:
    return functional_attention(
        *queries.fields,
        *keys.fields,
        queries.basis,
        keys.basis,
        ridge=ridge,
        projection=projection,
        weights=(queries.weights, keys.weights),
        mask=(queries.mask, keys.mask),
    )


def close(actual: Tensor, expected: Tensor) -> None:
    scale = expected.abs().max().item()
    torch.testing.assert_close(actual, expected, rtol=0, atol=TOLERANCE * scale)


@every_projection
def test_permuting_query_points_permutes_the_output(queries, keys, generator, projection) -> None:
    order = torch.randperm(19, generator=generator)
    permuted = attend(queries.select(order), keys, projection)
    close(permuted, attend(queries, keys, projection)[:, :, order])


@every_projection
def test_permuting_key_points_changes_nothing(queries, keys, generator, projection) -> None:
    order = torch.randperm(23, generator=generator)
    close(attend(queries, keys.select(order), projection), attend(queries, keys, projection))


def padding(generator: torch.Generator, count: int, channels: tuple[int, ...]) -> Points:
    """Arbitrary finite numbers, large and of both signs, also in the basis."""
    points = Points.random(generator, count, channels)
    return Points(
        tuple(1e3 * field for field in points.fields),
        1e3 * torch.randn(points.basis.shape, generator=generator, dtype=DTYPE),
        points.weights,
        ~points.mask,
    )


def with_gradients(queries: Points, keys: Points, projection: str) -> tuple[Tensor, list[Tensor]]:
    """Output at the 19 real query points, and the gradients of a functional of it."""
    leaves = [
        tensor.clone().requires_grad_()
        for points in (queries, keys)
        for tensor in (*points.fields, points.basis, points.weights)
    ]
    query, query_basis, query_weights, key, value, key_basis, key_weights = leaves
    out = attend(
        replace(queries, fields=(query,), basis=query_basis, weights=query_weights),
        replace(keys, fields=(key, value), basis=key_basis, weights=key_weights),
        projection,
    )
    factors = torch.linspace(-1, 1, out[:, :, :19].numel(), dtype=DTYPE)
    # Padded rows get a factor as well: they are constant, so nothing may come of it.
    loss = (factors * out[:, :, :19].flatten()).sum() + out[:, :, 19:].sum()
    return out, list(torch.autograd.grad(loss, leaves))


@every_projection
def test_padding_changes_neither_output_nor_gradients(queries, keys, generator, projection) -> None:
    out, gradients = with_gradients(queries, keys, projection)
    padded_out, padded_gradients = with_gradients(
        queries.followed_by(padding(generator, 6, (5,))),
        keys.followed_by(padding(generator, 4, (5, 2))),
        projection,
    )
    close(padded_out[:, :, :19], out)
    assert (padded_out[:, :, 19:] == 0).all()
    for padded, plain in zip(padded_gradients, gradients, strict=True):
        axis = 1 if plain.ndim == 2 else 2
        real, rest = padded.split([plain.shape[axis], padded.shape[axis] - plain.shape[axis]], axis)
        close(real, plain)
        assert (rest == 0).all()


def attend_with(side: str, changed: Points, queries: Points, keys: Points, name: str) -> Tensor:
    """Attention with one side replaced."""
    return attend(changed, keys, name) if side == "query" else attend(queries, changed, name)


@either_side
@every_projection
def test_a_point_of_weight_two_is_two_copies_of_it(queries, keys, projection, side) -> None:
    points = queries if side == "query" else keys
    weights = points.weights.clone()
    weights[:, 0] *= 2
    heavy = replace(points, weights=weights)
    copied = points.followed_by(points.select(slice(0, 1)))
    expected, out = (
        attend_with(side, changed, queries, keys, projection) for changed in (heavy, copied)
    )
    close(out[:, :, :19], expected)
    assert (expected - attend(queries, keys, projection)).norm() > 1e-3 * expected.norm()


@either_side
@every_mean
def test_scaling_all_weights_changes_nothing(queries, keys, projection, side) -> None:
    points = queries if side == "query" else keys
    scaled = replace(points, weights=7.3 * points.weights)
    out = attend_with(side, scaled, queries, keys, projection)
    close(out, attend(queries, keys, projection))


def test_scaling_all_weights_scales_the_transpose_and_its_ridge(queries, keys) -> None:
    """q~, k~ and v~ all grow s times: with a ridge s^2 times larger C stays, and v~ remains."""
    scaled = (replace(points, weights=7 * points.weights) for points in (queries, keys))
    expected = 7 * attend(queries, keys, "transpose", ridge=0.1)
    close(attend(*scaled, "transpose", ridge=0.1 * 49), expected)


@every_mean
def test_refining_the_mesh_by_repetition_changes_nothing(queries, keys, projection) -> None:
    many_queries = queries.select(torch.arange(19).repeat_interleave(3))
    many_keys = keys.select(torch.arange(23).repeat(2))
    refined = attend(many_queries, many_keys, projection)
    close(refined, attend(queries, keys, projection).repeat_interleave(3, dim=2))


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weights"])
@every_projection
def test_moments_and_statistics_may_be_added_over_chunks(keys, projection, weighted) -> None:
    chosen, field = EVERY[projection], keys.fields[0]
    moments, statistic = 0, 0
    for part in torch.arange(23).split([7, 1, 10, 5]):
        chunk = keys.select(part)
        weights = chunk.weights[:, None, :, None] if weighted else None
        weighted_field = chunk.fields[0] if weights is None else weights * chunk.fields[0]
        moments = moments + analyse(chunk.basis, weighted_field)
        statistic = statistic + chosen.statistic(chunk.basis, weights)
    whole = projector(keys.basis, projection, weights=keys.weights if weighted else None)(field)
    close(chosen.coefficients(moments, statistic), whole)


@every_projection
def test_samples_of_a_batch_and_heads_do_not_see_each_other(queries, keys, projection) -> None:
    expected = attend(queries, keys, projection)
    disturbed = tuple(field.clone() for field in keys.fields)
    for field in disturbed:
        field[0, 1] += 1
    out = attend(queries, replace(keys, fields=disturbed), projection)
    changed = (out != expected).flatten(2).any(-1)
    assert changed.tolist() == [[False, True, False], [False, False, False]]
