import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file

SCRIPT = Path(__file__).parents[2] / "examples" / "spread_mesh.py"
SMALL = ["--points", "301", "--width", "8", "--layers", "1", "--heads", "2", "--bases", "4"]


@pytest.fixture
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("spread_mesh", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """What a failing test leaves running is ended."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        # The ranks have sessions of their own, so it is for the launcher to end them.
        process.terminate()
        process.communicate()


def launch(out: Path, *more: str, ranks: int = 2) -> subprocess.Popen[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return subprocess.Popen(
        [sys.executable, *launcher, str(SCRIPT), "--out", str(out), *SMALL, *more],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def process_of_rank(launcher: int, rank: int) -> int:
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    for child in children:
        if f"\0RANK={rank}\0" in Path(f"/proc/{child}/environ").read_text():
            return int(child)
    pytest.fail(f"no process of rank {rank} among {children}")


def test_the_solutions_solve_the_equation(example: ModuleType) -> None:
    """-laplace u = 2 pi^2 f, by differentiating u twice, and u = 0 on the boundary."""
    positions = example.positions_of(0, 50).requires_grad_()
    given, solution = example.equations(positions, 1, torch.Generator().manual_seed(0))
    (slope,) = torch.autograd.grad(solution.sum(), positions, create_graph=True)
    laplace = sum(
        torch.autograd.grad(slope[..., axis].sum(), positions, retain_graph=True)[0][..., axis]
        for axis in range(2)
    )
    torch.testing.assert_close(-laplace, 2 * math.pi**2 * given[..., 0], rtol=1e-4, atol=1e-3)
    edge = torch.tensor([[[0.0, 0.3], [1.0, 0.6], [0.2, 0.0], [0.9, 1.0]]])
    _, at_edge = example.equations(edge, 2, torch.Generator().manual_seed(0))
    assert at_edge.abs().max() < 1e-5


def test_shards_are_parts_of_one_mesh_that_fills_the_square(example: ModuleType) -> None:
    whole = example.positions_of(0, 1000)
    parts = [example.positions_of(0, 300), example.positions_of(300, 1000)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=0)
    counts = torch.histogramdd(whole[0], [5, 5], range=[0.0, 1.0, 0.0, 1.0]).hist
    assert counts.min() >= 36
    assert counts.max() <= 44


def test_it_starts_trains_and_saves(
    tmp_path: Path, started: list[subprocess.Popen[str]], patience: float
) -> None:
    process = launch(tmp_path / "run", "--steps", "5", "--checkpoint-every", "2")
    started.append(process)
    said = process.communicate(timeout=patience)[0]
    assert process.returncode == 0, said
    assert "301 points over 2 ranks, 150 of them here" in said
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["ranks"] == 2
    assert 0 < record["test_error"] < 1.1
    folders = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert folders == ["record.json", "step-000004", "step-000005"]


LONG = ["--steps", "200", "--checkpoint-every", "5", "--timeout", "5"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, patience: float) -> Path:
    """The folder of a run that nothing happened to."""
    out = tmp_path_factory.mktemp("uninterrupted") / "run"
    process = launch(out, *LONG)
    try:
        said = process.communicate(timeout=patience)[0]
    finally:
        process.terminate()
        process.communicate()
    assert process.returncode == 0, said
    return out


@pytest.mark.full
@pytest.mark.parametrize(
    ("rank", "how"),
    [
        pytest.param(0, signal.SIGKILL, id="the first rank dies"),
        pytest.param(1, signal.SIGKILL, id="the second rank dies"),
        pytest.param(1, signal.SIGSTOP, id="the second rank hangs"),
    ],
)
def test_a_lost_rank_stops_the_others_and_the_run_resumes_to_the_same_numbers(
    tmp_path: Path,
    uninterrupted: Path,
    started: list[subprocess.Popen[str]],
    until: Callable[..., None],
    patience: float,
    rank: int,
    how: signal.Signals,
) -> None:
    cut = tmp_path / "cut"
    process = launch(cut, *LONG)
    started.append(process)
    until((cut / "step-000015").exists, process)
    os.kill(process_of_rank(process.pid, rank), how)
    # Without the time limit of 5 s, a rank would wait half an hour for one that hangs.
    said = process.communicate(timeout=patience)[0]
    assert process.returncode == 1, said
    assert f"rank {1 - rank} stops: " in said
    assert "go on from the last checkpoint with" in said
    assert f"--out {cut}" in said.split("go on from the last checkpoint with")[1]
    assert not (cut / "record.json").exists()

    again = launch(cut, *LONG, "--resume")
    started.append(again)
    said = again.communicate(timeout=patience)[0]
    assert again.returncode == 0, said
    both = (cut, uninterrupted)
    records = [json.loads((out / "record.json").read_text()) for out in both]
    assert records[0]["test_error"] == records[1]["test_error"]
    weights = [load_file(out / "step-000200" / "model.safetensors") for out in both]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(tensor, weights[1][name], rtol=0, atol=0)


@pytest.mark.full
def test_one_rank_goes_on_where_two_were_stopped(
    tmp_path: Path, started: list[subprocess.Popen[str]], patience: float
) -> None:
    """And a folder that has checkpoints is not begun anew, nor resumed with other settings."""
    out = tmp_path / "run"
    first = ["--steps", "20", "--checkpoint-every", "10"]
    expectations = [
        ([*first], 2, 0, "20: relative error"),
        ([*first], 1, 1, "expected a new folder, got one with checkpoints"),
        ([*first, "--resume", "--seed", "1"], 1, 1, "bring the old ones back"),
        ([*first, "--resume"], 1, 0, "301 points over 1 ranks"),
    ]
    errors = []
    for more, ranks, code, message in expectations:
        process = launch(out, *more, ranks=ranks)
        started.append(process)
        said = process.communicate(timeout=patience)[0]
        assert process.returncode == code, said
        assert message in said
        errors.append(json.loads((out / "record.json").read_text())["test_error"])
    assert errors[0] == pytest.approx(errors[-1], rel=1e-6)
