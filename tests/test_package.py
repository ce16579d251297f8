"""The package as others get it: names, versions, extras, and what it does without."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
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


def test_it_works_where_there_is_no_module_resource(tmp_path: Path) -> None:
    """As on Windows: fit, keep, predict, race and bench without it, children included."""
    (tmp_path / "resource.py").write_text(
        "raise ModuleNotFoundError('resource', name='resource')\n"
    )
    code = """
import sys, numpy as np, funcattn
from funcattn.bench import measure, memory
from funcattn.training.race import _peak_megabytes
from funcattn.data.cases import open_folder, write_case, from_arrays
assert measure.resource is None and memory.resource is None
assert np.isnan(_peak_megabytes())
values = np.random.default_rng(0).normal(size=(14, 4, 4))
network = {"width": 8, "layers": 1}
surrogate = funcattn.Surrogate(epochs=1, network=network, yardsticks=False).fit(values, values)
again = funcattn.load(surrogate.save(sys.argv[1] + "/run"))
assert again.predict(values[:1] / 9).shape == (1, 4, 4)
write_case(sys.argv[1] + "/a.vtu", from_arrays(None, values[:1], grid=(4, 4))[0])
assert len(open_folder(sys.argv[1] + "/a.vtu")[0]) == 16  # read in a process of its own
"""
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


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
    assert sdist.stat().st_size < 5 * 2**20
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
