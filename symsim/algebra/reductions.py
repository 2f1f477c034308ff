"""Reductions over the stages of a pipeline: nodes of a formula, evaluated, expanded and lowered by one rule.

    stages_sum(x)      x of every stage, added up
    stages_max(x)      the largest x of a stage
    stages_at(x, by)   x of the stage whose `by` is the largest, the first of equal ones
    stages_after(x)    inside stages_max: x of the stages after this one, added up
    stages_before(x)   inside stages_max: x of the stages before this one, added up
    stages_pair(x)     inside another: the mean of x of this stage and of its mirror image, which one rank holds; the other
                       reduction then goes over such ranks

x is an expression over a stage's symbols and definitions. Stages that hold the same have the same x, so that a reduction goes
over the few classes of equal stages with their numbers: a pipeline of any depth costs the same. What depends on the place in the
pipeline itself (`i`: what is in flight) is taken at the places that no other of the class exceeds (`Line.fullest`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any, Protocol

from symsim.algebra.expr import Call, Expr, Monomial, Number, expr, function, symbol

FUNCTIONS = ("stages_sum", "stages_max", "stages_at", "stages_after", "stages_before", "stages_pair")
Holdings = tuple[int, ...]


def stages_sum(x: "Expr | Number") -> Expr:
    """x of every stage of the pipeline, added up."""
    return _node("stages_sum", x)


def stages_max(x: "Expr | Number") -> Expr:
    """The largest x of a stage."""
    return _node("stages_max", x)


def stages_at(x: "Expr | Number", by: "Expr | Number") -> Expr:
    """x of the stage whose `by` is the largest, the first of equal ones."""
    return _node("stages_at", x, by)


def stages_after(x: "Expr | Number") -> Expr:
    """x of the stages after the one that the surrounding stages_max looks at, added up."""
    return _node("stages_after", x)


def stages_before(x: "Expr | Number") -> Expr:
    """x of the stages before the one that the surrounding stages_max looks at, added up."""
    return _node("stages_before", x)


def stages_pair(x: "Expr | Number") -> Expr:
    """x of a rank that holds stage i and its mirror image pp - 1 - i, of which half of the micro-batches pass each: their mean."""
    return _node("stages_pair", x)


def _node(name: str, *arguments: "Expr | Number") -> Expr:
    return Expr({((Call(name, tuple(map(expr, arguments))), 1),): 1})


@dataclass(frozen=True)
class Run:
    """Consecutive stages that hold the same, and the first and last index."""

    holdings: Holdings
    first: int
    last: int


def stage_runs(stages: Iterable[Mapping[str, Number]]) -> tuple[Run, ...]:
    """Runs of equal stages, given the symbols of each in order of the pipeline."""
    runs: list[Run] = []
    for index, symbols in enumerate(stages):
        holdings = tuple(int(v) for n, v in symbols.items() if n != "i")
        if runs and runs[-1].holdings == holdings:
            runs[-1] = replace(runs[-1], last=index)
        else:
            runs.append(Run(holdings, index, index))
    return tuple(runs)


def members(runs: Iterable[Run]) -> dict[Holdings, tuple[int, ...]]:
    """The stages of each class, in order of the first."""
    found: dict[Holdings, list[int]] = {}
    for run in runs:
        found.setdefault(run.holdings, []).extend(range(run.first, run.last + 1))
    return {held: tuple(stages) for held, stages in found.items()}


Ranks = tuple[tuple[tuple[int, ...], Any, Any], ...]
"""Consecutive ranks with the same seconds: the stages of one (each the first of its class), the first and the last rank, as numbers
or over pp."""
Spread = tuple[tuple[str, tuple[tuple[Expr, Expr], ...], Mapping[str, Expr]], ...]
"""Of each class of equal stages its name, the places of the first and the last of consecutive ones, and what a stage holds by symbol."""


class Stages(Protocol):
    """The stages of a pipeline, each class by one of it: `Line` in numbers, `EvenLine` over pp."""

    @property
    def alone(self) -> Ranks: ...
    @property
    def pairs(self) -> Ranks: ...
    @property
    def heaviest(self) -> tuple[tuple[int, ...], ...]: ...
    @property
    def places(self) -> tuple[int, ...]: ...
    @property
    def spread(self) -> Spread: ...
    @property
    def also(self) -> Mapping[str, Expr]:
        """Symbols that are others here."""

    def stands_for(self, stage: int) -> int:
        """The stage that stands for those that hold the same as this one."""

    def label(self, stage: int) -> int | str:
        """What its definitions are told apart by."""

    def said(self, stage: int) -> str: ...
    def own(self, stage: int) -> Mapping[str, Expr]:
        """The symbols of a stage, its place `i` included."""

    def check(self, values: Mapping[str, Number]) -> None:
        """InputError where these values cut the pipeline in another way."""


@dataclass(frozen=True)
class Line:
    """The stages of one pipeline.

    names: a stage's own symbols. runs: consecutive stages that hold the same number of each. fullest: of each class the places that no
    other matches in what is in flight.
    """

    names: tuple[str, ...]
    runs: tuple[Run, ...]
    fullest: Mapping[Holdings, tuple[int, ...]]

    @cached_property
    def members(self) -> dict[Holdings, tuple[int, ...]]:
        """The stages of each class, in order of the first."""
        return members(self.runs)

    @cached_property
    def classes(self) -> dict[Holdings, int]:
        """How many stages each class has."""
        return {held: len(stages) for held, stages in self.members.items()}

    @cached_property
    def first(self) -> dict[Holdings, int]:
        """The first stage of each class."""
        return {held: stages[0] for held, stages in self.members.items()}

    @cached_property
    def alone(self) -> Ranks:
        """Ranks that hold a stage each."""
        return tuple(((self.first[run.holdings],), run.first, run.last) for run in self.runs)

    @cached_property
    def pairs(self) -> Ranks:
        """Ranks that hold a stage and its mirror image each."""
        held = [self.first[holdings] for holdings in self._held]
        found: list[tuple[tuple[int, ...], int, int]] = []
        for k in range(len(held)):
            pair = tuple(sorted((held[k], held[-1 - k])))
            if found and found[-1][0] == pair:
                found[-1] = (pair, found[-1][1], k)
            else:
                found.append((pair, k, k))
        return tuple(found)

    @cached_property
    def heaviest(self) -> tuple[tuple[int, ...], ...]:
        """Stages of which no other holds as much of everything and more of something: with times that are not negative, and a layer that is
        recomputed taking no less than one that is not, one of them is the slowest."""
        return tuple((at,) for held, at in self.first.items() if not any(other != held and within(held, other) for other in self.first))

    @cached_property
    def places(self) -> tuple[int, ...]:
        """Where what depends on the place can be the largest of all stages."""
        return tuple(sorted({place for places in self.fullest.values() for place in places}))

    @cached_property
    def _held(self) -> list[Holdings]:
        return [run.holdings for run in self.runs for _ in range(run.first, run.last + 1)]

    @cached_property
    def spread(self) -> Spread:
        """Of each class its name, where its stages lie, and what one of them holds."""
        return tuple(
            (
                str(first),
                tuple((expr(run.first), expr(run.last)) for run in self.runs if run.holdings == held),
                {name: expr(n) for name, n in zip(self.names, held)},
            )
            for held, first in self.first.items()
        )

    @property
    def also(self) -> Mapping[str, Expr]:
        """Symbols that are others here: none."""
        return {}

    def stands_for(self, stage: int) -> int:
        """The first of the stages that hold the same as this one."""
        return self.first[self._held[stage]]

    def label(self, stage: int) -> int:
        return stage

    def said(self, stage: int) -> str:
        return f"stage {stage}"

    def own(self, stage: int) -> Mapping[str, Expr]:
        """The symbols of a stage, its place `i` included."""
        return {**{name: expr(n) for name, n in zip(self.names, self._held[stage])}, "i": expr(stage)}

    def check(self, values: Mapping[str, Number]) -> None:
        """Nothing: numbers of stages are no symbols here, so that all values will do."""


def counted(ranks: Ranks) -> dict[tuple[int, ...], Any]:
    """Ranks by the stages that they hold, in order of the first, and how many they are."""
    found: dict[tuple[int, ...], Any] = {}
    for stages, first, last in ranks:
        found[stages] = found.get(stages, 0) + last - first + 1
    return found


def paired(call: Call) -> bool:
    """Whether a reduction goes over ranks that hold a stage and its mirror image."""
    inner = [atom for argument in call.arguments for monomial in argument.terms for atom, _ in monomial if isinstance(atom, Call)]
    return call.function == "stages_pair" or any(map(paired, inner))


def within(one: Holdings, other: Holdings) -> bool:
    """Whether a stage that holds `one` has no more of anything than one that holds `other`."""
    return all(a <= b for a, b in zip(one, other))


def named(expression: Expr) -> tuple[Expr, dict[str, Call]]:
    """The expression with its reductions replaced by symbols, and by their names the reductions, those within a maximum too."""
    found: dict[str, Call] = {}
    return _named(expression, found), found


def _named(expression: Expr, found: dict[str, Call]) -> Expr:
    if not any(map(_reduces, expression.terms)):
        return expression
    total = Expr({})
    for monomial, coefficient in expression.terms.items():
        term = expr(coefficient)
        for atom, power in monomial:
            whole = Expr({((atom, 1),): 1})
            if isinstance(atom, Call) and atom.function in FUNCTIONS:
                found[atom.key[1]] = atom
                whole = symbol(atom.key[1])
            elif isinstance(atom, Call) and _reduces(((atom, power),)):
                whole = function(atom.function, *(_named(argument, found) for argument in atom.arguments))
            term = term * whole**power
        total = total + term
    return total


@lru_cache(maxsize=1 << 13)
def _reduces(monomial: Monomial) -> bool:
    """Whether there is a reduction in it."""
    calls = [atom for atom, _ in monomial if isinstance(atom, Call)]
    return any(call.function in FUNCTIONS or any(_reduces(inner) for argument in call.arguments for inner in argument.terms) for call in calls)


Rank = tuple[Any, ...]
"""The stages that a rank holds: one, or a stage and its mirror image."""


class Over(Protocol):
    """What reductions go over, and what its values can do: the stages of one pipeline (`OverLine`), or those of all of a grid (slots.py)."""

    @property
    def placed(self) -> Collection[str]:
        """Names of a stage that depend on its place."""

    def at(self, stage: Any, body: Expr, given: Mapping[str, Any]) -> Any:
        """The value of an expression over a stage's definitions at a stage, where some symbols are given."""

    def ranks(self, pairs: bool) -> Sequence[tuple[Rank, Any]]:
        """Ranks of which each stands for equal ones, and how many they are."""

    def heaviest(self) -> Sequence[Rank]:
        """Ranks of which no other holds as much of everything and more of something."""

    def places(self) -> Sequence[Rank]:
        """Where what depends on the place can be the largest of all stages."""

    def waiting(self, pairs: bool) -> Iterable[tuple[Rank, Any, Sequence[tuple[Rank, Any]]]]:
        """Of consecutive equal ranks one, the place of the last of them, and the ranks after it with their numbers."""

    def between(self) -> Iterable[tuple[Rank, Any, Sequence[tuple[Rank, Any]], Sequence[tuple[Rank, Any]]]]:
        """The first and the last of consecutive equal ranks, each with its place, and the ranks before and after it with their numbers."""

    def total(self, parts: Sequence[tuple[Any, Any]]) -> Any:
        """The sum of values times numbers of ranks."""

    def mean(self, values: Sequence[Any]) -> Any: ...

    def largest(self, values: Sequence[tuple[Rank, Any]]) -> Any:
        """The largest of the values of ranks."""

    def chosen(self, values: Sequence[tuple[Rank, Any, Any]]) -> Any:
        """Of (rank, value, key) the value of the first largest key."""


