"""A surrogate of a time series: two substances that spread and drift on a ring, step by step.

    python examples/own_series.py

The network gives the next frame of both fields from the one before, and is then asked for all
frames from the first. The series are exact: each wave of an advection-diffusion equation is turned
and damped by its own factor, and a substance saturates, u = tanh(w) of the solution w. So u obeys
an equation that is not linear, u_t + v u_x = d (u_xx + 2 u u_x^2 / (1 - u^2)).
"""

import argparse
from typing import Any

import numpy as np
import numpy.typing as npt

import funcattn
from funcattn.data.cases import from_arrays

Array = npt.NDArray[np.float64]


def rings(count: int, nodes: int = 32, frames: int = 6, seed: int = 0) -> tuple[Array, Array]:
    """Two fields (N n t 2) at `frames` times, and these times."""
    random = np.random.default_rng(seed)
    times = np.linspace(0, 0.5, frames)
    k = np.arange(1, 4)
    x = np.linspace(0, 1, nodes)
    start = random.normal(size=(count, 3, 2)) + 1j * random.normal(size=(count, 3, 2))
    speed = 2j * np.pi * k[:, None] * np.array([0.6, -0.3])
    decay = (2 * np.pi * k[:, None]) ** 2 * np.array([0.01, 0.02])
    factors = np.exp(-(speed + decay) * times[:, None, None])  # (t k 2)
    waves = np.exp(2j * np.pi * k[:, None] * x)  # (k n)
    return np.tanh(np.einsum("bkc,tkc,kn->bntc", start, factors, waves).real), times


def main(count: int = 240, budget: str = "3 min", **settings: Any) -> dict[str, float]:
    """Fit to series, then predict all frames of new ones from their first."""
    series, times = rings(count + 10)
    surrogate = funcattn.Surrogate(budget=budget, time="steps", **settings)
    surrogate.fit(None, {"substances": series[:count]}, grid=(series.shape[1],), times=times)
    new = series[count:]
    cases = from_arrays(None, {"substances": new}, grid=(series.shape[1],), times=times)
    predicted = np.stack([case["substances"] for case in surrogate.predict(cases)])
    truth = new[:, :, 1:]
    relative = np.linalg.norm(predicted - truth) / np.linalg.norm(truth)
    still = np.linalg.norm(new[:, :, :1] - truth) / np.linalg.norm(truth)
    print(surrogate)
    print(f"10 new series: relative error {relative:.3g}; if nothing changed: {still:.3g}")
    return {"relative": float(relative), "nothing changes": float(still)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=240)
    parser.add_argument("--budget", default="3 min")
    asked = parser.parse_args()
    main(asked.count, asked.budget)
