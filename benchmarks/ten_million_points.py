"""Exact inference of an 8-layer network on a mesh larger than memory: seconds, and peak memory.

    python benchmarks/ten_million_points.py [--points 10000000] [--scratch FOLDER]

makes random points in the unit cube in a .npy file, streams them through a network of width 128
with its starting weights, and writes results/ten_million_points.json with commit and machine beside
the numbers. The inputs, the scratch file and the output lie in the scratch folder, about 600 bytes
per point, and are gone at the end.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from funcattn import OperatorTransformer
from funcattn.models import predict_streamed
from funcattn.ops.memory import status
from funcattn.provenance import cpu_seconds, facts

RESULTS = Path(__file__).parent.parent / "results" / "ten_million_points.json"
SEED = 0


def made_points(path: Path, points: int) -> None:
    """Random points of the unit cube, in a file, a part after the other."""
    rng = np.random.default_rng(SEED)
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(points, 3))
    for start in range(0, points, 2**20):
        part = array[start : start + 2**20]
        part[:] = rng.random(part.shape, dtype=np.float32)
    array.flush()


def main() -> None:
    """Stream the mesh, and compare some of its fields with those of queries."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=10_000_000)
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()))
    asked = parser.parse_args()
    torch.manual_seed(SEED)
    network = OperatorTransformer(space=3, inputs=0, outputs=4, width=128, layers=8).eval()
    with tempfile.TemporaryDirectory(dir=asked.scratch) as folder:
        given, out = Path(folder, "positions.npy"), Path(folder, "fields.npy")
        made_points(given, asked.points)
        positions = np.load(given, mmap_mode="r")
        begun, worked = time.perf_counter(), cpu_seconds()
        shown = begun

        def progress(done: int, total: int) -> None:
            nonlocal shown
            if time.perf_counter() - shown > 10:
                shown = time.perf_counter()
                print(f"{done / total:.1%} after {shown - begun:.0f} s", flush=True)

        encoded = predict_streamed(network, positions, out=out, scratch=folder, progress=progress)
        seconds, cpu = time.perf_counter() - begun, cpu_seconds() - worked
        peak = status("VmHWM")
        rows = np.random.default_rng(SEED + 1).choice(asked.points, 1000, replace=False)
        rows.sort()
        with torch.no_grad():
            queried = network.query(encoded, torch.from_numpy(positions[rows])[None])[0].numpy()
        fields = np.load(out, mmap_mode="r")[rows]
        record = {
            "points": asked.points,
            "layers": 8,
            "width": 128,
            "dtype": "float32",
            "seed": SEED,
            "seconds": seconds,
            "cpu_seconds": cpu,
            "peak_bytes": peak,
            "encoded_bytes": encoded.nbytes,
            "largest_difference_to_queries": float(np.abs(queried - fields).max()),
            "largest_field": float(np.abs(fields).max()),
            "command": " ".join(["python", *sys.argv]),
            **facts(),
        }
    print(json.dumps(record, indent=1))
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
