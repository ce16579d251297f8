"""The little linear algebra that the operators share."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from funcattn.errors import FuncattnError
from funcattn.ops.checks import values_are_visible

UNROLLED_UP_TO = 64
"""The largest system that is written out step by step: an ONNX file grows with every step."""
_DOUBLINGS = 40
"""Steps of the iteration for larger systems, enough for any condition that float32 can bear."""
_WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}


class NotPositiveError(FuncattnError, torch.linalg.LinAlgError):  # type: ignore[name-defined,misc]
    """A system that cannot be factored: its numbers are too large, or its ridge is lost in them."""


def solve_positive(matrix: Tensor, right: Tensor) -> Tensor:
    """Solve with a Hermitian positive definite matrix (... k k), by Cholesky: (... k e)."""
    if torch.onnx.is_in_onnx_export():
        return solve_positive_unrolled(matrix, right)
    return torch.cholesky_solve(right, cholesky(matrix))


def cholesky(matrix: Tensor) -> Tensor:
    """The lower factor of a Hermitian positive definite matrix (... k k)."""
    factor, info = torch.linalg.cholesky_ex(matrix)
    _check_solvable(matrix, info)
    return factor


def solve_by_elimination(matrix: Tensor, right: Tensor) -> Tensor:
    """`solve_positive` by elimination: the gradient is one more solve.

    That of a Cholesky factor costs several, which is more where systems are large.
    """
    if torch.onnx.is_in_onnx_export():
        return solve_positive_unrolled(matrix, right)
    solved, info = torch.linalg.solve_ex(matrix, right)
    _check_solvable(matrix, info)
    return solved


def _check_solvable(matrix: Tensor, info: Tensor) -> None:
    if values_are_visible(info) and bool(info.any()):
        raise NotPositiveError(
            f"expected positive definite systems, got {int(info.count_nonzero())} (of "
            f"{info.numel()}) that are not, in {matrix.dtype}, with numbers up to "
            f"{matrix.detach().abs().max().item():.3g}; use a larger ridge, check the units of the "
            "input, or look for input that is not finite with `funcattn.debug()`"
        )


def with_digits_to_spare(solve: Callable[..., Tensor], *given: Tensor) -> Tensor:
    """solve(*given); where a system is lost in rounding, with twice the digits.

    A Gram matrix has the square of its factor's condition number, so that in float32 a weak ridge
    beside large coefficients is soon gone.
    """
    try:
        return solve(*given)
    except NotPositiveError:
        wider = _WIDER.get(given[0].dtype)
        if wider is None or given[0].device.type == "mps":  # which has no float64
            raise
        return solve(*(tensor.to(wider) for tensor in given)).to(given[0].dtype)


def solve_positive_unrolled(matrix: Tensor, right: Tensor) -> Tensor:
    """The same for real matrices by elementary operations alone, as ONNX has no Cholesky.

    The steps are written out, one for each of the k unknowns; large systems are solved by
    iteration instead. A small system that is not positive definite gives nan.

    >>> import torch
    >>> matrix = torch.tensor([[4.0, 2.0], [2.0, 5.0]])
    >>> solve_positive_unrolled(matrix, torch.tensor([[8.0], [12.0]])).flatten()
    tensor([1., 2.])
    """
    if matrix.shape[-1] > UNROLLED_UP_TO:
        return _solve_by_doubling(matrix, right)
    # Cholesky's rows, top to bottom; forward substitution rides along.
    steps = []
    while matrix.shape[-1]:
        pivot = matrix[..., :1, :1].sqrt()
        row, known = matrix[..., :1, 1:] / pivot, right[..., :1, :] / pivot
        matrix = matrix[..., 1:, 1:] - row.mT * row
        right = right[..., 1:, :] - row.mT * known
        steps.append((pivot, row, known))
    # Back substitution, bottom to top; the last unknown has none below it.
    pivot, _, known = steps.pop()
    solution = known / pivot
    for pivot, row, known in reversed(steps):
        solution = torch.cat([(known - row @ solution) / pivot, solution], -2)
    return solution


def _solve_by_doubling(matrix: Tensor, right: Tensor) -> Tensor:
    """X <- X (2 I - A X), which doubles the digits of an inverse with every step.

    It starts from a multiple of the identity after both sides of A were scaled to a diagonal of
    ones, and ends with a step of refinement on the solution.
    """
    scale = matrix.diagonal(dim1=-2, dim2=-1).rsqrt().unsqueeze(-1)
    scaled = scale * matrix * scale.mT
    identity = identity_like(matrix)
    # The largest row sum bounds the eigenvalues.
    inverse = identity / scaled.abs().sum(-1, keepdim=True).amax(-2, keepdim=True)
    for _ in range(_DOUBLINGS):
        inverse = inverse @ (2 * identity - scaled @ inverse)
        inverse = (inverse + inverse.mT) / 2
    solution = inverse @ (scale * right)
    return scale * (solution + inverse @ (scale * right - scaled @ solution))


def identity_like(matrix: Tensor) -> Tensor:
    """The identity of a square matrix's size, dtype and device."""
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def at_least_float32(*dtypes: torch.dtype) -> torch.dtype:
    """The common dtype of all, and float32 where that is shorter."""
    common = torch.float32
    for dtype in dtypes:
        common = torch.promote_types(common, dtype)
    return common


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Autocast switched off: what is inside keeps the dtype it has."""
    # Switching off what is off takes a while, and small networks would feel it.
    if device.type != "meta" and (torch.compiler.is_compiling() or autocast_is_on(device)):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def autocast_is_on(device: torch.device) -> bool:
    """Whether products on a device are to be done in half precision; tensors without numbers, on
    the device `meta`, know nothing of that."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """In which products on a device are to be done, where that is asked for."""
    return torch.get_autocast_dtype(device.type) if autocast_is_on(device) else None


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the real part; `dtype.to_real()` cannot be compiled."""
    return {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(dtype, dtype)
