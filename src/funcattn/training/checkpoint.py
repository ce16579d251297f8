"""Checkpoints: folders that are whole or not there, and that load without running code.

A checkpoint holds tensors as safetensors and everything else as JSON, with a checksum of each file.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from funcattn.errors import FuncattnError
from funcattn.files import whole_folder
from funcattn.training.optimisers import Optimiser

_SUMS = "checksums.json"


Kind = TypeVar("Kind")


class CheckpointError(FuncattnError):
    """A checkpoint that is damaged, incomplete or does not fit."""


@dataclass(frozen=True)
class Checkpoint:
    """Groups of named tensors, and a JSON document."""

    tensors: Mapping[str, Mapping[str, Tensor]]
    document: Mapping[str, Any]

    def group(self, name: str) -> Mapping[str, Tensor]:
        """The tensors of a group.

        Raises:
            CheckpointError: there is no such group.
        """
        if name not in self.tensors:
            raise CheckpointError(
                f"checkpoint: expected a file {name}.safetensors, got "
                f"{', '.join(self.tensors) or 'none'}; take another checkpoint, or train again"
            )
        return self.tensors[name]

    def part(self, name: str, kind: type[Kind]) -> Kind:
        """An entry of the document.

        Raises:
            CheckpointError: there is no such entry, or it is of another kind.
        """
        value = self.document.get(name)
        if not isinstance(value, kind):
            raise CheckpointError(
                f"checkpoint: expected {name!r} in state.json, as {kind.__name__}, got "
                f"{type(value).__name__}; take another checkpoint, or train again"
            )
        return value


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint to a folder that must not exist yet."""
    files = {
        f"{group}.safetensors": save_tensors(
            {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
        )
        for group, tensors in checkpoint.tensors.items()
    }
    files["state.json"] = json.dumps(checkpoint.document, indent=1).encode()
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    files[_SUMS] = json.dumps(sums, indent=1).encode()
    try:
        with whole_folder(folder) as aside:
            for name, content in files.items():
                (aside / name).write_bytes(content)
    except OSError as error:
        raise CheckpointError(
            f"{folder} could not be written ({error.strerror or error}); what was saved before is "
            "untouched"
        ) from error


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint after comparing every file with its checksum."""
    try:
        sums = dict(json.loads((folder / _SUMS).read_bytes()).items())
        for name in sums:
            if Path(name).name != name:
                raise ValueError(f"{_SUMS} names {name!r}, which is no file of the folder")
        files = {name: (folder / name).read_bytes() for name in sums}
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{folder} is not a whole checkpoint: {error}") from error
    for name, content in files.items():
        if hashlib.sha256(content).hexdigest() != sums[name]:
            raise CheckpointError(
                f"{folder / name} was altered or cut after it was written: its checksum differs"
            )
    try:
        tensors = {
            name.removesuffix(".safetensors"): load_tensors(content)
            for name, content in files.items()
            if name.endswith(".safetensors")
        }
        document = json.loads(files["state.json"])
        if not isinstance(document, dict):
            raise ValueError(f"state.json holds {type(document).__name__}, not names with values")
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{folder} is not a checkpoint of this kind: {error}") from error
    return Checkpoint(tensors, document)


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; what several layers share is there once."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


def weights_digest(model: nn.Module) -> str:
    """A fingerprint of all parameters and buffers."""
    content = hashlib.sha256()
    for name, tensor in model_tensors(model).items():
        content.update(name.encode())
        plain = tensor.detach().cpu().contiguous().flatten()
        content.update(plain.view(torch.uint8).numpy().data)
    return content.hexdigest()


def restore_model(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy saved tensors into a model that must have exactly these."""
    ours = model_tensors(model)
    wrong = {
        name: f"expected {_shape(ours.get(name))}, got {_shape(tensors.get(name))}"
        for name in sorted(ours.keys() | tensors.keys())
        if _shape(ours.get(name)) != _shape(tensors.get(name))
    }
    if wrong:
        name, reason = next(iter(wrong.items()))
        raise CheckpointError(
            f"the weights do not fit the settings of the run in {len(wrong)} tensors, the first "
            f"being {name}: {reason}"
        )
    for name, tensor in ours.items():
        kind = tensors[name].dtype
        if (kind.is_floating_point, kind.is_complex) != (
            tensor.dtype.is_floating_point,
            tensor.dtype.is_complex,
        ):
            raise CheckpointError(f"{name}: expected weights as {tensor.dtype}, got {kind}")
        if not bool(tensors[name].isfinite().all()):
            raise CheckpointError(
                f"{name}: expected finite weights, got some that are not; take another checkpoint, "
                "or train again"
            )
    with torch.no_grad():
        for name, tensor in ours.items():
            tensor.copy_(tensors[name])


def _shape(tensor: Tensor | None) -> tuple[int, ...] | None:
    return None if tensor is None else tuple(tensor.shape)


# Optimiser states are dictionaries of dictionaries with tensors in them.


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The tensors of an optimiser's state, by "parameter.name"."""
    return {
        f"{parameter}.{name}": value
        for parameter, entries in optimiser.state_dict()["state"].items()
        for name, value in entries.items()
        if isinstance(value, Tensor)
    }


def optimiser_document(optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """The rest of an optimiser's state."""
    state = optimiser.state_dict()
    return {
        "groups": state["param_groups"],
        "numbers": {
            f"{parameter}.{name}": value
            for parameter, entries in state["state"].items()
            for name, value in entries.items()
            if not isinstance(value, Tensor)
        },
    }


def restore_optimiser(
    optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor], document: Mapping[str, Any]
) -> None:
    """Bring an optimiser back to a saved state.

    Raises:
        CheckpointError: the state is not that of such an optimiser.
    """
    try:
        state: dict[int, dict[str, Any]] = {}
        for key, value in (*tensors.items(), *document["numbers"].items()):
            parameter, name = key.split(".", 1)
            state.setdefault(int(parameter), {})[name] = value
        groups = [
            {key: tuple(value) if key == "betas" else value for key, value in group.items()}
            for group in document["groups"]
        ]
        _check_optimiser(optimiser, state, groups)
        optimiser.load_state_dict({"state": state, "param_groups": groups})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"checkpoint: expected the state of a {type(optimiser).__name__} for this network, got "
            f"another ({error}); take another checkpoint, or train again"
        ) from error


def _check_optimiser(
    optimiser: torch.optim.Optimizer, state: dict[int, dict[str, Any]], groups: list[dict[str, Any]]
) -> None:
    """Options as an optimiser has them, and tensors of the shapes of its parameters."""
    for ours, theirs in zip(optimiser.param_groups, groups, strict=True):
        for name, value in ours.items():
            if name != "params" and _kind(theirs[name]) != _kind(value):
                raise ValueError(f"{name}: expected {_kind(value)}, got {_kind(theirs[name])}")
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    for place, entries in state.items():
        if not 0 <= place < len(parameters):
            raise ValueError(f"{place} is no parameter")
        shapes = {tuple(parameters[place].shape), ()}
        if isinstance(optimiser, Optimiser):
            shapes = optimiser.shapes(parameters[place])
        for name, value in entries.items():
            if isinstance(value, Tensor) and tuple(value.shape) not in shapes:
                raise ValueError(f"{name} of parameter {place} has shape {tuple(value.shape)}")


def _kind(value: object) -> str:
    """The kind of an option; JSON knows no tuples, and 1.0 may be 1."""
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_kind, value))})"
    return "number" if type(value) in (int, float) else type(value).__name__
