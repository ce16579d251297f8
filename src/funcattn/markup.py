"""Small tables in HTML: how results show themselves in a notebook."""

from collections.abc import Mapping
from html import escape


def table(title: str, rows: Mapping[str, object], note: str = "") -> str:
    """A heading and a table of names and values.

    >>> table("Run", {"error": 0.5})
    '<b>Run</b><table><tr><th style="text-align:left">error</th><td>0.5</td></tr></table>'
    """
    lines = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td>{escape(str(value))}</td></tr>'
        for name, value in rows.items()
    )
    said = f"<p>{escape(note)}</p>" if note else ""
    return f"<b>{escape(title)}</b><table>{lines}</table>{said}"
