import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from funcattn.data import Store
from funcattn.fitting.served import served
from funcattn.serve.app import create_app
from funcattn.serve.drawn import EDITORS
from funcattn.serve.limits import Access, Limits
from funcattn.serve.model import ServedModel
from funcattn.settings import changed
from funcattn.surrogate import Surrogate
from funcattn.tasks import TASKS
from funcattn.training.checkpoint import Checkpoint, model_tensors, save_checkpoint
from funcattn.training.run import train
from funcattn.training.settings import default_settings
from funcattn.training.setup import build_network
from funcattn.trust.bands import calibrate
from funcattn.trust.subject import open_subject


def untrained_run(task: str, folder: Path, model: str = "funcattn") -> Path:
    """A run that predicts something, as no training takes less time than a short one."""
    settings = default_settings(task, "smoke", "modern", model)
    described = TASKS[task](settings)
    network = build_network(described)
    editor = EDITORS[task](asdict(settings.data))
    drawing = editor.draw(editor.default(), 1)
    random = torch.Generator().manual_seed(0)
    channels = described.problem.output_channels
    network.fit(
        [torch.from_numpy(drawing.positions).float()],
        [] if drawing.values is None else [torch.from_numpy(drawing.values).float()],
        [torch.randn(len(drawing.positions), channels, generator=random)],
    )
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "settings.json").write_text(json.dumps(asdict(settings)))
    document = {"settings": asdict(settings)}
    save_checkpoint(
        folder / "checkpoints" / "best-000001",
        Checkpoint({"model": model_tensors(network)}, document),
    )
    return folder


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder of an untrained run of each task that can be drawn."""
    above = tmp_path_factory.mktemp("served")
    return {task: untrained_run(task, above / task) for task in EDITORS}


@pytest.fixture(scope="session")
def own_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on own data: a number per case, on one mesh."""
    random = np.random.default_rng(0)
    places = random.uniform(size=(30, 2))
    angles = random.uniform(0.0, 2.0, 12)
    fields = np.sin(angles[:, None] + places[None, :, 0])
    small = {"width": 8, "layers": 1, "heads": 2, "bases": 4}
    surrogate = Surrogate(model="funcattn", epochs=1, network=small, yardsticks=False)
    surrogate.fit(
        None,
        {"height": fields},
        positions=np.repeat(places[None], 12, axis=0),
        parameters={"angle": angles},
    )
    return surrogate.save(tmp_path_factory.mktemp("own") / "waves")


@pytest.fixture(scope="session")
def banded_run(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Path:
    """A short run of a benchmark, with bands."""
    folder = tmp_path_factory.mktemp("banded") / "banded"
    settings = changed(
        default_settings("darcy", "smoke", "modern", "functional_operator"),
        {"optimisation": {"epochs": 1}},
    )
    train(settings, folder, store=store, command="a test")
    calibrate(open_subject(folder, store), coverage=0.8, count=12, spread="constant")
    return folder


@pytest.fixture(scope="session")
def models(runs: Mapping[str, Path], own_run: Path, banded_run: Path) -> dict[str, ServedModel]:
    """All of them as the service knows them."""
    found = [served(folder) for folder in (*runs.values(), own_run, banded_run)]
    return {model.name: model for model in found}


@pytest.fixture
def service_of(tmp_path: Path) -> Callable[..., TestClient]:
    """A client of a service in this process."""

    def asking(
        models: Mapping[str, ServedModel],
        limits: Limits = Limits(seconds=300.0),  # noqa: B008
        access: Access = Access(hosts=("localhost",)),  # noqa: B008
    ) -> TestClient:
        app = create_app(models, folder=tmp_path, limits=limits, access=access)
        return TestClient(app, base_url="http://localhost", raise_server_exceptions=False)

    return asking


@pytest.fixture
def client(
    models: Mapping[str, ServedModel], service_of: Callable[..., TestClient]
) -> Iterator[TestClient]:
    """Asks a service of all models."""
    with service_of(models) as asked:
        yield asked
