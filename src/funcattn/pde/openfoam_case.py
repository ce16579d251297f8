"""An OpenFOAM case, turbulent flow past an airfoil on a C-grid: its files and its runs."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from funcattn.arrays import Floats
from funcattn.pde.errors import NotConvergedError
from funcattn.pde.openfoam_mesh import Size, header, poly_mesh, rows, write
from funcattn.processes import leashed

FIELDS = ("U", "p", "k", "omega", "nut")
"""Velocity, pressure, turbulent energy, turbulent frequency, eddy viscosity."""


class Scheme(NamedTuple):
    """The scheme of an iteration."""

    convection: str  # of velocity
    velocity: float  # relaxation factor
    turbulence: float  # relaxation factor of k and omega


class FoamCase:
    """A folder with a case; the constructor writes its files.

    Args:
        folder: folder to create.
        grid: grid of `funcattn.pde.openfoam_mesh.c_grid`, shape (n + 1, m + 1, 2).
        size: size of the grid.
        stream: free-stream velocity, (2,).
        viscosity: kinematic viscosity.
        start: initial fields by the names of `FIELDS`, each (n, m, k); if empty, all fields start
            from their values in the far field.
    """

    def __init__(
        self,
        folder: Path,
        grid: Floats,
        size: Size,
        stream: Floats,
        viscosity: float,
        start: Mapping[str, Floats],
    ) -> None:
        self.folder, self.grid, self.size, self.stream = folder, grid, size, stream
        self.iterations, self.from_stream = 0, not start
        write(poly_mesh(grid, size.wake), folder / "constant" / "polyMesh")
        self._write(
            "constant/transportProperties", {"transportModel": "Newtonian", "nu": viscosity}
        )
        model = {"RASModel": "kOmegaSST", "turbulence": "on", "printCoeffs": "off"}
        self._write("constant/turbulenceProperties", {"simulationType": "RAS", "RAS": model})

        speed = float(np.linalg.norm(stream))
        k, omega = 1e-3 * viscosity * speed, 5.0 * speed
        zero = {"value": "uniform 0"}
        for name, units, far, kind, wall in (
            ("U", "0 1 -1", stream, "freestreamVelocity", {"type": "noSlip"}),
            ("p", "0 2 -2", 0.0, "freestreamPressure", {"type": "zeroGradient"}),
            ("k", "0 2 -2", k, "freestream", {"type": "kqRWallFunction"} | zero),
            (
                "omega",
                "0 0 -1",
                omega,
                "freestream",
                {"type": "omegaWallFunction", "blending": "binomial2"} | zero,
            ),
            ("nut", "0 2 -1", k / omega, "freestream", {"type": "nutUSpaldingWallFunction"} | zero),
        ):
            uniform = f"uniform {_text(far)}"
            rank, form = ("vector", "(%.17g %.17g 0)") if name == "U" else ("scalar", "%.17g")
            inside = uniform
            if name in start:
                values = start[name].reshape(-1, start[name].shape[-1])
                inside = f"nonuniform List<{rank}>\n{rows(form, values)}"
            patches = {
                "airfoil": wall,
                "far": {"type": kind, "freestreamValue": uniform},
                "sides": {"type": "empty"},
            }
            content = {
                "dimensions": f"[{units} 0 0 0 0]",
                "internalField": inside,
                "boundaryField": patches,
            }
            self._write(f"0/{name}", content, kind=f"vol{rank.capitalize()}Field")

    def run(
        self, iterations: int, scheme: Scheme, *, average: bool = False, timeout: float
    ) -> None:
        """Continue from the end of the last run, and with `average` also average over this run.

        Raises:
            FileNotFoundError: `simpleFoam` is not installed.
            RuntimeError: the program stopped before the first iteration, although all fields were
                uniform: another flow would fail as well.
            NotConvergedError: the program stopped later, or took longer than `timeout` seconds.
        """
        before, self.iterations = self.iterations, self.iterations + iterations
        self._write("system/controlDict", self._control(average=average))
        self._write("system/fvSchemes", _schemes(scheme))
        self._write("system/fvSolution", _solution(scheme))
        program, environment = find_program()
        log = self.folder / "log"
        try:
            with log.open("w") as output:
                code = subprocess.run(
                    leashed([program, "-case", str(self.folder)]),
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=timeout,
                    check=False,
                ).returncode
        except subprocess.TimeoutExpired as error:
            raise NotConvergedError(
                f"expected simpleFoam to take at most {timeout} s for {iterations} iterations, but "
                "stopped it after that: allow more time"
            ) from error
        if code == 0 and (self.folder / str(self.iterations)).is_dir():
            return
        output_text = log.read_text(errors="replace")
        last = "\n".join(output_text.splitlines()[-15:])
        if "\nTime = " not in output_text and before == 0 and self.from_stream:
            raise RuntimeError(
                f"expected simpleFoam to iterate, but it ended at once with code {code}: check its "
                f"installation; its last output was\n{last}"
            )
        raise NotConvergedError(
            f"expected {iterations} iterations after {before}, but simpleFoam ended with code "
            f"{code}: the flow diverges; try another mesh; its last output was\n{last}"
        )

    def lift(self) -> Floats:
        """Return the program's lift coefficients of all iterations, (iterations,)."""
        parts = {}
        for path in (self.folder / "postProcessing" / "coefficients").glob("*/*.dat"):
            lines = path.read_text().splitlines()
            names = [line for line in lines if line.startswith("#")][-1].split()[1:]
            values = np.loadtxt(lines, ndmin=2)
            parts[int(path.parent.name)] = values[:, names.index("Cl")]
        return np.concatenate([parts[first] for first in sorted(parts)])

    def cells(self, name: str) -> Floats:
        """Return a field at the cells after the last iteration, (n, m, k)."""
        n, m = self.grid.shape[0] - 1, self.grid.shape[1] - 1
        return read_field(self._result(name), n * m).reshape(n, m, -1)

    def wall(self, name: str) -> Floats:
        """Return a field at the wall faces after the last iteration, (s, k), in their order."""
        return read_field(self._result(name), self.size.surface, patch="airfoil")

    def _result(self, name: str) -> str:
        return (self.folder / str(self.iterations) / name).read_text()

    def _write(self, path: str, content: Mapping[str, object], *, kind: str = "dictionary") -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(header(file.name, kind) + _entries(content))

    def _control(self, *, average: bool) -> dict[str, object]:
        along = self.stream / np.linalg.norm(self.stream)
        functions: dict[str, object] = {
            "coefficients": {
                "type": "forceCoeffs",
                "libs": "(forces)",
                "patches": "(airfoil)",
                "rho": "rhoInf",
                "rhoInf": 1,
                "magUInf": np.linalg.norm(self.stream),
                "lRef": 1,
                "Aref": 1,
                "CofR": "(0 0 0)",
                "pitchAxis": "(0 0 1)",
                "dragDir": along,
                "liftDir": np.array([-along[1], along[0]]),
                "log": "no",
            },
            "shear": {
                "type": "wallShearStress",
                "libs": "(fieldFunctionObjects)",
                "patches": "(airfoil)",
                # An average needs it in every iteration.
                "executeControl": "timeStep" if average else "writeTime",
                "writeControl": "writeTime",
                "log": "no",
            },
        }
        if average:
            mean = "{ mean on; prime2Mean off; base iteration; }"
            functions["mean"] = {
                "type": "fieldAverage",
                "libs": "(fieldFunctionObjects)",
                "writeControl": "writeTime",
                "fields": "("
                + " ".join(f"{name} {mean}" for name in ("U", "p", "nut", "wallShearStress"))
                + ")",
            }
        return {
            "startFrom": "latestTime",
            "stopAt": "endTime",
            "endTime": self.iterations,
            "deltaT": 1,
            "writeControl": "timeStep",
            "writeInterval": self.iterations,
            "writeFormat": "ascii",
            "writePrecision": 17,  # so that values are read back bit by bit
            "runTimeModifiable": "no",
            "functions": functions,
        }


