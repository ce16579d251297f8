"""`funcattn generate`, and what `info` says of data."""

from pathlib import Path

from tests.cli.conftest import Call, Refused

from funcattn.data import Store
from funcattn.tasks.darcy import Darcy


def test_generate_makes_data_and_says_so(call: Call, store: Store) -> None:
    code, out, err = call("generate", "darcy", "--profile", "smoke", "--cache", store.folder)
    assert code == 0, err
    assert "20 samples, 0 draws rejected" in out
    path = store.path(Darcy(Darcy.defaults("smoke", "modern")).recipe(), 0)
    assert str(path) in out
    code, out, _ = call("list", "--cache", store.folder)
    assert code == 0
    assert "darcy" in out
    assert "seed 0, nodes 17, keep 1" in out


def test_generate_takes_samples_seed_and_workers_and_extends(call: Call, tmp_path: Path) -> None:
    line = ("generate", "darcy", "--profile", "smoke", "--seed", 3, "--workers", 1)
    for samples in (2, 5):
        code, out, err = call(*line, "--samples", samples, "--cache", tmp_path)
        assert code == 0, err
        assert f"{samples} samples" in out
    (stored,) = Store(tmp_path).sets()
    assert stored.provenance["seed"] == 3
    assert [part["profile"] for part in stored.provenance["made"]] == ["smoke", "smoke"]
    assert "--samples 5" in stored.provenance["made"][1]["command"]


def test_info_shows_a_set_with_its_provenance_and_a_picture(
    call: Call, store: Store, tmp_path: Path
) -> None:
    code, out, err = call("info", "darcy", "--profile", "smoke", "--cache", store.folder)
    assert code == 0, err
    assert '"rejected": 0' in out
    picture = store.path(Darcy(Darcy.defaults("smoke", "modern")).recipe(), 0).with_suffix(".png")
    assert str(picture) in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    code, out, _ = call("info", "darcy", "--profile", "smoke", "--cache", tmp_path / "empty")
    assert code == 0
    assert "not made yet: funcattn generate darcy --profile smoke" in out


def test_a_task_without_a_solver_has_nothing_to_generate(call: Call, refused: Refused) -> None:
    refused(call("generate", "few_shot"), "few_shot has no data to make")
