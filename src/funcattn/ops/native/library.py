"""Compile the C files of this folder once for each machine, keep the result, and load it."""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path

from funcattn.files import whole_file

SWITCH = "FUNCATTN_NATIVE"
"""Environment variable: 0 switches this off."""
_SOURCE = "attention.c"
_FLAGS = ("-std=gnu11", "-O3", "-fno-math-errno", "-ffp-contract=fast", "-shared", "-fPIC")
_FOR_THIS_MACHINE = ("-march=native", "-mcpu=native", None)
"""Tried in turn; None: for any machine of its kind."""
_SECONDS = 120.0
Library = ctypes.CDLL


class NotCompiledError(Exception):
    """What keeps the files from being compiled, in words."""


@cache
def _found() -> Library | str:
    """The library, or why there is none."""
    if os.environ.get(SWITCH) == "0":
        return f"it is switched off by {SWITCH}=0"
    try:
        return ctypes.CDLL(str(compiled(cache_folder())))
    except (NotCompiledError, OSError, RuntimeError) as error:
        return str(error)


def library() -> Library | None:
    """The compiled functions, compiled now if they never were on this machine; None without."""
    found = _found()
    return None if isinstance(found, str) else found


def why_not() -> str | None:
    """Why there is no library, in words, or None."""
    found = _found()
    return found if isinstance(found, str) else None


def state() -> str:
    """Whether there is a library, in words; nothing is compiled for that."""
    if os.environ.get(SWITCH) == "0":
        return f"switched off by {SWITCH}=0"
    try:
        path = _path(cache_folder(), _compiler())
    except NotCompiledError as error:
        return f"not available: {error}"
    if path.exists():
        return f"compiled: {path}"
    return "not compiled yet; the first use does it, in some seconds"


def cache_folder() -> Path:
    """Where compiled files are kept."""
    if given := os.environ.get("FUNCATTN_CACHE"):
        return Path(given) / "native"
    try:
        import platformdirs
    except ImportError:  # a run can be loaded and asked without
        return Path.home() / ".cache" / "funcattn" / "native"
    return platformdirs.user_cache_path("funcattn") / "native"


def compiled(folder: Path) -> Path:
    """The file of the library for this machine, made where there is none yet.

    Raises:
        NotCompiledError: there is no compiler, or it fails.
    """
    compiler = _compiler()
    path = _path(folder, compiler)
    if path.exists():
        return path
    _announce(f"funcattn: compiling passes in C, once for this machine; {SWITCH}=0 does without\n")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    said = ""
    for machine in _FOR_THIS_MACHINE:
        with whole_file(path) as aside:
            asked = [
                *compiler, *_FLAGS, *([machine] if machine else []),
                str(_here() / _SOURCE), "-o", str(aside), "-lm",
            ]  # fmt: skip
            try:
                done = subprocess.run(
                    asked, check=False, capture_output=True, text=True, timeout=_SECONDS
                )
            except subprocess.TimeoutExpired:
                raise NotCompiledError(
                    f"{compiler[0]} did not end in {_SECONDS:g} seconds"
                ) from None
            if done.returncode:
                said = (done.stderr.strip().splitlines() or ["nothing"])[0]
                aside.write_bytes(b"")
        if not done.returncode:
            return path
        path.unlink()
    raise NotCompiledError(f"{compiler[0]} failed and said: {said}")


def _announce(words: str) -> None:
    """Say why somebody waits, if somebody is there."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(words)
        sys.stderr.flush()


def _path(folder: Path, compiler: list[str]) -> Path:
    return folder / f"attention-{_identity(compiler)}.so"


def _here() -> Path:
    return Path(__file__).parent


def _compiler() -> list[str]:
    """The C compiler: that of the variable CC, or the system's."""
    given = shlex.split(os.environ.get("CC", ""))
    for command in ([given] if given else []) + [["cc"], ["gcc"], ["clang"]]:
        if path := shutil.which(command[0]):
            return [path, *command[1:]]
    raise NotCompiledError("there is no C compiler (cc, gcc or clang) on this machine")


def _identity(compiler: list[str]) -> str:
    """A name for all that the compiled file depends on: sources, compiler, flags, processor."""
    digest = hashlib.sha256()
    for path in sorted(_here().glob("*.[ch]")):
        digest.update(path.read_bytes())
    made = Path(compiler[0]).resolve()
    for fact in (*compiler, str(made), made.stat().st_mtime_ns, *_FLAGS, _processor()):
        digest.update(f"{fact}\n".encode())
    return digest.hexdigest()[:16]


def _processor() -> str:
    """What the processor can do, as far as the system tells."""
    known = f"{sysconfig.get_platform()} {platform.machine()} {platform.processor()}"
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return known
    wanted = ("flags", "features", "model name", "cpu part")
    facts = {line for line in lines if line.lower().startswith(wanted)}
    return known + "".join(sorted(facts))
