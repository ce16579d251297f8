"""Results: kept whole, found by settings and code."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from funcattn.experiments.base import Run
from funcattn.experiments.results import SAME_NUMBERS, Results, append_line, read_lines
from funcattn.experiments.version import code_version
from funcattn.training import checkpoint

RUN = Run("darcy", "transolver")


def test_a_result_is_found_by_its_settings(made: Any) -> None:
    made.add(RUN, {"test": {"relative_l2": 0.25}}, seed=1)
    results = Results(made.folder)
    found = results.find(RUN.settings("cpu", 1))
    assert found is not None
    assert found.current
    assert found.value("test.relative_l2") == 0.25
    assert found.value("test.other") is None
    assert found.value("test.relative_l2.deeper") is None
    assert results.find(RUN.settings("cpu", 0)) is None
    assert results.find(RUN.settings("smoke", 1)) is None


def test_a_result_of_older_code_is_kept_and_marked(made: Any) -> None:
    made.add(RUN, {"test": {"relative_l2": 0.5}}, code="old")
    found = Results(made.folder).find(RUN.settings("cpu"))
    assert found is not None
    assert not found.current
    made.add(RUN, {"test": {"relative_l2": 0.25}})
    made.add(RUN, {"test": {"relative_l2": 0.75}}, code="older")
    found = Results(made.folder).find(RUN.settings("cpu"))
    assert found is not None
    assert found.current
    assert found.value("test.relative_l2") == 0.25
    assert len(read_lines(made.folder / "darcy.jsonl")) == 3


def test_code_that_changed_no_number_is_not_older(made: Any) -> None:
    made.add(RUN, {}, code="first")
    made.add(RUN, {}, seed=1, code="other")
    now = code_version("darcy")
    changes = [
        {"code": {"darcy": ["first", "second"], "burgers": ["other", now]}},
        {"code": {"darcy": ["second", now]}},
    ]
    (made.folder / SAME_NUMBERS).write_text(json.dumps(changes))
    found = Results(made.folder).of_all_seeds(RUN.settings("cpu"))
    assert [result.current for result in found.values()] == [True, False]
    (made.folder / SAME_NUMBERS).write_text(json.dumps(changes[:1]))
    found = Results(made.folder).of_all_seeds(RUN.settings("cpu"))
    assert not found[0].current


@pytest.mark.parametrize(("but_for", "current"), [("lno", True), ("transolver", False)])
def test_a_change_of_one_network_leaves_the_numbers_of_others(
    made: Any, but_for: str, current: bool
) -> None:
    made.add(RUN, {}, code="old")
    change = {"code": {"darcy": ["old", code_version("darcy")]}, "but_for": [but_for]}
    (made.folder / SAME_NUMBERS).write_text(json.dumps([change]))
    found = Results(made.folder).find(RUN.settings("cpu"))
    assert found is not None
    assert found.current == current


def test_a_setting_that_came_later_had_its_default(made: Any) -> None:
    made.add(RUN, {})
    path = made.folder / "darcy.jsonl"
    line = json.loads(path.read_text())
    assert line["settings"]["network"].pop("modes") == 12
    path.write_text(json.dumps(line | {"identity": "of that time"}) + "\n")
    results = Results(made.folder)
    settings = RUN.settings("cpu")
    assert results.find(settings) is not None
    assert results.find(replace(settings, network=replace(settings.network, modes=5))) is None


def test_a_kill_while_writing_leaves_the_old_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    append_line(path, {"first": 1})
    before = path.read_bytes()

    def killed(handle: int) -> None:  # noqa: ARG001
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.os, "fsync", killed)
        with pytest.raises(KeyboardInterrupt):
            append_line(path, {"second": 2})
    assert path.read_bytes() == before
    append_line(path, {"second": 2})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"first": 1},
        {"second": 2},
    ]


@pytest.mark.parametrize("text", ["{", '{"identity": "a"}', "[1]"])
def test_a_line_that_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "darcy.jsonl").write_text(text + "\n")
    with pytest.raises(ValueError, match=r"darcy\.jsonl, line 1: expected the result of a run"):
        Results(tmp_path)
