"""How the docstrings of this package are read for the reference.

They describe parameters as lines `name: words` or `name, other: words`, with what follows indented,
and show examples as doctests. Both are given to the reader of the site in the form that it knows:
a section of arguments, to which it adds types and defaults from the signature, and code.
"""

import re
from typing import Any

import griffe

_NAMES = re.compile(r"(    )?(\w+(?:, \w+)*): (?=\S)")


def _parameters(thing: griffe.Object) -> set[str]:
    """The names that a docstring of this thing can describe."""
    if isinstance(thing, griffe.Class):
        return {parameter.name for parameter in thing.parameters}
    if isinstance(thing, griffe.Function):
        return {parameter.name for parameter in thing.parameters}
    return set()


def in_sections(text: str, known: set[str]) -> str:
    """A docstring with its parameters in a section, and its doctests in fences.

    >>> print(in_sections('Add.\\n\\na, b: numbers,\\n    whole ones.', {"a", "b"}))
    Add.
    <BLANKLINE>
    Args:
        a: numbers,
            whole ones.
        b: numbers,
            whole ones.
    """
    out: list[str] = []
    lines = text.splitlines()
    place = 0
    listing = False  # whether the last lines were of a section that began here
    while place < len(lines):
        line = "Examples:" if lines[place] == "Example:" else lines[place]
        start = _NAMES.match(line)
        names = start.group(2).split(", ") if start else []
        indent = (start.group(1) or "") if start else ""
        if start and set(names) <= known and (not indent or len(names) > 1):
            end = place + 1
            while end < len(lines) and lines[end].startswith(f"{indent}    "):
                end += 1
            if not listing and not indent:
                out += ["", "Args:"] if out and out[-1] else ["Args:"]
            said = [
                line[start.end() :],
                *(more.removeprefix(indent) for more in lines[place + 1 : end]),
            ]
            for name in names:
                out += [f"    {name}: {said[0]}", *(f"    {more}" for more in said[1:])]
            place, listing = end, not indent
            continue
        if line.startswith(">>>"):
            end = place
            while end < len(lines) and lines[end].strip():
                end += 1
            out += ["", "```pycon", *lines[place:end], "```"]
            place, listing = end, False
            continue
        if listing and line.strip():
            out.append("")  # a section ends before what is not indented
        listing = listing and not line.strip()
        out.append(line)
        place += 1
    return "\n".join(out)


class HouseDocstrings(griffe.Extension):
    """Reads the docstrings of the package."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = in_sections(obj.docstring.value, _parameters(obj))
