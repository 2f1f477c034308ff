"""Branch and bound over sizes and options: the best strategy of every kind, and what became of all others.

A cell is a choice of some options, the others free, and of the points of the grid of sizes those that may still be better than what was
found. Of a cell no configuration takes less than the bound of its point (`least.py`), or needs less memory; what is not ruled out by that is cut
by the next option, until all options that matter are chosen and its points are evaluated. The cell of the least bound goes first.
"""

from __future__ import annotations

import heapq
import math
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import count, product
from typing import Any

import numpy as np

from symsim.grid.axes import Axis, DerivedAxis
from symsim.grid.family import Array
from symsim.grid.names import DEGREES, field_of
from symsim.grid.processes import cores, forked, shared
from symsim.grid.reported import Reported
from symsim.grid.space import Space
from symsim.grid.stored import Asked as Derivable
from symsim.grid.stored import Memories, shape
from symsim.grid.variant import Variant, neighbours
from symsim.planning.certain import Derived, derived
from symsim.planning.frameworks import Choice
from symsim.planning.least import LEAST_MEMORY, LEAST_NEED, LEAST_TIME, Least
from symsim.planning.members import Cuts, Part, Parts, parted
from symsim.planning.ways import Free, Way, answers_that_vary, rows_of, ways_of
from symsim.program.base import Base
from symsim.program.points import values_at
from symsim.program.program import Program

# bounds and values are sums of the same terms in other orders; closer than this they count as equal
_ROUNDING = 1e-9
_SMALL = 1 << 13
# grids under one member's options that are kept
_MOST_PARTED = 1 << 12
# options that the model which is derived follows from
_OF_TRAINED = frozenset(("mtp_num_layers", "task_type"))
# a program with more values is begun anew: what parts share is of few cells
_MOST_VALUES = 20_000
# so many parts are worth a process
_FORK_PARTS = 16
# after which two processes tell each other what they found
_CELLS_A_ROUND = 4

Progress = Callable[[str, float, float], None]
Make = Callable[[Mapping[str, Any]], Base]
# of choices that are not made, rows other than the first, by the choice's number
Others = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Found:
    """A configuration: the value of the objective, its point in the grid of sizes, and its options besides."""

    value: float
    point: int
    options: Mapping[str, Any]


@dataclass
class Account:
    """What became of the configurations: refused by a rule, ruled out by the bound of time or of memory, or evaluated. bound: the least that one of
    those ruled out by time could take."""

    refused: dict[str, int] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    slower: int = 0
    larger: int = 0
    evaluated: int = 0
    bound: float = math.inf
    cells: int = 0
    derivations: int = 0

    @property
    def settled(self) -> int:
        return sum(self.refused.values()) + self.slower + self.larger + self.evaluated

    def add(self, other: "Account") -> None:
        """What became of further configurations."""
        for name, number in other.refused.items():
            self.refused[name] = self.refused.get(name, 0) + number
        self.why = {**other.why, **self.why}
        self.slower, self.larger, self.evaluated = self.slower + other.slower, self.larger + other.larger, self.evaluated + other.evaluated
        self.derivations, self.cells = self.derivations + other.derivations, self.cells + other.cells
        self.bound = min(self.bound, other.bound)


@dataclass
class Known:
    """What was found so far: the best of every kind; of every kind of options, by the kind of a point, the least; and what is needed to be one of the
    best kinds."""

    best: dict[tuple[Any, ...], Found] = field(default_factory=dict)
    reached: dict[tuple[Any, ...], Array] = field(default_factory=dict)
    enough: float = math.inf

    def add(self, kind: tuple[Any, ...], code: int, found: Found, kinds: int, top: int) -> None:
        """A configuration; of equal ones the first stays. kinds: how many kinds of points there are; top: how many of all are wanted."""
        reached = self.reached.setdefault(kind, np.full(kinds, np.inf))
        if found.value < reached[code]:
            reached[code] = found.value
            self.best[(*kind, code)] = found
            if len(self.best) >= top:
                self.enough = sorted(f.value for f in self.best.values())[top - 1]


@dataclass(frozen=True)
class Cell:
    """rows: of each choice so far the row taken. points: of the grid of sizes, rising; low: of each, what none of the cell's is below. further:
    choices that are to be made before more is known."""

    rows: tuple[int, ...]
    points: Array
    low: Array
    further: int = 1


@dataclass(frozen=True)
class Goal:
    """objective: time.step or memory.peak, least first. share: of the memory that may be filled; None where what does not fit counts too. kinds: the
    names that tell kinds apart; top: of so many kinds the best is wanted."""

    objective: str
    share: float | None
    kinds: Sequence[str]
    top: int


