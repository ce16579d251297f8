"""The site's search works where the site is read from a folder, without a server."""

import shutil
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, which is not installed")
def test_a_word_is_found_in_a_folder(site: Path, patience: float) -> None:
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto((site / "start" / "index.html").as_uri())
        page.set_default_timeout(1000 * patience)
        page.locator("input.md-search__input").click()
        page.keyboard.type("Mahalanobis")
        found = page.locator(".md-search-result__link").first
        found.wait_for()
        assert "trust.html" in (found.get_attribute("href") or "")
        browser.close()
    assert not wrong
