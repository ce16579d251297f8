"""The sums over ranks themselves, in a group of one process.

What several processes come to is compared with one in `tests/nn/test_sharding.py`.
"""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from funcattn import debug
from funcattn.ops import projector
from funcattn.ops.checks import check_point_weights, check_total_weight
from funcattn.ops.sharding import (
    RankLostError,
    all_taking_part,
    share_of_rank,
    sum_over_ranks,
    sum_together,
)

PROJECTIONS = ["average", "transpose", "inner_product", "pinv"]


@pytest.fixture(autouse=True)
def alone() -> Iterator[dist.ProcessGroup]:
    """A group of this process only."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert dist.group.WORLD is not None
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_first_and_second_derivatives(
    alone: dist.ProcessGroup, dtype: torch.dtype, generator: torch.Generator
) -> None:
    x = torch.randn(3, 2, dtype=dtype, generator=generator).mT.requires_grad_()

    def cubed(x: Tensor) -> Tensor:
        return sum_over_ranks(x * x, alone) * x

    assert torch.autograd.gradcheck(cubed, x)
    assert torch.autograd.gradgradcheck(cubed, x)


def test_the_summand_is_left_as_it_is(alone: dist.ProcessGroup) -> None:
    x = torch.ones(3)
    sum_over_ranks(x, alone).add_(1)
    assert x.tolist() == [1, 1, 1]


def test_a_mesh_sums_over_all_its_dimensions() -> None:
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("data", "points"))
    assert sum_over_ranks(torch.tensor(2.0), mesh).item() == 2
    assert share_of_rank(torch.tensor(2.0), mesh).item() == 2


def test_packing_keeps_shapes_dtypes_and_gradients(alone: dist.ProcessGroup) -> None:
    tensors = [
        torch.ones(2, 3, requires_grad=True),
        torch.tensor(0.1, dtype=torch.float64, requires_grad=True),
        torch.ones(0, 4),
        torch.full((2,), 1 + 2j, requires_grad=True),
    ]
    sums = sum_together(tensors, alone)
    for ours, given in zip(sums, tensors, strict=True):
        torch.testing.assert_close(ours, given, rtol=0, atol=0)
    (3 * sums[0].sum() + 2 * sums[1]).backward()
    assert tensors[0].grad is not None
    assert tensors[1].grad is not None
    assert tensors[0].grad.unique().tolist() == [3]
    assert tensors[1].grad.item() == 2


@pytest.mark.parametrize("given", ["bare", "weights", "mask", "weights of all samples"])
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_projecting_in_a_group(
    alone: dist.ProcessGroup, projection: str, given: str, generator: torch.Generator
) -> None:
    def random(*shape: int) -> Tensor:
        return torch.rand(*shape, dtype=torch.float64, generator=generator)

    basis, field = random(2, 3, 7, 4).softmax(-1), random(2, 3, 7, 5)
    options = {
        "bare": {},
        "weights": {"weights": random(2, 7)},
        "mask": {"mask": random(2, 7) < 0.7},
        "weights of all samples": {"weights": random(7)},
    }[given]
    expected = projector(basis, projection, **options)(field)
    found = projector(basis, projection, group=alone, **options)(field)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("points", [0, 3])
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_a_mesh_of_which_nothing_is_left(
    alone: dist.ProcessGroup, projection: str, points: int
) -> None:
    basis, field = torch.full((2, 1, points, 4), 0.25), torch.ones(2, 1, points, 5)
    mask = torch.zeros(2, points, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"points: no rank has one .* in row \[0, 1\]"):
        projector(basis, projection, mask=mask, group=alone)(field)


def test_debug_looks_into_a_shard_without_points(alone: dist.ProcessGroup) -> None:
    basis = torch.full((1, 1, 0, 4), 0.25)
    with debug(), pytest.raises(ValueError, match="points: no rank has one"):
        projector(basis, "average", group=alone)(torch.ones(1, 1, 0, 2))


def test_of_a_shard_nothing_need_be_left_but_its_weights_are_looked_at() -> None:
    nothing, weights = torch.zeros(2, 3, dtype=torch.bool), torch.zeros(2, 3)
    check_point_weights(weights, nothing, 3, shard=True)
    check_point_weights(weights[:, :0], nothing[:, :0], 0, shard=True)
    with pytest.raises(ValueError, match="every point is masked in row"):
        check_point_weights(None, nothing, 3)
    with pytest.raises(ValueError, match="none of them negative, got values from -1"):
        check_point_weights(weights - 1, nothing, 3, shard=True)


def test_the_row_without_weight_is_named() -> None:
    check_total_weight(torch.tensor([[1.0], [2.0]]))
    with pytest.raises(ValueError, match=r"in row \[1\]"):
        check_total_weight(torch.tensor([[1.0], [0.0]]))


def test_a_message_that_fails_says_what_to_do(alone: dist.ProcessGroup) -> None:
    message = r"expected all 1 ranks .* got: closed; a rank has died.*from the last checkpoint"
    with pytest.raises(RankLostError, match=message), all_taking_part(alone):
        raise RuntimeError("closed")
