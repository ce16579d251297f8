import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from funcattn.demo.run import SETTINGS, run
from funcattn.settings import FunctionalSettings, OptimisationSettings, RunSettings
from funcattn.tasks.darcy import Darcy, DarcyData
from funcattn.training.settings import saved_settings, with_model

ROOT = Path(__file__).parents[2]
Start = Callable[[str], subprocess.Popen[str]]
Until = Callable[..., None]
Gone = Callable[[int], bool]

TINY = RunSettings(
    task="darcy",
    data=DarcyData(nodes=33, use_every=4, train=24, validation=6, test=5),
    network=FunctionalSettings(width=16, layers=2, heads=2, bases=4, reach=1 / 8),
    optimisation=OptimisationSettings(optimiser="muon", epochs=3, batch=8, clip=1.0),
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    folder = tmp_path_factory.mktemp("demo")
    return folder, run(TINY, folder, Console(quiet=True))


def test_the_report_stands_alone_and_shows_the_numbers(
    finished: tuple[Path, dict[str, object]],
) -> None:
    folder, record = finished
    page = (folder / "report.html").read_text()
    assert f"{100 * record['test_error']:.2f} %" in page
    for name, error in record["yardsticks"].items():
        assert name in page
        assert f"{100 * error:.2f} %" in page
    sources = re.findall(r'(?:src|href)="([^"]{0,40})', page)
    assert len(sources) == 4
    assert all(source.startswith("data:image/png;base64,") for source in sources)


def test_the_record_beside_the_report_says_how_it_was_made(
    finished: tuple[Path, dict[str, object]],
) -> None:
    folder, record = finished
    assert json.loads((folder / "record.json").read_text()) == record
    assert {"command", "commit", "machine", "versions", "settings"} <= record.keys()


def test_a_second_run_elsewhere_gives_the_same_numbers(
    finished: tuple[Path, dict[str, object]], tmp_path: Path
) -> None:
    folder, record = finished
    (data,) = folder.glob("darcy-*.h5")
    shutil.copy(data, tmp_path)
    again = run(TINY, tmp_path, Console(quiet=True))
    timing = {"seconds": None, "cpu_seconds": None}
    assert again | timing == record | timing


LONG = """
from dataclasses import replace

from funcattn.demo import run

if __name__ == "__main__":
    short = run.SETTINGS.data
    run.SETTINGS = replace(
        run.SETTINGS,
        data=replace(short, nodes=33, use_every=4, train=40, validation=4, test=4),
        optimisation=replace(run.SETTINGS.optimisation, epochs=5000),
    )
    run.main()
"""


@pytest.fixture
def demo(tmp_path: Path, started: list[subprocess.Popen[str]], until: Until) -> Start:
    """Starts the demo, and waits until it makes data or trains; nothing of it outlives the test."""

    def start(moment: str) -> subprocess.Popen[str]:
        script = tmp_path / "demo.py"
        script.write_text(LONG)
        making = moment == "making data"
        process = subprocess.Popen(
            [sys.executable, *(["-m", "funcattn.demo"] if making else [str(script)])],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # Tests that run in the background of a shell have Ctrl-C ignored; the demo must not.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        started.append(process)
        folder = tmp_path / "runs/demo"
        seen = "*.shards" if making else "functional-attention/checkpoints/step-*"
        until(lambda: list(folder.glob(seen)), process)
        return process

    return start


@pytest.mark.parametrize("moment", ["making data", "training"])
def test_an_interrupt_stops_everything_and_breaks_nothing(
    tmp_path: Path, demo: Start, until: Until, is_gone: Gone, moment: str
) -> None:
    process = demo(moment)
    os.killpg(process.pid, signal.SIGINT)
    printed, _ = process.communicate()
    assert process.returncode == 130, printed
    assert "the same command goes on" in printed
    assert "Traceback" not in printed
    assert not (tmp_path / "runs/demo/report.html").exists()
    until(lambda: is_gone(process.pid))


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "kill -9"])
def test_no_worker_outlives_the_demo(
    demo: Start, until: Until, is_gone: Gone, end: signal.Signals
) -> None:
    process = demo("training")
    process.send_signal(end)
    process.wait()
    until(lambda: is_gone(process.pid))


def test_the_demo_trains_as_its_record_and_the_documents_say() -> None:
    record = json.loads((ROOT / "results" / "demo.json").read_text())
    assert saved_settings(record["settings"]) == with_model(SETTINGS, "functional_operator", "cpu")
    assert "takes 2e-2, as in the races" in (ROOT / "docs" / "training.md").read_text()
    assert SETTINGS.optimisation.muon_rate == 2e-2
    assert Darcy.defaults("cpu", "modern").optimisation.muon_rate == 1e-2
