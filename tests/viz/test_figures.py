import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from funcattn.viz.canvases import (
    Canvas,
    Image,
    Line,
    Mesh,
    Space,
    canvas,
    triangles,
    widest_view,
)
from funcattn.viz.figures import (
    LabelRow,
    LineCase,
    Panel,
    Row,
    field_rows,
    frame_strip,
    label_rows,
    line_cases,
    point_gallery,
    point_rows,
)
from funcattn.viz.plots import (
    Chart,
    charts,
    histogram,
    layer_curves,
)

Floats = npt.NDArray[np.float64]


def lattice(*grid: int) -> Floats:
    axes = [np.linspace(0, 1, length) for length in grid]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(grid))


def with_hole(points: int = 1000, radius: float = 0.25) -> Floats:
    """Scattered points of the unit square outside a disc in its middle."""
    x = np.random.default_rng(0).random((2 * points, 2))
    return x[np.hypot(*(x - 0.5).T) > radius][:points]


def ball(points: int) -> Floats:
    x = np.random.default_rng(0).normal(size=(points, 3))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def bent(grid: tuple[int, int] = (9, 6)) -> Floats:
    """A grid around a quarter of a ring."""
    angle, radius = lattice(*grid).T
    return np.stack([np.cos(angle) * (1 + radius), np.sin(angle) * (1 + radius)], axis=1)


def panels_of(figure: Figure) -> dict[str, Axes]:
    return {axis.get_title(): axis for axis in figure.axes if axis.get_title()}


def colour_range(axis: Axes) -> tuple[float, float]:
    (norm,) = {artist.norm for artist in (*axis.images, *axis.collections)}
    return norm.vmin, norm.vmax


def area(points: Floats, corners: npt.NDArray[np.integer]) -> float:
    a, b, c = (points[corners[:, corner]] for corner in range(3))
    u, v = b - a, c - a
    return float(np.abs(u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]).sum() / 2)


@pytest.mark.parametrize("points", [500, 1000, 20_000])
def test_triangles_do_not_cross_a_hole_and_cover_the_rest(points: int) -> None:
    x = with_hole(points)
    corners = triangles(x)
    shares = np.random.default_rng(1).dirichlet([0.5] * 3, size=30)  # places inside a triangle
    places = np.einsum("pc,kcs->kps", shares, x[corners])
    assert np.linalg.norm(places - 0.5, axis=-1).min() > 0.8 * 0.25
    assert area(x, corners) == pytest.approx(1 - math.pi * 0.25**2, rel=2 / math.sqrt(points))


def test_the_triangles_of_a_mesh_are_drawn_as_they_are() -> None:
    x = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1], [0.5, 0.5]])
    corners = np.array([[0, 1, 4], [2, 3, 4]])  # open to the left and to the right
    drawn = canvas(x, corners=corners)
    assert isinstance(drawn, Mesh)
    np.testing.assert_array_equal(drawn.points[drawn.corners], x[corners])
    many = np.random.default_rng(0).random((50, 2))
    thinned = canvas(many, corners=np.array([[0, 1, 2]]), most=20)  # of which these may be gone
    assert isinstance(thinned, Mesh)
    assert len(thinned.corners) > 1


def test_triangles_leave_a_notch_open() -> None:
    x = lattice(31, 31)
    notch = (np.abs(x[:, 0] - 0.5) < 0.2) & (x[:, 1] > 0.5)
    assert area(x[~notch], triangles(x[~notch])) == pytest.approx(1 - 0.4 * 0.5, rel=0.1)


def test_a_single_long_triangle_among_short_ones_is_no_hole() -> None:
    x = np.random.default_rng(2).random((20_000, 2))
    middle = x[triangles(x)].mean(axis=1)
    inner = np.abs(middle - 0.5).max(axis=1) < 0.45
    assert area(x, triangles(x)[inner]) == pytest.approx(0.9**2, rel=2e-3)


@pytest.mark.parametrize(
    "x",
    [np.zeros((0, 2)), np.zeros((1, 2)), np.zeros((5, 2)), np.linspace(0, 1, 10)[:, None] * [1, 2]],
    ids=["none", "one", "the same", "on a line"],
)
def test_points_without_triangles_are_drawn_as_dots(x: Floats) -> None:
    assert triangles(x).shape == (0, 3)
    figure = point_rows([Row("row", canvas(x), [Panel("field", np.ones(len(x)))])])
    figure.savefig("/dev/null", format="png")


def test_duplicate_points_are_harmless() -> None:
    x = np.concatenate([with_hole(300)] * 2)
    assert 0 < len(triangles(x)) < 600


