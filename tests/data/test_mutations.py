"""Damaged files of every kind are refused by an error that names them, or read as before."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyvista")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "mutations.py"


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location("mutations", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutations"] = module
    spec.loader.exec_module(module)
    return module


mutations = loaded()
KINDS = mutations.kinds()


def attack(kind: Any, folder: Path, count: int, seed: int) -> Counter[str]:
    counts, wrongs = mutations.attack(kind, folder, count, seed)
    assert not wrongs
    return counts


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_damaged_file_never_gives_a_bare_error_or_numbers_that_a_checksum_would_catch(
    kind: Any, tmp_path: Path
) -> None:
    counts = attack(kind, tmp_path, 18, seed=1)
    assert counts["refused"] > 0


@pytest.mark.full
@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_so_do_hundreds_of_each_kind(kind: Any, tmp_path: Path) -> None:
    attack(kind, tmp_path, 450, seed=2)


def test_the_attack_notices_what_is_wrong(tmp_path: Path) -> None:
    """Readers that believe everything are caught: so the tests above can fail."""
    import numpy as np

    def careless(path: Path) -> dict[str, Any]:
        return {"u": np.frombuffer(path.read_bytes(), "<f8")}

    def write(path: Path) -> None:
        np.arange(20.0).tofile(path)

    kind = mutations.Kind("careless", ".bin", write, careless, checked=True)
    counts, wrongs = mutations.attack(kind, tmp_path, 60, 0)
    assert counts["wrong"] == len(wrongs) > 20
    assert any("ValueError" in words for words in wrongs)
    assert any("other numbers" in words for words in wrongs)
