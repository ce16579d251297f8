"""Local Lipschitz continuity: ||dA||_F <= (C1 / lambda + C2 / lambda^2) ||dX||_F.

The paper's proof writes n^3 in C2; counting its own factors (||Phi||, ||q~||, ||k~|| twice and
||v~||, sqrt(n) each) gives n^(5/2), which is smaller. That is what is tested here, so the paper's
bound is tested with it. The softmax of scores / tau has the constant L = 1 / (2 tau) in the l2
norm, the spectral norm of diag(p) - p p^T over tau being at most that; the paper's source has
1 / tau.
"""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from funcattn import functional_attention

DTYPE = torch.float64


@dataclass(frozen=True)
class Layer:
    """One head as in the proposition: fields and softmax bases are linear in X (n d)."""

    to_query: Tensor
    to_key: Tensor
    to_value: Tensor
    query_scores: Tensor
    key_scores: Tensor
    temperature: float
    strength: float

    def __call__(self, x: Tensor) -> Tensor:
        phi, psi = (
            (x @ scores / self.temperature).softmax(-1)
            for scores in (self.query_scores, self.key_scores)
        )
        query, key, value = (x @ w for w in (self.to_query, self.to_key, self.to_value))
        given = (tensor[None, None] for tensor in (query, key, value, phi, psi))
        return functional_attention(*given, ridge=self.strength, projection="transpose")[0, 0]

    def bound(self, x: Tensor) -> float:
        """C1 / lambda + C2 / lambda^2 with the constants of the proof, B = ||X||_2."""
        n, b = len(x), spectral_norm(x)
        w_q, w_k, w_v = (spectral_norm(w) for w in (self.to_query, self.to_key, self.to_value))
        phi, psi = (
            b * spectral_norm(scores) / (2 * self.temperature)
            for scores in (self.query_scores, self.key_scores)
        )
        c1 = n**1.5 * b**2 * w_q * w_k * w_v * (2 * phi + 2 * psi + 3 * math.sqrt(n))
        c2 = 2 * n**2.5 * b**4 * (psi + math.sqrt(n)) * w_q * w_k**3 * w_v
        return c1 / self.strength + c2 / self.strength**2


def spectral_norm(matrix: Tensor) -> float:
    return torch.linalg.matrix_norm(matrix, 2).item()


def operator_norm(layer: Layer, x: Tensor) -> float:
    """The largest ||dA||_F / ||dX||_F at X, exactly: the spectral norm of the whole Jacobian."""
    return spectral_norm(torch.func.jacrev(layer)(x).reshape(-1, x.numel()))


def random_layer(generator: torch.Generator) -> tuple[Layer, Tensor]:
    """Scales of X and of the weights, tau and lambda over several orders of magnitude."""

    def between(low: float, high: float) -> float:
        """A power of ten."""
        return 10 ** (low + (high - low) * torch.rand((), generator=generator).item())

    def matrix(rows: int, columns: int) -> Tensor:
        values = torch.randn(rows, columns, generator=generator, dtype=DTYPE)
        return between(-1.0, 0.5) * values

    n, d, g = (int(torch.randint(1, 5, (), generator=generator)) for _ in range(3))
    fields, scores = [matrix(d, d) for _ in range(3)], [matrix(d, g) for _ in range(2)]
    return Layer(*fields, *scores, between(-1, 1), between(-2, 2)), matrix(n, d)


def test_the_jacobian_never_exceeds_the_bound(generator) -> None:
    ratios = []
    for _ in range(400):
        layer, x = random_layer(generator)
        ratios.append(operator_norm(layer, x) / layer.bound(x))
    assert max(ratios) <= 1
    # The bound says something: at twice the Jacobian this test would fail.
    assert max(ratios) > 0.5


@pytest.mark.parametrize("n", [1, 3, 10])
def test_the_first_constant_is_attained(n) -> None:
    """One function, so phi = 1; a constant field; lambda so large that A = n^3 x^3 / lambda."""
    one, zero = torch.ones(1, 1, dtype=DTYPE), torch.zeros(1, 1, dtype=DTYPE)
    layer = Layer(one, one, one, zero, zero, temperature=1.0, strength=1e12)
    x = torch.full((n, 1), 0.7, dtype=DTYPE)
    assert operator_norm(layer, x) / layer.bound(x) == pytest.approx(1, abs=1e-7)


def test_a_larger_ridge_makes_the_layer_smoother(generator) -> None:
    """As 1 / lambda once lambda is large, which is the leading term of the bound."""
    layer, x = random_layer(generator)
    x = x / spectral_norm(x)

    def norm(strength: float) -> float:
        return operator_norm(Layer(**(vars(layer) | {"strength": strength})), x)

    assert norm(1e6) / norm(1e7) == pytest.approx(10, rel=1e-3)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 7.0])
def test_the_softmax_has_the_constant_one_over_twice_the_temperature(
    generator, temperature
) -> None:
    def softmax(scores: Tensor) -> Tensor:
        return (scores / temperature).softmax(-1)

    for _ in range(50):
        scores = torch.randn(5, generator=generator, dtype=DTYPE)
        assert spectral_norm(torch.func.jacrev(softmax)(scores)) < 1 / (2 * temperature)
    tie = torch.zeros(2, dtype=DTYPE)
    attained = spectral_norm(torch.func.jacrev(softmax)(tie))
    assert attained == pytest.approx(1 / (2 * temperature), rel=1e-12)
