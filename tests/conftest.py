from collections.abc import Iterator
from typing import TYPE_CHECKING

import jaxtyping
import pytest
import torch

if TYPE_CHECKING:
    from funcattn.data import Store


@pytest.fixture
def generator() -> torch.Generator:
    """Randomness of a test's own, the same in every run and whatever ran before."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> "Store":
    """Where all tests of a session keep the same few samples; those of Darcy are there already."""
    # Not before the shape checks are in place.
    from funcattn.data import Store
    from funcattn.tasks.darcy import Darcy

    store = Store(tmp_path_factory.getbasetemp() / "data")
    Darcy(Darcy.defaults("smoke", "modern")).splits(store)
    return store


@pytest.fixture
def as_a_user() -> Iterator[None]:
    """Without the shape checks that only tests have, so that the library's own errors are seen."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
