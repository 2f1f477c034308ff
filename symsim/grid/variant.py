"""One variant of a sweep: a derivation, its symbols as arrays over the axes of a cell, and the values of what is reported.

`variants(cell)` derives the cell's formulas once for every combination of flags that several axes decide together (whether
edp is above 1, say), each with the mask of the points that it stands for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from symsim.evaluation.numbers import Evaluation
from symsim.grid.family import Array, Family
from symsim.grid.names import SPLITS
from symsim.grid.space import Space
from symsim.grid.stored import Asked, Memories, evaluations
from symsim.inputs.deciding import DEGREES, SIZES, deciding
from symsim.inputs.strategy import Strategy


@dataclass(frozen=True)
class Points:
    """Points of a grid. chosen: positions along every axis. masks: arrays over the whole space's axes; of the chosen points those run where all
    hold."""

    chosen: tuple[Array, ...]
    masks: list[Array]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(map(len, self.chosen))

    @property
    def points(self) -> int:
        return math.prod(self.sizes)

    def running(self) -> Array:
        """Where chosen points run, over the axes that decide it (positions among the chosen)."""
        return joined([taken(m, self.chosen) for m in self.masks], self.sizes)

    @cached_property
    def running_points(self) -> int:
        running = self.running()
        return int(running.sum()) * (self.points // running.size)


@dataclass(frozen=True)
class Variant(Points):
    """Points of a family that share one derivation.

    fields: the family's, options that arrays decide now constant (`SPLITS` stay arrays). point: positions of one of them.
    """

    family: Family
    fields: Mapping[str, Any]
    point: tuple[int, ...]
    result: Evaluation


@dataclass(frozen=True)
class Undone:
    """A variant before its derivation."""

    family: Family
    chosen: tuple[Array, ...]
    fields: Mapping[str, Any]
    masks: list[Array]
    point: tuple[int, ...]

    @cached_property
    def asked(self) -> Asked:
        fixed, space = self.family.fixed, self.family.space
        symbols, changes = at_point(space, self.point)
        system = space.system(fixed["machine"], changes)
        # formulas of stages that differ hold where they are alike too
        uneven = {n: True for n in SPLITS if isinstance(v := self.fields.get(n), np.ndarray) and self._somewhere(v)}
        return Asked(fixed["architecture"], strategy_at({**self.fields, **uneven}, self.point), fixed["assumptions"], symbols, system)

    def _somewhere(self, mask: Array) -> bool:
        """Whether a mask over the whole space holds at a chosen point that no single mask excludes."""
        own = taken(mask, self.chosen)
        beside = (m for m in self.masks if any(n > 1 and k > 1 for n, k in zip(m.shape, mask.shape)))
        return bool(own.any()) and all((own & taken(m, self.chosen)).any() for m in beside)


def neighbours(undone: Sequence[Undone]) -> list[int]:
    """Numbers of variants in an order in which those whose degrees decide the same stand together. Layouts follow from degrees, and of layouts all
    else: what passes made of one such variant is of use to those beside it, wherever the others are derived."""
    model = {id(u.family): deciding(u.asked.trained) for u in undone}
    return sorted(range(len(undone)), key=lambda k: [read(undone[k].asked.strategy) for read in model[id(undone[k].family)].values()])


def with_formulas(
    undone: Sequence[Undone], memories: Memories, progress: Callable[[int], None] = lambda done: None, workers: int = 1
) -> list[Variant]:
    """The variants with their formulas; progress: is told how many are derived. workers: how many processes may derive."""
    results = evaluations([u.asked for u in undone], memories, progress, workers)
    return [Variant(u.chosen, u.masks, u.family, u.fields, u.point, result) for u, result in zip(undone, results)]


def flags_of(family: Family) -> dict[str, Any]:
    """What of a family's degrees decides the terms of derivations, over the axes that it depends on."""
    return {name: family.tabulated(f"flag {name}", read) for name, read in deciding(family.fixed["architecture"]).items()}


