"""What a network keeps of a mesh: a few coefficients per layer, enough to answer at any point."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from funcattn.files import write_bytes

POINTS_AT_ONCE = 2**14
"""Where each point is by itself, so many are computed together: enough for fast products."""


@dataclass(frozen=True)
class Encoded:
    """The coefficients (b h g e) of each layer, and the time (b,) of networks that take one.

    masses: (b a), of networks that look at the surroundings of points (`Surroundings.encode`).

    network: says which weights made it, where it is known (`funcattn.serve.Predictor` fills it in).

    >>> import torch
    >>> from tempfile import TemporaryDirectory
    >>> encoded = Encoded((torch.zeros(1, 8, 64, 16), torch.zeros(1, 8, 64, 16)))
    >>> encoded.nbytes
    65536
    >>> with TemporaryDirectory() as folder:
    ...     encoded.save(Path(folder, "mesh.safetensors"))
    ...     len(Encoded.load(Path(folder, "mesh.safetensors")).coefficients)
    2
    """

    coefficients: tuple[Tensor, ...]
    time: Tensor | None = None
    network: str = ""
    masses: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Of all coefficients and masses together."""
        return sum(kept.nbytes for kept in self._all)

    @property
    def _all(self) -> tuple[Tensor, ...]:
        return self.coefficients if self.masses is None else (*self.coefficients, self.masses)

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, whole or not at all."""
        # Here, so that networks can be used without what training needs.
        from safetensors.torch import save

        given = {"time": self.time, "masses": self.masses}
        tensors = {name: tensor for name, tensor in given.items() if tensor is not None}
        for layer, kept in enumerate(self.coefficients):
            if kept.is_complex():
                tensors[f"complex.{layer}"] = torch.view_as_real(kept.resolve_conj())
            else:
                tensors[f"real.{layer}"] = kept
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        metadata = {"kind": _KIND, "network": self.network}
        content = save(tensors, metadata | {"sha256": _digest(tensors, self.network)})
        write_bytes(Path(path), content)

    @staticmethod
    def load(path: str | Path) -> "Encoded":
        """Read what `save` wrote, into the memory of the CPU.

        Raises:
            ValueError: the file is damaged, or was not written by `save`.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{path}: expected a file of Encoded.save, got {error}") from error
        if metadata.get("kind") != _KIND or "network" not in metadata:
            raise ValueError(
                f"{path}: expected a file of Encoded.save, got tensors of another kind: "
                f"{', '.join(sorted(tensors)) or 'none'}"
            )
        # Files of earlier versions have no digest; a damaged name of it is no metadata of ours.
        wanted = metadata.get("sha256", "" if len(metadata) == 2 else "none")
        if wanted and wanted != _digest(tensors, metadata["network"]):
            raise ValueError(
                f"{path}: expected the numbers that Encoded.save wrote, got others: the file was "
                "damaged; encode the mesh again"
            )
        time = tensors.pop("time", None)
        if time is not None and not (_plain(time) and time.ndim == 1):
            raise ValueError(f"{path}: expected times (b,), got {_described(time)}")
        masses = tensors.pop("masses", None)
        if masses is not None and not (_plain(masses) and masses.ndim == 2):
            raise ValueError(f"{path}: expected masses (b, a), got {_described(masses)}")
        coefficients = []
        for layer in range(len(tensors)):
            kept = tensors.get(f"real.{layer}")
            pairs = tensors.get(f"complex.{layer}")
            if pairs is not None and _plain(pairs) and pairs.ndim == 5 and pairs.shape[-1] == 2:
                kept = torch.view_as_complex(pairs)
            elif kept is None or not _plain(kept) or kept.ndim != 4:
                raise ValueError(
                    f"{path}: expected coefficients (b h g e) of layers 0 to {len(tensors) - 1}, "
                    f"got {_described(kept if pairs is None else pairs)} for layer {layer}; encode "
                    "the mesh again"
                )
            coefficients.append(kept)
        return Encoded(tuple(coefficients), time, metadata["network"], masses)

    def to(self, like: Tensor) -> "Encoded":
        """On the device of a tensor, in its precision."""
        moved = (kept.to(like.device, _of_precision(kept, like)) for kept in self.coefficients)
        time, masses = (None if x is None else x.to(like) for x in (self.time, self.masses))
        return Encoded(tuple(moved), time, self.network, masses)

    def check(self, layers: int, batch: int, nodes: int | None = None) -> None:
        """Raise unless it is of a network with so many layers, and of so many samples.

        nodes: of the lattices of a network that looks at surroundings.
        """
        if len(self.coefficients) != layers:
            raise ValueError(
                f"encoded: expected the coefficients of {layers} layers, got "
                f"{len(self.coefficients)}; encode the mesh with this network"
            )
        found = None if self.masses is None else self.masses.shape[1]
        if found != nodes:
            raise ValueError(
                f"encoded: expected the masses at {nodes or 'no'} nodes of lattices, for the "
                f"surroundings of points, got those at {found or 'none'}; encode the mesh with "
                "this network"
            )
        for kept in self._all:
            if len(kept) != batch:
                raise ValueError(
                    f"positions: expected points for each of the {len(kept)} samples that were "
                    f"encoded, got those of {batch}"
                )


_KIND = "funcattn.encoded"


def _digest(tensors: Mapping[str, Tensor], network: str) -> str:
    """Of the numbers, their names and shapes, and what made them."""
    content = hashlib.sha256(network.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        content.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        content.update(tensor.flatten().view(torch.uint8).numpy().data)
    return content.hexdigest()


def _plain(tensor: Tensor) -> bool:
    """Whether a tensor holds finite real numbers, of a kind that can be computed with."""
    known = tensor.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    return known and bool(tensor.isfinite().all())


def _described(tensor: Tensor | None) -> str:
    """A tensor for a message."""
    if tensor is None:
        return "none"
    finite = "" if _plain(tensor) else ", not all of them finite numbers"
    return f"{tensor.dtype} of shape {tuple(tensor.shape)}{finite}"


def rows_of(points: int, chunk: int) -> Iterator[slice]:
    """Chunks of points one after the other; of no points, one that is empty.

    >>> list(rows_of(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    if chunk < 1:
        raise ValueError(f"chunk: expected a number of points, got {chunk}")
    for start in range(0, max(points, 1), chunk):
        yield slice(start, min(start + chunk, points))


def _of_precision(kept: Tensor, like: Tensor) -> torch.dtype:
    return like.dtype.to_complex() if kept.is_complex() else like.dtype
