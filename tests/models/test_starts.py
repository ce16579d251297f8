"""Networks start as their authors' public codes do."""

import math
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor, nn

from funcattn.models.deeponet import DeepONet
from funcattn.models.f_fno import FactorisedLayer
from funcattn.models.geo_fno import GeoFNO
from funcattn.models.gnot import GNOT
from funcattn.models.graphs import MeshGraphNet
from funcattn.models.lno import LNO
from funcattn.models.lsm import NeuralSpectralBlock
from funcattn.models.mwt import MWT
from funcattn.models.ono import ONO
from funcattn.models.pod_deeponet import PODDeepONet
from funcattn.models.u_fno import UFNO
from funcattn.models.wno import WNO


@pytest.fixture(autouse=True)
def _one_draw() -> None:
    torch.manual_seed(0)


def values(network: nn.Module, ending: str) -> list[Tensor]:
    found = [p.detach() for name, p in network.named_parameters() if name.endswith(ending)]
    assert found, f"no parameter ends with {ending}"
    return found


def maps(network: nn.Module) -> Iterable[nn.Linear]:
    return (module for module in network.modules() if isinstance(module, nn.Linear))


def uniform(drawn: Tensor, low: float, high: float) -> None:
    """Within the bounds, near both, with the deviation of that law."""
    assert low <= float(drawn.min())
    assert float(drawn.max()) <= high
    assert float(drawn.std()) == pytest.approx((high - low) / math.sqrt(12), rel=0.1)


@pytest.mark.parametrize(
    ("network", "name", "largest"),
    [
        (lambda: UFNO(2, 1, 1, width=12, layers=2, modes=4), "parts.0", 1 / 12**2),
        (lambda: WNO(2, 1, 1, width=10, layers=1, modes=4), "parts", 1 / 10**2),
        (lambda: MWT(1, 1, 1, order=3, channels=4, layers=1, modes=8), "parts", 1 / 12**2),
    ],
    ids=["u_fno", "wno", "mwt in one dimension"],
)
def test_modes_are_uniform_and_small(
    network: Callable[[], nn.Module], name: str, largest: float
) -> None:
    for parts in values(network(), name):
        uniform(parts, 0, largest)


def test_geo_fno_has_the_missing_mean_of_its_last_transform() -> None:
    network = GeoFNO(2, 0, 1, width=10, modes=4, latent=9)
    uniform(network.to_grid.parts.detach(), 0, 1 / 100)
    uniform(network.to_points.parts.detach(), 0, 81 / 100)
    for parts in values(network, "parts.0"):
        uniform(parts, 0, 1 / 100)


@pytest.mark.parametrize("space", [2, 3])
def test_mwt_on_more_axes_is_normal_by_glorots_rule(space: int) -> None:
    network = MWT(space, 1, 1, order=2, channels=2, layers=1, modes=4, head=64)
    width = 2 * 2**space
    (parts,) = values(network, "parts")
    # As PyTorch's own start of a complex kernel does, whose deviation is that of both parts.
    kernel = nn.init.xavier_normal_(torch.zeros(width, width, *(4,) * space, dtype=torch.complex64))
    deviation = float(torch.view_as_complex(parts).std())
    assert deviation == pytest.approx(float(kernel.std()), rel=0.1)
    assert deviation == pytest.approx((width * 4**space) ** -0.5, rel=0.1)
    expand = network.expand.weight.detach()
    assert float(expand.std()) == pytest.approx(math.sqrt(2 / (width + 64)), rel=0.15)


@pytest.mark.parametrize("kind", [DeepONet, PODDeepONet])
def test_deeponets_are_normal_by_glorots_rule(kind: type[DeepONet] | type[PODDeepONet]) -> None:
    for layer in maps(kind(2, 1, 1, sensors=60, width=80, layers=2, bases=40)):
        wanted = math.sqrt(2 / (layer.in_features + layer.out_features))
        assert float(layer.weight.detach().std()) == pytest.approx(wanted, rel=0.15)
        assert not layer.bias.any()


def test_meshgraphnet_is_a_cut_normal_law_by_its_inputs() -> None:
    for layer in maps(MeshGraphNet(2, 1, 1, width=64, layers=1)):
        weight, wanted = layer.weight.detach(), layer.in_features**-0.5
        assert float(weight.abs().max()) <= 2 * wanted
        if weight.numel() > 1000:
            # Of a normal law that is cut at two deviations 0.88 remains.
            assert float(weight.std()) == pytest.approx(0.88 * wanted, rel=0.05)
        assert not layer.bias.any()


@pytest.mark.parametrize(
    "network",
    [
        lambda: LNO(2, 1, 1, width=64, layers=1, heads=2, latents=32),
        lambda: GNOT(2, 1, 1, width=64, layers=1, heads=2, experts=2),
    ],
    ids=["lno", "gnot"],
)
def test_some_start_as_pytorch_does(network: Callable[[], nn.Module]) -> None:
    for layer in maps(network()):
        if layer.weight.numel() > 1000:
            bound = layer.in_features**-0.5
            uniform(layer.weight.detach(), -bound, bound)


def test_ono_starts_near_zero_and_with_even_eigenvalues() -> None:
    network = ONO(2, 1, 1, width=64, layers=2, heads=2, bases=32)
    for layer in maps(network):
        if layer.weight.numel() > 1000:
            assert float(layer.weight.detach().std()) == pytest.approx(0.02, rel=0.05)
        assert layer.bias is None or not layer.bias.any()
    for eigenvalues in values(network, "eigenvalues"):
        assert not eigenvalues.any()


def test_lsm_has_small_positive_tokens_and_coefficients() -> None:
    block = NeuralSpectralBlock(64, heads=4, tokens=8, waves=12, patches=1)
    uniform(block.latent.detach(), 0, 1 / 64)
    uniform(block.coefficients.detach(), 0, 1 / 64)


def test_f_fno_is_normal_by_glorots_rule() -> None:
    public = nn.init.xavier_normal_(torch.empty(16, 16, 8, 2))
    for weight in FactorisedLayer(16, (8, 8), 2).weights:
        assert float(weight.detach().std()) == pytest.approx(float(public.std()), rel=0.05)
