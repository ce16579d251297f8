"""A folder of simulations as a sequence of cases, each read when it is asked for."""

import glob
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from funcattn.arrays import Array
from funcattn.data.cases import array_files, meshes, rows
from funcattn.data.cases.case import Case, unknown
from funcattn.data.cases.collection import Cases
from funcattn.data.cases.known_folders import known_cases, plaid_time
from funcattn.data.cases.layouts import cases_in
from funcattn.data.cases.tables import joined_parameters
from funcattn.data.foreign import FileError, reading

_ARRAYS = (*array_files.SUFFIXES, *rows.SUFFIXES)
SUFFIXES = (*meshes.SUFFIXES, *_ARRAYS)
CACHE_BYTES = 2**30
"""So much of what was read last is kept in memory."""


def open_folder(
    path: str | Path | Sequence[str | Path],
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    parameters: "str | Path | Mapping[str, Any] | None" = None,
    id_column: str | None = None,
    series: bool | None = None,
    numbered: bool = False,
    axes: Sequence[int] | None = None,
    cache_bytes: int = CACHE_BYTES,
) -> "Folder":
    """Open a folder, a pattern like `runs/*/result.vtu`, a list of files, or one file.

    The files of a folder are those right in it, or else those below it; all of one kind. Files of
    meshes and OpenFOAM cases are one case each; files of arrays one or many, see
    `funcattn.data.cases.layouts`. Nothing is read now but the first case, and the layout of files
    of arrays.

    Args:
        path: where the cases are.
        inputs: names of fields, categories and parameters that go in.
        outputs: names of fields and categories that come out.
        parameters: a CSV or Parquet file with numbers per case, or columns by name; see
            `joined_parameters`.
        id_column: the column with the names of the cases.
        series: see `read_mesh`.
        numbered: whether files that only differ in a number at the end, like flow_001.vtu, are the
            times of one case.
        axes: the axes of space to keep, like (0, 1) of a mesh in a plane. By default those along
            which the first case extends; vectors then lose the same components where these are 0.
        cache_bytes: how much of what was read may stay in memory.

    Raises:
        FileNotFoundError: there is nothing there.
        FileError, ValueError: files are of several kinds, or lack what is named.
    """
    known = known_cases(Path(path)) if isinstance(path, str | Path) else []
    places = [_Place(each.name, each.files, parameters=each.parameters) for each in known]
    root, files = (Path(), []) if known else _found(path)
    groups = _numbered(files) if numbered else [(file,) for file in files]
    for group in groups:
        name = _name(root, group[0])
        if len(group) > 1:
            places.append(_Place(re.sub(r"[._-]?\d+$", "", name), group))
        elif group[0].suffix.lower() in _ARRAYS:
            within = cases_in(
                group[0], inputs=_known(group[0], inputs), outputs=_known(group[0], outputs)
            )
            if len(within) == 1 and within.names[0] == group[0].stem:
                places.append(_Place(name, group, within))
            else:
                places += [
                    _Place(f"{name}_{row}", group, within, row) for row in range(len(within))
                ]
        else:
            places.append(_Place(name, group))
    return Folder(
        places,
        inputs=inputs,
        outputs=outputs,
        parameters=(
            None
            if parameters is None
            else joined_parameters(parameters, [each.name for each in places], id_column)
        ),
        series=series,
        axes=axes,
        cache_bytes=cache_bytes,
    )


@dataclass(frozen=True)
class _Place:
    """Where a case is: its files, or a row of one."""

    name: str
    files: tuple[Path, ...]
    within: Cases | None = None
    row: int = 0
    parameters: Mapping[str, float] = field(default_factory=dict)
    """Numbers that the folder tells of the case."""


