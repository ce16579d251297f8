import fractions

import pytest

from funcattn.lazy import LazyModule


def test_a_name_that_is_replaced_for_a_while_comes_back() -> None:
    before = fractions.Fraction
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LazyModule("fractions"), "Fraction", 1)
        assert fractions.Fraction == 1
    assert fractions.Fraction is before
