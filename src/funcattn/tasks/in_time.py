"""The two kinds of task in time: one frame after another, and any time at once.

Axes: b sample, n point, t frame, o channel of a frame.
"""

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from funcattn.data import Batch, Sample
from funcattn.problem import PictureKind
from funcattn.settings import RunSettings
from funcattn.tasks.base import Data, Network, Task


class Autoregressive(Task[Data]):
    """Frames in, frames out: the network gives the next frame from the last ones.

    values (b n i) are the frames before, oldest first, the channels of a frame side by side, so
    that i is a multiple of o, the channels of the problem's outputs. The target holds the frames to
    come: (b n t o), or (b n t) where a frame has one channel. In training the network sees the true
    frames, in evaluation its own.
    """

    frames: ClassVar[int]
    """Frames to come."""

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        given, sought = self.problem.input_channels, self.problem.output_channels
        if not given or given % sought:
            raise ValueError(
                f"problem of {self.name}: expected input channels for whole frames of {sought} "
                f"output channels, got {given}"
            )

    @property
    def picture(self) -> PictureKind:
        """Frame by frame."""
        return "frames"

    @property
    def target_axes(self) -> tuple[int, ...]:
        """The frames, and the channels of each if there are several."""
        channels = self.problem.output_channels
        return (self.frames,) if channels == 1 else (self.frames, channels)

    def predict(self, network: Network, batch: Batch) -> Tensor:
        """The frames, shaped as the target."""
        assert batch.values is not None
        window, frames = batch.values, []
        forced = bool(getattr(network, "training", False))
        truth = batch.target if batch.target.ndim == 4 else batch.target.unsqueeze(-1)  # (b n t o)
        for t in range(truth.shape[2]):
            frame = network(
                batch.positions,
                window,
                grid=batch.grid,
                mask=batch.mask,
                weights=batch.weights,
            )
            frames.append(frame)
            newest = truth[:, :, t] if forced else frame
            window = torch.cat([window[..., newest.shape[-1] :], newest], dim=-1)
        return torch.stack(frames, dim=2).reshape(batch.target.shape)


class Timed(Task[Data]):
    """One field for each of some times, each asked for by its time, 0 to 1.

    The target is (b n t o). The network is called once per time and takes the time as an input. In
    training a sample comes with one of its times, drawn at random, and an epoch visits it as often
    as it has times, or as `visits` says.
    """

    frames: ClassVar[int]
    """Times at which the field is asked for."""

    @property
    def picture(self) -> PictureKind:
        """Frame by frame."""
        return "frames"

    @property
    def target_axes(self) -> tuple[int, ...]:
        """The frames and the channels of each."""
        return (self.frames, self.problem.output_channels)

    def predict(self, network: Network, batch: Batch) -> Tensor:
        """The fields, (b n t o)."""
        times = batch.times
        if times is None:
            times = torch.linspace(0, 1, batch.target.shape[2]).expand(len(batch), -1)
        fields = [
            network(
                batch.positions,
                batch.values,
                time=time,
                grid=batch.grid,
                mask=batch.mask,
                weights=batch.weights,
            )
            for time in times.to(batch.positions).unbind(1)
        ]
        return torch.stack(fields, dim=2)

    @property
    def visits(self) -> int:
        """As often as there are frames."""
        return self.frames

    def augmented(self, sample: Sample, random: torch.Generator) -> Sample:
        """The sample at one of its times."""
        frames = sample.target.shape[1]
        frame = int(torch.randint(frames, (1,), generator=random))
        time = torch.linspace(0, 1, frames)[frame : frame + 1]
        return replace(sample, target=sample.target[:, frame : frame + 1], times=time)
