"""Where strategies of a set can run: the rules of a strategy over a grid of sizes, where some options are still free.

A rule that refuses a strategy before it reads a free option refuses all members of the set.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from symsim.errors import InputError
from symsim.grid.family import DERIVED, Array, Family, Rule, families
from symsim.grid.names import DEGREES, SIZES
from symsim.grid.space import Space
from symsim.grid.variant import Undone, first_point, flags_of, joined, strategy_at, taken, variants
from symsim.inputs.architecture import Architecture
from symsim.lowering.checks import whole_batches


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


class Cuts:
    """What grids of sizes under other options share: what rules said, and how points are cut into parts where rules and degrees say the same."""

    def __init__(self) -> None:
        self.ruled: dict[str, list[_Ruled]] = {}
        self.made: dict[Hashable, "_Cut"] = {}
        # of a grid of several families, those of each, by the positions that it has
        self.apart: dict[Hashable, Cuts] = {}


class Members(Family):
    """A family of a space whose options are one member's; `allowed` is where some member may run, `here` where this one does."""

    def __init__(self, space: Space, chosen: Sequence[Array], free: frozenset[str], known: Cuts):
        """known: what rules said at other options, which holds here too where the options are the same that they read."""
        super().__init__(space, chosen)
        self._free, self._ruled = free, known.ruled
        # rules that somewhere read free options
        self._open: dict[str, Rule] = {}
        self.deciding = frozenset[str]()

    def mask(self, name: str, rule: Rule) -> Array:
        found = next((r for r in self._ruled.get(name, ()) if r.holds(self.fields, self._free)), None)
        if found is None:
            found = self._asked(name, rule)
            self._ruled.setdefault(name, []).append(found)
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

    @cached_property
    def here(self) -> list[Array]:
        """Masks of where this member runs."""
        found = list(self.masks)
        for name, rule in self._open.items():
            mask = super().mask(name, rule)
            found.append(mask.reshape([1] * len(self.space.sizes)) if mask.ndim == 0 else mask)
        return found

    @cached_property
    def told(self) -> list[tuple[str, Array]]:
        """The arrays that tell how points are cut into parts, each with its name: options and degrees, where the rules let points run, and where
        this member does. InputError where the options are none of a strategy."""
        fields = [(name, v) for name, v in self.fields.items() if isinstance(v, np.ndarray)]
        flags = [(f"flag {name}", v) for name, v in flags_of(self).items()]
        return [*fields, *flags, *self.allowed, *(("here", mask) for mask in self.here)]

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
    """Points of a family that share a derivation. cut: the same part, perhaps under other options; point: one of its points at which the member
    runs, where there is one."""

    family: Members
    cut: Undone
    point: tuple[int, ...] | None

    @cached_property
    def undone(self) -> Undone:
        """With the family's own options."""
        fields = {n: self.cut.fields[n] if isinstance(v, np.ndarray) else v for n, v in self.family.fields.items()}
        return replace(self.cut, family=self.family, fields=fields)


@dataclass(frozen=True)
class Parts:
    """A grid of sizes under one member's options, cut into parts. Of every point: part, the number of its part, or -1; here: whether the member
    runs at it; broken: the number of the rule that refuses all members, or -1. deciding: free options that rules read: with others of their
    values a member may run where this one does not."""

    parts: Sequence[Part]
    rules: Sequence[tuple[str, Members | None, str]]
    part: Array
    here: Array
    broken: Array
    deciding: frozenset[str]

    def why(self, rule: int, number: int) -> str:
        name, family, said = self.rules[rule]
        return said if family is None else family.why(name, number)


@dataclass(frozen=True)
class _Cut:
    """A family cut into parts, which do not depend on its options but by what rules and degrees say. at: of each part a point at which the member
    runs. part, here, broken: as of `Parts`, of the family's points alone; rules: the names that `broken` counts. alive: arrays that tell this
    cut from others."""

    undone: Sequence[Undone]
    at: Sequence[tuple[int, ...] | None]
    part: Array
    here: Array
    broken: Array
    rules: Sequence[str]
    alive: Sequence[Array]


def parted(space: Space, free: frozenset[str], known: Cuts) -> Parts:
    """A space of one member's options, of which some are free."""
    apart = list(families(space))
    if len(apart) == 1:
        return _whole(Members(space, apart[0].chosen, free, known), known)
    part, broken = (np.full(space.points, -1, dtype=np.int32) for _ in range(2))
    here = np.zeros(space.points, dtype=bool)
    parts: list[Part] = []
    rules: list[tuple[str, Members | None, str]] = []
    deciding = frozenset[str]()
    for one in apart:
        # what rules said of another model or system is not of this one
        its = known.apart.setdefault(tuple(chosen.tobytes() for chosen in one.chosen), Cuts())
        own = _whole(Members(space, one.chosen, free, its), its)
        part = np.where(own.part >= 0, own.part + len(parts), part)
        broken = np.where(own.broken >= 0, own.broken + len(rules), broken)
        here |= own.here
        parts += own.parts
        rules += own.rules
        deciding |= own.deciding
    return Parts(parts, rules, part, here, broken, deciding)


def _whole(family: Members, known: Cuts) -> Parts:
    """The points of a family; those of others are in no part."""
    space = family.space
    try:
        told = family.told
    except InputError as error:
        broken = np.where(_inside(family), 0, -1).reshape(-1)
        return Parts([], [("model", None, str(error))], np.full(space.points, -1), np.zeros(space.points, dtype=bool), broken, frozenset())
    key = tuple((name, id(array)) for name, array in told)
    if key not in known.made:
        known.made[key] = _cut(family, [array for _, array in told])
    cut = known.made[key]
    parts = []
    for undone, at in zip(cut.undone, cut.at):
        parts.append(Part(family, undone, at))
    return Parts(parts, [(name, family, "") for name in cut.rules], cut.part, cut.here, cut.broken, family.deciding)


def _inside(family: Members) -> Array:
    inside = np.zeros(family.space.sizes, dtype=bool)
    inside[np.ix_(*family.chosen)] = True
    return inside


def _cut(family: Members, alive: Sequence[Array]) -> _Cut:
    space, inside = family.space, _inside(family)
    part, broken = (np.full(space.points, -1, dtype=np.int32) for _ in range(2))
    here = np.zeros(space.points, dtype=bool)
    rules: list[str] = []
    for name, allowed in family.allowed:
        refused = inside & ~allowed
        broken[refused.reshape(-1)] = len(rules)
        rules.append(name)
        inside &= allowed
    found, at = list(variants(family)), []
    for number, undone in enumerate(found):
        runs = _numbers(undone, [*undone.masks, *family.here])
        part[_numbers(undone, undone.masks)], here[runs] = number, True
        first = first_point([taken(m, undone.chosen) for m in (*undone.masks, *family.here)], [len(c) for c in undone.chosen])
        at.append(None if first is None else tuple(int(c[k]) for c, k in zip(undone.chosen, first)))
    return _Cut(found, at, part, here, broken, rules, alive)


def _numbers(undone: Undone, masks: Sequence[Array]) -> Array:
    """The numbers of a part's points where all masks hold."""
    mask = joined([taken(m, undone.chosen) for m in masks], [len(c) for c in undone.chosen])
    numbers = np.ravel_multi_index(np.ix_(*undone.chosen), undone.family.space.sizes)
    found: Array = numbers[np.broadcast_to(mask, numbers.shape)]
    return found