def find_program() -> tuple[str, dict[str, str]]:
    """Return the path of `simpleFoam` and the environment that it needs.

    If OpenFOAM's environment is set up, it is left unchanged. Debian's package sets none, but
    cannot start without the path of its folder, which is derived from the program's path.

    Raises:
        FileNotFoundError: the program is not installed.
    """
    program = shutil.which("simpleFoam")
    if program is None:
        raise FileNotFoundError(
            "expected OpenFOAM's program simpleFoam, got none on the PATH: install it with "
            "'sudo apt-get install --no-install-recommends openfoam'"
        )
    share = Path(program).resolve().parent.parent / "share" / "openfoam"
    # Traps divisions by zero, so that a diverging flow ends at once.
    return program, {"WM_PROJECT_DIR": str(share), "FOAM_SIGFPE": "true"} | os.environ


def read_field(text: str, count: int, *, patch: str | None = None) -> Floats:
    """Read a field from an OpenFOAM file in ASCII: (count, 1), or (count, 2) for vectors.

    Args:
        text: content of the file.
        count: expected number of values; a uniform field is repeated as often.
        patch: patch whose boundary values are read; by default the cell values are read.

    Raises:
        ValueError: the values are missing, or their number is wrong.

    Example:
        >>> text = "internalField nonuniform List<vector> 2((1 2 0) (3 4 0)); boundaryField {}"
        >>> read_field(text, 2)
        array([[1., 2.],
               [3., 4.]])
    """
    where, name = text, "internalField"
    if patch is not None:
        where, name = text[text.find("boundaryField") :], rf"\b{patch}\s*{{[^}}]*?\bvalue"
    match = re.search(rf"{name}\s+(uniform|nonuniform\s+List<\w+>\s*\d+)\s*([^;]*);", where)
    numbers = np.array(re.sub("[()]", " ", match[2]).split() if match else [], dtype=np.float64)
    if match and match[1] == "uniform":
        numbers = np.tile(numbers, count)
    if numbers.size not in (count, 3 * count):
        raise ValueError(
            f"expected {count} numbers or vectors {f'at {patch}' if patch else 'of the cells'}, "
            f"got {numbers.size} numbers: the file is of another mesh, or not OpenFOAM in ASCII"
        )
    return numbers.reshape(count, -1)[:, :2]