def test_an_even_grid_is_an_image_the_right_way_round() -> None:
    x = lattice(4, 3)
    place = canvas(x, (4, 3))
    assert isinstance(place, Image)
    figure = point_rows([Row("row", place, [Panel("x", x[:, 0]), Panel("y", x[:, 1])])])
    across = panels_of(figure)["x"].images[0].get_array()
    up = panels_of(figure)["y"].images[0].get_array()
    np.testing.assert_allclose(across, np.broadcast_to(np.linspace(0, 1, 4), (3, 4)))
    np.testing.assert_allclose(up, np.broadcast_to(np.linspace(0, 1, 3)[:, None], (3, 4)))


def test_a_grid_whose_first_axis_is_y_is_drawn_with_x_to_the_right_too() -> None:
    x = lattice(4, 3)[:, ::-1]
    place = canvas(x, (4, 3))
    assert isinstance(place, Image)
    figure = point_rows([Row("row", place, [Panel("x", x[:, 0])])])
    across = panels_of(figure)["x"].images[0].get_array()
    np.testing.assert_allclose(across, np.broadcast_to(np.linspace(0, 1, 3), (4, 3)))


@pytest.mark.parametrize(
    "x", [bent(), -lattice(9, 6), lattice(9, 6) ** 2], ids=["bent", "falling", "graded"]
)
def test_any_other_plane_grid_is_drawn_by_its_cells(x: Floats) -> None:
    place = canvas(x, (9, 6))
    assert isinstance(place, Mesh)
    assert len(place.corners) == 2 * 8 * 5
    assert area(place.points, place.corners) > 0.9 * np.prod(np.ptp(x, axis=0)) * 0.4


def test_points_on_a_line_are_sorted() -> None:
    x = np.array([[3.0], [1.0], [2.0]])
    place = canvas(x)
    assert isinstance(place, Line)
    np.testing.assert_array_equal(place.x, [1, 2, 3])
    np.testing.assert_array_equal(x[place.drawn, 0], place.x)


def test_near_points_in_space_are_drawn_over_far_ones() -> None:
    x = ball(500)
    place = canvas(x)
    assert isinstance(place, Space)
    towards = widest_view(x)[:, 2]
    assert (np.diff(x[place.drawn] @ towards) >= 0).all()


def test_the_view_is_a_rotation_and_sees_the_wide_side() -> None:
    x = ball(500) * [1.0, 5.0, 3.0]
    view = widest_view(x)
    np.testing.assert_allclose(view.T @ view, np.eye(3), atol=1e-12)
    assert np.linalg.det(view) == pytest.approx(1)
    spread = (x @ view).std(axis=0)
    assert spread[2] < min(spread[:2])
    assert view[2, 1] > 0  # z upwards


@pytest.mark.parametrize(
    ("x", "grid"),
    [
        (with_hole(3000), None),
        (ball(3000), None),
        (bent((60, 50)), (60, 50)),
    ],
    ids=["plane", "space", "grid"],
)
def test_many_points_are_thinned_with_a_note(x: Floats, grid: tuple[int, ...] | None) -> None:
    place = canvas(x, grid, most=1000)
    assert isinstance(place, Mesh | Space)
    assert 500 <= len(place.drawn) <= 1100
    assert any(f"{len(place.drawn):,} of 3,000 points are drawn." in note for note in place.notes)
    assert not canvas(x, grid, most=3000).notes


def test_a_far_field_with_few_points_is_cut_off_with_a_note() -> None:
    random = np.random.default_rng(0)
    radius, angle = 10 ** random.uniform(-1, 2, 3000), random.uniform(0, 7, 3000)
    x = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    place = canvas(x)
    assert isinstance(place, Mesh)
    left, right, bottom, top = place.window
    assert (right - left) * (top - bottom) < 0.2 * np.prod(np.ptp(x, axis=0))
    assert "dense" in " ".join(place.notes)
    assert place.seen(radius).max() < radius.max()
    assert not canvas(with_hole()).notes


def test_a_very_long_domain_is_stretched_with_a_note() -> None:
    place = canvas(lattice(20, 5) * [10, 1], (20, 5))
    assert place.ratio == pytest.approx(1 / 3)
    assert "not drawn to the same scale" in " ".join(place.notes)


