"""Networks that regress a function from a few observations of it: the paper's sinusoids.

All are called with the points to predict at and the observations as a context of (x, y) pairs; none
knows how many of either there are. They differ in how the observations are carried to the queries:

    FewShotRegressor       ridge regression on a few averages of the observations: the paper's
    IntentionRegressor     ridge regression on the observations themselves
    TransolverRegressor    softmax attention to a few averages of the observations
    SoftmaxRegressor       softmax attention to the observations, with an encoder of y and a decoder

Axes: b task, n query point, m observation, g basis function, h head, c width, d channel of a head.
"""

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from funcattn.models.registry import Form
from funcattn.nn.bases import split_heads
from funcattn.nn.inspection import Inspectable
from funcattn.ops import Additive, Convex, Ridge, transport, without_padding
from funcattn.ops.checks import check_batch, check_finite, check_point_weights
from funcattn.settings import FunctionalRegressorSettings, RegressorSettings


class ContextRegressor(Inspectable, ABC):
    """What the networks share: the call, and one encoder for the points of both sides."""

    def __init__(self, width: int, layers: int, *, std: float | None) -> None:
        super().__init__()
        self.encoder = multilayer(1, width, width, layers=layers, std=std)

    def forward(
        self,
        positions: Float[Tensor, "b n 1"],
        values: None = None,
        *,
        context: Float[Tensor, "b m 2"],
        grid: tuple[int, ...] | None = None,  # noqa: ARG002
        mask: Bool[Tensor, "b n"] | None = None,
        weights: Float[Tensor, "b n"] | None = None,  # noqa: ARG002
    ) -> Float[Tensor, "b n 1"]:
        """The function at the positions, given pairs (x, y) of it; 0 at masked points.

        Queries do not see each other, so that a grid or weights of theirs change nothing.
        """
        _check(positions, values, context)
        check_point_weights(None, mask, positions.shape[1])
        check_batch(len(positions), mask=mask)
        check_finite(context=context)
        positions = without_padding(positions, mask)
        x, y = context.split(1, dim=-1)
        out = self.carried(self.encoder(positions), self.encoder(x), y).to(y.dtype)
        return without_padding(out, mask)

    @abstractmethod
    def carried(
        self,
        query: Float[Tensor, "b n c"],
        key: Float[Tensor, "b m c"],
        y: Float[Tensor, "b m 1"],
    ) -> Float[Tensor, "b n 1"]:
        """The observed y, carried from the encoded observations to the encoded queries."""

    def regressed(self, query: Tensor, key: Tensor, value: Tensor, ridge: Ridge) -> Tensor:
        """The transport, in float64: once features have grown, float32 loses a ridge of 1e-4."""
        return transport(
            query.double(),
            key.double(),
            value.double(),
            ridge=ridge,
            show=(lambda system: self.show(system=system)) if self.shows else None,
        )


class ObservationAverages(nn.Module):
    """Basis functions on the observations, Psi = softmax over m of scores(key) / temperature.

    Each sums to one over the observations, so that Psi^T f are weighted averages of f, and the
    number of observations does not matter. The temperature is learned, within [0.1, 5]. The scores
    have no bias: it would be the same for all observations, and softmax over them forgets it.
    """

    def __init__(self, width: int, bases: int, *, std: float | None, temperature: float) -> None:
        super().__init__()
        self.scores = nn.Linear(width, bases, bias=False)
        if std is None:
            nn.init.orthogonal_(self.scores.weight)
        else:
            nn.init.normal_(self.scores.weight, std=std)
        self.temperature = nn.Parameter(torch.tensor(temperature))

    def forward(self, key: Float[Tensor, "b m c"]) -> Float[Tensor, "b g m"]:
        """Psi^T, of encoded observations."""
        return (self.scores(key) / self.temperature.clamp(0.1, 5.0)).softmax(dim=1).mT


