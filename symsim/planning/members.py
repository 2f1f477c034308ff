"""Where strategies of a set can run: the rules of a strategy over a grid of sizes, where some options are still free.

A rule that refuses a strategy before it reads a free option refuses all members of the set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from symsim.errors import InputError
from symsim.grid.family import DERIVED, Array, Family, Rule, families
from symsim.grid.space import Space
from symsim.grid.variant import Undone, first_point, joined, strategy_at, taken, variants
from symsim.inputs.architecture import Architecture
from symsim.lowering.checks import whole_batches

# by a rule: the options that it read with their values, and where it lets points run
Masks = dict[str, list[tuple[dict[str, Any], Array]]]


class Members(Family):
    """A family of a space whose options are one member's; `allowed` is where some member may run, `here` where this one does."""

    def __init__(self, space: Space, chosen: Sequence[Array], free: frozenset[str], known: Masks):
        """known: masks of rules at other options, which hold here too where the options are the same that they read."""
        super().__init__(space, chosen)
        self._free, self._masks = free, known
        # rules that somewhere read free options
        self._open: dict[str, Rule] = {}

    def mask(self, name: str, rule: Rule) -> Array:
        if rule is whole_batches:
            return super().mask(name, rule)
        for read, mask in self._masks.get(name, ()):
            if self._free.isdisjoint(read) and all(_same(self.fields.get(n), v) for n, v in read.items()):
                return mask
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
        if self._free.isdisjoint(heard):
            read = {n: self.fields.get(n) for n in heard}
            self._masks.setdefault(name, []).append((read, mask))
        else:
            self._open[name] = rule
        return mask

    @cached_property
    def here(self) -> list[Array]:
        """Masks of where this member runs."""
        found = list(self.masks)
        for name, rule in self._open.items():
            mask = super().mask(name, rule)
            found.append(mask.reshape([1] * len(self.space.sizes)) if mask.ndim == 0 else mask)
        return found

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
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and one.shape == other.shape and bool((one == other).all())
    return type(one) is type(other) and bool(one == other)


@dataclass(frozen=True)
class Part:
    """Points of a family that share a derivation. point: one of them at which its member runs, where there is one."""

    family: Members
    undone: Undone
    point: tuple[int, ...] | None


@dataclass(frozen=True)
class Parts:
    """A grid of sizes under one member's options, cut into parts. Of every point: part, the number of its part, or -1; here: whether the member
    runs at it; broken: the number of the rule that refuses all members, or -1."""

    parts: Sequence[Part]
    rules: Sequence[tuple[str, Members | None, str]]
    part: Array
    here: Array
    broken: Array

    def why(self, rule: int, number: int) -> str:
        name, family, said = self.rules[rule]
        return said if family is None else family.why(name, number)


def parted(space: Space, free: frozenset[str], known: Masks) -> Parts:
    """A space of one member's options, of which some are free."""
    part, broken = (np.full(space.points, -1, dtype=np.int32) for _ in range(2))
    here = np.zeros(space.points, dtype=bool)
    parts: list[Part] = []
    rules: list[tuple[str, Members | None, str]] = []
    apart = list(families(space))
    for one in apart:
        # masks of other options are of the same model and system
        family = Members(space, one.chosen, free, known if len(apart) == 1 else {})
        inside = np.zeros(space.sizes, dtype=bool)
        inside[np.ix_(*family.chosen)] = True
        try:
            found = [*variants(family)]
        except InputError as error:
            broken[inside.reshape(-1)] = len(rules)
            rules.append(("model", None, str(error)))
            continue
        for name, allowed in family.allowed:
            refused = inside & ~allowed
            broken[refused.reshape(-1)] = len(rules)
            rules.append((name, family, ""))
            inside &= allowed
        for undone in found:
            numbers = _numbers(undone, undone.masks)
            runs = _numbers(undone, [*undone.masks, *family.here])
            at = first_point([taken(m, undone.chosen) for m in (*undone.masks, *family.here)], [len(c) for c in undone.chosen])
            part[numbers], here[runs] = len(parts), True
            parts.append(Part(family, undone, None if at is None else tuple(int(c[k]) for c, k in zip(undone.chosen, at))))
    return Parts(parts, rules, part, here, broken)


def _numbers(undone: Undone, masks: Sequence[Array]) -> Array:
    """The numbers of a part's points where all masks hold."""
    mask = joined([taken(m, undone.chosen) for m in masks], [len(c) for c in undone.chosen])
    numbers = np.ravel_multi_index(np.ix_(*undone.chosen), undone.family.space.sizes)
    found: Array = numbers[np.broadcast_to(mask, numbers.shape)]
    return found