@pytest.mark.parametrize(
    ("x", "grid"),
    [
        (with_hole(200), None),
        (ball(200), None),
        (bent((20, 10)), (20, 10)),
        (lattice(20, 10), (20, 10)),
        (np.linspace(0, 1, 200)[:, None], (200,)),
    ],
    ids=["plane", "space", "bent", "even", "line"],
)
@pytest.mark.parametrize("how_many", [3, 200])
def test_points_without_a_position_are_left_out_with_a_note(
    x: Floats, grid: tuple[int, ...] | None, how_many: int
) -> None:
    x = x.copy()
    x[:how_many] = np.nan
    place = canvas(x, grid)
    assert f"{how_many} points without a finite position" in " ".join(place.notes)
    figure = point_rows([Row("row", place, [Panel("field", np.arange(200.0))])])
    figure.savefig("/dev/null", format="png")


def test_points_that_do_not_fill_the_grid_are_refused() -> None:
    with pytest.raises(ValueError, match=r"number of points, 12, got \(3, 5\); pass None"):
        canvas(lattice(4, 3), (3, 5))


def test_points_in_four_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match="expected 1, 2 or 3 columns for a picture, got 4"):
        canvas(np.zeros((5, 4)))


@pytest.mark.parametrize(
    ("x", "grid"),
    [(lattice(8, 8), (8, 8)), (with_hole(100), None), (ball(100), None)],
    ids=["image", "plane", "space"],
)
def test_truth_and_prediction_share_their_colours_and_the_error_starts_at_zero(
    x: Floats, grid: tuple[int, ...] | None
) -> None:
    truth = x[:, 0]
    prediction = truth * 1.5 + 0.5
    figure = point_rows(
        [
            Row(
                "row",
                canvas(x, grid),
                [
                    Panel("truth", truth, scale="value"),
                    Panel("prediction", prediction, scale="value"),
                    Panel("error", np.abs(prediction - truth), from_zero=True),
                ],
            )
        ]
    )
    panels = panels_of(figure)
    expected = (truth.min(), prediction.max())
    assert colour_range(panels["truth"]) == colour_range(panels["prediction"]) == expected
    assert colour_range(panels["error"]) == (0, np.abs(prediction - truth).max())
    bars = [axis for axis in figure.axes if not axis.get_title()]
    assert len(bars) == 2  # one for both that share, one for the error


def test_plain_arrays_are_drawn_in_rows() -> None:
    field = np.arange(12.0).reshape(4, 3)
    rows = field_rows({"a": [Panel("f", field), Panel("g", field)], "b": [Panel("f", field)]})
    assert [axis.get_ylabel() for axis in rows.axes if axis.get_ylabel()] == ["a", "b"]
    np.testing.assert_array_equal(rows.axes[0].images[0].get_array(), field.T)


def test_functions_of_both_signs_have_a_neutral_zero() -> None:
    x = lattice(6, 6)
    figure = point_gallery(canvas(x, (6, 6)), [x[:, 0], x[:, 0] - 0.25], ["mass", "signed"])
    panels = panels_of(figure)
    assert colour_range(panels["mass"]) == (0, 1)
    assert colour_range(panels["signed"]) == (-0.75, 0.75)


@pytest.mark.parametrize("value", [0.0, 3.0, np.nan], ids=str)
def test_a_field_without_a_range_is_drawn(value: float) -> None:
    for x, grid in ((lattice(5, 5), (5, 5)), (with_hole(25), None), (ball(25), None)):
        figure = point_rows([Row("row", canvas(x, grid), [Panel("field", np.full(25, value))])])
        figure.savefig("/dev/null", format="png")


def test_values_that_are_not_finite_are_left_blank() -> None:
    x = lattice(5, 5)
    field = x[:, 0].copy()
    field[[0, 7]] = np.nan, np.inf
    image = point_rows([Row("row", canvas(x, (5, 5)), [Panel("f", field)])]).axes[0].images[0]
    assert np.ma.getmaskarray(image.get_array()).sum() == 2
    assert (image.norm.vmin, image.norm.vmax) == (0, 1)
    mesh = point_rows([Row("row", canvas(x), [Panel("f", field)])]).axes[0].collections[0]
    assert np.isfinite(mesh.get_array()).all()


def test_a_strip_has_at_most_ten_frames_from_first_to_last_in_one_colour_range() -> None:
    x = lattice(6, 6)
    truth = x[:, :1] * np.arange(1, 24)
    figure = frame_strip(canvas(x, (6, 6)), truth, truth + 1)
    panels = panels_of(figure)
    assert len(panels) == 10
    assert next(iter(panels)) == "frame 1"
    assert list(panels)[-1] == "frame 23"
    drawn = [axis for axis in figure.axes if axis.images]
    assert {colour_range(axis) for axis in drawn[:20]} == {(0, 24)}
    assert {colour_range(axis) for axis in drawn[20:]} == {(0, 1)}


