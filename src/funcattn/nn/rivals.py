"""The former name of `funcattn.nn.baselines`, kept for one version."""

import warnings
from typing import Any

from funcattn.nn import baselines


def __getattr__(name: str) -> Any:
    """What `funcattn.nn.baselines` has under that name."""
    value = getattr(baselines, name)
    warnings.warn(
        "funcattn.nn.rivals is now called funcattn.nn.baselines, and the old name goes with the "
        "next version; import from there",
        DeprecationWarning,
        stacklevel=2,
    )
    return value
