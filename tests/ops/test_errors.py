"""What does not fit is refused at the door, in words that say what to change."""

import math
import re

import pytest
import torch
from torch import Tensor

from funcattn import debug, functional_attention
from funcattn.ops import Additive, Convex, ridge_system
from funcattn.ops.linalg import solve_positive

# The annotations that only tests check would otherwise speak first.
pytestmark = pytest.mark.usefixtures("as_a_user")

B, H, N, M, D, E, G = 2, 3, 7, 5, 4, 2, 6
SHAPES = {
    "query": (B, H, N, D),
    "key": (B, H, M, D),
    "value": (B, H, M, E),
    "query_basis": (B, H, N, G),
    "key_basis": (B, H, M, G),
}


def inputs(shapes: dict[str, tuple[int, ...]] = SHAPES) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.rand(shape, generator=generator, dtype=torch.float64) + 0.1
        for name, shape in shapes.items()
    }


def attend(given: dict[str, Tensor] | None = None, **options) -> Tensor:
    return functional_attention(**(given or inputs()), **({"ridge": 0.1} | options))


def test_the_inputs_of_these_tests_are_good() -> None:
    assert attend().isfinite().all()


# Ridge

NOT_ADDITIVE = {
    "zero": 0.0,
    "negative": -1.0,
    "nan": math.nan,
    "one-bad-head": torch.tensor([0.1, 0.0, 0.3]),
    "one-nan-head": torch.tensor([0.1, math.nan, 0.3]),
    "integer-zero": torch.tensor(0),
}
NOT_CONVEX = NOT_ADDITIVE | {"above-one": 1.5, "one-head-above-one": torch.tensor([0.1, 0.2, 1.1])}


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "Additive"])
@pytest.mark.parametrize("value", NOT_ADDITIVE.values(), ids=NOT_ADDITIVE)
def test_an_additive_ridge_that_is_not_positive(value, wrapped) -> None:
    message = "ridge: expected every value finite and greater than 0, so that the system is"
    with pytest.raises(ValueError, match=message) as raised:
        attend(ridge=Additive(value) if wrapped else value)
    assert str(raised.value).endswith(f"got {torch.as_tensor(value).tolist()}")


@pytest.mark.parametrize("value", NOT_CONVEX.values(), ids=NOT_CONVEX)
def test_a_convex_ridge_outside_zero_to_one(value) -> None:
    with pytest.raises(ValueError, match="ridge: expected every value greater than 0 and at most"):
        attend(ridge=Convex(value))


def test_a_convex_ridge_of_one_is_allowed() -> None:
    assert attend(ridge=Convex(1.0)).isfinite().all()


@pytest.mark.parametrize("kind", [Additive, Convex])
def test_a_ridge_of_too_many_axes(kind) -> None:
    with pytest.raises(ValueError, match=r"ridge: expected one number, one per head"):
        attend(ridge=kind(torch.full((B, H, 1), 0.1)))


@pytest.mark.parametrize("kind", [Additive, Convex])
@pytest.mark.parametrize("heads", [1, H], ids=["one-head", "three-heads"])
def test_a_ridge_for_another_number_of_heads(kind, heads) -> None:
    """With one head it would broadcast, to a result that has more heads than the input."""
    shapes = {name: (b, heads, *rest) for name, (b, _, *rest) in SHAPES.items()}
    with pytest.raises(ValueError, match="ridge"):
        attend(inputs(shapes), ridge=kind(torch.full((4,), 0.1)))


@pytest.mark.parametrize("kind", [Additive, Convex])
def test_an_infinite_ridge(kind) -> None:
    with pytest.raises(ValueError, match="ridge"):
        attend(ridge=kind(math.inf))


# Shapes

