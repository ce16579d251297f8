"""Every Python example in the README and the docs runs, in the order of the page."""

import re
from pathlib import Path

import pytest

from funcattn.tasks import TASKS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def examples(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page: Path) -> None:
    names: dict[str, object] = {}
    known = set(TASKS)
    try:
        for example in examples(page):
            exec(compile(example, page.name, "exec"), names)
    finally:  # other tests do not know the task that an example registers
        for name in set(TASKS) - known:
            del TASKS._entries[name]


def test_the_readme_has_an_example_of_ten_lines() -> None:
    first = examples(ROOT / "README.md")[0]
    assert len(first.strip().splitlines()) <= 10
