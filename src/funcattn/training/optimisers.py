"""SOAP and Lion: two optimisers that PyTorch does not have."""

from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor, nn


class Optimiser(torch.optim.Optimizer):
    """An optimiser whose state `start` and `move` give, a parameter at a time."""

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
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.move(parameter, parameter.grad, group)
        return loss

    def move(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        """One parameter."""
        raise NotImplementedError

    def shapes(self, parameter: Tensor) -> set[tuple[int, ...]]:
        """Of the tensors that its state may have for a parameter."""
        return {tuple(parameter.shape), ()}


class Lion(Optimiser):
    """Lion (Chen et al., Symbolic Discovery of Optimization Algorithms, NeurIPS 2023).

        u = sign(b_1 m + (1 - b_1) g),   m <- b_2 m + (1 - b_2) g,   w <- (1 - r d) w - r u

    with rate r and weight decay d. As every entry moves by r, its rate is a third to a tenth of
    that of AdamW, by the paper.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float = 1e-4,
        *,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def move(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        """One parameter."""
        rate, decay, (first, second) = group["lr"], group["weight_decay"], group["betas"]
        state = self.state[parameter]
        if not state:
            state["mean"] = torch.zeros_like(parameter)
        update = state["mean"].lerp(grad, 1 - first).sign_()
        state["mean"].lerp_(grad, 1 - second)
        parameter.mul_(1 - rate * decay).add_(update, alpha=-rate)


class SOAP(Optimiser):
    """SOAP (Vyas et al., Improving and Stabilizing Shampoo using Adam, ICLR 2025).

        L_a <- b_2 L_a + (1 - b_2) G_a G_a^T                  for each axis a of the gradient G
        Q_a = eigenvectors of L_a                             anew every `every` steps
        M <- b_1 M + (1 - b_1) G,   V <- b_2 V + (1 - b_2) (Q^T G)^2
        W <- (1 - r d) W - r Q (Q^T M / sqrt(V))              with the corrections of Adam

    with G_a the gradient as a matrix of its axis a by all others, and Q^T, Q the products with all
    Q_a: Adam in the coordinates of Shampoo. As in the authors' code, the first gradient only starts
    the L_a; eigenvectors are followed by one power iteration and a QR decomposition; parameters of
    one axis, and axes longer than `longest`, keep their coordinates.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float = 3e-3,
        *,
        betas: tuple[float, float] = (0.95, 0.95),
        weight_decay: float = 0.0,
        eps: float = 1e-8,
        every: int = 10,
        longest: int = 2048,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "eps": eps}
        super().__init__(parameters, {**defaults, "every": every, "longest": longest})

    def move(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        """One parameter."""
        (first, second), state = group["betas"], self.state[parameter]
        axes = self._axes(parameter, group["longest"])
        if not state:
            state["step"], state["mean"] = 0, torch.zeros_like(grad)
            state["square"] = torch.zeros_like(grad)
            for axis in axes:
                gram = (1 - second) * _gram(grad, axis)
                state[f"gram{axis}"] = gram
                state[f"basis{axis}"] = torch.linalg.eigh(gram).eigenvectors.flip(-1)
            if axes:
                return
        state["step"] += 1
        bases = {axis: state[f"basis{axis}"] for axis in axes}
        turned = _turned(grad, {axis: basis.mT for axis, basis in bases.items()})
        state["mean"].lerp_(grad, 1 - first)
        state["square"].lerp_(turned.square(), 1 - second)
        mean = _turned(state["mean"], {axis: basis.mT for axis, basis in bases.items()})
        scale = (state["square"] / (1 - second ** state["step"])).sqrt_() + group["eps"]
        update = _turned(mean / (1 - first ** state["step"]) / scale, bases)
        rate, decay = group["lr"], group["weight_decay"]
        parameter.mul_(1 - rate * decay).add_(update, alpha=-rate)
        for axis in axes:
            state[f"gram{axis}"].lerp_(_gram(grad, axis), 1 - second)
            if state["step"] % group["every"] == 0:
                self._follow(state, axis)

    @staticmethod
    def _follow(state: dict[str, Any], axis: int) -> None:
        """New eigenvectors from the old, the largest first; squares keep to their directions."""
        gram, basis = state[f"gram{axis}"], state[f"basis{axis}"]
        order = (basis * (gram @ basis)).sum(0).argsort(descending=True)
        state["square"] = state["square"].index_select(axis, order)
        state[f"basis{axis}"] = torch.linalg.qr(gram @ basis[:, order]).Q

    @staticmethod
    def _axes(parameter: Tensor, longest: int) -> list[int]:
        """Those whose coordinates are changed."""
        if parameter.ndim < 2:
            return []
        return [axis for axis, length in enumerate(parameter.shape) if 1 < length <= longest]

    def shapes(self, parameter: Tensor) -> set[tuple[int, ...]]:
        """A square matrix for each axis too."""
        return super().shapes(parameter) | {(length, length) for length in parameter.shape}


def _gram(grad: Tensor, axis: int) -> Tensor:
    """G_a G_a^T."""
    rows = grad.movedim(axis, 0).flatten(1)
    return rows @ rows.T


def _turned(field: Tensor, matrices: dict[int, Tensor]) -> Tensor:
    """A tensor with a matrix applied along each of some axes."""
    for axis, matrix in matrices.items():
        field = torch.tensordot(matrix, field, dims=([1], [axis])).movedim(0, axis)
    return field
