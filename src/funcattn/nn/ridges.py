"""Learned ridges: modules that give the op a ridge, positive by construction."""

import math

import torch
from torch import nn

from funcattn.ops import Additive, Convex


class ConvexRidge(nn.Module):
    """(1 - a) Gram + a I with a = sigmoid(logit) learned, one for all or one per head."""

    def __init__(self, initial: float = 0.5, *, heads: int | None = None) -> None:
        super().__init__()
        if not 0 < initial < 1:
            raise ValueError(f"initial: expected a value between 0 and 1, got {initial}")
        start = math.log(initial / (1 - initial))
        self.logit = nn.Parameter(torch.full(() if heads is None else (heads,), start))

    def forward(self) -> Convex:
        """The ridge for the op."""
        # However far the logit goes, the system stays positive definite, in float32 too.
        return Convex(self.logit.sigmoid().clamp(min=1e-6))


class AdditiveRidge(nn.Module):
    """Gram + lambda I with lambda = exp(log_strength) learned, one for all or one per head."""

    def __init__(self, initial: float = 1e-2, *, heads: int | None = None) -> None:
        super().__init__()
        if not initial > 0:
            raise ValueError(f"initial: expected a positive value, got {initial}")
        start = math.log(initial)
        self.log_strength = nn.Parameter(torch.full(() if heads is None else (heads,), start))

    def forward(self) -> Additive:
        """The ridge for the op."""
        # However far the parameter goes, the strength does not underflow to 0.
        return Additive(self.log_strength.exp().clamp(min=1e-12))
