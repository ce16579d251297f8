"""The version of the code: what changes it, and what does not."""

from pathlib import Path

import pytest

from funcattn.experiments.version import code_version

FILES = {
    "settings.py": '"""Settings."""\nWIDTH = 3\n"""Channels."""\n',
    "ops/linalg.py": "def solve(a, b):\n    return a + b\n",
    "nn/ridges.py": "SMALLEST = 1e-6\n",
    "nn/rivals/linear.py": "SLOPE = 1\n",
    "models/registry.py": "MODELS = {}\n",
    "data/store.py": "KEPT = True\n",
    "training/loop.py": "STEPS = 2\n",
    "training/report.py": "COLOURS = 5\n",
    "tasks/base.py": "VISITS = 1\n",
    "tasks/darcy.py": "from funcattn.pde import darcy\nfrom funcattn.tasks.base import VISITS\n",
    "tasks/pipe.py": "from funcattn.pde import pipe\n",
    "pde/darcy.py": "from funcattn.pde.random_fields import field\n",
    "pde/random_fields.py": "def field(): pass\n",
    "pde/pipe.py": "CELLS = 4\n",
    "viz/style.py": "PAGE = 10\n",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A small package with the folders of ours."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "name",
    sorted(FILES.keys() - {"training/report.py", "viz/style.py", "tasks/pipe.py", "pde/pipe.py"}),
)
def test_code_that_decides_numbers_changes_it(package: Path, name: str) -> None:
    before = code_version("darcy", package)
    path = package / name
    path.write_text(path.read_text() + "UNUSED = 3\n")
    assert code_version("darcy", package) != before


@pytest.mark.parametrize(
    "name", ["training/report.py", "viz/style.py", "tasks/pipe.py", "pde/pipe.py"]
)
def test_pictures_and_other_tasks_do_not_change_it(package: Path, name: str) -> None:
    before = code_version("darcy", package)
    (package / name).write_text("UNUSED = 3\n")
    assert code_version("darcy", package) == before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("settings.py", '"""Other words."""\n\nWIDTH = 3  # a remark\n"""In words."""\n'),
        ("ops/linalg.py", 'def solve(a, b):\n    """Add."""\n    return (\n        a + b\n    )\n'),
    ],
)
def test_words_and_layout_do_not_change_it(package: Path, name: str, text: str) -> None:
    before = code_version("darcy", package)
    (package / name).write_text(text)
    assert code_version("darcy", package) == before


def test_a_file_that_moved_changes_it(package: Path) -> None:
    before = code_version("darcy", package)
    (package / "nn/ridges.py").rename(package / "nn/ridge.py")
    assert code_version("darcy", package) != before


def test_ours_has_one() -> None:
    assert len(code_version("darcy")) == 12
    assert code_version("darcy") != code_version("pipe")
