"""Files that the package writes itself, and commands that read files: see mutations.py."""

import json
import os
import shutil
import sys
import tempfile
import warnings
import weakref
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from mutations import Arrays, Kind

from funcattn.errors import FuncattnError

RANDOM = np.random.default_rng(0)
POSITIONS, NUMBERS = RANDOM.random((15, 2)), RANDOM.random(12)
GRID = np.stack(np.meshgrid(*[np.linspace(0, 1, 4)] * 2, indexing="ij"), -1).reshape(-1, 2)
VALUES = np.cos(GRID[:, :1]) * 4 + 6


@cache
def place() -> Path:
    """A folder that goes with the process."""
    folder = Path(tempfile.mkdtemp(prefix="mutations-"))
    weakref.finalize(place, shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def trained() -> Path:
    """A run on a benchmark."""
    from funcattn.data import Store
    from funcattn.settings import changed
    from funcattn.tasks.darcy import Darcy
    from funcattn.training.run import train

    few = {"optimisation": {"epochs": 1}, "network": {"width": 8, "bases": 3}}
    settings = changed(Darcy.defaults("smoke", "modern"), few)
    with patch.object(os, "fsync"):
        return train(settings, place() / "run", store=Store(place() / "data")).folder


@cache
def fitted() -> Path:
    """A run on own data."""
    from funcattn.surrogate import Surrogate

    small = {"width": 8, "layers": 1, "heads": 2, "bases": 3}
    fields = NUMBERS[:, None] * np.sin(POSITIONS[:, 0])
    with patch.object(os, "fsync"):
        surrogate = Surrogate(epochs=2, network=small, folder=place() / "fit")
        surrogate.fit(NUMBERS, fields, positions=POSITIONS).learning_curve((0.5,))
    return place() / "fit"


def flat(value: object) -> Arrays:
    """A document as something to compare."""
    return {"text": json.dumps(value, sort_keys=True)}


def predicted(run: Path, *, accept_edited: bool = False) -> Arrays:
    """What a run on a benchmark predicts."""
    from funcattn.serve import load

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predictor = load(run, accept_edited=accept_edited)
        return {"out": predictor.predict(GRID, VALUES, grid=(4, 4))}


def told_of_run(run: Path, *, accept_edited: bool = False) -> Arrays:
    """What a run on a benchmark says of itself."""
    from funcattn.training.run import Run

    read = Run(run, accept_edited=accept_edited)
    return flat([read.record, read.history])


def told(run: Path, *, accept_edited: bool = False) -> Arrays:
    """Everything that a run on own data predicts and says."""
    import funcattn
    from funcattn.training.setup import read_json

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        surrogate: Any = funcattn.load(run, accept_edited=accept_edited)
        out = surrogate.predict(NUMBERS[:2])
    names = read_json(surrogate.run.file("surrogate.json"), {"cases": {"test": [str]}})
    return {"out": out} | flat([surrogate.summary(), surrogate.remarks(), names])


def edited(read: Callable[..., Arrays]) -> Callable[[Path], Arrays]:
    """The same of files that somebody says to have changed on purpose: no checksum helps here."""
    return lambda path: read(path, accept_edited=True)


def command(*words: object) -> str:
    """What a command prints; what it refuses is raised, and so is what reaches its last resort."""
    from funcattn import command as entry
    from funcattn.cli import guard

    reached: list[Exception] = []
    out, complaint, code = StringIO(), StringIO(), None
    with (
        patch.object(sys, "argv", ["funcattn", *map(str, words)]),
        patch.object(guard, "_reported", lambda error: reached.append(error) or "reported"),
        redirect_stdout(out),
        redirect_stderr(complaint),
    ):
        try:
            entry.main()
        except SystemExit as stop:
            code = stop.code
    if reached:
        raise reached[0]
    if code:
        lines = [line for line in complaint.getvalue().splitlines() if "warning:" not in line]
        assert len(lines) == 1, complaint.getvalue()
        raise FuncattnError(lines[0])
    return out.getvalue()


def asked(run: Callable[[], Path], ending: str) -> Callable[[Path], Arrays]:
    """`funcattn predict` for an input."""
    from funcattn.data.foreign import read_hdf5, read_npz

    def read(path: Path) -> Arrays:
        out = path.with_name(f"out{ending}")
        command("predict", run(), path, "-o", out)
        return (read_npz if ending == ".npz" else read_hdf5)(out)

    return read


def info(run: Path) -> Arrays:
    """`funcattn info`."""
    return {"text": command("info", run).replace(str(run), "")}


def looked_at(path: Path) -> Arrays:
    """`funcattn inspect`."""
    plan = path.with_name("plan.toml")
    plan.unlink(missing_ok=True)
    said = command("inspect", path, "--plan", plan)
    if not plan.exists():  # the command goes on to the next case, and says why
        raise FuncattnError(said)
    return {"text": plan.read_text().replace(str(path), "").replace(path.stem, "")}


def run_files() -> list[Kind]:
    """Files of runs. Every one that decides numbers has a checksum."""

    def run(path: Path) -> None:
        shutil.copytree(trained(), path)

    def fit(path: Path) -> None:
        shutil.copytree(fitted(), path)

    def packed(path: Path) -> None:
        from funcattn.fitting.packing import pack

        pack(fitted(), path)

    best = "checkpoints/best-*"
    return [
        Kind("run: settings", "", run, predicted, True, "settings.json"),
        Kind("run: weights", "", run, predicted, True, f"{best}/model.safetensors"),
        Kind("run: state", "", run, predicted, True, f"{best}/state.json"),
        Kind("run: checksums of weights", "", run, predicted, True, f"{best}/checksums.json"),
        Kind("run: record", "", run, told_of_run, True, "record.json"),
        Kind("run: history", "", run, told_of_run, True, "metrics.jsonl"),
        Kind("run: settings, edited", "", run, edited(predicted), False, "settings.json", False),
        Kind("run: record, edited", "", run, edited(told_of_run), False, "record.json", False),
        Kind("fit: settings", "", fit, told, True, "settings.json"),
        Kind("fit: points", "", fit, told, True, "positions.npy"),
        Kind("fit: names of cases", "", fit, told, True, "surrogate.json"),
        Kind("fit: yardsticks", "", fit, told, True, "yardsticks.json"),
        Kind("fit: checksums", "", fit, told, True, "checksums.json"),
        Kind("fit: packed", ".zip", packed, told, True),
        Kind("fit: settings, edited", "", fit, edited(told), False, "settings.json", False),
        Kind("fit: learning curve, edited", "", fit, edited(told), False, "learning_curve.json",
             False),
        Kind("info RUN (command)", "", run, info, False, "settings.json"),
    ]  # fmt: skip


def other_files() -> list[Kind]:
    """Meshes, networks, sets, plans, settings and results."""
    import torch

    from funcattn import load_reference
    from funcattn.bench.runner import Measurements
    from funcattn.cli.settings import read_changes
    from funcattn.data import StoredSet
    from funcattn.data.airfrans import read_manifest
    from funcattn.data.foreign import write_hdf5, write_npz
    from funcattn.experiments.engine.results import append_line, read_lines
    from funcattn.fitting.plan import read_plan
    from funcattn.models import Encoded
    from funcattn.settings import RunSettings
    from funcattn.training.race_records import Records
    from funcattn.training.settings import default_settings, from_file

    repository = Path(__file__).parents[1]
    few = {"positions": GRID, "values": VALUES, "grid": np.array([4, 4])}
    case = {"positions": POSITIONS, "input": np.array(0.5)}
    settings = default_settings("darcy", "smoke", "modern")

    def mesh(path: Path) -> None:
        waves = torch.randn(1, 2, 3, 4, generator=torch.Generator().manual_seed(0))
        Encoded((waves, waves * 1j), torch.tensor([0.5]), "a network").save(path)

    def encoded(path: Path) -> Arrays:
        read = Encoded.load(path)
        named = {str(k): each.numpy() for k, each in enumerate(read.coefficients)}
        return named | {"network": read.network, "time": np.asarray(read.time)}

    def public(path: Path) -> None:
        arrays = np.load(repository / "tests/models/data/funcattn_point_shared.npz")
        state = {name[6:]: torch.tensor(arrays[name]) for name in arrays if "state/" in name}
        torch.save(state, path)

    def network(path: Path) -> Arrays:
        state = load_reference(path).state_dict()
        return {name: tensor.numpy() for name, tensor in state.items()}

    def stored(path: Path) -> None:
        trained()
        shutil.copy2(next((place() / "data").rglob("*.h5")), path)

    def read_set(path: Path) -> Arrays:
        made = StoredSet(path)
        about = {name: value for name, value in made.provenance.items() if name != "bytes"}
        rows = range(len(made))
        return {name: made.read(name, rows) for name in about["fields"]} | flat(about)

    def manifest(path: Path) -> None:
        path.mkdir()
        names = [f"airFoil2D_SST_43.597_{k}.932_3.551_3.1_1.0_18.252" for k in range(5)]
        lists = {"full_train": names[:3], "full_test": names[3:]}
        (path / "manifest.json").write_text(json.dumps(lists, indent=1))

    def results(path: Path) -> None:
        line = {"identity": "i", "code": "c", "task": "darcy", "model": "fno", "seed": 0}
        for k in range(3):
            append_line(path, {**line, "test": {"error": k / 7}, "settings": asdict(settings)})

    def outcomes(path: Path) -> Arrays:
        names = ("identity", "code", "task", "model", "seed", "test", "settings")
        return flat([[line[name] for name in names] for line in read_lines(path)])

    def race(path: Path) -> None:
        for k in range(3):
            Records(path).piece({"n": k}, lambda k=k: {"test": k / 7})  # type: ignore[misc]

    def pieces(path: Path) -> Arrays:
        lines = Records(path).lines
        if len(lines) < 3:
            raise FuncattnError(f"{path}: lines that are not whole, whose pieces are made again")
        return flat(lines)

    def bench(path: Path) -> None:
        shapes = json.loads((repository / "results/bench.json").read_text())["measurements"]
        path.write_text(json.dumps({"measurements": dict(list(shapes.items())[:2])}))

    def asked_for(path: Path) -> Arrays:
        read: RunSettings = from_file(settings, read_changes(path), str(path))
        return flat(asdict(read))

    plan = 'cases = "cases"\noutputs = ["p"]\nbudget = "10 min"\nseed = 3\n[network]\nwidth = 8\n'
    toml = 'seed = 3\nmodel = "funcattn"\n[network]\nwidth = 8\n[optimisation]\nrate = 0.5\n'
    whole = json.dumps(asdict(settings), indent=1)

    def text(words: str) -> Callable[[Path], None]:
        return lambda path: path.write_text(words) and None

    return [
        Kind("encoded mesh", ".safetensors", mesh, encoded, True),
        Kind("public checkpoint", ".pt", public, network),
        Kind("data set", ".h5", stored, read_set, True),
        Kind("manifest of AirfRANS", "", manifest, lambda p: flat(read_manifest(p)),
             inside="manifest.json"),
        Kind("results of experiments", ".jsonl", results, outcomes, True),
        Kind("race", ".jsonl", race, pieces, True),
        Kind("measurements", ".json", bench, lambda p: flat(Measurements(p).records)),
        Kind("plan of a fit", ".toml", text(plan), lambda p: flat(asdict(read_plan(p)))),
        Kind("settings in TOML", ".toml", text(toml), asked_for),
        Kind("settings in JSON", ".json", text(whole), asked_for),
        Kind("predict npz (command)", ".npz", lambda p: write_npz(p, few),
             asked(trained, ".npz"), True),
        Kind("predict HDF5 (command)", ".h5", lambda p: write_hdf5(p, few),
             asked(trained, ".h5"), True),
        Kind("predict a case (command)", ".npz", lambda p: write_npz(p, case),
             asked(fitted, ".npz"), True),
        Kind("inspect (command)", ".h5", lambda p: write_hdf5(p, {"positions": POSITIONS,
             "u": POSITIONS[:, 0]}), looked_at, True),
    ]  # fmt: skip


def kinds() -> list[Kind]:
    """All of them."""
    return [*run_files(), *other_files()]
