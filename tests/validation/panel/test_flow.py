"""Flows past airfoils against exact flows, another method and physical laws; their friction."""

from typing import Any

import numpy as np
import pytest

from funcattn.pde import panel
from funcattn.pde.errors import NotConvergedError
from funcattn.pde.naca import five_digit, four_digit


def stream(degrees: float) -> np.ndarray:
    return np.array([np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))])


def orders(errors: list[float]) -> np.ndarray:
    """Observed orders if each error is for twice as many panels as the last."""
    return np.log2(np.array(errors[:-1]) / errors[1:])


def cambered(panels: int = 200, degrees: float = 6.0) -> panel.Flow:
    return panel.solve(four_digit(2.0, 4.0, 12.0, panels=panels), stream(degrees))


def pressure_force(flow: panel.Flow) -> tuple[float, float]:
    """Drag and lift coefficients of the pressure."""
    wall = panel.surface(flow)
    load = panel.pressure(flow, wall.velocity) * wall.length
    force = -2 * load @ wall.normal / (flow.stream @ flow.stream)
    x, y = flow.stream / np.linalg.norm(flow.stream)
    return float(force @ [x, y]), float(force @ [-y, x])


class KarmanTrefftz:
    """The exact flow of speed 1 past the image of a circle, with any trailing-edge angle."""

    def __init__(self, edge: float, degrees: float = 5.0) -> None:
        self.centre = -0.08 + 0.06j
        self.power = 2.0 - edge / 180.0
        self.radius, self.start = abs(1 - self.centre), np.angle(1 - self.centre)
        self.angle = np.deg2rad(degrees)
        # Kutta condition: the trailing edge, 1, is a stagnation point of the circle's flow.
        self.circulation = -4 * np.pi * self.radius * np.sin(self.angle - self.start)
        nose = self.place(self.centre + self.radius * np.exp(1j * np.linspace(0, 2 * np.pi, 4001)))
        self.chord = self.power - nose.real.min()

    def circle(self, angle: np.ndarray, stretch: float = 1.0) -> np.ndarray:
        return self.centre + stretch * self.radius * np.exp(1j * (angle + self.start))

    def place(self, w: np.ndarray) -> np.ndarray:
        ratio = ((w - 1) / (w + 1)) ** self.power
        return self.power * (1 + ratio) / (1 - ratio)

    def velocity(self, w: np.ndarray) -> np.ndarray:
        """u - iv."""
        away = w - self.centre
        inner = np.exp(-1j * self.angle) - self.radius**2 * np.exp(1j * self.angle) / away**2
        inner += self.circulation / (2j * np.pi * away)
        ratio = ((w - 1) / (w + 1)) ** self.power
        return inner * (w**2 - 1) * (1 - ratio) ** 2 / (4 * self.power**2 * ratio)

    def flow(self, panels: int) -> tuple[panel.Flow, np.ndarray]:
        """The flow by panels, chord 1, and the exact speed at nodes off the trailing edge."""
        w = self.circle(2 * np.pi * np.arange(1, panels) / panels)
        z = np.concatenate([[self.power], self.place(w), [self.power]]) / self.chord
        away = w - self.centre
        ratio = ((w - 1) / (w + 1)) ** self.power
        along = 1j * away * ratio / ((w**2 - 1) * (1 - ratio) ** 2)
        speed = (self.velocity(w) * along / abs(along)).real
        direction = np.array([np.cos(self.angle), np.sin(self.angle)])
        return panel.solve(np.stack([z.real, z.imag], axis=-1), direction), speed


@pytest.mark.parametrize("edge", [20.0, 6.0, 0.0], ids=["wide", "narrow", "cusp"])
def test_lift_and_speed_of_an_exact_solution_converge_at_second_order(edge: float) -> None:
    exact = KarmanTrefftz(edge)
    lifts, speeds = [], []
    for panels in (50, 100, 200, 400):
        flow, speed = exact.flow(panels)
        lifts.append(abs(panel.lift(flow) * exact.chord / (-2 * exact.circulation) - 1))
        ahead = np.linalg.norm(flow.nodes[1:-1] - flow.nodes[0], axis=1) > 0.01
        speeds.append(np.sqrt(np.mean((flow.speed[1:-1] - speed)[ahead] ** 2)))
    assert lifts[2] < 1.5e-4
    assert speeds[2] < 2e-3
    np.testing.assert_allclose(orders(lifts), 2.0, atol=0.1)
    np.testing.assert_allclose(orders(speeds), 2.0, atol=0.2)


