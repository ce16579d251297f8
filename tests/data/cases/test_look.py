import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from funcattn.data.cases import Cases, from_arrays, look, open_folder


def sixty(**changes: Any) -> dict[str, Any]:
    """Sixty cases without anything odd, on clouds of 12 points."""
    rng = np.random.default_rng(0)
    given = {
        "inputs": {"a": rng.normal(size=(60, 12))},
        "outputs": {"u": rng.normal(size=(60, 12, 2))},
        "positions": rng.uniform(size=(60, 12, 2)),
        "parameters": {"speed": rng.normal(size=60)},
    }
    return given | changes


def of(given: dict[str, Any]) -> Cases:
    return from_arrays(given.pop("inputs"), given.pop("outputs"), **given)


def test_nothing_is_odd_about_good_data() -> None:
    report = look(of(sixty()))
    assert report.findings == ()
    assert (report.cases, report.points, report.space) == (60, (12, 12, 12), 2)
    by_name = {each.name: each for each in report.summaries}
    assert by_name["u"].channels == 2
    assert by_name["speed"].kind == "parameter"
    assert "nothing odd" in str(report)
    json.dumps(report.as_dict())


def change(name: str, place: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(given: dict[str, Any]) -> None:
        for group in ("inputs", "outputs", "parameters"):
            if name in given[group]:
                given[group][name][place] = value
        if name == "positions":
            given["positions"][place] = value

    return apply


def scaled(name: str, row: int, factor: float) -> Callable[[dict[str, Any]], None]:
    def apply(given: dict[str, Any]) -> None:
        array = given["positions"] if name == "positions" else given["outputs"][name]
        array[row] *= factor

    return apply


def copied(with_outputs: bool) -> Callable[[dict[str, Any]], None]:
    def apply(given: dict[str, Any]) -> None:
        arrays = [given["inputs"]["a"], given["positions"], given["parameters"]["speed"]]
        arrays += [given["outputs"]["u"]] if with_outputs else []
        for array in arrays:
            array[7] = array[3]

    return apply


@pytest.mark.parametrize(
    ("spoil", "severity", "field", "message"),
    [
        (change("a", np.s_[:], 2.5), "warning", "a", "expected values that differ, got only 2.5"),
        (change("u", np.s_[..., 1], 0.0), "warning", "u", r"only 0 in components \[1\]"),
        (change("u", (4, 3), np.nan), "warning", "u", "2 that are NaN or infinite"),
        (scaled("u", 5, 1e6), "warning", "u", "expected magnitudes near .*: check its unit"),
        (scaled("u", 5, 1e-6), "warning", "u", "expected magnitudes near .*: check its unit"),
        (scaled("positions", 5, 1e3), "error", "positions", "the same unit of length"),
        (change("positions", 5, np.arange(24.0).reshape(12, 2) / 24 + 99), "warning", "positions",
         "same system of coordinates"),
        (copied(True), "warning", "", "expected every case once, got the same as 3"),
        (copied(False), "error", "", "equal outputs for equal inputs, got the inputs of 3"),
    ],
    ids=["constant", "constant component", "nan", "large", "small", "units", "frame", "copy",
         "ambiguous"],
)  # fmt: skip
def test_what_is_odd_is_found_and_nothing_else(
    spoil: Callable[[dict[str, Any]], None], severity: str, field: str, message: str
) -> None:
    given = sixty()
    spoil(given)
    (finding,) = look(of(given)).findings
    assert (finding.severity, finding.field) == (severity, field)
    import re

    assert re.search(message, str(finding))


def test_few_cases_are_a_warning_and_very_few_an_error() -> None:
    cases = of(sixty())
    assert [each.severity for each in look(cases[:30]).findings] == ["warning"]
    assert [each.severity for each in look(cases[:5]).findings] == ["error"]


def test_a_file_that_cannot_be_read_is_a_finding_and_the_others_are_looked_at(
    plates: Path,
) -> None:
    (plates / "plate_2.vtu").write_text("no mesh")
    report = look(open_folder(plates))
    assert report.readable == 2
    bad = [each for each in report.errors if each.file.endswith("plate_2.vtu")]
    assert len(bad) == 1
    assert bad[0].expected == "a mesh that PyVista reads"


def test_fields_that_some_files_lack_are_named(plates: Path, plate: Callable[..., Any]) -> None:
    grid = plate(seed=3)
    del grid.point_data["pressure"]
    grid.save(plates / "plate_3.vtu")
    findings = [each for each in look(open_folder(plates)).findings if each.field == "pressure"]
    assert [each.got for each in findings] == ["it in 3 of 4 cases"]
    assert findings[0].file.endswith("plate_3.vtu")


def test_findings_that_are_alike_are_told_once_with_their_number(plates: Path) -> None:
    for number in range(20, 25):
        shutil.copy(plates / "plate_1.vtu", plates / f"plate_{number}.vtu")
    report = look(open_folder(plates, outputs=["presure"]))
    assert len(report.errors) == 8
    assert sum("presure" in line for line in report.told) == 3
    assert "error: the same of 5 other cases" in report.told


def test_series_on_one_mesh_begin_differently_and_are_not_ambiguous() -> None:
    series = np.random.default_rng(0).random((60, 8, 3))
    cases = from_arrays(None, {"u": series}, grid=(8,), times=np.arange(3.0))
    assert look(cases).errors == []
    series[7, :, 0] = series[3, :, 0]  # the same start, another end
    assert [each.file for each in look(cases).errors] == ["7"]
