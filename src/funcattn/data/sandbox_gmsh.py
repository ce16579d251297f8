"""Gmsh's files of formats 2.2 and 4.1 as text; read in the process of `sandbox_child`.

VTK has no reader for them, and the library that PyVista would use is no longer maintained.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# By Gmsh's number of a type of elements: VTK's number, the dimension, and Gmsh's places of VTK's
# nodes.
TYPES: dict[int, tuple[int, int, tuple[int, ...]]] = {
    15: (1, 0, (0,)),
    1: (3, 1, (0, 1)),
    8: (21, 1, (0, 1, 2)),
    2: (5, 2, (0, 1, 2)),
    3: (9, 2, (0, 1, 2, 3)),
    9: (22, 2, tuple(range(6))),
    16: (23, 2, tuple(range(8))),
    10: (28, 2, tuple(range(9))),
    4: (10, 3, tuple(range(4))),
    5: (12, 3, tuple(range(8))),
    6: (13, 3, tuple(range(6))),
    7: (14, 3, tuple(range(5))),
    11: (24, 3, (*range(8), 9, 8)),
    17: (25, 3, (*range(8), 8, 11, 13, 9, 16, 18, 19, 17, 10, 12, 14, 15)),
}


class GmshError(Exception):
    """What the file is instead, in words."""

    in_words = True


@dataclass
class Parts:
    """What a file has, by Gmsh's numbers of nodes and elements."""

    nodes: list[tuple[Any, Any]] = field(default_factory=list)
    """Numbers (n) and places (n 3), block by block."""
    elements: list[tuple[int, Any, Any, int]] = field(default_factory=list)
    """Type, numbers (k), nodes (k m) and physical group (0: none), block by block."""
    data: list[tuple[str, str, Any, Any]] = field(default_factory=list)
    """Node or element, name, numbers and values (n c)."""


def read_gmsh(path: str) -> Any:
    """The mesh with its fields, as PyVista's unstructured grid.

    Physical groups are whole numbers on cells, and on points, where those of the boundary come
    before those of the inside. Nodes of no cell are left out.
    """
    import pyvista

    with open(path, "rb") as stream:
        words = stream.read()
    if b"\0" in words:
        raise GmshError("one in binary; save it as text: Mesh.Binary = 0 in Gmsh")
    sections = list(_sections(words.decode("utf-8", "replace").splitlines()))
    formats = [lines for name, lines in sections if name == "MeshFormat"]
    version = formats[0][0].split()[0] if formats and formats[0] else "none"
    if version not in ("2", "2.1", "2.2", "4.1"):
        raise GmshError(f"format {version}; save it as format 4.1 or 2.2")
    parts = Parts()
    groups: dict[tuple[int, int], int] = {}
    for name, lines in sections:
        if name == "Entities":
            groups = _groups(lines)
        elif name == "Nodes":
            (_nodes_4 if version == "4.1" else _nodes_2)(lines, parts)
        elif name == "Elements":
            if version == "4.1":
                _elements_4(lines, parts, groups)
            else:
                _elements_2(lines, parts)
        elif name in ("NodeData", "ElementData"):
            parts.data.append((name, *_data(lines)))
    return _grid(parts, pyvista)


