"""Sheets at rest under load against exact solutions, symmetries and another finite element."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import skfem
from scipy.interpolate import CloughTocher2DInterpolator
from scipy.spatial import cKDTree

from funcattn.pde import elasticity
from funcattn.pde.elasticity_material import cauchy_stress, von_mises
from funcattn.pde.elasticity_mesh import void_mesh, void_radius
from funcattn.pde.errors import NotConvergedError

C1, C2 = 1.863e5, 9.79e3
YOUNG = 6 * (C1 + C2)
VOID = partial(void_radius, np.random.default_rng(0).standard_normal(10))


def rotation(degrees: float) -> np.ndarray:
    cosine, sine = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    return np.array([[cosine, -sine], [sine, cosine]])


def rectangle(columns: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Nine-node quadrilaterals of the unit square, unevenly spaced."""
    x, y = (np.linspace(0, 1, 2 * n + 1) ** 1.3 for n in (columns, rows))
    nodes = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)
    number = np.arange(x.size * y.size).reshape(x.size, y.size)
    elements = [
        number[2 * i : 2 * i + 3, 2 * j : 2 * j + 3].ravel()
        for i in range(columns)
        for j in range(rows)
    ]
    return nodes.reshape(-1, 2), np.array(elements)


def on_edge(nodes: np.ndarray) -> np.ndarray:
    edge: np.ndarray = ((nodes == 0) | (nodes == 1)).any(axis=1)
    return edge


def pull(nodes: np.ndarray, total: float) -> np.ndarray:
    """A uniform load on the top edge: the quadratic of each node, integrated by Gauss points."""
    top = np.flatnonzero(nodes[:, 1] == nodes[:, 1].max())
    top = top[np.argsort(nodes[top, 0])]
    s, weight = np.polynomial.legendre.leggauss(3)
    value = np.stack([s * (s - 1) / 2, 1 - s**2, s * (s + 1) / 2])
    slope = np.stack([s - 0.5, -2 * s, s + 0.5])
    load = np.zeros(nodes.shape)
    for first in range(0, len(top) - 2, 2):
        three = top[first : first + 3]
        load[three, 1] += total * value @ (weight * (nodes[three, 0] @ slope))
    return load


def sheet_and_load(
    total: float,
) -> tuple[np.ndarray, elasticity.Elements, dict[str, np.ndarray]]:
    """The benchmark's sheet: its nodes, elements, and the arguments of `equilibrium`."""
    nodes, numbers = void_mesh(VOID)
    clamped = np.repeat(nodes[:, 1:] == 0.0, 2, axis=1)
    elements = elasticity.evaluate(nodes, numbers)
    return nodes, elements, {"load": pull(nodes, total), "fixed": clamped}


def cauchy(elements: elasticity.Elements, displacement: np.ndarray) -> np.ndarray:
    gradient = elasticity.displacement_gradient(elements, displacement)
    return cauchy_stress(gradient)


def kirsch(points: np.ndarray, radius: float = 0.25, far: float = 1.0) -> tuple[np.ndarray, ...]:
    """Linear displacement and stress xx, yy, xy around a free hole in a sheet pulled along y."""
    shear, kappa = YOUNG / 3, (3 - 0.5) / (1 + 0.5)
    # Coordinates along (axis) and across the pull: axis = y, across = -x.
    along, across = points[..., 1] - 0.5, 0.5 - points[..., 0]
    r, t = np.hypot(along, across) / radius, np.arctan2(across, along)
    scale = far * radius / (8 * shear)
    move_along = scale * (
        r * (kappa + 1) * np.cos(t)
        + 2 / r * ((1 + kappa) * np.cos(t) + np.cos(3 * t))
        - 2 / r**3 * np.cos(3 * t)
    )
    move_across = scale * (
        r * (kappa - 3) * np.sin(t)
        + 2 / r * ((1 - kappa) * np.sin(t) + np.sin(3 * t))
        - 2 / r**3 * np.sin(3 * t)
    )
    c2, c4, s2, s4 = np.cos(2 * t), np.cos(4 * t), np.sin(2 * t), np.sin(4 * t)
    stress_along = far * (1 - (1.5 * c2 + c4) / r**2 + 1.5 * c4 / r**4)
    stress_across = far * (-(0.5 * c2 - c4) / r**2 - 1.5 * c4 / r**4)
    shear_stress = far * (-(0.5 * s2 + s4) / r**2 + 1.5 * s4 / r**4)
    return (
        np.stack([-move_across, move_along], axis=-1),
        np.stack([stress_across, stress_along, -shear_stress], axis=-1),
    )


