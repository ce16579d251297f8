"""Tables of Arrow and Parquet whose rows are cases; read in the process of `sandbox_child`."""

from typing import Any

import numpy as np


class RowsError(Exception):
    """What the file is instead, in words."""

    in_words = True


def described(path: str) -> dict[str, Any]:
    """The number of rows, and the names of the columns."""
    if path.lower().endswith(".parquet"):
        import pyarrow.parquet

        facts = pyarrow.parquet.ParquetFile(path)
        return {"rows": facts.metadata.num_rows, "columns": facts.schema_arrow.names}
    rows, names = 0, []
    for batch in _batches(path):
        rows, names = rows + batch.num_rows, batch.schema.names
    return {"rows": rows, "columns": names}


def read_row(path: str, row: int) -> dict[str, Any]:
    """The arrays of one row; words are left out."""
    arrays = {}
    for batch in _batches(path):
        if row < batch.num_rows:
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                array = _nested(name, column[row])
                if array is not None:
                    arrays[name] = array
            break
        row -= batch.num_rows
    return arrays


def _batches(path: str) -> Any:
    """The parts of a table, one after the other; of Arrow without reading what is in them."""
    import pyarrow
    import pyarrow.parquet

    if path.lower().endswith(".parquet"):
        yield from pyarrow.parquet.ParquetFile(path).iter_batches()
        return
    with pyarrow.memory_map(path) as stream:
        if stream.read(6) == b"ARROW1":
            reader = pyarrow.ipc.open_file(stream)
            yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
        else:
            stream.seek(0)
            yield from pyarrow.ipc.open_stream(stream)


def _nested(name: str, value: Any) -> Any:
    """A cell of a table as an array, nested lists being axes; None where it is no number."""
    import pyarrow

    if not hasattr(value, "values"):
        number = value.as_py()
        return np.asarray(number) if isinstance(number, bool | int | float) else None
    content = value.values
    shape: list[int] = []
    if content is None:
        raise RowsError(f"nothing in {name}")
    while True:
        shape.append(len(content) // int(np.prod(shape or [1])) if len(content) else 0)
        if not isinstance(
            content, pyarrow.ListArray | pyarrow.LargeListArray | pyarrow.FixedSizeListArray
        ):
            break
        lengths = np.unique(content.value_lengths().to_numpy(zero_copy_only=False))
        if len(lengths) > 1:
            raise RowsError(f"lists of {lengths[0]} to {lengths[-1]} in {name}")
        content = content.flatten()
    numbers = content.to_numpy(zero_copy_only=False)
    return numbers.reshape(shape) if numbers.dtype.kind in "fiub" else None
