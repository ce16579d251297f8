"""The store: the same content however it was made, and nothing lost however it was stopped."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest

from funcattn.data import Recipe, Store, StoredSet, StoreError
from funcattn.data import store as module
from funcattn.pde import darcy
from funcattn.pde.errors import NotConvergedError

Until = Callable[..., None]

DARCY = Recipe("darcy", darcy.sample, {"nodes": 9, "keep": 2})


def plain(*, scale: float, rng: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    return {"field": scale * rng.standard_normal((2, 3)), "number": np.asarray(rng.integers(100))}


def cloud(*, rng: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    points = int(rng.integers(0, 7))
    return {
        "points": rng.standard_normal((points, 2)),
        "surface": rng.random(points) > 0.5,
        "name": rng.standard_normal(3),
    }


def fickle(*, rng: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    value = rng.random()
    if value > 0.5:
        raise NotConvergedError(f"expected at most 0.5, got {value}")
    return {"value": np.asarray(value)}


PLAIN = Recipe("plain", plain, {"scale": 2.0})
CLOUD = Recipe("cloud", cloud, ragged=frozenset({"points", "surface"}))
FICKLE = Recipe("fickle", fickle)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made in threads of this process, which start at once; the disk is not waited for."""
    monkeypatch.setattr(module, "worker_pool", lambda workers, **_: ThreadPoolExecutor(workers))
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def shard_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard a sample."""
    monkeypatch.setattr(module, "_SHARD_SECONDS", -1.0)


def content(made: StoredSet) -> dict[str, npt.NDArray[Any]]:
    """All that solvers made, without what it cost."""
    with h5py.File(made.path) as file:
        return {name: file[name][:] for name in file if name != "seconds"}


def assert_same(one: StoredSet, other: StoredSet) -> None:
    a, b = content(one), content(other)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_content_does_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    one, two = (Store(tmp_path / str(w), workers=w).made(DARCY, 0, 5) for w in (1, 2))
    assert_same(one, two)
    for i in range(5):
        expected = darcy.sample(nodes=9, keep=2, rng=np.random.default_rng([0, i]))
        stored = one.read("pressure", range(i, i + 1))[0]
        assert stored.dtype == np.float32
        np.testing.assert_allclose(stored, expected["pressure"], rtol=1e-6, atol=1e-9)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("recipe", [PLAIN, CLOUD], ids=lambda recipe: recipe.name)
def test_a_set_is_extended_without_making_anything_again(
    tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = Store(tmp_path / "a").made(recipe, 3, 9)
    store = Store(tmp_path / "b")
    store.made(recipe, 3, 4)
    indices: list[int] = []
    make = module._make_one
    monkeypatch.setattr(module, "_make_one", lambda r, s, i: indices.append(i) or make(r, s, i))
    bit_by_bit = store.made(recipe, 3, 9)
    assert indices == [4, 5, 6, 7, 8]
    assert_same(at_once, bit_by_bit)
    made = bit_by_bit.provenance["made"]
    assert [(part["from"], part["to"]) for part in made] == [(0, 4), (4, 9)]
    assert store.made(recipe, 3, 6) == bit_by_bit
    assert len(indices) == 5
    kept = [name for name in files(tmp_path / "b") if not name.endswith(".lock")]
    assert kept == [bit_by_bit.path.name]


@pytest.mark.usefixtures("here")
def test_fields_are_read_by_rows_and_strides(tmp_path: Path) -> None:
    made = Store(tmp_path).made(PLAIN, 0, 6)
    everything = made.read("field", range(6))
    assert everything.shape == (6, 2, 3)
    np.testing.assert_array_equal(made.read("field", range(1, 5), (1, 2)), everything[1:5, :, ::2])
    assert made.read("field", range(2, 2)).shape == (0, 2, 3)
    assert made.read("number", range(6)).dtype == np.int64
    with pytest.raises(StoreError, match="field: expected rows of 6 samples, got 4 to 9"):
        made.read("field", range(4, 9))
    with pytest.raises(StoreError, match="expected one of field, number, got 'stress'"):
        made.read("stress", range(1))


@pytest.mark.usefixtures("here")
def test_ragged_samples_come_back_as_they_were(tmp_path: Path) -> None:
    made = Store(tmp_path).made(CLOUD, 1, 30)
    sizes = set()
    for i in range(30):
        expected = cloud(rng=np.random.default_rng([1, i]))
        for name in ("points", "surface"):
            got = made.read_ragged(name, i)
            np.testing.assert_array_equal(got, expected[name].astype(got.dtype))
        sizes.add(len(expected["points"]))
    assert 0 in sizes
    assert len(sizes) > 3


@pytest.mark.usefixtures("here")
def test_draws_that_do_not_converge_are_drawn_again_and_counted(tmp_path: Path) -> None:
    made = Store(tmp_path).made(FICKLE, 0, 30)
    attempts = content(made)["attempts"]
    values = made.read("value", range(30))
    for i, attempt in enumerate(attempts):
        draws = [np.random.default_rng([0, i, k]).random() for k in range(attempt)]
        assert all(draw > 0.5 for draw in draws[:-1])
        assert values[i] == np.float32(draws[-1])
    said = made.provenance
    assert said["samples"] == 30
    assert said["rejected"] == attempts.sum() - 30 > 5
    assert said["drawn"] == attempts.sum()


@pytest.mark.usefixtures("here")
def test_bad_luck_without_end_stops_with_the_reason(tmp_path: Path) -> None:
    def never(*, rng: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
        raise NotConvergedError(f"expected luck, got {rng.random() * 0}")

    with pytest.raises(StoreError, match=r"never, sample 0: 20 draws .* expected luck, got 0"):
        Store(tmp_path).made(Recipe("never", never), 0, 2)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_not_stored(tmp_path: Path, bad: float) -> None:
    recipe = Recipe("broken", lambda rng: {"u": np.array([1.0, bad])})  # noqa: ARG005
    with pytest.raises(StoreError, match="broken, sample 0, u: not all values are finite"):
        Store(tmp_path).made(recipe, 0, 1)


@pytest.mark.usefixtures("here")
def test_shapes_that_differ_are_refused_unless_they_may(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cloud, points: expected .* name it as ragged"):
        Store(tmp_path).made(replace(CLOUD, ragged=frozenset()), 1, 8)


@pytest.mark.usefixtures("here")
def test_whatever_decides_the_numbers_decides_the_file(tmp_path: Path) -> None:
    store = Store(tmp_path)
    recipes = [PLAIN, replace(PLAIN, parameters={"scale": 3.0}), replace(PLAIN, version=2)]
    made = [store.made(recipe, 0, 2) for recipe in recipes] + [store.made(PLAIN, 1, 2)]
    assert len({one.path for one in made}) == 4
    assert store.find(PLAIN, 0) == made[0]
    assert store.find(PLAIN, 2) is None
    assert {one.path for one in store.sets()} == {one.path for one in made}


@pytest.mark.usefixtures("here")
def test_the_provenance_is_inside(tmp_path: Path) -> None:
    store = Store(tmp_path, note={"command": "funcattn generate plain", "profile": "smoke"})
    said = store.made(PLAIN, 7, 3).provenance
    assert said["name"] == "plain"
    assert (said["seed"], said["version"], said["samples"]) == (7, 1, 3)
    assert said["parameters"] == {"scale": 2.0}
    assert said["fields"] == {"field": [2, 3], "number": []}
    assert said["bytes"] == store.path(PLAIN, 7).stat().st_size
    (made,) = said["made"]
    assert made["command"] == "funcattn generate plain"
    assert made["profile"] == "smoke"
    assert {"commit", "machine", "versions"} <= made.keys()


def test_the_file_is_chunked_and_checksummed(tmp_path: Path) -> None:
    made = Store(tmp_path).made(DARCY, 0, 3)
    with h5py.File(made.path) as file:
        for name in ("permeability", "pressure"):
            assert file[name].fletcher32
            assert file[name].chunks == (1, 5, 5)


@pytest.mark.usefixtures("here", "shard_each")
def test_a_failure_keeps_what_was_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Store(tmp_path / "whole").made(PLAIN, 0, 6)
    make = module._make_one

    def failing(recipe: Recipe, seed: int, index: int) -> Any:
        if index == 4:
            raise RuntimeError("a bug")
        return make(recipe, seed, index)

    store = Store(tmp_path / "a")
    with monkeypatch.context() as patch:
        patch.setattr(module, "_make_one", failing)
        with pytest.raises(RuntimeError, match="a bug"):
            store.made(PLAIN, 0, 6)
    assert store.sets() == []
    indices: list[int] = []
    monkeypatch.setattr(module, "_make_one", lambda r, s, i: indices.append(i) or make(r, s, i))
    told: list[tuple[int, int]] = []
    assert_same(replace(store, advance=lambda *p: told.append(p)).made(PLAIN, 0, 6), whole)
    assert indices == [4, 5]
    assert told == [(4, 6), (5, 6), (6, 6)]


@pytest.mark.usefixtures("here", "shard_each")
@pytest.mark.parametrize("when", ["in a shard", "in the file"])
def test_a_full_disk_leaves_the_finished_shards_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    whole = Store(tmp_path / "whole").made(PLAIN, 0, 5)
    store = Store(tmp_path / "a")
    replacing, done = os.replace, []

    def full(source: Path, target: Path) -> None:
        done.append(target)
        if len(done) == (3 if when == "in a shard" else 6):
            raise OSError(28, "No space left on device")
        replacing(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(StoreError, match=r"No space left on device.*what was finished .* kept"):
            store.made(PLAIN, 0, 5)
    left = files(store.folder)
    assert not [name for name in left if ".part" in name]
    assert len([name for name in left if "shards" in name]) == (2 if when == "in a shard" else 5)
    assert_same(store.made(PLAIN, 0, 5), whole)


@pytest.mark.usefixtures("here", "shard_each")
@pytest.mark.parametrize("remains", [".{}.part", ".1234.part.{}"], ids=["of old", "of now"])
def test_remains_of_a_kill_within_a_write_are_cleared(tmp_path: Path, remains: str) -> None:
    store = Store(tmp_path / "a")
    path = store.path(PLAIN, 0)
    shards = path.with_suffix(".shards")
    shards.mkdir(parents=True)
    (shards / remains.format("00000000-00000003.h5")).write_bytes(b"half of")
    path.with_name(remains.format(path.name)).write_bytes(b"half of")
    made = store.made(PLAIN, 0, 4)
    assert_same(made, Store(tmp_path / "whole").made(PLAIN, 0, 4))
    assert [name for name in files(store.folder) if "part" in name] == []


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("how", ["altered", "cut", "empty", "another file"])
def test_a_damaged_file_is_reported(tmp_path: Path, how: str) -> None:
    store = Store(tmp_path)
    made = store.made(PLAIN, 0, 5)
    raw = bytearray(made.path.read_bytes())
    if how == "altered":
        with h5py.File(made.path) as file:
            place = file["field"].id.get_chunk_info(2).byte_offset
        raw[place + 5] ^= 0xFF
    damaged = {"cut": raw[: len(raw) // 2], "empty": b"", "another file": b"hello"}.get(how, raw)
    made.path.write_bytes(damaged)
    with pytest.raises(StoreError, match=r"\.h5 is damaged .* delete it, and it is made again"):
        made.read("field", range(5))


@pytest.mark.usefixtures("here")
def test_a_second_process_waits_and_then_uses_what_the_first_one_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    make, indices = module._make_one, []

    def slow(recipe: Recipe, seed: int, index: int) -> Any:
        indices.append(index)
        begun.set()
        go_on.wait()
        return make(recipe, seed, index)

    monkeypatch.setattr(module, "_make_one", slow)
    told: list[tuple[int, int]] = []
    stores = [Store(tmp_path), Store(tmp_path, advance=lambda *p: told.append(p))]
    made: list[StoredSet] = []
    threads = [
        threading.Thread(target=lambda s=store: made.append(s.made(PLAIN, 0, 3)))
        for store in stores
    ]
    try:
        threads[0].start()
        until(begun.is_set)
        threads[1].start()
        until(lambda: told)
        assert told[0] == (0, 3)
        assert made == []
    finally:
        go_on.set()
    for thread in threads:
        thread.join()
    assert made[0] == made[1]
    assert sorted(indices) == [0, 1, 2]


SLOW = """
import os, sys, time
from pathlib import Path
import numpy as np
from funcattn.data import Recipe, Store, store

