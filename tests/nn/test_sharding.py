"""Points over several processes: outputs and gradients are those of one process.

Run as a script, this file starts the processes, each of which compares its part of every case with
the whole computed at once, and writes down the largest relative difference.
"""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from funcattn import FunctionalAttention, OperatorTransformer
from funcattn.models.functional_operator import FunctionalOperator
from funcattn.nn import (
    FourierBasis,
    GridConvolution,
    GridFourierBasis,
    LearnedBasis,
    OrthonormalBasis,
    Stencil,
)
from funcattn.nn.baselines import GalerkinAttention
from funcattn.nn.operator import PartitionAttention
from funcattn.nn.points import Points
from funcattn.nn.sharding import spread_points, sum_gradients
from funcattn.ops.sharding import RankLostError, share_of_rank, sum_over_ranks, sum_together

BATCH, POINTS, CONTEXT, WIDTH, BASES = 2, 23, 17, 16, 5
EXECUTIONS = ["plain", "stored", "streamed"]
PROJECTIONS = ["average", "transpose", "inner_product", "pinv"]


def shards(points: int, ranks: int, *, empty: bool) -> list[slice]:
    """Uneven shards; `empty`: the first rank has none."""
    empty = empty and ranks > 1
    sizes = [0] * empty + list(range(1, ranks + 1 - empty))
    edges = [0]
    for size in sizes:
        edges.append(edges[-1] + points * size // sum(sizes))
    edges[-1] = points
    return [slice(start, stop) for start, stop in pairwise(edges)]


def with_large_weights(model: nn.Module) -> nn.Module:
    """Of order one instead of the tiny starting values, so that nothing hides in small numbers."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
            else:
                parameter += 0.1 * torch.randn_like(parameter)
    return model


@dataclass(frozen=True)
class Case:
    """A model, and what is known of the points it is called on."""

    make: Callable[[], nn.Module]
    empty: bool = False
    points: Literal["bare", "weights and mask", "one rank masks", "learned weights"] = "bare"
    context: bool = False
    dtype: torch.dtype = torch.float64
    loss: Literal["sum", "relative"] = "sum"
    large_weights: bool = True
    data_ranks: int = 1
    """Over so many groups of ranks the samples are spread."""
    fields: tuple[str, ...] = ("x",)
    """What the model is called with; those named `positions` have two channels."""


def layer(heads: int = 8, **options: Any) -> FunctionalAttention:
    return FunctionalAttention(WIDTH, heads, BASES, **options)


def transformer(
    heads: int = 8, *, attention: dict[str, Any] | None = None, **options: Any
) -> OperatorTransformer:
    layers = partial(FunctionalAttention, heads=heads, bases=BASES, **(attention or {}))
    return OperatorTransformer(2, 1, 1, width=WIDTH, layers=2, attention=layers, **options)


class ComplexBasis(nn.Module):
    """Waves along the first feature, with values that are not real."""

    def forward(self, x: Tensor, points: object) -> Tensor:  # noqa: ARG002
        waves = torch.arange(BASES, dtype=x.dtype)
        return torch.polar(torch.ones(()).to(x), x[..., :1] * waves).unsqueeze(1)


def cases() -> dict[str, Case]:
    """All cases by name."""
    found = {}
    for execution, heads, maps, empty, points in product(
        EXECUTIONS, (1, 8), ("coefficients", "points"), (False, True), ("bare", "weights and mask")
    ):
        name = f"{execution}, {heads} heads, maps at {maps}, {points}{', empty' * empty}"
        make = partial(layer, heads, execution=execution, maps=maps)
        found[name] = Case(make, empty, points)
    for projection, execution, empty in product(PROJECTIONS, EXECUTIONS, (False, True)):
        if projection == "pinv" and execution != "plain":
            continue
        make = partial(layer, 2, projection=projection, execution=execution)
        name = f"{projection}, {execution}{', empty' * empty}"
        found[name] = Case(make, empty, "weights and mask")
        found[name + ", one rank masks"] = Case(make, empty, "one rank masks")
    for projection, maps, empty in product(PROJECTIONS, ("coefficients", "points"), (False, True)):
        make = partial(layer, 2, projection=projection, maps=maps)
        name = f"to a context, {projection}, maps at {maps}{', empty' * empty}"
        found[name] = Case(make, empty, "weights and mask", context=True)
        found[name + ", bare"] = Case(make, empty, context=True)
        found[f"two bases, {projection}, maps at {maps}{', empty' * empty}"] = Case(
            partial(make, key_basis=LearnedBasis(WIDTH, 2, BASES)), empty, "weights and mask"
        )
    for projection in ("inner_product", "pinv", "transpose"):
        make = partial(layer, 2, basis=ComplexBasis(), projection=projection)
        found[f"complex basis, {projection}"] = Case(make)
    found["learned weights"] = Case(layer, points="learned weights")
    partition = partial(PartitionAttention, WIDTH, BASES)
    for points, context, empty in product(
        ("bare", "weights and mask", "one rank masks"), (False, True), (False, True)
    ):
        name = f"partition, {points}{', to a context' * context}{', empty' * empty}"
        found[name] = Case(partition, empty, points, context=context)
    network = partial(Case, fields=("positions", "values"))
    by_fourier = {"basis": FourierBasis((1, 1)), "projection": "inner_product"}
    make = partial(transformer, 2, attention=by_fourier)
    found["Fourier basis"] = network(make, points="one rank masks")
    for heads, empty, loss in product((1, 8), (False, True), ("sum", "relative")):
        name = f"transformer, {heads} heads, {loss}{', empty' * empty}"
        found[name] = network(partial(transformer, heads), empty, loss=loss)
    for empty in (False, True):
        name = f"transformer, weights and mask{', empty' * empty}"
        found[name] = network(transformer, empty, points="weights and mask")
    operator = partial(FunctionalOperator, 2, 1, 1, width=WIDTH, layers=2, bases=BASES)
    for empty, loss in product((False, True), ("sum", "relative")):
        found[f"operator, {loss}{', empty' * empty}"] = network(operator, empty, loss=loss)
    around = partial(operator, surroundings=0.1, lower=-2.0, upper=2.0)
    for empty, points in product((False, True), ("bare", "weights and mask", "one rank masks")):
        found[f"surroundings, {points}{', empty' * empty}"] = network(around, empty, points)
    found["surroundings, learned weights"] = network(around, points="learned weights")
    found["transformer, one basis for all"] = network(partial(transformer, share_basis=True))
    found["transformer, computed again"] = network(partial(transformer, checkpoint=True), True)
    # With large weights a network in float32 is itself 1e-6 away from the one in float64.
    single = {"dtype": torch.float32, "large_weights": False}
    found["transformer, float32"] = network(transformer, **single)
    for execution in EXECUTIONS:
        make = partial(layer, execution=execution)
        found[f"{execution}, float32"] = Case(make, dtype=torch.float32)
        found[f"{execution}, float32, empty"] = Case(make, empty=True, dtype=torch.float32)
    return found


@cache
def mesh_of(data_ranks: int) -> DeviceMesh:
    shape = (data_ranks, dist.get_world_size() // data_ranks)
    return init_device_mesh("cpu", shape, mesh_dim_names=("data", "points"))


def difference(case: Case) -> float:
    """The largest relative difference between this rank's part and the whole."""
    torch.manual_seed(0)
    mesh = mesh_of(case.data_ranks)
    points_mesh, sample_rank = mesh["points"], mesh.get_local_rank("data")
    model = case.make().to(case.dtype)
    if case.large_weights:
        with_large_weights(model)
    channels = {"x": WIDTH, "positions": 2, "values": 1}
    fields = [torch.randn(BATCH, POINTS, channels[name], dtype=case.dtype) for name in case.fields]
    if case.context:
        fields.append(torch.randn(BATCH, CONTEXT, WIDTH, dtype=case.dtype))
    extras = [_extras(case, f.shape[1]) for f in (fields[0], *fields[len(case.fields) :])]
    target = torch.rand(BATCH, POINTS, 1 if len(case.fields) == 2 else WIDTH, dtype=case.dtype)

    def run(
        network: nn.Module, rows: slice, parts: list[slice], mesh: DeviceMesh | None
    ) -> list[Tensor]:
        """Output and gradients of the inputs and weights, for some samples and some points."""
        given = [
            f[rows, parts[i >= len(case.fields)]].clone().requires_grad_()
            for i, f in enumerate(fields)
        ]
        sides = [
            {name: t[rows, part].detach().clone() for name, t in extra.items()}
            for extra, part in zip(extras, parts, strict=False)
        ]
        if case.points == "one rank masks" and mesh is not None:
            for side in sides:
                # This rank has only real points, so it need not say so.
                if bool(side["mask"].all()):
                    del side["mask"]
        leaves = list(given)
        if case.points == "learned weights":
            leaves += [side["weights"].requires_grad_() for side in sides]
        names = {name for side in sides for name in side}
        options = {
            name: tuple(side.get(name) for side in sides) if case.context else sides[0].get(name)
            for name in names
        }
        out = network(*given, **options)
        wanted = target[rows, parts[0]]
        if case.loss == "sum":
            loss = (out * wanted).sum()
        else:
            squares = torch.stack(
                [(out - wanted).square().sum((1, 2)), wanted.square().sum((1, 2))]
            )
            if mesh is not None:
                squares = sum_over_ranks(squares, mesh["points"])
            loss = (squares[0] / squares[1]).sqrt().sum()
            if mesh is not None:
                loss = share_of_rank(loss, mesh["points"])
        loss.backward()
        if mesh is not None:
            sum_gradients(network, mesh)
        gradients = [p.grad for p in network.parameters()]
        assert all(gradient is not None for gradient in gradients)
        return [out.detach(), *(leaf.grad for leaf in leaves), *gradients]

    rank, groups = points_mesh.get_local_rank(), points_mesh.size()
    my_parts = [shards(length, groups, empty=case.empty)[rank] for length in (POINTS, CONTEXT)]
    of_samples = BATCH // case.data_ranks
    my_rows = slice(sample_rank * of_samples, (sample_rank + 1) * of_samples)
    whole = run(copy.deepcopy(model), slice(None), [slice(None)] * 2, None)
    spread_points(model, points_mesh)
    ours = run(model, my_rows, my_parts, mesh)
    pointwise = 1 + len(fields) + (len(extras) if case.points == "learned weights" else 0)
    # In float32 the gradient of all weights is one vector: a small part of it is what is left of
    # much larger terms, rounded.
    largest = max(gradient.abs().max().item() for gradient in whole[pointwise:])
    worst = 0.0
    for place, (mine, all_of_it) in enumerate(zip(ours, whole, strict=True)):
        theirs, scale = all_of_it, all_of_it.abs().max().item()
        if place < pointwise:
            theirs = all_of_it[my_rows, my_parts[case.context and place == 2]]
        elif case.dtype == torch.float32:
            scale = largest
        assert mine.shape == theirs.shape
        assert scale > 0
        if mine.numel():
            worst = max(worst, (mine - theirs).abs().max().item() / scale)
    return worst


def _extras(case: Case, length: int) -> dict[str, Tensor]:
    """Weights and mask of all points."""
    if case.points == "bare":
        return {}
    weights = torch.rand(BATCH, length, dtype=case.dtype)
    if case.points == "learned weights":
        return {"weights": weights}
    mask = torch.rand(BATCH, length) < 0.6
    if case.points == "one rank masks":
        # The first shards have real points only.
        mask[:, : length * 2 // 3] = True
        return {"mask": mask}
    # In every part of the mesh there is a real point, and one that is not.
    mask[:, ::3], mask[:, 1::6] = True, False
    return {"weights": weights, "mask": mask}


def second_derivative() -> float:
    """Of a function of a sum over ranks, against the same of all points at once."""
    torch.manual_seed(0)
    points, direction = torch.rand(2, dist.get_world_size(), 3, dtype=torch.float64)

    def along(x: Tensor, direction: Tensor, value: Callable[[Tensor], Tensor]) -> Tensor:
        """The Hessian times a direction."""
        x = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(value(x), x, create_graph=True)
        return torch.autograd.grad((gradient * direction).sum(), x)[0]

    def value_of_rank(x: Tensor) -> Tensor:
        group = dist.group.WORLD
        return share_of_rank(sum_over_ranks(x.square(), group).prod(), group)

    rank = dist.get_rank()
    whole = along(points, direction, lambda x: x.square().sum(0).prod())
    ours = along(points[rank], direction[rank], value_of_rank)
    return float((ours - whole[rank]).abs().max() / whole.abs().max())


def packed_sums() -> float:
    """Tensors of several shapes and dtypes in one message."""
    rank, ranks = dist.get_rank(), dist.get_world_size()

    def tensors(number: float, ones: int) -> list[Tensor]:
        of_double = torch.tensor(number, dtype=torch.float64)
        return [torch.full((2, 3), number), of_double, torch.full((2,), complex(number, ones))]

    expected = tensors(ranks * (ranks - 1) / 2, ranks)
    sums = sum_together(tensors(float(rank), 1), dist.group.WORLD)
    torch.testing.assert_close(sums, expected, rtol=0, atol=0)
    return 0.0


def first_ranks_weights() -> float:
    """Spreading gives all ranks the weights, and buffers, of the first."""
    torch.manual_seed(dist.get_rank())
    model = with_large_weights(layer())
    model.register_buffer("scale", torch.tensor(float(dist.get_rank())))
    spread_points(model, dist.group.WORLD)
    torch.manual_seed(0)
    expected = with_large_weights(layer())
    for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    return float(model.get_buffer("scale"))


def missing_gradients() -> float:
    """A weight that only some ranks have a gradient of gets it; one that none has keeps none."""
    model = nn.ParameterList(nn.Parameter(torch.zeros(2)) for _ in range(2))
    if dist.get_rank() == 0:
        model[0].grad = torch.ones(2)
    sum_gradients(model, dist.group.WORLD)
    assert model[1].grad is None
    assert model[0].grad is not None
    return float((model[0].grad - 1).abs().max())


def nothing_left(execution: str) -> float:
    """Where no rank has a point that counts, all of them say so."""
    model = layer(2, execution=execution).double()
    spread_points(model, dist.group.WORLD)
    x, mask = torch.rand(2, 4, WIDTH, dtype=torch.float64), torch.ones(2, 4, dtype=torch.bool)
    model(x, mask=mask)
    mask[1] = False
    if dist.get_rank() < dist.get_world_size() - 1:
        x, mask = x[:, :0], mask[:, :0]
    with pytest.raises(ValueError, match=r"no rank has one that is not masked .* in row \[1\]"):
        model(x, mask=mask)
    return 0.0


def messages(execution: str) -> float:
    """A layer sends one message forward and one backward."""
    model = layer(execution=execution)
    spread_points(model, dist.group.WORLD)
    sent, send = [], dist.all_reduce

    def counted(tensor: Tensor, **options: Any) -> object:
        sent.append(tensor.numel())
        return send(tensor, **options)

    dist.all_reduce = counted
    try:
        out = model(torch.rand(1, 5, WIDTH))
        forward = len(sent)
        out.sum().backward()
    finally:
        dist.all_reduce = send
    assert (forward, len(sent)) == (1, 2), sent
    # Moments and mass of each function of each head, and the total weight.
    values = BASES * (WIDTH + 8) + 1
    assert sent == [values, values]
    return 0.0


def lost_rank() -> None:
    """The others hear of a rank that is gone."""
    if dist.get_rank() == dist.get_world_size() - 1:
        os._exit(0)
    with pytest.raises(RankLostError, match=r"expected all \d ranks to take part .* has died"):
        sum_over_ranks(torch.ones(3), dist.group.WORLD)


CHECKS: dict[str, Callable[[], float]] = {
    "second derivative": second_derivative,
    "packed sums": packed_sums,
    "weights of the first rank": first_ranks_weights,
    "missing gradients": missing_gradients,
    **{f"nothing left, {e}": partial(nothing_left, e) for e in EXECUTIONS},
    **{f"messages, {e}": partial(messages, e) for e in EXECUTIONS},
}


def chosen_cases(ranks: int, every: int) -> dict[str, Case]:
    """One case of so many, others for another number of ranks."""
    found = cases()
    if ranks % 2 == 0:
        of_both = partial(Case, loss="relative", data_ranks=2, fields=("positions", "values"))
        for empty in (False, True):
            found[f"samples and points{', empty' * empty}"] = of_both(transformer, empty)
    return dict(list(found.items())[ranks % every :: every])


def one_rank(rank: int, ranks: int, every: int, folder: str) -> None:
    """Do the cases and write down what was found."""
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(minutes=15),
    )
    found = {name: difference(case) for name, case in chosen_cases(ranks, every).items()}
    found |= {name: check() for name, check in CHECKS.items()}
    Path(folder, f"rank{rank}.json").write_text(json.dumps(found))
    lost_rank()


QUICK = [pytest.param(ranks, 3, id=f"{ranks} ranks") for ranks in (2, 3)]
FULL = [
    pytest.param(ranks, 1, id=f"{ranks} ranks, all cases", marks=pytest.mark.full)
    for ranks in (1, 2, 3, 4)
]


@pytest.mark.parametrize(("ranks", "every"), QUICK + FULL)
def test_ranks_come_to_the_numbers_of_one_process(tmp_path: Path, ranks: int, every: int) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", __file__, str(tmp_path), str(ranks), str(every)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for rank in range(ranks):
        found = json.loads((tmp_path / f"rank{rank}.json").read_text())
        assert found.keys() == chosen_cases(ranks, every).keys() | CHECKS.keys()
        wrong = {
            name: value
            for name, value in found.items()
            if not value <= (1e-6 if "float32" in name else 1e-12)
        }
        assert not wrong, f"on rank {rank}"


@pytest.fixture
def alone() -> Iterator[dist.ProcessGroup]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert dist.group.WORLD is not None
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_a_mesh_of_one_dimension_is_taken_and_one_of_two_is_not(alone: dist.ProcessGroup) -> None:
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("data", "points"))
    model = transformer(2)
    with pytest.raises(ValueError, match=r"expected a mesh of one dimension.*`mesh\['points'\]`"):
        spread_points(model, mesh)
    spread_points(model, mesh["points"])
    groups = {module.ranks for module in model.modules() if isinstance(module, FunctionalAttention)}
    assert len(groups) == 1
    assert groups.pop().group.size() == alone.size()


