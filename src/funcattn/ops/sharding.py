"""Sums over points that several processes hold.

Points enter functional attention through sums over points only. So a mesh can be split over the
ranks of a process group: each sums its own points, and only the sums travel.

One convention holds everywhere: the loss of all is the sum of what the ranks call `backward` on.

- Each rank calls `backward` on its own share of the loss. Where the loss is a sum over points, that
  is the sum over its own points; where it is a number that all ranks have, made of sums over ranks,
  it is :func:`share_of_rank` of it.
- The gradient of a sum over ranks is a sum over ranks, which :func:`sum_over_ranks` sees to.
- What a rank then has in `.grad` of a parameter is its share of the gradient, and the gradient is
  the sum of them (`funcattn.sum_gradients`).

All ranks make the same calls in the same order, those without points too.
"""

import math
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

# The functions of this module keep the group that there is when it is imported, and PyTorch imports
# it late, with the first optimiser: `destroy_process_group` would then not end the group's threads.
import torch.distributed.nn.functional
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

Group = ProcessGroup | DeviceMesh
"""Processes that work together; of a mesh all, whatever its dimensions."""


class RankLostError(RuntimeError):
    """A message that not all ranks took part in, or for a group that there is no more."""


@dataclass(frozen=True)
class Ranks:
    """A process group for modules and graphs to hold: copies of a module share it.

    They do not keep it alive. A group ends its threads when nobody holds it any more, and
    threads that outlive the interpreter can abort the process.
    """

    reference: "weakref.ref[ProcessGroup]"

    @property
    def group(self) -> ProcessGroup:
        """The group itself.

        Raises:
            RankLostError: it has been destroyed.
        """
        group = self.reference()
        if group is None:
            raise RankLostError(
                "expected the process group over which the points of this model are spread, got "
                "one that has been destroyed; call `spread_points` with another, or with None for "
                "a model of this process alone"
            )
        return group

    def __deepcopy__(self, memo: dict[int, Any]) -> "Ranks":
        return self


@contextmanager
def all_taking_part(group: ProcessGroup) -> Iterator[None]:
    """Say in words that a rank was missing from what is done within this context."""
    try:
        yield
    except RuntimeError as error:
        raise RankLostError(
            f"expected all {group.size()} ranks to take part in a message, got: {error}; a rank "
            "has died, has hung for longer than the timeout of the group, or made other calls than "
            "this one: start all of them again, from the last checkpoint"
        ) from error


def sum_over_ranks(tensor: Tensor, group: Group) -> Tensor:
    """The sum of the ranks' tensors, on all of them; its gradient is summed likewise.

    The tensors have one shape and dtype on all ranks.

    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> squares = torch.tensor([3.0, 4.0]).square().sum()  # of the points that this rank holds
    >>> sum_over_ranks(squares, dist.group.WORLD).sqrt()
    tensor(5.)
    >>> dist.destroy_process_group()
    """
    for each in _process_groups(group):
        tensor = _SumOverRanks.apply(tensor, each)  # type: ignore[no-untyped-call]
    return tensor


def sum_together(tensors: Sequence[Tensor], group: Group) -> list[Tensor]:
    """`sum_over_ranks` of several tensors, in one message."""
    common = tensors[0].dtype
    for tensor in tensors[1:]:
        common = torch.promote_types(common, tensor.dtype)
    packed = torch.cat([tensor.flatten().to(common) for tensor in tensors])
    pieces = sum_over_ranks(packed, group).split([tensor.numel() for tensor in tensors])
    return [
        (piece if tensor.is_complex() or not piece.is_complex() else piece.real)
        .to(tensor.dtype)
        .view(tensor.shape)
        for piece, tensor in zip(pieces, tensors, strict=True)
    ]


def share_of_rank(value: Tensor, group: Group) -> Tensor:
    """What one rank calls `backward` on, of a loss that all ranks have computed alike."""
    return value / math.prod(each.size() for each in _process_groups(group))


def _process_groups(group: Group) -> list[ProcessGroup]:
    """One for each dimension: a sum over one after the other is the sum over all."""
    return group.get_all_groups() if isinstance(group, DeviceMesh) else [group]


class _SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: ProcessGroup) -> Tensor:
        # Not the group itself: a loss that somebody keeps would hold it.
        ctx.ranks = Ranks(weakref.ref(group))
        total = tensor.clone(memory_format=torch.contiguous_format)
        with all_taking_part(group):
            dist.all_reduce(torch.view_as_real(total) if total.is_complex() else total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _SumOverRanks.apply(gradient, ctx.ranks.group), None  # type: ignore[no-untyped-call]
