import copy
import io
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from funcattn import debug
from funcattn.nn import (
    AdditiveRidge,
    ConvexRidge,
    FourierBasis,
    FunctionalAttention,
    GridFourierBasis,
    LearnedBasis,
    OrthonormalBasis,
    Pointwise,
    Stencil,
)
from funcattn.ops import Additive, Convex, Ridge
from funcattn.ops.attention.reference import functional_attention_reference

pytestmark = pytest.mark.usefixtures("in_chunks")

WIDTH, HEADS, BASES = 8, 2, 5
MAPS = ["coefficients", "points"]
PROJECTIONS = ["average", "transpose", "inner_product", "pinv"]
RIDGES = {
    "convex": ConvexRidge,
    "additive per head": partial(AdditiveRidge, 0.1, heads=HEADS),
    "number": lambda: 0.1,
}
FEATURES = {"pointwise": Pointwise, "stencil": partial(Stencil, reach=0.4)}


def made(*, seed: int = 0, separate: bool = False, **options: object) -> FunctionalAttention:
    """A small layer in float64, the same in every run.

    Its weights are of order one instead of the tiny starting values, so that nothing hides in
    small numbers.
    """
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        features = options.get("features", Pointwise)
        if separate:
            options["key_basis"] = LearnedBasis(WIDTH, HEADS, BASES, features=features)
        layer = FunctionalAttention(WIDTH, HEADS, BASES, **options).double()
        for parameter in layer.parameters():
            if parameter.ndim >= 2:
                nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
            else:
                parameter += 0.1 * torch.randn_like(parameter)
    return layer


