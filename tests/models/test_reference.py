import copy
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from funcattn import OperatorTransformer, load_reference
from funcattn.nn import FunctionalAttention, GridConvolution, Pointwise, RawPositions
from funcattn.nn.baselines.transolver import TransolverAttention

DATA = Path(__file__).parent / "data"
GOLDEN = sorted(DATA.glob("*.npz"))
GRID, GRID_SHARED, POINT_SHARED = (
    DATA / f"funcattn_{name}.npz" for name in ("grid", "grid_shared", "point_shared")
)
TRANSOLVER_GRID, TRANSOLVER_POINT = (DATA / f"transolver_{name}.npz" for name in ("grid", "point"))

State = dict[str, Tensor]


def files(*paths: Path) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


def read(path: Path) -> tuple[State, dict[str, np.ndarray]]:
    arrays = dict(np.load(path))
    state = {k.removeprefix("state/"): torch.tensor(v) for k, v in arrays.items() if "state/" in k}
    return state, arrays


def run(model: OperatorTransformer, arrays: dict[str, np.ndarray]) -> Tensor:
    grid = json.loads(str(arrays["config"]))["grid"]
    values = arrays.get("input/fx")
    with torch.no_grad():
        return model(
            torch.tensor(arrays["input/x"]),
            None if values is None else torch.tensor(values),
            grid=None if grid is None else tuple(grid),
        )


def with_inputs(state: State, channels: int, generator: torch.Generator) -> State:
    """The network with another number of input channels, their weights random."""
    weight = torch.randn(64, channels, dtype=torch.float64, generator=generator)
    return state | {"preprocess.linear_pre.0.weight": weight}


def test_there_are_five_golden_files() -> None:
    assert GOLDEN == [GRID, GRID_SHARED, POINT_SHARED, TRANSOLVER_GRID, TRANSOLVER_POINT]


@files(*GOLDEN)
def test_agrees_with_the_public_network(path: Path) -> None:
    state, arrays = read(path)
    output = run(load_reference(state), arrays)
    assert output.dtype == torch.float64
    torch.testing.assert_close(output, torch.tensor(arrays["output"]), rtol=0, atol=1e-10)


