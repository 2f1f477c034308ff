"""A plan: in which order a kernel walks a grid, and at which depth of its loops each operation runs.

The shorter axes that fit are merged into one vector axis; the others are loops around it, the outermost of them merged into
one loop over blocks, so that a grid can be cut anywhere between them. An operation runs at the depth of the deepest loop
that it depends on, for the whole vector; one that does not depend on the vector is computed before, over all loops.

    blocks (lead axes)              one task each; what depends on them and nothing deeper runs once a block
      loop over the next axis       ...
        vector axis                 operations on vectors that stay in cache
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

from symsim.program.program import Program
from symsim.program.value import Value

# What one visit of an operation costs besides its elements, in elements: a NumPy call is some hundred nanoseconds
NUMPY_CALL = 1500
C_LOOP = 8
# Enough blocks that workers share them evenly and a stop loses little
LEAST_BLOCKS = 32


@dataclass(frozen=True)
class Plan:
    """lead: axes of the block loop. loops: axes of the inner loops, from outside in. vector: axes of the vector, in order.

    levels: operations by depth, 0 before all loops, 1 in a block, 2.. in the inner loops. outer: operations without the vector.
    """

    program: Program
    outputs: tuple[Value, ...]
    lead: tuple[int, ...]
    loops: tuple[int, ...]
    vector: tuple[int, ...]
    levels: tuple[tuple[Value, ...], ...]
    outer: tuple[Value, ...]

    @property
    def blocks(self) -> int:
        return self.product(self.lead)

    @property
    def length(self) -> int:
        """Elements of the vector."""
        return self.product(self.vector)

    @property
    def block_points(self) -> int:
        return self.product(self.loops) * self.length

    def product(self, axes: Sequence[int]) -> int:
        total = 1
        for axis in axes:
            total *= self.program.sizes[axis]
        return total

    def mask(self, axes: Sequence[int]) -> int:
        return sum(1 << axis for axis in axes)

    @property
    def order(self) -> tuple[int, ...]:
        """All axes as points are numbered inside the plan: lead, loops, vector."""
        return (*self.lead, *self.loops, *self.vector)

    def level(self, value: Value) -> int:
        if not value.mask & ~self.mask(self.vector):
            return 0
        for depth in range(len(self.loops), 0, -1):
            if value.mask >> self.loops[depth - 1] & 1:
                return depth + 1
        return 1


def operations(outputs: Sequence[Value]) -> list[Value]:
    """The operations that outputs stand on, operands first."""
    found: dict[int, Value] = {}
    stack = list(outputs)
    while stack:
        value = stack.pop()
        if not value.known and value.id not in found:
            found[value.id] = value
            stack.extend(value.args)
    return [found[k] for k in sorted(found)]


def make_plan(program: Program, outputs: Sequence[Value], *, longest: int, call: int, most_points: int | None = None) -> Plan:
    """The cheapest plan whose vector has at most `longest` elements; `call`: the cost of a visit, in elements.

    most_points: of a block, where its results must be kept.
    """
    made = operations(outputs)
    weights: dict[int, int] = {}
    for value in made:
        weights[value.mask] = weights.get(value.mask, 0) + 1
    axes = [a for a, n in enumerate(program.sizes) if n > 1]
    best: tuple[float, tuple[int, ...], tuple[int, ...]] | None = None
    for vector in _vectors(program, axes, longest):
        outer = [a for a in axes if a not in vector]
        order, cost = _ordered(program, outer, vector, weights, call)
        if best is None or cost < best[0]:
            best = (cost, order, vector)
    assert best is not None
    _, order, vector = best
    lead = _lead(program, order, program.points(sum(1 << a for a in vector)), most_points)
    loops = order[len(lead) :]
    plan = Plan(program, tuple(outputs), lead, loops, vector, (), ())
    levels: list[list[Value]] = [[] for _ in range(len(loops) + 2)]
    outside = []
    for value in made:
        if value.mask & plan.mask(vector):
            levels[plan.level(value)].append(value)
        else:
            outside.append(value)
    return Plan(program, tuple(outputs), lead, loops, vector, tuple(map(tuple, levels)), tuple(outside))


def _vectors(program: Program, axes: Sequence[int], longest: int) -> list[tuple[int, ...]]:
    """Sets of axes that make a vector of a good length; where none does, the longest axis alone."""
    if not axes:
        return [()]
    found = []
    for count in range(1, len(axes) + 1):
        for chosen in combinations(axes, count):
            n = program.points(sum(1 << a for a in chosen))
            if longest // 8 <= n <= longest:
                found.append(tuple(sorted(chosen, key=lambda a: program.sizes[a])))
    if not found:
        fitting = [a for a in axes if program.sizes[a] <= longest]
        found = [(max(fitting, key=lambda a: program.sizes[a]),)] if fitting else [(min(axes, key=lambda a: program.sizes[a]),)]
        if program.points(sum(1 << a for a in axes)) <= longest:
            found = [tuple(sorted(axes, key=lambda a: program.sizes[a]))]
    return found


def _ordered(program: Program, outer: Sequence[int], vector: Sequence[int], weights: dict[int, int], call: int) -> tuple[tuple[int, ...], float]:
    """Loops from outside in: the deepest is the axis that the fewest operations depend on, and so on; and the cost of it all."""
    inside = sum(1 << a for a in vector)
    length = program.points(inside)
    each = length + call
    left = {m & ~inside: 0 for m in weights if m & inside}
    for m, n in weights.items():
        if m & inside:
            left[m & ~inside] += n
    remaining, order = list(outer), list[int]()
    cost = 0.0
    while remaining:
        depending = {axis: sum(n for m, n in left.items() if m >> axis & 1) for axis in remaining}
        # what depends on the deepest axis runs at every point of the loops; of equals the longest loop goes deepest
        axis = min(remaining, key=partial(_depth, depending, program.sizes))
        visits = program.points(sum(1 << a for a in remaining))
        # even with nothing to compute the loop itself is walked
        cost += visits * (depending[axis] * each + 50)
        left = {m: n for m, n in left.items() if not m >> axis & 1}
        remaining.remove(axis)
        order.insert(0, axis)
    return tuple(order), cost + sum(left.values()) * each


def _depth(depending: dict[int, int], sizes: Sequence[int], axis: int) -> tuple[float, int]:
    return depending[axis] * (1 - 1 / sizes[axis]), -sizes[axis]


def _lead(program: Program, order: Sequence[int], length: int, most_points: int | None) -> tuple[int, ...]:
    """The outermost loops until there are enough blocks; the deepest stays a loop, so that what it does not change runs once."""
    lead: list[int] = []
    blocks, left = 1, length * program.points(sum(1 << a for a in order))
    for axis in order:
        deepest = axis == order[-1] and len(order) > 1
        if (blocks >= LEAST_BLOCKS or deepest) and (most_points is None or left <= most_points):
            break
        lead.append(axis)
        blocks *= program.sizes[axis]
        left //= program.sizes[axis]
    return tuple(lead)
