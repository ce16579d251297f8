"""XML files of VTK: what VTK writes is read, what is written VTK reads, and damage is refused."""

import base64
import os
import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from funcattn.data.vtk_xml import VtkPoints, read_vtk, write_vtk

POINTS = 300  # three coordinates in double precision: 7200 bytes, several of the small blocks below
BLOCK = 1024
Setup = Callable[[Any], None]
ENCODINGS: dict[str, Setup] = {
    "ascii": lambda writer: writer.SetDataModeToAscii(),
    "base64": lambda writer: (writer.SetDataModeToBinary(), writer.SetCompressorTypeToNone()),
    "base64 zlib": lambda writer: writer.SetDataModeToBinary(),
    "raw": lambda writer: (writer.EncodeAppendedDataOff(), writer.SetCompressorTypeToNone()),
    "raw zlib": lambda writer: writer.EncodeAppendedDataOff(),
    "raw lzma": lambda writer: (writer.EncodeAppendedDataOff(), writer.SetCompressorTypeToLZMA()),
    "appended base64": lambda writer: writer.SetCompressorTypeToNone(),
    "appended base64 zlib": lambda _: None,
    "big endian": lambda writer: (writer.EncodeAppendedDataOff(), writer.SetByteOrderToBigEndian()),
    "long heads": lambda writer: writer.SetHeaderTypeToUInt64(),
}
encoded = pytest.mark.parametrize("encoding", ENCODINGS)
WIDTHS = {"U": 2, "p": 1, "id": 1}


def example() -> VtkPoints:
    rng = np.random.default_rng(0)
    return VtkPoints(
        rng.normal(size=(POINTS, 3)),
        {
            "U": rng.normal(size=(POINTS, 3)).astype(np.float32),
            "p": rng.normal(size=POINTS),
            "id": np.arange(POINTS, dtype=np.int32),
        },
        np.stack([np.arange(POINTS), np.roll(np.arange(POINTS), -1)], axis=1),
        {"digits": np.array([2.0, 4.0, 0.0, 12.0]), "lift": np.array([0.5])},
    )


def write_by_vtk(path: Path, data: VtkPoints, encoding: str = "raw zlib", **changes: Any) -> Path:
    """What VTK itself makes of points: a cell at each in a .vtu, a line for each edge in a .vtp."""
    pytest.importorskip("vtkmodules")
    from vtkmodules import vtkIOXML
    from vtkmodules.util.numpy_support import numpy_to_vtk, numpy_to_vtkIdTypeArray
    from vtkmodules.vtkCommonCore import vtkPoints
    from vtkmodules.vtkCommonDataModel import vtkCellArray, vtkPolyData, vtkUnstructuredGrid

    grid, writer = {
        ".vtu": (vtkUnstructuredGrid, vtkIOXML.vtkXMLUnstructuredGridWriter),
        ".vtp": (vtkPolyData, vtkIOXML.vtkXMLPolyDataWriter),
    }[path.suffix]
    grid, writer, points = grid(), writer(), vtkPoints()
    points.SetData(numpy_to_vtk(data.points, deep=True))
    grid.SetPoints(points)
    chains = data.edges if path.suffix == ".vtp" else np.arange(POINTS)[:, None]
    chains = changes.get("chains", chains)
    cells = vtkCellArray()
    cells.SetData(
        numpy_to_vtkIdTypeArray(np.cumsum([0, *map(len, chains)]), deep=True),
        numpy_to_vtkIdTypeArray(np.concatenate(chains), deep=True),
    )
    grid.SetLines(cells) if path.suffix == ".vtp" else grid.SetCells(changes.get("kind", 1), cells)
    for part, arrays in (
        (grid.GetPointData(), data.values),
        (grid.GetFieldData(), data.numbers),
        (grid.GetCellData(), changes.get("cells", {})),
    ):
        for name, values in arrays.items():
            array = numpy_to_vtk(values, deep=True)
            array.SetName(name)
            part.AddArray(array)
    writer.SetInputData(grid)
    writer.SetFileName(str(path))
    writer.SetBlockSize(BLOCK)
    ENCODINGS[encoding](writer)
    assert writer.Write() == 1
    return path


