"""A surrogate that was fitted or loaded: predicting, scoring, keeping."""

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from funcattn.arrays import Array
from funcattn.data import Sample, Store, collate
from funcattn.data.cases import Case, Cases
from funcattn.data.npy import open_npy
from funcattn.files import whole_folder
from funcattn.fitting.kinds import Handed, field_grid, handed, handed_back
from funcattn.fitting.packing import copy_run
from funcattn.fitting.scoring import accuracy, errors_of, outside, r_squared
from funcattn.fitting.sizing import extrapolated
from funcattn.models import NormalisedNetwork, predict_streamed
from funcattn.problem import slices
from funcattn.serve.bands import Banded, Bands, SpreadKind, read_bands
from funcattn.serve.familiar import Familiarity, OutsideTrainingWarning, read_familiarity
from funcattn.serve.finer import CoarserGridWarning, in_words, judged, said_alike
from funcattn.settings import shown
from funcattn.tasks.base import Splits
from funcattn.tasks.own import Own, OwnData
from funcattn.tasks.own_samples import sample_of, split_of, splits_of
from funcattn.training.ensemble import read_test
from funcattn.training.kept import check_fingerprint
from funcattn.training.run import Run
from funcattn.training.setup import RunError, read_json

if TYPE_CHECKING:
    from funcattn.trust.bands import Quantity

STREAMED = 200_000
"""Cases with more points are predicted chunk by chunk."""
MESH = "positions.npy"


class Owner:
    """Whoever holds this keeps a temporary folder."""


