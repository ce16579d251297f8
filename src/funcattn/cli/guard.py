"""Errors at the command line: one line each, and a report of what nobody expected."""

import errno
import hashlib
import os
import platform
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from funcattn.cli.terminal import CACHE, UsageError, command_line, console
from funcattn.errors import FuncattnError, Interrupted
from funcattn.files import write_text

PACKAGE = Path(__file__).parents[1]
_EXTRAS = {
    "serve": ("fastapi", "uvicorn", "starlette", "prometheus_client"),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "baselines": ("neuralop",),
    "cluster": ("distributed",),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
}
"""The extra that a missing package comes with; all others come with `train`."""


_ADVICE = {
    errno.ENOSPC: "make room on the disk, then repeat the command",
    errno.EACCES: "choose another place, or change its rights",
    errno.EROFS: "choose another place: this one is for reading only",
    errno.EMFILE: "close other files, or allow more of them (ulimit -n)",
}


def one_line_errors(main: Callable[[], None]) -> Callable[[], None]:
    """A decorator of the command: whatever goes wrong ends it with one line on standard error.

    What says itself what to do is printed as it is. For all else a report is written that can be
    sent to the developers.
    """

    @wraps(main)
    def guarded() -> None:
        try:
            with _plain_warnings():
                main()
        except Interrupted as stop:
            console().print(f"Stopped by {stop}; everything is saved. Go on with --resume.")
            sys.exit(130 if str(stop) == "SIGINT" else 143)
        except KeyboardInterrupt:
            console().print("Stopped.")
            sys.exit(130)
        except BrokenPipeError:  # who read the output has enough, as in `funcattn list | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except UsageError as error:
            _complain(str(error))
            sys.exit(2)
        except ModuleNotFoundError as error:
            _complain(_missing(error))
            sys.exit(1)
        except Exception as error:
            _complain(_said(error) if speaks_for_itself(error) else _reported(error))
            sys.exit(1)

    return guarded


def _complain(message: str) -> None:
    """One line as it is: not wrapped, with brackets that are no markup and colons that are no
    emoji, whose table could not be read where files cannot be opened."""
    Console(stderr=True).print(
        f"[bold red]funcattn:[/] {escape(message)}", emoji=False, highlight=False, soft_wrap=True
    )


def _missing(error: ModuleNotFoundError) -> str:
    if "pip install" in str(error):
        return str(error)
    name = (error.name or "a package").partition(".")[0]
    extra = next((extra for extra, names in _EXTRAS.items() if name in names), "train")
    return f"this needs {name}, which is not installed: pip install 'funcattn[{extra}]'"


def _said(error: Exception) -> str:
    """The message, and of what the system refuses, what to do."""
    number = error.errno if isinstance(error, OSError) else None
    return f"{error}; {_ADVICE[number]}" if number in _ADVICE else str(error)


def speaks_for_itself(error: Exception) -> bool:
    """Whether the message was written for users: ours, or of the file system."""
    if isinstance(error, FuncattnError | OSError):
        return True
    origin = traceback.extract_tb(error.__traceback__)[-1]
    return isinstance(error, ValueError) and PACKAGE in Path(origin.filename).parents


def _reported(error: Exception) -> str:
    """Write a report of an error that was not expected; the line that tells of it."""
    lines = [
        f"command   {command_line()}",
        f"versions  python {platform.python_version()}, "
        + ", ".join(f"{name} {_version(name)}" for name in ("funcattn", "torch", "numpy")),
        f"system    {platform.system()} {platform.machine()}",
        "",
        "".join(traceback.format_exception(error)),
    ]
    text = without_personal_paths("\n".join(lines))
    first = (str(error).strip().splitlines() or ["without a message"])[0][:300]
    said = f"unexpected {type(error).__name__}: {first}"
    path = CACHE / "errors" / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except OSError:
        return f"{said}; no report of it could be written to {path}"
    return f"{said}; please send the developers {path}, which says where"


def without_personal_paths(text: str) -> str:
    """A text without the folders that say who runs it."""
    names = {
        str(PACKAGE): "<funcattn>",
        sys.prefix: "<python>",
        sys.base_prefix: "<python>",
        str(Path.cwd()): ".",
        str(Path.home()): "~",
    }
    for path in sorted(names, key=len, reverse=True):
        if len(path) > 1:
            text = text.replace(path, names[path])
    return text


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings as one line each, without the line of source code that they came from."""

    def plain(message: Warning | str, *_: object) -> str:
        return f"funcattn: warning: {message}\n"

    before = warnings.formatwarning
    warnings.formatwarning = plain  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.formatwarning = before
