"""The file of a race: a line for each piece that is done."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from funcattn.documents import DocumentError, parse_sealed, sealed
from funcattn.provenance import facts


class Records:
    """The lines of a race: one for each piece that is done, found again by what decides it."""

    def __init__(
        self,
        path: Path,
        before: Callable[["Records"], None] = lambda records: None,  # noqa: ARG005
    ) -> None:
        self.path = path
        self.before = before
        """Called before a piece is made."""
        self.lines: list[dict[str, Any]] = []
        for text in path.read_bytes().splitlines() if path.exists() else []:
            # What was damaged, or cut when the race was killed, is made again.
            with suppress(DocumentError):
                self.lines.append(parse_sealed(text, where=str(path), advice="remove the line"))

    def piece(
        self, key: Mapping[str, Any], make: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The line with this key; where there is none it is made and written."""
        wanted = json.loads(json.dumps(key))
        for line in self.lines:
            if chosen(line.get("key")) == chosen(wanted):
                return line
        self.before(self)
        line = {"key": wanted, **make(), "command": _command(), **facts()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = self.path.read_bytes() if self.path.exists() else b""
        cut = bool(text) and not text.endswith(b"\n")
        with self.path.open("a") as file:
            file.write(("\n" if cut else "") + sealed(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.lines.append(line)
        return line


def chosen(value: Any) -> Any:
    """A key without what is None: settings that came later are the network's own choice."""
    if not isinstance(value, Mapping):
        return value
    return {name: chosen(each) for name, each in value.items() if each is not None}


def _command() -> str:
    """What was typed, without the folder of the program."""
    program = Path(sys.argv[0]).name
    return " ".join(["funcattn" if program == "__main__.py" else program, *sys.argv[1:]])
