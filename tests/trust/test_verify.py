import json

import pytest

from funcattn.documents import sealed
from funcattn.errors import FuncattnError
from funcattn.settings import changed
from funcattn.tasks.darcy import Darcy
from funcattn.training.run import Run, train
from funcattn.trust.verify import Verdict, verify


@pytest.fixture
def run(store, tmp_path):
    settings = changed(Darcy.defaults("smoke", "modern"), {"optimisation": {"epochs": 1}})
    return train(settings, tmp_path / "runs" / "darcy", store=store, command="a test")


def test_a_run_holds_with_data_made_again(run):
    verdicts = list(verify(run.folder.parent))
    assert [(v.metric, v.holds) for v in verdicts] == [("relative_l2", True)]
    assert "made again" in verdicts[0].note


def test_a_record_that_says_less_does_not_hold(run, store, monkeypatch):
    wrong = run.record | {"test": {"relative_l2": 0.9 * run.record["test"]["relative_l2"]}}
    monkeypatch.setattr(Run, "record", wrong)
    assert [v.holds for v in verify(run.folder, store=store)] == [False]


def test_other_data_are_said(run, store, monkeypatch):
    monkeypatch.setattr(Run, "record", run.record | {"data": "other"})
    with pytest.raises(FuncattnError, match="fingerprint other"):
        list(verify(run.folder, store=store))


def test_a_line_of_results_is_trained_again(run, store, tmp_path):
    record = run.record
    line = {
        **dict.fromkeys(("identity", "code"), "x"),
        "task": "darcy",
        "model": "funcattn",
        "seed": 0,
        "cpu_seconds": 1.0,
        **{name: record[name] for name in ("test", "data", "settings")},
    }
    low = line | {"test": {"relative_l2": 0.5 * record["test"]["relative_l2"]}}
    long = line | {"cpu_seconds": 1e6}
    path = tmp_path / "darcy.jsonl"
    path.write_text("".join(sealed(each) + "\n" for each in (line, low, long)))
    verdicts = list(verify(path, store=store))
    assert [v.holds for v in verdicts] == [True, False, None]
    assert verdicts[0].found == verdicts[0].recorded  # the same machine, the same numbers
    assert "1000000 CPU seconds" in verdicts[2].note
    assert len(list(verify(path, store=store, line=3))) == 1
    with pytest.raises(ValueError, match="1 to 3"):
        list(verify(path, store=store, line=4))


def test_a_folder_without_anything_is_refused(tmp_path):
    (tmp_path / "note.json").write_text(json.dumps({}))
    with pytest.raises(ValueError, match="a folder with some of these"):
        list(verify(tmp_path))


def test_the_tolerance_is_relative():
    assert Verdict("a", "b", 1.0, 1.0005, 1e-3).holds
    assert not Verdict("a", "b", 1e-5, 1.02e-5, 1e-3).holds


def test_a_run_that_comes_with_the_package_is_found_by_name(run, store, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("funcattn.training.bundled.PLACES", (run.folder.parent,))
    name = run.folder.name
    assert all(each.holds for each in verify(name, store=store))
    (tmp_path / name).mkdir()  # what is there goes before
    with pytest.raises(ValueError, match="expected a run"):
        list(verify(name, store=store))
