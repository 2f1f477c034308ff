"""Where strategies of a set can run: the rules of a strategy over a grid of sizes, where some options are still free.

A rule that refuses a strategy before it reads a free option refuses all members of the set, and so does one that refuses it under all rows of the
free options that it reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product
from typing import Any, cast

import numpy as np

from symsim.errors import InputError
from symsim.grid.family import DERIVED, Array, Family, Rule, families
from symsim.grid.names import SPLITS
from symsim.grid.space import Space
from symsim.grid.tabulate import tabulate
from symsim.grid.variant import Undone, field_at, flags_of, strategy_at
from symsim.inputs.architecture import Architecture
from symsim.inputs.deciding import DEGREES, SIZES
from symsim.lowering.checks import whole_batches
from symsim.planning.ways import OF_TRAINED, Rows

# of more combinations of rows a rule is not asked
_MOST_ROWS = 64


@dataclass(frozen=True)
class _Ruled:
    """What a rule said of a grid of sizes. read: the options that it read, with their values; free: those of them that were free. mask: where it
    lets points run."""

    read: Mapping[str, Any]
    free: frozenset[str]
    mask: Array

    def holds(self, fields: Mapping[str, Any], free: frozenset[str]) -> bool:
        """Whether it says the same of other options."""
        return all((n in free) == (n in self.free) and _same(fields.get(n), v) for n, v in self.read.items())


class Ruled:
    """What rules said of grids of sizes under other options. said: by a rule's name, and the model and the system of which it was asked."""

    def __init__(self) -> None:
        self.said: dict[Hashable, list[_Ruled]] = {}
        self._laid: dict[Hashable, tuple[Sequence[Array], Array]] = {}

    def laid(self, kind: str, arrays: Sequence[Array], make: Callable[[Sequence[Array]], Array]) -> Array:
        """What follows from arrays over the axes of a grid, at all its points; made once of the same objects."""
        key = (kind, *(id(array) if array.size > 1 else array.tobytes() for array in arrays))
        if key not in self._laid:
            self._laid[key] = arrays, make(arrays)
        return self._laid[key][1]


