"""A real browser for the page, where there is one."""

import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any
from urllib.parse import urlsplit

import pytest

import funcattn

STATIC = Path(funcattn.__file__).parent / "serve" / "static"
SCREENSHOTS = Path(__file__).parents[3] / "runs" / "screenshots"
"""Where pictures of the page are kept; git does not see them."""
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A browser for all tests of a process."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("the page is tested with Playwright: pip install playwright")
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


class Visitor:
    """Somebody with a browser, who notices every error and every request that goes elsewhere."""

    def __init__(self, browser: Any, address: str, **context: Any) -> None:
        self.address = address
        self.context = browser.new_context(
            **{"viewport": {"width": 1360, "height": 900}, "accept_downloads": True, **context}
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))

    def open(self, path: str = "/") -> Any:
        """The page, when its surrogate has answered."""
        self.page.goto(self.address + path)
        self.page.wait_for_function(
            "() => [...document.querySelectorAll('#surrogate .time')].some(e => e.textContent)"
        )
        return self.page

    def look(self, name: str, *, full: bool = False) -> None:
        """Keep a picture."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=full)

    def leave(self) -> None:
        """Close, and look back: nothing may have failed, or have gone elsewhere."""
        self.context.close()
        own = {urlsplit(self.address).netloc, ""}
        assert not self.errors
        assert self.hosts <= own


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[..., Visitor]]:
    """Opens browsers at an address."""
    visitors: list[Visitor] = []

    def new(address: str, **context: Any) -> Visitor:
        visitors.append(Visitor(chromium, address, **context))
        return visitors[-1]

    yield new
    for visitor in visitors:
        visitor.leave()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="session")
def static() -> Iterator[str]:
    """The address of the page's files alone."""
    handler = functools.partial(_Quiet, directory=str(STATIC))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def address(runs: Mapping[str, Path], own_run: Path, banded_run: Path) -> Iterator[str]:
    """The address of a service of the tasks whose inputs are made in different ways."""
    shown = [runs[name] for name in ("darcy", "elasticity", "burgers", "few_shot")]
    with serving([*shown, own_run, banded_run]) as (where, _):
        yield where


@contextmanager
def serving(folders: Sequence[Path], port: int = 0) -> Iterator[tuple[str, Popen[str]]]:
    """A service of some runs as people start it; its address, and its process."""
    command = [sys.executable, "-m", "funcattn", "serve", *map(str, folders)]
    process = Popen(
        [*command, "--port", str(port), "--threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"COLUMNS": "300"},
    )
    assert process.stdout is not None
    try:
        said = ""
        while "http://" not in said:
            line = process.stdout.readline()
            assert line, f"the service ended with {process.wait()}, and said {said}"
            said += line
        found = re.search(r"http://[\d.:]+", said)
        assert found is not None
        where = found.group()
        while not _answers(where):
            assert process.poll() is None, f"the service ended with {process.returncode}"
            time.sleep(0.05)
        yield where, process
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def _answers(where: str) -> bool:
    try:
        with urllib.request.urlopen(f"{where}/health", timeout=5):
            return True
    except OSError:
        return False
