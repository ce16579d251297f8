"""Machines that fail: full disks, folders that cannot be written, no descriptors, odd clocks.

Commands run in forks of this process, which may give up its rights and its descriptors.
"""

import errno
import io
import json
import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Call, Refused

from funcattn import command, files
from funcattn.data import Store
from funcattn.fitting.packing import pack
from funcattn.tasks.darcy import Darcy
from funcattn.training.run import Run, train

TRAIN = ("train", "darcy", "--profile", "smoke", "--optimisation.epochs", "1")
NOBODY = 65534
LIBRARIES = ("funcattn.cli.train", "funcattn.cli.predict", "funcattn.cli.data", "filelock",
             "lightning_fabric", "matplotlib.font_manager", "encodings.cp437")  # fmt: skip


@pytest.fixture
def anywhere() -> Iterator[Path]:
    """A folder that every user can reach, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    folder.chmod(0o755)
    yield folder
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


def forked(prepare: Callable[[], None], log: Path, *words: object) -> tuple[int, str]:
    """A command in a fork after some preparation: its exit code, and what it complains of."""
    target = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o666)
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.dup2(target, 2)
            sys.stdout, sys.stderr = io.StringIO(), os.fdopen(2, "w")
            sys.argv = ["funcattn", *map(str, words)]
            prepare()
            command.main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(target)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, log.read_text()


def grid_input(path: Path) -> Path:
    points = np.stack(np.meshgrid(*[np.linspace(0, 1, 4)] * 2, indexing="ij"), -1).reshape(-1, 2)
    np.savez(path, positions=points, values=np.full((16, 1), 6.0), grid=[4, 4])
    return path


FULL = OSError(errno.ENOSPC, "No space left on device")
WRITES = {
    "train": (*TRAIN, "--out", "run"),
    "generate": ("generate", "darcy", "--profile", "smoke", "--samples", "2", "--workers", "1"),
    "predict, npz": ("predict", "RUN", "in.npz", "-o", "out.npz"),
    "predict, HDF5": ("predict", "RUN", "in.npz", "-o", "out.h5"),
    "report": ("report", "RUN", "-o", "out.html"),
    "pack": ("pack", "RUN", "-o", "out.zip"),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.full) if "predict" not in name else name
        for name in WRITES
    ],
)
def test_a_full_disk_is_said_with_the_file_and_leaves_no_part_of_it(
    call: Call,
    refused: Refused,
    run: Path,
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    grid_input(tmp_path / "in.npz")
    before = {path.name for path in tmp_path.iterdir()}
    words = [run if word == "RUN" else word for word in WRITES[name]]
    if name in ("train", "generate", "report"):
        words += ["--cache", store.folder if name != "generate" else tmp_path / "data"]
    with monkeypatch.context() as patch:
        patch.setattr(files, "_flush", _raises(FULL))
        outcome = call(*words)
    refused(outcome, "No space left on device")
    assert (
        "make room on the disk" in outcome[2]
        or "saved before is untouched" in outcome[2]
        or ("what was finished before is kept" in outcome[2])
    )
    written = next((str(word) for word in words if str(word).startswith("out")), "")
    assert written in outcome[2]
    after = {path.name for path in tmp_path.iterdir()} - before
    assert after <= {"run", "data"}
    assert not list(tmp_path.rglob("*.part*"))
    code, _, complaint = call(*words)
    assert code == 0, complaint


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 32 MB, where this process may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command_line = ["mount", "-t", "tmpfs", "-o", "size=32m", "none", str(disk)]
    mounted = shutil.which("mount") and subprocess.run(command_line, capture_output=True)
    if not mounted or mounted.returncode:
        pytest.skip("mounting a small disk is not permitted here, or not possible")
    yield disk
    os.chdir("/")
    subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path, room: int) -> Path:
    """A file that leaves so many bytes of a disk."""
    filler = disk / "filler"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    with filler.open("wb") as stream:
        stream.write(bytes(free - room))
    return filler


@pytest.mark.skipif(os.name == "nt", reason="disks are mounted as POSIX systems do it")
@pytest.mark.parametrize(
    ("name", "room"),
    [
        *((name, 0) for name in WRITES if "predict" in name),
        *(
            pytest.param(name, room, marks=pytest.mark.full)
            for name in WRITES
            if "predict" not in name
            for room in (0, 2**14, 2**17)
        ),
    ],
)
def test_a_disk_that_is_full_loses_nothing(
    call: Call,
    refused: Refused,
    run: Path,
    store: Store,
    small_disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    room: int,
) -> None:
    """A real one, unlike that above: it fails at whatever call comes to its end."""
    given = grid_input(small_disk.parent / "in.npz")
    words = [{"RUN": run, "in.npz": given}.get(str(word), word) for word in WRITES[name]]
    if name in ("train", "generate", "report"):
        words += ["--cache", store.folder if name != "generate" else small_disk / "data"]
    monkeypatch.chdir(small_disk)
    filler = fill(small_disk, room)
    code, out, complaint = call(*words)
    if code:
        refused((code, out, complaint), "No space left on device")
    else:
        assert room, "a command cannot write to a disk without room"
    assert not list(small_disk.rglob("*.part*"))
    filler.unlink()
    if code:
        again = [*words, "--resume"] if (small_disk / "run/settings.json").exists() else words
        code, _, complaint = call(*again)
        assert code == 0, complaint


def _raises(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.skipif(os.name == "nt", reason="modes are those of POSIX")
@pytest.mark.parametrize(
    "what", ["train", "predict", pytest.param("generate", marks=pytest.mark.full)]
)
def test_a_folder_that_cannot_be_written_is_named(
    anywhere: Path, run: Path, store: Store, what: str
) -> None:
    shutil.copytree(run, anywhere / "copy")
    shutil.copytree(store.folder, anywhere / "data")
    grid_input(anywhere / "in.npz")
    for path in (anywhere, *anywhere.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    (anywhere / "data").chmod(0o777)
    locks = list((anywhere / "data").glob("*"))
    for path in locks:
        path.chmod(0o777 if path.is_dir() else 0o666)
    words = {
        "train": (*TRAIN, "--out", anywhere / "run", "--cache", anywhere / "data"),
        "predict": ("predict", anywhere / "copy", anywhere / "in.npz", "-o", anywhere / "o.npz"),
        "generate": (*WRITES["generate"], "--cache", anywhere / "new"),
    }[what]
    with tempfile.NamedTemporaryFile() as log:
        code, said = forked(_without_rights, Path(log.name), *words)
    assert code == 1, said
    assert said.startswith("funcattn: "), said
    assert "Permission denied" in said
    assert said.endswith("choose another place, or change its rights\n")
    assert str(anywhere) in said
    assert said.count("\n") == 1, said


def _without_rights() -> None:
    for name in LIBRARIES:  # which others than root may be unable to find
        import_module(name)
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def _without_descriptors() -> None:
    for name in LIBRARIES:  # what is missing is to be a file of the command's, not of Python's
        import_module(name)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    with suppress(OSError):
        while True:
            os.open(os.devnull, os.O_RDONLY)


@pytest.mark.skipif(os.name == "nt", reason="limits are those of POSIX")
@pytest.mark.parametrize("what", ["train", "predict"])
def test_a_process_without_descriptors_says_so(
    run: Path, store: Store, tmp_path: Path, what: str
) -> None:
    grid_input(tmp_path / "in.npz")
    words = {
        "train": (*TRAIN, "--out", tmp_path / "run", "--cache", store.folder),
        "predict": ("predict", run, tmp_path / "in.npz", "-o", tmp_path / "out.npz"),
    }[what]
    code, said = forked(_without_descriptors, tmp_path / "log", *words)
    assert code == 1, said
    assert said.startswith("funcattn: "), said
    assert "Too many open files" in said
    assert said.endswith("allow more of them (ulimit -n)\n")
    assert said.count("\n") == 1, said
    assert not (tmp_path / "out.npz").exists()


def test_a_clock_that_is_set_back_changes_no_number(
    run: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(moments)))
    monkeypatch.setattr(os, "fsync", lambda _: None)
    settings = Darcy.defaults("smoke", "modern")
    back = train(settings, tmp_path / "back", store=store)
    assert back.record["test_values"] == Run(run).record["test_values"]
    assert back.record["seconds"] >= 0
    for path in (tmp_path / "back").rglob("*"):
        os.utime(path, (0, 0))  # files from before the clock was right
    assert train(settings, back.folder, store=store, resume=True).record == back.record


def test_two_processes_in_one_folder_are_told(
    call: Call, refused: Refused, store: Store, tmp_path: Path
) -> None:
    import filelock

    (tmp_path / "run").mkdir()
    with filelock.FileLock(tmp_path / "run/.lock"):
        outcome = call(*TRAIN, "--out", tmp_path / "run", "--cache", store.folder)
    refused(outcome, "another process is training into this folder")
    assert call(*TRAIN, "--out", tmp_path / "run", "--cache", store.folder)[0] == 0
    assert json.loads((tmp_path / "run/record.json").read_text())["epochs"] == 1


def test_a_pack_is_what_its_folder_is_after_a_failure(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    pack(run, path)
    before = path.read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_flush", _raises(FULL))
        with pytest.raises(OSError, match="No space left on device") as full:
            pack(run, path)
    assert full.value.filename == str(path)
    assert path.read_bytes() == before
    assert stat.S_ISREG(path.stat().st_mode)
