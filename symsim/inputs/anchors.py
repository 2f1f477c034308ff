"""What a YAML text names to write it once: `&x` before a value, `*x` in its place, `<<: *x` for the keys of a mapping that are not given.

YAML 1.2.2, 3.2.2.2 and 7.1; the merge key is that of YAML 1.1 (yaml.org/type/merge.html).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from symsim.errors import InputError, cut
from symsim.inputs.plain_yaml import Event

MERGE = "<<"
# names of names of names grow without an end, and no recipe needs a hundredth of this
_MOST = 20_000


class Anchors:
    """The values that have a name, each as the events between two places of the text as it is written out."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._events: list[Event] = []
        self._named: dict[str, tuple[int, int]] = {}
        self._open: list[tuple[str, int, int]] = []
        self._depth = self._added = 0

    def seen(self, event: Event, name: str | None) -> Event:
        """The event, which begins what the name is of."""
        if name is not None:
            self._open.append((name, len(self._events), self._depth))
        self._events.append(event)
        if not isinstance(event.what, str):
            self._depth += 1 if event.what is not None else -1
        while self._open and self._open[-1][2] == self._depth:
            ended, start, _ = self._open.pop()
            self._named[ended] = (start, len(self._events))
        return event

    def written_out(self, name: str, line: int) -> Iterator[Event]:
        """The events of what the name is of; InputError where it is of nothing, of what it stands in, or makes the text too long."""
        place = f"{self.where}:{line}: alias *{cut(name)}"
        if any(name == one for one, _, _ in self._open):
            raise InputError(f"{place} stands inside the value that &{cut(name)} names; write the value out")
        if name not in self._named:
            raise InputError(f"{place} names nothing; the value that it repeats has to stand before it, as &{cut(name)} VALUE")
        start, end = self._named[name]
        self._added += end - start
        if self._added > _MOST:
            raise InputError(f"{place} and those before it repeat more than {_MOST} values; write those that are meant")
        for event in self._events[start:end]:
            # a container of its own for each place
            yield self.seen(event._replace(what=type(event.what)()) if isinstance(event.what, (list, dict)) else event, None)


def merged(value: Any, lines: Mapping[tuple[Any, ...], int], marks: frozenset[tuple[Any, ...]], where: str) -> tuple[Any, dict[tuple[Any, ...], int]]:
    """Nested data and the lines of its keys, with the keys that `<<` brings in its place. marks: the paths of those keys."""
    found: dict[tuple[Any, ...], int] = {}

    def resolved(value: Any, old: tuple[Any, ...], new: tuple[Any, ...], to: dict[tuple[Any, ...], int]) -> Any:
        if old in lines:
            to[new] = lines[old]
        if isinstance(value, list):
            return [resolved(one, (*old, at), (*new, at), to) for at, one in enumerate(value)]
        if not isinstance(value, dict):
            return value
        mark = (*old, MERGE)
        made = {key: resolved(one, (*old, key), (*new, key), to) for key, one in value.items() if not (key == MERGE and mark in marks)}
        if mark in marks:
            brought = value[MERGE]
            sources = [((*mark, at), one) for at, one in enumerate(brought)] if isinstance(brought, list) else [(mark, brought)]
            for place, source in sources:
                if not isinstance(source, dict):
                    raise InputError(f"{where}:{lines[mark]}: << brings the keys of a mapping, or of a list of them, as in '<<: *NAME'")
                inner: dict[tuple[Any, ...], int] = {}
                keys = {key: one for key, one in resolved(source, place, new, inner).items() if key not in made}
                made |= keys
                to.update({path: line for path, line in inner.items() if len(path) > len(new) and path[len(new)] in keys})
        return made

    return resolved(value, (), (), found), found
