"""Linear attention (Katharopoulos et al., Transformers are RNNs, ICML 2020)."""

import torch
from jaxtyping import Float
from torch import Tensor

from funcattn.nn.attentions import ATTENTIONS, AttentionEntry, layer_of
from funcattn.nn.baselines.base import QueriesKeysValues, measure
from funcattn.nn.points import Points
from funcattn.ops.linalg import at_least_float32
from funcattn.settings import AttentionSettings


def kernel_attention(
    log_query: Float[Tensor, "b h n g"],
    log_key: Float[Tensor, "b h m g"],
    value: Float[Tensor, "b h m d"],
    weights: Float[Tensor, "#b 1 m 1"] | None = None,
) -> Float[Tensor, "b h n d"]:
    """Attention with the kernel phi(q) . phi(k), from the logarithms of positive features phi.

    out_i = sum over j of w_j (phi(q_i) . phi(k_j)) v_j, over the sum of the factors of v_j

    Both sums over j go through the g features, so that the cost is n + m. A feature's total
    S_g = sum over j of w_j phi_g(k_j) divides its keys and multiplies its queries, where it then
    cancels with the denominator:

    out_i = sum over g of softmax over g (log phi(q_i) + log S)  sum over j of w_j phi(k_j) / S v_j

    These are the same numbers, but now both factors are means, which neither overflow nor divide by
    zero, however large or small the features are.

    >>> import torch
    >>> query, key, value = torch.randn(3, 2, 4, 100, 16)  # 2 samples, 4 heads, 100 points
    >>> kernel_attention(query, key, value).shape
    torch.Size([2, 4, 100, 16])
    """
    if weights is not None:
        log_key = log_key + weights.log()  # -inf at masked points
    largest = log_key.detach().amax(-2, keepdim=True)
    shares = (log_key - largest).exp()
    total = shares.sum(-2, keepdim=True)
    means = (shares.to(value.dtype).mT @ value) / total.mT
    mixture = (log_query + (largest + total.log())).softmax(-1)
    return mixture.to(value.dtype) @ means.to(value.dtype)


def log_elu_plus_one(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """log(elu(x) + 1), which is x below 0 and log(1 + x) above; in float32 at least."""
    x = x.to(at_least_float32(x.dtype))
    # Where x < 0 the logarithm is not taken, and its argument must not spoil the gradient.
    return torch.where(x > 0, x.clamp(min=0).log1p(), x)


class LinearAttention(QueriesKeysValues):
    """`kernel_attention` with the d features phi(x) = elu(x) + 1 of queries and keys.

    Time and memory grow with n + m.

    Relative to the paper: no small number is added to the denominator, which cannot vanish here;
    only the form for all points at once, not the causal one; weights and masks are ours.

    >>> import torch
    >>> LinearAttention(width=64, heads=4)(torch.randn(2, 1000, 64)).shape
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
        """Features of queries and keys, then the two sums."""
        log_key = log_elu_plus_one(key)
        return kernel_attention(log_elu_plus_one(query), log_key, value, measure(there, log_key))


ATTENTIONS.register(
    "linear",
    AttentionEntry(
        "Transformer with linear attention",
        "Katharopoulos et al., Transformers are RNNs, ICML 2020",
        when="The cheapest attention; a lower bound for those that cost more.",
        settings=AttentionSettings,
        layer=layer_of(LinearAttention),
    ),
)
