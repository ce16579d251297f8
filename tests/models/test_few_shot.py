import io
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from funcattn.models.few_shot import (
    ContextRegressor,
    FewShotRegressor,
    IntentionRegressor,
    SoftmaxRegressor,
    TransolverRegressor,
)


def made(network: Callable[[], ContextRegressor]) -> ContextRegressor:
    """A small network in float64, the same in every run.

    Its weights are of order one instead of the tiny starting values, so that nothing hides in small
    numbers; the biases keep the encoder from being two straight lines.
    """
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model = network().double()
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2:
                nn.init.normal_(parameter, std=1.5 * parameter[0].numel() ** -0.5)
            elif "temperature" not in name:
                nn.init.normal_(parameter)
    return model


NETWORKS: dict[str, Callable[[], ContextRegressor]] = {
    "functional attention": lambda: FewShotRegressor(width=16, bases=4),
    "Intention": lambda: IntentionRegressor(width=16, heads=2),
    "Transolver": lambda: TransolverRegressor(width=16, bases=4),
    "softmax attention": lambda: SoftmaxRegressor(width=16, heads=2),
}
LINEAR = ["functional attention", "Intention", "Transolver"]


def queries(n: int, generator: torch.Generator, b: int = 3) -> Tensor:
    return 12 * torch.rand(b, n, 1, dtype=torch.float64, generator=generator) - 6


def observations(m: int, generator: torch.Generator, b: int = 3) -> Tensor:
    y = torch.randn(b, m, 1, dtype=torch.float64, generator=generator)
    return torch.cat([queries(m, generator, b), y], dim=-1)


def assert_equal_to_rounding(one: Tensor, other: Tensor, atol: float = 1e-7) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=atol)


@pytest.mark.parametrize("name", NETWORKS)
class TestEveryNetwork:
    @pytest.mark.parametrize("m", [1, 3, 40], ids=lambda m: f"{m} observations")
    @pytest.mark.parametrize("n", [1, 7], ids=lambda n: f"{n} queries")
    def test_takes_any_number_of_observations_and_queries(
        self, name: str, m: int, n: int, generator: torch.Generator
    ) -> None:
        out = made(NETWORKS[name])(queries(n, generator), context=observations(m, generator))
        assert out.shape == (3, n, 1)
        assert out.isfinite().all()

    def test_every_parameter_gets_a_gradient(self, name: str, generator: torch.Generator) -> None:
        model = made(NETWORKS[name])
        out = model(queries(9, generator), context=observations(6, generator))
        (out * torch.randn(3, 9, 1, generator=generator)).sum().backward()
        for parameter_name, parameter in model.named_parameters():
            assert parameter.grad is not None, parameter_name
            assert parameter.grad.isfinite().all(), parameter_name
            assert parameter.grad.any(), parameter_name

    def test_the_order_of_the_observations_does_not_matter(
        self, name: str, generator: torch.Generator
    ) -> None:
        model, x, context = made(NETWORKS[name]), queries(9, generator), observations(6, generator)
        order = torch.randperm(6, generator=generator)
        assert_equal_to_rounding(model(x, context=context[:, order]), model(x, context=context))

    def test_a_query_does_not_see_the_others_nor_a_task_its_neighbours(
        self, name: str, generator: torch.Generator
    ) -> None:
        model, x, context = made(NETWORKS[name]), queries(9, generator), observations(6, generator)
        together = model(x, context=context)
        alone = model(x[1:2, 4:5], context=context[1:2])
        assert_equal_to_rounding(together[1:2, 4:5], alone)

    def test_masked_queries_are_zero_and_never_looked_at(
        self, name: str, generator: torch.Generator
    ) -> None:
        model, x, context = made(NETWORKS[name]), queries(9, generator), observations(6, generator)
        mask = torch.rand(3, 9, generator=generator) < 0.6
        hidden = torch.where(mask.unsqueeze(-1), x, torch.nan)
        out = model(hidden, context=context, mask=mask)
        expected = model(x, context=context).masked_fill(~mask.unsqueeze(-1), 0)
        assert_equal_to_rounding(out, expected)
        out.square().sum().backward()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)

    def test_grid_and_weights_of_the_queries_change_nothing(
        self, name: str, generator: torch.Generator
    ) -> None:
        model, x, context = made(NETWORKS[name]), queries(9, generator), observations(6, generator)
        weights = torch.rand(3, 9, dtype=torch.float64, generator=generator)
        out = model(x, None, context=context, grid=(9,), mask=None, weights=weights)
        assert torch.equal(out, model(x, context=context))

    def test_saving_and_loading_reproduces_results_exactly(
        self, name: str, generator: torch.Generator
    ) -> None:
        saved, loaded = made(NETWORKS[name]), NETWORKS[name]().double()
        x, context = queries(9, generator), observations(6, generator)
        file = io.BytesIO()
        torch.save(saved.state_dict(), file)
        file.seek(0)
        loaded.load_state_dict(torch.load(file, weights_only=True))
        assert torch.equal(saved(x, context=context), loaded(x, context=context))

    @pytest.mark.usefixtures("as_a_user")
    def test_wrong_shapes_are_refused_with_an_explanation(self, name: str) -> None:
        model, x = NETWORKS[name](), torch.zeros(2, 5, 1)
        with pytest.raises(ValueError, match=r"positions: expected \(b, n, 1\), got \(2, 5, 2\)"):
            model(torch.zeros(2, 5, 2), context=torch.zeros(2, 3, 2))
        with pytest.raises(ValueError, match=r"context: .* \(2, m, 2\), got None"):
            model(x, context=None)
        for shape in [(2, 3, 1), (1, 3, 2), (2, 0, 2), (3, 2)]:
            with pytest.raises(ValueError, match="context: expected pairs"):
                model(x, context=torch.zeros(shape))
        with pytest.raises(ValueError, match="values: expected none"):
            model(x, torch.zeros(2, 5, 1), context=torch.zeros(2, 3, 2))


