"""Random requests: no failure of the service, no wrong number, no growth of memory."""

import gc
import io
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from starlette.testclient import TestClient

from funcattn import load
from funcattn.serve.limits import Limits
from funcattn.serve.model import ServedModel

JSON, NPZ, HDF5, VTK = (
    "application/json",
    "application/x-npz",
    "application/x-hdf5",
    "application/vnd.vtk",
)
ROUTES = ("predict", "input", "inspect", "random", "solve")
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1e308,
    -(10**30),
    float("nan"),
    float("inf"),
    "",
    "../../etc/passwd",
    "\x00",
    [],
    [[]],
    [[1, 2], [3]],
    {},
    {"dtype": "float32", "shape": [-1], "data": ""},
    {"dtype": "float32", "shape": [2**39, 2**39], "data": "AAAA"},
    {"dtype": "object", "shape": [1], "data": "gASVAAAAAA=="},
    {"__reduce__": "os.system"},
    [[[[[[1]]]]]],
)
NAMES = ("parameters", "positions", "values", "grid", "weights", "mask", "context", "refine")
NAMES += ("layer", "head", "seed", "fields", "permeability", "radii", "path")


def request(draw: random.Random, good: Mapping[str, Any]) -> tuple[str, bytes]:
    """A content type and a body: a good request that was spoilt, or noise."""
    choice = draw.random()
    if choice < 0.1:
        return draw.choice((JSON, NPZ, HDF5, VTK, "text/html")), draw.randbytes(
            draw.randint(0, 500)
        )
    if choice < 0.3:
        stream = io.BytesIO()
        arrays = {name: np.array(good[name]) for name in ("positions", "values", "grid")}
        if draw.random() < 0.5:
            del arrays[draw.choice(list(arrays))]
        np.savez(stream, **arrays)
        body = bytearray(stream.getvalue())
        for _ in range(draw.randint(0, 3)):
            body[draw.randrange(len(body))] = draw.randrange(256)
        return NPZ, bytes(body[: draw.randint(1, len(body))] if draw.random() < 0.3 else body)
    spoilt = dict(good)
    for _ in range(draw.randint(1, 3)):
        spoilt[draw.choice(NAMES)] = draw.choice(ODD)
    if draw.random() < 0.5:
        spoilt.pop(draw.choice(list(spoilt)))
    text = json.dumps(spoilt).encode()
    if draw.random() < 0.2:
        text = text[: draw.randrange(len(text))]
    return JSON, text


def fuzzed(
    models: Mapping[str, ServedModel],
    service_of: Callable[..., TestClient],
    folder: Path,
    count: int,
) -> None:
    draw = random.Random(count)
    limits = Limits(points=5000, body=200_000, seconds=300.0, solve_seconds=60.0)
    process = psutil.Process()
    sizes = []
    with service_of(models, limits) as client:
        good: dict[str, Any] = {}
        for name in ("darcy", "elasticity", "waves"):
            sample = client.get(f"/models/{name}").json()["sample"] or {}
            given = {key: sample[key] for key in ("positions", "values", "grid") if key in sample}
            good[name] = {"positions": [[0.1, 0.2]], "values": [[3.0]], "grid": [1, 1]} | given
        asked = good["darcy"]
        truth = load(folder).predict(
            np.array(asked["positions"]), np.array(asked["values"]), grid=asked["grid"]
        )
        for number in range(count):
            name = draw.choice(list(good))
            route = draw.choices(ROUTES, (8, 2, 2, 1, 1))[0]
            kind, body = request(draw, good[name])
            reply = client.post(
                f"/models/{name}/{route}", content=body, headers={"content-type": kind}
            )
            assert reply.status_code in (200, 202, 413, 422, 503), (
                name,
                route,
                kind,
                body[:300],
                reply.text,
            )
            if reply.status_code == 200 and kind == JSON:
                assert "NaN" not in reply.text
                assert "Infinity" not in reply.text
            elif reply.status_code != 200 and reply.status_code != 202:
                assert reply.json()["detail"]
            if number % 20 == 0:
                # In between, a good request gets the right numbers.
                found = client.post("/models/darcy/predict", json=asked).json()
                np.testing.assert_array_equal(np.float32(found["outputs"]["pressure"]), truth[:, 0])
            if number % 10 == 0:
                gc.collect()
                sizes.append(process.memory_info().rss)
        assert client.get("/health").json()["status"] == "ok"
    # After a warm-up, nothing more is kept: at 100 kB per request this would be a hundred times.
    grown = max(sizes[-3:]) - max(sizes[: max(3, len(sizes) // 3)])
    assert grown < 40 * 2**20, f"{grown / 2**20:.0f} MiB more after {count} requests"


def test_a_hundred_random_requests(
    models: Mapping[str, ServedModel],
    service_of: Callable[..., TestClient],
    runs: Mapping[str, Path],
) -> None:
    fuzzed(models, service_of, runs["darcy"], 100)


@pytest.mark.full
def test_a_thousand_random_requests(
    models: Mapping[str, ServedModel],
    service_of: Callable[..., TestClient],
    runs: Mapping[str, Path],
) -> None:
    fuzzed(models, service_of, runs["darcy"], 1000)
