"""Readers of the RNA Surface Segmentation Dataset (Poulenard et al. 2019), as labelled points.

Surfaces of ribosomal RNA with a functional label at each vertex. Two layouts are read: the public
folder of meshes (`RnaFolder`), and one file of ready clouds (`RnaFile`). Both give the names of the
data set's own training and test lists, and the clouds of the names that are asked for: points in
farthest-point order, centred on the mean vertex, within radius 1; labels plus one, so that the
data set's -1 is 0.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from funcattn.data.foreign import read_npz, read_text, reading

CLASSES = 260
READY_FILE = "rna_points_fps4096.npz"
_KEYS = ("points", "labels", "count", "name", "split")
_KINDS = ("f", "iu", "iu", "U", "U")
"""Of numpy's types of the arrays."""

Advance = Callable[[int, int], None]
"""Progress: called with (done, total)."""


@dataclass(frozen=True)
class RnaCloud:
    """A surface as points (n 3) with a label each, 0 to 259."""

    name: str
    points: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]


@runtime_checkable
class RnaSurfaces(Protocol):
    """The data set, in either layout."""

    @property
    def train(self) -> tuple[str, ...]:
        """Names of the training list, in its order."""

    @property
    def test(self) -> tuple[str, ...]:
        """Names of the test list, in its order."""

    def read(
        self, names: Sequence[str], points: int = 4096, advance: Advance | None = None
    ) -> list[RnaCloud]:
        """The clouds of these names, with at most so many points each."""


def open_rna(path: str | Path) -> RnaSurfaces:
    """The data set at a path: a ready file, a folder that has one, or the public folder."""
    path = Path(path)
    if path.is_dir():
        return RnaFile(path / READY_FILE) if (path / READY_FILE).exists() else RnaFolder(path)
    return RnaFile(path)


