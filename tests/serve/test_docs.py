"""The examples of docs/serve.md, run one after another."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from funcattn.serve.model import ServedModel

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"


def test_the_examples_of_the_page_run(
    models: Mapping[str, ServedModel], service_of: Callable[..., TestClient]
) -> None:
    connection, *examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert "httpx2.Client" in connection  # the only one that needs a service elsewhere
    assert len(examples) >= 7
    # The one that comes with funcattn has bands.
    with service_of({**models, "darcy": models["banded"]}) as client:
        names: dict[str, Any] = {"service": client, "print": lambda *_: None}
        for example in examples:
            exec(compile(example, str(PAGE), "exec"), names)
    assert names["prediction"].shape == (81, 1)
    assert names["far"]
