from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from funcattn.models.deeponet import DeepONet

SENSORS = 156


@pytest.mark.parametrize("inputs", [0, 2], ids=["geometry", "values"])
def test_is_a_sum_over_the_basis_functions(
    inputs: int, made: Any, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    model = made("deeponet", 2, inputs, 2, time=True)
    positions, time = uniform(2, SENSORS, 2), uniform(2)
    values = uniform(2, SENSORS, inputs) if inputs else None
    out = model(positions, values, time=time)
    for b in range(2):
        seen = positions[b] if values is None else values[b]
        coefficients = model.branch(seen.reshape(-1))
        for n in (0, 7):
            bases = F.gelu(model.trunk(torch.cat([positions[b, n], time[b : b + 1]])))
            for o in range(2):
                of = slice(3 * o, 3 * o + 3)
                expected = coefficients[of] @ bases[of] + model.bias[o]
                assert_equal_to_rounding(out[b, n, o], expected)


def test_solutions_lie_in_the_span_of_as_many_functions_as_it_has(made: Any, uniform: Any) -> None:
    """At fixed positions: out - bias = coefficients(u) bases(x), a matrix of rank 3."""
    model = made("deeponet")
    positions = uniform(1, SENSORS, 2).expand(10, -1, -1)
    values = 10 * uniform(10, SENSORS, 1)
    matrix = (model(positions, values) - model.bias).detach()[..., 0]
    size = torch.linalg.svdvals(matrix)
    assert size[2] > 1e-6 * size[0]
    assert size[3] < 1e-13 * size[0]


def test_is_linear_in_the_last_map_of_its_branch(
    made: Any, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    model = made("deeponet")
    positions, values = uniform(2, SENSORS, 2), uniform(2, SENSORS, 1)

    def of(factor: float) -> Tensor:
        scaled = made("deeponet")
        with torch.no_grad():
            scaled.branch[-1].weight.mul_(factor)
            scaled.branch[-1].bias.mul_(factor)
        return scaled(positions, values) - scaled.bias

    assert_equal_to_rounding(of(2.5), 2.5 * (model(positions, values) - model.bias))


def test_represents_an_operator_of_low_rank_exactly(
    generator: torch.Generator, made: Any, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    """G(u)(x) = sum over p of <a_p, u> gelu(w_p x + c_p), as x = gelu(x) - gelu(-x)."""
    model = made("deeponet", 1, width=6, layers=1, bases=3)
    functionals = torch.randn(3, SENSORS, generator=generator, dtype=torch.float64)
    slopes, offsets = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    both_signs = torch.cat([torch.eye(3), -torch.eye(3)]).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.branch[0].weight.copy_(both_signs @ functionals)
        model.branch[2].weight.copy_(both_signs.T)
        model.trunk[0].weight.copy_(both_signs @ slopes[:, None])
        model.trunk[0].bias.copy_(both_signs @ offsets)
        model.trunk[2].weight.copy_(both_signs.T)
    positions = uniform(5, SENSORS, 1)
    values = torch.randn(5, SENSORS, 1, generator=generator, dtype=torch.float64)
    functions = F.gelu(positions * slopes + offsets)
    expected = torch.einsum("bm,pm,bnp->bn", values[..., 0], functionals, functions)
    assert_equal_to_rounding(model(positions, values)[..., 0], expected)


def test_has_the_parameters_of_the_published_antiderivative_network() -> None:
    """Maps 100-40-40 and 1-40-40, and a bias."""
    model = DeepONet(1, 1, 1, sensors=100, width=40, layers=1, bases=40)
    expected = (100 + 1) * 40 + (40 + 1) * 40 + (1 + 1) * 40 + (40 + 1) * 40 + 1
    assert sum(parameter.numel() for parameter in model.parameters()) == expected == 7401


@pytest.mark.usefixtures("as_a_user")
class TestErrors:
    def test_points_are_those_of_the_sensors(self, made: Any) -> None:
        with pytest.raises(ValueError, match=r"expected the 156 points .* got 155; .* sensors=155"):
            made("deeponet")(torch.zeros(2, 155, 2).double(), torch.zeros(2, 155, 1).double())

    @pytest.mark.parametrize("name", ["sensors", "bases"])
    def test_there_are_sensors_and_functions(self, name: str, made: Any) -> None:
        with pytest.raises(ValueError, match=f"{name}: expected at least 1, got 0"):
            made("deeponet", **{name: 0})
