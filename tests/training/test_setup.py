"""The size of a network before it is made."""

import pytest
import torch

from funcattn.models import MODELS, build_model
from funcattn.tasks import TASKS
from funcattn.training.settings import with_model
from funcattn.training.setup import without_numbers


@pytest.mark.parametrize("model", MODELS)
def test_a_network_without_numbers_has_all_tensors_of_the_network(model: str) -> None:
    settings = with_model(TASKS["darcy"].defaults("smoke", "modern"), model, "smoke")
    problem = TASKS["darcy"](settings).problem
    empty = without_numbers(settings, problem)
    real = build_model(model, settings.network, problem)

    def tensors(network: torch.nn.Module) -> dict[str, tuple[torch.Size, torch.dtype]]:
        both = [*network.named_parameters(), *network.named_buffers()]
        return {name: (tensor.shape, tensor.dtype) for name, tensor in both}

    assert tensors(empty) == tensors(real)
    assert all(p.is_meta for p in empty.parameters())
