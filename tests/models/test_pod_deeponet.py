from typing import Any

import pytest
import torch

from funcattn.models import NormalisedNetwork
from funcattn.models.pod_deeponet import PODDeepONet


def fitted(snapshots: torch.Tensor, **options: Any) -> PODDeepONet:
    """snapshots: (t n o)."""
    torch.manual_seed(0)
    network = PODDeepONet(2, 1, snapshots.shape[-1], sensors=snapshots.shape[1], **options).double()
    network.fit_to(snapshots)
    return network


def test_the_functions_are_the_principal_components(uniform: Any) -> None:
    snapshots = uniform(12, 20, 2)
    network = fitted(snapshots, bases=5)
    torch.testing.assert_close(network.mean, snapshots.mean(0))
    centred = (snapshots - snapshots.mean(0)).flatten(1)
    functions = network.functions.flatten(1)
    gram = functions @ functions.T
    torch.testing.assert_close(gram, torch.diag(gram.diagonal()), rtol=0, atol=1e-12)
    # The covariance of the data, as far as five functions can have it.
    values, vectors = torch.linalg.eigh(centred.T @ centred / 12)
    best = vectors[:, -5:] @ torch.diag(values[-5:]) @ vectors[:, -5:].T
    torch.testing.assert_close(functions.T @ functions, best, rtol=0, atol=1e-12)


def test_training_data_of_small_rank_lie_in_the_span(uniform: Any) -> None:
    snapshots = torch.einsum("tp,pno->tno", uniform(9, 3), uniform(3, 20, 1)) + uniform(20, 1)
    network = fitted(snapshots, bases=3)
    rest = (snapshots - network.mean).flatten(1)
    functions = network.functions.flatten(1)
    coefficients = rest @ torch.linalg.pinv(functions)
    torch.testing.assert_close(coefficients @ functions, rest, rtol=0, atol=1e-11)
    torch.testing.assert_close(coefficients.square().mean(0), torch.ones(3).double())


def test_a_solution_is_the_mean_and_a_sum(uniform: Any) -> None:
    network = fitted(uniform(6, 20, 2), bases=4)
    values = uniform(3, 20, 1)
    out = network(uniform(3, 20, 2), values)
    for b in range(3):
        coefficients = network.branch(values[b].flatten())
        expected = network.mean + (coefficients[:, None, None] * network.functions).sum(0)
        torch.testing.assert_close(out[b], expected)


def test_it_is_fitted_with_the_normalisers_to_what_it_is_to_give(uniform: Any) -> None:
    network = PODDeepONet(2, 1, 1, sensors=20, bases=4).double()
    whole = NormalisedNetwork(
        network, space=2, inputs=1, outputs=1, normalise_inputs=True, normalise_outputs=True
    ).double()
    targets = 5 + 3 * uniform(8, 20, 1)
    whole.fit(uniform(8, 20, 2), uniform(8, 20, 1), targets)
    assert whole.output_normaliser is not None
    expected = whole.output_normaliser(targets).mean(0)
    torch.testing.assert_close(network.mean, expected)


def test_frames_of_a_sample_are_snapshots(uniform: Any) -> None:
    network = PODDeepONet(2, 1, 2, sensors=10, bases=3, time=True).double()
    targets = uniform(4, 10, 5, 2)  # five frames
    network.fit_to(targets.flatten(1, 2))
    torch.testing.assert_close(network.mean, targets.mean((0, 2)))


def test_other_numbers_of_points_are_refused() -> None:
    network = PODDeepONet(2, 1, 1, sensors=20)
    with pytest.raises(ValueError, match=r"expected the 20 points of the sensors .* got 7"):
        network(torch.rand(1, 7, 2), torch.rand(1, 7, 1))
