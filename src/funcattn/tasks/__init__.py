"""One file a benchmark: data, split, loss, metric, the settings of the paper."""

from funcattn.tasks.base import Splits, Task
from funcattn.tasks.darcy import Darcy
from funcattn.tasks.few_shot import FewShot
from funcattn.tasks.rna import Rna

TASKS: dict[str, type[Task]] = {task.name: task for task in (Darcy, FewShot, Rna)}

__all__ = ["TASKS", "Splits", "Task"]
