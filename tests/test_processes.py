"""Child processes end with their parent, whatever ends it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from funcattn import processes
from funcattn.processes import leashed

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are those of POSIX")

Until = Callable[..., None]

LEASHED = """
import subprocess, sys
from funcattn.processes import leashed
program = "import os, sys, time; open(f'{sys.argv[1]}/pid-{os.getpid()}', 'w'); time.sleep(3600)"
children = [subprocess.Popen(leashed([sys.executable, "-S", "-c", program, sys.argv[1]]))
            for _ in range(2)]
for child in children:
    child.wait()
"""
POOL = """
import os, sys, time
from funcattn.data.workers import worker_pool

def work(folder):
    open(f"{folder}/pid-{os.getpid()}", "w")
    time.sleep(3600)

if __name__ == "__main__":
    with worker_pool(2) as pool:
        for job in [pool.submit(work, sys.argv[1]) for _ in range(2)]:
            job.result()
"""
FORK = """
import os, sys, time
from funcattn.bench.memory import in_a_fork

def work():
    open(f"{sys.argv[1]}/pid-{os.getpid()}", "w")
    time.sleep(3600)

in_a_fork(work)
"""
PORTABLE = LEASHED.replace(
    "leashed(",
    "(lambda c: [sys.executable, '-c', 'import sys; sys.argv = sys.argv[1:]; from funcattn import "
    "processes; processes._LINUX = False; processes._become(int(sys.argv[0]), sys.argv[1:])', "
    "str(__import__('os').getpid()), *c])(",
)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["kill -9", "SIGTERM"])
@pytest.mark.parametrize(
    ("script", "children"),
    [(LEASHED, 2), (PORTABLE, 2), (POOL, 2), (FORK, 1)],
    ids=["a program", "a program, not on Linux", "workers", "a fork"],
)
def test_children_are_gone_when_their_parent_is(
    tmp_path: Path,
    started: list[subprocess.Popen[bytes]],
    until: Until,
    script: str,
    children: int,
    end: signal.Signals,
) -> None:
    (tmp_path / "script.py").write_text(script)
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), str(tmp_path)], start_new_session=True
    )
    started.append(parent)
    until(lambda: len([*tmp_path.glob("pid-*")]) == children, parent)
    pids = [int(path.name.partition("-")[2]) for path in tmp_path.glob("pid-*")]
    assert all(alive(pid) for pid in pids)
    parent.send_signal(end)
    parent.wait()
    until(lambda: not any(alive(pid) for pid in pids))


def test_a_program_on_a_leash_is_the_program(tmp_path: Path) -> None:
    code = (
        "import os, sys; print(os.environ['A'], sys.argv[1:], flush=True); os.kill(os.getpid(), 8)"
    )
    ended = subprocess.run(
        leashed([sys.executable, "-c", code, "--word", "two words"]),
        env=os.environ | {"A": "a"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert ended.stdout == "a ['--word', 'two words']\n"
    assert ended.returncode == -8


def test_a_program_that_is_not_there_is_named() -> None:
    ended = subprocess.run(
        leashed(["no-such-program"]), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr == "no-such-program could not be started: No such file or directory\n"


def test_a_child_whose_parent_was_gone_before_it_looked_ends_at_once() -> None:
    code = "from funcattn.processes import end_with_parent; end_with_parent(1 + 2**22); print('on')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, b"")


def test_the_module_that_is_run_as_a_script_needs_nothing_of_ours() -> None:
    text = Path(processes.__file__).read_text()
    assert "from funcattn" not in text
    assert "import funcattn" not in text


UNGUARDED = """
from pathlib import Path
from funcattn.data import Store
from funcattn.tasks.darcy import Darcy
print(len(Darcy(Darcy.defaults("smoke", "modern")).splits(Store(Path("data"), workers=2)).train))
"""


def test_data_of_a_task_is_made_in_a_script_without_a_guard(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(UNGUARDED)
    ended = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.stdout == "12\n", ended.stderr


def test_waiting_ends_when_the_process_does(until: Until) -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", "pass"])
    started = time.monotonic()
    with pytest.raises(pytest.fail.Exception, match="ended with 0"):
        until(lambda: False, process)
    assert time.monotonic() - started < 300
