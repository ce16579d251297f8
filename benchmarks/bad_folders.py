"""A thousand folders of cases with something wrong, through `funcattn inspect` and `funcattn fit`.

    python benchmarks/bad_folders.py [COUNT]

Each folder has ten good cases of one kind of file (npz, HDF5, VTU) and a table of parameters, and
then one thing is damaged: every way of `WAYS` in turn, at a random place. What must come is a
message that names the file, the field where one is meant, what was expected and what was found, or
for what can be lived with, a warning that does; no traceback, no file that is half written, no run.
A fit that is not refused ends before its first step. Writes results/bad_folders.json.
"""

import contextlib
import io
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from funcattn import command
from funcattn.errors import FuncattnError
from funcattn.files import write_text
from funcattn.provenance import facts

RESULT = Path("results/bad_folders.json")
CASES = 10
KINDS = ("npz", "h5", "vtu")
Arrays = dict[str, np.ndarray]
REACHED = "the first step was reached"


@dataclass
class Bad:
    """A damaged folder, and what has to be said of it."""

    way: str
    kind: str
    names: list[str] = field(default_factory=list)
    """Words that the message has to have: the file, and the field where one is meant."""
    refused: bool = True
    """Whether `fit` has to refuse it; else a warning suffices."""
    outputs: tuple[str, ...] = ("pressure", "velocity")
    inputs: tuple[str, ...] = ("angle",)
    table: str = "table.csv"


class Maker:
    """Writes one damaged folder."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.root = folder / "cases", folder
        self.folder.mkdir(parents=True)
        self.random = np.random.default_rng(number)
        self.kind = KINDS[(number // len(WAYS)) % len(KINDS)]
        self.victim = int(self.random.integers(CASES))
        self.cases = [self._case() for _ in range(CASES)]
        self.rows = [f"{self.name(i)},{self.random.random():.4f}" for i in range(CASES)]
        self.bad = Bad(list(WAYS)[number % len(WAYS)], self.kind, [self.name(self.victim)])
        WAYS[self.bad.way](self)

    def _case(self) -> Arrays:
        points = int(self.random.integers(12, 20))
        positions = self.random.random((points, 2))
        return {
            "positions": positions,
            "pressure": positions[:, 0] ** 2,
            "temperature": 1e5 * (1 + positions[:, 1]),
            "velocity": positions[:, ::-1] * 2,
        }

    def name(self, place: int) -> str:
        """The file of a case."""
        return f"case_{place}.{self.kind}"

    @property
    def damaged(self) -> Arrays:
        """The case that is damaged."""
        return self.cases[self.victim]

    @property
    def file(self) -> Path:
        """Its file."""
        return self.folder / self.name(self.victim)

    def write(self, *, table: bool = True) -> None:
        """All files; the table is written last."""
        for place, arrays in enumerate(self.cases):
            write_case(self.folder / self.name(place), arrays)
        if table:
            (self.root / "table.csv").write_text("\n".join(["file,angle", *self.rows]) + "\n")

    def field(self) -> str:
        """One of the outputs."""
        return str(self.random.choice(["pressure", "velocity"]))


def write_case(path: Path, arrays: Arrays) -> None:
    """One case as its ending says; what does not fit is written all the same."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    elif path.suffix == ".h5":
        import h5py

        with h5py.File(path, "w") as file:
            for name, each in arrays.items():
                file[name] = each
    else:
        path.write_text(_vtu(arrays))


def _vtu(arrays: Arrays) -> str:
    """VTK's XML as text, which also takes arrays of a wrong length."""
    points = len(arrays["positions"])
    flat = np.pad(arrays["positions"], ((0, 0), (0, 1)))

    def array(name: str, values: np.ndarray) -> str:
        width = 1 if values.ndim == 1 else values.shape[1]
        words = " ".join(f"{each:.17g}" for each in values.ravel())
        return (
            f'<DataArray type="Float64" Name="{name}" NumberOfComponents="{width}" '
            f'format="ascii">{words}</DataArray>'
        )

    data = "".join(array(name, each) for name, each in arrays.items() if name != "positions")
    fan = [(0, i, i + 1) for i in range(1, points - 1)]
    corners = " ".join(str(corner) for each in fan for corner in each)
    ends = " ".join(str(3 * (i + 1)) for i in range(len(fan)))
    return (
        '<?xml version="1.0"?><VTKFile type="UnstructuredGrid" version="0.1" '
        'byte_order="LittleEndian"><UnstructuredGrid>'
        f'<Piece NumberOfPoints="{points}" NumberOfCells="{len(fan)}">'
        f"<PointData>{data}</PointData><Points>{array('Points', flat)}</Points><Cells>"
        f'<DataArray type="Int64" Name="connectivity" format="ascii">{corners}</DataArray>'
        f'<DataArray type="Int64" Name="offsets" format="ascii">{ends}</DataArray>'
        f'<DataArray type="UInt8" Name="types" format="ascii">{"5 " * len(fan)}</DataArray>'
        "</Cells></Piece></UnstructuredGrid></VTKFile>"
    )