def assert_same(read: VtkPoints, data: VtkPoints) -> None:
    pairs = [(read.points, data.points)]
    for found, given in ((read.values, data.values), (read.numbers, data.numbers)):
        assert set(found) == set(given)
        pairs += [(found[name], given[name]) for name in given]
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)
        assert (one.dtype, one.flags.writeable) == (other.dtype, True)


@encoded
@pytest.mark.parametrize("suffix", [".vtu", ".vtp"])
def test_what_vtk_writes_is_read(tmp_path: Path, suffix: str, encoding: str) -> None:
    data = example()
    path = write_by_vtk(tmp_path / f"a{suffix}", data, encoding)
    read = read_vtk(path, WIDTHS, numbers=["digits", "lift", "absent"])
    assert_same(read, data)
    np.testing.assert_array_equal(read.edges, data.edges if suffix == ".vtp" else np.empty((0, 2)))


def test_what_is_not_asked_for_is_left_alone(tmp_path: Path) -> None:
    path = write_by_vtk(tmp_path / "a.vtp", example())
    read = read_vtk(path, {"p": 1}, optional={"id": 1, "T": 1})
    assert (set(read.values), set(read.numbers)) == ({"p", "id"}, set())


@pytest.mark.parametrize("encoding", ["ascii", "base64 zlib", "appended base64 zlib"])
def test_cells_of_a_mesh_are_left_alone(tmp_path: Path, encoding: str) -> None:
    data, quads = example(), np.random.default_rng(0).integers(POINTS, size=(500, 4))
    changes = {"kind": 9, "chains": quads, "cells": {"Area": np.ones(len(quads))}}
    read = read_vtk(write_by_vtk(tmp_path / "a.vtu", data, encoding, **changes), WIDTHS)
    assert_same(replace(read, numbers=data.numbers), data)
    assert read.edges.shape == (0, 2)


def test_lines_of_many_points_are_their_edges(tmp_path: Path) -> None:
    chains = [[0, 1, 2], [7, 6], [2, 3, 4, 0]]
    path = write_by_vtk(tmp_path / "a.vtp", example(), chains=[np.array(chain) for chain in chains])
    expected = [[0, 1], [1, 2], [7, 6], [2, 3], [3, 4], [4, 0]]
    assert read_vtk(path, {}).edges.tolist() == expected


@pytest.mark.parametrize("suffix", [".vtu", ".vtp"])
def test_what_is_written_is_read(tmp_path: Path, suffix: str) -> None:
    data = example()
    write_vtk(tmp_path / f"a{suffix}", data)
    assert_same(read_vtk(tmp_path / f"a{suffix}", WIDTHS, numbers=list(data.numbers)), data)
    assert [path.name for path in tmp_path.iterdir()] == [f"a{suffix}"]


def test_what_is_written_is_read_by_vtk(tmp_path: Path) -> None:
    vtk_xml = pytest.importorskip("vtkmodules.vtkIOXML")
    from vtkmodules.util.numpy_support import vtk_to_numpy

    data = example()
    for suffix, reader in (
        (".vtu", vtk_xml.vtkXMLUnstructuredGridReader()),
        (".vtp", vtk_xml.vtkXMLPolyDataReader()),
    ):
        write_vtk(tmp_path / f"a{suffix}", data)
        reader.SetFileName(str(tmp_path / f"a{suffix}"))
        reader.Update()
        grid = reader.GetOutput()
        np.testing.assert_array_equal(vtk_to_numpy(grid.GetPoints().GetData()), data.points)
        for name, values in data.values.items():
            np.testing.assert_array_equal(vtk_to_numpy(grid.GetPointData().GetArray(name)), values)
        for name, values in data.numbers.items():
            np.testing.assert_array_equal(vtk_to_numpy(grid.GetFieldData().GetArray(name)), values)
        cells = grid.GetCells() if suffix == ".vtu" else grid.GetLines()
        chains = vtk_to_numpy(cells.GetConnectivityArray()).reshape(POINTS, -1)
        expected = np.arange(POINTS)[:, None] if suffix == ".vtu" else data.edges
        np.testing.assert_array_equal(chains, expected)
    assert reader.GetErrorCode() == 0


def test_an_outline_without_edges(tmp_path: Path) -> None:
    write_vtk(tmp_path / "a.vtp", VtkPoints(np.eye(3), {}))
    assert read_vtk(tmp_path / "a.vtp", {}).edges.shape == (0, 2)


