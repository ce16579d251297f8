"""Whether two entries differ by more than seeds do."""

import math
import statistics
from collections.abc import Iterable, Sequence

CERTAIN = 0.05
"""Entries differ where chance gives such a difference with a smaller probability."""


_DEGREES = 2
"""Of freedom, that two entries need to be compared by their own spread: four seeds together."""


def probability(
    a: Sequence[float],
    b: Sequence[float],
    others: Iterable[Sequence[float]] = (),
    *,
    factor: float = 1.0,
) -> float | None:
    """How probable so large a difference of two means is if a is b times a factor.

    A two-sided t-test on logarithms, or on the numbers themselves where some are not positive. The
    spread of the seeds is pooled over both; where these have fewer than `_DEGREES` degrees of
    freedom, over all others with several seeds too: an entry of one seed is taken to vary as its
    rivals do. None: no entry has two seeds.

    >>> round(probability([1.0, 1.1, 0.9], [1.05, 1.0, 1.1]), 2)
    0.47
    >>> probability([1.0, 1.1, 0.9], [2.0]) < 0.05
    True
    >>> probability([1.0], [2.0]) is None
    True
    """
    pool = [a, b, *others]
    logarithmic = all(value > 0 for values in pool for value in values)

    def scaled(values: Sequence[float]) -> list[float]:
        return [math.log(value) if logarithmic else value for value in values]

    several = [scaled(values) for values in (a, b) if len(values) > 1]
    if _degrees(several) < _DEGREES:
        several = [scaled(values) for values in pool if len(values) > 1]
    degrees = _degrees(several)
    if not degrees:
        return None
    squares = sum((len(values) - 1) * statistics.variance(values) for values in several)
    mean_a, mean_b = statistics.fmean(scaled(a)), statistics.fmean(scaled(b))
    apart = mean_a - mean_b - math.log(factor) if logarithmic else mean_a - factor * mean_b
    deviation = math.sqrt(squares / degrees * (1 / len(a) + 1 / len(b)))
    if deviation == 0:
        return float(apart == 0)
    from scipy import stats

    return float(2 * stats.t.sf(abs(apart) / deviation, degrees))


def _degrees(several: Iterable[Sequence[float]]) -> int:
    return sum(len(values) - 1 for values in several)


def doubt(chance: float | None) -> str:
    """Why a difference decides nothing, in words; empty where it does.

    >>> doubt(0.3), doubt(None), doubt(0.001)
    ('p = 0.3', 'one seed each', '')
    """
    if chance is None:
        return "one seed each"
    return "" if chance < CERTAIN else f"p = {chance:.2g}"
