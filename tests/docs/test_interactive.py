"""The interactive page computes what the operator computes, and shows it."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from funcattn import functional_attention

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, which is not installed")


@pytest.fixture(scope="module")
def page(site: Path) -> Iterator["Page"]:
    """The page in a browser, which may fetch nothing from elsewhere."""
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        abroad: list[str] = []
        page.on("request", lambda asked: abroad.append(asked.url))
        page.goto((site / "explanation" / "interactive.html").as_uri())
        yield page
        browser.close()
    assert all(url.startswith(("file:", "data:", "blob:")) for url in abroad), abroad


def moved(page: "Page", **values: float) -> None:
    """Move sliders, as a reader does."""
    for name, value in values.items():
        page.locator(f"input[name={name}]").fill(str(value))


def by_the_operator(x: torch.Tensor, temperature: float, bases: int, ridge: float) -> Any:
    """The same example by the package: waves, moved waves, two bumps."""

    def waves(at: torch.Tensor) -> torch.Tensor:
        angle = 2 * torch.pi * at[:, None] * torch.arange(1, 8)
        return torch.cat([torch.ones_like(at)[:, None], angle.sin(), angle.cos()], -1)

    def bump(centre: float, width: float) -> torch.Tensor:
        return (((2 * torch.pi * (x - centre)).cos() - 1) / width).exp()

    centres = (torch.arange(bases, dtype=x.dtype) + 0.5) / bases
    scores = (bases / (2 * torch.pi)) ** 2 * (2 * torch.pi * (x[:, None] - centres)).cos()
    basis = (scores / temperature).softmax(-1)[None, None]
    value = (bump(0.3, 0.05) - 0.6 * bump(0.65, 0.15))[:, None]
    fields = (part[None, None] for part in (waves(x - 0.2), waves(x), value))
    out, found = functional_attention(*fields, basis, basis, ridge=ridge, return_map=True)
    return basis[0, 0], found[0, 0], out[0, 0, :, 0]


@pytest.mark.parametrize(
    ("temperature", "bases", "ridge"),
    [(0.15, 16, 1e-4), (1.0, 2, 1e-2), (0.01, 32, 10.0), (5.0, 7, 1e-3)],
)
def test_the_numbers_are_those_of_the_operator(
    page: "Page", temperature: float, bases: int, ridge: float
) -> None:
    asked = {"temperature": temperature, "bases": bases, "ridge": ridge}
    seen = page.evaluate("asked => window.functionalAttention.compute(asked)", asked)
    got = {name: torch.tensor(seen[name], dtype=torch.float64) for name in ("x", "basis", "map")}
    basis, found, out = by_the_operator(got["x"], temperature, bases, ridge)
    torch.testing.assert_close(got["basis"], basis, rtol=0, atol=1e-12)
    torch.testing.assert_close(got["map"], found, rtol=0, atol=1e-8)
    output = torch.tensor(seen["output"], dtype=torch.float64)
    torch.testing.assert_close(output, out, rtol=0, atol=1e-8)


def test_moving_a_slider_changes_what_is_shown(page: "Page") -> None:
    moved(page, temperature=-0.8, bases=16, ridge=-4)
    before = page.locator("[data-show=output]").inner_html()
    assert page.locator("[data-show=basis] path").count() == 16
    moved(page, bases=5)
    assert page.locator("[data-show=basis] path").count() == 5
    assert page.locator("[data-show=map] rect").count() == 5 * 5 + 1
    assert page.locator("[data-show=output]").inner_html() != before
    few = page.locator("[data-show=error]").inner_text()
    moved(page, bases=16)
    assert float(page.locator("[data-show=error]").inner_text()[:-2]) < float(few[:-2])


def test_what_a_slider_says_is_what_is_computed(page: "Page") -> None:
    moved(page, temperature=0, bases=8, ridge=-2)
    said = page.locator(".functional-attention output").all_inner_texts()
    assert [float(text) for text in said] == [1.0, 8.0, 0.01]
    error = page.evaluate(
        "window.functionalAttention.compute({temperature: 1, bases: 8, ridge: 0.01}).error"
    )
    assert page.locator("[data-show=error]").inner_text() == f"{100 * error:.1f} %"
