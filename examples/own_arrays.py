"""A surrogate from arrays on a grid: the temperature of a plate from its heat sources.

    python examples/own_arrays.py

Sources are sums of waves. The temperature solves -laplace(u) = f with u = 0 on the boundary; this
is exact, as every wave has its factor. The conductivity is a number that holds for a whole plate.
"""

import argparse
from typing import Any

import numpy as np
import numpy.typing as npt

import funcattn

Array = npt.NDArray[np.float64]


def plates(count: int, nodes: int = 16, seed: int = 0) -> tuple[Array, Array, Array]:
    """Sources (N H W), conductivities (N), and temperatures (N H W)."""
    random = np.random.default_rng(seed)
    x = np.linspace(0, 1, nodes)
    waves = np.sin(np.pi * np.arange(1, 5)[:, None] * x)  # (k H)
    amplitudes = random.normal(size=(count, 4, 4))
    factors = np.pi**2 * (np.arange(1, 5)[:, None] ** 2 + np.arange(1, 5) ** 2)
    conductivity = random.uniform(0.5, 2.0, count)
    sources = np.einsum("nkl,kx,ly->nxy", amplitudes, waves, waves)
    temperatures = np.einsum("nkl,kx,ly->nxy", amplitudes / factors, waves, waves)
    return sources, conductivity, temperatures / conductivity[:, None, None]


def main(
    count: int = 200, budget: str = "3 min", nodes: int = 16, **settings: Any
) -> dict[str, float]:
    """Fit, predict plates that were never seen, and say how well."""
    sources, conductivity, temperatures = plates(count + 20, nodes)
    seen, new = slice(0, count), slice(count, None)
    surrogate = funcattn.Surrogate(budget=budget, **settings)
    surrogate.fit(
        {"source": sources[seen], "conductivity": conductivity[seen]},
        {"temperature": temperatures[seen]},
    )
    given = {"source": sources[new], "conductivity": conductivity[new]}
    predicted = surrogate.predict(given)["temperature"]
    truth = temperatures[new]
    relative = np.linalg.norm(predicted - truth) / np.linalg.norm(truth)
    score = surrogate.score(given, {"temperature": truth})
    print(surrogate)
    print(f"20 new plates: relative error {relative:.3g}, R2 {score:.4f}")
    yardsticks = {name: each["error"] for name, each in surrogate.comparison.items()}
    error = surrogate.run.record["test"]["error"]
    return {"relative": float(relative), "error": error, **yardsticks}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--budget", default="3 min")
    asked = parser.parse_args()
    main(asked.count, asked.budget)
