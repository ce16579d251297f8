"""What whole networks have in common, one test each, over all that can do it."""

import io
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

NAN = float("nan")
GRID = (12, 13)
POINTS = math.prod(GRID)

OPERATORS = ("cloud operator", "grid operator")
LOCAL = ("pointnet", "graphsage", "graph_unet", "meshgraphnet", "gno")
TRANSFORMING = ("gnot", "oformer", "ono")
KINDS = (
    *("mlp", "deeponet", "lno", "gino", "gaot", "geo_fno", *TRANSFORMING, *LOCAL),
    *("fno", "tfno", "uno", "cno", "ht_net", "transformer", *OPERATORS),
)
TRANSFORMERS = ("transformer", "maps at points", "shared basis", "fourier", "lattice", "wide mlp")
ON_POINTS = (
    *(
        "mlp",
        "lno",
        "gino",
        "gaot",
        "geo_fno",
        *TRANSFORMING,
        "cloud operator",
        *TRANSFORMERS,
        "softmax baseline",
    ),
)
MASKED = (
    *(*ON_POINTS, "time", "stencils", "shared stencils"),
    *("cloud operator time", "grid operator", "torus operator"),
)
ON_GRIDS = (
    *("fno", "fno padded", "fno time", "tfno", "tfno dense", "tfno padded"),
    *("uno", "uno padded", "uno deep"),
)
EVERY = ("deeponet", *ON_GRIDS, *MASKED)

every_network = pytest.mark.parametrize("name", EVERY)
every_kind = pytest.mark.parametrize("name", KINDS)


@pytest.fixture
def model(name: str, made: Any) -> nn.Module:
    return made(name)


@pytest.fixture
def inputs(model: nn.Module, draw: Any) -> dict[str, Tensor]:
    return draw(model, POINTS)


