import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from funcattn.models import MODELS, build_model
from funcattn.problem import Field, Problem
from funcattn.settings import FunctionalSettings, OptimisationSettings
from funcattn.training.checkpoint import (
    CheckpointError,
    optimiser_document,
    optimiser_tensors,
    restore_optimiser,
)
from funcattn.training.optimisation import build_optimisers, build_schedule
from funcattn.training.optimisers import SOAP, Lion


def gradients(steps: int, *shape: int) -> list[Tensor]:
    random = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=random, dtype=torch.float64) for _ in range(steps)]


def moved(kind: Any, start: Tensor, grads: list[Tensor], **options: Any) -> Tensor:
    parameter = nn.Parameter(start.clone())
    optimiser = kind([parameter], **options)
    for grad in grads:
        parameter.grad = grad.clone()
        optimiser.step()
    return parameter.data


def test_lion_is_its_equation() -> None:
    grads = gradients(7, 4, 3)
    w, m = torch.ones(4, 3).double(), torch.zeros(4, 3).double()
    for g in grads:
        update = torch.sign(0.9 * m + 0.1 * g)
        m = 0.99 * m + 0.01 * g
        w = w - 0.02 * (update + 0.3 * w)
    found = moved(Lion, torch.ones(4, 3).double(), grads, lr=0.02, weight_decay=0.3)
    torch.testing.assert_close(found, w)


def test_soap_is_its_equation_for_a_matrix() -> None:
    """Two Gram matrices by hand, eigenvectors by the power iteration of the paper."""
    grads, w = gradients(9, 4, 3), torch.ones(4, 3).double()
    left, right = 0.05 * grads[0] @ grads[0].T, 0.05 * grads[0].T @ grads[0]
    a, b = (torch.linalg.eigh(gram).eigenvectors.flip(-1) for gram in (left, right))
    m = v = torch.zeros(4, 3).double()
    for t, g in enumerate(grads[1:], start=1):
        m, v = 0.95 * m + 0.05 * g, 0.95 * v + 0.05 * (a.T @ g @ b) ** 2
        corrected = (1 - 0.95**t) ** 0.5 / (1 - 0.95**t)
        step = (a.T @ m @ b) * corrected / (v.sqrt() + 1e-8 * (1 - 0.95**t) ** 0.5)
        w = 0.99 * w - 0.1 * a @ step @ b.T
        left, right = 0.95 * left + 0.05 * g @ g.T, 0.95 * right + 0.05 * g.T @ g
        if t % 3 == 0:
            by_left = (a.T @ left @ a).diagonal().argsort(descending=True)
            by_right = (b.T @ right @ b).diagonal().argsort(descending=True)
            v = v[by_left][:, by_right]
            a = torch.linalg.qr(left @ a[:, by_left]).Q
            b = torch.linalg.qr(right @ b[:, by_right]).Q
    found = moved(SOAP, torch.ones(4, 3).double(), grads, lr=0.1, weight_decay=0.1, every=3)
    torch.testing.assert_close(found, w, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("shape", [(4, 3), (3, 2, 4)], ids=str)
def test_soap_does_not_know_the_axes_and_adam_does(shape: tuple[int, ...]) -> None:
    """A problem in turned coordinates has turned steps."""
    turns = [
        torch.linalg.qr(torch.randn(n, n, generator=torch.Generator().manual_seed(n)).double()).Q
        for n in shape
    ]

    def turned(x: Tensor) -> Tensor:
        for axis, turn in enumerate(turns):
            x = torch.tensordot(turn, x, dims=([1], [axis])).movedim(0, axis)
        return x

    # Near each other, so that no eigenvalue is 0 and eigenvectors follow them surely.
    grads, start = gradients(8, *shape), torch.zeros(shape).double()
    here = moved(SOAP, start, grads, lr=0.1, every=2)
    there = moved(SOAP, start, [turned(g) for g in grads], lr=0.1, every=2)
    torch.testing.assert_close(there, turned(here), rtol=1e-5, atol=1e-6)
    adam = [
        moved(torch.optim.Adam, start, list_, lr=0.1) for list_ in (grads, [*map(turned, grads)])
    ]
    assert (adam[1] - turned(adam[0])).abs().max() > 1e-2


def test_soap_is_adam_where_it_changes_no_coordinates() -> None:
    for shape, longest in (((6,), 2048), ((5, 4), 3)):
        grads, start = gradients(6, *shape), torch.ones(shape).double()
        found = moved(SOAP, start, grads, lr=0.1, weight_decay=0.2, longest=longest)
        adam = moved(torch.optim.AdamW, start, grads, lr=0.1, weight_decay=0.2, betas=(0.95, 0.95))
        torch.testing.assert_close(found, adam)


@pytest.mark.parametrize("name", ["lion", "soap"])
def test_a_saved_state_continues_to_the_bit_and_another_is_refused(name: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Conv1d(1, 2, 3))
    how = OptimisationSettings(optimiser=name, epochs=5)
    (optimiser,) = build_optimisers(model, how)

    def step(network: nn.Module, by: torch.optim.Optimizer) -> None:
        for parameter in network.parameters():
            parameter.grad = parameter.detach().sin() + 0.1
        by.step()

    for _ in range(11):
        step(model, optimiser)
    copied = copy.deepcopy(model)
    (again,) = build_optimisers(copied, how)
    tensors = {key: value.clone() for key, value in optimiser_tensors(optimiser).items()}
    document = optimiser_document(optimiser)
    restore_optimiser(again, tensors, document)
    for _ in range(11):
        step(model, optimiser)
        step(copied, again)
    for one, other in zip(model.parameters(), copied.parameters(), strict=True):
        assert torch.equal(one, other)
    key = next(key for key, value in tensors.items() if value.ndim == 2)
    with pytest.raises(CheckpointError, match="expected the state of a"):
        restore_optimiser(again, tensors | {key: torch.zeros(7, 7)}, document)


@pytest.mark.parametrize(("name", "rate"), [("lion", 1e-3), ("soap", 1e-2)])
def test_fno_is_trained_by_them(name: Any, rate: float) -> None:
    problem = Problem(1, (Field("a"),), (Field("u"),), grid=True, periodic=True)
    settings = MODELS["fno"].settings(problem, FunctionalSettings(), profile="smoke")
    torch.manual_seed(0)
    network = build_model("fno", settings, problem)
    x = torch.arange(16.0)[None, :, None].expand(4, -1, -1) / 16
    values = (2 * torch.pi * x + torch.arange(4.0)[:, None, None]).sin()
    how = OptimisationSettings(optimiser=name, rate=rate, epochs=60, schedule="one_cycle")
    (optimiser,) = build_optimisers(network, how)
    schedule = build_schedule(optimiser, how, 1)
    betas, losses = optimiser.param_groups[0]["betas"], []
    for _ in range(60):
        loss = (network(x, values, grid=(16,)) - values.roll(4, 1)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
    assert optimiser.param_groups[0]["betas"] == betas
