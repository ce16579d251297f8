"""Tables whose rows are cases: Hugging Face `datasets` on disk (.arrow), Parquet files.

Each column is an array of the case, nested lists being its axes, or a number. With positions, the
rows may have different numbers of points; without, a row is a grid. Read by pyarrow in a process of
its own, a row when it is asked for.
"""

from collections.abc import Sequence
from pathlib import Path

from funcattn.data.cases.case import Case
from funcattn.data.cases.collection import Cases
from funcattn.data.cases.from_arrays import from_arrays
from funcattn.data.cases.one_case import case_of, positions_in
from funcattn.data.foreign import check_file, reading
from funcattn.data.sandbox import read_apart

SUFFIXES = (".arrow", ".parquet")
_EXPECTED = "a table of Arrow or Parquet with a case per row"


def cases_of_rows(path: Path, inputs: Sequence[str], outputs: Sequence[str]) -> Cases:
    """The rows of a file as cases."""
    check_file(path)
    facts, _ = read_apart(path, "rows_list", expected=_EXPECTED)
    names = [f"{path.stem}_{number}" for number in range(facts["rows"])]

    def make(index: int) -> Case:
        _, arrays = read_apart(path, "rows_read", index, expected=_EXPECTED)
        with reading(path, f"arrays of one case in row {index}"):
            if positions_in(arrays) is not None:
                return case_of(arrays, names[index], path)
            numbers = {name: each[None] for name, each in arrays.items()}
            made = from_arrays(numbers, names=[names[index]])[0]
            return Case(
                name=names[index],
                positions=made.positions,
                fields=made.fields,
                parameters=made.parameters,
                categories=made.categories,
                grid=made.grid,
                weights=made.weights,
                source=path,
            )

    return Cases(names, make, inputs=inputs, outputs=outputs)


def columns_of(path: Path) -> list[str]:
    """The names of the columns."""
    check_file(path)
    facts, _ = read_apart(path, "rows_list", expected=_EXPECTED)
    return list(facts["columns"])


__all__ = ["SUFFIXES", "cases_of_rows", "columns_of"]