# The ways


def truncated(maker: Maker) -> None:
    """A file that was cut off."""
    maker.write()
    content = maker.file.read_bytes()
    maker.file.write_bytes(content[: int(len(content) * maker.random.uniform(0.02, 0.9))])


def no_bytes(maker: Maker) -> None:
    """A file without content."""
    maker.write()
    maker.file.write_bytes(b"")


def noise(maker: Maker) -> None:
    """Random bytes under the name of a case."""
    maker.write()
    maker.file.write_bytes(maker.random.bytes(int(maker.random.integers(1, 4000))))


def text(maker: Maker) -> None:
    """A text under the name of a case."""
    maker.write()
    maker.file.write_text("run finished without errors\n" * int(maker.random.integers(1, 50)))


def a_folder(maker: Maker) -> None:
    """A folder under the name of a case; it is no file, so that nine cases are left."""
    maker.write()
    maker.file.unlink()
    maker.file.mkdir()
    maker.bad.names = ["all cases"]


def broken_link(maker: Maker) -> None:
    """A link to a file that is gone."""
    maker.write()
    maker.file.unlink()
    maker.file.symlink_to(maker.root / "gone")
    maker.bad.names = ["all cases"]


def mixed(maker: Maker) -> None:
    """Files of two kinds in one folder."""
    maker.write()
    other = str(maker.random.choice([kind for kind in KINDS if kind != maker.kind]))
    write_case(maker.folder / f"another.{other}", maker.damaged)
    maker.bad.names = ["cases", f".{maker.kind}", f".{other}"]


def empty(maker: Maker) -> None:
    """A folder without files, or with others only."""
    if maker.random.random() < 0.5:
        (maker.folder / "readme.txt").write_text("none yet\n")
    (maker.root / "table.csv").write_text("file,angle\na,1\n")
    maker.bad.names = ["cases"]


def missing_folder(maker: Maker) -> None:
    """No folder at all."""
    maker.folder.rmdir()
    (maker.root / "table.csv").write_text("file,angle\na,1\n")
    maker.bad.names = ["cases"]


def few(maker: Maker) -> None:
    """Too few cases to learn from."""
    count = int(maker.random.integers(1, 9))
    maker.cases, maker.rows = maker.cases[:count], maker.rows[:count]
    maker.write()
    maker.bad.names = ["all cases", str(count)]


def renamed_field(maker: Maker) -> None:
    """A field under another name in one file."""
    name = maker.field()
    maker.damaged[f"{name}s"] = maker.damaged.pop(name)
    maker.write()
    maker.bad.names.append(name)


def missing_field(maker: Maker) -> None:
    """A file without a field."""
    name = maker.field()
    del maker.damaged[name]
    maker.write()
    maker.bad.names.append(name)


def unknown_output(maker: Maker) -> None:
    """An output that no file has."""
    maker.write()
    maker.bad.outputs = ("presure",)
    maker.bad.names = ["presure", "pressure"]


def unknown_input(maker: Maker) -> None:
    """An input that no file has."""
    maker.write()
    maker.bad.inputs = ("angel",)
    maker.bad.names = ["angel", "angle"]


def wrong_length(maker: Maker) -> None:
    """A field with fewer or more values than there are points."""
    name = maker.field()
    values = maker.damaged[name]
    longer = maker.random.random() < 0.5
    maker.damaged[name] = np.concatenate([values, values[:3]]) if longer else values[:-3]
    maker.write()
    # Of too few values VTK tells the file only.
    maker.bad.names += [name] if longer or maker.kind != "vtu" else []


