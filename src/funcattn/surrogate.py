"""A surrogate of people's own simulations: fit, predict, score, save.

    surrogate = funcattn.Surrogate(budget="10 min").fit(inputs, outputs)
    fields = surrogate.predict(new_inputs)

The habits are those of scikit-learn: the constructor holds settings, `fit` returns the surrogate,
`get_params`, `set_params` and `clone` work. Underneath is the engine of the benchmarks: pinned
splits, the epoch chosen on validation data, one test, checkpoints from which a killed run goes on.
"""

import inspect
import json
import sys
import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from funcattn.data import Store
from funcattn.data.cases import Case
from funcattn.documents import read_json
from funcattn.errors import FuncattnError
from funcattn.fitting.fitted import MESH, FittedSurrogate, Owner
from funcattn.fitting.hub import fetched, is_address, push
from funcattn.fitting.kinds import Handed, handed
from funcattn.fitting.notebook import bar_in_notebook
from funcattn.fitting.packing import temporary_folder, unpack
from funcattn.fitting.sizing import sized
from funcattn.fitting.steadying import DivergedWarning, trained_steadily
from funcattn.markup import table
from funcattn.models import NormalisedNetwork
from funcattn.serve.familiar import OutsideTrainingWarning
from funcattn.settings import RunSettings
from funcattn.tasks.base import Splits
from funcattn.tasks.own import Kind, Own, OwnData
from funcattn.tasks.own_data import describe
from funcattn.tasks.own_samples import split_of, splits_of
from funcattn.tasks.splitting import CALIBRATION
from funcattn.tasks.subsets import Subset
from funcattn.training.bundled import run_folder
from funcattn.training.ensemble import metrics_of_mean, train_members, write_test
from funcattn.training.run import Run, train
from funcattn.training.setup import RunError, device_named
from funcattn.training.signed import check_list, signed_file, write_signed

if TYPE_CHECKING:
    from funcattn.serve import Predictor

DEFAULT_MODEL = "functional_operator"
"""The network, unless another one is asked for."""
MANY_POINTS = 20_000
"""Cases with more points train on a part of them at a time."""
SUBSET = 8192
NOTE = "surrogate.json"
_NOTE = {"deviations": {...: float}}


__all__ = ["DivergedWarning", "OutsideTrainingWarning", "Surrogate", "load"]


