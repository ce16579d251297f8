"""Tables, figures and the page, from results."""

import itertools
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from funcattn.experiments import EXPERIMENTS
from funcattn.experiments.engine.drawing import curves
from funcattn.experiments.engine.experiment import Claim, Outcome, Verdict
from funcattn.experiments.engine.pages import write_results
from funcattn.experiments.engine.typeset import latex_table, markdown_table
from funcattn.experiments.tables.scaling import SHAPE, measured
from funcattn.training.checkpoint import CheckpointError

BURGERS, NOTCH = EXPERIMENTS["burgers"], EXPERIMENTS["darcy_notch"]
RIDGE, SCALING = EXPERIMENTS["ridge"], EXPERIMENTS["scaling"]
FEW_SHOT = EXPERIMENTS["few_shot"]


@pytest.fixture
def burgers(made: Any) -> Any:
    """Three methods, one of them by older code and one with a single seed."""
    errors = {("funcattn", "error"): [0.0115, 0.012, 0.0125], ("fno", "error"): [0.02]}
    made.add(BURGERS.trials["galerkin", "error"], {"test": {"relative_l2": 0.03}}, code="old")
    return made.with_errors(BURGERS, errors)


def test_the_markdown_table(burgers: Any) -> None:
    assert markdown_table(burgers) == (
        "|  | Error: paper | Error: here |\n"
        "| --- | --- | --- |\n"
        "| FNO | 1.195 | 20 (1) |\n"
        "| Galerkin | 1.175 | 30 (1)* |\n"
        "| Transolver | 1.243 | not run |\n"
        "| Functional attention | 1.081 | **12 ± 0.5 (3)** |\n"
    )


def test_a_method_that_is_not_here_is_not_yet(made: Any) -> None:
    assert "| dgFNO+ | 7.82 | not yet |" in markdown_table(made.outcome(NOTCH))


def test_the_latex_table(burgers: Any) -> None:
    lines = latex_table(burgers).splitlines()
    assert lines[0] == r"\begin{tabular}{lcc}"
    assert r"Functional attention & 1.081 & \textbf{12 $\pm$ 0.5 (3)} \\" in lines
    assert r"Transolver & 1.243 & -- \\" in lines
    assert lines[-1] == r"\end{tabular}"


def test_a_tier_without_results_of_its_own_is_left_out(made: Any, tmp_path: Path) -> None:
    errors = {"mse": dict.fromkeys(("5", "10", "20", "40"), 0.1)}
    made.add(FEW_SHOT.trials["funcattn", "5"], {"measured": errors})  # the same at both tiers
    page, folder = tmp_path / "results.md", tmp_path / "out"
    outcomes = [made.outcome(FEW_SHOT, "paper"), made.outcome(FEW_SHOT, "cpu")]
    write_results(outcomes, page, folder)
    assert "Tier `paper`: " not in page.read_text()
    made.add(FEW_SHOT.trials["intention", "5"], {"measured": errors}, tier="paper")
    write_results([made.outcome(FEW_SHOT, "paper"), made.outcome(FEW_SHOT, "cpu")], page, folder)
    assert "Tier `cpu`: " not in page.read_text()
    made.add(FEW_SHOT.trials["intention", "5"], {"measured": errors})
    write_results([made.outcome(FEW_SHOT, "paper"), made.outcome(FEW_SHOT, "cpu")], page, folder)
    assert page.read_text().index("Tier `paper`: ") < page.read_text().index("Tier `cpu`: ")


def test_without_results_the_tier_is_shown_at_which_something_can_be_run(
    made: Any, tmp_path: Path
) -> None:
    experiment, page = EXPERIMENTS["paper_size"], tmp_path / "results.md"
    outcomes = [made.outcome(experiment, "paper"), made.outcome(experiment, "cpu")]
    write_results(outcomes, page, tmp_path / "out")
    text = page.read_text()
    assert "Tier `paper`: 0 of 2 trials have a result." in text
    assert "- Not run: Functional attention, 100 of 500 epochs, Our network, the same CPU" in text


def test_a_method_that_fits_some_columns_is_not_run_and_one_that_fits_none_says_why(
    made: Any, tmp_path: Path
) -> None:
    page = tmp_path / "results.md"
    write_results([made.outcome(EXPERIMENTS["pde"])], page, tmp_path / "out")
    (line,) = (x for x in page.read_text().splitlines() if "U-FNO" in x)
    assert line.startswith("- Not run: ")


