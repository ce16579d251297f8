"""Small networks learn a few samples by heart."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from funcattn import FunctionalAttention

pytestmark = pytest.mark.usefixtures("as_a_user")  # for speed

WIDER = partial(FunctionalAttention, heads=4, bases=8)


def error_after_training(
    model: nn.Module, x: Tensor, u: Tensor, target: Tensor, *, rate: float, steps: int
) -> float:
    """Mean relative error of four samples on the same points."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(steps):
        optimizer.zero_grad()
        out = model(x.expand(4, -1)[..., None], u[..., None], grid=tuple(x.shape))[..., 0]
        loss = ((out - target).norm(dim=-1) / target.norm(dim=-1)).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
    return loss.item()


# Options, learning rate, steps, and the error that is reached.
LEARNERS: dict[str, tuple[dict[str, Any], float, int, float]] = {
    "deeponet": ({"sensors": 16, "width": 32, "bases": 16}, 1e-2, 400, 0.02),
    "lno": ({"width": 32, "layers": 1, "latents": 16, "heads": 4, "projector": 2}, 1e-2, 400, 0.05),
    "gino": (
        {"width": 8, "modes": 4, "latent": 8, "radius": 0.2, "kernel": (16,)},
        1e-2,
        150,
        0.03,
    ),
    "fno": ({"width": 8, "modes": 4}, 1e-2, 100, 0.03),
    "tfno": ({"width": 8, "modes": 4, "rank": 0.1}, 1e-2, 100, 0.03),
    "uno": ({"width": 8, "modes": 4}, 1e-2, 100, 0.03),
    "transformer": ({"width": 32, "attention": WIDER}, 3e-3, 300, 0.05),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_map_that_needs_other_points(name: str, made: Any) -> None:
    """A wave of unknown phase to its quarter period: no point can do it alone."""
    x, shift = torch.arange(16) / 16, torch.tensor([0.1, 0.4, 0.6, 0.9])[:, None]
    phase = 2 * math.pi * (x + shift)
    options, rate, steps, error = LEARNERS[name]
    # The transformer from larger weights: its own are in the next test.
    model = made(name, 1, as_built=name != "transformer", **options).float()
    reached = error_after_training(model, x, phase.sin(), phase.cos(), rate=rate, steps=steps)
    assert reached < error


def test_a_transformer_from_its_starting_values(made: Any) -> None:
    size, x = torch.tensor([0.5, 1.0, 1.5, 2.0])[:, None], torch.arange(32) / 32
    model = made("transformer", 1, as_built=True, width=64, attention=WIDER).float()
    u, target = (size * of(2 * math.pi * x) for of in (torch.sin, torch.cos))
    assert error_after_training(model, x, u, target, rate=5e-3, steps=400) < 0.05


def test_a_function_of_the_point(made: Any) -> None:
    size, x = torch.tensor([0.5, 1.0, 1.5, 2.0])[:, None], torch.linspace(0, 1, 32)
    u = size * torch.sin(2 * math.pi * x)
    model = made("mlp", 1, width=32).float()
    assert error_after_training(model, x, u, u.square() + x, rate=1e-2, steps=300) < 0.02
