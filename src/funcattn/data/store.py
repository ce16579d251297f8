"""The store: data sets on disk, made by solvers, one HDF5 file a set.

A set is named by its recipe and seed; sample i depends on nothing else but i, so that a set can be
made in any order, by any number of workers, and extended later. While it is made, finished samples
stand in shards beside it, each written aside and renamed; when all are there they become the one
file, again by a rename. So whatever stops the making, what was finished is kept, and the file is
whole or as it was before.

In the file, each field is a dataset (samples, ...), in chunks of one sample with checksums. A
ragged field, whose first axis differs between samples, is one long dataset with the samples' ends
beside it. `attempts` says how many draws a sample took, `seconds` what it cost, and the attribute
`provenance` how the set was made.
"""

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from funcattn.arrays import Array
from funcattn.data.sealed import check_seal, seal
from funcattn.data.workers import check_guarded, worker_pool
from funcattn.errors import FuncattnError
from funcattn.files import whole_file
from funcattn.lazy import LazyModule
from funcattn.pde.errors import NotConvergedError
from funcattn.provenance import cpu_seconds, facts

if TYPE_CHECKING:
    import filelock
    import h5py
else:
    filelock, h5py = LazyModule("filelock"), LazyModule("h5py")

Fields = Mapping[str, Array]
Advance = Callable[[int, int], None]
"""Progress: called with (done, total)."""

MOST_ATTEMPTS = 20
"""So many draws in a row that do not converge are not bad luck."""
_SHARD_SECONDS, _SHARD_BYTES = 10.0, 2**26
"""A shard is written when its samples took so long or are so large."""
_CLUSTER_SECONDS = 10
"""So long an answer of a cluster is waited for."""
_RESERVED = ("attempts", "seconds")
_SIGNATURE = "signature"


class StoreError(FuncattnError):
    """A data set that cannot be made or read."""


@dataclass(frozen=True)
class Recipe:
    """How the samples of a set are made; with a seed and an index it decides every number."""

    name: str
    make: Callable[..., Fields]
    """`make(**parameters, rng=...)` gives the fields of one sample, or raises NotConvergedError. A
    function of a module, so that other processes can find it."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Numbers and words only."""
    version: int = 1
    """Raised whenever `make` gives other numbers than before: old sets are then not used."""
    ragged: frozenset[str] = frozenset()
    """Fields whose first axis differs between samples."""

    def key(self, seed: int) -> str:
        """A name for the set of this recipe and seed."""
        said = [self.name, self.version, dict(self.parameters), seed]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class StoredSet:
    """A set on disk, whole."""

    path: Path

    @property
    def provenance(self) -> dict[str, Any]:
        """Recipe, seed, number of samples, how many draws were rejected, and how it was made."""
        with self._open() as file:
            said: dict[str, Any] = json.loads(file.attrs["provenance"])
            count = len(file["attempts"])
            drawn, seconds = int(file["attempts"][:].sum()), file["seconds"][:]
            return {
                **{name: said[name] for name in ("name", "version", "parameters", "seed")},
                "samples": count,
                "fields": {
                    name: list(dataset.shape[1:])
                    for name, dataset in file.items()
                    if isinstance(dataset, h5py.Dataset)
                    and name not in _RESERVED
                    and not name.endswith(_ends(""))
                },
                "drawn": drawn,
                "rejected": drawn - count,
                "seconds_per_sample": round(float(seconds.mean()), 4) if count else 0.0,
                "bytes": self.path.stat().st_size,
                "made": said["made"],
            }

    def __len__(self) -> int:
        with self._open() as file:
            return len(file["attempts"])

    def attempts(self, row: int) -> int:
        """How many draws a sample took; the last one is the sample."""
        with self._open() as file:
            return int(file["attempts"][row])

    def read(self, name: str, rows: range, every: tuple[int, ...] = ()) -> Array:
        """One field of some samples, with a stride along each further axis."""
        cut = tuple(slice(None, None, step) for step in every)
        with self._open() as file:
            known = [n for n in file if n not in _RESERVED]
            if name not in known:
                raise StoreError(f"{self.path}: expected one of {', '.join(known)}, got {name!r}")
            dataset, count = file[name], len(file["attempts"])
            if rows and not 0 <= rows[0] <= rows[-1] < count:
                raise StoreError(
                    f"{name}: expected rows of {count} samples, got {rows.start} to {rows.stop}"
                )
            none = np.empty(dataset.shape[1:], dataset.dtype)[cut]
            values: Array = np.empty((len(rows), *none.shape), dataset.dtype)
            for place, row in enumerate(rows):
                values[place] = dataset[row][cut]
            return values

    def read_ragged(self, name: str, row: int) -> Array:
        """A ragged field of one sample."""
        with self._open() as file:
            ends = file[_ends(name)]
            return file[name][int(ends[row - 1]) if row else 0 : int(ends[row])]

    @contextmanager
    def _open(self) -> "Iterator[h5py.File]":
        try:
            check_seal(self.path)
            with h5py.File(self.path) as file:
                if file.attrs.get(_SIGNATURE, _signature(file)) != _signature(file):
                    raise ValueError("its arrays or its provenance are not those that were written")
                yield file
        except StoreError:
            raise
        except Exception as error:
            # Whatever damaged bytes lead HDF5 to raise.
            raise StoreError(
                f"{self.path} is damaged ({error}); delete it, and it is made again"
            ) from error


