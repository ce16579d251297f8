import itertools
import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn import GridConvolution, Points, Pointwise, Stencil, feature_maps
from funcattn.nn.feature_maps import linear, stencil_between_points, stencil_on_points


def lively(module: nn.Module) -> nn.Module:
    """In float64, with parameters of order one, so that nothing hides in small numbers."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for parameter in module.double().parameters():
            nn.init.normal_(parameter)
    return module


def stencil(reach: float | Sequence[float], dims: int, *, periodic: bool = False) -> Stencil:
    return lively(Stencil(2, 3, reach=reach, dims=dims, periodic=periodic))


def random(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def unit_grid(grid: Sequence[int]) -> Tensor:
    """The coordinates (n s) of a grid with points at both ends of each axis."""
    axes = [torch.linspace(0, 1, length, dtype=torch.float64) for length in grid]
    return torch.cartesian_prod(*axes).reshape(-1, len(grid))


def field(positions: Tensor) -> Tensor:
    """Two smooth channels, different in each direction: (n s) -> (1 n 2)."""
    x = positions @ torch.tensor([1.3, -0.7, 0.4], dtype=torch.float64)[: positions.shape[1]]
    return torch.stack([torch.sin(3 * x), torch.exp(x)], dim=-1)[None]


def multilinear(u: Tensor, place: Sequence[float]) -> Tensor:
    """u (b *grid c) at a place that is given in steps of the grid, one axis after the other."""
    if not place:
        return u
    low = math.floor(place[0])
    part = place[0] - low
    # Beyond the last point there is the first one, which only a periodic axis asks for.
    return (1 - part) * multilinear(u[:, low % u.shape[1]], place[1:]) + part * multilinear(
        u[:, (low + 1) % u.shape[1]], place[1:]
    )


def obvious(layer: Stencil, x: Tensor, grid: tuple[int, ...]) -> Tensor:
    """The formula in the docstring of `Stencil`, point by point and offset by offset."""
    u, results = x.unflatten(1, grid), []
    for point in itertools.product(*map(range, grid)):
        total = layer.bias
        for offset in itertools.product((-1, 0, 1), repeat=len(grid)):
            tap = layer.weight[(..., *(o + 1 for o in offset))]
            place = [
                i + o * r * length
                if layer.periodic
                else min(max(i + o * r * (length - 1), 0), length - 1)
                for i, o, r, length in zip(point, offset, layer.reach, grid, strict=True)
            ]
            total = total + multilinear(u, place) @ tap.T
        results.append(total)
    return torch.stack(results, dim=1)


def assert_same_with_gradients(
    layer: Stencil, x: Tensor, one: Callable[[Tensor], Tensor], other: Callable[[Tensor], Tensor]
) -> None:
    x = x.requires_grad_()
    outs = one(x), other(x)
    torch.testing.assert_close(*outs, rtol=0, atol=1e-12)
    cotangent = torch.sin(torch.arange(outs[0].numel(), dtype=x.dtype)).view_as(outs[0])
    for gradients in zip(
        *(torch.autograd.grad((out * cotangent).sum(), [x, *layer.parameters()]) for out in outs),
        strict=True,
    ):
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-11)


class TestPointwise:
    def test_each_point_is_mapped_by_itself(self, generator: torch.Generator) -> None:
        layer = lively(Pointwise(3, 5))
        x = random(2, 7, 3, generator=generator)
        expected = torch.stack([layer.map(x[:, i]) for i in range(7)], dim=1)
        torch.testing.assert_close(layer(x, Points()), expected)

    def test_linear_maps_start_small_and_without_bias(self) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            layer = linear(300, 300)
        assert layer.weight.std().item() == pytest.approx(0.02, rel=0.02)
        assert not layer.bias.any()
        assert linear(3, 3, bias=False).bias is None


class TestStencil:
    @pytest.mark.parametrize(
        ("grid", "reach"),
        [
            ((7,), 1 / 6),
            ((7,), 1 / 3),
            ((7,), 0.21),
            ((4,), 1 / 32),
            ((33,), 1.0),
            ((5, 7), 1 / 4),
            ((5, 7), (1 / 4, 1 / 3)),
            ((5, 7), (0.3, 0.05)),
            ((6, 3), 1 / 32),
            ((3, 5, 4), (1 / 2, 1 / 4, 1 / 3)),
            ((3, 5, 4), (0.2, 0.4, 0.6)),
            ((1, 5), 0.25),
            ((3, 1, 2), 0.3),
            ((1, 1), 0.5),
            ((1,), 1.0),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("periodic", [False, True], ids=["box", "torus"])
    def test_is_the_formula_of_its_docstring(
        self,
        grid: tuple[int, ...],
        reach: float | tuple[float, ...],
        periodic: bool,
        generator: torch.Generator,
    ) -> None:
        layer = stencil(reach, len(grid), periodic=periodic)
        assert_same_with_gradients(
            layer,
            random(2, math.prod(grid), 2, generator=generator),
            lambda x: layer(x, Points(grid=grid)),
            lambda x: obvious(layer, x, grid),
        )

    @pytest.mark.parametrize("reach", [1 / 4, 0.19])
    def test_on_a_torus_it_commutes_with_shifts(
        self, reach: float, generator: torch.Generator
    ) -> None:
        layer = stencil(reach, 2, periodic=True)
        x = random(2, 8, 4, 2, generator=generator)

        def on(u: Tensor) -> Tensor:
            return layer(u.flatten(1, 2), Points(grid=(8, 4))).unflatten(1, (8, 4))

        shifted = on(x.roll((3, 1), dims=(1, 2)))
        torch.testing.assert_close(shifted, on(x).roll((3, 1), dims=(1, 2)))

    @pytest.mark.parametrize(
        ("grid", "steps"),
        [
            ((7,), [1]),
            ((7,), [6]),
            ((5, 7), [1, 1]),
            ((5, 7), [2, 3]),
            ((5, 7), [4, 1]),
            ((3, 5, 4), [1, 2, 3]),
        ],
        ids=str,
    )
    def test_the_dilated_convolution_is_the_interpolation_at_whole_steps(
        self, grid: tuple[int, ...], steps: list[int], generator: torch.Generator
    ) -> None:
        layer = stencil(
            [s / (length - 1) for s, length in zip(steps, grid, strict=True)], len(grid)
        )
        x = random(2, math.prod(grid), 2, generator=generator)

        def dilated(x: Tensor) -> Tensor:
            u = x.unflatten(1, grid)
            out = stencil_on_points(u, layer.weight, layer.bias, steps=steps, periodic=False)
            return out.flatten(1, -2)

        def interpolated(x: Tensor) -> Tensor:
            u, among = x.unflatten(1, grid), [float(step) for step in steps]
            out = stencil_between_points(u, layer.weight, layer.bias, steps=among, periodic=False)
            return out.flatten(1, -2)

        assert_same_with_gradients(layer, x, dilated, interpolated)
        assert_same_with_gradients(layer, x, dilated, lambda x: obvious(layer, x, grid))

    def test_the_fast_path_is_taken_at_whole_steps_however_the_reach_is_rounded(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object, steps: list[float], **_options: object) -> Tensor:
            raise AssertionError(f"interpolated at steps {steps}")

        monkeypatch.setattr(feature_maps, "stencil_between_points", refuse)
        for length in range(2, 200):
            layer = Stencil(1, 1, reach=1 / (length - 1), dims=1)
            layer(torch.zeros(1, length, 1), Points(grid=(length,)))

    def test_with_the_spacing_as_reach_it_is_the_ordinary_convolution(
        self, generator: torch.Generator
    ) -> None:
        layer, x = stencil(1 / 8, 2), random(2, 81, 2, generator=generator)
        out = layer(x, Points(grid=(9, 9))).unflatten(1, (9, 9)).movedim(-1, 1)
        u = x.unflatten(1, (9, 9)).movedim(-1, 1)
        replicated = F.pad(u, (1, 1, 1, 1), mode="replicate")
        torch.testing.assert_close(out, F.conv2d(replicated, layer.weight, layer.bias))
        interior = F.conv2d(u, layer.weight, layer.bias)
        torch.testing.assert_close(out[:, :, 1:-1, 1:-1], interior)

    @pytest.mark.parametrize("dims", [1, 2, 3])
    @pytest.mark.parametrize("steps", [1, 3])
    def test_nested_grids_agree_at_common_points_when_the_reach_is_a_multiple_of_both_spacings(
        self, dims: int, steps: int
    ) -> None:
        coarse, fine = (5,) * dims, (9,) * dims
        layer = stencil(steps / 4, dims)
        on_coarse = layer(field(unit_grid(coarse)), Points(grid=coarse)).unflatten(1, coarse)
        on_fine = layer(field(unit_grid(fine)), Points(grid=fine)).unflatten(1, fine)
        common = on_fine[(slice(None), *(slice(None, None, 2),) * dims)]
        torch.testing.assert_close(on_coarse, common, rtol=0, atol=1e-13)

    def test_other_nested_grids_differ_by_the_square_of_the_spacing(self) -> None:
        layer = stencil(1 / 3, 2)  # a third of a spacing off the grid, on every one of these

        def on(length: int) -> Tensor:
            grid = (length, length)
            return layer(field(unit_grid(grid)), Points(grid=grid)).unflatten(1, grid)

        differences = torch.stack(
            [(on(n) - on(2 * n - 1)[:, ::2, ::2]).abs().amax() for n in (9, 17, 33, 65)]
        )
        orders = torch.log2(differences[:-1] / differences[1:])
        assert differences[-1] < 2e-3
        torch.testing.assert_close(orders, torch.full_like(orders, 2), rtol=0, atol=0.1)

    @pytest.mark.parametrize("length", [4, 9, 40], ids=["coarser", "like", "finer"])
    def test_a_linear_field_is_shifted_exactly_on_grids_coarser_and_finer_than_the_reach(
        self, length: int
    ) -> None:
        reach = (0.13, 0.11)
        layer, positions = stencil(reach, 2), unit_grid((length, length))
        slope = torch.tensor([[2.0, -1.0], [0.5, 3.0]], dtype=torch.float64)
        out = layer((0.7 + positions @ slope)[None], Points(grid=(length, length)))[0]
        expected = layer.bias
        for a, b in itertools.product((-1, 0, 1), repeat=2):
            moved = positions + torch.tensor([a * reach[0], b * reach[1]], dtype=torch.float64)
            expected = expected + (0.7 + moved @ slope) @ layer.weight[:, :, a + 1, b + 1].T
        inside = ((positions >= max(reach)) & (positions <= 1 - max(reach))).all(-1)
        assert inside.sum() >= 4
        torch.testing.assert_close(out[inside], expected[inside], rtol=0, atol=1e-12)

    @pytest.mark.parametrize("reach", [1 / 4, 0.2], ids=["dilated", "interpolated"])
    def test_masked_points_count_as_zero_whatever_stands_there(
        self, reach: float, generator: torch.Generator
    ) -> None:
        layer, grid = stencil(reach, 2), (5, 5)
        mask = torch.rand(2, 25, generator=generator) < 0.7
        x = random(2, 25, 2, generator=generator)
        spoiled = torch.where(mask[..., None], x, torch.nan)
        zeroed = torch.where(mask[..., None], x, 0.0)
        out = layer(spoiled, Points(grid=grid, mask=mask))
        assert torch.equal(out, layer(zeroed, Points(grid=grid)))
        assert not torch.equal(out, layer(x, Points(grid=grid)))

    @pytest.mark.parametrize(
        ("grid", "n"), [(None, 20), ((4, 4), 20), ((20,), 20), ((2, 2, 5), 20)], ids=str
    )
    def test_a_grid_that_does_not_fit_is_refused(
        self, grid: tuple[int, ...] | None, n: int
    ) -> None:
        with pytest.raises(ValueError, match="grid: expected 2 axis lengths"):
            Stencil(2, 3)(torch.zeros(1, n, 2), Points(grid=grid))

    @pytest.mark.parametrize("reach", [0.0, -0.1, 1.5, float("nan"), (0.1, 0.0)], ids=str)
    def test_a_reach_is_a_fraction_of_the_axis(self, reach: float | tuple[float, ...]) -> None:
        with pytest.raises(
            ValueError, match=r"reach: expected .*fractions of the axis in \(0, 1\]"
        ):
            Stencil(2, 3, reach=reach)

    @pytest.mark.parametrize("reach", [(), (0.1,), (0.1, 0.1, 0.1)], ids=str)
    def test_a_reach_is_one_number_or_one_per_axis(self, reach: tuple[float, ...]) -> None:
        with pytest.raises(ValueError, match="expected one number, or one for each of 2 axes"):
            Stencil(2, 3, reach=reach)

    @pytest.mark.parametrize("dims", [0, 4])
    def test_other_numbers_of_axes_are_refused(self, dims: int) -> None:
        with pytest.raises(ValueError, match=f"dims: expected 1, 2 or 3, got {dims}"):
            Stencil(2, 3, dims=dims)


class TestGridConvolution:
    def test_is_the_convolution_with_zero_padding(self, generator: torch.Generator) -> None:
        layer = lively(GridConvolution(2, 3))
        x = random(2, 35, 2, generator=generator)
        ours = layer(x, Points(grid=(5, 7)))
        weight, bias = layer.convolution.weight, layer.convolution.bias
        theirs = F.conv2d(x.unflatten(1, (5, 7)).permute(0, 3, 1, 2), weight, bias, padding=1)
        torch.testing.assert_close(ours, theirs.permute(0, 2, 3, 1).reshape(2, 35, 3))

    def test_masked_points_count_as_zero_whatever_stands_there(
        self, generator: torch.Generator
    ) -> None:
        layer, x = lively(GridConvolution(2, 3)), random(1, 12, 2, generator=generator)
        mask = torch.arange(12)[None] % 5 != 0
        spoiled = torch.where(mask[..., None], x, torch.nan)
        zeroed = torch.where(mask[..., None], x, 0.0)
        out = layer(spoiled, Points(grid=(3, 4), mask=mask))
        assert torch.equal(out, layer(zeroed, Points(grid=(3, 4))))

    @pytest.mark.parametrize("grid", [None, (3, 5), (12,)], ids=str)
    def test_a_grid_that_does_not_fit_is_refused(self, grid: tuple[int, ...] | None) -> None:
        with pytest.raises(ValueError, match="grid: expected 2 axis lengths"):
            GridConvolution(2, 3)(torch.zeros(1, 12, 2), Points(grid=grid))
