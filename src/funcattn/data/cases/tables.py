"""Tables of parameters, one row per case: CSV or Parquet files, or mappings."""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from funcattn.arrays import Floats
from funcattn.data.cases.case import unknown
from funcattn.data.foreign import FileError, check_file, read_text, reading
from funcattn.data.sandbox import read_apart

Column = Floats | list[str]
PARQUET = (".parquet", ".pq")
"""Endings of such files; all others are taken for CSV."""


def read_table(path: str | Path) -> dict[str, Column]:
    """The columns of a CSV or Parquet file: numbers where all are, else words.

    CSV files have a line of names first, and commas, semicolons or tabs between; with semicolons, a
    comma may be the decimal point. Empty places among numbers are NaN.

    Raises:
        FileNotFoundError: there is no such file.
        FileError: it is no such file, or damaged.
    """
    path = Path(path)
    check_file(path)
    if path.suffix.lower() in PARQUET:
        facts, arrays = read_apart(path, "parquet_read", expected="a Parquet table")
        columns: dict[str, Column] = {**arrays, **facts["words"]}
        return {name: columns[name] for name in facts["order"]}
    with reading(path, "a table of comma-separated values", "save it as CSV"):
        text = read_text(path)
        first = text.partition("\n")[0]
        delimiter = max(",;\t", key=first.count)
        rows = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if any(row)]
        if len(rows) < 2:
            raise ValueError("no line of names with rows below it")
        names = [name.strip() for name in rows[0]]
        if len(set(names)) < len(names) or "" in names:
            raise ValueError(f"columns of one name, or of none: {', '.join(names)}")
        for number, row in enumerate(rows[1:], start=2):
            if len(row) != len(names):
                raise ValueError(f"{len(row)} values in row {number}, not {len(names)}")
    return {
        name: _column([row[place].strip() for row in rows[1:]], delimiter)
        for place, name in enumerate(names)
    }


def _column(words: list[str], delimiter: str) -> Column:
    try:
        decimal = delimiter == ";"
        return np.array(
            [
                float(word.replace(",", ".") if decimal else word) if word else np.nan
                for word in words
            ]
        )
    except ValueError:
        return words


def joined_parameters(
    table: "str | Path | Mapping[str, Any]",
    cases: Sequence[str],
    id_column: str | None = None,
) -> list[dict[str, float]]:
    """The parameters of each case from a table.

    Args:
        table: a CSV or Parquet file; or columns by name.
        cases: names of the cases.
        id_column: which column names the case of a row: by the case's name, the name of its file,
            with or without ending and folder. By default the first one that has all cases; a table
            from memory without one is taken in the order of the cases.

    Raises:
        FileError, ValueError: a case has no row or two, or a number is missing.
    """
    where = str(table) if isinstance(table, str | Path) else "parameters"
    columns: dict[str, Any] = (
        dict(read_table(table)) if isinstance(table, str | Path) else dict(table)
    )
    if id_column is not None and id_column not in columns:
        raise ValueError(f"{where}: id column: {unknown(id_column, list(columns))}")
    keys = [_key(case) for case in cases]
    found = {
        name: [_key(each) for each in columns[name]]
        for name in (columns if id_column is None else [id_column])
    }
    # The first column that has all cases, or else the one that has most of them.
    name = max(found, key=lambda each: len(set(found[each]) & set(keys)), default="")
    having = set(found.get(name, ())) & set(keys)
    whole = having == set(keys)
    lengths = {len(each) for each in columns.values()}
    if isinstance(table, Mapping) and not whole and id_column is None and lengths == {len(cases)}:
        return _rows(where, columns, range(len(cases)))
    if not having and id_column is None:
        raise FileError(
            where,
            f"a column with the names of all cases, like {cases[0]}",
            f"the columns {', '.join(columns) or 'none'}",
            "add a column with the names of the files, or say by id_column which it is",
        )
    if not whole:
        missing = [case for case, key in zip(cases, keys, strict=True) if key not in having]
        raise FileError(
            where,
            f"a row for every case in the column {name}",
            f"none for {len(missing)} of {len(cases)}, such as {missing[0]}",
            "add the rows, or leave these files out",
        )
    counts = Counter(found[name])
    if twice := [case for case, key in zip(cases, keys, strict=True) if counts[key] > 1]:
        raise FileError(
            where,
            f"one row for every case in the column {name}",
            f"{counts[_key(twice[0])]} for {twice[0]}",
            "leave all but one out",
        )
    places = {key: place for place, key in enumerate(found[name])}
    order = [places[key] for key in keys]
    return _rows(where, {key: each for key, each in columns.items() if key != name}, order)


def _key(name: Any) -> str:
    """What is compared of a name: without folder and ending; numbers as they are written."""
    if isinstance(name, float) and name.is_integer():
        name = int(name)
    pure = PurePath(str(name))
    # A decimal point is no ending.
    return pure.name if pure.suffix[1:].isdigit() else pure.stem


def _rows(where: str, columns: Mapping[str, Any], order: Sequence[int]) -> list[dict[str, float]]:
    """Numbers by name for each place; columns of words are no parameters."""
    numeric = {}
    for name, column in columns.items():
        try:
            numeric[name] = np.asarray(column, np.float64)
        except (TypeError, ValueError):
            continue
    for name, column in numeric.items():
        for place in order:
            if not np.isfinite(column[place]):
                raise FileError(
                    where,
                    f"a finite number for every case in {name}",
                    f"{column[place]} in row {place + 1}",
                    "fill it in, or leave the case or the column out",
                )
    return [{name: float(column[place]) for name, column in numeric.items()} for place in order]
