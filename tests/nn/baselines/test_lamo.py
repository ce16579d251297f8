from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from funcattn.nn import Points
from funcattn.nn.baselines.lamo import Hydra, LamoAttention, state_space

WIDTH, HEADS, BASES, STATES = 8, 2, 5, 3


def recurrence(x: Tensor, step: Tensor, decay: Tensor, entry: Tensor, exit_: Tensor) -> Tensor:
    """(g p q), (g p), (p), (g r), (g r): the equation, step by step."""
    state = x.new_zeros(*x.shape[1:], entry.shape[1])
    out = []
    for t in range(len(x)):
        kept = torch.exp(-step[t] * decay)[:, None, None] * state
        state = kept + (step[t][:, None] * x[t])[..., None] * entry[t]
        out.append(state @ exit_[t])
    return torch.stack(out)


def obvious_hydra(x: Tensor, hydra: Hydra) -> Tensor:
    """One sample (g c), with a loop over the tokens each way."""
    g, inner, r = len(x), hydra.inner, hydra.states
    gate, u, steps = hydra.to_all(x).split(hydra.sizes, dim=-1)
    kernel, padded = hydra.near.weight[:, 0], F.pad(u, (0, 0, 1, 1))
    near = sum(padded[i : i + g] * kernel[:, i] for i in range(3)) + hydra.near.bias
    u = near * near.sigmoid()
    u, forth_in, forth_out, back_in, back_out = u.split([inner, r, r, r, r], dim=-1)
    v = u.reshape(g, -1, hydra.channels)
    p = v.shape[1]
    forth, back = (F.softplus(part + hydra.step) for part in (steps[:, :p], steps[:, p:]))
    decay = hydra.log_decay.exp()
    y = hydra.skip(u)[..., None] * v
    there = recurrence(v, forth, decay, forth_in, forth_out)
    turned = [part.flip(0) for part in (v, back, back_in, back_out)]
    again = recurrence(*turned[:2], decay, *turned[2:])
    y = y + F.pad(there[:-1], (0, 0, 0, 0, 1, 0)) + F.pad(again.flip(0)[1:], (0, 0, 0, 0, 0, 1))
    y = y.flatten(1)
    y = y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt() * hydra.gain
    return hydra.to_output(y * gate * gate.sigmoid())


def obvious(
    x: Tensor, source: Tensor, weights: Tensor, *, layer: LamoAttention, **_: object
) -> Tensor:
    own, known = (layer.basis(part[None], Points())[0] for part in (x, source))  # (h n g)
    f = layer.features(source[None], Points())[0].chunk(HEADS, dim=-1)
    tokens = []
    for h in range(HEADS):
        mass = known[h].T @ weights
        average = torch.diag(1 / (mass + 1e-8 * mass.mean())) @ known[h].T @ torch.diag(weights)
        tokens.append(average @ f[h])
    mixed = obvious_hydra(torch.cat(tokens, dim=-1), layer.hydra).chunk(HEADS, dim=-1)
    return torch.cat([own[h] @ mixed[h] for h in range(HEADS)], dim=-1)


def test_agrees_with_the_obvious_form_in_value_and_every_gradient(compared: Any, made: Any) -> None:
    compared.by_samples(made(LamoAttention, bases=BASES, states=STATES), obvious)


def test_all_steps_at_once_are_the_recurrence(random: Any, uniform: Any) -> None:
    x, step, decay = random(2, 7, 3, 4), uniform(2, 7, 3), uniform(3)
    entry, exit_ = random(2, 7, 5), random(2, 7, 5)
    found = state_space(x, step, decay, entry, exit_)
    for b in range(2):
        torch.testing.assert_close(
            found[b], recurrence(x[b], step[b], decay, entry[b], exit_[b]), rtol=1e-10, atol=1e-12
        )


def test_long_steps_forget_and_do_not_overflow(random: Any) -> None:
    x, ends = random(1, 50, 1, 2), random(1, 50, 3)
    step = torch.full((1, 50, 1), 100.0).double()
    out = state_space(x, step, torch.ones(1).double(), ends, ends)
    own = 100 * ends.square().sum(-1)[..., None, None] * x
    torch.testing.assert_close(out, own)


def test_sizes_are_those_of_the_public_network() -> None:
    """Width 128, 64 states, expansion 2: 4 heads of 64 channels."""
    count = sum(p.numel() for p in Hydra(128, states=64, expand=2).parameters())
    projections = 128 * (2 * 256 + 4 * 64 + 2 * 4) + 256 * 128 + 256 * 4
    assert count == projections + 512 * 3 + 512 + 3 * 4 + 256 == 135_436
