import itertools
import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn import FunctionalAttention
from funcattn.nn import LatticeDistances, Stencil

pytestmark = pytest.mark.usefixtures("in_chunks")

SMALL = partial(FunctionalAttention, heads=2, bases=5)


@pytest.mark.parametrize("space", [1, 2, 3])
@pytest.mark.parametrize("inputs", [0, 1, 3])
@pytest.mark.parametrize("n", [1, 3, 40], ids=lambda n: f"{n} points")
def test_takes_any_number_of_points_and_inputs_in_one_two_and_three_dimensions(
    space: int, inputs: int, n: int, made: Any, draw: Any
) -> None:
    model = made("transformer", space, inputs, outputs=2)
    out = model(**draw(model, n, samples=2))
    assert out.shape == (2, n, 2)
    assert out.isfinite().all()


def test_is_lift_blocks_and_head(made: Any, uniform: Any, assert_equal_to_rounding: Any) -> None:
    model = made("transformer", time=True)
    positions, values = uniform(2, 9, 2), uniform(2, 9, 1)
    time, weights = uniform(2), uniform(2, 9)

    def mlp(layer: nn.Module, x: Tensor) -> Tensor:
        return layer.contract(F.gelu(layer.expand(x)))

    x = mlp(model.lift, torch.cat([positions, values], dim=-1)) + model.time(time)[:, None]
    for block in model.blocks:
        x = x + block.attention(block.attention_norm(x), weights=weights)
        x = x + mlp(block.mlp, block.mlp_norm(x))
    expected = model.head(model.head_norm(x))
    out = model(positions, values, time=time, weights=weights)
    assert_equal_to_rounding(out, expected)


def test_the_networks_at_each_point_have_the_given_width(made: Any) -> None:
    narrow, wide = made("transformer", mlp_ratio=0.5), made("wide mlp")
    assert [block.mlp.expand.out_features for block in narrow.blocks] == [4, 4]
    assert [block.mlp.expand.out_features for block in wide.blocks] == [20, 20]


def test_lattice_distances_take_the_place_of_the_coordinates(made: Any, uniform: Any) -> None:
    encoding = LatticeDistances(2, per_axis=3)
    model, features = made("lattice"), made("transformer", space=9)
    features.load_state_dict(model.state_dict())
    positions, values = uniform(2, 7, 2), uniform(2, 7, 1)
    assert torch.equal(model(positions, values), features(encoding(positions), values))


def test_dropout_acts_in_training_only(made: Any, uniform: Any) -> None:
    model, plain = made("transformer", dropout=0.5), made("transformer")
    inputs = uniform(2, 7, 2), uniform(2, 7, 1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert not torch.equal(model.train()(*inputs), plain(*inputs))
    assert torch.equal(model.eval()(*inputs), plain(*inputs))


class TestSharedBasis:
    def test_layers_use_the_very_same_modules_and_parameters_are_listed_once(
        self, made: Any
    ) -> None:
        model, separate = made("shared basis", layers=3), made("transformer", layers=3)
        first, *others = (block.attention for block in model.blocks)
        for layer in others:
            assert layer.basis is first.basis
            assert layer.key_basis is first.basis
            assert layer.features is first.features
            assert layer.to_query is not first.to_query
        parameters = list(model.parameters())
        assert len({id(p) for p in parameters}) == len(parameters)
        shared = sum(p.numel() for m in (first.basis, first.features) for p in m.parameters())
        saved = sum(p.numel() for p in separate.parameters()) - sum(p.numel() for p in parameters)
        assert saved == 2 * shared

    def test_two_bases_a_layer_are_both_shared(self, made: Any) -> None:
        def attention(width: int) -> FunctionalAttention:
            other = FunctionalAttention(width, heads=2, bases=5).basis
            return SMALL(width, key_basis=other, maps="points")

        model = made("shared basis", attention=attention)
        first, second = (block.attention for block in model.blocks)
        assert second.basis is first.basis
        assert second.key_basis is first.key_basis
        assert second.key_basis is not second.basis

    @pytest.mark.parametrize("active", [0, 1, 2])
    def test_gradients_flow_to_it_from_every_layer(
        self, active: int, made: Any, uniform: Any
    ) -> None:
        model = made("shared basis", layers=3)
        for i, block in enumerate(model.blocks):
            if i != active:  # the others attend to no effect
                nn.init.zeros_(block.attention.to_output.weight)
        positions = uniform(2, 9, 2)
        model(positions, positions[..., :1]).square().sum().backward()
        for parameter in model.blocks[0].attention.basis.parameters():
            assert parameter.grad.any()

    def test_a_layer_without_a_basis_is_refused(self, made: Any) -> None:
        with pytest.raises(TypeError, match="share_basis: SoftmaxAttention has no basis to share"):
            made("softmax baseline", share_basis=True)


def test_stencils_give_nearly_the_same_field_on_a_finer_grid(made: Any) -> None:
    """With quadrature weights, what changes with the resolution falls as the spacing squared."""
    model = made("transformer", attention=partial(SMALL, features=partial(Stencil, reach=1 / 8)))

    def on(points: int) -> Tensor:
        axis = torch.linspace(0, 1, points, dtype=torch.float64)
        positions = torch.cartesian_prod(axis, axis)[None]
        values = torch.sin(3 * positions[..., :1]) * positions[..., 1:]
        trapezoid = torch.ones(points, dtype=torch.float64)
        trapezoid[[0, -1]] = 0.5
        weights = torch.outer(trapezoid, trapezoid).view(1, -1)
        out = model(positions, values, grid=(points, points), weights=weights)
        return out.detach().view(points, points)

    differences = [(on(n) - on(2 * n - 1)[::2, ::2]).abs().max().item() for n in (9, 17, 33)]
    orders = [math.log2(a / b) for a, b in itertools.pairwise(differences)]
    assert differences[0] < 0.05
    assert orders == pytest.approx([2, 2], abs=0.25)