@pytest.mark.parametrize("name", LINEAR)
def test_without_an_encoder_of_y_the_result_is_linear_in_y(
    name: str, generator: torch.Generator
) -> None:
    model, x, context = made(NETWORKS[name]), queries(9, generator), observations(6, generator)
    other = torch.cat([context[..., :1], observations(6, generator)[..., 1:]], dim=-1)
    both = torch.cat([context[..., :1], 2 * context[..., 1:] - 3 * other[..., 1:]], dim=-1)
    expected = 2 * model(x, context=context) - 3 * model(x, context=other)
    assert_equal_to_rounding(model(x, context=both), expected)


def test_softmax_attention_is_not_linear_in_y(generator: torch.Generator) -> None:
    model = made(NETWORKS["softmax attention"])
    x, context = queries(9, generator), observations(6, generator)
    doubled = torch.cat([context[..., :1], 2 * context[..., 1:]], dim=-1)
    difference = model(x, context=doubled) - 2 * model(x, context=context)
    assert difference.abs().max() > 1e-3


@pytest.mark.parametrize("ridge", [1e-4, 0.5])
def test_functional_attention_is_ridge_regression_on_averages(
    ridge: float, generator: torch.Generator
) -> None:
    model = made(lambda: FewShotRegressor(width=16, bases=4, ridge=ridge))
    x, context = queries(9, generator), observations(6, generator)
    out = model(x, context=context)
    for i in range(3):
        q, k = (model.encoder(points[i]).detach().numpy() for points in (x, context[..., :1]))
        scores = k @ model.averages.scores.weight.detach().numpy().T / 0.5
        psi = np.exp(scores) / np.exp(scores).sum(axis=0)
        k, v = psi.T @ k, psi.T @ context[i, :, 1:].numpy()
        system = (1 - ridge) * k @ k.T + ridge * np.eye(4)
        expected = q @ k.T @ np.linalg.inv(system) @ v
        np.testing.assert_allclose(out[i].detach().numpy(), expected, atol=1e-8)


@pytest.mark.parametrize("name", ["functional attention", "Transolver", "softmax attention"])
def test_observing_everything_twice_tells_nothing_new(
    name: str, generator: torch.Generator
) -> None:
    model, x, context = made(NETWORKS[name]), queries(9, generator), observations(6, generator)
    twice = torch.cat([context, context], dim=1)
    assert_equal_to_rounding(model(x, context=twice), model(x, context=context))


def test_the_temperature_of_the_averages_stays_within_bounds(generator: torch.Generator) -> None:
    model = made(NETWORKS["functional attention"])
    x, context = queries(9, generator), observations(6, generator)
    results = []
    for temperature in (-3.0, 0.1, 0.2):
        model.averages.temperature.data.fill_(temperature)
        results.append(model(x, context=context))
    assert torch.equal(results[0], results[1])
    assert not torch.allclose(results[1], results[2])


def test_functional_attention_starts_as_the_public_code_does() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = FewShotRegressor()
    maps = [layer for layer in model.encoder if isinstance(layer, nn.Linear)]
    assert [layer.in_features for layer in maps] == [1, 128, 128, 128]
    assert all(not layer.bias.any() for layer in maps)
    for weight in (maps[1].weight, model.averages.scores.weight):
        assert weight.std().item() == pytest.approx(0.01, rel=0.1)
    assert model.averages.temperature.item() == 0.5


