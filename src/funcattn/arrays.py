"""The types of numpy arrays that solvers and data share."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
"""Of any type."""
Floats = npt.NDArray[np.float64]
"""In double precision."""
Indices = npt.NDArray[np.int64]
"""Places in another array."""
