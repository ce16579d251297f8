"""How the public files of eight benchmarks are laid out, and which of our arrays is what in them.

burgers         burgers_data_R10.mat (Li et al. 2020)
darcy           piececonst_r421_N1024_smooth1.mat for training, ..._smooth2.mat for tests (the same)
darcy_notch     Darcy_Triangular_FNO.mat (Lu et al. 2022)
navier_stokes   NavierStokes_V1e-5_N1200_T20.mat (Li et al. 2020)
elasticity      Random_UnitCell_XY_10.npy, ..._sigma_10.npy (Li et al. 2022)
airfoil         NACA_Cylinder_X.npy, ..._Y.npy, ..._Q.npy (the same)
pipe            Pipe_X.npy, Pipe_Y.npy, Pipe_Q.npy (the same)
plasticity      plas_N987_T20.mat (the same)

`funcattn.data.public_files` reads and writes them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

SPACE = ("x", "y")
Fields = dict[str, npt.NDArray[np.floating]]


@dataclass(frozen=True)
class PublicArray:
    """One of our arrays: its variable in the file, the axes it has there, and those it has here.

    Axes are words: samples, which come first here, x and y for the points of a grid, and others.
    Along an axis that we leave out, what is stored is constant.
    """

    variable: str
    """Its name in a MATLAB file, or the name of its own .npy file."""
    stored: tuple[str, ...]
    axes: tuple[str, ...]
    optional: bool = False
    """Written where it is given, never read."""
    reversed: tuple[str, ...] = ()
    """Axes that the file lists from the other end; of a grid with both ends, so that a stride
    keeps the same points from either."""
    shift: tuple[float, ...] = ()
    """What is stored less what we have, along the last axis: another origin of coordinates."""


@dataclass(frozen=True)
class PublicLayout:
    """A benchmark's files by the part of the data in them, and its arrays by our names."""

    files: Mapping[str, str]
    """A part is a MATLAB file with all arrays, or .npy files in one folder, named by one of them:
    each array has its own."""
    arrays: Mapping[str, PublicArray]
    periodic: bool = False
    """Whether space is periodic, so that a grid leaves out its last end, or has both ends."""
    square: bool = False
    """Whether x and y have equally many points."""
    lengths: Mapping[str, int] = field(default_factory=dict)
    """Axes whose length is always the same."""
    coordinates: tuple[PublicArray, ...] = ()
    """Grids from 0 to 1 that the file repeats for every sample; checked, not returned."""
    check: Callable[[str, Mapping[str, npt.NDArray[np.floating]]], None] | None = None
    """What else must hold for our arrays: given where they are, and them, it raises ValueError."""

    @property
    def needed(self) -> list[str]:
        """The arrays that every file has."""
        return [name for name, array in self.arrays.items() if not array.optional]

    @property
    def apart(self) -> bool:
        """Whether every array has a .npy file of its own."""
        return all(name.endswith(".npy") for name in self.files.values())

    def every(self, name: str, stride: int) -> tuple[int, ...]:
        """Steps along the axes of an array after the samples: the stride along those of space.

        >>> NAVIER_STOKES.every("vorticity", 4)
        (1, 4, 4)
        """
        return self.steps(self.arrays[name].axes[1:], stride)

    def steps(self, axes: tuple[str, ...], stride: int) -> tuple[int, ...]:
        """Steps along axes: the stride along those of space; without a grid it can only be 1."""
        if stride != 1 and not any(set(SPACE) & set(each.axes) for each in self.arrays.values()):
            raise ValueError(
                f"stride: expected 1, because these points form no grid to be thinned, got {stride}"
            )
        return tuple(stride if axis in SPACE else 1 for axis in axes)


def _on_material_grid(where: str, arrays: Mapping[str, npt.NDArray[np.floating]]) -> None:
    """Check that the blocks of plasticity start, less their displacement, as the grid we have."""
    start = arrays["motion"][:, :, :, 0]
    columns, rows = start.shape[1:3]
    x, y = np.linspace(0.0, 50.0, columns), np.linspace(15.0, 0.0, rows)
    off_x = abs(start[..., 0] - start[..., 2] - x[:, None]).max()
    off_y = abs(start[..., 1] - start[..., 3] - y).max()
    # A hundredth of a spacing is far above rounding, and far below any other grid.
    if off_x * (columns - 1) > 0.01 * 50.0 or off_y * (rows - 1) > 0.01 * 15.0:
        raise ValueError(
            f"{where}: expected x - u_x of frame 0 from 0 to 50 and y - u_y from 15 to 0 in equal "
            f"steps (in the file: 0.35 to -49.65, 14.9 to -0.1), got values up to {off_x:.3g} and "
            f"{off_y:.3g} from that: another block, or its points in another order; reverse axes "
            "or move the origin as needed"
        )


_LINE = ("samples", "x")
_PLANE = ("samples", "x", "y")
_CHANNELS = ("samples", "channels", "x", "y")
_FRAMES = ("samples", "x", "y", "frames", "channels")

