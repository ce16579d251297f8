"""POD-DeepONet: the solution by the principal components of the training data.

Axes: b batch, n point, o output channel, p basis function, t snapshot.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from funcattn.models.base import FieldNetwork
from funcattn.models.deeponet import DeepONetSettings, sensors_of
from funcattn.models.mlp import perceptron
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.models.starts import glorot
from funcattn.nn.points import Points


class PODDeepONet(FieldNetwork):
    """DeepONet whose trunk is the proper orthogonal decomposition (Lu et al., CMAME 2022).

        G(u)(x_j) = phi_0(x_j) + sum over k of branch_k(u) phi_k(x_j)

    phi_0 is the mean of the training data at the points, phi_k are their principal components,
    orthogonal over points and channels. They come from `fit_to`, which whoever fits the normalisers
    calls; before that they are drawn at random. The branch is a perceptron on the values at all
    points, and the time where there is one; where there are no values, on the positions.

    sensors: the number of points, which all samples have in the same places. bases: functions, of
    which there are at most as many as snapshots. width, layers: hidden channels and layers.

    Relative to the paper: a function is as long as the deviation of its coefficient in the training
    data, so that all outputs of the branch have one size; all frames of a sample are snapshots, and
    the time goes into the branch; GELU, and no convolutions in the branch.

    >>> import torch
    >>> network = PODDeepONet(space=2, inputs=1, outputs=1, sensors=50, width=16, bases=4)
    >>> network(torch.rand(3, 50, 2), torch.randn(3, 50, 1)).shape
    torch.Size([3, 50, 1])
    """

    takes_mask = False
    mean: Tensor
    functions: Tensor
    for_adamw = ()

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        sensors: int,
        width: int = 128,
        layers: int = 3,
        bases: int = 20,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        for name, number in {"sensors": sensors, "bases": bases}.items():
            if number < 1:
                raise ValueError(f"{name}: expected at least 1, got {number}")
        self.sensors = sensors
        self.branch = perceptron(sensors * (inputs or space) + time, width, bases, layers=layers)
        glorot(self.branch)
        self.register_buffer("mean", torch.zeros(sensors, outputs))
        self.register_buffer("functions", torch.randn(bases, sensors, outputs))

    @torch.no_grad()
    def fit_to(self, targets: Iterable[Float[Tensor, "rows o"]]) -> None:
        """Take mean and components from the training data, as the network is to give them.

        targets: a sample each, points first, then its frames; what is not known is NaN, and counts
        as the mean of its channel.
        """
        frames = [t.unflatten(0, (self.sensors, -1)).movedim(1, 0) for t in targets]  # (t, n, o)
        data = torch.cat(frames).double().nan_to_num(0.0)
        mean = data.mean(0)
        _, lengths, rows = torch.linalg.svd((data - mean).flatten(1), full_matrices=False)
        count = min(len(self.functions), len(rows))
        components = lengths[:count, None] * rows[:count] / len(data) ** 0.5
        self.mean.copy_(mean)
        self.functions.zero_()
        self.functions[:count] = components.unflatten(-1, mean.shape).to(self.functions)

    def fields(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n o"]:
        """The mean and the sum over the components."""
        seen = points.positions if values is None else values
        assert seen is not None
        if seen.shape[1] != self.sensors:
            raise ValueError(
                f"positions: expected the {self.sensors} points of the sensors the model was built "
                f"with, got {seen.shape[1]}; build one with sensors={seen.shape[1]}"
            )
        given = seen.flatten(1)
        if time is not None:
            given = torch.cat([given, time.to(given.dtype).unsqueeze(-1)], dim=-1)
        functions = self.functions.to(given.dtype)
        return self.mean.to(given.dtype) + torch.einsum(
            "bp,pno->bno", self.branch(given), functions
        )


MODELS.register(
    "pod_deeponet",
    ModelEntry(
        "DeepONet with the principal components of the training data as its functions",
        "Lu et al., A Comprehensive and Fair Comparison of Two Neural Operators, CMAME 2022",
        when="All samples have the same points, and their solutions span a small space.",
        fields=Form(DeepONetSettings, from_settings(PODDeepONet, sensors=sensors_of)),
        needs_size=True,
        muon=True,
        published={"width": 128, "layers": 3, "bases": 20},
        small={"width": 128, "layers": 3, "bases": 20},
        tiny={"width": 16, "layers": 2, "bases": 8},
    ),
)
