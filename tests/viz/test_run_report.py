import html
import math
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from funcattn.viz import Case, RunReport, Section, statistics, write_run_report

Floats = npt.NDArray[np.float64]
RANDOM = np.random.default_rng(0)


def lattice(*grid: int) -> Floats:
    axes = [np.linspace(0, 1, length) for length in grid]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(grid))


def case(
    positions: Floats,
    grid: tuple[int, ...] | None = None,
    *,
    label: str = "median",
    outputs: tuple[int, ...] = (1,),
    inputs: int = 1,
    context: Floats | None = None,
) -> Case:
    n = len(positions)
    truth = RANDOM.normal(size=(n, *outputs))
    return Case(
        label=label,
        error=0.0123,
        positions=positions,
        grid=grid,
        inputs=RANDOM.normal(size=(n, inputs)) if inputs else None,
        truth=truth,
        prediction=truth + 0.1,
        context=context,
    )


def labelled(positions: Floats, labels: int, label: str = "median") -> Case:
    truth = np.arange(len(positions)) % labels
    prediction = truth.copy()
    prediction[:5] = (truth[:5] + 1) % labels
    return Case(label, 0.9, positions, None, None, truth, prediction)


def report(picture: str, *cases: Case, **changes: Any) -> RunReport:
    history = [
        {
            "train_loss": math.exp(-epoch),
            "validation_relative_l2": 0.5 / epoch,
            "rate": 1e-3 / epoch,
            "seconds": 1.5,
        }
        for epoch in range(1, 6)
    ]
    settings = {"task": "darcy", "network": {"width": 128, "reach": None, "deep": {"a": True}}}
    whole: dict[str, Any] = {
        "title": "Darcy flow",
        "summary": "Relative error 1.23 %.",
        "picture": picture,
        "settings": settings,
        "history": history,
        "headline": "relative_l2",
        "larger_is_better": False,
        "best_epoch": 4,
        "test_metrics": {"gradient": [0.5, 0.7], "relative_l2": [0.01, 0.02, 0.03, 0.06]},
        "cases": cases,
        "bases": {},
        "conditions": {},
        "facts": {"command": "funcattn train darcy", "test set": "was read once, at epoch 4"},
    }
    return RunReport(**(whole | changes))


def written(folder: Path, what: RunReport) -> str:
    path = folder / "report.html"
    write_run_report(path, what)
    return path.read_text()


def headings(page: str) -> list[str]:
    return re.findall("<h2>(.*?)</h2>", page)


def captions(page: str) -> list[str]:
    return [html.unescape(found) for found in re.findall("<figcaption>(.*?)</figcaption>", page)]


def bases(points: int, layers: int = 3, functions: int = 20) -> dict[str, Floats]:
    return {
        f"layer {layer}": RANDOM.random((functions, points)) ** layer
        for layer in range(1, layers + 1)
    }


LINE = np.sort(RANDOM.random(40))[:, None]
CLOUD = RANDOM.random((150, 2))
BALL = RANDOM.normal(size=(150, 3))
RING = np.stack([(1 + CLOUD[:, 0]) * np.cos(3 * CLOUD[:, 1]), CLOUD[:, 1]], axis=1)
OBSERVED = np.array([[0.1, 0.5], [0.7, -0.5]])
BARE: dict[str, Any] = {"history": [], "test_metrics": {}}
KINDS = {
    "grid": report(
        "grid",
        case(lattice(12, 9), (12, 9)),
        bases=bases(108),
        conditions={"layer 1": [10.0, 20.0, math.inf, 5.0, 5.0], "layer 2": [1e3] * 7},
    ),
    "grid of channels": report("grid", case(lattice(8, 8), (8, 8), outputs=(6,), inputs=5), **BARE),
    "grid on a line": report("grid", case(LINE, (40,)), bases=bases(40, functions=3), **BARE),
    "bent grid": report("grid", case(RING, (15, 10), inputs=0), **BARE),
    "volume": report("grid", case(lattice(5, 5, 6), (5, 5, 6)), **BARE),
    "line": report(
        "line", case(LINE, inputs=0, context=OBSERVED), bases=bases(40, layers=1), **BARE
    ),
    "cloud": report("cloud", case(CLOUD, inputs=0), bases=bases(150, functions=3), **BARE),
    "cloud in space": report("cloud", case(BALL), bases=bases(150, functions=3), **BARE),
    "labels": report("cloud", labelled(BALL, 4), **BARE),
    "labels in the plane": report("cloud", labelled(CLOUD, 40), **BARE),
    "frames": report("frames", case(lattice(8, 8), (8, 8), outputs=(13,)), **BARE),
    "frames of channels": report("frames", case(CLOUD, outputs=(2, 2)), **BARE),
    "frames on a line": report("frames", case(LINE, (40,), outputs=(2,)), **BARE),
}


