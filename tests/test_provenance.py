import pytest
import torch

from funcattn.provenance import facts


def test_what_is_recorded_beside_numbers() -> None:
    said = facts()
    assert said["threads"] == torch.get_num_threads()
    assert {"python", "funcattn", "torch", "numpy"} <= said["versions"].keys()


def test_without_git_the_commit_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert facts()["commit"] == "unknown"
