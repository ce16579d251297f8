r"""Functional attention by PyTorch's softmax attention: exact, no basis in memory, slower.

    python benchmarks/softmax_attention_form.py

The points are the queries of softmax attention, the functions its keys: with Q = [y, 1] and
K = [S; s]^T,

    softmax(Q K^T) V = Phi V

so that a lift is attention with values V = M. The gradient of V from one of the result, A, is
A^T Phi: the sums over points, with weights and mass as factors and as one more channel of A. The
gradients of Q and K are those of features, weight and bias. So it can be done for devices without
Triton. But a sum takes a forward and a whole backward of attention, seven products instead of two.

Writes results/softmax_attention_form.json: the largest relative difference of values and gradients
from the plain form in float64, and CPU time beside that of the chunks in PyTorch, which such
devices have: in turns in one process, the least of many, one thread.
"""

import copy
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from funcattn.files import write_text
from funcattn.nn import FunctionalAttention
from funcattn.ops.attention import chunked, passes
from funcattn.ops.fused.passes import FusedPasses
from funcattn.ops.fused.scored import Scored, Toward
from funcattn.provenance import facts

_MULTIPLE = 8
"""Of channels, for which the fused forms are made."""


def sums(basis: Scored, field: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """field^T w Phi and w^T Phi."""
    given = _with_mass(field, weights)
    query, key = _query_and_key(basis, given.shape[-1])
    cotangent = _padded(given, query.shape[-1])
    value = torch.zeros_like(key).expand(len(query), -1, -1, -1).contiguous().requires_grad_()
    key = key.expand(value.shape)
    with torch.enable_grad():
        out = F.scaled_dot_product_attention(query, key, value, scale=1.0)
    (found,) = torch.autograd.grad(out, value, cotangent)
    f = field.shape[-1]
    both = found.mT.to(basis.weight.dtype)
    return both[:, :, :f], both[:, :, f]


def lifted(basis: Scored, coefficients: Tensor) -> Tensor:
    """Phi M, in the dtype of the features."""
    e = coefficients.shape[-1]
    query, key = _query_and_key(basis, e)
    value = _padded(coefficients.to(query.dtype), query.shape[-1])
    out = F.scaled_dot_product_attention(query, key.expand(value.shape), value, scale=1.0)
    return out[..., :e].transpose(1, 2)


def gradients(basis: Scored, toward: Toward) -> tuple[Tensor, Tensor, Tensor]:
    """Of features, weight and bias."""
    given = _with_mass(toward.field, toward.weights)
    by = torch.cat([toward.d_moments.mT, toward.d_mass.unsqueeze(-1)], -1)  # (b, h, g, f + 1)
    if toward.d_values is not None and toward.coefficients is not None:
        given = torch.cat([given, toward.d_values], -1)
        by = torch.cat([by, toward.coefficients], -1)
    query, key = _query_and_key(basis, given.shape[-1])
    value = _padded(by.to(query.dtype), query.shape[-1])
    query = query.requires_grad_()
    key = key.expand(value.shape).contiguous().requires_grad_()
    with torch.enable_grad():
        out = F.scaled_dot_product_attention(query, key, value, scale=1.0)
    cotangent = _padded(given, query.shape[-1])
    d_query, d_key = torch.autograd.grad(out, (query, key), cotangent)
    k = basis.features.shape[-1]
    d_scores = d_key.to(basis.weight.dtype).sum(0)  # (h, g, k + 1)
    return d_query[..., :k].transpose(1, 2), d_scores[..., :k].mT, d_scores[..., k]


def _query_and_key(basis: Scored, channels: int) -> tuple[Tensor, Tensor]:
    """[y, 1] (b h n .) and [S; s]^T (1 h g .), with at least so many channels, the rest zeros."""
    y = basis.features
    both = torch.cat([y, torch.ones_like(y[..., :1])], -1)
    key = torch.cat([basis.weight.mT, basis.bias.unsqueeze(-1)], -1).to(y.dtype).unsqueeze(0)
    width = max(both.shape[-1], channels)
    width += -width % _MULTIPLE
    return _padded(both, width), _padded(key, width)


def _with_mass(field: Tensor, weights: Tensor | None) -> Tensor:
    """[w field, w]: the field of ones has the mass."""
    both = torch.cat([field, torch.ones_like(field[..., :1])], -1)
    return both if weights is None else both * weights[:, None, :, None].to(both.dtype)


def _padded(field: Tensor, width: int) -> Tensor:
    return F.pad(field, (0, width - field.shape[-1]))


def outcome(layer: FunctionalAttention, x: Tensor, by: Any, **points: Tensor) -> list[Tensor]:
    """The output and all gradients."""
    x = x.clone().requires_grad_()
    with mock.patch.object(chunked, "_passes", return_value=by):
        out = layer(x, **points)
        found = torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])
    return [out.detach(), *found]


def main() -> None:
    """Compare, print and write."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    forms = {"chunks": passes, "softmax attention": FusedPasses(sys.modules[__name__])}
    layer = FunctionalAttention(32, 4, 20, execution="streamed").double()
    plain = copy.deepcopy(layer)
    plain.execution = "plain"
    x = torch.randn(2, 300, 32, dtype=torch.float64)
    points = {"mask": torch.rand(2, 300) > 0.3, "weights": torch.rand(2, 300).double()}
    both = (outcome(each, x, forms["softmax attention"], **points) for each in (layer, plain))
    difference = max(float((a - b).norm() / b.norm()) for a, b in zip(*both, strict=True))
    took: dict[str, dict[str, float]] = {}
    for heads in (8, 1):
        layer = FunctionalAttention(128, heads, 64, execution="stored")
        x = torch.randn(1, 16384, 128)
        best = took.setdefault(f"{heads} heads, 16,384 points, forward + backward, ms", {})
        for _ in range(5):
            for name, by in forms.items():
                start = time.process_time()
                outcome(layer, x, by)
                spent = round(1e3 * (time.process_time() - start), 1)
                best[name] = min(best.get(name, spent), spent)
    found = {"largest relative difference in float64": difference, "CPU time": took}
    print(json.dumps(found, indent=1))
    record = {**found, "command": shlex.join(["python", *sys.argv]), "seed": 0, **facts()}
    write_text(Path("results/softmax_attention_form.json"), json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
