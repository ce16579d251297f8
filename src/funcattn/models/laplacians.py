"""Operators of a cloud of points: its Laplacian, that operator's eigenfunctions, and gradients.

They are made once for each cloud, whatever its pose: a cloud that is a cached one turned and moved
has its operators.

Axes: n point, s space dimension, g eigenfunction, k neighbour, e entry of a sparse matrix.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

_NEIGHBOURS = 30
"""Of each point, for triangles, normals and gradients, as in the public code."""
_SHIFT = 1e-8
"""Added to the Laplacian, so that it can be factorised."""
_SAME = 1e-5
"""Clouds whose points are so near each other, over their size, after a rotation, are the same."""
_MOST_BYTES = 4 * 2**30
"""Of operators that are kept."""


@dataclass(frozen=True, eq=False)
class Operators:
    """Of a cloud, centred, its furthest point at distance 1.

    mass (n): the area of each point. values (g), functions (n g): L f = value M f, with functions
    orthonormal in M. entries (2 e), weights (e): the Laplacian L. near (n k), gradient (n k 2): the
    gradient in the tangent plane is the sum over k of gradient * f at near.
    """

    mass: Float[Tensor, " n"]
    values: Float[Tensor, " g"]
    functions: Float[Tensor, "n g"]
    entries: Int[Tensor, "2 e"]
    weights: Float[Tensor, " e"]
    near: Int[Tensor, "n k"]
    gradient: Float[Tensor, "n k 2"]

    @property
    def bytes(self) -> int:
        """Of memory."""
        return sum(tensor.nbytes for tensor in vars(self).values())


def operators_of(positions: Float[Tensor, "n s"], functions: int) -> Operators:
    """The operators of a cloud in a plane or in space, in its precision, with some eigenfunctions.

    The Laplacian is the tufted one of Sharp and Crane (2020); gradients are least squares over
    near points.

    Raises:
        ValueError: the points do not span a surface.
    """
    try:
        import robust_laplacian
        import scipy.linalg
        import scipy.sparse
        import scipy.sparse.linalg
        import scipy.spatial
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"DiffusionNet needs the package robust_laplacian, of which {error.name!r} is missing: "
            "pip install 'funcattn[baselines]'",
            name=error.name,
        ) from error
    n, space = positions.shape
    x = np.zeros((n, 3))
    x[:, :space] = positions.detach().cpu().double().numpy()
    x -= x.mean(0)
    x /= max(float(np.linalg.norm(x, axis=1).max()), 1e-300)
    count = min(_NEIGHBOURS, n - 1)
    if count < 3 or np.linalg.matrix_rank(x, tol=1e-6) < 2:
        raise ValueError(
            f"positions: expected at least 4 points that span a surface, got {n} that do not"
        )
    # The library's triangles depend on the order of the points by about a percent: from the middle
    # outwards, whatever order they came in.
    outwards = np.argsort(np.linalg.norm(x, axis=1), kind="stable")
    back = np.argsort(outwards)
    try:
        laplacian, mass = robust_laplacian.point_cloud_laplacian(x[outwards], n_neighbors=count)
    except RuntimeError as error:
        raise ValueError(
            f"positions: expected points that span a surface, got some that do not ({error}); "
            "take away repeated points and those on one line"
        ) from error
    laplacian, area = laplacian.tocsr()[back][:, back], mass.diagonal()[back]
    area = np.maximum(area, 1e-6 * area.mean())
    kept = min(functions, n)
    shifted = (laplacian + _SHIFT * scipy.sparse.identity(n)).tocsc()
    if kept == 0:
        values, vectors = np.zeros(0), np.zeros((n, 0))
    elif 3 * kept > n:
        values, vectors = scipy.linalg.eigh(
            shifted.toarray(), np.diag(area), subset_by_index=[0, kept - 1]
        )
    else:
        values, vectors = scipy.sparse.linalg.eigsh(
            shifted, kept, scipy.sparse.diags_array(area).tocsc(), sigma=_SHIFT, v0=np.ones(n)
        )
    near = np.asarray(scipy.spatial.cKDTree(x).query(x, count + 1)[1])
    gradient = _gradients(x, near, flat=space == 2)
    entries = laplacian.tocoo()

    def tensor(array: Any) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(array), dtype=positions.dtype)

    return Operators(
        tensor(area),
        tensor(values.clip(0)),
        tensor(vectors),
        torch.as_tensor(np.stack([entries.row, entries.col]).astype(np.int64)),
        tensor(entries.data),
        torch.as_tensor(near.astype(np.int64)),
        tensor(gradient),
    )


def _gradients(x: np.ndarray, near: np.ndarray, *, flat: bool) -> np.ndarray:
    """Weights (n k 2) of the values at near points, by least squares in the tangent plane.

    The tangent plane is that of the two largest axes of the near points; in a flat cloud it is the
    plane with its own axes.
    """
    offsets = x[near] - x[:, None]  # (n, k, 3)
    if flat:
        frame = np.broadcast_to(np.eye(3)[:2], (len(x), 2, 3))
    else:
        frame = np.linalg.svd(offsets, full_matrices=False)[2][:, :2]
    flat_offsets = np.einsum("nks,nfs->nkf", offsets, frame)
    gram = np.einsum("nkf,nkg->nfg", flat_offsets, flat_offsets) + 1e-5 * np.eye(2)
    weights = np.linalg.solve(gram, flat_offsets.swapaxes(1, 2)).swapaxes(1, 2)  # (n, k, 2)
    # Differences from the value at the point itself, wherever it stands among the near ones.
    itself = np.argmax(near == np.arange(len(x))[:, None], axis=1)
    weights[np.arange(len(x)), itself] -= weights.sum(1)
    return weights


class OperatorCache:
    """Operators by the content of clouds: number of eigenfunctions, precision, points in order.

    Clouds that a rotation and a translation make equal share one entry. The oldest are dropped when
    the memory is used up.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self.most_bytes, self.bytes = most_bytes, 0
        self._kept: OrderedDict[tuple[Any, ...], tuple[Tensor, Operators]] = OrderedDict()
        self._alike: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        self._made = 0

    def __call__(self, positions: Float[Tensor, "n s"], functions: int) -> Operators:
        """The operators of a cloud, made where they are not there."""
        cloud = positions.detach().cpu().double()
        cloud = cloud - cloud.mean(0)
        kind = (*positions.shape, positions.dtype, functions)
        # A number that no rotation changes finds candidates; the rotation itself decides.
        size = round(2e3 * float(cloud.norm(dim=-1).amax().clamp(min=1e-30).log2()))
        for key in (key for step in (0, -1, 1) for key in self._alike.get((kind, size + step), [])):
            if _turned(self._kept[key][0], cloud):
                self._kept.move_to_end(key)
                return self._kept[key][1]
        made = operators_of(positions, functions)
        self._made += 1
        key = (*kind, self._made)
        self._kept[key] = cloud, made
        self._alike.setdefault((kind, size), []).append(key)
        self.bytes += made.bytes + cloud.nbytes
        while self.bytes > self.most_bytes and len(self._kept) > 1:
            old, (old_cloud, old_made) = self._kept.popitem(last=False)
            self.bytes -= old_made.bytes + old_cloud.nbytes
            for keys in self._alike.values():
                if old in keys:
                    keys.remove(old)
        return made

    def __len__(self) -> int:
        return len(self._kept)


def _turned(one: Float[Tensor, "n s"], other: Float[Tensor, "n s"]) -> bool:
    """Whether a rotation brings one centred cloud onto another, point by point."""
    size = one.norm(dim=-1)
    close = _SAME * float(size.amax())
    if not torch.allclose(size, other.norm(dim=-1), rtol=0, atol=close):
        return False
    u, _, vh = torch.linalg.svd(one.T @ other)
    signs = torch.ones(len(u), dtype=one.dtype)
    signs[-1] = torch.linalg.det(u @ vh).sign()
    return torch.allclose(one @ (u * signs) @ vh, other, rtol=0, atol=close)
