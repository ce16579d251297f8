"""The fast operator against the obvious one in `reference.py`, and in every dtype."""

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from funcattn import functional_attention
from funcattn.ops import Convex, Ridge, ridge_system
from funcattn.ops.attention.reference import functional_attention_reference

REAL, COMPLEX = torch.float64, torch.complex128
PROJECTIONS = ("transpose", "inner_product", "average", "pinv")
SIGNED_PROJECTIONS = ("transpose", "inner_product", "pinv")
RIDGES = ("number", "per_head", "convex")
FORMS = ("primal", "dual", "auto")
SIZES = {"g<d": (3, 5), "g>d": (7, 5)}

every_projection = pytest.mark.parametrize("projection", PROJECTIONS)
every_ridge = pytest.mark.parametrize("ridge", RIDGES)
every_form = pytest.mark.parametrize("form", FORMS)
every_size = pytest.mark.parametrize(("g", "d"), SIZES.values(), ids=SIZES)
some_points = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weights+mask"])


@dataclass(frozen=True)
class Problem:
    """Everything that goes in. `tensors` has all that can be differentiated by, in one order."""

    tensors: dict[str, Tensor]
    masks: tuple[Tensor, Tensor] | None

    def with_tensors(self, *tensors: Tensor) -> "Problem":
        return replace(self, tensors=dict(zip(self.tensors, tensors, strict=True)))

    def to(self, dtype: torch.dtype) -> "Problem":
        return self.with_tensors(*(tensor.to(dtype) for tensor in self.tensors.values()))


def softmax_basis(points: int, functions: int, generator: torch.Generator) -> Tensor:
    return torch.randn(2, 3, points, functions, generator=generator, dtype=REAL).softmax(-1)


def complex_fourier_basis(points: int, functions: int, generator: torch.Generator) -> Tensor:
    """exp(2 pi i k x) for the wave numbers -K..K at random x."""
    positions = torch.rand(2, 1, points, 1, generator=generator, dtype=REAL)
    waves = torch.arange(functions, dtype=REAL) - functions // 2
    return torch.exp(2j * math.pi * positions * waves).expand(2, 3, -1, -1).clone()


def make_problem(
    generator: torch.Generator,
    g: int,
    d: int,
    *,
    weighted: bool,
    basis=softmax_basis,
    n: int = 13,
    m: int = 11,
    e: int = 2,
) -> Problem:
    """Two samples, three heads, odd sizes, n != m and e != d."""

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=REAL)

    tensors = {
        "query": random(2, 3, n, d),
        "key": random(2, 3, m, d),
        "value": random(2, 3, m, e),
        "query_basis": basis(n, g, generator),
        "key_basis": basis(m, g, generator),
        "ridge": 0.2 + 0.7 * torch.rand(3, generator=generator, dtype=REAL),
    }
    if not weighted:
        return Problem(tensors, None)
    for side, points in (("query", n), ("key", m)):
        tensors[f"{side}_weights"] = 0.5 + torch.rand(2, points, generator=generator, dtype=REAL)
    # The second sample is shorter than the first, as in a padded batch.
    masks = tuple(torch.arange(p) < torch.tensor([[p], [p - 2]]) for p in (n, m))
    return Problem(tensors, masks)


def arguments(problem: Problem, ridge: str) -> dict[str, Any]:
    """Of both forms of the op."""
    given: dict[str, Any] = dict(problem.tensors)
    strength = given.pop("ridge")
    ridges: dict[str, Ridge] = {"number": 0.3, "per_head": strength, "convex": Convex(strength)}
    weights = (given.pop("query_weights", None), given.pop("key_weights", None))
    return {**given, "ridge": ridges[ridge], "weights": weights, "mask": problem.masks}


