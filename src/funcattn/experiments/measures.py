"""What a task's runs measure besides time and memory, by the name of the task."""

from collections.abc import Callable
from typing import Any

from funcattn.models import NormalisedNetwork
from funcattn.tasks.few_shot import error_by_observations


def _errors_by_observations(network: NormalisedNetwork) -> dict[str, Any]:
    errors = error_by_observations(network.eval())
    return {"mse": {str(size): error for size, error in errors.items()}}


MEASURES: dict[str, Callable[[NormalisedNetwork], dict[str, Any]]] = {
    "few_shot": _errors_by_observations
}