def test_labels_have_one_colour_in_all_panels_and_errors_are_red() -> None:
    x = ball(300)
    truth = (x[:, 0] > 0).astype(np.int64) * 7
    prediction = truth.copy()
    prediction[:30] = 3
    figure = label_rows([LabelRow("row", canvas(x), truth, prediction)])
    figure.savefig("/dev/null", format="png")  # which works out the colours
    panels = panels_of(figure)
    place = canvas(x)
    assert isinstance(place, Space)
    true, predicted = (panels[n].collections[0].get_facecolors() for n in ("truth", "prediction"))
    same = (truth == prediction)[place.drawn]
    np.testing.assert_array_equal(true[same], predicted[same])
    assert len(np.unique(predicted, axis=0)) == 3
    right, wrong = panels["10 % wrong"].collections
    assert len(wrong.get_offsets()) == 30
    assert len(right.get_offsets()) == 270
    assert to_rgba(wrong.get_facecolors()[0])[0] > 0.7 > 0.3 > wrong.get_facecolors()[0][1]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        *("0", "3", "7"),
        *("right", "wrong"),
    ]


def test_many_labels_are_not_listed() -> None:
    labels = np.arange(300)
    figure = label_rows([LabelRow("row", canvas(ball(300)), labels, labels)])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["right", "wrong"]


def test_lines_are_sorted_and_show_inputs_observations_and_the_error() -> None:
    x = np.array([2.0, 0.0, 1.0])
    case = LineCase("best", x, x**2, x**2 + 1, inputs=x[:, None], observed=np.array([[0.5, 0.25]]))
    inputs, fit, error = line_cases([case]).axes
    np.testing.assert_array_equal(inputs.lines[0].get_ydata(), [0, 1, 2])
    truth, prediction, observed = fit.lines
    np.testing.assert_array_equal(truth.get_xydata(), [[0, 0], [1, 1], [2, 4]])
    np.testing.assert_array_equal(prediction.get_ydata(), [1, 2, 5])
    np.testing.assert_array_equal(observed.get_xydata(), [[0.5, 0.25]])
    np.testing.assert_array_equal(error.lines[-1].get_ydata(), [1, 1, 1])


def test_charts_are_logarithmic_where_that_helps() -> None:
    epochs = [1.0, 2.0, 3.0]
    figure = charts(
        [
            Chart("decades", {"a": (epochs, [1.0, 0.1, 0.01])}, marked=2.0),
            Chart("narrow", {"a": (epochs, [1.0, 0.9, 0.8])}),
            Chart("wanted", {"a": (epochs, [1.0, 0.1, 0.01])}, log=False),
            Chart("negative", {"a": (epochs, [1.0, 0.1, -0.01])}),
            Chart("broken", {"a": (epochs, [1.0, math.nan, math.inf])}),
            Chart("empty", {"a": (epochs, [math.nan] * 3)}),
        ]
    )
    figure.savefig("/dev/null", format="png")
    panels = panels_of(figure)
    scales = {name: axis.get_yscale() for name, axis in panels.items()}
    assert [name for name, scale in scales.items() if scale == "log"] == ["decades"]
    np.testing.assert_array_equal(panels["decades"].lines[-1].get_xydata(), [[2, 0.1]])
    np.testing.assert_array_equal(panels["broken"].lines[0].get_xydata(), [[1, 1]])


def test_layers_are_drawn_over_a_logarithmic_axis_whatever_their_numbers() -> None:
    series = ([1.0, 2.0, 3.0], [10.0, math.inf, 0.0])
    figure = layer_curves({"layer 1": series, "layer 2": series}, y_label="condition number")
    figure.savefig("/dev/null", format="png")
    assert figure.axes[0].get_yscale() == "log"
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_xydata(), [[1, 10]])


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).random(200).tolist(),
        (10 ** np.random.default_rng(0).uniform(-6, 0, 200)).tolist(),
        [2.0] * 5,
        [0.0],
        [1.0, math.nan, math.inf],
    ],
    ids=["even", "decades", "the same", "zero", "not finite"],
)
def test_a_histogram_counts_every_finite_value(values: list[float]) -> None:
    figure = histogram(values, x_label="error")
    figure.savefig("/dev/null", format="png")
    (axis,) = figure.axes
    assert sum(bar.get_height() for bar in axis.patches) == np.isfinite(values).sum()
    assert (axis.get_xscale() == "log") == (len(values) == 200 and max(values) > 100 * min(values))


def plain() -> Figure:
    field = np.arange(9.0).reshape(3, 3)
    panels = [Panel(f"panel {number}", field * 1e-5) for number in range(4)]
    return field_rows({"worst (0.00123)": panels, "best (1.2e-05)": panels})