@encoded
@pytest.mark.parametrize("kept", [0, 30, 0.3, 0.6, 0.9, -15])
def test_files_that_are_cut_off(tmp_path: Path, encoding: str, kept: float) -> None:
    path = write_by_vtk(tmp_path / "a.vtu", example(), encoding)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if 0 < kept < 1 else int(kept)])
    with pytest.raises(ValueError, match=r"a\.vtu: expected a whole XML file of VTK, .* missing"):
        read_vtk(path, WIDTHS)


@encoded
def test_arrays_that_are_cut_off(tmp_path: Path, encoding: str) -> None:
    path = write_by_vtk(tmp_path / "a.vtu", example(), encoding)
    content = path.read_bytes()
    path.write_bytes(content[: int(0.6 * len(content))] + content[-40:])
    with pytest.raises(ValueError, match=r"a\.vtu: expected a whole XML file of VTK"):
        read_vtk(path, WIDTHS)


@encoded
def test_damage_never_leads_to_anything_else_than_an_error(tmp_path: Path, encoding: str) -> None:
    path = write_by_vtk(tmp_path / "a.vtp", example(), encoding)
    content, refused = path.read_bytes(), 0
    for seed in range(30):
        draw, damaged = random.Random(seed), bytearray(content)
        for _ in range(draw.randint(1, 4)):
            place = draw.randrange(len(damaged))
            length = draw.choice([1, 8, 40])
            noise = draw.choice([b"", b"\xff" * 8, draw.randbytes(length)])
            damaged[place : place + length] = noise
        path.write_bytes(damaged)
        try:
            read = read_vtk(path, WIDTHS, numbers=["digits"])
        except ValueError:
            refused += 1
        else:
            # Damage to what is not read, or to numbers that nothing protects.
            assert all(np.isfinite(values).all() for values in (read.points, *read.values.values()))
    assert refused > 15


def test_damaged_numbers_are_noticed_in_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.vtu"
    write_vtk(path, example())
    content = path.read_bytes()
    start = content.index(b"<AppendedData")
    for place in range(start + 300, start + 3000, 90):
        damaged = bytearray(content)
        damaged[place] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="expected a whole XML file of VTK"):
            read_vtk(path, WIDTHS)


def text_file(**changes: str) -> str:
    """A small outline as text, with changes to its parts."""
    parts = {
        "head": '<VTKFile type="PolyData" byte_order="LittleEndian">',
        "count": "3",
        "type": "Float64",
        "width": "3",
        "points": "0 0 0  1 0 0  0 1 0",
        "values": '<DataArray type="Float32" Name="p" format="ascii">1 2 3</DataArray>',
        "offsets": '<DataArray type="Int64" Name="offsets" format="ascii">2 4</DataArray>',
        "connectivity": "0 1 1 2",
        "more": "",
    } | changes
    return f"""{parts["head"]}<PolyData>
<Piece NumberOfPoints="{parts["count"]}" NumberOfLines="2"><PointData>{parts["values"]}</PointData>
<Points><DataArray type="{parts["type"]}" NumberOfComponents="{parts["width"]}" format="ascii">
{parts["points"]}</DataArray></Points><Lines>{parts["offsets"]}
<DataArray type="Int32" Name="connectivity" format="ascii">{parts["connectivity"]}</DataArray>
</Lines></Piece>{parts["more"]}</PolyData></VTKFile>"""