class Folder(Cases):
    """Cases in files; see `open_folder`."""

    def __init__(
        self,
        places: Sequence[_Place],
        *,
        inputs: Sequence[str],
        outputs: Sequence[str],
        parameters: list[dict[str, float]] | None,
        series: bool | None,
        axes: Sequence[int] | None,
        cache_bytes: int,
    ) -> None:
        super().__init__([each.name for each in places], self._case, inputs=inputs, outputs=outputs)
        self._places, self._parameters, self._series = places, parameters, series
        self._cache: OrderedDict[int, Case] = OrderedDict()
        self._room = cache_bytes
        self._axes = None if axes is None else tuple(axes)
        self._planar: frozenset[str] | None = None

    def file(self, index: int) -> Path:
        """The first file of a case."""
        return self._places[index].files[0]

    def _case(self, index: int) -> Case:
        if index in self._cache:
            self._cache.move_to_end(index)
            return self._cache[index]
        case = self._reduced(self._read(index)).with_parameters(self._places[index].parameters)
        if self._parameters is not None:
            case = case.with_parameters(self._parameters[index])
        for kind, names in (("inputs", self.inputs), ("outputs", self.outputs)):
            for name in names:
                if name not in case.names:
                    raise FileError(
                        self.file(index),
                        f"{name}, which is among the {kind}",
                        ", ".join(case.names) or "no field",
                        unknown(name, case.names),
                    )
        self._cache[index] = case
        while len(self._cache) > 1 and sum(map(_bytes, self._cache.values())) > self._room:
            self._cache.popitem(last=False)
        return case

    def _read(self, index: int) -> Case:
        place = self._places[index]
        if place.within is not None:
            return replace(place.within[place.row], name=place.name)
        if len(place.files) > 1:
            times = None
            if place.files[0].suffix == ".cgns":
                told = [plaid_time(file) for file in place.files]
                times = None if None in told else [each for each in told if each is not None]
            return meshes.read_mesh_series(place.files, place.name, times)
        return meshes.read_mesh(place.files[0], series=self._series, name=place.name)

    def _reduced(self, case: Case) -> Case:
        """The case in the axes of space that all cases have."""
        if case.positions.shape[1] < 3:
            return case
        if self._axes is None:
            first = case if self._places[0].name == case.name else self._read(0)
            extent = np.ptp(first.positions, axis=0)
            self._axes = tuple(np.flatnonzero(extent > 0.0).tolist()) or (0, 1, 2)
            self._planar = frozenset(
                name for name, each in first.fields.items() if self._is_planar(each)
            )
        if self._planar is None:
            self._planar = frozenset(
                name for name, each in case.fields.items() if self._is_planar(each)
            )
        kept = list(self._axes)
        gone = [axis for axis in range(3) if axis not in kept]
        if not gone:
            return case
        if (np.ptp(case.positions[:, gone], axis=0) > 0.0).any():
            raise FileError(
                case.source or case.name,
                f"points that extend along the axes {kept} only, like those of the first case",
                f"extents {np.ptp(case.positions, axis=0)}",
                "give axes=(0, 1, 2), or take this file out",
            )
        fields = {
            name: each[..., kept] if name in self._planar and self._is_planar(each) else each
            for name, each in case.fields.items()
        }
        return replace(
            case,
            positions=np.ascontiguousarray(case.positions[:, kept]),
            fields=fields,
            file_positions=case.positions,
        )

    def _is_planar(self, field: Array) -> bool:
        """Whether a field is of vectors that have no component along the axes that are left out."""
        assert self._axes is not None
        gone = [axis for axis in range(3) if axis not in self._axes]
        return bool(gone and field.ndim > 1 and field.shape[-1] == 3 and not field[..., gone].any())


def _bytes(case: Case) -> int:
    arrays = [case.positions, *case.fields.values(), *case.categories.values()]
    if case.cells is not None:
        arrays += [case.cells.connectivity, case.cells.offsets, *case.cell_fields.values()]
    return sum(each.nbytes for each in arrays)


def _found(path: str | Path | Sequence[str | Path]) -> tuple[Path, list[Path]]:
    """The folder above all files, and the files in order."""
    if not isinstance(path, str | Path):
        files = [Path(each) for each in path]
        if not files:
            raise ValueError("expected one file or more, got an empty list")
        return _above(files), files
    place = Path(path)
    if place.suffix.lower() in SUFFIXES and place.exists():
        return place.parent, [place]
    if meshes.is_openfoam(place):
        return place.parent, [place]
    if place.is_dir():
        return place, _in_folder(place)
    if glob.has_magic(str(path)):
        files = sorted((Path(each) for each in glob.glob(str(path), recursive=True)), key=_order)
        if not files:
            raise FileNotFoundError(2, "expected files that match this pattern", str(path))
        return _above(files), files
    if place.exists():
        raise FileError(
            place,
            f"a folder, or a file that ends in {', '.join(SUFFIXES)}",
            place.suffix or "no ending",
            "convert it, or rename it if it is such a file",
        )
    raise FileNotFoundError(2, "expected a folder or a file, got nothing", str(path))


