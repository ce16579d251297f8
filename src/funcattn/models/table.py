"""The table of all networks, for the documentation.

    python -m funcattn.models.table docs/models.md

writes it anew between its two markers.
"""

import sys
from dataclasses import fields
from pathlib import Path

from funcattn.files import write_text
from funcattn.models.registry import MODELS

START, END = "<!-- networks -->", "<!-- end of networks -->"


def table() -> str:
    """A row per network: what it is, what it takes, when to choose it, its settings.

    >>> print(table().splitlines()[0])
    | name | what it is | takes | time | when to choose it | settings |
    """
    lines = [
        "| name | what it is | takes | time | when to choose it | settings |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, entry in MODELS.items():
        forms = [form for form in (entry.fields, entry.observations) if form is not None]
        # Those of the form for fields; those for observations are among them, or close.
        settings = ", ".join(f"`{field.name}`" for field in fields(forms[0].settings))
        what = f"{entry.title} ({entry.paper})" if entry.paper else entry.title
        lines.append(
            f"| `{name}` | {what} | {entry.takes} | {entry.cost} | {entry.when} | {settings} |"
        )
    return "\n".join(lines)


def with_table(page: str) -> str:
    """A page with today's table between its markers.

    Raises:
        ValueError: the page has no markers.
    """
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"page: expected the markers {START} and {END}, got a page without")
    return f"{before}{START}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    write_text(Path(sys.argv[1]), with_table(Path(sys.argv[1]).read_text()))
