"""The solver with a program that fails, hangs or pretends: fields, iterations and samples."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from funcattn.pde import airfrans, openfoam
from funcattn.pde.errors import NotConvergedError
from funcattn.pde.naca import four_digit
from funcattn.pde.openfoam_case import FIELDS, FoamCase, Scheme, find_program, read_field
from funcattn.pde.openfoam_mesh import FINE, Size, c_grid, centres, rows

Until = Callable[..., None]

TINY = Size(surface=20, wake=6, normal=12, first=1e-3, radius=20.0)
SCHEME = Scheme("upwind", 0.7, 0.5)


@pytest.mark.parametrize("width", [1, 3], ids=["scalar", "vector"])
def test_fields_are_read_as_they_were_written(width: int) -> None:
    rng = np.random.default_rng(1)
    cells, wall = rng.normal(size=(30, width)), rng.normal(size=(12, width))
    kind, form = ("scalar", "%.17g") if width == 1 else ("vector", "(%.17g %.17g %.17g)")
    text = (
        "FoamFile { version 2.0; class x; }\n"
        f"internalField   nonuniform List<{kind}> \n{rows(form, cells)};\n"
        "boundaryField\n{\n    far { type freestream; value uniform 7; }\n"
        "    airfoil\n    {\n        type nutUSpaldingWallFunction;\n        Cmu 0.09;\n"
        f"        value           nonuniform List<{kind}> \n{rows(form, wall)};\n    }}\n}}\n"
    )
    np.testing.assert_array_equal(read_field(text, 30), cells[:, :2])
    np.testing.assert_array_equal(read_field(text, 12, patch="airfoil"), wall[:, :2])
    np.testing.assert_array_equal(read_field(text, 2, patch="far"), [[7.0], [7.0]])


@pytest.mark.parametrize(
    ("text", "patch"),
    [
        ("internalField nonuniform List<scalar> 2(1 2);", None),
        ("internalField uniform 1;", "airfoil"),
        ("boundaryField { airfoil { type zeroGradient; } far { value uniform 1; } }", "airfoil"),
        ("", None),
    ],
    ids=["number", "no boundary", "no value", "empty"],
)
def test_text_without_the_field_is_refused(text: str, patch: str | None) -> None:
    with pytest.raises(
        ValueError, match=r"expected 5 numbers or vectors .* the file is of another"
    ):
        read_field(text, 5, patch=patch)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a program with this text first on the PATH."""

    def put(script: str) -> None:
        program = tmp_path / "bin" / "simpleFoam"
        program.parent.mkdir()
        program.write_text(script)
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)

    return put


def run(folder: Path, timeout: float = 900.0, **start: np.ndarray) -> None:
    grid = c_grid(four_digit(2.0, 4.0, 12.0, panels=TINY.surface), 0.0, TINY)
    case = FoamCase(folder / "case", grid, TINY, np.array([1.0, 0.0]), 1e-6, start)
    case.run(10, SCHEME, timeout=timeout)


def test_missing_program_is_reported_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="apt-get install --no-install-recommends openfoam"):
        openfoam.sample(mesh="coarse", rng=np.random.default_rng(0))


