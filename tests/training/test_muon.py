"""Muon for many matrices at once, beside PyTorch's and beside its obvious form."""

import pytest
import torch
from torch import Tensor, nn

from funcattn.models.fno import FNO
from funcattn.ops import native
from funcattn.ops.native import orthogonal
from funcattn.training.checkpoint import optimiser_document, optimiser_tensors, restore_optimiser
from funcattn.training.muon import BatchedMuon, Matrices, matrices_of, orthogonalised

SHAPES = [(8, 8), (8, 8), (5, 12), (12, 5), (3, 3), (8, 8), (1, 7)]


def parameters(generator: torch.Generator, *shapes: tuple[int, ...]) -> list[nn.Parameter]:
    return [nn.Parameter(torch.randn(*shape, generator=generator)) for shape in shapes]


def moved(optimiser: torch.optim.Optimizer, those: list[nn.Parameter], steps: int = 4) -> None:
    """Some steps on gradients that are the same for everybody."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        for parameter in those:
            parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter)
        optimiser.step()


def test_on_matrices_it_is_pytorchs_to_rounding(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = parameters(generator, *SHAPES)
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    moved(BatchedMuon(ours, 0.02, weight_decay=0.1), ours)
    # PyTorch iterates in bfloat16, which this leaves out.
    monkeypatch.setattr(Tensor, "bfloat16", Tensor.clone)
    moved(torch.optim.Muon(theirs, 0.02, weight_decay=0.1), theirs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-6)


def test_pytorchs_own_precision_is_all_that_differs(generator: torch.Generator) -> None:
    ours = parameters(generator, *SHAPES)
    before = [p.detach().clone() for p in ours]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    moved(BatchedMuon(ours, 0.02), ours)
    moved(torch.optim.Muon(theirs, 0.02, weight_decay=0.0), theirs)
    for one, other, start in zip(ours, theirs, before, strict=True):
        assert (one - other).norm() < 0.05 * (one - start).norm()


@pytest.mark.parametrize("shape", [(4, 6), (6, 6)], ids=str)
@pytest.mark.parametrize("paired", [False, True], ids=["real", "complex"])
def test_singular_values_come_near_one_and_directions_stay(
    shape: tuple[int, int], paired: bool, generator: torch.Generator
) -> None:
    dtype = torch.complex128 if paired else torch.float64
    stack = torch.randn(3, *shape, dtype=dtype, generator=generator)
    u, s, v = torch.linalg.svd(stack, full_matrices=False)
    result = orthogonalised(stack)
    inside = u.mH @ result @ v.mH
    diagonal = torch.diagonal(inside, dim1=-2, dim2=-1)
    torch.testing.assert_close(inside, torch.diag_embed(diagonal), rtol=0, atol=1e-12)
    large = s > 0.05 * s[:, :1]
    assert ((diagonal.abs() - 1).abs()[large] < 0.5).all()


def test_a_complex_matrix_is_its_real_form_of_twice_the_size(generator: torch.Generator) -> None:
    x = torch.randn(2, 4, 5, dtype=torch.complex128, generator=generator)

    def real(z: Tensor) -> Tensor:
        top, bottom = torch.cat([z.real, -z.imag], -1), torch.cat([z.imag, z.real], -1)
        return torch.cat([top, bottom], -2)

    # The real form has sqrt(2) times the norm, by which the iteration starts.
    scaled = orthogonalised_without_scaling(
        real(x) / torch.linalg.vector_norm(x, dim=(1, 2))[:, None, None]
    )
    torch.testing.assert_close(real(orthogonalised(x)), scaled, rtol=0, atol=1e-12)


def orthogonalised_without_scaling(x: Tensor) -> Tensor:
    """Written out."""
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return x


@pytest.mark.parametrize(
    ("shape", "how"),
    [
        ((3, 4, 6), Matrices(-2, -1)),
        ((6, 4, 3), Matrices(1, 0)),
        ((4, 6, 2, 3, 2), Matrices(0, 1, paired=True)),
        ((2, 3, 4, 6, 2), Matrices(-1, -2, paired=True)),
        ((4, 2, 3), Matrices(0, None)),
        ((2, 6, 4), Matrices(1, None)),
    ],
    ids=str,
)
def test_a_stack_is_its_matrices_one_by_one(
    shape: tuple[int, ...], how: Matrices, generator: torch.Generator
) -> None:
    (whole,) = parameters(generator, shape)
    start = whole.detach().clone()
    torch.testing.assert_close(how.write(how.read(start), start), start)
    gradient = torch.randn(shape, generator=generator)
    whole.grad = gradient
    BatchedMuon({whole: how}, 0.1, momentum=0.0).step()
    change = how.read(whole.detach() - start) / 0.1
    for matrix, step in zip(how.read(gradient), change, strict=True):
        tall = matrix.shape[0] > matrix.shape[1]
        expected = orthogonalised((matrix.mH if tall else matrix)[None])[0]
        expected = expected.mH * (matrix.shape[0] / matrix.shape[1]) ** 0.5 if tall else expected
        torch.testing.assert_close(step, -expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("paired", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize("shape", [(3, 32, 32), (2, 5, 12), (2, 40, 9), (1, 1, 7)], ids=str)
def test_in_c_it_is_the_same_to_rounding(
    shape: tuple[int, int, int], paired: bool, generator: torch.Generator
) -> None:
    if native.library() is None:
        pytest.skip(f"no C: {native.why_not()}")
    dtype = torch.complex64 if paired else torch.float32
    stack = torch.randn(shape, dtype=dtype, generator=generator)
    stack[0] *= 1e-12  # below the least norm
    tall = shape[1] > shape[2]
    wide = stack.to(torch.complex128 if paired else torch.float64)
    expected = orthogonalised(wide.mH if tall else wide)
    expected = expected.mH if tall else expected
    assert orthogonal.can_do(stack)
    orthogonal.orthogonalise(stack, 5, (3.4445, -4.775, 2.0315), 1e-7)
    torch.testing.assert_close(stack.to(expected.dtype), expected, rtol=0, atol=2e-5)


def test_it_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(generator: torch.Generator) -> None:
    through = parameters(generator, *SHAPES)
    stopped = [nn.Parameter(p.detach().clone()) for p in through]
    first, second = (BatchedMuon(those, 0.02) for those in (through, stopped))
    moved(first, through)
    moved(first, through)
    moved(second, stopped)
    saved = optimiser_tensors(second), optimiser_document(second)
    fresh = BatchedMuon(stopped, 0.5)
    restore_optimiser(fresh, *saved)
    moved(fresh, stopped)
    for one, other in zip(through, stopped, strict=True):
        assert torch.equal(one, other)


def test_it_takes_the_mode_wise_weights_and_the_linear_maps_of_fno() -> None:
    network = FNO(space=2, inputs=1, outputs=1, width=6, layers=2, modes=3)
    taken = matrices_of(network)
    names = {name for name, p in network.named_parameters() if p in taken}
    assert names == {
        *(f"multipliers.{i}.parts.0" for i in range(2)),
        *(f"linears.{i}.weight" for i in range(2)),
    }
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    network(torch.rand(2, 99, 2), torch.randn(2, 99, 1), grid=(9, 11)).square().sum().backward()
    BatchedMuon(taken, 0.1).step()
    for name, p in network.named_parameters():
        assert torch.equal(p, before[name]) == (name not in names), name


def test_what_is_no_matrix_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected real matrices, .* got one of shape \(3,\)"):
        BatchedMuon([nn.Parameter(torch.ones(3))])


def test_many_equal_matrices_take_fewer_calls_than_one_each(generator: torch.Generator) -> None:
    those = parameters(generator, *[(16, 16)] * 40)
    for parameter in those:
        parameter.grad = torch.randn(16, 16, generator=generator)
    optimiser = BatchedMuon(those)
    with torch.profiler.profile() as profile:
        optimiser.step()
    products = sum(e.count for e in profile.key_averages() if "bmm" in e.key)
    assert products < 60  # and not forty times fifteen
