"""Our network: what it has beside the tests of all networks."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from funcattn.models import MODELS, build_model
from funcattn.models.functional_operator import FunctionalOperator, FunctionalOperatorSettings
from funcattn.nn.operator import (
    FourierMap,
    LocalStencil,
    MetricAttention,
    ModewiseMap,
    PartitionAttention,
)
from funcattn.problem import Field, Problem

SMALL = {"width": 8, "layers": 2, "modes": 4, "bases": 5, "reach": 1 / 8}


def kinds(network: nn.Module) -> set[type]:
    every = (PartitionAttention, FourierMap, ModewiseMap, MetricAttention, LocalStencil)
    return {type(module) for module in network.modules()} & set(every)


@pytest.mark.parametrize(
    ("grid", "periodic", "parts"),
    [
        (False, False, {PartitionAttention}),
        (False, True, {PartitionAttention}),
        (True, False, {MetricAttention, ModewiseMap, LocalStencil}),
        (True, True, {FourierMap}),
    ],
)
def test_the_points_decide_the_parts(grid: bool, periodic: bool, parts: set[type]) -> None:
    problem = Problem(
        2, (Field("a"),), (Field("u"),), grid=grid, periodic=periodic, points=35 if grid else None
    )
    entry = MODELS["functional_operator"]
    given = entry.form(problem).settings(**SMALL)
    network = build_model("functional_operator", given, problem)
    assert kinds(network) == parts
    out = network(torch.rand(2, 35, 2), torch.rand(2, 35, 1), grid=(5, 7) if grid else None)
    assert out.shape == (2, 35, 1)


def test_only_the_last_block_solves_and_only_where_there_are_input_values() -> None:
    def metrics(inputs: int) -> list[bool]:
        network = FunctionalOperator(2, inputs, 1, **(SMALL | {"layers": 3}), grid=True)
        return [MetricAttention in kinds(block) for block in network.blocks]

    assert metrics(inputs=1) == [False, False, True]
    assert metrics(inputs=0) == [False, False, False]


@pytest.mark.parametrize(
    ("coefficients", "metric", "solves"),
    [
        (None, None, True),
        (True, None, True),
        (False, None, False),
        (False, True, True),
        (True, False, False),
    ],
)
def test_coefficients_have_a_metric_and_matrices_that_are_shared(
    coefficients: bool | None, metric: bool | None, solves: bool
) -> None:
    problem = Problem(
        2, (Field("a"),), (Field("u"),), grid=True, points=35, coefficients=coefficients
    )
    given = FunctionalOperatorSettings(**SMALL, metric=metric)
    network = build_model("functional_operator", given, problem)
    assert (MetricAttention in kinds(network)) == solves
    shared = [m.rank is not None for m in network.modules() if isinstance(m, ModewiseMap)]
    assert shared == [solves] * SMALL["layers"]


@pytest.mark.parametrize("model", ["cloud", "grid", "torus"])
def test_fields_keep_their_size_at_the_start(model: str) -> None:
    torch.manual_seed(0)
    network = FunctionalOperator(
        2, 1, 1, width=64, layers=4, grid=model != "cloud", periodic=model == "torus"
    )
    axis = torch.arange(24) / 24
    positions = torch.cartesian_prod(axis, axis)[None]
    values = torch.sin(7 * positions[..., :1]) + torch.cos(5 * positions[..., 1:])
    out = network(positions, values, grid=(24, 24))
    assert 0.05 < out.std() < 20


def smooth(n: int, *, periodic: bool) -> tuple[Tensor, Tensor]:
    x = torch.arange(n).double() / (n if periodic else n - 1)
    values = (2 * torch.pi * x).sin() + 0.3 * (4 * torch.pi * x).cos()
    return x[None, :, None], values[None, :, None]


@pytest.mark.parametrize("periodic", [False, True], ids=["interval", "circle"])
def test_on_finer_grids_its_fields_converge(periodic: bool) -> None:
    torch.manual_seed(0)
    network = FunctionalOperator(1, 1, 1, **SMALL, grid=True, periodic=periodic).double()
    end = 0 if periodic else 1

    def at_eighths(n: int) -> Tensor:
        positions, values = smooth(n + end, periodic=periodic)
        return network(positions, values, grid=(n + end,))[0, :: n // 8, 0]

    exact = at_eighths(2048)
    errors = [(at_eighths(n) - exact).abs().max() for n in (16, 32, 64)]
    assert errors[0] < 0.3 * exact.std()
    # The trapezoid rule is of second order, and better where everything is periodic.
    assert errors[1] < errors[0] / 3.5
    assert errors[2] < errors[1] / 3.5


@pytest.mark.parametrize(
    ("grid", "periodic", "fade", "fades"),
    [
        (True, False, None, False),
        (True, False, False, False),
        (True, False, True, True),
        (True, True, True, False),
        (False, False, True, False),
    ],
)
def test_waves_fade_on_grids_where_asked_for(
    grid: bool, periodic: bool, fade: bool | None, fades: bool
) -> None:
    problem = Problem(
        2, (), (Field("u"),), grid=grid, periodic=periodic, points=35 if grid else None
    )
    network = build_model(
        "functional_operator", FunctionalOperatorSettings(**SMALL, fade=fade), problem
    )
    assert network.fading == ((1 / 8, 1 / 8) if fades else None)


def test_with_fading_waves_a_stretched_grid_says_the_same_when_it_is_refined() -> None:
    def difference(seed: int, *, fade: bool) -> float:
        """At the common points of two grids, over the size of the field."""
        torch.manual_seed(seed)
        network = FunctionalOperator(
            2, 0, 1, **(SMALL | {"reach": (1 / 8, 1 / 16)}), fade=fade, grid=True
        ).double()
        x, y = torch.linspace(0, 1, 17).double(), torch.linspace(0, 1, 33).double()
        far = (1e4**y - 1) / (1e4 - 1)  # the last of the sixteen cells is 44 % of the length
        places = torch.stack(torch.meshgrid(x, far, indexing="ij"), -1)
        fine = network(places.flatten(0, 1)[None], grid=(17, 33)).view(17, 33)
        coarse = network(places[::2, ::2].flatten(0, 1)[None], grid=(9, 17)).view(9, 17)
        return float(((fine[::2, ::2] - coarse).norm() / coarse.norm()).detach())

    faded, plain = (sum(difference(seed, fade=fade) for seed in range(3)) for fade in (True, False))
    assert faded < plain / 2


def test_where_only_stencils_meet_a_nested_grid_says_the_same(
    uniform: Any, assert_equal_to_rounding: Any
) -> None:
    torch.manual_seed(0)
    reach = (1 / 4, 1 / 3)
    network = FunctionalOperator(
        2,
        0,
        1,
        **(SMALL | {"reach": reach}),
        fade=True,
        grid=True,
        branches=[lambda width: LocalStencil(width, reach=reach)],
    ).double()
    places = uniform(1, 9, 7, 2).requires_grad_()
    fine = network(places.flatten(1, 2), grid=(9, 7)).view(9, 7)[::2, ::2]
    coarse = network(places[:, ::2, ::2].flatten(1, 2), grid=(5, 4)).view(5, 4)
    assert_equal_to_rounding(fine, coarse)
    (slope,) = torch.autograd.grad(coarse.square().sum(), places)
    assert bool(slope.isfinite().all())
    assert bool((slope[:, ::2, ::2] != 0).all())


def test_on_a_cloud_its_fields_converge_with_the_points() -> None:
    torch.manual_seed(0)
    network = FunctionalOperator(1, 1, 1, **SMALL).double()

    def at_probe(n: int) -> Tensor:
        x = torch.cat([torch.tensor([0.2, 0.5, 0.9]), (torch.arange(n) + 0.5) / n]).double()
        values = (2 * torch.pi * x).sin()
        weights = torch.cat([torch.zeros(3), torch.ones(n) / n]).double()
        out = network(x[None, :, None], values[None, :, None], weights=weights[None])
        return out[0, :3, 0]

    exact = at_probe(4096)
    errors = [(at_probe(n) - exact).abs().max() for n in (32, 64, 128)]
    assert errors[1] < errors[0] / 3.5
    assert errors[2] < errors[1] / 3.5


def test_on_a_circle_it_starts_as_a_network_that_moves_with_its_input(
    assert_equal_to_rounding: Any,
) -> None:
    torch.manual_seed(0)
    network = FunctionalOperator(1, 1, 1, **SMALL, grid=True, periodic=True).double()
    positions, values = smooth(32, periodic=True)
    moved = network(positions, values.roll(5, 1), grid=(32,))
    assert_equal_to_rounding(moved, network(positions, values, grid=(32,)).roll(5, 1))
    # It may learn otherwise: positions are among its inputs.
    network(positions, values, grid=(32,)).square().sum().backward()
    assert network.lift.weight.grad is not None
    assert (network.lift.weight.grad.abs().amax(0) > 0).all()


def test_it_can_be_compiled_to_a_graph_that_gives_the_same(assert_equal_to_rounding: Any) -> None:
    torch.manual_seed(0)
    network = FunctionalOperator(2, 1, 1, **SMALL, grid=True).double().eval()
    x, a = torch.rand(1, 63, 2).double(), torch.rand(1, 63, 1).double()
    program = torch.export.export(network, (x, a), {"grid": (7, 9)})
    assert_equal_to_rounding(program.module()(x, a, grid=(7, 9)), network(x, a, grid=(7, 9)))


AROUND = SMALL | {"surroundings": 1 / 8}


def test_surroundings_are_on_unless_switched_off_and_idle_on_grids() -> None:
    problem = Problem(2, (Field("a"),), (Field("u"),))
    reaches = []
    for given in ({}, {"surroundings": 1 / 8}, {"surroundings": None}):
        settings = FunctionalOperatorSettings(**given)  # type: ignore[arg-type]
        network = build_model("functional_operator", settings, problem)
        assert isinstance(network, FunctionalOperator)
        around = network.surroundings
        reaches.append(None if around is None else [each.spacing for each in around.lattices])
    assert reaches == [[1 / 32, 1 / 16], [1 / 8, 1 / 4], None]
    assert FunctionalOperator(2, 1, 1).surroundings is None
    assert FunctionalOperator(2, 1, 1, **AROUND, grid=True).surroundings is None


@pytest.mark.parametrize(
    ("space", "how", "reach"),
    [
        (1, {}, None),
        (2, {}, 1 / 32),
        (2, {"grid": True, "points": 12}, None),
        (2, {"periodic": True}, None),
        (3, {}, None),
        (4, {}, None),
    ],
)
def test_auto_decides_the_reach_by_the_points(
    space: int, how: dict[str, Any], reach: float | None
) -> None:
    problem = Problem(space, (), (Field("u"),), lower=-1.0, **how)
    given = FunctionalOperatorSettings(**SMALL, surroundings="auto")
    network = build_model("functional_operator", given, problem)
    assert isinstance(network, FunctionalOperator)
    found = network.surroundings
    # Of the longest side, which is 2.
    assert (found and [lattice.spacing for lattice in found.lattices]) == (
        reach and [2 * reach, 4 * reach]
    )
    asked = build_model(
        "functional_operator", FunctionalOperatorSettings(**SMALL, surroundings=reach), problem
    )
    shapes = [{n: p.shape for n, p in net.named_parameters()} for net in (network, asked)]
    assert shapes[0] == shapes[1]


def test_with_surroundings_a_network_sees_how_the_points_lie(
    assert_equal_to_rounding: Any,
) -> None:
    torch.manual_seed(0)
    network = FunctionalOperator(2, 0, 1, **AROUND).double()
    x, order = torch.rand(2, 40, 2).double(), torch.randperm(40)
    out = network(x)
    assert_equal_to_rounding(network(x[:, order]), out[:, order])
    mask = torch.arange(40) < torch.tensor([[40], [31]])
    padded = torch.where(mask[..., None], x, torch.nan)
    assert_equal_to_rounding(network(padded, mask=mask)[1:, :31], network(x[1:, :31]))
    # All attention cut off, a point still answers to where the others are.
    for block in network.blocks:
        nn.init.zeros_(block.get_parameter("attention.to_output.weight"))
    moved = torch.cat([x[:, :39], x[:, 39:] * 0.5], dim=1)
    assert not torch.equal(network(moved)[:, :39], network(x)[:, :39])
    network(x).square().sum().backward()
    assert network.lift.weight.grad is not None
    assert (network.lift.weight.grad.abs().amax(0) > 0).all()


@pytest.mark.parametrize("modes", [0, (3,), (3, 0), (2, 2, 2)], ids=str)
def test_modes_are_positive_and_one_for_each_axis(modes: Any) -> None:
    with pytest.raises(ValueError, match="modes: expected a positive number, or one for each of 2"):
        FunctionalOperator(2, 1, 1, modes=modes, grid=True)


def test_there_is_at_least_one_block() -> None:
    with pytest.raises(ValueError, match="layers: expected at least 1, got 0"):
        FunctionalOperator(2, 1, 1, layers=0)


def test_a_network_for_grids_says_so_without_one() -> None:
    network = FunctionalOperator(2, 1, 1, **SMALL, grid=True)
    with pytest.raises(ValueError, match="grid: expected 2 axis lengths"):
        network(torch.rand(1, 12, 2), torch.rand(1, 12, 1))


def test_muon_gets_the_matrices_of_the_blocks_with_their_stacks() -> None:
    from funcattn.training.muon import matrices_of

    network = FunctionalOperator(2, 1, 1, **SMALL, grid=True)
    taken = matrices_of(network)
    names = {name for name, p in network.named_parameters() if p in taken}
    assert {name.removeprefix("blocks.") for name in names} == {
        *(f"{block}.{linear}.weight" for block in (0, 1) for linear in ("before", "after")),
        "0.branches.0.weight",
        "1.branches.0.to_coefficient.weight",
        "1.branches.1.weight",
    }