Answer = tuple[Account, Known, set[int], bool]


@dataclass
class Beside:
    """A search beside this one, of cells of its own. ask: gives it a message, and what gives its answer; end: what ends it; answer: what gives the
    answer to what it was asked last, None where it has no cells left."""

    ask: Callable[[bytes], Callable[[], Answer]]
    end: Callable[[], None] = lambda: None
    answer: Callable[[], Answer] | None = None


class Search:
    """The search of one space. axes, derived: the grid of sizes. choices: the options, each with its rows. make: the base of all points, given
    options."""

    def __init__(self, axes: Sequence[Axis], derived_axes: Sequence[DerivedAxis], choices: Sequence[Choice], make: Make, goal: Goal):
        self.axes, self.derived_axes, self.choices, self.make, self.goal = tuple(axes), tuple(derived_axes), tuple(choices), make, goal
        self.space = Space(make(self._options(())), self.axes, self.derived_axes, option="--allow")
        self.account = Account()
        self.known = Known()
        self._beside: Beside | None = None
        self._of_two = False
        self._waiting: list[tuple[float, int, int, Cell]] = []
        self._order = count()
        self._memories = Memories()
        self._derived: dict[str, Derived] = {}
        self._least: dict[tuple[str, frozenset[str]], Least] = {}
        self._further: dict[frozenset[str], bool] = {}
        # blocks that had too many ways, with the free options
        self._wayless: set[tuple[str, frozenset[str]]] = set()
        self._program = Program(self.space.sizes, small=_SMALL)
        self._idle: set[int] = set()
        self._cuts = Cuts()
        self._parted: dict[tuple[tuple[int, ...], Others], Parts] = {}
        self._codes, self._sized = self._kinds()
        given = {field_of(name) for name in self.space.columns} | {field_of(d.name) for d in self.derived_axes}
        self._answers = answers_that_vary(make({}).strategy, self.choices, frozenset(given))

    @property
    def configurations(self) -> int:
        return self.space.points * self._members(0)

    def run(self, progress: Progress) -> list[Found]:
        """The best of each of the best kinds, the best first."""
        self._sort_choices()
        total = float(self.configurations)
        self._wait([Cell((), np.arange(self.space.points), np.zeros(self.space.points))])
        try:
            while self._waiting or (self._beside is not None and self._beside.answer is not None):
                if self._beside is None:
                    self._round(1)
                else:
                    self._round_of_both(self._beside)
                progress("searching", float(self.account.settled), total)
        finally:
            if self._beside is not None:
                self._beside.end()
        return sorted(self.known.best.values(), key=lambda f: (f.value, f.point))[: self.goal.top]

    def _wait(self, cells: Sequence[Cell]) -> None:
        for cell in cells:
            heapq.heappush(self._waiting, (float(cell.low.min()), -len(cell.rows), next(self._order), cell))

    def _round(self, cells: int) -> None:
        """So many cells of those that wait, the one of the least bound first."""
        for _ in range(cells):
            if self._waiting:
                self._wait(self._cut(heapq.heappop(self._waiting)[3]))

    def _round_of_both(self, beside: Beside) -> None:
        """A round here and one beside, after which each knows what the other found."""
        self._round(_CELLS_A_ROUND)
        if beside.answer is None:
            return
        account, known, idle, busy = beside.answer()
        self.account.add(account)
        for (*kind, code), found in known.best.items():
            self.known.add(tuple(kind), code, found, self._sized, self.goal.top)
        self._idle |= idle
        beside.answer = beside.ask(pickle.dumps(((), self.known))) if busy else None

    # cells -------------------------------------------------------------------------------------------------------------

    def _cut(self, cell: Cell) -> list[Cell]:
        """Rule out or evaluate the points of a cell, and cut what is left by the next option."""
        depth, left = len(cell.rows), self._ruled_out(cell)
        if not len(left.points):
            return []
        found = [left] if depth in self._idle and depth < len(self.choices) else self._looked(left)
        return [replace(part, rows=(*cell.rows, *rows), further=1) for part in found for rows in self._rows(depth, part.further)]

    def _rows(self, depth: int, further: int) -> Iterator[tuple[int, ...]]:
        return product(*(range(len(choice.rows)) for choice in self.choices[depth : depth + further]))

    def _ruled_out(self, cell: Cell) -> Cell:
        """Without the points that cannot be better than what was found."""
        worse = cell.low >= self._most(cell) * (1 - _ROUNDING)
        if worse.any():
            self.account.slower += int(worse.sum()) * self._members(len(cell.rows))
            self.account.bound = min(self.account.bound, float(cell.low[worse].min()))
        return _of(cell, ~worse)

    def _most(self, cell: Cell) -> Any:
        """What a configuration has to be below at each point of a cell."""
        own = self._kind_of_options(cell.rows)
        reached, enough = self.known.reached.get(own) if own is not None else None, self.known.enough
        return enough if reached is None else np.minimum(enough, reached[self._codes[cell.points]])

    def _looked(self, cell: Cell) -> list[Cell]:
        """Evaluate the points of a cell, or bound them; what is left."""
        self.account.cells += 1
        if not self._of_two:
            cell = self._divided(cell)
        return self._looked_here(cell) if len(cell.points) else []

    def _divided(self, cell: Cell) -> Cell:
        """Where a cell has many parts, half of them, and from then on all cells of their points, are searched beside: neighbours share what passes
        make, so that little is made twice. In another process, or on one core in turn: the certificate is the same. What is left of the cell."""
        parts = self._parts(cell.rows)
        if len(parts.parts) < _FORK_PARTS:
            return cell
        self._of_two = True
        order = neighbours([part.undone for part in parts.parts])
        points = np.isin(parts.part, order[len(order) // 2 :])
        waiting, self._waiting = [own for *_, own in sorted(self._waiting)], []
        theirs = [own for one in (cell, *waiting) if len((own := _of(one, points[one.points])).points)]
        self._beside = self._other_process() if cores() > 1 else self._in_turn()
        # asked now, so that it knows what is known here at this moment
        self._beside.answer = self._beside.ask(pickle.dumps((theirs, self.known)))
        self._wait([own for one in waiting if len((own := _of(one, ~points[one.points])).points)])
        return _of(cell, ~points[cell.points])

    def _other_process(self) -> Beside:
        pool = forked(self, 1)
        return Beside(lambda message: pool.submit(_answered, message).result, lambda: pool.shutdown(cancel_futures=True))

    def _in_turn(self) -> Beside:
        other = copy(self)
        other._waiting = []
        other._derived, other._least, other._further = dict(self._derived), dict(self._least), dict(self._further)
        other._wayless, other._idle = set(self._wayless), set(self._idle)
        return Beside(lambda message: lambda: other.answer(*pickle.loads(message)))

    def answer(self, cells: Sequence[Cell], known: Known) -> Answer:
        """Of a search beside one that has found `known`, a round with further cells: what became of them, what is known then, options that tell
        nothing, and whether any cells are left."""
        self.account, self.known = Account(), known
        self._wait(cells)
        self._round(_CELLS_A_ROUND)
        return self.account, self.known, self._idle, bool(self._waiting)

    def _looked_here(self, cell: Cell) -> list[Cell]:
        """Evaluate the points of a cell, or bound them; what is left, part by part."""
        parts = self._parts(cell.rows)
        cell = self._allowed(cell, parts)
        left: list[Cell] = []
        for others in self._representatives(parts, len(cell.rows)):
            parts = self._parts(cell.rows, others)
            here = parts.here[cell.points]
            left += self._looked_as(_of(cell, here), parts)
            # where the member does not run whose derivation is at hand, others may
            cell = _of(cell, ~here)
            if not len(cell.points):
                break
        return [c for c in (*left, cell) if len(c.points)]

    def _representatives(self, parts: Parts, depth: int) -> Iterator[Others]:
        """Members whose derivations may stand for all: that of the first rows, then those that differ in one choice that rules ask for."""
        yield ()
        for at, choice in enumerate(self.choices[depth:], depth):
            if not parts.deciding.isdisjoint(choice.names):
                yield from (((at, row),) for row in range(1, len(choice.rows)))

    def _looked_as(self, cell: Cell, parts: Parts) -> list[Cell]:
        """Evaluate or bound points at which the member runs that the parts are of; what is left."""
        left, depth, own = [], len(cell.rows), parts.part[cell.points]
        for number in np.unique(own):
            part, inside = parts.parts[number], _of(cell, own == number)
            bounds = self._bounds(part, self._free(depth))
            if not (bounds.known or bounds.exact):
                # nothing is known so far, nor will it be of another part
                self._idle.add(depth)
                left.append(_of(cell, own >= number))
                break
            undone = part.undone
            masks = [*undone.masks, *part.family.here]
            variant = Variant(undone.chosen, masks, undone.family, undone.fields, _point(part), bounds.derived.result)
            if self._decided(cell, part, bounds):
                self._evaluate(inside, variant)
            else:
                left.append(replace(self._bound(inside, variant, bounds), further=self._further_choices(bounds, depth)))
        return left

    def _allowed(self, cell: Cell, parts: Parts) -> Cell:
        """Without the points at which no member runs."""
        broken = parts.broken[cell.points]
        for rule in np.unique(broken[broken >= 0]):
            name, numbers = parts.rules[rule][0], cell.points[broken == rule]
            self.account.refused[name] = self.account.refused.get(name, 0) + len(numbers) * self._members(len(cell.rows))
            if name not in self.account.why:
                self.account.why[name] = parts.why(int(rule), int(numbers[0]))
        return _of(cell, broken < 0)

    def _bounds(self, part: Part, free: frozenset[str]) -> Least:
        # how much is known depends on the free options more than on the part: where the first had no sums, others are not asked for them
        asked = replace(part.undone, point=_point(part)).asked
        known, key = self._derivation(asked, not free or self._further.get(free, True))
        if (key, free) not in self._least:
            self._least[key, free] = Least(known, free, lambda name: self._ways(asked, name, free))
            self._further.setdefault(free, self._least[key, free].further)
        return self._least[key, free]

    def _ways(self, asked: Derivable, name: str, free: frozenset[str]) -> list[Way] | None:
        """A block under all rows of the free options; not where they change what is trained, nor where it had too many elsewhere."""
        if _OF_TRAINED & free or asked.strategy.padding_free or asked.strategy.placement is not None or (name, free) in self._wayless:
            return None
        choices = tuple(rows_of(choice) for choice in self.choices if not free.isdisjoint(choice.names))
        memory, model = self._memories.of(asked.trained, asked.assumptions, asked.system)
        found = ways_of(asked, memory, model, name, Free(choices, self._answers))
        if found is None:
            self._wayless.add((name, free))
        return found

    def _further_choices(self, bounds: Least, depth: int) -> int:
        """How many choices are to be made before a derivation tells more than it does now."""
        now = bounds.derived.known_without(self._free(depth))
        more = (k for k in range(1, len(self.choices) - depth) if bounds.derived.known_without(self._free(depth + k)) != now)
        return next(more, len(self.choices) - depth)

    def _decided(self, cell: Cell, part: Part, bounds: Least) -> bool:
        """Whether all members of a cell cost the same and run at the same points."""
        if not self._free(len(cell.rows)):
            return True
        kind = self._kind_of_options(cell.rows)
        return bounds.exact and part.family.alike and kind is not None and self._free(len(cell.rows)).isdisjoint(self._of_stages)

    def _bound(self, cell: Cell, variant: Variant, bounds: Least) -> Cell:
        """What is left of a part, with the bounds of its points."""
        if len(self._program.lowered) > _MOST_VALUES:
            self._program = Program(self.space.sizes, small=_SMALL)
        held = Reported(replace(variant, result=bounds.of_memory), self._program)
        memory, needed, capacity = (held.quantity(name) for name in (LEAST_MEMORY.text, LEAST_NEED.text, "memory.capacity"))
        if not self._free(len(cell.rows)).isdisjoint(self._of_stages):
            return cell
        if self.goal.share is not None:
            most, there = values_at([needed, capacity], cell.points, self.space.sizes)
            larger = most * (1 - _ROUNDING) > there * self.goal.share
            self.account.larger += int(larger.sum()) * self._members(len(cell.rows))
            cell = _of(cell, ~larger)
        if not len(cell.points):
            return cell
        if self.goal.objective == "time.step":
            memory = Reported(replace(variant, result=bounds.of_both), self._program).quantity(LEAST_TIME.text)
        (own,) = values_at([memory], cell.points, self.space.sizes)
        return self._ruled_out(replace(cell, low=np.maximum(cell.low, np.where(own == own, own, 0.0) * (1 - _ROUNDING))))

    def _evaluate(self, cell: Cell, variant: Variant) -> None:
        """The exact values of a part, one for all members."""
        reported = Reported(variant, self._program)
        wanted = [reported.quantity(name) for name in (self.goal.objective, "memory.peak", "memory.reserve", "memory.capacity")]
        values, peak, reserve, capacity = values_at(wanted, cell.points, self.space.sizes)
        self.account.evaluated += len(cell.points) * self._members(len(cell.rows))
        good = values == values
        if self.goal.share is not None:
            good &= peak + reserve <= capacity * self.goal.share
        values, numbers = values[good], cell.points[good]
        own = self._kind_of_options(cell.rows)
        assert own is not None
        codes = self._codes[numbers]
        order = np.lexsort((numbers, values, codes))
        _, first = np.unique(codes[order], return_index=True)
        for k in order[first]:
            self.known.add(own, int(codes[k]), Found(float(values[k]), int(numbers[k]), self._options(cell.rows)), self._sized, self.goal.top)

    def _derivation(self, asked: Derivable, whole: bool = True) -> tuple[Derived, str]:
        key = repr((whole, self._memories.spelt(asked.trained, asked.assumptions, asked.system), shape(asked.strategy, asked.trained)))
        if key not in self._derived:
            self._derived[key] = derived(asked, self._memories, whole)
            self.account.derivations += 1
        return self._derived[key], key

    def _parts(self, rows: tuple[int, ...], others: Others = ()) -> Parts:
        found = self._parted.pop((rows, others), None)
        if found is None:
            found = parted(self._space(rows, others), self._free(len(rows)), self._cuts)
            if len(self._parted) >= _MOST_PARTED:
                self._parted.pop(next(iter(self._parted)))
        self._parted[rows, others] = found
        return found

    # options -----------------------------------------------------------------------------------------------------------

    def _options(self, rows: Sequence[int], others: Others = ()) -> dict[str, Any]:
        """Those chosen, and of the others the first row, but for some."""
        at = [*rows, *[0] * (len(self.choices) - len(rows))]
        for choice, row in others:
            at[choice] = row
        return {name: value for choice, k in zip(self.choices, at) for name, value in zip(choice.names, choice.rows[k])}

    def _free(self, depth: int) -> frozenset[str]:
        """The options not chosen yet, and the answers that are not the same for all their rows."""
        names = frozenset(name for choice in self.choices[depth:] for name in choice.names)
        return names | frozenset(answer for answer, of in self._answers.items() if not of.isdisjoint(names))

    def _members(self, depth: int) -> int:
        return math.prod(len(choice.rows) for choice in self.choices[depth:])

    def _space(self, rows: Sequence[int], others: Others = ()) -> Space:
        return self.space.of(self.make(self._options(rows, others)))

    @property
    def _of_stages(self) -> frozenset[str]:
        """The options that what a stage holds follows from."""
        return frozenset(name for known in self.space.pipelines.values() for read in known for name in read)

    def _sort_choices(self) -> None:
        """The options that are read first come first, where all degrees are above 1 that can be."""
        parts = [p for p in self._parts(()).parts if p.point is not None]
        if not parts:
            return
        part = max(parts, key=lambda p: sum((p.undone.asked.strategy.__dict__[name] or 1) > 1 for name in DEGREES))
        known, _ = self._derivation(replace(part.undone, point=_point(part)).asked)
        masks = [*part.undone.masks, *part.family.here]
        assert Reported(Variant(part.undone.chosen, masks, part.family, part.undone.fields, _point(part), known.result), self._program).slots
        heard = {name: at for at, name in enumerate(known.heard)} | dict.fromkeys(self._of_stages, -1)
        self.choices = tuple(sorted(self.choices, key=lambda c: min(heard.get(n, len(heard)) for n in c.names)))
        self._parted.clear()

    def _kind_of_options(self, rows: Sequence[int]) -> tuple[str, ...] | None:
        """What of the options tells kinds apart; None where some of it is still free."""
        if any(name in self._free(len(rows)) for name in self.goal.kinds):
            return None
        chosen = self._options(rows)
        return tuple(str(chosen[name]) for name in self.goal.kinds if name in chosen)

    def _kinds(self) -> tuple[Array, int]:
        """Of every point of the grid of sizes a number of its kind, and how many there are."""
        codes, several = np.zeros(self.space.sizes, dtype=np.int64), 1
        for name in self.goal.kinds:
            column = self.space.columns.get(name)
            if column is not None:
                which = {v: k for k, v in enumerate(dict.fromkeys(map(str, column.values)))}
                shape = [1] * len(self.space.sizes)
                shape[column.axis] = len(column.values)
                codes = codes * len(which) + np.array([which[str(v)] for v in column.values]).reshape(shape)
                several *= len(which)
        return codes.reshape(-1), several


def _answered(asked: bytes) -> Answer:
    found: Answer = shared().answer(*pickle.loads(asked))
    return found


def _point(part: Part) -> tuple[int, ...]:
    assert part.point is not None
    return part.point


def _of(cell: Cell, where: Array) -> Cell:
    return replace(cell, points=cell.points[where], low=cell.low[where])
