"""Damaged files of every kind are refused by an error that names them, or read as before.

`speaks_for_itself`, by which the corpus tells refusals from bare errors, is what the command asks
before its last resort: so none of these files reaches that.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyvista")

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import mutated_arrays  # noqa: E402
import mutations  # noqa: E402

KINDS = mutations.kinds()


def attack(kind: Any, folder: Path, count: int, seed: int) -> Counter[str]:
    ends = list(mutations.attack(kind, folder, count, seed))
    assert not [each for each in ends if each[1] in mutations.BAD]
    return Counter(end for _, end, _ in ends)


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_damaged_file_never_gives_a_bare_error_or_numbers_that_a_checksum_would_catch(
    kind: Any, tmp_path: Path
) -> None:
    counts = attack(kind, tmp_path, 14, seed=1)
    assert kind.unread == (counts["refused"] == 0)


def test_no_ending_and_no_layout_that_is_read_is_missing(tmp_path: Path) -> None:
    """So that whoever adds a reader adds a kind."""
    from funcattn.data.cases import array_files, folder, layouts, tables

    endings = {kind.suffix for kind in KINDS} | {Path(kind.inside).suffix for kind in KINDS}
    assert {*folder.SUFFIXES, *tables.PARQUET, ".csv"} <= endings
    found = set()
    for number, kind in enumerate(mutated_arrays.kinds()):
        if kind.suffix in array_files.SUFFIXES:
            path = tmp_path / f"{number}{kind.suffix}"
            kind.write(path)
            file = array_files.open_arrays(path)
            found.add(next(cases for fits, cases in layouts._LAYOUTS if fits(file)))
    assert found == {cases for _, cases in layouts._LAYOUTS}


@pytest.mark.full
def test_so_do_ten_thousand() -> None:
    """In processes of their own, so that a crash or a hang is an outcome like the others."""
    names = [kind.name for kind in KINDS]
    ends = list(mutations.outcomes(names, each=10_000 // len(names) + 1, seed=2))
    assert len(ends) >= 10_000
    assert not [each for each in ends if each[1] in mutations.BAD]


def test_the_table_is_of_ten_thousand_without_a_bad_end() -> None:
    kept = json.loads((ROOT / "results/mutations.json").read_text())["kinds"]
    assert kept.keys() == {kind.name for kind in KINDS}
    total = Counter[str]()
    for counts in kept.values():
        total.update(counts)
    assert total.total() >= 10_000
    assert [total[end] for end in mutations.BAD] == [0, 0, 0, 0]


def test_the_attack_notices_what_is_wrong(tmp_path: Path) -> None:
    """Readers that believe everything are caught: so the tests above can fail."""
    import numpy as np

    def careless(path: Path) -> dict[str, Any]:
        return {"u": np.frombuffer(path.read_bytes(), "<f8")}

    def write(path: Path) -> None:
        np.arange(20.0).tofile(path)

    kind = mutations.Kind("careless", ".bin", write, careless, checked=True)
    ends = list(mutations.attack(kind, tmp_path, 60, 0))
    assert sum(end in mutations.BAD for _, end, _ in ends) > 20
    assert any("ValueError" in words for _, end, words in ends if end == "bare error")
    assert "wrong number" in {end for _, end, _ in ends}


DEADLY = """
import os, pathlib, sys, time
HERE = pathlib.Path(__file__).parent
sys.path.insert(0, {path!r})
import mutations

def read(path):
    if path.stem == "bad":
        number = len(list(HERE.glob("seen*")))
        (HERE / f"seen{{number}}").touch()
        if number == 1:
            os.abort() if "{word}" == "crash" else time.sleep(600)
    return {{"text": "same"}}

mutations.kinds = lambda: [mutations.Kind("a", ".txt", lambda p: p.write_text("12345678"), read)]
mutations.PATIENCE = 5.0
mutations.__file__ = __file__
if "--child" in sys.argv:
    mutations.main()
else:
    for each in mutations.outcomes(["a"], 4, 0):
        print(each[1])
"""


@pytest.mark.parametrize("word", ["crash", "hang"])
def test_a_reader_that_dies_or_waits_is_counted_and_the_others_are_read(
    tmp_path: Path, word: str
) -> None:
    import subprocess

    script = tmp_path / "script.py"
    script.write_text(DEADLY.format(path=str(ROOT / "benchmarks"), word=word))
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=300
    )
    assert ended.stdout.split() == ["same", word, "same", "same"], ended.stderr
