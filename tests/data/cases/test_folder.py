from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from funcattn.data.cases import open_folder, read_table
from funcattn.data.foreign import FileError

pyvista = pytest.importorskip("pyvista")


def test_a_folder_is_a_ragged_sequence_in_the_order_of_numbers(plates: Path) -> None:
    cases = open_folder(plates, outputs=["pressure"])
    assert cases.names == ["plate_1", "plate_2", "plate_10"]
    assert [len(case) for case in cases] == [25, 30, 70]
    assert cases[-1].name == "plate_10"
    assert cases[1:].names == ["plate_2", "plate_10"]


def test_a_mesh_in_a_plane_has_two_axes_and_vectors_of_two_components(plates: Path) -> None:
    case = open_folder(plates)[1]
    assert case.positions.shape == (30, 2)
    assert case["velocity"].shape == (30, 2)
    assert open_folder(plates, axes=(0, 1, 2))[1]["velocity"].shape == (30, 3)


@pytest.mark.parametrize("pattern", ["*.vtu", "**/*.vtu"])
def test_a_pattern_finds_the_same(plates: Path, pattern: str) -> None:
    assert open_folder(f"{plates}/{pattern}").names == ["plate_1", "plate_2", "plate_10"]


def test_files_below_are_found_where_there_are_none_above(
    plate: Callable[..., Any], tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        plate().save(tmp_path / name / "result.vtu")
    assert open_folder(tmp_path).names == ["a/result", "b/result"]


def test_only_so_much_is_kept_in_memory(plates: Path) -> None:
    cases = open_folder(plates, cache_bytes=0)
    for _ in range(2):
        assert [len(case) for case in cases] == [25, 30, 70]
    assert len(cases._cache) == 1


class TestATable:
    def test_is_joined_by_the_names_of_files(self, plates: Path) -> None:
        cases = open_folder(plates, parameters=plates.parent / "table.csv", inputs=["angle"])
        assert [case.parameters["angle"] for case in cases] == [1.0, 2.0, 10.0]
        assert cases[0].parameters["speed"] == 4.0

    def test_may_be_a_parquet_file(self, plates: Path) -> None:
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        table = pyarrow.table({"id": ["plate_2", "plate_1", "plate_10"], "angle": [2, 1, 10]})
        parquet.write_table(table, plates.parent / "table.parquet")
        cases = open_folder(plates, parameters=plates.parent / "table.parquet")
        assert [case.parameters["angle"] for case in cases] == [1.0, 2.0, 10.0]

    def test_with_semicolons_has_decimal_commas(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("name;angle\nx;1,5\ny;\n")
        table = read_table(tmp_path / "a.csv")
        assert table["name"] == ["x", "y"]
        np.testing.assert_array_equal(table["angle"], [1.5, np.nan])

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("name,angle\na,1.5\nb,2.5\n", "a column with the names of all cases, like plate_1"),
            (
                "file,angle\nplate_1,1\nplate_2,2\n",
                "a row for every case in the column file, got none for 1 of 3, such as plate_10",
            ),
            ("file,angle\nplate_1,1\nplate_2,2\nplate_10,\n", "a finite number for every case"),
            ("file,angle\nplate_1,1\nplate_1,2\nplate_2,3\nplate_10,4\n", "2 for plate_1"),
            ("file,angle\nplate_1\n", "1 values in row 2, not 2"),
            ("", "no line of names"),
            ("a,a\n1,2\n", "columns of one name"),
        ],
    )
    def test_that_does_not_fit_is_refused(self, plates: Path, text: str, message: str) -> None:
        (plates.parent / "bad.csv").write_text(text)
        with pytest.raises(FileError, match=message):
            open_folder(plates, parameters=plates.parent / "bad.csv")


def test_numbered_files_are_a_series_when_asked_for(
    plate: Callable[..., Any], tmp_path: Path
) -> None:
    for case in ("a", "b"):
        for number in range(3):
            plate(seed=number).save(tmp_path / f"{case}_{number:03}.vtu")
    cases = open_folder(tmp_path, numbered=True)
    assert cases.names == ["a", "b"]
    assert cases[0]["pressure"].shape == (20, 3)
    assert len(open_folder(tmp_path)) == 6


class TestAFolder:
    def test_that_is_not_there_says_so(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="expected a folder or a file"):
            open_folder(tmp_path / "none")

    def test_that_is_empty_says_what_would_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match=r"files that end in \.vtu.*an empty folder"):
            open_folder(tmp_path)

    def test_of_two_kinds_asks_for_a_pattern(self, plates: Path) -> None:
        np.savez(plates / "a.npz", u=np.zeros(3))
        with pytest.raises(FileError, match=r"files of one kind, got 1 \.npz and 3 \.vtu"):
            open_folder(plates)

    def test_without_a_field_that_is_named_names_the_file_and_the_nearest(
        self, plates: Path
    ) -> None:
        with pytest.raises(
            FileError, match=r"plate_1\.vtu: expected presure.*did you mean pressure"
        ):
            _ = open_folder(plates, outputs=["presure"])[0]

    def test_with_a_mesh_out_of_the_plane_names_it(
        self, plates: Path, plate: Callable[..., Any]
    ) -> None:
        bent = plate()
        bent.points[:, 2] = bent.points[:, 0]
        bent.save(plates / "plate_3.vtu")
        cases = open_folder(plates)
        assert len(cases[0]) == 25
        with pytest.raises(FileError, match=r"plate_3\.vtu: expected points that extend along"):
            _ = cases[2]
