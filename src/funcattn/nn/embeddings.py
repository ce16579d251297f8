"""Positions and time as features."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.feature_maps import linear
from funcattn.nn.points import per_dimension
from funcattn.ops.linalg import at_least_float32


class RawPositions(nn.Module):
    """The coordinates themselves."""

    def __init__(self, dims: int) -> None:
        super().__init__()
        self.dims = self.channels = dims

    def forward(self, positions: Float[Tensor, "b n s"]) -> Float[Tensor, "b n s"]:
        """The coordinates."""
        return positions


class LatticeDistances(nn.Module):
    """The distances of each point to the nodes of a regular lattice over a box, ends included.

    per_axis: nodes on each axis, the first axis slowest. lower, upper: corners of the box, for all
    axes or one number per axis; the unit box by default.
    """

    def __init__(
        self,
        dims: int,
        *,
        per_axis: int = 8,
        lower: float | Sequence[float] = 0.0,
        upper: float | Sequence[float] = 1.0,
    ) -> None:
        super().__init__()
        self.dims, self.per_axis, self.channels = dims, per_axis, per_axis**dims
        self.lower, self.upper = per_dimension(lower, dims), per_dimension(upper, dims)

    def forward(self, positions: Float[Tensor, "b n s"]) -> Float[Tensor, "b n k"]:
        """The distances; the products of the faster formula would cost half the digits."""
        dtype = positions.dtype
        positions = positions.to(at_least_float32(dtype))
        # The nodes are made here, in the precision of the positions, and not kept in another.
        axes = [
            torch.linspace(a, b, self.per_axis, dtype=positions.dtype, device=positions.device)
            for a, b in zip(self.lower, self.upper, strict=True)
        ]
        nodes = torch.cartesian_prod(*axes).reshape(-1, len(axes))
        if torch.onnx.is_in_onnx_export():  # which has no such operation
            apart = positions.unsqueeze(-2) - nodes  # (b, n, k, s)
            return apart.square().sum(-1).sqrt().to(dtype)
        nodes = nodes.expand(positions.shape[0], -1, -1)
        return torch.cdist(positions, nodes, compute_mode="donot_use_mm_for_euclid_dist").to(dtype)


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
