import io
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from funcattn.models.deeponet import DeepONet

SENSORS = 20


def made(space: int = 2, inputs: int = 1, outputs: int = 1, **options: object) -> DeepONet:
    """A small network in float64, the same in every run."""
    options = {"sensors": SENSORS, "width": 8, "layers": 2, "bases": 3} | options
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = DeepONet(space, inputs, outputs, **options).double()
        torch.nn.init.normal_(model.bias)
    return model


def uniform(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=generator)


def assert_equal_to_rounding(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("time", [False, True], ids=["steady", "time"])
@pytest.mark.parametrize("inputs", [0, 3], ids=["geometry", "values"])
@pytest.mark.parametrize("space", [1, 2, 3])
def test_every_parameter_gets_a_gradient(
    space: int, inputs: int, time: bool, generator: torch.Generator
) -> None:
    model = made(space, inputs, 2, time=time)
    values = uniform(3, SENSORS, inputs, generator=generator) if inputs else None
    at = uniform(3, generator=generator) if time else None
    out = model(uniform(3, SENSORS, space, generator=generator), values, time=at)
    assert out.shape == (3, SENSORS, 2)
    (out * uniform(3, SENSORS, 2, generator=generator)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


@pytest.mark.parametrize("inputs", [0, 2], ids=["geometry", "values"])
def test_is_a_sum_over_the_basis_functions(inputs: int, generator: torch.Generator) -> None:
    model = made(2, inputs, 2, time=True)
    positions, time = uniform(2, SENSORS, 2, generator=generator), uniform(2, generator=generator)
    values = uniform(2, SENSORS, inputs, generator=generator) if inputs else None
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


def test_solutions_lie_in_the_span_of_as_many_functions_as_it_has(
    generator: torch.Generator,
) -> None:
    """At fixed positions: out - bias = coefficients(u) bases(x), a matrix of rank 3."""
    model = made()
    positions = uniform(1, SENSORS, 2, generator=generator).expand(10, -1, -1)
    values = 10 * uniform(10, SENSORS, 1, generator=generator)
    matrix = (model(positions, values) - model.bias).detach()[..., 0]
    size = torch.linalg.svdvals(matrix)
    assert size[2] > 1e-6 * size[0]
    assert size[3] < 1e-13 * size[0]


def test_is_linear_in_the_last_map_of_its_branch(generator: torch.Generator) -> None:
    model = made()
    inputs = (uniform(2, SENSORS, k, generator=generator) for k in (2, 1))
    positions, values = inputs

    def of(factor: float) -> Tensor:
        scaled = made()
        with torch.no_grad():
            scaled.branch[-1].weight.mul_(factor)
            scaled.branch[-1].bias.mul_(factor)
        return scaled(positions, values) - scaled.bias

    assert_equal_to_rounding(of(2.5), 2.5 * (model(positions, values) - model.bias))


def test_represents_an_operator_of_low_rank_exactly(generator: torch.Generator) -> None:
    """G(u)(x) = sum over p of <a_p, u> gelu(w_p x + c_p), as x = gelu(x) - gelu(-x)."""
    model = made(1, width=6, layers=1, bases=3)
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
    positions = uniform(5, SENSORS, 1, generator=generator)
    values = torch.randn(5, SENSORS, 1, generator=generator, dtype=torch.float64)
    functions = F.gelu(positions * slopes + offsets)
    expected = torch.einsum("bm,pm,bnp->bn", values[..., 0], functionals, functions)
    assert_equal_to_rounding(model(positions, values)[..., 0], expected)


def test_a_sample_does_not_see_its_batch_neighbours(generator: torch.Generator) -> None:
    model = made()
    positions = uniform(3, SENSORS, 2, generator=generator)
    values = uniform(3, SENSORS, 1, generator=generator)
    together = model(positions, values)
    for b in range(3):
        alone = model(positions[b : b + 1], values[b : b + 1])
        assert_equal_to_rounding(together[b : b + 1], alone)


def test_time_changes_the_answer(generator: torch.Generator) -> None:
    model = made(inputs=0, time=True)
    positions = uniform(1, SENSORS, 2, generator=generator)
    early, late = (
        model(positions, time=torch.tensor([t], dtype=torch.float64)) for t in (0.1, 0.9)
    )
    assert (early - late).abs().max() > 1e-3


def test_has_the_parameters_of_the_published_antiderivative_network() -> None:
    """Maps 100-40-40 and 1-40-40, and a bias."""
    model = DeepONet(1, 1, 1, sensors=100, width=40, layers=1, bases=40)
    expected = (100 + 1) * 40 + (40 + 1) * 40 + (1 + 1) * 40 + (40 + 1) * 40 + 1
    assert sum(parameter.numel() for parameter in model.parameters()) == expected == 7401


def test_saving_and_loading_reproduces_results_exactly(generator: torch.Generator) -> None:
    saved, loaded = made(), made()
    for parameter in loaded.parameters():
        parameter.data += 0.1
    inputs = tuple(uniform(2, SENSORS, k, generator=generator) for k in (2, 1))
    assert not torch.equal(saved(*inputs), loaded(*inputs))
    file = io.BytesIO()
    torch.save(saved.state_dict(), file)
    file.seek(0)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(saved(*inputs), loaded(*inputs))


@pytest.mark.usefixtures("as_a_user")  # for speed
def test_learns_a_map_that_needs_other_points() -> None:
    """A wave of unknown phase to its quarter period: no point can do it alone."""
    shift = torch.tensor([0.1, 0.4, 0.6, 0.9])[:, None]
    x = torch.arange(16) / 16
    phase = 2 * math.pi * (x + shift)
    positions, u, target = x.expand(4, -1).unsqueeze(-1), phase.sin()[..., None], phase.cos()
    model = made(1, sensors=16, width=32, bases=16).float()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=400)
    for _ in range(400):
        optimizer.zero_grad()
        out = model(positions, u)[..., 0]
        loss = ((out - target).norm(dim=-1) / target.norm(dim=-1)).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
    assert loss.item() < 0.02


@pytest.mark.usefixtures("as_a_user")
class TestErrors:
    def test_points_are_those_of_the_sensors(self) -> None:
        with pytest.raises(ValueError, match=r"expected the 20 points .* got 19; .* sensors=19"):
            made()(torch.zeros(2, 19, 2).double(), torch.zeros(2, 19, 1).double())

    def test_a_mask_is_refused(self) -> None:
        mask = torch.ones(2, SENSORS, dtype=torch.bool)
        with pytest.raises(ValueError, match="mask: expected none, as DeepONet takes samples with"):
            made(inputs=0)(torch.zeros(2, SENSORS, 2).double(), mask=mask)

    @pytest.mark.parametrize("name", ["sensors", "bases"])
    def test_there_are_sensors_and_functions(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"{name}: expected at least 1, got 0"):
            made(**{name: 0})
