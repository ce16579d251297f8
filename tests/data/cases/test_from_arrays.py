import numpy as np
import pytest

from funcattn.data.cases import from_arrays, grid_weights


@pytest.mark.parametrize(
    ("inputs", "outputs", "grid", "widths"),
    [
        ((3, 8), (3, 8), (8,), ((8,), (8,))),
        ((3, 8), (3, 8, 2), (8,), ((8,), (8, 2))),
        ((3, 8, 6), (3, 8, 6), (8, 6), ((48,), (48,))),
        ((3, 8, 6), (3, 8, 6, 2), (8, 6), ((48,), (48, 2))),
        ((3, 8, 6, 1), (3, 8, 6, 2), (8, 6), ((48, 1), (48, 2))),
        ((3, 4, 5, 6), (3, 4, 5, 6, 2), (4, 5, 6), ((120,), (120, 2))),
        ((3, 4, 5, 6, 1), (3, 4, 5, 6, 2), (4, 5, 6), ((120, 1), (120, 2))),
    ],
    ids=str,
)
def test_the_grid_is_found_from_the_shapes(
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    grid: tuple[int, ...],
    widths: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    rng = np.random.default_rng(0)
    given, wanted = rng.normal(size=inputs), rng.normal(size=outputs)
    cases = from_arrays(given, wanted)
    assert (cases.inputs, cases.outputs) == (("input",), ("output",))
    case = cases[1]
    assert case.grid == grid
    assert (case["input"].shape, case["output"].shape) == widths
    np.testing.assert_array_equal(case["output"].ravel(), wanted[1].ravel())
    assert case.weights is not None
    assert case.weights.sum() == pytest.approx(1.0)


def test_a_grid_that_is_given_tells_axes_from_components() -> None:
    cases = from_arrays(np.zeros((2, 4, 5, 6)), np.zeros((2, 4, 5, 6)), grid=(4, 5, 6))
    assert cases[0]["input"].shape == (120,)
    assert from_arrays(np.zeros((2, 7, 3)), grid=(7,))[0]["input"].shape == (7, 3)


def test_lists_of_different_sizes_come_with_positions() -> None:
    rng = np.random.default_rng(0)
    sizes = (5, 9)
    positions = [rng.normal(size=(n, 2)) for n in sizes]
    cases = from_arrays(
        [rng.normal(size=n) for n in sizes],
        [rng.normal(size=(n, 3)) for n in sizes],
        positions=positions,
    )
    assert [len(case) for case in cases] == [5, 9]
    assert cases[1].grid is None
    assert cases[1].weights is None
    np.testing.assert_array_equal(cases[1].positions, positions[1])


def test_the_geometry_may_be_the_only_input() -> None:
    positions = np.random.default_rng(0).normal(size=(4, 10, 3))
    cases = from_arrays(None, np.zeros((4, 10)), positions=positions)
    assert cases.inputs == ()
    np.testing.assert_array_equal(cases[2].positions, positions[2])


def test_positions_may_be_shared_or_stand_on_the_axes_of_a_grid() -> None:
    shared = np.random.default_rng(0).normal(size=(10, 3))
    assert from_arrays(np.zeros((4, 10)), positions=shared)[3].positions.shape == (10, 3)
    bent = np.random.default_rng(0).normal(size=(4, 5, 6, 2))
    cases = from_arrays(np.zeros((4, 5, 6)), positions=bent, grid=(5, 6))
    np.testing.assert_array_equal(cases[2].positions, bent[2].reshape(30, 2))


def test_numbers_per_case_are_parameters_and_whole_numbers_categories() -> None:
    cases = from_arrays(
        {"angle": np.arange(3.0), "shape": np.zeros((3, 8, 8)), "wall": np.ones((3, 8, 8), int)},
        {"flow": np.ones((3, 8, 8, 2))},
        parameters={"speed": [5.0, 6.0, 7.0]},
    )
    assert cases[2].parameters == {"speed": 7.0, "angle": 2.0}
    assert set(cases.inputs) == {"angle", "shape", "wall", "speed"}
    assert cases.outputs == ("flow",)
    assert list(cases[0].categories) == ["wall"]


def test_a_table_of_numbers_may_be_the_input_of_fields() -> None:
    cases = from_arrays(np.ones((5, 3)), np.zeros((5, 8, 8)))
    assert cases.inputs == ("input_0", "input_1", "input_2")
    assert cases[0].grid == (8, 8)


def test_a_series_has_times_after_the_points() -> None:
    still, moving = np.ones((2, 6)), np.zeros((2, 6, 4, 3))
    cases = from_arrays({"a": still}, {"u": moving}, grid=(6,), times=np.arange(4.0))
    assert cases[0]["u"].shape == (6, 4, 3)
    assert cases[0]["a"].shape == (6, 4)


def test_weights_of_a_bent_grid_are_its_area() -> None:
    radius, angle = np.meshgrid(np.linspace(1, 2, 40), np.linspace(0, np.pi, 80), indexing="ij")
    ring = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1).reshape(-1, 2)
    assert grid_weights(ring, (40, 80)).sum() == pytest.approx(1.5 * np.pi, rel=2e-3)


@pytest.mark.parametrize(
    ("inputs", "outputs", "options", "message"),
    [
        (np.zeros((3, 8)), np.zeros((4, 8)), {}, "equally many cases.* 3 in input, 4 in output"),
        (np.zeros((3, 8, 6)), np.zeros((3, 6, 8)), {}, "expected all arrays on one grid"),
        (None, None, {}, "got no array"),
        ([np.zeros(3), np.zeros(4)], None, {}, "expected `positions`, or `grid`"),
        (np.zeros((2, 8)), None, {"positions": np.zeros((3, 8, 2))}, "expected those of 2 cases"),
        (np.array([["a"]]), None, {}, "input: expected real numbers, got <U1"),
        ({"u": np.zeros((2, 4))}, {"u": np.zeros((2, 4))}, {}, "different names"),
        (np.zeros((2, 8)), None, {"parameters": {"a": [1.0]}}, "a: expected a finite number"),
    ],
)
def test_what_does_not_fit_is_refused(
    inputs: object, outputs: object, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        from_arrays(inputs, outputs, **options)  # type: ignore[arg-type]
