"""One thread that asks the networks; questions that wait together are asked together."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from funcattn.data import Batch
from funcattn.serve.model import Question, ServedModel
from funcattn.serve.predictor import Told

MOST_TOGETHER = 32
MOST_POINTS = 2**17
"""Of all questions that are asked together: more of them save nothing."""


@dataclass(eq=False)
class _Wanted:
    model: ServedModel
    question: Question
    work: Callable[[], Any] | None = None
    """What to do in the place of a prediction."""
    future: "Future[Any]" = field(default_factory=Future)

    @property
    def key(self) -> tuple[Any, ...]:
        return (id(self.model), self.question.key)


@dataclass(frozen=True)
class Answer:
    """What the run said, and how long it took."""

    told: Told
    seconds: float
    together: int
    """Questions that were asked together."""


class Batcher:
    """Calls networks one after another, in a thread of its own."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._waiting: deque[_Wanted] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
        self._thread.start()

    def ask(self, model: ServedModel, question: Question) -> "Future[Answer]":
        """A prediction, when its turn comes; cancelled before that, it is not made."""
        return self._add(_Wanted(model, question))

    def call(
        self, model: ServedModel, question: Question, work: Callable[[], Any]
    ) -> "Future[Any]":
        """Something else that calls the network, by itself."""
        return self._add(_Wanted(model, question, work))

    def close(self) -> None:
        """End the thread after what it is doing; what waits is cancelled."""
        with self._changed:
            self._ended = True
            for wanted in self._waiting:
                wanted.future.cancel()
            self._waiting.clear()
            self._changed.notify()
        self._thread.join(timeout=30)

    def _add(self, wanted: _Wanted) -> "Future[Any]":
        with self._changed:
            if self._ended:
                wanted.future.cancel()
            else:
                self._waiting.append(wanted)
                self._changed.notify()
        return wanted.future

    def _work(self) -> None:
        torch.set_num_threads(self._threads)
        while (some := self._next()) is not None:
            running = [each for each in some if each.future.set_running_or_notify_cancel()]
            if running:
                _answer(running)

    def _next(self) -> "list[_Wanted] | None":
        """The oldest question, and those that can be asked with it; None at the end."""
        with self._changed:
            while not self._waiting and not self._ended:
                self._changed.wait()
            if self._ended:
                return None
            first = self._waiting.popleft()
            some, points = [first], _points(first)
            if first.work is not None:
                return some
            for other in list(self._waiting):
                if len(some) == MOST_TOGETHER or points + _points(other) > MOST_POINTS:
                    break
                if other.work is None and other.key == first.key:
                    self._waiting.remove(other)
                    some.append(other)
                    points += _points(other)
            return some


def _points(wanted: _Wanted) -> int:
    return wanted.question.batch.positions.shape[:2].numel()


def _answer(some: Sequence[_Wanted]) -> None:
    """Ask, and tell those who wait; together, or one by one where that fails."""
    if len(some) == 1:
        wanted = some[0]
        try:
            wanted.future.set_result(_result(wanted))
        except BaseException as error:
            wanted.future.set_exception(error)
        return
    try:
        start = time.perf_counter()
        told = some[0].model.told(_joined([each.question.batch for each in some]))
        parts = told.split([len(each.question.batch) for each in some])
        seconds = time.perf_counter() - start
    except Exception:
        # One of them may be to blame: the others are not to suffer.
        for each in some:
            _answer([each])
        return
    for each, part in zip(some, parts, strict=True):
        each.future.set_result(Answer(part, seconds, len(some)))


def _result(wanted: _Wanted) -> Any:
    if wanted.work is not None:
        return wanted.work()
    start = time.perf_counter()
    told = wanted.model.told(wanted.question.batch)
    return Answer(told, time.perf_counter() - start, 1)


def _joined(batches: Sequence[Batch]) -> Batch:
    """Batches of the same shapes as one."""
    parts: dict[str, Any] = {}
    for each in fields(Batch):
        first = getattr(batches[0], each.name)
        parts[each.name] = (
            torch.cat([getattr(batch, each.name) for batch in batches])
            if isinstance(first, Tensor)
            else first
        )
    return Batch(**parts)
