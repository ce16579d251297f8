"""The two kinds of task in time: one frame after another, and any time at once.

Axes: b sample, n point, t frame, o channel of a frame.
"""

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from funcattn.data import Batch, Sample
from funcattn.tasks.base import Network, Task


class Autoregressive(Task):
    """Frames in, frames out: the network gives the next frame from the last ones.

    values (b n i) are the frames before, oldest first, as many channels as `inputs`; the target
    (b n t) the frames to come. In training the network sees the true frames, in evaluation its own.
    """

    frames: ClassVar[int]
    """Frames to come."""

    @property
    def target_axes(self) -> tuple[int, ...]:
        """The frames."""
        return (self.frames,)

    def predict(self, network: Network, batch: Batch) -> Tensor:
        """The frames, (b n t)."""
        assert batch.values is not None
        window, frames = batch.values, []
        forced = bool(getattr(network, "training", False))
        for t in range(batch.target.shape[-1]):
            frame = network(
                batch.positions,
                window,
                grid=batch.grid,
                mask=batch.mask,
                weights=batch.weights,
            )
            frames.append(frame)
            newest = batch.target[..., t : t + 1] if forced else frame
            window = torch.cat([window[..., newest.shape[-1] :], newest], dim=-1)
        return torch.cat(frames, dim=-1)


class Timed(Task):
    """One field for each of some times, each asked for by its time, 0 to 1.

    The target is (b n t o). The network is called once a time and takes the time as an input. In
    training a sample comes with one of its times, drawn at random, and an epoch visits it as often
    as it has times, or as `visits` says.
    """

    timed = True
    frames: ClassVar[int]
    """Times at which the field is asked for."""

    @property
    def target_axes(self) -> tuple[int, ...]:
        """The frames and the channels of each."""
        return (self.frames, self.outputs)

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