def linear_elasticity_of_another_library(nodes: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Displacement at the nodes under a unit pull, plane stress, Poisson ratio 1/2."""
    vertices, quads = np.unique(numbers[:, [0, 6, 8, 2]], return_inverse=True)
    straight = skfem.MeshQuad(nodes[vertices].T.copy(), quads.reshape(-1, 4).T.copy())
    curved = skfem.MeshQuad2.from_mesh(straight)
    _, nearest = cKDTree(nodes).query(curved.doflocs.T)
    assert len(set(nearest.tolist())) == len(nodes)
    curved = skfem.MeshQuad2(nodes[nearest].T.copy(), curved.t)
    element = skfem.ElementVector(skfem.ElementQuad2())
    basis = skfem.Basis(curved, element, intorder=5)

    @skfem.BilinearForm
    def stiffness(u, v, _):  # type: ignore[no-untyped-def]
        e, d = (0.5 * (w.grad + w.grad.transpose((1, 0, 2, 3))) for w in (u, v))
        trace = (e[0, 0] + e[1, 1]) * (d[0, 0] + d[1, 1])
        # Plane stress with Poisson ratio 1/2: lambda = 2 mu = 2 E / 3.
        return YOUNG / 3 * 2 * ((e * d).sum((0, 1)) + trace)

    @skfem.LinearForm
    def traction(v, _):  # type: ignore[no-untyped-def]
        return v[1]

    top = curved.facets_satisfying(lambda x: x[1] > 1 - 1e-9)
    bottom = basis.get_dofs(lambda x: x[1] < 1e-9)
    right = traction.assemble(skfem.FacetBasis(curved, element, facets=top, intorder=5))
    solution = skfem.solve(*skfem.condense(stiffness.assemble(basis), right, D=bottom))
    displacement = np.zeros(nodes.shape)
    _, node = cKDTree(nodes).query(basis.doflocs.T)
    displacement[node, np.arange(basis.N) % 2] = solution
    return displacement


def test_derivatives_of_biquadratic_fields_are_exact(agree: Any) -> None:
    elements = elasticity.evaluate(*rectangle(3, 2))
    nodes, _ = rectangle(3, 2)
    # Rows that are unevenly spaced inside an element still represent straight lines exactly.
    u = nodes @ np.array([[0.3, -0.2], [0.1, 0.7]]).T
    gradient = elasticity.displacement_gradient(elements, u)
    agree(gradient, np.broadcast_to([[0.3, -0.2], [0.1, 0.7]], (6, 9, 2, 2)), 1e-13)
    even = np.stack(np.meshgrid([0, 0.5, 1], [0, 1, 2], indexing="ij"), -1).reshape(9, 2)
    one = elasticity.evaluate(even, np.arange(9)[None])
    x, y = even.T
    gradient = elasticity.displacement_gradient(one, np.stack([x**2 * y**2, x * y**2], -1))
    x, y = one.points[0].T
    expected = [[2 * x * y**2, 2 * x**2 * y], [y**2, 2 * x * y]]
    agree(gradient[0], np.moveaxis(expected, -1, 0), 1e-14)


def test_weights_integrate_fifth_order_polynomials() -> None:
    even = np.stack(np.meshgrid([0, 0.5, 1], [0, 1, 2], indexing="ij"), -1).reshape(9, 2)
    one = elasticity.evaluate(even, np.arange(9)[None])
    x, y = one.points[0].T
    assert one.weights[0] @ (x**5 * y**4) == pytest.approx(2**5 / 5 / 6, rel=1e-13)


def test_force_is_the_slope_of_the_energy_and_stiffness_that_of_the_force() -> None:
    nodes, elements, _ = sheet_and_load(0.0)
    rng = np.random.default_rng(3)
    # Bend and stretch by a tenth, and perturb every node as well.
    u = 0.1 * np.sin(2 * nodes[:, ::-1]) + 1e-3 * rng.standard_normal(nodes.shape)
    direction = rng.standard_normal(nodes.shape)
    _, force, stiffness = elasticity.assemble(elements, u)
    step = 1e-6
    ahead = elasticity.assemble(elements, u + step * direction)
    behind = elasticity.assemble(elements, u - step * direction)
    slope = (ahead[0] - behind[0]) / (2 * step)
    assert (force * direction).sum() == pytest.approx(slope, rel=1e-6)
    change = (ahead[1] - behind[1]).ravel() / (2 * step)
    product = stiffness @ direction.ravel()
    assert np.linalg.norm(product - change) < 1e-7 * np.linalg.norm(change)
    assert abs(stiffness - stiffness.T).max() < 1e-14 * abs(stiffness).max()


def test_moving_and_rotating_the_whole_body_takes_no_energy() -> None:
    nodes, elements, _ = sheet_and_load(0.0)
    u = nodes @ (rotation(50.0) - np.eye(2)).T + [0.3, -0.2]
    energy, force, _ = elasticity.assemble(elements, u)
    # Compared with the energy and force of a strain of order one.
    assert abs(energy) < 1e-12 * YOUNG
    assert abs(force).max() < 1e-12 * YOUNG


@pytest.mark.parametrize("stretch", [0.5, 1.5, 3.0])
def test_homogeneous_stretch_is_exact_on_a_curved_mesh(agree: Any, stretch: float) -> None:
    nodes, elements, load = sheet_and_load(0.0)
    boundary = on_edge(nodes) | (np.arange(len(nodes)) % 7 == 0)
    exact = nodes * [stretch**-0.5 - 1, stretch - 1]
    load["fixed"] = np.repeat(boundary[:, None], 2, axis=1)
    rest = elasticity.equilibrium(elements, prescribed=exact, **load)
    agree(rest.displacement, exact, 1e-13)
    axial = 2 * (stretch**2 - 1 / stretch) * (C1 + C2 / stretch)
    expected = np.broadcast_to([0.0, axial, 0.0], (108, 9, 3))
    agree(cauchy(elements, rest.displacement), expected, 1e-12)


def test_dead_load_stretches_a_plain_strip_by_half(agree: Any) -> None:
    nodes, numbers = rectangle(3, 4)
    elements = elasticity.evaluate(nodes, numbers)
    fixed = nodes == 0.0  # rollers at the bottom and at the left
    stretch = 1.5
    nominal = 2 * (stretch - stretch**-2) * (C1 + C2 / stretch)
    rest = elasticity.equilibrium(elements, load=pull(nodes, nominal), fixed=fixed)
    exact = nodes * [stretch**-0.5 - 1, stretch - 1]
    agree(rest.displacement, exact, 1e-11)


def test_circular_hole_in_an_infinite_sheet_converges_at_third_and_second_order() -> None:
    def hole(angle: np.ndarray) -> np.ndarray:
        return np.full(angle.shape, 0.25)

    errors = []
    for n in (1, 2, 4):
        nodes, numbers = void_mesh(hole, around=36 * n, radial=3 * n)
        elements = elasticity.evaluate(nodes, numbers)
        exact, _ = kirsch(nodes)
        rest = elasticity.equilibrium(
            elements,
            load=np.zeros(nodes.shape),
            fixed=np.repeat(on_edge(nodes)[:, None], 2, axis=1),
            prescribed=exact,
        )
        value = von_mises(cauchy(elements, rest.displacement))
        expected = von_mises(kirsch(elements.points)[1])
        square = elements.weights * (value - expected) ** 2
        errors.append(
            [
                abs(rest.displacement - exact).max() / abs(exact).max(),
                np.sqrt(square.sum() / (elements.weights * expected**2).sum()),
            ]
        )
    assert errors[0][0] < 4e-3
    assert errors[0][1] < 2e-2
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    np.testing.assert_allclose(orders[:, 0], [2.6, 3.0], atol=0.1)
    np.testing.assert_allclose(orders[:, 1], [1.8, 2.0], atol=0.1)


@pytest.mark.parametrize("pulled", [6e4, -1e4], ids=["stretched", "pushed"])
def test_newton_converges_quadratically(pulled: float) -> None:
    _, elements, load = sheet_and_load(pulled)
    residuals = elasticity.equilibrium(elements, tolerance=1e-12, **load).residuals
    assert residuals[0] == 1.0
    small = residuals[(residuals < 0.1) & (residuals > 1e-7)]
    assert len(small) >= 2
    after = residuals[1:][(residuals[:-1] < 0.1) & (residuals[:-1] > 1e-7)]
    # An approximate tangent would gain only a fixed factor per step.
    assert (after < 10 * small**2 + 1e-12).all(), residuals


def test_reactions_balance_the_load_and_its_moment(agree: Any) -> None:
    nodes, elements, load = sheet_and_load(3e4)
    rest = elasticity.equilibrium(elements, **load)
    reaction = np.where(load["fixed"], rest.force - load["load"], 0.0)
    agree(rest.force, load["load"] + reaction, 1e-9)
    agree(reaction.sum(axis=0), np.array([0.0, -3e4]), 1e-9)
    x, y = (nodes + rest.displacement).T
    moment = x * rest.force[:, 1] - y * rest.force[:, 0]
    assert abs(moment.sum()) < 1e-9 * 3e4
    assert abs(rest.displacement).max() > 0.05


def test_rotating_the_problem_rotates_the_solution(agree: Any) -> None:
    nodes, elements, load = sheet_and_load(3e4)
    rest = elasticity.equilibrium(elements, **load)
    turn = rotation(37.0)
    _, numbers = void_mesh(VOID)
    turned = elasticity.evaluate(nodes @ turn.T, numbers)
    load["load"] = load["load"] @ turn.T
    again = elasticity.equilibrium(turned, **load)
    agree(again.displacement, rest.displacement @ turn.T, 1e-10)


def test_rotating_the_clamp_and_the_load_rotates_the_deformed_sheet(agree: Any) -> None:
    nodes, elements, load = sheet_and_load(1e4)
    still = elasticity.equilibrium(elements, **load)
    turn = rotation(10.0)
    load["load"] = load["load"] @ turn.T
    turned = elasticity.equilibrium(elements, prescribed=nodes @ turn.T - nodes, **load)
    agree(nodes + turned.displacement, (nodes + still.displacement) @ turn.T, 1e-11)
    values = [von_mises(cauchy(elements, s.displacement)) for s in (still, turned)]
    agree(values[1], values[0], 1e-9)


def test_no_load_leaves_the_body_at_rest() -> None:
    _, elements, load = sheet_and_load(0.0)
    rest = elasticity.equilibrium(elements, **load)
    np.testing.assert_array_equal(rest.displacement, 0.0)
    np.testing.assert_array_equal(rest.residuals, 0.0)


def test_fully_prescribed_body_has_the_prescribed_displacement() -> None:
    nodes, elements, load = sheet_and_load(0.0)
    load["fixed"] = np.ones(nodes.shape, dtype=bool)
    rest = elasticity.equilibrium(elements, prescribed=0.1 * nodes, **load)
    np.testing.assert_array_equal(rest.displacement, 0.1 * nodes)


def test_small_loads_agree_with_linear_elasticity_of_another_library(agree: Any) -> None:
    nodes, elements, load = sheet_and_load(1e-3)
    rest = elasticity.equilibrium(elements, **load)
    _, numbers = void_mesh(VOID)
    expected = 1e-3 * linear_elasticity_of_another_library(nodes, numbers)
    # The strain, and with it the nonlinear part, is about 1e-8.
    agree(rest.displacement, expected, 1e-7)


def test_solve_returns_the_arrays_of_the_equilibrium(agree: Any) -> None:
    nodes, elements, load = sheet_and_load(100.0)
    rest = elasticity.equilibrium(elements, **load)
    sheet = elasticity.solve(VOID)
    stress = cauchy(elements, rest.displacement).reshape(-1, 3)
    agree(sheet["cauchy"], stress, 1e-11)
    np.testing.assert_array_equal(sheet["stress"], von_mises(sheet["cauchy"]))
    np.testing.assert_array_equal(sheet["points"], elements.points.reshape(-1, 2))
    np.testing.assert_array_equal(sheet["weights"], elements.weights.ravel())
    # Another smooth interpolation between the nodes.
    smooth = CloughTocher2DInterpolator(nodes, rest.displacement)(sheet["points"])
    agree(sheet["displacement"], smooth, 1e-2)
    assert sheet["iterations"] == len(rest.residuals) - 1
    assert sheet["residual"] < 1e-10


NODES, NUMBERS = rectangle(2, 1)
FIT = "finite nodes .* elements of nine of their num"


@pytest.mark.parametrize(
    ("nodes", "numbers", "message"),
    [
        (NODES, NUMBERS[:, :8], FIT),
        (NODES[:14], NUMBERS, FIT),
        (NODES, NUMBERS + 1, FIT),
        (NODES, NUMBERS - 1, FIT),
        (NODES[:0], NUMBERS, FIT),
        (np.where(NODES == 1.0, np.nan, NODES), NUMBERS, "expected finite nodes"),
        (NODES, NUMBERS[:0], r"got shapes \(15, 2\) and \(0, 9\)"),
        (NODES[:, :1], NUMBERS, r"got shapes \(15, 1\) and \(2, 9\)"),
        (NODES[:, ::-1], NUMBERS, "got 2 of 2 folded"),
        (NODES + 2.0 * np.eye(15)[7][:, None], NUMBERS, "positive area, got 2 of 2 folded: number"),
    ],
    ids=[
        *("eight nodes", "a node missing", "beyond the last", "before the first", "no nodes"),
        *("missing positions", "no elements", "one axis", "clockwise", "folded"),
    ],
)
def test_elements_that_do_not_fit_their_nodes_are_refused(
    nodes: np.ndarray, numbers: np.ndarray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        elasticity.evaluate(nodes, numbers)


@pytest.mark.parametrize(("tolerance", "steps"), [(0.0, 9), (1.0, 9), (np.nan, 9), (1e-9, 0)])
def test_tolerance_and_steps_out_of_range_are_refused(tolerance: float, steps: int) -> None:
    _, elements, load = sheet_and_load(1.0)
    with pytest.raises(ValueError, match=f"expected 0 < tolerance < 1 .* got {tolerance} and"):
        elasticity.equilibrium(elements, tolerance=tolerance, max_iterations=steps, **load)


@pytest.mark.parametrize("name", ["load", "fixed", "prescribed"])
def test_boundary_data_that_do_not_fit_the_nodes_are_refused(name: str) -> None:
    _, elements, load = sheet_and_load(1.0)
    load["prescribed"] = np.zeros((504, 2))
    load[name] = load[name][1:]
    with pytest.raises(ValueError, match=r"of shape \(504, 2\), got .*\(503, 2\).*every node"):
        elasticity.equilibrium(elements, **load)


def test_missing_values_are_refused_where_they_are_read() -> None:
    nodes, elements, load = sheet_and_load(1.0)
    prescribed = np.where(load["fixed"], 0.0, np.nan)
    elasticity.equilibrium(elements, prescribed=prescribed, **load)
    with pytest.raises(ValueError, match="expected finite load and prescribed displacement"):
        elasticity.equilibrium(elements, prescribed=np.full(nodes.shape, np.nan), **load)
    load["load"][3, 1] = np.inf
    with pytest.raises(ValueError, match="expected finite load and prescribed displacement"):
        elasticity.equilibrium(elements, **load)


def test_too_few_steps_raise_with_the_residual() -> None:
    _, elements, load = sheet_and_load(100.0)
    with pytest.raises(
        NotConvergedError, match=r"1\.0e-10 within 2 steps, got \d\.\de-09: lower the load"
    ):
        elasticity.equilibrium(elements, max_iterations=2, **load)


def test_body_without_support_raises() -> None:
    nodes, elements, load = sheet_and_load(100.0)
    load["fixed"] = np.zeros(nodes.shape, dtype=bool)
    with pytest.raises(NotConvergedError, match=r"det F > 0|within 20 steps"):
        elasticity.equilibrium(elements, **load)


def test_node_without_an_element_raises() -> None:
    nodes, numbers = rectangle(1, 1)
    elements = elasticity.evaluate(np.append([[0.0, 0.0]], nodes, axis=0), numbers + 1)
    fixed = np.zeros((10, 2), dtype=bool)
    fixed[1:4] = True
    with pytest.raises(
        NotConvergedError, match=r"can be inverted, got '.*singular.*' after 0 steps"
    ):
        elasticity.equilibrium(elements, load=np.zeros((10, 2)), fixed=fixed)


def test_internal_forces_balance() -> None:
    nodes, elements, _ = sheet_and_load(0.0)
    u = 0.1 * np.sin(2 * nodes[:, ::-1])
    _, force, _ = elasticity.assemble(elements, u)
    x, y = (nodes + u).T
    size = abs(force).sum()
    assert abs(force.sum(axis=0)).max() < 1e-13 * size
    # The moment about the deformed body's origin vanishes because Cauchy stress is symmetric.
    assert abs((x * force[:, 1] - y * force[:, 0]).sum()) < 1e-13 * size


def test_pull_and_push_are_opposite_to_first_order(agree: Any) -> None:
    up, down = (elasticity.solve(VOID, traction=t)["cauchy"] for t in (1e-3, -1e-3))
    agree(up, -down, 1e-7)
