"""What runs in the process of its own that `funcattn.data.sandbox` starts.

Started by its path and without the package, so that it costs no more than the libraries that read.
A request is a line of JSON on the standard input, an answer a line of JSON on what was the standard
output; arrays are left as .npy files in the folder that the request names. When the input ends, so
does the process.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

Answer = tuple[dict[str, Any], dict[str, Any]]
"""Facts that JSON can hold, and arrays."""


_TRIED = 2**24
"""Bytes that are unpacked at a time to see whether they can be."""


class WrongFileError(Exception):
    """What the file is instead, in words."""

    in_words = True


def matlab_list(path: str) -> Answer:
    """Variables of a MATLAB file of format 5."""
    from scipy.io import whosmat

    variables = whosmat(path, appendmat=False)
    return {"variables": [[n, [int(i) for i in shape], kind] for n, shape, kind in variables]}, {}


def matlab_read(path: str, name: str, selection: list[list[int | None]]) -> Answer:
    """A part of one variable of a MATLAB file of format 5."""
    from scipy.io import loadmat

    array = loadmat(path, appendmat=False, variable_names=[name])[name]
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        raise WrongFileError(f"{name} that is no array of numbers")
    return {}, {"part": np.ascontiguousarray(array[tuple(slice(*each) for each in selection)])}


def hdf5_try(path: str, most: int) -> Answer:
    """Nothing, after reading everything in an HDF5 file that is packed or described.

    Arrays that declare more bytes than `most` are left out: nobody reads them as a whole.
    """
    import h5py

    def visit(_: str, item: Any) -> None:
        for name in item.attrs:
            try:
                item.attrs[name]
            except (KeyError, OSError, RuntimeError, TypeError, ValueError):
                continue  # an error is no crash, and the reader will meet it where it matters
        if not isinstance(item, h5py.Dataset) or item.chunks is None or item.is_virtual:
            return
        if item.nbytes > most:
            return
        row = item.dtype.itemsize * int(np.prod(item.shape[1:], dtype=np.float64))
        step = max(_TRIED // max(row, 1), item.chunks[0])
        try:
            for start in range(0, item.shape[0], step):
                item[start : start + step]
        except (MemoryError, KeyError, OSError, RuntimeError, TypeError, ValueError):
            return

    try:
        with h5py.File(path, "r", locking=False) as file:
            visit("", file)
            file.visititems(visit)
    except (KeyError, OSError, RuntimeError, TypeError, ValueError):
        pass
    return {}, {}


def parquet_read(path: str) -> Answer:
    """The columns of a table: numbers as arrays, all others as words."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    if table.num_rows * max(table.num_columns, 1) > 10_000_000:
        raise WrongFileError(f"{table.num_rows} rows of {table.num_columns} columns")
    arrays, words = {}, {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = column.to_pylist()
        if all(each is None or isinstance(each, bool | int | float) for each in values):
            arrays[name] = np.array([np.nan if v is None else v for v in values], np.float64)
        else:
            words[name] = [str(each) for each in values]
    return {"words": words, "order": table.column_names}, arrays


def rows_list(path: str) -> Answer:
    """The number of rows of a table of Arrow or Parquet, and its columns."""
    return {**_beside("sandbox_rows").described(path)}, {}


def rows_read(path: str, row: int) -> Answer:
    """The arrays of one row; words are left out."""
    return {}, _beside("sandbox_rows").read_row(path, row)


def mesh_times(path: str) -> Answer:
    """The times of a file with a series, none where there is no series."""
    try:
        times = _reader(path).time_values
    except (AttributeError, TypeError):
        times = []  # PyVista's way of saying that there are none
    return {"times": [float(each) for each in times]}, {}


def mesh_read(path: str, step: int | None) -> Answer:
    """A mesh with all that is known on it; of a series, one step."""
    import pyvista

    if path.lower().endswith(".msh"):
        dataset = _beside("sandbox_gmsh").read_gmsh(path)
    else:
        reader = _reader(path)
        if step is not None:
            reader.set_active_time_point(step)
        dataset = reader.read()
    # A file that could not be read often gives an empty mesh and a message only.
    _raise_messages()
    if path.lower().endswith(".vtu"):
        _check_lengths(path, dataset)
    grid = None
    facts: dict[str, Any] = {}
    if isinstance(dataset, pyvista.MultiBlock):
        facts["blocks"], dataset = _joined(dataset)
    elif isinstance(dataset, pyvista.StructuredGrid | pyvista.ImageData | pyvista.RectilinearGrid):
        # The first axis is the fastest in VTK and the slowest here.
        grid = [int(each) for each in dataset.dimensions[::-1] if each > 1]
    if not isinstance(dataset, pyvista.DataSet) or not dataset.n_points:
        raise WrongFileError("no points")
    sized = dataset.cast_to_unstructured_grid()
    _raise_messages()
    arrays: dict[str, Any] = {"positions": np.asarray(sized.points)}
    if sized.n_cells:
        arrays["connectivity"] = np.asarray(sized.cell_connectivity)
        arrays["offsets"] = np.asarray(sized.cell_offsets)
        arrays["types"] = np.asarray(sized.celltypes)
        for name in ("face_connectivity", "face_offsets"):
            if 42 in sized.celltypes:
                arrays[name] = np.asarray(getattr(sized, f"polyhedron_{name}"))
                other = f"polyhedron_face_location_{name.removeprefix('face_')}"
                arrays[name.replace("face", "location")] = np.asarray(getattr(sized, other))
        connectivity, n = arrays["connectivity"], sized.n_points
        if connectivity.size and not 0 <= connectivity.min() <= connectivity.max() < n:
            raise WrongFileError("cells with points that are not there")
        sizes = sized.compute_cell_sizes(length=True, area=True, volume=True).cell_data
        arrays["lengths"], arrays["areas"], arrays["volumes"] = (
            np.abs(np.asarray(sizes[name])) for name in ("Length", "Area", "Volume")
        )
    units: dict[str, str] = {}
    kinds = {"point": sized.point_data, "cell": sized.cell_data, "number": dataset.field_data}
    skipped = []
    for kind, values in kinds.items():
        for name in values:
            array = np.asarray(values[name])
            marks = name in ("ispatch", "issurface")  # of VTK's reader of CGNS
            if name.startswith("vtk") or marks or array.dtype.kind not in "fiub":
                skipped.append(name)
                continue
            arrays[f"{kind}:{name}"] = array
            if unit := _unit(values, name):
                units[name] = unit
    return {**facts, "grid": grid, "units": units, "skipped": skipped}, arrays


def _check_lengths(path: str, dataset: Any) -> None:
    """Refuse arrays of text with more values than points or cells, which VTK cuts off in silence.

    Those of programs that write the file by hand; arrays in binary are VTK's own work.
    """
    with open(path, "rb") as stream:
        start = stream.read(2**16)
        if b'format="ascii"' not in start or b"AppendedData" in start:
            return
    pieces = [each for _, each in ElementTree.iterparse(path) if each.tag == "Piece"]
    if len(pieces) != 1:
        return
    for place, count in (("PointData", dataset.n_points), ("CellData", dataset.n_cells)):
        for array in pieces[0].iterfind(f"{place}/DataArray[@format='ascii']"):
            values = len((array.text or "").split())
            expected = count * int(array.get("NumberOfComponents", "1"))
            if values != expected:
                raise WrongFileError(f"{values} values in {array.get('Name')}, not {expected}")


def _beside(name: str) -> Any:
    """A module beside this file, without the package."""
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look
    spec.loader.exec_module(module)
    return module


def _reader(path: str) -> Any:
    import pyvista

    ending = Path(path).suffix.lower()
    if path.lower().endswith("controldict"):
        return pyvista.OpenFOAMReader(path)
    if ending in (".xdmf", ".xmf"):
        try:
            return pyvista.XdmfReader(path)
        except TypeError:  # one without times
            from vtkmodules.vtkIOXdmf2 import vtkXdmfReader

            return _Timeless(vtkXdmfReader(), path)
    if ending == ".pvts":
        from vtkmodules.vtkIOXML import vtkXMLPStructuredGridReader

        return _Timeless(vtkXMLPStructuredGridReader(), path)
    if ending == ".g" and _is_exodus(path):
        return pyvista.ExodusIIReader(path)
    return pyvista.get_reader(path)  # type: ignore[no-untyped-call]


def _is_exodus(path: str) -> bool:
    """Whether a file is NetCDF; PyVista takes the ending .g for another format's."""
    with open(path, "rb") as stream:
        return stream.read(4)[:3] in (b"CDF", b"\x89HD")


class _Timeless:
    """What VTK reads and PyVista has no reader for."""

    time_values = ()

    def __init__(self, reader: Any, path: str) -> None:
        self.reader = reader
        self.reader.SetFileName(path)

    def read(self) -> Any:
        import pyvista

        self.reader.Update()
        return pyvista.wrap(self.reader.GetOutputDataObject(0))


def _joined(blocks: Any) -> tuple[list[str], Any]:
    """One mesh from many blocks: the inside of an OpenFOAM case, or all that have points."""
    import pyvista

    leaves = []
    for name, each in _leaves("", blocks):
        if each is not None and each.n_points:
            leaves.append((name, each))
    inside = [(name, each) for name, each in leaves if name.split("/")[-1] == "internalMesh"]
    chosen = inside or leaves
    if not chosen:
        raise WrongFileError("no points")
    if len(chosen) == 1:
        return [chosen[0][0]], chosen[0][1]
    for number, (_, each) in enumerate(chosen):
        each.point_data["block"] = np.full(each.n_points, number, np.int32)
    return [name for name, _ in chosen], pyvista.MultiBlock([each for _, each in chosen]).combine()


def _leaves(above: str, blocks: Any) -> Any:
    import pyvista

    for name, each in zip(blocks.keys(), blocks, strict=True):
        path = f"{above}/{name}" if above else str(name)
        if isinstance(each, pyvista.MultiBlock):
            yield from _leaves(path, each)
        else:
            yield path, each


def _unit(values: Any, name: str) -> str:
    """The unit of an array, where the file tells it."""
    from vtkmodules.vtkCommonCore import vtkDataArray

    array = values.VTKObject.GetAbstractArray(name)
    if array is None or not array.HasInformation():
        return ""
    return str(array.GetInformation().Get(vtkDataArray.UNITS_LABEL()) or "")


class _Messages:
    """What VTK would print of the present file."""

    window: Any = None


def _catch_messages() -> None:
    """Forget the messages of files before, and keep those of the next."""
    from vtkmodules.vtkCommonCore import vtkOutputWindow, vtkStringOutputWindow

    _Messages.window = vtkStringOutputWindow()
    vtkOutputWindow.SetInstance(_Messages.window)


def _raise_messages() -> None:
    """VTK reports some errors in words only."""
    words = _Messages.window.GetOutput()
    if isinstance(words, bytes):  # they quote bytes of the file that are no text
        words = words.decode(errors="replace")
    if any(word in words for word in ("ERROR", "Error", "ERR|")):
        raise WrongFileError(f"one that VTK refuses ({_shortened(words)})")


def _shortened(words: str) -> str:
    """The first sentence of VTK's messages, without places in its sources and in memory."""
    for line in words.splitlines():
        _, found, rest = line.partition("): ")
        if found and rest.strip():
            return rest.strip()[:160]
    return " ".join(words.split())[:160]


OPERATIONS: dict[str, Callable[..., Answer]] = {
    "hdf5_try": hdf5_try,
    "matlab_list": matlab_list,
    "matlab_read": matlab_read,
    "mesh_read": mesh_read,
    "mesh_times": mesh_times,
    "parquet_read": parquet_read,
    "rows_list": rows_list,
    "rows_read": rows_read,
}


LIBRARIES = {
    "hdf5": ["h5py"],
    "matlab": ["scipy.io"],
    "mesh": ["pyvista"],
    "parquet": ["pyarrow.parquet"],
    "rows": ["pyarrow.parquet"],
}
"""What each kind of operation needs."""


def limit(seconds: float, memory: int) -> None:
    """End this process when it computes for so long, or asks for so much more memory."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * os.sysconf("SC_PAGE_SIZE") + memory
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        pass  # other systems than Linux have no such limits
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, seconds)


def lift_limits() -> None:
    """Take the limits of one request away before the next."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, 0)
    try:
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    except (ImportError, OSError, ValueError):
        pass


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do one request."""
    try:
        # The limits are for the file, not for the libraries.
        for library in LIBRARIES[request["operation"].partition("_")[0]]:
            import_module(library)
        if request["operation"].startswith("mesh"):
            _catch_messages()
        limit(request["seconds"], request["memory"])
        facts, arrays = OPERATIONS[request["operation"]](*request["arguments"])
        files = {}
        for number, (name, array) in enumerate(arrays.items()):
            files[name] = f"{number}.npy"
            np.save(Path(request["folder"], files[name]), array, allow_pickle=False)
        return {"facts": facts, "files": files}
    except ModuleNotFoundError as error:
        return {"missing": str(error.name)}
    except MemoryError:
        return {"wrong": f"one that needs more than {request['memory']} bytes of memory"}
    except Exception as error:
        if getattr(error, "in_words", False):
            return {"wrong": str(error)}
        words = f"{type(error).__name__}: {_shortened(str(error))}"
        return {"wrong": f"one that is cut short or damaged, or of another kind ({words})"}
    finally:
        lift_limits()


def main() -> None:
    """Answer requests until the input ends."""
    # Libraries print where they like: their words must not get among the answers.
    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
