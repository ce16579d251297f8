"""Modules that are loaded when they are first used.

Predicting with a trained run needs torch, numpy and safetensors. What only makes data or trains
(HDF5, solvers, launchers) is named by the same files, and must not be needed there.
"""

import importlib
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """Stands for a module until one of its names is asked for.

    >>> fractions = LazyModule("fractions")
    >>> fractions.Fraction(1, 2)
    Fraction(1, 2)
    """

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        """Of the module: whoever replaces a name for a while looks here for what was there."""
        return importlib.import_module(self.__name__).__dict__

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(importlib.import_module(self.__name__), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(importlib.import_module(self.__name__), name)
