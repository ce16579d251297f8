"""Train on a mesh that no process holds: its points are spread over the ranks.

    torchrun --nproc-per-node 2 examples/spread_mesh.py --points 200000 --out runs/spread

The network learns to solve the Poisson equation -laplace u = f on the unit square, u = 0 on its
boundary, for random smooth f. With f = sum of a_kl sin(k pi x) sin(l pi y) the answer is known:
u = sum of a_kl / (pi^2 (k^2 + l^2)) sin(k pi x) sin(l pi y). Point number i is a function of i
alone, so each rank makes its own part of the mesh, and only that.

A rank that dies stops the others. The same command with --resume goes on from the last checkpoint,
with any number of ranks, and comes to the same numbers (to the bit with the same number).
"""

import json
import math
import os
import shlex
import shutil
import signal
import sys
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist
import tyro
from torch import Tensor

from funcattn import FunctionalAttention, OperatorTransformer
from funcattn.files import write_text
from funcattn.nn.sharding import spread_points, sum_gradients
from funcattn.ops.sharding import RankLostError, share_of_rank, sum_over_ranks
from funcattn.provenance import facts
from funcattn.training.checkpoint import (
    Checkpoint,
    CheckpointError,
    load_checkpoint,
    model_tensors,
    optimiser_document,
    optimiser_tensors,
    restore_model,
    restore_optimiser,
    save_checkpoint,
)

WAVES = 2
"""The largest wave number on each axis."""
TEST_FUNCTIONS = 4


@dataclass(frozen=True)
class Settings:
    """Everything that decides the numbers."""

    points: int = 200_000
    """Of the whole mesh."""
    steps: int = 300
    batch: int = 4
    """Functions in a step."""
    width: int = 32
    layers: int = 2
    heads: int = 4
    bases: int = 16
    rate: float = 5e-3
    seed: int = 0


@dataclass(frozen=True)
class Options:
    """How it is run."""

    settings: tyro.conf.OmitArgPrefixes[Settings]
    out: Path = Path("runs/spread_mesh")
    """A folder that all ranks see."""
    resume: bool = False
    checkpoint_every: int = 20
    """Steps between checkpoints."""
    timeout: int = 60
    """Seconds that a rank waits for the others."""


class Stopped(Exception):  # noqa: N818
    """The launcher has asked this rank to end."""


def positions_of(first: int, last: int) -> Tensor:
    """Points first to last - 1 of the mesh, (1 n 2): a sequence that fills the square evenly."""
    # The plastic number, the root of p^3 = p + 1, gives the steps that recur the latest.
    plastic = 1.324717957244746
    steps = torch.tensor([1 / plastic, 1 / plastic**2], dtype=torch.float64)
    index = torch.arange(first, last, dtype=torch.float64).unsqueeze(1)
    return ((0.5 + index * steps) % 1).float().unsqueeze(0)


