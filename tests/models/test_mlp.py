import io
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from funcattn.models.mlp import MLP

NAN = float("nan")


def made(space: int = 2, inputs: int = 1, outputs: int = 1, **options: object) -> MLP:
    """A small network in float64, the same in every run."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MLP(space, inputs, outputs, **({"width": 8, "layers": 2} | options)).double()


def uniform(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=generator)


def assert_equal_to_rounding(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("time", [False, True], ids=["steady", "time"])
@pytest.mark.parametrize("inputs", [0, 3], ids=["geometry", "values"])
@pytest.mark.parametrize("space", [1, 2, 3])
def test_every_parameter_gets_a_gradient(
    space: int, inputs: int, time: bool, generator: torch.Generator
) -> None:
    model = made(space, inputs, 2, time=time)
    values = uniform(3, 7, inputs, generator=generator) if inputs else None
    at = uniform(3, generator=generator) if time else None
    out = model(uniform(3, 7, space, generator=generator), values, time=at)
    assert out.shape == (3, 7, 2)
    (out * uniform(3, 7, 2, generator=generator)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


def test_is_linear_maps_with_gelu_between_them(generator: torch.Generator) -> None:
    model = made(time=True)
    positions, values = uniform(2, 5, 2, generator=generator), uniform(2, 5, 1, generator=generator)
    time = uniform(2, generator=generator)
    x = torch.cat([positions, time.view(2, 1, 1).expand(2, 5, 1), values], dim=-1)
    first, second, last = (module for module in model.network if hasattr(module, "weight"))
    expected = last(F.gelu(second(F.gelu(first(x)))))
    assert_equal_to_rounding(model(positions, values, time=time), expected)


def test_nothing_travels_between_points(generator: torch.Generator) -> None:
    model = made()
    positions, values = uniform(2, 9, 2, generator=generator), uniform(2, 9, 1, generator=generator)
    jacobian = torch.autograd.functional.jacobian(lambda u: model(positions, u), values)
    here = torch.eye(18, dtype=torch.bool).view(2, 9, 1, 2, 9, 1)
    assert torch.equal(jacobian != 0, here)


def test_neither_grid_nor_weights_nor_batch_change_a_point(generator: torch.Generator) -> None:
    model = made()
    positions, values = uniform(2, 6, 2, generator=generator), uniform(2, 6, 1, generator=generator)
    out = model(positions, values)
    weights = uniform(2, 6, generator=generator)
    assert torch.equal(model(positions, values, grid=(2, 3), weights=weights), out)
    for b in range(2):
        for n in range(6):
            alone = model(positions[b : b + 1, n : n + 1], values[b : b + 1, n : n + 1])
            assert_equal_to_rounding(alone[0, 0], out[b, n])


def test_masked_points_are_zero_and_never_looked_at(generator: torch.Generator) -> None:
    model, mask = made(), torch.rand(2, 9, generator=generator) < 0.6
    positions, values = uniform(2, 9, 2, generator=generator), uniform(2, 9, 1, generator=generator)
    hidden = (torch.where(mask[..., None], x, NAN) for x in (positions, values))
    out = model(*hidden, mask=mask)
    assert_equal_to_rounding(out, model(positions, values) * mask[..., None])
    out.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_has_as_many_parameters_as_its_maps() -> None:
    model = made(3, 2, 4, width=64, layers=5, time=True)
    expected = (6 + 1) * 64 + 4 * (64 + 1) * 64 + (64 + 1) * 4
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_saving_and_loading_reproduces_results_exactly(generator: torch.Generator) -> None:
    saved, loaded = made(), made()
    for parameter in loaded.parameters():
        parameter.data += 0.1
    inputs = uniform(2, 5, 2, generator=generator), uniform(2, 5, 1, generator=generator)
    assert not torch.equal(saved(*inputs), loaded(*inputs))
    file = io.BytesIO()
    torch.save(saved.state_dict(), file)
    file.seek(0)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(saved(*inputs), loaded(*inputs))


@pytest.mark.usefixtures("as_a_user")  # for speed
def test_learns_a_function_of_the_point_by_heart() -> None:
    x = torch.linspace(0, 1, 32).expand(4, -1).unsqueeze(-1)
    u = torch.tensor([0.5, 1.0, 1.5, 2.0]).view(4, 1, 1) * torch.sin(2 * math.pi * x)
    target = u.square() + x
    model = made(1, width=32).float()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=300)
    for _ in range(300):
        optimizer.zero_grad()
        loss = ((model(x, u) - target).norm(dim=1) / target.norm(dim=1)).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
    assert loss.item() < 0.02


@pytest.mark.usefixtures("as_a_user")
class TestErrors:
    """Of the call that all whole networks share."""

    POSITIONS, VALUES = torch.zeros(2, 12, 2).double(), torch.zeros(2, 12, 1).double()

    @pytest.mark.parametrize("shape", [(12, 2), (2, 12, 3), (2, 12)], ids=str)
    def test_positions_have_the_dimension_of_space(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match=r"positions: expected \(b, n, 2\), got"):
            made()(torch.zeros(shape).double(), self.VALUES)

    @pytest.mark.parametrize(
        "values",
        [None, torch.zeros(2, 12, 2), torch.zeros(2, 11, 1), torch.zeros(2, 12)],
        ids=["none", "channels", "points", "flat"],
    )
    def test_values_have_the_channels_and_points_that_were_announced(
        self, values: Tensor | None
    ) -> None:
        with pytest.raises(ValueError, match=r"values: expected \(2, 12, 1\), got"):
            made()(self.POSITIONS, values)

    def test_values_are_not_given_to_a_model_without_inputs(self) -> None:
        with pytest.raises(ValueError, match=r"values: expected none, .*inputs=0, got"):
            made(inputs=0)(self.POSITIONS, self.VALUES)

    def test_time_is_given_to_models_with_time_only(self) -> None:
        with pytest.raises(ValueError, match=r"time: expected \(2,\), .*time=True, got None"):
            made(time=True)(self.POSITIONS, self.VALUES)
        with pytest.raises(ValueError, match=r"time: expected None, .*time=False"):
            made()(self.POSITIONS, self.VALUES, time=torch.zeros(2).double())

    @pytest.mark.parametrize("shape", [(2, 11), (2, 1), (2, 12, 1), (3, 12)], ids=str)
    def test_a_mask_has_one_number_a_point(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match="mask: expected "):
            made()(self.POSITIONS, self.VALUES, mask=torch.ones(shape, dtype=torch.bool))

    def test_a_mask_is_boolean_and_leaves_a_point(self) -> None:
        with pytest.raises(TypeError, match="mask: expected a boolean tensor"):
            made()(self.POSITIONS, self.VALUES, mask=torch.ones(2, 12))
        with pytest.raises(ValueError, match="every point is masked"):
            made()(self.POSITIONS, self.VALUES, mask=torch.zeros(2, 12, dtype=torch.bool))

    def test_weights_are_not_negative(self) -> None:
        with pytest.raises(ValueError, match="weights: expected finite numbers"):
            made()(self.POSITIONS, self.VALUES, weights=torch.full((2, 12), -1.0))

    def test_there_is_a_hidden_layer(self) -> None:
        with pytest.raises(ValueError, match="layers: expected at least 1 hidden layer, got 0"):
            made(layers=0)
