"""LaMO: a state-space model, read forwards and backwards, between averages of the points.

Tiwari, Dutta, Krishnan and Prathosh, Latent Mamba Operator for Partial Differential Equations,
ICML 2025; the state-space model is Hydra (Hwang, Lahoti, Puduppully, Dao and Gu, NeurIPS 2024).

Axes: b batch, h head of the attention, n point, g basis function, d channel of a head, c width,
p head of the state space, q channel of such a head, r state.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.attentions import ATTENTIONS, AttentionEntry, layer_of
from funcattn.nn.baselines.base import Baseline
from funcattn.nn.bases import LearnedBasis, split_heads
from funcattn.nn.feature_maps import FeatureMap, Pointwise, linear
from funcattn.nn.points import Points
from funcattn.ops import lift, projector
from funcattn.settings import SizedAttentionSettings

_LARGEST_HEAD = 64
"""Channels of a head of the state space, as published; fewer where they do not divide the width."""


def state_space(
    x: Float[Tensor, "b g p q"],
    step: Float[Tensor, "b g p"],
    decay: Float[Tensor, " p"],
    entry: Float[Tensor, "b g r"],
    exit_: Float[Tensor, "b g r"],
) -> Float[Tensor, "b g p q"]:
    """y_t = C_t h_t,  h_t = e^(-step_t decay) h_(t-1) + step_t B_t x_t, along g, from h = 0.

    entry, exit_: B and C. All steps at once, as a matrix below the diagonal.
    """
    passed = (step * decay).cumsum(1).movedim(1, -1)  # (b, p, g)
    lost = passed.unsqueeze(-1) - passed.unsqueeze(-2)  # from column to row
    later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
    kept = (-lost).masked_fill(later, -torch.inf).exp()
    scores = (exit_ @ entry.mT).unsqueeze(1) * kept  # (b, p, g, g)
    return torch.einsum("bpts,bspq->btpq", scores, step.unsqueeze(-1) * x)


class Hydra(nn.Module):
    """A state-space model in both directions: a quasi-separable matrix between tokens.

        z, u, step = W x,   u, B, C = silu(convolution of 3 tokens of u)
        y_t = forwards_(t-1) + backwards_(t+1) + (D + W_D u_t) u_t          (`state_space`)
        out = W_o (norm(y) silu(z))

    Each direction has B, C and steps of its own, and shares decays and the bias of the steps.
    """

    def __init__(self, width: int, *, states: int, expand: int) -> None:
        super().__init__()
        self.inner, self.states = expand * width, states
        self.channels = math.gcd(self.inner, _LARGEST_HEAD)
        heads = self.inner // self.channels
        self.sizes = [self.inner, self.inner + 4 * states, 2 * heads]
        self.to_all = linear(width, sum(self.sizes), bias=False)
        self.near = nn.Conv1d(self.sizes[1], self.sizes[1], 3, padding=1, groups=self.sizes[1])
        step = torch.exp(torch.empty(heads).uniform_(math.log(1e-3), math.log(0.1)))
        self.step = nn.Parameter(step + torch.log(-torch.expm1(-step)))  # softplus gives the step
        self.log_decay = nn.Parameter(torch.zeros(heads))
        self.skip = linear(self.inner, heads)
        nn.init.ones_(self.skip.bias)
        self.gain = nn.Parameter(torch.ones(self.inner))
        self.to_output = linear(self.inner, width, bias=False)

    def forward(self, x: Float[Tensor, "b g c"]) -> Float[Tensor, "b g c"]:
        """Between all tokens."""
        gate, u, steps = self.to_all(x).split(self.sizes, dim=-1)
        u = F.silu(self.near(u.mT).mT)
        u, *ends = u.split([self.inner, *(self.states for _ in range(4))], dim=-1)
        heads = u.unflatten(-1, (-1, self.channels))  # (b, g, p, q)
        decay, y = self.log_decay.exp(), self.skip(u).unsqueeze(-1) * heads
        for direction, (step, entry, exit_) in enumerate(
            zip(steps.chunk(2, dim=-1), ends[::2], ends[1::2], strict=True)
        ):
            given = heads, F.softplus(step + self.step), entry, exit_
            if direction:
                given = tuple(part.flip(1) for part in given)  # type: ignore[assignment]
            past = state_space(given[0], given[1], decay, given[2], given[3])
            past = F.pad(past[:, :-1], (0, 0, 0, 0, 1, 0))  # without the token itself
            y = y + (past.flip(1) if direction else past)
        y = y.flatten(2)
        y = y * (y.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * self.gain
        return self.to_output(y * F.silu(gate))


class LamoAttention(Baseline):
    """A state-space model between the coefficients of a learned basis.

        f~ = P(Phi) f            (g x c), averages of the field, all heads side by side
        out = Phi hydra(f~)      (n x c)

    with Phi a partition of unity (`LearnedBasis`): `TransolverAttention` with `Hydra` in the place
    of its softmax, which reads the basis functions in their order. Linear in n.

    bases: g. states: of the state space. expand: its width over that of the layer.

    Relative to the paper: its network for irregular meshes, with 64 states, expansion 2 and
    convolutions of 3 tokens, in blocks of ours, each with a basis of its own, where the public
    script for Elasticity lets all blocks share one; on grids it has stencils, where the public code
    for Darcy flow has patches. Averages are over the mass of each function alone, not over mass +
    1e-5; masks, weights and a context, whose coefficients are then mixed, are ours.

    Parameters of `Hydra`: 135 436 with the published width 128, 64 states and expansion 2.

    >>> import torch
    >>> LamoAttention(width=64, heads=4, bases=16)(torch.randn(2, 1000, 64)).shape
    torch.Size([2, 1000, 64])
    """

    def __init__(
        self,
        width: int,
        heads: int = 8,
        bases: int = 64,
        *,
        features: FeatureMap = Pointwise,
        states: int = 64,
        expand: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, dropout=dropout)
        self.basis = LearnedBasis(width, heads, bases, features=features)
        self.features = features(width, width)
        self.hydra = Hydra(width, states=states, expand=expand)

    def attend(
        self, x: Tensor, source: Tensor, here: Points, there: Points
    ) -> Float[Tensor, "b h n d"]:
        """Project, mix, lift."""
        basis = self.basis(x, here)
        known = basis if there is here else self.basis(source, there)
        field = split_heads(self.features(source, there), self.heads)
        project = projector(known, "average", weights=there.weights, mask=there.mask)
        tokens = project(field).to(field.dtype).transpose(1, 2).flatten(2)  # (b, g, h d)
        return lift(basis, split_heads(self.hydra(tokens), self.heads))


ATTENTIONS.register(
    "lamo",
    AttentionEntry(
        "Transformer with a state-space model between averages over learned slices",
        "Tiwari et al., Latent Mamba Operator, ICML 2025",
        when="As Transolver, to see what a state space does in the place of its softmax.",
        settings=SizedAttentionSettings,
        layer=layer_of(LamoAttention, bases="bases"),
    ),
)
