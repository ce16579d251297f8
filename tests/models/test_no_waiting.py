"""On an accelerator, a network must not look at values: each look waits for the device."""

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from funcattn.models import OperatorTransformer
from funcattn.models.functional_operator import FunctionalOperator

LOOKS = {
    torch.ops.aten._local_scalar_dense.default,  # item(), bool(), float()
    torch.ops.aten.nonzero.default,
    torch.ops.aten.equal.default,
    torch.ops.aten.is_nonzero.default,
}


class NoLooking(TorchDispatchMode):
    """Refuses every operation whose result depends on the values of a device at once."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func in LOOKS:
            raise AssertionError(f"{func} looks at values")
        return func(*args, **(kwargs or {}))


NETWORKS = {
    "transformer": (lambda: OperatorTransformer(2, 1, 1, width=32, layers=2), None),
    "cloud": (lambda: FunctionalOperator(2, 1, 1, width=16, layers=2, bases=8), None),
    "grid": (lambda: FunctionalOperator(2, 1, 1, width=16, modes=4, grid=True), (20, 30)),
    "torus": (
        lambda: FunctionalOperator(2, 1, 1, width=16, modes=4, grid=True, periodic=True),
        (20, 30),
    ),
}


def inputs(device: str, **options: bool) -> dict[str, Tensor]:
    given = {
        "positions": torch.rand(2, 600, 2, device=device),
        "values": torch.rand(2, 600, 1, device=device),
    }
    if options["about_points"]:
        given["mask"] = torch.ones(2, 600, dtype=torch.bool, device=device)
        given["weights"] = torch.rand(2, 600, device=device)
    return given


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("about_points", [False, True], ids=["points", "masked and weighted"])
@pytest.mark.parametrize("few", [True, False], ids=["few points", "in chunks"])
def test_a_training_step_looks_at_no_value_of_a_device(
    name: str, about_points: bool, few: bool, request: pytest.FixtureRequest
) -> None:
    if not few:
        request.getfixturevalue("in_chunks")
    build, grid = NETWORKS[name]
    # Tensors without numbers, on no device: whoever looks at one has an error at once.
    network = build().to("meta")
    given = inputs("meta", about_points=about_points)
    with NoLooking():
        network(**given, grid=grid).square().mean().backward()
    for parameter in network.parameters():
        assert parameter.grad is not None
        assert parameter.grad.device.type == "meta"


def test_the_guard_sees_a_look() -> None:
    with NoLooking(), pytest.raises(AssertionError, match="looks at values"):
        bool(torch.ones(()) > 0)
