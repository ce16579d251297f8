"""LinearNO: Transolver's averages without the attention between them, as linear attention.

Hu, Liu, Qiao, Sun and Dou, Transolver Is a Linear Transformer: Revisiting Physics-Attention through
the Lens of Linear Attention, AAAI 2026 (arXiv 2511.06294).
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from funcattn.nn.attentions import ATTENTIONS, AttentionEntry, layer_of
from funcattn.nn.baselines.base import Baseline, measure
from funcattn.nn.baselines.flare import routed
from funcattn.nn.bases import split_heads
from funcattn.nn.feature_maps import FeatureMap, Pointwise
from funcattn.nn.points import Points
from funcattn.settings import SizedAttentionSettings


class LinearNOAttention(Baseline):
    """out = phi (psi^T v): linear attention whose two sides are normalised along different axes.

        phi = softmax over g of f W_q^T                     (n x g)
        psi = softmax over m of (f W_k^T + log w)           (m x g)

    f = v are features of the points, W_q and W_k (g x d) are shared by the heads, w is the measure
    of the points. Rows of phi and columns of psi sum to one, hence the rows of phi psi^T as well.
    Linear in n. bases: g.

    It is what FLARE computes (`routed`), with other latents to gather than to scatter. Were W_q and
    W_k one, it would be Transolver without attention between its coefficients, but for a factor
    sum over g of exp(f_i . w_g) of each point i in the averages.

    Relative to the paper: the equation is its, the maps that feed it are our reading: f serves all
    three (a map of the values would be absorbed by the last one of the layer), there is neither
    temperature nor bias in the scores, and both maps start orthogonal, as in Transolver. Masks,
    weights and a context are ours.

    >>> import torch
    >>> LinearNOAttention(width=64, heads=4)(torch.randn(2, 1000, 64)).shape
    torch.Size([2, 1000, 64])
    """

    def __init__(
        self,
        width: int,
        heads: int = 8,
        bases: int = 64,
        *,
        features: FeatureMap = Pointwise,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, dropout=dropout)
        if bases < 1:
            raise ValueError(f"bases: expected at least 1, got {bases}")
        self.features = features(width, width)
        self.query_map = nn.Parameter(nn.init.orthogonal_(torch.empty(bases, width // heads)))
        self.key_map = nn.Parameter(nn.init.orthogonal_(torch.empty(bases, width // heads)))

    def attend(
        self, x: Tensor, source: Tensor, here: Points, there: Points
    ) -> Float[Tensor, "b h n d"]:
        """Features, then gather and scatter."""
        of_query = of_key = split_heads(self.features(x, here), self.heads)
        if there is not here:
            of_key = split_heads(self.features(source, there), self.heads)
        return routed(
            self.key_map.expand(self.heads, -1, -1),
            self.query_map.expand(self.heads, -1, -1),
            of_query,
            of_key,
            of_key,
            weights=measure(there, of_key),
        )


ATTENTIONS.register(
    "linear_no",
    AttentionEntry(
        "Transformer with linear attention by two softmaxes along different axes",
        "Hu et al., Transolver Is a Linear Transformer, AAAI 2026",
        when="Transolver without attention between its slices.",
        settings=SizedAttentionSettings,
        layer=layer_of(LinearNOAttention, bases="bases"),
    ),
)
