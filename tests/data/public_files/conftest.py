"""Each public benchmark: its files and what they have, said here once more, and small samples."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from funcattn.data.public_files import PublicLayout

# funcattn is imported in functions: not before the shape checks are in place.

TRAIN, TEST = "piececonst_r421_N1024_smooth1.mat", "piececonst_r421_N1024_smooth2.mat"
MATLAB = {
    "burgers": "burgers_data_R10.mat",
    "darcy": TRAIN,
    "darcy_notch": "Darcy_Triangular_FNO.mat",
    "navier_stokes": "NavierStokes_V1e-5_N1200_T20.mat",
    "plasticity": "plas_N987_T20.mat",
}
"""All arrays of a sample are variables of one file."""
VARIABLES = {
    "burgers": {"initial": "a", "final": "u"},
    "darcy": {"permeability": "coeff", "pressure": "sol"},
    "darcy_notch": {"boundary": "boundCoeff", "solution": "sol"},
    "navier_stokes": {"vorticity": "u", "initial": "a", "time": "t"},
    "plasticity": {"die": "input", "motion": "output"},
    # Every array has a file of its own.
    "elasticity": {
        "points": "Random_UnitCell_XY_10.npy",
        "stress": "Random_UnitCell_sigma_10.npy",
        "radius": "Random_UnitCell_rr_10.npy",
        "coefficients": "Random_UnitCell_theta_10.npy",
    },
    "airfoil": {
        "x": "NACA_Cylinder_X.npy",
        "y": "NACA_Cylinder_Y.npy",
        "flow": "NACA_Cylinder_Q.npy",
        "design": "NACA_theta.npy",
    },
    "pipe": {"x": "Pipe_X.npy", "y": "Pipe_Y.npy", "flow": "Pipe_Q.npy"},
}
SHAPES = {
    "burgers": {"initial": (5, 8), "final": (5, 8)},
    "darcy": {"permeability": (5, 9, 9), "pressure": (5, 9, 9)},
    "darcy_notch": {"boundary": (5, 9), "solution": (5, 9, 9)},
    "navier_stokes": {"vorticity": (5, 3, 8, 8)},
    "plasticity": {"die": (5, 17), "motion": (5, 17, 9, 3, 4)},
    "elasticity": {"points": (5, 7, 2), "stress": (5, 7)},
    "airfoil": {"x": (5, 13, 9), "y": (5, 13, 9), "flow": (5, 5, 13, 9)},
    "pipe": {"x": (5, 9, 5), "y": (5, 9, 5), "flow": (5, 3, 9, 5)},
}
OPTIONAL = {
    "navier_stokes": {"initial": (5, 8, 8), "time": (3,)},
    "elasticity": {"radius": (5, 42), "coefficients": (5, 10)},
    "airfoil": {"design": (5, 8)},
}


def as_stored(name: str, array: np.ndarray) -> np.ndarray:
    """One of our arrays with the axes and the origin that it has in public files."""
    match name:
        case "points":
            return array.transpose(1, 2, 0)
        case "stress" | "radius":
            return array.T
        case "vorticity":
            return array.transpose(0, 2, 3, 1)
        case "time":
            return array[None]
        case "boundary":
            return array[:, None].repeat(array.shape[1], 1)
        case "motion":
            return array[:, ::-1] + [-49.65, -0.1, 0.0, 0.0]
    return array


@dataclass(frozen=True)
class Benchmark:
    """A benchmark, in one of MATLAB's formats, which .npy files do not mind."""

    name: str
    format: str = "5"

    @property
    def layout(self) -> "PublicLayout":
        from funcattn.data import public_files

        return getattr(public_files, self.name.upper())

    @property
    def apart(self) -> bool:
        """Every array has a file of its own."""
        return self.name not in MATLAB

    @property
    def parts(self) -> list[str]:
        return ["train", "test"] if self.name == "darcy" else ["all"]

    @property
    def variables(self) -> dict[str, str]:
        """What is read, by our names."""
        return {each: VARIABLES[self.name][each] for each in SHAPES[self.name]}

    @property
    def files(self) -> list[str]:
        """All that are needed."""
        if self.name == "darcy":
            return [TRAIN, TEST]
        return list(self.variables.values()) if self.apart else [MATLAB[self.name]]

    @property
    def names(self) -> list[str]:
        """All files that there may be."""
        return list(VARIABLES[self.name].values()) if self.apart else self.files

    def file(self, array: str) -> str:
        """That of one of our arrays."""
        return VARIABLES[self.name][array] if self.apart else self.files[0]

    def arrays(self, seed: int = 0, *, optional: bool = False) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        shapes = SHAPES[self.name] | (OPTIONAL.get(self.name, {}) if optional else {})
        arrays = {name: rng.normal(size=shape) for name, shape in shapes.items()}
        if self.name == "plasticity":
            # Displaced from the grid of the block, in every frame.
            x, y = np.linspace(0, 50, 17)[:, None, None], np.linspace(15, 0, 9)[:, None]
            arrays["motion"][..., 0] = x + arrays["motion"][..., 2]
            arrays["motion"][..., 1] = y + arrays["motion"][..., 3]
        return arrays

    def stored(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """By the names and with the axes of the public files."""
        return {
            VARIABLES[self.name][name]: np.ascontiguousarray(as_stored(name, array))
            for name, array in arrays.items()
        }

    def save(self, folder: Path, stored: Mapping[str, np.ndarray]) -> None:
        """Public files, as others would write them."""
        from funcattn.data.matlab import write_matlab

        if not self.apart:
            write_matlab(folder / self.files[0], stored, format=self.format)
            return
        for file, array in stored.items():
            np.save(folder / file, array)

    def load(self, folder: Path) -> dict[str, np.ndarray]:
        """All that public files have, as others would read it."""
        from funcattn.data.matlab import list_matlab, read_matlab

        if not self.apart:
            return read_matlab(folder / self.files[0], list(list_matlab(folder / self.files[0])))
        return {file.name: np.load(file, allow_pickle=False) for file in folder.glob("*.npy")}

    def write(
        self, path: str | Path, arrays: Mapping[str, np.ndarray], part: str = ""
    ) -> list[Path]:
        from funcattn.data.public_files import write_public

        return write_public(self.layout, path, arrays, part or self.parts[0], format=self.format)

    def read(self, path: str | Path, part: str = "", **selection: Any) -> dict[str, np.ndarray]:
        from funcattn.data.public_files import read_public

        return read_public(self.layout, path, part or self.parts[0], **selection)

    def measure(self, path: str | Path) -> dict[str, int]:
        """The samples of every part."""
        from funcattn.data.public_files import measure_public

        measured = measure_public(self.layout, path)
        return {part: sizes["samples"] for part, sizes in measured.items()}

    def assert_read(
        self, arrays: Mapping[str, np.ndarray], path: str | Path, part: str = "", **selection: Any
    ) -> None:
        """These arrays are what is read, to the bit."""
        read = self.read(path, part, **selection)
        assert list(read) == list(arrays)
        for name, array in arrays.items():
            # Another origin rounds to the spacing of numbers up to 64, there and back.
            exact = name != "motion"
            np.testing.assert_allclose(read[name], array, rtol=0, atol=0 if exact else 1e-14)
            assert read[name].dtype == (array.dtype if exact else np.float64)
            assert read[name].dtype.isnative
            assert read[name].flags.c_contiguous

    def assert_refused(
        self, path: str | Path, message: str, error: type[Exception] = ValueError
    ) -> None:
        """What is there is neither read nor measured."""
        for act in (self.read, self.measure):
            with pytest.raises(error, match=message):
                act(path)


@pytest.fixture(params=[*SHAPES, *(f"{name} in 7.3" for name in MATLAB)])
def benchmark(request: pytest.FixtureRequest) -> Benchmark:
    """Each of them, and those in MATLAB files in both formats."""
    name, _, fmt = request.param.partition(" in ")
    return Benchmark(name, fmt or "5")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that already has the test file of Darcy, the companion of what a test writes."""
    darcy = Benchmark("darcy")
    darcy.write(tmp_path, darcy.arrays(seed=1), "test")
    return tmp_path