class FewShotRegressor(ContextRegressor):
    """Functional attention from queries to a few averages of the observations.

        k~ = Psi^T k      v~ = Psi^T y                       (g x c), (g x 1)
        y  = q k~^T ((1 - r) k~ k~^T + r I)^-1 v~            (n x 1)

    with q, k the encoded queries and observations: a ridge regression on g averages, linear in the
    observed y. width, layers: of the encoder, whose maps are linear with ReLU between them. bases:
    g. ridge: r, fixed.

    Relative to the paper: this is what its public code computes. The text has a basis on the query
    side too, softmax over the basis functions, separate encoders (the table's caption says shared)
    and 2 basis functions in the picture's caption; in the code queries are used directly, softmax
    is over the observations, one encoder serves both, and the basis functions are 8 (what the
    table calls heads: there is one). The code divides k~, and not v~, by the sums of Psi + 1e-5,
    which are 1 + 1e-5; here neither is divided.

    >>> import torch
    >>> network = FewShotRegressor(width=32)
    >>> network(torch.rand(3, 200, 1), context=torch.rand(3, 5, 2)).shape  # 5 observations
    torch.Size([3, 200, 1])
    """

    def __init__(
        self,
        width: int = 128,
        layers: int = 4,
        bases: int = 8,
        *,
        ridge: float = 1e-4,
        temperature: float = 0.5,
        std: float | None = 0.01,
    ) -> None:
        super().__init__(width, layers, std=std)
        self.averages = ObservationAverages(width, bases, std=std, temperature=temperature)
        self.ridge = Convex(ridge)

    def carried(
        self,
        query: Float[Tensor, "b n c"],
        key: Float[Tensor, "b m c"],
        y: Float[Tensor, "b m 1"],
    ) -> Float[Tensor, "b n 1"]:
        """Ridge regression on averages of the observations."""
        averages = self.averages(key).double()
        return self.regressed(query, averages @ key.double(), averages @ y.double(), self.ridge)


class IntentionRegressor(ContextRegressor):
    """Intention (Garnelo and Czarnecki 2023): y = sum over heads of Q (K^T K + r I)^-1 K^T y.

    A head has width / heads channels of the encoded points. Functional attention without a basis:
    the observations are their own coefficients.

    Relative to the paper: its table has 8 heads, its public code 4, summed. Every head fits all of
    y, so that h heads without ridge give h y at the observations; one head fits them exactly.
    """

    def __init__(
        self,
        width: int = 1000,
        layers: int = 4,
        heads: int = 4,
        *,
        ridge: float = 1e-4,
        std: float | None = 0.02,
    ) -> None:
        super().__init__(width, layers, std=std)
        if width % heads:
            raise ValueError(f"width: expected a multiple of heads={heads}, got {width}")
        self.heads, self.ridge = heads, Additive(ridge)

    def carried(
        self,
        query: Float[Tensor, "b n c"],
        key: Float[Tensor, "b m c"],
        y: Float[Tensor, "b m 1"],
    ) -> Float[Tensor, "b n 1"]:
        """Ridge regression on the observations, head by head."""
        y = y.unsqueeze(1).expand(-1, self.heads, -1, -1)  # (b, m, 1) -> (b, h, m, 1)
        query, key = split_heads(query, self.heads), split_heads(key, self.heads)
        return self.regressed(query, key, y, self.ridge).sum(1)


class TransolverRegressor(ContextRegressor):
    """Transolver's attention: softmax(q k~^T / sqrt(d)) v~ over averages of the observations.

    The averages are those of `FewShotRegressor`; what comes out is again an average of the
    observed y, never more than the largest of them.

    Relative to the paper: width 256 as in its public code (128 in its table). As in the code there
    is one head, but scores are divided by the root of an eighth of the width.
    """

    def __init__(
        self,
        width: int = 256,
        layers: int = 4,
        bases: int = 8,
        *,
        temperature: float = 0.5,
        std: float | None = None,
    ) -> None:
        super().__init__(width, layers, std=std)
        self.averages = ObservationAverages(width, bases, std=std, temperature=temperature)
        self.scale = (width / 8) ** -0.5

    def carried(
        self,
        query: Float[Tensor, "b n c"],
        key: Float[Tensor, "b m c"],
        y: Float[Tensor, "b m 1"],
    ) -> Float[Tensor, "b n 1"]:
        """Softmax attention to averages of the observations."""
        averages = self.averages(key)
        scores = self.scale * query @ (averages @ key).mT
        return scores.softmax(-1) @ (averages @ y)


