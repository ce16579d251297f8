"""Networks that are a lift, a stack of blocks and a head.

Where points meet in sums only, a mesh can be encoded in a few coefficients per block, and these be
queried at any point, summed from parts of the mesh, or summed over processes.

Axes: b batch, n point, s space dimension, i input channel, o output channel, c width.
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as recomputed

from funcattn.models.base import FieldNetwork
from funcattn.models.blocks import Block
from funcattn.models.encoded import POINTS_AT_ONCE, Encoded, rows_of
from funcattn.models.matrices import matrices
from funcattn.nn.operator import Surroundings
from funcattn.nn.points import Points


class StackedNetwork(FieldNetwork):
    """Lift, blocks, head; `encode` and `query` where every block reads a mesh by coefficients.

    A network fills in `lifted` and `headed`, which look at each point by itself, and makes
    `blocks`, which are called as `block(x, points)`.

    surroundings: of each point, which `lifted` gets after the input values.
    """

    blocks: nn.ModuleList
    width: int
    checkpoint: bool = False
    """In training, blocks are computed again for the gradient instead of kept."""

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        time: bool,
        surroundings: Surroundings | None = None,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        self.surroundings = surroundings

    @abstractmethod
    def lifted(
        self,
        values: Float[Tensor, "b n i"] | None,
        time: Float[Tensor, " b"] | None,
        points: Points,
    ) -> Float[Tensor, "b n c"]:
        """The features before the first block, each point by itself; values: what `known` says."""

    @abstractmethod
    def headed(self, x: Float[Tensor, "b n c"]) -> Float[Tensor, "b n o"]:
        """The output fields from the features after the last block, each point by itself."""

    def fields(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n o"]:
        """Lift, blocks, head."""
        x = self.lifted(self.known(values, points), time, points)
        again = self.checkpoint and self.training and torch.is_grad_enabled()
        for block in self.blocks:
            call = partial(recomputed, block, use_reentrant=False) if again else block
            x = call(x, points)
        return self.headed(x)

    def encode(
        self,
        positions: Float[Tensor, "b n s"],
        values: Float[Tensor, "b n i"] | None = None,
        *,
        time: Float[Tensor, " b"] | None = None,
        mask: Bool[Tensor, "b n"] | None = None,
        weights: Float[Tensor, "b n"] | None = None,
    ) -> Encoded:
        """All that the points of a mesh have to say to any point, for `query`.

        `query(encode(positions, values), positions, values)` is `forward(positions, values)`.
        """
        values, points = self.at_the_door(values, time, Points(positions, None, mask, weights))
        masses = None if self.surroundings is None else self.surroundings.encode(points)
        x = self.lifted(self.known(values, points, masses), time, points)
        kept: list[Tensor] = []
        for layer, block in enumerate(self.stack):
            if layer:
                x = self.stack[layer - 1].read(x, kept[-1], points)
            kept.append(block.encode(x, points))
        return Encoded(tuple(kept), time, masses=masses)

    def query(
        self,
        encoded: Encoded,
        positions: Float[Tensor, "b n s"],
        values: Float[Tensor, "b n i"] | None = None,
        *,
        mask: Bool[Tensor, "b n"] | None = None,
        chunk: int = POINTS_AT_ONCE,
    ) -> Float[Tensor, "b n o"]:
        """The output fields of an encoded mesh at any points, at its time; 0 at masked points.

        Each point by itself, `chunk` points of each sample at once, so that memory is small for any
        number of them.
        """
        nodes = None if self.surroundings is None else self.surroundings.nodes
        encoded.check(len(self.blocks), len(positions), nodes)
        values, points = self.at_the_door(values, encoded.time, Points(positions, mask=mask))
        parts = []
        for rows in rows_of(positions.shape[1], chunk):
            here = points.at(rows)
            known = self.known(None if values is None else values[:, rows], here, encoded.masses)
            x = self.lifted(known, encoded.time, here)
            parts.append(self.headed(self.read(x, encoded.coefficients, here)))
        return points.cleared(torch.cat(parts, 1))

    def known(
        self,
        values: Float[Tensor, "b n i"] | None,
        points: Points,
        masses: Float[Tensor, "b a"] | None = None,
    ) -> Tensor | None:
        """What `lifted` gets: the input values, and where asked for the surroundings of each point.

        masses: of the encoded mesh that the points read; None: they are the whole mesh.
        """
        if self.surroundings is None:
            return values
        around = self.surroundings(points, masses)
        return around if values is None else torch.cat([values, around], dim=-1)

    def matrices_for_muon(self) -> list[nn.Parameter]:
        """Those of the blocks."""
        return matrices(self.blocks)

    @property
    def stack(self) -> list[Block]:
        """The blocks, in their order, where each reads a mesh through coefficients."""
        for block in self.blocks:
            if not isinstance(block, Block):
                raise ValueError(
                    "encode: expected blocks that read a mesh through a few coefficients, got "
                    f"{type(block).__name__}, which needs the whole grid; call the network on all "
                    "points at once"
                )
        return cast("list[Block]", list(self.blocks))

    def read(
        self, x: Float[Tensor, "b n c"], coefficients: Sequence[Tensor], points: Points
    ) -> Float[Tensor, "b n c"]:
        """The features after the first blocks, whose coefficients are given."""
        for block, kept in zip(self.stack, coefficients, strict=False):
            x = block.read(x, kept, points)
        return x
