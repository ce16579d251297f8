"""Networks on grids that came after FNO: sizes of their papers, and what sets each apart."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.f_fno import FFNO, FactorisedLayer
from funcattn.models.lsm import LSM, NeuralSpectralBlock
from funcattn.models.u_fno import UFNO
from funcattn.models.unet import Twice, UNet


def count(network: nn.Module, *, complex_once: bool = False) -> int:
    pairs = {id(p) for n, p in network.named_parameters() if "parts" in n or "weights" in n}
    return sum(
        p.numel() // (2 if complex_once and id(p) in pairs else 1) for p in network.parameters()
    )


class TestSizes:
    def test_u_fno_has_as_many_parameters_as_its_paper_says(self) -> None:
        with torch.device("meta"):
            network = UFNO(3, 9, 1, width=36, layers=6, modes=10)
        assert count(network, complex_once=True) == 33_097_829

    def test_f_fno_on_the_airfoil_of_its_paper(self) -> None:
        with torch.device("meta"):
            network = FFNO(2, 0, 1, width=64, layers=24, modes=(32, 16))
        layer = 2 * 64 * 64 * (32 + 16) + 64 * 256 + 256 + 256 * 64 + 64
        # The public code also has two indices of the grid as inputs, with a row of 64 each.
        assert count(network) == 10_239_937 == 24 * layer + 3 * 64 + 65 * 128 + 129

    def test_u_net_and_lsm_have_the_layers_of_the_public_ones(self) -> None:
        def twice(*widths: int) -> int:
            i, m, o = widths
            return 9 * i * m + 9 * m * o + 2 * (m + o)

        w = 64
        u = twice(w, w, w) + twice(w, 2 * w, 2 * w) + twice(2 * w, 4 * w, 4 * w)
        u += twice(4 * w, 8 * w, 8 * w) + twice(8 * w, 8 * w, 8 * w)
        u += twice(16 * w, 8 * w, 4 * w) + twice(8 * w, 4 * w, 2 * w) + twice(4 * w, 2 * w, w)
        u += twice(2 * w, w, w) + w * w + w
        with torch.device("meta"):
            u_net, lsm = UNet(2, 1, 1, width=w), LSM(2, 1, 1, width=w)
        assert count(u_net) == u + 4 * w + w * w + w + w + 1 == 17_306_689
        blocks = sum(24 * c + 4 * c + 3 * c * c + 2 * c for c in (w, 2 * w, 4 * w, 8 * w, 8 * w))
        assert count(lsm) == u + blocks + 4 * w + 65 * 128 + 129 == 19_185_985


class TestFactorisedLayer:
    def test_a_wave_along_one_axis_is_multiplied_by_its_matrix(self, uniform: Any) -> None:
        torch.manual_seed(0)
        layer = FactorisedLayer(3, (2, 4), 2).double()
        t = torch.arange(10).double() / 10
        amplitude = uniform(3)
        wave = amplitude[:, None, None] * torch.cos(2 * math.pi * 3 * t)  # constant on axis 0
        seen: list[Tensor] = []
        layer.expand.register_forward_hook(lambda _, given, __: seen.append(given[0]))
        layer(wave.expand(3, 8, 10)[None])
        zero, third = (
            torch.view_as_complex(w.detach())[:, :, k]
            for w, k in zip(layer.weights, (0, 3), strict=True)
        )
        phase = torch.exp(2j * math.pi * 3 * t)
        along_second = ((third.T @ amplitude.to(third.dtype))[:, None] * phase).real
        along_first = zero.real.T @ (amplitude[:, None] * torch.cos(2 * math.pi * 3 * t))
        expected = (along_first + along_second)[:, None].expand(3, 8, 10).flatten(1)
        torch.testing.assert_close(seen[0][0], expected, rtol=0, atol=1e-12)

    def test_too_coarse_a_grid_is_refused(self) -> None:
        with pytest.raises(ValueError, match="expected at least 8 points on an axis with 4 modes"):
            FactorisedLayer(3, (2, 4), 2)(torch.zeros(1, 3, 8, 6))


class TestNeuralSpectralBlock:
    def test_it_is_the_equation_on_every_patch(self, uniform: Any) -> None:
        torch.manual_seed(0)
        block = NeuralSpectralBlock(4, heads=2, tokens=3, waves=5, patches=2).double()
        with torch.no_grad():
            for parameter in block.parameters():
                parameter.normal_()
        x = uniform(1, 4, 6, 4)
        out = block(x)
        for rows in (slice(0, 3), slice(3, 6)):
            for columns in (slice(0, 2), slice(2, 4)):
                patch = x[0, :, rows, columns].flatten(1).T  # (l c)
                expected = patch.clone()
                for h in range(2):
                    part = slice(2 * h, 2 * h + 2)
                    q, k, v = (
                        of(patch)[:, part] for of in (block.to_query, block.to_key, block.to_value)
                    )
                    z = block.latent[h] + (block.latent[h] @ k.T).softmax(-1) @ v
                    a, b = block.coefficients[part].chunk(2, dim=-1)
                    step = sum(
                        a[:, j] * (math.pi * j / 5 * z).sin()
                        + b[:, j] * (math.pi * j / 5 * z).cos()
                        for j in range(5)
                    )
                    z = z + step
                    expected[:, part] += (q @ z.T).softmax(-1) @ z
                found = out[0, :, rows, columns].flatten(1).T
                torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)

    def test_patches_do_not_see_each_other(self, uniform: Any) -> None:
        block = NeuralSpectralBlock(4, heads=2, tokens=3, waves=5, patches=2).double()
        x = uniform(1, 4, 4, 4)
        moved = x.clone()
        moved[..., :2, :2] += 1
        change = (block(moved) - block(x)).abs().amax((0, 1))
        assert (change[:2, :2] > 1e-6).all()
        assert not change[2:].any()
        assert not change[:2, 2:].any()


def test_a_double_convolution_is_two_of_them_normalised(uniform: Any) -> None:
    torch.manual_seed(0)
    twice = Twice(2, 3, 4, 5).double()
    x = uniform(2, 3, 6, 7)
    expected = x
    for kernel, norm in zip(twice.layers[::3], twice.layers[1::3], strict=True):
        expected = F.conv2d(expected, kernel.weight, padding=1)
        expected = F.relu(F.instance_norm(expected, weight=norm.gain, bias=norm.shift))
    torch.testing.assert_close(twice(x), expected, rtol=0, atol=1e-12)


def test_errors() -> None:
    with pytest.raises(ValueError, match="layers: expected at least 2, half of them with U-Nets"):
        UFNO(2, 1, 1, layers=1)
    with pytest.raises(ValueError, match="levels: expected at least 1, got 0"):
        UNet(2, 1, 1, levels=0)
    with pytest.raises(ValueError, match="width: expected a multiple of heads=8, got 12"):
        LSM(2, 1, 1, width=12)
    with pytest.raises(ValueError, match="space: expected a grid of 1, 2 or 3 axes, got 4"):
        UNet(4, 1, 1)
