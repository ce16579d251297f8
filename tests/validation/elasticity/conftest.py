"""How nearly results should agree."""

from collections.abc import Callable

import numpy as np
import pytest


@pytest.fixture
def agree() -> Callable[[np.ndarray, np.ndarray, float], None]:
    """Every difference is within a tolerance times the largest value expected."""

    def check(actual: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * abs(expected).max())

    return check
