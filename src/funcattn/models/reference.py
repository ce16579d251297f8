"""Public checkpoints of the paper's reference code, and of Transolver's, as our model.

The files are plain state dicts. What the network needs to be rebuilt is found in the names and
shapes of the tensors; no code in a file is ever run.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from funcattn.models.operator_transformer import Encoding, OperatorTransformer
from funcattn.nn import (
    FunctionalAttention,
    GridConvolution,
    LatticeDistances,
    LearnedBasis,
    Pointwise,
    RawPositions,
)
from funcattn.nn.baselines.transolver import TransolverAttention
from funcattn.ops import Average, Basis

_LATTICE_PER_AXIS = 8
_REPEATED = 2**30
"""Tensors that show the same bytes many times may have so many in all."""


@dataclass(frozen=True)
class ReferenceAverage:
    """`Average` with the stabiliser of the reference code, which is absolute: mass + 1e-5."""

    def statistic(self, basis: Basis, weights: Tensor | None) -> Tensor:
        """The mass of each function, (b h g 1)."""
        return Average().statistic(basis, weights)

    def coefficients(self, moments: Tensor, statistic: Tensor | float) -> Tensor:
        """The moments over the mass."""
        return moments / (statistic + 1e-5)


def load_reference(
    path_or_state: str | Path | Mapping[str, Tensor | npt.NDArray[np.float64]],
    *,
    encoding: Encoding | None = None,
) -> OperatorTransformer:
    """A public checkpoint, from its file or its state dict, as an `OperatorTransformer`.

    The configuration is read off the tensors: a network without ridges (alpha) is a Transolver.
    They do not tell how positions are encoded, so this follows the public PDE networks, which live
    in the plane: distances to an 8 x 8 lattice on the unit square where the network has 64 input
    channels or more, the coordinates otherwise. Pass `encoding` for a network that differs. The
    model is in evaluation mode and has the dtype of the file.
    """
    if isinstance(path_or_state, Mapping):
        return _built(_read(path_or_state), encoding)
    try:
        return _built(_read(_opened(Path(path_or_state))), encoding)
    except ValueError as error:
        raise ValueError(f"{path_or_state}: {error}") from error


def _built(state: "_Tensors", encoding: Encoding | None) -> OperatorTransformer:
    """The network, if these are the tensors of one."""
    if "blocks.0.Attn.to_q.weight" not in state or "preprocess.linear_post.weight" not in state:
        raise ValueError(
            "checkpoint: expected the tensors of a functional attention or Transolver network "
            f"(preprocess.*, blocks.*.Attn.to_q.weight, ...), got {sorted(state)[:5]} and "
            f"{max(len(state) - 5, 0)} more"
        )
    try:
        return _network(state, encoding)
    except (IndexError, ArithmeticError, RuntimeError, MemoryError) as error:
        raise ValueError(
            "checkpoint: expected tensors whose shapes fit each other, got some that do not: "
            f"{str(error).splitlines()[0]}; take the file of the public network as it is"
        ) from error


def _network(state: "_Tensors", encoding: Encoding | None) -> OperatorTransformer:
    """The network whose tensors these are."""
    shared = "in_project_x.weight" in state
    # Transolver never shares its basis: where one is shared and there are no ridges, they are lost.
    ridges = shared or any(name.endswith(".Attn.alpha") for name in state)
    at = "" if shared else "blocks.0.Attn."
    on_grid = state[at + "in_project_x.weight"].ndim == 4
    scores = "in_project_basis" if on_grid and ridges else "in_project_slice"
    layers = len({name.split(".")[1] for name in state if name.startswith("blocks.")})
    width = state["preprocess.linear_post.weight"].shape[0]
    channels = state["preprocess.linear_pre.0.weight"].shape[1]
    if encoding is None:
        lattice = channels >= _LATTICE_PER_AXIS**2
        encoding = LatticeDistances(2, per_axis=_LATTICE_PER_AXIS) if lattice else RawPositions(2)
    inputs = channels - encoding.channels
    if inputs < 0:
        raise ValueError(
            f"encoding: expected at most the {channels} input channels of the network, got one "
            f"with {encoding.channels}"
        )
    features = GridConvolution if on_grid else Pointwise
    encoded = encoding

    def attention(width: int) -> FunctionalAttention | TransolverAttention:
        heads = state[at + "temperature"].numel()
        basis = LearnedBasis(
            width,
            heads,
            bases=state[f"{at}{scores}.bias"].numel(),
            features=features,
            # Point clouds: functional attention with a shared basis and Transolver let their
            # temperature run free.
            bounds=None if not on_grid and (shared or not ridges) else (0.1, 5.0),
        )
        layer = FunctionalAttention if ridges else TransolverAttention
        return layer(width, heads, basis=basis, features=features, projection=ReferenceAverage())

    def built() -> OperatorTransformer:
        return OperatorTransformer(
            space=encoded.dims,
            inputs=inputs,
            outputs=state[f"blocks.{layers - 1}.mlp2.bias"].numel(),
            width=width,
            layers=layers,
            attention=attention,
            share_basis=shared,
            mlp_ratio=state["blocks.0.mlp.linear_post.weight"].shape[1] / width,
            encoding=encoded,
            time="time_fc.0.weight" in state,
        )

    # Their constant vector is added to the lifted features: it is a part of our bias.
    if inputs == 0 or not on_grid:
        state["preprocess.linear_post.bias"] += state["placeholder"]
    with torch.device("meta"):  # shapes alone, so that nothing large is made before they fit
        ours = built().state_dict()
    theirs = {
        name: _reference_name(name, layers=layers, shared=shared, scores=scores) for name in ours
    }
    # Identity matrices stand beside ridges only: without those the file is not whole.
    idle = {name for name in state if name == "placeholder" or (ridges and name.endswith(".I_d"))}
    missing = sorted(set(theirs.values()) - state.keys())
    surplus = sorted(state.keys() - set(theirs.values()) - idle)
    if missing or surplus:
        raise ValueError(
            f"checkpoint: expected exactly the tensors of a network with {layers} layers, got "
            f"{missing or 'none'} missing and {surplus or 'none'} that do not belong"
        )
    for name, tensor in ours.items():
        found = state[theirs[name]]
        # The public temperature is (1, h, 1, 1); all other tensors have the shapes of ours.
        found = found.flatten() if name.endswith("temperature") else found
        if found.shape != tensor.shape:
            raise ValueError(
                f"checkpoint: expected {theirs[name]!r} of shape {tuple(tensor.shape)} beside the "
                f"other tensors, got {tuple(found.shape)}"
            )
        ours[name] = found
    model = built().to(found.dtype)
    model.load_state_dict(ours)
    return model.eval()


_RENAMED = {
    r"^lift\.expand": "preprocess.linear_pre.0",
    r"^lift\.contract": "preprocess.linear_post",
    r"^time\.expand": "time_fc.0",
    r"^time\.contract": "time_fc.2",
    r"attention_norm": "ln_1",
    r"mlp_norm": "ln_2",
    r"mlp\.expand": "mlp.linear_pre.0",
    r"mlp\.contract": "mlp.linear_post",
    r"attention\.(key_)?basis\.features\.(map|convolution)": "Attn.in_project_x",
    r"attention\.(key_)?basis\.temperature": "Attn.temperature",
    r"attention\.features\.(map|convolution)": "Attn.in_project_fx",
    r"attention\.ridge\.logit": "Attn.alpha",
    r"attention\.to_query": "Attn.to_q",
    r"attention\.to_key": "Attn.to_k",
    r"attention\.to_value": "Attn.to_v",
    r"attention\.to_output": "Attn.to_out.0",
}


def _reference_name(name: str, *, layers: int, shared: bool, scores: str) -> str:
    """The public code's name of one of our tensors."""
    table = _RENAMED | {
        r"attention\.(key_)?basis\.scores": f"Attn.{scores}",
        r"^head_norm": f"blocks.{layers - 1}.ln_3",
        r"^head\.": f"blocks.{layers - 1}.mlp2.",
    }
    for ours, theirs in table.items():
        name = re.sub(ours, theirs, name)
    if shared:  # the basis modules then stand at the top
        name = re.sub(r"^blocks\.\d+\.Attn\.(in_project_|temperature)", r"\1", name)
    return name