def test_a_small_ridge_survives_large_features_in_float32(generator: torch.Generator) -> None:
    model = made(lambda: FewShotRegressor(width=16, bases=4)).float()
    with torch.no_grad():
        model.encoder[-1].weight *= 1e3
        model.averages.scores.weight *= 1e-6  # nearly the same average four times
        x, context = queries(9, generator).float(), observations(6, generator).float()
        assert model(x, context=context).isfinite().all()


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_every_head_of_intention_fits_the_observations_as_the_ridge_vanishes(
    heads: int, generator: torch.Generator
) -> None:
    model = made(lambda: IntentionRegressor(width=32 * heads, heads=heads, ridge=1e-13))
    context = observations(5, generator)
    out = model(context[..., :1], context=context)
    assert_equal_to_rounding(out, heads * context[..., 1:], atol=1e-5)


def test_intention_with_a_large_ridge_is_linear_attention(generator: torch.Generator) -> None:
    model = made(lambda: IntentionRegressor(width=16, heads=1, ridge=1e9))
    x, context = queries(9, generator), observations(6, generator)
    q, k = model.encoder(x), model.encoder(context[..., :1])
    out, expected = 1e9 * model(x, context=context), q @ k.mT @ context[..., 1:]
    assert (out - expected).abs().max() < 1e-5 * expected.abs().max()


def test_functional_attention_with_a_basis_function_an_observation_is_intention(
    generator: torch.Generator,
) -> None:
    """With sharp averages, k~ and v~ are the observations; 1 - r is then a matter of scale."""
    ours = made(lambda: FewShotRegressor(width=16, bases=5, ridge=1e-6, temperature=0.1))
    baseline = made(lambda: IntentionRegressor(width=16, heads=1, ridge=1e-6 / (1 - 1e-6)))
    baseline.encoder.load_state_dict(ours.encoder.state_dict())
    x, context = queries(9, generator, b=1), observations(5, generator, b=1)
    key = ours.encoder(context[..., :1])[0].detach()
    # Scores that are 100 at one observation and 0 at the others, by solving for them.
    ours.averages.scores.weight.data = 100 * torch.linalg.pinv(key).T
    expected = baseline(x, context=context)
    assert_equal_to_rounding((1 - 1e-6) * ours(x, context=context), expected, atol=1e-6)


def test_transolver_never_leaves_the_range_of_the_observations(generator: torch.Generator) -> None:
    model = made(NETWORKS["Transolver"])
    context = observations(6, generator)
    out, y = model(queries(50, generator), context=context), context[..., 1:]
    assert (out >= y.amin(dim=1, keepdim=True)).all()
    assert (out <= y.amax(dim=1, keepdim=True)).all()


def test_regression_leaves_the_range_of_the_observations(generator: torch.Generator) -> None:
    for name in ("functional attention", "Intention"):
        context = observations(6, generator)
        out = made(NETWORKS[name])(queries(50, generator), context=context)
        assert (out > context[..., 1:].amax(dim=1, keepdim=True)).any(), name


def test_softmax_attention_gives_one_value_where_all_observations_agree(
    generator: torch.Generator,
) -> None:
    context = observations(6, generator)
    context[..., 1] = 0.7
    out = made(NETWORKS["softmax attention"])(queries(50, generator), context=context)
    assert_equal_to_rounding(out, out[:1, :1].expand_as(out))
    # Regression on points knows no such thing: it fits, and goes on elsewhere as its features do.
    assert made(NETWORKS["Intention"])(queries(50, generator), context=context).std() > 1e-2


@pytest.mark.parametrize("network", [IntentionRegressor, SoftmaxRegressor])
def test_heads_must_divide_the_width(network: Callable[..., nn.Module]) -> None:
    with pytest.raises(ValueError, match="width: expected a multiple of heads=3, got 16"):
        network(width=16, heads=3)


def test_an_encoder_has_at_least_one_map() -> None:
    with pytest.raises(ValueError, match="layers: expected at least 1 linear map, got 0"):
        FewShotRegressor(layers=0)


def test_learns_a_sinusoid_in_some_hundred_steps(
    generator: torch.Generator,
) -> None:
    """From larger weights than the public code's, with which thousands of steps pass first."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = FewShotRegressor(width=32, std=None)
    x = queries(60, generator, b=1).float()
    observed = queries(20, generator, b=1).float()
    context = torch.cat([observed, observed.sin()], dim=-1)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    losses = []
    for _ in range(150):
        loss = (model(x, context=context) - x.sin()).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.02 * losses[0]
