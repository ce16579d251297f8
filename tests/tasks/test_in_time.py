from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from funcattn.data import Batch, Store
from funcattn.problem import Field, Problem
from funcattn.settings import RunSettings
from funcattn.tasks.base import Splits
from funcattn.tasks.in_time import Autoregressive, Timed


class Toy:
    """What the two kinds leave open."""

    name: ClassVar = "toy"

    def splits(self, store: Store) -> Splits:
        raise NotImplementedError

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        return (prediction - batch.target).square().flatten(1).mean(1)

    def metrics(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {"mse": self.loss(prediction, batch)}


class ToyFrames(Toy, Autoregressive):
    problem = Problem(2, (Field("u", 2),), (Field("u"),))
    frames: ClassVar = 5


class ToyFlow(Toy, Autoregressive):
    """Frames of two fields, of which the last two are given."""

    problem = Problem(2, (Field("before", 6),), (Field("velocity", 2), Field("pressure")))
    frames: ClassVar = 4


class ToyTimes(Toy, Timed):
    problem = Problem(2, (), (Field("u", 2),), time=True)
    frames: ClassVar = 4


class Sum(nn.Module):
    """The next frame is the sum of the last two."""

    def forward(self, positions: Tensor, values: Tensor, **points: object) -> Tensor:  # noqa: ARG002
        return values.sum(-1, keepdim=True)


def fibonacci(target: list[float]) -> Batch:
    return Batch(
        positions=torch.zeros(1, 3, 2),
        values=torch.tensor([1.0, 1.0]).expand(1, 3, 2),
        target=torch.tensor(target).expand(1, 3, len(target)),
    )


def test_in_evaluation_frames_come_from_the_networks_own() -> None:
    prediction = ToyFrames(RunSettings("toy")).predict(Sum().eval(), fibonacci([0.0] * 5))
    assert prediction.shape == (1, 3, 5)
    assert prediction[0, 0].tolist() == [2, 3, 5, 8, 13]


def test_in_training_frames_come_from_the_true_ones() -> None:
    prediction = ToyFrames(RunSettings("toy")).predict(Sum().train(), fibonacci([10.0, 20.0, 30.0]))
    assert prediction[0, 0].tolist() == [2, 1 + 10, 10 + 20]


def test_a_rollout_has_gradients_through_all_frames() -> None:
    class Scaled(Sum):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, positions: Tensor, values: Tensor, **points: object) -> Tensor:
            return self.scale * super().forward(positions, values, **points)

    network = Scaled().eval()
    ToyFrames(RunSettings("toy")).predict(network, fibonacci([0.0] * 3))[..., 2].sum().backward()
    # Three points times the derivative of s (s + s (s + 2 s) ...) at s = 1: frames 2s, s + 2s^2,
    # 3s^2 + 2s^3, whose derivative at 1 is 12.
    assert network.scale.grad is not None
    assert network.scale.grad.item() == pytest.approx(3 * 12)


def test_times_run_from_zero_to_one_and_reach_the_network() -> None:
    def network(positions: Tensor, values: None, *, time: Tensor, **points: object) -> Tensor:  # noqa: ARG001
        return time[:, None, None].expand(2, 4, 3)

    batch = Batch(torch.zeros(2, 4, 2), None, torch.zeros(2, 4, 5, 3))
    prediction = ToyTimes(RunSettings("toy")).predict(network, batch)
    assert prediction.shape == (2, 4, 5, 3)
    assert prediction[1, 0, :, 2].tolist() == [0, 0.25, 0.5, 0.75, 1]


class SumOfFrames(nn.Module):
    """The next frame of three channels is the sum of the last two, times 1, 2 and 3."""

    def forward(self, positions: Tensor, values: Tensor, **points: object) -> Tensor:  # noqa: ARG002
        return values.unflatten(-1, (2, 3)).sum(-2) * torch.tensor([1.0, 2.0, 3.0])


def flow(target: Tensor) -> Batch:
    return Batch(torch.zeros(1, 5, 2), torch.ones(1, 5, 6), target)


def test_frames_of_several_fields_follow_from_the_networks_own() -> None:
    task = ToyFlow(RunSettings("toy"))
    assert task.target_axes == (4, 3)
    prediction = task.predict(SumOfFrames().eval(), flow(torch.zeros(1, 5, 4, 3)))
    assert prediction.shape == (1, 5, 4, 3)
    expected = [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    for _ in range(4):
        pairs = zip(expected[-2], expected[-1], (1, 2, 3), strict=True)
        expected.append([(a + b) * factor for a, b, factor in pairs])
    assert prediction[0, 2].tolist() == expected[2:]


def test_frames_of_several_fields_follow_from_the_true_ones_in_training() -> None:
    truth = torch.arange(12.0).reshape(1, 1, 4, 3).expand(1, 5, 4, 3)
    prediction = ToyFlow(RunSettings("toy")).predict(SumOfFrames().train(), flow(truth))
    frames = torch.cat([torch.ones(2, 3), truth[0, 0]])
    factors = torch.tensor([1.0, 2.0, 3.0])
    torch.testing.assert_close(prediction[0, 4], (frames[:4] + frames[1:5]) * factors)


def test_frames_that_are_given_in_part_are_refused() -> None:
    class Odd(ToyFlow):
        problem = Problem(2, (Field("before", 5),), (Field("velocity", 2), Field("pressure")))

    with pytest.raises(ValueError, match=r"input channels for whole frames of 3 .*, got 5"):
        Odd(RunSettings("toy"))
