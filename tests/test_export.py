"""Networks taken out of Python: exported programs and ONNX files, at other sizes than traced."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from onnxruntime import InferenceSession
from rich.console import Console
from torch import Tensor, nn
from torch.export import Dim

from funcattn import FunctionalAttention, OperatorTransformer, functional_attention
from funcattn.cli.export import Export
from funcattn.data import Store, grid_positions, trapezoid_weights
from funcattn.export import to_onnx
from funcattn.models.blocks import Mlp
from funcattn.models.functional_operator import FunctionalOperator
from funcattn.nn import GridFourierBasis, LatticeDistances, LearnedBasis, OrthonormalBasis
from funcattn.serve import load
from funcattn.settings import changed
from funcattn.tasks.darcy import Darcy
from funcattn.training.run import train

# What is traced is code without the shape checks that only tests have.
pytestmark = pytest.mark.usefixtures("as_a_user")

TRACED = (3, 33)
OTHER_SIZES = [(1, 1), (1, 50), (5, 101)]
Inputs = Callable[[int, int], dict[str, Tensor]]


class Op(nn.Module):
    def forward(self, qkv: Tensor, basis: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        query, key, value = qkv.chunk(3, -1)
        return functional_attention(
            query, key, value, basis, basis, ridge=1e-2, mask=mask, weights=weights
        )


def network(width: int = 10, layers: int = 1, **attention: Any) -> OperatorTransformer:
    settings: dict[str, Any] = {"heads": 2, "bases": 7} | attention
    torch.manual_seed(0)
    return OperatorTransformer(
        2, 1, 1, width=width, layers=layers, attention=partial(FunctionalAttention, **settings)
    ).eval()


def operator(**settings: Any) -> FunctionalOperator:
    torch.manual_seed(0)
    return FunctionalOperator(2, 1, 1, width=10, layers=2, bases=7, **settings).eval()


surrounded = partial(operator, surroundings=1 / 8)


def on_a_lattice() -> OperatorTransformer:
    """Positions as distances to nodes, as tasks on grids and airfoils have them."""
    built = network()
    lattice = LatticeDistances(2, per_axis=3)
    built.encoding, built.lift = lattice, Mlp(lattice.channels + 1, 20, 10).eval()
    return built


def points(b: int, n: int) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(n)
    mask = torch.rand(b, n, generator=random) > 0.2
    mask[:, 0] = True
    return {"mask": mask, "weights": torch.rand(b, n, generator=random)}


def of_op(b: int, n: int) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(n)
    qkv = torch.randn(b, 2, n, 15, generator=random)
    return {"qkv": qkv, "basis": torch.randn(b, 2, n, 7, generator=random).softmax(-1)} | points(
        b, n
    )


def of_layer(b: int, n: int) -> dict[str, Tensor]:
    return {"x": torch.randn(b, n, 10, generator=torch.Generator().manual_seed(n))} | points(b, n)


def of_network(b: int, n: int) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(n)
    positions = torch.rand(b, n, 2, generator=random)
    values = torch.randn(b, n, 1, generator=random)
    return {"positions": positions, "values": values} | points(b, n)


def without_points(given: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: given[name] for name in ("positions", "values")}


MODULES: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "op": (Op, of_op),
    "layer": (lambda: FunctionalAttention(10, heads=2, bases=7).eval(), of_layer),
    "network": (network, of_network),
    "operator": (operator, of_network),
    "operator with surroundings": (surrounded, of_network),
    "operator without weights": (operator, lambda b, n: without_points(of_network(b, n))),
}


def run(path: Path, given: dict[str, Tensor]) -> Tensor:
    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    (out,) = session.run(None, {name: tensor.numpy() for name, tensor in given.items()})
    return torch.from_numpy(out)


def check_program(what: str, folder: Path, *, strict: bool) -> None:
    make, inputs = MODULES[what]
    module, given = make(), inputs(*TRACED)
    b, n = Dim("b"), Dim("n")
    shapes = {name: {0: b, t.ndim - 2 if t.ndim > 2 else 1: n} for name, t in given.items()}
    program = torch.export.export(module, (), given, dynamic_shapes=shapes, strict=strict)
    torch.export.save(program, folder / "program.pt2")
    again = torch.export.load(folder / "program.pt2").module()
    for size in OTHER_SIZES:
        given = inputs(*size)
        torch.testing.assert_close(again(**given), module(**given), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "what", ["network", *(pytest.param(w, marks=pytest.mark.full) for w in ("op", "layer"))]
)
def test_a_saved_program_takes_any_number_of_samples_and_points(what: str, tmp_path: Path) -> None:
    check_program(what, tmp_path, strict=False)


@pytest.mark.full
@pytest.mark.parametrize("what", MODULES)
def test_a_strictly_exported_program_does_too(what: str, tmp_path: Path) -> None:
    """In a process of its own, as the shape checks that only tests have cannot be compiled."""
    done = subprocess.run(
        [sys.executable, __file__, what, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(network, id="small", marks=pytest.mark.full),
        pytest.param(on_a_lattice, id="lattice"),
        pytest.param(operator, id="operator"),
        pytest.param(surrounded, id="surroundings"),
        pytest.param(partial(network, bases=3), id="primal", marks=pytest.mark.full),
        pytest.param(partial(network, projection="pinv"), id="pinv", marks=pytest.mark.full),
        pytest.param(partial(network, maps="points"), id="points", marks=pytest.mark.full),
        pytest.param(
            partial(network, width=128, layers=2, heads=8, bases=64),
            id="d16",
            marks=pytest.mark.full,
        ),
    ],
)
def test_an_onnx_file_does_what_the_network_does(
    model: Callable[[], nn.Module], tmp_path: Path
) -> None:
    network, path = model(), tmp_path / "model.onnx"
    to_onnx(network, path, of_network(1, 9))
    for size in OTHER_SIZES:
        given = of_network(*size)
        with torch.no_grad():
            expected = network(**given)
        assert (run(path, given) - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_an_onnx_file_of_our_network_on_a_grid_does_what_the_network_does(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = FunctionalOperator(2, 1, 1, width=8, layers=1, modes=10, grid=True).eval()
    path, grid = tmp_path / "model.onnx", (12, 13)
    positions = torch.cartesian_prod(*(torch.linspace(0, 1, n) for n in grid))
    given = {"positions": positions.expand(2, -1, -1), "values": torch.randn(2, 156, 1)}
    to_onnx(model, path, given, grid=grid)
    with torch.no_grad():
        expected = model(**given, grid=grid)
    assert (run(path, given) - expected).abs().max() <= 1e-5 * expected.abs().max()


GRID_FOURIER = {"basis": GridFourierBasis([1, 1]), "projection": "inner_product"}
ORTHONORMAL = {"basis": OrthonormalBasis(LearnedBasis(10, 2, 7)), "projection": "inner_product"}
REFUSED: dict[str, tuple[Callable[[], nn.Module], dict[str, Any], str]] = {
    "fft": (partial(network, **GRID_FOURIER), {"grid": (3, 3)}, "expected real numbers throughout"),
    "training": (lambda: network().train(), {}, r"call model.eval\(\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_onnx_cannot_say_is_refused_and_leaves_nothing(case: str, tmp_path: Path) -> None:
    model, more, says = REFUSED[case]
    with pytest.raises(ValueError, match=says):
        to_onnx(model(), tmp_path / "model.onnx", of_network(2, 9), **more)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_an_operation_that_onnx_does_not_have_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"linalg.*use `torch.export`"):
        to_onnx(network(**ORTHONORMAL), tmp_path / "model.onnx", of_network(2, 9))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_survives_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_text("old")
    with pytest.raises(ValueError, match="expected at least two points"):
        to_onnx(network(), path, of_network(2, 1))
    assert path.read_text() == "old"


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ends in \.onnx"):
        to_onnx(network(), tmp_path / "model.pt", of_network(2, 9))


@pytest.mark.full
@pytest.mark.parametrize("network", [{}, {"reach": None}], ids=["stencils", "points"])
def test_a_trained_run_is_exported_in_real_units(
    network: dict[str, Any], store: Store, tmp_path: Path
) -> None:
    changes = {"optimisation": {"epochs": 1}, "network": network}
    settings = changed(Darcy.defaults("smoke", "modern"), changes)
    folder, path = tmp_path / "run", tmp_path / "model.onnx"
    train(settings, folder, store=store)
    Export(folder, path).run([], Console(quiet=True))
    predictor = load(folder)
    sizes = [predictor.task.grid] if network == {} else [predictor.task.grid, (7, 5)]
    low, high = predictor.surrogate.value_range
    for grid in sizes:
        assert grid is not None
        positions = grid_positions(grid).expand(3, -1, -1).float()
        share = torch.rand(3, positions.shape[1], 1, generator=torch.Generator().manual_seed(0))
        values = low + (high - low) * share
        expected = predictor.predict(positions, values, grid=grid)
        weights = trapezoid_weights(grid).expand(3, -1)  # which the network was trained with
        got = run(path, {"positions": positions, "values": values, "weights": weights})
        assert (got - expected).abs().max() <= 1e-5 * expected.abs().max()


if __name__ == "__main__":
    check_program(sys.argv[1], Path(sys.argv[2]), strict=True)
