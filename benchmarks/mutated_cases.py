"""Cases of every ending and layout that `open_folder` reads: see mutations.py.

A case of several files is a folder, of which one file is damaged.
"""

from pathlib import Path
from typing import Any

from mutations import Arrays, Kind


def read_cases(path: Path) -> Arrays:
    """Everything in every case of a file or folder."""
    from funcattn.data.cases import open_folder

    found: Arrays = {}
    for number, case in enumerate(open_folder(path)):
        found |= {f"{number} {name}": each for name, each in read_whole(case).items()}
    return found


def read_whole(case: Any) -> Arrays:
    """Everything in a case."""
    return {
        "positions": case.positions,
        **case.fields,
        **case.categories,
        **case.parameters,
        **({} if case.times is None else {"times": case.times}),
        **({} if case.grid is None else {"grid": case.grid}),
        **({} if case.cells is None else {
            "connectivity": case.cells.connectivity, "types": case.cells.types}),
    }  # fmt: skip


def kinds() -> list[Kind]:
    """All of them."""
    import mutated_arrays
    import mutated_meshes

    return [*mutated_meshes.kinds(), *mutated_arrays.kinds()]