def _schemes(scheme: Scheme) -> dict[str, object]:
    limited = "cellLimited Gauss linear 1"
    return {
        "ddtSchemes": {"default": "steadyState"},
        "gradSchemes": {
            "default": "Gauss linear",
            **{f"grad({name})": limited for name in ("U", "k", "omega")},
        },
        "divSchemes": {
            "default": "none",
            "div(phi,U)": f"bounded Gauss {scheme.convection}",
            "div(phi,k)": "bounded Gauss upwind",
            "div(phi,omega)": "bounded Gauss upwind",
            "div((nuEff*dev2(T(grad(U)))))": "Gauss linear",
        },
        "laplacianSchemes": {"default": "Gauss linear limited corrected 0.5"},
        "interpolationSchemes": {"default": "linear"},
        "snGradSchemes": {"default": "limited corrected 0.5"},
        "wallDist": {"method": "meshWave"},
    }


def _solution(scheme: Scheme) -> dict[str, object]:
    smoother = {"solver": "smoothSolver", "smoother": "symGaussSeidel", "relTol": 0.1}
    return {
        "solvers": {
            "p": {
                "solver": "GAMG",
                "smoother": "DICGaussSeidel",
                "relTol": 0.05,
                "tolerance": 1e-12,
            },
            '"(U|k|omega)"': smoother | {"tolerance": 1e-12},
        },
        "SIMPLE": {"consistent": "yes", "nNonOrthogonalCorrectors": 0},
        # Each gradient is used two to five times before its field changes.
        "cache": {f"grad({name})": "" for name in ("U", "p", "k", "omega")},
        "relaxationFactors": {
            "fields": {"p": 1.0},
            "equations": {"U": scheme.velocity, '"(k|omega)"': scheme.turbulence},
        },
    }


def _entries(content: Mapping[str, object]) -> str:
    """Format the entries of an OpenFOAM dictionary, one per line."""
    return "".join(
        f"{key}\n{{\n{_entries(value)}}}\n"
        if isinstance(value, Mapping)
        else f"{key} {_text(value)};\n"
        for key, value in content.items()
    )


def _text(value: object) -> str:
    """Format a value for OpenFOAM, numbers with all their digits and vectors with z = 0."""
    if isinstance(value, np.ndarray):
        return f"({value[0]:.17g} {value[1]:.17g} 0)"
    return f"{value:.17g}" if isinstance(value, float) else str(value)