def reduced(call: Call, over: Over, rising: Collection[Expr] = ()) -> Any:
    """The value of a reduction. rising: expressions of which a stage has no less than one that holds no more."""

    apart = cache(named)

    def of(rank: Rank, body: Expr, given: Mapping[str, Any]) -> Any:
        inner, nodes = apart(body)
        own = dict(given)
        for name, pair in nodes.items():
            if name not in own:
                own[name] = over.mean([over.at(stage, pair.arguments[0], own) for stage in rank])
        return over.at(rank[0], inner, own)

    known: dict[tuple[Any, ...], tuple[Rank, Any]] = {}

    def alone(rank: Rank, body: Expr) -> Any:
        # what a rank holds is told apart by which it is, as long as it is kept
        key = (body, *map(id, rank))
        if key not in known:
            known[key] = rank, of(rank, body, {})
        return known[key][1]

    body, by, pairs = call.arguments[0], call.arguments[-1], paired(call)
    if call.function == "stages_sum":
        return over.total([(of(rank, body, {}), count) for rank, count in over.ranks(pairs)])
    nodes = named(body)[1]
    after = {name: node.arguments[0] for name, node in nodes.items() if node.function == "stages_after"}
    before = {name: node.arguments[0] for name, node in nodes.items() if node.function == "stages_before"}
    if before:
        # a path along the ranks grows or shrinks steadily over equal ones, so that one of their ends has the longest
        found = []
        for rank, place, earlier, later in over.between():
            beside = {name: over.total([(alone(own, inner), count) for own, count in earlier]) for name, inner in before.items()}
            beside |= {name: over.total([(alone(own, inner), count) for own, count in later]) for name, inner in after.items()}
            found.append((rank, of(rank, body, {"i": place, **beside})))
        return over.largest(found)
    if after:
        # of consecutive equal ranks any one waits as long, and the last is the first to count when micro-batches are few
        found = []
        for rank, last, later in over.waiting(pairs):
            behind = {name: over.total([(alone(own, inner), count) for own, count in later]) for name, inner in after.items()}
            found.append((rank, of(rank, body, {"i": last, **behind})))
        return over.largest(found)
    if by.symbols() & set(over.placed):
        ranks = over.places()
    else:
        ranks = over.heaviest() if by in rising and not pairs else [rank for rank, _ in over.ranks(pairs)]
    if call.function == "stages_max":
        return over.largest([(rank, of(rank, body, {})) for rank in ranks])
    assert call.function == "stages_at", call.function
    return over.chosen([(rank, of(rank, body, {}), of(rank, by, {})) for rank in ranks])


