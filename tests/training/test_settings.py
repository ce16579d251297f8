"""The settings of a run from where they come; those that networks do not have."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from funcattn.cli.settings import over, resolved
from funcattn.experiments.engine.trial import identity
from funcattn.models import MODELS
from funcattn.models.fno import FNOSettings
from funcattn.settings import OLD_NETWORK_NAMES, FunctionalSettings
from funcattn.tasks import TASKS
from funcattn.tasks.darcy import DarcyData
from funcattn.training.settings import default_settings, saved_settings, with_model

RESULTS = Path(__file__).parents[2] / "results" / "experiments"

OLD: dict[str, Any] = {
    "task": "darcy",
    "model": "fno",
    "seed": 3,
    "data": {
        "train": 12,
        "validation": 4,
        "test": 4,
        "seed": 0,
        "path": None,
        "public_positions": False,
        "nodes": 33,
        "stride": 4,
        "keep": 2,
    },
    "network": {
        "width": 8,
        "layers": 2,
        "heads": 2,
        "bases": 4,
        "mlp_ratio": 1.0,
        "share_basis": False,
        "reach": 0.125,
        "lattice": None,
        "modes": 3,
        "basis": "learned",
        "projection": "average",
        "ridge": 0.5,
        "dropout": 0.0,
        "checkpoint": False,
    },
    "optimisation": {"optimiser": "adamw", "epochs": 3},
    "precision": "32-true",
    "checkpoint_seconds": 30.0,
}
"""As runs kept them when all networks had the same settings."""


def test_settings_of_an_old_run_are_read_without_those_of_other_networks() -> None:
    assert OLD["network"].keys() == OLD_NETWORK_NAMES
    settings = saved_settings(OLD)
    assert settings.network == FNOSettings(width=8, layers=2, modes=3)
    assert settings.data == DarcyData(
        train=12, validation=4, test=4, nodes=33, use_every=4, store_every=2
    )
    assert (settings.seed, settings.optimisation.epochs) == (3, 3)
    funcattn = saved_settings({**OLD, "model": "funcattn"})
    assert funcattn.network == FunctionalSettings(
        width=8, layers=2, heads=2, bases=4, reach=0.125, share_basis=False
    )


def test_a_setting_that_came_later_has_the_value_of_that_time() -> None:
    now = asdict(default_settings("burgers", "smoke", "modern"))
    assert saved_settings(now).data.length == pytest.approx(6.2831853)  # type: ignore[attr-defined]
    del now["data"]["length"]
    assert saved_settings(now).data.length == 1.0  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "then"), [("metric", True), ("along_axes", False)])
def test_an_old_run_of_our_network_keeps_its_parts(name: str, then: bool) -> None:
    now = asdict(default_settings("pipe", "smoke", "modern", "functional_operator"))
    assert getattr(saved_settings(now).network, name) is None
    del now["network"][name]
    assert getattr(saved_settings(now).network, name) is then


def test_a_run_keeps_its_surroundings_whatever_the_default() -> None:
    now = default_settings("elasticity", "smoke", "modern", "functional_operator")
    assert now.network.surroundings == "auto"  # type: ignore[attr-defined]
    assert saved_settings(asdict(now)) == now
    without = asdict(now)
    without["network"]["surroundings"] = None
    assert saved_settings(without).network.surroundings is None  # type: ignore[attr-defined]
    del without["network"]["surroundings"]  # as a run before there was this setting
    assert saved_settings(without).network.surroundings is None  # type: ignore[attr-defined]


def test_no_result_of_the_former_circle_is_taken_for_one_of_the_present() -> None:
    lines = (RESULTS / "burgers.jsonl").read_text().splitlines()
    lengths = {saved_settings(json.loads(line)["settings"]).data.length for line in lines[:3]}  # type: ignore[attr-defined]
    assert lengths == {1.0}


def test_old_and_new_settings_have_one_identity() -> None:
    old = saved_settings(OLD)
    new = saved_settings(json.loads(json.dumps(asdict(old))))
    assert new == old
    assert identity(new) == identity(old)


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_result_that_there_is_can_be_read(path: Path) -> None:
    for line in path.read_text().splitlines():
        kept = json.loads(line)["settings"]
        settings = saved_settings(kept)
        for name, value in asdict(settings.network).items():
            was = kept["network"].get(name, value)
            assert value == (tuple(was) if isinstance(was, list) else was)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "darci"}, r"task: expected one of .*, got 'darci'; did you mean darcy\?"),
        ({"model": "fmo"}, r"model: expected one of .*, got 'fmo'; did you mean fno\?"),
        ({"network": {"mods": 3}}, r"network: expected one of width, layers, modes, got 'mods'"),
        ({"network": 3}, r"network: expected NetworkSettings, got 3"),
    ],
)
def test_what_no_run_ever_kept_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        saved_settings({**OLD, **changes})
    with pytest.raises(ValueError, match="settings: expected those of a run, with its task"):
        saved_settings({"model": "fno"})


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("task", TASKS)
def test_settings_of_every_pair_come_back_from_json(task: str, model: str) -> None:
    settings = default_settings(task, "cpu", "modern", model)
    if MODELS[model].refusal(TASKS[task](settings).problem) is None:
        assert saved_settings(json.loads(json.dumps(asdict(settings)))) == settings


def test_a_network_that_declares_no_matrices_is_trained_by_adamw() -> None:
    settings = default_settings("darcy", "cpu", "modern")
    assert settings.optimisation.optimiser == "muon"
    assert with_model(settings, "fno", "cpu").optimisation.optimiser == "adamw"
    assert with_model(settings, "lno", "cpu").optimisation.optimiser == "muon"


def flags(*given: str, model: str = "fno") -> Any:
    return resolved("darcy", "smoke", "modern", None, ["--model", model, *given])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["--network.heads", "3"],
            r"fno has on darcy, one of --network.width, --network.layers, --network.modes, got",
        ),
        (["--network.basis=fourier"], r"fno has on darcy, .* --network.modes, got --network.basis"),
        (["--network.mode", "3"], r"got --network.mode; did you mean --network.modes\?"),
        (
            ["--network.no-checkpoint"],
            r"fno has on darcy, one of .*, got --network.no-checkpoint",
        ),
        (
            ["--data.node", "9"],
            r"on darcy, .*, got --data.node; did you mean --data.nodes\?",
        ),
    ],
)
def test_flags_of_settings_that_a_network_does_not_have_are_refused(
    given: list[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        flags(*given)


def test_flags_of_settings_that_it_has_are_taken() -> None:
    settings = flags("--network.modes", "3", "--network.width=12")
    assert settings.network == FNOSettings(width=12, layers=2, modes=3)
    ours = flags("--network.basis", "fourier", "--network.checkpoint", model="funcattn")
    assert (ours.network.basis, ours.network.checkpoint) == ("fourier", True)
    for said, taken in (("auto", "auto"), ("0.1", 0.1), ("None", None)):
        around = flags("--network.surroundings", said, model="functional_operator")
        assert around.network.surroundings == taken


def test_flags_by_old_names_are_taken() -> None:
    settings = flags("--data.stride", "4", "--seed", "5", "--data.keep=2", "--data.train", "3")
    assert settings.data == DarcyData(
        nodes=17, use_every=4, store_every=2, train=3, validation=4, test=4
    )
    assert settings.seed == 5


def test_a_file_names_the_network(tmp_path: Path) -> None:
    config = tmp_path / "a.toml"
    config.write_text('model = "fno"\n[network]\nmodes = 3\n')
    settings = resolved("darcy", "smoke", "modern", config, [])
    assert settings.network == FNOSettings(width=8, layers=2, modes=3)
    with pytest.raises(
        ValueError, match=r"a\.toml\.network: expected one of width, .*, got 'modes'"
    ):
        resolved("darcy", "smoke", "modern", config, ["--model", "lno"])


def test_the_settings_file_of_an_old_run_is_a_configuration(tmp_path: Path) -> None:
    config = tmp_path / "settings.json"
    config.write_text(json.dumps(OLD))
    settings = resolved("darcy", "smoke", "modern", config, ["--seed", "4"])
    assert settings.network == FNOSettings(width=8, layers=2, modes=3)
    assert (settings.data.use_every, settings.seed) == (4, 4)
    again = over(saved_settings(OLD), config, [])
    assert again == saved_settings(OLD)