def test_speed_is_right_up_to_the_trailing_edge() -> None:
    flow, speed = KarmanTrefftz(12.0).flow(200)
    np.testing.assert_allclose(flow.speed[[1, 2, -3, -2]], speed[[0, 1, -2, -1]], rtol=0, atol=2e-3)
    # The nodes of the edge itself continue the speed before them, and agree with each other.
    assert flow.speed[0] == pytest.approx(-flow.speed[-1], abs=1e-12)
    assert abs(flow.speed[-1]) < speed[-1] < 1.1 * abs(flow.speed[-1])


@pytest.mark.parametrize("stretch", [1.05, 1.5, 5.0], ids=["near", "off", "far"])
def test_field_of_an_exact_solution_converges_at_second_order(stretch: float) -> None:
    exact = KarmanTrefftz(12.0)
    w = exact.circle(np.linspace(0.1, 6.2, 40), stretch)
    z = exact.place(w) / exact.chord
    errors = []
    for panels in (50, 100, 200):
        field = panel.velocity(exact.flow(panels)[0], np.stack([z.real, z.imag], axis=-1))
        errors.append(abs(field[:, 0] - 1j * field[:, 1] - exact.velocity(w)).max())
    assert errors[-1] < (1.5e-3 if stretch == 1.05 else 1e-4)
    # Near the airfoil its corners matter at first: the error falls even faster.
    assert (orders(errors) > 1.9).all()
    assert stretch == 1.05 or (orders(errors) < 2.2).all()


def normal_velocity_lift(nodes: np.ndarray, direction: np.ndarray) -> float:
    """Another method: no flow through the midpoints of linear vortex panels, Gauss quadrature."""
    step = np.diff(nodes, axis=0)
    length = np.linalg.norm(step, axis=1)
    normal = np.stack([step[:, 1], -step[:, 0]], axis=-1) / length[:, None]
    middle = 0.5 * (nodes[1:] + nodes[:-1])
    # An even number of points is symmetric about the midpoint, as the principal value requires.
    point, weight = np.polynomial.legendre.leggauss(64)
    share, weight = 0.5 * (1 + point), 0.5 * weight
    source = nodes[:-1, None] + share[:, None] * step[:, None]  # (panel, point, 2)
    matrix = np.zeros((len(nodes), len(nodes)))
    for row, (here, across) in enumerate(zip(middle, normal, strict=True)):
        x, y = np.moveaxis(here - source, -1, 0)
        through = (across[1] * x - across[0] * y) / (2 * np.pi * (x**2 + y**2)) * length[:, None]
        matrix[row, :-1] += through @ (weight * (1 - share))
        matrix[row, 1:] += through @ (weight * share)
    matrix[-1, [0, -1]] = 1.0
    strength = np.linalg.solve(matrix, np.append(-normal @ direction, 0.0))
    return float(-(strength[1:] + strength[:-1]) @ length)


@pytest.mark.parametrize(
    "nodes",
    [four_digit(0.0, 0.0, 12.0, panels=60), five_digit(3.0, 3.0, 15.0, reflex=True, panels=60)],
    ids=["0012", "33115"],
)
def test_lift_agrees_with_another_method(nodes: np.ndarray) -> None:
    lift = panel.lift(panel.solve(nodes, stream(4.0)))
    assert normal_velocity_lift(nodes, stream(4.0)) == pytest.approx(lift, abs=2e-3)


def test_lift_of_naca_0012_at_four_degrees_is_the_known_value() -> None:
    lifts = [
        panel.lift(panel.solve(four_digit(0.0, 0.0, 12.0, panels=n), stream(4.0)))
        for n in (100, 200, 400)
    ]
    assert lifts[1] == pytest.approx(0.4826, abs=1e-4)
    change = np.diff(lifts)
    assert change[0] / change[1] == pytest.approx(4.0, abs=0.2)


