"""What every registered network has to do, one test each, over all of them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from funcattn.models import MODELS, ModelEntry, build_model, matrices_for_muon
from funcattn.models.deeponet import DeepONetSettings
from funcattn.models.fno import FNOSettings
from funcattn.models.lno import LNOSettings
from funcattn.models.matrices import is_matrix, parameters_for_adamw, stacks_for_muon
from funcattn.models.mlp import MLPSettings
from funcattn.models.pod_deeponet import PODDeepONet
from funcattn.models.transformers import MechanismSettings
from funcattn.nn import (
    FourierBasis,
    FunctionalAttention,
    GridFourierBasis,
    LearnedBasis,
    OrthonormalBasis,
)
from funcattn.nn.attentions import ATTENTIONS
from funcattn.nn.baselines.transolver import GalerkinCoefficients, TransolverAttention
from funcattn.problem import Field, Problem
from funcattn.settings import (
    FunctionalSettings,
    NetworkSettings,
    Profile,
    SizedAttentionSettings,
)
from funcattn.training.checkpoint import model_tensors, restore_model
from funcattn.training.muon import matrices_of

TINY = FunctionalSettings(width=16, layers=2, heads=2, bases=4)
GRID = (9, 8)
POINTS = 72


def problem(inputs: int, outputs: int, **more: Any) -> Problem:
    given = (Field("a", inputs),) if inputs else ()
    return Problem(2, given, (Field("u", outputs),), **more)


@dataclass(frozen=True)
class Fields:
    """A small task."""

    problem: Problem
    grid: tuple[int, ...] | None
    points: int

    def batch(self, samples: int, seed: int = 0) -> dict[str, Tensor]:
        random = torch.Generator().manual_seed(seed)
        s, i = self.problem.space, self.problem.input_channels
        if self.grid is None:
            positions = torch.rand(samples, self.points, s, generator=random)
        else:
            axes = [torch.linspace(0, 1, length) for length in self.grid]
            positions = torch.cartesian_prod(*axes).expand(samples, -1, -1)
        given = {"positions": positions}
        if i:
            given["values"] = torch.randn(samples, self.points, i, generator=random)
        if self.problem.time:
            given["time"] = torch.rand(samples, generator=random)
        return given


TASKS = {
    "grid": Fields(problem(1, 2, grid=True, points=POINTS), GRID, POINTS),
    "timed_grid": Fields(problem(1, 2, time=True, grid=True, points=POINTS), GRID, POINTS),
    "points": Fields(problem(1, 2, points=POINTS), None, POINTS),
    "geometry": Fields(problem(0, 1, points=POINTS), None, POINTS),
}


def built(model: str, task: Fields) -> nn.Module:
    settings = MODELS[model].settings(task.problem, TINY, profile="smoke")
    torch.manual_seed(0)
    return build_model(model, settings, task.problem)


def pairs() -> Iterator[tuple[str, str]]:
    for name, task in TASKS.items():
        for model, entry in MODELS.items():
            if entry.refusal(task.problem) is None:
                yield model, name


every_pair = pytest.mark.parametrize(("model", "task"), list(pairs()))
every_model = pytest.mark.parametrize(
    "model", [name for name, entry in MODELS.items() if entry.fields is not None]
)


def call(network: nn.Module, task: Fields, given: dict[str, Tensor], **more: Tensor) -> Tensor:
    return network(
        given["positions"],
        given.get("values"),
        grid=task.grid,
        **{"time": given["time"]} if "time" in given else {},
        **more,
    )


@every_pair
def test_output_has_a_row_per_point_and_every_parameter_gets_a_gradient(
    model: str, task: str
) -> None:
    fields = TASKS[task]
    # Doubles: at the start some gradients are too small for single precision.
    network = built(model, fields).double()
    given = {name: tensor.double() for name, tensor in fields.batch(3).items()}
    out = call(network, fields, given)
    assert out.shape == (3, fields.points, fields.problem.output_channels)
    assert out.isfinite().all()
    (out * torch.randn_like(out)).sum().backward()
    grads = {name: p.grad for name, p in network.named_parameters()}
    if model == "no_attention":  # the norms before nothing have nothing to do
        grads = {name: grad for name, grad in grads.items() if "attention_norm" not in name}
    assert [name for name, grad in grads.items() if grad is None or not grad.any()] == []
    assert all(grad.isfinite().all() for grad in grads.values())


@every_pair
def test_a_sample_does_not_see_its_neighbours_in_the_batch(model: str, task: str) -> None:
    fields = TASKS[task]
    network = built(model, fields).double().eval()
    given = {name: tensor.double() for name, tensor in fields.batch(3).items()}
    together = call(network, fields, given)
    for b in range(3):
        alone = call(network, fields, {name: t[b : b + 1] for name, t in given.items()})
        torch.testing.assert_close(together[b : b + 1], alone, rtol=1e-9, atol=1e-11)


@every_pair
def test_saved_and_loaded_it_is_the_same(model: str, task: str, tmp_path: Path) -> None:
    fields = TASKS[task]
    network = built(model, fields).eval()
    save_file(model_tensors(network), tmp_path / "a")
    torch.manual_seed(1)
    settings = MODELS[model].settings(fields.problem, TINY, profile="smoke")
    other = build_model(model, settings, fields.problem).eval()
    given = fields.batch(2)
    assert not torch.equal(call(network, fields, given), call(other, fields, given))
    restore_model(other, load_file(tmp_path / "a"))
    assert torch.equal(call(network, fields, given), call(other, fields, given))


@pytest.mark.parametrize(("model", "task"), [(m, t) for m, t in pairs() if "grid" not in t])
def test_padding_changes_nothing_or_is_refused(model: str, task: str) -> None:
    fields = TASKS[task]
    network = built(model, fields).double().eval()
    given = {name: tensor.double() for name, tensor in fields.batch(2).items()}
    mask = torch.ones(2, fields.points, dtype=torch.bool)
    mask[1, 50:] = False
    if MODELS[model].needs_size and model != "linformer":
        with pytest.raises(ValueError, match="mask"):
            call(network, fields, given, mask=mask)
        return
    padded = call(network, fields, given, mask=mask)
    noise = {name: tensor.clone() for name, tensor in given.items()}
    for tensor in noise.values():
        tensor[1, 50:] += 7.0
    torch.testing.assert_close(
        call(network, fields, noise, mask=mask)[mask], padded[mask], rtol=1e-9, atol=1e-11
    )
    if model == "linformer":
        return  # its projections belong to places in the list: the others stay where they are
    alone = call(network, fields, {name: t[1:, :50] for name, t in given.items()})
    torch.testing.assert_close(padded[1:, :50], alone, rtol=1e-8, atol=1e-10)


@every_model
@pytest.mark.parametrize("grid", [(17, 16), (12, 10)], ids=str)
def test_another_resolution_is_taken_or_refused(model: str, grid: tuple[int, int]) -> None:
    n = grid[0] * grid[1]
    network = built(model, TASKS["grid"]).eval()
    finer = Fields(problem(1, 2, grid=True), grid, n)
    given = finer.batch(1)
    if MODELS[model].needs_size:
        with pytest.raises(ValueError, match=f"{POINTS}"):
            call(network, finer, given)
    else:
        assert call(network, finer, given).shape == (1, n, 2)


@every_model
def test_it_learns_four_samples_by_heart(model: str) -> None:
    on_grid = MODELS[model].needs_grid or MODELS[model].needs_size
    fields = TASKS["grid" if on_grid else "points"]
    larger: dict[str, NetworkSettings] = {
        "mlp": MLPSettings(width=128, layers=3),
        "deeponet": DeepONetSettings(width=128, layers=3, bases=32),
    }
    tiny = MODELS[model].settings(fields.problem, TINY, profile="smoke")
    torch.manual_seed(0)
    network = build_model(model, larger.get(model, tiny), fields.problem)
    given = fields.batch(4)
    # What a point should say depends on its place, its value and the mean of all values, which
    # are smooth: networks with few latents or modes see no others.
    x, phase = given["positions"], torch.arange(4.0)[:, None, None]
    given["values"] = u = (3 * x.sum(-1, keepdim=True) + phase).sin()
    target = torch.cat([u * x[..., :1] + u.mean(1, keepdim=True), (3 * x[..., 1:]).sin()], -1)
    if isinstance(network, PODDeepONet):
        network.fit_to(target)
    optimiser = torch.optim.Adam(network.parameters(), 5e-3)
    losses: list[float] = []
    while len(losses) < 600 and (not losses or losses[-1] > 0.1 * losses[0]):
        optimiser.zero_grad()
        loss = (call(network, fields, given) - target).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] <= 0.1 * losses[0]


def test_what_a_network_cannot_take_is_reported() -> None:
    cloud = problem(0, 1)
    with pytest.raises(ValueError, match=r"got 'fno': it needs points on a grid"):
        build_model("fno", TINY, cloud)
    for model in ("linformer", "deeponet", "pod_deeponet"):
        with pytest.raises(ValueError, match=rf"got '{model}': it needs the same number of points"):
            build_model(model, TINY, cloud)
    with pytest.raises(ValueError, match=r"which .*funcattn.* do, got 'lno': it does not take obs"):
        build_model("lno", TINY, problem(0, 1, context=True))
    with pytest.raises(ValueError, match=r"model: expected one of funcattn, .*, got 'gnn'"):
        MODELS.named("gnn")
    with pytest.raises(ValueError, match=r"got 'transolve'; did you mean transolver\?"):
        MODELS.named("transolve")


def test_settings_of_another_network_are_refused() -> None:
    on_grid = problem(1, 1, grid=True)
    with pytest.raises(ValueError, match=r"expected FNOSettings for 'fno', got FunctionalSettings"):
        build_model("fno", TINY, on_grid)


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match=r"model: expected a name that is not taken, got 'mlp'"):
        MODELS.register("mlp", ModelEntry("another"))
    assert MODELS["mlp"].title != "another"


@every_model
def test_no_matrix_falls_to_adamw_unless_the_network_says_so(model: str) -> None:
    task = TASKS["timed_grid"]
    settings = MODELS[model].settings(task.problem, replace(TINY, reach=1 / 8), profile="smoke")
    network = build_model(model, settings, task.problem)
    names = {id(p): name for name, p in network.named_parameters()}
    with_muon = {names[id(p)] for p in matrices_of(network)}
    with_adamw = {names[id(p)] for p in parameters_for_adamw(network)}
    assert not with_muon & with_adamw
    inner = {name for name, p in network.named_parameters() if is_matrix(p)}
    assert inner <= with_muon | with_adamw
    assert with_muon


@every_model
def test_plain_muon_is_the_default_where_it_takes_every_matrix(model: str) -> None:
    network = built(model, TASKS["grid"])
    declared = matrices_for_muon(network)
    assert all(p.ndim == 2 for p in declared)
    assert len({id(p) for p in declared}) == len(declared)
    if model != "functional_operator":  # whose mode-wise maps plain Muon leaves to AdamW
        assert MODELS[model].muon == (bool(declared) and not stacks_for_muon(network))


@pytest.mark.parametrize("model", ["funcattn", *ATTENTIONS])
def test_muon_moves_the_matrices_of_the_blocks_as_ever(model: str) -> None:
    network = built(model, TASKS["grid"])
    declared = {id(p) for p in matrices_for_muon(network)}
    assert {name for name, p in network.named_parameters() if id(p) in declared} == {
        name for name, p in network.named_parameters() if name.startswith("blocks.") and p.ndim == 2
    }


@pytest.mark.parametrize(
    ("model", "adamw"),
    [
        ("lno", set()),
        ("deeponet", set()),
        ("mlp", {"network.0.weight", "network.4.weight"}),
    ],
)
def test_what_adamw_keeps_of_matrices(model: str, adamw: set[str]) -> None:
    network = built(model, TASKS["grid"])
    declared = matrices_for_muon(network)
    left = {
        name for name, p in network.named_parameters() if p.ndim == 2 and p not in set(declared)
    }
    assert left == adamw


@pytest.mark.parametrize("grid", [GRID, None], ids=["grid", "points"])
@pytest.mark.parametrize(
    ("basis", "on_grid", "on_points", "projection"),
    [
        ("learned", LearnedBasis, LearnedBasis, "average"),
        ("orthonormal", OrthonormalBasis, OrthonormalBasis, "inner_product"),
        ("fourier", GridFourierBasis, FourierBasis, "inner_product"),
    ],
)
def test_functional_attention_has_the_basis_that_is_asked_for(
    basis: Any,
    on_grid: type[nn.Module],
    on_points: type[nn.Module],
    projection: str,
    grid: tuple[int, ...] | None,
) -> None:
    asked = problem(1, 1, grid=grid is not None, lower=-1.0, upper=2.0)
    network = build_model("funcattn", replace(TINY, bases=9, basis=basis), asked)
    layer = network.get_submodule("blocks.0.attention")
    assert isinstance(layer, FunctionalAttention)
    assert type(layer.basis) is (on_points if grid is None else on_grid)
    assert layer.projection == projection
    assert network(torch.rand(1, POINTS, 2), torch.rand(1, POINTS, 1), grid=grid).isfinite().all()


@pytest.mark.parametrize("grid", [GRID, None], ids=["grid", "points"])
@pytest.mark.parametrize("mechanism", ["softmax", "galerkin"])
@pytest.mark.parametrize("basis", ["learned", "orthonormal", "fourier"])
def test_mechanisms_stand_on_the_bases_of_functional_attention(
    basis: Any, mechanism: Any, grid: tuple[int, ...] | None
) -> None:
    asked = problem(1, 1, grid=grid is not None)
    settings = MechanismSettings(
        width=16, layers=2, heads=2, bases=9, basis=basis, mechanism=mechanism
    )
    torch.manual_seed(0)
    network = build_model("coefficient_attention", settings, asked)
    ours = build_model("funcattn", replace(TINY, bases=9, basis=basis), asked)
    layer, other = (n.get_submodule("blocks.0.attention") for n in (network, ours))
    assert isinstance(layer, TransolverAttention)
    assert isinstance(layer, GalerkinCoefficients) == (mechanism == "galerkin")
    assert type(layer.basis) is type(other.basis)
    assert layer.projection == other.projection
    given = torch.rand(1, POINTS, 2), torch.rand(1, POINTS, 1)
    out = network(*given, grid=grid)
    assert out.isfinite().all()
    if basis == "learned" and mechanism == "softmax":
        torch.manual_seed(0)
        transolver = build_model(
            "transolver", SizedAttentionSettings(width=16, layers=2, heads=2, bases=9), asked
        )
        assert torch.equal(transolver(*given, grid=grid), out)


@pytest.mark.parametrize("projection", ["transpose", "pinv"])
def test_functional_attention_has_the_projection_that_is_asked_for(projection: Any) -> None:
    network = build_model("funcattn", replace(TINY, projection=projection), problem(0, 1))
    layer = network.get_submodule("blocks.0.attention")
    assert isinstance(layer, FunctionalAttention)
    assert layer.projection == projection


@every_model
def test_settings_of_a_network_are_its_own_where_it_has_some(model: str) -> None:
    entry = MODELS[model]
    task = FunctionalSettings(width=96, layers=8, bases=48, lattice=8)
    profiles: dict[Profile, Any] = {"paper": entry.published, "cpu": entry.small}
    profiles["smoke"] = entry.tiny
    for profile, own in profiles.items():
        found = entry.settings(problem(1, 1), task, task="plasticity", profile=profile)
        for name, value in own.items():
            assert getattr(found, name) == value
        if not entry.published:
            names = {f.name for f in dataclass_fields(found)} & {
                f.name for f in dataclass_fields(task)
            }
            assert {"width", "layers", "lattice"} <= names
            assert all(getattr(found, name) == getattr(task, name) for name in names)


@pytest.mark.parametrize("model", MODELS)
def test_numbers_that_no_network_can_be_built_with_are_refused(model: str) -> None:
    forms = [form for form in (MODELS[model].fields, MODELS[model].observations) if form]
    for kind in {form.settings for form in forms}:
        numbers = [f for f in dataclass_fields(kind) if type(f.default) in (int, float)]
        assert numbers
        for f in numbers:
            least = 1 if f.type is int and f.name != "depth" else 0
            deep = f.name in ("layers", "depth", "iterations", "mlp_ratio")
            most = 1 if f.name == "dropout" else 256 if deep else 2**20
            for value in map(type(f.default), (least - 1, most + 1)):
                said = f"{f.name}: expected a number from {least} to {most}, got {value}"
                with pytest.raises(ValueError, match=said):
                    kind(**{f.name: value})


def test_published_settings_are_those_of_the_papers() -> None:
    def published(model: str, task: str) -> NetworkSettings:
        return MODELS[model].settings(
            problem(1, 1), FunctionalSettings(), task=task, profile="paper"
        )

    assert published("fno", "darcy") == FNOSettings(width=32, layers=4, modes=12)
    assert published("fno", "burgers") == FNOSettings(width=64, layers=4, modes=16)
    assert published("fno", "navier_stokes") == FNOSettings(width=20, layers=4, modes=12)
    lno = LNOSettings(width=128, layers=4, heads=8, bases=256)
    assert published("lno", "darcy") == lno


def test_every_network_names_its_paper_and_what_it_takes() -> None:
    for name, entry in MODELS.items():
        assert entry.takes
        assert entry.when.endswith(".")
        assert entry.paper or name in ("functional_operator", "no_attention", "mlp")
        if entry.paper:
            assert entry.paper[-4:].isdigit(), name
