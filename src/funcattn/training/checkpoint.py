"""Checkpoints: folders that are whole or not there, and that load without running code.

A checkpoint holds tensors as safetensors and everything else as JSON, with a checksum of each file.
It is written aside, flushed to the disk and renamed, so that a crash at any moment leaves either
the old state or the new one.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

_SUMS = "checksums.json"


class CheckpointError(Exception):
    """A checkpoint that is damaged, incomplete or does not fit."""


@dataclass(frozen=True)
class Checkpoint:
    """Groups of named tensors, and a JSON document."""

    tensors: Mapping[str, Mapping[str, Tensor]]
    document: Mapping[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint to a folder that must not exist yet."""
    aside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        files = {
            f"{group}.safetensors": save_tensors(
                {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
            )
            for group, tensors in checkpoint.tensors.items()
        }
        files["state.json"] = json.dumps(checkpoint.document, indent=1).encode()
        sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        files[_SUMS] = json.dumps(sums, indent=1).encode()
        for name, content in files.items():
            with (aside / name).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        flush_folder(aside)
        os.rename(aside, folder)
        flush_folder(folder.parent)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise CheckpointError(
            f"{folder} could not be written ({error.strerror or error}); what was saved before is "
            "untouched"
        ) from error


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint after comparing every file with its checksum."""
    try:
        sums = json.loads((folder / _SUMS).read_bytes())
        files = {name: (folder / name).read_bytes() for name in sums}
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{folder} is not a whole checkpoint: {error}") from error
    for name, content in files.items():
        if hashlib.sha256(content).hexdigest() != sums[name]:
            raise CheckpointError(
                f"{folder / name} was altered or cut after it was written: its checksum differs"
            )
    try:
        return Checkpoint(
            {
                name.removesuffix(".safetensors"): load_tensors(content)
                for name, content in files.items()
                if name.endswith(".safetensors")
            },
            json.loads(files["state.json"]),
        )
    except (SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(f"{folder} is not a checkpoint of this kind: {error}") from error


def flush_folder(folder: Path) -> None:
    """Make the names in this folder last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old content or the new, never a part."""
    aside = path.with_name(f".{path.name}.part")
    try:
        with aside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; what several layers share is there once."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


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
    """Bring an optimiser back to a saved state."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in (*tensors.items(), *document["numbers"].items()):
        parameter, name = key.split(".", 1)
        state.setdefault(int(parameter), {})[name] = value
    groups = [
        {key: tuple(value) if key == "betas" else value for key, value in group.items()}
        for group in document["groups"]
    ]
    optimiser.load_state_dict({"state": state, "param_groups": groups})