def test_lift_rises_by_a_little_more_than_two_pi() -> None:
    # 2 pi by thin-airfoil theory; thickness adds to it.
    slopes = []
    for thickness in (1.0, 12.0):
        nodes = four_digit(0.0, 0.0, thickness, panels=400)
        slopes.append(panel.lift(panel.solve(nodes, stream(1.0))) / np.deg2rad(1.0))
    assert slopes[0] == pytest.approx(2 * np.pi * 1.0077, rel=2e-3)
    assert slopes[1] == pytest.approx(2 * np.pi * (1 + 0.8 * 0.12), rel=0.01)


def test_reflexed_line_has_less_moment_than_a_plain_one() -> None:
    moments = []
    for reflex in (False, True):
        flow = panel.solve(five_digit(4.0, 4.0, 6.0, reflex=reflex), stream(2.0))
        wall = panel.surface(flow)
        force = (-2 * panel.pressure(flow, wall.velocity) * wall.length)[:, None] * wall.normal
        x, y = (wall.position - [0.25, 0.0]).T
        moments.append((y * force[:, 0] - x * force[:, 1]).sum())  # positive: nose up
    assert moments[0] < -0.03
    assert abs(moments[1]) < 0.005


def test_symmetric_airfoil_in_line_with_the_stream_has_no_lift() -> None:
    flow = panel.solve(four_digit(0.0, 0.0, 15.0), stream(0.0))
    assert abs(panel.lift(flow)) < 1e-10
    np.testing.assert_allclose(flow.speed, -flow.speed[::-1], rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("rotation", "size", "shift", "speed", "order"),
    [
        (np.diag([1.0, -1.0]), 1.0, [0.0, 0.0], 1.0, -1),
        (np.stack([stream(33.0), stream(123.0)]), 3.0, [5.0, -7.0], 20.0, 1),
    ],
    ids=["mirrored", "rotated, moved and scaled"],
)
def test_flow_does_not_depend_on_the_frame_of_reference(
    rotation: np.ndarray, size: float, shift: list[float], speed: float, order: int
) -> None:
    flow = cambered()
    nodes = (size * flow.nodes @ rotation + shift)[::order]
    other = panel.solve(nodes, speed * flow.stream @ rotation)
    expected = order * speed * flow.speed[::order]
    np.testing.assert_allclose(other.speed, expected, rtol=0, atol=5e-10 * speed)
    points = np.array([[0.3, 0.4], [-0.5, 0.1], [1.4, -0.2]])
    field = panel.velocity(other, size * points @ rotation + shift)
    np.testing.assert_allclose(field, speed * panel.velocity(flow, points) @ rotation, rtol=1e-9)


def test_flow_is_linear_in_the_stream() -> None:
    along, across = (cambered(degrees=angle).speed for angle in (0.0, 90.0))
    x, y = stream(6.0)
    np.testing.assert_allclose(cambered().speed, x * along + y * across, rtol=0, atol=1e-9)


def test_pressure_gives_the_lift_of_the_circulation_and_no_drag() -> None:
    lifts, drags = [], []
    for panels in (100, 200, 400):
        flow = panel.solve(four_digit(0.0, 0.0, 12.0, panels=panels), stream(8.0))
        drag, lift = pressure_force(flow)
        lifts.append(abs(lift - panel.lift(flow)))
        drags.append(abs(drag))
    assert lifts[1] < 1.5e-4
    assert drags[1] < 3e-4
    np.testing.assert_allclose(orders(lifts), 2.0, atol=0.3)
    assert (orders(drags) > 1.8).all()


def test_nothing_flows_through_the_surface() -> None:
    through, slips = [], []
    for panels in (100, 200, 400):
        flow = cambered(panels)
        wall = panel.surface(flow)
        field = panel.velocity(flow, wall.position + 1e-9 * wall.normal)
        normal = (field * wall.normal).sum(axis=1)
        through.append(np.sqrt(np.average(normal**2, weights=wall.length)))
        slip = np.linalg.norm(field - wall.velocity, axis=1)
        slips.append(np.sqrt(np.average(slip**2, weights=wall.length)))
    assert through[1] < 4e-4
    np.testing.assert_allclose(orders(through), 2.0, atol=0.1)
    # The field itself is as close to the speed of the sheet as the polygon is to its curve.
    np.testing.assert_allclose(orders(slips), 1.0, atol=0.1)