UNFIT = {
    "query-of-three-axes": ("query", (B, N, D), "query"),
    "basis-of-three-axes": ("key_basis", (H, M, G), "key_basis"),
    "key-of-other-channels": ("key", (B, H, M, D + 1), "key (b h m d)"),
    "key-of-other-heads": ("key", (B, H + 1, M, D), "key (b h m d)"),
    "key-of-one-head": ("key", (B, 1, M, D), "key (b h m d)"),
    "value-at-other-points": ("value", (B, H, M + 1, E), "value (b h m e)"),
    "value-of-other-batch": ("value", (B + 1, H, M, E), "value (b h m e)"),
    "query_basis-at-other-points": ("query_basis", (B, H, M, G), "query_basis (b h n g)"),
    "key_basis-at-other-points": ("key_basis", (B, H, N, G), "key_basis (b h m g)"),
    "key_basis-of-other-functions": ("key_basis", (B, H, M, G - 1), "key_basis (b h m g)"),
    "query_basis-of-other-batch": (
        "query_basis",
        (B + 1, H, N, G),
        "batch and heads of query_basis",
    ),
    "key_basis-of-other-heads": ("key_basis", (B, 2, M, G), "batch and heads of key_basis"),
}


@pytest.mark.parametrize(("name", "shape", "place"), UNFIT.values(), ids=UNFIT)
def test_a_shape_that_does_not_fit_is_named_with_all_shapes(name, shape, place) -> None:
    shapes = SHAPES | {name: shape}
    with pytest.raises(ValueError, match=f"shapes do not fit at {re.escape(place)}: ") as raised:
        attend(inputs(shapes))
    for each, given in shapes.items():
        assert f"{each} {given}" in str(raised.value)


# Masks and weights