class FittedSurrogate:
    """What a surrogate can do once it has a run."""

    device: str
    _owner: Owner
    _familiar_of: Run | None = None
    _known_cases: Familiarity | None = None

    def _adopt(self, run: Run, task: Own) -> None:
        self._run, self.task = run, task
        if "_owner" in vars(self):
            vars(run)["owner"] = self._owner  # the folder stays while somebody reads the run

    @property
    def run(self) -> Run:
        """The run, with its settings, record and history."""
        if "_run" not in vars(self):
            raise ValueError("surrogate: expected one that was fitted or loaded; call fit first")
        return self._run

    def splits(self) -> Splits:
        """The samples of the fit; of a loaded run, read again from where they were."""
        if not self.task.has_samples:
            own = self.data
            if own.path is None:
                raise ValueError(
                    f"{self.run.folder}: expected the cases of the run, got none: it was fitted to "
                    "arrays; fit again in the same folder, which only reads them"
                )
            got = handed(
                own.path,
                [each.name for each in own.outputs],
                inputs=[each.name for each in own.inputs],
                parameters=own.table,
                numbered=own.numbered,
            )
            splits = splits_of(got.cases, own, split_of(got.cases, own, got.words))
            check_fingerprint(self.run.best, splits)
            self.task = Own(self.run.settings, splits)
        return self.task.splits(Store(self.run.folder))

    @property
    def data(self) -> OwnData:
        """What the cases of training look like."""
        settings = self.run.settings.data
        assert isinstance(settings, OwnData)
        return settings

    def summary(self) -> str:
        """What was learned, and how well, in a few lines."""
        own = self.data
        given = [each.name for each in own.inputs] or ["geometry"]
        lines = [
            f"{', '.join(given)} -> {', '.join(each.name for each in own.outputs)}, "
            f"{own.train} cases to train, {own.validation} to choose the epoch, {own.test} to test"
        ]
        if not self.run.finished:
            return lines[0]
        test = self.tested
        lines.append(f"test error {test['error']:.4g} (over the deviation of each field)")
        for each in own.outputs:
            if each.name in test:
                unit = f" {each.unit}" if each.unit else ""
                lines.append(f"  {each.name}: {test[each.name]:.4g}{unit}")
        for name, numbers in self.comparison.items():
            lines.append(f"  {name}: {numbers['error']:.4g}")
        return "\n".join(lines)

    @property
    def tested(self) -> dict[str, float]:
        """The test errors of the prediction: of an ensemble, of the mean."""
        recorded: dict[str, float] = self.run.record["test"]
        return read_test(self.run) or recorded

    @property
    def comparison(self) -> dict[str, dict[str, float]]:
        """The test errors of the yardsticks, by name; empty where none were made."""
        path = self.run.folder / "yardsticks.json"
        if not path.exists():
            return {}
        shape = {...: {"error": float, ...: float}}
        found: dict[str, dict[str, float]] = read_json(self.run.file(path.name), shape)
        return found

    def verdict(self) -> str:
        """A sentence where a yardstick is no worse, else nothing."""
        mine = self.tested["error"]
        better = [name for name, each in self.comparison.items() if each["error"] <= mine]
        if not better:
            return ""
        return (
            f"Not better than {', '.join(better)}: give it more time or more cases, or use that "
            "instead."
        )

    def remarks(self) -> list[str]:
        """What a reader should know about the errors, in sentences."""
        curve = self.run.folder / "learning_curve.json"
        more = extrapolated(self.curve) if curve.exists() else ""
        return [said for said in (self.verdict(), more) if said]

    @property
    def curve(self) -> dict[str, float]:
        """The validation error by the number of training cases, as `learning_curve` kept it."""
        path = self.run.folder / "learning_curve.json"
        errors: dict[str, float] = read_json(self.run.file(path.name), {...: float})
        if not all(re.fullmatch("[1-9][0-9]{0,9}", count) for count in errors):
            raise RunError(
                f"{path}: expected errors by numbers of cases, got {shown(list(errors))}; "
                "bring the original file back, or remove it"
            )
        return errors

    def learning_curve(self, shares: Sequence[float] = (0.25, 0.5)) -> dict[int, float]:
        """The validation error over the number of training cases, by fits to parts of them.

        Kept beside the run; each part is trained for as many steps as the whole.
        """
        from funcattn.fitting.compare import fit_parts

        return fit_parts(self, self.splits(), shares)

    # Predicting

    def predict(
        self,
        data: Any = None,
        *,
        positions: Any = None,
        parameters: Any = None,
        grid: Sequence[int] | None = None,
        times: Any = None,
    ) -> Any:
        """The output fields, in the kind of the inputs: arrays, lists, dictionaries, or cases.

        What is given is what `fit` was given, without the outputs. Cases come back with the
        predicted fields in the place of those that they had.
        """
        got = self._handed(data, None, positions, parameters, grid, times)
        fields = [self._named(self._raw(case)) for case in self._looked_at(got.cases)]
        return handed_back(got.kind, got.cases, fields, self.data)

    def calibrate(
        self,
        coverage: float = 0.9,
        data: Any = None,
        outputs: Any = None,
        *,
        quantities: "Mapping[str, Quantity] | None" = None,
        spread: SpreadKind | None = None,
        command: str = "",
        **more: Any,
    ) -> Bands:
        """Find bands around predictions within which the truth lies, and keep them with the run.

        coverage: how often, for all points of a case together.
        data, outputs: cases that the fit has not seen, as for `fit`; None: those that it has put
            aside (`Surrogate(calibration=0.15)`), or else those that chose the epoch, with which
            the promise is not exact.
        quantities: numbers of interest besides the extremes and the mean of each field: functions
            of a field (n *o), as a tensor, and its sample.
        spread: see `funcattn.trust.bands.calibrate`.
        """
        from funcattn.trust.bands import calibrate
        from funcattn.trust.subject import Subject

        given: dict[str, Any] = {}
        if data is not None or outputs is not None:
            names = ("positions", "parameters", "grid", "times")
            got = self._handed(data, outputs, *(more.get(name) for name in names))
            given["samples"] = [sample_of(case, self.data) for case in got.cases]
            given["source"] = f"{len(got.cases)} that were given, which the fit has not seen"
        else:
            self.splits()
        subject = Subject(self.run, self.task, Store(self.run.folder))
        self._familiar_of = None
        return calibrate(
            subject,
            coverage=coverage,
            quantities=quantities,
            spread=spread,
            command=command or "funcattn.Surrogate.calibrate",
            **given,
        )

    @property
    def calibrated(self) -> Bands | None:
        """The bands of the run, None where it was not calibrated."""
        return read_bands(self.run)

    def bands(
        self,
        data: Any = None,
        *,
        coverage: float | None = None,
        positions: Any = None,
        parameters: Any = None,
        grid: Sequence[int] | None = None,
        times: Any = None,
    ) -> Banded:
        """The prediction, and the two ends of its band, each as `predict` gives it.

        coverage: None: as `calibrate` was asked for.
        """
        calibrated = self.calibrated
        if calibrated is None:
            raise ValueError(
                "bands: expected a surrogate that was calibrated, got one that was not; call "
                "calibrate first"
            )
        got = self._handed(data, None, positions, parameters, grid, times)
        found: tuple[list[dict[str, Array]], ...] = ([], [], [])
        for case in self._looked_at(got.cases):
            sample = sample_of(case, self.data, target=False)
            said = self._said(sample)
            values = None if sample.values is None else sample.values[None]
            ends = calibrated.around(
                self.task.problem, said[:, None], sample.positions[None], values, coverage=coverage
            )
            for place, end in zip(found, ends, strict=True):
                place.append(self._channels(end[0]))
        return Banded(*(handed_back(got.kind, got.cases, part, self.data) for part in found))

    def score(
        self,
        data: Any,
        outputs: Any = None,
        *,
        positions: Any = None,
        parameters: Any = None,
        grid: Sequence[int] | None = None,
        times: Any = None,
    ) -> float:
        """The coefficient of determination R², the mean over the fields; of labels, the accuracy.

        1 is exact, 0 is as good as the mean of the fields.
        """
        own = self.data
        got = self._handed(data, outputs, positions, parameters, grid, times)
        pairs = ((sample_of(case, own).target, self._raw(case)) for case in got.cases)
        return accuracy(pairs) if own.classes else r_squared(pairs, own.outputs)

    def errors(self, data: Any, outputs: Any = None, **more: Any) -> dict[str, Array]:
        """The root mean square error of each field in its unit, one number per case."""
        own = self.data
        got = self._handed(
            data, outputs, *(more.get(n) for n in ("positions", "parameters", "grid", "times"))
        )
        return errors_of(
            ((sample_of(case, own), self._raw(case)) for case in got.cases), own.outputs
        )

    def outside(self, data: Any = None, **more: Any) -> list[list[str]]:
        """For each case, in which inputs it lies outside of what was seen in training."""
        got = self._handed(
            data, None, *(more.get(n) for n in ("positions", "parameters", "grid", "times"))
        )
        return [self._outside(case) for case in got.cases]

    def _handed(
        self, data: Any, outputs: Any, positions: Any, parameters: Any, grid: Any, times: Any
    ) -> Handed:
        own = self.data
        arrays = not isinstance(data, str | Path | Case | Cases) and not (
            isinstance(data, Sequence) and len(data) > 0 and isinstance(data[0], Case)
        )
        names: Any = None
        if arrays:
            if positions is None and own.grid:
                grid = grid or field_grid(data, own)
            elif positions is None and (self.run.folder / MESH).exists():
                positions = np.array(open_npy(self.run.file(MESH)))
        else:
            names = [each.name for each in own.outputs]
        return handed(
            data,
            outputs if arrays else names,
            positions=positions,
            parameters=parameters,
            grid=grid,
            times=times,
        )

    def _outside(self, case: Case) -> list[str]:
        return outside(sample_of(case, self.data, target=False), self.data, self.run.network)

    def _looked_at(self, cases: Sequence[Case]) -> Sequence[Case]:
        """The cases, after a warning about the first inputs outside of what was seen."""
        for case in cases:
            if why := self._outside(case):
                warnings.warn(
                    f"{case.source or case.name}: {'; '.join(why)}; the prediction may be far off",
                    OutsideTrainingWarning,
                    stacklevel=3,
                )
                break
        return cases

    def predicted_case(self, case: Case, out: Tensor) -> Case:
        """A case with what the network says of it, shaped as its target."""
        with_fields: Case = handed_back("case", [case], [self._named(out)], self.data)
        return with_fields

    def _named(self, out: Tensor) -> dict[str, Array]:
        """The fields by name, (n c) or (n t c); of labels, the labels (n)."""
        own = self.data
        if own.classes:
            labels = np.array([int(label) for label in own.classes])
            return {own.outputs[0].name: labels[out.argmax(-1).numpy()]}
        return self._channels(out)

    def _channels(self, out: Tensor) -> dict[str, Array]:
        """The channels of the output fields, by their names."""
        parts = slices(self.data.outputs)
        return {name: out[..., channels].numpy() for name, channels in parts.items()}

    def _raw(self, case: Case) -> Tensor:
        """The prediction of a case, shaped as its target; of an ensemble, the mean."""
        sample = sample_of(case, self.data, target=False)
        return self._said(sample).mean(0)

    @torch.no_grad()
    def _said(self, sample: Sample) -> Tensor:
        """What each network says of a sample, (k n *o)."""
        first, *others = self.run.networks
        if len(sample.positions) > STREAMED and self.data.kind == "steady":
            return torch.stack([self._streamed(sample, each) for each in (first, *others)])
        where = first.position_range
        batch = collate([sample]).to(where.device, where.dtype)
        familiar = self._familiar
        usual = self.run.usual_error if self.task.has_metrics else None
        said, scores, raised = judged(self.task, first, batch, usual, familiar)
        if familiar is not None and scores is not None and scores[0].worst > 1:
            words = f"a case is {familiar.in_words(scores[0].worst)}"
            warnings.warn(words, OutsideTrainingWarning, stacklevel=4)
        if any(raised):
            words = f"a case is on another grid: {in_words(self.task, batch.grid)}"
            warnings.warn(words, CoarserGridWarning, stacklevel=4)
        more = [said_alike(self.task, each, batch, raised) for each in others]
        return torch.cat([said, *more]).float().cpu()

    def _streamed(self, sample: Sample, network: NormalisedNetwork) -> Tensor:
        """What one network says of a sample of many points, a part of them at once."""
        out = np.empty((len(sample.positions), self.data.output_channels), np.float32)
        predict_streamed(
            network,
            sample.positions.numpy(),
            None if sample.values is None else sample.values.numpy(),
            weights=None if sample.weights is None else sample.weights.numpy(),
            out=out,
        )
        return torch.from_numpy(out)

    @property
    def _familiar(self) -> Familiarity | None:
        """What calibration kept of the training cases; read once."""
        if self._familiar_of is not self.run:
            self._familiar_of, self._known_cases = self.run, read_familiarity(self.run)
        return self._known_cases

    # Keeping

    def save(self, folder: str | Path) -> Path:
        """Keep the run in a folder that is not there yet; `funcattn.load` brings it back."""
        target = Path(folder)
        if target.exists():
            raise ValueError(f"{target}: expected a folder that is not there yet, got one that is")
        with whole_folder(target) as aside:
            copy_run(self.run.folder, aside)
        return target

    def report(self, path: str | Path | None = None) -> Path:
        """Write what came out as one HTML file; the cases of the last fit are drawn in it."""
        from funcattn.fitting.report import write_surrogate_report

        return write_surrogate_report(self, Path(path) if path else self.run.report)
