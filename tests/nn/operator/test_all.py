"""What the parts of the functional operator have in common."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from funcattn.nn import Points
from funcattn.nn.operator import (
    FourierMap,
    LocalStencil,
    MetricAttention,
    ModewiseMap,
    PartitionAttention,
)


class OnPoints(nn.Module):
    """An attention, called as the branches are."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor, points: Points) -> Tensor:
        return self.attention(x, **points.arguments)


WIDTH, GRID = 4, (5, 6)
POINTS = 30
PARTS: dict[str, Callable[[], nn.Module]] = {
    "partition": lambda: OnPoints(PartitionAttention(WIDTH, 3)),
    "partition without mixer": lambda: OnPoints(PartitionAttention(WIDTH, 3, mixer=False)),
    "sines": lambda: ModewiseMap(WIDTH, WIDTH, (2, 3), "sine"),
    "cosines": lambda: ModewiseMap(WIDTH, WIDTH, (2, 3), "cosine"),
    "cosines of rank 2": lambda: ModewiseMap(WIDTH, WIDTH, (2, 3), "cosine", rank=2),
    "waves": lambda: FourierMap(WIDTH, WIDTH, (2, 2)),
    "waves along an axis": lambda: FourierMap(WIDTH, WIDTH, (2, None)),
    "waves along the other axis": lambda: FourierMap(WIDTH, WIDTH, (None, 3)),
    "metric of sines": lambda: MetricAttention(WIDTH, (2, 3), "sine"),
    "metric of cosines": lambda: MetricAttention(WIDTH, (2, 3), "cosine", heads=2),
    "metric of waves": lambda: MetricAttention(WIDTH, (3, 2), "fourier"),
    "stencil": lambda: LocalStencil(WIDTH, reach=(1 / 4, 1 / 5), dims=2),
    "stencil between points": lambda: LocalStencil(WIDTH, reach=0.3, dims=2),
    "stencil on a torus": lambda: LocalStencil(WIDTH, reach=(1 / 5, 1 / 6), dims=2, periodic=True),
}
every_part = pytest.mark.parametrize("name", PARTS)


@pytest.fixture
def part(name: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return PARTS[name]().double()


@every_part
def test_gradients_are_those_of_differences(name: str, part: nn.Module, uniform: Any) -> None:
    x = uniform(2, POINTS, WIDTH).requires_grad_()
    mask = uniform(2, POINTS) < 0.8
    weights = uniform(2, POINTS)
    names = [name for name, _ in part.named_parameters()]

    def call(x: Tensor, *parameters: Tensor) -> Tensor:
        points = Points(None, GRID, mask, weights)
        given = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(part, given, (x, points))

    assert name
    assert torch.autograd.gradcheck(call, (x, *part.parameters()), fast_mode=True)


@every_part
def test_every_parameter_gets_a_gradient(part: nn.Module, uniform: Any) -> None:
    out = part(uniform(2, POINTS, WIDTH), Points(grid=GRID))
    assert out.shape == (2, POINTS, WIDTH)
    (out * uniform(2, POINTS, WIDTH)).sum().backward()
    for name, parameter in part.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 1e-9, name


@every_part
def test_masked_points_are_not_seen_by_others(part: nn.Module, uniform: Any) -> None:
    x, mask = uniform(2, POINTS, WIDTH), uniform(2, POINTS) < 0.7
    other = torch.where(mask[..., None], x, 1e3 * uniform(2, POINTS, WIDTH))
    one, two = (part(field, Points(grid=GRID, mask=mask)) for field in (x, other))
    assert torch.equal(one[mask], two[mask])
    assert not torch.allclose(one[mask], part(x, Points(grid=GRID))[mask])


@every_part
def test_a_sample_does_not_see_its_batch_neighbours(
    part: nn.Module, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    x, mask = uniform(3, POINTS, WIDTH), uniform(3, POINTS) < 0.7
    together = part(x, Points(grid=GRID, mask=mask))
    for i in range(3):
        alone = part(x[i : i + 1], Points(grid=GRID, mask=mask[i : i + 1]))
        assert_equal_to_rounding(together[i : i + 1], alone)


@every_part
def test_single_and_half_precision_are_kept(part: nn.Module, uniform: Any) -> None:
    x = uniform(2, POINTS, WIDTH)
    exact = part(x, Points(grid=GRID))
    single = part.float()(x.float(), Points(grid=GRID))
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, rtol=1e-4, atol=1e-5)
    half = part.bfloat16()(x.bfloat16(), Points(grid=GRID))
    assert half.dtype == torch.bfloat16
    assert half.isfinite().all()


@pytest.mark.parametrize("name", [name for name in PARTS if not name.startswith("partition")])
def test_a_grid_is_needed_where_the_part_is_made_of_one(part: nn.Module, uniform: Any) -> None:
    with pytest.raises(ValueError, match="grid: expected 2 axis lengths"):
        part(uniform(2, POINTS, WIDTH), Points())
