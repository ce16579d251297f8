# %% [markdown]
"""# A million points

Functional attention keeps a few coefficients of a mesh, however many points it has. So a network
that was trained with 2,000 points can be given a million: the work grows in proportion, the memory
does not have to. The equation is -laplace u = f on the unit square with u = 0 on its boundary,
whose answer is known for every sum of sines.
"""

# %%
from functools import partial
from time import process_time

import numpy as np
import torch

from funcattn import FunctionalAttention, OperatorTransformer
from funcattn.models import predict_streamed
from funcattn.viz import Panel, Row, canvas, point_rows


def problem(points, count, seed):
    """Positions (count, points, 2), f and u (count, points, 1)."""
    random = torch.Generator().manual_seed(seed)
    x = torch.rand(count, points, 2, generator=random)
    strength = torch.randn(count, 1, 2, 2, generator=random)
    waves = (torch.pi * x.unsqueeze(-1) * torch.tensor([1.0, 2.0])).sin()
    products = waves[:, :, 0, :, None] * waves[:, :, 1, None, :]
    damping = 2 / torch.tensor([[2.0, 5.0], [5.0, 8.0]])
    f, u = (
        (products * part).sum((-2, -1)).unsqueeze(-1) for part in (strength, strength * damping)
    )
    return x, f, u


torch.manual_seed(0)
attention = partial(FunctionalAttention, heads=4, bases=16)
model = OperatorTransformer(2, 1, 1, width=32, layers=2, attention=attention)
optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 5e-3, total_steps=400)
for step in range(400):
    x, f, u = problem(2000, 4, seed=step + 1)
    loss = ((model(x, f) - u).norm(dim=1) / u.norm(dim=1)).mean()
    optimiser.zero_grad(), loss.backward(), optimiser.step(), schedule.step()

# %% [markdown]
# Now a million points. They go through the network in chunks; given memory maps of files instead
# of arrays, they are never in memory all at once. This brief training leaves a large error; what we
# look at is that it is the same at a million points as at 2,000.
# %%
x, f, u = (part[0].numpy() for part in problem(1_000_000, 1, seed=0))
predicted, started = np.empty_like(u), process_time()
encoded = predict_streamed(model.eval(), x, f, out=predicted)
seconds = process_time() - started
few = [torch.from_numpy(part[None, :2000]) for part in (x, f)]
few_predicted = model(*few).detach()[0].numpy()
error = np.linalg.norm(predicted - u) / np.linalg.norm(u)
error_few = np.linalg.norm(few_predicted - u[:2000]) / np.linalg.norm(u[:2000])
print(f"relative error at a million points: {error:.1%}, in {seconds:.0f} CPU seconds")
print(f"relative error at the first 2,000 of them: {error_few:.1%}")
print(f"the whole mesh in {encoded.nbytes / 1024:.0f} KiB of coefficients")

# %%
panels = [Panel("f", f[:, 0], "cividis"), Panel("u", u[:, 0], scale="u")]
panels += [Panel("prediction", predicted[:, 0], scale="u")]
figure = point_rows([Row("20,000 of a million", canvas(x, most=20_000), panels)])
assert abs(error - error_few) < 0.02  # what 2,000 random points know of the error at a million
figure
