"""Many cases: a sequence that knows what goes in and what comes out."""

from collections.abc import Callable, Iterator, Sequence
from typing import overload

from funcattn.data.cases.case import Case


class Cases:
    """Cases by number, made when they are asked for: a sequence, though none is read to check it.

    Args:
        names: of the cases.
        make: the case of a number.
        inputs: names of fields, categories and parameters that go in; empty where that is open.
        outputs: names of fields and categories that come out; empty where that is open.
    """

    def __init__(
        self,
        names: Sequence[str],
        make: Callable[[int], Case],
        *,
        inputs: Sequence[str] = (),
        outputs: Sequence[str] = (),
    ) -> None:
        self.names = list(names)
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._make = make

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Case]:
        return (self[index] for index in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Case: ...
    @overload
    def __getitem__(self, index: slice) -> "Cases": ...
    def __getitem__(self, index: int | slice) -> "Case | Cases":
        if isinstance(index, slice):
            return self.chosen(range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(f"expected a case among {len(self)}, got number {index}")
        return self._make(index % len(self))

    def chosen(self, places: Sequence[int]) -> "Cases":
        """Some of the cases, in this order."""
        return Cases(
            [self.names[place] for place in places],
            lambda index: self[places[index]],
            inputs=self.inputs,
            outputs=self.outputs,
        )
