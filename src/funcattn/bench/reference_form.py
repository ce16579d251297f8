"""Functional attention as one would first write it: the yardstick of every faster form."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from funcattn.nn import FunctionalAttention
from funcattn.ops import Sided


class ReferenceForm(FunctionalAttention):
    """The layer with its default basis, maps and ridge, step by step on whole tensors.

    Heads are copied to the front, products over points are einsums, the d x d system of the dual
    form is solved by Cholesky. Weights and their names are those of `FunctionalAttention`, so that
    either loads the other's. For points without context, mask, weights or grid.

    >>> layer, plain = FunctionalAttention(32, heads=4, bases=8), ReferenceForm(32, 4, 8)
    >>> _ = plain.load_state_dict(layer.state_dict())
    >>> x = torch.randn(2, 50, 32)
    >>> torch.allclose(plain(x), layer(x), atol=1e-6)
    True
    """

    def forward(
        self,
        x: Float[Tensor, "b n c"],
        context: Float[Tensor, "b m c"] | None = None,
        *,
        positions: Sided = None,  # noqa: ARG002
        grid: tuple[int, ...] | None = None,
        mask: Sided = None,
        weights: Sided = None,
    ) -> Float[Tensor, "b n c"]:
        """Attend from x to itself."""
        for name, value in (
            ("context", context),
            ("grid", grid),
            ("mask", mask),
            ("weights", weights),
        ):
            if value is not None:
                raise ValueError(
                    f"{name}: expected none in the reference form, got one; use FunctionalAttention"
                )
        field = self._to_heads(self.features.get_submodule("map")(x))
        basis = self._basis_values(x)
        mass = basis.sum(2).unsqueeze(-1)  # (b, h, g, 1)
        mass = mass + 1e-8 * mass.mean(2, keepdim=True)
        coefficients = torch.einsum("bhng,bhnd->bhgd", basis, field) / mass
        query = self.to_query(coefficients)
        key = self.to_key(coefficients)
        value = self.to_value(coefficients)
        ridge = torch.sigmoid(self.get_parameter("ridge.logit"))
        identity = torch.eye(key.shape[-1], dtype=key.dtype, device=key.device)
        system = (1 - ridge) * (key.mT @ key) + ridge * identity
        solved = torch.cholesky_solve(key.mT @ value, torch.linalg.cholesky(system))
        out = torch.einsum("bhng,bhgd->bhnd", basis, query @ solved)
        out = out.permute(0, 2, 1, 3).contiguous().flatten(2)  # (b, h, n, d) -> (b, n, h d)
        return self.dropout(self.to_output(out))

    def _basis_values(self, x: Tensor) -> Float[Tensor, "b h n g"]:
        features = self._to_heads(self.basis.get_submodule("features.map")(x))
        temperature = self.basis.get_parameter("temperature").clamp(0.1, 5.0)
        scores = self.basis.get_submodule("scores")(features)
        return F.softmax(scores / temperature[:, None, None], dim=-1)

    def _to_heads(self, x: Tensor) -> Float[Tensor, "b h n d"]:
        """(b, n, h d) -> (b, h, n, d), copied."""
        return x.unflatten(-1, (self.heads, -1)).permute(0, 2, 1, 3).contiguous()
