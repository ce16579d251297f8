import numpy as np
import pytest
import torch
from torch import Tensor, nn

from funcattn.models import NormalisedNetwork, OperatorTransformer, predict_streamed


class Echo(nn.Module):
    """Gives back what it was called with, to be looked at."""

    def __init__(self, outputs: int = 1) -> None:
        super().__init__()
        self.outputs = outputs
        self.seen: dict[str, object] = {}

    def forward(self, positions: Tensor, values: Tensor | None, **points: object) -> Tensor:
        self.seen = {"positions": positions, "values": values, **points}
        return torch.ones(*positions.shape[:2], self.outputs)


def surrogate(network: nn.Module, inputs: int = 2, outputs: int = 1) -> NormalisedNetwork:
    return NormalisedNetwork(
        network,
        space=2,
        inputs=inputs,
        outputs=outputs,
        normalise_inputs=True,
        normalise_outputs=True,
    )


def samples(generator: torch.Generator, sizes: tuple[int, ...] = (6, 9)) -> list[list[Tensor]]:
    """Positions, values and targets of samples of different sizes."""
    return [
        [torch.randn(n, channels, generator=generator) * 3 + 1 for n in sizes]
        for channels in (2, 2, 1)
    ]


def test_the_network_works_in_normal_units_and_the_caller_in_real_ones(
    generator: torch.Generator,
) -> None:
    network = Echo()
    model = surrogate(network)
    positions, values, targets = samples(generator)
    model.fit(positions, values, targets)
    weights = torch.ones(1, 6)
    out = model(positions[0][None], values[0][None], weights=weights, grid=(2, 3))
    points = torch.cat(values)
    inside = (values[0] - points.mean(0)) / points.std(0)
    assert isinstance(network.seen["values"], Tensor)
    torch.testing.assert_close(network.seen["values"][0], inside)
    assert network.seen["positions"] is not None
    assert network.seen["weights"] is weights
    assert network.seen["grid"] == (2, 3)
    real = torch.cat(targets)
    torch.testing.assert_close(out, (real.mean() + real.std()).expand(1, 6, 1))


def test_ranges_are_the_extremes_of_all_samples(generator: torch.Generator) -> None:
    model = surrogate(Echo())
    positions, values, targets = samples(generator, (3, 8, 1))
    model.fit(iter(positions), iter(values), iter(targets))
    for known, fields in ((model.position_range, positions), (model.value_range, values)):
        points = torch.cat(fields)
        assert torch.equal(known, torch.stack([points.amin(0), points.amax(0)]))


def test_where_the_geometry_is_the_input_there_are_no_values(generator: torch.Generator) -> None:
    network = Echo()
    model = surrogate(network, inputs=0)
    positions, _, targets = samples(generator)
    model.fit(positions, [], targets)
    assert model.input_normaliser is None
    assert model.value_range.shape == (2, 0)
    model(positions[0][None])
    assert network.seen["values"] is None


def test_without_normalisers_units_are_real_throughout(generator: torch.Generator) -> None:
    network = Echo()
    model = NormalisedNetwork(
        network,
        space=2,
        inputs=2,
        outputs=1,
        normalise_inputs=False,
        normalise_outputs=False,
    )
    positions, values, targets = samples(generator)
    model.fit(positions, values, targets)
    out = model(positions[0][None], values[0][None])
    assert torch.equal(out, torch.ones(1, 6, 1))
    assert isinstance(network.seen["values"], Tensor)
    assert torch.equal(network.seen["values"][0], values[0])


def test_masked_points_are_zero_and_change_nothing(generator: torch.Generator) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = surrogate(OperatorTransformer(2, 2, 1, width=16, layers=1))
    positions, values, targets = samples(generator, (6, 9))
    model.fit(positions, values, targets)
    model.eval()
    alone = model(positions[0][None], values[0][None])
    mask = (torch.arange(9) < 6)[None]
    for filling in (0.0, torch.nan):
        padded = [torch.full((1, 9, 2), filling) for _ in range(2)]
        padded[0][0, :6], padded[1][0, :6] = positions[0], values[0]
        out = model(*padded, mask=mask)
        torch.testing.assert_close(out[:, :6], alone)
        assert torch.equal(out[:, 6:], torch.zeros(1, 3, 1))


