# %% [markdown]
"""# The layer in a network of your own

`FunctionalAttention` is a PyTorch layer: (batch, points, width) in, the same shape out. Here it
sits in a network of a few lines that learns an integral operator from scattered points: u(x) is the
mean over y of exp(-|x - y|² / 0.08) f(y). Without the layer, the network sees each point alone.
"""

# %%
import torch
from matplotlib import pyplot as plt
from torch import Tensor, nn

from funcattn import FunctionalAttention


class Network(nn.Module):
    """Lift, two residual blocks, head; `mixer(width)` makes what lets points talk to each other."""

    def __init__(self, mixer, width=48):
        super().__init__()
        self.lift, self.head = nn.Linear(3, width), nn.Linear(width, 1)
        self.mixers = nn.ModuleList(mixer(width) for _ in range(2))
        self.maps = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, positions, values):
        """Positions (b n 2) and values (b n 1) in, fields (b n 1) out."""
        x = self.lift(torch.cat([positions, values], -1))
        for mixer, mapped in zip(self.mixers, self.maps, strict=True):
            x = x + mixer(x)
            x = x + mapped(nn.functional.gelu(x))
        return self.head(x)


# %% [markdown]
# A sample: four random waves on as many random points as we like, and the mean over these points.
# %%
def samples(count: int, points: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Positions, values and truth."""
    random = torch.Generator().manual_seed(seed)
    x = torch.rand(count, points, 2, generator=random)
    waves = torch.randn(count, 1, 4, 2, generator=random) * 4
    f = (x.unsqueeze(2) * waves).sum(-1).sin().mean(-1, keepdim=True)
    return x, f, (-(torch.cdist(x, x) ** 2) / 0.08).exp() @ f / points * 10


def trained(mixer, steps=1000):
    """A network and its relative error on four times as many points as it was trained with."""
    torch.manual_seed(0)
    network = Network(mixer)
    optimiser = torch.optim.AdamW(network.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 5e-3, total_steps=steps)
    for step in range(steps):
        *given, truth = samples(8, 250, seed=step + 1)
        loss = (network(*given) - truth).norm() / truth.norm()
        optimiser.zero_grad(), loss.backward(), optimiser.step(), schedule.step()
    *given, truth = samples(1, 1000, seed=0)
    predicted = network(*given).detach()
    return given[0], truth, predicted, float((predicted - truth).norm() / truth.norm())


# %%
x, truth, with_layer, error = trained(lambda width: FunctionalAttention(width, heads=4, bases=16))
_, _, without, error_without = trained(nn.Identity)
fields = {"truth": truth, f"with the layer: {error:.1%} off": with_layer}
fields[f"without it: {error_without:.0%} off"] = without
figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
for axis, (title, field) in zip(axes, fields.items(), strict=True):
    axis.scatter(*x[0].T, c=field.flatten(), s=12, vmin=truth.min(), vmax=truth.max())
    axis.set_title(title)
assert error < 0.15 < error_without  # 0.098 and 0.41 where this was written; seeds are fixed
