"""OFormer: Galerkin attention with rotary positions, and a decoder that asks at any point.

Axes: b batch, h head, n point, d channel of a head, c width, s space dimension, k feature, o output
channel.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.base import FieldNetwork
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.nn.baselines.base import measure
from funcattn.nn.baselines.galerkin import integral_attention
from funcattn.nn.bases import split_heads
from funcattn.nn.points import Points
from funcattn.settings import NetworkSettings

_LONGEST = 10_000.0
"""The slowest rotation, in units of the fastest."""
_RESOLUTION = 64.0
"""Positions are turned in units of the spacing of so many points in the box."""


def rotated(
    field: Float[Tensor, "b h n d"], positions: Float[Tensor, "#b n s"], scale: float
) -> Float[Tensor, "b h n d"]:
    """Each pair of channels turned by an angle that is linear in one coordinate.

    A product of two such fields depends on the difference of their positions alone. Channels are
    shared out between the coordinates; those that are left over are not turned.

    >>> q, x = torch.ones(1, 1, 2, 4), torch.tensor([[[0.0], [1.0]]])
    >>> turned = rotated(q, x, 1.0)
    >>> torch.allclose(turned.norm(dim=-1), q.norm(dim=-1))
    True
    """
    space = positions.shape[-1]
    half = field.shape[-1] // (2 * space)
    exponent = torch.arange(half, dtype=positions.dtype, device=positions.device) / max(half, 1)
    angle = scale * _RESOLUTION * positions.unsqueeze(-1) * _LONGEST**-exponent  # (b, n, s, f)
    angle = angle.unsqueeze(1).to(field.dtype)
    turned, rest = field[..., : 2 * space * half], field[..., 2 * space * half :]
    first, second = turned.unflatten(-1, (space, 2, half)).unbind(-2)  # (b, h, n, s, f)
    cos, sin = angle.cos(), angle.sin()
    both = torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-2)
    return torch.cat([both.flatten(-3), rest], dim=-1)


class RotaryGalerkin(nn.Module):
    """out = W_o R(q) (R(norm k)^T norm v) / n, R the rotation by position; heads as wide as x.

    Queries start near a small multiple of the identity; crossing: keys and values, too.
    """

    def __init__(self, width: int, heads: int, scale: float, *, crossing: bool = False) -> None:
        super().__init__()
        self.heads, self.scale, inner = heads, scale, heads * width
        self.to_query, self.to_key, self.to_value = (
            nn.Linear(width, inner, bias=False) for _ in range(3)
        )
        self.to_output = nn.Linear(inner, width)
        maps = [self.to_query, *((self.to_key, self.to_value) if crossing else ())]
        with torch.no_grad():  # as published
            for head in (part for map_ in maps for part in map_.weight.split(width)):
                head.copy_(nn.init.orthogonal_(torch.empty_like(head), gain=1 / width))
                head += torch.eye(width, device=head.device) / width

    def forward(
        self, x: Float[Tensor, "b n c"], source: Float[Tensor, "b n c"], points: Points
    ) -> Float[Tensor, "b n c"]:
        """From the source, which lies on the same points, to x."""
        assert points.positions is not None
        query, key, value = (
            split_heads(of(field), self.heads)
            for of, field in (
                (self.to_query, x),
                (self.to_key, source),
                (self.to_value, source),
            )
        )
        query = rotated(query, points.positions, self.scale)
        key = rotated(F.layer_norm(key, key.shape[-1:]), points.positions, self.scale)
        value = F.layer_norm(value, value.shape[-1:])
        moved = integral_attention(query, key, value, measure(points, key))
        return self.to_output(moved.transpose(1, 2).flatten(2))  # (b, h, n, d) -> (b, n, h d)


class Gated(nn.Module):
    """W (gelu(a) * b), with a and b the halves of a linear map."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.expand, self.contract = nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "b n c"]) -> Float[Tensor, "b n c"]:
        """Each point by itself."""
        gate, value = self.expand(x).chunk(2, dim=-1)
        return self.contract(F.gelu(gate) * value)


