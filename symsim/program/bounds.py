"""The best points of a grid without a scan: bounds over cells, best cell first.

Some axes are taken together into cells. One pass of interval arithmetic over the program gives every cell a lower bound of
the objective and whether any of its points can be wanted at all; cells are then evaluated exactly, best bound first, in batches, until no bound
left is below the K-th best found. What comes out is exactly what a scan of all points gives, ties by the number of the point.

How tight the bounds are depends on which axes are summarised. A few sets are tried on a sample of cells, and the cheapest is
taken; where none leaves most points out, `best_points` says so and a scan is cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from symsim.algebra.intervals import Interval, monotone
from symsim.algebra.operators import OPERATORS
from symsim.program.plan import operations
from symsim.program.program import Program
from symsim.program.value import Value, numpy_operation

Array = np.ndarray
# cells by their positions, or an open mesh of them: a part of one axis, and all of the others
Cells = Array | tuple[int, slice]

# cells drawn to compare sets of axes: few of every set, more of the best ones
_SAMPLES = (64, 512)
_KEPT_SETS = 6
_POINTS_A_CELL = (16, 8192)
_MOST_CELLS = 8_000_000
# cells whose bounds are computed at once
_MESH_CELLS = 1 << 17
_BATCH_POINTS = 1 << 18
# beyond this share of the points a scan, whose operations are several times cheaper, is faster
_WORTH_IT = 0.15


@dataclass
class Found:
    """The best points: values in rising order and positions along every axis, one row a point. evaluated: points looked at; bound: none of the
    others is below it."""

    values: Array
    positions: Array
    evaluated: int
    bound: float


def best_points(
    program: Program,
    objective: Value,
    wanted: Value,
    count: int,
    limit: float = np.inf,
    *,
    patient: bool = False,
) -> Found | None:
    """The `count` points with the least objective among those wanted, none above `limit` (points at it are looked at).

    None where the bounds leave so much to look at that a scan is faster, unless patient.
    """
    axes = [a for a, n in enumerate(program.sizes) if n > 1]
    nodes = operations([objective, wanted])
    chosen = _cheapest(program, axes, nodes, objective, wanted, count, limit, patient)
    if chosen is None:
        return None
    return _search(program, axes, chosen, nodes, objective, wanted, count, limit)


def _search(
    program: Program,
    axes: Sequence[int],
    inner: tuple[int, ...],
    nodes: Sequence[Value],
    objective: Value,
    wanted: Value,
    count: int,
    limit: float,
) -> Found:
    shape = tuple(1 if a in inner else n for a, n in enumerate(program.sizes))
    bounds, candidates = _candidates(program, nodes, objective, wanted, inner, shape, limit)
    values, numbers, evaluated, at = np.empty(0), np.empty(0, dtype=np.int64), 0, 0
    points = program.points(sum(1 << a for a in inner))
    batch = max(1, min(16, _BATCH_POINTS // points))
    worst = limit
    while at < len(candidates) and bounds[at] <= worst:
        end = min(at + batch, len(candidates), at + int(np.searchsorted(bounds[at:], worst, side="right")))
        cells = np.stack(np.unravel_index(candidates[at:end], shape), axis=1)
        found, keep, where = _evaluated(program, nodes, objective, wanted, inner, cells, worst)
        evaluated += (end - at) * points
        values, numbers = _least(np.concatenate([values, found[keep]]), np.concatenate([numbers, where]), count)
        if len(values) == count:
            worst = min(limit, float(values[-1]))
        at, batch = end, max(1, min(batch * 2, _BATCH_POINTS // points))
    positions = np.stack(np.unravel_index(numbers, program.sizes), axis=1) if len(numbers) else np.empty((0, len(program.sizes)), dtype=np.int64)
    return Found(values, positions, evaluated, float(bounds[at]) if at < len(candidates) else limit)


def _least(values: Array, numbers: Array, count: int) -> tuple[Array, Array]:
    order = np.lexsort((numbers, values))[:count]
    return values[order], numbers[order]


def _cheapest(
    program: Program, axes: Sequence[int], nodes: Sequence[Value], objective: Value, wanted: Value, count: int, limit: float, patient: bool
) -> tuple[int, ...] | None:
    """The set of summarised axes with the least work expected, from a sample of points and of cells."""
    rng = np.random.default_rng(0)
    total = program.points(sum(1 << a for a in axes))
    spread = np.stack([rng.integers(0, n, 4096) for n in program.sizes], axis=1)
    values, keep, _ = _evaluated(program, nodes, objective, wanted, (), spread, np.inf)
    sample = np.sort(values[keep])
    if not len(sample):
        goal = limit
    else:
        # of all points the K-th best lies about here; a sample sees no further than its own best
        share = count / total
        goal = min(limit, float(sample[min(len(sample) - 1, int(share * len(spread)))]))
    sets = []
    for size in range(1, len(axes)):
        for inner in combinations(axes, size):
            points = program.points(sum(1 << a for a in inner))
            if _POINTS_A_CELL[0] <= points <= _POINTS_A_CELL[1] and total // points <= _MOST_CELLS:
                sets.append(inner)
    for drawn in _SAMPLES:
        costs = {}
        for inner in sets:
            cells = np.stack([rng.integers(0, 1 if a in inner else n, drawn) for a, n in enumerate(program.sizes)], axis=1)
            low, possible = _bounds(program, nodes, objective, wanted, inner, cells)
            share = float((np.broadcast_to(possible, drawn) & (np.broadcast_to(low, drawn) <= goal)).mean())
            points = program.points(sum(1 << a for a in inner))
            # a cell costs its bounds, twice as many operations as a point; those that bounds do not rule out, their points
            costs[inner] = (share + 0.3 / drawn) * total + 2.0 * (total // points)
        sets = sorted(costs, key=lambda inner: costs[inner])[:_KEPT_SETS]
    if not sets:
        return tuple(axes[-1:]) if patient and total <= _MOST_CELLS else None
    return sets[0] if patient or costs[sets[0]] <= _WORTH_IT * total else None


def _candidates(
    program: Program, nodes: Sequence[Value], objective: Value, wanted: Value, inner: Sequence[int], shape: Sequence[int], limit: float
) -> tuple[Array, Array]:
    """Lower bounds, rising, of the cells that can hold a wanted point not above `limit`, and the numbers of those cells."""
    longest = max(range(len(shape)), key=lambda a: shape[a])
    step = max(1, _MESH_CELLS * shape[longest] // int(np.prod(shape, dtype=np.int64)))
    bounds, numbers = [], []
    for first in range(0, shape[longest], step):
        part = slice(first, min(first + step, shape[longest]))
        low, possible = _bounds(program, nodes, objective, wanted, inner, (longest, part))
        here = tuple(part.stop - part.start if a == longest else n for a, n in enumerate(shape))
        low = np.broadcast_to(low, here)
        kept = np.nonzero(np.broadcast_to(possible, here) & (low <= limit))
        bounds.append(low[kept])
        positions = tuple(k + part.start if a == longest else k for a, k in enumerate(kept))
        numbers.append(np.ravel_multi_index(positions, tuple(shape)))
    found, cells = np.concatenate(bounds), np.concatenate(numbers)
    order = np.argsort(found, kind="stable")
    return found[order], cells[order]


# evaluation of cells ---------------------------------------------------------------------------------------------------


def _gathered(data: Array, cells: Array, inner: Sequence[int]) -> Array:
    """An array at the cells (rows of positions): first the cells, then one dimension for each summarised axis."""
    outer = [a for a in range(data.ndim) if a not in inner]
    moved = np.transpose(data, [*outer, *inner])
    index = tuple(cells[:, a] if data.shape[a] > 1 else 0 for a in outer)
    if all(isinstance(k, int) for k in index):
        return moved[index][None]
    return moved[index]


def _evaluated(
    program: Program, nodes: Sequence[Value], objective: Value, wanted: Value, inner: Sequence[int], cells: Array, worst: float
) -> tuple[Array, Array, Array]:
    """Objective of all points of some cells, which of them are wanted and not above `worst`, and the numbers of those."""
    known: dict[int, Any] = {}

    def operand(value: Value) -> Any:
        if value.id not in known:
            known[value.id] = _gathered(value.data, cells, inner) if isinstance(value.data, np.ndarray) else value.data
        return known[value.id]

    with np.errstate(all="ignore"):
        for node in nodes:
            known[node.id] = numpy_operation(node.op, *(operand(a) for a in node.args))
    shape = (len(cells), *(program.sizes[a] for a in inner))
    values = np.broadcast_to(operand(objective), shape)
    keep = np.broadcast_to(np.asarray(operand(wanted), dtype=bool), shape) & (values <= worst)
    hits = np.argwhere(keep)
    positions = cells[hits[:, 0]].copy()
    for k, axis in enumerate(inner):
        positions[:, axis] = hits[:, k + 1]
    return values, keep, np.ravel_multi_index(tuple(positions.T), tuple(program.sizes))


def _bounds(program: Program, nodes: Sequence[Value], objective: Value, wanted: Value, inner: Sequence[int], cells: Cells) -> tuple[Any, Any]:
    """Per cell: a lower bound of the objective, and whether a point can be wanted."""
    known: dict[int, Interval] = {}

    def operand(value: Value) -> Interval:
        if value.id not in known:
            known[value.id] = _reduced(value, inner, cells)
        return known[value.id]

    with np.errstate(all="ignore"):
        for node in nodes:
            known[node.id] = _open(interval(node.op, [operand(a) for a in node.args]))
        low = operand(objective)[0]
        low = np.where(np.isnan(low), -np.inf, low)
    return low, operand(wanted)[1]


def _open(found: Interval) -> Interval:
    """An end that is no number, as of the difference of infinities, bounds nothing."""
    low, high = found
    if not np.all(low == low):
        low = np.where(np.isnan(low), -np.inf, low)
    if not np.all(high == high):
        high = np.where(np.isnan(high), np.inf, high)
    return low, high


def _reduced(value: Value, inner: Sequence[int], cells: Cells) -> Interval:
    if not isinstance(value.data, np.ndarray):
        x = value.data if isinstance(value.data, bool) else float(value.data)
        return x, x
    over = tuple(a for a in inner if value.data.shape[a] > 1)
    data = value.data
    if isinstance(cells, tuple) and data.shape[cells[0]] > 1:
        data = data[(slice(None),) * cells[0] + (cells[1],)]
    low = data.min(axis=over, keepdims=True) if over else data
    high = data.max(axis=over, keepdims=True) if over else data
    if isinstance(cells, tuple):
        return low, high
    return _gathered(low, cells, ()), (_gathered(high, cells, ()) if over else _gathered(low, cells, ()))


def interval(op: str, operands: Sequence[Interval]) -> Interval:
    """An operation on intervals; of truths the ends are whether one is surely true, and possibly."""
    row = OPERATORS[op]
    if row.interval is not None:
        return row.interval(np, *operands)
    low, high = monotone(partial(numpy_operation, op), row.way, operands)
    if not row.of_positive:
        return low, high
    # where some have no number nothing is certain
    none = np.isnan(low)
    return np.where(none, -np.inf, low), np.where(none, np.inf, high)