def wrong_width(maker: Maker) -> None:
    """A vector of three components in one file, of two in the others."""
    maker.damaged["velocity"] = np.concatenate([maker.damaged["velocity"]] * 2, axis=1)[:, :3]
    maker.write()
    maker.bad.names.append("velocity")


def lost_positions(maker: Maker) -> None:
    """Positions that are not finite."""
    maker.damaged["positions"][0, 0] = maker.random.choice([np.nan, np.inf, -np.inf])
    maker.write()
    maker.bad.names.append("positions" if maker.kind != "vtu" else "")


def missing_values(maker: Maker) -> None:
    """NaN in an output, which is left out."""
    name = maker.field()
    maker.damaged[name][: int(maker.random.integers(1, 10))] = np.nan
    maker.write()
    maker.bad.names.append(name)
    maker.bad.refused = False


def infinite_values(maker: Maker) -> None:
    """Infinite values in an output."""
    name = maker.field()
    maker.damaged[name][0] = maker.random.choice([np.inf, -np.inf])
    maker.write()
    maker.bad.names.append(name)


def swapped_widths(maker: Maker) -> None:
    """A scalar and a vector field that changed places in one file."""
    case = maker.damaged
    case["pressure"], case["velocity"] = case["velocity"], case["pressure"]
    maker.write()
    maker.bad.names.append("pressure")


def swapped_sizes(maker: Maker) -> None:
    """Two scalar fields that changed places in one file; their magnitudes tell."""
    case = maker.damaged
    case["pressure"], case["temperature"] = case["temperature"], case["pressure"]
    maker.write()
    maker.bad.names.append("pressure")
    maker.bad.refused = False


def other_length(maker: Maker) -> None:
    """A mesh in other units of length."""
    maker.damaged["positions"] *= maker.random.choice([1e-4, 1e4])
    maker.write()
    maker.bad.names.append("positions")


def same_input(maker: Maker) -> None:
    """Two files with equal inputs and other outputs."""
    other = (maker.victim + 1) % CASES
    maker.cases[other] = {**maker.damaged, "pressure": maker.damaged["pressure"] + 1}
    maker.rows[other] = f"{maker.name(other)},{maker.rows[maker.victim].partition(',')[2]}"
    maker.write()


def twice(maker: Maker) -> None:
    """A case that stands there twice."""
    other = (maker.victim + 1) % CASES
    maker.cases[other] = maker.damaged
    maker.rows[other] = f"{maker.name(other)},{maker.rows[maker.victim].partition(',')[2]}"
    maker.write()
    maker.bad.refused = False


def a_number(maker: Maker) -> None:
    """An output that is one number per case in the table."""
    maker.write()
    maker.bad.outputs, maker.bad.inputs = ("angle",), ()
    maker.bad.names = ["angle"]


def no_row(maker: Maker) -> None:
    """A case without a row in the table."""
    maker.rows.pop(maker.victim)
    maker.write()
    maker.bad.names = ["table.csv", maker.file.stem]


def two_rows(maker: Maker) -> None:
    """A case with two rows in the table."""
    maker.rows.append(maker.rows[maker.victim])
    maker.write()
    maker.bad.names = ["table.csv", maker.file.stem]


def no_number(maker: Maker) -> None:
    """A row of the table without a number."""
    maker.rows[maker.victim] = f"{maker.name(maker.victim)},"
    maker.write()
    maker.bad.names = ["table.csv", "angle"]


def long_row(maker: Maker) -> None:
    """A row of the table with a value too many."""
    maker.rows[maker.victim] += ",7"
    maker.write()
    maker.bad.names = ["table.csv", f"row {maker.victim + 2}"]


def other_names(maker: Maker) -> None:
    """A table of other cases."""
    maker.rows = [f"other_{row}" for row in maker.rows]
    maker.write()
    maker.bad.names = ["table.csv", "case_0"]


def no_table(maker: Maker) -> None:
    """A table that is not there, or binary."""
    maker.write(table=False)
    if maker.random.random() < 0.5:
        (maker.root / "table.csv").write_bytes(maker.random.bytes(500))
    maker.bad.names = ["table.csv"]


WAYS: dict[str, Callable[[Maker], None]] = {
    way.__name__: way
    for way in (
        *(truncated, no_bytes, noise, text, a_folder, broken_link, mixed, empty, missing_folder),
        *(few, renamed_field, missing_field, unknown_output, unknown_input, wrong_length),
        *(wrong_width, lost_positions, missing_values, infinite_values, swapped_widths),
        *(swapped_sizes, other_length, same_input, twice, a_number, no_row, two_rows),
        *(no_number, long_row, other_names, no_table),
    )
}