def equations(positions: Tensor, samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Right-hand sides and solutions at the points, (b n 1) each, both of order one."""
    waves = torch.arange(1, WAVES + 1, dtype=torch.float32)
    strength = torch.randn(samples, WAVES, WAVES, generator=generator)
    sines = (math.pi * positions.unsqueeze(-1) * waves).sin()[0]  # (n, 2, k)
    eigenvalues = waves[:, None] ** 2 + waves**2
    fields = [
        torch.einsum("nk,nl,bkl->bn", sines[:, 0], sines[:, 1], a).unsqueeze(-1)
        for a in (strength, 2 * strength / eigenvalues)
    ]
    return fields[0], fields[1]


def relative_error(
    model: OperatorTransformer, positions: Tensor, samples: int, generator: torch.Generator
) -> Tensor:
    """The mean over samples of ||error|| / ||solution||, over the points of all ranks."""
    given, truth = equations(positions, samples, generator)
    prediction = model(positions.expand(samples, -1, -1), given)
    squares = torch.stack([(prediction - truth).square().sum((1, 2)), truth.square().sum((1, 2))])
    error, size = sum_over_ranks(squares, _all_ranks())
    ratio: Tensor = error / size
    return ratio.sqrt().mean()


def train(options: Options) -> None:
    """All steps, from the newest checkpoint where there is one to resume from."""
    settings, rank, ranks = options.settings, dist.get_rank(), dist.get_world_size()
    torch.manual_seed(settings.seed)
    attention = partial(FunctionalAttention, heads=settings.heads, bases=settings.bases)
    model = OperatorTransformer(
        2, 1, 1, width=settings.width, layers=settings.layers, attention=attention
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.rate)
    done = restore(options, model, optimiser) if options.resume else 0
    spread_points(model, _all_ranks())
    edges = [settings.points * r // ranks for r in range(ranks + 1)]
    positions = positions_of(edges[rank], edges[rank + 1])
    say(f"{settings.points} points over {ranks} ranks, {positions.shape[1]} of them here")
    started = time.monotonic()
    for step in range(done, settings.steps):
        # Steps count from 1, so that seed 0 of a run is left for its test.
        loss = relative_error(model, positions, settings.batch, drawn(settings.seed, step + 1))
        optimiser.zero_grad()
        share_of_rank(loss, _all_ranks()).backward()
        sum_gradients(model, _all_ranks())
        optimiser.step()
        last = step + 1 == settings.steps
        if last or (step + 1) % options.checkpoint_every == 0:
            if rank == 0:
                save(options, model, optimiser, step + 1)
            seconds = (time.monotonic() - started) / (step + 1 - done)
            say(f"step {step + 1}: relative error {loss.item():.4f}, {seconds:.2f} s per step")
    with torch.no_grad():
        error = relative_error(model, positions, TEST_FUNCTIONS, drawn(settings.seed, 0)).item()
    say(f"test: relative error {error:.4f}")
    if rank == 0:
        record = {"test_error": error, "ranks": ranks, "settings": asdict(settings), **facts()}
        write_text(options.out / "record.json", json.dumps(record, indent=1))


def save(
    options: Options, model: OperatorTransformer, optimiser: torch.optim.Optimizer, step: int
) -> None:
    """Write a checkpoint, and remove all but the last two."""
    tensors = {"model": model_tensors(model), "optimiser": optimiser_tensors(optimiser)}
    document = {
        "step": step,
        "settings": asdict(options.settings),
        "optimiser": optimiser_document(optimiser),
    }
    folder = options.out / f"step-{step:06d}"
    # A damaged one of before the run was resumed.
    shutil.rmtree(folder, ignore_errors=True)
    save_checkpoint(folder, Checkpoint(tensors, document))
    for old in checkpoints(options)[:-2]:
        shutil.rmtree(old)


def restore(options: Options, model: OperatorTransformer, optimiser: torch.optim.Optimizer) -> int:
    """Go back to the newest whole checkpoint; the number of steps that are done."""
    for folder in reversed(checkpoints(options)):
        try:
            saved = load_checkpoint(folder)
        except CheckpointError as error:
            say(f"passed over: {error}")
            continue
        if saved.document["settings"] != asdict(options.settings):
            raise CheckpointError(
                f"expected the settings of {folder}, {saved.document['settings']}, got "
                f"{asdict(options.settings)}; bring the old ones back, or start a new run"
            )
        restore_model(model, saved.tensors["model"])
        restore_optimiser(optimiser, saved.tensors["optimiser"], saved.document["optimiser"])
        return int(saved.document["step"])
    return 0


def checkpoints(options: Options) -> list[Path]:
    """The oldest first."""
    return sorted(options.out.glob("step-*"))


def drawn(*place: int) -> torch.Generator:
    """The randomness of one step of a run, the same on all ranks."""
    seed, step = place
    return torch.Generator().manual_seed(1_000_003 * seed + step)


def say(text: str) -> None:
    """A line from the first rank."""
    if dist.get_rank() == 0:
        print(text, flush=True)


def _all_ranks() -> dist.ProcessGroup:
    assert dist.group.WORLD is not None
    return dist.group.WORLD


def _stop(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
    name = signal.Signals(signum).name
    raise Stopped(f"another rank has ended, or the whole run was asked to ({name})")


def main() -> int:
    """Train; the exit code."""
    options = tyro.cli(Options)
    if not options.resume and checkpoints(options):
        sys.stderr.write(
            f"{options.out}: expected a new folder, got one with checkpoints; go on with --resume, "
            "or choose another --out\n"
        )
        return 2
    signal.signal(signal.SIGTERM, _stop)
    try:
        dist.init_process_group("gloo", timeout=timedelta(seconds=options.timeout))
        train(options)
        dist.destroy_process_group()
    except CheckpointError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (RankLostError, Stopped) as error:
        # The launcher asks too, and must not cut the message short.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        line = [argument for argument in sys.argv if argument != "--resume"]
        again = shlex.join(
            ["torchrun", "--nproc-per-node", os.environ["WORLD_SIZE"], *line, "--resume"]
        )
        sys.stderr.write(
            f"rank {os.environ['RANK']} stops: {error}\n"
            f"go on from the last checkpoint with\n    {again}\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
