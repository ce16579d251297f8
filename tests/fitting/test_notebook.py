"""What results and progress look like in a notebook."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import funcattn
from funcattn.fitting.notebook import bar_in_notebook
from funcattn.serve import Predictor
from funcattn.training.run import Run
from funcattn.viz import histogram

SMALL: dict[str, Any] = {"width": 8, "layers": 1}


class Page:
    """Stands in for a notebook's page: what was displayed, and drawn again."""

    def __init__(self) -> None:
        self.drawn: list[str] = []

    def display(self, page: Any, display_id: bool) -> "Page":
        assert display_id
        self.drawn.append(page.data)
        return self

    def update(self, page: Any) -> None:
        self.drawn.append(page.data)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    page = Page()
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=True))
    shown = SimpleNamespace(HTML=lambda data: SimpleNamespace(data=data), display=page.display)
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    return page


def test_fitting_draws_one_bar_and_says_the_errors(page: Page) -> None:
    values = np.random.default_rng(0).normal(size=(14, 4, 4))
    surrogate = funcattn.Surrogate(epochs=2, network=SMALL, yardsticks=False)
    surrogate.fit(values, values)
    assert page.drawn[0].startswith("<progress")
    assert "epoch 2, validation error" in page.drawn[-1]
    best = f"best {surrogate.run.record['validation']:.4g}"
    assert best in page.drawn[-1]


def test_elsewhere_there_is_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert bar_in_notebook() is None
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert bar_in_notebook() is None


def test_a_surrogate_and_its_run_show_what_came_out() -> None:
    values = np.random.default_rng(0).normal(size=(14, 4, 4))
    surrogate = funcattn.Surrogate(epochs=1, network=SMALL)
    assert "not fitted yet" in surrogate._repr_html_()
    surrogate.fit({"source": values}, {"field": values})
    shown = surrogate._repr_html_()
    assert f"{surrogate.run.record['test']['error']:.2%}" in shown
    assert all(name in shown for name in ("source", "field", *surrogate.comparison))
    shown = surrogate.run._repr_html_()
    assert f"{surrogate.run.record['validation']:.4g}" in shown
    assert "read once" in shown


def test_a_predictor_shows_its_fields() -> None:
    from funcattn.models import NormalisedNetwork
    from funcattn.tasks.darcy import Darcy
    from funcattn.training.setup import build_network

    network = build_network(Darcy(Darcy.defaults("smoke", "modern")))
    assert isinstance(network, NormalisedNetwork)
    predictor = Predictor(Darcy(Darcy.defaults("smoke", "modern")), network)
    for shown in (predictor._repr_html_(), repr(predictor)):
        assert "permeability" in shown
        assert "pressure" in shown
        assert f"{sum(p.numel() for p in network.network.parameters()):,}" in shown


def test_a_run_that_is_not_there_yet_has_a_plain_name() -> None:
    assert repr(Run("runs/none")) == "Run('runs/none')"


def test_a_figure_shows_itself() -> None:
    assert histogram([1.0, 2.0], x_label="x")._repr_png_().startswith(b"\x89PNG")
