from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from funcattn.tasks.losses import (
    accuracy,
    cross_entropy,
    force_coefficients,
    mean_squared_error,
    rank_correlation,
    relative_gradient,
    relative_l2,
    relative_periodic_derivative,
    volume_and_surface_error,
)

LENGTHS = [7, 1, 4]
MASK = torch.arange(7) < torch.tensor(LENGTHS)[:, None]


def fields(*shape: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A prediction that takes gradients, and a truth."""
    prediction, truth = torch.randn(2, *shape, dtype=torch.float64, generator=generator)
    return prediction.requires_grad_(), truth


def each(
    form: Callable[..., float], *tensors: Tensor, lengths: list[int] | None = None
) -> list[float]:
    """A form in numpy, sample by sample, on the real points."""
    rows = zip(*(tensor.detach().numpy() for tensor in tensors), strict=True)
    lengths = lengths or [tensors[0].shape[1]] * len(tensors[0])
    return [form(*(row[:n] for row in sample)) for sample, n in zip(rows, lengths, strict=True)]


def relative_l2_of_one(p: np.ndarray, t: np.ndarray) -> float:
    return np.sqrt(((p - t) ** 2).sum() / (t**2).sum())


def mean_squared_error_of_one(p: np.ndarray, t: np.ndarray) -> float:
    return ((p - t) ** 2).mean()


def cross_entropy_of_one(logits: np.ndarray, labels: np.ndarray) -> float:
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return -np.log(probabilities[np.arange(len(labels)), labels]).mean()


def accuracy_of_one(logits: np.ndarray, labels: np.ndarray) -> float:
    return (logits.argmax(axis=1) == labels).mean()


FORMS = {
    "relative_l2": (relative_l2, relative_l2_of_one),
    "mean_squared_error": (mean_squared_error, mean_squared_error_of_one),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("after", [(1,), (3,), (), (4, 2)], ids=str)
def test_errors_of_fields_are_those_of_the_obvious_forms(
    name: str, after: tuple[int, ...], generator: torch.Generator
) -> None:
    loss, form = FORMS[name]
    prediction, truth = fields(3, 7, *after, generator=generator)
    np.testing.assert_allclose(loss(prediction, truth).tolist(), each(form, prediction, truth))
    np.testing.assert_allclose(
        loss(prediction, truth, MASK).tolist(), each(form, prediction, truth, lengths=LENGTHS)
    )


@pytest.mark.parametrize("name", FORMS)
def test_a_perfect_prediction_has_no_error_and_a_finite_gradient(
    name: str, generator: torch.Generator
) -> None:
    prediction, _ = fields(3, 7, 2, generator=generator)
    loss = FORMS[name][0](prediction, prediction.detach())
    assert not loss.any()
    loss.sum().backward()
    assert prediction.grad is not None
    assert prediction.grad.isfinite().all()


@pytest.mark.parametrize("masked", [False, True], ids=["all points", "masked"])
def test_labels_are_compared_as_in_the_obvious_forms(
    masked: bool, generator: torch.Generator
) -> None:
    logits, _ = fields(3, 7, 5, generator=generator)
    labels = torch.randint(5, (3, 7), generator=generator)
    mask, lengths = (MASK, LENGTHS) if masked else (None, None)
    for loss, form in ((cross_entropy, cross_entropy_of_one), (accuracy, accuracy_of_one)):
        np.testing.assert_allclose(
            loss(logits, labels, mask).tolist(), each(form, logits, labels, lengths=lengths)
        )


def test_accuracy_in_short_precision_is_exact_to_four_digits() -> None:
    labels = torch.zeros(1, 4096, dtype=torch.int64)
    logits = torch.zeros(1, 4096, 2, dtype=torch.bfloat16)
    logits[:, :1367, 1] = 1
    assert accuracy(logits, labels).item() == pytest.approx(1 - 1367 / 4096, abs=1e-6)


def masked_losses() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    labels, surface = torch.zeros(3, 7, dtype=torch.int64), torch.arange(7).expand(3, 7) < 2
    return {
        "relative_l2": lambda p, t: relative_l2(p, t, MASK),
        "mean_squared_error": lambda p, t: mean_squared_error(p, t, MASK),
        "volume_and_surface_error": lambda p, t: volume_and_surface_error(p, t, surface, MASK),
        "cross_entropy": lambda p, _: cross_entropy(p, labels, MASK),
        "accuracy": lambda p, _: accuracy(p, labels, MASK),
    }


@pytest.mark.parametrize("name", masked_losses())
@pytest.mark.parametrize("hidden", [np.nan, np.inf])
def test_masked_points_are_never_looked_at_nor_given_a_gradient(
    name: str, hidden: float, generator: torch.Generator
) -> None:
    loss = masked_losses()[name]
    prediction, truth = fields(3, 7, 4, generator=generator)
    expected = loss(prediction, truth)
    spoilt = torch.where(MASK[..., None], prediction.detach(), hidden).requires_grad_()
    got = loss(spoilt, torch.where(MASK[..., None], truth, hidden))
    assert torch.equal(got, expected)
    if not got.requires_grad:
        return
    got.sum().backward()
    expected.sum().backward()
    assert spoilt.grad is not None
    assert spoilt.grad.isfinite().all()
    assert torch.equal(spoilt.grad, prediction.grad)
    assert not spoilt.grad[~MASK].any()


@pytest.mark.parametrize("masked", [False, True], ids=["all points", "masked"])
def test_volume_and_surface_count_the_same_however_many_points_they_have(
    masked: bool, generator: torch.Generator
) -> None:
    prediction, truth = fields(3, 7, 2, generator=generator)
    surface = torch.tensor([[True, False, False, True, False, False, False]] * 3)
    lengths = LENGTHS if masked else [7, 7, 7]
    got = volume_and_surface_error(prediction, truth, surface, MASK if masked else None)
    for i, n in enumerate(lengths):
        p, t, s = (x[i, :n].detach().numpy() for x in (prediction, truth, surface))
        # A part without points has no error.
        parts = [((p[k] - t[k]) ** 2).mean() for k in (s, ~s) if k.any()]
        assert got[i].item() == pytest.approx(sum(parts))
    got.sum().backward()
    assert prediction.grad is not None
    assert prediction.grad.isfinite().all()


@pytest.mark.parametrize("grid", [(9,), (5, 7), (4, 3, 5)], ids=str)
def test_the_gradient_is_numpy_s_at_the_inner_points(
    grid: tuple[int, ...], generator: torch.Generator
) -> None:
    prediction, truth = fields(2, int(np.prod(grid)), 3, generator=generator)

    def squares(field: np.ndarray) -> float:
        inner = tuple(slice(1, -1) for _ in grid)
        field = field.reshape(*grid, 3)
        return sum((np.gradient(field, axis=k)[inner] ** 2).sum() for k in range(len(grid)))

    expected = each(lambda p, t: np.sqrt(squares(p - t) / squares(t)), prediction, truth)
    got = relative_gradient(prediction, truth, grid)
    np.testing.assert_allclose(got.tolist(), expected)
    got.sum().backward()
    assert prediction.grad is not None
    assert prediction.grad.isfinite().all()


def test_the_gradient_of_a_plane_that_is_too_steep_along_one_axis() -> None:
    x, y = torch.meshgrid(*[torch.linspace(0, 1, 6, dtype=torch.float64)] * 2, indexing="ij")
    truth = (3 * x + 4 * y).reshape(1, 36, 1)
    shifted_and_steeper = (3 * x + 5 * y + 7).reshape(1, 36, 1)
    error = relative_gradient(shifted_and_steeper, truth, (6, 6))
    assert error.item() == pytest.approx(1 / 5)  # (0, 1) over (3, 4)


def test_the_derivative_on_a_periodic_line() -> None:
    x = torch.arange(64, dtype=torch.float64).reshape(1, 64, 1) / 64
    wave = torch.sin(2 * torch.pi * x)
    prediction = (1.25 * wave + 3).requires_grad_()
    assert relative_periodic_derivative(prediction, wave).item() == pytest.approx(0.25)
    # Central differences of a wave of number k are sin(2 pi k / n) / (2 pi / n) of its amplitude.
    ripple = torch.cos(2 * torch.pi * 5 * x)
    ratio = np.sin(2 * np.pi * 5 / 64) / np.sin(2 * np.pi / 64)
    got = relative_periodic_derivative(wave + 0.1 * ripple, wave)
    assert got.item() == pytest.approx(0.1 * ratio)
    relative_periodic_derivative(prediction, wave).sum().backward()
    assert prediction.grad is not None
    assert prediction.grad.isfinite().all()


def circle(panels: int) -> tuple[Tensor, Tensor, Tensor]:
    """Angles of panel centres, outward normals and lengths, on a unit circle."""
    angle = 2 * torch.pi * (torch.arange(panels, dtype=torch.float64) + 0.5) / panels
    normals = torch.stack([angle.cos(), angle.sin()], dim=-1)
    return angle, normals, torch.full_like(angle, 2 * torch.pi / panels)


@pytest.mark.parametrize("incidence", [0.0, 0.3, -1.2])
@pytest.mark.parametrize("circulation", [0.0, 2.5, -4.0])
def test_a_cylinder_in_potential_flow_has_lift_by_kutta_and_joukowski_and_no_drag(
    incidence: float, circulation: float
) -> None:
    speed = 3.0
    angle, normals, lengths = circle(100)
    # Clockwise circulation lifts; on the surface the velocity is tangential.
    velocity = -2 * speed * torch.sin(angle - incidence) - circulation / (2 * torch.pi)
    pressure = 0.5 * (speed**2 - velocity**2)
    drag, lift = force_coefficients(
        pressure,
        torch.zeros(100, 2, dtype=torch.float64),
        normals,
        lengths,
        incidence=incidence,
        speed=speed,
        chord=2.0,
    )
    assert drag.item() == pytest.approx(0, abs=1e-12)
    assert lift.item() == pytest.approx(speed * circulation / (0.5 * speed**2 * 2.0), abs=1e-12)


def test_a_constant_pressure_gives_no_force() -> None:
    _, normals, lengths = circle(51)
    pressure = torch.full((51,), 17.0, dtype=torch.float64)
    shear = torch.zeros(51, 2, dtype=torch.float64)
    for coefficient in force_coefficients(
        pressure, shear, normals, lengths, incidence=0.4, speed=2.0
    ):
        assert coefficient.item() == pytest.approx(0, abs=1e-12)


def test_a_constant_shear_is_drag_along_the_flow() -> None:
    """On a body of perimeter 2 pi; its part across the flow is lift."""
    _, normals, lengths = circle(51)
    incidence, speed = 0.4, 2.0
    along = torch.tensor([np.cos(incidence), np.sin(incidence)])
    drag, lift = force_coefficients(
        torch.zeros(51, dtype=torch.float64),
        along.expand(51, 2),
        normals,
        lengths,
        incidence=incidence,
        speed=speed,
    )
    assert drag.item() == pytest.approx(2 * np.pi / (0.5 * speed**2))
    assert lift.item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("levels", [1000, 5, 2], ids=["no ties", "ties", "many ties"])
def test_rank_correlation_is_spearman_s(levels: int, generator: torch.Generator) -> None:
    a, b = torch.randint(levels, (2, 40), generator=generator).double()
    expected = stats.spearmanr(a.numpy(), b.numpy()).statistic
    assert rank_correlation(a, b) == pytest.approx(expected)


def test_rank_correlation_sees_order_alone() -> None:
    a = torch.linspace(-2, 3, 20)
    assert rank_correlation(a, a.exp()) == pytest.approx(1)
    assert rank_correlation(a, -(a**3)) == pytest.approx(-1)