left = int(os.environ.get("LEFT", -1))  # samples that a worker still makes; -1: any number

def slow(rng):
    global left
    time.sleep(0.02 if left else 3600)
    left -= 1
    return {"u": rng.standard_normal((4, 4))}

if __name__ == "__main__":
    store._SHARD_SECONDS = 0.1
    Store(Path(sys.argv[1]), workers=2).made(Recipe("slow", slow), 0, int(sys.argv[2]))
"""


@pytest.fixture
def script(tmp_path: Path) -> list[str]:
    path = tmp_path / "slow.py"
    path.write_text(SLOW)
    return [sys.executable, str(path)]


def test_killed_again_and_again_it_makes_the_same_set(
    tmp_path: Path, script: list[str], started: list[subprocess.Popen[str]], until: Until
) -> None:
    folder, count, done = tmp_path / "a", "120", 0
    for pause in (0.0, 0.03, 0.11):
        child = subprocess.Popen(
            [*script, str(folder), count],
            env=os.environ | {"LEFT": "20"},
            start_new_session=True,
            text=True,
        )
        started.append(child)
        until(lambda done=done: finished(folder) > done, child)
        time.sleep(pause)
        os.killpg(child.pid, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        assert finished(folder) >= done
        done = finished(folder)
    for name in ("a", "b"):
        subprocess.run([*script, str(tmp_path / name), count], check=True)
    (a,), (b,) = Store(tmp_path / "a").sets(), Store(tmp_path / "b").sets()
    assert len(a) == 120
    assert_same(a, b)


def finished(folder: Path) -> int:
    """Samples in whole shards."""
    return max((int(p.stem.split("-")[1]) for p in folder.glob("*.shards/[!.]*.h5")), default=0)


DYING = """
import os, sys
from pathlib import Path
from funcattn.data import Recipe, Store

