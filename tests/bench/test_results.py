"""What is kept, what is not measured twice, and what is made of it."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from funcattn.bench import runner, targets
from funcattn.bench.candidates import (
    CHECKPOINTED,
    LAYERS,
    NETWORKS,
    OURS,
    PLAIN,
    REFERENCE,
    STREAMED,
    Scope,
    Shape,
)
from funcattn.bench.figure import curves
from funcattn.bench.found import Found, failure, of_peak, seconds
from funcattn.bench.measure import Say
from funcattn.bench.report import (
    blocks,
    detail,
    filled,
    memory_over_points,
    not_measured,
    over_points,
    summary,
    winners,
    write_pictures,
)
from funcattn.bench.runner import Comparison, Effort, Measurements, Work, run
from funcattn.cli import benchmarking
from funcattn.cli.bench import Bench
from funcattn.cli.benchmarking import Benchmarking

EIGHT = Shape(128, 64, 8)
KINDS = ("forward", "forward + backward")


def timed(milliseconds: float, operations: int = 10**9) -> dict[str, Any]:
    median = milliseconds / 1e3
    return {
        "median": median,
        "quartiles": [0.9 * median, 1.2 * median],
        "rounds": 5,
        "operations": operations,
    }


def record(points: int = 2**14, allocator: str = "default", **faster: float) -> dict[str, Any]:
    """A case in which everything takes 100 ms forward and 300 ms with backward, but for some."""
    candidates = {}
    for name in LAYERS:
        scale = points / 2**14 / faster.get(name.replace(", ", "_").replace(" ", "_"), 1.0)
        candidates[name] = {
            "forward": timed(100 * scale),
            "forward + backward": timed(300 * scale, 3 * 10**9),
            "memory": {kind: {"bytes": 2000 * points, "bytes per point": 2000.0} for kind in KINDS},
        }
    return {
        "part": "layer",
        "shape": {"width": 128, "bases": 64, "heads": 8},
        "points": points,
        "allocator": allocator,
        "threads": 1,
        "candidates": candidates,
        "rates": {"matrix product": 50e9, "copy": 20e9},
        "page_faults": 0,
        "load": 0.5,
        "too slow": [],
        "command": "funcattn bench",
        "commit": "abc",
        "machine": "a machine",
        "seed": 0,
        "versions": {"torch": "2"},
    }


def network(points: int = 2**14, **faster: float) -> dict[str, Any]:
    """The same of networks."""
    case = record(points, **faster)
    candidates = {}
    for name in NETWORKS:
        as_layer = case["candidates"].get(name, case["candidates"][OURS])
        candidates[name] = {
            "forward": as_layer["forward"],
            "training step": as_layer["forward + backward"],
            "memory": {
                kind: {"bytes": 4096 * points, "bytes per point": 4096.0}
                for kind in ("forward", "training step")
            },
        }
    return {**case, "part": "model", "candidates": candidates}


def found_of(*records: dict[str, Any]) -> Found:
    return Found({str(index): each for index, each in enumerate(records)})


def quiet(key: str) -> Say:  # noqa: ARG001
    return lambda text: None  # noqa: ARG005


@pytest.fixture
def version(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets the version of the code."""
    return lambda name: monkeypatch.setattr(runner, "code_version", lambda: name)


def test_what_was_measured_by_the_same_code_is_skipped(
    tmp_path: Path, version: Callable[[str], None]
) -> None:
    done: list[str] = []

    def work(key: str) -> Work:
        return Work(key, lambda _: done.append(key) or {"threads": 1, "value": key})

    def go(*keys: str, again: bool = False) -> None:
        results = Measurements(tmp_path / "bench.json")
        run(map(work, keys), results, command="c", again=again, on_work=quiet)

    version("one")
    go("a")
    go("a", "b")
    assert done == ["a", "b"]
    go("a", again=True)
    assert done == ["a", "b", "a"]
    version("two")
    go("b")
    assert done == ["a", "b", "a", "b"]
    kept = json.loads((tmp_path / "bench.json").read_text())["measurements"]
    assert {key: each["code"] for key, each in kept.items()} == {"a": "one", "b": "two"}
    assert kept["a"].keys() >= {"commit", "machine", "versions", "command", "seed"}
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]