def fast(
    problem: Problem, *, projection: str, ridge: str, form: str = "auto", return_map: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    return functional_attention(
        **arguments(problem, ridge), projection=projection, form=form, return_map=return_map
    )


def obvious(problem: Problem, *, projection: str, ridge: str) -> tuple[Tensor, Tensor]:
    return functional_attention_reference(**arguments(problem, ridge), projection=projection)


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Of the whole tensor, in the Euclidean norm."""
    return ((actual - expected).norm() / expected.norm()).item()


def gradients(problem: Problem, run, ridge: str) -> dict[str, Tensor]:
    """Of a random linear functional of out and C, the same for every `run`."""
    leaves = [tensor.clone().requires_grad_() for tensor in problem.tensors.values()]
    outputs = run(problem.with_tensors(*leaves))
    generator = torch.Generator().manual_seed(1)
    loss = torch.zeros((), dtype=REAL)
    for output in outputs:
        cotangent = torch.randn(output.shape, generator=generator, dtype=output.dtype)
        loss = loss + (cotangent.conj() * output).sum().real
    loss.backward()
    found = {name: leaf.grad for name, leaf in zip(problem.tensors, leaves, strict=True)}
    if ridge == "number":  # there is nothing to differentiate by
        assert found.pop("ridge") is None
    return found


# Rounding: the largest condition number is that of the stabilised Gram matrix of `pinv`, at most
# g / 1e-4 < 1e5; times the unit roundoff 1.1e-16 that is 1e-11, and a gradient meets two inverses.
TOLERANCE = 1e-10


def assert_agrees_with_reference(problem: Problem, projection: str, ridge: str, form: str) -> None:
    def run_fast(given: Problem) -> tuple[Tensor, Tensor]:
        return fast(given, projection=projection, ridge=ridge, form=form, return_map=True)

    def run_obvious(given: Problem) -> tuple[Tensor, Tensor]:
        return obvious(given, projection=projection, ridge=ridge)

    for actual, expected in zip(run_fast(problem), run_obvious(problem), strict=True):
        assert actual.shape == expected.shape
        assert actual.dtype == expected.dtype
        assert relative_error(actual, expected) < TOLERANCE
    actual, expected = (gradients(problem, run, ridge) for run in (run_fast, run_obvious))
    assert actual.keys() == expected.keys()
    for name in expected:
        assert expected[name].norm() > 0
        assert relative_error(actual[name], expected[name]) < TOLERANCE, name


@every_size
@some_points
@every_form
@every_ridge
@every_projection
def test_output_map_and_every_gradient_agree_with_reference(
    generator, projection, ridge, form, weighted, g, d
) -> None:
    problem = make_problem(generator, g, d, weighted=weighted)
    assert_agrees_with_reference(problem, projection, ridge, form)


@every_size
@some_points
@every_form
@every_ridge
@pytest.mark.parametrize("projection", SIGNED_PROJECTIONS)
def test_complex_bases_agree_with_reference(
    generator, projection, ridge, form, weighted, g, d
) -> None:
    problem = make_problem(generator, g, d, weighted=weighted, basis=complex_fourier_basis)
    assert problem.tensors["key_basis"].dtype == COMPLEX
    assert_agrees_with_reference(problem, projection, ridge, form)


@every_projection
def test_asking_for_the_map_does_not_change_the_output(generator, projection) -> None:
    problem = make_problem(generator, 3, 5, weighted=True)
    out, _ = fast(problem, projection=projection, ridge="convex", return_map=True)
    assert torch.equal(out, fast(problem, projection=projection, ridge="convex"))


@every_projection
def test_one_basis_for_both_sides_is_no_special_case(generator, projection) -> None:
    """The same tensor twice takes a short cut, which a copy of it does not."""
    x = torch.randn(2, 3, 13, 5, generator=generator, dtype=REAL)
    basis = softmax_basis(13, 4, generator)
    once = functional_attention(x, x, x, basis, basis, ridge=0.1, projection=projection)
    twice = functional_attention(x, x, x, basis, basis.clone(), ridge=0.1, projection=projection)
    assert torch.equal(once, twice)


@pytest.mark.parametrize("shape", [(1, 3), (2, 1), (1, 1)], ids=str)
def test_a_basis_may_be_shared_by_samples_and_heads(generator, shape) -> None:
    problem = make_problem(generator, 3, 5, weighted=True)
    b, h = shape
    given = problem.tensors
    small = {name: given[name][:b, :h] for name in ("query_basis", "key_basis")}
    full = {name: basis.expand(2, 3, -1, -1) for name, basis in small.items()}
    shared = replace(problem, tensors=given | small)
    spelled_out = replace(problem, tensors=given | full)
    out, expected = (
        fast(each, projection="pinv", ridge="per_head") for each in (shared, spelled_out)
    )
    assert relative_error(out, expected) < TOLERANCE


def test_a_ridge_may_differ_by_sample_and_head(generator) -> None:
    problem = make_problem(generator, 3, 5, weighted=False)
    strength = 0.2 + torch.rand(2, 3, generator=generator, dtype=REAL)
    of_both = fast(
        replace(problem, tensors=problem.tensors | {"ridge": strength}),
        projection="average",
        ridge="per_head",
    )
    for sample in range(2):
        alone = replace(problem, tensors=problem.tensors | {"ridge": strength[sample]})
        expected = fast(alone, projection="average", ridge="per_head")[sample]
        assert relative_error(of_both[sample], expected) < TOLERANCE


def tiny_problem(generator: torch.Generator) -> Problem:
    """One sample, two heads: few numbers, as gradcheck moves every one of them."""
    problem = make_problem(generator, 3, 2, weighted=True, n=5, m=6, e=1)

    def part(name: str, tensor: Tensor) -> Tensor:
        if name == "ridge":
            return tensor[:2]
        return tensor[1:] if name.endswith("weights") else tensor[1:, :2]

    tensors = {name: part(name, tensor) for name, tensor in problem.tensors.items()}
    return Problem(tensors, tuple(mask[1:] for mask in problem.masks))


def as_function(problem: Problem, **options: str):
    def run(*tensors: Tensor) -> Tensor:
        return fast(problem.with_tensors(*tensors), **options)

    return run, tuple(tensor.clone().requires_grad_() for tensor in problem.tensors.values())


@pytest.mark.usefixtures("as_a_user")  # thousands of calls, quicker without the shape checks
@every_form
@every_ridge
@every_projection
def test_gradients_are_those_of_finite_differences(generator, projection, ridge, form) -> None:
    run, inputs = as_function(
        tiny_problem(generator), projection=projection, ridge=ridge, form=form
    )
    assert torch.autograd.gradcheck(run, inputs)


def test_second_derivatives_are_those_of_finite_differences(generator) -> None:
    run, inputs = as_function(tiny_problem(generator), projection="average", ridge="convex")
    assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)


def real_and_complex_fourier(positions: Tensor, modes: int) -> tuple[Tensor, Tensor, Tensor]:
    """cos/sin basis, exponentials of wave numbers -K..K, and the unitary U: complex = real @ U."""
    waves = torch.arange(1, modes + 1, dtype=REAL)
    phase = 2 * math.pi * positions[..., None] * waves
    real = torch.cat(
        [torch.ones_like(phase[..., :1]), math.sqrt(2) * phase.cos(), math.sqrt(2) * phase.sin()],
        dim=-1,
    )
    unitary = torch.zeros(2 * modes + 1, 2 * modes + 1, dtype=COMPLEX)
    unitary[0, modes] = 1
    for k, sign in product(range(1, modes + 1), (1, -1)):
        unitary[k, modes + sign * k] = 1 / math.sqrt(2)
        unitary[modes + k, modes + sign * k] = sign * 1j / math.sqrt(2)
    wave_numbers = torch.arange(-modes, modes + 1, dtype=REAL)
    return real, torch.exp(2j * math.pi * positions[..., None] * wave_numbers), unitary


@every_form
@pytest.mark.parametrize("projection", SIGNED_PROJECTIONS)
def test_exponentials_give_the_real_result_of_cosines_and_sines(
    generator, projection, form
) -> None:
    """Phi U in place of Phi turns C into U^H C U, and leaves the output as it is."""
    problem = make_problem(generator, 5, 4, weighted=True)
    positions = [torch.rand(2, 1, p, generator=generator, dtype=REAL) for p in (13, 11)]
    (query_real, query_complex, u), (key_real, key_complex, _) = (
        real_and_complex_fourier(x, modes=2) for x in positions
    )
    torch.testing.assert_close(query_real.to(COMPLEX) @ u, query_complex, rtol=0, atol=1e-14)
    (out, c), (complex_out, complex_c) = (
        fast(
            replace(problem, tensors=problem.tensors | {"query_basis": phi, "key_basis": psi}),
            projection=projection,
            ridge="per_head",
            form=form,
            return_map=True,
        )
        for phi, psi in ((query_real, key_real), (query_complex, key_complex))
    )
    assert complex_out.imag.norm() < TOLERANCE * out.norm()
    assert relative_error(complex_out.real, out) < TOLERANCE
    assert relative_error(complex_c, u.mH @ c.to(COMPLEX) @ u) < TOLERANCE


HALVES = (torch.bfloat16, torch.float16)
every_half = pytest.mark.parametrize("half", HALVES, ids=str)


@every_half
@every_projection
def test_half_precision_loses_no_more_than_the_rounding_of_input_and_output(
    generator, projection, half
) -> None:
    problem = make_problem(generator, 3, 5, weighted=True)
    eps = torch.finfo(half).eps
    rounded = problem.to(half)
    out = fast(rounded, projection=projection, ridge="per_head")
    assert out.dtype == half
    # Of the same rounded input, so only the output's rounding, eps / 2, and float32 remain.
    exact = fast(rounded.to(REAL), projection=projection, ridge="per_head")
    assert relative_error(out.to(REAL), exact) < eps
    # Every input is off by eps / 2; the few come from the number of inputs and the conditioning.
    unrounded = fast(problem, projection=projection, ridge="per_head")
    assert relative_error(out.to(REAL), unrounded) < 4 * eps


@every_half
@every_projection
def test_gradients_in_half_precision_are_close(generator, projection, half) -> None:
    rounded = make_problem(generator, 3, 5, weighted=True).to(half)

    def run(given: Problem) -> tuple[Tensor, Tensor]:
        out, c = fast(given, projection=projection, ridge="per_head", return_map=True)
        return out.to(REAL), c.to(REAL)

    actual = gradients(rounded, run, "per_head")
    expected = gradients(rounded.to(REAL), run, "per_head")
    for name, gradient in actual.items():
        assert gradient.dtype == half
        assert relative_error(gradient.to(REAL), expected[name]) < torch.finfo(half).eps, name


def test_float16_sums_over_many_points_do_not_overflow(generator) -> None:
    """Moments up to 4e5 where float16 ends at 65504, and an output that it can hold."""
    points, functions = 2**15, 3
    cell = torch.eye(functions)[torch.randint(functions, (points,), generator=generator)]
    basis = (4 * cell).softmax(-1)[None, None].half()
    key = 40 * cell[None, None] + torch.randn(1, 1, points, functions, generator=generator)
    value = 1 + torch.randn(1, 1, points, 2, generator=generator)
    fields = (0.01 * key).half(), key.half(), value.half()
    assert (basis.mT.float() @ fields[1].float()).max() > 5 * torch.finfo(torch.float16).max

    def run(dtype: torch.dtype) -> Tensor:
        phi = basis.to(dtype)
        given = (field.to(dtype) for field in fields)
        return functional_attention(*given, phi, phi, ridge=1.0, projection="transpose")

    out = run(torch.float16)
    assert out.dtype == torch.float16
    assert out.isfinite().all()
    assert relative_error(out.to(REAL), run(REAL)) < torch.finfo(torch.float16).eps


@every_projection
def test_autocast_leaves_the_operator_in_float32(generator, projection) -> None:
    problem = make_problem(generator, 3, 5, weighted=True).to(torch.float32)
    out, c = fast(problem, projection=projection, ridge="convex", return_map=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast_out, cast_c = fast(problem, projection=projection, ridge="convex", return_map=True)
    assert torch.equal(cast_out, out)
    assert torch.equal(cast_c, c)


@pytest.mark.parametrize("form", ["primal", "dual"])
@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (torch.complex64, torch.complex64),
    ],
    ids=str,
)
@pytest.mark.parametrize("autocast", [False, True], ids=["plain", "autocast"])
def test_the_gram_matrix_is_float32_or_longer(form, dtype, expected, autocast) -> None:
    key = torch.ones(1, 1, 3, 4, dtype=dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        assert ridge_system(key, ridge=0.1, form=form).dtype == expected


def test_auto_solves_the_smaller_system() -> None:
    assert ridge_system(torch.ones(1, 1, 3, 5), ridge=0.1).shape[-1] == 3
    assert ridge_system(torch.ones(1, 1, 5, 3), ridge=0.1).shape[-1] == 3
