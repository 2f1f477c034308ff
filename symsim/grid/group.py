"""Variants of a sweep as one: their points together, and which variant each point is of.

Options multiply variants, but a definition or a symbol follows from few of them. What variants have alike stands once; where they differ,
which of the forms holds is an array over the axes that decide it (`Group.forms`). So a form is lowered once, over all points at a time,
however many variants have it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import is_
from typing import Any

import numpy as np

from symsim.grid.family import Array
from symsim.grid.variant import Points, Variant

# on average over so many points a variant's own kernel is worth making
_OWN_KERNEL = 100_000
# of a group, refused points among them
_MOST_POINTS = 1 << 22


@dataclass(frozen=True)
class Group(Points):
    """variants: whose points these are. which: over the whole space's axes, the number of the variant that a point is of (of one that none is of, of
    a point near it)."""

    variants: tuple[Variant, ...]
    which: Array
    _forms: dict[tuple[int, ...], list[Array]] = field(default_factory=dict)

    def forms(self, own: Sequence[Hashable]) -> tuple[list[int], list[Array]]:
        """Of what each variant has (told apart by equality) the forms: of each a variant that has it, and of all but the first where they hold."""
        number = {one: k for k, one in enumerate(dict.fromkeys(own))}
        classes = tuple(map(number.__getitem__, own))
        if classes not in self._forms:
            here = np.array(classes)[self.which]
            self._forms[classes] = [here == k for k in range(1, len(number))]
        first = dict(zip(reversed(classes), reversed(range(len(classes)))))
        return [first[k] for k in range(len(number))], self._forms[classes]

    def text_at(self, own: Sequence[str], numbers: Array, sizes: Sequence[int]) -> Array:
        """Of what every variant has as text, that of points by their numbers in a grid of these sizes."""
        positions = np.unravel_index(numbers, sizes)
        which = self.which[tuple(p if n > 1 else np.zeros_like(p) for p, n in zip(positions, self.which.shape))]
        return np.array(own, dtype=object)[which]

    def together(self, own: Sequence[Any]) -> Any:
        """What variants have, numbers or arrays over the whole space (None: nothing, which is 0), as one number or array; None where none has it."""
        if all(map(is_, own, repeat(own[0]))):
            return own[0]
        told = [id(one) if isinstance(one, np.ndarray) else (type(one) is bool, one) for one in own]
        if told.count(told[0]) == len(told):
            return own[0]
        at, where = self.forms(told)
        found = [np.asarray(0 if own[k] is None else own[k]) for k in at]
        one = found[0] if found[0].dtype == bool else found[0].astype(np.float64)
        for mask, other in zip(where, found[1:]):
            one = np.where(mask, other, one)
        return one


def grouped(variants: Sequence[Variant]) -> Iterator[Group]:
    """The variants in groups, in their order; those of many points by themselves."""
    points = sum(v.running_points for v in variants)
    alike: dict[Hashable, list[Variant]] = {}
    for number, variant in enumerate(variants):
        own = points > _OWN_KERNEL * len(variants) or variant.result.strategy.schedule == "dualpipe"
        alike.setdefault(number if own else _alike(variant), []).append(variant)
    for together in alike.values():
        if math.prod(map(len, _chosen(together))) <= _MOST_POINTS:
            yield group_of(together)
        else:
            yield from map(group_of, ([variant] for variant in together))


def _alike(variant: Variant) -> Hashable:
    """What variants of a group have in common: what a formula asks for outside of definitions."""
    strategy = variant.result.strategy
    return variant.family.fixed["machine"], strategy.schedule, strategy.padding_free, strategy.document_lengths


def group_of(variants: Sequence[Variant]) -> Group:
    """Variants of which no point is another's, as one."""
    first = variants[0]
    axes = range(len(first.chosen))
    if len(variants) == 1:
        return Group(first.chosen, first.masks, (first,), np.zeros([1] * len(axes), dtype=np.int64))
    running = [v.running() for v in variants]
    decides = [any(len(v.chosen[a]) < n or r.shape[a] > 1 for v, r in zip(variants, running)) for a, n in enumerate(first.family.space.sizes)]
    which = np.full([n if own else 1 for own, n in zip(decides, first.family.space.sizes)], -1)
    for number, (variant, runs) in enumerate(zip(variants, running)):
        at = np.ix_(*(own if decides[a] else np.array([0]) for a, own in enumerate(variant.chosen)))
        part = which[at]
        part[np.broadcast_to(runs, part.shape)] = number
        which[at] = part
    return Group(_chosen(variants), [which >= 0], tuple(variants), _filled(which))


def _chosen(variants: Sequence[Variant]) -> tuple[Array, ...]:
    """Positions along every axis that any of these has."""
    return tuple(np.unique(np.concatenate([v.chosen[a] for v in variants])) for a in range(len(variants[0].chosen)))


def _filled(which: Array) -> Array:
    """With the variant of a point near by where none is: along one axis after the other that of the one before, else of the one behind. So few axes
    decide what variants have, and not also which points run."""
    while (which < 0).any():
        for axis in range(which.ndim):
            for way in (slice(None), slice(None, None, -1)):
                turned = np.flip(which, axis) if way.step else which
                place = np.arange(which.shape[axis]).reshape([-1 if a == axis else 1 for a in range(which.ndim)])
                last = np.maximum.accumulate(np.where(turned >= 0, place, 0), axis=axis)
                turned = np.take_along_axis(turned, last, axis=axis)
                which = np.flip(turned, axis) if way.step else turned
    return which
