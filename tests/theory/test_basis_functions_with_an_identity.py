"""What a map between coefficients can and cannot do, and which parts of ours can do more.

Why the parts of the functional operator are as they are, each claim as a test.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from funcattn.models.fourier_multiplier import FourierMultiplier
from funcattn.nn import Points
from funcattn.nn.operator import FourierMap, MetricAttention, ModewiseMap, PartitionAttention
from funcattn.nn.operator.spectral import axis_functions, axis_weights
from funcattn.ops import transport
from funcattn.pde import darcy

RIDGE = 0.3


def maps(uniform: Any, d: int) -> list[Tensor]:
    return [uniform(d, d) - 0.5 for _ in range(3)]


class TestOneBasisAndLinearMaps:
    """With q~ = c Wq, k~ = c Wk, v~ = c Wv the layer mixes channels, and functions not at all."""

    def test_the_map_of_values_is_a_matrix_on_channels(
        self, uniform: Any, assert_equal_to_rounding: Any
    ) -> None:
        """C v~ = c M with M = Wq (k~^T k~ + lambda I)^-1 Wk^T c^T c Wv, one d x d matrix."""
        c = uniform(1, 1, 12, 5) - 0.5
        wq, wk, wv = maps(uniform, 5)
        moved = transport(c @ wq, c @ wk, c @ wv, ridge=RIDGE)
        k = (c @ wk)[0, 0]
        m = wq @ torch.linalg.inv(k.T @ k + RIDGE * torch.eye(5).double())
        m = m @ wk.T @ c[0, 0].T @ c[0, 0] @ wv
        assert_equal_to_rounding(moved[0, 0], c[0, 0] @ m)

    def test_so_it_commutes_with_every_change_of_which_function_is_which(
        self, uniform: Any, assert_equal_to_rounding: Any
    ) -> None:
        """Also with rotations among the functions: none of them has an identity."""
        c = uniform(1, 1, 12, 5) - 0.5
        wq, wk, wv = maps(uniform, 5)
        turn = torch.linalg.qr(uniform(12, 12) - 0.5).Q

        def layer(c: Tensor) -> Tensor:
            return transport(c @ wq, c @ wk, c @ wv, ridge=RIDGE)

        assert_equal_to_rounding(layer(turn @ c), turn @ layer(c))

    def test_so_no_derivative_and_no_shift_is_among_its_maps(self, uniform: Any) -> None:
        """The derivative takes cos to sin; c M keeps the span of the coefficients' columns."""
        c = uniform(1, 1, 12, 1)
        wq, wk, wv = maps(uniform, 1)
        moved = transport(c @ wq, c @ wk, c @ wv, ridge=RIDGE)
        # With one channel: a multiple of the input, whatever the weights are.
        ratio = moved / c
        assert (ratio - ratio.mean()).abs().max() < 1e-12

    @pytest.mark.parametrize("mixer", [False, True], ids=["no mixer", "mixer"])
    def test_a_mixer_along_the_functions_ends_this(self, mixer: bool, uniform: Any) -> None:
        layer = PartitionAttention(5, 12, mixer=mixer).double()
        order = uniform(12).argsort()
        x = uniform(1, 40, 5)
        renamed = PartitionAttention(5, 12, mixer=mixer).double()
        renamed.load_state_dict(layer.state_dict())
        with torch.no_grad():
            renamed.scores.weight.copy_(layer.scores.weight[order])
            renamed.scores.bias.copy_(layer.scores.bias[order])
        same = torch.allclose(renamed(x), layer(x), rtol=0, atol=1e-12)
        assert same == (not mixer)