class Members(Family):
    """A family of a space whose options are one member's; `allowed` is where some member may run, `here` where this one does."""

    def __init__(self, space: Space, chosen: Sequence[Array], free: frozenset[str], rows: Sequence[Rows], known: Ruled):
        """free: options, and answers that follow from them; rows: of the choices that they are of. known: what rules said at other options, which
        holds here too where the options are the same that they read."""
        super().__init__(space, chosen)
        self._free, self._rows, self._known_rules = free, rows, known
        # rules that somewhere read free options
        self._open: dict[str, Rule] = {}
        self.deciding = frozenset[str]()

    def mask(self, name: str, rule: Rule) -> Array:
        said = self._known_rules.said.setdefault((name, self.spelt(self.architecture), id(self.system)), [])
        found = next((r for r in said if r.holds(self.fields, self._free)), None)
        if found is None:
            found = self._asked(name, rule)
            said.append(found)
        if found.free:
            self._open[name] = rule
            self.deciding |= found.free
        return found.mask

    def _asked(self, name: str, rule: Rule) -> _Ruled:
        if rule is whole_batches:
            return _Ruled({n: self.fields.get(n) for n in (*DEGREES, *SIZES, "dp")}, frozenset(), super().mask(name, rule))
        heard: set[str] = set()

        def refuses(architecture: Architecture, strategy: Any) -> None:
            try:
                rule(architecture, strategy)
            except InputError:
                if self._free.isdisjoint(strategy.read):
                    raise
            finally:
                heard.update(getattr(strategy, "read", ()))

        mask = super().mask(name, refuses)
        return _Ruled({n: self.fields.get(n) for n in heard}, self._free & heard, mask)

    def barred(self, positions: Sequence[Array]) -> Iterator[tuple[str, Array]]:
        """Of rules that read free options, and by which this member does not run at some of the points, the points at which no rows of these do."""
        for name, rule in self._open.items():
            stopped = np.flatnonzero(~_at(self._here[name], positions))
            if len(stopped):
                where = [p[stopped] for p in positions]
                known = {n: _at(v, where) if isinstance(v, np.ndarray) else v for n, v in self._known.items()}
                allowed = np.asarray(self._somewhere(rule, known), dtype=bool)
                yield name, stopped[np.broadcast_to(~allowed, stopped.shape)]

    def _somewhere(self, rule: Rule, known: Mapping[str, Any]) -> Any:
        """At which points, of which the fields are known, a rule lets some rows run of the free options that it reads."""
        passed = self.passing(rule)
        found: Any = True
        heard, tried = set[str](), -1
        while True:
            asked = [rows for rows in self._rows if not heard.isdisjoint(rows.names)]
            every = math.prod(len(rows.rows) for rows in asked)
            if every > _MOST_ROWS or not all(OF_TRAINED.isdisjoint(rows.names) and None not in rows.rows for rows in asked):
                return True
            if len(asked) == tried:
                return found
            tried, found = len(asked), False
            for chosen in product(*(cast("Sequence[Mapping[str, Any]]", rows.rows) for rows in asked)):
                values = {name: value for row in chosen for name, value in row.items()}
                found = found | np.asarray(tabulate(passed, {**known, **values}, heard), dtype=bool)

    @cached_property
    def here(self) -> list[Array]:
        """Masks of where this member runs."""
        return [*self.masks, *self._here.values()]

    @cached_property
    def _here(self) -> dict[str, Array]:
        """Where this member runs by each of the rules that somewhere read free options."""
        assert self.masks is not None
        return {name: self._over_axes(super(Members, self).mask(name, rule)) for name, rule in self._open.items()}

    def _over_axes(self, mask: Array) -> Array:
        return mask.reshape([1] * len(self.space.sizes)) if mask.ndim == 0 else mask

    @cached_property
    def inside(self) -> Array:
        """Whether a point is of this family, of all of the grid."""
        return self._known_rules.laid("inside", self.chosen, self._inside)

    @cached_property
    def broken(self) -> Array:
        """The number of the first rule of `allowed` that refuses all members, or -1, of all points of the grid."""
        return self._known_rules.laid("broken", self.masks, self._broken)

    @cached_property
    def runs(self) -> Array:
        """Whether this member runs where some member may, of all points of the grid."""
        return self._known_rules.laid("runs", self.here[len(self.masks) :], self._runs)

    @cached_property
    def codes(self) -> Array:
        """Of all points of the grid numbers that are the same where these share a derivation."""
        options = [v for n, v in self.fields.items() if isinstance(v, np.ndarray) and n not in (*SIZES, *DEGREES, *SPLITS)]
        return self._known_rules.laid("codes", [*options, *map(np.asarray, flags_of(self).values())], self._codes)

    def _inside(self, chosen: Sequence[Array]) -> Array:
        found = np.ones(self.space.sizes, dtype=bool)
        for axis, (positions, size) in enumerate(zip(chosen, self.space.sizes)):
            if len(positions) < size:
                there = np.zeros(size, dtype=bool)
                there[positions] = True
                found &= there.reshape([-1 if k == axis else 1 for k in range(found.ndim)])
        return found.reshape(-1)

    def _broken(self, masks: Sequence[Array]) -> Array:
        found = np.array(-1, dtype=np.int16)
        for number in reversed(range(len(masks))):
            found = np.where(masks[number], found, np.int16(number))
        return self._everywhere(found)

    def _runs(self, masks: Sequence[Array]) -> Array:
        return self._everywhere(reduce(np.logical_and, masks, np.array(True)))

    def _codes(self, arrays: Sequence[Array]) -> Array:
        found, values = np.zeros([1] * len(self.space.sizes), dtype=np.int64), 1
        for array in arrays:
            distinct, which = np.unique(array, return_inverse=True)
            if len(distinct) > 1:
                found = found * len(distinct) + which.reshape(array.shape)
                values *= len(distinct)
        return self._everywhere(found.astype(np.int32) if values < 1 << 31 else found)

    def _everywhere(self, array: Array) -> Array:
        """An array over some axes at all points of the grid."""
        return np.broadcast_to(array, self.space.sizes).reshape(-1)

    @property
    def alike(self) -> bool:
        """Whether all members run where this one does: no rule reads a free option."""
        return not (self.here and self._open)

    def why(self, rule: str, number: int) -> str:
        """What a rule says of a point."""
        if rule.startswith(DERIVED):
            key = rule.removeprefix(DERIVED)
            return f"{key}={self.space.derived[key].text.lstrip('=')} is none that {key} can be"
        if rule not in self.rules:
            return "an imbalance is more than the ranks that share the experts"
        try:
            self.rules[rule](self.architecture, strategy_at(self.fields, [int(k) for k in np.unravel_index(number, self.space.sizes)]))
        except InputError as error:
            return str(error)
        return ""


def _same(one: Any, other: Any) -> bool:
    """Whether two fields are the same; arrays of one grid of sizes, of which the same object stands for the same."""
    if one is other:
        return True
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and one.shape == other.shape and bool((one == other).all())
    return type(one) is type(other) and bool(one == other)


