import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from funcattn.nn import (
    FourierBasis,
    FunctionalAttention,
    GridFourierBasis,
    LearnedBasis,
    OrthonormalBasis,
    Points,
)

MAPS = ["coefficients", "points"]


def built(build: Callable[[], nn.Module]) -> nn.Module:
    """A module with its own starting values, the same in every run, in float64."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build().double()


def lively(build: Callable[[], nn.Module]) -> nn.Module:
    """The same with weights of order one, so that nothing hides in small numbers."""
    module = built(build)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        for parameter in module.parameters():
            if parameter.ndim >= 2:
                nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
            else:
                parameter += 0.1 * torch.randn_like(parameter)
    return module


def random(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


class Given(nn.Module):
    """A basis or a feature map that is a plain function."""

    def __init__(self, function: Callable[[Tensor, Points], Tensor]) -> None:
        super().__init__()
        self.forward = function


def inner_products(basis: Tensor, weights: Tensor | None = None) -> Tensor:
    """The Gram matrix in the inner product whose weights (b n) sum to one."""
    b, _, n, _ = basis.shape
    weights = torch.ones(b, n, dtype=basis.dtype) if weights is None else weights
    weights = weights / weights.sum(1, keepdim=True)
    return torch.einsum("bhnj,bn,bhnk->bhjk", basis.conj(), weights.to(basis.dtype), basis)


def identity(g: int) -> Tensor:
    return torch.eye(g, dtype=torch.float64)


def result_and_gradients(
    layer: nn.Module, x: Tensor, *rest: Tensor, **options: object
) -> dict[str, Tensor]:
    """The layer's output, and the gradients of one number made of it, all by name."""
    x = x.clone().requires_grad_()
    out = layer(x, *rest, **options)
    cotangent = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).sin().view_as(out)
    named = {"x": x, **dict(layer.named_parameters())}
    gradients = torch.autograd.grad((out * cotangent).sum(), list(named.values()))
    return {"out": out, **dict(zip(named, gradients, strict=True))}


