import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import jaxtyping
import pytest
import torch
from torch import Tensor

if TYPE_CHECKING:
    from funcattn.data import Store

if not torch.cuda.is_available():
    # Triton's programs then run on the CPU, if this is said before it is imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")


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
    from funcattn.nn import execution

    monkeypatch.setattr(execution, "_FEW_VALUES", 0)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> "Store":
    """Where all tests of a session keep the same few samples; those of Darcy are there already.

    The processes of a session share it: each set is made once, by whoever needs it first.
    """
    # Not before the shape checks are in place.
    from funcattn.data import Store
    from funcattn.tasks.darcy import Darcy

    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    store = Store(shared / "data")
    Darcy(Darcy.defaults("smoke", "modern")).splits(store)
    return store


PATIENCE = 900.0
"""Seconds that only a hang can reach, however busy the machine is."""


def wait_until(
    happened: Callable[[], object], process: "subprocess.Popen[Any] | None" = None
) -> None:
    """Wait for something to happen, which cannot any more when the process has ended."""
    hopeless = time.monotonic() + PATIENCE
    while not happened():
        code = None if process is None else process.poll()
        if code is not None and not happened():
            assert process is not None
            said = process.communicate()[0] if process.stdout else ""
            pytest.fail(f"the process ended with {code}, and said {said}")
        if time.monotonic() > hopeless:
            pytest.fail(f"it did not happen within {PATIENCE} s")
        time.sleep(0.02)


@pytest.fixture(scope="session")
def until() -> Callable[..., None]:
    """`until(happened, process)`: see `wait_until`."""
    return wait_until


@pytest.fixture(scope="session")
def patience() -> float:
    """For calls that take a time limit: one that only a hang can reach."""
    return PATIENCE


@pytest.fixture
def started() -> "Iterator[list[subprocess.Popen[Any]]]":
    """Processes that a test starts, each with a group of its own, which is gone after the test."""
    processes: list[subprocess.Popen[Any]] = []
    yield processes
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def group_is_gone(group: int) -> bool:
    """Whether no process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture(scope="session")
def is_gone() -> Callable[[int], bool]:
    """`is_gone(process.pid)`: see `group_is_gone`."""
    return group_is_gone


@pytest.fixture
def as_a_user() -> Iterator[None]:
    """Without the shape checks that only tests have, so that the library's own errors are seen."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
