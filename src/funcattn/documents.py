"""JSON as the package keeps it, read with a check of its shape.

A shape is a kind of plain value, where float stands for any number; [shape] for a list; {name:
shape} for names that have to be there, beside any others; {...: shape} for all others.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from funcattn.errors import FuncattnError

_LARGEST = 2**28
_SEAL = "sha256"


class DocumentError(FuncattnError, ValueError):
    """A JSON file that is not what was expected."""


def read_json(path: Path, shape: Any = Any, *, advice: str = "bring the original file back") -> Any:
    """What a JSON file holds.

    Raises:
        DocumentError: it is no JSON, of another shape, or larger or deeper than any that we write.
    """
    size = path.stat().st_size
    if size > _LARGEST:
        raise DocumentError(
            f"{path}: expected at most {_LARGEST} bytes of JSON, got {size}; {advice}"
        )
    return parse_json(path.read_bytes(), shape, where=str(path), advice=advice)


def parse_json(text: str | bytes, shape: Any = Any, *, where: str, advice: str) -> Any:
    """The same of a text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DocumentError(
            f"{where}: expected JSON as funcattn writes it, got something else ({error}); {advice}"
        ) from error
    if fault := misfit(value, shape):
        raise DocumentError(f"{where}: {fault}; {advice}")
    return value


def sealed(line: Mapping[str, Any]) -> str:
    """A line of JSON that holds its own checksum.

    >>> parse_sealed(sealed({"error": 0.5}), where="a.jsonl, line 1", advice="remove it")
    {'error': 0.5}
    """
    plain = {name: value for name, value in line.items() if name != _SEAL}
    return json.dumps({**plain, _SEAL: _seal(plain)})


def parse_sealed(text: str | bytes, shape: Any = Any, *, where: str, advice: str) -> dict[str, Any]:
    """What a line holds, without its checksum; lines of earlier versions have none.

    Raises:
        DocumentError: it is no JSON, of another shape, or was changed after it was written.
    """
    line: dict[str, Any] = parse_json(text, {...: Any}, where=where, advice=advice)
    seal = line.pop(_SEAL, None)
    if seal is not None and seal != _seal(line):
        raise DocumentError(
            f"{where}: expected the line as it was written, got one that was changed: its checksum "
            f"differs; {advice}"
        )
    if fault := misfit(line, shape):
        raise DocumentError(f"{where}: {fault}; {advice}")
    return line


def _seal(line: Mapping[str, Any]) -> str:
    # What a way through JSON gives, where names are words and tuples are lists.
    plain = json.dumps(json.loads(json.dumps(line)), sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()


def misfit(value: Any, shape: Any, name: str = "it") -> str:
    """Where and how a value has another shape, in words; empty where it fits.

    >>> misfit({"test": {"error": "low"}}, {"test": {...: float}})
    'expected a number as test.error, got str'
    >>> misfit({"test": {"error": 0.5}, "more": None}, {"test": {...: float}})
    ''
    """

    def below(place: object) -> str:
        return f"{place}" if name == "it" else f"{name}.{place}"

    if shape is Any:
        return ""
    if isinstance(shape, Mapping):
        if not isinstance(value, dict):
            return f"expected names with values as {name}, got {type(value).__name__}"
        others = dict.fromkeys(value, shape.get(..., Any))
        for each, its in (others | {n: s for n, s in shape.items() if n is not ...}).items():
            if each not in value:
                return f"expected {below(each)} in it, got none"
            if fault := misfit(value[each], its, below(each)):
                return fault
        return ""
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"expected a list as {name}, got {type(value).__name__}"
        faults = (misfit(each, shape[0], below(place)) for place, each in enumerate(value))
        return next((fault for fault in faults if fault), "")
    if type(value) in ((int, float) if shape is float else (shape,)):
        if type(value) is int and abs(value) >= 2**63:
            return f"expected numbers below 2**63, got a larger one as {name}"
        return ""
    words = {float: "a number", int: "a whole number", str: "a text"}
    return f"expected {words.get(shape, shape.__name__)} as {name}, got {type(value).__name__}"
