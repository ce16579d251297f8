from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import jaxtyping
import pytest
import torch
from torch import Tensor

if TYPE_CHECKING:
    from funcattn.data import Store


@pytest.fixture
def generator() -> torch.Generator:
    """Randomness of a test's own, the same in every run and whatever ran before."""
    return torch.Generator().manual_seed(0)


@pytest.fixture
def uniform(generator: torch.Generator) -> Callable[..., Tensor]:
    """Draws numbers between 0 and 1 in float64."""
    return partial(torch.rand, dtype=torch.float64, generator=generator)


@pytest.fixture
def assert_equal_to_rounding() -> Callable[[Tensor, Tensor], None]:
    """Compares numbers of order one."""
    return partial(torch.testing.assert_close, rtol=0, atol=1e-12)


@pytest.fixture
def in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functional attention does the few points of a test as it does many, in chunks."""
    from funcattn.nn import chunked

    monkeypatch.setattr(chunked, "_FEW_VALUES", 0)


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
