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
    verdict: str = ""
    """Shown beside the heading."""


def write_report(path: Path, *, title: str, summary: str, sections: Sequence[Section]) -> None:
    """Write the report, whole or not at all."""
    page = _PAGE.render(title=title, summary=summary, sections=sections, verdicts=_VERDICTS)
    write_text(path, page)


_VERDICTS = {"passes": "good", "fails": "bad", "not applicable": "none"}
"""Words that stand out in headings and tables, by how they are drawn."""

_PAGE = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
    """{% macro badge(word) -%}
<span class="verdict {{ verdicts[word] }}">{{ word }}</span>
{%- endmacro -%}
<!doctype html>
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
  .table { overflow-x: auto; margin: 1rem 0; }
  table { border-collapse: collapse; }
  th, td { text-align: left; vertical-align: top; padding: .3rem 1.2rem .3rem 0;
           border-bottom: 1px solid #e3e6ea; }
  tr.strong td { font-weight: 600; background: #f2f6fb; }
  .verdict { font-size: .85rem; font-weight: 600; white-space: nowrap; padding: .1rem .5rem;
             border-radius: .6rem; }
  .good { color: #11552b; background: #dcf3e3; } .bad { color: #8a1c14; background: #fbe3e1; }
  .none { color: #57606a; background: #eceff2; } h2 .verdict { vertical-align: middle; }
  @media (max-width: 40rem) { body { margin: 1rem auto; } th, td { padding-right: .8rem; }
                              h1 { font-size: 1.5rem; } }
  figure { margin: 1.2rem 0; } img { max-width: 100%; } figcaption { color: #57606a; }
</style>
</head>
<body>
<h1>{{ title }}</h1>
<p class="summary">{{ summary }}</p>
{% for section in sections %}
<h2>{{ section.title }}{% if section.verdict %} {{ badge(section.verdict) }}{% endif %}</h2>
{% if section.text %}<p>{{ section.text }}</p>{% endif %}
{% for table in section.tables %}
<div class="table"><table>
<tr>{% for heading in table.headings %}<th>{{ heading }}</th>{% endfor %}</tr>
{% for row in table.rows -%}
<tr{% if loop.index0 == table.strong %} class="strong"{% endif %}>
{%- for cell in row %}<td>{{ badge(cell) if cell in verdicts else cell }}</td>{% endfor %}</tr>
{% endfor %}
</table></div>
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