BURGERS = PublicLayout(
    files={"all": "burgers_data_R10.mat"},
    arrays={
        "initial": PublicArray("a", _LINE, _LINE),
        "final": PublicArray("u", _LINE, _LINE),
    },
    periodic=True,
)
DARCY = PublicLayout(
    files={
        "train": "piececonst_r421_N1024_smooth1.mat",
        "test": "piececonst_r421_N1024_smooth2.mat",
    },
    arrays={
        "permeability": PublicArray("coeff", _PLANE, _PLANE),
        "pressure": PublicArray("sol", _PLANE, _PLANE),
    },
    square=True,
)
DARCY_NOTCH = PublicLayout(
    files={"all": "Darcy_Triangular_FNO.mat"},
    arrays={
        "boundary": PublicArray("boundCoeff", ("samples", "y", "x"), _LINE),
        "solution": PublicArray("sol", ("samples", "y", "x"), ("samples", "y", "x")),
    },
    square=True,
    coordinates=(
        PublicArray("coord_x", ("samples", "y", "x"), ("x",)),
        PublicArray("coord_y", ("samples", "y", "x"), ("y",)),
    ),
)
NAVIER_STOKES = PublicLayout(
    files={"all": "NavierStokes_V1e-5_N1200_T20.mat"},
    arrays={
        "vorticity": PublicArray(
            "u", ("samples", "x", "y", "frames"), ("samples", "frames", "x", "y")
        ),
        "initial": PublicArray("a", _PLANE, _PLANE, optional=True),
        "time": PublicArray("t", ("frames",), ("frames",), optional=True),
    },
    periodic=True,
    square=True,
)
ELASTICITY = PublicLayout(
    files={"all": "Random_UnitCell_XY_10.npy"},
    arrays={
        "points": PublicArray(
            "Random_UnitCell_XY_10.npy",
            ("points", "coordinates", "samples"),
            ("samples", "points", "coordinates"),
        ),
        "stress": PublicArray(
            "Random_UnitCell_sigma_10.npy", ("points", "samples"), ("samples", "points")
        ),
        "radius": PublicArray(
            "Random_UnitCell_rr_10.npy",
            ("angles", "samples"),
            ("samples", "angles"),
            optional=True,
        ),
        "coefficients": PublicArray(
            "Random_UnitCell_theta_10.npy",
            ("samples", "coefficients"),
            ("samples", "coefficients"),
            optional=True,
        ),
    },
    lengths={"coordinates": 2, "angles": 42, "coefficients": 10},
)
"""972 points of 2000 sheets, and the von Mises stress there: no displacement is in the files.

The points are quadrature points of 108 elements, so that none lies on the boundary, they differ
from sample to sample, and their order means nothing. The angles of the radius run round the void
from 0 to 2 pi: the last is the first again.
"""
AIRFOIL = PublicLayout(
    files={"all": "NACA_Cylinder_X.npy"},
    arrays={
        "x": PublicArray("NACA_Cylinder_X.npy", _PLANE, _PLANE),
        "y": PublicArray("NACA_Cylinder_Y.npy", _PLANE, _PLANE),
        "flow": PublicArray("NACA_Cylinder_Q.npy", _CHANNELS, _CHANNELS),
        "design": PublicArray(
            "NACA_theta.npy", ("samples", "design"), ("samples", "design"), optional=True
        ),
    },
    lengths={"channels": 5, "design": 8},
)
"""221 x 51 points of 2490 flows: density, velocity x and y, pressure and Mach number, in this
order.

The first axis runs round the airfoil, from the far end of the upper wake over the upper side to
the nose and back below: 50 cells, 120, and 50. The second runs outwards. Where it starts, the
points of the two wakes are the same ones twice. There are also NACA_X.npy, ..._Y.npy and ..._Q.npy,
the same flows as clouds of points, which are not read.
"""
PIPE = PublicLayout(
    files={"all": "Pipe_X.npy"},
    arrays={
        "x": PublicArray("Pipe_X.npy", _PLANE, _PLANE),
        "y": PublicArray("Pipe_Y.npy", _PLANE, _PLANE),
        "flow": PublicArray("Pipe_Q.npy", _CHANNELS, _CHANNELS),
    },
    lengths={"channels": 3},
)
"""129 x 129 points of 2310 flows: velocity x and y, and pressure, in this order.

The first axis runs from the inlet to the outlet, the second from the lower wall to the upper one.
The pressure is known at every second point of both axes only, and 0 at all others: a stride of 2
leaves them out. The inlet has a peak of 0.25, but a few samples have spikes at the corners of the
outlet, with velocities up to 1.8.
"""
PLASTICITY = PublicLayout(
    files={"all": "plas_N987_T20.mat"},
    arrays={
        "die": PublicArray("input", _LINE, _LINE),
        "motion": PublicArray(
            "output", _FRAMES, _FRAMES, reversed=("x",), shift=(-49.65, -0.1, 0.0, 0.0)
        ),
    },
    lengths={"channels": 4},
    check=_on_material_grid,
)
"""101 x 31 points of 987 blocks in 20 frames: x, y, u_x and u_y, in this order, in mm.

Here, x rises with the first axis from 0 to 50, y falls with the second from 15, the top, to 0, and
the die is listed with rising x. The file lists the points of the block, though not the die, with
falling x, and has the origin elsewhere: x from 0.35 to -49.65, y from 14.9 to -0.1. Both ways
round off: x and y come back with errors up to 1e-14. Frame 0 is the block at rest; the die sinks
by 0.3 per frame, and the last of its 6 mm is not shown.
"""
