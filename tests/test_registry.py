"""Things by name that register themselves."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from funcattn import registry
from funcattn.registry import Registry, unknown


def test_names_are_known_before_anything_is_imported() -> None:
    things: Registry[int] = Registry("thing", {"one": "no.such.module", "two": "no.such.module"})
    things.register("three", 3)
    assert list(things) == ["one", "two", "three"]
    assert len(things) == 3
    assert "one" in things
    assert things["three"] == 3
    with pytest.raises(ModuleNotFoundError):
        things["one"]


def test_a_module_registers_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    things: Registry[int] = Registry("thing", {"one": "a.module"})
    monkeypatch.setattr(registry, "import_module", lambda name: things.register("one", len(name)))
    assert things.named("one") == len("a.module")


def test_other_packages_add_theirs_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("joined", "json:loads", "funcattn.things")
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] * (group == point.group))
    things: Registry[int] = Registry("thing", {}, group="funcattn.things")
    assert list(things) == ["joined"]
    with pytest.raises(KeyError, match="joined"):  # its module registers nothing
        things["joined"]
    things.register("joined", 7)
    assert things.named("joined") == 7
    assert len(things) == 1


def test_a_name_that_is_taken_is_refused() -> None:
    things: Registry[list[int]] = Registry("thing", {})
    first: list[int] = []
    things.register("a", first)
    things.register("a", first)  # the same again is no other
    with pytest.raises(ValueError, match="thing: expected a name that is not taken, got 'a'"):
        things.register("a", [1])


def test_an_unknown_name_is_refused_with_the_known_ones_and_the_nearest() -> None:
    things: Registry[int] = Registry("thing", {"large": "x", "small": "x"})
    with pytest.raises(ValueError, match=r"thing: .* large, small, got 'smal'; .* small\?"):
        things.named("smal")
    assert unknown("thing", "zzz", things).endswith("got 'zzz'")


def test_networks_and_tasks_are_imported_when_they_are_asked_for() -> None:
    code = """
import sys
import funcattn
from funcattn.models import MODELS
from funcattn.tasks import TASKS
assert {"fno", "gino", "transolver"} < set(MODELS)
assert {"darcy", "airfrans", "rna"} < set(TASKS)
later = ("neuralop", "numba", "skfem", "funcattn.models.gino", "funcattn.tasks.airfrans")
print([name for name in later if name in sys.modules])
"""
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert found.strip() == "[]"
