"""The error that a permeability seen on a coarse grid leaves open in the pressure of Darcy flow.

    python benchmarks/darcy_floor.py [--grid 22] [--fields 100] [--draws 64]

The pressure is solved from a permeability on 211 x 211 points, 3 or 12 by the sign of a Gaussian
random field; a network sees the sign on every tenth point of each axis, 22 x 22. Many fields share
these signs, and their pressures differ. The best guess is the mean of the pressures of all of them.

For each field of the test samples further ones are drawn by its law on condition of the same signs:

1. Values at the seen points by an exact Hamiltonian Monte Carlo method for a normal law cut by
   half-spaces (Pakman and Paninski, 2014). The chain begins at the sample's own field, which is
   itself a draw from that law, so that it needs no burning in.
2. Everything between them by an unconditioned field plus the kriging of the difference at the seen
   points.

The floor is the mean over the samples of |u - mean of the draws| / |u| at the seen points. The mean
of all fields with these signs is the best guess in the mean square; for the mean of relative errors
another guess may be a little better. That of finitely many draws is
a little worse: by the factor sqrt(1 + 1 / draws), which is taken off. Draws of one chain are alike,
so that the factor is more, and the true floor a little lower; half the draws show how much. Where a
chain has not left its start the number is too low. Writes results/darcy_floor.json.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.progress import track
from scipy.linalg import cho_factor, cho_solve

from funcattn.documents import read_json
from funcattn.files import write_text
from funcattn.pde import darcy
from funcattn.pde.random_fields import neumann_field
from funcattn.provenance import facts
from funcattn.tasks.darcy import Darcy

Array = npt.NDArray[np.float64]
RESULT = Path("results/darcy_floor.json")
NODES = 211
"""Points per axis of the solution, as in profile `cpu`."""
TRAVEL = np.pi / 2
"""Time of one flight of the chain, a quarter of a period."""


def variances() -> Array:
    """Of the coefficients of the field, as `neumann_field` has them, (k, k)."""
    k = np.arange(NODES)
    variance: Array = 9.0 * (np.pi**2 * (k[:, None] ** 2 + k[None, :] ** 2) + 9.0) ** -2.0
    variance[0, 0] = 0.0
    return variance


def cosines() -> Array:
    """The functions of these coefficients at the nodes of an axis, (k, i)."""
    k = np.arange(NODES)
    values: Array = np.cos(np.pi * k[:, None] * k / (NODES - 1))
    values[1:] *= 2.0**0.5
    return values


def covariance(grid: int) -> Array:
    """Of the field's values on a grid nested in that of the solution, (grid^2, grid^2).

    Example:
        >>> seen = covariance(3)
        >>> seen.shape, bool(np.allclose(seen, seen.T))
        ((9, 9), True)
    """
    waves = cosines()[:, :: (NODES - 1) // (grid - 1)]  # (k, grid)
    pairs = (waves[:, :, None] * waves[:, None, :]).reshape(NODES, -1)  # (k, i i')
    every = pairs.T @ variances() @ pairs  # (i i', j j')
    every = every.reshape(grid, grid, grid, grid).transpose(0, 2, 1, 3)
    return every.reshape(grid**2, grid**2)


def flown(
    place: Array, walls: Array, between: Array, rng: np.random.Generator
) -> tuple[Array, int]:
    """One flight in the standard normal law on walls @ x >= 0, from a place there; and bounces.

    place: (d,); walls: (w, d), each of length 1; between: their products, (w, w).
    """
    speed = rng.standard_normal(len(place))
    height, rise = walls @ place, walls @ speed
    left, bounces, last = TRAVEL, 0, -1
    while True:
        # Along x(t) = place cos t + speed sin t a height is r cos(t - angle), 0 at angle + pi / 2.
        hit = (np.arctan2(rise, height) + np.pi / 2) % (2 * np.pi)
        if last >= 0:
            hit[last] = np.pi  # the wall it left: there again after half a period
        wall = int(hit.argmin())
        step = min(float(hit[wall]), left)
        c, s = np.cos(step), np.sin(step)
        place, speed = c * place + s * speed, c * speed - s * place
        height, rise = c * height + s * rise, c * rise - s * height
        left -= step
        if left <= 0:
            return place, bounces
        turn = 2 * rise[wall]
        speed = speed - turn * walls[wall]
        rise = rise - turn * between[wall]
        bounces, last = bounces + 1, wall


def fields_of_test(grid: int) -> Iterator[tuple[Array, Array]]:
    """The field and the pressure of each test sample of profile `cpu`, (n, n) and (grid, grid)."""
    task = Darcy(Darcy.defaults("cpu", "modern"))
    data, every = task.data, (NODES - 1) // (grid - 1)
    kept = (slice(None, None, every),) * 2
    first = data.train + data.validation
    for row in range(first, first + data.test):
        field = neumann_field(NODES, rng=np.random.default_rng([data.seed, row, 0]))
        yield field, darcy.solve(darcy.permeability(field))[kept]


def floor(grid: int, fields: int, draws: int, seed: int) -> dict[str, object]:
    """The error that the signs on a grid leave, and what it was found from."""
    rng = np.random.default_rng(seed)
    every = (NODES - 1) // (grid - 1)
    kept = (slice(None, None, every),) * 2
    law = covariance(grid)
    law[np.diag_indices_from(law)] += 1e-10 * law.diagonal().mean()  # rounding
    root = np.linalg.cholesky(law)
    factor = cho_factor(law)
    waves, variance = cosines(), variances()

    def kriged(values: Array) -> Array:
        """The mean of the field (n, n) on condition of its values (grid, grid)."""
        weights = cho_solve(factor, values.ravel()).reshape(grid, grid)
        seen = waves[:, ::every]
        mean: Array = waves.T @ (variance * (seen @ weights @ seen.T)) @ waves
        return mean

    errors: dict[int, list[float]] = {draws: [], draws // 2: []}
    bounces = 0
    samples = islice(fields_of_test(grid), fields)
    for field, truth in track(samples, f"fields seen on {grid} x {grid}", fields):
        values = field[kept].ravel()
        walls = np.where(values >= 0, 1.0, -1.0)[:, None] * root
        walls /= np.linalg.norm(walls, axis=1, keepdims=True)
        products = walls @ walls.T
        place = np.linalg.solve(root, values)
        guesses = []
        for _ in range(draws):
            place, more = flown(place, walls, products, rng)
            bounces += more
            other = neumann_field(NODES, rng=rng)
            drawn = other + kriged((root @ place).reshape(grid, grid) - other[kept])
            if ((drawn[kept].ravel() >= 0) != (values >= 0)).mean() > 0.01:
                raise ArithmeticError("expected a draw with the same signs, got another")
            guesses.append(darcy.solve(darcy.permeability(drawn), tolerance=1e-6)[kept])
        for count, found in errors.items():
            mean = np.mean(guesses[-count:], axis=0)
            off = float(np.linalg.norm(truth - mean) / np.linalg.norm(truth))
            found.append(off / (1 + 1 / count) ** 0.5)
    return {
        "grid": grid,
        "fields": len(errors[draws]),
        "draws": draws,
        "seed": seed,
        "floor": float(np.mean(errors[draws])),
        "standard error": float(np.std(errors[draws], ddof=1) / len(errors[draws]) ** 0.5),
        "with half the draws": float(np.mean(errors[draws // 2])),
        "bounces per flight": round(bounces / len(errors[draws]) / draws, 1),
    }


def main() -> None:
    """Compute and keep, beside what is known of other grids."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--grid", type=int, default=22)
    parser.add_argument("--fields", type=int, default=100)
    parser.add_argument("--draws", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to", type=Path, default=RESULT)
    options = parser.parse_args()
    began = time.process_time()
    found = floor(options.grid, options.fields, options.draws, options.seed)
    found |= {
        "cpu seconds": round(time.process_time() - began, 1),
        "command": shlex.join(["python", "benchmarks/darcy_floor.py", *sys.argv[1:]]),
        **facts(),
    }
    known = read_json(options.to) if options.to.exists() else {}
    known[f"{options.grid} x {options.grid}"] = found
    write_text(options.to, json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
