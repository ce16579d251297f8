import numpy as np
import pytest
import torch
from torch import Tensor

from funcattn.nn import Normaliser


def fields(generator: torch.Generator, sizes: list[int], channels: int = 3) -> list[Tensor]:
    """Fields of different sizes, whose channels differ by orders of magnitude."""
    scale, shift = torch.tensor([1e-3, 1.0, 1e3]), torch.tensor([5.0, -2.0, 1e5])
    return [
        torch.randn(n, channels, generator=generator) * scale[:channels] + shift[:channels]
        for n in sizes
    ]


@pytest.mark.parametrize("sizes", [[50], [7, 7, 7], [1, 40, 3, 12]])
def test_statistics_are_those_of_numpy_over_all_points(
    generator: torch.Generator, sizes: list[int]
) -> None:
    given = fields(generator, sizes)
    normaliser = Normaliser(3).double()
    normaliser.fit(given)
    points = np.concatenate([field.double().numpy() for field in given])
    np.testing.assert_allclose(normaliser.mean, points.mean(0), rtol=1e-12)
    np.testing.assert_allclose(normaliser.scale, points.std(0, ddof=1), rtol=1e-4)
    normal = normaliser(torch.from_numpy(points)).numpy()
    np.testing.assert_allclose(normal.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(normal.std(0, ddof=1), 1, rtol=1e-4)


def test_one_pass_is_enough(generator: torch.Generator) -> None:
    given = fields(generator, [5, 9, 2])
    once, again = Normaliser(3), Normaliser(3)
    once.fit(field for field in given)
    again.fit(given)
    assert torch.equal(once.mean, again.mean)
    assert torch.equal(once.scale, again.scale)


def test_a_small_deviation_from_a_large_mean_survives(generator: torch.Generator) -> None:
    # In float32 a sum of squares would lose it all.
    points = 1e6 + torch.randn(4000, 1, generator=generator).double()
    normaliser = Normaliser(1)
    normaliser.fit(points.split(37))
    assert normaliser.scale.item() == pytest.approx(points.std().item(), rel=1e-5)


def test_inverse_undoes_it(generator: torch.Generator) -> None:
    (given,) = fields(generator, [6])
    normaliser = Normaliser(3)
    normaliser.fit([given])
    x = given.expand(2, 4, 6, 3)
    torch.testing.assert_close(normaliser.inverse(normaliser(x)), x)


@pytest.mark.parametrize("constant", [0.0, 0.1, -3e7])
def test_a_constant_channel_is_shifted_to_zero_and_not_blown_up(
    generator: torch.Generator, constant: float
) -> None:
    given = fields(generator, [8, 5])
    for field in given:
        field[:, 1] = constant
    normaliser = Normaliser(3)
    normaliser.fit(given)
    assert torch.equal(normaliser(given[0])[:, 1], torch.zeros(8))
    torch.testing.assert_close(normaliser.inverse(normaliser(given[0])), given[0])
    # A value a little off comes out a little off.
    given[0][:, 1] += 0.5
    assert normaliser(given[0])[:, 1].abs().max() <= 4.0


def test_before_a_fit_it_does_nothing(generator: torch.Generator) -> None:
    (given,) = fields(generator, [6])
    assert torch.equal(Normaliser(3)(given), given)


@pytest.mark.parametrize("given", [[], [torch.zeros(1, 2)]])
def test_too_few_points_are_refused(given: list[Tensor]) -> None:
    with pytest.raises(ValueError, match=f"expected at least two points .*, got {len(given)}"):
        Normaliser(2).fit(given)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_no_numbers_are_refused_by_place(
    generator: torch.Generator, bad: float
) -> None:
    given = fields(generator, [4, 5, 6])
    given[1][2, 0] = bad
    with pytest.raises(ValueError, match="expected finite values, got others in field 1"):
        Normaliser(3).fit(given)


def test_statistics_are_saved_and_not_trained(generator: torch.Generator) -> None:
    normaliser = Normaliser(3)
    normaliser.fit(fields(generator, [6]))
    assert set(normaliser.state_dict()) == {"mean", "scale"}
    assert not list(normaliser.parameters())


@pytest.mark.parametrize("exponent", range(-12, 13, 4))
def test_without_an_offset_the_unit_of_a_field_changes_nothing(
    generator: torch.Generator, exponent: int
) -> None:
    # A power of two near the power of ten, so that the products themselves are exact.
    unit = 2.0 ** round(exponent * 3.3219)
    given = fields(generator, [40, 9])
    plain, other = Normaliser(3, offset=0.0), Normaliser(3, offset=0.0)
    plain.fit(given)
    other.fit([field * unit for field in given])
    assert torch.equal(other(given[0] * unit), plain(given[0]))
    assert torch.equal(other.inverse(given[1]), plain.inverse(given[1]) * unit)


def test_the_offset_of_the_benchmarks_is_kept(generator: torch.Generator) -> None:
    given = fields(generator, [30])[0].double() * 1e-6
    normaliser = Normaliser(3).double()
    normaliser.fit([given])
    torch.testing.assert_close(normaliser.scale, given.std(0) + 1e-8, rtol=1e-12, atol=0)


def test_missing_values_are_left_out(generator: torch.Generator) -> None:
    given = [field.double() for field in fields(generator, [30, 1, 20])]
    given[0][3:9, 1] = torch.nan
    given[1][:, 2] = torch.nan
    normaliser = Normaliser(3).double()
    normaliser.fit(given, missing=True)
    points = np.concatenate([field.numpy() for field in given])
    np.testing.assert_allclose(normaliser.mean, np.nanmean(points, 0), rtol=1e-12)
    np.testing.assert_allclose(normaliser.scale, np.nanstd(points, 0, ddof=1), rtol=1e-4)
    with pytest.raises(ValueError, match="expected finite values, got others in field 0"):
        normaliser.fit(given)
    given[2][:, 0] = torch.inf
    with pytest.raises(ValueError, match="expected finite values, got others in field 2"):
        normaliser.fit(given, missing=True)


def test_a_channel_without_known_values_is_refused() -> None:
    given = torch.stack([torch.arange(5.0), torch.full((5,), torch.nan)], dim=1)
    with pytest.raises(ValueError, match=r"expected at least two points .*, got 0"):
        Normaliser(2).fit([given], missing=True)
