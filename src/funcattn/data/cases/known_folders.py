"""Folders of the field's own collections: which files are their cases, and what else is known.

PLAID      sample_000000000/meshes/mesh_000000000.cgns, a file per time; numbers of a sample in the
           base `Global` of its file, or in scalars.csv beside `meshes`
AirfRANS   manifest.json, NAME/NAME_internal.vtu; speed and incidence in the name
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from funcattn.data.airfrans import parse_name
from funcattn.data.cases.tables import read_table
from funcattn.data.foreign import FileError, open_hdf5, reading

_SAMPLES = ("sample_*", "*/sample_*", "*/*/sample_*")
"""Where samples of PLAID are below a folder: of its split, of all data, of all with its notes."""
_INTERNAL = "_internal.vtu"


@dataclass(frozen=True)
class KnownCase:
    """A case of such a folder: the files of its times, and numbers that hold for it."""

    name: str
    files: tuple[Path, ...]
    parameters: Mapping[str, float] = field(default_factory=dict)


def known_cases(folder: Path) -> list[KnownCase]:
    """The cases of a folder in one of these layouts; none where it is in another.

    Raises:
        FileError: it is of PLAID, but not as CGNS files.
    """
    if (folder / "manifest.json").is_file():
        return [
            KnownCase(each.parent.name, (each,), _from_name(each.parent.name))
            for each in sorted(folder.glob(f"*/*{_INTERNAL}"))
            if each.name == f"{each.parent.name}{_INTERNAL}"
        ]
    for pattern in _SAMPLES:
        samples = [each for each in sorted(folder.glob(pattern)) if (each / "meshes").is_dir()]
        if samples:
            return [_sample(folder, each) for each in samples]
    if (folder / "infos.yaml").is_file() and (folder / "constants").is_dir():
        raise FileError(
            folder,
            "a data set of PLAID as CGNS files",
            "one whose samples are spread over constants and tables",
            "save it with the backend cgns of plaid.storage.save_to_disk",
        )
    return []


def _sample(folder: Path, sample: Path) -> KnownCase:
    files = tuple(sorted((sample / "meshes").glob("*.cgns")))
    if not files:
        raise FileError(
            sample / "meshes", "files mesh_*.cgns", "none", "save the samples with their meshes"
        )
    parameters = _globals(files[0])
    table = sample / "scalars.csv"
    if table.is_file():
        parameters |= {
            name: float(column[0])
            for name, column in read_table(table).items()
            if not isinstance(column, list)
        }
    return KnownCase(sample.relative_to(folder).as_posix(), files, parameters)


def _globals(file: Path) -> dict[str, float]:
    """The numbers in the base `Global` of a file of PLAID."""
    found = {}
    with reading(file, "a CGNS file in HDF5"), open_hdf5(file) as content:
        for name, node in content.get("Global", {}).items():
            data = node.get(" data") if hasattr(node, "get") else None
            if node.attrs.get("label") == b"DataArray_t" and data is not None and data.size == 1:
                value = np.asarray(data)
                if value.dtype.kind in "fiu":
                    found[name] = float(value.ravel()[0])
    return found


def plaid_time(file: Path) -> float | None:
    """The time of a file of PLAID."""
    with reading(file, "a CGNS file in HDF5"), open_hdf5(file) as content:
        for node in content.values():
            if node.attrs.get("label") == b"CGNSBase_t" and "Time/TimeValues/ data" in node:
                return float(np.ravel(node["Time/TimeValues/ data"])[0])
    return None


def _from_name(name: str) -> dict[str, float]:
    said = parse_name(name)
    return {"speed": said.speed, "incidence": said.incidence}
