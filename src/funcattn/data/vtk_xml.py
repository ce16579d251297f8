"""Points with values in the XML files of VTK: grids (.vtu) and outlines (.vtp).

Read is whatever VTK's own writers make: text, base64 or raw bytes, in place or appended, packed by
zlib or LZMA or not, of either byte order; in one piece. Of a grid the points are read, not the
cells. Written are appended bytes, packed by zlib, which notices later damage.

VTK itself is not used: on damaged files its readers may end the whole process.
"""

import base64
import lzma
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from xml.etree import ElementTree

import numpy as np

from funcattn.arrays import Array, Indices
from funcattn.data.foreign import check_file, memory_budget, reading
from funcattn.files import write_bytes

_KINDS = {".vtu": "UnstructuredGrid", ".vtp": "PolyData"}
_TYPES = {
    **{f"Float{bits}": np.dtype(f"float{bits}") for bits in (32, 64)},
    **{f"Int{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
}
_UNPACKERS: dict[str, Callable[[], Any]] = {
    "vtkZLibDataCompressor": zlib.decompressobj,
    "vtkLZMADataCompressor": lzma.LZMADecompressor,
}
_APPENDED = re.compile(rb"<AppendedData([^>]{0,200})>\s{0,200}_")
_VERTEX = 1
"""VTK's number for a cell that is a single point."""
_POLYHEDRON = 42
_MOST_PACKED, _ALWAYS = 200, 2**24
"""All arrays of a file together take at most so many times its length, and so many bytes more."""


def _no_edges() -> Indices:
    return np.empty((0, 2), np.int64)


@dataclass(frozen=True)
class VtkPoints:
    """Points (n, 3), values (n,) or (n, k) at them, edges (e, 2) between them; and numbers."""

    points: Array
    values: Mapping[str, Array]
    edges: Indices = field(default_factory=_no_edges)
    """Of the lines in a .vtp; none in a .vtu."""
    numbers: Mapping[str, Array] = field(default_factory=dict)
    """VTK's field data, which belongs to no point: (t,) or (t, k)."""


def read_vtk(
    path: str | Path,
    names: Mapping[str, int],
    *,
    optional: Mapping[str, int] = MappingProxyType({}),
    numbers: Sequence[str] = (),
) -> VtkPoints:
    """Read points and what is known at them; every number is finite, in the type of the file.

    Args:
        path: a file that ends in .vtu or .vtp.
        names: values at the points that have to be there, with their number of components; of
            vectors, which VTK likes to have in three dimensions, there may be more.
        optional: the same of values that are read where they are there.
        numbers: names of field data that are read where they are there.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is of another kind, is damaged, or has not what is asked for.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> triangle = VtkPoints(np.eye(3), {"p": np.arange(3.0)}, np.array([[0, 1], [1, 2]]))
        >>> with TemporaryDirectory() as folder:
        ...     write_vtk(Path(folder, "triangle.vtp"), triangle)
        ...     read_vtk(Path(folder, "triangle.vtp"), {"p": 1}, optional={"U": 2}).values
        {'p': array([0., 1., 2.])}
    """
    path = Path(path)
    kind = _kind(path)
    check_file(path)
    content = path.read_bytes()
    with _named_damage(path):
        file = _File(content, kind)
        points = _count(file.piece, "NumberOfPoints")
        # Before anything is allocated: a point takes a byte or more, however well it is packed.
        if points > len(content):
            raise ValueError(f"{points} points in {len(content)} bytes")
        known = {
            part: {each.get("Name", ""): each for each in file.piece.iterfind(f"{part}/DataArray")}
            for part in ("PointData", "CellData")
        }
    there = known["PointData"]
    if missing := [name for name in names if name not in there]:
        advice = "take another file, or write it again with them"
        if set(missing) & set(known["CellData"]):
            advice = "values at cells are not read; turn them into point data, by VTK for instance"
        raise ValueError(
            f"{path}: expected {', '.join(missing)} in the point data, got "
            f"{', '.join(there) or 'none'} there and {', '.join(known['CellData']) or 'none'} in "
            f"the cell data: {advice}"
        )
    with _named_damage(path):
        place = file.array(file.element("Points/DataArray"), points)
        if place.shape != (points, 3) or not points:
            raise ValueError(f"points of shape {place.shape}, not three coordinates of one or more")
        widths = {name: width for name, width in {**names, **optional}.items() if name in there}
        values = {name: file.array(there[name], points) for name in widths}
        for name, width in widths.items():
            found = 1 if values[name].ndim == 1 else values[name].shape[1]
            if found != width and not found > width > 1:
                raise ValueError(f"{found} components in {name}, not {width}")
        return VtkPoints(
            place,
            values,
            file.edges(points) if kind == "PolyData" else _no_edges(),
            {
                str(each.get("Name")): file.array(each, _count(each, "NumberOfTuples"))
                for each in file.grid.iterfind("FieldData/DataArray")
                if each.get("Name") in numbers
            },
        )


@dataclass(frozen=True)
class VtkGrid:
    """Points (n, 3) with cells, and what is known on them."""

    points: Array
    connectivity: Array
    offsets: Array
    """(k + 1,), the first is 0."""
    types: Array
    polyhedra: Mapping[str, Array] = field(default_factory=dict)
    """As `funcattn.data.cases.case.Cells` has them."""
    point_data: Mapping[str, Array] = field(default_factory=dict)
    cell_data: Mapping[str, Array] = field(default_factory=dict)
    numbers: Mapping[str, Array] = field(default_factory=dict)


def write_vtk(path: str | Path, data: VtkPoints) -> None:
    """Write points and what is known at them; the file appears whole or not at all.

    A .vtu has a cell at every point, a .vtp a line for every edge. Arrays keep their type.
    """
    path = Path(path)
    if _kind(path) == "UnstructuredGrid":
        points = len(data.points)
        cells: dict[str, Array] = {
            "connectivity": np.arange(points),
            "offsets": np.arange(1, points + 1),
            "types": np.full(points, _VERTEX, np.uint8),
        }
        _write(path, "Cells", points, cells, data.points, data.values, {}, data.numbers)
    else:
        lines = {
            "connectivity": data.edges.ravel(),
            "offsets": 2 * np.arange(1, len(data.edges) + 1),
        }
        _write(path, "Lines", len(data.edges), lines, data.points, data.values, {}, data.numbers)


def write_grid(path: str | Path, grid: VtkGrid) -> None:
    """Write a mesh as a .vtu that VTK opens; it appears whole or not at all."""
    cells = {
        "connectivity": grid.connectivity.astype(np.int64),
        "offsets": grid.offsets[1:].astype(np.int64),
        "types": grid.types,
    }
    if grid.polyhedra:
        cells |= _legacy_faces(grid)
    _write(
        Path(path),
        "Cells",
        len(grid.types),
        cells,
        grid.points,
        grid.point_data,
        grid.cell_data,
        grid.numbers,
    )


def _legacy_faces(grid: VtkGrid) -> dict[str, Array]:
    """The faces of polyhedra in the form that all versions of VTK read.

    Of each polyhedron: how many faces, then of each face how many points and which; and where that
    ends, -1 for other cells.
    """
    faces, ends = grid.polyhedra["face_connectivity"], grid.polyhedra["face_offsets"]
    of_cell, starts = (grid.polyhedra[f"location_{name}"] for name in ("connectivity", "offsets"))
    stream: list[int] = []
    places = np.full(len(grid.types), -1)
    for cell in np.flatnonzero(grid.types == _POLYHEDRON).tolist():
        numbers = of_cell[starts[cell] : starts[cell + 1]].tolist()
        stream.append(len(numbers))
        for number in numbers:
            points = faces[ends[number] : ends[number + 1]].tolist()
            stream += [len(points), *points]
        places[cell] = len(stream)
    return {"faces": np.array(stream, np.int64), "faceoffsets": places}


def _write(
    path: Path,
    part: Literal["Cells", "Lines"],
    count: int,
    cells: Mapping[str, Array],
    points: Array,
    point_data: Mapping[str, Array],
    cell_data: Mapping[str, Array],
    numbers: Mapping[str, Array],
) -> None:
    kind = _kind(path)
    root = ElementTree.Element(
        "VTKFile",
        type=kind,
        version="1.0",
        byte_order="LittleEndian",
        header_type="UInt64",
        compressor="vtkZLibDataCompressor",
    )
    grid = ElementTree.SubElement(root, kind)
    blocks = bytearray()

    def add(parent: ElementTree.Element, name: str, values: Array, **attributes: str) -> None:
        types = [known for known, dtype in _TYPES.items() if dtype == values.dtype]
        if not types or values.ndim not in (1, 2):
            raise ValueError(
                f"{path}: expected numbers with one or two axes in {name}, got {values.dtype} of "
                f"shape {values.shape}: convert them"
            )
        attributes |= {"type": types[0], "Name": name, "format": "appended"}
        if values.ndim == 2:
            attributes["NumberOfComponents"] = str(values.shape[1])
        ElementTree.SubElement(parent, "DataArray", attributes, offset=str(len(blocks)))
        raw = values.astype(values.dtype.newbyteorder("<")).tobytes()
        packed = zlib.compress(raw, 1)
        # As one block, unless there is nothing in it; see the reader for what the head says.
        head = [1, len(raw), 0, len(packed)] if raw else [0, 0, 0]
        blocks.extend(np.array(head, "<u8").tobytes() + (packed if raw else b""))

    fields = ElementTree.SubElement(grid, "FieldData")
    for name, values in numbers.items():
        add(fields, name, values, NumberOfTuples=str(len(values)))
    counted = {"NumberOfPoints": str(len(points)), f"NumberOf{part}": str(count)}
    piece = ElementTree.SubElement(grid, "Piece", counted)
    for at, data in (("PointData", point_data), ("CellData", cell_data)):
        within = ElementTree.SubElement(piece, at)
        for name, values in data.items():
            add(within, name, values)
    add(ElementTree.SubElement(piece, "Points"), "Points", points)
    described = ElementTree.SubElement(piece, part)
    for name, values in cells.items():
        add(described, name, values)
    head = ElementTree.tostring(root).removesuffix(b"</VTKFile>")
    write_bytes(
        path,
        head + b'<AppendedData encoding="raw">_' + blocks + b"</AppendedData></VTKFile>\n",
    )


class _File:
    """A file whose XML is parsed, and whose arrays are decoded one by one."""

    def __init__(self, content: bytes, kind: str) -> None:
        if not content.rstrip().endswith(b"</VTKFile>"):
            raise ValueError("its end, </VTKFile>, is missing")
        # Raw bytes are no XML: what is before them is parsed, and closed as if they were not there.
        # Only the first place is tried, so that the time is linear in the length of the file.
        start = content.find(b"<AppendedData")
        mark = None if start < 0 else _APPENDED.match(content, start)
        text = content if mark is None else content[:start] + b"</VTKFile>"
        if b"<!DOCTYPE" in text:
            raise ValueError("it declares XML entities")
        root = ElementTree.fromstring(text)
        if root.tag != "VTKFile" or root.get("type") != kind:
            raise ValueError(f"it holds {root.tag} {root.get('type', 'of no type')}, not {kind}")
        self.grid = _only(root, kind)
        self.piece = _only(self.grid, "Piece")
        self._appended = memoryview(content)[mark.end() if mark else len(content) :]
        self._appended_base64 = mark is not None and b"base64" in mark[1]
        self._order: Literal["<", ">"] = ">" if root.get("byte_order") == "BigEndian" else "<"
        word = root.get("header_type", "UInt32")
        if word not in ("UInt32", "UInt64"):
            raise ValueError(f"header_type is {word!r}, not UInt32 or UInt64")
        self._word = _type(word).newbyteorder(self._order)
        self._room = min(_MOST_PACKED * len(content) + _ALWAYS, memory_budget())
        packer = root.get("compressor")
        if packer is not None and packer not in _UNPACKERS:
            raise ValueError(f"it is packed by {packer}, not by {' or '.join(_UNPACKERS)}")
        self._unpacker = None if packer is None else _UNPACKERS[packer]

    def element(self, path: str) -> ElementTree.Element:
        return _only(self.piece, path)

    def edges(self, points: int) -> Indices:
        """The edges of all lines, each of which is a chain of points."""
        lines = _count(self.piece, "NumberOfLines")
        if not lines:
            return _no_edges()
        ends = self._indices("offsets", lines)
        chain = self._indices("connectivity", int(ends[-1]))
        if np.diff(ends, prepend=0).min() < 1 or not 0 <= chain.min() <= chain.max() < points:
            raise ValueError("its lines are not chains of its points")
        # From the end of one line to the start of the next there is no edge.
        return np.delete(np.stack([chain[:-1], chain[1:]], axis=1), ends[:-1] - 1, axis=0)

    def _indices(self, name: str, count: int) -> Indices:
        values = self.array(self.element(f"Lines/DataArray[@Name='{name}']"), count)
        if values.dtype.kind == "f" or values.ndim != 1:
            raise ValueError(f"{name} of lines that are {values.dtype} of shape {values.shape}")
        return values.astype(np.int64)

    def array(self, element: ElementTree.Element, count: int) -> Array:
        """The numbers of a DataArray, (count,) or (count, k)."""
        name = element.get("Name")
        dtype, width = _type(element.get("type", "")), _count(element, "NumberOfComponents", 1)
        shape = (count,) if width == 1 else (count, width)
        self._room -= count * width * dtype.itemsize
        if self._room < 0:
            raise ValueError(f"more bytes in {name} than can come from a file of this length")
        if element.get("format") == "ascii":
            values = np.array((element.text or "").split(), dtype=dtype)
        else:
            raw = self._bytes(element, count * width * dtype.itemsize)
            stored = np.frombuffer(raw, dtype.newbyteorder(self._order))
            # Values can be written to; those of bytes, which cannot, are copied.
            values = stored.astype(dtype, copy=not stored.flags.writeable)
        if values.size != count * width:
            raise ValueError(f"{values.size} numbers in {name}, not {count} times {width}")
        bad = values.size - np.isfinite(values).sum()
        if bad:
            raise ValueError(f"{bad} numbers in {name} that are NaN or infinite")
        return values.reshape(shape)

    def _bytes(self, element: ElementTree.Element, expected: int) -> bytes | bytearray:
        """So many bytes of an array that is not text."""
        if element.get("format") == "appended":
            source = self._appended[_count(element, "offset") :]
            coded = self._appended_base64
        else:
            source, coded = memoryview((element.text or "").strip().encode()), True

        def take(count: int, start: int = 0) -> bytes:
            """Bytes from a place in the source; in base64, three of them are four letters."""
            part = bytes(source[start : start + (_letters(count) if coded else count)])
            if coded:
                part = base64.b64decode(part, validate=True)[:count]
            if len(part) < count:
                raise ValueError(f"{element.get('Name')} is cut off")
            return part

        def words(count: int) -> list[int]:
            numbers: list[int] = np.frombuffer(take(count * word), self._word).tolist()
            return numbers

        word = self._word.itemsize
        if self._unpacker is None:
            (length,) = words(1)
            self._agree(element, length, expected)
            return take(word + length)[word:]
        # The head: number of blocks, size of each, size of the last if another; packed sizes.
        blocks, size, last, *packed = words(3 + words(1)[0])
        sizes = [size] * blocks
        if last and blocks:
            sizes[-1] = last
        self._agree(element, sum(sizes), expected)
        head = word * (3 + blocks)
        data = memoryview(take(sum(packed), _letters(head) if coded else head))
        unpacked, start = bytearray(), 0
        for size, length in zip(sizes, packed, strict=True):
            unpacker = self._unpacker()
            # One byte more than there should be: so the checksum behind the last one is read too.
            part = unpacker.decompress(data[start : start + length], size + 1)
            self._agree(element, len(part), size)
            if not unpacker.eof:
                raise ValueError(f"{element.get('Name')} is cut off")
            unpacked += part
            start += length
        return unpacked

    @staticmethod
    def _agree(element: ElementTree.Element, found: int, expected: int) -> None:
        if found != expected:
            raise ValueError(f"{found} bytes in {element.get('Name')}, not {expected}")


def _kind(path: Path) -> str:
    if path.suffix not in _KINDS:
        raise ValueError(f"{path}: expected a name that ends in {' or '.join(_KINDS)}: rename it")
    return _KINDS[path.suffix]


def _only(parent: ElementTree.Element, path: str) -> ElementTree.Element:
    found = parent.findall(path)
    if len(found) != 1:
        raise ValueError(f"{len(found)} times {path} in {parent.tag}, not once")
    return found[0]


def _count(element: ElementTree.Element, name: str, default: int = 0) -> int:
    """A whole number among the attributes of an element."""
    said = element.get(name, str(default)).strip()
    if not re.fullmatch("[0-9]{1,15}", said):
        raise ValueError(f"{name} is {said!r}, not a number")
    return int(said)


def _type(name: str) -> np.dtype[Any]:
    if name not in _TYPES:
        raise ValueError(f"an array of type {name!r}, not of numbers")
    return _TYPES[name]


def _letters(count: int) -> int:
    """How many letters are so many bytes in base64."""
    return 4 * -(-count // 3)


def _named_damage(path: Path) -> AbstractContextManager[None]:
    """Whatever a damaged byte leads to becomes one error that says so."""
    return reading(
        path, "a whole XML file of VTK", "download or copy it again, or save it again by VTK"
    )
