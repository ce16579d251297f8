"""The command as a whole: help, version, and how it refuses."""

import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Call, Refused

from funcattn import __version__
from funcattn.data import Store


@pytest.mark.parametrize("name", ["", "train", "generate", "evaluate", "predict", "list", "info"])
def test_every_command_has_help(call: Call, name: str) -> None:
    code, out, _ = call(*([name] if name else []), "--help")
    assert code == 0
    assert f"usage: funcattn {name}".strip() in out


def test_the_version_is_printed(call: Call) -> None:
    assert call("--version") == (0, f"{__version__}\n", "")


def test_a_completion_script_is_printed(call: Call) -> None:
    code, out, _ = call("--tyro-print-completion", "bash")
    assert code == 0
    assert "funcattn" in out
    assert "complete " in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "darzy"], "task: expected one of"),
        (["info", "darzy"], "darzy: expected the folder of a run"),
        (["generate", "darzy"], "got 'darzy'"),
        (["evaluate", "nowhere"], "nowhere: expected the folder of a run"),
        (
            ["predict", "nowhere", "in.npz", "-o", "out.npz"],
            "nowhere: expected the folder of a run",
        ),
        (["list", "models", "--much"], "arguments: expected those of --help, got --much"),
        (["train", "darcy", "--config", "none.toml"], "No such file"),
        (["train", "darcy", "--resume", "--out", "nowhere"], "nowhere: expected the folder"),
        (["train", "darcy", "--profile", "smoke", "--model", "x[/]"], "got 'x[/]'"),
        (["train", "darcy", "--profile", "smoke", "--task", "x"], "expected settings of darcy"),
        (
            ["train", "darcy", "--profile", "smoke", "--data.validation", "0"],
            "data.validation: exp",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    call: Call, store: Store, tmp_path: Path, arguments: list[str], said: str, refused: Refused
) -> None:
    if "--data.validation" in arguments:  # other numbers of the same samples
        arguments = [*arguments, "--data.train", "16"]
    if arguments[0] == "train":
        arguments = [*arguments, "--cache", str(store.folder)]
    refused(call(*arguments), said)
    assert not list(tmp_path.glob("**/settings.json"))


def test_a_long_message_stays_on_one_line(call: Call, tmp_path: Path, refused: Refused) -> None:
    folder = tmp_path / ("a" * 100) / ("b [red]" + "c" * 100)
    folder.mkdir(parents=True)
    refused(call("evaluate", folder), f"{folder}: expected the folder of a run")


def test_what_is_missing_is_named_with_the_way_to_install_it(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "funcattn.cli", raising=False)
    monkeypatch.setitem(sys.modules, "tyro", None)
    code, _, _ = call("list")
    assert code == (
        "funcattn: the command needs tyro, which is not installed: pip install 'funcattn[train]'"
    )
