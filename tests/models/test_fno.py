import io
import itertools
import math
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.fno import (
    FNO,
    TFNO,
    UNO,
    FourierMultiplier,
    GridNetwork,
    quiet_neuralop,
)

GRID = (12, 13)
POINTS = math.prod(GRID)


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    """In float64, and the same in every run."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().double()


def made(
    kind: type[GridNetwork] = FNO,
    space: int = 2,
    inputs: int = 1,
    outputs: int = 1,
    **options: object,
) -> GridNetwork:
    options = {"width": 4, "modes": 3} | options
    return seeded(lambda: kind(space, inputs, outputs, **options))


def uniform(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=generator)


def torus(*grid: int) -> list[Tensor]:
    """Coordinates in [0, 1) of the points of a periodic grid, each of the shape of the grid."""
    axes = [torch.arange(n, dtype=torch.float64) / n for n in grid]
    return list(torch.meshgrid(*axes, indexing="ij"))


def assert_equal_to_rounding(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


class TestFourierMultiplier:
    @pytest.mark.parametrize("factorization", [None, "Tucker"], ids=["dense", "tucker"])
    @pytest.mark.parametrize(
        ("grid", "modes", "out"),
        [
            ((9,), (4,), None),
            ((8,), (4,), (13,)),
            ((6, 7), (3, 2), None),
            ((7, 8), (2, 4), None),
            ((9, 8), (3, 3), (6, 7)),
            ((6, 7), (3, 2), (12, 11)),
            ((5, 4, 7), (2, 2, 3), None),
            ((5, 4, 7), (2, 1, 3), (4, 6, 8)),
        ],
        ids=str,
    )
    def test_multiplies_fourier_coefficients(
        self,
        grid: tuple[int, ...],
        modes: tuple[int, ...],
        out: tuple[int, ...] | None,
        factorization: str | None,
        generator: torch.Generator,
    ) -> None:
        """Against sums of waves written out, one coefficient at a time."""
        layer = seeded(
            lambda: FourierMultiplier(2, 3, modes, factorization=factorization, rank=0.7)
        )
        x = uniform(2, 2, *grid, generator=generator)
        points, weight = torus(*grid), layer.weight().detach()
        expected = torch.zeros(2, 3, *(out or grid), dtype=torch.float64) + layer.bias.detach()
        ranges = [range(-m, m) for m in modes[:-1]] + [range(modes[-1])]
        for k in itertools.product(*ranges):
            wave = torch.exp(-2j * math.pi * sum(f * y for f, y in zip(k, points, strict=True)))
            coefficient = (x * wave).flatten(2).mean(-1)  # (b, i)
            matrix = weight[(slice(None), slice(None), *k)]  # negative k count from the end
            places = sum(f * y for f, y in zip(k, torus(*(out or grid)), strict=True))
            wave = torch.exp(2j * math.pi * places)
            part = (coefficient @ matrix).view(2, 3, *(1,) * len(grid)) * wave
            expected += (2 if k[-1] else 1) * part.real
        assert_equal_to_rounding(layer(x, output_shape=out).detach(), expected)

    def test_is_the_spectral_convolution_of_neuralop_where_that_is_right(
        self, generator: torch.Generator
    ) -> None:
        """On axes of even length, in single precision."""
        from neuralop.layers.spectral_convolution import SpectralConv

        ours, theirs = FourierMultiplier(2, 3, (3, 4)), SpectralConv(2, 3, (6, 6))
        with torch.no_grad():
            theirs.weight.tensor.copy_(torch.fft.fftshift(ours.weight(), dim=2))
            theirs.bias.copy_(ours.bias)
        x = torch.rand(2, 2, 8, 10, generator=generator)
        torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=1e-6)

    @pytest.mark.parametrize("factor", [0.5, 2.0, 1.5])
    def test_changes_the_resolution_of_a_field_and_nothing_else(self, factor: float) -> None:
        layer = seeded(
            lambda: FourierMultiplier(1, 1, (3, 3), resolution_scaling_factor=[factor] * 2)
        )
        same = seeded(lambda: FourierMultiplier(1, 1, (3, 3)))

        def field(*grid: int) -> Tensor:
            x, y = torus(*grid)
            wave = torch.sin(2 * math.pi * (2 * x - y)) + torch.cos(2 * math.pi * (x + 2 * y))
            return wave[None, None]

        sizes = [round(factor * n) for n in (14, 13)]
        assert_equal_to_rounding(layer(field(14, 13)), same(field(*sizes)))

    def test_full_rank_represents_any_dense_weight(self, generator: torch.Generator) -> None:
        dense = seeded(lambda: FourierMultiplier(2, 3, (2, 3)))
        tucker = seeded(lambda: FourierMultiplier(2, 3, (2, 3), factorization="Tucker", rank=1.0))
        core, *factors = tucker.parts
        assert [tuple(f.shape) for f in factors] == [(n, n, 2) for n in (2, 3, 4, 3)]
        with torch.no_grad():
            # A unitary change of basis on each axis, undone in the core.
            rotated = dense.weight()
            for axis, factor in enumerate(factors):
                unitary, _ = torch.linalg.qr(torch.view_as_complex(factor))
                factor.copy_(torch.view_as_real(unitary))
                rotated = torch.tensordot(rotated, unitary.conj(), dims=([0], [0]))
                assert rotated.ndim == 4, axis
            core.copy_(torch.view_as_real(rotated))
            tucker.bias.copy_(dense.bias)
        assert_equal_to_rounding(tucker.weight(), dense.weight())
        x = uniform(2, 2, 5, 7, generator=generator)
        assert_equal_to_rounding(tucker(x), dense(x))

    def test_starts_with_entries_of_the_same_size_dense_or_factorised(self) -> None:
        dense, tucker = (
            seeded(lambda of=of: FourierMultiplier(24, 24, (6, 6), factorization=of, rank=0.3))
            for of in (None, "Tucker")
        )
        assert dense.weight().abs().square().mean().item() == pytest.approx(1 / 24, rel=0.05)
        assert tucker.weight().abs().square().mean().item() == pytest.approx(1 / 24, rel=0.5)

    def test_keeps_the_precision_of_its_input_but_computes_in_float32_at_least(self) -> None:
        layer, x = FourierMultiplier(2, 2, (2, 2)), torch.rand(1, 2, 4, 4)
        for dtype in (torch.bfloat16, torch.float32, torch.float64):
            assert layer(x.to(dtype)).dtype == dtype
        torch.testing.assert_close(layer(x.bfloat16()), layer(x.bfloat16().float()).bfloat16())

    @pytest.mark.parametrize(
        ("grid", "out"), [((6, 5), None), ((5, 6), None), ((8, 8), (8, 5))], ids=str
    )
    def test_too_few_points_for_the_modes_are_refused(
        self, grid: tuple[int, ...], out: Sequence[int] | None
    ) -> None:
        with pytest.raises(ValueError, match="at least 6 points on an axis with 3 modes, got 5"):
            FourierMultiplier(1, 1, (3, 3))(torch.zeros(1, 1, *grid), output_shape=out)


MODELS: dict[str, Callable[[], GridNetwork]] = {
    "fno": made,
    "fno padded": lambda: made(padding=0.2),
    "fno time": lambda: made(time=True),
    "tfno": lambda: made(TFNO, rank=0.5),
    "tfno dense": lambda: made(TFNO, rank=None),
    "tfno padded": lambda: made(TFNO, rank=0.5, padding=(0.2, 0.0)),
    "uno": lambda: made(UNO),
    "uno padded": lambda: made(UNO, padding=0.2),
    "uno deep": lambda: made(UNO, layers=7, modes=4, time=True, padding=0.3),
}


@pytest.mark.parametrize("name", MODELS)
class TestEveryModel:
    @staticmethod
    def inputs(model: GridNetwork, generator: torch.Generator) -> dict[str, Tensor]:
        inputs = {
            "positions": uniform(3, POINTS, 2, generator=generator),
            "values": uniform(3, POINTS, 1, generator=generator),
        }
        if model.timed:
            inputs["time"] = uniform(3, generator=generator)
        return inputs

    def test_every_parameter_gets_a_gradient(self, name: str, generator: torch.Generator) -> None:
        model = MODELS[name]()
        out = model(**self.inputs(model, generator), grid=GRID)
        assert out.shape == (3, POINTS, 1)
        assert out.dtype == torch.float64
        (out * uniform(3, POINTS, 1, generator=generator)).sum().backward()
        for parameter_name, parameter in model.named_parameters():
            assert parameter.grad is not None, parameter_name
            assert parameter.grad.abs().max() > 1e-12, parameter_name

    def test_a_sample_does_not_see_its_batch_neighbours(
        self, name: str, generator: torch.Generator
    ) -> None:
        model = MODELS[name]()
        inputs = self.inputs(model, generator)
        together = model(**inputs, grid=GRID)
        for i in range(3):
            alone = model(**{key: x[i : i + 1] for key, x in inputs.items()}, grid=GRID)
            assert_equal_to_rounding(together[i : i + 1], alone)

    def test_every_input_channel_counts(self, name: str, generator: torch.Generator) -> None:
        model = MODELS[name]()
        inputs = self.inputs(model, generator)
        for x in inputs.values():
            x.requires_grad_()
        model(**inputs, grid=GRID).square().sum().backward()
        for x in inputs.values():
            assert (x.grad.abs() > 0).all()

    def test_is_the_same_in_single_precision_to_single_rounding(
        self, name: str, generator: torch.Generator
    ) -> None:
        model = MODELS[name]()
        inputs = self.inputs(model, generator)
        out = model(**inputs, grid=GRID)
        single = model.float()(**{key: x.float() for key, x in inputs.items()}, grid=GRID)
        assert single.dtype == torch.float32
        torch.testing.assert_close(single.double(), out, rtol=0, atol=1e-5)

    def test_saving_and_loading_reproduces_results_exactly(
        self, name: str, generator: torch.Generator
    ) -> None:
        saved, loaded = MODELS[name](), MODELS[name]()
        for parameter in loaded.parameters():
            parameter.data += 0.1
        inputs = self.inputs(saved, generator)
        assert not torch.equal(saved(**inputs, grid=GRID), loaded(**inputs, grid=GRID))
        file = io.BytesIO()
        # Inside of another network, as they are in use.
        state = nn.Sequential(saved).state_dict()
        assert all(not tensor.is_complex() for tensor in state.values())
        torch.save(state, file)
        file.seek(0)
        nn.Sequential(loaded).load_state_dict(torch.load(file, weights_only=True))
        assert torch.equal(saved(**inputs, grid=GRID), loaded(**inputs, grid=GRID))


@pytest.mark.parametrize("inputs", [0, 3], ids=["geometry", "values"])
@pytest.mark.parametrize("grid", [(13,), (12, 13), (6, 7, 8)], ids=str)
@pytest.mark.parametrize("kind", [FNO, TFNO, UNO], ids=lambda kind: kind.__name__)
def test_takes_grids_of_any_number_of_axes(
    kind: type[GridNetwork], grid: tuple[int, ...], inputs: int, generator: torch.Generator
) -> None:
    if kind is UNO and len(grid) == 3:
        with pytest.raises(ValueError, match="space: expected a grid of 1 or 2 axes, got 3"):
            made(kind, 3)
        return
    model, n = made(kind, len(grid), inputs, 2), math.prod(grid)
    values = uniform(2, n, inputs, generator=generator) if inputs else None
    assert model(uniform(2, n, len(grid), generator=generator), values, grid=grid).shape == (
        2,
        n,
        2,
    )


class TestFNO:
    def test_is_lift_layers_and_head(self, generator: torch.Generator) -> None:
        model = made(layers=2, time=True)
        positions = uniform(2, POINTS, 2, generator=generator)
        values, time = uniform(2, POINTS, 1, generator=generator), uniform(2, generator=generator)

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

    def test_padding_is_zeros_at_the_end_of_each_axis(self, generator: torch.Generator) -> None:
        model, seen = made(padding=(0.25, 0.5)), []
        model.multipliers[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        inputs = (uniform(1, POINTS, k, generator=generator) for k in (2, 1))
        model(*inputs, grid=GRID)
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
    def test_full_rank_is_the_dense_network(self, generator: torch.Generator) -> None:
        dense, full = made(TFNO, rank=None), made(TFNO, rank=1.0)
        rest = {k: v for k, v in dense.state_dict().items() if "parts" not in k}
        full.load_state_dict(rest, strict=False)
        blocks = dense.network.fno_blocks, full.network.fno_blocks
        for ours, theirs in zip(*(block.convs for block in blocks), strict=True):
            core, *factors = theirs.parts
            with torch.no_grad():
                core.copy_(ours.parts[0])
                for factor in factors:
                    factor.copy_(torch.view_as_real(torch.eye(len(factor)).to(torch.complex128)))
        inputs = tuple(uniform(2, POINTS, k, generator=generator) for k in (2, 1))
        assert_equal_to_rounding(full(*inputs, grid=GRID), dense(*inputs, grid=GRID))

    def test_a_layer_is_as_described(self, generator: torch.Generator) -> None:
        blocks = made(TFNO, layers=2).network.fno_blocks
        x = uniform(1, 4, *GRID, generator=generator)

        def layer(x: Tensor, i: int, act: Callable[[Tensor], Tensor]) -> Tensor:
            y = act(blocks.convs[i](x) + blocks.fno_skips[i](x))
            return act(blocks.channel_mlp[i](y) + blocks.channel_mlp_skips[i].weight * x)

        assert_equal_to_rounding(blocks(x, 0), layer(x, 0, F.gelu))
        assert_equal_to_rounding(blocks(x, 1), layer(x, 1, lambda y: y))

    @pytest.mark.parametrize("rank", [0.1, 0.3, 0.6])
    def test_rank_is_about_the_fraction_of_parameters(self, rank: float) -> None:
        of = [
            sum(p.numel() for name, p in model.named_parameters() if "parts" in name)
            for model in (made(TFNO, width=16, modes=8, rank=r) for r in (rank, None))
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
    def test_halves_and_doubles_the_resolution_as_described(
        self, generator: torch.Generator
    ) -> None:
        model, seen = made(UNO, layers=7, modes=8), []
        for block in model.network.fno_blocks:
            block.register_forward_hook(
                lambda _, inputs, out: seen.append((inputs[0].shape, out.shape))
            )
        positions = uniform(1, 32 * 36, 2, generator=generator)
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
        self, generator: torch.Generator
    ) -> None:
        model = made(UNO)
        with torch.no_grad():
            for parameter in model.network.fno_blocks[2].parameters():
                parameter.zero_()
            for parameter in model.network.fno_blocks[3].parameters():
                parameter.zero_()
        values = uniform(1, POINTS, 1, generator=generator).requires_grad_()
        positions = uniform(1, POINTS, 2, generator=generator)
        model(positions, values, grid=GRID).square().sum().backward()
        assert values.grad.abs().max() > 1e-6
        with torch.no_grad():
            model.network.horizontal_skips["0"].conv.weight.zero_()
        values.grad = None
        model(positions, values, grid=GRID).square().sum().backward()
        assert not values.grad.any()

    def test_a_layer_is_as_described(self, generator: torch.Generator) -> None:
        block = made(UNO).network.fno_blocks[0]
        x = uniform(1, 4, *GRID, generator=generator) - 0.5
        y = F.gelu(x)
        assert_equal_to_rounding(block(x), block.convs[0](y) + block.fno_skips[0](y))

    def test_has_the_parameters_that_its_parts_have(self) -> None:
        perceptrons = (3 + 1) * 64 + (64 + 1) * 32 + (32 + 1) * 64 + (64 + 1)
        layers = [(32, 32, 12), (32, 64, 6), (64, 64, 6), (64 + 64, 64, 6), (64 + 32, 32, 12)]
        blocks = sum(2 * i * o * (2 * m) * m + o + i * o for i, o, m in layers)
        skips = 32**2 + 64**2
        assert parameters(UNO(2, 1, 1)) == perceptrons + blocks + skips == 4_452_001


@pytest.mark.parametrize("kind", [TFNO, UNO], ids=lambda kind: kind.__name__)
def test_padding_of_neuralop_is_zeros_at_both_ends(
    kind: type[GridNetwork], generator: torch.Generator
) -> None:
    model, seen = made(kind, padding=(0.25, 0.0)), []
    blocks = model.network.fno_blocks
    first = blocks[0].convs[0] if kind is UNO else blocks.convs[0]
    first.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(*(uniform(1, POINTS, k, generator=generator) for k in (2, 1)), grid=GRID)
    (x,) = seen
    assert x.shape[2:] == (3 + 12 + 3, 13)
    assert x[..., 3:-3, :].all()
    assert not x[..., [0, 1, 2, -3, -2, -1], :].any()


@pytest.mark.parametrize("name", ["fno", "tfno", "tfno dense"])
@pytest.mark.parametrize("shift", [(1, 0), (0, 5), (3, -2)], ids=str)
def test_a_shift_on_the_torus_shifts_the_result(
    name: str, shift: tuple[int, int], generator: torch.Generator
) -> None:
    """With positions that say nothing."""
    model, values = MODELS[name](), uniform(2, *GRID, 1, generator=generator)
    nowhere = torch.zeros(2, POINTS, 2, dtype=torch.float64)

    def of(values: Tensor) -> Tensor:
        return model(nowhere, values.flatten(1, 2), grid=GRID).view(2, *GRID)

    shifted = of(values.roll(shift, dims=(1, 2)))
    assert_equal_to_rounding(shifted, of(values).roll(shift, dims=(1, 2)))
    assert (shifted - of(values)).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["fno", "tfno", "tfno dense"])
@pytest.mark.parametrize("coarse", [(14, 15), (15, 14)], ids=str)
def test_a_smooth_field_has_the_same_image_at_every_resolution(
    name: str, coarse: tuple[int, int]
) -> None:
    """Up to aliasing, which is gone as soon as the grid carries the activations."""
    model = MODELS[name]()

    def on(factor: int) -> Tensor:
        grid = tuple(factor * n for n in coarse)
        x, y = (2 * math.pi * u for u in torus(*grid))
        field = torch.sin(x) + torch.cos(y - x)
        points = torch.stack([x.sin(), y.sin()], dim=-1).view(1, -1, 2)
        out = model(points, field.view(1, -1, 1), grid=grid)
        return out.detach().view(grid)[::factor, ::factor]

    finest = on(8)
    errors = [((on(k) - finest).norm() / finest.norm()).item() for k in (1, 2, 4)]
    assert errors[0] < 1e-2
    assert errors[1] < errors[0] / 10
    assert errors[2] < errors[1] / 10 or errors[2] < 1e-12


@pytest.mark.usefixtures("as_a_user")  # for speed
@pytest.mark.parametrize("kind", [FNO, TFNO, UNO], ids=lambda kind: kind.__name__)
def test_learns_a_map_that_needs_other_points(kind: type[GridNetwork]) -> None:
    """A wave of unknown phase to its quarter period: no point can do it alone."""
    shift = torch.tensor([0.1, 0.4, 0.6, 0.9])[:, None]
    x = torch.arange(16) / 16
    phase = 2 * math.pi * (x + shift)
    positions, u, target = x.expand(4, -1).unsqueeze(-1), phase.sin()[..., None], phase.cos()
    model = made(kind, 1, width=8, modes=4).float()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=100)
    for _ in range(100):
        optimizer.zero_grad()
        out = model(positions, u, grid=(16,))[..., 0]
        loss = ((out - target).norm(dim=-1) / target.norm(dim=-1)).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
    assert loss.item() < 0.03


class TestNeuralop:
    def test_neither_prints_nor_warns_nor_changes_how_warnings_are_shown(
        self, capfd: pytest.CaptureFixture[str]
    ) -> None:
        before = list(warnings.filters)
        for kind in (TFNO, UNO):
            made(kind)
        assert warnings.filters == before
        assert capfd.readouterr() == ("", "")

    def test_what_it_warns_and_prints_is_not_shown(self, capfd: pytest.CaptureFixture[str]) -> None:
        with quiet_neuralop("This"):  # warnings are errors elsewhere in the tests
            warnings.warn("something", UserWarning, stacklevel=1)
            warnings.filterwarnings("once", category=UserWarning)
            sys.stdout.write("something")
        assert capfd.readouterr() == ("", "")
        with pytest.raises(UserWarning, match="something"):
            warnings.warn("something", UserWarning, stacklevel=1)

    @pytest.mark.full
    def test_its_import_uses_no_network_and_starts_nothing(self) -> None:
        code = """
