"""Branch and bound over sizes and options: the best strategy of every kind, and what became of all others.

A cell is a choice of some options, the others free, and of the points of the grid of sizes those that may still be better than what was
found. Of a cell no configuration takes less than the bound of its point (`least.py`), or needs less memory; what is not ruled out by that is cut
by an option that decides between what its members do, until none does and its points are evaluated. The cell of the least bound goes first.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, cast

import numpy as np

from symsim.algebra.expr import ONE, Expr
from symsim.evaluation.evaluated import evaluated
from symsim.evaluation.numbers import Evaluation
from symsim.grid.axes import Axis, DerivedAxis
from symsim.grid.conditions import Node
from symsim.grid.family import Array
from symsim.grid.names import field_of
from symsim.grid.processes import cores
from symsim.grid.question import lower
from symsim.grid.reported import Reported
from symsim.grid.space import Space
from symsim.grid.stored import Asked as Derivable
from symsim.grid.stored import Memories
from symsim.grid.variant import Variant, neighbours
from symsim.inputs.traced import order_of
from symsim.lowering.checks import Rule
from symsim.planning.account import Account
from symsim.planning.beside import Pair
from symsim.planning.found import ROUNDING, Found, OfKinds, OfPoints, Rows
from symsim.planning.found import Told as Taken
from symsim.planning.frameworks import Choice
from symsim.planning.least import Least
from symsim.planning.members import Members, Part, Parts, Ruled, barred, members_of, parted
from symsim.planning.tables import Tables
from symsim.planning.trees import AllTrees, Trees
from symsim.planning.ways import answers_that_vary, rows_of
from symsim.program.base import Base
from symsim.program.points import Points
from symsim.program.program import SHARED_SMALL, Program

# grids under one member's options that are kept
_MOST_PARTED = 1 << 12
# a program with more values is begun anew: what parts share is of few cells
_MOST_VALUES = 20_000
# so many parts are worth a process
_FORK_PARTS = 16
# after which two searches tell each other what they found
_CELLS_A_ROUND = 8
# how much work a cell is that is looked at for the first time, beside another
_FIRST_LOOK = 0.3
# so many points take as long as what is made once for all of a cell
_POINTS_A_CELL = 20_000

Progress = Callable[[str, float, float], None]
Make = Callable[[Mapping[str, Any]], Base]
# of choices that are not made, rows other than the first, by the choice's number
Others = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Cell:
    """rows: of each choice the row taken, None while it is free. points: of the grid of sizes, rising; low: of each, what none of the cell's is
    below. looked: whether that is all that is known of it, or what is known at little cost; timed: by which trees it has all that is known of the
    time."""

    rows: Rows
    points: Array
    low: Array
    looked: bool = False
    timed: Trees | None = None


# what a search tells another: what became of configurations, and what was found
Told = tuple[Account | None, Sequence[Taken]]


@dataclass(frozen=True)
class Goal:
    """objective: time.step or memory.peak, least first. share: of the memory that may be filled; None where what does not fit counts too. kinds: the
    names that tell kinds apart; None where every configuration counts. top: of so many kinds (or configurations) the best is wanted. times: what the
    objective is multiplied by, of sizes alone. reserve: whether what is kept free beside the peak has to fit too. limit: bytes of memory, where they
    are not the accelerator's. where: further conditions, of no option."""

    objective: str
    share: float | None
    kinds: Sequence[str] | None
    top: int
    times: Expr = ONE
    reserve: bool = True
    limit: float | None = None
    where: Sequence[Node] = ()