def cloud() -> Figure:
    x = with_hole(200)
    panels = [Panel("truth", 1e6 + x[:, 0], scale="v"), Panel("prediction", x[:, 1], scale="v")]
    return point_rows([Row("median (0.0123)", canvas(x), panels)])


def helix() -> Figure:
    turn = np.linspace(0, 20, 400)
    x = np.stack([np.cos(turn), np.sin(turn), turn], axis=1)
    labels = (turn * 0.79).astype(np.int64)
    return label_rows([LabelRow("median (0.0123)", canvas(x), labels, labels)])


def strip(x: Floats, grid: tuple[int, ...]) -> Figure:
    fields = x[:, :1] * np.arange(12) * 1e-4
    return frame_strip(canvas(x, grid), fields, fields * 1.1)


def lines() -> Figure:
    x = np.linspace(0, 1, 20)
    case = LineCase("median (0.0123)", x, 1e-5 * x, 2e-5 * x, inputs=x[:, None])
    return line_cases([case] * 3)


def training() -> Figure:
    epochs = [float(epoch) for epoch in range(1, 501)]
    falling = [math.exp(-epoch / 50) for epoch in epochs]
    steep = {"training loss": (epochs, falling), "validation loss": (epochs, falling)}
    flat = {"rate": (epochs, [1e-6] * 500)}
    return charts([Chart("loss", steep, marked=500.0), Chart("learning rate", flat)])


def tall_gallery() -> Figure:
    x = lattice(4, 30) * [1, 10]
    return point_gallery(canvas(x, (4, 30)), [x[:, 0]] * 16, [f"{j} (0.0012 %)" for j in range(16)])


def layers() -> Figure:
    epochs = [1.0, 2.0]
    named = {f"layer {layer}": (epochs, [10.0**layer, 20.0]) for layer in range(1, 13)}
    return layer_curves(named, y_label="condition number")


@pytest.mark.parametrize(
    "draw",
    [
        plain,
        cloud,
        helix,
        lambda: strip(lattice(8, 8), (8, 8)),
        lambda: strip(np.linspace(0, 1, 30)[:, None], (30,)),
        lines,
        training,
        tall_gallery,
        layers,
        lambda: histogram([1e-5, 2e-5, 3e-5], x_label="relative error"),
    ],
    ids=[
        *("plain", "cloud", "labels", "strip", "strip on a line", "lines", "training"),
        *("tall gallery", "layers", "histogram"),
    ],
)
def test_nothing_is_cut_off_and_no_title_is_written_over_another(
    draw: Callable[[], Figure],
) -> None:
    figure = draw()
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    everything, (width, height) = figure.get_tightbbox(renderer), figure.get_size_inches()
    assert min(everything.x0, everything.y0) >= 0
    assert everything.x1 <= width
    assert everything.y1 <= height
    titles = [axis.title for axis in figure.axes if axis.get_title()]
    boxes = [title.get_window_extent(renderer) for title in titles]
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:number])


def test_the_inside_of_a_body_stays_blank() -> None:
    # A body of twelve corners in a square of points: triangles between them would fill it.
    angles = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    body = 0.3 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    x, y = np.meshgrid(np.linspace(-1, 1, 15), np.linspace(-1, 1, 15))
    around = np.stack([x.ravel(), y.ravel()], axis=1)
    around = around[np.linalg.norm(around, axis=1) > 0.33]
    points = np.concatenate([body, around])
    on_body = np.arange(len(points)) < 12

    def inside(place: Canvas) -> int:
        assert isinstance(place, Mesh)
        return int((place.drawn[place.corners] < 12).all(axis=1).sum())

    filled, blank = canvas(points), canvas(points, on_body=on_body)
    assert inside(filled) > 3
    assert inside(blank) == 0
    assert isinstance(filled, Mesh)
    assert isinstance(blank, Mesh)
    assert len(blank.corners) == len(filled.corners) - inside(filled)


def test_rows_of_one_field_stand_side_by_side() -> None:
    place = canvas(np.random.default_rng(0).random((50, 2)))
    rows = [Row(f"sample {i}", place, [Panel("stress", np.arange(50.0))]) for i in range(3)]
    figure = point_rows(rows)
    shown = [axis for axis in figure.axes if axis.get_title()]
    assert [axis.get_title() for axis in shown] == ["sample 0", "sample 1", "sample 2"]
    assert shown[0].get_ylabel() == "stress"
    assert len({round(axis.get_subplotspec().rowspan.start, 3) for axis in shown}) == 1
