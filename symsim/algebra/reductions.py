"""Reductions over the stages of a pipeline: nodes of a formula, evaluated, expanded and lowered by one rule.

    stages_sum(x)      x of every stage, added up
    stages_max(x)      the largest x of a stage
    stages_at(x, by)   x of the stage whose `by` is the largest, the first of equal ones
    stages_after(x)    inside stages_max: x of the stages after this one, added up
    stages_pair(x)     inside another: the mean of x of this stage and of its mirror image, which one rank holds; the other
                       reduction then goes over such ranks

x is an expression over a stage's symbols and definitions. Stages that hold the same have the same x, so that a reduction goes
over the few classes of equal stages with their numbers: a pipeline of any depth costs the same. What depends on the place in the
pipeline itself (`i`: what is in flight) is taken at the places that no other of the class exceeds (`Line.fullest`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from symsim.algebra.expr import Call, Expr, Number, expr, maximum, minimum, of_largest, symbol
from symsim.algebra.quantity import Definition

FUNCTIONS = ("stages_sum", "stages_max", "stages_at", "stages_after", "stages_pair")
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


def stages_pair(x: "Expr | Number") -> Expr:
    """x of a rank that holds stage i and its mirror image pp - 1 - i, of which half of the micro-batches pass each: their mean."""
    return _node("stages_pair", x)


def longest_wait(times: Expr) -> Expr:
    """How long 1F1B's last micro-batches keep a rank i busy, at most: those of its own that are left while the last pp - 1 - i
    drain, and one on each rank after it (with fewer micro-batches than ranks, the last m of these count)."""
    left = symbol("m") - symbol("pp") + symbol("i")
    return stages_max(minimum(1, maximum(0, left + 1)) * (left * times + stages_after(times)))


def _node(function: str, *arguments: "Expr | Number") -> Expr:
    return Expr({((Call(function, tuple(map(expr, arguments))), 1),): 1})


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


Ranks = tuple[tuple[tuple[int, ...], int, int], ...]
"""Consecutive ranks with the same seconds: the stages of one (each the first of its class), the first and the last rank."""


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
        held = [self.first[run.holdings] for run in self.runs for _ in range(run.first, run.last + 1)]
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


def counted(ranks: Ranks) -> dict[tuple[int, ...], int]:
    """Ranks by the stages that they hold, in order of the first, and how many they are."""
    found: dict[tuple[int, ...], int] = {}
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
    """The expression with its reductions replaced by symbols, and by their names the reductions."""
    found = {atom.key[1]: atom for monomial in expression.terms for atom, _ in monomial if isinstance(atom, Call) and atom.function in FUNCTIONS}
    if not found:
        return expression, {}
    total = Expr({})
    for monomial, coefficient in expression.terms.items():
        term = expr(coefficient)
        for atom, power in monomial:
            whole = symbol(atom.key[1]) if isinstance(atom, Call) and atom.function in FUNCTIONS else Expr({((atom, 1),): 1})
            term = term * whole**power
        total = total + term
    return total, found


def reduced(
    call: Call,
    line: Line,
    at: Callable[[int, Expr, Mapping[str, Any]], Any],
    placed: Collection[str],
    largest: Callable[[Sequence[Any]], Any],
    chosen: Callable[[Sequence[tuple[Any, Any]]], Any],
    *,
    outweighed: bool = False,
) -> Any:
    """The value of a reduction, of whatever kind `at` gives: numbers, or expressions.

    at: an expression over a stage's definitions at a stage, where some symbols are given. placed: names of a stage that depend on
    its place. largest: of several. chosen: of (value, key) pairs the value of the first largest key.
    """

    def of(stages: tuple[int, ...], body: Expr, given: Mapping[str, Any] | None = None) -> Any:
        inner, nodes = named(body)
        own = dict(given or {})
        for name, pair in nodes.items():
            if name not in own:
                values = [at(stage, pair.arguments[0], own) for stage in stages]
                own[name] = values[0] if values[0] == values[-1] else sum(values[1:], values[0]) / len(values)
        return at(stages[0], inner, own)

    body, runs = call.arguments[0], line.pairs if paired(call) else line.alone
    ranks = line.heaviest if outweighed and not paired(call) else tuple(counted(runs))
    if call.function == "stages_sum":
        return _total(of(stages, body) * count for stages, count in counted(runs).items())
    if call.function == "stages_at":
        return chosen([(of(stages, body), of(stages, call.arguments[1])) for stages in ranks])
    assert call.function == "stages_max", call.function
    after = {name: node for name, node in named(body)[1].items() if node.function == "stages_after"}
    if after:
        # of consecutive equal ranks any one waits as long, and the last is the first to count when micro-batches are few
        found: list[Any] = []
        left: dict[tuple[int, ...], int] = {}
        for stages, first, last in reversed(runs):
            behind = {name: _total(of(own, node.arguments[0]) * count for own, count in left.items()) for name, node in after.items()}
            found.insert(0, of(stages, body, {"i": last, **behind}))
            left = {stages: left.pop(stages, 0) + last - first + 1, **left}
        return largest(found)
    if body.symbols() & set(placed):
        return largest([at(place, body, {}) for place in line.places])
    return largest([of(stages, body) for stages in ranks])


def first_of_largest(pairs: Sequence[tuple[Number, Number]]) -> Number:
    """Of (value, key) pairs the value of the first largest key."""
    return max(pairs, key=lambda pair: pair[1])[0]


def evaluated(expression: Expr, stages: Sequence[Mapping[str, Number]], values: Mapping[str, Number]) -> Number:
    """The number of an expression with reductions over these stages, each with numbers of its own, at these sizes."""
    line = Line((), tuple(Run((k,), k, k) for k in range(len(stages))), {(k,): (k,) for k in range(len(stages))})
    plain, nodes = named(expression)

    def at(stage: int, body: Expr, given: Mapping[str, Any]) -> Number:
        return body.evaluate({**values, **stages[stage], **given})

    own = {name: reduced(call, line, at, (), max, first_of_largest) for name, call in nodes.items()}
    return plain.evaluate({**values, **own})


def written_out(definitions: Sequence[Definition], line: Line) -> tuple[Definition, ...]:
    """Definitions with their reductions over the classes of equal stages: those of a stage stand once for the first stage of each
    class, or for every place that counts, as NAME_at_STAGE; what comes out a number is put in."""
    of_stage = {d.symbol: d for d in definitions if d.group == "stages"}
    placed = {"i"}
    for d in of_stage.values():
        if d.expr.symbols() & placed:
            placed.add(d.symbol)
    held = {k: run.holdings for run in line.runs for k in range(run.first, run.last + 1)}
    made: dict[str, Definition] = {}
    known: dict[tuple[str, int], Expr] = {}

    def instance(name: str, stage: int) -> Expr:
        if name == "i":
            return expr(stage)
        if name in line.names:
            return expr(held[stage][line.names.index(name)])
        if name not in of_stage:
            return symbol(name)
        stage = stage if name in placed else line.first[held[stage]]
        if (name, stage) not in known:
            own = of_stage[name]
            body = own.expr.substitute({s: instance(s, stage) for s in own.expr.symbols()})
            title = f"{name}_at_{stage}"
            if not body.is_constant:
                meaning = own.meaning.replace("stage i", f"stage {stage}")
                made[title] = replace(own, symbol=title, expr=body, meaning=meaning, latex=own.latex.replace("(i)", f"({stage})"))
            known[name, stage] = body if body.is_constant else symbol(title)
        return known[name, stage]

    def at(stage: int, body: Expr, given: Mapping[str, Any]) -> Expr:
        return body.substitute({**{s: instance(s, stage) for s in body.symbols() if s not in given}, **given})

    for definition in definitions:
        if definition.group == "stages":
            continue
        body, nodes = named(definition.expr)
        if nodes:
            parts = {name: reduced(call, line, at, placed, lambda values: maximum(*values), of_largest) for name, call in nodes.items()}
            definition = replace(definition, expr=body.substitute(parts))
        made[definition.symbol] = definition
    return tuple(made.values())


def _total(parts: Iterable[Any]) -> Any:
    """A sum in this order, which a sum from zero on would begin with an addition."""
    found = list(parts)
    return sum(found[1:], found[0]) if found else 0