def test_conditions_have_no_best(made: Any) -> None:
    for start, condition in (("0", 30.0), ("6", 3.0)):
        values = {"measured": {"condition": condition}, "test": {"relative_l2": 0.1}}
        curve = {"epoch": [1.0, 2.0], "condition_1": [50.0, condition], "condition_2": [9.0, 9.0]}
        made.add(RIDGE.trials[start, "error"], values | {"curve": curve})
    outcome = made.outcome(RIDGE)
    assert "| alpha = 6 | 8 | 3 (1) |" in markdown_table(outcome)
    (axis,) = RIDGE.figures(outcome)["ridge_condition"].axes
    heights = [line.get_ydata()[-1] for line in axis.lines]  # type: ignore[index]
    assert heights == [19.5, 6.0]


def test_the_page(made: Any, burgers: Any, tmp_path: Path) -> None:
    page, folder = tmp_path / "docs/results.md", tmp_path / "out"
    told: list[str] = []
    outcomes = [made.outcome(BURGERS, "paper"), burgers, made.outcome(NOTCH)]
    write_results(outcomes, page, folder, told.append)
    text = page.read_text()
    assert told == ["burgers", "darcy_notch"]
    assert markdown_table(burgers, whole=False) in text
    assert "| Transolver |" not in text
    assert "- Not run: Transolver (about 0.5 hours on one core)\n" in text
    assert "- Not yet: it is FNO here: dgFNO+\n" in text
    assert text.count("## Burgers' equation") == 1
    assert "Tier `paper`: " not in text  # where nothing was run
    assert (
        "- functional attention first on Burgers: holds; the error of FNO is 1.67 times that of "
        "Functional attention; 2 of 3 other methods have a run (tier cpu, 1 seed, by older code)\n"
    ) in text
    assert "- waiting for runs: functional attention first on Darcy with a notch; " in text
    assert "Of 3 claims, 1 hold here, 0 do not, 0 are undecided" in text
    assert "and 2 wait for runs." in text
    assert (
        "Parameters, and minutes on one core:\n\n"
        "|  | per run |\n"
        "| --- | --- |\n"
        "| FNO | 1,000, 30.0 min |\n"
        "| Galerkin | 1,000, 30.0 min |\n"
        "| Functional attention | 1,000, 30.0 min |\n"
    ) in text
    assert (
        "| functional attention first on Burgers | holds | the error of FNO is 1.67 times that of "
        "Functional attention; 2 of 3 other methods have a run (tier cpu, 1 seed, by older code) "
        "| [burgers](#burgers-equation-on-a-finer-grid-burgers-table5) |\n"
    ) in text
    assert (folder / "tables/burgers-cpu.md").read_text() == markdown_table(burgers)
    assert (folder / "tables/burgers-cpu.tex").read_text() == latex_table(burgers)
    assert "5 results over all seeds, 2.5 hours on one core; commit abc; a machine." in text
    before = text
    write_results(outcomes, page, folder)
    assert page.read_text() == before