def test_all_that_prediction_needs_is_in_its_state(generator: torch.Generator) -> None:
    model, other = surrogate(Echo()), surrogate(Echo())
    model.fit(*samples(generator))
    other.load_state_dict(model.state_dict())
    positions, values, _ = samples(generator)
    batch = positions[0][None], values[0][None]
    assert torch.equal(model(*batch), other(*batch))
    assert torch.equal(model.position_range, other.position_range)
    assert torch.equal(model.value_range, other.value_range)


def test_samples_that_are_no_numbers_are_refused(generator: torch.Generator) -> None:
    positions, values, targets = samples(generator)
    values[1][0, 0] = torch.nan
    with pytest.raises(ValueError, match="expected finite values, got others in field 1"):
        surrogate(Echo()).fit(positions, values, targets)


def unit_free(network: nn.Module) -> NormalisedNetwork:
    return NormalisedNetwork(
        network,
        space=2,
        inputs=2,
        outputs=1,
        normalise_inputs=True,
        normalise_outputs=True,
        unit_free=True,
    )


def transformer() -> OperatorTransformer:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return OperatorTransformer(2, 2, 1, width=16, layers=2).eval()


@pytest.mark.parametrize("unit", [2.0**-40, 2.0**-10, 2.0**10, 2.0**40])
def test_without_units_the_network_sees_the_same_whatever_the_units_are(
    generator: torch.Generator, unit: float
) -> None:
    # Powers of two, so that the products with them are exact: then all is, to the bit.
    positions, values, targets = samples(generator)
    plain, other = unit_free(transformer()), unit_free(transformer())
    plain.fit(positions, values, targets)
    other.fit(*([field * unit for field in fields] for fields in (positions, values, targets)))
    expected = plain(positions[0][None], values[0][None])
    got = other(positions[0][None] * unit, values[0][None] * unit)
    assert torch.equal(got, expected * unit)


def test_the_frame_of_reference_does_not_matter(generator: torch.Generator) -> None:
    positions, values, targets = samples(generator)
    plain, other = (unit_free(transformer()).double() for _ in range(2))
    plain.fit(positions, values, targets)
    far = [p.double() + torch.tensor([5e5, -2e6]) for p in positions]
    other.fit(far, values, targets)
    expected = plain(positions[0][None].double(), values[0][None].double())
    torch.testing.assert_close(other(far[0][None], values[0][None].double()), expected)


def test_positions_lie_between_minus_one_and_one_in_one_length(generator: torch.Generator) -> None:
    network = Echo()
    model = unit_free(network)
    positions, values, targets = samples(generator)
    positions = [p * torch.tensor([1000.0, 10.0]) for p in positions]
    model.fit(positions, values, targets)
    assert float(model.placed(torch.cat(positions)).abs().amax()) == pytest.approx(1)
    before, after = (torch.pdist(p) for p in (positions[0], model.placed(positions[0])))
    torch.testing.assert_close(after / before, (after / before)[0].expand_as(after))


def test_encoding_and_streaming_place_points_as_the_call_does(generator: torch.Generator) -> None:
    positions, values, targets = samples(generator)
    model = unit_free(transformer()).eval()
    model.fit([p * 1e3 for p in positions], values, targets)
    call = positions[1][None] * 1e3, values[1][None]
    expected = model(*call)
    torch.testing.assert_close(model.query(model.encode(*call), *call), expected)
    out = np.empty((9, 1))
    predict_streamed(model, *(field[0].numpy() for field in call), out=out, chunk=4)
    np.testing.assert_allclose(out, expected[0].detach(), rtol=1e-4, atol=1e-5)


def test_missing_targets_are_left_out_where_no_unit_matters(generator: torch.Generator) -> None:
    positions, values, targets = samples(generator)
    targets[0][2] = torch.nan
    model = unit_free(Echo())
    model.fit(positions, values, targets)
    known = torch.cat(targets)
    assert model.output_normaliser is not None
    torch.testing.assert_close(model.output_normaliser.mean, known[~known.isnan()].mean()[None])
