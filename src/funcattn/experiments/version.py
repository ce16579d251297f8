"""The version of the code that decides the numbers of a task."""

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import funcattn

_PACKAGE = Path(funcattn.__file__).parent
_FOR_ALL = ("settings.py", "ops", "nn", "models", "data", "training")
_FOR_NO_NUMBER = ("training/report.py", "training/loggers.py", "training/cost.py")
_OF_A_TASK = ("tasks", "pde")
"""Of these, what the task's own file leads to."""


def code_version(task: str, package: Path = _PACKAGE) -> str:
    """A hash of the source that decides the numbers of a task; comments and docstrings do not."""
    paths = set(_walked(package, f"tasks/{task}.py"))
    for name in _FOR_ALL:
        paths |= {package / name} if name.endswith(".py") else set((package / name).rglob("*.py"))
    paths -= {package / name for name in _FOR_NO_NUMBER}
    content = hashlib.sha256()
    for path in sorted(paths):
        content.update(
            f"{path.relative_to(package)}\n{_code(path, path.stat().st_mtime_ns)}\n".encode()
        )
    return content.hexdigest()[:12]


def _walked(package: Path, start: str) -> Iterator[Path]:
    """A file of the task, and those of the same folders that it imports, and so on."""
    todo, seen = [package / start], set()
    while todo:
        path = todo.pop()
        if path in seen or not path.exists():
            continue
        seen.add(path)
        yield path
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                _, *parts = name.split(".")
                if len(parts) > 1 and parts[0] in _OF_A_TASK:
                    todo.append(package.joinpath(*parts).with_suffix(".py"))


@cache
def _code(path: Path, changed_at: int) -> str:  # noqa: ARG001
    """The code of a file as it was at a time, without comments, docstrings and layout."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            # Also those below attributes: a bare string does nothing.
            node.body = [line for line in body if not _is_text(line)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(line: ast.AST) -> bool:
    return (
        isinstance(line, ast.Expr)
        and isinstance(line.value, ast.Constant)
        and isinstance(line.value.value, str)
    )
