import errno
import multiprocessing
import shutil
import time
from collections import namedtuple
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from funcattn import FunctionalAttention, OperatorTransformer
from funcattn.models import Encoded, NormalisedNetwork, predict_streamed, streaming
from funcattn.nn import LearnedBasis
from funcattn.nn.baselines import SoftmaxAttention

pytestmark = pytest.mark.usefixtures("in_chunks")

N = 53
SMALL = partial(FunctionalAttention, heads=2, bases=5)
NAMED = (
    "transformer",
    "maps at points",
    "fourier",
    "shared basis",
    "lattice",
    "time",
    "cloud operator",
    "cloud operator time",
    "cloud operator around",
)


def two_bases(width: int, **options: Any) -> FunctionalAttention:
    return SMALL(width, key_basis=LearnedBasis(width, 2, 5), **options)


MODELS: dict[str, dict[str, Any]] = {
    "one head": {"attention": partial(SMALL, heads=1)},
    "transpose": {"attention": partial(SMALL, projection="transpose")},
    "inner product": {"attention": partial(SMALL, projection="inner_product")},
    "pseudo-inverse": {"attention": partial(SMALL, projection="pinv")},
    "plain execution": {"attention": partial(SMALL, execution="plain")},
    "two bases": {"attention": two_bases},
    "two bases, maps at points": {"attention": partial(two_bases, maps="points")},
    "no layer": {"layers": 0},
    **{name: {"name": name} for name in NAMED},
}


