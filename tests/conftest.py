from collections.abc import Iterator

import jaxtyping
import pytest
import torch


@pytest.fixture
def generator() -> torch.Generator:
    """Randomness of a test's own, the same in every run and whatever ran before."""
    return torch.Generator().manual_seed(0)


@pytest.fixture
def as_a_user() -> Iterator[None]:
    """Without the shape checks that only tests have, so that the library's own errors are seen."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