def assert_same(results: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert results.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(
            results[name],
            expected[name],
            rtol=1e-10,
            atol=1e-11,
            msg=lambda text, name=name: f"{name}: {text}",
        )


class TestLearnedBasis:
    def test_has_a_value_for_each_head_point_and_function_and_sums_to_one(
        self, generator: torch.Generator
    ) -> None:
        basis = lively(lambda: LearnedBasis(width=12, heads=3, bases=5))
        values = basis(random(2, 7, 12, generator=generator), Points())
        assert values.shape == (2, 3, 7, 5)
        assert (values > 0).all()
        assert values.std() > 0.05
        torch.testing.assert_close(values.sum(-1), torch.ones(2, 3, 7, dtype=torch.float64))

    @pytest.mark.parametrize("bases", [3, 8, 20])
    def test_scores_start_as_an_orthogonal_map_without_bias(self, bases: int) -> None:
        basis = built(lambda: LearnedBasis(width=16, heads=2, bases=bases))
        weight = basis.scores.weight
        gram = weight @ weight.T if bases <= 8 else weight.T @ weight
        torch.testing.assert_close(gram, identity(min(bases, 8)), rtol=0, atol=1e-6)
        assert not basis.scores.bias.any()

    def test_temperature_divides_the_scores_and_is_learned_per_head(
        self, generator: torch.Generator
    ) -> None:
        basis = lively(lambda: LearnedBasis(width=12, heads=3, bases=5))
        basis.temperature.data = torch.tensor([0.2, 1.0, 4.0], dtype=torch.float64)
        x = random(2, 7, 12, generator=generator)
        values = basis(x, Points())
        scores = basis.scores(basis.features(x, Points()).unflatten(-1, (3, 4)))
        for head, temperature in enumerate([0.2, 1.0, 4.0]):
            grown = torch.exp(scores[:, :, head] / temperature)
            torch.testing.assert_close(values[:, head], grown / grown.sum(-1, keepdim=True))
        values[..., 0].sum().backward()
        assert (basis.temperature.grad != 0).all()

    def test_functions_become_the_indicators_of_a_partition_at_low_temperature(
        self, generator: torch.Generator
    ) -> None:
        basis = lively(lambda: LearnedBasis(12, 3, 5, temperature=1e-6, bounds=None))
        basis.temperature.data.fill_(1e-6)
        values = basis(random(2, 7, 12, generator=generator), Points())
        torch.testing.assert_close(values.amax(-1), torch.ones(2, 3, 7, dtype=torch.float64))

    def test_temperature_is_kept_within_its_bounds(self, generator: torch.Generator) -> None:
        basis = lively(lambda: LearnedBasis(12, 3, 5, bounds=(0.4, 2.0)))
        x = random(2, 7, 12, generator=generator)

        def at(*temperatures: float) -> Tensor:
            basis.temperature.data = torch.tensor(temperatures, dtype=torch.float64)
            return basis(x, Points())

        assert torch.equal(at(-3.0, 1.0, 70.0), at(0.4, 1.0, 2.0))
        assert not torch.equal(at(0.5, 1.0, 1.9), at(0.4, 1.0, 2.0))

    def test_temperature_runs_free_without_bounds(self, generator: torch.Generator) -> None:
        basis = lively(lambda: LearnedBasis(12, 1, 5, bounds=None))
        x = random(2, 7, 12, generator=generator)
        basis.temperature.data.fill_(50.0)
        scores = basis.scores(basis.features(x, Points()))
        torch.testing.assert_close(basis(x, Points())[:, 0], (scores / 50).softmax(-1))

    def test_heads_do_not_see_each_others_channels(self, generator: torch.Generator) -> None:
        untouched = Given(lambda x, _points: x)
        basis = lively(lambda: LearnedBasis(12, 3, 5, features=lambda _in, _out: untouched))
        x = random(2, 7, 12, generator=generator)
        changed = x.clone()
        changed[..., 4:8] += 1
        before, after = basis(x, Points()), basis(changed, Points())
        assert torch.equal(before[:, [0, 2]], after[:, [0, 2]])
        assert not torch.isclose(before[:, 1], after[:, 1]).any()

    def test_wrong_settings_are_refused(self) -> None:
        with pytest.raises(ValueError, match="width: expected a multiple of heads=3, got 8"):
            LearnedBasis(8, 3, 5)
        with pytest.raises(ValueError, match=r"temperature: expected a value within bounds=\(0.1"):
            LearnedBasis(8, 2, 5, temperature=6.0)


class TestOrthonormalBasis:
    """Gram' = I - t L^-1 L^-T, whose distance from I is at most t over the smallest eigenvalue."""

    @staticmethod
    def made(tikhonov: float) -> nn.Module:
        return lively(lambda: OrthonormalBasis(LearnedBasis(12, 3, 4), tikhonov=tikhonov))

    @pytest.mark.parametrize("n", [25, 100, 400])
    @pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
    @pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
    @pytest.mark.parametrize("tikhonov", [1e-13, 1e-6, 1e-3])
    def test_gram_matrix_is_the_identity_as_far_as_the_stabiliser_lets_it(
        self, n: int, weighted: bool, masked: bool, tikhonov: float, generator: torch.Generator
    ) -> None:
        basis = self.made(tikhonov)
        x = random(2, n, 12, generator=generator)
        weights = torch.rand(2, n, dtype=torch.float64, generator=generator) + 0.1
        mask = torch.rand(2, n, generator=generator) < 0.8
        points = Points(mask=mask if masked else None, weights=weights if weighted else None)
        effective = (weights if weighted else torch.ones_like(weights)) * (mask if masked else 1)

        gram = inner_products(basis(x, points), effective)
        before = inner_products(basis.basis(x, points), effective)
        mean_diagonal = before.diagonal(dim1=-2, dim2=-1).mean(-1)
        allowed = tikhonov * mean_diagonal / torch.linalg.eigvalsh(before)[..., 0]
        missing = torch.linalg.eigvalsh(identity(4) - gram)
        assert (missing > -1e-11).all()  # never longer than one
        assert (missing[..., -1] <= allowed + 1e-11).all()
        assert (allowed < 1000 * tikhonov).all()  # the test basis is well separated

    def test_functions_span_what_they_spanned_before(self, generator: torch.Generator) -> None:
        basis, x = self.made(1e-6), random(2, 50, 12, generator=generator)
        after, before = basis(x, Points()), basis.basis(x, Points())
        coefficients = torch.linalg.lstsq(before, after).solution
        torch.testing.assert_close(before @ coefficients, after, rtol=0, atol=1e-9)

    def test_nearly_dependent_functions_come_out_shorter_instead_of_blown_up(self) -> None:
        twice = Given(lambda x, _points: x[:, None, :, [0, 0, 1]])
        x = torch.stack([torch.ones(9), torch.linspace(-1, 1, 9)], dim=-1).double()[None]
        values = OrthonormalBasis(twice, tikhonov=1e-6)(x, Points())
        lengths = inner_products(values).diagonal(dim1=-2, dim2=-1)[0, 0]
        torch.testing.assert_close(lengths, lengths.new_tensor([1, 0, 1]), rtol=0, atol=1e-5)

    @pytest.mark.parametrize("n", [1, 10, 100])
    @pytest.mark.parametrize("bases", [16, 64, 128])
    def test_a_softmax_basis_at_the_start_of_training_is_not_blown_up_in_float32(
        self, n: int, bases: int, generator: torch.Generator
    ) -> None:
        basis = built(lambda: OrthonormalBasis(LearnedBasis(64, 4, bases))).float()
        values = basis(torch.randn(2, n, 64, generator=generator), Points())
        assert values.isfinite().all()
        assert (inner_products(values.double()).diagonal(dim1=-2, dim2=-1) < 1.1).all()

    @pytest.mark.usefixtures("as_a_user")
    def test_a_complex_basis_becomes_orthonormal(self, generator: torch.Generator) -> None:
        raw = Given(lambda x, _points: torch.complex(x[:, None, :, :3], x[:, None, :, 3:]))
        basis = OrthonormalBasis(raw, tikhonov=0)
        gram = inner_products(basis(random(2, 30, 6, generator=generator), Points()))
        torch.testing.assert_close(
            gram, identity(3).to(gram.dtype).expand_as(gram), rtol=0, atol=1e-12
        )

    def test_gradients_pass_through_the_factorisation(self, generator: torch.Generator) -> None:
        basis = self.made(1e-6)
        weights = torch.rand(1, 9, dtype=torch.float64, generator=generator) + 0.1
        x = random(1, 9, 12, generator=generator).requires_grad_()
        assert torch.autograd.gradcheck(lambda x: basis(x, Points(weights=weights)), (x,))


class TestFourierBasis:
    def test_functions_are_sines_and_cosines_of_the_position_in_the_box(
        self, generator: torch.Generator
    ) -> None:
        basis = FourierBasis([2], lower=0.1, upper=0.7).double()
        x = torch.rand(3, 8, 1, dtype=torch.float64, generator=generator)
        angle = 2 * math.pi * (x[..., 0] - 0.1) / 0.6
        waves = [angle.cos(), (2 * angle).cos(), angle.sin(), (2 * angle).sin()]
        expected = torch.stack([torch.ones_like(angle), *(math.sqrt(2) * w for w in waves)], dim=-1)
        values = basis(torch.zeros(3, 8, 4, dtype=torch.float64), Points(x))
        torch.testing.assert_close(values, expected[:, None], rtol=0, atol=1e-13)

    @pytest.mark.parametrize(
        ("modes", "lower", "upper"),
        [
            ((3,), 0.0, 1.0),
            ((2, 1), -1.0, 1.0),
            ((1, 3), (-1.0, 2.0), (3.0, 2.5)),
            ((1, 1, 1), 0.0, (1.0, 2.0, 0.5)),
        ],
        ids=["line", "square", "rectangle", "box"],
    )
    def test_functions_are_orthonormal_over_the_box(
        self,
        modes: tuple[int, ...],
        lower: float | tuple[float, ...],
        upper: float | tuple[float, ...],
    ) -> None:
        basis = FourierBasis(modes, lower=lower, upper=upper).double()
        corners = (
            corner if isinstance(corner, tuple) else (corner,) * len(modes)
            for corner in (lower, upper)
        )
        # The midpoint rule is exact for these functions with enough points.
        axes = [
            a + (b - a) * (torch.arange(9, dtype=torch.float64) + 0.5) / 9
            for a, b in zip(*corners, strict=True)
        ]
        positions = torch.cartesian_prod(*axes).reshape(1, -1, len(modes))
        features = torch.zeros(1, positions.shape[1], 4, dtype=torch.float64)
        values = basis(features, Points(positions))
        g = math.prod(2 * m + 1 for m in modes)
        assert values.shape == (1, 1, positions.shape[1], g)
        torch.testing.assert_close(inner_products(values)[0, 0], identity(g), rtol=0, atol=1e-12)

    @pytest.mark.parametrize("how", ["bfloat16 layer", "autocast"])
    def test_short_floats_do_not_spoil_the_phase(
        self, how: str, generator: torch.Generator
    ) -> None:
        positions = torch.rand(2, 50, 2, generator=generator)
        exact = FourierBasis([8, 8]).double()(torch.zeros(2, 50, 4).double(), Points(positions))
        basis, x = FourierBasis([8, 8]), torch.zeros(2, 50, 4)
        if how == "bfloat16 layer":
            basis, x = basis.bfloat16(), x.bfloat16()
        with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
            values = basis(x, Points(positions))
        assert (values - exact).abs().max() < 0.01

    @pytest.mark.parametrize("positions", [None, torch.zeros(1, 5, 3)], ids=["none", "space"])
    def test_positions_that_do_not_fit_are_refused(self, positions: Tensor | None) -> None:
        with pytest.raises(ValueError, match=r"positions: expected \(b, n, 2\) for modes \(3, 3\)"):
            FourierBasis([3, 3])(torch.zeros(1, 5, 4), Points(positions))

    @pytest.mark.parametrize("make", [FourierBasis, GridFourierBasis])
    @pytest.mark.parametrize("modes", [(), (0, 0), (-1,), (1, 1, 1, 1)])
    def test_modes_that_make_no_sense_are_refused(
        self, make: type[nn.Module], modes: tuple[int, ...]
    ) -> None:
        with pytest.raises(ValueError, match="modes: expected one wave number"):
            make(modes)


class TestGridFourierBasis:
    @pytest.mark.parametrize("maps", MAPS)
    @pytest.mark.parametrize("uneven", [False, True], ids=["plain", "masked and weighted"])
    @pytest.mark.parametrize(
        ("grid", "modes"),
        [((7,), (3,)), ((8,), (2,)), ((5, 6), (2, 1)), ((3, 4, 5), (1, 1, 2))],
        ids=str,
    )
    def test_a_layer_is_the_same_with_the_fast_transform_and_with_the_matrix(
        self,
        maps: str,
        uneven: bool,
        grid: tuple[int, ...],
        modes: tuple[int, ...],
        generator: torch.Generator,
    ) -> None:
        def results(basis: nn.Module, **options: object) -> dict[str, Tensor]:
            layer = lively(
                lambda: FunctionalAttention(
                    8, heads=2, basis=basis, maps=maps, projection="inner_product"
                )
            )
            return result_and_gradients(layer, x, mask=mask, weights=weights, **options)

        n = math.prod(grid)
        x = random(2, n, 8, generator=generator)
        mask = weights = None
        if uneven:
            mask = torch.rand(2, n, generator=generator) < 0.8
            weights = torch.rand(2, n, dtype=torch.float64, generator=generator)
        axes = [torch.arange(length, dtype=torch.float64) / length for length in grid]
        positions = torch.cartesian_prod(*axes).reshape(1, n, -1).expand(2, -1, -1)

        fast = results(GridFourierBasis(modes), grid=grid)
        plain = results(FourierBasis(modes), positions=positions)
        assert_same(fast, plain)

    def test_a_grid_too_coarse_for_the_modes_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"grid: expected at least \(7, 5\) points"):
            GridFourierBasis([3, 2])(torch.zeros(1, 30, 4), Points(grid=(6, 5)))

    @pytest.mark.parametrize("grid", [None, (12,), (3, 5)], ids=str)
    def test_a_grid_that_does_not_fit_is_refused(self, grid: tuple[int, ...] | None) -> None:
        with pytest.raises(ValueError, match="grid: expected 2 axis lengths"):
            GridFourierBasis([1, 1])(torch.zeros(1, 12, 4), Points(grid=grid))