def test_fluid_inside_comes_to_rest_at_second_order() -> None:
    x = np.linspace(0.05, 0.9, 20)
    inside = np.stack([x, 0.02 * (1 - x)], axis=-1)
    rest = []
    for panels in (100, 200, 400):
        flow = cambered(panels)
        assert (panel.signed_distance(flow.nodes, inside) < 0).all()
        rest.append(abs(panel.velocity(flow, inside)).max())
    assert rest[1] < 4e-4
    np.testing.assert_allclose(orders(rest), 2.0, atol=0.1)


def test_far_away_the_flow_is_that_of_a_vortex() -> None:
    flow = cambered()
    angle = np.linspace(0, 2 * np.pi, 12)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    turned = circle[:, ::-1] * [-1.0, 1.0]
    left = []
    for radius in (20.0, 40.0, 80.0):
        excess = panel.velocity(flow, [0.25, 0.0] + radius * circle) - flow.stream
        vortex = -0.5 * panel.lift(flow) / (2 * np.pi * radius) * turned
        left.append(np.linalg.norm(excess - vortex, axis=1).max())
        assert left[-1] < 0.3 / radius * np.linalg.norm(vortex, axis=1).max()
    np.testing.assert_allclose(orders(left), 2.0, atol=0.05)


def test_field_has_neither_sources_nor_vorticity() -> None:
    flow = cambered()
    points, _ = panel.scatter(flow.nodes, 50, near=0.7, closest=0.02, rng=np.random.default_rng(0))
    step = 1e-5
    gradient = np.stack(
        [
            (panel.velocity(flow, points + d) - panel.velocity(flow, points - d)) / (2 * step)
            for d in (np.array([step, 0.0]), np.array([0.0, step]))
        ]
    )  # (derivative, point, component)
    size = abs(gradient).max()
    assert size > 1.0
    assert abs(gradient[0, :, 0] + gradient[1, :, 1]).max() < 1e-7 * size
    assert abs(gradient[0, :, 1] - gradient[1, :, 0]).max() < 1e-7 * size


def test_surface_lies_on_the_polygon() -> None:
    flow = cambered(60)
    wall = panel.surface(flow)
    np.testing.assert_allclose(panel.signed_distance(flow.nodes, wall.position), 0.0, atol=1e-12)
    out = panel.signed_distance(flow.nodes, wall.position + 1e-5 * wall.normal)
    np.testing.assert_allclose(out, 1e-5, rtol=1e-6)
    np.testing.assert_allclose((wall.velocity * wall.normal).sum(axis=1), 0.0, atol=1e-15)
    np.testing.assert_allclose(np.linalg.norm(wall.velocity, axis=1), abs(wall.speed))
    # Both sides are followed from the nose to the trailing edge.
    assert (wall.velocity[wall.position[:, 0] > 0.1, 0] > 0).all()


