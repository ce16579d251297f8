"""What the baselines have in common, or most of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from funcattn import OperatorTransformer
from funcattn.nn import Stencil
from funcattn.nn.baselines import (
    Attention,
    FlareAttention,
    FourierAttention,
    GalerkinAttention,
    Intention,
    LamoAttention,
    LinearAttention,
    LinearNOAttention,
    LinformerAttention,
    LowRankSpatialAttention,
    NystromAttention,
    PerceiverAttention,
    PerformerAttention,
    SoftmaxAttention,
    TransolverAttention,
    TransolverPlusAttention,
)

WIDTH, HEADS = 8, 2
POINTS, LANDMARKS = 21, 8


@dataclass(frozen=True)
class Baseline:
    """A layer, the options that make it small, and what sets it apart."""

    kind: type[Attention]
    options: Mapping[str, object] = field(default_factory=dict)
    linear: bool = True
    """In the number of points."""
    ordered: bool = False
    """The order of the points matters."""
    fixed: bool = False
    """It is for one number of points."""
    queries_meet: bool = False
    """What a query gets from a context depends on the other queries."""

    def for_points(self, points: int) -> dict[str, object]:
        return {**self.options, **({"points": points} if self.fixed else {})}


BASELINES = {
    "FLARE": Baseline(FlareAttention, {"latents": 5}),
    "Fourier": Baseline(FourierAttention),
    "Galerkin": Baseline(GalerkinAttention),
    "Intention": Baseline(Intention),
    "LaMO": Baseline(LamoAttention, {"bases": 5, "states": 3}),
    "linear": Baseline(LinearAttention),
    "LinearNO": Baseline(LinearNOAttention, {"bases": 5}),
    # Its projections have a column for each point.
    "Linformer": Baseline(LinformerAttention, {"projected": 3}, ordered=True, fixed=True),
    "LRSA": Baseline(LowRankSpatialAttention, {"latents": 5}),
    # Its landmarks are means over runs of points, of queries as of keys.
    "Nystromformer": Baseline(
        NystromAttention, {"landmarks": LANDMARKS}, ordered=True, queries_meet=True
    ),
    "Perceiver": Baseline(PerceiverAttention, {"latents": 5}),
    "Performer": Baseline(PerformerAttention, {"random_features": 16}),
    "softmax": Baseline(SoftmaxAttention, linear=False),
    # Its queries are averages over the points.
    "Transolver": Baseline(TransolverAttention, {"bases": 5}, queries_meet=True),
    "Transolver++": Baseline(
        TransolverPlusAttention, {"bases": 5, "noise": False}, queries_meet=True
    ),
}
VARIANTS = {
    "Fourier with positions": Baseline(FourierAttention, {"positions_dims": 2}),
    "Galerkin with positions": Baseline(GalerkinAttention, {"positions_dims": 2}),
    "Nystromformer with a convolution": Baseline(NystromAttention, {"landmarks": 4, "skip": 3}),
}


def baselines(among: Mapping[str, Baseline] = BASELINES, **traits: bool) -> pytest.MarkDecorator:
    """Those with these traits."""
    chosen = {
        name: baseline
        for name, baseline in among.items()
        if all(getattr(baseline, trait) == value for trait, value in traits.items())
    }
    return pytest.mark.parametrize("baseline", chosen.values(), ids=chosen.keys())


@pytest.fixture
def layer(baseline: Baseline, made: Any) -> Attention:
    return made(baseline.kind, **baseline.for_points(POINTS))


class TestPointsAreASetWithWeights:
    @baselines(ordered=False)
    def test_permuting_points_permutes_results(
        self,
        layer: Attention,
        random: Any,
        uniform: Any,
        generator: torch.Generator,
        assert_equal_to_rounding: Any,
    ) -> None:
        x, weights = random(2, POINTS, WIDTH), uniform(2, POINTS)
        order = torch.randperm(POINTS, generator=generator)
        permuted, there = x[:, order], weights[:, order]
        plain, weighted = layer(x), layer(x, weights=weights)
        assert_equal_to_rounding(layer(permuted), plain[:, order])
        assert_equal_to_rounding(layer(permuted, weights=there), weighted[:, order])
        # The same points as a context.
        assert_equal_to_rounding(layer(x, permuted), plain)
        assert_equal_to_rounding(layer(x, permuted, weights=(weights, there)), weighted)

    @baselines(ordered=False)
    def test_weight_two_is_two_copies(
        self, layer: Attention, cross: bool, random: Any, assert_equal_to_rounding: Any
    ) -> None:
        x, weights = random(2, POINTS, WIDTH), torch.ones(2, POINTS, dtype=torch.float64)
        weights[:, :3] = 2
        copied = torch.cat([x, x[:, :3]], dim=1)
        if cross:
            weighted = layer(x, x.flip(1), weights=(None, weights.flip(1)))
            assert_equal_to_rounding(weighted, layer(x, copied))
        else:
            weighted = layer(x, weights=weights)
            assert_equal_to_rounding(weighted, layer(copied)[:, :POINTS])
        assert (weighted - layer(x)).abs().max() > 1e-3

    @baselines(fixed=False)
    def test_repeating_all_points_in_place_changes_nothing(
        self, layer: Attention, random: Any, assert_equal_to_rounding: Any
    ) -> None:
        x = random(2, 3 * LANDMARKS, WIDTH)
        repeated = layer(x.repeat_interleave(3, dim=1))
        assert_equal_to_rounding(repeated, layer(x).repeat_interleave(3, dim=1))

    @baselines()
    def test_only_ratios_of_weights_matter(
        self, layer: Attention, random: Any, uniform: Any, assert_equal_to_rounding: Any
    ) -> None:
        x, weights = random(2, POINTS, WIDTH), uniform(2, POINTS)
        assert_equal_to_rounding(layer(x, weights=5 * weights), layer(x, weights=weights))
        for equal in (0.01, 0.3):
            assert_equal_to_rounding(layer(x, weights=torch.full_like(weights, equal)), layer(x))


def attended(layer: Attention, side: str, x: Tensor, other: Tensor, **of_x: Any) -> Tensor:
    """From x to itself, from x as queries to the other, or from the other to x as context."""
    if side == "itself":
        return layer(x, **of_x)
    if side == "queries":
        return layer(x, other, **{name: (given, None) for name, given in of_x.items()})
    return layer(other, x, **{name: (None, given) for name, given in of_x.items()})


@pytest.mark.parametrize("side", ["itself", "queries", "context"])
class TestMaskedPoints:
    @pytest.fixture
    def mask(self, generator: torch.Generator) -> Tensor:
        """Samples with all points and with few, in front and anywhere."""
        real = torch.tensor([[POINTS], [LANDMARKS - 1], [LANDMARKS], [12]])
        anywhere = torch.rand(4, POINTS, generator=generator).argsort(-1) < real
        return torch.cat([torch.arange(POINTS) < real, anywhere])

    @pytest.fixture
    def weights(self, mask: Tensor, weighted: bool, uniform: Any) -> Tensor | None:
        return uniform(mask.shape) if weighted else None

    @baselines(fixed=False)
    def test_they_are_dropped(
        self,
        layer: Attention,
        side: str,
        mask: Tensor,
        weights: Tensor | None,
        random: Any,
        assert_equal_to_rounding: Any,
    ) -> None:
        x, other = random(*mask.shape, WIDTH), random(len(mask), 17, WIDTH)
        out = attended(layer, side, x, other, mask=mask, weights=weights)
        for b, kept in enumerate(mask):
            one = slice(b, b + 1)
            there = None if weights is None else weights[one, kept]
            alone = attended(layer, side, x[one, kept], other[one], weights=there)
            assert_equal_to_rounding(out[one] if side == "context" else out[one, kept], alone)
        # Points without weight are as good as masked.
        without = mask.double() if weights is None else weights * mask
        same = attended(layer, side, x, other, weights=without)
        real = ... if side == "context" else mask
        assert_equal_to_rounding(same[real], out[real])

    @baselines()
    def test_what_stands_there_does_not_matter(
        self,
        layer: Attention,
        side: str,
        mask: Tensor,
        weights: Tensor | None,
        random: Any,
        assert_equal_to_rounding: Any,
    ) -> None:
        x, other = random(2, *mask.shape, WIDTH)
        out = attended(layer, side, x, other, mask=mask, weights=weights)
        garbage = torch.where(mask[..., None], x, 1e6 * (x + 1))
        same = attended(layer, side, garbage, other, mask=mask, weights=weights)
        real = ... if side == "context" else mask
        assert_equal_to_rounding(same[real], out[real])


@baselines(queries_meet=False)
def test_queries_do_not_see_each_other(
    layer: Attention,
    random: Any,
    uniform: Any,
    generator: torch.Generator,
    assert_equal_to_rounding: Any,
) -> None:
    x, context = random(2, 30, WIDTH), random(2, POINTS, WIDTH)
    out = layer(x, context)
    order = torch.randperm(30, generator=generator)
    assert_equal_to_rounding(layer(x[:, order], context), out[:, order])
    assert_equal_to_rounding(layer(x[:, :2], context), out[:, :2])
    # Nor do their weights and masks matter.
    weights, mask = uniform(2, 30), torch.arange(30).expand(2, 30) < 3
    weighted = layer(x, context, weights=(weights, None), mask=(mask, None))
    assert_equal_to_rounding(weighted, out)


@baselines()
def test_a_sample_does_not_see_its_batch_neighbours(
    layer: Attention, weighted: bool, random: Any, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    scale = torch.tensor([0.1, 1.0, 3.0], dtype=torch.float64).view(-1, 1, 1)
    x = scale * random(3, POINTS, WIDTH)
    weights = uniform(3, POINTS) if weighted else None
    together = layer(x, weights=weights)
    for b in range(3):
        one = slice(b, b + 1)
        alone = layer(x[one], weights=None if weights is None else weights[one])
        assert_equal_to_rounding(together[one], alone)


@baselines()
def test_stencils_work_on_a_grid_and_not_with_a_context(
    baseline: Baseline,
    made: Any,
    random: Any,
    generator: torch.Generator,
    assert_equal_to_rounding: Any,
) -> None:
    layer = made(baseline.kind, features=partial(Stencil, reach=0.5), **baseline.for_points(12))
    x = random(2, 12, WIDTH)
    mask = torch.rand(2, 12, generator=generator) < 0.7
    out = layer(x, grid=(3, 4), mask=mask)
    # Masked points are not even seen by the stencils.
    changed = torch.where(mask[..., None], x, 10 * x + 1)
    assert_equal_to_rounding(layer(changed, grid=(3, 4), mask=mask)[mask], out[mask])
    with pytest.raises(ValueError, match=r"grid: .*context"):
        layer(x, x.clone(), grid=(3, 4))


@baselines(fixed=False)
def test_it_is_an_attention_of_the_operator_transformer(
    baseline: Baseline, random: Any, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    attention = partial(baseline.kind, heads=HEADS, **baseline.options)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = OperatorTransformer(2, 1, 1, width=WIDTH, layers=2, attention=attention).double()
    positions, values = uniform(2, POINTS, 2), random(2, POINTS, 1)
    mask = torch.arange(POINTS) < torch.tensor([[POINTS], [4]])
    out = model(positions, values, mask=mask)
    assert_equal_to_rounding(out[1:, :4], model(positions[1:, :4], values[1:, :4]))


@baselines()
def test_dropout_acts_in_training_only(
    baseline: Baseline, layer: Attention, made: Any, random: Any
) -> None:
    dropping = made(baseline.kind, dropout=0.5, **baseline.for_points(POINTS))
    x = random(2, POINTS, WIDTH)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        dropped = dropping.train()(x) == 0
    assert 0.3 < dropped.double().mean() < 0.7
    assert torch.equal(dropping.eval()(x), layer(x))


@baselines(linear=True)
class TestCost:
    def test_flops_are_linear_in_the_number_of_points(self, baseline: Baseline, made: Any) -> None:
        def flops(n: int) -> int:
            layer = made(baseline.kind, **baseline.for_points(n))
            # Fused kernels hide theirs.
            with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
                layer(torch.zeros(1, n, WIDTH, dtype=torch.float64))
            return counter.get_total_flops()

        assert flops(400) - flops(200) == 2 * (flops(200) - flops(100)) > 0

    def test_no_matrix_of_all_pairs_is_made(
        self, baseline: Baseline, made: Any, generator: torch.Generator
    ) -> None:
        layer = made(baseline.kind, **baseline.for_points(100_000)).float()
        # It would have 10^10 entries.
        with torch.no_grad():
            out = layer(torch.randn(1, 100_000, WIDTH, generator=generator))
        assert out.isfinite().all()


class TestPrecision:
    @baselines()
    def test_large_features_are_safe_in_float32(
        self, baseline: Baseline, masked: bool, made: Any, generator: torch.Generator
    ) -> None:
        """Scores reach 1e5, and the exponential of 89 is too large already."""
        layer = made(baseline.kind, **baseline.for_points(50)).float()
        x = (1e3 * torch.randn(2, 50, WIDTH, generator=generator)).requires_grad_()
        mask = torch.arange(50) < torch.tensor([[50], [41]]) if masked else None
        out = layer(x, mask=mask)
        assert out.isfinite().all()
        out.square().mean().backward()
        for name, tensor in {"x": x, **dict(layer.named_parameters())}.items():
            assert tensor.grad is not None, name
            assert tensor.grad.isfinite().all(), name

    @baselines(BASELINES | VARIANTS)
    @pytest.mark.parametrize("how", ["bfloat16", "autocast"])
    def test_bfloat16_and_autocast_stay_close_to_float64(
        self, baseline: Baseline, how: str, weighted: bool, made: Any, random: Any, uniform: Any
    ) -> None:
        layer = made(baseline.kind, **baseline.for_points(300))
        x, positions = random(2, 300, WIDTH), uniform(2, 300, 2)
        weights = uniform(2, 300) if weighted else None
        mask = torch.arange(300) < torch.tensor([[300], [257]])
        exact = layer(x, positions=positions, weights=weights, mask=mask)
        given = {"positions": positions.float(), "mask": mask}
        if weights is not None:
            given["weights"] = weights.float()
        if how == "bfloat16":
            out = layer.bfloat16()(x.bfloat16(), **given)
            assert out.dtype == torch.bfloat16
        else:
            with torch.autocast("cpu", torch.bfloat16):
                out = layer.float()(x.float(), **given)
        error = out.double() - exact
        for points in (mask, ...):
            assert error[points].norm() < 0.03 * exact[points].norm()
        out.square().sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


@baselines()
def test_width_is_a_multiple_of_heads(baseline: Baseline) -> None:
    with pytest.raises(ValueError, match="width: expected a multiple of heads=3, got 8"):
        baseline.kind(8, heads=3, **baseline.for_points(POINTS))
