"""Every block of code in the README and the docs is run, or asked of what would run it.

Python runs, in the order of the page. TOML has to be settings that exist. Lines of a shell are
given to the parser of the command, to the Makefile and to the package.
"""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from funcattn.cli import _asked
from funcattn.cli.commands import Compare, Generate, Race, Train
from funcattn.cli.settings import resolved
from funcattn.fitting.plan import FitPlan
from funcattn.settings import changed
from funcattn.tasks import TASKS
from funcattn.training.settings import default_settings

ROOT = Path(__file__).parents[1]
TEXTS = [
    *sorted(ROOT.glob("*.md")),
    *(ROOT / ".github").rglob("*.md"),
    ROOT / "models" / "README.md",
]
TEXTS += sorted((ROOT / "docs").rglob("*.md"))
PACKAGE = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def blocks(page: Path) -> list[tuple[str, str]]:
    """The language of each block of code, and its text."""
    return re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def of_kind(kind: str) -> list[Any]:
    """Pages that have blocks of this kind; those of the service run in tests/serve, beside one."""
    pages = [
        page
        for page in TEXTS
        if any(found == kind for found, _ in blocks(page))
        and not (kind == "python" and page.name == "serve.md")
    ]
    return [pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in pages]


# With a dozen validation samples, one case in thirteen is said to be unlike them and is not.
@pytest.mark.filterwarnings("ignore::funcattn.surrogate.OutsideTrainingWarning")
@pytest.mark.usefixtures("as_a_user")  # their time is that of a user, too
@pytest.mark.parametrize("page", of_kind("python"))
def test_python_runs(page: Path) -> None:
    names: dict[str, object] = {}
    known = set(TASKS)
    try:
        for kind, text in blocks(page):
            if kind == "python":
                exec(compile(text, page.name, "exec"), names)
    finally:  # other tests do not know the task that an example registers
        for name in set(TASKS) - known:
            del TASKS._entries[name]


@pytest.mark.parametrize("page", of_kind("toml"))
def test_settings_exist(page: Path) -> None:
    for kind, text in blocks(page):
        if kind != "toml":
            continue
        said = tomllib.loads(text)
        if "cases" in said:
            changed(FitPlan(), said)
        else:
            changed(default_settings("darcy", "cpu", "modern", "funcattn"), said)


def shell_lines(page: Path) -> list[str]:
    """The lines of a page's commands, without what is said about them."""
    lines = []
    for kind, text in blocks(page):
        if kind == "" and not text.startswith("src/funcattn/\n"):  # the plan of the house
            joined = text.replace("\\\n", " ")
            lines += [re.sub(r"(^|\s)#.*", "", line).strip() for line in joined.splitlines()]
    return [line for line in lines if line]


@pytest.mark.parametrize("page", of_kind(""))
def test_commands_can_be_given(page: Path) -> None:
    for line in shell_lines(page):
        given(shlex.split(line))


def given(words: list[str]) -> None:
    """Fail where a line asks for something that is not there."""
    match words:
        case ["torchrun", *rest] if "-m" in rest:
            given(rest[rest.index("-m") + 1 :])
        case ["torchrun", *rest]:
            assert any((ROOT / word).is_file() for word in rest), words
        case ["funcattn", *rest]:
            asked_of_the_command(rest)
        case ["make", target, *_]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), words
        case ["pip", "install", *rest]:
            assert all(extra in PACKAGE["optional-dependencies"] for extra in extras(rest)), words
        case ["python" | "python3", "-m", "venv" | "build", *_]:
            pass
        case ["python", script, *_]:
            assert (ROOT / script).is_file(), words
        case [".", ".venv/bin/activate"] | ["tensorboard" | "hf", *_]:
            pass
        case _:
            pytest.fail(f"expected a command that is known here, got {shlex.join(words)}")


def extras(words: list[str]) -> list[str]:
    """Those that are asked for, such as mesh in funcattn[mesh]."""
    found = re.findall(r"(?:funcattn|\.)\[([\w,]+)\]", " ".join(words))
    return [extra for part in found for extra in part.split(",")]


def asked_of_the_command(words: list[str]) -> None:
    """Parsed as the command parses it, settings of tasks and networks included."""
    if (words and words[0] in ("--help", "--version", "COMMAND")) or words[:1] == [
        "--tyro-print-completion"
    ]:
        return
    asked, rest = _asked(words)
    if isinstance(asked, Train | Compare | Generate) and asked.task in TASKS:
        preset = getattr(asked, "preset", "modern")
        resolved(asked.task, asked.profile, preset, None, rest)
    elif isinstance(asked, Race):
        assert asked.task in TASKS
        assert not rest
    elif asked.__class__.__name__ not in ("Train", "Compare", "Generate"):
        assert not rest, f"expected options of funcattn {words[0]}, got {rest}"


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_blocks_are_of_a_kind_that_is_checked(page: Path) -> None:
    assert {kind for kind, _ in blocks(page)} <= {"", "python", "toml", "text"}


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_block_is_hidden_from_these_tests(page: Path) -> None:
    """Every fence begins a line, and every other one ends a block."""
    fences = re.findall(r"^.*(?:```|~~~).*$", page.read_text(), re.MULTILINE)
    assert all(re.fullmatch(r"```\w*", fence) for fence in fences), fences
    assert len(fences) == 2 * len(blocks(page))


def test_the_readme_shows_its_first_picture_on_the_first_screen() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    (first, *_) = [number for number, line in enumerate(lines) if line.startswith("![")]
    assert first < 25
    assert "docs/pictures/first.png" in lines[first]


def test_the_readme_has_an_example_of_ten_lines() -> None:
    first = next(text for kind, text in blocks(ROOT / "README.md") if kind == "python")
    assert len(first.strip().splitlines()) <= 10
