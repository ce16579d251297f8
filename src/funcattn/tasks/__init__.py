"""One file a benchmark: data, split, loss, metric, the settings of the paper."""

from funcattn.tasks.base import Splits, Task
from funcattn.tasks.darcy import Darcy

TASKS: dict[str, type[Task]] = {task.name: task for task in (Darcy,)}

__all__ = ["TASKS", "Splits", "Task"]
