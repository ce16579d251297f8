# %% [markdown]
"""# Elasticity on points

A rubber sheet with a hole is pulled at its top. Every hole has another shape, so every case has its
own 972 points, without a grid. Where these points lie is all that the network gets; it gives the
stress at each of them.
"""

# %%
import numpy as np

import funcattn
from funcattn.pde import elasticity
from funcattn.viz import Panel, Row, canvas, point_rows

random = np.random.default_rng(0)
sheets = [elasticity.sample(rng=random) for _ in range(300)]
points = [sheet["points"] for sheet in sheets]
stress = [sheet["stress"] for sheet in sheets]
points[0].shape, stress[0].shape

# %% [markdown]
# No inputs (`None`): the geometry is the input. The last ten sheets are kept away from `fit`, which
# splits the others into those to train with, to choose the epoch by, and to test on.
# %%
surrogate = funcattn.Surrogate(budget="50 s", verbose=True)
surrogate.fit(None, {"stress": stress[:-10]}, positions=points[:-10])
surrogate

# %%
predicted = surrogate.predict(positions=points[-10:])["stress"]
truth = np.stack(stress[-10:])
predicted = np.stack(predicted).reshape(truth.shape)
error = np.linalg.norm(predicted - truth) / np.linalg.norm(truth)
print(f"ten new sheets: {error:.2%} relative error")

# %%
figure = point_rows(
    [
        Row(
            f"sheet {number + 1}",
            canvas(points[number - 10]),
            [
                Panel("stress", truth[number], scale="stress"),
                Panel("prediction", predicted[number], scale="stress"),
                Panel("error", abs(predicted - truth)[number], "magma", from_zero=True),
            ],
        )
        for number in range(2)
    ]
)
assert error < 0.08  # 0.041 where this was written; twice that for other machines
figure
