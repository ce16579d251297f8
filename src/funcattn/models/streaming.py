"""Exact inference on meshes larger than memory: points come from disk in chunks, fields go there.

Points meet each other only in sums, so a layer needs one pass over the mesh: of each chunk, the
features after the layers before, and what they add to the sums of this one. After the pass the sums
become the layer's coefficients, and a last pass reads off the fields. Where a network looks at the
surroundings of points, a pass before the first layer makes the sums of these. Between the passes
the features lie in a scratch file, or they are made again from the input through the coefficients
that are known by then: no disk, but for l layers about l / 2 times the work.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from errno import ENOSPC
from pathlib import Path
from typing import IO, Protocol

import numpy as np
import torch
from torch import Tensor

from funcattn.arrays import Array
from funcattn.files import whole_file
from funcattn.models.encoded import POINTS_AT_ONCE, Encoded, rows_of
from funcattn.models.normalised import NormalisedNetwork
from funcattn.models.stacked import StackedNetwork
from funcattn.nn.points import Points
from funcattn.ops import Moments
from funcattn.ops.linalg import at_least_float32


@torch.no_grad()
def predict_streamed(
    model: StackedNetwork | NormalisedNetwork,
    positions: Array,
    values: Array | None = None,
    *,
    out: Array | str | Path | None,
    weights: Array | None = None,
    time: float | None = None,
    scratch: str | Path | None = None,
    chunk: int = POINTS_AT_ONCE,
    progress: Callable[[int, int], None] | None = None,
) -> Encoded:
    """The network's fields on one mesh of any size, exact, in the memory of a few chunks.

    positions (n s), values (n i), weights (n,): arrays, or memory maps of files.
    out: where the fields (n o) go: an array or memory map, or the name of a .npy file that is there
        when all is done and not before; None: nowhere, the mesh is encoded only.
    scratch: a folder on a disk with room for the features of all points, n c numbers, in a file
        without a name, which is gone whatever happens; None: features are made again from the
        input.
    chunk: points at once. It changes nothing but rounding.
    progress: called with the work done and all of the work, in points times passes.

    Returns the mesh as `StackedNetwork.encode` does, for queries at further points.

    >>> import numpy as np
    >>> from funcattn import OperatorTransformer
    >>> model = OperatorTransformer(2, 0, 1, width=16, layers=2).eval()
    >>> out = np.empty((1000, 1))
    >>> positions = np.random.default_rng(0).random((1000, 2))
    >>> encoded = predict_streamed(model, positions, out=out, chunk=300)
    >>> encoded.nbytes
    8192
    """
    mesh = _Mesh(model, positions, values, weights, time)
    around = mesh.network.surroundings
    passes = len(mesh.network.blocks) + (out is not None) + (around is not None)
    done = 0

    def worked(points: int) -> None:
        nonlocal done
        done += points
        if progress is not None:
            progress(done, mesh.points * passes)

    kept: list[Tensor] = []
    with ExitStack() as stack:
        shape = (mesh.points, mesh.network.outputs)
        write = None if out is None else stack.enter_context(_written(out, shape, mesh.like))
        features: _Features = _Recomputed(mesh)
        if scratch is not None:
            features = stack.enter_context(_on_disk(mesh, Path(scratch)))
        blocks = mesh.network.stack
        if around is not None:
            summed = mesh.like.new_zeros((), dtype=torch.float64)
            for rows in rows_of(mesh.points, chunk):
                summed = summed + around.moments(mesh.at(rows)).to(torch.float64)
                worked(rows.stop - rows.start)
            mesh.masses = around.carried(summed.to(at_least_float32(mesh.like.dtype)))
        for block in blocks:
            total: tuple[Moments, ...] | None = None
            for rows in rows_of(mesh.points, chunk):
                here = mesh.at(rows)
                moments = block.moments(features.at(rows, here, kept), here)
                # Sums of many chunks, in more digits than each of them has.
                wide = tuple(side.to(torch.float64) for side in moments)
                if total is not None:
                    wide = tuple(a + b for a, b in zip(total, wide, strict=True))
                total = wide
                worked(rows.stop - rows.start)
            assert total is not None
            kept.append(
                block.carried([side.to(at_least_float32(mesh.like.dtype)) for side in total])
            )
        if write is not None:
            for rows in rows_of(mesh.points, chunk):
                x = features.at(rows, mesh.at(rows), kept)
                write(rows, mesh.fields(x)[0].cpu().numpy())
                worked(len(x[0]))
    return Encoded(tuple(kept), mesh.time, masses=mesh.masses)


class _Mesh:
    """The input in chunks, as the network wants it, and its output as the caller does."""

    def __init__(
        self,
        model: StackedNetwork | NormalisedNetwork,
        positions: Array,
        values: Array | None,
        weights: Array | None,
        time: float | None,
    ) -> None:
        if model.training:
            raise ValueError(
                "model: expected one that predicts, got one in training mode; call model.eval()"
            )
        self.surrogate = model if isinstance(model, NormalisedNetwork) else None
        self.network = model.stacked() if isinstance(model, NormalisedNetwork) else model
        self.like = next(self.network.parameters())
        self.time = None if time is None else self.like.new_tensor([time])
        self._positions, self._values, self._weights = positions, values, weights
        self.points = len(positions)
        self.masses: Tensor | None = None
        """Of the surroundings, where the network looks at them; summed before the first block."""
        self.network.check(_alike(positions), None if values is None else _alike(values), self.time)
        if not self.points:
            raise ValueError(f"positions: expected at least one point, got {positions.shape}")
        if weights is not None:
            self._check_weights(weights)

    def _check_weights(self, weights: Array) -> None:
        if weights.shape != (self.points,):
            raise ValueError(f"weights: expected ({self.points},), got {weights.shape}")
        some = False
        for rows in rows_of(self.points, POINTS_AT_ONCE):
            part = weights[rows]
            if not ((part >= 0) & (part < np.inf)).all():
                raise ValueError(
                    "weights: expected finite numbers, none of them negative, got values from "
                    f"{part.min():g} to {part.max():g} at points {rows.start} to {rows.stop}"
                )
            some = some or bool((part > 0).any())
        if not some:
            raise ValueError("weights: expected a positive one, got none")

    def at(self, rows: slice) -> Points:
        """Some of its points."""
        weights = None if self._weights is None else self._tensor(self._weights[rows])
        positions = self._tensor(self._positions[rows])
        if self.surrogate is not None:
            positions = self.surrogate.placed(positions)
        return Points(positions, weights=weights)

    def lifted(self, rows: slice, here: Points) -> Tensor:
        """The features before the first block, (1 B c)."""
        values = None if self._values is None else self._tensor(self._values[rows])
        if self.surrogate is not None:
            values = self.surrogate.normalised(values)
        return self.network.lifted(self.network.known(values, here, self.masses), self.time, here)

    def fields(self, x: Tensor) -> Tensor:
        """The output, from the features after the last block, (1 B o)."""
        fields = self.network.headed(x)
        return fields if self.surrogate is None else self.surrogate.in_units(fields)

    def _tensor(self, part: Array) -> Tensor:
        # A copy: of memory maps, and of arrays that may not be written or have other byte orders.
        plain = np.array(part, part.dtype.newbyteorder("="), order="C")
        return torch.from_numpy(plain).to(self.like.device, self.like.dtype).unsqueeze(0)


class _Features(Protocol):
    """The features of all points after the blocks whose coefficients are known."""

    def at(self, rows: slice, here: Points, kept: Sequence[Tensor]) -> Tensor:
        """Of some points, (1 B c); each point once for each number of known coefficients."""


class _Recomputed:
    def __init__(self, mesh: _Mesh) -> None:
        self.mesh = mesh

    def at(self, rows: slice, here: Points, kept: Sequence[Tensor]) -> Tensor:
        """From the input."""
        return self.mesh.network.read(self.mesh.lifted(rows, here), kept, here)


class _OnDisk:
    """In a file, which is read and written and not mapped: mapped pages would count as memory."""

    def __init__(self, mesh: _Mesh, file: IO[bytes]) -> None:
        self.mesh, self.file = mesh, file
        self.bytes_per_point = mesh.network.width * mesh.like.element_size()

    def at(self, rows: slice, here: Points, kept: Sequence[Tensor]) -> Tensor:
        """From those of the pass before, one block further."""
        blocks = self.mesh.network.stack
        if kept:
            x = blocks[len(kept) - 1].read(self._read(rows), kept[-1], here)
        else:
            x = self.mesh.lifted(rows, here)
        if len(kept) < len(blocks):
            self._write(rows, x)
        return x

    def _read(self, rows: slice) -> Tensor:
        x = torch.empty(
            1, rows.stop - rows.start, self.mesh.network.width, dtype=self.mesh.like.dtype
        )
        self.file.seek(rows.start * self.bytes_per_point)
        got = self.file.readinto(_bytes(x))  # type: ignore[attr-defined]
        if got != x.nbytes:
            raise OSError(f"scratch: expected {x.nbytes} bytes in the file, got {got}")
        return x.to(self.mesh.like.device)

    def _write(self, rows: slice, x: Tensor) -> None:
        with _told("scratch"):
            self.file.seek(rows.start * self.bytes_per_point)
            self.file.write(_bytes(x.cpu().contiguous()))


@contextmanager
def _on_disk(mesh: _Mesh, folder: Path) -> Iterator[_OnDisk]:
    needed = mesh.points * mesh.network.width * mesh.like.element_size()
    _check_room("scratch", folder, needed)
    with tempfile.TemporaryFile(dir=folder) as file:
        yield _OnDisk(mesh, file)


@contextmanager
def _written(
    out: Array | str | Path, shape: tuple[int, int], like: Tensor
) -> Iterator[Callable[[slice, Array], None]]:
    """A function that takes the fields at some points, which come in their order."""
    if isinstance(out, np.ndarray):
        if out.shape != shape or out.dtype.kind != "f" or not out.flags.writeable:
            raise ValueError(
                f"out: expected an array {shape} of floating point numbers that can be written "
                f"to, got {out.shape} of {out.dtype}"
            )
        array = out

        def fill(rows: slice, fields: Array) -> None:
            array[rows] = fields

        yield fill
        if isinstance(out, np.memmap):
            out.flush()
        return
    path = Path(out)
    if path.suffix != ".npy":
        raise ValueError(f"out: expected a name that ends in .npy, got {path}")
    kind = torch.empty(0, dtype=like.dtype).numpy().dtype
    _check_room("out", path.parent, shape[0] * shape[1] * kind.itemsize)
    with whole_file(path) as aside, aside.open("wb") as stream:
        header = {"descr": kind.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)
        yield lambda _, fields: _put(stream, fields)
        with _told("out"):
            stream.flush()


def _put(stream: IO[bytes], fields: Array) -> None:
    with _told("out"):
        stream.write(np.ascontiguousarray(fields).data)


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Says of which file the system complains."""
    try:
        yield
    except OSError as error:
        raise OSError(
            error.errno, f"{name}: expected to write all of it, got: {error.strerror}; {_ADVICE}"
        ) from error


def _check_room(name: str, folder: Path, needed: int) -> None:
    """Before hours of work, rather than after."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            ENOSPC,
            f"{name}: expected room for {needed:,} bytes in {folder}, got {free:,}; {_ADVICE}",
        )


_ADVICE = "choose another disk; without a scratch folder features are made again from the input"


def _alike(array: Array) -> Tensor:
    """A batch of one, of the array's shape and without its numbers."""
    return torch.empty(1, *array.shape, device="meta")


def _bytes(x: Tensor) -> memoryview:
    """The memory of a contiguous tensor on the CPU."""
    return x.flatten().view(torch.uint8).numpy().data
