from typing import Any

import pytest
import torch
from torch import Tensor

from funcattn.models import diffusion_net
from funcattn.models.diffusion_net import (
    Diffusion,
    DiffusionNet,
    GradientFeatures,
    _Implicit,
    heat_signature,
    surface_of,
)
from funcattn.models.laplacians import OperatorCache, operators_of
from funcattn.nn.points import Points
from funcattn.tasks.rna import random_rotation


def count(network: torch.nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def sphere(points: int, seed: int = 0) -> Tensor:
    x = torch.randn(points, 3, generator=torch.Generator().manual_seed(seed)).double()
    return x / x.norm(dim=-1, keepdim=True)


def test_sizes_are_those_of_the_public_network() -> None:
    block = 128 + 2 * 128**2 + (384 + 1) * 128 + 2 * 129 * 128
    whole = 4 * 128 + 4 * block + 129 * 260
    assert count(DiffusionNet(3, 0, 260, oriented=True)) == whole == 494_852
    assert count(DiffusionNet(3, 0, 260)) == whole - 4 * 128**2 == 429_316
    heat = DiffusionNet(3, 0, 260, oriented=True, features="heat")
    assert count(heat) == whole + (16 - 3) * 128


def test_the_laplacian_of_a_sphere_is_that_of_spherical_harmonics() -> None:
    x = sphere(1500)
    made = operators_of(x, 9)
    size = (x - x.mean(0)).norm(dim=-1).amax().square()  # the operators see a furthest point at 1
    assert size * made.mass.sum() == pytest.approx(4 * torch.pi, rel=0.02)
    exact = torch.tensor([0.0, 2, 2, 2, 6, 6, 6, 6, 6]).double()
    torch.testing.assert_close(made.values / size, exact, rtol=0.08, atol=1e-4)
    gram = made.functions.T @ (made.mass[:, None] * made.functions)
    torch.testing.assert_close(gram, torch.eye(9).double(), rtol=0, atol=1e-8)


def test_few_and_many_eigenfunctions_come_from_the_same_problem() -> None:
    """A dense and a sparse solver."""
    x = sphere(120)
    few, many = operators_of(x, 20), operators_of(x, 120)
    torch.testing.assert_close(few.values, many.values[:20], rtol=1e-7, atol=1e-9)


def test_spectral_diffusion_is_the_exponential_of_the_laplacian(uniform: Any) -> None:
    cloud = Points(sphere(40)[None])
    surface, x = surface_of(cloud, 40), uniform(1, 40, 3)
    layer = Diffusion(3, "spectral").double()
    layer.time.data = torch.tensor([0.1, 0.5, 2.0]).double()
    generator = -surface.laplacian.to_dense() / surface.mass[0][:, None]
    exact = torch.stack(
        [torch.matrix_exp(t * generator) @ x[0, :, i] for i, t in enumerate(layer.time.data)], -1
    )
    torch.testing.assert_close(layer(x, surface)[0], exact, rtol=1e-6, atol=1e-7)


def test_implicit_diffusion_solves_the_linear_system_with_its_gradients(uniform: Any) -> None:
    cloud = Points(sphere(80).view(2, 40, 3))
    surface, x = surface_of(cloud, 0), uniform(2, 40, 3).requires_grad_()
    layer = Diffusion(3, "implicit").double()
    layer.time.data = torch.tensor([0.1, 0.5, 20.0]).double()
    weights = uniform(2, 40, 3)
    out = layer(x, surface)
    found = torch.autograd.grad((out * weights).sum(), (x, layer.time))
    mass = torch.diag_embed(surface.mass)
    blocks = [
        surface.laplacian.to_dense()[40 * i : 40 * i + 40, 40 * i : 40 * i + 40] for i in (0, 1)
    ]
    system = mass[:, None] + layer.time[:, None, None] * torch.stack(blocks)[:, None]  # (b c n n)
    exact = torch.linalg.solve(system, (mass @ x).mT.unsqueeze(-1)).squeeze(-1).mT
    wanted = torch.autograd.grad((exact * weights).sum(), (x, layer.time))
    torch.testing.assert_close(out, exact, rtol=1e-9, atol=1e-11)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_implicit_diffusion_passes_gradcheck(uniform: Any) -> None:
    surface = surface_of(Points(sphere(12)[None]), 0)
    given = uniform(12, 2).requires_grad_(), (uniform(2) + 0.1).requires_grad_()
    mass = surface.mass.flatten().unsqueeze(-1)
    assert torch.autograd.gradcheck(
        lambda x, t: _Implicit.apply(x, t, mass, surface.laplacian), given
    )


def test_both_diffusions_keep_heat_and_flatten_it(uniform: Any) -> None:
    surface, x = surface_of(Points(sphere(200)[None]), 64), uniform(1, 200, 1)
    for how in ("spectral", "implicit"):
        layer = Diffusion(1, how).double()  # type: ignore[arg-type]
        layer.time.data.fill_(1e4)
        out = layer(x, surface)
        mean = (surface.mass * x[..., 0]).sum() / surface.mass.sum()
        torch.testing.assert_close(out, mean.expand_as(out), rtol=1e-2, atol=0)


def test_gradients_of_linear_fields_are_exact_in_the_plane(uniform: Any) -> None:
    x = uniform(1, 60, 2)
    surface = surface_of(Points(x), 0)
    field = x @ torch.tensor([[2.0, 0.0], [-1.0, 3.0]]).double()
    slopes = torch.sparse.mm(surface.gradient, field[0]).view(2, 60, 2)
    size = (x - x.mean(1, keepdim=True)).norm(dim=-1).amax()  # of what the operators see
    wanted = size * torch.tensor([[2.0, 0.0], [-1.0, 3.0]]).double()
    torch.testing.assert_close(slopes, wanted[:, None].expand(-1, 60, -1), rtol=1e-3, atol=1e-3)


def test_products_of_slopes_do_not_know_the_axes_of_the_plane(uniform: Any) -> None:
    """Turned axes, and in the real case mirrored ones."""
    cloud = Points(uniform(1, 50, 2))
    surface, x = surface_of(cloud, 0), uniform(1, 50, 4)
    dense = surface.gradient.to_dense().view(2, 50, 50)
    angle = 6 * uniform(50)[:, None]
    turned = torch.stack(
        [
            angle.cos() * dense[0] - angle.sin() * dense[1],
            angle.sin() * dense[0] + angle.cos() * dense[1],
        ]
    )
    for axes, oriented in ((turned, True), (turned, False), (dense.flip(0), False)):
        layer = GradientFeatures(4, oriented=oriented).double()
        other = surface._replace(gradient=axes.reshape(100, 50).to_sparse())
        torch.testing.assert_close(layer(x, other), layer(x, surface))
    layer = GradientFeatures(4, oriented=True).double()
    other = surface._replace(gradient=dense.flip(0).reshape(100, 50).to_sparse())
    assert (layer(x, other) - layer(x, surface)).abs().max() > 1e-3


@pytest.mark.parametrize("diffusion", ["spectral", "implicit"])
def test_with_heat_features_no_rotation_changes_anything(diffusion: Any) -> None:
    torch.manual_seed(0)
    network = DiffusionNet(
        3, 0, 5, width=8, layers=2, functions=32, features="heat", diffusion=diffusion
    ).double()
    for block in network.blocks:
        block.diffusion.time.data.fill_(0.3)
    x = sphere(150) * torch.tensor([1.0, 0.7, 1.3]).double()
    turned = x @ random_rotation(torch.Generator().manual_seed(1)).T
    out = network(x[None])
    diffusion_net._CACHE = OperatorCache()  # no help from the first
    torch.testing.assert_close(network(turned[None]), out, rtol=1e-5, atol=1e-6)
    order = torch.randperm(150, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(network(x[None, order]), out[:, order], rtol=1e-5, atol=1e-6)


def test_the_heat_signature_is_the_diagonal_of_the_heat_kernel() -> None:
    surface = surface_of(Points(sphere(30)[None]), 30)
    generator = -surface.laplacian.to_dense() / surface.mass[0][:, None]
    kernel = torch.matrix_exp(0.01 * generator) / surface.mass[0]
    torch.testing.assert_close(
        heat_signature(surface)[0, :, 0], kernel.diagonal(), rtol=1e-5, atol=0
    )


def test_operators_are_made_once_for_each_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(
        "funcattn.models.laplacians.operators_of",
        lambda x, functions: (made.append(x), operators_of(x, functions))[1],
    )
    cache, random = OperatorCache(), torch.Generator().manual_seed(0)
    clouds = [sphere(40, seed).float() for seed in range(3)]
    first = [cache(x, 8) for x in clouds]
    assert len(made) == 3
    for x, operators in zip(clouds, first, strict=True):
        rotation = random_rotation(random).float()
        assert cache(x @ rotation.T + 2, 8) is operators
    mirrored = clouds[0] * torch.tensor([1.0, 1.0, -1.0])
    for other in (
        clouds[0].double(),
        clouds[0][:30],
        1.01 * clouds[0],
        mirrored,
        clouds[0].flip(0),
    ):
        assert cache(other, 8) not in first
    assert cache(clouds[0], 9) is not first[0]
    assert len(made) == 9


def test_the_cache_forgets_the_oldest_when_its_memory_is_used_up() -> None:
    cloud = sphere(40)
    cache = OperatorCache(most_bytes=3 * operators_of(cloud, 8).bytes)
    kept = cache(cloud, 8)
    for seed in range(1, 6):
        cache(sphere(40, seed), 8)
    assert len(cache) == 2
    assert cache.bytes <= cache.most_bytes
    assert cache(cloud, 8) is not kept


def test_points_that_span_no_surface_are_refused() -> None:
    network = DiffusionNet(2, 0, 1, width=4, layers=1)
    line = torch.linspace(0, 1, 40)[None, :, None].expand(-1, -1, 2)
    for bad in (line, torch.zeros(1, 40, 2), torch.rand(1, 3, 2)):
        with pytest.raises(ValueError, match=r"positions: expected .* points that span a surface"):
            network(bad)
    with pytest.raises(ValueError, match="space: expected 2 or 3 dimensions, got 1"):
        DiffusionNet(1, 0, 1)
