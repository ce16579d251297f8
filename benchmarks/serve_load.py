"""Throughput and latency of the service on loopback, at 1, 8 and 64 clients.

    python benchmarks/serve_load.py RUN --out results/serve_load.json

Starts `funcattn serve RUN`, asks for as many predictions as --requests says (or for --seconds at
most) from each number of clients, and compares with the single call of `funcattn.load(RUN).predict`
in this process. Every answer is compared with that call's: one alone to the bit, batched ones to
1e-6 of the field's size. All clients are connected before the clock starts. It needs an otherwise
idle machine, whose cores the clients share. On a busy one only the CPU times mean something: those
of the service and of the clients per request. `load_average` says which it was.
"""

import argparse
import asyncio
import base64
import json
import os
import re
import ssl
import statistics
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import psutil

import funcattn
from funcattn.fitting.served import served
from funcattn.provenance import facts

CLIENTS = (1, 8, 64)


def single_call(run: Path, rounds: int) -> tuple[dict[str, Any], Any, float, float]:
    """A request, its answer, the median time of the answer in Python, and its mean CPU time."""
    model = served(run)
    assert model.editor is not None
    parameters = model.editor.random(np.random.default_rng(0))
    drawing = model.editor.draw(parameters, 1)
    predictor: Any = funcattn.load(run)
    times = []
    mine = time.process_time()
    for _ in range(rounds):
        start = time.perf_counter()
        out = predictor.predict(
            drawing.positions, drawing.values, context=drawing.context, grid=drawing.grid
        )
        times.append(time.perf_counter() - start)
    cpu = (time.process_time() - mine) / rounds
    request = {
        name: _packed(array)
        for name, array in (
            ("positions", drawing.positions),
            ("values", drawing.values),
            ("context", drawing.context),
        )
        if array is not None
    }
    if drawing.grid is not None:
        request["grid"] = list(drawing.grid)
    return request, out, statistics.median(times), cpu


def _packed(array: Any) -> dict[str, Any]:
    data = base64.b64encode(np.ascontiguousarray(array, "<f8").tobytes()).decode()
    return {"dtype": "float64", "shape": list(array.shape), "data": data}


@dataclass
class Load:
    """What a number of clients saw."""

    answers: list[tuple[float, int, bytes]] = field(default_factory=list)
    """Time, status and content of each."""
    seconds: float = 0.0
    client_cpu: float = 0.0
    service_cpu: float = 0.0


async def load(
    service: psutil.Process, url: str, body: bytes, clients: int, requests: int, seconds: float
) -> Load:
    """Ask from clients that are connected before the clock starts."""
    seen = Load()
    left = requests
    headers = {"content-type": "application/json"}
    # Otherwise each client makes a context of its own, at 20 ms, though nothing is encrypted here.
    context = ssl.create_default_context()
    async with AsyncExitStack() as stack:
        connected = [
            await stack.enter_async_context(httpx.AsyncClient(timeout=120, verify=context))
            for _ in range(clients)
        ]
        for client in connected:
            (await client.get(url.partition("/models")[0] + "/health")).raise_for_status()
        before, mine, start = cpu_of(service), time.process_time(), time.perf_counter()

        async def one(client: httpx.AsyncClient) -> None:
            nonlocal left
            while left > 0 and time.perf_counter() < start + seconds:
                left -= 1
                asked_at = time.perf_counter()
                reply = await client.post(url, content=body, headers=headers)
                took = time.perf_counter() - asked_at
                seen.answers.append((took, reply.status_code, reply.content))

        await asyncio.gather(*(one(client) for client in connected))
        seen.seconds = time.perf_counter() - start
        seen.client_cpu = time.process_time() - mine
        seen.service_cpu = cpu_of(service) - before
    return seen


def cpu_of(service: psutil.Process) -> float:
    """CPU seconds of a process and its workers."""
    times = [each.cpu_times() for each in (service, *service.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def measured(
    service: psutil.Process, url: str, body: bytes, truth: Any, clients: int, asked: Any
) -> dict[str, Any]:
    """Numbers of one number of clients."""
    seen = asyncio.run(load(service, url, body, clients, asked.requests, asked.seconds))
    found = seen.answers
    times = sorted(each for each, _, _ in found)
    worst, scale = 0.0, float(np.abs(truth).max())
    for _, status, content in found:
        assert status == 200, (status, content[:300])
        (output,) = json.loads(content)["outputs"].values()
        answer = np.frombuffer(base64.b64decode(output["data"]), "<f4")
        worst = max(worst, float(np.abs(answer - truth.ravel()).max()) / scale)
    assert worst == 0.0 if clients == 1 else worst < 1e-6, worst
    return {
        "clients": clients,
        "requests": len(found),
        "per_second": round(len(found) / seen.seconds, 1),
        "service_cpu_ms": round(1e3 * seen.service_cpu / len(found), 2),
        "client_cpu_ms": round(1e3 * seen.client_cpu / len(found), 2),
        "median_ms": round(1e3 * times[len(times) // 2], 2),
        "p99_ms": round(1e3 * times[min(len(times) - 1, int(0.99 * len(times)))], 2),
        "largest_difference": worst,
    }


def main() -> None:
    """Serve, ask, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--requests", type=int, default=500, help="for each number of clients")
    parser.add_argument("--seconds", type=float, default=30.0, help="at most, for each")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    request, truth, alone, alone_cpu = single_call(asked.run, 50)
    command = [sys.executable, "-m", "funcattn", "serve", str(asked.run), "--port", "0"]
    command += ["--workers", str(asked.workers), "--threads", "1", "--queue", "128"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"(\S+): (http://\S+)", process.stdout.readline())
        assert found
        url = f"{found[2]}/models/{found[1]}/predict?arrays=base64"
        body = json.dumps(request).encode()
        service = psutil.Process(process.pid)
        asyncio.run(load(service, url, body, 4, 40, 60.0))  # to warm up
        rows = [measured(service, url, body, truth, clients, asked) for clients in CLIENTS]
    finally:
        process.terminate()
        process.wait()
    record = {
        "command": " ".join(["python", "benchmarks/serve_load.py", *sys.argv[1:]]),
        **facts(),
        "points": len(truth),
        "parameters": sum(p.numel() for p in served(asked.run).run.network.parameters()),
        "load_average": [round(each, 1) for each in os.getloadavg()],
        "single_call_ms": round(1e3 * alone, 2),
        "single_call_cpu_ms": round(1e3 * alone_cpu, 2),
        "load": rows,
    }
    text = json.dumps(record, indent=1) + "\n"
    if asked.out is not None:
        asked.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