def test_spreading_can_be_undone_and_copies_share_the_group(alone: dist.ProcessGroup) -> None:
    model = layer(2)
    spread_points(model, alone)
    assert copy.deepcopy(model).ranks is model.ranks is not None
    spread_points(model, None)
    assert model.ranks is None
    with pytest.raises(ValueError, match="every point is masked"):
        model(torch.rand(1, 3, WIDTH), mask=torch.zeros(1, 3, dtype=torch.bool))


def test_few_points_are_done_as_many_are_which_another_rank_may_have(
    alone: dist.ProcessGroup,
) -> None:
    """All ranks must send the same messages."""
    model = layer(2, projection="transpose")  # which C does not do as a whole
    x = torch.rand(1, 3, WIDTH)
    assert model._in_chunks(x, Points()) is None
    spread_points(model, alone)
    assert model._in_chunks(x, Points()) is not None


MIXING: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "stencil": (lambda: layer(2, features=Stencil), "Stencil at 'basis.features'.*point-wise"),
    "convolution": (lambda: layer(2, features=GridConvolution), "GridConvolution at .*point-wise"),
    "orthonormal": (
        lambda: layer(2, basis=OrthonormalBasis(LearnedBasis(WIDTH, 2, BASES))),
        "OrthonormalBasis at 'basis'.*LearnedBasis",
    ),
    "fast transform": (
        lambda: layer(2, basis=GridFourierBasis((1,)), projection="inner_product"),
        "GridFourierBasis at 'basis'.*FourierBasis of the positions",
    ),
    "baseline": (
        lambda: nn.Sequential(layer(2), GalerkinAttention(WIDTH, 2)),
        "GalerkinAttention at '1'.*use FunctionalAttention",
    ),
    "batch norm": (lambda: nn.Sequential(layer(2), nn.BatchNorm1d(3)), "BatchNorm1d.*LayerNorm"),
    "grid": (
        lambda: FunctionalOperator(2, 1, 1, width=WIDTH, layers=1, modes=3, grid=True),
        "MetricAttention at 'blocks.0.branches.0'.*for clouds of points",
    ),
    "nothing to spread": (lambda: nn.Linear(2, 2), "FunctionalAttention layers.*Linear without"),
}