def _sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Names and lines between $Name and $EndName."""
    name, start = "", 0
    for place, line in enumerate(lines):
        if not line.startswith("$"):
            continue
        word = line.strip()[1:]
        if name and word == f"End{name}":
            yield name, lines[start:place]
            name = ""
        elif not name:
            name, start = word, place + 1
    if name:
        raise GmshError(f"one that ends within {name}")


def _numbers(lines: list[str]) -> Any:
    """Lines of equally many numbers each, as a table."""
    table = np.array([line.split() for line in lines], np.float64)
    if table.ndim != 2 or not np.isfinite(table).all():
        raise GmshError("lines of different lengths")
    return table


def _part(lines: list[str], start: int, count: int) -> list[str]:
    if count < 0 or start + count > len(lines):
        raise GmshError(f"{len(lines) - start} lines where {count} were announced")
    return lines[start : start + count]


def _groups(lines: list[str]) -> dict[tuple[int, int], int]:
    """The first physical group of each entity, by dimension and number."""
    found, place = {}, 1
    for dimension, count in enumerate(map(int, lines[0].split())):
        for line in _part(lines, place, count):
            words = line.split()
            first = 4 if dimension == 0 else 7  # after a place, or the corners of a box
            if int(words[first]):
                found[dimension, int(words[0])] = int(words[first + 1])
        place += count
    return found


def _nodes_2(lines: list[str], parts: Parts) -> None:
    table = _numbers(_part(lines, 1, int(lines[0])))
    parts.nodes.append((table[:, 0].astype(np.int64), table[:, 1:4]))


def _nodes_4(lines: list[str], parts: Parts) -> None:
    place = 1
    for _ in range(int(lines[0].split()[0])):
        count = int(lines[place].split()[3])
        if count:
            numbers = _numbers(_part(lines, place + 1, count))[:, 0].astype(np.int64)
            places = _numbers(_part(lines, place + 1 + count, count))[:, :3]
            parts.nodes.append((numbers, places))
        place += 1 + 2 * count


def _elements_2(lines: list[str], parts: Parts) -> None:
    blocks: dict[tuple[int, int], list[list[int]]] = {}
    for line in _part(lines, 1, int(lines[0])):
        number, kind, tags, *rest = map(int, line.split())
        group = rest[0] if tags else 0
        blocks.setdefault((kind, group), []).append([number, *rest[tags:]])
    for (kind, group), rows in blocks.items():
        table = np.array(rows, np.int64)
        parts.elements.append((kind, table[:, 0], table[:, 1:], group))


def _elements_4(lines: list[str], parts: Parts, groups: dict[tuple[int, int], int]) -> None:
    place = 1
    for _ in range(int(lines[0].split()[0])):
        dimension, entity, kind, count = map(int, lines[place].split())
        if count:
            table = _numbers(_part(lines, place + 1, count)).astype(np.int64)
            group = groups.get((dimension, entity), 0)
            parts.elements.append((kind, table[:, 0], table[:, 1:], group))
        place += 1 + count


def _data(lines: list[str]) -> tuple[str, Any, Any]:
    """Name, numbers and values (n c) of a field."""
    strings = int(lines[0])
    name = lines[1].strip().strip('"')
    reals = int(lines[1 + strings])
    place = 2 + strings + reals
    integers = int(lines[place])
    components, count = (int(line) for line in _part(lines, place + 2, integers - 1)[:2])
    table = _numbers(_part(lines, place + 1 + integers, count))
    return name, table[:, 0].astype(np.int64), table[:, 1 : 1 + components]


def _grid(parts: Parts, pyvista: Any) -> Any:
    """The grid, with nodes and elements counted from 0 in the order of the file."""
    if not parts.nodes or not parts.elements:
        raise GmshError("no nodes, or no elements")
    numbers = np.concatenate([each for each, _ in parts.nodes])
    places = np.concatenate([each for _, each in parts.nodes])
    cells = _Cells.of(parts, numbers)
    # Corners of the geometry, such as centres of circles, are points of no real cell.
    used = np.unique(cells.nodes[cells.dimensions[cells.cell_of] > 0])
    cells = cells.only((cells.dimensions > 0) | np.isin(cells.nodes[cells.starts], used))
    place = np.full(len(numbers), -1)
    place[used] = np.arange(len(used))
    entries = place[cells.nodes]
    flat = np.insert(entries, cells.starts, cells.sizes)
    grid = pyvista.UnstructuredGrid(flat, cells.types, places[used])
    if cells.groups.any():
        grid.cell_data["physical_group"] = cells.groups
        at_points = np.zeros(len(used), np.int64)
        groups, dimensions = (each[cells.cell_of] for each in (cells.groups, cells.dimensions))
        for dimension in (3, 2, 1, 0):  # what bounds is written last and stays
            chosen = (dimensions == dimension) & (groups != 0)
            at_points[entries[chosen]] = groups[chosen]
        grid.point_data["physical_group"] = at_points
    for where, name, whose, values in parts.data:
        on_nodes = where == "NodeData"
        target = grid.point_data if on_nodes else grid.cell_data
        target[name] = _joined(numbers[used] if on_nodes else cells.numbers, whose, values)
    return grid


@dataclass(frozen=True)
class _Cells:
    """The elements of all blocks: of each its number, type, dimension, group and nodes."""

    numbers: Any
    types: Any
    dimensions: Any
    groups: Any
    sizes: Any
    nodes: Any
    """Those of one element after the other, as places among the nodes of the file."""

    @classmethod
    def of(cls, parts: Parts, known: Any) -> "_Cells":
        columns: list[tuple[Any, ...]] = []
        for kind, elements, nodes, group in parts.elements:
            if kind not in TYPES:
                raise GmshError(f"elements of type {kind}; save those of first or second order")
            vtk, dimension, turned = TYPES[kind]
            if nodes.shape[1] != len(turned):
                raise GmshError(f"{nodes.shape[1]} nodes in elements of type {kind}")
            count = len(nodes)
            alike = (np.full(count, each) for each in (vtk, dimension, group, len(turned)))
            columns.append((elements, *alike, nodes[:, turned].ravel()))
        numbers, types, dimensions, groups, sizes, named = (
            np.concatenate(each) for each in zip(*columns, strict=True)
        )
        order = np.argsort(known, kind="stable")
        found = np.searchsorted(known, named, sorter=order)
        found = order[np.minimum(found, len(order) - 1)]
        if (known[found] != named).any():
            raise GmshError("elements with nodes that are not there")
        return cls(numbers, types, dimensions, groups, sizes, found)

    @property
    def starts(self) -> Any:
        """Where the nodes of each begin."""
        return np.cumsum(self.sizes) - self.sizes

    @property
    def cell_of(self) -> Any:
        """The element that each entry of `nodes` belongs to."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def only(self, kept: Any) -> "_Cells":
        """Some of the elements."""
        return _Cells(
            self.numbers[kept],
            self.types[kept],
            self.dimensions[kept],
            self.groups[kept],
            self.sizes[kept],
            self.nodes[kept[self.cell_of]],
        )


def _joined(ours: Any, whose: Any, values: Any) -> Any:
    """Values (n c) by number, in our order; NaN where there are none."""
    rows = np.full((len(ours), values.shape[1]), np.nan)
    order = np.argsort(whose, kind="stable")
    at = order[np.minimum(np.searchsorted(whose, ours, sorter=order), len(order) - 1)]
    known = whose[at] == ours
    rows[known] = values[at[known]]
    return rows[:, 0] if rows.shape[1] == 1 else rows
