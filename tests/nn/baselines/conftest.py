"""Small layers, random fields, and a layer beside its obvious form."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

if TYPE_CHECKING:
    from funcattn.nn import Points

# funcattn is imported in functions: not before the shape checks are in place.

WIDTH, HEADS = 8, 2


@pytest.fixture
def made() -> Callable[..., nn.Module]:
    """Makes small layers in float64, the same in every run, with parameters of order one."""

    def make(kind: type[nn.Module], *, seed: int = 0, **options: object) -> nn.Module:
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(seed)
            layer = kind(WIDTH, HEADS, **options).double()
            for parameter in layer.parameters():
                parameter += torch.randn_like(parameter) / 2
        return layer

    return make


@pytest.fixture
def random(generator: torch.Generator) -> Callable[..., Tensor]:
    """Draws normal numbers in float64."""
    return partial(torch.randn, dtype=torch.float64, generator=generator)


@pytest.fixture(params=[False, True], ids=["self", "cross"])
def cross(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(params=[False, True], ids=["all points", "masked"])
def masked(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(params=[False, True], ids=["alike", "weighted"])
def weighted(request: pytest.FixtureRequest) -> bool:
    return request.param


@dataclass(frozen=True)
class Comparison:
    """A layer beside its obvious form, in value and every gradient."""

    cross: bool
    masked: bool
    weighted: bool
    random: Callable[..., Tensor]
    uniform: Callable[..., Tensor]

    def by_samples(
        self,
        layer: nn.Module,
        obvious: Callable[..., Tensor],
        *,
        source: Sequence[int] = (11, 10, 6),
        queries: Sequence[int] = (9, 8, 5),
        positions_dims: int = 0,
        idle: Sequence[str] = (),
    ) -> None:
        """obvious(x, source, weights, layer=, here=, there=): a sample, (n c), before the last map.

        here, there: positions and weights of x and of the source; weights: those of the source.
        They are 0 at masked points.
        source, queries: how many points are real in each sample of the source, and of x where it is
        not the source.
        idle: parameters that change nothing.
        """
        field, there = self._drawn(source, positions_dims)
        x, here = self._drawn(queries, positions_dims) if self.cross else (field, there)
        sides = {
            name: (getattr(here, name), getattr(there, name))
            for name in ("positions", "mask", "weights")
        }
        if self.cross:
            out = layer(x, field, **sides)
        else:
            out = layer(x, **{name: one for name, (one, _) in sides.items()})

        samples = []
        for b in range(len(x)):
            at_x, at_field = _of_sample(x, here, b), _of_sample(field, there, b)
            samples.append(
                obvious(x[b], field[b], at_field.weights, layer=layer, here=at_x, there=at_field)
            )
        expected = F.linear(torch.stack(samples), layer.to_output.weight, layer.to_output.bias)
        torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-11)

        cotangent = self.random(out.shape)
        named = {"x": x, "source": field, **dict(layer.named_parameters())}
        if positions_dims:
            named |= {"positions": here.positions, "positions of the source": there.positions}
        ours, theirs = (
            torch.autograd.grad((result * cotangent).sum(), list(named.values()))
            for result in (out, expected)
        )
        for name, one, other in zip(named, ours, theirs, strict=True):
            if name in idle:
                assert one.norm() + other.norm() < 1e-13, name
                continue
            assert other.norm() > 1e-6, name
            assert (one - other).norm() < 1e-10 * other.norm(), name

    def by_heads(self, layer: nn.Module, obvious: Callable[..., Tensor], **options: object) -> None:
        """obvious(query, key, value, weights, head=, ...): a head of a sample, (n d)."""

        def of_sample(x: Tensor, source: Tensor, weights: Tensor, **more: object) -> Tensor:
            maps = ((layer.to_query, x), (layer.to_key, source), (layer.to_value, source))
            heads = zip(
                *(F.linear(p, m.map.weight, m.map.bias).chunk(HEADS, dim=-1) for m, p in maps),
                strict=True,
            )
            return torch.cat(
                [obvious(*fields, weights, head=h, **more) for h, fields in enumerate(heads)],
                dim=-1,
            )

        self.by_samples(layer, of_sample, **options)

    def _drawn(self, real: Sequence[int], positions_dims: int) -> tuple[Tensor, "Points"]:
        """Features at points, and what else there is of them."""
        from funcattn.nn import Points

        shape = len(real), max(real)
        return self.random(*shape, WIDTH).requires_grad_(), Points(
            self.uniform(*shape, positions_dims).requires_grad_() if positions_dims else None,
            mask=torch.arange(max(real)) < torch.tensor(real)[:, None] if self.masked else None,
            weights=self.uniform(*shape) + 0.1 if self.weighted else None,
        )


def _of_sample(x: Tensor, points: "Points", b: int) -> "Points":
    from funcattn.nn import Points

    weights = x.new_ones(x.shape[1]) if points.weights is None else points.weights[b]
    return Points(
        None if points.positions is None else points.positions[b],
        weights=weights if points.mask is None else weights * points.mask[b],
    )


@pytest.fixture
def compared(
    cross: bool,
    masked: bool,
    weighted: bool,
    random: Callable[..., Tensor],
    uniform: Callable[..., Tensor],
) -> Comparison:
    """For one set of points or two, with and without masks and weights."""
    return Comparison(cross, masked, weighted, random, uniform)