@pytest.mark.parametrize(("make", "message"), MIXING.values(), ids=MIXING)
def test_what_mixes_points_otherwise_is_refused(
    alone: dist.ProcessGroup, make: Callable[[], nn.Module], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        spread_points(make(), alone)


def test_moments_of_parts_are_summed_over_ranks_too(alone: dist.ProcessGroup) -> None:
    """A mesh that comes in parts on each rank: `carried` is where the ranks meet."""
    model = layer(2).double()
    x = torch.rand(2, 11, WIDTH, dtype=torch.float64)
    expected = model.encode(x)
    spread_points(model, alone)
    parts = [model.moments(x[:, :4]), model.moments(x[:, 4:])]
    found = model.carried([a + b for a, b in zip(*parts, strict=True)])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


SPREAD_AND_LEFT = """
import weakref
import torch
import torch.distributed as dist
from funcattn import FunctionalAttention, spread_points, sum_gradients

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
group = weakref.ref(dist.group.WORLD)
model = FunctionalAttention(width=8, heads=2, bases=4)
spread_points(model, group())
loss = model(torch.rand(1, 5, 8)).sum()
loss.backward()
sum_gradients(model, group())
torch.optim.AdamW(model.parameters()).step()
dist.destroy_process_group()
assert group() is None, "the group is still held"
model(torch.rand(1, 5, 8))
"""


def test_models_and_losses_do_not_keep_the_group_alive() -> None:
    """Else its threads outlive `destroy_process_group` and may abort the process at its end.

    In a process of its own, in which PyTorch has not imported yet what it imports late.
    """
    done = subprocess.run(
        [sys.executable, "-c", SPREAD_AND_LEFT], capture_output=True, text=True, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert "RankLostError: expected the process group" in last
    assert "has been destroyed; call `spread_points` with another" in last


if __name__ == "__main__":
    given_folder, given_ranks, given_every = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    # Forked, so that the library is imported once.
    torch.multiprocessing.start_processes(
        one_rank, (given_ranks, given_every, given_folder), given_ranks, start_method="fork"
    )
