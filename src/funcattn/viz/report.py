"""A report: one HTML file that holds everything it shows and opens from disk."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
from matplotlib.figure import Figure

from funcattn.files import write_text


@dataclass(frozen=True)
class Table:
    """Rows of text under a line of headings; the row of number `strong` stands out."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    strong: int | None = None


@dataclass(frozen=True)
class Picture:
    """A figure, and what is to be seen in it."""

    figure: Figure
    caption: str

    @property
    def data(self) -> str:
        """The figure as a PNG inside a URI."""
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=110)
        return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


@dataclass(frozen=True)
class Section:
    """A heading, a paragraph, and any tables and pictures."""

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()


def write_report(path: Path, *, title: str, summary: str, sections: Sequence[Section]) -> None:
    """Write the report, whole or not at all."""
    page = _PAGE.render(title=title, summary=summary, sections=sections)
    write_text(path, page)


_PAGE = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
         color: #1b1f24; background: #fff; }
  h1 { margin-bottom: .2rem; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #d5d9de; }
  .summary { font-size: 1.15rem; background: #f2f6fb; border-left: 4px solid #3b6ea5;
             padding: .8rem 1rem; }
  table { border-collapse: collapse; margin: 1rem 0; }
  th, td { text-align: left; padding: .3rem 1.2rem .3rem 0; border-bottom: 1px solid #e3e6ea; }
  tr.strong td { font-weight: 600; background: #f2f6fb; }
  figure { margin: 1.2rem 0; } img { max-width: 100%; } figcaption { color: #57606a; }
</style>
</head>
<body>
<h1>{{ title }}</h1>
<p class="summary">{{ summary }}</p>
{% for section in sections %}
<h2>{{ section.title }}</h2>
{% if section.text %}<p>{{ section.text }}</p>{% endif %}
{% for table in section.tables %}
<table>
<tr>{% for heading in table.headings %}<th>{{ heading }}</th>{% endfor %}</tr>
{% for row in table.rows -%}
<tr{% if loop.index0 == table.strong %} class="strong"{% endif %}>
{%- for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</table>
{% endfor %}
{% for picture in section.pictures %}
<figure><img src="{{ picture.data }}" alt="{{ picture.caption }}">
<figcaption>{{ picture.caption }}</figcaption></figure>
{% endfor %}
{% endfor %}
</body>
</html>
"""
)