@dataclass(frozen=True)
class OverLine:
    """The stages of one pipeline, by index, and values of whatever kind `at` gives: numbers, or expressions."""

    line: Stages
    at: Callable[[int, Expr, Mapping[str, Any]], Any]
    placed: Collection[str]
    most: Callable[[Sequence[Any]], Any]
    first_of_most: Callable[[Sequence[tuple[Any, Any]]], Any]

    def ranks(self, pairs: bool) -> Sequence[tuple[Rank, Any]]:
        return tuple(counted(self.line.pairs if pairs else self.line.alone).items())

    def heaviest(self) -> Sequence[Rank]:
        return self.line.heaviest

    def places(self) -> Sequence[Rank]:
        return [(place,) for place in self.line.places]

    def waiting(self, pairs: bool) -> Sequence[tuple[Rank, Any, Sequence[tuple[Rank, Any]]]]:
        found: list[tuple[Rank, Any, Sequence[tuple[Rank, Any]]]] = []
        left: dict[Rank, Any] = {}
        for rank, first, last in reversed(self.line.pairs if pairs else self.line.alone):
            found.insert(0, (rank, last, tuple(left.items())))
            left = {rank: left.pop(rank, 0) + last - first + 1, **left}
        return found

    def between(self) -> Sequence[tuple[Rank, Any, Sequence[tuple[Rank, Any]], Sequence[tuple[Rank, Any]]]]:
        found: list[tuple[Rank, Any, Sequence[tuple[Rank, Any]], Sequence[tuple[Rank, Any]]]] = []
        runs = self.line.alone
        for at, (rank, first, last) in enumerate(runs):
            earlier, later, others = counted(runs[:at]), counted(runs[at + 1 :]), last - first
            if others != 0:
                found.append((rank, first, tuple(earlier.items()), tuple({**later, rank: later.get(rank, 0) + others}.items())))
                earlier = {**earlier, rank: earlier.get(rank, 0) + others}
            found.append((rank, last, tuple(earlier.items()), tuple(later.items())))
        return found

    def total(self, parts: Sequence[tuple[Any, Any]]) -> Any:
        # a sum from zero on would begin with an addition
        found = [value * count for value, count in parts]
        return sum(found[1:], found[0]) if found else 0

    def mean(self, values: Sequence[Any]) -> Any:
        return values[0] if values[0] == values[-1] else sum(values[1:], values[0]) / len(values)

    def largest(self, values: Sequence[tuple[Rank, Any]]) -> Any:
        return self.most([value for _, value in values])

    def chosen(self, values: Sequence[tuple[Rank, Any, Any]]) -> Any:
        return self.first_of_most([(value, key) for _, value, key in values])


def first_of_largest(pairs: Sequence[tuple[Number, Number]]) -> Number:
    """Of (value, key) pairs the value of the first largest key."""
    return max(pairs, key=lambda pair: pair[1])[0]


def evaluated(expression: Expr, stages: Sequence[Mapping[str, Number]], values: Mapping[str, Number]) -> Number:
    """The number of an expression with reductions over these stages, each with numbers of its own, at these sizes."""
    line = Line((), tuple(Run((k,), k, k) for k in range(len(stages))), {(k,): (k,) for k in range(len(stages))})
    plain, nodes = named(expression)

    def at(stage: int, body: Expr, given: Mapping[str, Any]) -> Number:
        return body.evaluate({**values, **stages[stage], **given})

    own = {name: reduced(call, OverLine(line, at, (), max, first_of_largest)) for name, call in nodes.items()}
    return plain.evaluate({**values, **own})
