from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812

from funcattn.models.factformer import AxisKernel, FactFormer, FactorisedBlock


def test_a_block_is_its_equation(uniform: Any) -> None:
    torch.manual_seed(0)
    block = FactorisedBlock(2, 4, 2, 3, 2).double()
    x, waves = uniform(1, 5, 6, 4), uniform(1, 5, 6, 4)
    field = x + block.place(waves)
    normed = block.norm(field)
    kernels = [k(block.to_kernels(normed), a) for a, k in enumerate(block.kernels)]
    value = block.to_value(normed)
    parts = []
    for h in range(2):
        v = value[0, ..., 3 * h : 3 * h + 3]
        parts.append(torch.einsum("ij,lm,jmc->ilc", kernels[0][0, h], kernels[1][0, h], v))
    y = torch.cat(parts, dim=-1)
    y = (y - y.mean((0, 1))) / (y.var((0, 1), correction=0) + 1e-5).sqrt()
    expected = field[0] + block.contract(F.gelu(block.expand(y)))
    torch.testing.assert_close(block(x, waves)[0], expected, rtol=0, atol=1e-9)


def test_a_kernel_sees_averages_over_the_other_axes_alone(uniform: Any) -> None:
    torch.manual_seed(0)
    kernel, x = AxisKernel(4, 2, 6).double(), uniform(2, 5, 6, 4)
    averaged = x.mean(2, keepdim=True).expand_as(x)
    torch.testing.assert_close(kernel(x, 0), kernel(averaged, 0))
    assert kernel(x, 1).shape == (2, 2, 6, 6)


def test_of_a_constant_field_a_kernel_depends_on_distance(uniform: Any) -> None:
    torch.manual_seed(0)
    kernel = AxisKernel(4, 2, 6).double()
    weights = kernel(uniform(4).expand(1, 5, 6, 4), 1)[0, 0]
    for distance in range(-5, 6):
        diagonal = weights.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    assert weights[0].std() > 1e-9


def test_its_cost_grows_with_the_axes_and_not_with_the_square_of_the_grid() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    network = FactFormer(2, 1, 1, width=8, layers=1, heads=2, channels=4)
    counts = []
    for side in (16, 32):
        n = side * side
        with FlopCounterMode(display=False) as counter:
            network(torch.rand(1, n, 2), torch.rand(1, n, 1), grid=(side, side))
        counts.append(counter.get_total_flops())
    assert counts[1] < 2**3 * counts[0]  # n^1.5 at most, not n^2