class Search:
    """The search of one space. axes, derived: the grid of sizes. choices: the options, each with its rows. make: the base of all points, given
    options. memories: what its passes made, and others before."""

    def __init__(
        self,
        axes: Sequence[Axis],
        derived_axes: Sequence[DerivedAxis],
        choices: Sequence[Choice],
        make: Make,
        goal: Goal,
        memories: Memories | None = None,
        refused: Sequence[Rule] = (),
    ):
        """refused: rules of the space besides those of a strategy."""
        self.axes, self.derived_axes, self.choices, self.make, self.goal = tuple(axes), tuple(derived_axes), tuple(choices), make, goal
        self.whole: Rows = tuple(None if len(choice.rows) > 1 else 0 for choice in self.choices)
        self.space = Space(make(self.options(self.whole)), self.axes, self.derived_axes, option="--allow", refused=refused)
        self.account = Account()
        # of two searches this one, where it is the second; what it found since it told the other
        self._pair: Pair | None = None
        self._is_second = False
        self._new: list[Taken] = []
        self._waiting: list[tuple[float, int, int, Cell]] = []
        self._order = count()
        self.memories = Memories() if memories is None else memories
        self._rows = [rows_of(choice) for choice in self.choices]
        self._program = Program(self.space.sizes, small=SHARED_SMALL)
        self._ruled = Ruled()
        self._members_of: dict[tuple[Rows, Others], list[Members]] = {}
        self.known = OfPoints(goal.top) if goal.kinds is None else OfKinds(self._codes(goal.kinds), goal.top)
        given = {field_of(name) for name in self.space.columns} | {field_of(d.name) for d in self.derived_axes}
        self._answers = answers_that_vary(make({}).strategy, self._rows, frozenset(given))
        self._trees = AllTrees(self.memories, self._rows, self._answers)

    @property
    def configurations(self) -> int:
        return self.space.points * self._members(self.whole)

    def run(self, progress: Progress) -> list[Found]:
        """The best of each of the best kinds, or of all, the best first."""
        total = float(self.configurations)
        self._wait([Cell(self.whole, np.arange(self.space.points), np.zeros(self.space.points))])
        try:
            while self.busy if self._pair is None else self._pair.busy:
                if self._pair is None:
                    self._work(1)
                else:
                    self._pair.round()
                progress("searching", float(self.account.settled), total)
        finally:
            if self._pair is not None:
                self._pair.end()
        return list(self.known.best)

    def _wait(self, cells: Sequence[Cell]) -> None:
        for cell in cells:
            heapq.heappush(self._waiting, (float(cell.low.min()), cell.rows.count(None), next(self._order), cell))

    def _work(self, cells: float) -> None:
        """As much work as so many small cells are, of those that wait, the one of the least bound first: their points are ruled out or evaluated, and
        what is left is cut by an option."""
        while cells > 0 and self._waiting:
            cell = self._ruled_out(heapq.heappop(self._waiting)[3])
            if len(cell.points):
                cells -= float(_work_of(len(cell.points), 1 if cell.looked else _FIRST_LOOK))
                self._wait(self._looked(cell))

    # of two searches ---------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def round(self) -> None:
        self._work(_CELLS_A_ROUND)

    def news(self) -> Told:
        account, new, self._new = self.account, self._new, []
        if self._is_second:
            self.account = Account()
        return account if self._is_second else None, new

    def hear(self, told: Told) -> None:
        account, new = told
        if account is not None:
            self.account.add(account)
        self.known.hear(new)

    # cells -------------------------------------------------------------------------------------------------------------

    def _split(self, cell: Cell, at: int) -> list[Cell]:
        """A cell for every row of a choice."""
        parts = ((*cell.rows[:at], row, *cell.rows[at + 1 :]) for row in range(len(self.choices[at].rows)))
        return [replace(cell, rows=rows, looked=False, timed=None) for rows in parts]

    def _ruled_out(self, cell: Cell) -> Cell:
        """Without the points that cannot be better than what was found."""
        worse = self.known.worse(self._kind_of_options(cell.rows), cell.points, cell.low)
        if worse.any():
            self.account.slower += int(worse.sum()) * self._members(cell.rows)
            self.account.bound = min(self.account.bound, float(cell.low[worse].min()))
        return _of(cell, ~worse)

    def _looked(self, cell: Cell) -> list[Cell]:
        """Evaluate the points of a cell, or bound them; what is left."""
        self.account.cells += 1
        if self._pair is None and not self._is_second:
            cell = self._divided(cell)
        return self._looked_here(cell) if len(cell.points) else []

    def _divided(self, cell: Cell) -> Cell:
        """Where a cell has many parts, those of half the work, and from then on all cells of their points, are searched beside: neighbours share what
        passes make, so that little is made twice. In another process, or on one core in turn: the certificate is the same. What is left of the
        cell."""
        parts = self._parts(cell.rows, cell.points)
        if len(parts.parts) < _FORK_PARTS:
            return cell
        order = neighbours([part.undone for part in parts.parts])
        work = np.cumsum(_work_of(np.bincount(parts.part[parts.here], minlength=len(order))[order]))
        points = np.zeros(self.space.points, dtype=bool)
        points[cell.points] = np.isin(parts.part, np.array(order)[work > work[-1] / 2])
        waiting, self._waiting = [own for *_, own in sorted(self._waiting)], []
        second = copy(self)
        second._is_second, second._waiting, second._new, second.account, second.known = True, [], [], Account(), deepcopy(self.known)
        second._wait([own for one in (cell, *waiting) if len((own := _of(one, points[one.points])).points)])
        self._pair = Pair(self, second, cores() > 1)
        self._wait([own for one in waiting if len((own := _of(one, ~points[one.points])).points)])
        return _of(cell, ~points[cell.points])

    def _looked_here(self, cell: Cell) -> list[Cell]:
        """Evaluate the points of a cell, or bound them; what is left, part by part, cut by an option."""
        left: list[Cell] = []
        first = self._parts(cell.rows, cell.points)
        for others in self._representatives(first, cell.rows):
            parts = self._parts(cell.rows, cell.points, others) if others else first
            allowed = self._allowed(cell, parts)
            left += self._looked_as(cell, parts)
            # where the member does not run whose derivation is at hand, others may
            cell = _of(cell, allowed & ~parts.here)
            cell = self._unbarred(cell) if len(cell.points) and not others else cell
            if not len(cell.points):
                break
        if len(cell.points):
            left += self._split(cell, cell.rows.index(None))
        return [c for c in left if len(c.points)]

    def _representatives(self, parts: Parts, rows: Rows) -> Iterator[Others]:
        """Members whose derivations may stand for all: that of the first rows, then those that differ in one choice that rules ask for."""
        yield ()
        for at, choice in enumerate(self.choices):
            if rows[at] is None and not parts.deciding.isdisjoint(choice.names):
                yield from (((at, row),) for row in range(1, len(choice.rows)))

    def _looked_as(self, cell: Cell, parts: Parts) -> list[Cell]:
        """Evaluate or bound points at which the member runs that the parts are of; what is left, cut by an option."""
        left = []
        for number, part in enumerate(parts.parts):
            if not part.runs:
                continue
            inside = _of(cell, (parts.part == number) & parts.here)
            asked = part.undone.asked
            waiting, inside = self._bound(inside, part, asked)
            left += waiting
            if len(inside.points) and not waiting:
                at = self._evaluate(inside, part, asked)
                left += self._split(inside, at) if at is not None else []
        return left

    def _variant(self, part: Part, result: Evaluation) -> Variant:
        undone = part.undone
        return Variant(undone.chosen, undone.masks, undone.family, undone.fields, undone.point, result)

    def _allowed(self, cell: Cell, parts: Parts) -> Array:
        """At which points some member runs; the others are refused."""
        for rule in np.unique(parts.broken[parts.broken >= 0]):
            numbers = cell.points[parts.broken == rule]
            self._refuse(parts.rules[rule][0], numbers, cell.rows, partial(parts.why, int(rule)))
        found: Array = parts.broken < 0
        return found

    def _unbarred(self, cell: Cell) -> Cell:
        """Without the points that a rule refuses under all rows of the options that it reads."""
        stopped, rules = barred(self._members_at(cell.rows), cell.points)
        for k in np.unique(stopped[stopped >= 0]):
            (name, family), numbers = rules[k], cell.points[stopped == k]
            self._refuse(name, numbers, cell.rows, partial(family.why, name))
        return _of(cell, stopped < 0)

    def _refuse(self, name: str, numbers: Array, rows: Rows, why: Callable[[int], str]) -> None:
        self.account.refused[name] = self.account.refused.get(name, 0) + len(numbers) * self._members(rows)
        if name not in self.account.why:
            self.account.why[name] = why(int(numbers[0]))

    def _trees_of(self, asked: Derivable) -> Trees:
        """What passes make at points that share a derivation, under all rows of the choices."""
        return self._trees.of(asked, self._of_stages)

    def _bound(self, cell: Cell, part: Part, asked: Derivable) -> tuple[list[Cell], Cell]:
        """The cells that are left of a part: itself, with the bounds of its points that cost little, if these are new; else with all bounds, cut by
        the choice to make next; none where no bound knows a choice that matters. And what of it these are of."""
        if len(self._program.lowered) > _MOST_VALUES:
            self._program = Program(self.space.sizes, small=SHARED_SMALL)
        trees = self._trees_of(asked)
        for name in sorted(self._free(cell.rows) & self._trees.first):
            at = self._free_choice(name, cell.rows)
            assert at is not None
            return self._split(cell, at), cell
        tables = trees.tables(lambda: self._variant(part, trees.evaluation(asked)), cell.points, self._program)
        least = self._least(trees, tables, asked, cell)
        timed = self.goal.objective == "time.step"
        if not cell.looked:
            cell, most = self._fitting(cell, least, least.memory_that_stays())
            if len(cell.points):
                cell = self._slower(cell, least, least.time_of_kernels() if timed else most, tables)
            return [replace(cell, looked=True)], cell
        at = self._free_kind(cell.rows)
        if at is not None:
            return self._split(cell, at), cell
        if timed and cell.timed is trees:
            least.ways_of_time()
            cell = self._better(cell, least)
        elif timed:
            cell = self._slower(cell, least, least.time(), tables)
        if len(cell.points):
            cell, most = self._fitting(cell, least, least.memory())
            cell = cell if timed else self._slower(cell, least, most, tables)
        at = next(iter(least.asked), None)
        if at is None or not len(cell.points):
            return [], cell
        left = self._split(cell, at)
        return [self._known(one, asked, at, trees, tables) for one in left] if timed and least.blocks_known else left, cell

    def _least(self, trees: Trees, tables: Tables, asked: Derivable, cell: Cell) -> Least:
        """The bounds of a cell of points that share a derivation."""
        chosen = {at: row for at, row in enumerate(cell.rows) if row is not None}
        return Least(trees, tables, asked.strategy, chosen, self._free(cell.rows), cell.points)

    def _known(self, cell: Cell, asked: Derivable, at: int, trees: Trees, tables: Tables) -> Cell:
        """A cell of which a choice has just been made, with the time that is known of it already: its ways are some of those before."""
        values = self._rows[at].rows[cast(int, cell.rows[at])]
        if values is None:
            return cell
        asked = replace(asked, strategy=asked.strategy.model_copy(update=values))
        bounds = self._least(trees, tables, asked, cell).time() * self._times(tables, cell)
        return replace(cell, low=np.maximum(cell.low, bounds * (1 - ROUNDING)), looked=True, timed=trees)

    def _times(self, tables: Tables, cell: Cell) -> Any:
        """What a least time, or a least peak, is multiplied by."""
        return 1 if self.goal.times == ONE else tables.of_sizes(self.goal.times)[tables.at(cell.points)]

    def _fitting(self, cell: Cell, least: Least, memory: tuple[Array, Array]) -> tuple[Cell, Array]:
        """Without the points that cannot fit; and their least peak."""
        most, needed = memory
        needed = needed if self.goal.reserve else most
        if self.goal.share is None:
            return cell, most
        larger = needed * (1 - ROUNDING) > (least.capacity if self.goal.limit is None else self.goal.limit) * self.goal.share
        self.account.larger += int(larger.sum()) * self._members(cell.rows)
        least.only(~larger)
        return _of(cell, ~larger), most[~larger]

    def _slower(self, cell: Cell, least: Least, bounds: Array, tables: Tables) -> Cell:
        """Without the points that cannot be better than what was found, by bounds."""
        return self._better(replace(cell, low=np.maximum(cell.low, bounds * self._times(tables, cell) * (1 - ROUNDING))), least)

    def _better(self, cell: Cell, least: Least) -> Cell:
        """Without the points that cannot be better than what was found."""
        left = self._ruled_out(cell)
        least.only(np.searchsorted(cell.points, left.points))
        return left

    def _evaluate(self, cell: Cell, part: Part, asked: Derivable) -> int | None:
        """The exact values of a part, one for all members; where these differ, a choice that decides."""
        # options by which rules let some members run and not others decide too
        deciding = () if part.family.alike else sorted(part.family.deciding)
        at = self._free_kind(cell.rows)
        for name in deciding if at is None else ():
            at = at if at is not None else self._free_choice(name, cell.rows)
        if at is not None:
            return at
        memory, model = self.memories.of(asked.trained, asked.assumptions, asked.system)
        result = evaluated(model, asked.strategy, asked.assumptions, asked.overrides, asked.system, memory=memory)
        self.memories.know(asked, result)
        self.account.derivations += 1
        heard = dict(order_of(memory.done)[0])
        if asked.strategy.padding_free or asked.strategy.placement is not None:
            heard |= dict.fromkeys(self._free(cell.rows))
        for name in heard:
            at = self._free_choice(name, cell.rows)
            if at is not None:
                return at
        reported = Reported(self._variant(part, result), self._program)
        wanted = [reported.quantity(name) for name in (self.goal.objective, "memory.peak", "memory.reserve", "memory.capacity")]
        wanted += [reported.base.lower(self.goal.times), *(lower(node, reported, "--where") for node in self.goal.where)]
        values, peak, reserve, capacity, times, *met = Points(cell.points, self.space.sizes).values(wanted)
        self.account.evaluated += len(cell.points) * self._members(cell.rows)
        values = values * times
        good = np.logical_and.reduce([values == values, *(own != 0 for own in met)])
        if self.goal.share is not None:
            most = (capacity if self.goal.limit is None else self.goal.limit) * self.goal.share
            good &= peak + (reserve if self.goal.reserve else 0) <= most
        values, numbers = values[good], cell.points[good]
        own = self._kind_of_options(cell.rows)
        assert own is not None
        self._new += self.known.take(own, numbers, values, cell.rows, self._members(cell.rows))
        return None

    def _free_choice(self, name: str, rows: Rows) -> int | None:
        """The number of a choice not made that an option or answer follows from."""
        of = self._answers.get(name, frozenset((name,)))
        return next((at for at, choice in enumerate(self.choices) if rows[at] is None and not of.isdisjoint(choice.names)), None)

    def _free_kind(self, rows: Rows) -> int | None:
        """The number of a choice not made that tells kinds apart."""
        return next((at for name in self.goal.kinds or () if (at := self._free_choice(name, rows)) is not None), None)

    def _parts(self, rows: Rows, points: Array, others: Others = ()) -> Parts:
        return parted(self._members_at(rows, others), points)

    def _members_at(self, rows: Rows, others: Others = ()) -> list[Members]:
        found = self._members_of.pop((rows, others), None)
        if found is None:
            left = [own for own, row in zip(self._rows, rows) if row is None]
            found = members_of(self._space(rows, others), self._free(rows), left, self._ruled)
            if len(self._members_of) >= _MOST_PARTED:
                self._members_of.pop(next(iter(self._members_of)))
        self._members_of[rows, others] = found
        return found

    # options -----------------------------------------------------------------------------------------------------------

    def options(self, rows: Rows, others: Others = ()) -> dict[str, Any]:
        """Those chosen, and of the others the first row, but for some."""
        at = [row or 0 for row in rows]
        for choice, row in others:
            at[choice] = row
        return {name: value for choice, k in zip(self.choices, at) for name, value in zip(choice.names, choice.rows[k])}

    def _free(self, rows: Rows) -> frozenset[str]:
        """The options not chosen yet, and the answers that are not the same for all their rows."""
        names = frozenset(name for choice, row in zip(self.choices, rows) if row is None for name in choice.names)
        return names | frozenset(answer for answer, of in self._answers.items() if not of.isdisjoint(names))

    def _members(self, rows: Rows) -> int:
        return math.prod(len(choice.rows) for choice, row in zip(self.choices, rows) if row is None)

    def _space(self, rows: Rows, others: Others = ()) -> Space:
        return self.space.of(self.make(self.options(rows, others)))

    @property
    def _of_stages(self) -> frozenset[str]:
        """The options that what a stage holds follows from."""
        return frozenset(name for known in self.space.pipelines.values() for read in known for name in read)

    def _kind_of_options(self, rows: Rows) -> tuple[str, ...] | None:
        """What of the options tells kinds apart; None where some of it is still free."""
        kinds = self.goal.kinds or ()
        if any(name in self._free(rows) for name in kinds):
            return None
        chosen = self.options(rows)
        return tuple(str(chosen[name]) for name in kinds if name in chosen)

    def _codes(self, kinds: Sequence[str]) -> Array:
        """Of every point of the grid of sizes a number of its kind."""
        codes = np.zeros(self.space.sizes, dtype=np.int64)
        for name in kinds:
            column = self.space.columns.get(name)
            if column is not None:
                which = {v: k for k, v in enumerate(dict.fromkeys(map(str, column.values)))}
                shape = [1] * len(self.space.sizes)
                shape[column.axis] = len(column.values)
                codes = codes * len(which) + np.array([which[str(v)] for v in column.values]).reshape(shape)
        return codes.reshape(-1)


def _work_of(points: Any, few: float = 1) -> Any:
    """How much work a cell of so many points is, where one of few is `few`."""
    return few + points / _POINTS_A_CELL


def _of(cell: Cell, where: Array) -> Cell:
    return replace(cell, points=cell.points[where], low=cell.low[where])
