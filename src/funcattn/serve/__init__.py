"""Trained runs, ready to use: in Python, and as a service over HTTP."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from funcattn.serve.predictor import Predictor, load

# Loaded when they are first used: the processes that solve do without torch.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A public name, from its home."""
        if name in __all__:
            from funcattn.serve import predictor

            return getattr(predictor, name)
        raise AttributeError(f"module 'funcattn.serve' has no attribute {name!r}")


__all__ = ["Predictor", "load"]