import socket, sys, threading, warnings
def refuse(*_): raise AssertionError("a connection")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from funcattn.models.fno import UNO
assert "neuralop" not in sys.modules
before = list(warnings.filters)
UNO(2, 1, 1, width=4, modes=2)
assert warnings.filters == before
assert threading.active_count() == 1
run = getattr(sys.modules.get("wandb"), "run", None)
assert run is None
"""
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    @pytest.mark.parametrize("kind", [TFNO, UNO], ids=lambda kind: kind.__name__)
    def test_without_it_the_error_says_what_to_install(
        self, kind: type[GridNetwork], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "neuralop.models", None)
        with pytest.raises(ModuleNotFoundError, match=r"needs the package .*'funcattn\[rivals\]'"):
            made(kind)
        made(FNO)


@pytest.mark.usefixtures("as_a_user")
class TestErrors:
    POSITIONS, VALUES = torch.zeros(2, POINTS, 2).double(), torch.zeros(2, POINTS, 1).double()

    @pytest.mark.parametrize("grid", [None, (POINTS,), (12, 12), (2, 6, 13)], ids=str)
    @pytest.mark.parametrize("name", ["fno", "tfno", "uno"])
    def test_a_grid_fits_the_points(self, name: str, grid: tuple[int, ...] | None) -> None:
        with pytest.raises(ValueError, match="grid: expected 2 axis lengths"):
            MODELS[name]()(self.POSITIONS, self.VALUES, grid=grid)

    def test_a_mask_is_refused(self) -> None:
        mask = torch.ones(2, POINTS, dtype=torch.bool)
        with pytest.raises(ValueError, match="mask: expected none, as FNO takes samples with all"):
            made()(self.POSITIONS, self.VALUES, grid=GRID, mask=mask)

    @pytest.mark.parametrize("name", ["fno", "tfno", "uno"])
    def test_a_grid_carries_the_modes(self, name: str) -> None:
        positions = torch.zeros(1, 25, 2).double()
        with pytest.raises(ValueError, match="at least 6 points on an axis with 3 modes, got 5"):
            MODELS[name]()(positions, positions[..., :1], grid=(5, 5))

    @pytest.mark.parametrize("modes", [0, (3,), (3, 3, 3), (3, 0)], ids=str)
    def test_modes_are_positive_one_an_axis(self, modes: int | tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match="modes: expected a positive number"):
            made(modes=modes)

    @pytest.mark.parametrize("padding", [-0.1, 1.5], ids=str)
    def test_padding_is_a_fraction(self, padding: float) -> None:
        with pytest.raises(ValueError, match="padding: expected fractions"):
            made(padding=padding)

    @pytest.mark.parametrize("rank", [0.0, 1.5], ids=str)
    def test_a_rank_is_a_fraction(self, rank: float) -> None:
        with pytest.raises(ValueError, match="rank: expected a fraction"):
            made(TFNO, rank=rank)

    @pytest.mark.parametrize("layers", [3, 6], ids=str)
    def test_a_u_has_a_middle(self, layers: int) -> None:
        with pytest.raises(ValueError, match="layers: expected an odd number, at least 5"):
            made(UNO, layers=layers)

    def test_modes_can_be_halved(self) -> None:
        with pytest.raises(ValueError, match="modes: expected at least 4, as they are halved 2"):
            made(UNO, layers=7, modes=(8, 3))

    def test_there_are_layers_and_axes(self) -> None:
        with pytest.raises(ValueError, match="layers: expected at least 1, got 0"):
            made(layers=0)
        with pytest.raises(ValueError, match="space: expected a grid of 1, 2 or 3 axes, got 4"):
            made(space=4)
