"""What a network costs in a task's configuration: parameters, and the arithmetic of one sample."""

import math
from typing import Any

import torch
from torch.utils.flop_counter import (
    FlopCounterMode,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from funcattn.tasks import Task
from funcattn.training.setup import build_network


def _fused(*args: Any, **kwargs: Any) -> int:  # noqa: ARG001
    return int(sdpa_flop_count(*args[:3]))


def _fused_backward(*args: Any, **kwargs: Any) -> int:  # noqa: ARG001
    return int(sdpa_backward_flop_count(*args[:4]))


# The attention of the CPU, which PyTorch's own counter leaves out.
ON_CPU = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _fused,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _fused_backward,
}


def model_cost(task: Task) -> tuple[int, int]:
    """The parameters of a task's network, and the operations of one call on one training sample.

    Operations are those of matrix products, convolutions and attention, a multiplication and an
    addition counted as two. Fourier transforms, solves and what is done number by number are not
    counted.

    Raises:
        ValueError: the network cannot take the task.
    """
    network = build_network(task).network.float()
    grid, data = task.grid, task.settings.data
    points = task.points or getattr(data, "points", None) or math.prod(grid or (200,))
    more = {}
    problem = task.problem
    if problem.time:
        more["time"] = torch.zeros(1)
    if problem.context:
        channels = problem.space + problem.output_channels
        more["context"] = torch.rand(1, getattr(data, "observations", 4), channels)
    random = torch.Generator().manual_seed(0)  # some networks do more where points are dense
    positions = torch.rand(1, points, problem.space, generator=random)
    values = torch.rand(1, points, problem.input_channels) if problem.inputs else None
    with FlopCounterMode(display=False, custom_mapping=ON_CPU) as counter:
        network.eval()(positions, values, grid=grid, **more)
    return sum(p.numel() for p in network.parameters()), counter.get_total_flops()
