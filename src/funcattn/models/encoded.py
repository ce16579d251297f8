"""What a network keeps of a mesh: a few coefficients a layer, enough to answer at any point."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

POINTS_AT_ONCE = 2**14
"""Where each point is by itself, so many are computed together: enough for fast products."""


@dataclass(frozen=True)
class Encoded:
    """The coefficients (b h g e) of each layer, and the time (b,) of networks that take one.

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

    @property
    def nbytes(self) -> int:
        """Of all coefficients together."""
        return sum(kept.nbytes for kept in self.coefficients)

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, whole or not at all."""
        # Here, so that networks can be used without what training needs.
        from safetensors.torch import save

        tensors = {} if self.time is None else {"time": self.time}
        for layer, kept in enumerate(self.coefficients):
            if kept.is_complex():
                tensors[f"complex.{layer}"] = torch.view_as_real(kept.resolve_conj())
            else:
                tensors[f"real.{layer}"] = kept
        content = save(
            {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()},
            {"kind": _KIND, "network": self.network},
        )
        path = Path(path)
        aside = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with aside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)

    @staticmethod
    def load(path: str | Path) -> "Encoded":
        """Read what `save` wrote, into the memory of the CPU."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "pt") as file:
                said = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise ValueError(f"{path}: expected a file of Encoded.save, got {error}") from error
        if said.get("kind") != _KIND:
            raise ValueError(
                f"{path}: expected a file of Encoded.save, got tensors of another kind: "
                f"{', '.join(sorted(tensors)) or 'none'}"
            )
        time = tensors.pop("time", None)
        by_layer = {}
        for name, tensor in tensors.items():
            kind, layer = name.split(".")
            by_layer[int(layer)] = torch.view_as_complex(tensor) if kind == "complex" else tensor
        coefficients = tuple(by_layer[layer] for layer in sorted(by_layer))
        return Encoded(coefficients, time, said["network"])

    def to(self, like: Tensor) -> "Encoded":
        """On the device of a tensor, in its precision."""
        moved = (kept.to(like.device, _of_precision(kept, like)) for kept in self.coefficients)
        return Encoded(
            tuple(moved), None if self.time is None else self.time.to(like), self.network
        )

    def check(self, layers: int, batch: int) -> None:
        """Raise unless it is of a network with so many layers, and of so many samples."""
        if len(self.coefficients) != layers:
            raise ValueError(
                f"encoded: expected the coefficients of {layers} layers, got "
                f"{len(self.coefficients)}; encode the mesh with this network"
            )
        for kept in self.coefficients:
            if len(kept) != batch:
                raise ValueError(
                    f"positions: expected points for each of the {len(kept)} samples that were "
                    f"encoded, got those of {batch}"
                )


_KIND = "funcattn.encoded"


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
