from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models import OperatorTransformer
from funcattn.nn import LearnedBasis, Points
from funcattn.nn.baselines.transolver import GalerkinCoefficients, TransolverAttention

WIDTH, HEADS = 8, 2


def obvious(
    x: Tensor,
    source: Tensor,
    weights: Tensor,
    *,
    layer: TransolverAttention,
    here: Points,
    **_: object,
) -> Tensor:
    """One head at a time, with the matrices of the equation."""

    def affine(of: nn.Linear, points: Tensor) -> Tensor:
        return F.linear(points, of.weight, of.bias)

    def basis_and_coefficients(points: Tensor, w: Tensor, h: int) -> tuple[Tensor, Tensor]:
        features = affine(layer.basis.features.map, points).chunk(HEADS, dim=-1)[h]
        scores = affine(layer.basis.scores, features) / layer.basis.temperature[h].clamp(0.1, 5)
        phi = scores.exp() / scores.exp().sum(1, keepdim=True)
        mass = phi.T @ w
        field = affine(layer.features.map, points).chunk(HEADS, dim=-1)[h]
        stabilised = mass + 1e-8 * mass.mean()
        return phi, torch.diag(1 / stabilised) @ phi.T @ torch.diag(w) @ field

    parts = []
    for h in range(HEADS):
        phi, of_query = basis_and_coefficients(x, here.weights, h)
        _, of_key = basis_and_coefficients(source, weights, h)
        q, k, v = (
            c @ m.weight.T
            for c, m in (
                (of_query, layer.to_query),
                (of_key, layer.to_key),
                (of_key, layer.to_value),
            )
        )
        grown = (q @ k.T / q.shape[1] ** 0.5).exp()
        # Masked points get nothing.
        real = (here.weights > 0).unsqueeze(1)
        parts.append(real * phi @ (grown / grown.sum(1, keepdim=True)) @ v)
    return torch.cat(parts, dim=-1)


def test_agrees_with_the_obvious_form_in_value_and_every_gradient(compared: Any, made: Any) -> None:
    compared.by_samples(made(TransolverAttention, bases=5), obvious)


def test_constant_fields_pass_through(made: Any, random: Any) -> None:
    """Averages, softmax and the partition of unity all keep constants."""
    layer, x = made(TransolverAttention, bases=5), random(2, 20, WIDTH)
    with torch.no_grad():
        layer.features.map.weight.zero_()
        layer.to_output.weight.copy_(torch.eye(WIDTH))
        layer.to_output.bias.zero_()
    constant = layer.features.map.bias.unflatten(0, (HEADS, -1)) @ layer.to_value.weight.T
    # Averages are over mass (1 + 1e-8).
    out = layer(x)
    torch.testing.assert_close(out, constant.flatten().expand_as(out), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("bases", [1, 4])
def test_rank_of_the_map_between_points_is_at_most_the_number_of_bases(
    bases: int, random: Any
) -> None:
    layer, x = TransolverAttention(32, 1, bases).double(), random(1, 20, 32)
    layer.to_output = nn.Identity()
    assert torch.linalg.matrix_rank(layer(x)[0]) <= bases


def test_the_basis_is_shared_on_request(generator: torch.Generator) -> None:
    attention = partial(TransolverAttention, heads=HEADS, bases=5)
    model = OperatorTransformer(
        2, 1, 1, width=WIDTH, layers=2, attention=attention, share_basis=True
    )
    first, second = (block.attention for block in model.blocks)
    assert second.basis is first.basis
    assert second.features is first.features
    assert second.to_query is not first.to_query
    positions, values = torch.rand(2, 30, 3, generator=generator).split([2, 1], dim=-1)
    model(positions, values).square().mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_given_basis_and_projection_are_used(made: Any, random: Any) -> None:
    x = random(2, 20, WIDTH)
    basis = LearnedBasis(WIDTH, HEADS, 3, temperature=0.1).double()
    assert made(TransolverAttention, basis=basis).basis is basis
    summed = made(TransolverAttention, bases=5, projection="transpose")
    averaged = made(TransolverAttention, bases=5)
    assert (summed(x) - averaged(x)).abs().max() > 1e-3


def test_masked_points_receive_the_bias_of_the_last_map_only(
    made: Any, random: Any, assert_equal_to_rounding: Any
) -> None:
    layer, x = made(TransolverAttention, bases=5), random(2, 20, WIDTH)
    mask = torch.arange(20) < torch.tensor([[20], [13]])
    out = layer(x, mask=mask)[~mask]
    assert_equal_to_rounding(out, layer.to_output.bias.expand_as(out))


def test_galerkin_between_coefficients_is_its_equation(made: Any, random: Any) -> None:
    layer, x = made(GalerkinCoefficients, bases=5), random(1, 30, WIDTH)
    phi = layer.basis(x, Points())[0]
    field = F.linear(x[0], layer.features.map.weight, layer.features.map.bias)
    parts = []
    for h in range(HEADS):
        mass = phi[h].sum(0)
        f = phi[h].T @ field.chunk(HEADS, dim=-1)[h] / (mass + 1e-8 * mass.mean())[:, None]
        q, k, v = f @ layer.to_query.weight.T, layer.to_key(f), layer.to_value(f)
        k, v = F.layer_norm(k, k.shape[-1:]), F.layer_norm(v, v.shape[-1:])
        parts.append(phi[h] @ q @ (k.T @ v) / 5)
    expected = F.linear(torch.cat(parts, dim=-1), layer.to_output.weight, layer.to_output.bias)
    torch.testing.assert_close(layer(x)[0], expected, rtol=0, atol=1e-10)
