"""Bounds of a plan's cells against the values of their members, from a sweep over all sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np

from symsim.grid.answer import Engine, answer
from symsim.grid.axes import Axis
from symsim.grid.question import ask
from symsim.grid.sweep import Sweep
from symsim.planning.members import Part
from symsim.planning.search import Cell, Goal, Search
from symsim.planning.space import Asked, options_of, space_of
from symsim.program.base import Base

KINDS = ("tp", "cp", "pp", "ep", "zero", "recompute")


def searched(asked: Asked, share: float) -> Search:
    options = options_of(asked)
    options.pop("world")
    sizes, choices, derived = space_of(asked)

    def make(chosen: Mapping[str, Any]) -> Base:
        return asked.base({**options, **chosen})

    return Search(
        [*sizes, Axis(("world",), ((asked.world,),))], derived, choices, make, Goal("time.step", share, KINDS, 10**9), refused=asked.refused
    )


def exact(search: Search, rows: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of a step, and the share of the memory that is needed, of every point under all options chosen; NaN where it cannot run."""
    space = search._space(tuple(rows))
    sweep = Sweep(space, ask(top=space.points, by="time.step", columns="time.step,memory.peak,memory.reserve,memory.capacity", timed=True))
    found = np.full((2, space.points), np.nan)
    try:
        sweep.prepare()
    except Exception as error:  # nothing runs under these options
        assert "can run" in str(error) or type(error).__name__ == "InputError"
        return found[0], found[1]
    rows_found = answer(sweep, Engine()).rows
    assert rows_found is not None
    at = []
    for column in sorted(space.columns.values(), key=lambda c: c.axis):
        which = {str(v): k for k, v in enumerate(column.shown)}
        at.append((column.axis, np.array([which[str(v.item() if hasattr(v, "item") else v)] for v in rows_found[column.name]])))
    joint: dict[int, Any] = {}
    for axis, positions in at:
        joint.setdefault(axis, positions)
    # names that vary together tell the position together
    for axis in {a for a, _ in at}:
        columns = [c for c in space.columns.values() if c.axis == axis]
        if len(columns) > 1:
            which = {tuple(str(c.shown[k]) for c in columns): k for k in range(space.sizes[axis])}
            own = zip(*([str(v) for v in rows_found[c.name].tolist()] for c in columns))
            joint[axis] = np.array([which[key] for key in own])
    numbers = np.ravel_multi_index([joint[a] for a in range(len(space.sizes))], space.sizes)
    found[0, numbers] = rows_found["time.step"]
    found[1, numbers] = (rows_found["memory.peak"] + rows_found["memory.reserve"]) / rows_found["memory.capacity"]
    return found[0], found[1]


def whole(search: Search) -> Cell:
    """The cell of all configurations."""
    return Cell(search.whole, np.arange(search.space.points), np.zeros(search.space.points))


def checked(search: Search, rows: Sequence[int]) -> tuple[int, list[str]]:
    """Of all points under options chosen in full, and of all cells that hold them, one after the other: how many bounds were compared, and what is
    wrong."""
    time, share = exact(search, rows)
    runs, evaluated = ~np.isnan(time), np.zeros(search.space.points, dtype=bool)
    compared, wrong = 0, []
    evaluate = search._evaluate

    def told(cell: Cell, part: Part, asked: Any) -> int | None:
        at = evaluate(cell, part, asked)
        evaluated[cell.points] |= at is None
        return at

    # nothing was found to be slower than
    with patch.object(search, "_evaluate", told), patch.object(search.known, "take", lambda *found: []):
        cells = [whole(search)]
        while cells:
            search.account.refused.clear()
            before = search.account.larger
            looked = [one for cell in cells for one in search._looked_here(cell)]
            cells = [one for one in looked if all(row is None or row == own for row, own in zip(one.rows, rows))]
            low = np.full(search.space.points, np.inf)
            for cell in cells:
                low[cell.points] = cell.low
            # so what is gone does not fit
            out = runs & np.isinf(low) & ~evaluated
            compared += int(runs.sum())
            if out.any() and not (share[out] > search.goal.share).all():
                wrong.append(f"{rows}: a point that fits is ruled out")
            if out.any() and search.account.larger == before and not wrong:
                wrong.append(f"{rows}: points that run are refused")
            runs &= ~out
            inside = runs & ~np.isinf(low)
            if (low[inside] > time[inside]).any():
                wrong.append(f"{rows}: a bound is {(low[inside] / time[inside]).max():.4f} of a member's step")
    return compared, wrong
