"""Questions that arrive together are answered together, and none disturbs another."""

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from funcattn.serve.batching import MOST_TOGETHER, Answer, Batcher
from funcattn.serve.drawn import EDITORS
from funcattn.serve.model import Question, ServedModel


class Held:
    """A batcher whose thread waits until questions have gathered."""

    def __init__(self, model: ServedModel, question: Question) -> None:
        self.batcher, self.go = Batcher(1), threading.Event()
        self.first = self.batcher.call(model, question, self.go.wait)


def questions(model: ServedModel, count: int) -> list[Question]:
    editor = model.editor
    assert editor is not None
    return [
        model.asked({"parameters": editor.random(np.random.default_rng(seed))})
        for seed in range(count)
    ]


@pytest.mark.parametrize("task", [*EDITORS, "banded"])
def test_batched_answers_are_those_of_single_questions(
    models: Mapping[str, ServedModel], task: str
) -> None:
    model = models[task]
    some = questions(model, 3)
    held = Held(model, some[0])
    futures = [held.batcher.ask(model, each) for each in some]
    held.go.set()
    answers: list[Answer] = [future.result() for future in futures]
    held.batcher.close()
    assert {answer.together for answer in answers} == {3}
    for question, answer in zip(some, answers, strict=True):
        alone = model.predictor.told(question.batch)
        scale = float(alone.fields.abs().max())
        assert (alone.lower is not None) == (task == "banded")
        for name in ("fields", "lower", "upper", "scores"):
            expected, found = getattr(alone, name), getattr(answer.told, name)
            if expected is not None:
                found, expected = torch.as_tensor(found), torch.as_tensor(expected)
                torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6 * scale)


def test_a_question_alone_is_answered_to_the_bit(models: Mapping[str, ServedModel]) -> None:
    model = models["darcy"]
    (question,) = questions(model, 1)
    batcher = Batcher(1)
    answer = batcher.ask(model, question).result()
    batcher.close()
    assert answer.together == 1
    assert torch.equal(answer.told.fields, model.predictor.fields(question.batch))


def test_a_bad_question_fails_alone(models: Mapping[str, ServedModel]) -> None:
    model = models["darcy"]
    some = questions(model, 3)
    assert some[1].batch.weights is not None
    bad = replace(some[1], batch=replace(some[1].batch, weights=-some[1].batch.weights))
    held = Held(model, some[0])
    futures = [held.batcher.ask(model, each) for each in (some[0], bad, some[2])]
    held.go.set()
    with pytest.raises(ValueError, match="weights"):
        futures[1].result()
    for place in (0, 2):
        assert torch.equal(
            futures[place].result().told.fields, model.predictor.fields(some[place].batch)
        )
    held.batcher.close()


def test_questions_of_other_shapes_and_models_wait_for_their_turn(
    models: Mapping[str, ServedModel],
) -> None:
    darcy, burgers = models["darcy"], models["burgers"]
    assert darcy.editor is not None
    fine = darcy.asked({"parameters": darcy.editor.default(), "refine": 2})
    coarse, line = questions(darcy, 1)[0], questions(burgers, 1)[0]
    held = Held(darcy, coarse)
    asked: list[tuple[ServedModel, Question]] = [
        (darcy, coarse),
        (burgers, line),
        (darcy, fine),
        (darcy, coarse),
    ]
    futures = [held.batcher.ask(*each) for each in asked]
    held.go.set()
    assert [future.result().together for future in futures] == [2, 1, 1, 2]
    held.batcher.close()


def test_no_more_are_asked_together_than_allowed_and_none_is_lost(
    models: Mapping[str, ServedModel],
) -> None:
    model = models["burgers"]
    (question,) = questions(model, 1)
    held = Held(model, question)
    futures = [held.batcher.ask(model, question) for _ in range(MOST_TOGETHER + 3)]
    held.go.set()
    together = [future.result().together for future in futures]
    held.batcher.close()
    assert together == [MOST_TOGETHER] * MOST_TOGETHER + [3] * 3


def test_cancelled_questions_are_not_asked(models: Mapping[str, ServedModel]) -> None:
    model = models["burgers"]
    (question,) = questions(model, 1)
    held = Held(model, question)
    futures = [held.batcher.ask(model, question) for _ in range(3)]
    assert futures[0].cancel()
    held.go.set()
    assert futures[2].result().together == 2
    held.batcher.close()


def test_the_end_cancels_what_waits(models: Mapping[str, ServedModel]) -> None:
    model = models["burgers"]
    (question,) = questions(model, 1)
    held = Held(model, question)
    waiting: Any = held.batcher.ask(model, question)
    threading.Timer(0.2, held.go.set).start()
    held.batcher.close()
    assert waiting.cancelled()
    assert held.batcher.ask(model, question).cancelled()
