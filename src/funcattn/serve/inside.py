"""What the layers of a network did with a sample, as pictures can show it.

Attentions show their basis functions and, where they solve for one, the map C. A block of our
network on a grid has fixed waves in the place of a learned basis. It shows how strongly it passes
on each of them and, where it has a metric, the coefficient and the map of that.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from funcattn.models.functional_operator import GridBlock
from funcattn.nn import Inspection, inspect
from funcattn.nn.operator import FourierMap, MetricAttention, ModewiseMap

_SOLVED = (
    "The basis functions that this layer has learned, as they are for this input, and the map C "
    "that carries coefficients from keys to queries."
)
_UNSOLVED = (
    "The basis functions that this layer has learned, as they are for this input. There is no map "
    "C to show: a small network mixes the coefficients instead."
)
_WAVES = (
    "On a grid this network works with fixed waves, so that no layer has a learned basis. Shown is "
    "how strongly this block passes on each of them: the norm of the matrix that it has learned "
    "for the wave, long waves first."
)
_METRIC = (
    " This block also solves with a coefficient that it has learned to see in the input, as in "
    "div(coefficient grad u): that coefficient, and the map C of the solve between the "
    "coefficients of sines."
)


def looked_inside(
    network: nn.Module, call: Callable[[], object], layer: int, head: int
) -> dict[str, Any]:
    """What one layer did in a call of its network, with the first sample and in one of its heads.

    basis (g n), map (g g), gains (one number per wave; along_axes: those of each axis), coefficient
    (n), of those that it has.

    Raises:
        ValueError: there is no such layer or head.
    """
    with inspect(network) as seen, _entered(network) as metrics:
        call()
    first: dict[int, Inspection] = {}
    for each in seen:
        if isinstance(each.basis, Tensor):
            first.setdefault(id(each.layer), each)  # of a task in time, in its first frame
    attentions = list(first.values())
    blocks = [module for module in network.modules() if isinstance(module, GridBlock)]
    count = len(attentions) or len(blocks)
    if not 0 <= layer < count:
        wanted = f"0 to {count - 1}" if count else "a network whose layers have a basis"
        raise ValueError(f"layer: expected {wanted}, got {layer}")
    with torch.no_grad():
        found = (
            _of_attention(attentions[layer], head)
            if attentions
            else _of_block(blocks[layer], metrics, head)
        )
    return {"layers": count, "layer": layer, "head": head, **found}


@contextmanager
def _entered(network: nn.Module) -> Iterator[dict[nn.Module, tuple[Any, ...]]]:
    """Within this context, keep what each metric was first called with."""
    kept: dict[nn.Module, tuple[Any, ...]] = {}

    def keep(module: nn.Module, given: tuple[Any, ...]) -> None:
        kept.setdefault(module, given)

    handles = [
        module.register_forward_pre_hook(keep)
        for module in network.modules()
        if isinstance(module, MetricAttention)
    ]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()


def _of_attention(seen: Inspection, head: int) -> dict[str, Any]:
    basis, transported = seen.basis, None
    assert isinstance(basis, Tensor)
    _check_head(head, basis.shape[1])
    if seen.query is not None and seen.key is not None and seen.system is not None:
        transported = _array(seen.map[0, head])
    return {
        "heads": basis.shape[1],
        "basis": _array(basis[0, head].mT),
        "map": transported,
        "about": _UNSOLVED if transported is None else _SOLVED,
    }


def _of_block(
    block: GridBlock, metrics: dict[nn.Module, tuple[Any, ...]], head: int
) -> dict[str, Any]:
    found: dict[str, Any] = {"heads": 1, "map": None, "about": _WAVES}
    gains: list[Tensor] = []
    for branch in block.branches:
        if isinstance(branch, ModewiseMap | FourierMap):
            gains.append(branch.gains())
        elif isinstance(branch, MetricAttention) and branch in metrics:
            _check_head(head, branch.heads)
            given = metrics[branch]
            found |= {
                "heads": branch.heads,
                "coefficient": _array(branch.coefficient(*given)[0, :, head]),
                "map": _array(branch.map(*given)[0, head]),
                "about": _WAVES + _METRIC,
            }
    if gains:
        found["along_axes"] = len(gains) > 1
        found["gains"] = _array(pad_sequence(gains, batch_first=True) if gains[1:] else gains[0])
    _check_head(head, found["heads"])
    return found


def _check_head(head: int, heads: int) -> None:
    if not 0 <= head < heads:
        raise ValueError(f"head: expected 0 to {heads - 1}, got {head}")


def _array(tensor: Tensor) -> Any:
    return tensor.float().cpu().numpy()
