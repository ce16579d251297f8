# %% [markdown]
"""# A public checkpoint

The paper's authors, and those of Transolver, publish trained weights as PyTorch state dicts.
`load_reference` makes a network of such a file: it finds the sizes in the tensors, and runs no code
that the file may hold. Here we write a small file of that kind with random numbers.
"""

# %%
import tempfile
from pathlib import Path

import torch
from matplotlib import pyplot as plt
from torch.nn.functional import gelu, layer_norm

import funcattn

torch.manual_seed(0)
D, heads, bases, d = 32, 4, 8, 8  # width, heads, basis functions, channels of a head
maps = {"preprocess.linear_pre.0": (2 * D, 2), "preprocess.linear_post": (D, 2 * D)}
maps |= {f"blocks.0.Attn.in_project_{name}": (D, D) for name in ("x", "fx")}
maps |= {"blocks.0.Attn.in_project_slice": (bases, d), "blocks.0.Attn.to_out.0": (D, D)}
maps |= {"blocks.0.mlp.linear_pre.0": (D, D), "blocks.0.mlp.linear_post": (D, D)}
maps |= {"blocks.0.mlp2": (1, D)}
state = {f"{name}.weight": torch.randn(o, i) / i**0.5 for name, (o, i) in maps.items()}
state |= {f"{name}.bias": torch.randn(o) / 3 for name, (o, _) in maps.items()}
state |= {f"blocks.0.ln_{i}.weight": torch.ones(D) for i in (1, 2, 3)}
state |= {f"blocks.0.ln_{i}.bias": torch.zeros(D) for i in (1, 2, 3)}
state |= {f"blocks.0.Attn.to_{name}.weight": torch.randn(d, d) / d**0.5 for name in "qkv"}
state |= {"placeholder": torch.randn(D), "blocks.0.Attn.alpha": torch.tensor(0.3)}
state |= {"blocks.0.Attn.temperature": torch.full((1, heads, 1, 1), 0.3)}
state |= {"blocks.0.Attn.I_d": torch.eye(d)[None]}
state = {name: tensor.double() for name, tensor in state.items()}
file = Path(tempfile.mkdtemp()) / "checkpoint.pt"
torch.save(state, file)

# %%
model = funcattn.load_reference(file)
x = torch.rand(1, 2000, 2).double()
out = model(x).detach()


# %% [markdown]
# The published formulas, written out: B are the basis functions at the points, T the coefficients.
# %%
def apply(name: str, values: torch.Tensor) -> torch.Tensor:
    """One linear map of the file."""
    return values @ state[f"{name}.weight"].T + state.get(f"{name}.bias", 0)


a = "blocks.0.Attn."
z = gelu(apply("preprocess.linear_pre.0", x))
z = apply("preprocess.linear_post", z) + state["placeholder"]
s, f = (apply(f"{a}in_project_{name}", layer_norm(z, (D,))) for name in ("x", "fx"))
s, f = (part.unflatten(-1, (heads, d)).transpose(1, 2) for part in (s, f))
B = (apply(f"{a}in_project_slice", s) / state[f"{a}temperature"]).softmax(-1)
T = B.mT @ f / (B.sum(-2).unsqueeze(-1) + 1e-5)
q, k, v = (apply(f"{a}to_{name}", T) for name in "qkv")
r = state[f"{a}alpha"].sigmoid()
carried = q @ torch.linalg.solve((1 - r) * k.mT @ k + r * state[f"{a}I_d"], k.mT @ v)
z = z + apply(f"{a}to_out.0", (B @ carried).transpose(1, 2).flatten(-2))
hidden = gelu(apply("blocks.0.mlp.linear_pre.0", layer_norm(z, (D,))))
z = z + apply("blocks.0.mlp.linear_post", hidden)
difference = (apply("blocks.0.mlp2", layer_norm(z, (D,))) - out).abs().max().item()
print(f"largest difference: {difference:.1e}")

# %%
figure, axes = plt.subplots(1, 4, figsize=(11, 2.8), sharey=True, layout="constrained")
for i, axis in enumerate(axes):
    axis.scatter(*x[0].T, c=B[0, 0, :, i], s=4)
    axis.set_title(f"basis function {i + 1}")
assert difference < 1e-10  # doubles: rounding of some thousand operations, and nothing else
