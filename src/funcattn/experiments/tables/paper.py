"""All numbers that the paper printed."""

import tomllib
from collections.abc import Mapping
from decimal import Decimal
from importlib.resources import files
from typing import Any


def _read() -> dict[str, Any]:
    text = files("funcattn.experiments.tables").joinpath("paper.toml").read_text(encoding="utf-8")
    return tomllib.loads(text, parse_float=Decimal)


PAPER: Mapping[str, Any] = _read()
"""By experiment, row and column, with all their digits."""
