"""ONO: attention as an integral operator in an orthonormal basis that another stream makes.

Axes: b batch, h head, n point, d channel of a head, c width, g basis function, k feature, o output
channel.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.base import FieldNetwork
from funcattn.models.blocks import Mlp
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.nn import OrthonormalBasis
from funcattn.nn.baselines.base import measure
from funcattn.nn.bases import split_heads
from funcattn.nn.feature_maps import linear
from funcattn.nn.points import Points
from funcattn.ops import lift, projector
from funcattn.settings import NetworkSettings


class EfficientAttention(nn.Module):
    """out = softmax over channels (q) / sqrt d  (softmax over points (k)^T v): linear in n."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_query, self.to_key, self.to_value = (
            linear(width, width, bias=False) for _ in range(3)
        )
        self.to_output = linear(width, width)

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b n c"]:
        """Each head by itself."""
        query, key, value = (
            split_heads(of(x), self.heads) for of in (self.to_query, self.to_key, self.to_value)
        )
        weights = measure(points, key)
        key = key if weights is None else key + weights.log()  # -inf at masked points
        moved = query.softmax(-1) @ (key.softmax(-2).mT @ value) / query.shape[-1] ** 0.5
        return self.to_output(moved.transpose(1, 2).flatten(2))  # (b, h, n, d) -> (b, n, h d)


class Functions(nn.Module):
    """A linear map of the features, as the values of basis functions (b 1 n g)."""

    def __init__(self, width: int, bases: int) -> None:
        super().__init__()
        self.map = linear(width, bases)

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b 1 n g"]:  # noqa: ARG002
        """At each point by itself."""
        return self.map(x).unsqueeze(1)


class ONOBlock(nn.Module):
    """A block of both streams.

    x <- x + attention(norm x),  x <- x + mlp(norm x)
    Psi = orthonormalised (W x),   y <- mlp(norm(y + Psi diag(softplus mu) <Psi, y>))

    with the inner product over the points.
    """

    def __init__(self, width: int, heads: int, bases: int, hidden: int, after: nn.Module) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(width), EfficientAttention(width, heads)
        self.mlp_norm, self.mlp = nn.LayerNorm(width), Mlp(width, hidden, width)
        self.basis = OrthonormalBasis(Functions(width, bases))
        self.eigenvalues = nn.Parameter(torch.zeros(bases))
        self.after_norm, self.after = nn.LayerNorm(width), after

    def forward(self, x: Tensor, y: Tensor, points: Points) -> tuple[Tensor, Tensor]:
        """Both streams."""
        x = x + self.attention(self.attention_norm(x), points)
        x = x + self.mlp(self.mlp_norm(x))
        basis = self.basis(x, points)
        inner = projector(basis, "inner_product", weights=points.weights, mask=points.mask)
        coefficients = F.softplus(self.eigenvalues)[:, None] * inner(y.unsqueeze(1))
        y = y + lift(basis, coefficients, mask=points.mask).squeeze(1).to(y.dtype)
        return x, self.after(self.after_norm(y))


class ONO(FieldNetwork):
    """Orthogonal neural operator (Xiao, Hao, Lin, Deng and Su, ICML 2024).

        x, y = lift(position, time, values)
        x, y = block(x, y)     `layers` times, the last with a linear map to the outputs
        out = y

    One stream makes features by attention; from them come orthonormal functions, in which the other
    stream is moved by a diagonal map. Linear in n.

    width, layers, heads: of the blocks. bases: g. ratio: hidden over outer width at each point.

    Relative to the paper: functions are made orthonormal over the points of each sample, where the
    public code uses the covariance over the batch and, in evaluation, its running average: so that
    a sample does not depend on its batch, and training and evaluation are one. The inner product is
    an average over points, the code's a sum, which would grow with their number. The attention is
    the linear one of Shen et al., which the code has by default.

    Parameters: 121 857 in 2D with width 64, 3 layers, 4 heads, 64 functions and one input and
    output, the defaults of the public code.

    >>> import torch
    >>> network = ONO(space=2, inputs=1, outputs=1, width=16, layers=2, heads=2, bases=8)
    >>> network(torch.rand(3, 500, 2), torch.randn(3, 500, 1)).shape
    torch.Size([3, 500, 1])
    """

    for_adamw = ("lift", "head")

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 64,
        layers: int = 3,
        heads: int = 4,
        bases: int = 64,
        ratio: int = 1,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        if width % heads:
            raise ValueError(f"width: expected a multiple of heads={heads}, got {width}")
        if layers < 1:
            raise ValueError(f"layers: expected at least 1, got {layers}")
        hidden = ratio * width
        self.lift = Mlp(self.features, 2 * width, 2 * width)
        self.head = linear(width, outputs)
        afters = [Mlp(width, hidden, width) for _ in range(layers - 1)]
        self.blocks = nn.ModuleList(
            ONOBlock(width, heads, bases, hidden, after) for after in (*afters, self.head)
        )

    def fields(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n o"]:
        """Lift, blocks."""
        x, y = self.lift(self.features_of(values, time, points)).chunk(2, dim=-1)
        for block in self.blocks:
            x, y = block(x, y, points)
        return y


@dataclass(frozen=True)
class ONOSettings(NetworkSettings):
    """Two streams, and a basis between them."""

    width: int = 64
    """Channels inside."""
    layers: int = 3
    heads: int = 4
    bases: int = 64
    """Orthonormal functions of a layer."""


MODELS.register(
    "ono",
    ModelEntry(
        "Orthogonal neural operator: a diagonal map in an orthonormal basis",
        "Xiao et al., Improved Operator Learning by Orthogonal Attention, ICML 2024",
        when="Few training samples: orthonormal functions are a strong regularisation.",
        fields=Form(ONOSettings, from_settings(ONO)),
        muon=True,
        published={"width": 64, "layers": 3, "heads": 4, "bases": 64},
        small={"width": 32, "layers": 3, "heads": 4, "bases": 32},
        tiny={"width": 8, "layers": 2, "heads": 2, "bases": 4},
    ),
)
