"""Positions and time as features."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.feature_maps import linear


class RawPositions(nn.Module):
    """The coordinates themselves."""

    def __init__(self, dims: int) -> None:
        super().__init__()
        self.channels = dims

    def forward(self, positions: Float[Tensor, "b n s"]) -> Float[Tensor, "b n s"]:
        """The coordinates."""
        return positions


class LatticeDistances(nn.Module):
    """The distances of each point to the nodes of a regular lattice over a box, ends included.

    per_axis: nodes on each axis, the first axis slowest. lower, upper: corners of the box, for all
    axes or one number an axis; the unit box by default.
    """

    nodes: Tensor

    def __init__(
        self,
        dims: int,
        *,
        per_axis: int = 8,
        lower: float | Sequence[float] = 0.0,
        upper: float | Sequence[float] = 1.0,
    ) -> None:
        super().__init__()
        corners = torch.stack(
            [torch.as_tensor(corner, dtype=torch.float64).expand(dims) for corner in (lower, upper)]
        )
        axes = [
            torch.linspace(float(a), float(b), per_axis, dtype=torch.float64) for a, b in corners.T
        ]
        nodes = torch.cartesian_prod(*axes).reshape(-1, dims)
        self.register_buffer("nodes", nodes.to(torch.get_default_dtype()), persistent=False)
        self.channels = len(nodes)

    def forward(self, positions: Float[Tensor, "b n s"]) -> Float[Tensor, "b n k"]:
        """The distances; the products of the faster formula would cost half the digits."""
        nodes = self.nodes.to(positions.dtype).expand(len(positions), -1, -1)
        return torch.cdist(positions, nodes, compute_mode="donot_use_mm_for_euclid_dist")


class TimeEmbedding(nn.Module):
    """A time for each sample, as sines and cosines of many frequencies, through a small network."""

    def __init__(self, width: int, *, longest_period: float = 10_000.0) -> None:
        super().__init__()
        self.width, self.longest_period = width, longest_period
        self.expand, self.contract = linear(width, width), linear(width, width)

    def forward(self, time: Float[Tensor, " b"]) -> Float[Tensor, "b c"]:
        """The embedding."""
        half = self.width // 2
        exponent = torch.arange(half, dtype=time.dtype, device=time.device) / half
        phase = time[:, None] * torch.exp(-math.log(self.longest_period) * exponent)
        waves = torch.cat([phase.cos(), phase.sin()], dim=-1)
        waves = F.pad(waves, (0, self.width - 2 * half))  # an odd width has one channel left
        return self.contract(F.silu(self.expand(waves)))
