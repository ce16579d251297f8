"""One file a benchmark: data, split, loss, metric, the settings of the paper."""

from funcattn.tasks.airfoil import Airfoil
from funcattn.tasks.airfrans import Airfrans
from funcattn.tasks.base import Splits, Task
from funcattn.tasks.burgers import Burgers
from funcattn.tasks.darcy import Darcy
from funcattn.tasks.darcy_notch import DarcyNotch
from funcattn.tasks.elasticity import Elasticity
from funcattn.tasks.few_shot import FewShot
from funcattn.tasks.navier_stokes import NavierStokes
from funcattn.tasks.pipe import Pipe
from funcattn.tasks.plasticity import Plasticity
from funcattn.tasks.rna import Rna
from funcattn.tasks.solved import Generated, Solved

TASKS: dict[str, type[Task]] = {
    task.name: task
    for task in (
        FewShot,
        Burgers,
        Darcy,
        DarcyNotch,
        NavierStokes,
        Elasticity,
        Plasticity,
        Airfoil,
        Pipe,
        Airfrans,
        Rna,
    )
}

__all__ = ["TASKS", "Generated", "Solved", "Splits", "Task"]
