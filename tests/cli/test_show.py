"""`funcattn list` and `funcattn info`."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.conftest import Call, record_of

from funcattn import __version__
from funcattn.models import MODELS, diffusion_net
from funcattn.models.laplacians import OperatorCache
from funcattn.tasks import TASKS
from funcattn.training.setup import build_network


def test_list_names_every_task_and_model(call: Call) -> None:
    code, out, _ = call("list")
    assert code == 0
    words = out.split()
    assert all(name in words for name in (*TASKS, *MODELS))


def test_info_of_a_task_is_its_settings_with_flags_over_them(call: Call) -> None:
    code, out, _ = call("info", "darcy", "--profile", "smoke", "--preset", "paper", "--seed", "7")
    assert code == 0
    shown, _ = json.JSONDecoder().raw_decode(out[out.index("{") :])
    assert shown["seed"] == 7
    assert shown["network"]["width"] == 16
    assert shown["optimisation"]["optimiser"] == "adamw"


def test_info_alone_says_what_the_installation_computes_with(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUNCATTN_NATIVE", "0")
    code, out, _ = call("info")
    assert code == 0
    for words in (__version__, torch.__version__, "switched off by FUNCATTN_NATIVE=0"):
        assert words in out
    assert "Triton" in out


def test_info_of_a_run_is_its_results_and_settings(call: Call, run: Path) -> None:
    code, out, _ = call("info", run)
    assert code == 0
    results, settings = json.JSONDecoder().raw_decode(out.strip())[0], out[out.rindex("\n{") :]
    assert results["test"] == record_of(run)["test"]
    assert "test_values" not in results
    assert json.loads(settings) == record_of(run)["settings"]


def listed(call: Call, task: str) -> dict[str, str]:
    """What `list models` says of each network."""
    code, out, _ = call("list", "models", "--task", task, "--profile", "smoke")
    assert code == 0
    # A table that is too wide goes on below, so that a network may have several lines.
    lines: dict[str, str] = {}
    for line in filter(str.strip, out.splitlines()):
        name = line.split()[0]
        lines[name] = lines.get(name, "") + line
    return lines


def test_list_models_shows_what_each_costs_and_which_cannot(call: Call) -> None:
    lines = listed(call, "elasticity")
    for name in MODELS:
        assert name in lines
    assert "it needs points" in lines["fno"]
    task = TASKS["elasticity"](TASKS["elasticity"].defaults("smoke", "modern"))
    parameters = sum(p.numel() for p in build_network(task).network.parameters())
    assert f"{parameters:,}" in lines["funcattn"]


def test_networks_are_listed_without_the_packages_that_some_need(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("ptwt", "robust_laplacian"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(diffusion_net, "_CACHE", OperatorCache())  # with nothing made before
    lines = listed(call, "darcy")
    for name in ("wno", "diffusion_net"):
        assert "pip install" in lines[name]


def test_a_network_comes_with_settings_of_its_own_and_flags_go_over_them(call: Call) -> None:
    def shown(*flags: str) -> Any:
        code, out, _ = call("info", "darcy", "--profile", "cpu", *flags)
        assert code == 0
        return json.JSONDecoder().raw_decode(out[out.index("{") :])[0]

    assert shown("--model", "fno")["network"]["width"] == 32
    assert shown("--model", "fno", "--network.width", "20")["network"]["width"] == 20
    assert shown("--model", "fno")["optimisation"]["optimiser"] == "adamw"
    theirs, ours = shown("--model", "galerkin")["network"], shown()["network"]
    assert {name: ours[name] for name in theirs} == theirs
    assert ours.keys() - theirs.keys() == {"bases", "share_basis", "basis", "projection", "ridge"}
    assert shown("--model", "galerkin")["optimisation"]["optimiser"] == "muon"
