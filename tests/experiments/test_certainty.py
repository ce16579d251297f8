"""Whether seeds tell two entries apart."""

import math

import numpy as np
import pytest
from scipy import stats

from funcattn.experiments.engine.certainty import probability

STEADY, OTHER = [0.238, 0.25, 0.224], [0.337, 0.316]


def test_two_entries_of_several_seeds_are_compared_by_a_t_test_on_logarithms() -> None:
    expected = stats.ttest_ind(np.log(STEADY), np.log(OTHER)).pvalue
    assert probability(STEADY, OTHER) == pytest.approx(expected, rel=1e-12)


def test_a_third_network_that_varies_wildly_does_not_blur_two_that_do_not() -> None:
    assert probability(STEADY, OTHER, [[6.9, 1.9]]) == probability(STEADY, OTHER)


def test_with_fewer_than_four_seeds_the_spread_is_that_of_all() -> None:
    one, two, others = [2.0], [1.0, 1.1], [[3.0, 3.3, 3.1], [5.0]]
    alone = stats.t.sf(math.log(2 / math.sqrt(1.1)) / math.sqrt(1.5 * np.log(two).var(ddof=1)), 1)
    assert probability(one, two) == pytest.approx(2 * alone, rel=1e-12)
    spread = [np.log(values) for values in (two, others[0])]
    variance = sum(((x - x.mean()) ** 2).sum() for x in spread) / 3
    distance = (math.log(2.0) - spread[0].mean()) / math.sqrt(variance * (1 + 1 / 2))
    assert probability(one, two, others) == pytest.approx(2 * stats.t.sf(distance, 3), rel=1e-12)


def test_three_seeds_against_one_are_compared_by_the_spread_of_the_three() -> None:
    assert probability(STEADY, [0.3]) == probability(STEADY, [0.3], [[6.9, 1.9]])
