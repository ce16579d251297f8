"""What the site has beyond its pages: mathematics, files of the repository, pages that are made.

- `$...$` becomes MathML when the site is built, so that no script has to be fetched for it.
- A link from a page to a file outside of docs/ (a record, a script, a picture) leads to a copy in
  the site, under repository/.
- The command's page is made from its help, tutorials from the scripts in examples/, and the pages
  of a contributor from the files of the repository's root.
"""

import contextlib
import html
import inspect
import io
import os
import re
import sys
from functools import cache
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any, get_args

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]

import gallery  # noqa: E402

COPIES = "repository"
PAGES = {
    "CONTRIBUTING.md": "contributing/index.md",
    "CHANGELOG.md": "contributing/changelog.md",
    "SECURITY.md": "contributing/security.md",
    "CODE_OF_CONDUCT.md": "contributing/conduct.md",
}
"""Files of the root that are pages."""
_LINK = re.compile(r"(\]\(|(?:src|href)=\")([^)\s\"#]+)(#[^)\s\"]*)?(?=[)\"])")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, then the files that pages link to."""
    made = {"reference/command.md": command_page()}
    made |= {page: (ROOT / file).read_text() for file, page in PAGES.items()}
    made |= {f"tutorials/{name}.md": gallery.page(name) for name in gallery.NAMES}
    for place, content in made.items():
        files.append(File.generated(config, place, content=content))
    linked = {
        target
        for file in files.documentation_pages()
        for target in _targets(file.src_uri, file.content_string)
    }
    for folder in [target for target in linked if (ROOT / target).is_dir()]:
        inside = sorted(path.name for path in (ROOT / folder).iterdir() if path.is_file())
        linked |= {f"{folder}/{name}" for name in inside}
        items = "".join(
            f'<li><a href="{re.sub("[.]md$", ".html", name)}">{name}</a></li>' for name in inside
        )
        listing = f"<!doctype html><title>{folder}</title><h1>{folder}</h1><ul>{items}</ul>"
        files.append(File.generated(config, f"{COPIES}/{folder}/index.html", content=listing))
    for target in sorted(linked):
        if (ROOT / target).is_file():
            path = str(ROOT / target)
            files.append(File.generated(config, f"{COPIES}/{target}", abs_src_path=path))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead the links to what is not in docs/ to where it is in the site."""
    if "<!-- gallery -->" in markdown:
        markdown = markdown.replace("<!-- gallery -->", gallery.cards())
    here = page.file.src_uri

    def led(link: re.Match[str]) -> str:
        place = _in_site(here, link.group(2))
        return f"{link.group(1)}{place or link.group(2)}{link.group(3) or ''}"

    return _LINK.sub(led, markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Formulas as MathML."""

    def shown(formula: re.Match[str]) -> str:
        display = "block" if formula.group(1) == "div" else "inline"
        return convert(html.unescape(formula.group(2)).strip(), display=display)

    return _FORMULA.sub(shown, content)


def _targets(here: str, text: str) -> set[str]:
    """The files outside of docs/ that a page links to, as paths from the root."""
    places = {_from_root(here, link.group(2)) for link in _LINK.finditer(text)}
    return {
        place
        for place in places
        if place and place not in PAGES and not place.startswith("docs/") and _is_there(place)
    }


@cache
def _is_there(place: str) -> bool:
    return (ROOT / place).exists()


def _from_root(here: str, link: str) -> str | None:
    """The path from the root of what a page links to; None for addresses elsewhere."""
    if re.match(r"\w+:|/", link):
        return None
    origin = {page: file for file, page in PAGES.items()}.get(here, f"docs/{here}")
    return normpath(str(PurePosixPath(origin).parent / link))


def _in_site(here: str, link: str) -> str | None:
    """The link from a page to a page of the root's files, or to a copy; None: as it stands."""
    place = _from_root(here, link)
    if place is None:
        return None
    if place in PAGES:
        target = PAGES[place]
    elif place.startswith("docs/"):
        target = place.removeprefix("docs/")
    elif place == "README.md":
        target = "index.md"
    else:
        listing = "/index.html" if (ROOT / place).is_dir() else ""
        target = f"{COPIES}/{place}{listing}"
    return relpath(target, str(PurePosixPath(here).parent))


def command_page() -> str:
    """The help of every command, as the command prints it."""
    import tyro

    from funcattn.cli.commands import Command

    parts = [
        "# The command\n\n"
        "`pip install 'funcattn[train]'` brings one command, `funcattn`. This page is its help, as "
        "`funcattn COMMAND --help` prints it. Commands that train also take the settings of tasks "
        "and networks: see [Settings](settings.md).\n"
    ]
    os.environ["COLUMNS"] = "76"  # as wide as a block of code on the page
    for command in get_args(Command):
        name = command.__name__.lower()
        said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            tyro.cli(command, prog=f"funcattn {name}", args=["--help"])
        said.seek(0)
        usage, _, options = _plain(said.read()).partition("\n")
        options = options[options.index("\u256d") :]
        words = inspect.getdoc(command)
        parts.append(f"\n## {name}\n\n{words}\n\n```text\n{usage}\n\n{options}\n```\n")
    return "".join(parts)


def _plain(text: str) -> str:
    """Terminal output without colours, and without this machine's own defaults."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = text.replace(str(Path.home()), "~")
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
