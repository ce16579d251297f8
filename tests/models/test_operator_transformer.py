import io
import itertools
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn import FunctionalAttention, OperatorTransformer
from funcattn.models import Encoded
from funcattn.nn import FourierBasis, LatticeDistances, Stencil, chunked

WIDTH = 8
SMALL = partial(FunctionalAttention, heads=2, bases=5)
NAN = float("nan")


class SoftmaxAttention(nn.Module):
    """A rival with the same call: every point looks at every other one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_all, self.to_output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        *,
        positions: Tensor | None = None,
        grid: tuple[int, ...] | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        del context, positions, grid, weights
        query, key, value = self.to_all(x).chunk(3, dim=-1)
        scores = query @ key.mT / math.sqrt(x.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], -torch.inf)
        return self.to_output(scores.softmax(-1) @ value)


def made(
    space: int = 2, inputs: int = 1, outputs: int = 1, *, seed: int = 0, **options: object
) -> OperatorTransformer:
    """A small network in float64, the same in every run.

    Its weights are of order one instead of the tiny starting values, so that nothing hides in
    small numbers.
    """
    options = {"width": WIDTH, "layers": 2, "attention": SMALL} | options
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        model = OperatorTransformer(space, inputs, outputs, **options).double()
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
            else:
                parameter += 0.1 * torch.randn_like(parameter)
    return model


def uniform(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=generator)


def unit_grid(points: int) -> Tensor:
    """A square grid with points at both ends of each axis, (1 n 2)."""
    axis = torch.linspace(0, 1, points, dtype=torch.float64)
    return torch.cartesian_prod(axis, axis)[None]


def assert_equal_to_rounding(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def assert_every_parameter_gets_a_gradient(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


stencils = partial(SMALL, features=partial(Stencil, reach=0.25))
MODELS: dict[str, Callable[[], OperatorTransformer]] = {
    "plain": made,
    "maps at points": lambda: made(attention=partial(SMALL, maps="points")),
    "stencils": lambda: made(attention=stencils),
    "shared basis": lambda: made(share_basis=True),
    "shared stencils": lambda: made(share_basis=True, attention=stencils),
    "fourier": lambda: made(
        attention=lambda width: SMALL(width, basis=FourierBasis([1, 1]), projection="inner_product")
    ),
    "lattice": lambda: made(encoding=LatticeDistances(2, per_axis=3)),
    "time": lambda: made(time=True),
    "wide mlp": lambda: made(mlp_ratio=2.5),
    "softmax rival": lambda: made(attention=SoftmaxAttention),
}


@pytest.mark.parametrize("name", MODELS)
class TestEveryModel:
    """On 4 x 5 points, so that those with stencils take part."""

    @staticmethod
    def inputs(model: OperatorTransformer, generator: torch.Generator) -> dict[str, Tensor]:
        inputs = {
            "positions": uniform(3, 20, 2, generator=generator),
            "values": uniform(3, 20, 1, generator=generator),
        }
        if model.time is not None:
            inputs["time"] = uniform(3, generator=generator)
        return inputs

    def test_every_parameter_gets_a_gradient(self, name: str, generator: torch.Generator) -> None:
        model = MODELS[name]()
        out = model(**self.inputs(model, generator), grid=(4, 5))
        assert out.shape == (3, 20, 1)
        (out * uniform(3, 20, 1, generator=generator)).sum().backward()
        assert_every_parameter_gets_a_gradient(model)

    def test_a_sample_does_not_see_its_batch_neighbours(
        self, name: str, generator: torch.Generator
    ) -> None:
        model = MODELS[name]()
        inputs = self.inputs(model, generator)
        together = model(**inputs, grid=(4, 5))
        for i in range(3):
            alone = model(**{key: x[i : i + 1] for key, x in inputs.items()}, grid=(4, 5))
            assert_equal_to_rounding(together[i : i + 1], alone)

    def test_masked_points_are_zero_and_never_looked_at(
        self, name: str, generator: torch.Generator
    ) -> None:
        model = MODELS[name]()
        inputs = self.inputs(model, generator)
        mask = torch.rand(3, 20, generator=generator) < 0.7
        hidden = {
            key: x if key == "time" else torch.where(mask[..., None], x, NAN)
            for key, x in inputs.items()
        }
        out = model(**hidden, mask=mask, grid=(4, 5))
        assert torch.equal(out, model(**inputs, mask=mask, grid=(4, 5)))
        assert torch.equal(out == 0, ~mask[..., None])
        out.square().sum().backward()
        assert_every_parameter_gets_a_gradient(model)

    def test_saving_and_loading_reproduces_results_exactly(
        self, name: str, generator: torch.Generator
    ) -> None:
        saved, loaded = MODELS[name](), MODELS[name]()
        for parameter in loaded.parameters():
            parameter.data += 0.1
        inputs = self.inputs(saved, generator)
        assert not torch.equal(saved(**inputs, grid=(4, 5)), loaded(**inputs, grid=(4, 5)))
        file = io.BytesIO()
        torch.save(saved.state_dict(), file)
        file.seek(0)
        loaded.load_state_dict(torch.load(file, weights_only=True))
        assert torch.equal(saved(**inputs, grid=(4, 5)), loaded(**inputs, grid=(4, 5)))


@pytest.mark.parametrize("space", [1, 2, 3])
@pytest.mark.parametrize("inputs", [0, 1, 3])
@pytest.mark.parametrize("n", [1, 3, 40], ids=lambda n: f"{n} points")
def test_takes_any_number_of_points_and_inputs_in_one_two_and_three_dimensions(
    space: int, inputs: int, n: int, generator: torch.Generator
) -> None:
    model = made(space, inputs, outputs=2)
    values = uniform(2, n, inputs, generator=generator) if inputs else None
    out = model(uniform(2, n, space, generator=generator), values)
    assert out.shape == (2, n, 2)
    assert out.isfinite().all()


def test_is_lift_blocks_and_head(generator: torch.Generator) -> None:
    model = made(time=True)
    positions, values = uniform(2, 9, 2, generator=generator), uniform(2, 9, 1, generator=generator)
    time, weights = uniform(2, generator=generator), uniform(2, 9, generator=generator)

    def mlp(layer: nn.Module, x: Tensor) -> Tensor:
        return layer.contract(F.gelu(layer.expand(x)))

    x = mlp(model.lift, torch.cat([positions, values], dim=-1)) + model.time(time)[:, None]
    for block in model.blocks:
        x = x + block.attention(block.attention_norm(x), weights=weights)
        x = x + mlp(block.mlp, block.mlp_norm(x))
    expected = model.head(model.head_norm(x))
    out = model(positions, values, time=time, weights=weights)
    assert_equal_to_rounding(out, expected)


def test_the_networks_at_each_point_are_as_wide_as_told() -> None:
    narrow, wide = made(mlp_ratio=0.5), made(mlp_ratio=2.5)
    assert [block.mlp.expand.out_features for block in narrow.blocks] == [4, 4]
    assert [block.mlp.expand.out_features for block in wide.blocks] == [20, 20]


def test_permuting_points_permutes_results(generator: torch.Generator) -> None:
    model, order = made(), torch.randperm(20, generator=generator)
    positions, values = uniform(2, 2, 20, 2, generator=generator)
    values, weights = values[..., :1], values[..., 1]
    out = model(positions, values, weights=weights)
    permuted = model(positions[:, order], values[:, order], weights=weights[:, order])
    assert_equal_to_rounding(permuted, out[:, order])


def test_weight_two_is_two_copies(generator: torch.Generator) -> None:
    model = made()
    positions, values = uniform(1, 9, 2, generator=generator), uniform(1, 9, 1, generator=generator)
    weights = torch.ones(1, 9, dtype=torch.float64)
    weights[:, :2] = 2
    copied = model(*(torch.cat([x, x[:, :2]], dim=1) for x in (positions, values)))
    assert_equal_to_rounding(model(positions, values, weights=weights), copied[:, :9])


@pytest.mark.parametrize("name", ["plain", "shared basis", "fourier", "softmax rival"])
def test_a_padded_batch_is_its_samples_one_by_one_gradients_included(
    name: str, generator: torch.Generator
) -> None:
    model, lengths = MODELS[name](), [20, 1, 13]
    samples = [uniform(1, n, 4, generator=generator).split([2, 1, 1], -1) for n in lengths]
    alone = [model(x, u, weights=w[..., 0]) for x, u, w in samples]
    sum(out.square().sum() for out in alone).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()

    mask = torch.arange(20) < torch.tensor(lengths)[:, None]
    padded = torch.full((3, 20, 4), NAN, dtype=torch.float64)
    padded[..., 3] = 0.5  # weights
    for i, parts in enumerate(samples):
        padded[i, : lengths[i]] = torch.cat(parts, dim=-1)[0]
    out = model(padded[..., :2], padded[..., 2:3], mask=mask, weights=padded[..., 3])
    for i, n in enumerate(lengths):
        assert_equal_to_rounding(out[i : i + 1, :n], alone[i])
        assert not out[i, n:].any()
    out.square().sum().backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("padding", [NAN, -1.0, torch.inf])
def test_weights_of_masked_points_are_never_looked_at(
    padding: float, generator: torch.Generator
) -> None:
    model, mask = made(), torch.arange(9)[None] < 6
    positions, values = uniform(1, 9, 2, generator=generator), uniform(1, 9, 1, generator=generator)
    weights = uniform(1, 9, generator=generator)
    hidden = torch.where(mask, weights, padding)
    out = model(positions, values, mask=mask, weights=weights)
    assert torch.equal(model(positions, values, mask=mask, weights=hidden), out)


def test_lattice_distances_take_the_place_of_the_coordinates(generator: torch.Generator) -> None:
    encoding = LatticeDistances(2, per_axis=3)
    model, features = made(encoding=encoding), made(space=9)
    features.load_state_dict(model.state_dict())
    positions, values = uniform(2, 7, 2, generator=generator), uniform(2, 7, 1, generator=generator)
    assert torch.equal(model(positions, values), features(encoding(positions), values))


def test_time_changes_the_result_of_its_own_sample_only(generator: torch.Generator) -> None:
    model = made(time=True)
    positions, values = uniform(2, 7, 2, generator=generator), uniform(2, 7, 1, generator=generator)
    early, late = (
        model(positions, values, time=torch.tensor([0.5, t], dtype=torch.float64))
        for t in (0.5, 0.9)
    )
    assert torch.equal(early[0], late[0])
    assert (early[1] - late[1]).abs().max() > 1e-3


def test_dropout_acts_in_training_only(generator: torch.Generator) -> None:
    model, plain = made(dropout=0.5), made()
    inputs = uniform(2, 7, 2, generator=generator), uniform(2, 7, 1, generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert not torch.equal(model.train()(*inputs), plain(*inputs))
    assert torch.equal(model.eval()(*inputs), plain(*inputs))


class TestSharedBasis:
    def test_layers_use_the_very_same_modules_and_parameters_are_listed_once(self) -> None:
        model, separate = made(layers=3, share_basis=True), made(layers=3)
        first, *others = (block.attention for block in model.blocks)
        for layer in others:
            assert layer.basis is first.basis
            assert layer.key_basis is first.basis
            assert layer.features is first.features
            assert layer.to_query is not first.to_query
        parameters = list(model.parameters())
        assert len({id(p) for p in parameters}) == len(parameters)
        shared = sum(p.numel() for m in (first.basis, first.features) for p in m.parameters())
        saved = sum(p.numel() for p in separate.parameters()) - sum(p.numel() for p in parameters)
        assert saved == 2 * shared

    def test_two_bases_a_layer_are_both_shared(self) -> None:
        def attention(width: int) -> FunctionalAttention:
            other = FunctionalAttention(width, heads=2, bases=5).basis
            return SMALL(width, key_basis=other, maps="points")

        first, second = (
            block.attention for block in made(attention=attention, share_basis=True).blocks
        )
        assert second.basis is first.basis
        assert second.key_basis is first.key_basis
        assert second.key_basis is not second.basis

    @pytest.mark.parametrize("active", [0, 1, 2])
    def test_gradients_flow_to_it_from_every_layer(
        self, active: int, generator: torch.Generator
    ) -> None:
        model = made(layers=3, share_basis=True)
        for i, block in enumerate(model.blocks):
            if i != active:  # the others attend to no effect
                nn.init.zeros_(block.attention.to_output.weight)
        positions = uniform(2, 9, 2, generator=generator)
        model(positions, positions[..., :1]).square().sum().backward()
        for parameter in model.blocks[0].attention.basis.parameters():
            assert parameter.grad.any()

    def test_a_layer_without_a_basis_is_refused(self) -> None:
        with pytest.raises(TypeError, match="share_basis: SoftmaxAttention has no basis to share"):
            made(attention=SoftmaxAttention, share_basis=True)


def test_stencils_give_nearly_the_same_field_on_a_finer_grid() -> None:
    """With quadrature weights, what changes with the resolution falls as the spacing squared."""
    model = made(attention=partial(SMALL, features=partial(Stencil, reach=1 / 8)))

    def on(points: int) -> Tensor:
        positions = unit_grid(points)
        values = torch.sin(3 * positions[..., :1]) * positions[..., 1:]
        trapezoid = torch.ones(points, dtype=torch.float64)
        trapezoid[[0, -1]] = 0.5
        weights = torch.outer(trapezoid, trapezoid).view(1, -1)
        out = model(positions, values, grid=(points, points), weights=weights)
        return out.detach().view(points, points)

    differences = [(on(n) - on(2 * n - 1)[::2, ::2]).abs().max().item() for n in (9, 17, 33)]
    orders = [math.log2(a / b) for a, b in itertools.pairwise(differences)]
    assert differences[0] < 0.05
    assert orders == pytest.approx([2, 2], abs=0.25)


def error_after_training(
    model: OperatorTransformer, u: Tensor, target: Tensor, *, rate: float, steps: int
) -> float:
    """Mean relative error of four samples on [0, 1), learned by heart."""
    positions = torch.linspace(0, 1, u.shape[1] + 1, dtype=u.dtype)[:-1].expand(4, -1)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(steps):
        optimizer.zero_grad()
        out = model(positions[..., None], u[..., None])[..., 0]
        loss = ((out - target).norm(dim=-1) / target.norm(dim=-1)).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
    return loss.item()


@pytest.mark.usefixtures("as_a_user")  # for speed
class TestLearns:
    def test_a_map_that_needs_other_points(self) -> None:
        """A wave of unknown phase to its quarter period: no point can do it alone."""
        shift = torch.tensor([0.1, 0.4, 0.6, 0.9])[:, None]
        phase = 2 * math.pi * (torch.arange(16) / 16 + shift)
        model = made(1, width=32, attention=partial(SMALL, heads=4, bases=8)).float()
        assert error_after_training(model, phase.sin(), phase.cos(), rate=3e-3, steps=300) < 0.05

    def test_from_the_starting_values_of_the_constructor(self) -> None:
        size = torch.tensor([0.5, 1.0, 1.5, 2.0])[:, None]
        phase = 2 * math.pi * torch.arange(32) / 32
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = OperatorTransformer(
                1, 1, 1, width=64, layers=2, attention=partial(SMALL, heads=4, bases=8)
            )
        u, target = size * phase.sin(), size * phase.cos()
        assert error_after_training(model, u, target, rate=5e-3, steps=400) < 0.05


@pytest.mark.usefixtures("as_a_user")
class TestErrors:
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
        with pytest.raises(ValueError, match=r"time: expected \(\d+,\), .*got None"):
            made(time=True)(self.POSITIONS, self.VALUES)
        with pytest.raises(ValueError, match="time: expected None, "):
            made()(self.POSITIONS, self.VALUES, time=torch.zeros(2).double())

    @pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 1)], ids=str)
    def test_time_is_one_number_for_each_sample(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match="time: expected "):
            made(time=True)(self.POSITIONS, self.VALUES, time=torch.zeros(shape).double())

    @pytest.mark.parametrize("grid", [None, (12,), (3, 5), (2, 2, 3)], ids=str)
    def test_a_grid_fits_the_points(self, grid: tuple[int, ...] | None) -> None:
        with pytest.raises(ValueError, match="grid: expected 2 axis lengths"):
            made(attention=stencils)(self.POSITIONS, self.VALUES, grid=grid)

    @pytest.mark.parametrize("name", ["plain", "stencils"])
    def test_a_mask_is_boolean(self, name: str) -> None:
        with pytest.raises(TypeError, match="mask: expected a boolean tensor"):
            MODELS[name]()(self.POSITIONS, self.VALUES, grid=(3, 4), mask=torch.ones(2, 12))

    @pytest.mark.parametrize("name", ["plain", "stencils"])
    @pytest.mark.parametrize("shape", [(2, 11), (2, 1), (2, 12, 1), (3, 12)], ids=str)
    def test_a_mask_has_one_number_a_point(self, name: str, shape: tuple[int, ...]) -> None:
        mask = torch.ones(shape, dtype=torch.bool)
        with pytest.raises(ValueError, match="mask: expected "):
            MODELS[name]()(self.POSITIONS, self.VALUES, grid=(3, 4), mask=mask)

    def test_a_sample_has_at_least_one_point(self) -> None:
        mask = torch.tensor([[True], [False]]).expand(2, 12)
        with pytest.raises(ValueError, match="every point is masked"):
            made()(self.POSITIONS, self.VALUES, mask=mask)


class TestEncodeOnceQueryAnywhere:
    LOCAL = ("plain", "maps at points", "shared basis", "fourier", "lattice", "time", "wide mlp")

    @staticmethod
    def inputs(model: OperatorTransformer, generator: torch.Generator) -> dict[str, Tensor]:
        inputs = {
            "positions": uniform(2, 37, 2, generator=generator),
            "values": uniform(2, 37, 1, generator=generator),
            "weights": uniform(2, 37, generator=generator),
        }
        if model.time is not None:
            inputs["time"] = uniform(2, generator=generator)
        return inputs

    @pytest.mark.parametrize("chunk", [1000, 5])
    @pytest.mark.parametrize("masked", [False, True], ids=["all points", "masked"])
    @pytest.mark.parametrize("name", LOCAL)
    def test_at_its_own_points_a_query_is_the_forward(
        self, name: str, masked: bool, chunk: int, generator: torch.Generator
    ) -> None:
        model = MODELS[name]()
        inputs = self.inputs(model, generator)
        where = {key: inputs[key] for key in ("positions", "values")}
        if masked:
            inputs["mask"] = where["mask"] = torch.rand(2, 37, generator=generator) < 0.7
            for key in ("positions", "values", "weights"):
                inputs[key][~inputs["mask"]] = NAN
        with torch.no_grad():
            encoded = model.encode(**inputs)
            assert_equal_to_rounding(model.query(encoded, **where, chunk=chunk), model(**inputs))

    @pytest.mark.parametrize("name", LOCAL)
    def test_further_points_cost_themselves_alone_and_change_nothing(
        self, name: str, generator: torch.Generator
    ) -> None:
        """They see what points of no weight would see in the forward."""
        model = MODELS[name]()
        inputs = self.inputs(model, generator)
        others = {"positions": (2, 11, 2), "values": (2, 11, 1)}
        more = {key: uniform(*shape, generator=generator) for key, shape in others.items()}
        more["weights"] = torch.zeros(2, 11, dtype=torch.float64)
        together = inputs | {key: torch.cat([inputs[key], more[key]], 1) for key in more}
        encoded = model.encode(**inputs)
        queried = model.query(encoded, more["positions"], more["values"])
        torch.testing.assert_close(queried, model(**together)[:, 37:], rtol=0, atol=1e-11)

    def test_gradients_go_through_both_halves(self, generator: torch.Generator) -> None:
        model = made()
        inputs = self.inputs(model, generator)
        inputs["positions"].requires_grad_()
        along = uniform(2, 37, 1, generator=generator)
        wanted = [inputs["positions"], *model.parameters()]
        halves = model.query(model.encode(**inputs), inputs["positions"], inputs["values"])
        ours = torch.autograd.grad((halves * along).sum(), wanted)
        theirs = torch.autograd.grad((model(**inputs) * along).sum(), wanted)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)

    def test_no_points_get_no_fields(self, generator: torch.Generator) -> None:
        model = made()
        encoded = model.encode(**self.inputs(model, generator))
        empty = torch.zeros(2, 0, 2).double(), torch.zeros(2, 0, 1).double()
        assert model.query(encoded, *empty).shape == (2, 0, 1)

    def test_what_was_saved_answers_as_before(
        self, generator: torch.Generator, tmp_path: Path
    ) -> None:
        for name in ("time", "fourier"):  # the second has complex coefficients
            model = MODELS[name]()
            inputs = self.inputs(model, generator)
            encoded = model.encode(**inputs)
            encoded.save(tmp_path / "mesh.safetensors")
            again = Encoded.load(str(tmp_path / "mesh.safetensors"))
            where = inputs["positions"], inputs["values"]
            assert torch.equal(model.query(again, *where), model.query(encoded, *where))
        assert [path.name for path in tmp_path.iterdir()] == ["mesh.safetensors"]

    def test_files_of_another_kind_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "text").write_text("no tensors")
        with pytest.raises(ValueError, match=r"text: expected a file of Encoded\.save"):
            Encoded.load(tmp_path / "text")
        save_file({"weight": torch.zeros(3)}, tmp_path / "weights")
        with pytest.raises(ValueError, match="got tensors of another kind: weight"):
            Encoded.load(tmp_path / "weights")
        with pytest.raises(FileNotFoundError):
            Encoded.load(tmp_path / "nowhere")

    def test_what_does_not_fit_is_refused(self, generator: torch.Generator) -> None:
        model = made()
        inputs = self.inputs(model, generator)
        encoded = model.encode(**inputs)
        where = inputs["positions"], inputs["values"]
        with pytest.raises(ValueError, match="expected the coefficients of 3 layers, got 2"):
            made(layers=3).query(encoded, *where)
        with pytest.raises(ValueError, match=r"each of the 2 samples that were encoded, got .* 1"):
            model.query(encoded, *(x[:1] for x in where))
        with pytest.raises(ValueError, match="time: expected"):
            made(time=True).query(encoded, *where)
        with pytest.raises(ValueError, match="chunk: expected a number of points, got 0"):
            model.query(encoded, *where, chunk=0)

    @pytest.mark.parametrize(
        ("name", "said"),
        [("softmax rival", "got SoftmaxAttention"), ("stencils", "that point alone, got Stencil")],
    )
    def test_layers_that_cannot_be_encoded_are_named(
        self, name: str, said: str, generator: torch.Generator
    ) -> None:
        model = MODELS[name]()
        with pytest.raises(ValueError, match=said):
            model.encode(**self.inputs(model, generator))


class TestCheckpointedBlocks:
    @staticmethod
    def gradients(
        name: str, checkpoint: bool, generator: torch.Generator, **options: object
    ) -> tuple[Tensor, list[Tensor]]:
        """The output and the gradients of a model in training, with the same draws of dropout."""
        model = MODELS[name]() if name else made(**options)
        model.checkpoint = checkpoint
        model.train()
        generator.manual_seed(1)
        inputs = TestEveryModel.inputs(model, generator)
        wanted = [inputs["positions"].requires_grad_(), *model.parameters()]
        with torch.random.fork_rng():
            torch.manual_seed(3)
            out = model(**inputs, grid=(4, 5), mask=torch.rand(3, 20, generator=generator) < 0.8)
            loss = (out * uniform(3, 20, 1, generator=generator)).sum()
            return out, list(torch.autograd.grad(loss, wanted))

    @pytest.mark.parametrize("name", MODELS)
    def test_gradients_are_the_same(self, name: str, generator: torch.Generator) -> None:
        out, gradients = self.gradients(name, True, generator)
        plain, expected = self.gradients(name, False, generator)
        assert torch.equal(out, plain)
        for ours, theirs in zip(gradients, expected, strict=True):
            assert torch.equal(ours, theirs)

    def test_dropout_draws_the_same_masks_again(self, generator: torch.Generator) -> None:
        options = {"dropout": 0.5, "attention": partial(SMALL, dropout=0.5)}
        out, gradients = self.gradients("", True, generator, **options)
        plain, expected = self.gradients("", False, generator, **options)
        assert torch.equal(out, plain)
        assert not torch.equal(out, self.gradients("", False, generator)[0])
        for ours, theirs in zip(gradients, expected, strict=True):
            assert torch.equal(ours, theirs)

    def test_the_choice_of_execution_does_not_depend_on_the_memory_that_is_left(
        self, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else the repeated call would keep other tensors than the first one said it would."""
        monkeypatch.setattr(chunked, "_SMALL_STORE", 0)
        free = itertools.cycle([2**50, 0])
        monkeypatch.setattr(chunked, "available_bytes", lambda _: next(free))
        _, gradients = self.gradients("", True, generator)
        _, expected = self.gradients("", False, generator)
        for ours, theirs in zip(gradients, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)

    def test_blocks_run_twice_in_training_and_once_otherwise(
        self, generator: torch.Generator
    ) -> None:
        model = made(checkpoint=True)
        calls: list[int] = []
        model.blocks[0].register_forward_pre_hook(lambda *_: calls.append(1))
        inputs = TestEveryModel.inputs(model, generator)
        model(**inputs).sum().backward()
        assert len(calls) == 2
        model.eval()(**inputs).sum().backward()
        assert len(calls) == 3
        with torch.no_grad():
            model.train()(**inputs)
        assert len(calls) == 4

    def test_only_the_inputs_of_blocks_are_kept(self, generator: torch.Generator) -> None:
        """Saved for the gradient of each block more: its input, n c numbers."""

        def saved(layers: int) -> int:
            model = made(layers=layers, checkpoint=True)
            inputs = TestEveryModel.inputs(model, generator)
            kept: dict[int, int] = {}

            def pack(tensor: Tensor) -> Tensor:
                if tensor.numel() >= 20 and not isinstance(tensor, nn.Parameter):
                    kept[tensor.data_ptr()] = tensor.numel()
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                model(**inputs)
            return sum(kept.values())

        assert saved(5) - saved(3) <= 2 * 3 * 20 * WIDTH
