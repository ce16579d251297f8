"""Units change nothing, and weights of the points are remembered."""

from dataclasses import replace

import numpy as np
import pytest
from tests.surrogate.conftest import clouds, quick, triangles, waves

# Of a dozen cases, some lie outside of what the others show.
pytestmark = pytest.mark.filterwarnings("ignore::funcattn.surrogate.OutsideTrainingWarning")


@pytest.mark.parametrize("unit", [2.0**-40, 2.0**40], ids=["tiny", "huge"])
def test_units_of_positions_and_fields_change_nothing_but_the_unit(
    random: np.random.Generator, unit: float
) -> None:
    positions = clouds(random, 12)
    inputs = [points[:, 0] for points in positions]
    outputs = [points.sum(1) for points in positions]
    plain = quick().fit(inputs, outputs, positions=positions)
    # A power of two, so that products with it are exact, and then everything is.
    other = quick().fit(
        *([part * unit for part in parts] for parts in (inputs, outputs)),
        positions=[points * unit for points in positions],
    )
    assert other.run.record["test"]["error"] == plain.run.record["test"]["error"]
    expected = plain.predict(inputs[:1], positions=positions[:1])[0]
    got = other.predict([inputs[0] * unit], positions=[positions[0] * unit])[0]
    np.testing.assert_array_equal(got, expected * np.float32(unit))


def test_metres_and_millimetres_train_to_the_same_numbers(random: np.random.Generator) -> None:
    positions = clouds(random, 12)
    outputs = [points.sum(1) for points in positions]
    errors = [
        quick().fit(None, outputs, positions=[scale * p for p in positions]).run.record["test"]
        for scale in (1.0, 1000.0)
    ]
    assert errors[0]["error"] == pytest.approx(errors[1]["error"], rel=1e-3)


def test_every_field_counts_whatever_its_size(random: np.random.Generator) -> None:
    inputs, outputs = waves(random, 12, 6, 5)
    fitted = quick().fit(inputs, {"large": 1e6 * outputs, "small": 1e-6 * inputs})
    test = fitted.run.record["test"]
    assert test["error"] == pytest.approx((test["large normalised"] + test["small normalised"]) / 2)
    assert test["small"] == pytest.approx(
        test["small normalised"] * fitted.task.deviations["small"]
    )


# Weights


def test_a_run_with_weights_of_a_mesh_refuses_points_without_cells(
    random: np.random.Generator,
) -> None:
    cases = triangles(random, 12)
    fitted = quick().fit(cases, "stress")
    cloud = replace(cases[0], cells=None, weights=None)
    with pytest.raises(ValueError, match="expected quadrature weights, as the run was trained"):
        fitted.predict(cloud)
    without = quick(weights=False).fit(cases, "stress")
    assert without.data.weights == "none"
    assert without.predict(cloud)["stress"].shape == (len(cloud),)


def test_on_a_grid_the_weights_are_computed(random: np.random.Generator) -> None:
    inputs, outputs = waves(random, 12, 6, 5)
    fitted = quick().fit(inputs, outputs)
    assert fitted.data.weights == "grid"
    sample = fitted.splits().train[0]
    assert sample.weights is not None
    assert float(sample.weights[0]) == pytest.approx(float(sample.weights[1]) / 2)
