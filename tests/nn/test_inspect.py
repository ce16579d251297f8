"""Looking inside a layer, and inside all layers of a network."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

import funcattn
from funcattn import FunctionalAttention, OperatorTransformer
from funcattn.nn import FourierBasis, LearnedBasis
from funcattn.nn.baselines import Intention, SoftmaxAttention, TransolverAttention
from funcattn.nn.points import Points
from funcattn.ops import Convex, lift, projector, ridge_system

EXECUTIONS = ["plain", "stored", "streamed"]


def build(execution: str = "plain", **options: object) -> FunctionalAttention:
    torch.manual_seed(0)
    layer = FunctionalAttention(16, 2, 5, execution=execution, **options).double()
    for parameter in layer.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
    return layer


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(2, 23, 16, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_what_is_seen_is_what_the_layer_computes(execution: str, x: Tensor) -> None:
    layer = build(execution)
    seen = layer.inspect(x)
    assert seen.layer is layer
    basis = layer.basis(x, Points())
    torch.testing.assert_close(seen.basis, basis.detach())
    assert seen.key_basis is seen.basis
    field = layer.features(x, Points()).unflatten(-1, (2, -1)).transpose(1, 2)
    coefficients = projector(basis, "average")(field)
    for name, weights in (("query", layer.to_query), ("key", layer.to_key)):
        wanted = weights(coefficients).detach()
        torch.testing.assert_close(getattr(seen, name), wanted, rtol=1e-11, atol=1e-12)
    value = layer.to_value(coefficients).detach()
    torch.testing.assert_close(seen.value, value, rtol=1e-11, atol=1e-12)
    system = ridge_system(seen.key, ridge=Convex(layer.ridge().weight.detach()))
    torch.testing.assert_close(seen.system, system)
    torch.testing.assert_close(seen.condition, torch.linalg.cond(system))
    # The map takes the values to the output.
    out = lift(seen.basis, seen.map @ seen.value).transpose(1, 2).flatten(2)
    torch.testing.assert_close(layer.to_output(out), layer(x), rtol=1e-10, atol=1e-12)


def test_both_sides_of_a_context_are_seen(x: Tensor) -> None:
    layer = build(key_basis=LearnedBasis(16, 2, 5).double())
    context = x[:, :7].flip(1)
    seen = layer.inspect(x, context)
    assert isinstance(seen.basis, Tensor)
    assert isinstance(seen.key_basis, Tensor)
    assert seen.basis.shape == (2, 2, 23, 5)
    assert seen.key_basis.shape == (2, 2, 7, 5)
    out = lift(seen.basis, seen.map @ seen.value).transpose(1, 2).flatten(2)
    torch.testing.assert_close(layer.to_output(out), layer(x, context))


def test_looking_changes_nothing(x: Tensor) -> None:
    layer = build(dropout=0.5)
    torch.manual_seed(3)
    before = layer(x)
    torch.manual_seed(3)
    layer.inspect(x)
    assert torch.equal(layer(x), before)
    assert layer.watch is None


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_every_call_of_a_network_is_seen_in_its_order(execution: str) -> None:
    network = OperatorTransformer(
        2, 0, 1, width=16, layers=3,
        attention=partial(FunctionalAttention, heads=2, bases=5, execution=execution),
    )  # fmt: skip
    positions = torch.rand(1, 30, 2)
    with funcattn.inspect(network) as layers:
        out = network(positions)
        out.sum().backward()
        network(positions)
    assert [layer.layer for layer in layers] == 2 * [block.attention for block in network.blocks]
    for once, again in zip(layers[:3], layers[3:], strict=True):
        assert torch.equal(once.system, again.system)
        assert not once.system.requires_grad
    network(positions)
    assert len(layers) == 6


def test_bases_are_kept_only_if_wanted(x: Tensor) -> None:
    layer = build()
    with funcattn.inspect(layer, basis=False) as seen:
        layer(x)
    assert seen[0].basis is None
    assert seen[0].system is not None


def test_those_who_look_at_once_do_not_disturb_each_other(x: Tensor) -> None:
    layer = build()
    with funcattn.inspect(layer) as outer:
        layer(x)
        layer.inspect(x)
        layer(x)
    assert len(outer) == 2


def test_fast_transforms_and_encoded_meshes_are_seen(x: Tensor) -> None:
    positions = torch.rand(2, 23, 2, dtype=torch.float64)
    layer = build(basis=FourierBasis([1, 1]), projection="inner_product")
    with funcattn.inspect(layer) as seen:
        layer.encode(x, positions=positions)
    torch.testing.assert_close(seen[0].system, layer.inspect(x, positions=positions).system)


def test_baselines_show_what_they_have(x: Tensor) -> None:
    transolver = TransolverAttention(16, 2, 5).double().inspect(x)
    assert isinstance(transolver.basis, Tensor)
    assert transolver.query.shape == (2, 2, 5, 8)
    with pytest.raises(ValueError, match="map: expected a layer of functional attention"):
        _ = transolver.map
    with pytest.raises(ValueError, match="condition: expected a layer that solves a system"):
        _ = transolver.condition
    assert Intention(16, 2).double().inspect(x).condition.shape == (2, 2)
    with pytest.raises(ValueError, match=r"expected a layer with a basis .* got SoftmaxAttention"):
        SoftmaxAttention(16, 2).double().inspect(x)