def random(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def uniform(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=generator)


def two_point_sets(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features of 20 points and of a context of 15, and the positions of both."""
    x, context = random(2, 35, WIDTH, generator=generator).split([20, 15], dim=1)
    here, there = uniform(2, 35, 1, generator=generator).split([20, 15], dim=1)
    return x, context, here, there


def assert_equal_to_rounding(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("maps", MAPS)
@pytest.mark.parametrize("separate", [False, True], ids=["one basis", "two bases"])
@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("ridge", RIDGES)
def test_every_parameter_gets_a_gradient_in_every_variant(
    maps: str,
    separate: bool,
    features: str,
    projection: str,
    ridge: str,
    generator: torch.Generator,
) -> None:
    layer = made(
        maps=maps,
        separate=separate,
        features=FEATURES[features],
        projection=projection,
        ridge=RIDGES[ridge](),
    )
    x = random(2, 12, WIDTH, generator=generator).requires_grad_()
    out = layer(x, grid=(3, 4))
    assert out.shape == x.shape
    (out * random(*out.shape, generator=generator)).sum().backward()
    for name, tensor in {"x": x, **dict(layer.named_parameters())}.items():
        assert tensor.grad is not None, name
        assert tensor.grad.isfinite().all(), name
        assert tensor.grad.any(), name


def affine(layer: nn.Linear, x: Tensor) -> Tensor:
    return torch.einsum("ki,bni->bnk", layer.weight, x) + layer.bias


def heads_of(x: Tensor) -> Tensor:
    return torch.stack(x.chunk(HEADS, dim=-1), dim=1)


def learned(basis: LearnedBasis, x: Tensor) -> Tensor:
    scores = heads_of(affine(basis.features.map, x)) @ basis.scores.weight.T + basis.scores.bias
    grown = torch.exp(scores / basis.temperature.clamp(0.1, 5).view(HEADS, 1, 1))
    return grown / grown.sum(-1, keepdim=True)


def obvious(
    layer: FunctionalAttention, x: Tensor, source: Tensor, weights: Tensor, source_weights: Tensor
) -> Tensor:
    """The layer from its parameters and the obvious form of the op.

    Maps of the coefficients are applied at the points, before the projection: both are linear.
    """
    if layer.maps == "points":
        query = heads_of(affine(layer.to_query.map, x))
        key, value = (heads_of(affine(m.map, source)) for m in (layer.to_key, layer.to_value))
    else:
        here, there = (heads_of(affine(layer.features.map, points)) for points in (x, source))
        query = here @ layer.to_query.weight.T
        key, value = (there @ m.weight.T for m in (layer.to_key, layer.to_value))
    ridge: Ridge = layer.ridge
    if isinstance(layer.ridge, ConvexRidge):
        ridge = Convex(layer.ridge.logit.sigmoid())
    elif isinstance(layer.ridge, AdditiveRidge):
        ridge = Additive(layer.ridge.log_strength.exp())
    out, _ = functional_attention_reference(
        query,
        key,
        value,
        learned(layer.basis, x),
        learned(layer.key_basis, source),
        ridge=ridge,
        projection=layer.projection,
        weights=(weights, source_weights),
    )
    return affine(layer.to_output, torch.cat(out.unbind(1), dim=-1))


@pytest.mark.parametrize("maps", MAPS)
@pytest.mark.parametrize("separate", [False, True], ids=["one basis", "two bases"])
@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("ridge", RIDGES)
def test_agrees_with_the_obvious_form_in_value_and_every_gradient(
    maps: str, separate: bool, cross: bool, projection: str, ridge: str, generator: torch.Generator
) -> None:
    layer = made(maps=maps, separate=separate, projection=projection, ridge=RIDGES[ridge]())
    x = random(2, 9, WIDTH, generator=generator).requires_grad_()
    weights = uniform(2, 9, generator=generator) + 0.1
    mask = torch.rand(2, 9, generator=generator) < 0.8
    if cross:
        source = random(2, 7, WIDTH, generator=generator).requires_grad_()
        source_weights = uniform(2, 7, generator=generator) + 0.1
        source_mask = torch.rand(2, 7, generator=generator) < 0.8
        out = layer(x, source, weights=(weights, source_weights), mask=(mask, source_mask))
    else:
        source, source_weights, source_mask = x, weights, mask
        out = layer(x, weights=weights, mask=mask)
    expected = obvious(layer, x, source, weights * mask, source_weights * source_mask)
    assert (out - expected).norm() < 1e-10 * expected.norm()
    if projection != "pinv":  # which loses four digits, more of them in small values
        torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-11)

    cotangent = random(*out.shape, generator=generator)
    named = {"x": x, **({"context": source} if cross else {}), **dict(layer.named_parameters())}
    ours, theirs = (
        torch.autograd.grad((result * cotangent).sum(), list(named.values()))
        for result in (out, expected)
    )
    for name, one, other in zip(named, ours, theirs, strict=True):
        difference = ((one - other).norm() / other.norm()).item()
        # The pseudo-inverse is stabilised by 1e-4 only: its gradients lose twice four digits.
        assert difference < (1e-6 if projection == "pinv" else 1e-10), name


@pytest.mark.parametrize("maps", MAPS)
@pytest.mark.parametrize("bases", [2, 12], ids=["fewer bases", "more bases"])
def test_primal_and_dual_forms_agree(maps: str, bases: int, generator: torch.Generator) -> None:
    x = random(2, 20, WIDTH, generator=generator)
    primal, dual, auto = (
        made(maps=maps, form=form, basis=LearnedBasis(WIDTH, HEADS, bases))(x)
        for form in ("primal", "dual", "auto")
    )
    assert_equal_to_rounding(primal, dual)
    assert_equal_to_rounding(auto, dual)


VARIANTS: dict[str, Callable[[], FunctionalAttention]] = {
    "coefficients": made,
    "points": lambda: made(maps="points"),
    "two bases": lambda: made(separate=True),
    "pinv": lambda: made(projection="pinv"),
    "orthonormal": lambda: made(
        basis=OrthonormalBasis(LearnedBasis(WIDTH, HEADS, BASES)), projection="inner_product"
    ),
    "fourier": lambda: made(basis=FourierBasis([2]), projection="inner_product"),
}


@pytest.mark.parametrize("variant", VARIANTS)
class TestPointsAreASetWithWeights:
    def test_self_attention_is_cross_attention_to_itself(
        self, variant: str, generator: torch.Generator
    ) -> None:
        layer, x = VARIANTS[variant](), random(2, 20, WIDTH, generator=generator)
        positions = uniform(2, 20, 1, generator=generator)
        alone = layer(x, positions=positions)
        assert_equal_to_rounding(layer(x, x, positions=positions), alone)
        assert_equal_to_rounding(layer(x, x.clone(), positions=positions), alone)

    def test_permuting_points_permutes_results(
        self, variant: str, generator: torch.Generator
    ) -> None:
        layer, x = VARIANTS[variant](), random(2, 20, WIDTH, generator=generator)
        positions, weights = (
            uniform(2, 20, 1, generator=generator),
            uniform(2, 20, generator=generator),
        )
        order = torch.randperm(20, generator=generator)
        permuted = layer(x[:, order], positions=positions[:, order], weights=weights[:, order])
        assert_equal_to_rounding(permuted, layer(x, positions=positions, weights=weights)[:, order])

    def test_permuting_the_context_changes_nothing(
        self, variant: str, generator: torch.Generator
    ) -> None:
        layer = VARIANTS[variant]()
        x, context, here, there = two_point_sets(generator)
        order = torch.randperm(15, generator=generator)
        assert_equal_to_rounding(
            layer(x, context[:, order], positions=(here, there[:, order])),
            layer(x, context, positions=(here, there)),
        )

    def test_padding_under_a_mask_changes_nothing(
        self, variant: str, generator: torch.Generator
    ) -> None:
        layer, x = VARIANTS[variant](), random(2, 20, WIDTH, generator=generator)
        positions, weights = (
            uniform(2, 20, 1, generator=generator),
            uniform(2, 20, generator=generator),
        )
        mask = torch.ones(2, 26, dtype=torch.bool)
        mask[:, 20:] = False
        padded = layer(
            torch.cat([x, 10 * random(2, 6, WIDTH, generator=generator)], dim=1),
            positions=torch.cat([positions, uniform(2, 6, 1, generator=generator)], dim=1),
            weights=torch.cat([weights, uniform(2, 6, generator=generator)], dim=1),
            mask=mask,
        )
        assert_equal_to_rounding(padded[:, :20], layer(x, positions=positions, weights=weights))
        # What a masked point gets is nothing but the bias of the last map.
        assert_equal_to_rounding(padded[:, 20:], layer.to_output.bias.expand(2, 6, WIDTH))

    def test_padding_of_the_context_under_a_mask_changes_nothing(
        self, variant: str, generator: torch.Generator
    ) -> None:
        layer = VARIANTS[variant]()
        x, context, here, there = two_point_sets(generator)
        mask = torch.arange(15) < torch.tensor([[15], [9]])
        out = layer(x, context, positions=(here, there), mask=(None, mask))
        alone = layer(x[1:], context[1:, :9], positions=(here[1:], there[1:, :9]))
        assert_equal_to_rounding(out[1:], alone)

    def test_weight_two_is_two_copies(self, variant: str, generator: torch.Generator) -> None:
        layer, x = VARIANTS[variant](), random(2, 20, WIDTH, generator=generator)
        positions = uniform(2, 20, 1, generator=generator)
        weights = torch.ones(2, 20, dtype=torch.float64)
        weights[:, :3] = 2
        copied = layer(
            torch.cat([x, x[:, :3]], dim=1), positions=torch.cat([positions, positions[:, :3]], 1)
        )
        weighted = layer(x, positions=positions, weights=weights)
        assert_equal_to_rounding(weighted, copied[:, :20])
        assert (weighted - layer(x, positions=positions)).abs().max() > 1e-3

    def test_weight_two_is_two_copies_in_a_context(
        self, variant: str, generator: torch.Generator
    ) -> None:
        layer = VARIANTS[variant]()
        x, context, here, there = two_point_sets(generator)
        weights = torch.ones(2, 15, dtype=torch.float64)
        weights[:, :3] = 2
        weighted = layer(x, context, positions=(here, there), weights=(None, weights))
        copied = layer(
            x,
            torch.cat([context, context[:, :3]], dim=1),
            positions=(here, torch.cat([there, there[:, :3]], dim=1)),
        )
        assert_equal_to_rounding(weighted, copied)

    def test_a_sample_does_not_see_its_batch_neighbours(
        self, variant: str, generator: torch.Generator
    ) -> None:
        layer, x = VARIANTS[variant](), random(3, 20, WIDTH, generator=generator)
        positions, weights = (
            uniform(3, 20, 1, generator=generator),
            uniform(3, 20, generator=generator),
        )
        together = layer(x, positions=positions, weights=weights)
        for i in range(3):
            one = slice(i, i + 1)
            alone = layer(x[one], positions=positions[one], weights=weights[one])
            assert_equal_to_rounding(together[one], alone)


@pytest.mark.parametrize("maps", MAPS)
def test_stencil_layers_keep_batch_neighbours_and_masked_points_apart(
    maps: str, generator: torch.Generator
) -> None:
    layer = made(maps=maps, features=FEATURES["stencil"])
    x = random(2, 12, WIDTH, generator=generator)
    mask = torch.rand(2, 12, generator=generator) < 0.7
    out = layer(x, grid=(3, 4), mask=mask)
    changed = torch.where(mask[..., None], x, 10 * x + 1)
    assert_equal_to_rounding(layer(changed, grid=(3, 4), mask=mask), out)
    assert_equal_to_rounding(layer(x[1:], grid=(3, 4), mask=mask[1:]), out[1:])


@pytest.mark.parametrize("maps", MAPS)
def test_a_key_basis_of_its_own_is_used_on_the_key_side_only(
    maps: str, generator: torch.Generator
) -> None:
    layer, x = made(maps=maps, separate=True), random(2, 12, WIDTH, generator=generator)
    assert layer.key_basis is not layer.basis
    seen = []
    layer.basis.register_forward_hook(lambda *_: seen.append("query"))
    layer.key_basis.register_forward_hook(lambda *_: seen.append("key"))
    layer(x)
    assert seen == ["query", "key"]


@pytest.mark.parametrize("maps", MAPS)
def test_an_additive_ridge_acts_on_each_head_by_itself(
    maps: str, generator: torch.Generator
) -> None:
    layer = made(maps=maps, ridge=AdditiveRidge(0.1, heads=HEADS))
    layer.to_output = nn.Identity()
    x = random(2, 12, WIDTH, generator=generator)
    before = layer(x)
    layer.ridge.log_strength.data[1] += 1
    first, second = (layer(x) - before).abs().amax((0, 1)).chunk(HEADS)
    assert not first.any()
    assert (second > 1e-6).all()


@pytest.mark.parametrize("maps", MAPS)
@pytest.mark.parametrize("separate", [False, True], ids=["one basis", "two bases"])
def test_saving_and_loading_reproduces_results_exactly(
    maps: str, separate: bool, generator: torch.Generator
) -> None:
    saved, loaded = (made(maps=maps, separate=separate, seed=seed) for seed in (0, 1))
    x = random(2, 12, WIDTH, generator=generator)
    assert not torch.equal(saved(x), loaded(x))
    file = io.BytesIO()
    torch.save(saved.state_dict(), file)
    file.seek(0)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(saved(x), loaded(x))


def test_a_deep_copy_is_independent_and_keeps_its_one_basis(generator: torch.Generator) -> None:
    layer, x = made(), random(2, 12, WIDTH, generator=generator)
    twin = copy.deepcopy(layer)
    assert torch.equal(twin(x), layer(x))
    assert twin.key_basis is twin.basis
    before = layer(x)
    for parameter in twin.parameters():
        parameter.data.zero_()
    assert torch.equal(layer(x), before)


def test_dropout_acts_in_training_only(generator: torch.Generator) -> None:
    layer, x = made(dropout=0.5), random(2, 12, WIDTH, generator=generator)
    plain = made()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        dropped = layer.train()(x) == 0
    assert 0.3 < dropped.double().mean() < 0.7
    assert torch.equal(layer.eval()(x), plain(x))


SHORT = {
    "learned": made,
    "learned, points": lambda: made(maps="points"),
    "additive": lambda: made(ridge=AdditiveRidge(0.1, heads=HEADS)),
    "pinv": lambda: made(projection="pinv"),
    "stencil": lambda: made(features=FEATURES["stencil"]),
    "orthonormal": VARIANTS["orthonormal"],
    "grid fourier": lambda: made(basis=GridFourierBasis([1, 1]), projection="inner_product"),
}


@pytest.mark.parametrize("variant", SHORT)
@pytest.mark.parametrize("how", ["bfloat16", "autocast"])
def test_bfloat16_and_autocast_stay_close_to_float64(
    variant: str, how: str, generator: torch.Generator
) -> None:
    layer, x = SHORT[variant](), random(2, 35, WIDTH, generator=generator)
    exact = layer(x, grid=(5, 7))
    if how == "bfloat16":
        out = layer.bfloat16()(x.bfloat16(), grid=(5, 7))
        assert out.dtype == torch.bfloat16
    else:
        with torch.autocast("cpu", torch.bfloat16):
            out = layer.float()(x.float(), grid=(5, 7))
    assert out.isfinite().all()
    error = ((out.double() - exact).norm() / exact.norm()).item()
    assert error < 0.05


@pytest.mark.parametrize("variant", ["learned", "stencil", "grid fourier"])
def test_float32_is_close_to_float64(variant: str, generator: torch.Generator) -> None:
    layer, x = SHORT[variant](), random(2, 35, WIDTH, generator=generator)
    exact = layer(x, grid=(5, 7))
    out = layer.float()(x.float(), grid=(5, 7))
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=1e-4)


class TestErrors:
    def test_width_is_a_multiple_of_heads(self) -> None:
        with pytest.raises(ValueError, match="width: expected a multiple of heads=3, got 8"):
            FunctionalAttention(8, heads=3, bases=4)

    @pytest.mark.usefixtures("as_a_user")
    def test_maps_has_two_names(self) -> None:
        with pytest.raises(ValueError, match="maps: expected 'coefficients' or 'points', got"):
            FunctionalAttention(8, heads=2, bases=4, maps="all")

    @pytest.mark.parametrize("maps", MAPS)
    def test_a_stencil_does_not_go_with_a_context(self, maps: str) -> None:
        layer, x = made(maps=maps, features=FEATURES["stencil"]), torch.zeros(2, 12, WIDTH)
        with pytest.raises(ValueError, match=r"grid: .*context"):
            layer.float()(x, x.clone(), grid=(3, 4))

    @pytest.mark.parametrize("maps", MAPS)
    def test_one_mask_does_not_serve_two_sides(self, maps: str, generator: torch.Generator) -> None:
        x, context, _, _ = two_point_sets(generator)
        mask = torch.ones(2, 15, dtype=torch.bool)
        with pytest.raises(ValueError, match=r"mask: expected .* each of 20 points.* pair"):
            made(maps=maps)(x, context, mask=mask)

    @pytest.mark.parametrize("maps", MAPS)
    @pytest.mark.parametrize("features", FEATURES)
    def test_a_mask_is_boolean(self, maps: str, features: str) -> None:
        layer = made(maps=maps, features=FEATURES[features])
        x = torch.zeros(2, 12, WIDTH, dtype=torch.float64)
        with pytest.raises(TypeError, match="mask: expected a boolean tensor"):
            layer(x, grid=(3, 4), mask=torch.ones(2, 12))

    @pytest.mark.parametrize("maps", MAPS)
    @pytest.mark.parametrize("features", FEATURES)
    def test_a_mask_has_one_number_per_point(self, maps: str, features: str) -> None:
        layer = made(maps=maps, features=FEATURES[features])
        x = torch.zeros(2, 12, WIDTH, dtype=torch.float64)
        with pytest.raises(ValueError, match="mask: expected one number for each of 12 points"):
            layer(x, grid=(3, 4), mask=torch.ones(2, 11, dtype=torch.bool))

    @pytest.mark.parametrize("maps", MAPS)
    def test_a_sample_has_at_least_one_point(self, maps: str) -> None:
        x = torch.zeros(2, 12, WIDTH, dtype=torch.float64)
        mask = torch.tensor([[True], [False]]).expand(2, 12)
        with pytest.raises(ValueError, match=r"mask: every point is masked in row \[1\]"):
            made(maps=maps)(x, mask=mask)

    @pytest.mark.parametrize("maps", MAPS)
    def test_a_signed_basis_does_not_go_with_averages(
        self, maps: str, generator: torch.Generator
    ) -> None:
        layer = made(maps=maps, basis=FourierBasis([3]))
        x, _, positions, _ = two_point_sets(generator)
        with pytest.raises(ValueError, match=r"projection 'average': .* use 'inner_product'"):
            layer(x, positions=positions)

    @pytest.mark.parametrize("maps", MAPS)
    def test_debug_names_values_that_are_not_finite(self, maps: str) -> None:
        x = torch.full((2, 12, WIDTH), torch.nan, dtype=torch.float64)
        with debug(), pytest.raises(ValueError, match="expected finite values, got"):
            made(maps=maps)(x)
