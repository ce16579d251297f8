"""Results: kept whole, found by settings and code."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from funcattn import files
from funcattn.documents import sealed
from funcattn.experiments.engine.fingerprints import Fingerprint, fingerprint_of, stored
from funcattn.experiments.engine.results import Results, append_line, read_lines
from funcattn.experiments.engine.trial import Trial

TRIAL = Trial("darcy", "transolver")


def test_a_result_is_found_by_its_settings(made: Any) -> None:
    made.add(TRIAL, {"test": {"relative_l2": 0.25}}, seed=1)
    results = Results(made.folder)
    found = results.find(TRIAL, "cpu", 1)
    assert found is not None
    assert found.current
    assert found.value("test.relative_l2") == 0.25
    assert found.value("test.other") is None
    assert found.value("test.relative_l2.deeper") is None
    assert results.find(TRIAL, "cpu") is None
    assert results.find(TRIAL, "smoke", 1) is None


def test_a_result_of_older_code_is_kept_and_marked(made: Any) -> None:
    made.add(TRIAL, {"test": {"relative_l2": 0.5}}, code="old")
    found = Results(made.folder).find(TRIAL, "cpu")
    assert found is not None
    assert not found.current
    made.add(TRIAL, {"test": {"relative_l2": 0.25}})
    made.add(TRIAL, {"test": {"relative_l2": 0.75}}, code="older")
    found = Results(made.folder).find(TRIAL, "cpu")
    assert found is not None
    assert found.current
    assert found.value("test.relative_l2") == 0.25
    assert len(read_lines(made.folder / "darcy.jsonl")) == 3


def test_names_from_before_the_fingerprints_count_where_the_numbers_are_the_same(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.add(TRIAL, {}, code="first")
    made.add(TRIAL, {}, seed=1, code="other")
    same = Fingerprint(fingerprint_of(TRIAL).numbers, earlier=("first",))
    monkeypatch.setitem(stored(), "darcy transolver", same)
    results = Results(made.folder).of_all_seeds(TRIAL, "cpu")
    assert [result.current for result in results.values()] == [True, False]


def test_other_numbers_of_one_network_leave_the_results_of_others(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lno = Trial("darcy", "lno")
    made.add(TRIAL, {})
    made.add(lno, {})
    monkeypatch.setitem(stored(), "darcy lno", Fingerprint({"train_loss": [0.5]}))
    results = Results(made.folder)
    found = [results.find(trial, "cpu") for trial in (TRIAL, lno)]
    assert [result is not None and result.current for result in found] == [True, False]


def test_a_setting_that_came_later_had_its_default(made: Any) -> None:
    made.add(TRIAL, {})
    path = made.folder / "darcy.jsonl"
    line = json.loads(path.read_text())
    assert line["settings"]["network"].pop("mlp_ratio") == 1.0
    path.write_text(sealed(line | {"identity": "of that time"}) + "\n")
    results = Results(made.folder)
    assert results.find(TRIAL, "cpu") is not None
    assert results.find(replace(TRIAL, changes={"network": {"mlp_ratio": 2.0}}), "cpu") is None


def test_a_kill_while_writing_leaves_the_old_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    append_line(path, {"first": 1})
    before = path.read_bytes()

    def killed(handle: int) -> None:  # noqa: ARG001
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", killed)
        with pytest.raises(KeyboardInterrupt):
            append_line(path, {"second": 2})
    assert path.read_bytes() == before
    append_line(path, {"second": 2})
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.keys() - {"sha256"} for line in kept] == [{"first"}, {"second"}]


def test_a_number_that_was_changed_is_noticed(made: Any) -> None:
    made.add(TRIAL, {"test": {"relative_l2": 0.25}})
    path = made.folder / "darcy.jsonl"
    path.write_text(path.read_text().replace("0.25", "0.26"))
    with pytest.raises(ValueError, match=r"line 1: expected the line as it was written, got"):
        Results(made.folder)


@pytest.mark.parametrize("text", ["{", '{"identity": "a"}', "[1]"])
def test_a_line_that_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "darcy.jsonl").write_text(text + "\n")
    with pytest.raises(ValueError, match=r"darcy\.jsonl, line 1: expected .* got .*; remove the"):
        Results(tmp_path)