def variants(family: Family) -> Iterator[Undone]:
    """The variants of a family that have a point that can run, not yet derived."""
    fields = family.fields
    flags = {name: np.asarray(flag) for name, flag in flags_of(family).items()}
    options = {n: v for n, v in fields.items() if isinstance(v, np.ndarray) and n not in (*SIZES, *DEGREES, *SPLITS)}
    apart = [v for v in {**flags, **options}.values() if isinstance(v, np.ndarray) and v.size > 1]
    for chosen in family.cells():
        masks = [taken(m, chosen) for m in family.masks]
        if any(not m.any() for m in masks):
            continue
        codes = np.zeros([1] * len(chosen), dtype=np.int64)
        for mask in apart:
            own = taken(mask, chosen)
            distinct, which = np.unique(own, return_inverse=True)
            if len(distinct) > 1:
                codes = codes * len(distinct) + which.reshape(own.shape)
        for code in np.unique(codes):
            wide = list(family.masks)
            if codes.size > 1:
                wide.append(_spread(codes == code, chosen, family.space.sizes))
            kept = _shrunk(chosen, [taken(m, chosen) for m in wide])
            at = first_point([taken(m, kept) for m in wide], [len(c) for c in kept])
            if at is None:
                continue
            point = tuple(int(c[k]) for c, k in zip(kept, at))
            known = {n: field_at(v, point) if n in options else v for n, v in fields.items()}
            yield Undone(family, kept, known, wide, point)


def _shrunk(chosen: tuple[Array, ...], masks: Sequence[Array]) -> tuple[Array, ...]:
    """The chosen positions without those at which one of the masks (over the chosen) holds nowhere."""
    kept, some = [], [mask for mask in masks if not mask.all()]
    for axis, positions in enumerate(chosen):
        keep = np.ones(len(positions), dtype=bool)
        for mask in some:
            if mask.shape[axis] > 1:
                keep &= mask.any(axis=tuple(a for a in range(mask.ndim) if a != axis))
        kept.append(positions[keep])
    return tuple(kept)


def taken(array: Array, chosen: Sequence[Array]) -> Array:
    """The chosen positions of an array over the whole space."""
    for axis, size in enumerate(array.shape):
        if size > 1 and len(chosen[axis]) < size:
            positions = chosen[axis]
            # positions rise, and are most often beside each other, which needs no copy
            close = len(positions) > 0 and positions[-1] - positions[0] < len(positions)
            array = array[(slice(None),) * axis + (slice(positions[0], positions[-1] + 1) if close else positions,)]
    return array


def _spread(mask: Array, chosen: Sequence[Array], sizes: Sequence[int]) -> Array:
    """A mask over chosen positions as one over the whole space, false elsewhere."""
    shape = tuple(n if mask.shape[a] > 1 else 1 for a, n in enumerate(sizes))
    made = np.zeros(shape, dtype=bool)
    made[np.ix_(*(chosen[a] if n > 1 else np.array([0]) for a, n in enumerate(shape)))] = mask
    return made


def field_at(value: Any, point: Sequence[int]) -> Any:
    """A field's value at a point: an array's element there."""
    return value.item(*(k if n > 1 else 0 for k, n in zip(point, value.shape))) if isinstance(value, np.ndarray) else value


def first_point(masks: Sequence[Array], sizes: Sequence[int]) -> tuple[int, ...] | None:
    """A point where all masks hold; None when there is none."""
    joint = joined(masks, sizes)
    if not joint.any() or 0 in sizes:
        return None
    return tuple(int(k) for k in np.unravel_index(int(np.argmax(joint)), joint.shape))


def joined(masks: Sequence[Array], sizes: Sequence[int]) -> Array:
    """All masks at once, over the axes that any of them depends on."""
    found = np.ones([1] * len(sizes), dtype=bool)
    for mask in sorted(masks, key=lambda m: m.size):
        found = found & mask
    return found


def strategy_at(fields: Mapping[str, Any], point: Sequence[int]) -> Strategy:
    return Strategy(**{n: field_at(v, point) if isinstance(v, np.ndarray) else v for n, v in fields.items()})


def at_point(space: Space, point: Sequence[int]) -> tuple[dict[str, Any], dict[tuple[str, ...], str]]:
    """Symbols, and numbers of the system, that the user gives at a point."""
    symbols, changes = dict(space.base.symbols), dict(space.base.system_changes)
    for column in space.columns.values():
        value = column.values[point[column.axis]]
        if column.place.part == "symbol":
            symbols[column.place.key] = value
        elif column.place.part == "system":
            changes[column.place.key] = value
    return symbols, changes
