"""How much memory there is, and how much a call needs."""

import math
import os
from types import SimpleNamespace

import pytest
import torch

from funcattn.ops import memory
from funcattn.ops.memory import available_bytes, installed_bytes, peak_rise


def test_what_is_free_is_part_of_what_is_installed() -> None:
    assert 0 < available_bytes(torch.device("cpu")) <= installed_bytes()


def test_a_system_that_does_not_say_counts_as_a_small_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sysconf")
    assert installed_bytes() == 8 * 2**30


def _call() -> None:
    torch.ones(2**24).sum()  # 64 MiB


def test_what_a_call_needs_for_a_moment_is_seen_whatever_was_needed_before() -> None:
    torch.ones(2**25).sum()
    assert peak_rise(_call) == pytest.approx(2**26, rel=0.05)
    assert peak_rise(lambda: None) < 2**22


def _unsaid(name: str) -> int:
    raise FileNotFoundError(name)


def test_other_systems_say_their_peak_in_their_own_units(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter([100, 140, 100, 140])
    monkeypatch.setattr(memory, "status", _unsaid)
    monkeypatch.setattr(
        memory,
        "resource",
        SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda _: SimpleNamespace(ru_maxrss=next(peaks))),
    )
    assert peak_rise(lambda: None) == 40 * 1024
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    assert peak_rise(lambda: None) == 40


def test_a_system_that_says_no_peak_gives_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "status", _unsaid)
    monkeypatch.setattr(memory, "resource", None)
    assert math.isnan(peak_rise(_call))
