import math

import numpy as np
import pytest
import torch
from torch import Tensor

from funcattn.tasks.fields import known_accuracy, known_cross_entropy, root_mean_square_error


def pair(generator: torch.Generator, *shape: int) -> tuple[Tensor, Tensor]:
    return (
        torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True),
        torch.randn(*shape, generator=generator, dtype=torch.float64),
    )


def test_it_is_the_root_of_the_weighted_mean_square(generator: torch.Generator) -> None:
    prediction, truth = pair(generator, 3, 7, 2)
    weights = torch.rand(3, 7, generator=generator).double()
    got = root_mean_square_error(prediction, truth, deviation=0.5, weights=weights)
    squares = ((prediction - truth) / 0.5).detach().numpy() ** 2
    expected = [
        math.sqrt(np.average(squares[b].mean(-1), weights=weights[b].numpy())) for b in range(3)
    ]
    np.testing.assert_allclose(got.detach(), expected)


@pytest.mark.parametrize("filling", [0.0, math.nan, math.inf])
def test_masked_points_and_missing_values_change_neither_value_nor_gradient(
    generator: torch.Generator, filling: float
) -> None:
    prediction, truth = pair(generator, 2, 5, 3)
    expected = root_mean_square_error(prediction, truth)
    (d_expected,) = torch.autograd.grad(expected.sum(), prediction)
    padded = torch.full((2, 8, 3), filling, dtype=torch.float64)
    padded[:, :5] = prediction.detach()
    padded.requires_grad_()
    longer = torch.full((2, 8, 3), math.nan, dtype=torch.float64)
    longer[:, :5] = truth
    mask = (torch.arange(8) < 5).expand(2, -1)
    for chosen in (mask, None):  # by the mask, and by NaN alone
        got = root_mean_square_error(padded, longer, mask=chosen)
        (d_got,) = torch.autograd.grad(got.sum(), padded)
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(d_got[:, :5], d_expected)
        assert torch.equal(d_got[:, 5:], torch.zeros(2, 3, 3).double())


def test_a_missing_component_leaves_the_others(generator: torch.Generator) -> None:
    prediction, truth = pair(generator, 1, 4, 2)
    truth[0, 1, 0] = math.nan
    left = (prediction - truth)[0].detach().numpy()
    expected = np.sqrt(np.nanmean(left**2))
    assert root_mean_square_error(prediction, truth).item() == pytest.approx(expected)


@pytest.mark.parametrize("unit", [1e-15, 1e-6, 1e15])
def test_no_unit_is_too_small_for_float32(generator: torch.Generator, unit: float) -> None:
    prediction, truth = (field.detach().float() for field in pair(generator, 2, 9, 1))
    expected = root_mean_square_error(prediction, truth)
    got = root_mean_square_error(prediction * unit, truth * unit, deviation=unit)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=0)
    weights = torch.rand(2, 9, generator=generator)
    torch.testing.assert_close(
        root_mean_square_error(prediction, truth, weights=weights * unit * unit),
        root_mean_square_error(prediction, truth, weights=weights),
    )


def test_an_exact_prediction_and_a_sample_without_truth_have_no_error_and_no_gradient() -> None:
    prediction = torch.ones(2, 3, 1, requires_grad=True)
    truth = torch.ones(2, 3, 1)
    truth[1] = math.nan
    error = root_mean_square_error(prediction, truth)
    error.sum().backward()
    assert error.tolist() == [0, 0]
    assert prediction.grad is not None
    assert torch.equal(prediction.grad, torch.zeros(2, 3, 1))


def test_gradients_are_right(generator: torch.Generator) -> None:
    prediction, truth = pair(generator, 2, 5, 2)
    truth[0, 3] = math.nan
    weights = torch.rand(2, 5, generator=generator).double()
    mask = torch.rand(2, 5, generator=generator) < 0.8
    assert torch.autograd.gradcheck(
        lambda p: root_mean_square_error(p, truth, deviation=0.3, mask=mask, weights=weights),
        prediction,
    )


def test_points_without_a_label_do_not_count(generator: torch.Generator) -> None:
    logits = torch.randn(2, 6, 4, generator=generator)
    labels = torch.randint(4, (2, 6), generator=generator)
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[:, 5] = False
    missing = labels.clone()
    missing[:, 4:] = -1
    for each in (known_cross_entropy, known_accuracy):
        expected = each(logits[:, :4], labels[:, :4])
        torch.testing.assert_close(each(logits, missing), expected)
        torch.testing.assert_close(each(logits, missing, mask), expected)
    expected = torch.nn.functional.cross_entropy(logits[0, :4], labels[0, :4])
    torch.testing.assert_close(known_cross_entropy(logits, missing)[0], expected)
    weights = torch.zeros(2, 6)
    weights[:, 1] = 2.0
    right = (logits.argmax(-1) == labels)[:, 1].float()
    assert torch.equal(known_accuracy(logits, missing, weights=weights), right)
