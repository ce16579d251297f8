import pytest
import torch
from torch import Tensor, nn

from funcattn.models import OperatorTransformer, Surrogate


class Echo(nn.Module):
    """Gives back what it was called with, to be looked at."""

    def __init__(self, outputs: int = 1) -> None:
        super().__init__()
        self.outputs = outputs
        self.seen: dict[str, object] = {}

    def forward(self, positions: Tensor, values: Tensor | None, **points: object) -> Tensor:
        self.seen = {"positions": positions, "values": values, **points}
        return torch.ones(*positions.shape[:2], self.outputs)


def surrogate(network: nn.Module, inputs: int = 2, outputs: int = 1) -> Surrogate:
    return Surrogate(
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
    model = Surrogate(
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
