"""AirfRANS: velocity, pressure and eddy viscosity in the flow past an airfoil, and its lift.

Incompressible Reynolds-averaged Navier-Stokes equations past NACA airfoils of four and five digits
at Reynolds numbers of 2 to 6 million and incidences of -5 to 15 degrees (Bonnet et al. 2022). The
cases are the public ones, or made by OpenFOAM, or by a panel method, which is a proxy: it has no
boundary layer in the field, no stall and no eddy viscosity.

A case is a cloud of points, those on the airfoil among them. Training sees some of them, drawn
anew in every epoch; evaluation sees all.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from funcattn.arrays import Array
from funcattn.data import Batch, Recipe, Sample, Store, StoredSet
from funcattn.data.airfrans import Split, case_name, public_split, read_case, read_manifest
from funcattn.data.airfrans import write_cases as write_airfrans
from funcattn.data.matlab import Format
from funcattn.lazy import LazyModule
from funcattn.pde import openfoam, panel
from funcattn.problem import Field, Problem
from funcattn.settings import DataSettings, Profile, RunSettings
from funcattn.tasks.base import BOTH, Changes, Portrait, Splits, register_task
from funcattn.tasks.losses import (
    force_coefficients,
    mean_squared_error,
    rank_correlation,
    volume_and_surface_error,
)
from funcattn.tasks.solved import Generated

if TYPE_CHECKING:
    from scipy import spatial
else:
    spatial = LazyModule("scipy.spatial")

VISCOSITY = 1.56e-5
"""Of air, in m2/s."""
FULL_TRAIN = 800
"""Cases of the public list full_train."""
RAGGED = frozenset({"position", "features", "target", "surface", "length", "shear"})
"""Fields with another number of rows in every case."""

NUMBERS = ("lift", "drag", "reynolds", "incidence", "family", "digits")
"""Fields of a case that belong to no point."""


@dataclass(frozen=True)
class AirfransData(DataSettings):
    """Cases; train, validation and test are those of the split full."""

    train: int = 720
    validation: int = 80
    test: int = 200
    source: Literal["panel", "openfoam"] = "panel"
    """Who makes the cases: panels, a proxy that needs nothing, or OpenFOAM, which is RANS."""
    mesh: Literal["coarse", "fine"] = "fine"
    """Of OpenFOAM."""
    field_points: int = 31_800
    """Points in the fluid, of the panel method."""
    split: Split = "full"
    """full; scarce: a quarter of its training cases; reynolds, aoa: train in the middle of the
    range, test at its ends."""
    points: int = 32_000
    """Of a case, so many are drawn anew for each epoch of training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.points < 1:
            raise ValueError(f"points: expected at least 1, got {self.points}")


