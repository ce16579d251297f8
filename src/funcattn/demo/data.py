"""The demo's data: Darcy flow, solved when it is first needed."""

import os
from functools import partial
from multiprocessing.pool import Pool
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.progress import Progress

from funcattn.demo.model import Config
from funcattn.pde import darcy

Array = npt.NDArray[np.float32]


def make_sample(index: int, config: Config) -> tuple[Array, Array]:
    """Permeability and pressure of one sample, on the fine grid."""
    a, u = darcy.sample(config.solver_nodes, seed=config.seed, index=index)
    every = config.fine_stride
    return a[::every, ::every].astype(np.float32), u[::every, ::every].astype(np.float32)


def make_data(config: Config, folder: Path, pool: Pool, progress: Progress) -> tuple[Array, Array]:
    """All samples, made in parallel and kept in a file, so that a second run starts at once."""
    samples = config.train + config.validation + config.test
    path = folder / (
        f"darcy_{config.solver_nodes}_{config.fine_stride}_seed{config.seed}_{samples}.npz"
    )
    bar = progress.add_task("Darcy flow, solved", total=samples)
    if path.exists():
        progress.update(bar, completed=samples, description=f"Darcy flow, from {path}")
        with np.load(path) as file:
            return file["permeability"], file["pressure"]
    made = []
    for pair in pool.imap(partial(make_sample, config=config), range(samples), chunksize=4):
        made.append(pair)
        progress.advance(bar)
    permeability, pressure = (np.stack(fields) for fields in zip(*made, strict=True))
    aside = path.with_suffix(".part")
    with aside.open("wb") as file:
        np.savez(file, permeability=permeability, pressure=pressure)
    os.replace(aside, path)
    return permeability, pressure
