"""The examples of docs/serve.md, run one after another."""

import re
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"


def test_the_examples_of_the_page_run(client: TestClient) -> None:
    connection, *examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert "httpx2.Client" in connection  # the only one that needs a service elsewhere
    assert len(examples) >= 7
    names: dict[str, Any] = {"service": client, "print": lambda *_: None}
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), names)
    assert names["prediction"].shape == (81, 1)
    assert names["far"]