@dataclass(frozen=True)
class Store:
    """A folder of sets, and who makes what is missing there."""

    folder: Path
    workers: int = 1
    """Processes of this machine, one thread each; they change nothing in the result."""
    scheduler: str | None = None
    """Address of a Dask scheduler, whose workers then make the samples instead."""
    advance: Advance = lambda done, total: None  # noqa: ARG005
    note: Mapping[str, str] = field(default_factory=dict)
    """Kept in the provenance of what is made: the command, the profile."""

    def made(self, recipe: Recipe, seed: int, count: int) -> StoredSet:
        """The set with at least so many samples; what is missing is made now."""
        if count < 1:
            raise ValueError(f"samples: expected at least 1, got {count}")
        ready = self.find(recipe, seed)
        if ready is not None and len(ready) >= count:
            return ready
        check_guarded()  # before a worker waits for the lock that its parent holds
        self.folder.mkdir(parents=True, exist_ok=True)
        making = _Making(self, recipe, seed, count)
        with making.alone():
            return making.finish()

    def find(self, recipe: Recipe, seed: int) -> StoredSet | None:
        """The set as it is, if it is there."""
        path = self.path(recipe, seed)
        return StoredSet(path) if path.exists() else None

    def path(self, recipe: Recipe, seed: int) -> Path:
        """Where the set is or will be."""
        return self.folder / f"{recipe.name}-{recipe.key(seed)}.h5"

    def sets(self) -> list[StoredSet]:
        """All that is there and whole."""
        return [StoredSet(path) for path in sorted(self.folder.glob("[!.]*.h5"))]


