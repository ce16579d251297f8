"""The parts of `FunctionalOperator`.

`PartitionAttention` is called as `FunctionalAttention` is, the branches on grids as
`branch(x, points)` with x (b n c).
"""

from funcattn.nn.operator.features import FourierFeatures, spread_on_grid
from funcattn.nn.operator.local import LocalStencil
from funcattn.nn.operator.metric import MetricAttention
from funcattn.nn.operator.partition import PartitionAttention
from funcattn.nn.operator.spectral import FourierMap, ModewiseMap
from funcattn.nn.operator.start import start_by_fan_in
from funcattn.nn.operator.surroundings import Surroundings

__all__ = [
    "FourierFeatures",
    "FourierMap",
    "LocalStencil",
    "MetricAttention",
    "ModewiseMap",
    "PartitionAttention",
    "Surroundings",
    "spread_on_grid",
    "start_by_fan_in",
]