class SoftmaxRegressor(ContextRegressor):
    """Scaled dot-product attention from the queries to the observations, y encoded and decoded.

    Relative to the paper: all parts are as wide as the encoder, as in its public code; its table
    has 128 for the value encoder and the decoder.
    """

    def __init__(
        self, width: int = 256, layers: int = 3, heads: int = 4, *, std: float | None = None
    ) -> None:
        super().__init__(width, layers, std=std)
        if width % heads:
            raise ValueError(f"width: expected a multiple of heads={heads}, got {width}")
        self.value_encoder = multilayer(1, width, width, layers=3, std=std)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.decoder = multilayer(width, width, 1, layers=2, std=std)

    def carried(
        self,
        query: Float[Tensor, "b n c"],
        key: Float[Tensor, "b m c"],
        y: Float[Tensor, "b m 1"],
    ) -> Float[Tensor, "b n 1"]:
        """Softmax attention to the observations."""
        attended, _ = self.attention(query, key, self.value_encoder(y), need_weights=False)
        return self.decoder(attended)


def multilayer(
    inputs: int, width: int, outputs: int, *, layers: int, std: float | None
) -> nn.Sequential:
    """So many linear maps with ReLU between them.

    Weights start at N(0, std^2) and biases at 0; std None: as PyTorch starts them.
    """
    if layers < 1:
        raise ValueError(f"layers: expected at least 1 linear map, got {layers}")
    sizes = [inputs, *(width,) * (layers - 1), outputs]
    modules: list[nn.Module] = []
    for here, there in itertools.pairwise(sizes):
        linear = nn.Linear(here, there)
        if std is not None:
            nn.init.normal_(linear.weight, std=std)
            nn.init.zeros_(linear.bias)
        modules += [linear, nn.ReLU()]
    return nn.Sequential(*modules[:-1])


def _check(positions: Tensor, values: Tensor | None, context: Tensor | None) -> None:
    """Shapes at the door, in words."""
    if positions.ndim != 3 or positions.shape[-1] != 1:
        raise ValueError(f"positions: expected (b, n, 1), got {tuple(positions.shape)}")
    if values is not None:
        raise ValueError(
            f"values: expected none, what is known of the function is the context; got "
            f"{tuple(values.shape)}"
        )
    got = None if context is None else tuple(context.shape)
    if got is None or len(got) != 3 or got[0] != len(positions) or got[1] < 1 or got[2] != 2:
        raise ValueError(
            f"context: expected pairs (x, y) of at least one observation for each of "
            f"{len(positions)} tasks, shape ({len(positions)}, m, 2), got {got}"
        )


@dataclass(frozen=True)
class SoftmaxRegressorSettings(RegressorSettings):
    """Softmax attention to the observations."""

    heads: int = 1


@dataclass(frozen=True)
class IntentionRegressorSettings(RegressorSettings):
    """Ridge regression on the observations."""

    heads: int = 1
    ridge: float = 1e-4


@dataclass(frozen=True)
class TransolverRegressorSettings(RegressorSettings):
    """Softmax attention to averages of the observations."""

    bases: int = 8
    """Averages."""


REGRESSORS = {
    "funcattn": Form(
        FunctionalRegressorSettings,
        lambda s, _: FewShotRegressor(s.width, s.layers, s.bases, ridge=s.ridge),
    ),
    "softmax": Form(
        SoftmaxRegressorSettings, lambda s, _: SoftmaxRegressor(s.width, s.layers, s.heads)
    ),
    "intention": Form(
        IntentionRegressorSettings,
        lambda s, _: IntentionRegressor(s.width, s.layers, s.heads, ridge=s.ridge),
    ),
    "transolver": Form(
        TransolverRegressorSettings, lambda s, _: TransolverRegressor(s.width, s.layers, s.bases)
    ),
}
"""By the name of the network whose form for observations they are."""
