"""Mappings of a derivation as passes read them: each read is told to its memory (`traced.py`), of what passes made field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symsim.inputs.traced import Memory


class Reading(Mapping[str, Any]):
    """A mapping of the derivation at hand, the reads of which are traced."""

    def __init__(self, memory: Memory, kind: str):
        self._memory, self._kind = memory, kind

    def __getitem__(self, name: str) -> Any:
        if self._memory.pass_ is not None:
            self._memory.pass_.note((self._kind, name))
        return self._memory.mappings[self._kind][name]

    def __contains__(self, name: object) -> bool:
        return name in self._memory.mappings[self._kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._memory.mappings[self._kind])

    def __len__(self) -> int:
        return len(self._memory.mappings[self._kind])


class Parts(Reading):
    """A mapping of the derivation at hand; its names are traced, and of what it holds each field."""

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        return One(self._memory, self._kind, name)

    def __contains__(self, name: object) -> bool:
        if self._memory.pass_ is not None:
            self._memory.pass_.note(("holds", (self._kind, name)))
        return name in self._memory.mappings[self._kind]

    def __iter__(self) -> Iterator[str]:
        if self._memory.pass_ is not None:
            self._memory.pass_.note(("names", self._kind))
        return iter(self._memory.mappings[self._kind])

    def __len__(self) -> int:
        return len(list(iter(self)))


class One:
    """One of what a mapping holds, as passes read it."""

    __slots__ = ("memory", "kind", "name")

    def __init__(self, memory: Memory, kind: str, name: str):
        self.memory, self.kind, self.name = memory, kind, name

    def __getattr__(self, attribute: str) -> Any:
        whole = self.memory.mappings[self.kind][self.name]
        found = getattr(type(whole), attribute, None)
        if isinstance(found, property) and found.fget is not None:
            return found.fget(self)
        value = getattr(whole, attribute)
        if self.memory.pass_ is not None:
            self.memory.pass_.note(("field", (self.kind, self.name, attribute)))
        return value