@dataclass(frozen=True)
class Part:
    """Points of a family that share a derivation. undone: these points, and others beside them; runs: whether the member does at one of them, the
    point of `undone`."""

    family: Members
    undone: Undone
    runs: bool


@dataclass(frozen=True)
class Parts:
    """Points under one member's options, cut into parts. Of every point: part, the number of its part, or -1; here: whether the member runs at it;
    broken: the number of the rule that refuses all members, or -1. deciding: free options that rules read: with others of their values a member may
    run where this one does not."""

    parts: Sequence[Part]
    rules: Sequence[tuple[str, Members | None, str]]
    part: Array
    here: Array
    broken: Array
    deciding: frozenset[str]

    def why(self, rule: int, number: int) -> str:
        name, family, said = self.rules[rule]
        return said if family is None else family.why(name, number)


def members_of(space: Space, free: frozenset[str], rows: Sequence[Rows], known: Ruled) -> list[Members]:
    """The families of a space of one member's options, of which some are free: those of `rows`, and answers that follow from them."""
    return [Members(space, one.chosen, free, rows, known) for one in families(space)]


def parted(apart: Sequence[Members], points: Array) -> Parts:
    """Points of a space, by their numbers, under one member's options."""
    positions = np.unravel_index(points, apart[0].space.sizes)
    part, broken = (np.full(len(points), -1, dtype=np.int32) for _ in range(2))
    here = np.zeros(len(points), dtype=bool)
    parts: list[Part] = []
    rules: list[tuple[str, Members | None, str]] = []
    deciding = frozenset[str]()
    for family in apart:
        own = np.flatnonzero(family.inside[points])
        if not len(own):
            continue
        try:
            stops, codes = family.broken[points[own]], family.codes
        except InputError as error:
            broken[own] = len(rules)
            rules.append(("model", None, str(error)))
            continue
        broken[own] = np.where(stops < 0, -1, stops + len(rules))
        rules += [(name, family, "") for name, _ in family.allowed]
        deciding |= family.deciding
        own = own[stops < 0]
        if not len(own):
            continue
        here[own] = family.runs[points[own]]
        for members in _alike(own, codes[points[own]]):
            part[members] = len(parts)
            parts.append(_part(family, positions, members, here))
    return Parts(parts, rules, part, here, broken, deciding)


def barred(apart: Sequence[Members], points: Array) -> tuple[Array, list[tuple[str, Members]]]:
    """Of points of a space, by their numbers, the number of a rule that refuses them under all rows of the free options that it reads, or -1; and the
    rules."""
    positions = np.unravel_index(points, apart[0].space.sizes)
    stopped = np.full(len(points), -1, dtype=np.int32)
    rules: list[tuple[str, Members]] = []
    for family in apart:
        own = np.flatnonzero(family.inside[points])
        for name, none in family.barred([p[own] for p in positions]) if len(own) else ():
            stopped[own[none][stopped[own[none]] < 0]] = len(rules)
            rules.append((name, family))
    return stopped, rules


def _at(array: Array, positions: Sequence[Array]) -> Array:
    """An array over some axes at points of the grid."""
    found: Array = array[tuple(p if n > 1 else np.zeros_like(p) for p, n in zip(positions, array.shape))]
    return found


def _alike(own: Array, codes: Array) -> list[Array]:
    """Those of a code together, by rising codes, in the order that they have."""
    order = np.argsort(codes, kind="stable")
    members, rising = own[order], codes[order]
    starts = [0, *(np.flatnonzero(rising[1:] != rising[:-1]) + 1), len(own)]
    return [members[start:end] for start, end in zip(starts, starts[1:])]


def _which(numbers: Array, size: int) -> Array:
    """The numbers below a size that there are, rising."""
    there = np.zeros(size, dtype=bool)
    there[numbers] = True
    return np.flatnonzero(there)


def _part(family: Members, positions: Sequence[Array], members: Array, here: Array) -> Part:
    running = members[here[members]]
    first = running[0] if len(running) else members[0]
    point = tuple(int(p[first]) for p in positions)
    chosen = tuple(_which(p[members], size) for p, size in zip(positions, family.space.sizes))
    options = {n: field_at(v, point) for n, v in family.fields.items() if isinstance(v, np.ndarray) and n not in (*SIZES, *DEGREES, *SPLITS)}
    return Part(family, Undone(family, chosen, {**family.fields, **options}, [*family.masks, *family.here], point), bool(len(running)))