class TestWhereTheStateComesFrom:
    @files(*GOLDEN)
    @pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
    def test_a_file_gives_what_its_state_gives(self, path: Path, new: bool, tmp_path: Path) -> None:
        state, arrays = read(path)
        file = tmp_path / "model.pt"
        torch.save(state, file, _use_new_zipfile_serialization=new)
        expected = run(load_reference(state), arrays)
        assert torch.equal(run(load_reference(file), arrays), expected)
        assert torch.equal(run(load_reference(str(file)), arrays), expected)

    def test_the_prefix_of_data_parallel_training_does_not_matter(self) -> None:
        state, arrays = read(GRID)
        prefixed = {f"module.{name}": tensor for name, tensor in state.items()}
        assert torch.equal(
            run(load_reference(prefixed), arrays), run(load_reference(state), arrays)
        )

    def test_numpy_arrays_will_do(self) -> None:
        state, arrays = read(POINT_SHARED)
        as_arrays = {name: tensor.numpy() for name, tensor in state.items()}
        assert torch.equal(
            run(load_reference(as_arrays), arrays), run(load_reference(state), arrays)
        )

    @files(*GOLDEN)
    def test_the_given_state_is_not_changed_by_loading_nor_by_training(self, path: Path) -> None:
        state, arrays = read(path)
        before = copy.deepcopy(state)
        model = load_reference(state)
        run(model, arrays)
        for parameter in model.parameters():
            parameter.data += 1
        assert state.keys() == before.keys()
        assert all(torch.equal(state[name], before[name]) for name in state)

    def test_a_missing_file_is_reported_as_such(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            load_reference(tmp_path / "nowhere.pt")


class Trap:
    """An object whose unpickling would leave a trace on the disk."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.trace,)


class TestBadFiles:
    def test_code_in_a_file_is_not_run(self, tmp_path: Path) -> None:
        file, trace = tmp_path / "model.pt", tmp_path / "trace"
        state, _ = read(GRID)
        torch.save(state | {"trap": Trap(trace)}, file)
        with pytest.raises(
            ValueError, match="checkpoint: expected a PyTorch file that holds tensors"
        ):
            load_reference(file)
        assert not trace.exists()
        torch.load(file, weights_only=False)
        assert trace.exists()  # so the trap was armed

    @pytest.mark.parametrize("part", [0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.9999])
    @pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
    def test_a_truncated_file_is_refused(self, part: float, new: bool, tmp_path: Path) -> None:
        file, (state, _) = tmp_path / "model.pt", read(GRID)
        torch.save(state, file, _use_new_zipfile_serialization=new)
        whole = file.read_bytes()
        file.write_bytes(whole[: int(part * len(whole))])
        with pytest.raises(ValueError, match="checkpoint: expected a PyTorch file"):
            load_reference(file)

    @pytest.mark.parametrize(
        "content",
        [
            b"hello world, this is not a network\n",
            b"<!DOCTYPE html><html>404 Not Found</html>",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 123\n",
            b"PK\x03\x04" + bytes(100),
            b"\x80\x02X\x04\x00\x00\x00\xff\xfe\xfd\xfc.",
            bytes(1000),
        ],
        ids=["text", "html", "git-lfs pointer", "zip", "pickle", "zeros"],
    )
    def test_a_file_of_another_kind_is_refused(self, content: bytes, tmp_path: Path) -> None:
        file = tmp_path / "model.pt"
        file.write_bytes(content)
        with pytest.raises(ValueError, match="checkpoint: expected a PyTorch file"):
            load_reference(file)

    @pytest.mark.parametrize(
        "content",
        [
            [torch.ones(2)],
            torch.ones(2),
            {"model": {"weight": torch.ones(2)}, "epoch": 3},
            {"weight": None},
            {"name": "text"},
            {3: torch.ones(2)},
            {},
        ],
        ids=["list", "tensor", "nested", "none", "text", "numbered", "empty"],
    )
    def test_a_file_that_holds_something_else_is_refused(
        self, content: object, tmp_path: Path
    ) -> None:
        file = tmp_path / "model.pt"
        torch.save(content, file)
        with pytest.raises(ValueError, match="checkpoint: expected "):
            load_reference(file)


class TestBadStates:
    @files(GRID, GRID_SHARED, POINT_SHARED)
    def test_functional_attention_that_lost_its_ridges_is_no_transolver(self, path: Path) -> None:
        state, _ = read(path)
        other = {name: tensor for name, tensor in state.items() if "alpha" not in name}
        with pytest.raises(ValueError, match="checkpoint: expected"):
            load_reference(other)
        other = {name: tensor for name, tensor in other.items() if not name.endswith("I_d")}
        with pytest.raises(ValueError, match=r"checkpoint: expected .*(in_project_slice|alpha)"):
            load_reference(other)

    @files(TRANSOLVER_GRID, TRANSOLVER_POINT)
    def test_a_transolver_with_a_ridge_is_refused(self, path: Path) -> None:
        state, _ = read(path)
        ridge = torch.tensor(0.0, dtype=torch.float64)
        with pytest.raises(ValueError, match="checkpoint: expected"):
            load_reference(state | {"blocks.0.Attn.alpha": ridge})

    def test_identities_without_ridges_are_refused(self) -> None:
        """Functional attention on points, each layer with its basis, that lost alpha only."""
        state, _ = read(TRANSOLVER_POINT)
        identity = torch.eye(8, dtype=torch.float64)[None]
        with pytest.raises(ValueError, match=r"checkpoint: expected .*blocks\.0\.Attn\.I_d"):
            load_reference(state | {"blocks.0.Attn.I_d": identity})

    def test_another_network_is_refused(self) -> None:
        with pytest.raises(ValueError, match="functional attention or Transolver network"):
            load_reference(torch.nn.Linear(2, 3).state_dict())

    @files(*GOLDEN)
    def test_a_missing_tensor_is_named(self, path: Path) -> None:
        state, _ = read(path)
        idle = {name for name in state if name.endswith("I_d")}
        if "grid" in path.stem:  # on grids with input values the constant vector is not used
            idle.add("placeholder")
        for name in state.keys() - idle:
            rest = {other: tensor for other, tensor in state.items() if other != name}
            with pytest.raises(ValueError, match="checkpoint: expected") as error:
                load_reference(rest)
            named = name in str(error.value)
            assert named or "functional attention or Transolver" in str(error.value), name

    @files(*GOLDEN)
    def test_identity_buffers_are_not_needed(self, path: Path) -> None:
        state, arrays = read(path)
        rest = {name: tensor for name, tensor in state.items() if not name.endswith("I_d")}
        assert torch.equal(run(load_reference(rest), arrays), run(load_reference(state), arrays))

    @pytest.mark.parametrize(
        "name", ["blocks.0.mlp.linears.0.0.weight", "blocks.0.Attn.beta", "decoder.weight"]
    )
    def test_a_surplus_tensor_is_named(self, name: str) -> None:
        state, _ = read(GRID)
        with pytest.raises(ValueError, match=name):
            load_reference(state | {name: torch.ones(32, dtype=torch.float64)})

    def test_a_tensor_of_another_shape_is_named(self) -> None:
        state, _ = read(POINT_SHARED)
        name = "blocks.1.mlp.linear_pre.0.weight"
        with pytest.raises(ValueError, match=name):
            load_reference(state | {name: state[name].T})

    def test_a_block_whose_number_is_not_one_is_refused(self) -> None:
        state, _ = read(GRID)
        with pytest.raises(ValueError, match="checkpoint: expected "):
            load_reference(state | {"blocks.last.ln_1.bias": torch.ones(32, dtype=torch.float64)})

    def test_fewer_input_channels_than_the_encoding_has_are_refused(
        self, generator: torch.Generator
    ) -> None:
        state, _ = read(POINT_SHARED)
        with pytest.raises(ValueError, match="encoding"):
            load_reference(with_inputs(state, 1, generator))


class TestConfiguration:
    @files(*GOLDEN)
    def test_is_found_in_the_tensors(self, path: Path) -> None:
        state, arrays = read(path)
        config = json.loads(str(arrays["config"]))
        model = load_reference(state)
        attention, second = (block.attention for block in model.blocks)
        shared = "shared" in path.stem
        transolver = "transolver" in path.stem
        assert isinstance(attention, TransolverAttention if transolver else FunctionalAttention)
        assert not model.training
        assert len(model.blocks) == config["n_layers"]
        assert model.inputs == config["fun_dim"]
        assert model.head.in_features == config["n_hidden"]
        assert model.head.out_features == config["out_dim"]
        assert attention.heads == config["n_head"]
        bases = config["slice_num" if transolver else "basis_num"]
        assert attention.basis.scores.out_features == bases
        assert model.blocks[0].mlp.expand.out_features == config["mlp_ratio"] * config["n_hidden"]
        assert isinstance(attention.features, GridConvolution if config["grid"] else Pointwise)
        assert (second.basis is attention.basis) == shared
        assert (second.features is attention.features) == shared
        assert second.to_query is not attention.to_query

    def test_the_number_of_blocks_may_have_two_digits(self) -> None:
        state, _ = read(POINT_SHARED)
        last = {name for name in state if "ln_3" in name or "mlp2" in name}
        longer = {name: tensor for name, tensor in state.items() if name not in last}
        for name, i in itertools.product(state, range(2, 11)):
            if name.startswith("blocks.1.") and name not in last:
                longer[name.replace("blocks.1.", f"blocks.{i}.")] = state[name]
        for name in last:
            longer[name.replace("blocks.1.", "blocks.10.")] = state[name]
        assert len(load_reference(longer).blocks) == 11

    @pytest.mark.parametrize(
        ("path", "free"),
        [
            (GRID, False),
            (GRID_SHARED, False),
            (POINT_SHARED, True),
            (TRANSOLVER_GRID, False),
            (TRANSOLVER_POINT, True),
        ],
        ids=lambda value: value.stem if isinstance(value, Path) else "",
    )
    def test_temperatures_run_free_in_transolver_and_shared_point_networks_only(
        self, path: Path, free: bool
    ) -> None:
        state, arrays = read(path)

        def at(temperature: float) -> Tensor:
            changed = {
                name: torch.full_like(tensor, temperature) if "temperature" in name else tensor
                for name, tensor in state.items()
            }
            return run(load_reference(changed), arrays)

        assert torch.equal(at(0.05), at(0.1)) != free
        assert torch.equal(at(7.0), at(5.0)) != free
        assert not torch.equal(at(0.2), at(0.1))

    @pytest.mark.parametrize("inputs", [0, 2])
    @files(GRID, POINT_SHARED, TRANSOLVER_GRID, TRANSOLVER_POINT)
    def test_the_placeholder_is_left_out_on_grids_with_input_values_only(
        self, path: Path, inputs: int, generator: torch.Generator
    ) -> None:
        state = with_inputs(read(path)[0], 2 + inputs, generator)
        positions = torch.rand(1, 12, 2, dtype=torch.float64, generator=generator)
        values = torch.rand(1, 12, 2, dtype=torch.float64, generator=generator) if inputs else None

        def result(state: State) -> Tensor:
            return load_reference(state)(positions, values, grid=(3, 4))

        used = "point" in path.stem or not inputs
        bias = state["preprocess.linear_post.bias"]
        replaced = state | {
            "placeholder": torch.zeros_like(bias),
            "preprocess.linear_post.bias": bias + state["placeholder"] if used else bias,
        }
        torch.testing.assert_close(result(state), result(replaced), rtol=0, atol=1e-12)

    @pytest.mark.parametrize("inputs", [0, 1, 3])
    @files(GRID, POINT_SHARED, TRANSOLVER_GRID, TRANSOLVER_POINT)
    def test_64_inputs_or_more_begin_with_the_distances_to_a_lattice_on_the_unit_square(
        self, path: Path, inputs: int, generator: torch.Generator
    ) -> None:
        model = load_reference(with_inputs(read(path)[0], 64 + inputs, generator))
        assert (model.space, model.inputs) == (2, inputs)
        nodes = [(i / 7, j / 7) for i, j in itertools.product(range(8), repeat=2)]
        positions = torch.rand(1, 12, 2, dtype=torch.float64, generator=generator)
        distances = [[math.dist(p, node) for node in nodes] for p in positions[0].tolist()]
        values = torch.rand(1, 12, inputs, dtype=torch.float64, generator=generator)
        values = values if inputs else None

        told = copy.deepcopy(model)
        told.space, told.encoding = 64, RawPositions(64)
        expected = told(torch.tensor([distances], dtype=torch.float64), values, grid=(3, 4))
        out = model(positions, values, grid=(3, 4))
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)

    def test_an_encoding_for_another_space_may_be_given(self, generator: torch.Generator) -> None:
        state = with_inputs(read(POINT_SHARED)[0], 4, generator)
        model = load_reference(state, encoding=RawPositions(3))
        assert model.inputs == 1
        positions, values = torch.rand(2, 5, 4, dtype=torch.float64, generator=generator).split(
            [3, 1], dim=-1
        )
        assert model(positions, values).shape == (2, 5, 1)

    def test_a_network_with_time_takes_one(self, generator: torch.Generator) -> None:
        state, arrays = read(POINT_SHARED)
        with pytest.raises(ValueError, match="time"):
            load_reference(state)(torch.tensor(arrays["input/x"]), time=torch.zeros(2).double())
        for name in ("time_fc.0", "time_fc.2"):
            state[f"{name}.weight"] = torch.randn(32, 32, generator=generator).double()
            state[f"{name}.bias"] = torch.randn(32, generator=generator).double()
        model = load_reference(state)
        assert torch.equal(model.time.expand.weight, state["time_fc.0.weight"])
        assert torch.equal(model.time.contract.bias, state["time_fc.2.bias"])
        positions = torch.tensor(arrays["input/x"])
        early, late = (model(positions, time=torch.full((2,), t).double()) for t in (0.1, 0.9))
        assert (early - late).abs().max() > 1e-3

    def test_a_float32_file_gives_a_float32_model(self, tmp_path: Path) -> None:
        state, arrays = read(GRID)
        file = tmp_path / "model.pt"
        torch.save({name: tensor.float() for name, tensor in state.items()}, file)
        model = load_reference(file)
        assert {p.dtype for p in model.parameters()} == {torch.float32}
        arrays |= {name: arrays[name].astype(np.float32) for name in ("input/x", "input/fx")}
        output = run(model, arrays)
        assert output.dtype == torch.float32
        torch.testing.assert_close(
            output.double(), torch.tensor(arrays["output"]), rtol=0, atol=1e-4
        )


@files(*GOLDEN)
def test_a_loaded_network_can_be_trained_on(path: Path) -> None:
    state, arrays = read(path)
    model = load_reference(state).train()
    grid = json.loads(str(arrays["config"]))["grid"]
    inputs = [torch.tensor(arrays[name]) for name in ("input/x", "input/fx") if name in arrays]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        out = model(*inputs, grid=None if grid is None else tuple(grid))
        loss = (out - torch.tensor(arrays["output"]).flip(1)).square().mean()
        loss.backward()
        assert all(p.grad is not None and p.grad.any() for p in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]
