"""Whole or not at all: `funcattn.files`."""

import os
from pathlib import Path

import pytest

from funcattn.files import whole_file, whole_folder, write_bytes, write_text


class TestAFile:
    def test_has_the_new_content_and_nothing_is_left_beside_it(self, tmp_path: Path) -> None:
        write_text(tmp_path / "a.txt", "old")
        write_text(tmp_path / "a.txt", "new: \u03c6")
        assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "new: \u03c6"
        write_bytes(tmp_path / "a.txt", b"newer")
        assert (tmp_path / "a.txt").read_bytes() == b"newer"
        assert os.listdir(tmp_path) == ["a.txt"]

    def test_keeps_the_old_content_when_writing_fails(self, tmp_path: Path) -> None:
        write_text(tmp_path / "a.txt", "old")
        with pytest.raises(UnicodeEncodeError):
            write_text(tmp_path / "a.txt", "half of the n\udc00")
        assert (tmp_path / "a.txt").read_text() == "old"
        assert os.listdir(tmp_path) == ["a.txt"]

    def test_is_old_until_it_is_new(self, tmp_path: Path) -> None:
        write_text(tmp_path / "a.txt", "old")
        with whole_file(tmp_path / "a.txt") as aside:
            aside.write_text("new")
            assert (tmp_path / "a.txt").read_text() == "old"
            assert aside.suffix == ".txt"

    def test_in_a_folder_that_is_missing_is_refused_by_its_own_name(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="expected a folder that exists") as caught:
            write_text(tmp_path / "missing" / "a.txt", "text")
        assert caught.value.filename == str(tmp_path / "missing")

    def test_that_cannot_be_written_is_named_itself(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").mkdir()
        with pytest.raises(IsADirectoryError) as caught:
            write_text(tmp_path / "a.txt", "text")
        assert caught.value.filename == str(tmp_path / "a.txt")
        assert os.listdir(tmp_path) == ["a.txt"]


class TestAFolder:
    def test_appears_with_all_its_files(self, tmp_path: Path) -> None:
        with whole_folder(tmp_path / "run") as aside:
            (aside / "inner").mkdir()
            (aside / "inner" / "a.txt").write_text("a")
            assert not (tmp_path / "run").exists()
        assert (tmp_path / "run" / "inner" / "a.txt").read_text() == "a"
        assert os.listdir(tmp_path) == ["run"]

    def test_does_not_appear_when_making_it_fails(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError), whole_folder(tmp_path / "run") as aside:
            (aside / "missing" / "a.txt").write_text("a")
        assert os.listdir(tmp_path) == []

    def test_takes_no_others_place(self, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "kept.txt").write_text("kept")
        with pytest.raises(OSError, match="run"), whole_folder(tmp_path / "run") as aside:
            (aside / "a.txt").write_text("a")
        assert (tmp_path / "run" / "kept.txt").read_text() == "kept"
        assert os.listdir(tmp_path) == ["run"]

    def test_left_over_by_a_kill_is_made_anew(self, tmp_path: Path) -> None:
        (tmp_path / ".run.part").mkdir()
        (tmp_path / ".run.part" / "half.txt").write_text("half")
        with whole_folder(tmp_path / "run") as aside:
            (aside / "a.txt").write_text("a")
        assert os.listdir(tmp_path / "run") == ["a.txt"]