@pytest.mark.parametrize("before", [{"processor": "Another, family 1"}, {}])
def test_times_of_two_processors_are_not_mixed(
    tmp_path: Path, version: Callable[[str], None], before: dict[str, str]
) -> None:
    file = tmp_path / "bench.json"
    file.write_text(json.dumps({"measurements": {"a": {**before, "threads": 1, "code": "one"}}}))
    version("one")
    kept, works = file.read_bytes(), [Work(key, lambda _: {"threads": 1}) for key in ("a", "b")]
    assert run(works[:1], Measurements(file), command="c", again=False, on_work=quiet) == []
    others = before.get("processor", "not named")
    with pytest.raises(ValueError, match=rf"this processor, .*another one \({others}\).*--out"):
        run(works, Measurements(file), command="c", again=False, on_work=quiet)
    assert file.read_bytes() == kept


def test_a_process_that_dies_does_not_stop_the_others(
    tmp_path: Path, version: Callable[[str], None]
) -> None:
    def die(say: Say) -> dict[str, Any]:  # noqa: ARG001
        raise ChildProcessError("ended with code -9")

    version("one")
    results = Measurements(tmp_path / "bench.json")
    works = [Work("bad", die), Work("good", lambda _: {"threads": 1})]
    assert run(works, results, command="c", again=False, on_work=quiet) == [
        "bad: ended with code -9"
    ]
    assert list(results.records) == ["good"]


def test_the_version_is_that_of_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    before = runner.code_version()
    assert before == runner.code_version()
    read = Path.read_bytes
    monkeypatch.setattr(
        Path, "read_bytes", lambda path: read(path) + b" " * (path.name == "attention.py")
    )
    assert runner.code_version() != before


def test_quadratic_and_compiled_candidates_can_be_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[dict[str, Any]] = []

    def child(job: dict[str, Any], *_: object) -> dict[str, Any]:
        asked.append(job)
        return {"candidates": {name: {} for name in job["candidates"]}}

    monkeypatch.setattr(runner, "in_a_child", child)
    case = Comparison("layer", EIGHT, 2**15, "default")
    found = runner.work_of_comparison(case, Effort(compiled=False)).measure(print)
    assert [job["what"] for job in asked] == ["time", "memory"]
    left_out = LAYERS.keys() - set(asked[0]["candidates"])
    assert left_out == {"softmax", "functional, compiled"}
    assert found["too slow"] == ["softmax"]
    kept = Comparison("layer", EIGHT, 2**15, "kept pages")
    runner.work_of_comparison(kept, Effort()).measure(print)
    assert [job["what"] for job in asked] == ["time", "memory", "time"]


