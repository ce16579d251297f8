"""Inputs from what people draw, one file per task, and the solvers that answer them."""

from funcattn.serve.drawn.base import EDITORS, REFINEMENTS, Drawing, Editor

__all__ = ["EDITORS", "REFINEMENTS", "Drawing", "Editor"]
