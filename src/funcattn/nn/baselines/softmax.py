"""Softmax attention (Vaswani et al., Attention Is All You Need, NeurIPS 2017)."""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.attentions import ATTENTIONS, AttentionEntry, layer_of
from funcattn.nn.baselines.base import QueriesKeysValues, measure
from funcattn.nn.points import Points
from funcattn.settings import AttentionSettings


class SoftmaxAttention(QueriesKeysValues):
    """out_i = sum over j of w_j exp(q_i . k_j / sqrt d) v_j, over the sum of the factors of v_j.

    By PyTorch's fused kernel: time grows with n m, memory with n + m. w is 1, or the quadrature
    weight of point j.

    >>> import torch
    >>> SoftmaxAttention(width=64, heads=4)(torch.randn(2, 1000, 64)).shape
    torch.Size([2, 1000, 64])
    """

    def combine(
        self,
        query: Float[Tensor, "b h n d"],
        key: Float[Tensor, "b h m d"],
        value: Float[Tensor, "b h m d"],
        here: Points,  # noqa: ARG002
        there: Points,
    ) -> Float[Tensor, "b h n d"]:
        """Scores, softmax over the keys, values."""
        weights = measure(there, key)
        # A factor w of the exponential is log w in the exponent; -inf where the point is masked.
        bias = None if weights is None else weights.log().mT  # (b, 1, m, 1) -> (b, 1, 1, m)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias)


ATTENTIONS.register(
    "softmax",
    AttentionEntry(
        "Transformer with softmax attention",
        "Vaswani et al., Attention Is All You Need, NeurIPS 2017",
        when="A yardstick on up to some thousand points: its time grows with their square.",
        settings=AttentionSettings,
        layer=layer_of(SoftmaxAttention),
        quadratic=True,
    ),
)
