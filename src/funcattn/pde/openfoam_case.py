"""A case of OpenFOAM: turbulent flow past an airfoil on a C-grid, its files and its runs."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from funcattn.pde.errors import NotConvergedError
from funcattn.pde.openfoam_mesh import Size, header, poly_mesh, rows, write

Floats = npt.NDArray[np.float64]

FIELDS = ("U", "p", "k", "omega", "nut")
"""Velocity, pressure, energy and frequency of turbulence, eddy viscosity."""


class Scheme(NamedTuple):
    """How to iterate."""

    convection: str  # of velocity
    velocity: float  # factor of relaxation
    turbulence: float  # the same, of k and omega


class Case:
    """A folder with a case, which is written when this is made.

    Args:
        folder: to be made.
        grid: of `funcattn.pde.openfoam_mesh.c_grid`, shape (n + 1, m + 1, 2).
        size: of the grid.
        stream: velocity far away, (2,).
        viscosity: kinematic.
        start: fields to start from, by the names of `FIELDS`, each (n, m, k); if there are none,
            all have the values of the far field.
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
        """Iterate from where the last run ended, and average over all of this run if told so.

        Raises:
            FileNotFoundError: `simpleFoam` is not installed.
            RuntimeError: it stopped before the first iteration, though all fields were uniform:
                another flow would not go better.
            NotConvergedError: it stopped later, or took longer than `timeout` seconds.
        """
        before, self.iterations = self.iterations, self.iterations + iterations
        self._write("system/controlDict", self._control(average=average))
        self._write("system/fvSchemes", _schemes(scheme))
        self._write("system/fvSolution", _solution(scheme))
        program, environment = find_program()
        # The kernel ends the program when this process dies without a word.
        leash = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        log = self.folder / "log"
        try:
            with log.open("w") as output:
                code = subprocess.run(
                    [*leash, program, "-case", str(self.folder)],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=timeout,
                    check=False,
                ).returncode
        except subprocess.TimeoutExpired as error:
            raise NotConvergedError(
                f"expected simpleFoam to take at most {timeout} s for {iterations} iterations, and "
                "ended it: allow more time"
            ) from error
        if code == 0 and (self.folder / str(self.iterations)).is_dir():
            return
        said = log.read_text(errors="replace")
        last = "\n".join(said.splitlines()[-15:])
        if "\nTime = " not in said and before == 0 and self.from_stream:
            raise RuntimeError(
                f"expected simpleFoam to iterate, but it ended at once with code {code}: check its "
                f"installation; it said last\n{last}"
            )
        raise NotConvergedError(
            f"expected {iterations} iterations after {before}, but simpleFoam ended with code "
            f"{code}: the flow diverges; try another mesh; it said last\n{last}"
        )

    def lift(self) -> Floats:
        """Return the lift coefficients of all iterations by the program, (iterations,)."""
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
                # An average needs it all the time.
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
            "writePrecision": 17,  # so that reading gives the same bits
            "runTimeModifiable": "no",
            "functions": functions,
        }


def find_program() -> tuple[str, dict[str, str]]:
    """Return the path of `simpleFoam` and the environment that it needs.

    Where the environment of OpenFOAM is set up, it is left as it is. Debian's package has none,
    but cannot start without the name of its folder, which is found from the program.

    Raises:
        FileNotFoundError: there is no such program.
    """
    program = shutil.which("simpleFoam")
    if program is None:
        raise FileNotFoundError(
            "expected the program simpleFoam of OpenFOAM, got none on the PATH: install it by "
            "'sudo apt-get install --no-install-recommends openfoam'"
        )
    share = Path(program).resolve().parent.parent / "share" / "openfoam"
    # Traps divisions by zero, so that a flow that diverges ends at once.
    return program, {"WM_PROJECT_DIR": str(share), "FOAM_SIGFPE": "true"} | os.environ


def read_field(text: str, count: int, *, patch: str | None = None) -> Floats:
    """Read a field from a file of OpenFOAM, in ASCII: (count, 1), or (count, 2) for vectors.

    Args:
        text: of the file.
        count: values to expect; a uniform field has as many.
        patch: whose boundary values are read; by default those of the cells are.

    Raises:
        ValueError: there are no such values, or another number of them.

    Example:
        >>> text = "internalField nonuniform List<vector> 2((1 2 0) (3 4 0)); boundaryField {}"
        >>> read_field(text, 2)
        array([[1., 2.],
               [3., 4.]])
    """
    where, name = text, "internalField"
    if patch is not None:
        where, name = text[text.find("boundaryField") :], rf"\b{patch}\s*{{[^}}]*?\bvalue"
    found = re.search(rf"{name}\s+(uniform|nonuniform\s+List<\w+>\s*\d+)\s*([^;]*);", where)
    numbers = np.array(re.sub("[()]", " ", found[2]).split() if found else [], dtype=np.float64)
    if found and found[1] == "uniform":
        numbers = np.tile(numbers, count)
    if numbers.size not in (count, 3 * count):
        raise ValueError(
            f"expected {count} numbers or vectors {f'at {patch}' if patch else 'of the cells'}, "
            f"got {numbers.size} numbers: the file is of another mesh, or not of OpenFOAM in ASCII"
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
        # Each gradient is asked for two to five times before its field changes.
        "cache": {f"grad({name})": "" for name in ("U", "p", "k", "omega")},
        "relaxationFactors": {
            "fields": {"p": 1.0},
            "equations": {"U": scheme.velocity, '"(k|omega)"': scheme.turbulence},
        },
    }


def _entries(content: Mapping[str, object]) -> str:
    """Entries of a dictionary of OpenFOAM, one in a line."""
    return "".join(
        f"{key}\n{{\n{_entries(value)}}}\n"
        if isinstance(value, Mapping)
        else f"{key} {_text(value)};\n"
        for key, value in content.items()
    )


def _text(value: object) -> str:
    """A value as OpenFOAM reads it, numbers with all their digits and vectors with z = 0."""
    if isinstance(value, np.ndarray):
        return f"({value[0]:.17g} {value[1]:.17g} 0)"
    return f"{value:.17g}" if isinstance(value, float) else str(value)
