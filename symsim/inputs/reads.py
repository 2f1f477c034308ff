"""What was made after which reads: a tree, in which reads stand together up to the first that had several values.

What a pass reads first is the same in all its runs, and what it reads next follows from the values so far. To find what was made of the values
of now takes as many steps as there are reads, and no more than a comparison for each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

R = TypeVar("R")
# what was read: of which kind, and which of them
Item = tuple[str, Hashable]
Value = Callable[[Item], Hashable]


@dataclass(eq=False)
class Reads(Generic[R]):
    """After some reads: what was made, or the reads that follow. Several runs of these only where passes inside were taken in another order."""

    made: R | None = None
    following: "list[_Run[R]]" = field(default_factory=list)

    def found(self, now: Mapping[Item, Hashable], value: Value) -> R | None:
        """What was made of values as they are: those in `now`, others by `value`."""
        if self.made is not None:
            return self.made
        for run in self.following:
            after = run.after(now, value)
            found = None if after is None else after.found(now, value)
            if found is not None:
                return found
        return None

    def keep(self, reads: Sequence[tuple[Item, Hashable]], made: R) -> None:
        """This was made after these reads, with their values."""
        if not reads:
            self.made = made
            return
        for run in self.following:
            if run.items[0] == reads[0][0]:
                run.keep(reads, made)
                return
        self.following.append(_Run([item for item, _ in reads], [value for _, value in reads[:-1]], {reads[-1][1]: Reads(made)}))


@dataclass(eq=False)
class _Run(Generic[R]):
    """Reads one after the other. values: of all but the last, each of which had one value so far; ways: where each value of the last leads."""

    items: list[Item]
    values: list[Hashable]
    ways: dict[Hashable, Reads[R]]

    def after(self, now: Mapping[Item, Hashable], value: Value) -> Reads[R] | None:
        for item, known in zip(self.items, self.values):
            if (now[item] if item in now else value(item)) != known:
                return None
        item = self.items[-1]
        return self.ways.get(now[item] if item in now else value(item))

    def keep(self, reads: Sequence[tuple[Item, Hashable]], made: R) -> None:
        """As of `Reads`; the first read is this run's."""
        last = len(self.items) - 1
        for at, (item, value) in enumerate(reads[: last + 1]):
            if item != self.items[at]:
                self._cut(at - 1)
                break
            if at < last and value != self.values[at]:
                self._cut(at)
                break
        else:
            assert len(reads) > last
        at = len(self.items) - 1
        self.ways.setdefault(reads[at][1], Reads()).keep(reads[at + 1 :], made)

    def _cut(self, at: int) -> None:
        """End behind a read; what followed it, follows its value."""
        rest = _Run(self.items[at + 1 :], self.values[at + 1 :], self.ways)
        self.ways = {self.values[at]: Reads(following=[rest])}
        self.items, self.values = self.items[: at + 1], self.values[:at]
