"""Equations -> reference solutions, one file per solver, no torch."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A solver, loaded when it is first used: who predicts needs none."""
        from funcattn.lazy import LazyModule

        full = f"{__name__}.{name}"
        if name.startswith("_") or find_spec(full) is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return LazyModule(full)
