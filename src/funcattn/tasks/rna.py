"""RNA segmentation: a functional label at each point of the surface of a ribosomal RNA.

RNA Surface Segmentation Dataset (Poulenard et al. 2019; MIT licence): 683 surfaces, 260 classes of
which 160 occur. The input is the geometry alone, the points of a surface.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from funcattn.data import Batch, Sample, Store
from funcattn.data.rna import CLASSES, READY_FILE, RnaCloud, open_rna
from funcattn.problem import Field, Problem
from funcattn.settings import DataSettings, Profile
from funcattn.tasks.base import Changes, Splits, Task, register_task
from funcattn.tasks.losses import accuracy, cross_entropy


@dataclass(frozen=True)
class RnaData(DataSettings):
    """RNA surfaces; of each list, and of each cloud, the first ones, as many as there are."""

    train: int = 493
    validation: int = 54
    test: int = 136
    points: int = 4096
    """Points of a cloud: the first of a farthest-point sample are one themselves."""

    def __post_init__(self) -> None:
        if self.points < 1:
            raise ValueError(f"points: expected at least 1, got {self.points}")


@register_task
class Rna(Task[RnaData]):
    """Points of a surface to their labels.

    Relative to the paper: its public code changes the rate once per epoch, and has no validation
    set.
    """

    name: ClassVar = "rna"
    title: ClassVar = "RNA segmentation: functional labels on molecular surfaces"
    # Clouds are centred, within radius 1.
    problem = Problem(3, (), (Field("class", CLASSES),), lower=-1.0, upper=1.0)
    data_settings = RnaData
    headline: ClassVar = "accuracy"
    larger_is_better: ClassVar = True
    profiles: ClassVar[Mapping[Profile, Changes]] = {
        "paper": {
            "network": {
                "width": 128,
                "layers": 4,
                "heads": 8,
                "bases": 128,
                "mlp_ratio": 2.0,
                "dropout": 0.1,
            },
            "optimisation": {
                "optimiser": "adam",
                "epochs": 200,
                "batch": 1,
                "rate": 1e-3,
                "weight_decay": 0.0,
                "end_divisor": 1e3,
            },
        },
        "cpu": {
            "data": {"points": 1024},
            "network": {"layers": 4, "mlp_ratio": 2.0, "dropout": 0.1},
            "optimisation": {"epochs": 30, "batch": 2},
        },
        "smoke": {
            "data": {"train": 6, "validation": 2, "test": 2, "points": 128},
            "network": {
                "width": 16,
                "layers": 2,
                "heads": 2,
                "bases": 8,
                "mlp_ratio": 2.0,
                "dropout": 0.1,
            },
            "optimisation": {"epochs": 2},
        },
    }

    def splits(self, store: Store) -> Splits:
        """Clouds of the data set's own lists; the last tenth of its training list validates."""
        if self.data.path is None or not Path(self.data.path).exists():
            raise FileNotFoundError(
                f"data.path: expected the RNA Surface Segmentation Dataset (Poulenard et al. 2019, "
                f"MIT licence), got {self.data.path or 'no path'}. Either its own folder, with "
                f"off/NAME.off, labels/NAME.txt, train.txt and test.txt, or a file {READY_FILE} "
                "made from it: funcattn train rna --data.path PATH"
            )
        surfaces = open_rna(self.data.path)
        tenth = max(1, len(surfaces.train) // 10)
        parts = [
            surfaces.train[:-tenth][: self.data.train],
            surfaces.train[-tenth:][: self.data.validation],
            surfaces.test[: self.data.test],
        ]
        wanted = [name for part in parts for name in part]
        clouds = surfaces.read(wanted, self.data.points, store.advance)
        content = hashlib.sha256()
        for cloud in clouds:
            for piece in (cloud.name.encode(), cloud.points.tobytes(), cloud.labels.tobytes()):
                content.update(piece)
        samples = iter([_sample(cloud) for cloud in clouds])
        train, validation, test = ([next(samples) for _ in part] for part in parts)
        return Splits(train, validation, test, content.hexdigest())

    def augmented(self, sample: Sample, random: torch.Generator) -> Sample:
        """The sample turned at random: labels do not know which way is up."""
        rotation = random_rotation(random).to(sample.positions.dtype)
        return replace(sample, positions=sample.positions @ rotation.T)

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy, a mean over the points of each cloud."""
        return cross_entropy(prediction, batch.target, batch.mask)

    def metrics(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The fraction of a cloud's points that get their label.

        Relative to the paper: it takes the fraction over the points of all clouds, and a mean over
        clouds counts small ones as much as large ones. All but 4 clouds have 4,096 points, and
        those 4 are in the training list, so that on the test list both are the same number.
        """
        return {"accuracy": accuracy(prediction, batch.target, batch.mask)}


def random_rotation(random: torch.Generator) -> Float[Tensor, "3 3"]:
    """A rotation, uniform over all of them: that of a uniform unit quaternion."""
    quaternion = torch.randn(4, dtype=torch.float64, generator=random)
    w, x, y, z = (quaternion / quaternion.norm()).tolist()
    return torch.tensor(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ],
        dtype=torch.float64,
    )


def _sample(cloud: RnaCloud) -> Sample:
    return Sample(
        positions=torch.from_numpy(cloud.points),
        values=None,
        target=torch.from_numpy(cloud.labels),
    )
