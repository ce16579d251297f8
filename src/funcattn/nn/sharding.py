"""Models whose points are spread over several processes.

What the ranks have to agree on is written down in `funcattn.ops.sharding`.
"""

import weakref
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from funcattn.nn.baselines.base import Baseline
from funcattn.nn.bases import GridFourierBasis, OrthonormalBasis
from funcattn.nn.feature_maps import GridConvolution, Stencil
from funcattn.nn.functional_attention import FunctionalAttention
from funcattn.nn.operator import (
    FourierMap,
    LocalStencil,
    MetricAttention,
    ModewiseMap,
    PartitionAttention,
    Surroundings,
)
from funcattn.ops.sharding import Group, Ranks, all_taking_part, sum_together

_MIXES_POINTS: dict[tuple[type[nn.Module], ...], str] = {
    (Stencil, GridConvolution, _ConvNd): "build the layers with point-wise features",
    (OrthonormalBasis, GridFourierBasis): "use a LearnedBasis, or a FourierBasis of the positions",
    (
        FourierMap,
        LocalStencil,
        MetricAttention,
        ModewiseMap,
    ): "build the network for clouds of points",
    (Baseline, nn.MultiheadAttention): "use FunctionalAttention instead",
    (_NormBase,): "use LayerNorm, which looks at each point alone",
}
"""Modules that would see the points of their own rank only, and what to do about them."""
_SPREAD = (FunctionalAttention, PartitionAttention, Surroundings)
"""Layers whose sums over points go over the ranks."""


def spread_points(model: nn.Module, group: Group | None) -> None:
    """From now on, the points of every call of this model are spread over the ranks of a group.

    Each rank calls the model with its own points, as many as it likes or none, and gets the values
    at these, as if one process had been called with all points. A layer sends the sums that it
    makes over the points, a few kilobytes, and nothing else. The weights become those of the first
    rank.

    group: a process group, or a `DeviceMesh` of one dimension; None undoes it.

    The loss is the sum of the shares that the ranks call `backward` on, and the gradient is the sum
    of theirs; see `sum_gradients`, and `funcattn.ops.sharding` for the whole convention.

    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = FunctionalAttention(width=8, heads=2, bases=4)
    >>> spread_points(model, dist.group.WORLD)
    >>> model(torch.randn(1, 100, 8)).square().sum().backward()  # a loss that sums over points
    >>> sum_gradients(model, dist.group.WORLD)
    >>> dist.destroy_process_group()
    """
    layers = [module for module in model.modules() if isinstance(module, _SPREAD)]
    ranks = None
    if group is not None:
        _check_spreadable(model, layers)
        if isinstance(group, DeviceMesh):
            if group.ndim != 1:
                raise ValueError(
                    "group: expected a mesh of one dimension, over which the points are spread, "
                    f"got one of {group.ndim}: {group.mesh_dim_names}; choose one of them, as in "
                    "`mesh['points']`"
                )
            group = group.get_group()
        ranks = Ranks(weakref.ref(group))
        for tensor in (*model.parameters(), *model.buffers()):
            with all_taking_part(group):
                dist.broadcast(tensor.detach(), group=group, group_src=0)
    for layer in layers:
        layer.ranks = ranks


def sum_gradients(model: nn.Module, group: Group) -> None:
    """Sum the gradients of all parameters over the ranks, in one message.

    To be called after `backward` and before the optimiser's step. Where samples are spread too, the
    group is the mesh of both dimensions.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        return
    with torch.no_grad():
        present = parameters[0].new_tensor([p.grad is not None for p in parameters])
        shares = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        *sums, present = sum_together([*shares, present], group)
    for parameter, gradient, ranks in zip(parameters, sums, present.tolist(), strict=True):
        # Without a gradient on any rank it keeps none: for an optimiser that differs from zero.
        if ranks:
            parameter.grad = gradient


def _check_spreadable(model: nn.Module, layers: Sequence[nn.Module]) -> None:
    for name, module in model.named_modules():
        for kinds, remedy in _MIXES_POINTS.items():
            if isinstance(module, kinds):
                raise TypeError(
                    "model: expected one in which points meet in FunctionalAttention only, got "
                    f"{type(module).__name__} at {name or 'the top'!r}, which would see the points "
                    f"of one rank; {remedy}"
                )
    if not layers:
        raise TypeError(
            "model: expected one with FunctionalAttention layers, whose sums are spread over the "
            f"ranks, got {type(model).__name__} without any"
        )
