"""Names of the last version go on working, and say what they are called now."""

import pytest

from funcattn.nn import baselines, rivals


def test_rivals_are_baselines() -> None:
    with pytest.warns(DeprecationWarning, match=r"funcattn\.nn\.baselines"):
        assert rivals.FlareAttention is baselines.FlareAttention
