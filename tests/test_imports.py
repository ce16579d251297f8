"""What is loaded by what: the import law, and how little the small things load."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import funcattn
from funcattn.data import Store
from funcattn.settings import changed
from funcattn.tasks.darcy import Darcy
from funcattn.training.run import train

PACKAGE = Path(funcattn.__file__).parent
PROJECT = Path(__file__).parents[1]


def modules_after(code: str) -> set[str]:
    """All modules that a fresh process has loaded after the code, beyond those of bare Python."""
    start, end = (
        "import sys; bare = {*sys.modules}",
        "print(*{*sys.modules} - bare, file=sys.stderr)",
    )
    code = f"{start}\n{code}\n{end}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return set(ran.stderr.split())


def loaded(code: str, *names: str) -> set[str]:
    """Which of these modules a fresh process has after the code."""
    return modules_after(code) & set(names)


HEAVY = ("torch", "numpy", "scipy", "numba", "h5py", "matplotlib", "lightning_fabric")


@pytest.mark.parametrize(
    "line",
    ["--version", "--help", "train --help", "predict --help", "--tyro-print-completion bash"],
)
def test_help_and_completion_load_nothing_heavy(line: str) -> None:
    code = f"""
import sys
from funcattn.command import main
sys.argv = ["funcattn", *{line.split()!r}]
try:
    main()
except SystemExit as stop:
    assert not stop.code
"""
    found = modules_after(code)
    assert found & set(HEAVY) == set()
    # Counted, as seconds depend on the machine; torch alone is about a thousand.
    assert len(found) < 400


def test_the_package_itself_loads_nothing_and_gives_its_names_when_asked() -> None:
    found = modules_after("import funcattn")
    assert found & set(HEAVY) == set()
    assert len(found) < 50
    for name in funcattn.__all__:
        assert getattr(funcattn, name) is not None
        assert name in dir(funcattn)
    with pytest.raises(AttributeError, match="module 'funcattn' has no attribute 'attention'"):
        _ = funcattn.attention


def test_solvers_come_without_torch() -> None:
    names = sorted(p.stem for p in (PACKAGE / "pde").glob("*.py") if p.stem != "__init__")
    assert len(names) > 15
    code = "import " + ", ".join(f"funcattn.pde.{name}" for name in names)
    assert loaded(code, "torch", "lightning_fabric", "rich") == set()


def test_workers_that_make_data_come_without_torch() -> None:
    code = "import pickle; from funcattn.data.store import _make_one; pickle.dumps(_make_one)"
    assert loaded(code, "torch", "h5py", "lightning_fabric", "rich") == set()


def test_solvers_are_loaded_when_they_are_used() -> None:
    code = "from funcattn.pde import darcy"
    assert loaded(code, "scipy", "funcattn.pde.darcy") == set()
    assert "funcattn.pde.darcy" in loaded(f"{code}; darcy.sample", "funcattn.pde.darcy")
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        from funcattn.pde import nothing  # noqa: F401


PREDICTS = """
import sys
for name in ("h5py", "lightning_fabric", "lightning", "filelock", "rich", "tyro", "platformdirs",
             "scipy", "numba", "skfem", "matplotlib", "jinja2", "neuralop", "distributed"):
    sys.modules[name] = None
import numpy as np
import funcattn
x = np.stack(np.meshgrid(*2 * [np.linspace(0, 1, 9)], indexing="ij"), -1).reshape(81, 2)
print(funcattn.load(sys.argv[1]).predict(x, np.full((81, 1), 5.0), grid=(9, 9)).shape)
"""


def test_a_run_is_loaded_and_asked_with_torch_numpy_and_safetensors_alone(
    tmp_path: Path, store: Store
) -> None:
    settings = changed(Darcy.defaults("smoke", "modern"), {"optimisation": {"epochs": 1}})
    train(settings, tmp_path / "run", store=store)
    ran = subprocess.run(
        [sys.executable, "-c", PREDICTS, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == "(81, 1)\n", ran.stderr


def test_predict_loads_what_it_needs_and_no_more(tmp_path: Path) -> None:
    """From the start of the process to the file: a second of imports is a second of waiting."""
    code = f"""
import sys
import numpy as np
grid = np.stack(np.meshgrid(*2 * [np.linspace(0, 1, 22)], indexing="ij"), -1).reshape(1, 484, 2)
values = np.full((1, 484, 1), 5.0)
np.savez({str(tmp_path / "in.npz")!r}, positions=grid, values=values, grid=np.array([22, 22]))
from funcattn.command import main
sys.argv = ["funcattn", "predict", "darcy", {str(tmp_path / "in.npz")!r},
            "-o", {str(tmp_path / "out.npz")!r}]
main()
"""
    found = modules_after(code)
    assert (tmp_path / "out.npz").exists()
    slow = {
        "distributed", "h5py", "lightning_fabric", "matplotlib", "numba", "pandas", "pyvista",
        "scipy", "skfem", "sklearn", "sympy", "torch._dynamo", "triton",
    }  # fmt: skip
    assert found & slow == set()


def test_the_library_is_imported_without_what_the_command_needs() -> None:
    script = """
import sys
for name in ("tyro", "rich", "h5py", "lightning_fabric", "safetensors", "platformdirs", "scipy",
             "matplotlib", "jinja2"):
    sys.modules[name] = None
import funcattn, torch
model = funcattn.OperatorTransformer(space=2, inputs=1, outputs=1, width=16, layers=1)
print(tuple(model(torch.rand(1, 5, 2), torch.rand(1, 5, 1)).shape))
"""
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert run.stdout == "(1, 5, 1)\n", run.stderr


FORBIDDEN = {
    "ops/memory.py": "from funcattn.cli import terminal",
    "nn/ridges.py": "from funcattn.data import samples",
    "ops/linalg.py": "from funcattn.pde import errors",
    "pde/errors.py": "import torch",
    "ops/fourier.py": "from funcattn import export",
    "models/lno.py": "from funcattn.tasks import base",
    "training/run.py": "from funcattn.viz import style",
    "cli/commands/options.py": "import numpy",
    "newcomer.py": "",
}


def test_the_import_law_catches_what_it_forbids(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "funcattn", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    for name, line in FORBIDDEN.items():
        with (tmp_path / "funcattn" / name).open("a") as file:
            file.write(f"\n{line}\n")
    program = Path(sys.executable).parent / "lint-imports"
    ran = subprocess.run(
        [program, "--no-cache"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    said = " ".join(ran.stdout.split())
    for name, line in FORBIDDEN.items():
        module = "funcattn." + name.removesuffix(".py").replace("/", ".")
        start, _, what = line.removeprefix("import ").partition(" import ")
        imported = ".".join(filter(None, (start.removeprefix("from "), what)))
        expected = f"{module} -> {imported}" if line else module
        assert expected in said, (expected, ran.stdout)