@register_task
class Airfrans(Generated[AirfransData]):
    """Geometry and stream to the flow."""

    name: ClassVar = "airfrans"
    title: ClassVar = "AirfRANS: the flow past an airfoil and its lift, on a point cloud"
    problem = Problem(
        2,
        (
            Field("position", 2, "m"),
            Field("stream velocity", 2, "m/s"),
            Field("distance to the airfoil", unit="m"),
            Field("normal", 2),
        ),
        (
            Field("velocity", 2, "m/s"),
            Field("pressure over density", unit="m2/s2"),
            Field("eddy viscosity", unit="m2/s"),
        ),
        lower=(-2.0, -1.5),
        upper=(4.0, 1.5),
    )
    data_settings = AirfransData
    headline: ClassVar = "mean_squared_error"
    normalised: ClassVar = BOTH
    profiles: ClassVar[Mapping[Profile, Changes]] = {
        "paper": {
            "network": {"width": 256, "bases": 32, "mlp_ratio": 2.0, "lattice": 8},
            "optimisation": {"optimiser": "adam", "epochs": 400, "batch": 1, "weight_decay": 0.0},
        },
        "cpu": {
            "data": {
                "train": 170,
                "validation": 20,
                "test": 60,
                "mesh": "coarse",
                "field_points": 3_800,
                "points": 2_000,
            },
            "network": {"width": 64, "layers": 4, "heads": 4, "bases": 32, "lattice": 8},
            "optimisation": {"epochs": 30, "batch": 2},
        },
        "smoke": {
            "data": {
                "train": 6,
                "validation": 2,
                "test": 4,
                "mesh": "coarse",
                "field_points": 300,
                "points": 200,
            },
            "network": {"width": 32, "layers": 2, "heads": 2, "bases": 8, "lattice": 4},
            "optimisation": {"epochs": 2, "batch": 2},
        },
    }

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self._deviation: Tensor | None = None

    @property
    def slips(self) -> bool:
        """Whether the flow slips along the wall, so that its shear cannot be read off the field."""
        return self.data.source == "panel" and self.data.path is None

    def recipe(self) -> Recipe:
        """By panels, under a name that says so, or by OpenFOAM."""
        if self.data.source == "panel":
            parameters: dict[str, Any] = {"field_points": self.data.field_points}
            return Recipe("airfrans-panel", panel.sample, parameters, ragged=RAGGED)
        parameters = {"mesh": self.data.mesh}
        return Recipe("airfrans-openfoam", openfoam.sample, parameters, version=2, ragged=RAGGED)

    def splits(self, store: Store) -> Splits:
        """Cases of the split; a tenth or so of its training cases validates."""
        path = self.data.path
        trained, tested = self._made(store) if path is None else self._public(Path(path))
        held = max(
            1,
            round(
                len(trained) * self.data.validation / max(1, self.data.train + self.data.validation)
            ),
        )
        train, validation = trained[:-held], trained[-held:]
        if not (train and tested):
            raise ValueError(
                f"data.split: expected cases for training, validation and test in the split "
                f"{self.data.split!r}, got {len(train)}, {len(validation)} and {len(tested)}; ask "
                "for more by --data.train and --data.test"
            )
        content = hashlib.sha256()
        for case in (*train, *validation, *tested):
            for tensor in (case.values, case.target, case.surface):
                assert tensor is not None
                content.update(tensor.numpy().tobytes())
        targets = [case.target.double() for case in train]
        count = sum(len(target) for target in targets)
        mean = torch.stack([target.sum(0) for target in targets]).sum(0) / count
        spread = torch.stack([(target - mean).square().sum(0) for target in targets]).sum(0)
        self._deviation = (spread / count).sqrt()
        return Splits(train, validation, tested, content.hexdigest())

    def _made(self, store: Store) -> tuple[list[Sample], list[Sample]]:
        made = store.made(self.recipe(), self.data.seed, self.count)
        rows = range(self.count)
        learned = self.data.train + self.data.validation
        if self.data.split in ("full", "scarce"):
            trained = rows[:learned] if self.data.split == "full" else rows[: learned // 4]
            tested = rows[learned:]
        else:
            numbers = (made.read(name, rows) for name in ("reynolds", "incidence"))
            inside, outside = public_split(self.data.split, *numbers)
            trained, tested = inside.tolist(), outside.tolist()
        read = [
            [
                _sample(
                    {n: made.read_ragged(n, i) for n in ("features", "target", "surface", "length")}
                )
                for i in part
            ]
            for part in (trained, tested)
        ]
        return read[0], read[1]

    def _public(self, folder: Path) -> tuple[list[Sample], list[Sample]]:
        """The lists of the manifest; whole if the settings ask for as many cases as it has."""
        manifest = read_manifest(folder)
        learned = self.data.train + self.data.validation
        lists = (
            f"{self.data.split}_train",
            f"{'full' if self.data.split == 'scarce' else self.data.split}_test",
        )
        for name in lists:
            if name not in manifest:
                raise ValueError(
                    f"{folder / 'manifest.json'}: expected the lists {' and '.join(lists)} for the "
                    f"split {self.data.split!r}, got {', '.join(manifest)}: choose another "
                    "--data.split"
                )
        trained, tested = (manifest[name] for name in lists)
        if learned < FULL_TRAIN:
            trained, tested = trained[:learned], tested[: self.data.test]
        read = [[_sample(read_case(folder, name)) for name in part] for part in (trained, tested)]
        return read[0], read[1]

    def write_public(self, made: StoredSet, folder: Path, format: Format) -> list[Path]:  # noqa: A002, ARG002
        """A folder as the public data set is one: a manifest, and files of VTK for each case."""
        rows = range(len(made))
        numbers = {
            name: made.read(name, rows) for name in ("reynolds", "incidence", "family", "digits")
        }
        names = []
        for i in rows:
            digits = numbers["digits"][i].tolist()
            names.append(
                case_name(
                    float(numbers["reynolds"][i]) * VISCOSITY,
                    float(numbers["incidence"][i]),
                    # Airfoils of four digits have no digit for a reflexed line.
                    [*digits[:2], digits[3]] if numbers["family"][i] == 4 else digits,
                )
            )
        learned = len(made) - self.data.test
        parts: dict[str, tuple[Sequence[int], Sequence[int]]] = {
            "full": (rows[:learned], rows[learned:]),
            "scarce": (rows[: learned // 4], rows[learned:]),
        }
        for split in ("reynolds", "aoa"):
            inside, outside = public_split(split, numbers["reynolds"], numbers["incidence"])
            parts[split] = inside.tolist(), outside.tolist()
        lists = {}
        for split, (trained, tested) in parts.items():
            lists[f"{split}_train"] = [names[i] for i in trained]
            if split != "scarce":
                lists[f"{split}_test"] = [names[i] for i in tested]
        write_airfrans(folder, _Cases(made, names), lists)
        return [folder / "manifest.json"]

    def portrait(self, sample: Sample) -> Portrait:
        """The flow near the airfoil."""
        away = (sample.positions - torch.tensor([0.5, 0.0])).abs()
        near = (away < torch.tensor([1.0, 0.6])).all(1)
        flow = sample.target[near]
        shown = {"speed": flow[:, :2].norm(dim=1), "pressure / density": flow[:, 2]}
        if not self.slips:
            shown["eddy viscosity"] = flow[:, 3]
        assert sample.surface is not None
        return Portrait(sample.positions[near], shown, sample.surface[near])

    def augmented(self, sample: Sample, random: torch.Generator) -> Sample:
        """Some of its points, in any order."""
        n, points = len(sample.positions), self.data.points
        if n <= points:
            return sample
        chosen = torch.randperm(n, generator=random)[:points]
        assert sample.values is not None
        assert sample.surface is not None
        return replace(
            sample,
            positions=sample.positions[chosen],
            values=sample.values[chosen],
            target=sample.target[chosen],
            surface=sample.surface[chosen],
        )

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Mean squared error off the airfoil plus that on it, each field over its deviation."""
        assert batch.surface is not None
        return volume_and_surface_error(
            *self._scaled(prediction, batch), batch.surface > 0, batch.mask
        )

    def metrics(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The loss and its parts, and the forces with their relative errors."""
        assert batch.surface is not None
        scaled, truth = self._scaled(prediction, batch)
        real = (
            torch.ones_like(batch.surface, dtype=torch.bool) if batch.mask is None else batch.mask
        )
        on = real & (batch.surface > 0)
        volume = mean_squared_error(scaled, truth, real & ~on)
        surface = mean_squared_error(scaled, truth, on)
        found = {
            "mean_squared_error": volume + surface,
            "volume_error": volume,
            "surface_error": surface,
        }
        of_prediction, of_truth = self._forces(prediction, batch), self._forces(batch.target, batch)
        for name in of_truth:
            found[f"{name}_error"] = (of_prediction[name] - of_truth[name]).abs() / of_truth[
                name
            ].abs()
            found[name], found[f"true_{name}"] = of_prediction[name], of_truth[name]
        return found

    def summary(self, values: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """Means of the errors, and how well the forces of the cases are ranked."""
        forces = [name for name in ("lift", "drag") if name in values]
        errors = {
            name: numbers
            for name, numbers in values.items()
            if name.removeprefix("true_") not in forces
        }
        found = super().summary(errors)
        for name in forces:
            # One case alone has a rank, but no correlation.
            if len(values[name]) > 1:
                a, b = (
                    torch.tensor(values[n], dtype=torch.float64) for n in (name, f"true_{name}")
                )
                found[f"{name}_rank_correlation"] = rank_correlation(a, b)
        return found

    def _scaled(self, prediction: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Prediction and truth over the deviation of each field in training; 1 where it is 0."""
        assert self._deviation is not None, "splits come before losses"
        deviation = self._deviation.to(prediction)
        deviation = deviation.where(deviation > 0, 1.0)
        return prediction / deviation, batch.target / deviation

    def _forces(self, flow: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Lift of each case, and its drag where the field shows the wall shear."""
        assert batch.values is not None
        assert batch.surface is not None
        found: dict[str, list[Tensor]] = {}
        for b in range(len(batch)):
            real = slice(None) if batch.mask is None else batch.mask[b]
            values, lengths = batch.values[b][real].double(), batch.surface[b][real].double()
            fields, on = flow[b][real].double(), lengths > 0
            shear = fields.new_zeros(int(on.sum()), 2)
            if not self.slips:
                shear = wall_shear(values[:, :2], fields[:, :2], fields[:, 3], on, values[on, 5:7])
            stream = values[0, 2:4]
            drag, lift = force_coefficients(
                fields[on, 2],
                shear,
                values[on, 5:7],
                lengths[on],
                incidence=float(torch.atan2(stream[1], stream[0])),
                speed=float(stream.norm()),
            )
            found.setdefault("lift", []).append(lift)
            if not self.slips:
                found.setdefault("drag", []).append(drag)
        return {name: torch.stack(numbers) for name, numbers in found.items()}


def wall_shear(
    positions: Float[Tensor, "n 2"],
    velocity: Float[Tensor, "n 2"],
    eddy_viscosity: Float[Tensor, " n"],
    on_wall: Bool[Tensor, " n"],
    normals: Float[Tensor, "w 2"],
) -> Float[Tensor, "w 2"]:
    """Wall shear stress / density at the points on a wall, from each and the nearest point off it.

    The viscosity, that of eddies at the wall included, times the change of velocity along the wall,
    over the distance along the normal. Points next to a wall are far closer to it than to each
    other.
    """
    wall, off = positions[on_wall], positions[~on_wall]
    near = torch.from_numpy(spatial.KDTree(off.cpu().numpy()).query(wall.cpu().numpy())[1]).to(
        wall.device
    )
    distance = ((off[near] - wall) * normals).sum(1, keepdim=True)
    change = velocity[~on_wall][near] - velocity[on_wall]
    along = change - (change * normals).sum(1, keepdim=True) * normals
    return (VISCOSITY + eddy_viscosity[on_wall])[:, None] / distance * along


def _sample(case: Mapping[str, Array]) -> Sample:
    surface = torch.zeros(len(case["features"]))
    surface[torch.from_numpy(case["surface"].astype(bool))] = torch.from_numpy(
        case["length"].astype(np.float32)
    )
    features = torch.from_numpy(case["features"].astype(np.float32))
    return Sample(
        positions=features[:, :2].contiguous(),
        values=features,
        target=torch.from_numpy(case["target"].astype(np.float32)),
        surface=surface,
    )


class _Cases(Mapping[str, Mapping[str, Array]]):
    """The cases of a set by name, read one by one."""

    def __init__(self, made: StoredSet, names: Sequence[str]) -> None:
        self.made, self.rows = made, {name: row for row, name in enumerate(names)}

    def __getitem__(self, name: str) -> Mapping[str, Array]:
        row = self.rows[name]
        ragged = {field: self.made.read_ragged(field, row) for field in RAGGED}
        numbers = {n: self.made.read(n, range(row, row + 1))[0] for n in NUMBERS}
        return ragged | numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)
