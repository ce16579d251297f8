"""Networks start as their authors' public codes do."""

import math
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor, nn

from funcattn.models.cno import CNO
from funcattn.models.deeponet import DeepONet
from funcattn.models.diffusion_net import DiffusionNet
from funcattn.models.f_fno import FactorisedLayer
from funcattn.models.factformer import AxisKernel
from funcattn.models.geo_fno import GeoFNO
from funcattn.models.gnot import GNOT
from funcattn.models.graph_unet import GraphUNet, Pooling
from funcattn.models.graphs import GraphSAGE, MeshGraphNet
from funcattn.models.ht_net import HTNet
from funcattn.models.lno import LNO
from funcattn.models.lsm import NeuralSpectralBlock
from funcattn.models.mwt import MWT
from funcattn.models.oformer import OFormer, RotaryGalerkin
from funcattn.models.ono import ONO
from funcattn.models.pcnn import GaussianConvolution
from funcattn.models.pod_deeponet import PODDeepONet
from funcattn.models.sphnet import HarmonicConvolution
from funcattn.models.u_fno import UFNO
from funcattn.models.wno import WNO
from funcattn.nn.baselines.flare import FlareAttention
from funcattn.nn.baselines.lamo import Hydra, LamoAttention
from funcattn.nn.baselines.transolver_plus import TransolverPlusAttention


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
        lambda: CNO(2, 1, 1, width=16, levels=1, blocks=1),
        lambda: GraphSAGE(2, 1, 1, width=64),
        lambda: GraphUNet(2, 1, 1, width=16, levels=2),
        lambda: DiffusionNet(2, 1, 1, width=64, layers=1),
    ],
    ids=["lno", "gnot", "cno", "graphsage", "graph_unet", "diffusion_net"],
)
def test_some_start_as_pytorch_does(network: Callable[[], nn.Module]) -> None:
    large = 0
    for layer in network().modules():
        if isinstance(layer, nn.Linear | nn.Conv2d) and layer.weight.numel() > 1000:
            bound = layer.weight[0].numel() ** -0.5
            uniform(layer.weight.detach(), -bound, bound)
            large += 1
    assert large


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


def near_the_identity(weight: Tensor) -> None:
    """Each head an orthogonal matrix and the identity, over the width."""
    width = weight.shape[1]
    for head in weight.detach().split(width):
        rotation = width * head - torch.eye(width)
        torch.testing.assert_close(rotation @ rotation.T, torch.eye(width), rtol=0, atol=1e-4)


def test_oformer_crosses_near_the_identity_and_encodes_with_such_queries() -> None:
    network = OFormer(2, 1, 1, width=32, layers=1, heads=2, latent=32)
    encoder = next(m for m in network.blocks.modules() if isinstance(m, RotaryGalerkin))
    for layer in (network.cross.to_query, network.cross.to_key, network.cross.to_value):
        near_the_identity(layer.weight)
    near_the_identity(encoder.to_query.weight)
    for layer in (encoder.to_key, encoder.to_value):
        uniform(layer.weight.detach(), -(32**-0.5), 32**-0.5)


def test_factformer_has_small_queries_and_keys() -> None:
    kernel = AxisKernel(48, heads=2, channels=16)
    bound = 0.02 * math.sqrt(6 / (48 + 2 * 16))
    for layer in (kernel.to_query, kernel.to_key):
        uniform(layer.weight.detach(), -bound, bound)


@pytest.mark.parametrize(
    ("layer", "bound"),
    [
        (lambda: GaussianConvolution(2, 24, 40), math.sqrt(6 / (40 * (24 + 9)))),
        (lambda: GaussianConvolution(3, 24, 40), math.sqrt(6 / (40 * (24 + 27)))),
        (lambda: HarmonicConvolution(24, 40, 0.1), math.sqrt(6 / (40 * 24 * (2 + 4)))),
    ],
    ids=["pcnn in a plane", "pcnn in space", "sphnet"],
)
def test_convolutions_on_points_are_uniform_by_the_axes_of_their_kernels(
    layer: Callable[[], nn.Module], bound: float
) -> None:
    (weight,) = values(layer(), "weight")
    uniform(weight, -bound, bound)


def test_graph_unet_scores_nodes_by_a_uniform_direction() -> None:
    uniform(Pooling(2500).direction.detach(), -1 / 50, 1 / 50)


def test_ht_net_has_small_maps_and_hardly_any_multipliers() -> None:
    network = HTNet(2, 1, 1, width=16, levels=2, modes=(4, 6), spectral=2)
    for layer in (*maps(network), network.expand, network.contract):
        if layer.weight.numel() > 1000:
            assert float(layer.weight.detach().std()) == pytest.approx(0.02, rel=0.1)
        assert layer.bias is None or not layer.bias.any()
    # As the public code says it, for the modes of one sign of the first axis.
    gain = math.sqrt((16 + 16) / 16) / (16 * 16)
    public = nn.init.xavier_uniform_(torch.empty(16, 16, 4, 6, 2), gain=gain)
    for parts in values(network, "parts.0"):
        uniform(parts, -float(public.max()) * 1.01, float(public.max()) * 1.01)
        assert float(parts.std()) == pytest.approx(float(public.std()), rel=0.05)
    for bias in values(network.multipliers, "bias"):
        assert float(bias.abs().max()) <= 1 / 12  # one over the root of 9 x 16


@pytest.mark.parametrize(
    "layer",
    [
        lambda: FlareAttention(64, heads=2, latents=32),
        lambda: LamoAttention(64, heads=2, bases=32),
        lambda: TransolverPlusAttention(64, heads=2, bases=32),
    ],
    ids=["flare", "lamo", "transolver_plus"],
)
def test_attentions_have_small_maps_and_orthogonal_slices(layer: Callable[[], nn.Module]) -> None:
    for name, part in layer().named_modules():
        if isinstance(part, nn.Linear) and name.endswith("scores"):
            product = part.weight.detach() @ part.weight.detach().T
            torch.testing.assert_close(product, torch.eye(32), rtol=0, atol=1e-5)
        elif isinstance(part, nn.Linear) and part.weight.numel() > 1000:
            assert float(part.weight.detach().std()) == pytest.approx(0.02, rel=0.1)
        if isinstance(part, nn.Linear) and not name.endswith("skip"):
            assert part.bias is None or not part.bias.any()


def test_flare_has_wider_latents() -> None:
    latents = FlareAttention(64, heads=2, latents=32).latents.detach()
    assert float(latents.std()) == pytest.approx(0.1, rel=0.05)


def test_lamo_starts_the_state_space_as_hydra() -> None:
    hydra = Hydra(512, states=4, expand=4)
    steps = torch.nn.functional.softplus(hydra.step.detach()).log()
    uniform(steps, math.log(1e-3) - 1e-5, math.log(0.1) + 1e-5)
    assert not hydra.log_decay.any()
    assert (hydra.skip.bias == 1).all()
    assert (hydra.gain == 1).all()