def anchors(text: str) -> list[str]:
    """Those that GitHub makes of the headings: hyphens and underscores stay, spaces are hyphens."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_every_link_within_the_page_has_its_heading(made: Any, tmp_path: Path) -> None:
    outcomes = []
    for experiment in EXPERIMENTS.values():
        decided = replace(experiment, claims=(Always("a claim"),), figures=lambda outcome: {})  # noqa: ARG005
        outcomes.append(made.outcome(decided))
    write_results(outcomes, tmp_path / "page.md", tmp_path)
    text = (tmp_path / "page.md").read_text()
    links = re.findall(r"\]\(#([^)]*)\)", text)
    assert len(links) == len(EXPERIMENTS)
    assert set(links) <= set(anchors(text))


def test_every_link_of_the_stored_page_leads_somewhere() -> None:
    page = Path(__file__).parents[2] / "docs/results.md"
    for link in re.findall(r"\]\(([^)]*)\)", page.read_text()):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text()), link


@dataclass(frozen=True)
class Always(Claim):
    """A claim that is decided before any run."""

    def verdict(self, outcome: Outcome) -> Verdict:  # noqa: ARG002
        return Verdict(self.text, "holds", "")


def test_pictures_stay_where_the_weights_are_not(made: Any, tmp_path: Path) -> None:
    folder = tmp_path / "out/pictures"
    folder.mkdir(parents=True)
    for name in ("ridge_condition-cpu.png", "ridge_condition-paper.png", "bases-cpu.png"):
        (folder / name).touch()
    write_results([made.outcome(RIDGE)], tmp_path / "docs/page.md", tmp_path / "out")
    text = (tmp_path / "docs/page.md").read_text()
    assert text.count("](../out/pictures/") == 1
    assert "![ridge condition-cpu](../out/pictures/ridge_condition-cpu.png)" in text


def test_weights_that_no_longer_fit_are_reported(made: Any, tmp_path: Path) -> None:
    def figures(outcome: Any) -> dict[str, Figure]:  # noqa: ARG001
        raise CheckpointError("they do not fit")

    outcome = made.outcome(replace(RIDGE, figures=figures))
    write_results([outcome], tmp_path / "page.md", tmp_path)
    assert "an older version of the code: they do not fit." in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize("top", [4.5, 9000.0], ids=["narrow", "wide"])
def test_curves_have_numbers_on_both_axes(top: float) -> None:
    figure = curves({"a": ([5.0, 10.0, 40.0], [3.0, 2.0, top])}, x_label="x", y_label="y")
    figure.draw_without_rendering()
    (axis,) = figure.axes
    low, high = axis.get_ylim()
    shown = [tick for tick in axis.get_yticks() if low <= tick <= high]
    assert len(shown) >= 2
    assert [label.get_text() for label in axis.get_xticklabels()] == ["5", "10", "40"]


def test_numbers_below_the_axis_do_not_cover_each_other() -> None:
    points = [float(2**k) for k in range(12, 20)]
    name = "a method with a long name"
    figure = curves({name: (points, points)}, x_label="x", y_label="y")
    figure.draw_without_rendering()
    (axis,) = figure.axes
    left, right = axis.get_xlim()
    labels = zip(axis.get_xticks(), axis.get_xticklabels(), strict=True)
    boxes = [label.get_window_extent() for at, label in labels if left <= at <= right]
    assert len(boxes) >= 2
    assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))


def bench(path: Path, times: dict[str, dict[int, float]]) -> None:
    """What the benchmark would have left: all take as much memory, but half of it when streamed."""
    records: dict[str, Any] = {}
    for points in {n for of in times.values() for n in of}:
        candidates = {
            name: {
                "forward": {"median": of[points]},
                "memory": {"forward": {"bytes": (1e6 - 5e5 * ("streamed" in name)) * points}},
            }
            for name, of in times.items()
            if points in of
        }
        about = {"part": "layer", "shape": SHAPE, "allocator": "default", "threads": 1}
        records[f"{points}"] = about | {"points": points, "candidates": candidates}
        records[f"{points} others"] = records[f"{points}"] | {"threads": 2, "candidates": {}}
    records["scale layer"] = {"feat": "layer", "points": 2**20, "seconds": 7.0, "threads": 1}
    path.write_text(json.dumps({"measurements": records}))


def test_scaling_reads_the_benchmark(made: Any, tmp_path: Path) -> None:
    outcome = made.outcome(SCALING)
    assert [claim.verdict(outcome).holds for claim in SCALING.claims] == ["not yet"] * 5
    assert SCALING.figures(outcome) == {}
    times = {
        "functional": {1024: 0.01, 16384: 0.18},
        "softmax": {1024: 0.02},
        "galerkin": {1024: 0.02, 16384: 0.27},
        "functional, plain": {1024: 0.02, 16384: 0.04},
        "functional, streamed": {1024: 0.01, 16384: 0.18},
    }
    bench(tmp_path / "bench.json", times)
    assert measured(tmp_path / "bench.json", "time")["galerkin"] == {1024: 20.0, 16384: 270.0}
    fastest, leanest, streamed, linear, _ = (claim.verdict(outcome) for claim in SCALING.claims)
    assert fastest.holds == "holds"
    assert (
        "the time of Galerkin is 1.5 times that of functional attention at 16,384 points"
        in fastest.details
    )
    assert fastest.details.endswith("; 1 of 9 other methods were measured")
    assert (leanest.holds, streamed.holds) == ("does not hold", "holds")
    assert linear.holds == "holds"
    assert linear.details == (
        "the time per point at 16,384 points is 1.12 times that at 1,024 points"
    )
    assert set(SCALING.figures(outcome)) == {"scaling_time", "scaling_memory"}
    bench(tmp_path / "bench.json", times | {"functional": {1024: 0.01, 16384: 0.3}})
    assert [claim.verdict(outcome).holds for claim in SCALING.claims] == [
        "does not hold",
        "does not hold",
        "holds",
        "does not hold",
        "holds",
    ]
    bench(tmp_path / "bench.json", times | {"linear_no": {16384: 0.09}})
    fastest = SCALING.claims[0].verdict(outcome)
    assert fastest.holds == "does not hold"
    assert (
        "the time of functional attention is 2 times that of linear_no (not in the paper)"
        in fastest.details
    )
