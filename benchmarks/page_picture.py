"""The README's picture of the page: a permeability, both pressures, and their difference.

A random field from the law of the training data, with a stroke of the brush across it.

    python benchmarks/page_picture.py [RUN] [--out docs/pictures/page.png]
        [--record results/stroke_to_picture.json]

RUN: a Darcy run, by default the one that comes with the repository. Needs Chromium. What was
measured in the browser is printed and, where asked for, kept with the machine and its load: the
time from each movement of the brush to the picture of the surrogate's answer.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Page, sync_playwright

from funcattn.provenance import facts

STROKE = [(0.12, 0.3), (0.4, 0.2), (0.6, 0.45), (0.88, 0.35)]
"""In fractions of the drawing area."""


def main() -> None:
    """Serve the run, draw, solve, and keep what is seen."""
    asked = argparse.ArgumentParser()
    asked.add_argument("run", nargs="?", default="darcy")
    asked.add_argument("--out", type=Path, default=Path("docs/pictures/page.png"))
    asked.add_argument("--record", type=Path)
    given = asked.parse_args()
    busy = [round(each, 1) for each in os.getloadavg()]
    command = [sys.executable, "-m", "funcattn", "serve", given.run, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        try:
            address = next(found for line in service.stdout if (found := _address(line)))
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox"]
                )
                page = browser.new_page(
                    viewport={"width": 1280, "height": 1400}, device_scale_factor=1
                )
                measured = _draw(page, address)
                page.screenshot(path=given.out)
                record = {
                    "command": " ".join(["python", "benchmarks/page_picture.py", *sys.argv[1:]]),
                    **facts(),
                    "browser": f"Chromium {browser.version}",
                    "load_average": busy,
                    **measured,
                }
                browser.close()
                text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
                print(text)
                if given.record is not None:
                    given.record.write_text(text)
        finally:
            service.terminate()


def _address(line: str) -> str:
    found = re.search(r"http://[\d.:]+", line)
    return "" if found is None else found.group()


def _draw(page: Page, address: str) -> dict[str, Any]:
    """A stroke, then the solver; what it took."""
    page.set_default_timeout(300_000)
    # The same random field every time.
    page.add_init_script("Math.random = () => 0.5")
    page.goto(f"{address}/")
    page.locator("#cut .curve").wait_for()
    box = page.locator("#input canvas").bounding_box()
    assert box is not None
    with page.expect_response(lambda reply: "/random" in reply.url):
        page.get_by_role("button", name="Random field").click()
    page.wait_for_timeout(1000)
    for k, (x, y) in enumerate(STROKE):
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=12)
        if k == 0:
            page.mouse.down()
    page.mouse.up()
    page.mouse.move(5, 5)
    page.wait_for_timeout(1500)
    measured = page.evaluate(
        "() => performance.getEntriesByName('stroke to picture').map((each) => each.duration)"
    )
    page.get_by_role("button", name="Ask the solver").click()
    page.locator("#verdict").wait_for()
    page.mouse.move(5, 5)
    page.evaluate("() => document.activeElement.blur()")
    page.wait_for_timeout(500)
    return {
        "verdict": page.locator("#verdict").inner_text(),
        "pictures": len(measured),
        "median_ms": round(median(measured), 1),
        "least_ms": round(min(measured), 1),
        "most_ms": round(max(measured), 1),
    }


if __name__ == "__main__":
    main()
