import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from funcattn.models import pcnn
from funcattn.models.clouds import Cloud
from funcattn.models.convolving import pooled
from funcattn.models.pcnn import PCNN, GaussianConvolution
from funcattn.models.sphnet import HarmonicConvolution, SPHNet, harmonics
from funcattn.tasks.rna import random_rotation


def cloud_of(x: Tensor) -> Cloud:
    return Cloud(x, torch.zeros(len(x)).long())


def test_sizes_are_those_of_the_public_networks() -> None:
    """Three levels down, three up and a head: 27 matrices of PCNN, 8 of SPHNet; two numbers a
    channel in the norms; biases before them have no effect, and are not here."""
    pairs = [(64, 128), (128, 256), (256, 256), (512, 128), (256, 64), (128, 260)]
    norms = 2 * 2 * (64 + 128 + 256)

    def size(matrices: int, seen: int) -> int:
        return matrices * sum(a * b for a, b in ((seen, 64), *pairs)) + norms + 260

    found = [sum(p.numel() for p in kind(3, 0, 260).parameters()) for kind in (PCNN, SPHNet)]
    assert found == [size(27, 4), size(8, 1)]
    assert found == [5_994_756, 1_776_132]


def test_pooling_takes_the_largest_of_the_points_of_a_centre() -> None:
    x = torch.tensor([0.0, 1, 2, 8, 9, 10]).double()[:, None]
    cloud = Cloud(x, torch.tensor([0, 0, 0, 0, 0, 1]))
    centres = Cloud(x[[0, 4, 5]], torch.tensor([0, 0, 1]))
    z = torch.tensor([-3.0, -1, -2, 5, 4, -7]).double()[:, None]
    assert pooled(z, cloud, centres)[:, 0].tolist() == [-1, 5, -7]


@pytest.mark.parametrize("whole", [True, False], ids=["at once", "in parts"])
@pytest.mark.parametrize("space", [1, 2, 3])
def test_pcnn_convolves_the_extended_field_with_sums_of_gaussians(
    space: int, whole: bool, uniform: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In value and every gradient."""
    if not whole:
        monkeypatch.setattr(pcnn, "_MOST_GAUSSIANS", 4 * 9 * 3**space)
    torch.manual_seed(0)
    layer, x, z = GaussianConvolution(space, 2, 3).double(), uniform(9, space), uniform(9, 2)
    z.requires_grad_()
    out = layer(z, layer.geometry(cloud_of(x)))
    sigma = 9.0 ** (-1.0 if space == 1 else -0.5)
    steps = torch.cartesian_prod(*([torch.tensor([-1.0, 0, 1]).double()] * space)).view(-1, space)
    square = (x[:, None] - x[None]).square().sum(-1)
    w = z / (-square / (2 * sigma**2)).exp().sum(1)[:, None]
    wanted = 0
    for step, matrix in zip(steps, layer.weight, strict=True):
        moved = (x[:, None] - x[None] - 2 * sigma * step).square().sum(-1)
        wanted = wanted + (-moved / (4 * sigma**2)).exp() @ w @ matrix.T
    torch.testing.assert_close(out, wanted)
    cotangent = uniform(9, 3)
    ours, theirs = (
        torch.autograd.grad((field * cotangent).sum(), (z, layer.weight)) for field in (out, wanted)
    )
    torch.testing.assert_close(ours, theirs)


def test_pcnn_does_not_see_a_translation(uniform: Any) -> None:
    layer, x, z = GaussianConvolution(2, 2, 3).double(), uniform(20, 2), uniform(20, 2)
    here, there = (layer(z, layer.geometry(cloud_of(p))) for p in (x, x + 5))
    torch.testing.assert_close(here, there)


def test_harmonics_are_orthonormal_on_the_sphere() -> None:
    """By a product rule that is exact for them."""
    nodes, weights = (torch.tensor(part) for part in torch_gauss(8))
    angle = torch.arange(16).double() * 2 * math.pi / 16
    z, phi = torch.meshgrid(nodes, angle, indexing="ij")
    radius = (1 - z.square()).sqrt()
    points = torch.stack([radius * phi.cos(), radius * phi.sin(), z], -1).view(-1, 3)
    share = (weights[:, None] * torch.full((16,), 2 * math.pi / 16).double()).flatten()
    y = harmonics(3.0 * points)
    torch.testing.assert_close(y.T @ (share[:, None] * y), torch.eye(16).double())
    assert harmonics(torch.zeros(3).double()).count_nonzero() == 1


def torch_gauss(count: int) -> tuple[Any, Any]:
    import numpy as np

    return np.polynomial.legendre.leggauss(count)


def test_each_degree_is_its_own_representation_of_rotations(uniform: Any) -> None:
    x, rotation = uniform(30, 3) - 0.5, random_rotation(torch.Generator().manual_seed(0))
    here, there = harmonics(x), harmonics(x @ rotation.T)
    for degree in range(4):
        part = slice(degree**2, (degree + 1) ** 2)
        mixed = torch.linalg.lstsq(here[:, part], there[:, part]).solution
        torch.testing.assert_close(here[:, part] @ mixed, there[:, part])
        torch.testing.assert_close(mixed @ mixed.T, torch.eye(2 * degree + 1).double())


def test_sphnet_convolution_is_the_equation(uniform: Any) -> None:
    torch.manual_seed(0)
    layer, x, z = HarmonicConvolution(2, 3, 0.3).double(), uniform(7, 3), uniform(7, 2)
    out = layer(z, layer.geometry(cloud_of(x)))
    offsets = x[None] - x[:, None]  # from i to j
    rows = []
    for radius in (0.0, 0.3):
        radial = (-(offsets.norm(dim=-1) - radius).square() / (2 * 0.3**2)).exp()
        kernels = radial[..., None] * harmonics(offsets)
        if radius == 0:
            mass = kernels[..., 0].sum(1) + 1e-6
        a = torch.einsum("ijm,jc->imc", kernels, z) / mass[:, None, None]
        for degree in range(4):
            energy = a[:, degree**2 : (degree + 1) ** 2].square().sum(1)
            rows.append(energy.clamp(min=1e-4).sqrt())
    wanted = sum(row @ matrix.T for row, matrix in zip(rows, layer.weight, strict=True))
    torch.testing.assert_close(out, wanted)


def turned(network: nn.Module, x: Tensor) -> list[Tensor]:
    rotation = random_rotation(torch.Generator().manual_seed(0))
    return [network(x), network(x @ rotation.T), network(-x)]


def test_no_rotation_or_reflection_changes_sphnet(uniform: Any) -> None:
    torch.manual_seed(0)
    network, x = SPHNet(3, 0, 4, width=4).double().eval(), uniform(2, 150, 3) - 0.5
    out, rotated, reflected = turned(network, x)
    torch.testing.assert_close(rotated, out)
    torch.testing.assert_close(reflected, out)
    assert out.std(1).min() > 1e-3
    other = PCNN(3, 0, 4, width=4).double().eval()
    out, rotated, _ = turned(other, x)
    assert (out - rotated).abs().max() > 1e-3


@pytest.mark.parametrize("kind", [PCNN, SPHNet])
def test_permuting_points_permutes_results(kind: Any, uniform: Any) -> None:
    torch.manual_seed(0)
    network = kind(3, 1, 2, width=4).double().eval()
    positions, values, order = uniform(2, 90, 3), uniform(2, 90, 1), uniform(90).argsort()
    torch.testing.assert_close(
        network(positions[:, order], values[:, order]), network(positions, values)[:, order]
    )
