"""The site is whole: nothing dead, nothing from elsewhere, every public name on a page."""

import posixpath
import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

# What a browser fetches by itself, not when a reader follows a link.
FETCHED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "link": "href",
}
PUBLIC = (
    "funcattn",
    "funcattn.ops",
    "funcattn.nn",
    "funcattn.models",
    "funcattn.data",
    "funcattn.data.cases",
    "funcattn.tasks",
    "funcattn.serve",
    "funcattn.viz",
)
JOBS = {
    "own data": "own_data.html",
    "the layer in a network": "tutorials/own_network.html",
    "train and compare": "training.html",
    "deploy": "deploy.html",
    "reproduce the paper": "howto/reproduce.html",
}


class Reader(HTMLParser):
    """What a page links to and fetches, and the places in it that can be linked to."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.links_in_text: list[str] = []
        """Without those of menus."""
        self._in_text = False
        self.fetched: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        self._in_text |= tag == "article"
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
            self.links_in_text += [given["href"]] if self._in_text else []
        elif tag in FETCHED and FETCHED[tag] in given and given.get("rel") not in ("next", "prev"):
            self.fetched.append(given[FETCHED[tag]])
        if "style" in given:
            self.fetched += re.findall(r"url\(([^)]+)\)", given["style"])

    def handle_endtag(self, tag: str) -> None:
        self._in_text &= tag != "article"


@cache
def read(page: Path) -> Reader:
    reader = Reader()
    reader.feed(page.read_text())
    return reader


def pages(site: Path) -> list[Path]:
    # The page of errors is shown at any address, and so links to the site's root.
    found = [page for page in sorted(site.rglob("*.html")) if page.name != "404.html"]
    assert len(found) > 40
    return [page for page in found if "repository" not in page.relative_to(site).parts]


def targets(page: Path, links: list[str]) -> Iterator[tuple[str, Path, str]]:
    """Each link within the site: as it stands, its file, and the place there."""
    for link in links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        at = posixpath.normpath((page.parent / unquote(parts.path)).as_posix())
        yield link, (page if not parts.path else Path(at)), unquote(parts.fragment)


def test_no_link_is_dead(site: Path) -> None:
    dead = []
    for page in pages(site):
        reader = read(page)
        for link, file, place in targets(page, reader.links + reader.fetched):
            file = file / "index.html" if file.is_dir() else file
            lost = place and file.suffix == ".html" and place not in read(file).places
            if not file.is_file() or (lost and place != "__top"):
                dead.append(f"{page.relative_to(site)}: {link}")
    assert not dead, "\n".join(dead)


def is_abroad(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme not in ("", "data") or bool(parts.netloc)


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    abroad = [
        f"{page.relative_to(site)}: {address}"
        for page in pages(site)
        for address in read(page).fetched
        if is_abroad(address)
    ]
    for sheet in site.rglob("*.css"):
        abroad += [
            f"{sheet.relative_to(site)}: {address}"
            for address in re.findall(r"(?:@import|url\()\s*[\"']?([^\"')]+)", sheet.read_text())
            if is_abroad(address)
        ]
    assert not abroad, "\n".join(abroad)


def test_formulas_are_mathematics_without_scripts(site: Path) -> None:
    assert (site / "explanation" / "index.html").read_text().count("<math") >= 5
    for page in pages(site):
        text = page.read_text()
        assert "arithmatex" not in text, page
        assert not re.findall(r"<m[io]>\\\w+", text), f"{page}: a command that is not known"


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_explained(site: Path, module: str) -> None:
    places = {
        place.rsplit(".", 1)[-1]
        for page in (site / "reference").glob("*.html")
        for place in read(page).places
        if place.startswith("funcattn.")
    }
    names = {name for name in import_module(module).__all__ if not name.startswith("__")}
    assert names - {"models", "nn", "ops"} <= places


@pytest.mark.parametrize("job", JOBS)
def test_a_job_is_found_within_two_clicks(site: Path, job: str) -> None:
    """From the first page, by what its text and the next one's say, without the menu."""
    seen = {site / "index.html"}
    for _ in range(2):
        seen |= {
            file
            for page in list(seen)
            if page.suffix == ".html" and page.is_file()
            for _, file, _ in targets(page, read(page).links_in_text)
        }
    assert site / JOBS[job] in seen


def test_every_command_has_its_help(site: Path) -> None:
    from typing import get_args

    from funcattn.cli.commands import Command

    page = (site / "reference" / "command.html").read_text()
    for command in get_args(Command):
        assert f"usage: funcattn {command.__name__.lower()}" in page
