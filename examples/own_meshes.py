"""A surrogate from a folder of VTU files: plates with a hole, each with a mesh of its own.

    python examples/own_meshes.py FOLDER

Makes the files with scikit-fem: a plate is held at its left edge and pulled at its right one, the
place and size of the hole and the pull are random. Then the command does the rest: `inspect` looks
at the folder, `fit` learns displacement and stress from geometry and pull, `predict` writes a file
with the same cells, which PyVista and ParaView open.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyvista
from skfem import Basis, ElementTriP1, ElementVector, MeshTri, condense, solve
from skfem.models.elasticity import lame_parameters, linear_elasticity

Array = npt.NDArray[np.float64]
LAMBDA, MU = lame_parameters(1.0, 0.3)


def plate_mesh(radius: float, centre: Array, nodes: int) -> MeshTri:
    """A square with a round hole: a regular mesh without its middle, drawn to the circle."""
    line = np.linspace(0, 1, nodes)
    square = MeshTri.init_tensor(line, line)
    outside = np.linalg.norm(square.p - centre[:, None], axis=0) > radius
    cells = square.t[:, outside[square.t].all(0)]
    used, numbers = np.unique(cells, return_inverse=True)
    mesh = MeshTri(np.ascontiguousarray(square.p[:, used]), numbers.reshape(cells.shape))
    points, rim = mesh.p.copy(), mesh.boundary_nodes()
    rim = rim[((points[:, rim] > 0) & (points[:, rim] < 1)).all(0)]
    away = points[:, rim] - centre[:, None]
    points[:, rim] = centre[:, None] + radius * away / np.linalg.norm(away, axis=0)
    return MeshTri(points, mesh.t)


def solved(mesh: MeshTri, pull: float) -> tuple[Array, Array]:
    """Displacement (n 2), and the equivalent stress (n,) by averages over the cells around."""
    basis = Basis(mesh, ElementVector(ElementTriP1()))
    held = basis.get_dofs(lambda x: np.isclose(x[0], 0)).all()
    pulled = basis.get_dofs(lambda x: np.isclose(x[0], 1)).all(["u^1"])
    start = basis.zeros()
    start[pulled] = pull
    stiffness = linear_elasticity(LAMBDA, MU).assemble(basis)
    u = solve(*condense(stiffness, x=start, D=np.concatenate([held, pulled])))
    gradient = basis.interpolate(u).grad.mean(-1)  # constant in a cell
    strain = (gradient + gradient.swapaxes(0, 1)) / 2
    s = 2 * MU * strain + LAMBDA * np.trace(strain) * np.eye(2)[:, :, None]
    equivalent = np.sqrt(s[0, 0] ** 2 - s[0, 0] * s[1, 1] + s[1, 1] ** 2 + 3 * s[0, 1] ** 2)
    around = np.bincount(mesh.t.ravel(), minlength=mesh.p.shape[1])
    total = np.bincount(mesh.t.ravel(), np.tile(equivalent, 3), mesh.p.shape[1])
    return u.reshape(-1, 2), total / around


def write_plates(folder: Path, count: int, nodes: int, seed: int = 0) -> Path:
    """The files, and a table of the pulls beside the folder."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    rows = ["file,pull"]
    for number in range(count):
        centre, radius = random.uniform(0.35, 0.65, 2), random.uniform(0.1, 0.25)
        pull = random.uniform(0.5, 1.5)
        mesh = plate_mesh(radius, centre, nodes + int(random.integers(-2, 3)))
        displacement, stress = solved(mesh, pull)
        cells = {pyvista.CellType.TRIANGLE: mesh.t.T}
        flat = np.zeros((len(stress), 1))
        grid = pyvista.UnstructuredGrid(cells, np.hstack([mesh.p.T, flat]))
        grid.point_data["displacement"] = np.hstack([displacement, flat])
        grid.point_data["stress"] = stress
        grid.save(folder / f"plate_{number:03d}.vtu")
        rows.append(f"plate_{number:03d}.vtu,{pull}")
    table = folder.with_name("pulls.csv")
    table.write_text("\n".join(rows) + "\n")
    return table


def funcattn(folder: Path, *words: str) -> None:
    """The command, in a folder."""
    subprocess.run([sys.executable, "-m", "funcattn", *words], cwd=folder, check=True)


def main(folder: Path, count: int = 60, nodes: int = 24, fit: tuple[str, ...] = ()) -> Path:
    """Make, inspect, fit, predict; the predicted file."""
    write_plates(folder / "plates", count, nodes)
    funcattn(folder, "inspect", "plates", "--parameters", "pulls.csv")
    funcattn(folder, "fit", "plates.toml", *(fit or ("--budget", "3min")))
    write_plates(folder / "new" / "plates", 1, nodes, seed=1)
    words = ("new/plates", "-o", "predicted", "--parameters", "new/pulls.csv")
    funcattn(folder, "predict", "runs/plates", *words)
    file = "plates/plate_000.vtu"
    predicted = pyvista.read(folder / "predicted" / "plate_000.vtu")
    assert predicted.n_cells == pyvista.read(folder / "new" / file).n_cells
    print(predicted.array_names)
    return folder / "predicted" / "plate_000.vtu"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--nodes", type=int, default=24)
    asked = parser.parse_args()
    main(asked.folder, asked.count, asked.nodes)
