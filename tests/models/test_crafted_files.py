"""Crafted and damaged files of networks and encoded meshes are refused by words."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from funcattn import load_reference
from funcattn.models import Encoded

State = dict[str, Tensor]
GOLDEN = sorted((Path(__file__).parent / "data").glob("*.npz"))

pytestmark = pytest.mark.usefixtures("as_a_user")


def public(path: Path) -> State:
    arrays = dict(np.load(path))
    return {k.removeprefix("state/"): torch.tensor(v) for k, v in arrays.items() if "state/" in k}


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "no axis": lambda t: t.flatten()[0],
    "one axis": Tensor.flatten,
    "an axis more": lambda t: t.unsqueeze(0),
    "nothing": lambda t: t[:0],
    "nothing within": lambda t: t[..., :0],
    "a row less": lambda t: t[1:],
    "a channel less": lambda t: t[..., 1:],
    "twice": lambda t: torch.cat([t, t]),
    "transposed": lambda t: t.transpose(0, -1),
    "infinite": lambda t: t / 0,
    "whole numbers": Tensor.long,
    "complex": lambda t: t + 1j,
    "truth values": Tensor.bool,
    "a terabyte": lambda t: torch.zeros(1).expand(10**6, 10**6),  # noqa: ARG005
    "very wide": lambda t: torch.zeros(10**6, 1, dtype=t.dtype),
}


READ = ("in_project_x", "in_project_slice.bias", "in_project_basis.bias", "temperature", "linear_",
        "mlp2", "placeholder", "alpha")  # fmt: skip
"""Parts of the names of tensors that the configuration is read off, or that are changed."""


def refusals(path: Path, change: str, names: Sequence[str]) -> int:
    """How often a state is refused with a tensor of it changed, each in turn."""
    state, refused = public(path), 0
    for name in names:
        crafted = state | {name: CHANGES[change](torch.atleast_1d(state[name]))}
        try:
            load_reference(crafted)
        except ValueError as error:
            refused += 1
            assert "expected" in str(error), error  # noqa: PT017
    return refused


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("path", GOLDEN[1:3], ids=lambda path: path.stem)
def test_no_public_state_whose_tensors_do_not_fit_gives_a_bare_error(
    path: Path, change: str
) -> None:
    names = [name for name in public(path) if any(part in name for part in READ)]
    assert refusals(path, change, names[:12]) > 2


@pytest.mark.full
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_nor_does_any_tensor_of_any(path: Path, change: str) -> None:
    assert refusals(path, change, list(public(path))) > 5


@pytest.fixture
def encoded(generator: torch.Generator) -> Encoded:
    real = torch.randn(1, 2, 3, 4, generator=generator)
    waves = torch.randn(1, 2, 3, 4, generator=generator, dtype=torch.complex64)
    masses = torch.rand(1, 5, generator=generator)
    return Encoded((real, waves), torch.tensor([0.5]), "a network", masses)


def test_a_damaged_mesh_is_the_same_or_refused(tmp_path: Path, encoded: Encoded) -> None:
    path = tmp_path / "mesh.safetensors"
    encoded.save(path)
    sound, rng, ends = path.read_bytes(), np.random.default_rng(0), []
    for number in range(600):
        data = bytearray(sound)
        place = int(rng.integers(len(data)))
        if number % 3 == 0:
            data[place] ^= 1 << int(rng.integers(8))
        elif number % 3 == 1:
            data[place : place + 8] = rng.bytes(8)
        else:
            del data[place : place + int(rng.integers(1, 64))]
        path.write_bytes(data)
        try:
            read = Encoded.load(path)
        except ValueError as error:
            ends.append("refused" if str(path) in str(error) else f"no file in {error}")
            continue
        same = (
            read.network == encoded.network
            and torch.equal(read.time, encoded.time)
            and torch.equal(read.masses, encoded.masses)
            and all(map(torch.equal, read.coefficients, encoded.coefficients))
        )
        ends.append("same" if same else f"other numbers in {number}")
    assert set(ends) <= {"same", "refused"}, set(ends)
    assert ends.count("refused") > 400


MADE = {"kind": "funcattn.encoded", "network": "a network"}
ONE = torch.ones(1, 2, 3, 4)


@pytest.mark.parametrize(
    ("tensors", "metadata"),
    [
        ({"real.0": ONE}, {"kind": "funcattn.encoded"}),
        ({"real.0": ONE}, MADE | {"sha256": "0"}),
        ({"real.0": ONE}, MADE | {"sha257": "0"}),
        ({"real": ONE}, MADE),
        ({"real.one": ONE}, MADE),
        ({"real.0.0": ONE}, MADE),
        ({"imaginary.0": ONE}, MADE),
        ({"real.1": ONE}, MADE),
        ({"real.0": ONE[0]}, MADE),
        ({"real.0": ONE / 0}, MADE),
        ({"real.0": ONE.long()}, MADE),
        ({"complex.0": ONE}, MADE),
        ({"complex.0": ONE[..., None]}, MADE),
        ({"real.0": ONE, "time": torch.tensor(1.0)}, MADE),
        ({"real.0": ONE, "time": torch.tensor([torch.nan])}, MADE),
        ({"real.0": ONE, "masses": torch.ones(3)}, MADE),
        ({"real.0": ONE, "masses": torch.ones(1, 3) / 0}, MADE),
    ],
)
def test_a_crafted_mesh_is_refused(
    tmp_path: Path, tensors: State, metadata: dict[str, str]
) -> None:
    path = tmp_path / "mesh.safetensors"
    save_file(tensors, path, metadata)
    with pytest.raises(ValueError, match=r"expected .* got") as refusal:
        Encoded.load(path)
    assert str(path) in str(refusal.value)


def test_a_mesh_of_an_earlier_version_has_no_digest_and_is_read(tmp_path: Path) -> None:
    save_file({"real.0": ONE}, tmp_path / "mesh.safetensors", MADE)
    read = Encoded.load(tmp_path / "mesh.safetensors")
    assert torch.equal(read.coefficients[0], ONE)
    assert read.masses is None
