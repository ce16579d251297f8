import json
from pathlib import Path

import numpy as np
import pytest
import torch

from funcattn import OperatorTransformer, load_reference

GOLDEN = sorted((Path(__file__).parent / "data").glob("funcattn_*.npz"))


def read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, np.ndarray]]:
    arrays = dict(np.load(path))
    state = {k.removeprefix("state/"): torch.tensor(v) for k, v in arrays.items() if "state/" in k}
    return state, arrays


def run(model: OperatorTransformer, arrays: dict[str, np.ndarray]) -> torch.Tensor:
    grid = json.loads(str(arrays["config"]))["grid"]
    values = arrays.get("input/fx")
    with torch.no_grad():
        return model(
            torch.tensor(arrays["input/x"]),
            None if values is None else torch.tensor(values),
            grid=None if grid is None else tuple(grid),
        )


def test_there_are_three_golden_files() -> None:
    assert len(GOLDEN) == 3


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_agrees_with_the_public_network(path: Path) -> None:
    state, arrays = read(path)
    output = run(load_reference(state), arrays)
    assert output.dtype == torch.float64
    torch.testing.assert_close(output, torch.tensor(arrays["output"]), rtol=0, atol=1e-10)
