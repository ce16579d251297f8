"""How a number came to be: commit, machine, versions."""

import os
import platform
import subprocess
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from funcattn.processor import name as processor_name


def cpu_seconds() -> float:
    """CPU time of this process and of the programs that it ran to their end."""
    ran = os.times()
    return time.process_time() + ran.children_user + ran.children_system


def facts() -> dict[str, Any]:
    """What is recorded beside everything that is computed."""
    import torch  # only here: workers that make data do without

    return {
        "commit": commit(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "processor": processor_name(),
        "threads": torch.get_num_threads(),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("funcattn", "torch", "numpy")},
        },
    }


def machine_of(record: Mapping[str, Any]) -> str:
    """The machine that a record is from, with its processor where that is in the record, too.

    >>> machine_of({"machine": "x86_64, 2 cores, Linux", "processor": "Some"})
    'x86_64, 2 cores, Linux, Some'
    """
    return ", ".join(record[name] for name in ("machine", "processor") if name in record)


def commit(package: Path = Path(__file__).parent) -> str:
    """The commit of the source this runs from, marked where the source differs from it.

    Other files may differ, such as the results that are being written.
    """
    try:
        name, changes = (
            subprocess.run(
                ["git", *words], cwd=package, capture_output=True, text=True, check=True
            ).stdout.strip()
            for words in (
                ("describe", "--always", "--abbrev=12"),
                ("status", "--porcelain", "--", "."),
            )
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{name}-dirty" if changes else name
