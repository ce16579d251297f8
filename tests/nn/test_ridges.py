import pytest
import torch

from funcattn.nn import AdditiveRidge, ConvexRidge
from funcattn.ops import Additive, Convex, ridge_system

FAR = 1e4  # much further than any training would take a parameter


def spread(h: int) -> torch.Tensor:
    return torch.linspace(-1.0, 2.0, h, dtype=torch.float64)


@pytest.mark.parametrize("heads", [None, 3])
def test_ridges_start_at_the_given_value_for_all_heads_or_one_per_head(heads: int | None) -> None:
    shape = () if heads is None else (heads,)
    convex, additive = ConvexRidge(0.2, heads=heads)(), AdditiveRidge(3.0, heads=heads)()
    assert isinstance(convex, Convex)
    assert isinstance(additive, Additive)
    torch.testing.assert_close(convex.weight, torch.full(shape, 0.2))
    torch.testing.assert_close(additive.strength, torch.full(shape, 3.0))


def test_convex_ridge_is_the_sigmoid_of_its_parameter_and_passes_gradients() -> None:
    ridge = ConvexRidge(heads=4).double()
    ridge.logit.data = spread(4)
    a = 1 / (1 + torch.exp(-spread(4)))
    torch.testing.assert_close(ridge().weight, a)
    ridge().weight.sum().backward()
    torch.testing.assert_close(ridge.logit.grad, a * (1 - a))


def test_additive_ridge_is_the_exponential_of_its_parameter_and_passes_gradients() -> None:
    ridge = AdditiveRidge(heads=4).double()
    ridge.log_strength.data = spread(4)
    torch.testing.assert_close(ridge().strength, torch.exp(spread(4)))
    ridge().strength.sum().backward()
    torch.testing.assert_close(ridge.log_strength.grad, torch.exp(spread(4)))


@pytest.mark.parametrize("logit", [-FAR, FAR])
def test_convex_ridge_keeps_a_float32_system_positive_definite_at_any_parameter(
    logit: float,
) -> None:
    ridge = ConvexRidge()
    ridge.logit.data.fill_(logit)
    system = ridge_system(torch.ones(1, 1, 1, 3), ridge=ridge(), form="dual")  # of rank one
    assert not torch.linalg.cholesky_ex(system).info.any()


def test_additive_ridge_is_positive_at_any_parameter() -> None:
    ridge = AdditiveRidge()
    ridge.log_strength.data.fill_(-FAR)
    system = ridge_system(torch.zeros(1, 1, 3, 3), ridge=ridge())
    assert not torch.linalg.cholesky_ex(system).info.any()


@pytest.mark.parametrize("initial", [0.0, 1.0, -0.1, 1.1, float("nan")])
def test_a_convex_ridge_outside_of_0_to_1_is_refused(initial: float) -> None:
    with pytest.raises(ValueError, match=r"initial: expected a value between 0 and 1, got"):
        ConvexRidge(initial)


@pytest.mark.parametrize("initial", [0.0, -1.0, float("nan")])
def test_an_additive_ridge_that_is_not_positive_is_refused(initial: float) -> None:
    with pytest.raises(ValueError, match=r"initial: expected a positive value, got"):
        AdditiveRidge(initial)