class Surrogate(FittedSurrogate):
    """A network that learns from cases to predict fields.

    model: the network's name, of `funcattn list models`.
    budget: the time that fitting may take, such as "90 s", "10 min", "2 h"; it decides the size of
        the network and the number of epochs where these are not given.
    epochs, batch, rate: of the training; None: chosen from the budget and the data. Where no rate
        is given and the training diverges, it begins again with half the rate, twice at most.
    network: settings of the network, such as {"width": 64, "layers": 4}.
    validation, test: shares of the cases below 1, or numbers of them, that choose the epoch and
        that are kept for the one test.
    calibration: the same for cases that are put aside for the bands of predictions; 0: none, then
        `calibrate` uses those that chose the epoch.
    ensemble: networks, with seeds one after another, whose mean is the prediction.
    group_by, part_by: a parameter of the cases. Cases that share its value go to the same part; or
        its values are the parts.
    time: "steps" (the next frame from the last ones) or "times" (the field at any time); None:
        steps where the cases are series, otherwise steady fields.
    history: frames from which the next one is predicted.
    weights: whether sums over points use quadrature weights; None: where all cases have some.
    points: points of a case that a training step sees; None: all, or a part of large meshes.
    points_by: how these are drawn: "random", or "farthest" from each other.
    patience: epochs without a better validation error after which training ends; None: never.
    warm_start: the folder of another run, whose weights are the start where their shapes fit.
    yardsticks: whether cheap predictions are made too, to compare with.
    folder: where the run is kept. The same call goes on with a run that was stopped. None: a
        temporary folder, until `save`.

    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> sources = random.normal(size=(20, 8, 8))
    >>> surrogate = Surrogate(epochs=2, network={"width": 8, "layers": 1, "heads": 2, "bases": 4})
    >>> surrogate.fit(sources, 2 * sources).predict(sources[:3]).shape
    (3, 8, 8)
    """

    def __init__(
        self,
        *,
        model: str = DEFAULT_MODEL,
        budget: str | float | int = "5 min",
        epochs: int | None = None,
        batch: int | None = None,
        rate: float | None = None,
        network: Mapping[str, Any] | None = None,
        validation: float | int = 0.15,
        test: float | int = 0.15,
        calibration: float | int = 0,
        ensemble: int = 1,
        group_by: str = "",
        part_by: str = "",
        time: Kind | None = None,
        history: int = 1,
        weights: bool | None = None,
        points: int | None = None,
        points_by: Subset = "random",
        patience: int | None = None,
        warm_start: str | Path | None = None,
        yardsticks: bool = True,
        seed: int = 0,
        folder: str | Path | None = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.model, self.budget, self.epochs, self.batch = model, budget, epochs, batch
        self.rate, self.network, self.validation, self.test = rate, network, validation, test
        self.group_by, self.part_by, self.time, self.history = group_by, part_by, time, history
        self.weights, self.points, self.points_by = weights, points, points_by
        self.patience, self.calibration, self.ensemble = patience, calibration, ensemble
        self.warm_start, self.yardsticks, self.seed = warm_start, yardsticks, seed
        self.folder, self.device, self.verbose = folder, device, verbose

    # The habits of scikit-learn

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """The settings by name."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **changes: Any) -> "Surrogate":
        """Change some settings."""
        for name, value in changes.items():
            if name not in self._names():
                raise ValueError(
                    f"set_params: expected one of {', '.join(self._names())}, got {name!r}"
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = {
            name: parameter.default
            for name, parameter in inspect.signature(type(self).__init__).parameters.items()
        }
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value is not defaults[name] and value != defaults[name]
        ]
        text = f"Surrogate({', '.join(changed)})"
        if "_run" not in vars(self):
            return text
        return f"{text}\n{self.summary()}"

    def _repr_html_(self) -> str:
        """What a notebook shows: what is learned from what, and the errors beside yardsticks."""
        if "_run" not in vars(self):
            return table(repr(self), {}, "not fitted yet")
        own = self.data
        rows: dict[str, object] = {
            "from": ", ".join(each.name for each in own.inputs) or "the geometry",
            "to": ", ".join(each.name for each in own.outputs),
            "cases": f"{own.train} to train, {own.validation} to validate, {own.test} to test",
        }
        if self.run.finished:
            rows["test error"] = f"{self.run.record['test']['error']:.2%}"
            rows |= {name: f"{each['error']:.2%}" for name, each in self.comparison.items()}
        return table("Surrogate", rows, self.verdict() if self.run.finished else "")

    # Fitting

    def fit(
        self,
        data: Any,
        outputs: Any = None,
        *,
        inputs: Sequence[str] | None = None,
        positions: Any = None,
        parameters: Any = None,
        grid: Sequence[int] | None = None,
        times: Any = None,
        names: Sequence[str] | None = None,
        numbered: bool = False,
        source: str = "",
        on_step: Callable[[Any, int], None] | None = None,
        command: str = "",
    ) -> "Surrogate":
        """Learn from cases: arrays, lists, dictionaries, cases, or the path of a folder.

        data: with arrays, the inputs: (N H W) or (N H W c) on grids of one to three dimensions, a
            list of (n_i c) with `positions`, or several by name; numbers per case (N) are
            parameters; None where the geometry is the input. Otherwise a folder, or cases.
        outputs: arrays of the same kinds, or the names of the fields to predict. NaN stands for a
            value that is not known. Whole numbers are labels, to be classified.
        inputs: names of fields, categories and parameters, of a folder or of cases.
        positions, parameters, grid, times, names: see `funcattn.data.cases.from_arrays`; with a
            folder, `parameters` is a table of numbers per case.
        numbered: whether files of a folder that only differ in a number at the end, such as
            flow_001.vtu, are the times of one case.
        source: where cases that were opened before came from, for the record.
        on_step: called after each step with where the run is, and the steps of an epoch.
        command: for the record.
        """
        started_at = clock.process_time()
        device_named(self.device)  # refused before hours of reading, not after
        got = handed(
            data,
            outputs,
            inputs=inputs,
            positions=positions,
            parameters=parameters,
            grid=grid,
            times=times,
            names=names,
            numbered=numbered,
        )
        folder = self._folder()
        own = describe(
            got.cases,
            got.outputs,
            got.inputs,
            kind=self.time,
            history=self.history,
            weights=self.weights,
            base=self._split_settings(),
        )
        places = split_of(got.cases, own, got.words)
        own = replace(
            own,
            train=len(places["train"]),
            validation=len(places["validation"]),
            test=len(places["test"]),
            calibration=len(places.get(CALIBRATION, ())),
            path=source or (str(data) if isinstance(data, str | Path) else None),
            table=str(parameters) if isinstance(parameters, str | Path) else None,
            numbered=numbered,
            subset=self.points or (SUBSET if _most_points(got.cases) > MANY_POINTS else None),
            subset_by=self.points_by,
        )
        splits = splits_of(got.cases, own, places)
        started = (folder / "settings.json").exists()
        if started:
            settings = self._same_settings(Run(folder).settings, own)
        else:
            settings = sized(self, own, splits, clock.process_time() - started_at)
        self.planned_epochs = settings.optimisation.epochs
        shown = on_step or bar_in_notebook() or (_shown if self.verbose else _silent)

        def attempt(settings: RunSettings, resume: bool) -> Run:
            return self._train(
                settings, folder, resume, splits, shown, command, prepare=self._warm_start
            )

        # A rate that the user chose stays.
        if self.rate is None:
            run = trained_steadily(attempt, settings, folder, started)
        else:
            run = attempt(settings, started)
        task = Own(run.settings, splits)
        note = {
            "cases": {part: [got.cases[i].name for i in these] for part, these in places.items()},
            "deviations": dict(task.deviations) if not own.classes else {},
        }
        write_signed(folder / NOTE, json.dumps(note, indent=1) + "\n")
        self._keep_mesh(folder, got)
        self._adopt(run, task)
        if self.ensemble > 1:
            self._fit_members(run, splits, on_step, command)
        if self.yardsticks:
            from funcattn.fitting.compare import compare

            compare(self, task, splits)
        return self

    def _train(
        self,
        settings: RunSettings,
        folder: Path,
        resume: bool,
        splits: Splits,
        on_step: Callable[[Any, int], None],
        command: str,
        **more: Any,
    ) -> Run:
        """One network, trained on these cases."""
        return train(
            settings,
            folder,
            resume=resume,
            store=Store(folder),
            task=Own(settings, splits),
            device=self.device,
            on_step=on_step,
            command=command or "funcattn.Surrogate.fit",
            **more,
        )

    def _fit_members(
        self,
        run: Run,
        splits: Splits,
        on_step: Callable[[Any, int], None] | None,
        command: str,
    ) -> None:
        """The other networks of an ensemble, and the test of the mean."""

        shown = on_step or (_shown if self.verbose else _silent)

        def fit_member(settings: RunSettings, folder: Path, resume: bool) -> Run:
            return self._train(settings, folder, resume, splits, shown, command)

        train_members(run, self.ensemble, fit_member)
        run = Run(run.folder)
        self._adopt(run, self.task)
        write_test(run, self.task, metrics_of_mean(self.task, run.networks, splits.test))

    def _folder(self) -> Path:
        if self.folder is not None:
            return Path(self.folder)
        self._owner = Owner()
        return temporary_folder(self._owner) / "run"

    def _split_settings(self) -> OwnData:
        sizes: dict[str, Any] = {}
        for name, size in (
            ("validation", self.validation),
            ("test", self.test),
            ("calibration", self.calibration),
        ):
            sizes |= {f"{name}_share": float(size)} if size < 1 else {name: int(size)}
        return OwnData(**sizes, seed=self.seed, group_by=self.group_by, part_by=self.part_by)

    def _same_settings(self, settings: RunSettings, own: OwnData) -> RunSettings:
        """Those of the run in the folder, if it is of these cases."""
        was = settings.data
        if not isinstance(was, OwnData) or was != replace(own, path=was.path, table=was.table):
            raise ValueError(
                f"{self.folder}: expected the cases and fields of the run in this folder, got "
                "others; choose another folder, or remove this one"
            )
        return settings

    def _warm_start(self, network: NormalisedNetwork) -> None:
        """The weights of another run, where they fit."""
        if self.warm_start is None:
            return
        before = Run(self.warm_start)
        if before.settings.model != self.model:
            raise ValueError(
                f"warm_start: expected a run of {self.model}, got one of {before.settings.model} "
                f"in {self.warm_start}; give model={before.settings.model!r}"
            )
        saved = before.best.tensors["model"]
        with torch.no_grad():
            ours = dict(network.network.named_parameters())
            fitting = {
                name: saved[f"network.{name}"]
                for name, tensor in ours.items()
                if f"network.{name}" in saved and saved[f"network.{name}"].shape == tensor.shape
            }
            if not fitting:
                raise ValueError(
                    f"warm_start: expected a run with weights of the same shapes, got none that "
                    f"fit in {self.warm_start}; give the same network settings"
                )
            for name, tensor in fitting.items():
                ours[name].copy_(tensor)

    def _keep_mesh(self, folder: Path, got: Handed) -> None:
        """The points, where all cases have the same, so that parameters alone can be predicted."""
        first = got.cases[0]
        if first.grid is not None or len(first) > 1_000_000:
            return
        for place in range(1, len(got.cases)):
            if not np.array_equal(got.cases[place].positions, first.positions):
                return
        with signed_file(folder / MESH) as aside:
            np.save(aside, first.positions)

    def push_to_hub(
        self, name: str, *, private: bool = False, token: str | None = None, message: str = ""
    ) -> str:
        """Upload the run to the Hugging Face Hub, with a model card made from its record.

        name: "user/name"; the repository is made where it is not there yet.
        private: whether a new repository is.
        token: of the Hub; default: that of `hf auth login`.
        message: of the commit.

        Returns the address of the commit. `funcattn.load("hf://user/name")` brings it back.
        """
        return push(self, name, private=private, token=token, message=message)

    @classmethod
    def load(
        cls, folder: str | Path, device: str = "cpu", *, accept_edited: bool = False
    ) -> "Surrogate":
        """A surrogate from the folder of its run, or from the file of `funcattn pack`.

        It predicts without the data. device: where; auto, cpu, cuda, cuda:1, mps.
        accept_edited: as in `funcattn.load`.
        """
        where = device_named(device)
        run = Run(folder, accept_edited=accept_edited)
        if Path(folder).suffix != ".zip":
            return cls._loaded(run, folder, where)
        owner = vars(run)["owner"] = Owner()
        run.folder = temporary_folder(owner)
        try:
            unpack(Path(folder), run.folder)
            if not accept_edited:
                check_list(run.folder)
            return cls._loaded(run, folder, where)
        except (FuncattnError, ValueError) as error:  # about the file, not where it was unpacked
            raise RunError(str(error).replace(str(run.folder), str(folder))) from error

    @classmethod
    def _loaded(cls, run: Run, folder: str | Path, where: torch.device) -> "Surrogate":
        settings = run.settings
        if not isinstance(settings.data, OwnData):
            raise ValueError(
                f"{folder}: expected a run on own data, got one of {settings.task}; use "
                "funcattn.load"
            )
        surrogate = cls(model=settings.model, seed=settings.seed, folder=folder)
        known = read_json(run.file(NOTE), _NOTE) if (run.folder / NOTE).exists() else {}
        surrogate._adopt(run, Own(settings, deviations=known.get("deviations")))
        run.network.to(where)  # a run without trained weights is refused here
        return surrogate


def _most_points(cases: Sequence[Case]) -> int:
    return max(len(case) for case in cases)


def _silent(state: Any, steps: int) -> None:
    """No progress."""


def _shown(state: Any, steps: int) -> None:  # noqa: ARG001
    """Progress as lines on the standard error."""
    if state.step == 0 and state.history:
        line = state.history[-1]
        sys.stderr.write(
            f"epoch {state.epoch}: validation error {line['validation_error']:.4g}, best "
            f"{state.best_value:.4g} (epoch {state.best_epoch})\n"
        )


def load(
    run: str | Path | Run, device: str = "cpu", *, accept_edited: bool = False
) -> "Surrogate | Predictor":
    """A trained run, from its folder or from the file of `funcattn pack`, to predict with.

    run: also the name of a run that comes with the package, such as "darcy", or one on the Hugging
    Face Hub, "hf://user/name" or "hf://user/name@REVISION".

    A run on own data is a `Surrogate`, a benchmark's a `funcattn.serve.Predictor`.

    device: where it computes; auto, cpu, cuda, cuda:1, mps. accept_edited: files
    of the run are taken as they are, though they were changed after training.
    """
    from funcattn.serve import load as load_benchmark

    if isinstance(run, str) and is_address(run):
        folder = fetched(run)
        if not accept_edited:
            check_list(folder)
        return Surrogate.load(folder, device, accept_edited=accept_edited)
    if not isinstance(run, Run):
        path = run_folder(run)
        if path.suffix == ".zip":
            return Surrogate.load(path, device, accept_edited=accept_edited)
        run = Run(path, accept_edited=accept_edited)
    if isinstance(run.settings.data, OwnData):
        return Surrogate.load(run.folder, device, accept_edited=run.accept_edited)
    return load_benchmark(run, device, accept_edited=accept_edited)
