# %% [markdown]
"""# A time series with two fields

Two substances spread and drift on a ring, the first to the right, the second to the left. The
network learns the step from one frame to the next. Then it is asked for all frames of new series,
given only their first.
"""

# %%
import numpy as np
from matplotlib import pyplot as plt

import funcattn
from funcattn.data.cases import from_arrays


def rings(count, nodes=32, frames=6, seed=0):
    """Two fields (count, nodes, frames) and the times: each wave is turned and damped exactly."""
    random = np.random.default_rng(seed)
    times, x, k = np.linspace(0, 0.5, frames), np.linspace(0, 1, nodes), np.arange(1, 4)
    start = random.normal(size=(count, 3, 2)) + 1j * random.normal(size=(count, 3, 2))
    drift = 2j * np.pi * k[:, None] * np.array([0.6, -0.3])
    decay = (2 * np.pi * k[:, None]) ** 2 * np.array([0.01, 0.02])
    factors = np.exp(-(drift + decay) * times[:, None, None])  # frame, wave, substance
    waves = np.exp(2j * np.pi * k[:, None] * x)
    fields = np.tanh(np.einsum("bkc,tkc,kn->cbnt", start, factors, waves).real)
    return {"first": fields[0], "second": fields[1]}, times


series, times = rings(250)
seen = {name: field[:240] for name, field in series.items()}
new = {name: field[240:] for name, field in series.items()}

# %% [markdown]
# The axis of time comes after the points. `time="steps"` learns from frame to frame; `time="times"`
# would learn the field at any time from the start.
# %%
surrogate = funcattn.Surrogate(budget="80 s", time="steps", verbose=True)
surrogate.fit(None, seen, grid=(32,), times=times)
surrogate

# %%
cases = from_arrays(None, new, grid=(32,), times=times)
predicted = surrogate.predict(cases)
ours = {name: np.stack([case[name] for case in predicted]).squeeze() for name in new}
truth = np.stack([field[:, :, 1:] for field in new.values()])
error, unchanged = (
    np.linalg.norm(guess - truth) / np.linalg.norm(truth)
    for guess in (np.stack(list(ours.values())), np.stack([f[:, :, :1] for f in new.values()]))
)
print(f"ten new series: {error:.2%} relative error; if nothing changed: {unchanged:.0%}")

# %%
figure, axes = plt.subplots(2, 5, figsize=(11, 4), sharex=True, sharey=True, layout="constrained")
for row, name in zip(axes, new, strict=True):
    for frame, axis in enumerate(row):
        axis.plot(new[name][0, :, frame + 1], "k", label="truth")
        axis.plot(ours[name][0, :, frame], "--", color="C1", label="prediction")
        axis.set_title(f"{name}, frame {frame + 1}", fontsize=9)
axes[0, 0].legend(fontsize=8)
assert error < 0.1 < unchanged  # 0.047 where this was written; twice that for other machines
