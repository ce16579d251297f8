"""The process that solves one job: `python -m funcattn.serve.solving FOLDER`.

FOLDER has request.json; what is done goes to events.jsonl, line by line, and the fields that were
found to result.npz. Needs no torch, so that it starts fast.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from funcattn.data.foreign import write_npz
from funcattn.errors import FuncattnError
from funcattn.pde.errors import NotConvergedError
from funcattn.serve.drawn import EDITORS

_PAUSE = 0.1
"""Seconds between two words about progress."""


def tell(folder: Path, event: str, **data: Any) -> None:
    """Add an event; a line is written by one call, so that no reader sees half of it."""
    line = json.dumps({"event": event, "data": data}) + "\n"
    handle = os.open(folder / "events.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


class Teller:
    """Tells of progress, not too often, and never of less than before."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder, self.text, self.done, self.last = folder, text, 0.0, 0.0

    def __call__(self, done: float) -> None:
        """A share of the work is done."""
        self.done = max(self.done, min(float(done), 1.0))
        now = time.monotonic()
        if now - self.last >= _PAUSE:
            self.last = now
            tell(self.folder, "progress", done=self.done, text=self.text)


def solve(folder: Path) -> None:
    """Solve the job of a folder."""
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    tell(folder, "progress", done=0.0, text="starting")
    editor = EDITORS[request["task"]](request["data"])
    editor.warm_up()
    teller = Teller(folder, "solving")
    start = time.perf_counter()
    found = editor.solve(request["parameters"], request["refine"], teller)
    seconds = time.perf_counter() - start
    # Names of fields may have characters that names of files may not.
    write_npz(folder / "result.npz", {f"a{i}": each for i, each in enumerate(found.values())})
    tell(folder, "result", names=list(found), seconds=seconds)


def main(folder: Path) -> None:
    """Solve, or say why not."""
    try:
        solve(folder)
    except (ValueError, NotConvergedError, FuncattnError) as error:
        tell(folder, "error", detail=str(error))
    except MemoryError:
        tell(folder, "error", detail="the memory does not suffice; ask for a coarser grid")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