def test_a_file_by_hand(tmp_path: Path) -> None:
    (tmp_path / "a.vtp").write_text(text_file())
    read = read_vtk(tmp_path / "a.vtp", {"p": 1})
    assert read.points.tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
    assert (read.values["p"].tolist(), read.values["p"].dtype) == ([1, 2, 3], np.float32)
    assert read.edges.tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (text_file(points="0 0 0  1 0 0"), "6 numbers in None, not 3 times 3"),
        (text_file(points="0 0 0  1 0 0  0 1 x"), "could not convert string to float"),
        (text_file(points="0 0 0  1 0 0  0 1 nan"), "1 numbers in None that are NaN or infinite"),
        (text_file(points="0 0  1 0  0 1", width="2"), r"points of shape \(3, 2\), not three"),
        (text_file(count="0", points=""), r"points of shape \(0, 3\)"),
        (text_file(count="-3"), "NumberOfPoints is '-3', not a number"),
        (text_file(count="99999999999999"), "99999999999999 points in [0-9]+ bytes"),
        (text_file(type="String"), "an array of type 'String', not of numbers"),
        (
            text_file(width="99999999999"),
            "more bytes in None than can come from a file of this length",
        ),
        (text_file(connectivity="0 1 1 3"), "its lines are not chains of its points"),
        (text_file(connectivity="0 1 1 -2"), "its lines are not chains of its points"),
        (text_file(connectivity="0 1 1"), "3 numbers in connectivity, not 4 times 1"),
        (text_file().replace(">2 4<", ">4 2<"), "4 numbers in connectivity, not 2 times 1"),
        (text_file().replace(">2 4<", ">0 4<"), "its lines are not chains of its points"),
        (text_file().replace('"Int64"', '"Float64"'), "offsets of lines that are float64"),
        (text_file(offsets=""), r"0 times Lines/DataArray\[@Name='offsets'\] in Piece, not once"),
        (text_file(more="<Piece/>"), "2 times Piece in PolyData, not once"),
        (text_file(head="<VTKFile>"), "it holds VTKFile of no type, not PolyData"),
        (text_file().replace("PolyData", "UnstructuredGrid"), "VTKFile UnstructuredGrid, not Poly"),
        (text_file().replace("VTKFile", "html"), "its end, </VTKFile>, is missing"),
        (text_file(head='<VTKFile type="PolyData" compressor="vtkLZ4DataCompressor">'), "vtkLZ4"),
        (text_file(head='<VTKFile type="PolyData" header_type="Bit">'), "header_type is 'Bit'"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]>" + text_file(), "it declares XML entities"),
        ("<?xml version='1.0' encoding='no-such'?>" + text_file(), "unknown encoding"),
        ("version https://git-lfs.github.com/spec/v1\n", "is missing"),
        (text_file().replace('"ascii">1 2', '"binary">1 2'), "base64"),
        (text_file().replace('"ascii">1 2', '"appended" offset="7">1 2'), "p is cut off"),
    ],
    ids=range(27),
)
def test_files_that_are_wrong(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a.vtp").write_text(content)
    with pytest.raises(ValueError, match=rf"a\.vtp: expected a whole XML file .*\(.*{message}"):
        read_vtk(tmp_path / "a.vtp", {"p": 1})


def packed_file(head: list[int], *blocks: bytes) -> str:
    """A file whose p is packed, with this head of sizes."""
    words = base64.b64encode(np.array(head, "<u4").tobytes()) + base64.b64encode(b"".join(blocks))
    array = f'<DataArray type="Float32" Name="p" format="binary">{words.decode()}</DataArray>'
    head_line = '<VTKFile type="PolyData" compressor="vtkZLibDataCompressor">'
    return text_file(values=array, head=head_line)


PACKED = zlib.compress(np.arange(3, dtype="<f4").tobytes())
BOMB = zlib.compress(bytes(10**7))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (packed_file([1, 12, 0, len(BOMB)], BOMB), "13 bytes in p, not 12"),
        (packed_file([1, 12, 0, len(PACKED)], PACKED[:-6]), "p is cut off"),
        (packed_file([1, 12, 0, len(PACKED) - 4], PACKED), "p is cut off"),
        (packed_file([1, 12, 0, len(PACKED)], b"y" + PACKED[1:]), "incorrect header check"),
        (packed_file([1, 13, 0, len(PACKED)], PACKED), "13 bytes in p, not 12"),
        (packed_file([2, 8, 4, len(PACKED), 0], PACKED), "bytes in p, not"),
        (packed_file([2**32 - 1, 12, 0, 9], PACKED), "Excess data|p is cut off"),
        (packed_file([1, 12, 0, 2**32 - 1], PACKED), "p is cut off"),
    ],
    ids=[
        "more inside",
        "cut off",
        "no checksum",
        "damaged",
        "size",
        "blocks",
        "number of blocks",
        "packed size",
    ],
)
def test_packed_numbers_that_are_wrong(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a.vtp").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_vtk(tmp_path / "a.vtp", {"p": 1})


def test_values_that_are_missing(tmp_path: Path) -> None:
    data = example()
    path = write_by_vtk(tmp_path / "a.vtp", data)
    message = "expected nut, T in the point data, got U, p, id there and none in the cell data"
    with pytest.raises(ValueError, match=message):
        read_vtk(path, {"p": 1, "nut": 1, "T": 1})
    bare = VtkPoints(data.points, {}, data.edges)
    path = write_by_vtk(tmp_path / "b.vtp", bare, cells={"p": np.zeros(POINTS)})
    message = "got none there and p in the cell data: values at cells are not read; turn them into"
    with pytest.raises(ValueError, match=message):
        read_vtk(path, {"p": 1})


@pytest.mark.parametrize(
    ("widths", "message"), [({"p": 2}, "1 components in p, not 2"), ({"U": 1}, "3 components in U")]
)
def test_values_with_other_components(tmp_path: Path, widths: dict[str, int], message: str) -> None:
    path = write_by_vtk(tmp_path / "a.vtp", example())
    with pytest.raises(ValueError, match=message):
        read_vtk(path, widths)


def test_paths_that_are_wrong(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_vtk(tmp_path / "a.vtu", {})
    with pytest.raises(ValueError, match=r"a\.vtk: expected a name that ends in \.vtu or \.vtp"):
        read_vtk(tmp_path / "a.vtk", {})


@pytest.mark.parametrize(
    "values",
    [np.array(["a", "b", "c"]), np.zeros((3, 2, 2)), np.zeros(3, "c8")],
    ids=["words", "three axes", "complex"],
)
def test_arrays_that_cannot_be_written(tmp_path: Path, values: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"expected numbers with one or two axes in p, got"):
        write_vtk(tmp_path / "a.vtp", VtkPoints(np.eye(3), {"p": values}))
    assert not list(tmp_path.iterdir())


def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_vtk(tmp_path / "a.vtp", VtkPoints(np.eye(3), {}))
    before = (tmp_path / "a.vtp").read_bytes()

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        write_vtk(tmp_path / "a.vtp", example())
    assert [path.name for path in tmp_path.iterdir()] == ["a.vtp"]
    assert (tmp_path / "a.vtp").read_bytes() == before


class TestAttacks:
    """Files made to take memory or time: all are refused, and soon."""

    def refused(self, path: Path, content: bytes, message: str) -> None:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_vtk(path, {"p": 1})

    def whole(self, path: Path) -> bytes:
        write_vtk(path, VtkPoints(np.eye(3), {"p": np.arange(3.0)}))
        return path.read_bytes()

    def test_a_header_of_floats(self, tmp_path: Path) -> None:
        content = self.whole(tmp_path / "a.vtu")
        bad = content.replace(b'header_type="UInt64"', b'header_type="Float64"')
        assert bad != content
        self.refused(tmp_path / "a.vtu", bad, "header_type is 'Float64'")

    def test_a_number_of_components_that_the_file_cannot_hold(self, tmp_path: Path) -> None:
        content = self.whole(tmp_path / "a.vtu")
        bad = content.replace(b'Name="p"', b'Name="p" NumberOfComponents="900000000"')
        self.refused(tmp_path / "a.vtu", bad, "than can come from a file of this length")

    def test_a_bomb_of_zeros(self, tmp_path: Path) -> None:
        write_vtk(tmp_path / "a.vtu", VtkPoints(np.eye(3), {"p": np.zeros(3)}))
        content = (tmp_path / "a.vtu").read_bytes()
        packed = zlib.compress(bytes(10**8), 9)
        head = np.array([1, 10**8, 0, len(packed)], "<u8").tobytes()
        start = content.index(b"_", content.index(b"<AppendedData")) + 1
        offset = len(content) - start - len(b"</AppendedData></VTKFile>\n")
        bomb = content.replace(b"</AppendedData>", head + packed + b"</AppendedData>")
        field = bomb.index(b'Name="p"')
        before, after = bomb[:field], bomb[field:]
        after = after.replace(
            b'offset="0"', f'offset="{offset}" NumberOfComponents="4166666"'.encode()
        )
        self.refused(tmp_path / "a.vtu", before + after, "than can come from a file of this length")

    def test_marks_of_appended_data_without_an_end_take_linear_time(self, tmp_path: Path) -> None:
        # Quadratic time would be an hour.
        self.refused(
            tmp_path / "a.vtu", b"<AppendedData" * 1_000_000 + b"</VTKFile>", "another kind"
        )