class Hats(nn.Module):
    """Piecewise-linear hat functions of the position, at equally spaced nodes of [0, 1]."""

    def __init__(self, bases: int) -> None:
        super().__init__()
        self.bases = bases

    def forward(self, x: Tensor, points: Points) -> Tensor:
        nodes = torch.linspace(0, 1, self.bases, dtype=x.dtype)
        return (1 - (points.positions - nodes).abs() * (self.bases - 1)).relu().unsqueeze(1)


class Waves(nn.Module):
    """The complex exp(2 pi i k x) for k = -modes ... modes."""

    def __init__(self, modes: int) -> None:
        super().__init__()
        self.k = torch.arange(-modes, modes + 1)

    def forward(self, x: Tensor, points: Points) -> Tensor:
        phase = 2 * math.pi * (points.positions * self.k).to(x.dtype)
        return torch.polar(torch.ones_like(phase), phase).unsqueeze(1)


class Stored(nn.Module):
    """Values that were computed beforehand: the very same tensor at each call."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("values", values)

    def forward(self, x: Tensor, points: Points) -> Tensor:  # noqa: ARG002
        return self.values


@pytest.mark.parametrize("maps", MAPS)
class TestBasisOfTheUser:
    @staticmethod
    def layer(basis: nn.Module, maps: str, projection: str = "average") -> nn.Module:
        return lively(
            lambda: FunctionalAttention(8, heads=2, basis=basis, maps=maps, projection=projection)
        )

    def test_hat_functions_serve_self_attention(
        self, maps: str, generator: torch.Generator
    ) -> None:
        x = random(2, 30, 8, generator=generator)
        positions = torch.rand(2, 30, 1, dtype=torch.float64, generator=generator)
        results = result_and_gradients(self.layer(Hats(5), maps), x, positions=positions)
        assert results["out"].shape == x.shape
        assert all(r.isfinite().all() and r.any() for r in results.values())

    def test_hat_functions_serve_cross_attention_to_other_points(
        self, maps: str, generator: torch.Generator
    ) -> None:
        layer = self.layer(Hats(5), maps)
        x, context = random(2, 30, 8, generator=generator), random(2, 40, 8, generator=generator)
        here, there = torch.rand(2, 70, 1, dtype=torch.float64, generator=generator).split(
            [30, 40], dim=1
        )
        out = layer(x, context, positions=(here, there))
        twice = layer(x, torch.cat([context] * 2, 1), positions=(here, torch.cat([there] * 2, 1)))
        moved = layer(x, context, positions=(here, there.flip(1)))
        assert out.shape == x.shape
        torch.testing.assert_close(out, twice, rtol=0, atol=1e-12)
        assert (out - moved).abs().max() > 1e-3

    def test_complex_waves_do_what_sines_and_cosines_do(
        self, maps: str, generator: torch.Generator
    ) -> None:
        x = random(2, 30, 8, generator=generator)
        positions = torch.rand(2, 30, 1, dtype=torch.float64, generator=generator)
        waves, real = (
            result_and_gradients(self.layer(basis, maps, "inner_product"), x, positions=positions)
            for basis in (Waves(3), FourierBasis([3]))
        )
        assert waves["out"].dtype == torch.float64
        assert_same(waves, real)

    def test_stored_values_serve_a_context_on_the_same_points(
        self, maps: str, generator: torch.Generator
    ) -> None:
        layer = self.layer(Hats(5), maps)
        x, context = random(2, 2, 30, 8, generator=generator)
        positions = torch.rand(1, 30, 1, dtype=torch.float64, generator=generator).expand(2, -1, -1)
        mask = (None, torch.rand(2, 30, generator=generator) < 0.5)
        computed = [layer(x, source, positions=positions, mask=mask) for source in (context, x)]
        layer.basis = layer.key_basis = Stored(layer.basis(x, Points(positions)))
        for source, expected in zip((context, x), computed, strict=True):
            torch.testing.assert_close(layer(x, source, mask=mask), expected, rtol=0, atol=1e-12)
