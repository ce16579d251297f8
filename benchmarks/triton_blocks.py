"""What the Triton programs take of a GPU, by compiling them for it; no GPU is needed.

    python benchmarks/triton_blocks.py

Writes results/triton_blocks.json: for layers of some sizes and two kinds of GPU the registers, the
spilled bytes and the shared memory of each program, and how many of them a multiprocessor can hold
at once. The programs are those that a call would start, with the blocks of
`funcattn/ops/fused/blocks.py`. Nothing is timed.
"""

import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource

from funcattn.files import write_text
from funcattn.ops.fused import by_triton, kernels
from funcattn.ops.fused.scored import Scored, Toward
from funcattn.provenance import facts

RESULT = Path("results/triton_blocks.json")
KINDS = {torch.float32: "*fp32", torch.bfloat16: "*bf16"}
SHAPES = {"8 heads of 16 channels": (8, 16), "1 head of 128 channels": (1, 128)}
"""Heads and channels, with 64 functions."""
POINTS, BASES = 16384, 64


@dataclass(frozen=True)
class Gpu:
    """A multiprocessor: registers, bytes of shared memory, threads, programs at most."""

    capability: int
    registers: int
    shared: int
    threads: int
    programs: int

    def at_once(self, registers: int, shared: int, warps: int) -> int:
        """Programs that it holds; registers come in 256 for each warp, 1 KiB of memory is taken."""
        of_warp = -(-registers * 32 // 256) * 256
        return min(
            self.registers // (of_warp * warps),
            self.shared // (shared + 1024),
            self.threads // (32 * warps),
            self.programs,
        )


GPUS = {
    "A100": Gpu(80, 65536, 164 * 1024, 2048, 32),
    "H100": Gpu(90, 65536, 228 * 1024, 2048, 32),
}


class Started:
    """In the place of a program: keeps what it is started with."""

    def __init__(self, program: Any) -> None:
        self.program, self.given, self.options = program, (), {}
        self.grid: tuple[int, ...] = ()

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        self.grid = grid

        def call(*given: Any, **options: Any) -> None:
            self.given, self.options = given, options

        return call

    def compiled(self, capability: int) -> Any:
        """For a GPU, as a call with these arguments would."""
        names, signature, constants, facts_known = self.program.arg_names, {}, {}, {}
        options = dict(self.options)
        launch = {name: options.pop(name) for name in ("num_warps", "num_stages")}
        for place, name in enumerate(names):
            value = self.given[place] if place < len(self.given) else options[name]
            if isinstance(value, Tensor):
                signature[name] = KINDS[value.dtype]
                facts_known[(place,)] = [["tt.divisibility", 16]]
            elif place < len(self.given) and isinstance(value, int):
                signature[name] = "i32"
                if value % 16 == 0:
                    facts_known[(place,)] = [["tt.divisibility", 16]]
            else:
                signature[name], constants[(place,)] = "constexpr", value
        source = ASTSource(self.program, signature, constants, facts_known)
        return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=launch)


@contextmanager
def recorded() -> Iterator[dict[str, Started]]:
    """The programs that are started within this context, by name."""
    names = ("sums", "lifted", "gradients")
    started = {name: Started(getattr(kernels, name)) for name in names}
    with mock.patch.multiple(kernels, **started):
        yield started


def programs(heads: int, channels: int, dtype: torch.dtype) -> dict[str, Started]:
    """Those of a layer, forward and backward."""

    def empty(*shape: int, of: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(*shape, dtype=of, device="meta")

    fields = empty(1, POINTS, heads, channels, of=dtype).transpose(1, 2)
    basis = Scored(fields, empty(heads, channels, BASES), empty(heads, BASES))
    coefficients = empty(1, heads, BASES, channels)
    moments, mass = empty(1, heads, channels, BASES), empty(1, heads, BASES)
    with recorded() as started:
        by_triton.sums(basis, fields, None)
        by_triton.lifted(basis, coefficients)
        by_triton.gradients(basis, Toward(fields, None, moments, mass, fields, coefficients))
    return started


def resources(code: str, capability: int) -> tuple[int, int]:
    """Registers of a thread and bytes that it spills, of code for a GPU that it names."""
    target = re.search(r"\.target (sm_\w+)", code)
    assert target
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "code.ptx"
        path.write_text(code)
        asked = [
            get_ptxas(capability).path,
            "-v",
            f"--gpu-name={target[1]}",
            str(path),
            "-o",
            f"{path}.cubin",
        ]
        ran = subprocess.run(asked, capture_output=True, text=True, check=False)
    said = ran.stderr
    if ran.returncode:
        raise RuntimeError(f"ptxas failed and said: {said}")
    spilled = re.search(r"(\d+) bytes spill stores", said)
    registers = re.search(r"Used (\d+) registers", said)
    assert registers
    return int(registers[1]), int(spilled[1]) if spilled else 0


def main() -> None:
    """Compile, print and write."""
    found: dict[str, Any] = {}
    precisions = {"float32": torch.float32, "TF32": torch.float32, "bfloat16": torch.bfloat16}
    for shape, (heads, channels) in SHAPES.items():
        for precision, dtype in precisions.items():
            torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
            for name, started in programs(heads, channels, dtype).items():
                for gpu, sizes in GPUS.items():
                    compiled = started.compiled(sizes.capability)
                    registers, spilled = resources(compiled.asm["ptx"], sizes.capability)
                    shared, warps = compiled.metadata.shared, started.options["num_warps"]
                    found[f"{shape}, {precision}, {name}, {gpu}"] = {
                        "programs": int(torch.Size(started.grid).numel()),
                        "warps": warps,
                        "registers": registers,
                        "spilled bytes": spilled,
                        "shared bytes": shared,
                        "at once": sizes.at_once(registers, shared, warps),
                    }
    for name, numbers in found.items():
        print(f"{name}: {numbers}")
    record = {
        "points": POINTS,
        "bases": BASES,
        "compiled": found,
        "triton": triton.__version__,
        "command": shlex.join(["python", *sys.argv]),
        **facts(),
    }
    write_text(
        Path(sys.argv[1]) if len(sys.argv) > 1 else RESULT, json.dumps(record, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