class RnaFolder:
    """The public layout: `off/NAME.off`, `labels/NAME.txt`, and the lists `train.txt`, `test.txt`.

    Sampling takes some tenths of a second a mesh; nothing is kept.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        for part in ("off", "labels"):
            if not (self.folder / part).is_dir():
                raise FileNotFoundError(
                    f"{self.folder}: expected the folders off and labels and the lists train.txt "
                    f"and test.txt, or the file {READY_FILE}; there is no folder {part}"
                )
        self.train, self.test = (self._list(f"{part}.txt") for part in ("train", "test"))
        _check_disjoint(self.folder, self.train, self.test)

    def _list(self, name: str) -> tuple[str, ...]:
        """The names in a list, each with a mesh and labels."""
        path = self.folder / name
        if not path.is_file():
            raise FileNotFoundError(f"{path}: expected a list of meshes, one NAME.off a line")
        lines = [line.strip() for line in read_text(path).splitlines()]
        names = tuple(line.removesuffix(".off") for line in lines if line)
        for stem in names:
            # Names are file names: one with a folder in it would lead out of the data set.
            if Path(stem).name != stem or not self._mesh(stem).is_file():
                raise FileNotFoundError(f"{path}: expected names of files in off, got {stem}.off")
            if not self._labels(stem).is_file():
                raise FileNotFoundError(f"{self._labels(stem)}: expected the labels of {stem}.off")
        return names

    def _mesh(self, stem: str) -> Path:
        return self.folder / "off" / f"{stem}.off"

    def _labels(self, stem: str) -> Path:
        return self.folder / "labels" / f"{stem}.txt"

    def read(
        self, names: Sequence[str], points: int = 4096, advance: Advance | None = None
    ) -> list[RnaCloud]:
        """The clouds of these names, with at most so many points each."""
        _check_names(names, self.train + self.test)
        clouds = []
        for done, name in enumerate(names, start=1):
            vertices, labels = read_off_vertices(self._mesh(name)), read_labels(self._labels(name))
            if len(labels) != len(vertices):
                raise ValueError(
                    f"{self._labels(name)}: expected a label for each of the {len(vertices)} "
                    f"vertices of {name}.off, got {len(labels)}"
                )
            vertices = vertices - vertices.mean(0)
            radius = np.linalg.norm(vertices, axis=1).max()
            if radius == 0:
                raise ValueError(f"{self._mesh(name)}: expected a surface, got a single point")
            vertices /= radius
            chosen = farthest_point_sampling(vertices, min(points, len(vertices)))
            clouds.append(RnaCloud(name, vertices[chosen].astype(np.float32), labels[chosen]))
            if advance is not None:
                advance(done, len(names))
        return clouds


class RnaFile:
    """One npz with all clouds: points, labels, count, name, split (`train` or `test`)."""

    def __init__(self, file: str | Path) -> None:
        file = Path(file)
        if not file.is_file():
            raise FileNotFoundError(
                f"{file}: expected the data set's folder, or a file like {READY_FILE}; there is "
                "nothing here"
            )
        expected = "a whole npz file of RNA clouds"
        with reading(file, expected, "copy it again"):
            arrays = read_npz(file, _KEYS, words=("name", "split"), expected=expected)
            points, labels, count, name, split = (arrays[key] for key in _KEYS)
            kinds = [each.dtype.kind for each in (points, labels, count, name, split)]
            if not all(k in known for k, known in zip(kinds, _KINDS, strict=True)):
                raise ValueError(f"arrays of the kinds {', '.join(kinds)}")
            total, clouds = int(count.sum()), len(count)
        shapes = [array.shape for array in (points, labels, count, name, split)]
        if shapes != [(total, 3), (total,), (clouds,), (clouds,), (clouds,)] or (count < 1).any():
            raise ValueError(
                f"{file}: expected as many points (n, 3) and labels (n) as the counts of its "
                f"{clouds} clouds sum to, {total}, and a name and a split each, got shapes "
                f"{dict(zip(_KEYS, shapes, strict=True))}"
            )
        if wrong := set(split.tolist()) - {"train", "test"}:
            raise ValueError(f"{file}: expected the splits train and test, got {sorted(wrong)}")
        if not np.isfinite(points).all():
            raise ValueError(f"{file}: expected finite points, got some that are not")
        _check_labels(file, labels)
        self._points, self._labels = points.astype(np.float32, copy=False), labels.astype(np.int64)
        ends = np.cumsum(count)
        self._places = {
            str(stem): slice(int(end - n), int(end))
            for stem, n, end in zip(name, count, ends, strict=True)
        }
        self.train, self.test = (
            tuple(str(stem) for stem in name[split == part]) for part in ("train", "test")
        )
        _check_disjoint(file, self.train, self.test)

    def read(
        self, names: Sequence[str], points: int = 4096, advance: Advance | None = None
    ) -> list[RnaCloud]:
        """The clouds of these names, with at most so many points each.

        The first k of a farthest-point sample are a farthest-point sample of k.
        """
        _check_names(names, self.train + self.test)
        clouds = [
            RnaCloud(
                name,
                self._points[self._places[name]][:points],
                self._labels[self._places[name]][:points],
            )
            for name in names
        ]
        if advance is not None:
            advance(len(names), len(names))
        return clouds


def farthest_point_sampling(
    points: npt.NDArray[np.floating], k: int, start: int = 0
) -> npt.NDArray[np.int64]:
    """Indices of k points (n s): from `start` on, each is the farthest from all before it.

    Of points that are equally far, the first. No point is taken twice.

    >>> farthest_point_sampling(np.array([[0.0], [1.0], [9.0], [10.0]]), 3)
    array([0, 3, 1])
    """
    if not 1 <= k <= len(points):
        raise ValueError(f"k: expected 1 to {len(points)}, the number of points, got {k}")
    if not 0 <= start < len(points):
        raise ValueError(f"start: expected 0 to {len(points) - 1}, got {start}")
    axes = np.ascontiguousarray(points.T, dtype=np.float64)  # (n, s) -> (s, n): sums are faster
    chosen = np.empty(k, dtype=np.int64)
    nearest = np.full(len(points), np.inf)
    chosen[0] = start
    for i in range(1, k):
        last = chosen[i - 1]
        away = axes - axes[:, last : last + 1]
        np.minimum(nearest, np.einsum("sn,sn->n", away, away), out=nearest)
        nearest[last] = -1.0  # below every distance, also where points coincide
        chosen[i] = nearest.argmax()
    return chosen


def read_off_vertices(path: str | Path) -> npt.NDArray[np.float64]:
    """The vertices (n 3) of a mesh in the OFF format."""
    path = Path(path)
    lines = [line.split("#")[0].strip() for line in read_text(path).splitlines()]
    lines = [line for line in lines if line]
    header = lines[0].split() if lines else []
    if not header or header[0] != "OFF":
        raise ValueError(
            f"{path}: expected a mesh that begins with the word OFF, got {' '.join(header)[:20]!r}"
        )
    # The numbers of vertices, faces and edges stand on the first line or on the second.
    counts, body = (
        (header[1:], lines[1:]) if header[1:] else (" ".join(lines[1:2]).split(), lines[2:])
    )
    if len(counts) < 2 or not counts[0].isdigit() or int(counts[0]) < 1:
        raise ValueError(
            f"{path}: expected the numbers of vertices, faces and edges after OFF, got "
            f"{' '.join(counts)!r}"
        )
    wanted = int(counts[0])
    if len(body) < wanted:
        raise ValueError(
            f"{path}: expected {wanted} vertices, got {len(body)} lines; it is cut off"
        )
    try:
        vertices = np.array([line.split()[:3] for line in body[:wanted]], dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"{path}: expected three numbers a vertex, got {error}") from error
    if vertices.shape != (wanted, 3) or not np.isfinite(vertices).all():
        raise ValueError(f"{path}: expected three finite numbers a vertex, got something else")
    return vertices


def read_labels(path: str | Path) -> npt.NDArray[np.int64]:
    """The labels of a file with one integer a line, plus one."""
    path = Path(path)
    try:
        labels = np.array(read_text(path).split(), dtype=np.int64) + 1
    except ValueError as error:
        raise ValueError(f"{path}: expected one integer a line, got {error}") from error
    _check_labels(path, labels)
    return labels


def _check_labels(path: Path, labels: npt.NDArray[np.integer]) -> None:
    if labels.size and not 0 <= labels.min() <= labels.max() < CLASSES:
        raise ValueError(
            f"{path}: expected labels plus one within 0 to {CLASSES - 1}, got {labels.min()} to "
            f"{labels.max()}"
        )


def _check_disjoint(path: Path, train: Sequence[str], test: Sequence[str]) -> None:
    twice = [name for name, times in Counter([*train, *test]).items() if times > 1]
    if twice:
        raise ValueError(
            f"{path}: expected every surface once, in one of the lists, got {twice[0]} more often"
        )


def _check_names(names: Sequence[str], known: Sequence[str]) -> None:
    if unknown := sorted(set(names) - set(known)):
        raise ValueError(
            f"names: expected some of the {len(known)} of the lists, got {', '.join(unknown[:3])}"
        )
