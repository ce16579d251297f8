from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.baselines.flare import FlareAttention, ResidualMlp, routed

WIDTH, HEADS = 8, 2


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2


def network(layer: ResidualMlp, x: Tensor) -> Tensor:
    for m in (layer.first.map, *layer.hidden):
        x = x + gelu(F.linear(x, m.weight, m.bias))
    return x + F.linear(x, layer.last.weight, layer.last.bias)


def mixing(latents: Tensor, points: Tensor, key: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """W_dec and W_enc of one head."""
    encode, decode = (latents @ key.T).exp() * w, (points @ latents.T).exp()
    return decode / decode.sum(1, keepdim=True), encode / encode.sum(1, keepdim=True)


def obvious(
    x: Tensor, source: Tensor, weights: Tensor, *, layer: FlareAttention, **_: object
) -> Tensor:
    """One head at a time, with the n x m matrix."""
    points, key = (network(layer.to_key, p).chunk(HEADS, dim=-1) for p in (x, source))
    value = network(layer.to_value, source).chunk(HEADS, dim=-1)
    parts = []
    for h in range(HEADS):
        decode, encode = mixing(layer.latents[h], points[h], key[h], weights)
        parts.append((decode @ encode) @ value[h])
    return torch.cat(parts, dim=-1)


@pytest.mark.parametrize("depth", [0, 3])
def test_agrees_with_the_obvious_form_in_value_and_every_gradient(
    depth: int, compared: Any, made: Any
) -> None:
    compared.by_samples(made(FlareAttention, latents=5, depth=depth), obvious)


def test_gradcheck(weighted: bool, random: Any, uniform: Any) -> None:
    inputs = [
        random(*shape).requires_grad_()
        for shape in ((2, 3, 4), (2, 3, 4), (2, 2, 5, 4), (2, 2, 6, 4), (2, 2, 6, 2))
    ]
    weights = uniform(2, 1, 6, 1) + 0.1 if weighted else None
    assert torch.autograd.gradcheck(lambda *given: routed(*given, weights=weights), inputs)


class TestTheMatrixBetweenThePoints:
    @pytest.fixture
    def matrix(self, random: Any, uniform: Any) -> Tensor:
        """W of three heads with four latents, from its action on the unit vectors."""
        latents, points, key = (
            random(*shape) for shape in ((3, 4, 6), (2, 3, 15, 6), (2, 3, 12, 6))
        )
        identity = torch.eye(12, dtype=torch.float64).expand(2, 3, 12, 12)
        return routed(latents, latents, points, key, identity, weights=uniform(2, 1, 12, 1))

    def test_has_as_many_ranks_as_latents(self, matrix: Tensor) -> None:
        assert (torch.linalg.matrix_rank(matrix) == 4).all()

    def test_is_stochastic(self, matrix: Tensor, assert_equal_to_rounding: Any) -> None:
        assert (matrix > 0).all()
        assert_equal_to_rounding(matrix.sum(-1), torch.ones(2, 3, 15, dtype=torch.float64))


def test_each_head_has_latents_of_its_own(made: Any, random: Any) -> None:
    layer, x = made(FlareAttention, latents=5), random(2, 20, WIDTH)
    layer.to_output = nn.Identity()
    before = layer(x)
    with torch.no_grad():
        layer.latents[1] += 1
    first, second = (layer(x) - before).abs().amax((0, 1)).chunk(HEADS)
    assert not first.any()
    assert (second > 1e-6).all()


class TestErrors:
    def test_there_is_a_latent(self) -> None:
        with pytest.raises(ValueError, match="latents: expected at least 1 per head, got 0"):
            FlareAttention(8, latents=0)

    def test_depth_is_not_negative(self) -> None:
        with pytest.raises(ValueError, match="depth: expected 0 or more hidden layers, got -1"):
            FlareAttention(8, depth=-1)