@pytest.fixture
def made(made: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Transformers with three layers and outputs, in evaluation."""

    def make(name: str = "transformer", **options: Any) -> nn.Module:
        return made(name, outputs=3, **({"layers": 3} | options)).eval()

    return make


@pytest.fixture
def mesh() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "positions": rng.random((N, 2)),
        "values": rng.normal(size=(N, 1)),
        "weights": rng.random(N) * (np.arange(N) > 9),  # the first chunk may weigh nothing
    }


def forward(
    model: OperatorTransformer | NormalisedNetwork,
    mesh: dict[str, Any],
    time: float | None = None,
) -> np.ndarray:
    dtype = next(model.parameters()).dtype
    tensors = {name: torch.from_numpy(array)[None].to(dtype) for name, array in mesh.items()}
    if time is not None:
        tensors["time"] = torch.tensor([time], dtype=dtype)
    with torch.no_grad():
        return model(**tensors)[0].numpy()


@pytest.mark.parametrize("disk", [True, False], ids=["scratch file", "recomputed"])
@pytest.mark.parametrize("name", MODELS)
def test_is_the_forward(
    name: str, disk: bool, mesh: dict[str, Any], tmp_path: Path, made: Any
) -> None:
    model = made(**MODELS[name])
    time = 0.3 if name.endswith("time") else None
    out = np.full((N, 3), np.nan)
    encoded = predict_streamed(
        model, **mesh, out=out, time=time, scratch=tmp_path if disk else None, chunk=7
    )
    np.testing.assert_allclose(out, forward(model, mesh, time), rtol=0, atol=1e-12)
    positions, values = (torch.from_numpy(mesh[key][:5])[None] for key in ("positions", "values"))
    np.testing.assert_allclose(
        model.query(encoded, positions, values)[0].detach(), out[:5], rtol=0, atol=1e-12
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("weighted", [True, False], ids=["weights", "no weights"])
@pytest.mark.parametrize("chunk", [3, 10, N, 1000])
@pytest.mark.parametrize("disk", [True, False], ids=["scratch file", "recomputed"])
@pytest.mark.parametrize("name", ["transformer", "cloud operator around"])
def test_the_size_of_the_chunks_changes_nothing(
    name: str,
    chunk: int,
    disk: bool,
    weighted: bool,
    mesh: dict[str, Any],
    tmp_path: Path,
    made: Any,
) -> None:
    if not weighted:
        del mesh["weights"]
    out = np.empty((N, 3))
    predict_streamed(made(name), **mesh, out=out, chunk=chunk, scratch=tmp_path if disk else None)
    np.testing.assert_allclose(out, forward(made(name), mesh), rtol=0, atol=1e-12)


@pytest.mark.parametrize("disk", [True, False], ids=["scratch file", "recomputed"])
@pytest.mark.parametrize("name", ["transformer", "cloud operator around"])
def test_is_the_forward_in_single_precision(
    name: str, disk: bool, mesh: dict[str, Any], tmp_path: Path, made: Any
) -> None:
    model = made(name).float()
    out = np.empty((N, 3), np.float32)
    predict_streamed(model, **mesh, out=out, chunk=11, scratch=tmp_path if disk else None)
    expected = forward(model, mesh)
    assert np.abs(out - expected).max() <= 1e-5 * np.abs(expected).max()


def test_normalisers_are_applied(mesh: dict[str, Any], tmp_path: Path, made: Any) -> None:
    model = NormalisedNetwork(
        made(), space=2, inputs=1, outputs=3, normalise_inputs=True, normalise_outputs=True
    ).double()
    rng = torch.Generator().manual_seed(0)
    fields = [torch.randn(20, k, generator=rng).double() * 3 + 5 for k in (2, 1, 3)]
    model.fit(*([field] for field in fields))
    model.eval()
    out = np.empty((N, 3))
    predict_streamed(model, **mesh, out=out, chunk=7, scratch=tmp_path)
    np.testing.assert_allclose(out, forward(model, mesh), rtol=0, atol=1e-11)


def test_from_files_to_a_file(mesh: dict[str, Any], tmp_path: Path, made: Any) -> None:
    expected = forward(made(), mesh)
    for name, array in mesh.items():
        # Another order in memory and of bytes, as files may have them.
        np.save(tmp_path / f"{name}.npy", np.asfortranarray(array).astype(">f8"))
    maps = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in mesh}
    predict_streamed(made(), **maps, out=tmp_path / "out.npy", chunk=9, scratch=tmp_path)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, rtol=0, atol=1e-12)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"positions.npy", "values.npy", "weights.npy", "out.npy"}


def test_into_a_memory_map(mesh: dict[str, Any], tmp_path: Path, made: Any) -> None:
    path = tmp_path / "out.npy"
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(N, 3))
    predict_streamed(made(), **mesh, out=out, chunk=9)
    np.testing.assert_allclose(np.load(path), forward(made(), mesh), rtol=0, atol=1e-12)


def test_a_mesh_is_encoded_without_fields(mesh: dict[str, Any], made: Any) -> None:
    model, seen = made(), []
    encoded = predict_streamed(
        model, **mesh, out=None, chunk=20, progress=lambda done, total: seen.append((done, total))
    )
    tensors = {name: torch.from_numpy(array)[None] for name, array in mesh.items()}
    for ours, theirs in zip(
        encoded.coefficients, model.encode(**tensors).coefficients, strict=True
    ):
        torch.testing.assert_close(ours, theirs.detach(), rtol=0, atol=1e-12)
    assert seen[-1] == (3 * N, 3 * N)


def test_progress_counts_every_pass(mesh: dict[str, Any], made: Any) -> None:
    seen: list[tuple[int, int]] = []
    predict_streamed(
        made(), **mesh, out=np.empty((N, 3)), chunk=20, progress=lambda *step: seen.append(step)
    )
    assert {total for _, total in seen} == {4 * N}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) == 4 * 3
    assert seen[-1][0] == 4 * N


def test_surroundings_are_a_pass_of_their_own(mesh: dict[str, Any], made: Any) -> None:
    seen: list[tuple[int, int]] = []
    model = made("cloud operator around")
    encoded = predict_streamed(
        model, **mesh, out=None, chunk=20, progress=lambda *step: seen.append(step)
    )
    assert seen[-1] == (4 * N, 4 * N)
    tensors = {name: torch.from_numpy(array)[None] for name, array in mesh.items()}
    torch.testing.assert_close(encoded.masses, model.encode(**tensors).masses, rtol=0, atol=1e-14)


def test_small_chunks_are_not_lost_beside_a_large_sum(made: Any) -> None:
    """2^25 + 1 = 2^25 in float32."""
    large, small = 2.0**25, 64
    positions = np.zeros((2 + small, 2))
    positions[0] = 1.0
    weights = np.array([large, large, *[1.0] * small])
    model = made("cloud operator around", inputs=0).float()
    masses = predict_streamed(model, positions, weights=weights, out=None, chunk=1).masses
    assert masses is not None
    assert masses[0, 0].item() == pytest.approx((large + small) / (2 * large + small), abs=1e-7)


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"positions": np.zeros((N, 3))}, r"positions: expected \(b, n, 2\), got \(1, 53, 3\)"),
        ({"positions": np.zeros((0, 2)), "values": np.zeros((0, 1))}, "at least one point"),
        ({"values": None}, r"values: expected \(1, 53, 1\), got None"),
        ({"values": np.zeros((N - 1, 1))}, r"values: expected \(1, 53, 1\), got \(1, 52, 1\)"),
        ({"weights": np.ones(N - 1)}, r"weights: expected \(53,\), got \(52,\)"),
        ({"weights": -np.ones(N)}, "weights: expected finite numbers, none of them negative"),
        ({"weights": np.full(N, np.nan)}, "weights: expected finite numbers"),
        ({"weights": np.zeros(N)}, "weights: expected a positive one, got none"),
        ({"time": 0.5}, "time: expected None"),
        ({"out": np.zeros((N, 2))}, r"out: expected an array \(53, 3\) of floating point"),
        ({"out": np.zeros((N, 3), int)}, "out: expected an array .* got .* of int64"),
        ({"out": np.broadcast_to(0.0, (N, 3))}, "out: expected an array .* that can be written"),
        ({"out": "fields.txt"}, r"out: expected a name that ends in .npy, got fields.txt"),
    ],
)
def test_what_does_not_fit_is_refused_with_an_explanation(
    mesh: dict[str, Any], changes: dict[str, Any], said: str, made: Any
) -> None:
    with pytest.raises(ValueError, match=said):
        predict_streamed(made(), **({"out": np.empty((N, 3))} | mesh | changes))


def test_a_network_in_training_is_refused(mesh: dict[str, Any], made: Any) -> None:
    with pytest.raises(ValueError, match=r"training mode; call model.eval\(\)"):
        predict_streamed(made().train(), **mesh, out=None)


def test_attention_without_coefficients_is_refused(mesh: dict[str, Any], made: Any) -> None:
    model = made(attention=partial(SoftmaxAttention, heads=2))
    with pytest.raises(ValueError, match="as FunctionalAttention, got SoftmaxAttention"):
        predict_streamed(model, **mesh, out=None)


Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize("which", ["scratch", "out"])
def test_a_disk_without_room_is_reported_before_the_work(
    mesh: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str, made: Any
) -> None:
    needed = N * 8 * 8 if which == "scratch" else N * 3 * 8
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, needed - 1))
    worked: list[object] = []
    with pytest.raises(OSError, match=f"{which}: expected room for {needed:,} bytes") as told:
        predict_streamed(
            made(),
            **mesh,
            out=tmp_path / "out.npy" if which == "out" else None,
            scratch=tmp_path if which == "scratch" else None,
            progress=lambda *step: worked.append(step),
        )
    assert told.value.errno == errno.ENOSPC
    assert not worked
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_disk_that_fills_up_is_reported(
    mesh: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Any
) -> None:
    with Path("/dev/full").open("r+b", buffering=0) as full:
        monkeypatch.setattr(streaming.tempfile, "TemporaryFile", lambda **_: full)
        with pytest.raises(OSError, match="scratch: expected to write all of it, got: No space"):
            predict_streamed(made(), **mesh, out=tmp_path / "out.npy", scratch=tmp_path)
    assert not list(tmp_path.iterdir())


def stream_until_killed(model: nn.Module, folder: Path, mesh: dict[str, Any]) -> None:
    def progress(done: int, total: int) -> None:
        if done > 0.9 * total:
            (folder / "now").touch()
            time.sleep(3600)

    predict_streamed(
        model, **mesh, out=folder / "out.npy", scratch=folder, chunk=5, progress=progress
    )


def test_killed_it_leaves_no_output_and_no_scratch(
    mesh: dict[str, Any], tmp_path: Path, made: Any, until: Callable[..., None]
) -> None:
    child = multiprocessing.get_context("fork").Process(
        target=stream_until_killed, args=(made(), tmp_path, mesh)
    )
    child.start()
    try:
        until(lambda: (tmp_path / "now").exists() or not child.is_alive())
        assert child.is_alive()
    finally:
        child.kill()
        child.join()
    assert {path.name for path in tmp_path.iterdir()} == {"now", f".{child.pid}.part.out.npy"}


def test_memory_holds_a_few_chunks_and_not_the_mesh(tmp_path: Path, made: Any) -> None:
    """No tensor is larger than the lift of a chunk, which is twice as wide as the features."""
    model = made(layers=2)
    positions = np.random.default_rng(0).random((2000, 2))
    largest = 0

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.device.type == "cpu":
                largest = max(largest, out.nbytes)
            return out

    with Watch():
        predict_streamed(
            model,
            positions,
            np.zeros((2000, 1)),
            out=tmp_path / "out.npy",
            scratch=tmp_path,
            chunk=100,
        )
    assert largest == 100 * 2 * 8 * 8
    assert np.load(tmp_path / "out.npy").shape == (2000, 3)


def test_an_encoded_mesh_is_kept_in_a_file(mesh: dict[str, Any], tmp_path: Path, made: Any) -> None:
    path = tmp_path / "mesh.safetensors"
    encoded = predict_streamed(made("time"), **mesh, out=None, time=0.25)
    encoded.save(path)
    again = Encoded.load(path)
    assert again.nbytes == encoded.nbytes == 3 * 2 * 5 * 4 * 8
    assert again.time is not None
    assert torch.equal(again.time, torch.tensor([0.25], dtype=torch.float64))
    for ours, theirs in zip(again.coefficients, encoded.coefficients, strict=True):
        assert torch.equal(ours, theirs)
    assert {file.name for file in tmp_path.iterdir()} == {path.name}