class _Making:
    """One set in the making."""

    def __init__(self, store: Store, recipe: Recipe, seed: int, count: int) -> None:
        self.store, self.recipe, self.seed, self.count = store, recipe, seed, count
        self.path = store.path(recipe, seed)
        self.shards = self.path.with_suffix(".shards")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait while another process makes this set, and show how far it is."""
        lock = filelock.FileLock(self.path.with_name(f".{self.path.stem}.lock"))
        while True:
            try:
                lock.acquire(timeout=0.5)
                break
            except filelock.Timeout:
                self.store.advance(min(self._done(), self.count), self.count)
        try:
            yield
        finally:
            lock.release()

    def finish(self) -> StoredSet:
        """Make what is missing, then put it all into one file."""
        if (done := self._done()) < self.count:
            self._make(done)
        self._join()
        return StoredSet(self.path)

    def _done(self) -> int:
        """Samples that are there, in the file and in the shards that continue it."""
        whole = len(StoredSet(self.path)) if self.path.exists() else 0
        for start, stop, _ in self._found():
            if start <= whole < stop:
                whole = stop
        return whole

    def _found(self) -> list[tuple[int, int, Path]]:
        """The shards, in order: first sample, one after the last, where."""
        found = []
        for path in self.shards.glob("[!.]*.h5"):
            start, stop = path.stem.split("-")
            found.append((int(start), int(stop), path))
        return sorted(found)

    def _make(self, start: int) -> None:
        """Make samples in order, and write a shard now and then."""
        self.shards.mkdir(exist_ok=True)
        # What was being written when the making was stopped.
        name = self.path.name
        for pattern in (f".*.part.{name}", f".{name}.part", f"{self.shards.name}/.*.part*"):
            for left in self.path.parent.glob(pattern):
                left.unlink(missing_ok=True)
        self.store.advance(start, self.count)
        job = partial(_make_one, self.recipe, self.seed)
        shard: list[Fields] = []
        first, size, since = start, 0, time.monotonic()
        try:
            for sample in self._computed(job, range(start, self.count)):
                shard.append(sample)
                size += sum(values.nbytes for values in sample.values())
                self.store.advance(first + len(shard), self.count)
                if size > _SHARD_BYTES or time.monotonic() - since > _SHARD_SECONDS:
                    finished, shard = shard, []
                    self._write_shard(first, finished)
                    first += len(finished)
                    size, since = 0, time.monotonic()
        finally:
            # Also when the making was stopped: what is finished is kept.
            if shard:
                self._write_shard(first, shard)

    def _computed(self, job: Callable[[int], Fields], indices: range) -> Iterator[Fields]:
        """The samples in order, made by processes of this machine or of a cluster."""
        if self.store.scheduler is not None:
            yield from _by_cluster(self.store.scheduler, job, indices)
            return
        try:
            workers = max(1, min(self.store.workers, len(indices)))
            of_script = self.recipe.make.__module__ == "__main__"
            with worker_pool(workers, reads_script=of_script) as pool:
                yield from pool.map(job, indices)
        except BrokenProcessPool as error:
            raise StoreError(
                f"{self.recipe.name}: a worker process died, perhaps for want of memory ({error}); "
                "what was finished is kept: try again with fewer workers"
            ) from error

    def _write_shard(self, first: int, samples: Sequence[Fields]) -> None:
        path = self.shards / f"{first:08d}-{first + len(samples):08d}.h5"
        with self._written(path) as aside, h5py.File(aside, "w") as file:
            self._append(file, samples)

    def _join(self) -> None:
        """One file from the file as it was and the shards, which then go."""
        samples = len(StoredSet(self.path)) if self.path.exists() else 0
        found = self._found()
        if found:
            with self._written(self.path) as aside, h5py.File(aside, "w") as file:
                made = []
                if self.path.exists():
                    with StoredSet(self.path)._open() as old:
                        made = json.loads(old.attrs["provenance"])["made"]
                        self._append(file, _samples(old, range(samples), self.recipe.ragged))
                before = samples
                for start, stop, path in found:
                    if start <= samples < stop:
                        with StoredSet(path)._open() as shard:
                            rows = range(samples - start, stop - start)
                            self._append(file, _samples(shard, rows, self.recipe.ragged))
                        samples = stop
                made.append({"from": before, "to": samples, **self.store.note, **facts()})
                file.attrs["provenance"] = json.dumps(
                    {
                        "name": self.recipe.name,
                        "version": self.recipe.version,
                        "parameters": dict(self.recipe.parameters),
                        "seed": self.seed,
                        "made": made,
                    }
                )
                file.attrs[_SIGNATURE] = _signature(file)
        for _, _, path in found:
            path.unlink()
        with suppress(OSError):
            for left in self.shards.glob(".*"):
                left.unlink()
            self.shards.rmdir()

    def _append(self, file: "h5py.File", samples: "Sequence[Fields] | Iterator[Fields]") -> None:
        """Samples at the end of the datasets, which the first one creates."""
        for sample in samples:
            for name, values in sample.items():
                if name in self.recipe.ragged:
                    dataset = _dataset(file, name, values.shape[1:], values.dtype, len(values))
                    end = len(dataset) + len(values)
                    dataset.resize(end, axis=0)
                    dataset[end - len(values) :] = values
                    name, values = _ends(name), np.asarray(end)
                dataset = _dataset(file, name, values.shape, values.dtype, 1)
                if dataset.shape[1:] != values.shape:
                    raise StoreError(
                        f"{self.recipe.name}, {name}: expected {dataset.shape[1:]} in every "
                        f"sample, got {values.shape}; name it as ragged in the recipe"
                    )
                dataset.resize(len(dataset) + 1, axis=0)
                dataset[-1] = values

    @contextmanager
    def _written(self, path: Path) -> Iterator[Path]:
        """A name to write to; it becomes `path` if all went well, else it goes."""
        try:
            with whole_file(path) as aside:
                yield aside
                seal(aside)
        except OSError as error:
            raise StoreError(
                f"{path} could not be written ({error}); what was finished before is kept, and the "
                "same command goes on from there"
            ) from error


def _dataset(
    file: "h5py.File", name: str, shape: tuple[int, ...], dtype: npt.DTypeLike, rows: int
) -> "h5py.Dataset":
    """A dataset that grows along its first axis, in checked and compressed chunks."""
    if name not in file:
        # Numbers that come one per sample share a chunk.
        chunk = (max(1, rows), *shape) if shape else (max(rows, 1024),)
        file.create_dataset(
            name,
            shape=(0, *shape),
            maxshape=(None, *shape),
            dtype=dtype,
            chunks=chunk,
            compression="gzip",
            compression_opts=1,
            shuffle=True,
            fletcher32=True,
        )
    return file[name]


def _signature(file: "h5py.File") -> str:
    """A digest of everything that no checksum of a chunk covers: names, types, shapes, origin."""
    arrays = {name: [str(each.dtype), list(each.shape)] for name, each in file.items()}
    words = json.dumps([arrays, str(file.attrs.get("provenance"))], sort_keys=True)
    return hashlib.sha256(words.encode()).hexdigest()


def _samples(file: "h5py.File", rows: range, ragged: frozenset[str]) -> Iterator[Fields]:
    """The samples of a file, one by one."""
    names = [name for name in file if not name.endswith(_ends(""))]
    for row in rows:
        sample = {}
        for name in names:
            if name in ragged:
                ends = file[_ends(name)]
                sample[name] = file[name][int(ends[row - 1]) if row else 0 : int(ends[row])]
            else:
                sample[name] = np.asarray(file[name][row])
        yield sample


def _ends(name: str) -> str:
    return f"{name}.ends"


def _make_one(recipe: Recipe, seed: int, index: int) -> Fields:
    """Sample `index`: the first draw that converges, fields in single precision."""
    start = cpu_seconds()
    for attempt in range(MOST_ATTEMPTS):
        rng = np.random.default_rng([seed, index, attempt])
        try:
            fields = recipe.make(**recipe.parameters, rng=rng)
        except NotConvergedError as error:
            reason = error
            continue
        for name, values in fields.items():
            if not np.isfinite(values).all():
                raise StoreError(
                    f"{recipe.name}, sample {index}, {name}: not all values are finite"
                )
        return {
            **{name: _single(values) for name, values in fields.items()},
            "attempts": np.asarray(attempt + 1),
            "seconds": np.asarray(cpu_seconds() - start, dtype=np.float32),
        }
    raise StoreError(
        f"{recipe.name}, sample {index}: {MOST_ATTEMPTS} draws did not converge, the last because: "
        f"{reason}"
    )


def _single(values: Array) -> Array:
    return values.astype(np.float32) if values.dtype == np.float64 else np.asarray(values)


def _by_cluster(address: str, job: Callable[[int], Fields], indices: range) -> Iterator[Fields]:
    """The samples in order, made by the workers of a Dask cluster."""
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise StoreError("--scheduler: expected Dask; pip install 'funcattn[cluster]'") from None
    try:
        client = Client(address, timeout=_CLUSTER_SECONDS)
    except OSError as error:
        raise StoreError(
            f"--scheduler: no Dask scheduler answers at {address} ({error})"
        ) from error
    with client:
        # A window of jobs, so that finished samples do not pile up in the cluster.
        window = 4 * max(1, sum(client.nthreads().values()))
        waiting: deque[Any] = deque()
        for index in indices:
            waiting.append(client.submit(job, index, pure=False))
            if len(waiting) >= window:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