@cache
def page_of(kind: str) -> str:
    """One report of each kind is enough for all tests that look at it."""
    with TemporaryDirectory() as folder:
        return written(Path(folder), KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_of_any_kind_stands_alone(kind: str) -> None:
    page = page_of(kind)
    assert len(page) < 5e6
    sources = re.findall(r'(?:src|href)="([^"]{0,40})', page)
    assert sources
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    text = re.sub('base64,[^"]*', "", page)
    assert "http" not in text
    assert "<script" not in text
    pictures = re.findall('<img src="data:[^"]*" alt="([^"]*)">', page)
    assert len(pictures) == len(sources)
    assert all(len(words) > 20 and words.endswith(".") for words in pictures)
    assert "Predictions" in headings(page)
    assert "median (0.0123)" in text or "median (0.9)" in text


def test_a_whole_report_has_all_its_sections() -> None:
    assert headings(page_of("grid")) == [
        *("Test", "Training", "Predictions", "Learned bases", "Condition of the solve"),
        *("Settings", "How this was made"),
    ]


def test_the_statistics_are_those_of_the_samples() -> None:
    values = RANDOM.gamma(2.0, size=101)
    found = statistics(values.tolist())
    ordered = np.sort(values)
    assert found == pytest.approx(
        {
            "mean": values.sum() / 101,
            "standard deviation": math.sqrt(((values - values.mean()) ** 2).sum() / 100),
            "median": ordered[50],
            "5 %": ordered[5],
            "95 %": ordered[95],
            "minimum": ordered[0],
            "maximum": ordered[-1],
        }
    )


def test_statistics_leave_out_what_is_not_finite() -> None:
    assert statistics([1.0, math.nan, 3.0, math.inf]) == statistics([1.0, 3.0])
    assert all(math.isnan(number) for number in statistics([math.nan]).values())
    one = statistics([2.0])
    assert one["mean"] == one["5 %"] == one["maximum"] == 2
    assert math.isnan(one["standard deviation"])


def test_the_table_shows_the_metrics_with_the_headline_first() -> None:
    page = page_of("grid")
    rows = re.findall("<tr.*?>(.*?)</tr>", page, re.DOTALL)
    cells = [re.findall("<t[hd]>(.*?)</t[hd]>", row) for row in rows]
    assert cells[0] == [
        *("metric", "mean", "standard deviation", "median", "5 %", "95 %"),
        *("minimum", "maximum", "samples"),
    ]
    assert cells[1] == [
        *("relative l2", "0.03", "0.0216", "0.025", "0.0115", "0.0555", "0.01", "0.06", "4"),
    ]
    assert cells[2] == [
        *("gradient", "0.6", "0.1414", "0.6", "0.51", "0.69", "0.5", "0.7", "2"),
    ]
    assert '<tr class="strong"><td>relative l2' in page
    assert "smaller is better" in page


def test_settings_are_flat_and_facts_are_whole() -> None:
    page = page_of("grid")
    for name, value in (
        ("task", "darcy"),
        ("network.width", "128"),
        ("network.reach", "none"),
        ("network.deep.a", "True"),
        ("command", "funcattn train darcy"),
        ("test set", "was read once, at epoch 4"),
    ):
        assert f"<td>{name}</td><td>{value}</td>" in page


def test_the_chosen_epoch_is_named() -> None:
    page = page_of("grid")
    assert (
        "Of 5 epochs, epoch 4 was chosen on validation data, for its relative l2 of 0.125" in page
    )
    curves = "Over the epochs: loss, validation relative l2, learning rate. The dotted line"
    assert any(caption.startswith(curves) for caption in captions(page))


def test_epochs_may_be_numbered_and_need_not_all_be_validated(tmp_path: Path) -> None:
    history = [{"epoch": e, "train_loss": 1.0} for e in range(10, 16)]
    history[2]["validation_accuracy"] = 0.75
    page = written(
        tmp_path,
        report(
            "cloud",
            history=history,
            best_epoch=12,
            headline="accuracy",
            larger_is_better=True,
            test_metrics={"accuracy": [0.5, 1.0]},
        ),
    )
    assert "Of 6 epochs, epoch 12 was chosen on validation data, for its accuracy of 0.75." in page
    assert "larger is better" in page


def test_what_is_empty_is_left_out(tmp_path: Path) -> None:
    empty = report("grid", settings={}, history=[], test_metrics={}, facts={})
    page = written(tmp_path, empty)
    assert headings(page) == []
    assert "Relative error 1.23 %." in page
    assert headings(written(tmp_path, replace(empty, conditions={"layer 1": []}))) == []
    assert headings(written(tmp_path, replace(empty, history=[{"seconds": 1.0}] * 4))) == []


def test_sections_of_ones_own_come_first(tmp_path: Path) -> None:
    own = [Section("Against yardsticks", "Far better.")]
    page = written(tmp_path, report("grid", **BARE, first=own))
    assert headings(page) == ["Against yardsticks", "Settings", "How this was made"]
    assert list(tmp_path.iterdir()) == [tmp_path / "report.html"]


def test_first_and_last_layer_are_shown_by_their_largest_functions() -> None:
    shown = captions(page_of("grid"))
    galleries = [caption for caption in shown if "basis functions" in caption]
    assert [caption.split(":")[0] for caption in galleries] == ["Layer 1", "Layer 3"]
    assert all("the 16 of 20 basis functions of largest mass" in words for words in galleries)
    one_layer = captions(page_of("line"))
    assert sum("basis functions" in caption for caption in one_layer) == 1


def test_condition_numbers_that_are_not_finite_are_reported() -> None:
    assert "layer 1: 1 of 5 values are not finite; those epochs are left blank." in page_of("grid")


def test_the_first_channels_are_shown_and_the_rest_is_mentioned() -> None:
    (caption,) = [c for c in captions(page_of("grid of channels")) if c.startswith("Median")]
    assert "The first 4 of 5 input channels are shown." in caption
    assert "The first 4 of 6 output channels are shown." in caption
    assert "10 of 13 frames" in page_of("frames")
    channels = [c for c in captions(page_of("frames of channels")) if c.startswith("Median")]
    assert ["output 1" in channels[0], "output 2" in channels[1]] == [True, True]
    assert "40 labels occur" in page_of("labels in the plane")


def test_a_large_cloud_is_thinned_and_the_report_stays_small(tmp_path: Path) -> None:
    for dimensions in (2, 3):
        cloud = RANDOM.random((30_000, dimensions))
        large = report("cloud", case(cloud, inputs=0), bases=bases(30_000, functions=2))
        page = written(tmp_path, replace(large, **BARE))
        assert len(page) < 5e6
        assert "20,000 of 30,000 points are drawn." in page
        assert "5,000 of 30,000 points are drawn." in page  # in the galleries


@pytest.mark.parametrize(
    "kind", ["grid", "bent grid", "line", "cloud", "cloud in space", "frames on a line"]
)
@pytest.mark.parametrize("all_of_it", [False, True], ids=["some", "all"])
def test_what_is_not_finite_is_drawn_around_with_a_note(
    tmp_path: Path, kind: str, all_of_it: bool
) -> None:
    (sound,) = KINDS[kind].cases
    prediction = np.array(sound.prediction)
    prediction.reshape(-1)[: None if all_of_it else 7] = np.nan
    page = written(
        tmp_path,
        report(
            KINDS[kind].picture,
            replace(sound, prediction=prediction, label="worst"),
            **BARE,
        ),
    )
    lost = prediction.size if all_of_it else 7
    text = f"worst, prediction: {lost:,} of {prediction.size:,} values are not finite; left blank."
    assert any(text in caption for caption in captions(page))


@pytest.mark.parametrize("kind", ["grid", "line", "cloud", "cloud in space", "frames on a line"])
def test_points_without_a_position_are_reported(tmp_path: Path, kind: str) -> None:
    (sound,) = KINDS[kind].cases
    positions = np.array(sound.positions)
    positions[:3] = np.nan
    page = written(
        tmp_path, report(KINDS[kind].picture, replace(sound, positions=positions), **BARE)
    )
    assert "3 points without a finite position are left out." in captions(page)[0]


def test_broken_numbers_of_the_training_are_reported(tmp_path: Path) -> None:
    history = [{"train_loss": math.nan, "validation_relative_l2": math.inf, "rate": 0.0}] * 3
    page = written(
        tmp_path,
        report("grid", history=history, best_epoch=1, test_metrics={"relative_l2": [math.inf]}),
    )
    assert "relative l2: 1 of 1 values are not finite; they are left out." in page
    assert "train loss: 3 of 3 values are not finite" in page
    assert "Histogram" not in page


@pytest.mark.parametrize("picture", ["cloud", "frames"])
def test_a_single_point_that_never_changes_is_drawn(tmp_path: Path, picture: str) -> None:
    for dimensions in (1, 2, 3):
        one = Case(
            label="only",
            error=0.0,
            positions=np.zeros((1, dimensions)),
            grid=None,
            inputs=None,
            truth=np.ones((1, 1)),
            prediction=np.ones((1, 1)),
        )
        page = written(tmp_path, report(picture, one, **BARE))
        assert "Only (0)" in page


def test_words_are_escaped(tmp_path: Path) -> None:
    facts, settings = {"command": "a <b> & c"}, {"<i>": 1}
    page = written(tmp_path, report("grid", facts=facts, settings=settings, **BARE))
    assert "a &lt;b&gt; &amp; c" in page
    assert "<i>" not in page


SOUND = case(lattice(4, 5), (4, 5), label="worst")


@pytest.mark.parametrize(
    ("picture", "changes", "message"),
    [
        ("grid", {"positions": np.zeros(20)}, r"positions: expected \(points, space .*got \(20,\)"),
        ("cloud", {"positions": np.zeros((20, 4))}, "positions: expected at most 3 .*got 4"),
        ("line", {}, "positions: expected one column .*got 2"),
        ("grid", {"grid": (4, 4)}, r"grid: expected .*positions, 20, got \(4, 4\)"),
        ("grid", {"grid": None}, "grid: expected a grid .*are a 'cloud', got None"),
        ("grid", {"truth": np.zeros((19, 1))}, r"truth: expected \(n, o\).* n = 20 .*\(19, 1\)"),
        ("grid", {"truth": np.zeros((20, 1, 1))}, r"truth: expected .*got \(20, 1, 1\)"),
        ("grid", {"truth": np.zeros((20, 0))}, r"truth: expected .*got \(20, 0\)"),
        ("frames", {"truth": np.zeros(20)}, r"truth: expected \(n, t\) or .*got \(20,\)"),
        ("grid", {"prediction": np.zeros((20, 2))}, r"prediction: .*truth, \(20, 1\), got \(20, 2"),
        (
            "cloud",
            {"truth": np.zeros(20, dtype=np.int64), "prediction": np.zeros(20)},
            "prediction: expected labels as whole numbers.*got float64; pass the argmax",
        ),
        ("grid", {"inputs": np.zeros(20)}, r"inputs: expected \(20, channels\).*got \(20,\)"),
        ("grid", {"context": np.zeros((3, 3))}, r"context: expected \(obs.*got \(3, 3\)"),
    ],
)
def test_wrong_shapes_are_refused_by_the_name_of_the_case(
    tmp_path: Path, picture: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"case 'worst', {message}"):
        written(tmp_path, report(picture, replace(SOUND, **changes)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"headline": "accuracy"}, r"headline: expected one of .*relative_l2.*got 'accuracy'"),
        ({"best_epoch": 0}, "best_epoch: expected an epoch of the history, 1 to 5, got 0"),
        ({"bases": bases(19, 1)}, r"bases, layer 1: .*\(functions, 20\).*'worst', got \(20, 19\)"),
        ({"bases": bases(20), "cases": []}, "bases: expected a first case .*got no cases"),
        ({"cases": [SOUND, labelled(CLOUD, 3)]}, "cases: expected labels in all or in none"),
    ],
)
def test_reports_that_contradict_themselves_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        written(tmp_path, report("cloud", **({"cases": [SOUND]} | changes)))
