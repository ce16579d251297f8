"""One file per benchmark: data, split, loss, metric, the settings of the paper."""

from funcattn.tasks.base import TASKS, Splits, Task, register_task
from funcattn.tasks.solved import Generated, Solved

__all__ = ["TASKS", "Generated", "Solved", "Splits", "Task", "register_task"]
