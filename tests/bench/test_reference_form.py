"""The reference form is the layer, said in another way."""

import pytest
import torch
from torch import Tensor, nn

from funcattn.bench.candidates import NETWORKS, OURS, PLAIN, REFERENCE, Shape, give_weights
from funcattn.bench.reference_form import ReferenceForm
from funcattn.nn import FunctionalAttention

SHAPES = [(24, 4, 7), (12, 1, 5), (12, 1, 17), (20, 5, 3)]


def results(layer: nn.Module, x: Tensor, cotangent: Tensor) -> dict[str, Tensor]:
    """Output and all gradients."""
    x = x.clone().requires_grad_()
    out = layer(x)
    weights = dict(layer.named_parameters())
    grads = torch.autograd.grad(out, [x, *weights.values()], cotangent)
    return {"out": out.detach(), **dict(zip(["x", *weights], grads, strict=True))}


@pytest.mark.parametrize(("width", "heads", "bases"), SHAPES, ids=lambda n: str(n))
@pytest.mark.parametrize("points", [1, 37])
def test_it_equals_the_layer_with_every_gradient(
    width: int, heads: int, bases: int, points: int, generator: torch.Generator
) -> None:
    ours = FunctionalAttention(width, heads, bases, execution="plain").double()
    plain = ReferenceForm(width, heads, bases).double()
    give_weights(ours)
    plain.load_state_dict(ours.state_dict())
    x, cotangent = torch.randn(2, 3, points, width, generator=generator, dtype=torch.float64)
    expected = results(ours, x, cotangent)
    for name, value in results(plain, x, cotangent).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-9, atol=1e-10, msg=name)


def test_in_a_network_it_equals_the_layer(generator: torch.Generator) -> None:
    shape = Shape(16, 5, 2)
    positions, values = torch.rand(2, 1, 30, 2, generator=generator).double()
    outs = []
    for name in (OURS, PLAIN, REFERENCE):
        model = NETWORKS[name].build(shape, 30).double()
        give_weights(model)
        outs.append(model(positions, values[..., :1]))
    torch.testing.assert_close(outs[0], outs[1], rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(outs[2], outs[1], rtol=1e-9, atol=1e-10)


@pytest.mark.usefixtures("as_a_user")
def test_what_it_cannot_do_it_refuses() -> None:
    x = torch.randn(1, 5, 8)
    with pytest.raises(ValueError, match="weights: expected none in the reference form"):
        ReferenceForm(8, 2, 3)(x, weights=torch.ones(1, 5))