@pytest.mark.parametrize(
    ("points", "softmax", "others"),
    [(2**13, True, True), (2**14, False, True), (2**16, False, True), (2**17, False, False)],
)
def test_networks_of_baselines_end_before_ours(
    points: int, softmax: bool, others: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def child(job: dict[str, Any], *_: object) -> dict[str, Any]:
        asked.extend(job["candidates"])
        return {"candidates": {name: {} for name in job["candidates"]}}

    monkeypatch.setattr(runner, "in_a_child", child)
    case = Comparison("model", EIGHT, points, "kept pages")
    found = runner.work_of_comparison(case, Effort()).measure(print)
    assert {OURS, REFERENCE} < set(asked)
    assert ("softmax" in asked) == softmax
    assert ("linear_no" in asked) == ("linformer" in asked) == others
    assert found["too slow"] == (["softmax"] if others and not softmax else [])


@pytest.mark.parametrize(
    ("part", "points", "rounds"),
    [
        ("layer", 2**17, 5),
        ("layer", 2**19, 3),
        ("layer", 2**20, 2),
        ("model", 2**15, 5),
        ("model", 2**18, 2),
    ],
)
def test_slow_calls_have_fewer_rounds(
    part: Scope, points: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def child(job: dict[str, Any], *_: object) -> dict[str, Any]:
        asked.append(job["rounds"])
        return {"candidates": {}}

    monkeypatch.setattr(runner, "in_a_child", child)
    case = Comparison(part, EIGHT, points, "kept pages")
    for effort in (Effort(), Effort(rounds=1)):
        runner.work_of_comparison(case, effort).measure(print)
    assert asked == [rounds, 1]


def test_tables_are_made_of_the_records() -> None:
    found = found_of(record(2**13, functional=2), record(functional=4, linear=5, galerkin=8))
    table = over_points(found, "layer", EIGHT, "forward")
    assert table.headers == ["forward, ms", "8,192", "16,384"]
    assert table.rows[0] == [OURS, "25", "25"]
    of_detail = detail(found, EIGHT)
    row = dict(zip(of_detail.headers[1:7], of_detail.rows[0][1:7], strict=True))
    assert row["forward, ms"] == "25"
    assert row["quartiles"] == "22.5 - 30"
    slow = detail(found_of(record(functional=0.01)), EIGHT)
    assert slow.rows[0][1:3] == ["10,000", "9,000 - 12,000"]
    assert row["of peak"] == "80 %"  # 1e9 operations in 25 ms, of 50e9 per second
    assert row["B per point"] == "2000"
    assert winners(found, "layer", EIGHT).rows[1][:3] == ["16,384", "galerkin", "0.50x"]


def test_targets_say_reached_or_not() -> None:
    fast, slow = record(functional=2.5), record(functional=1.1)
    kept = record(allocator="kept pages", functional=1.4)
    title = "8 heads, forward: faster than the reference"

    def verdicts(found: Found) -> dict[str, list[str]]:
        return {row[0]: row[1:] for row in targets.table(found).rows}

    assert verdicts(found_of(fast))[title] == ["at least 2x", "2.5x", "reached"]
    assert verdicts(found_of(slow))[title] == ["at least 2x", "1.1x", "not reached"]
    like = "8 heads, forward: the same, both with an allocator that keeps its pages"
    assert verdicts(found_of(fast))[like][-1] == "not measured"
    assert verdicts(found_of(fast, kept))[like][-1] == "reached"
    streamed = "8 heads, forward: peak memory, streamed"
    assert verdicts(found_of(fast))[streamed] == [
        "at most 0.7 kB per point",
        "2 kB per point",
        "not reached",
    ]


def test_a_baseline_that_was_not_timed_might_have_won() -> None:
    fast = record(functional=2.5)
    title = "8 heads, forward: faster than the fastest baseline"
    assert {r[0]: r[3] for r in targets.table(found_of(fast)).rows}[title] == "reached"
    del fast["candidates"]["galerkin"]
    assert {r[0]: r[3] for r in targets.table(found_of(fast)).rows}[title] == "not measured"


def test_time_per_point_is_flat_only_where_all_sizes_were_measured() -> None:
    title = "8 heads, forward: spread of the time per point, 2^14 to 2^20 points"
    sizes = [record(2**k) for k in range(14, 21)]
    sizes[3]["candidates"][OURS]["forward"] = timed(100 * 2**3 * 1.1)
    rows = {r[0]: r[2:] for r in targets.table(found_of(*sizes)).rows}
    assert rows[title] == ["10 %", "reached"]
    assert rows[title.replace(":", ", streamed:")] == ["0 %", "reached"]
    rows = {r[0]: r[2:] for r in targets.table(found_of(*sizes[1:])).rows}
    assert rows[title] == ["-", "not measured"]


def test_a_form_that_failed_is_named_and_has_no_time() -> None:
    case = record()
    case["candidates"][OURS] = {"agreement": {"failed": "output is off by 1"}}
    case["candidates"][STREAMED]["forward"] = {"failed": "out of memory"}
    case["too slow"] = ["softmax"]
    del case["candidates"]["softmax"]
    found = found_of(case)
    rows = {row[0]: row[1] for row in over_points(found, "layer", EIGHT, "forward").rows}
    assert (rows[OURS], rows[STREAMED], rows[REFERENCE]) == ("failed", "no memory", "100")
    assert seconds(case, OURS, "forward") is None
    assert of_peak(case, OURS, "forward") is None
    assert failure(case, OURS, "forward") == "output is off by 1"
    said = "\n".join(not_measured(found))
    assert "functional, forward: output is off by 1 (16,384 points)" in said
    assert "softmax: not timed" in said


def test_the_picture_shows_the_records(tmp_path: Path) -> None:
    found = found_of(record(2**13, functional=2), record(functional=4))
    figure = curves(found.cases("layer", EIGHT))
    time, weight = figure.axes[:2]
    lines = {line.get_label(): line for line in time.get_lines()}
    assert lines.keys() == LAYERS.keys()
    assert list(lines[OURS].get_xdata()) == [2**13, 2**14]
    assert list(lines[OURS].get_ydata()) == pytest.approx([25, 25])
    assert list(weight.get_lines()[0].get_ydata()) == pytest.approx([2e-3 * 2**13, 2e-3 * 2**14])
    names = {path.name for path in write_pictures(found, tmp_path)}
    assert names == {"bench-128-64-8.png", "bench-128-64-8.svg"} == set(os.listdir(tmp_path))


def test_networks_have_tables_and_a_picture(tmp_path: Path) -> None:
    large = network(2**17, functional=4)
    large["candidates"] = {
        name: large["candidates"][name] for name in (OURS, PLAIN, CHECKPOINTED, REFERENCE)
    }
    large["candidates"][PLAIN]["training step"] = {"failed": "out of memory"}
    large["candidates"][PLAIN]["memory"]["training step"] = {"failed": "out of memory"}
    small = network(2**11, galerkin=2)
    for candidate in small["candidates"].values():
        del candidate["memory"]
    found = found_of(small, network(functional=4, linear=8), large)

    weighed = memory_over_points(found, "model", EIGHT, "training step")
    assert weighed.headers == ["training step, MiB", "16,384", "131,072"]
    rows = {row[0]: row[1:] for row in weighed.rows}
    assert rows[OURS] == ["64", "512"]
    assert rows[PLAIN] == ["64", "-"]
    assert rows["galerkin"] == ["64", "-"]
    won = winners(found, "model", EIGHT)
    assert won.headers[5] == "training step: fastest baseline"
    assert [row[5:7] for row in won.rows] == [
        ["galerkin", "0.50x"],
        ["linear", "0.50x"],
    ]

    time = curves(found.cases("model", EIGHT)).axes[2]
    lines = {line.get_label(): line for line in time.get_lines()}
    assert lines.keys() == NETWORKS.keys()
    assert list(lines[OURS].get_xdata()) == [2**11, 2**14, 2**17]
    assert list(lines[OURS].get_ydata()) == pytest.approx([300 / 8, 75, 600])
    names = {path.name for path in write_pictures(found, tmp_path)}
    assert names == {"bench-networks.png", "bench-networks.svg"}
    assert "![Whole networks](pictures/bench-networks.png)" in blocks(found)["models"]


def test_the_page_of_the_docs_takes_every_block() -> None:
    page = (Path(__file__).parents[2] / "docs" / "speed.md").read_text()
    parts = blocks(found_of(record(), record(allocator="kept pages")))
    once = filled(page, parts)
    assert filled(once, parts) == once
    for name, text in parts.items():
        assert f"<!-- bench: {name} -->\n{text}\n<!-- end -->" in once, name
    with pytest.raises(ValueError, match=r"marker: expected one of summary, .* got 'wrong'"):
        filled("<!-- bench: wrong --><!-- end -->", parts)


def test_the_page_opens_with_a_paragraph_and_a_table_and_ends_with_the_commands() -> None:
    found = found_of(record(2**10), record(functional=4))
    text = summary(found)
    paragraph, table = text.split("\n\n")
    assert paragraph.startswith("One layer of functional attention, width 128, 64 bases")
    rows = [line.split(" | ") for line in table.splitlines()[2:]]
    assert [row[0] for row in rows] == ["| 1,024", "| 16,384"]
    assert rows[1][1:3] == ["25", "4.00x"]
    assert summary(found_of()) == "Not measured yet."
    page = (Path(__file__).parents[2] / "docs" / "speed.md").read_text()
    assert page.splitlines()[2] == "<!-- bench: summary -->"
    commands = [line for line in page.splitlines() if line.startswith("funcattn bench")]
    assert page.index(commands[0]) > page.index("## How it is measured")


def test_measurements_go_below_runs_by_default() -> None:
    assert Bench().file == Path("runs/bench/bench.json")
    assert Bench(quick=True).file == Path("runs/bench-quick/bench.json")
    assert Bench(out=Path("a.json")).file == Path("a.json")


def test_the_command_reports_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bench.json").write_text(json.dumps({"measurements": {"a": record(functional=4)}}))
    page = tmp_path / "page.md"
    page.write_text("<!-- bench: targets --><!-- end -->")
    monkeypatch.setattr(
        benchmarking, "run", lambda *_, **__: pytest.fail("nothing is to be measured")
    )
    Bench(out=tmp_path / "bench.json", page=page, report_only=True).run([], Console(width=150))
    said = capsys.readouterr().out
    assert "8 heads, forward: faster than the reference" in said
    assert "| 4x | reached |" in page.read_text()
    with pytest.raises(ValueError, match="arguments: expected those of --help, got --wrong"):
        Bench().run(["--wrong"], Console())


def test_in_a_narrow_window_every_row_has_its_name_and_every_number_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = {str(p): record(2**p) for p in range(7, 21)}
    (tmp_path / "bench.json").write_text(json.dumps({"measurements": measured}))
    Bench(out=tmp_path / "bench.json", report_only=True).run([], Console(width=80))
    of_layers = capsys.readouterr().out.split("to reach")[0]
    assert "…" not in of_layers
    assert of_layers.count(" 1,048,576") == 2
    lines = [line.split() for line in of_layers.splitlines() if line.startswith(" linear_no")]
    # 6.4 s and 19.2 s, after a quarter and a half of as much.
    assert ["1,600", "3,200", "6,400"] in [line[-3:] for line in lines]
    assert lines[-1][-1] == "19,200"


@pytest.mark.parametrize(
    "allocator", ["kept pages", pytest.param("default", marks=pytest.mark.full)]
)
def test_a_child_measures_with_its_allocator(
    allocator: runner.Allocator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way, tiny: a process of its own, its environment, its answer."""
    said: list[str] = []
    monkeypatch.setenv("MALLOC_TOP_PAD_", "0")
    case = Comparison("layer", Shape(16, 4, 2), 64, allocator)
    effort = Effort(rounds=2, seconds=0.0, quadratic_up_to=0, compiled=False)
    results = Measurements(tmp_path / "bench.json")
    work = runner.work_of_comparison(case, effort)
    assert run([work], results, command="c", again=False, on_work=lambda _: said.append) == []
    kept = results.records[case.key]
    assert kept["candidates"][OURS]["forward"]["rounds"] == 2
    assert "softmax" in kept["too slow"]
    assert any("does it agree" in text for text in said)
    faults = kept["page_faults"]
    assert faults < 100 if allocator == "kept pages" else faults >= 2**26 / 2**21


def test_a_child_that_fails_says_why() -> None:
    with pytest.raises(ChildProcessError, match="ended with code 1: KeyError: 'nonsense'"):
        runner.in_a_child({"what": "scale", "name": "nonsense"}, "default", 1, print)


def test_what_is_asked_for() -> None:
    def keys(**asked: Any) -> list[str]:
        return [work.key for work in Benchmarking(Bench(**asked), Console())._work()]

    assert keys(quick=True) == [
        f"layer 128/64/8, {points} points, default, 1 thread" for points in (1024, 4096, 16384)
    ]
    assert keys(parts=("layer",), sizes=(2**20,), threads=2) == [
        f"layer {shape}, 1048576 points, default, 2 threads"
        for shape in ("128/64/8", "128/64/1", "256/32/8")
    ]
    assert len(keys(parts=("layer",), sizes=(2**14,))) == 6
    assert keys(parts=("layer",), sizes=(2**20,), shapes=("128/64/1",)) == [
        "layer 128/64/1, 1048576 points, default, 1 thread"
    ]
    assert keys(parts=("model",), sizes=(972,)) == ["model 128/64/8, 972 points, default, 1 thread"]
    assert keys(parts=("scale",)) == [
        f"scale {name}, 1 thread" for name in ("layer", "training step", "inference")
    ]
    assert keys(parts=("alone",), sizes=(972,)) == [
        "alone layer 128/64/8, 8 times 972 points, 1 thread",
        "alone model 128/64/8, 4 times 972 points, 1 thread",
    ]
    assert len(keys(parts=("alone",), shapes=("128/64/1",))) == 5
    assert len(set(keys())) == len(keys())
    # Seven sizes, five of them for the widest; two allocators at one; six of networks; and nine
    # of layers with eight heads, five with one, and two networks whose candidates are alone.
    assert len(keys()) == 2 * (7 + 1) + 5 + 1 + 6 + 9 + 5 + 2
    assert "layer 256/32/8, 262144 points, default, 1 thread" not in keys()


def test_a_run_without_sizes_leaves_others_out_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual, other, of_two = record(2**14), record(2**15), {**record(2**15), "threads": 2}
    measured = {
        "layer 128/64/8, 16384 points, default, 1 thread": usual,
        "layer 128/64/8, 32768 points, default, 1 thread": other,
        "layer 128/64/8, 32768 points, default, 2 threads": of_two,
        "a network": network(2**15),
    }
    file = tmp_path / "bench.json"
    file.write_text(json.dumps({"measurements": measured}))

    def left(**asked: Any) -> set[str]:
        kept: list[Measurements] = []

        def nothing(_: object, results: Measurements, **__: object) -> list[str]:
            kept.append(results)
            return []

        monkeypatch.setattr(benchmarking, "run", nothing)
        Bench(out=file, parts=("layer",), **asked).run([], Console(width=150))
        return set(kept[0].records)

    assert left(sizes=(2**10,)) == left(quick=True) == left(shapes=("128/64/1",)) == set(measured)
    assert "at other sizes" not in capsys.readouterr().out
    assert left() == set(measured) - {"layer 128/64/8, 32768 points, default, 1 thread"}
    assert f"at other sizes, left out of {file}: 1" in capsys.readouterr().out