class _Tensors(dict[str, Tensor]):
    """Tensors by name; a name that is not there is an error of the checkpoint."""

    def __missing__(self, name: str) -> Tensor:
        raise ValueError(f"checkpoint: expected a tensor {name!r}, got none of that name")


def _opened(path: Path) -> Any:
    """What a file holds."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:  # a file that is no checkpoint can fail in a dozen ways
        raise ValueError(
            "checkpoint: expected a PyTorch file that holds tensors only, got one that is damaged "
            "or holds code, and is therefore not opened"
        ) from error


def _read(state: Any) -> _Tensors:
    """The tensors by name, as copies, without the prefix that data-parallel training leaves."""
    if not isinstance(state, Mapping) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor | np.ndarray)
        for name, tensor in state.items()
    ):
        raise ValueError(
            "checkpoint: expected a dictionary of tensors by name, got "
            f"{type(state).__name__} with something else in it; a training checkpoint may hold the "
            "dictionary under a key such as 'model': pass that"
        )
    for name, tensor in state.items():
        _check_tensor(name, torch.as_tensor(tensor))
    return _Tensors(
        (name.removeprefix("module."), torch.as_tensor(tensor).detach().clone())
        for name, tensor in state.items()
    )


def _check_tensor(name: str, tensor: Tensor) -> None:
    """Refuse what cannot be weights: other kinds of numbers, none of them, or infinite ones."""
    stored = tensor.untyped_storage().nbytes()
    if tensor.nbytes > max(stored, _REPEATED):
        got = f"{stored} bytes that pretend to be {tensor.nbytes}"
    elif not tensor.dtype.is_floating_point or not tensor.numel():
        got = f"{tensor.dtype} of shape {tuple(tensor.shape)}"
    elif not bool(tensor.isfinite().all()):
        got = "some that are not finite"
    else:
        return
    raise ValueError(f"checkpoint: expected real finite numbers in {name!r}, got {got}")