def _in_folder(folder: Path) -> list[Path]:
    """The cases right in a folder, or else all below it; of one kind."""
    for pattern in ("*", "**/*"):
        entries = [each for each in folder.glob(pattern) if not each.name.startswith(".")]
        files = [
            each
            for each in entries
            if each.suffix.lower() in SUFFIXES and (each.is_file() or each.suffix == ".zarr")
        ]
        # What belongs to a Zarr folder or an OpenFOAM case is no case of its own.
        files = [each for each in files if not any(p.suffix == ".zarr" for p in each.parents)]
        cases = [each for each in entries if each.is_dir() and meshes.is_openfoam(each)]
        if cases and not files:
            return sorted(cases, key=_order)
        # A list of a series, or of pieces, names the other files.
        for lists in (".pvd", ".series", ".pvtu", ".pvts", ".pvtr", ".vtm"):
            if any(each.suffix == lists for each in files):
                files = [each for each in files if each.suffix == lists]
        # The numbers of an XDMF file are in an HDF5 file beside it.
        if any(each.suffix in (".xdmf", ".xmf") for each in files):
            files = [each for each in files if each.suffix not in (".h5", ".hdf5")]
        kinds = sorted({each.suffix.lower() for each in files})
        if len(kinds) > 1 and ".parquet" in kinds:  # a table of parameters beside the cases
            kinds.remove(".parquet")
            files = [each for each in files if each.suffix.lower() != ".parquet"]
        if len(kinds) > 1:
            counts = [f"{sum(e.suffix.lower() == k for e in files)} {k}" for k in kinds]
            raise FileError(
                folder,
                "files of one kind",
                " and ".join(counts),
                f"give a pattern, like {folder}/*{kinds[0]}",
            )
        if files:
            return sorted(files, key=_order)
    beside = sorted({each.suffix for each in folder.iterdir() if each.is_file()})
    raise FileError(
        folder,
        f"files that end in {', '.join(SUFFIXES)}",
        f"files that end in {', '.join(beside)}" if beside else "an empty folder",
        "give the folder that has them, or convert them",
    )


def _order(path: Path) -> list[Any]:
    """So that case_10 comes after case_9."""
    return [
        (1, int(part), "") if part.isdigit() else (0, 0, part)
        for part in re.split(r"(\d{1,18})", str(path))
    ]


def _above(files: Sequence[Path]) -> Path:
    parents = [set(each.resolve().parents) for each in files]
    return max(set.intersection(*parents), key=lambda each: len(each.parts))


def _name(root: Path, file: Path) -> str:
    """The path below the folder, without ending."""
    below = file.resolve().relative_to(root.resolve())
    # The name of an OpenFOAM case may have a dot in it that begins no ending.
    return (below.with_suffix("") if file.suffix.lower() in SUFFIXES else below).as_posix()


def _numbered(files: Sequence[Path]) -> list[tuple[Path, ...]]:
    """Files that only differ in the number at the end of their name, together."""
    groups: dict[str, list[Path]] = {}
    for file in files:
        stem = re.sub(r"[._-]?\d+$", "", file.stem)
        groups.setdefault(f"{file.parent}/{stem}{file.suffix}", []).append(file)
    return [tuple(each) for each in groups.values()]


def _known(file: Path, names: Sequence[str]) -> list[str]:
    """Those names that are arrays of a file; others may be parameters of a table."""
    with reading(file, "a file of arrays"):
        if file.suffix.lower() in rows.SUFFIXES:
            columns = rows.columns_of(file)
            return [name for name in names if name in columns]
        arrays = array_files.open_arrays(file)
        return [name for name in names if name in arrays]
