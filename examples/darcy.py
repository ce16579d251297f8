# %% [markdown]
"""# Darcy flow

Water seeps through ground whose permeability is 3 in some places and 12 in others:
-div(a grad u) = 1, with pressure u = 0 on the boundary. A finite-difference solver makes 240 cases,
from which a `Surrogate` learns the way from permeability to pressure.
"""

# %%
import numpy as np

import funcattn
from funcattn.pde import darcy
from funcattn.viz import Panel, field_rows


def cases(count, nodes, keep, seed=0):
    """Permeability and pressure, (count, n, n) each."""
    random = np.random.default_rng(seed)
    drawn = [darcy.sample(nodes=nodes, keep=keep, rng=random) for _ in range(count)]
    return tuple(np.stack([each[name] for each in drawn]) for name in ("permeability", "pressure"))


permeability, pressure = cases(240, nodes=85, keep=4)  # solved on 85 x 85, kept on 22 x 22 points
permeability.shape

# %% [markdown]
# `fit` splits the cases, takes the size of the network and the number of epochs from the budget,
# chooses the epoch on validation data, and tests once. The result stands beside those of cheap
# predictions, which a surrogate has to beat.
# %%
surrogate = funcattn.Surrogate(budget="40 s", verbose=True)
surrogate.fit({"permeability": permeability}, {"pressure": pressure})
surrogate

# %% [markdown]
# The network knows functions, not pixels: ask it on a grid that it never saw, four times as fine.
# %%
fine, truth = cases(3, nodes=85, keep=1, seed=1)
predicted = surrogate.predict({"permeability": fine})["pressure"]
error = np.linalg.norm(predicted - truth) / np.linalg.norm(truth)
print(f"three new cases on 85 x 85 points: {error:.2%} relative error")

# %%
figure = field_rows(
    {
        f"case {number + 1}": [
            Panel("permeability", fine[number], "cividis"),
            Panel("pressure", truth[number], scale="pressure"),
            Panel("prediction", predicted[number], scale="pressure"),
            Panel("error", abs(predicted - truth)[number], "magma", from_zero=True),
        ]
        for number in range(2)
    }
)
assert error < 0.03  # 0.0125 where this was written; twice that for other machines
figure