def ones(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.ones(shape, dtype=dtype)


def test_a_mask_that_is_not_boolean() -> None:
    with pytest.raises(TypeError, match=r"mask: expected a boolean.*float64.*use `weights`"):
        attend(mask=(ones(B, N), None))


def test_weights_that_are_not_floating_point() -> None:
    with pytest.raises(TypeError, match=r"weights: expected floating point.*int64"):
        attend(weights=(ones(B, N, dtype=torch.int64), None))


@pytest.mark.parametrize("name", ["mask", "weights"])
@pytest.mark.parametrize("shape", [(B, N + 1), (B, 1), (B, 1, N)], ids=str)
def test_a_mask_or_weights_of_the_wrong_length(name, shape) -> None:
    given = ones(*shape, dtype=torch.bool if name == "mask" else torch.float64)
    message = rf"{name}: expected one number for each of {N} points.*got {re.escape(str(shape))}"
    with pytest.raises(ValueError, match=message):
        attend(**{name: (given, None)})


@pytest.mark.parametrize("name", ["mask", "weights"])
def test_one_mask_for_sides_of_different_lengths_is_refused_in_favour_of_a_pair(
    name,
) -> None:
    given = ones(B, N, dtype=torch.bool if name == "mask" else torch.float64)
    with pytest.raises(ValueError, match=rf"pass a pair `{name}=\(query side, key side\)`"):
        attend(**{name: given})


@pytest.mark.parametrize("name", ["mask", "weights"])
@pytest.mark.parametrize("batch", [1, B], ids=["one-sample", "two-samples"])
@pytest.mark.parametrize("side", ["query", "key"])
def test_a_mask_or_weights_for_another_batch(name, batch, side) -> None:
    """With one sample they would broadcast, to a result that has more samples than the input."""
    shapes = {each: (batch, *rest) for each, (_, *rest) in SHAPES.items()}
    dtype = torch.bool if name == "mask" else torch.float64
    pair = (ones(3, N, dtype=dtype), None) if side == "query" else (None, ones(3, M, dtype=dtype))
    with pytest.raises(ValueError, match=name):
        attend(inputs(shapes), **{name: pair})


def test_a_sample_with_every_point_masked() -> None:
    mask = ones(B, M, dtype=torch.bool)
    mask[1] = False
    with pytest.raises(ValueError, match=r"mask: every point is masked in row \[1\]"):
        attend(mask=(None, mask))


@pytest.mark.parametrize("bad", [-0.5, math.nan, math.inf])
def test_weights_that_are_negative_or_not_finite(bad) -> None:
    weights = ones(B, N)
    weights[1, 2] = bad
    with pytest.raises(ValueError, match="weights: expected"):
        attend(weights=(weights, None))


def test_weights_that_are_all_zero_in_a_sample() -> None:
    weights = ones(B, M)
    weights[0] = 0
    with pytest.raises(ValueError, match=r"weights: .*expected a positive one in every row"):
        attend(weights=(None, weights))


@pytest.mark.parametrize("projection", ["transpose", "inner_product", "average", "pinv"])
def test_weights_that_are_zero_wherever_the_mask_is_true(projection) -> None:
    """Each is fine alone; together they leave no function to project."""
    mask = ones(B, N, dtype=torch.bool)
    mask[1, 0] = False
    weights = ones(B, N)
    weights[1, 1:] = 0
    with pytest.raises(ValueError, match=r"weights|mask"):
        attend(weights=(weights, None), mask=(mask, None), projection=projection)


# Names


def test_an_unknown_projection() -> None:
    message = "projection: expected one of transpose, inner_product, average, pinv, got 'mean'"
    with pytest.raises(ValueError, match=message):
        attend(projection="mean")


def test_an_unknown_form() -> None:
    with pytest.raises(ValueError, match="form: expected 'auto', 'primal' or 'dual', got 'fast'"):
        attend(form="fast")
    with pytest.raises(ValueError, match="form: expected 'auto', 'primal' or 'dual', got 'fast'"):
        ridge_system(torch.ones(1, 1, 2, 2), ridge=0.1, form="fast")


@pytest.mark.parametrize("kind", ["complex", "signed"])
def test_average_with_a_basis_that_has_no_mass_to_divide_by(kind) -> None:
    given = inputs()
    basis = given["key_basis"]
    given["key_basis"] = basis.to(torch.complex128) if kind == "complex" else basis - 2
    error = TypeError if kind == "complex" else ValueError
    with pytest.raises(error, match=r"projection 'average'.*use 'inner_product', 'transpose'"):
        attend(given, projection="average")


# Values that are not finite


def poisoned(name: str, value: float = math.nan) -> dict[str, Tensor]:
    given = inputs()
    given[name][1, 2, 3, 1] = value
    return given


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", SHAPES)
def test_debug_names_the_tensor_and_the_place(name, value) -> None:
    total = math.prod(SHAPES[name])
    message = rf"{name}: expected finite values, got 1 that are not \(of {total}\), first at "
    with debug(), pytest.raises(ValueError, match="^" + message + re.escape("[1, 2, 3, 1]")):
        attend(poisoned(name, value), projection="transpose")


def test_values_are_not_looked_at_outside_debug(monkeypatch) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("looked at")

    monkeypatch.setattr(torch.Tensor, "isfinite", forbidden)
    monkeypatch.setattr(torch, "isfinite", forbidden)
    attend()
    with debug(), pytest.raises(AssertionError, match="looked at"):
        attend()


def is_debugging() -> bool:
    """Values are only averaged, so outside debug a bad one goes through to the output."""
    try:
        return not attend(poisoned("value")).isnan().any()
    except ValueError:
        return True


def test_debug_ends_with_its_context_also_after_an_exception() -> None:
    assert not is_debugging()
    with debug():
        assert is_debugging()
    assert not is_debugging()
    with pytest.raises(KeyError), debug():
        raise KeyError
    assert not is_debugging()


def test_debug_nests() -> None:
    with debug():
        with pytest.raises(KeyError), debug():
            raise KeyError
        assert is_debugging()
    assert not is_debugging()


# Systems


def test_a_system_that_is_not_positive_definite_is_counted() -> None:
    systems = torch.eye(3).repeat(4, 1, 1)
    systems[2, 1, 1] = -1
    message = r"positive definite systems, got 1 \(of 4\) that are not, in torch.float32"
    with pytest.raises(torch.linalg.LinAlgError, match=message):
        solve_positive(systems, torch.ones(4, 3, 1))


def test_a_ridge_lost_in_rounding_is_refused_with_advice_to_enlarge_it() -> None:
    """1 + 1e-20 is 1 in float64 too, so the system of two equal keys is singular."""
    x, basis = torch.ones(1, 1, 2, 1), torch.full((1, 1, 2, 2), 0.5)
    options = {"projection": "transpose", "form": "primal"}
    with pytest.raises(torch.linalg.LinAlgError, match="use a larger ridge"):
        functional_attention(x, x, x, basis, basis, ridge=1e-20, **options)
    double = functional_attention(
        x.double(), x.double(), x.double(), basis.double(), basis.double(), ridge=1e-12, **options
    )
    assert double.isfinite().all()
    # 1 + 1e-12 is 1 in float32: what float64 makes of it.
    single = functional_attention(x, x, x, basis, basis, ridge=1e-12, **options)
    torch.testing.assert_close(single, double.float())
