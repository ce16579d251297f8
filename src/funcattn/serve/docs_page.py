"""The description of the service as a page, without anything from elsewhere."""

import html
from collections.abc import Mapping
from typing import Any

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem;
       color: #1a1a1a; background: #fff }
h2 { font: 600 1rem/1.5 ui-monospace, monospace; margin: 2rem 0 .3rem }
.method { display: inline-block; min-width: 4.5rem; color: #0b57a4 }
code { font-family: ui-monospace, monospace }
dt { font-family: ui-monospace, monospace } dd { margin: 0 0 .3rem 1.5rem }
@media (prefers-color-scheme: dark) { body { color: #e8e8e8; background: #161616 }
  .method, a { color: #8ab8f0 } }
"""


def docs_page(description: Mapping[str, Any]) -> str:
    """A page of HTML from an OpenAPI description."""
    info = description["info"]
    parts = [
        f"<h1>{_text(info['title'])} {_text(info['version'])}</h1><p>{_text(info['description'])}",
        ' As OpenAPI: <a href="/openapi.json">openapi.json</a>.</p>',
    ]
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            parts.append(_operation(path, method, operation))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>funcattn: the API</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>"
    )


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    said = operation.get("description") or operation.get("summary", "")
    parts = [
        f'<h2><span class="method">{method.upper()}</span> {_text(path)}</h2><p>{_text(said)}</p>'
    ]
    kinds = operation.get("requestBody", {}).get("content", {})
    if kinds:
        parts.append(f"<p>Body: {', '.join(f'<code>{_text(kind)}</code>' for kind in kinds)}.</p>")
    parts.append("<dl>")
    for each in operation.get("parameters", []):
        default = each.get("schema", {}).get("default")
        words = each["in"] if default is None else f"{each['in']}, default {default}"
        parts.append(f"<dt>{_text(each['name'])}</dt><dd>{_text(words)}</dd>")
    for status, reply in operation.get("responses", {}).items():
        parts.append(f"<dt>{_text(status)}</dt><dd>{_text(reply.get('description', ''))}</dd>")
    return "".join([*parts, "</dl>"])


def _text(words: object) -> str:
    return html.escape(str(words))