def test_environment_is_derived_from_the_program_unless_it_is_set(
    stand_in: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in("#!/bin/sh\n")
    monkeypatch.delenv("WM_PROJECT_DIR", raising=False)
    program, environment = find_program()
    assert program == str(tmp_path / "bin" / "simpleFoam")
    assert environment["WM_PROJECT_DIR"] == str(tmp_path / "share" / "openfoam")
    assert environment["PATH"] == os.environ["PATH"]
    monkeypatch.setenv("WM_PROJECT_DIR", "/opt/mine")
    assert find_program()[1]["WM_PROJECT_DIR"] == "/opt/mine"


@pytest.mark.parametrize(
    ("script", "started", "error", "message"),
    [
        # Drawing another sample would not help.
        ("echo no controlDict >&2; exit 3", False, RuntimeError, "3: check(.|\n)*no controlDict"),
        ("kill -FPE $$", True, NotConvergedError, r"code -8: the (.|\n)*floating trouble"),
        ("exit 1", True, NotConvergedError, r"code 1: the (.|\n)*floating trouble"),
        ("exit 0", True, NotConvergedError, r"code 0: the (.|\n)*floating trouble"),
    ],
    ids=["cannot start", "is killed", "fails", "ends early"],
)
def test_failure_to_start_raises_another_error_than_a_later_failure(
    stand_in: Any, tmp_path: Path, script: str, started: bool, error: type[Exception], message: str
) -> None:
    output = "echo Create; echo 'Time = 1'; echo floating trouble >&2; " if started else ""
    stand_in(f"#!/bin/sh\n{output}{script}\n")
    with pytest.raises(error, match=message) as caught:
        run(tmp_path)
    assert type(caught.value) is error


def test_program_that_rejects_its_initial_flow_counts_as_not_converged(
    stand_in: Any, tmp_path: Path
) -> None:
    # Fields that diverged on the coarse mesh may stop it before its first iteration.
    stand_in("#!/bin/sh\nexit 3\n")
    start = {name: np.ones((32, 12, 2 if name == "U" else 1)) for name in FIELDS}
    with pytest.raises(NotConvergedError, match="code 3: the flow diverges"):
        run(tmp_path, **start)


def ended(file: Path) -> bool:
    """Whether the process whose number is in a file has ended."""
    try:
        state = Path(f"/proc/{int(file.read_text())}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state.split(")")[-1].split()[0] == "Z"


def test_program_that_hangs_is_stopped(stand_in: Any, tmp_path: Path, until: Until) -> None:
    number = tmp_path / "pid"
    stand_in(f"#!/bin/sh\necho $$ > {number}.new; mv {number}.new {number}; exec sleep 3600\n")
    with pytest.raises(NotConvergedError, match=r"at most 1.0 s for 10 iterations"):
        run(tmp_path, timeout=1.0)
    # On a busy machine it may be stopped before it has written its number.
    until(lambda: not number.exists() or ended(number))


@pytest.mark.skipif(
    not (sys.platform == "linux" and shutil.which("setpriv")), reason="needs setpriv of Linux"
)
def test_program_dies_with_its_parent(stand_in: Any, tmp_path: Path, until: Until) -> None:
    number = tmp_path / "pid"
    stand_in(f"#!/bin/sh\necho $$ > {number}.new; mv {number}.new {number}; exec sleep 3600")
    code = (
        "import numpy as np; from funcattn.pde import openfoam\n"
        "openfoam.sample(mesh='coarse', rng=np.random.default_rng(0))"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as parent:
        try:
            until(number.exists, parent)
        finally:
            parent.send_signal(signal.SIGKILL)
    until(lambda: ended(number))


@pytest.mark.parametrize(
    ("lift", "change"),
    [
        (np.linspace(9.0, 10.0, 1001), 0.0099),
        (np.concatenate([np.zeros(400), np.full(100, 0.5)]), 0.0),
        (np.concatenate([np.zeros(401), np.full(99, 0.5)]), 1.0),
        (-0.5 + 0.01 * np.cos(np.arange(500)), 0.04),
        (0.001 * np.cos(np.arange(500)), 0.02),
    ],
    ids=["rises", "stepped before", "stepped since", "waves", "hardly any lift"],
)
def test_lift_change_is_the_range_over_the_last_iterations(lift: np.ndarray, change: float) -> None:
    assert openfoam.lift_change(lift) == pytest.approx(change, rel=0.02, abs=1e-9)


def test_only_the_eddy_viscosity_in_the_box_counts() -> None:
    x, y = np.meshgrid(np.linspace(-4.0, 6.0, 41), np.linspace(-3.0, 3.0, 25), indexing="ij")
    grid = np.stack([x, y], axis=-1)
    place = centres(grid)
    inside = np.all((airfrans.BOX[0] <= place) & (place <= airfrans.BOX[1]), axis=-1)
    assert 0.0 < inside.mean() < 0.5
    before = np.random.default_rng(0).normal(size=(*place.shape[:2], 1))
    far = before + np.where(inside, 0.0, 100.0)[..., None]
    assert openfoam.is_still(grid, before, far)
    deviation = before[inside].std()
    for part, still in ((0.009, True), (0.011, False)):
        near = before + np.where(inside, part * deviation, 0.0)[..., None]
        assert openfoam.is_still(grid, before, near) is still
    assert openfoam.is_still(grid, 0.0 * before, 0.0 * before)


WAVE = np.sin(2 * np.pi * np.arange(900) / 70)


@pytest.mark.parametrize(
    ("lift", "average"),
    [
        (0.5 + 0.001 * WAVE, False),
        (0.5 + 0.02 * WAVE, True),
        (-0.05 + 0.01 * WAVE, True),
        (0.5 + 0.02 * WAVE - np.linspace(0.0108, 0.0, 900), True),
    ],
    ids=["steady", "waves", "little lift", "slow drift"],
)
def test_average_is_taken_if_only_the_average_is_steady(lift: np.ndarray, average: bool) -> None:
    assert openfoam.needs_average(lift, 5e-3) is average


@pytest.mark.parametrize(
    ("lift", "message"),
    [
        (np.linspace(0.4, 0.5, 900), r"5.0e-02 over 500, got 2.2e-02 and 5.7e-02 after 900"),
        (0.5 + 0.055 * np.sin(np.arange(900) / 150), r"5.0e-02 over 500, got .* after 900"),
        (0.5 + 0.07 * np.sin(np.arange(900) / 10), r"at most 0.25 of 0.5\d*, got 0.28 over 500"),
        (np.full(900, np.nan), r"at most 0.25 of nan, got nan over 500"),
    ],
    ids=["drifts", "slow wave", "wide swing", "missing"],
)
def test_lift_that_is_not_steady_is_reported(lift: np.ndarray, message: str) -> None:
    with pytest.raises(NotConvergedError, match=message):
        openfoam.needs_average(lift, 5e-3)


FAKE = r"""#!PYTHON
import math, pathlib, re, sys

case = pathlib.Path(sys.argv[2])
control = (case / "system/controlDict").read_text()
end = int(re.search(r"endTime (\d+)", control)[1])
begin = max(int(path.name) for path in case.iterdir() if path.name.isdigit())
wall = int(re.search(r"nFaces (\d+)", (case / "constant/polyMesh/boundary").read_text())[1])

history = case / "postProcessing" / "coefficients" / str(begin)
history.mkdir(parents=True)
lines = [f"{t} 0.01 {LIFT}" for t in range(begin + 1, end + 1)]
(history / "coefficient.dat").write_text("\n".join(["# Force", "# Time Cd Cl", *lines]))

def write(name, cells, wall):
    boundary = "boundaryField { airfoil { value %s; } }" % wall
    (case / str(end) / name).write_text(f"internalField uniform {cells};\n{boundary}")

(case / str(end)).mkdir()
shear = "nonuniform List<vector> %d(%s)" % (wall, " ".join(f"({-k} 0 0)" for k in range(wall)))
for mean, u in [("", 1), ("Mean", 2)][: 1 + ("fieldAverage" in control)]:
    write("U" + mean, f"({u} 5 0)", "uniform (0 0 0)")
    write("wallShearStress" + mean, "(0 0 0)", shear)
    for name in ("p", "k", "omega", "nut"):
        write(name + mean, 3, "uniform 4")
print("Time = 1")
"""


@pytest.fixture
def pretend(stand_in: Any) -> Callable[[str], None]:
    """Install a program that finishes at once, with a lift that is this function of iteration t."""
    return lambda lift: stand_in(FAKE.replace("PYTHON", sys.executable).replace("LIFT", lift))


@pytest.fixture
def flow_with_lift(pretend: Any) -> Callable[[str], openfoam.Flow]:
    def solve(lift: str) -> openfoam.Flow:
        pretend(lift)
        nodes = four_digit(0.0, 0.0, 12.0, panels=80)
        return openfoam.solve(nodes, np.array([1.0, 0.05]), mesh="coarse", max_iterations=1200)

    return solve


@pytest.mark.parametrize(
    ("lift", "iterations", "averaged"),
    [
        ("0.5", 220, False),
        ("0.5 - 0.1 * (t < 150)", 270, False),
        ("0.5 + math.exp(-t / 50)", 420, False),
        ("0.5 + 0.02 * math.sin(t / 9) * (t < 900)", 1170, False),
        ("0.5 + 0.02 * math.sin(t / 9)", 1170, True),
        ("0.5 + 0.1 * math.sin(t / 9) * (0.2 if t > 670 else 1)", 1170, True),
    ],
    ids=["steady", "late step", "decay", "steady at last", "waves", "calmer waves"],
)
def test_iterations_continue_until_the_lift_is_steady(
    flow_with_lift: Any, lift: str, iterations: int, averaged: bool
) -> None:
    flow = flow_with_lift(lift)
    assert (flow.iterations, flow.averaged) == (iterations, averaged)
    assert (flow.change <= 5e-3) != averaged
    assert flow.velocity[7, 3].tolist() == [2.0 if averaged else 1.0, 5.0]


@pytest.mark.parametrize(
    ("lift", "message", "iterations"),
    [
        ("0.7 + t / 5000", r"after 1170 iterations, when it was 0\.93", 1170),
        ("t / 1000 - 0.5", r"at most 0\.5 of 0\.07\d, got 2 over 200 ", 670),
        ("0.5 + 0.2 * math.sin(t / 9)", r"at most 0\.5 of 0\.\d+, got 0\.\d+ over 200 ", 670),
        ("0.5 + 0.1 * math.sin(t / 9)", r"at most 0\.25 of 0\.\d+, got 0\.4 over 500 ", 1170),
        ("math.nan", r"at most 0\.5 of nan, got nan over 200", 670),
    ],
    ids=["drifts", "runs away", "wide swing", "swing", "missing"],
)
def test_lift_that_never_becomes_steady_is_rejected_as_early_as_possible(
    flow_with_lift: Any,
    lift: str,
    message: str,
    iterations: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[int] = []

    class Watched(FoamCase):
        def lift(self) -> np.ndarray:
            done.append(self.iterations)
            return super().lift()

    monkeypatch.setattr(openfoam, "FoamCase", Watched)
    with pytest.raises(NotConvergedError, match=message):
        flow_with_lift(lift)
    assert done[-1] == iterations


@pytest.mark.parametrize("mesh", ["coarse", "fine"])
def test_sample_is_assembled_as_documented(pretend: Any, mesh: openfoam.Mesh) -> None:
    pretend("0.5")
    stored = openfoam.sample(mesh=mesh, rng=np.random.default_rng(2))
    design = airfrans.draw_design(np.random.default_rng(2))
    size = openfoam.LEVELS[mesh][-1]
    s, nodes = size.surface, airfrans.outline(design, panels=size.surface)
    panels = airfrans.panels(nodes)
    far = airfrans.stream(design, 1.56e-5)

    position, features, target = (stored[name] for name in ("position", "features", "target"))
    np.testing.assert_array_equal(np.flatnonzero(stored["surface"]), np.arange(s))
    np.testing.assert_array_equal(position[:s], panels.middle)
    np.testing.assert_array_equal(features[:, :2], position)
    np.testing.assert_array_equal(features[:, 2:4], np.broadcast_to(far, position.shape))
    np.testing.assert_array_equal(features[:s, 4], 0.0)
    np.testing.assert_array_equal(features[:s, 5:], panels.normal)
    np.testing.assert_array_equal(features[s:, 5:], 0.0)
    np.testing.assert_array_equal(stored["length"], panels.length)
    # The program writes -k along x at face k; its part along the wall acts on the wall.
    along = np.stack([-panels.normal[:, 1], panels.normal[:, 0]], axis=-1)
    np.testing.assert_allclose(
        stored["shear"], (np.arange(s) * along[:, 0])[:, None] * along, atol=1e-12
    )
    # Each of the next points is in the cell next to its face, at half its height.
    above = np.sum((position[s : 2 * s] - panels.middle) * panels.normal, axis=1)
    np.testing.assert_allclose(above, 0.5 * size.first, rtol=0.3)
    assert above.mean() == pytest.approx(0.5 * size.first, rel=0.1)
    np.testing.assert_allclose(features[s : 2 * s, 4], above, rtol=0.05)
    # All other cells in the box, each once.
    grid = c_grid(nodes, float(np.deg2rad(design.incidence)), size)
    everywhere = centres(grid).reshape(-1, 2)
    boxed = everywhere[((everywhere >= [-2.0, -1.5]) & (everywhere <= [4.0, 1.5])).all(axis=1)]
    np.testing.assert_array_equal(
        np.unique(position[s:], axis=0), np.unique(boxed, axis=0), strict=True
    )
    assert features[2 * s :, 4].min() > size.first
    np.testing.assert_array_equal(target[:s], np.broadcast_to([0.0, 0.0, 3.0, 4.0], (s, 4)))
    np.testing.assert_array_equal(
        target[s:], np.broadcast_to([1.0, 5.0, 3.0, 3.0], (len(boxed), 4))
    )
    lift, drag = airfrans.coefficients(
        far, target[:s, 2], stored["shear"], panels.normal, panels.length
    )
    assert (stored["lift"], stored["drag"]) == (lift, drag)
    for name in ("reynolds", "incidence", "family", "digits"):
        np.testing.assert_array_equal(stored[name], getattr(design, name))
    assert (stored["iterations"], stored["change"], stored["averaged"]) == (220.0, 0.0, 0.0)
    assert all(values.dtype == np.float64 for name, values in stored.items() if name != "surface")


def test_fine_mesh_starts_from_the_coarse_flow(
    pretend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[dict[str, np.ndarray]] = []

    class Watched(FoamCase):
        def __init__(self, *arguments: Any) -> None:
            starts.append(arguments[-1])
            super().__init__(*arguments)

    monkeypatch.setattr(openfoam, "FoamCase", Watched)
    pretend("0.5")
    openfoam.solve(four_digit(2.0, 4.0, 12.0, panels=160), np.array([1.0, 0.02]))
    assert starts[0] == {}
    assert starts[1]["U"].shape == (260, FINE.normal, 2)
    np.testing.assert_allclose(starts[1]["U"][30, 20], [1.0, 5.0])
    np.testing.assert_allclose(starts[1]["omega"], 3.0)


def test_no_files_are_left_behind(
    pretend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    pretend("0.5")
    openfoam.sample(mesh="coarse", rng=np.random.default_rng(0))
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mesh": "huge"}, r"mesh to be one of \['coarse', 'fine'\], got 'huge'"),
        ({"reflex": 2.0}, r"a fraction reflex in \[0, 1\], got 2.0"),
        ({"viscosity": 0.0}, r"within 30 degrees of x, got \[0. 0.\]"),
        ({"tolerance": 0.0}, "0 < tolerance < 1 and timeout > 0, got 1.56e-05, 0.0 and 3600.0"),
        ({"timeout": np.nan}, "0 < tolerance < 1 and timeout > 0, got 1.56e-05, 0.005 and nan"),
        ({"max_iterations": 719}, "max_iterations >= 720, got 719"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
@pytest.mark.usefixtures("as_a_user")
def test_parameters_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        openfoam.sample(**options, rng=np.random.default_rng(0))


@pytest.mark.parametrize(
    ("nodes", "far", "message"),
    [
        (four_digit(0.0, 0.0, 12.0, panels=80), [1.0, 0.0], r"shape \(161, 2\), got shape \(81"),
        (np.full((161, 2), np.nan), [1.0, 0.0], r"finite nodes of shape \(161, 2\)"),
        (four_digit(0.0, 0.0, 12.0, panels=160), [1.0, 0.6], "within 30 degrees of x"),
        (four_digit(0.0, 0.0, 12.0, panels=160), [-1.0, 0.0], "within 30 degrees of x"),
        (four_digit(0.0, 0.0, 12.0, panels=160), [np.nan, 0.0], "two finite numbers"),
        (four_digit(0.0, 0.0, 12.0, panels=160), [1.0], "two finite numbers"),
    ],
    ids=["few nodes", "missing nodes", "steep", "backward", "missing stream", "line"],
)
def test_invalid_airfoil_or_stream_is_refused(
    nodes: np.ndarray, far: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        openfoam.solve(nodes, np.array(far))
