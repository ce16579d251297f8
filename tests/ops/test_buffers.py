"""Buffers that are used again."""

import pytest
import torch

from funcattn.ops import buffers as module
from funcattn.ops.buffers import Buffers

LIKE = torch.empty(0)


def test_given_memory_is_taken_again_where_it_fits() -> None:
    pool = Buffers()
    first = pool.take(1000, LIKE)
    place = first.data_ptr()
    pool.give(first)
    second = pool.take(700, LIKE)
    assert (second.data_ptr(), len(second)) == (place, 700)
    assert pool.take(700, LIKE).data_ptr() != place  # it is taken
    pool.give(second)
    assert len(pool.take(1000, LIKE)) == 1000


def test_a_view_is_given_back_as_the_whole_flat_buffer() -> None:
    pool = Buffers()
    taken = pool.take(1000, LIKE)
    pool.give(taken.view(20, 50))
    assert (pool.idle, pool.take(700, LIKE).shape) == (4000, (700,))
    assert pool.idle == 0


def test_one_of_the_right_size_comes_before_a_longer_one() -> None:
    pool = Buffers()
    longer, right = pool.take(1000, LIKE), pool.take(800, LIKE)
    pool.give(longer)
    pool.give(right)
    assert pool.take(800, LIKE).data_ptr() == right.data_ptr()


@pytest.mark.parametrize(
    ("count", "like"),
    [(1001, LIKE), (499, LIKE), (1000, LIKE.double())],
    ids=["too short", "much too long", "another dtype"],
)
def test_what_does_not_fit_is_new(count: int, like: torch.Tensor) -> None:
    pool = Buffers()
    kept = pool.take(1000, LIKE)
    pool.give(kept)
    taken = pool.take(count, like)
    assert taken.data_ptr() != kept.data_ptr()
    assert (len(taken), taken.dtype) == (count, like.dtype)


def test_no_more_than_the_limit_is_kept() -> None:
    pool = Buffers(most=9000)
    taken = [pool.take(1000, LIKE) for _ in range(3)]  # of 4000 bytes
    for buffer in taken:
        pool.give(buffer)
    assert pool.idle == 8000
    pool.clear()
    assert pool.idle == 0


def test_the_limit_is_an_eighth_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "installed_bytes", lambda: 8000)
    assert Buffers().most == 1000
