import os
import signal
from pathlib import Path

import pytest

from funcattn.data import sandbox, sandbox_child
from funcattn.data.foreign import FileError


@pytest.fixture
def strange_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that does what a file tells it to do."""
    source = Path(sandbox_child.__file__).read_text()
    extra = """
def obey(path: str) -> Answer:
    exec(Path(path).read_text(), globals())
    return {"pid": os.getpid()}, {}


OPERATIONS["obey"] = obey
LIBRARIES["obey"] = []

if __name__"""
    child = tmp_path / "child.py"
    child.write_text(source.replace("\nif __name__", extra))
    monkeypatch.setattr(sandbox, "_CHILD", child)
    monkeypatch.setattr(sandbox, "_current", sandbox._Child())
    yield
    sandbox._current.stop()


def obey(path: Path, command: str, **limits: float) -> int:
    path.write_text(command)
    facts, _ = sandbox.read_apart(path, "obey", expected="good words", **limits)
    return int(facts["pid"])


@pytest.mark.usefixtures("strange_child")
class TestAChild:
    def test_reads_many_files_and_prints_nothing_among_the_answers(self, tmp_path: Path) -> None:
        first = obey(tmp_path / "a", "print('noise'); os.write(1, b'more noise')")
        assert obey(tmp_path / "b", "pass") == first != os.getpid()

    @pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT])
    def test_that_dies_of_a_file_refuses_it_and_reads_the_next(
        self, tmp_path: Path, number: signal.Signals
    ) -> None:
        with pytest.raises(FileError, match=f"/bad: expected good words, got .* by {number.name}"):
            obey(tmp_path / "bad", f"os.kill(os.getpid(), {int(number)})")
        obey(tmp_path / "good", "pass")

    def test_may_compute_for_a_limited_time(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match="after computing for too long"):
            obey(tmp_path / "slow", "while True: pass", seconds=0.2)

    def test_may_take_a_limited_amount_of_memory(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match="more than 100000000 bytes of memory"):
            obey(tmp_path / "large", "b = bytearray(10**9)", memory=10**8)

    def test_has_the_limits_of_one_file_for_that_file_only(self, tmp_path: Path) -> None:
        first = obey(tmp_path / "small", "pass", memory=10**6)
        assert obey(tmp_path / "large", "b = bytearray(10**8)") == first

    def test_ends_when_its_input_ends(self, tmp_path: Path) -> None:
        obey(tmp_path / "a", "pass")
        process = sandbox._current._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.vtu")
    with pytest.raises(FileError, match="expected a file, got a folder or a device"):
        sandbox.read_apart(tmp_path / "pipe.vtu", "mesh_read", None, expected="a mesh")
