"""The best points of a sweep of many options, by the search of plans (`search.py`): there options add to the work, where a scan derives formulas for
each of their combinations.

A sweep qualifies where all that varies is of the strategy, what is wanted is a step times numbers of sizes, and its conditions are of quantities and
sizes. What is found are the points that a scan finds, and those that equal the last of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import numpy as np

from symsim.algebra.expr import ONE, symbol
from symsim.evaluation.quantities import QUANTITIES
from symsim.grid.conditions import FITS, Node, names, parse_condition
from symsim.grid.family import Array
from symsim.grid.names import RANKS, field_of, is_number
from symsim.grid.question import Question
from symsim.grid.space import Space
from symsim.grid.stored import Memories
from symsim.inputs.run import asks_run
from symsim.inputs.strategy import Strategy
from symsim.planning.found import Found
from symsim.planning.frameworks import Choice
from symsim.planning.search import Goal, Search
from symsim.program.base import Base

# a scan has several derivations for every combination of options; a cell takes a search about as long
_MOST_CELLS = 4
# of more points of sizes, all of which are looked at together, a scan walks over blocks
_MOST_POINTS = 1 << 21
# of so many points for each that is wanted most are not looked at
_FEWEST_POINTS = 20
_TOKENS = symbol("m") * symbol("dp") * symbol("b") * symbol("s")
# what a step is multiplied by, so that the least is best
_TIMES = {
    "time.step": ONE,
    "tokens_per_second": 1 / _TOKENS,
    "cost_per_trillion_tokens": symbol("world") / _TOKENS,
    "energy_per_trillion_tokens": symbol("world") / _TOKENS,
}
_FITS, _CAPACITY = parse_condition(FITS), parse_condition("memory.peak <= memory.capacity")


@dataclass(frozen=True)
class Best:
    """numbers: of points in the whole grid, rising. evaluated: how many points were, for which `derivations` were made; no other is better, by bounds
    of the step or of memory."""

    numbers: Array
    evaluated: int
    derivations: int


def searchable(space: Space, question: Question) -> bool:
    """Whether a sweep qualifies."""
    if question.top is None or space.points < _FEWEST_POINTS * question.top or asks_run(space.base.symbols):
        return False
    wanted = [str(node.value) for node in question.objectives if node.kind == "name"]
    parts = {column.place.part for column in space.columns.values()}
    kinds = [{is_number(c) for c in space.columns.values() if c.axis == axis} for axis in range(len(space.axes))]
    of_sizes = prod(size for size, own in zip(space.sizes, kinds) if own == {True})
    of_options = {name for c in space.columns.values() if not is_number(c) for name in (c.name, str(c.place.key))}
    conditions = {field_of(n) for node in question.where for n in names(node)}
    # what there is under every strategy
    known = {*QUANTITIES, *Strategy.model_fields, *RANKS}
    return (
        len(wanted) == 1
        and wanted[0] in _TIMES
        and conditions <= known - of_options
        and set(map(field_of, question.columns)) <= known
        and parts <= {"strategy", "ranks"}
        and all(len(own) == 1 for own in kinds)
        and of_sizes <= _MOST_POINTS
        and {True} in kinds
        and of_options.isdisjoint(field_of(n) for one in space.given for n in names(one.expression))
    )


def _memory(where: Sequence[Node]) -> tuple[Node | None, float | None]:
    """Of conditions the one of memory by which points are ruled out, and its limit in bytes, where that is none of the accelerator."""
    for node in (_FITS, _CAPACITY):
        if node in where:
            return node, None
    for node in where:
        if node.kind == "le" and [a.kind for a in node.arguments] == ["name", "number"] and node.arguments[0].value == "memory.peak":
            assert isinstance(node.arguments[1].value, (int, Fraction))
            return node, float(node.arguments[1].value)
    return None, None


def best_points(space: Space, question: Question, memories: Memories, progress: Callable[[str, float, float], None]) -> Best | None:
    """The best points of a sweep that qualifies; None where bounds exclude too little, so that a scan is sooner done. memories: what passes made."""
    assert question.top is not None
    sizes, choices = _apart(space)
    of_memory, limit = _memory(question.where)
    goal = Goal(
        "time.step",
        share=None if of_memory is None else 1.0,
        kinds=None,
        top=question.top,
        times=_TIMES[str(question.objectives[0].value)],
        reserve=of_memory == _FITS,
        limit=limit,
        where=[node for node in question.where if node != of_memory],
    )

    def make(chosen: Mapping[str, Any]) -> Base:
        return replace(space.base, strategy=space.base.strategy.model_copy(update=dict(chosen)))

    axes = [space.axes[axis] for axis in sizes]
    most = _MOST_CELLS * prod(len(choice.rows) for choice in choices.values())
    search = Search(axes, space.given, list(choices.values()), make, goal, memories)

    def told(what: str, done: float, total: float) -> None:
        if search.account.cells > most:
            raise _NotWorthIt
        progress(what, done, total)

    try:
        found = search.run(told)
    except _NotWorthIt:
        return None
    numbers = np.unique(np.concatenate([_numbers(one, space, sizes, list(choices)) for one in found])) if found else np.empty(0, dtype=np.int64)
    return Best(numbers, search.account.evaluated, search.account.derivations)


class _NotWorthIt(Exception):
    """Bounds exclude too little."""


def _apart(space: Space) -> tuple[list[int], dict[int, Choice]]:
    """The axes of sizes, and those of options as choices."""
    sizes, choices = list[int](), dict[int, Choice]()
    for axis in range(len(space.axes)):
        own = [c for c in space.columns.values() if c.axis == axis]
        if all(map(is_number, own)):
            sizes.append(axis)
        else:
            choices[axis] = Choice(tuple(str(c.place.key) for c in own), tuple(zip(*(c.values for c in own))))
    return sizes, choices


def _numbers(found: Found, space: Space, sizes: list[int], choices: list[int]) -> Array:
    """In the whole grid, of all rows of choices that were left open."""
    rows = list(product(*(range(space.sizes[axis]) if row is None else (row,) for axis, row in zip(choices, found.rows))))
    positions = np.zeros((len(space.sizes), len(rows)), dtype=np.int64)
    positions[sizes] = np.array(np.unravel_index(found.point, [space.sizes[axis] for axis in sizes]))[:, None]
    positions[choices] = np.array(rows).T
    return np.asarray(np.ravel_multi_index(tuple(positions), space.sizes))
