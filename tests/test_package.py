"""The package as others get it: names, versions, extras, and what it does without."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import funcattn
from funcattn.markup import table

ROOT = Path(__file__).parents[1]
PACKAGE = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOR_DEVELOPERS = {"all", "docs", "rivals", "test"}


def test_the_citation_is_of_this_version() -> None:
    said = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert said is not None
    assert said.group(1) == funcattn.__version__


def test_all_brings_all_that_users_may_need() -> None:
    extras = PACKAGE["optional-dependencies"]
    named = set(re.findall(r"[\w-]+", extras["all"][0].partition("[")[2]))
    brought = named | {
        part for name in named for each in extras[name] for part in re.findall(r"[\w-]+", each)
    }
    assert set(extras) - FOR_DEVELOPERS <= brought


def test_the_changelog_keeps_its_format() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    parts = re.findall(r"^### (\w+)", text, re.MULTILINE)
    assert set(parts) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert re.findall(r"^## (.+)$", text, re.MULTILINE)[0] == "Unreleased"


AS_ON_WINDOWS = """
import os, signal, sys
for name in ("resource", "fcntl", "pwd", "grp", "termios", "syslog"):
    sys.modules[name] = None
for name in ("getloadavg", "statvfs", "sysconf"):
    delattr(os, name)
for name in ("setitimer", "SIGPROF"):
    delattr(signal, name)
"""
"""What Python runs first: modules and functions that only Unix has are gone, for children too."""


@pytest.fixture
def as_on_windows(tmp_path: Path) -> Callable[..., str]:
    """Runs Python code, or commands, where there is nothing that only Unix has."""
    (tmp_path / "sitecustomize.py").write_text(AS_ON_WINDOWS)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_it_works_without_what_only_unix_has(as_on_windows: Callable[..., str]) -> None:
    """Fit, keep, predict, race and bench, and the process that reads files of others."""
    as_on_windows(
        "-c",
        """
import numpy as np, funcattn
from funcattn.bench import measure, memory
from funcattn.ops.memory import peak_rise
from funcattn.data.cases import open_folder, write_case, from_arrays
assert measure.resource is None and memory.resource is None
peak_rise(lambda: None)
values = np.random.default_rng(0).normal(size=(14, 4, 4))
network = {"width": 8, "layers": 1}
surrogate = funcattn.Surrogate(epochs=1, network=network, yardsticks=False).fit(values, values)
again = funcattn.load(surrogate.save("run"))
assert again.predict(values[:1] / 9).shape == (1, 4, 4)
write_case("a.vtu", from_arrays(None, values[:1], grid=(4, 4))[0])
assert len(open_folder("a.vtu")[0]) == 16  # read in a process of its own
""",
    )


def test_commands_work_without_what_only_unix_has(as_on_windows: Callable[..., str]) -> None:
    """From data to predictions, with a process for the data."""
    as_on_windows(
        "-c",
        """
import sys, numpy as np
from funcattn.cli import main

def asked(*words):
    sys.argv = ["funcattn", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (words, end.code)

smoke = ("--profile", "smoke", "--cache", "data")
asked("train", "darcy", "--out", "run", "--workers", "2", *smoke)
asked("evaluate", "run", "--cache", "data")
asked("list", "--cache", "data")
asked("info", "run")
values = np.random.default_rng(0).normal(size=(1, 64, 1)).astype(np.float32)
positions = np.stack(np.meshgrid(*[np.linspace(0, 1, 8)] * 2, indexing="ij"), -1)
np.savez("in.npz", positions=positions.reshape(1, 64, 2), values=values, grid=(8, 8))
asked("predict", "run", "in.npz", "-o", "out.npz")
assert np.load("out.npz")["prediction"].shape == (1, 64, 1)
np.savez("own.npz", source=values[..., 0].repeat(14, 0).reshape(14, 8, 8))
asked("inspect", "own.npz")
""",
    )


def test_what_a_notebook_shows_is_escaped() -> None:
    assert "<script>" not in table("<script>", {"<script>": "<script>"}, "<script>")


@pytest.mark.full
def test_wheel_and_sdist_can_be_installed(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(tmp_path), str(ROOT)], check=True
    )
    (wheel,), (sdist,) = (list(tmp_path.glob(kind)) for kind in ("*.whl", "*.tar.gz"))
    inside = zipfile.ZipFile(wheel).namelist()
    assert "funcattn/py.typed" in inside
    assert "funcattn/experiments/fingerprints.json" in inside
    assert all(name.startswith("funcattn") for name in inside)
    runs = sum(path.stat().st_size for path in (ROOT / "models").rglob("*") if path.is_file())
    assert sdist.stat().st_size < runs + 2 * 2**20  # the runs of the package, and no results
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("src/funcattn/py.typed") for name in archive.getnames())
    for number, package in enumerate((wheel, sdist)):
        place = tmp_path / f"venv{number}"
        venv.create(place, with_pip=True)
        python = place / "bin" / "python"
        # Version and names are there without torch, which would take minutes to install.
        install = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", str(package)]
        subprocess.run(install, check=True)
        told = "import funcattn; print(funcattn.__version__, 'Surrogate' in dir(funcattn))"
        said = subprocess.run(
            [str(python), "-c", told], cwd=tmp_path, capture_output=True, text=True, check=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )  # fmt: skip
        assert said.stdout.split() == [funcattn.__version__, "True"]