class OFormerBlock(nn.Module):
    """x = norm(x), x + attention(x), x = norm(x), x + gated(x)."""

    def __init__(self, width: int, heads: int, scale: float) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = RotaryGalerkin(width, heads, scale), Gated(width)

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b n c"]:
        """The norms stand in the stream itself, as published."""
        x = self.attention_norm(x)
        x = self.mlp_norm(x + self.attention(x, x, points))
        return x + self.mlp(x)


class OFormer(FieldNetwork):
    """Operator transformer (Li, Meidani and Farimani, TMLR 2023).

        z = lift(position, time, values),   z = block(z)   `layers` times,   z = W z
        x = network(sin 2 pi x B, cos 2 pi x B)            B (s x latent / 2) drawn once
        x = x + cross-attention from z,   x = x + gated(x)
        out = network(x, position)

    width, layers, heads: of the encoder; every head is as wide as the features. latent: width of
    the decoder. Linear in n. The rotations of the first two layers are fast (64 and 16 times the
    others), so that they see near points as different.

    Relative to the paper: no dropout; the answer is asked for at the points of the input; the
    resolution that sets the speed of the rotations is 64 for all tasks, where the code has that of
    each; with more or fewer than two dimensions, channels are shared out evenly.

    Parameters: 2 556 321 in 2D with width 96, 6 layers, 4 heads, latent 256 and one input and
    output, the published configuration for Darcy flow.

    >>> import torch
    >>> network = OFormer(space=2, inputs=1, outputs=1, width=16, layers=2, heads=2, latent=32)
    >>> network(torch.rand(3, 500, 2), torch.randn(3, 500, 1)).shape
    torch.Size([3, 500, 1])
    """

    waves: Tensor
    for_adamw = ("lift", "place.0", "head.4")

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 96,
        layers: int = 6,
        heads: int = 4,
        latent: int = 256,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        self.lift = nn.Linear(self.features, width, bias=False)
        scales = [_RESOLUTION, _RESOLUTION / 4, *(1.0 for _ in range(layers))]
        self.blocks = nn.ModuleList(OFormerBlock(width, heads, s) for s in scales[:layers])
        self.to_latent = nn.Linear(width, latent, bias=False)
        self.register_buffer("waves", torch.randn(space, latent // 2) / 2)
        self.place = nn.Sequential(
            nn.Linear(2 * (latent // 2), latent, bias=False),
            nn.GELU(),
            nn.Linear(latent, latent, bias=False),
        )
        self.cross = RotaryGalerkin(latent, heads, 16.0, crossing=True)
        self.mlp = Gated(latent)
        self.head = nn.Sequential(
            nn.Linear(latent + space, latent, bias=False),
            nn.GELU(),
            nn.Linear(latent, latent // 2, bias=False),
            nn.GELU(),
            nn.Linear(latent // 2, outputs),
        )

    def fields(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n o"]:
        """Encode, ask, decode."""
        positions = points.positions
        assert positions is not None
        z = self.lift(self.features_of(values, time, points))
        for block in self.blocks:
            z = block(z, points)
        phase = 2 * math.pi * positions @ self.waves.to(positions.dtype)
        x = self.place(torch.cat([phase.sin(), phase.cos()], dim=-1))
        x = x + self.cross(x, self.to_latent(z), points)
        x = x + self.mlp(x)
        return self.head(torch.cat([x, positions], dim=-1))


@dataclass(frozen=True)
class OFormerSettings(NetworkSettings):
    """Encoder and decoder."""

    width: int = 96
    """Channels of the encoder, and of each of its heads."""
    layers: int = 6
    heads: int = 4
    latent: int = 256
    """Channels of the decoder."""


MODELS.register(
    "oformer",
    ModelEntry(
        "Operator transformer: Galerkin attention with rotary positions, and a decoder",
        "Li et al., Transformer for Partial Differential Equations' Operator Learning, TMLR 2023",
        when="Fields whose points act on each other by their distance.",
        fields=Form(OFormerSettings, from_settings(OFormer)),
        muon=True,
        published={"width": 96, "layers": 6, "heads": 4, "latent": 256},
        small={"width": 32, "layers": 4, "heads": 2, "latent": 64},
        tiny={"width": 8, "layers": 2, "heads": 2, "latent": 12},
    ),
)
