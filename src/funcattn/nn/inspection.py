"""Looking inside: what the attentions of a network see and solve, one object per call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from funcattn.ops import Basis, Form, Ridge, Solution, map_of


@dataclass(frozen=True)
class Inspection:
    """What one call of a layer did. A part that the layer does not have is None.

    layer: the module that was called.
    basis, key_basis: the functions on the points of both sides, (b h n g) and (b h m g), or objects
        that apply them by a fast transform.
    query, key, value: the coefficients q~, k~, v~, (b h g d).
    system: the matrix that was solved with, (b h k k), k = g in the primal form and d in the dual.
    """

    layer: nn.Module
    basis: Basis | None = None
    key_basis: Basis | None = None
    query: Tensor | None = None
    key: Tensor | None = None
    value: Tensor | None = None
    system: Tensor | None = None
    ridge: Ridge = field(default=0.0, repr=False)
    form: Form = field(default="auto", repr=False)

    @property
    def map(self) -> Tensor:
        """C, (b h g g): the map from the coefficients of the keys to those of the queries."""
        if self.query is None or self.key is None or self.system is None:
            raise ValueError(
                f"map: expected a layer of functional attention, got {type(self.layer).__name__}, "
                "which solves for no map between coefficients"
            )
        return map_of(self.query, self.key, ridge=self.ridge, form=self.form)

    @property
    def condition(self) -> Tensor:
        """The condition number of each system, (b h), in float64."""
        if self.system is None:
            raise ValueError(
                f"condition: expected a layer that solves a system, got {type(self.layer).__name__}"
            )
        return torch.linalg.cond(self.system.double())


@dataclass
class Watch:
    """Somebody who looks: what was seen so far.

    basis: whether bases are to be kept, which are as large as the fields.
    """

    basis: bool
    seen: list[Inspection] = field(default_factory=list)


class Inspectable(nn.Module):
    """A module that shows what it does to those who look, while they look."""

    watch: Watch | None = None
    """Set by `inspect`."""

    @property
    def shows(self) -> bool:
        """Whether somebody looks, at a call that is not being compiled."""
        return self.watch is not None and not torch.compiler.is_compiling()

    def show(
        self,
        bases: Callable[[], tuple[Basis | None, Basis | None]] = lambda: (None, None),
        **parts: Any,
    ) -> None:
        """Add a call to what is seen, if somebody looks; parts: as `Inspection` names them."""
        if self.watch is None:
            return
        with torch.no_grad():
            basis, key_basis = bases() if self.watch.basis else (None, None)
        seen = _detached(basis)
        key_seen = seen if key_basis is basis else _detached(key_basis)
        self.watch.seen.append(Inspection(self, seen, key_seen, **parts))

    def shown(
        self, bases: Callable[[], tuple[Basis | None, Basis | None]]
    ) -> Callable[[Solution], None] | None:
        """`show` for a solution of these bases, or None while nobody looks."""
        return (lambda solution: self.show(bases, **vars(solution))) if self.shows else None


@contextmanager
def inspect(network: nn.Module, *, basis: bool = True) -> Iterator[list[Inspection]]:
    """Within this context, collect what every attention of a network does, call by call.

    basis: also keep the bases, which are as large as the fields at the points.

    The list has one :class:`Inspection` per call of a layer, in their order. Calls that are
    compiled show nothing.

    >>> import torch
    >>> from funcattn import OperatorTransformer, inspect
    >>> network = OperatorTransformer(2, 0, 1, width=32, layers=2)
    >>> with inspect(network) as layers:
    ...     out = network(torch.rand(1, 50, 2))
    >>> [tuple(layer.map.shape) for layer in layers]
    [(1, 8, 64, 64), (1, 8, 64, 64)]
    """
    watch = Watch(basis)
    modules = [module for module in network.modules() if isinstance(module, Inspectable)]
    before = [module.watch for module in modules]
    for module in modules:
        module.watch = watch
    try:
        yield watch.seen
    finally:
        for module, earlier in zip(modules, before, strict=True):
            module.watch = earlier


def _detached(basis: Basis | None) -> Basis | None:
    return basis.detach() if isinstance(basis, Tensor) else basis