class TestModewiseMaps:
    @pytest.mark.parametrize(
        ("grid", "modes"), [((16,), (5,)), ((9, 12), (3, 4)), ((7, 8, 9), (2, 3, 4))], ids=str
    )
    def test_they_contain_the_layer_of_a_fourier_neural_operator(
        self,
        grid: tuple[int, ...],
        modes: tuple[int, ...],
        uniform: Any,
        assert_equal_to_rounding: Any,
    ) -> None:
        """Exactly, for every weight of it, with the gradients of field and weights."""
        theirs = FourierMultiplier(3, 2, modes).double()
        ours = FourierMap(3, 2, modes).double()
        with torch.no_grad():
            # (i, o, *modes, 2) -> (*modes, i, o, 2)
            ours.weight.copy_(theirs.parts[0].movedim((0, 1), (-3, -2)))
        x = uniform(2, math.prod(grid), 3).requires_grad_()
        out = ours(x, Points(grid=grid))
        expected = theirs(x.mT.unflatten(-1, grid)) - theirs.bias
        expected = expected.flatten(2).mT
        assert_equal_to_rounding(out, expected)
        probe = uniform(*out.shape)
        mine = torch.autograd.grad((out * probe).sum(), (x, ours.weight))
        also = torch.autograd.grad((expected * probe).sum(), (x, theirs.parts[0]))
        assert_equal_to_rounding(mine[0], also[0])
        assert_equal_to_rounding(mine[1], also[1].movedim((0, 1), (-3, -2)))

    def test_they_contain_derivative_shift_and_decay_which_the_other_map_does_not(
        self, assert_equal_to_rounding: Any
    ) -> None:
        n, m = 32, 6
        k = torch.arange(m).double()
        multipliers = {
            "derivative": 2j * math.pi * k,
            "shift": torch.exp(-2j * math.pi * k * 0.25),
            "heat": torch.exp(-0.01 * k**2) + 0j,
        }
        x = torch.arange(n).double() / n
        u, slope = (2 * math.pi * x).sin(), 2 * math.pi * (2 * math.pi * x).cos()
        expected = {"derivative": slope, "shift": u.roll(n // 4), "heat": math.exp(-0.01) * u}
        for name, factor in multipliers.items():
            layer = FourierMap(1, 1, (m,)).double()
            with torch.no_grad():
                layer.weight.copy_(torch.view_as_real(factor)[:, None, None])
            out = layer(u[None, :, None], Points(grid=(n,)))[0, :, 0]
            assert_equal_to_rounding(out, expected[name])

    @pytest.mark.parametrize("family", ["sine", "cosine"])
    def test_their_lipschitz_constant_is_the_largest_norm_of_a_matrix(
        self, family: Any, uniform: Any
    ) -> None:
        layer = ModewiseMap(4, 4, (6,), family).double().requires_grad_(False)
        n = 17
        bound = torch.linalg.matrix_norm(layer.weight, ord=2).max()
        weights = axis_weights(family, n)[:, None]

        def size(f: Tensor) -> Tensor:
            return (weights * f.square()).sum().sqrt()

        for _ in range(20):
            f = uniform(1, n, 4) - 0.5
            assert size(layer(f, Points(grid=(n,)))[0]) <= bound * size(f[0]) * (1 + 1e-12)
        # And it is reached, by the worst channel mixture on the worst function.
        worst = int(torch.linalg.matrix_norm(layer.weight, ord=2).argmax())
        left = torch.linalg.svd(layer.weight[worst]).U[:, 0]
        f = axis_functions(family, n, 6)[:, worst, None] * left
        reached = size(layer(f[None], Points(grid=(n,)))[0]) / size(f)
        assert float(reached) == pytest.approx(float(bound), rel=1e-9)


def galerkin(modes: tuple[int, ...], grid: tuple[int, ...], a: Tensor, f: Tensor) -> Tensor:
    """What the metric attention makes of the coefficient a and the force f, at all points."""
    layer = MetricAttention(2, modes, "sine").double()
    with torch.no_grad():
        layer.log_ridge.fill_(-60.0)
        layer.to_coefficient.weight.copy_(torch.tensor([[1.0, 0.0]]))
        layer.to_coefficient.bias.fill_(-0.5)
        before_softplus = a + torch.log(-torch.expm1(-a))
        fields = torch.stack([before_softplus, f], -1)[None]
        return layer(fields, Points(grid=grid))[0, :, 1] / math.pi**2


class TestMetricSolve:
    """With the true coefficient it is the Galerkin solution of -div(a grad u) = f."""

    def manufactured(
        self,
        grid: tuple[int, ...],
        u: Callable[[Tensor], Tensor],
        a: Callable[[Tensor], Tensor],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """u, a and f = -div(a grad u) at the points, by automatic differentiation."""
        axes = [torch.linspace(0, 1, n).double() for n in grid]
        x = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2).requires_grad_()
        (slope,) = torch.autograd.grad(u(x).sum(), x, create_graph=True)
        flux = a(x)[:, None] * slope
        f = torch.zeros(len(x)).double()
        for axis in range(len(grid)):
            (second,) = torch.autograd.grad(flux[:, axis].sum(), x, retain_graph=True)
            f = f - second[:, axis]
        return u(x).detach(), a(x).detach(), f

    def test_in_one_dimension_the_error_falls_exponentially(self) -> None:
        grid = (257,)
        exact, a, f = self.manufactured(
            grid,
            lambda x: ((math.pi * x).sin() * (math.pi * x).cos().exp())[:, 0],
            lambda x: (0.5 * (math.pi * x).cos()).exp()[:, 0],
        )
        errors = [float((galerkin((m,), grid, a, f) - exact).abs().max()) for m in (4, 8, 12, 16)]
        assert errors[0] > 1e-3
        for coarse, fine in itertools.pairwise(errors):
            assert fine < coarse / 50
        assert errors[-1] < 1e-10

    def test_in_two_dimensions_too(self) -> None:
        grid = (65, 65)
        exact, a, f = self.manufactured(
            grid,
            lambda x: (math.pi * x).sin().prod(-1) * (math.pi * x[:, 0]).cos().exp(),
            lambda x: (0.5 * (math.pi * x).cos().prod(-1)).exp(),
        )
        errors = [float((galerkin((m, m), grid, a, f) - exact).abs().max()) for m in (3, 6, 9)]
        assert errors[1] < errors[0] / 20
        assert errors[2] < errors[1] / 50

    def test_on_a_sample_of_the_darcy_benchmark_ten_functions_per_axis_leave_a_few_percent(
        self,
    ) -> None:
        """Its coefficient jumps, so that there is no spectral rate; nothing is trained."""
        fields = darcy.sample(nodes=65, rng=np.random.default_rng(0))
        a, exact = (
            torch.from_numpy(np.asarray(fields[name], dtype=np.float64)).flatten()
            for name in ("permeability", "pressure")
        )
        u = galerkin((10, 10), (65, 65), a, torch.ones_like(a))
        assert (u - exact).norm() < 0.06 * exact.norm()

    def test_without_the_coefficient_it_is_the_mode_wise_ridge(
        self, uniform: Any, assert_equal_to_rounding: Any
    ) -> None:
        """A constant coefficient couples nothing: each function is divided by its number."""
        layer = MetricAttention(1, (5,), "sine").double()
        with torch.no_grad():
            layer.to_coefficient.weight.zero_()
            layer.to_coefficient.bias.zero_()
            layer.log_ridge.copy_(uniform(5))
        kappa = torch.nn.functional.softplus(torch.tensor(0.5).double())
        k = torch.arange(1, 6).double()
        phi, w = axis_functions("sine", 33, 5), axis_weights("sine", 33)
        x = uniform(1, 33, 1)
        c = phi.T @ (w * x[0, :, 0])
        expected = phi @ (c / k**2 / (kappa + layer.log_ridge.exp()))
        assert_equal_to_rounding(layer(x, Points(grid=(33,)))[0, :, 0], expected)
