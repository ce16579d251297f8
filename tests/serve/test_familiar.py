"""What is kept of training samples, as it comes back from a file."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.serve.conftest import untrained_run

from funcattn.serve.familiar import FILE, Familiarity, read_familiarity
from funcattn.training.run import Run


def test_the_order_of_layers_in_a_file_changes_nothing(tmp_path: Path) -> None:
    folder = untrained_run("darcy", tmp_path / "darcy")
    torch.manual_seed(0)
    names = ("input", "blocks.0.branches.0", "blocks.0", "output")  # a file has them sorted
    found = {name: torch.randn(7, 3) for name in names}
    made = Familiarity(
        {name: torch.randn(3).double() for name in names},
        {name: torch.randn(3, 3).double() for name in names},
        torch.zeros(1, 1),
        torch.ones(2).double(),
        7,
    )
    made = Familiarity(made.means, made.whitenings, made.placed(found), made.limits, made.held)
    save_file(made.tensors(), folder / FILE)
    again = read_familiarity(Run(folder))
    assert again is not None
    for before, after in zip(made.scores(found), again.scores(found), strict=True):
        assert after.nearest == pytest.approx(0.0, abs=1e-4)  # each is one of those that were seen
        assert after == pytest.approx(before, abs=1e-4)
