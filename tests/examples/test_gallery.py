"""The tutorials: short, the same as notebooks, and they reach the number that they end with."""

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore::funcattn.surrogate.OutsideTrainingWarning")


def gallery() -> ModuleType:
    """What makes pages and notebooks of the scripts."""
    spec = spec_from_file_location("gallery", ROOT / "docs" / "build" / "gallery.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GALLERY = gallery()
# What makes each tutorial a matter of seconds: pairs of what is there, and what replaces it.
QUICK = {
    "own_network": [("steps=1000", "steps=3"), ("samples(8, 250,", "samples(2, 50,")],
    "darcy": [
        ("cases(240, nodes=85, keep=4)", "cases(12, nodes=22, keep=1)"),
        ('budget="40 s"', "epochs=1, network={'width': 8, 'layers': 1}, yardsticks=False"),
    ],
    "elasticity": [
        ("range(300)", "range(24)"),
        ('budget="50 s"', "epochs=1, network={'width': 8, 'layers': 1}, yardsticks=False"),
    ],
    "own_vtu_folder": [
        ("range(80)", "range(15)"),
        (":75]", ":12]"),
        ("[75:]", "[12:]"),
        ('budget="30 s"', "epochs=1, network={'width': 8, 'layers': 1}, yardsticks=False"),
    ],
    "two_fields_in_time": [
        ("rings(250)", "rings(20)"),
        (":240]", ":16]"),
        ("[240:]", "[16:]"),
        ('budget="80 s"', "epochs=1, network={'width': 8, 'layers': 1}, yardsticks=False"),
    ],
    "few_shot_bands": [("steps=1000", "steps=4")],
    "million_points": [("range(400)", "range(2)"), ("1_000_000", "5_000")],
    "public_checkpoint": [],
}


def test_every_tutorial_has_a_quick_form() -> None:
    assert set(QUICK) == set(GALLERY.NAMES)


@pytest.mark.parametrize("name", GALLERY.NAMES)
def test_it_is_short(name: str) -> None:
    lines = (ROOT / "examples" / f"{name}.py").read_text().splitlines()
    said = [line for line in lines if line.strip() and not line.startswith("# %%")]
    assert len(said) < 60


@pytest.mark.parametrize("name", GALLERY.NAMES)
def test_the_notebook_is_that_of_the_script(name: str) -> None:
    kept = (GALLERY.NOTEBOOKS / f"{name}.ipynb").read_text()
    assert kept == GALLERY.notebook(name), "make it again: python docs/build/gallery.py"


@pytest.mark.parametrize("name", GALLERY.NAMES)
def test_it_ends_with_one_number_and_a_picture(name: str) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text()
    assert len(re.findall(r"^assert ", text, re.MULTILINE)) == 1
    assert re.search(r"^figure\b", text, re.MULTILINE)
    assert (GALLERY.PICTURES / f"{name}.png").stat().st_size > 10_000


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize("name", GALLERY.NAMES)
def test_it_runs_when_it_is_made_small(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but the number at its end, which needs the real training."""
    for module in ("pyvista", "skfem") if name == "own_vtu_folder" else ():
        pytest.importorskip(module)
    monkeypatch.setenv("MPLBACKEND", "agg")
    text = (ROOT / "examples" / f"{name}.py").read_text()
    for before, after in QUICK[name]:
        assert before in text, f"{name}: expected {before} in the script"
        text = text.replace(before, after)
    if QUICK[name]:
        text = re.sub(r"^assert .*$", "", text, flags=re.MULTILINE)
    names = {"__name__": name}
    exec(compile(text, f"{name}.py", "exec"), names)
    assert isinstance(names["figure"], Figure)
    from matplotlib import pyplot as plt

    plt.close("all")


@pytest.mark.full
@pytest.mark.parametrize("name", GALLERY.NAMES)
def test_the_notebook_runs_as_it_stands(name: str, tmp_path: Path, patience: float) -> None:
    from nbmake.nb_run import NotebookRun

    kept = tmp_path / f"{name}.ipynb"
    kept.write_text(GALLERY.notebook(name))
    result = NotebookRun(kept, int(patience), verbose=False).execute()
    assert result.error is None, result.error.trace
    shown = [
        kind
        for cell in result.nb.cells
        for output in cell.get("outputs", ())
        for kind in output.get("data", ())
    ]
    assert "image/png" in shown, f"{name}: expected a picture, got {shown} by {sys.executable}"
