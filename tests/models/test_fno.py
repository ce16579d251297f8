import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.fno import FNO
from funcattn.models.neuralop import TFNO, UNO

GRID = (12, 13)
POINTS = math.prod(GRID)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


class TestFNO:
    def test_is_lift_layers_and_head(
        self, made: Any, uniform: Any, assert_equal_to_rounding: Any
    ) -> None:
        model = made("fno", layers=2, time=True)
        positions, values, time = uniform(2, POINTS, 2), uniform(2, POINTS, 1), uniform(2)

        def linear(layer: nn.Conv1d, x: Tensor) -> Tensor:
            out = torch.einsum("oi,bixy->boxy", layer.weight[..., 0], x)
            return out if layer.bias is None else out + layer.bias[:, None, None]

        features = torch.cat([positions, time.view(2, 1, 1).expand(2, POINTS, 1), values], dim=-1)
        x = linear(model.lift, features.view(2, *GRID, 4).permute(0, 3, 1, 2))
        x = F.gelu(model.multipliers[0](x) + linear(model.linears[0], x))
        x = model.multipliers[1](x) + linear(model.linears[1], x)
        x = linear(model.contract, F.gelu(linear(model.expand, x)))
        expected = x.permute(0, 2, 3, 1).reshape(2, POINTS, 1)
        assert_equal_to_rounding(model(positions, values, grid=GRID, time=time), expected)

    def test_padding_is_zeros_at_the_end_of_each_axis(self, made: Any, uniform: Any) -> None:
        model, seen = made("fno", padding=(0.25, 0.5)), []
        model.multipliers[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        model(uniform(1, POINTS, 2), uniform(1, POINTS, 1), grid=GRID)
        (x,) = seen
        assert x.shape[2:] == (12 + 3, 13 + 6)  # round(6.5) is 6
        assert x[..., :12, :13].all()
        assert not x[..., 12:, :].any()
        assert not x[..., 13:].any()

    def test_has_the_parameters_of_the_published_networks(self) -> None:
        """Those of 2D and 1D in the public code of 2021, a complex one counted as two."""
        width, head = 32, 128
        multipliers = 2 * width**2 * (2 * 12) * 12
        expected = 4 * (multipliers + (width + 1) * width)
        expected += (3 + 1) * width + (width + 1) * head + (head + 1)
        assert parameters(FNO(2, 1, 1)) == expected == 2_368_001
        assert parameters(FNO(1, 1, 1, width=64, modes=16)) == 549_569


class TestTFNO:
    def test_full_rank_is_the_dense_network(
        self, made: Any, uniform: Any, assert_equal_to_rounding: Any
    ) -> None:
        dense, full = made("tfno dense"), made("tfno", rank=1.0)
        rest = {k: v for k, v in dense.state_dict().items() if "parts" not in k}
        full.load_state_dict(rest, strict=False)
        blocks = dense.network.fno_blocks, full.network.fno_blocks
        for ours, theirs in zip(*(block.convs for block in blocks), strict=True):
            core, *factors = theirs.parts
            with torch.no_grad():
                core.copy_(ours.parts[0])
                for factor in factors:
                    factor.copy_(torch.view_as_real(torch.eye(len(factor)).to(torch.complex128)))
        inputs = uniform(2, POINTS, 2), uniform(2, POINTS, 1)
        assert_equal_to_rounding(full(*inputs, grid=GRID), dense(*inputs, grid=GRID))

    def test_a_layer_is_as_described(
        self, made: Any, uniform: Any, assert_equal_to_rounding: Any
    ) -> None:
        blocks = made("tfno", layers=2).network.fno_blocks
        x = uniform(1, 4, *GRID)

        def layer(x: Tensor, i: int, act: Callable[[Tensor], Tensor]) -> Tensor:
            y = act(blocks.convs[i](x) + blocks.fno_skips[i](x))
            return act(blocks.channel_mlp[i](y) + blocks.channel_mlp_skips[i].weight * x)

        assert_equal_to_rounding(blocks(x, 0), layer(x, 0, F.gelu))
        assert_equal_to_rounding(blocks(x, 1), layer(x, 1, lambda y: y))

    @pytest.mark.parametrize("rank", [0.1, 0.3, 0.6])
    def test_rank_is_about_the_fraction_of_parameters(self, rank: float, made: Any) -> None:
        of = [
            sum(p.numel() for name, p in model.named_parameters() if "parts" in name)
            for model in (made("tfno", width=16, modes=8, rank=r) for r in (rank, None))
        ]
        assert of[0] / of[1] == pytest.approx(rank, rel=0.15)

    def test_has_the_parameters_that_its_parts_have(self) -> None:
        width, ranks, axes = 32, (18, 18, 13, 7), (32, 32, 24, 12)
        perceptrons = (3 + 1) * 64 + (64 + 1) * width + (width + 1) * 64 + (64 + 1)
        # Bias of the multiplier, linear skip, network at each point, gate.
        beside = width + width**2 + (width + 1) * 16 + (16 + 1) * width + width
        tucker = math.prod(ranks) + sum(n * r for n, r in zip(axes, ranks, strict=True))
        assert parameters(TFNO(2, 1, 1)) == perceptrons + 4 * (beside + 2 * tucker) == 261_409
        dense = 2 * math.prod(axes)
        assert parameters(TFNO(2, 1, 1, rank=None)) == perceptrons + 4 * (beside + dense)


class TestUNO:
    def test_halves_and_doubles_the_resolution_as_described(self, made: Any, uniform: Any) -> None:
        model, seen = made("uno", layers=7, modes=8), []
        for block in model.network.fno_blocks:
            block.register_forward_hook(
                lambda _, inputs, out: seen.append((inputs[0].shape, out.shape))
            )
        positions = uniform(1, 32 * 36, 2)
        model(positions, positions[..., :1], grid=(32, 36))
        fine, half, quarter = (32, 36), (16, 18), (8, 9)
        assert [(tuple(x[2:]), tuple(y[2:])) for x, y in seen] == [
            (fine, fine),
            (fine, half),
            (half, quarter),
            (quarter, quarter),
            (quarter, half),
            (half, fine),
            (fine, fine),
        ]
        # On the way up, what the layer before gave and what the counterpart gave.
        channels = [4, 4, 8, 16, 16 + 16, 16 + 8, 8 + 4]
        assert [x[1] for x, _ in seen] == channels
        assert [y[1] for _, y in seen] == [4, 8, 16, 16, 16, 8, 4]
        modes = [block.convs[0].modes[0] for block in model.network.fno_blocks]
        assert modes == [8, 4, 2, 2, 2, 4, 8]

    def test_the_first_layer_reaches_the_last_past_the_others(
        self, made: Any, uniform: Any
    ) -> None:
        model = made("uno")
        with torch.no_grad():
            for parameter in model.network.fno_blocks[2:4].parameters():
                parameter.zero_()
        values = uniform(1, POINTS, 1).requires_grad_()
        positions = uniform(1, POINTS, 2)
        model(positions, values, grid=GRID).square().sum().backward()
        assert values.grad.abs().max() > 1e-6
        with torch.no_grad():
            model.network.horizontal_skips["0"].conv.weight.zero_()
        values.grad = None
        model(positions, values, grid=GRID).square().sum().backward()
        assert not values.grad.any()

    def test_a_layer_is_as_described(
        self, made: Any, uniform: Any, assert_equal_to_rounding: Any
    ) -> None:
        block = made("uno").network.fno_blocks[0]
        x = uniform(1, 4, *GRID) - 0.5
        y = F.gelu(x)
        assert_equal_to_rounding(block(x), block.convs[0](y) + block.fno_skips[0](y))

    def test_has_the_parameters_that_its_parts_have(self) -> None:
        perceptrons = (3 + 1) * 64 + (64 + 1) * 32 + (32 + 1) * 64 + (64 + 1)
        layers = [(32, 32, 12), (32, 64, 6), (64, 64, 6), (64 + 64, 64, 6), (64 + 32, 32, 12)]
        blocks = sum(2 * i * o * (2 * m) * m + o + i * o for i, o, m in layers)
        skips = 32**2 + 64**2
        assert parameters(UNO(2, 1, 1)) == perceptrons + blocks + skips == 4_452_001


@pytest.mark.parametrize("name", ["tfno", "uno"])
def test_padding_of_neuralop_is_zeros_at_both_ends(name: str, made: Any, uniform: Any) -> None:
    model, seen = made(name, padding=(0.25, 0.0)), []
    blocks = model.network.fno_blocks
    first = blocks[0].convs[0] if name == "uno" else blocks.convs[0]
    first.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(uniform(1, POINTS, 2), uniform(1, POINTS, 1), grid=GRID)
    (x,) = seen
    assert x.shape[2:] == (3 + 12 + 3, 13)
    assert x[..., 3:-3, :].all()
    assert not x[..., [0, 1, 2, -3, -2, -1], :].any()


@pytest.mark.parametrize("name", ["fno", "tfno", "tfno dense"])
@pytest.mark.parametrize("shift", [(1, 0), (0, 5), (3, -2)], ids=str)
def test_a_shift_on_the_torus_shifts_the_result(
    name: str, shift: tuple[int, int], made: Any, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    """With positions that say nothing."""
    model, values = made(name), uniform(2, *GRID, 1)
    nowhere = torch.zeros(2, POINTS, 2, dtype=torch.float64)

    def of(values: Tensor) -> Tensor:
        return model(nowhere, values.flatten(1, 2), grid=GRID).view(2, *GRID)

    shifted = of(values.roll(shift, dims=(1, 2)))
    assert_equal_to_rounding(shifted, of(values).roll(shift, dims=(1, 2)))
    assert (shifted - of(values)).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["fno", "tfno", "tfno dense"])
@pytest.mark.parametrize("coarse", [(14, 15), (15, 14)], ids=str)
def test_a_smooth_field_has_the_same_image_at_every_resolution(
    name: str, coarse: tuple[int, int], made: Any
) -> None:
    """Up to aliasing, which is gone as soon as the grid carries the activations."""
    model = made(name)

    def on(factor: int) -> Tensor:
        grid = tuple(factor * n for n in coarse)
        axes = (2 * math.pi * torch.arange(n, dtype=torch.float64) / n for n in grid)
        x, y = torch.meshgrid(*axes, indexing="ij")
        field = torch.sin(x) + torch.cos(y - x)
        points = torch.stack([x.sin(), y.sin()], dim=-1).view(1, -1, 2)
        out = model(points, field.view(1, -1, 1), grid=grid)
        return out.detach().view(grid)[::factor, ::factor]

    finest = on(8)
    errors = [((on(k) - finest).norm() / finest.norm()).item() for k in (1, 2, 4)]
    assert errors[0] < 1e-2
    assert errors[1] < errors[0] / 10
    assert errors[2] < errors[1] / 10 or errors[2] < 1e-12


@pytest.mark.usefixtures("as_a_user")
class TestErrors:
    @pytest.mark.parametrize("name", ["fno", "tfno", "uno"])
    def test_a_grid_carries_the_modes(self, name: str, made: Any) -> None:
        positions = torch.zeros(1, 25, 2).double()
        with pytest.raises(ValueError, match="at least 6 points on an axis with 3 modes, got 5"):
            made(name)(positions, positions[..., :1], grid=(5, 5))

    @pytest.mark.parametrize("modes", [0, (3,), (3, 3, 3), (3, 0)], ids=str)
    def test_modes_are_positive_one_per_axis(self, modes: int | tuple[int, ...], made: Any) -> None:
        with pytest.raises(ValueError, match="modes: expected a positive number"):
            made("fno", modes=modes)

    @pytest.mark.parametrize("padding", [-0.1, 1.5], ids=str)
    def test_padding_is_a_fraction(self, padding: float, made: Any) -> None:
        with pytest.raises(ValueError, match="padding: expected fractions"):
            made("fno", padding=padding)

    @pytest.mark.parametrize("rank", [0.0, 1.5], ids=str)
    def test_a_rank_is_a_fraction(self, rank: float, made: Any) -> None:
        with pytest.raises(ValueError, match="rank: expected a fraction"):
            made("tfno", rank=rank)

    @pytest.mark.parametrize("layers", [3, 6], ids=str)
    def test_a_u_has_a_middle(self, layers: int, made: Any) -> None:
        with pytest.raises(ValueError, match="layers: expected an odd number, at least 5"):
            made("uno", layers=layers)

    def test_modes_can_be_halved(self, made: Any) -> None:
        with pytest.raises(ValueError, match="modes: expected at least 4, as they are halved 2"):
            made("uno", layers=7, modes=(8, 3))

    def test_there_are_layers_and_axes(self, made: Any) -> None:
        with pytest.raises(ValueError, match="layers: expected at least 1, got 0"):
            made("fno", layers=0)
        with pytest.raises(ValueError, match="space: expected a grid of 1, 2 or 3 axes, got 4"):
            made("fno", space=4)