def dying(rng):
    os._exit(1)

if __name__ == "__main__" or "unguarded" in sys.argv:
    Store(Path(sys.argv[1])).made(Recipe("dying", dying), 0, 3)
"""


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("guarded", "StoreError: dying: a worker process died"),
        ("unguarded", "has to do so below `if __name__ == '__main__':`"),
    ],
)
def test_workers_that_die_end_the_making(
    tmp_path: Path, patience: float, word: str, said: str
) -> None:
    script = tmp_path / "dying.py"
    script.write_text(DYING)
    ended = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "a"), word],
        capture_output=True,
        text=True,
        timeout=patience,
    )
    assert ended.returncode == 1
    assert said in ended.stderr


def test_ctrl_c_keeps_what_was_finished(
    tmp_path: Path,
    script: list[str],
    started: list[subprocess.Popen[str]],
    until: Until,
    patience: float,
) -> None:
    child = subprocess.Popen(
        [*script, str(tmp_path / "a"), "100000"],
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    started.append(child)
    until(lambda: list(tmp_path.glob("a/*.shards/[!.]*.h5")), child)
    os.killpg(child.pid, signal.SIGINT)
    _, said = child.communicate(timeout=patience)
    assert said.rstrip().endswith("KeyboardInterrupt")
    ends = sorted(path.stem.split("-") for path in tmp_path.glob("a/*.shards/[!.]*.h5"))
    assert [start for start, _ in ends[1:]] == [stop for _, stop in ends[:-1]]
    assert list(tmp_path.glob("a/*.shards/.*")) == []


def test_a_cluster_makes_the_same_set(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        address = cluster.scheduler_address
        by_cluster = Store(tmp_path / "a", scheduler=address).made(DARCY, 0, 12)
    assert_same(by_cluster, Store(tmp_path / "b", workers=2).made(DARCY, 0, 12))


def test_a_scheduler_that_does_not_answer_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CLUSTER_SECONDS", 1)
    store = Store(tmp_path, scheduler="tcp://127.0.0.1:9")
    with pytest.raises(StoreError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"):
        store.made(PLAIN, 0, 2)


def test_what_a_recipe_says_is_json(tmp_path: Path) -> None:
    assert json.loads(json.dumps(dict(DARCY.parameters))) == DARCY.parameters
    assert Store(tmp_path).path(DARCY, 0).name == f"darcy-{DARCY.key(0)}.h5"


@pytest.mark.usefixtures("here")
def test_a_set_whose_shape_or_origin_was_changed_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.made(PLAIN, 0, 4).path
    name = next(iter(StoredSet(path).provenance["fields"]))
    with h5py.File(path, "r+") as file:
        file[name].resize(3, axis=0)
    with pytest.raises(StoreError, match="not those that were written"):
        StoredSet(path).read(name, range(2))
    path.unlink()
    path = store.made(PLAIN, 0, 4).path
    with h5py.File(path, "r+") as file:
        file.attrs["provenance"] = file.attrs["provenance"].replace("0", "1")
    with pytest.raises(StoreError, match="not those that were written"):
        len(StoredSet(path))