# Asking the command


def asked(*words: str) -> tuple[int, str]:
    """Exit code and all that the command says, in this process."""
    out, code = io.StringIO(), 0
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
        patch.object(sys, "argv", ["funcattn", *words]),
        patch.dict(os.environ, {"COLUMNS": "200"}),
    ):
        try:
            command.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return code, out.getvalue()


def _stopped(*_: Any, **__: Any) -> None:
    raise FuncattnError(REACHED)


@dataclass
class Outcome:
    """What came of a folder."""

    way: str
    kind: str
    inspected: str
    fitted: str
    wrong: list[str]
    """In which the outcome is not what has to come; empty if all is well."""


def judged(folder: Path, number: int) -> Outcome:
    """Make a folder, inspect it and fit to it."""
    with contextlib.chdir(folder):
        bad = Maker(Path("work"), number).bad
        os.chdir("work")
        before = _files()
        inspect = ("inspect", "cases", "--parameters", "table.csv")
        fit = ("fit", "cases", "--parameters", "table.csv", "--outputs", *bad.outputs)
        with (
            patch("funcattn.cli.inspect.draw_cases"),
            patch("funcattn.surrogate.train", _stopped),
            patch("funcattn.fitting.sizing.seconds_per_epoch", lambda *_: 1.0),
        ):
            first = asked(*inspect)
            inspected = _files() - before
            second = asked(*fit, *(("--inputs", *bad.inputs) if bad.inputs else ()))
        left = _files() - before
        return Outcome(bad.way, bad.kind, *_verdict(bad, first, second, inspected, left))


def _files() -> set[str]:
    return {each.as_posix() for each in Path().rglob("*")}


def _verdict(
    bad: Bad,
    first: tuple[int, str],
    second: tuple[int, str],
    inspected: set[str],
    left: set[str],
) -> tuple[str, str, list[str]]:
    wrong = []
    (code, said), (fit_code, fit_said) = first, second
    reached = REACHED in fit_said
    for name, words in (("inspect", said), ("fit", fit_said)):
        signs = [sign for sign in ("Traceback", "unexpected", "Errno 13") if sign in words]
        wrong += [f"{name} says {sign}" for sign in signs]
    if reached == bad.refused:
        wrong.append("fit went on" if reached else "fit refused")
    if fit_code != 1:
        wrong.append(f"fit ended with code {fit_code}")
    lines = [line for line in fit_said.splitlines() if REACHED not in line]
    telling = [line for line in lines if all(name in line for name in bad.names)]
    if not any("expected" in line and "got" in line for line in telling):
        wrong.append(f"fit names no {', '.join(bad.names)} with expected and got")
    if left - inspected:
        wrong.append(f"fit left {', '.join(sorted(left - inspected))}")
    if inspected - {"cases.toml", "cases.png"}:
        wrong.append(f"inspect left {', '.join(sorted(inspected))}")
    shown = "accepted with a warning" if reached else "refused"
    return "told" if code == 0 else "refused", shown, wrong


def main(count: int) -> None:
    """All folders, and the table."""
    outcomes = []
    for number in range(count):
        folder = Path(tempfile.mkdtemp(prefix="funcattn-"))
        try:
            outcomes.append(judged(folder, number))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        for reason in outcomes[-1].wrong:
            sys.stdout.write(f"{number} {outcomes[-1].way} {outcomes[-1].kind}: {reason}\n")
    table = {
        way: {
            "what": " ".join((WAYS[way].__doc__ or "").split()),
            "inspect": dict(Counter(each.inspected for each in outcomes if each.way == way)),
            "fit": dict(Counter(each.fitted for each in outcomes if each.way == way)),
            "not as it should be": sum(bool(each.wrong) for each in outcomes if each.way == way),
        }
        for way in WAYS
    }
    result = {
        "what": (__doc__ or "").partition("\n")[0],
        "command": shlex.join(["python", *sys.argv]),
        "folders": count,
        "kinds of files": dict(Counter(each.kind for each in outcomes)),
        "not as it should be": [asdict(each) for each in outcomes if each.wrong],
        "ways": table,
        **facts(),
    }
    write_text(RESULT, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
