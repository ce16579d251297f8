"""The command: what it lists, runs, skips and builds."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from funcattn.cli import reproduction
from funcattn.cli.reproduce import Reproduce
from funcattn.experiments import EXPERIMENTS
from funcattn.experiments.engine.cell import Cell, run_cell
from funcattn.experiments.engine.fingerprints import stored
from funcattn.experiments.engine.queue import Ended, Queue
from funcattn.experiments.engine.trial import Trial
from funcattn.experiments.tables import pictures

Call = Callable[..., str]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """The runs that were asked of the queue, which does none."""
    asked: list[Cell] = []

    def run(queue: Queue, cells: list[Cell]) -> list[Ended]:
        asked.extend(cells)
        for cell in cells:
            queue.on_progress(cell, 0.5)
            queue.on_end(Ended(cell, "done"))
        return []

    def write(outcomes: object, page: Path, *more: object) -> None:  # noqa: ARG001
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("built")

    monkeypatch.setattr(Queue, "run", run)
    monkeypatch.setattr(reproduction, "write_results", write)
    return asked


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command in a folder of its own; what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(*experiments: str, **options: Any) -> str:
        out = io.StringIO()
        Reproduce([*experiments], **options).run([], Console(file=out, width=150))
        return out.getvalue()

    return run


def names(cells: list[Cell]) -> list[tuple[str, str, int]]:
    return [(c.settings.task, c.settings.model, c.settings.seed) for c in cells]


def test_the_list_shows_all_twelve(call: Call, made: Any) -> None:
    made.add(EXPERIMENTS["burgers"].trials["fno", "error"], {})
    said = call(show=True, results=made.folder)
    assert said == call(results=made.folder)
    for name in EXPERIMENTS:
        assert f" {name} " in said
    (line,) = [line for line in said.splitlines() if line.startswith(" burgers ")]
    assert line.split()[-9:] == ["0", "of", "4", "1", "of", "4", "0", "of", "4"]


def test_the_first_seed_of_all_comes_first(call: Call, ran: list[Cell]) -> None:
    said = call("table1", "ridge", only=["elasticity"], models=["funcattn", "fno"], seeds=2)
    assert "elasticity, fno: not yet, it needs points on a grid" in said
    assert said.count("not yet") == 1
    assert names(ran) == [("elasticity", "funcattn", s) for s in (0, 0, 0, 1, 1, 1)]
    # The ridge that starts at one half is the network as it is: it is not made twice.
    assert [c.settings.network.ridge for c in ran] == pytest.approx([0.5, 0.9526, 0.9975] * 2, 1e-4)
    assert "elasticity, funcattn, seed 1: done" in said
    assert {cell.command for cell in ran} == {
        "funcattn reproduce table1 ridge --tier cpu --only elasticity --models funcattn fno "
        "--seeds 2"
    }
    assert Path("runs/reproduce/results/results.md").exists()


def test_files_go_where_the_options_say_and_nowhere_else(
    call: Call, ran: list[Cell], tmp_path: Path
) -> None:
    call("burgers", models=["fno"])
    assert {path.name for path in tmp_path.iterdir()} == {"runs"}
    assert {cell.results for cell in ran} == {Path("runs/reproduce/results")}
    options = {"results": Path("a/results"), "page": Path("b/page.md"), "queue": Path("c")}
    call("burgers", models=["fno"], **options)
    assert ran[-1].results == Path("a/results")
    assert Path("b/page.md").exists()
    assert not Path("docs").exists()
    assert not Path("results").exists()


def test_what_has_a_result_is_skipped(call: Call, ran: list[Cell], made: Any) -> None:
    trials = EXPERIMENTS["burgers"].trials
    made.add(trials["fno", "error"], {})
    made.add(trials["galerkin", "error"], {}, code="old")
    call("burgers", results=made.folder)
    assert [c.settings.model for c in ran] == ["funcattn", "transolver", "galerkin"]
    ran.clear()
    call("burgers", results=made.folder, models=["fno"], rerun=True)
    assert [c.settings.model for c in ran] == ["fno"]


def test_rows_of_a_table_can_be_chosen(call: Call, ran: list[Cell]) -> None:
    call("bases", only=["elasticity"], rows=["16", "64"])
    assert [c.settings.network.bases for c in ran] == [16, 64]
    assert {cell.command for cell in ran} == {
        "funcattn reproduce bases --tier cpu --only elasticity --rows 16 64 --seeds 1"
    }


@pytest.mark.parametrize(
    ("option", "name", "expected"),
    [
        ("only", "elastcity", "burgers"),
        ("models", "fnoo", "funcattn, transolver, galerkin, fno"),
        ("rows", "16", "fno, "),
    ],
)
def test_a_name_that_is_nowhere_is_an_error(
    call: Call, ran: list[Cell], option: str, name: str, expected: str
) -> None:
    with pytest.raises(ValueError, match=f"--{option}: expected some of {expected}.*got '{name}'"):
        call("burgers", **{option: [name]})
    assert not ran


def test_runs_for_a_picture_have_one_seed(call: Call, ran: list[Cell]) -> None:
    call("few_shot", models=["softmax"], seeds=2)
    assert [(c.settings.seed, c.settings.data.observations) for c in ran] == [  # type: ignore[attr-defined]
        (0, 32),
        (0, 4),
        (1, 32),
    ]


def test_rna_needs_its_data(call: Call, ran: list[Cell], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--rna: expected the RNA Surface Segmentation Dataset"):
        call("rna")
    said = call("rna", "burgers")
    assert "rna, funcattn: not yet, give the RNA Surface Segmentation Dataset by --rna" in said
    assert {cell.settings.task for cell in ran} == {"burgers"}
    ran.clear()
    call("rna", rna=Path("surfaces.npz"))
    assert {c.settings.data.path for c in ran} == {str(tmp_path / "surfaces.npz")}


def test_failed_runs_are_an_error_after_the_page_was_built(
    call: Call,
    ran: list[Cell],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(queue: Queue, cells: list[Cell]) -> list[Ended]:  # noqa: ARG001
        return [Ended(cells[0], "failed", "why")]

    monkeypatch.setattr(Queue, "run", run)
    with pytest.raises(ValueError, match="1 runs failed"):
        call("burgers", models=["fno"])
    assert not ran
    assert Path("runs/reproduce/results/results.md").exists()


def test_tables_run_nothing(call: Call, ran: list[Cell]) -> None:
    assert "runs/reproduce/results/results.md" in call(tables=True)
    assert not ran


def test_the_check_names_the_results_that_are_stale(
    call: Call, ran: list[Cell], made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = EXPERIMENTS["burgers"].trials
    for name in ("fno", "galerkin"):
        made.add(trials[name, "error"], {})

    def computed(trial: Trial, store: object) -> Any:  # noqa: ARG001
        numbers = dict(stored()[reproduction.fingerprint_key(trial)].numbers)
        factor = 1 + (1e-3 if trial.model == "fno" else 1e-7)
        return numbers | {"train_loss": [factor * loss for loss in numbers["train_loss"]]}

    monkeypatch.setattr(reproduction, "computed", computed)
    said = call("burgers", check=True, results=made.folder, models=["galerkin"])
    assert "burgers galerkin: the same numbers, within 1e-07" in said
    assert "All 2 short runs gave the numbers" in said  # the other one is that of Muon
    with pytest.raises(ValueError, match="1 of 5 short runs gave other numbers"):
        call("burgers", check=True, results=made.folder)
    assert not ran


def test_arguments_too_many_are_refused() -> None:
    with pytest.raises(ValueError, match=r"arguments: expected those of --help, got --x"):
        Reproduce().run(["--x"], Console(quiet=True))


def test_pictures_are_drawn_from_kept_runs(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Any
) -> None:
    """From the command to the picture, at tier smoke, in this process."""
    monkeypatch.setattr(pictures, "_BASES", {"funcattn": Trial("darcy")})

    def run(queue: Queue, cells: list[Cell]) -> list[Ended]:
        for cell in cells:
            cell.write(queue.place(cell))
            assert run_cell(queue.place(cell)) == 0
        return []

    monkeypatch.setattr(Queue, "run", run)
    models = ["funcattn", "transolver"]
    shown = {name: EXPERIMENTS[name] for name in ("burgers", "pictures")}
    monkeypatch.setattr(reproduction, "EXPERIMENTS", shown)
    call("pde", tier="smoke", only=["darcy"], models=models, cache=store.folder)
    folder = tmp_path / "runs/reproduce/smoke"
    text = (folder / "results.md").read_text()
    for name in ("pictures_darcy", "pictures_basis_funcattn"):
        assert f"(pictures/{name}-smoke.png)" in text
        for kind in ("png", "svg"):
            size = (folder / f"pictures/{name}-smoke.{kind}").stat().st_size
            assert 5_000 < size < 1_000_000
    assert not Path("docs").exists()