def test_distance_agrees_with_a_brute_search_and_a_winding_number() -> None:
    rng = np.random.default_rng(1)
    angle = np.sort(rng.uniform(0, 2 * np.pi, 40))
    star = (1 + 0.6 * rng.random(40))[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    star = np.concatenate([star, star[:1]])
    points = rng.uniform(-2, 2, (200, 2))
    share = np.linspace(0, 1, 1001)[:, None, None]
    dense = ((1 - share) * star[:-1] + share * star[1:]).reshape(-1, 2)
    far = np.array([np.linalg.norm(dense - p, axis=1).min() for p in points])
    seen = star @ [1, 1j] - (points @ [1, 1j])[:, None]
    winding = np.angle(seen[:, 1:] / seen[:, :-1]).sum(axis=1) / (2 * np.pi)
    assert 50 < (winding > 0.5).sum() < 150
    expected = np.where(winding > 0.5, -far, far)
    np.testing.assert_allclose(panel.signed_distance(star, points), expected, rtol=0, atol=5e-5)


def test_work_in_parts_equals_work_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = cambered(40)
    points = np.random.default_rng(2).uniform(1.5, 2.5, (33, 2))
    field, distance = panel.velocity(flow, points), panel.signed_distance(flow.nodes, points)
    monkeypatch.setattr(panel, "_PAIRS", 400)
    np.testing.assert_allclose(panel.velocity(flow, points), field, rtol=1e-14)
    np.testing.assert_array_equal(panel.signed_distance(flow.nodes, points), distance)
    assert panel.velocity(flow, points[:0]).shape == (0, 2)


@pytest.mark.full
@pytest.mark.parametrize(
    ("distance", "error"), [(1e-4, 1.2e-2), (1e-3, 2.2e-3), (1e-2, 3e-4), (0.1, 4e-5)], ids=str
)
def test_error_of_200_panels_near_the_surface_is_as_documented(
    distance: float, error: float
) -> None:
    fine, coarse = cambered(2000, 8.0), cambered(200, 8.0)
    wall = panel.surface(fine)
    points = wall.position[::3] + distance * wall.normal[::3]
    off = panel.velocity(coarse, points) - panel.velocity(fine, points)
    assert np.sqrt((off**2).sum(axis=1).mean()) < error


@pytest.mark.parametrize("panels", [100, 200, 400])
def test_drag_of_naca_0012_is_close_to_known_values(panels: int) -> None:
    flow = panel.solve(four_digit(0.0, 0.0, 12.0, panels=panels), stream(0.0))
    layers = panel.friction(flow, 1 / 6e6)
    # Navier-Stokes solvers, turbulent from the nose, give 0.0081 to 0.0085.
    assert layers.drag == pytest.approx(0.0081, rel=0.03)
    np.testing.assert_array_equal(layers.separation, 1.0)
    # Measured with natural transition: about 0.006.
    free = panel.friction(flow, 1 / 6e6, trip=np.inf)
    assert free.drag == pytest.approx(0.0060, rel=0.06)
    assert (free.transition > 0.2).all()
    # Most of the drag of a thin body is friction.
    shear = 2 * (layers.shear * panel.surface(flow).length[:, None]).sum(axis=0)
    assert 0.75 < shear[0] / layers.drag < 0.95
    assert shear[1] == pytest.approx(0.0, abs=1e-6)


def test_speed_is_held_constant_only_in_the_last_hundredth() -> None:
    # This layer separates just ahead of it, at the same place for any number of panels.
    places = [panel.friction(cambered(n, 6.0), 2e-7).separation for n in (200, 400)]
    np.testing.assert_allclose(places, [[0.989, 1.0], [0.989, 1.0]], atol=1e-3)


def test_drag_rises_with_incidence_and_falls_with_the_reynolds_number() -> None:
    drags = [panel.friction(cambered(degrees=a), 1 / 3e6).drag for a in (2.0, 6.0, 10.0)]
    assert drags[0] < drags[1] < drags[2] < 0.03
    assert panel.friction(cambered(degrees=2.0), 1 / 6e6).drag < 0.93 * drags[0]


@pytest.mark.parametrize(("order", "speed"), [(-1, 1.0), (1, 50.0)], ids=["mirrored", "faster"])
def test_layers_depend_only_on_the_reynolds_number(order: int, speed: float) -> None:
    flow, axes = cambered(), np.array([1.0, order])
    other = panel.solve(flow.nodes[::order] * axes, speed * flow.stream * axes)
    layers, changed = panel.friction(flow, 2e-7), panel.friction(other, 2e-7 * speed)
    assert changed.drag == pytest.approx(layers.drag, rel=1e-9)
    expected = speed**2 * layers.shear[::order] * axes
    np.testing.assert_allclose(changed.shear, expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_array_equal(changed.transition, layers.transition[::order])


def test_wall_shear_points_along_the_flow() -> None:
    flow = cambered()
    wall, layers = panel.surface(flow), panel.friction(flow, 2e-7)
    pull = (layers.shear * wall.velocity).sum(axis=1)
    attached = np.linalg.norm(layers.shear, axis=1) > 0
    assert attached.mean() > 0.9
    assert (pull[attached] > 0).all()
    np.testing.assert_allclose((layers.shear * wall.normal).sum(axis=1), 0.0, atol=1e-15)


def test_stagnation_moves_to_the_lower_side_and_transition_forward_with_incidence() -> None:
    forward = [panel.friction(cambered(degrees=a), 2e-7, trip=np.inf) for a in (0.0, 8.0)]
    assert forward[0].transition[0] > forward[1].transition[0]
    assert forward[0].transition[1] < forward[1].transition[1]


@pytest.mark.parametrize(
    "nodes",
    [np.zeros((7, 3)), np.zeros(14), four_digit(0.0, 0.0, 12.0, panels=4), np.full((9, 2), np.nan)],
    ids=["space", "line", "few", "missing"],
)
def test_invalid_nodes_are_refused(nodes: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"finite nodes, shape \(panels \+ 1, 2\) .* got shape"):
        panel.solve(nodes, stream(0.0))


def test_polygon_that_is_open_clockwise_or_has_empty_panels_is_refused() -> None:
    nodes = four_digit(0.0, 0.0, 12.0, panels=20)
    twice = np.insert(nodes, 5, nodes[5], axis=0)
    for wrong in (nodes[:-1], nodes[::-1], twice):
        with pytest.raises(ValueError, match="expected a closed, counterclockwise polygon"):
            panel.solve(wrong, stream(0.0))


@pytest.mark.parametrize("far", [[0.0, 0.0], [np.nan, 1.0], [np.inf, 0.0], [1.0]], ids=str)
def test_invalid_stream_is_refused(far: list[float]) -> None:
    with pytest.raises(ValueError, match=r"a stream of two finite numbers, .* got \["):
        panel.solve(four_digit(0.0, 0.0, 12.0), np.array(far))


@pytest.mark.parametrize("gap", [0.0, 1e-16], ids=["equal", "nearly"])
def test_coinciding_nodes_are_reported(gap: float) -> None:
    # Both sides in one place: up to rounding, the equations of the two nodes are the same.
    x = np.array([1.0, 0.7, 0.3, 0.0, 0.3, 0.7, 1.0])
    y = np.array([0.0, gap, 0.1, 0.0, 0.0, 0.0, 0.0])
    with pytest.raises(NotConvergedError, match=r"equations with one solution.*separate nodes"):
        panel.solve(np.stack([x, y], axis=-1), stream(0.0))


@pytest.mark.parametrize("where", ["node", "nowhere"])
def test_points_without_velocity_are_refused(where: str) -> None:
    flow = cambered(40)
    point = flow.nodes[7] if where == "node" else np.array([np.nan, 0.0])
    with pytest.raises(ValueError, match="expected finite points away from the nodes"):
        panel.velocity(flow, np.stack([[2.0, 0.0], point]))


@pytest.mark.parametrize(("viscosity", "trip"), [(0.0, 1.0), (np.nan, 1.0), (1e-5, 0.0)], ids=str)
def test_viscosity_and_trip_out_of_range_are_refused(viscosity: float, trip: float) -> None:
    with pytest.raises(ValueError, match=f"viscosity and trip > 0, got {viscosity} and {trip}"):
        panel.friction(cambered(40), viscosity, trip=trip)


@pytest.mark.parametrize(
    ("change", "count"),
    [
        (lambda speed: abs(speed), 0),
        (lambda speed: np.where(np.isin(np.arange(41), [8, 9, 10]), -speed, speed), 3),
        (lambda speed: np.where(np.isin(np.arange(41), [20, 21]), 0.0, speed), 2),
    ],
    ids=["none", "three", "at a midpoint"],
)
def test_flow_without_exactly_one_stagnation_point_is_reported(change: Any, count: int) -> None:
    flow = cambered(40)
    with pytest.raises(NotConvergedError, match=rf"one stagnation point .* got {count}: use more"):
        panel.friction(flow._replace(speed=change(flow.speed)), 1e-6)
