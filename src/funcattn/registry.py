"""Things by name that register themselves in their own files: networks, attentions, tasks.

The names of what the package brings are known without an import; the file that defines a thing is
imported when the thing is asked for. Other packages add theirs by an entry point.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

Entry = TypeVar("Entry")


class Registry(Mapping[str, Entry], Generic[Entry]):
    """Entries by name, in the order of `modules`, then those of other packages.

    kind: what the entries are, for messages. modules: the module that registers each name. group:
    entry points of other packages, whose modules register the names of the points.
    """

    def __init__(self, kind: str, modules: Mapping[str, str], group: str | None = None) -> None:
        self.kind, self.group = kind, group
        self._modules = dict(modules)
        self._entries: dict[str, Entry] = {}
        self._points: dict[str, EntryPoint] | None = None

    def register(self, name: str, entry: Entry) -> None:
        """Add an entry under a name of its own.

        Raises:
            ValueError: the name is taken.
        """
        if self._entries.setdefault(name, entry) is not entry:
            raise ValueError(f"{self.kind}: expected a name that is not taken, got {name!r}")

    def named(self, name: str) -> Entry:
        """The entry of that name.

        Raises:
            ValueError: there is none.
        """
        if name not in self:
            raise ValueError(unknown(self.kind, name, self))
        return self[name]

    def __setitem__(self, name: str, entry: Entry) -> None:
        """Put an entry in the place of the one that has the name."""
        self._entries[name] = entry

    def __getitem__(self, name: str) -> Entry:
        if name not in self._entries:
            if name in self._modules:
                import_module(self._modules[name])
            elif name in self._of_others():
                self._of_others()[name].load()
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._modules or name in self._of_others()

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self._modules, *self._of_others(), *self._entries])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _of_others(self) -> dict[str, EntryPoint]:
        if self._points is None:
            found = entry_points(group=self.group) if self.group else ()
            self._points = {point.name: point for point in found}
        return self._points


def unknown(where: str, name: str, known: Iterable[str]) -> str:
    """A message about a name that is not known, with the nearest one that is.

    >>> unknown("task", "darci", ["darcy", "pipe"])
    "task: expected one of darcy, pipe, got 'darci'; did you mean darcy?"
    """
    names = list(known)
    return f"{where}: expected one of {', '.join(names)}, got {name!r}{did_you_mean(name, names)}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What to add to a message about a name that is not known: the nearest one that is, if any.

    >>> did_you_mean("darci", ["burgers", "darcy"])
    '; did you mean darcy?'
    """
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
