"""Muon for many matrices at once: those of equal shape go through one batched iteration.

Which parameters hold matrices, and on which axes, is for the modules to say: a linear map has one
(outputs, inputs), a mode-wise map a stack of them, real or complex (`funcattn.models.matrices`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor, nn

from funcattn.models.matrices import matrices_for_muon, stacks_for_muon
from funcattn.ops.native import orthogonal as native

_COEFFICIENTS = (3.4445, -4.775, 2.0315)
"""Of the quintic iteration, as in the published optimiser."""
_LEAST = 1e-7
"""Norms that matrices are divided by are at least this."""


@dataclass(frozen=True)
class Matrices:
    """How a parameter is read as a stack of matrices (..., outputs, inputs).

    outputs, inputs: the axes of a matrix; all others count matrices. With inputs None there is one
    matrix, whose inputs are all the other axes, as in the kernel of a convolution. paired: the last
    axis holds real and imaginary part, and the matrices are complex.
    """

    outputs: int = 0
    inputs: int | None = 1
    paired: bool = False

    def read(self, parameter: Tensor) -> Tensor:
        """The stack, (k outputs inputs), complex where it is paired."""
        values = torch.view_as_complex(parameter.contiguous()) if self.paired else parameter
        if self.inputs is None:
            return values.movedim(self.outputs, 0).flatten(1).unsqueeze(0)
        stacked = values.movedim((self.outputs, self.inputs), (-2, -1))
        return stacked.reshape(-1, *stacked.shape[-2:])

    def as_it_stands(self, parameter: Tensor) -> Tensor | None:
        """A view of a contiguous parameter as a stack, of its matrices or of their transposes.

        None where its matrices are not in the last axes.
        """
        axes = parameter.ndim - self.paired
        if self.inputs is None or {self.outputs % axes, self.inputs % axes} != {axes - 2, axes - 1}:
            return None
        values = torch.view_as_complex(parameter) if self.paired else parameter
        return values.view(-1, *values.shape[-2:])

    def sizes(self, parameter: Tensor) -> tuple[int, int]:
        """Outputs and inputs of a matrix."""
        shape = parameter.shape[:-1] if self.paired else parameter.shape
        outputs = shape[self.outputs]
        return outputs, shape.numel() // outputs if self.inputs is None else shape[self.inputs]

    def write(self, stack: Tensor, like: Tensor) -> Tensor:
        """A stack with the axes of the parameter that it belongs to."""
        shape = list(like.shape[:-1] if self.paired else like.shape)
        if self.inputs is None:
            outputs = shape.pop(self.outputs)
            values = stack.reshape(outputs, *shape).movedim(0, self.outputs)
        else:
            sizes = [shape[self.outputs], shape[self.inputs]]
            counts = [
                size
                for axis, size in enumerate(shape)
                if axis not in (self.outputs % len(shape), self.inputs % len(shape))
            ]
            values = stack.reshape(*counts, *sizes).movedim((-2, -1), (self.outputs, self.inputs))
        return torch.view_as_real(values.resolve_conj()) if self.paired else values


class BatchedMuon(torch.optim.Optimizer):
    """Muon (Jordan et al., 2024) in full precision, batched over matrices of equal shape.

        B <- m B + (1 - m) G,   U = (1 - m) G + m B                      (Nesterov's momentum)
        X = U / ||U||_F,   X <- a X + (b X X^H + c (X X^H)^2) X          (five times)
        W <- (1 - r w) W - r sqrt(max(1, outputs / inputs)) X

    with rate r and weight decay w. Each matrix of a stack is orthogonalised by itself. Complex
    matrices are orthogonalised as such, which is the same as to orthogonalise [[Re, -Im], [Im, Re]]
    at half the cost: X then tends to the unitary factor of U. (Real and imaginary part taken as two
    matrices would not: the result would depend on the phase of the mode.)

    Relative to `torch.optim.Muon`: the same equations in the precision of the gradient (float32 at
    least) instead of bfloat16, and one call for all matrices of a shape instead of one for each.

    parameters: with how each is read; a matrix, by default.
    """

    def __init__(
        self,
        parameters: Mapping[nn.Parameter, Matrices] | Iterable[nn.Parameter],
        lr: float = 1e-2,
        *,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        steps: int = 5,
    ) -> None:
        if not isinstance(parameters, Mapping):
            parameters = dict.fromkeys(parameters, Matrices())
        for parameter, how in parameters.items():
            if parameter.ndim - how.paired < 2 or parameter.is_complex():
                raise ValueError(
                    "parameters: expected real matrices, or stacks of them, got one of shape "
                    f"{tuple(parameter.shape)} and {parameter.dtype}; give others to AdamW"
                )
        self._how = list(parameters.values())
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "steps": steps}
        super().__init__(list(parameters), defaults)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step on the gradients that are there."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        (group,) = self.param_groups
        alike: dict[tuple[Any, ...], list[tuple[Tensor, Matrices, Tensor, bool]]] = {}
        for parameter, how in zip(group["params"], self._how, strict=True):
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(parameter.grad)
            buffer = state["momentum_buffer"]
            buffer.lerp_(parameter.grad, 1 - group["momentum"])
            update = parameter.grad.lerp(buffer, group["momentum"])
            stands = how.as_it_stands(update) if update.is_contiguous() else None
            if stands is not None and native.can_do(stands):
                # One matrix after the other, where it stands: no copies, and no need for batches.
                native.orthogonalise(stands, group["steps"], _COEFFICIENTS, _LEAST)
                _move(parameter, update, how.sizes(parameter), group)
                continue
            stack = how.read(update)
            stack = stack.to(torch.promote_types(stack.dtype, torch.float32))
            tall = stack.shape[-2] > stack.shape[-1]
            stack = stack.mH if tall else stack
            kind = (tuple(stack.shape[1:]), stack.dtype, stack.device)
            alike.setdefault(kind, []).append((parameter, how, stack, tall))
        for members in alike.values():
            stacks = torch.cat([stack for *_, stack, _ in members])
            sizes = [len(stack) for *_, stack, _ in members]
            results = orthogonalised(stacks, group["steps"]).split(sizes)
            for (parameter, how, _, tall), result in zip(members, results, strict=True):
                update = how.write(result.mH if tall else result, parameter)
                _move(parameter, update.to(parameter.dtype), how.sizes(parameter), group)
        return loss


def _move(
    parameter: Tensor, update: Tensor, sizes: tuple[int, int], group: Mapping[str, Any]
) -> None:
    """The last line of the equations."""
    outputs, inputs = sizes
    parameter.mul_(1 - group["lr"] * group["weight_decay"])
    parameter.add_(update, alpha=-group["lr"] * max(1.0, outputs / inputs) ** 0.5)


def orthogonalised(stack: Tensor, steps: int = 5) -> Tensor:
    """Matrices (k r c), r <= c, with their singular values brought near 1 by Newton-Schulz."""
    a, b, c = _COEFFICIENTS
    norm = torch.linalg.vector_norm(stack, dim=(-2, -1), keepdim=True)
    x = stack / norm.clamp(min=_LEAST)
    for _ in range(steps):
        gram = x @ x.mH
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def matrices_of(model: nn.Module) -> dict[nn.Parameter, Matrices]:
    """The matrices and stacks of matrices that a network declares, and how each is read."""
    read = dict.fromkeys(matrices_for_muon(model), Matrices())
    read |= {parameter: Matrices(*axes) for parameter, axes in stacks_for_muon(model).items()}
    return {parameter: how for parameter, how in read.items() if parameter.requires_grad}
