"""A check that two results agree."""

from collections.abc import Callable

import numpy as np
import pytest


@pytest.fixture
def agree() -> Callable[[np.ndarray, np.ndarray, float], None]:
    """All differences are within a tolerance times the largest expected value."""

    def check(actual: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * abs(expected).max())

    return check
