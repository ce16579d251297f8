from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from funcattn.nn import Points
from funcattn.nn.baselines.transolver_plus import TransolverPlusAttention

WIDTH, HEADS = 8, 2


def obvious(
    x: Tensor,
    source: Tensor,
    weights: Tensor,
    *,
    layer: TransolverPlusAttention,
    here: Points,
    **_: object,
) -> Tensor:
    """One head at a time, with the matrices of the equation."""

    def sliced(points: Tensor, w: Tensor, h: int) -> tuple[Tensor, Tensor]:
        f = F.linear(points, layer.features.map.weight, layer.features.map.bias)
        f = f.chunk(HEADS, dim=-1)[h]
        warmth = F.gelu(layer.warmth(F.gelu(layer.warm(f))))
        scores = layer.scores(f) / (layer.temperature[h, 0] + warmth).clamp(min=0.01)
        grown = (scores - scores.amax(1, keepdim=True)).exp()
        phi = grown / grown.sum(1, keepdim=True)
        mass = phi.T @ w
        return phi, torch.diag(1 / (mass + 1e-8 * mass.mean())) @ phi.T @ torch.diag(w) @ f

    parts = []
    for h in range(HEADS):
        phi, of_query = sliced(x, here.weights, h)
        _, of_key = sliced(source, weights, h)
        q, k, v = layer.to_query(of_query), layer.to_key(of_key), layer.to_value(of_key)
        grown = (q @ k.T / q.shape[1] ** 0.5).exp()
        real = (here.weights > 0).unsqueeze(1)  # masked points get nothing
        parts.append(real * phi @ (grown / grown.sum(1, keepdim=True)) @ v)
    return torch.cat(parts, dim=-1)


def test_agrees_with_the_obvious_form_in_value_and_every_gradient(compared: Any, made: Any) -> None:
    compared.by_samples(made(TransolverPlusAttention, bases=5, noise=False), obvious)


def test_noise_draws_a_slice_with_the_probability_of_its_score() -> None:
    """The largest of scores with this noise is slice g with probability softmax(scores)_g."""
    layer = TransolverPlusAttention(WIDTH, HEADS, bases=3)
    with torch.no_grad():
        layer.scores.weight.zero_()
        layer.scores.bias.copy_(torch.tensor([0.0, 1.0, 2.0]))
        layer.warmth.weight.zero_()
        layer.warmth.bias.fill_(-20.0)  # GELU of it is 0
        layer.temperature.fill_(0.01)
    torch.manual_seed(0)
    basis, _ = layer._sliced(torch.zeros(1, 20_000, WIDTH), Points())
    drawn = (basis > 0.5).float().mean((0, 1, 2))
    torch.testing.assert_close(drawn, layer.scores.bias.softmax(-1), rtol=0, atol=0.01)


def test_there_is_no_noise_in_evaluation(random: Any) -> None:
    layer, x = TransolverPlusAttention(WIDTH, HEADS, bases=5).double(), random(2, 9, WIDTH)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))