def assert_every_parameter_gets_a_gradient(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 1e-12, name


@every_network
def test_every_parameter_gets_a_gradient(
    model: nn.Module, inputs: dict[str, Tensor], uniform: Any
) -> None:
    out = model(**inputs, grid=GRID)
    assert out.shape == (3, POINTS, 1)
    assert out.dtype == torch.float64
    (out * uniform(3, POINTS, 1)).sum().backward()
    assert_every_parameter_gets_a_gradient(model)


@pytest.mark.parametrize("time", [False, True], ids=["steady", "time"])
@pytest.mark.parametrize("values", [0, 3], ids=["geometry", "values"])
@pytest.mark.parametrize("grid", [(30,), GRID, (6, 7, 8)], ids=str)
@every_kind
def test_takes_any_space_and_inputs(
    name: str, grid: tuple[int, ...], values: int, time: bool, made: Any, draw: Any, uniform: Any
) -> None:
    if name == "uno" and len(grid) == 3:
        with pytest.raises(ValueError, match="space: expected a grid of 1 or 2 axes, got 3"):
            made("uno", 3, values, 2, time=time)
        return
    n = math.prod(grid)
    sensors = {"sensors": n} if name == "deeponet" else {}
    model = made(name, len(grid), values, 2, time=time, **sensors)
    out = model(**draw(model, n), grid=grid)
    assert out.shape == (3, n, 2)
    (out * uniform(3, n, 2)).sum().backward()
    assert_every_parameter_gets_a_gradient(model)


@every_network
def test_every_input_counts(model: nn.Module, inputs: dict[str, Tensor]) -> None:
    for x in inputs.values():
        x.requires_grad_()
    model(**inputs, grid=GRID).square().sum().backward()
    for x in inputs.values():
        assert (x.grad.abs() > 0).all()


@every_network
def test_a_sample_does_not_see_its_batch_neighbours(
    model: nn.Module, inputs: dict[str, Tensor], assert_equal_to_rounding: Any
) -> None:
    together = model(**inputs, grid=GRID)
    for i in range(3):
        alone = model(**{key: x[i : i + 1] for key, x in inputs.items()}, grid=GRID)
        assert_equal_to_rounding(together[i : i + 1], alone)


@pytest.mark.parametrize(
    # Not those that turn by thousands of radians, or divide by what is nearly dependent.
    "name",
    ["mlp", "deeponet", "lno", "gino", "geo_fno", "gnot", *OPERATORS, *ON_GRIDS],
)
def test_is_the_same_in_single_precision_to_single_rounding(
    model: nn.Module, inputs: dict[str, Tensor]
) -> None:
    out = model(**inputs, grid=GRID)
    single = model.float()(**{key: x.float() for key, x in inputs.items()}, grid=GRID)
    assert (out.dtype, single.dtype) == (torch.float64, torch.float32)
    torch.testing.assert_close(single.double(), out, rtol=0, atol=1e-5)


@every_network
def test_saving_and_loading_reproduces_results_exactly(
    name: str, model: nn.Module, inputs: dict[str, Tensor], made: Any
) -> None:
    loaded = made(name)
    for parameter in loaded.parameters():
        parameter.data += 0.1
    assert not torch.equal(model(**inputs, grid=GRID), loaded(**inputs, grid=GRID))
    file = io.BytesIO()
    # Inside of another network, as they are in use.
    state = nn.Sequential(model).state_dict()
    assert all(not tensor.is_complex() for tensor in state.values())
    torch.save(state, file)
    file.seek(0)
    nn.Sequential(loaded).load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(model(**inputs, grid=GRID), loaded(**inputs, grid=GRID))


@pytest.mark.parametrize("values", [0, 1], ids=["geometry", "values"])
@pytest.mark.parametrize(
    "name", ["mlp", "deeponet", "lno", *TRANSFORMING, "transformer", *OPERATORS]
)
def test_time_changes_the_result_of_its_own_sample_only(
    name: str, values: int, made: Any, draw: Any
) -> None:
    model = made(name, inputs=values, time=True)
    inputs = draw(model, POINTS, samples=2)
    early, late = (
        model(**inputs | {"time": torch.tensor([0.5, t], dtype=torch.float64)}, grid=GRID)
        for t in (0.5, 0.9)
    )
    assert torch.equal(early[0], late[0])
    assert (early[1] - late[1]).abs().max() > 1e-3


@pytest.mark.parametrize("name", ON_POINTS)
def test_permuting_points_permutes_results(
    model: nn.Module, draw: Any, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    inputs = draw(model, 20) | {"weights": uniform(3, 20)}
    order = uniform(20).argsort()
    permuted = model(**{key: x[:, order] for key, x in inputs.items()})
    assert_equal_to_rounding(permuted, model(**inputs)[:, order])


@pytest.mark.parametrize(
    "name", ["lno", "gino", "geo_fno", *TRANSFORMING, "cloud operator", *TRANSFORMERS]
)
def test_weight_two_is_two_copies(
    model: nn.Module, draw: Any, assert_equal_to_rounding: Any
) -> None:
    inputs = draw(model, 15, samples=1)
    weights = torch.ones(1, 15, dtype=torch.float64)
    weights[:, :4] = 2
    copied = model(**{key: torch.cat([x, x[:, :4]], dim=1) for key, x in inputs.items()})
    weighted = model(**inputs, weights=weights)
    assert_equal_to_rounding(weighted, copied[:, :15])
    assert (weighted - model(**inputs)).abs().max() > 1e-6


@pytest.mark.parametrize("name", MASKED)
def test_masked_points_are_zero_and_never_looked_at(
    model: nn.Module, inputs: dict[str, Tensor], uniform: Any
) -> None:
    mask = uniform(3, POINTS) < 0.7
    hidden = {
        key: x if key == "time" else torch.where(mask[..., None], x, NAN)
        for key, x in inputs.items()
    }
    out = model(**hidden, mask=mask, grid=GRID)
    assert torch.equal(out, model(**inputs, mask=mask, grid=GRID))
    assert torch.equal(out == 0, ~mask[..., None])
    out.square().sum().backward()
    assert_every_parameter_gets_a_gradient(model)


@pytest.mark.parametrize("padding", [NAN, -1.0, torch.inf])
@pytest.mark.parametrize("name", ON_POINTS)
def test_weights_of_masked_points_are_never_looked_at(
    padding: float, model: nn.Module, draw: Any, uniform: Any
) -> None:
    inputs, weights = draw(model, 9, samples=1), uniform(1, 9)
    mask = torch.arange(9)[None] < 6
    out = model(**inputs, mask=mask, weights=weights)
    hidden = torch.where(mask, weights, padding)
    assert torch.equal(model(**inputs, mask=mask, weights=hidden), out)


@pytest.mark.parametrize("name", ON_POINTS)
def test_a_padded_batch_is_its_samples_one_by_one_gradients_included(
    model: nn.Module, draw: Any, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    lengths = [20, 1, 13, 7]
    samples = [draw(model, n, samples=1) | {"weights": uniform(1, n)} for n in lengths]
    alone = [model(**sample) for sample in samples]
    sum(out.square().sum() for out in alone).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()

    # Padding at the end, and anywhere.
    mask = torch.arange(20) < torch.tensor(lengths)[:, None]
    mask[1::2] = mask[1::2, uniform(20).argsort()]
    padded = {
        key: torch.full((4, 20, *x.shape[2:]), NAN, dtype=torch.float64)
        for key, x in samples[0].items()
    }
    for key, x in padded.items():
        x[mask] = torch.cat([sample[key][0] for sample in samples])
    out = model(**padded, mask=mask)
    assert_equal_to_rounding(out[mask], torch.cat([result[0] for result in alone]))
    assert not out[~mask].any()
    out.square().sum().backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("as_a_user")
class TestErrors:
    """Of the call that all whole networks share."""

    POSITIONS, VALUES = torch.zeros(2, POINTS, 2).double(), torch.zeros(2, POINTS, 1).double()

    @pytest.mark.parametrize("shape", [(POINTS, 2), (2, POINTS, 3), (2, POINTS)], ids=str)
    @every_kind
    def test_positions_have_the_dimension_of_space(
        self, model: nn.Module, shape: tuple[int, ...]
    ) -> None:
        with pytest.raises(ValueError, match=r"positions: expected \(b, n, 2\), got"):
            model(torch.zeros(shape).double(), self.VALUES, grid=GRID)

    @pytest.mark.parametrize(
        "shape", [None, (2, POINTS, 2), (2, POINTS - 1, 1), (2, POINTS)], ids=str
    )
    @every_kind
    def test_values_have_the_channels_and_points_that_were_announced(
        self, model: nn.Module, shape: tuple[int, ...] | None
    ) -> None:
        values = None if shape is None else torch.zeros(shape).double()
        with pytest.raises(ValueError, match=r"values: expected \(2, 156, 1\), got"):
            model(self.POSITIONS, values, grid=GRID)

    @every_kind
    def test_values_are_not_given_to_a_model_without_inputs(self, name: str, made: Any) -> None:
        with pytest.raises(ValueError, match=r"values: expected none, .*inputs=0, got"):
            made(name, inputs=0)(self.POSITIONS, self.VALUES, grid=GRID)

    @every_kind
    def test_time_is_given_to_models_with_time_only(self, name: str, made: Any) -> None:
        with pytest.raises(ValueError, match=r"time: expected \(2,\), .*time=True, got None"):
            made(name, time=True)(self.POSITIONS, self.VALUES, grid=GRID)
        with pytest.raises(ValueError, match=r"time: expected None, .*time=False"):
            made(name)(self.POSITIONS, self.VALUES, grid=GRID, time=torch.zeros(2).double())

    @pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 1)], ids=str)
    @every_kind
    def test_time_is_one_number_for_each_sample(
        self, name: str, shape: tuple[int, ...], made: Any
    ) -> None:
        time = torch.zeros(shape).double()
        with pytest.raises(ValueError, match=r"time: expected \(2,\), "):
            made(name, time=True)(self.POSITIONS, self.VALUES, grid=GRID, time=time)

    @pytest.mark.parametrize("grid", [None, (POINTS,), (12, 12), (2, 6, 13)], ids=str)
    @pytest.mark.parametrize("name", ["stencils", "fno", "tfno", "uno"])
    def test_a_grid_fits_the_points(self, model: nn.Module, grid: tuple[int, ...] | None) -> None:
        with pytest.raises(ValueError, match="grid: expected 2 axis lengths"):
            model(self.POSITIONS, self.VALUES, grid=grid)

    @pytest.mark.parametrize(
        "shape", [(2, POINTS - 1), (2, 1), (2, POINTS, 1), (3, POINTS)], ids=str
    )
    @pytest.mark.parametrize("name", [*KINDS, "stencils"])
    def test_a_mask_has_a_number_per_point(self, model: nn.Module, shape: tuple[int, ...]) -> None:
        mask = torch.ones(shape, dtype=torch.bool)
        with pytest.raises(ValueError, match="mask: expected "):
            model(self.POSITIONS, self.VALUES, grid=GRID, mask=mask)

    @pytest.mark.parametrize("name", [*KINDS, "stencils"])
    def test_a_mask_is_boolean_and_leaves_a_point(self, model: nn.Module) -> None:
        with pytest.raises(TypeError, match="mask: expected a boolean tensor"):
            model(self.POSITIONS, self.VALUES, grid=GRID, mask=torch.ones(2, POINTS))
        for sample in (True, False):
            mask = torch.tensor([[sample], [False]]).expand(2, POINTS)
            with pytest.raises(ValueError, match="every point is masked"):
                model(self.POSITIONS, self.VALUES, grid=GRID, mask=mask)

    @pytest.mark.parametrize("name", ["deeponet", "fno", "tfno", "uno"])
    def test_a_mask_is_refused_where_all_points_are_needed(self, model: nn.Module) -> None:
        mask = torch.ones(2, POINTS, dtype=torch.bool)
        said = f"mask: expected none, as {type(model).__name__} takes samples with all"
        with pytest.raises(ValueError, match=said):
            model(self.POSITIONS, self.VALUES, grid=GRID, mask=mask)

    @every_kind
    def test_weights_are_not_negative(self, model: nn.Module) -> None:
        weights = torch.full((2, POINTS), -1.0)
        with pytest.raises(ValueError, match="weights: expected finite numbers"):
            model(self.POSITIONS, self.VALUES, grid=GRID, weights=weights)
