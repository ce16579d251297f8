"""How much memory there is."""

import os

import pytest
import torch

from funcattn.ops.memory import available_bytes, installed_bytes


def test_what_is_free_is_part_of_what_is_installed() -> None:
    assert 0 < available_bytes(torch.device("cpu")) <= installed_bytes()


def test_a_system_that_does_not_say_counts_as_a_small_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sysconf")
    assert installed_bytes() == 8 * 2**30
