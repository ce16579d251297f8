from typing import Any

import pytest

from funcattn.fitting.budget import (
    ENOUGH_EPOCHS,
    MOST_EPOCHS,
    SHARE,
    SIZES,
    SIZES_ON_GRIDS,
    Ladder,
    plan,
    seconds_of,
)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [("10 min", 600), ("20min", 1200), ("90 s", 90), ("2 hours", 7200), (5, 5), ("1 minute", 60)],
)
def test_times_are_read_in_words(words: str | int, seconds: float) -> None:
    assert seconds_of(words) == seconds


@pytest.mark.parametrize("words", ["soon", "10 parsecs", "-3 s", 0, "0 min", "1..2 s", "nan"])
def test_what_is_no_time_is_refused(words: str | int) -> None:
    with pytest.raises(ValueError, match=r"budget: expected a time|could not convert"):
        seconds_of(words)


def cost(size: dict[str, Any]) -> float:
    return float(size["width"]) ** 2 / 1000


def test_more_time_gives_a_larger_network_or_more_epochs() -> None:
    plans = [plan(lambda t=seconds: float(t), cost, 100) for seconds in (10, 60, 600, 6000)]
    widths = [each.size["width"] for each in plans]
    assert widths == sorted(widths)
    assert widths[-1] > widths[0]


def test_the_time_is_kept() -> None:
    for seconds in (20.0, 100.0, 500.0):
        chosen = plan(lambda t=seconds: t, cost, 100)
        assert chosen.epochs * cost(chosen.size) <= SHARE * seconds
        assert chosen.epochs >= ENOUGH_EPOCHS or chosen.size == SIZES.sizes[0]


def test_there_is_always_an_epoch_and_never_too_many() -> None:
    assert plan(lambda: 1e-3, cost, 100).epochs == 1
    assert plan(lambda: 1e9, cost, 100).epochs == MOST_EPOCHS


def test_a_larger_network_is_taken_where_it_still_gets_its_steps() -> None:
    ladder = Ladder(({"width": 10}, {"width": 20}), steps=100_000)
    each = 0.4  # seconds of an epoch of the larger one, of 100 steps
    for epochs, width in ((999, 10), (1000, 20)):
        seconds = (epochs + 0.5) * each / SHARE
        assert plan(lambda t=seconds: t, cost, 100, ladder).size == {"width": width}


def test_on_grids_our_network_gets_deeper_and_not_wider() -> None:
    few, more = (
        plan(lambda t=seconds: t, lambda size: 1.0 * size["layers"], 250, SIZES_ON_GRIDS).size
        for seconds in (300.0, 400.0)
    )
    assert few == {"width": 32, "layers": 3}
    assert more == {"width": 32, "layers": 4}
