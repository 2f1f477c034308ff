"""The interval of a step over a grid: what `symsim/evaluation/interval.py` says of one configuration, lowered in the grid's program.

A kind's move is the difference of the step's logarithm where all numbers of the kind are off by a millionth, over that; formulas are
lowered once more for each kind, and what the kind does not touch is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from symsim.evaluation.interval import remaining
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.spreads import UNMEASURED, Spreads, Standing, standing, stored, uncertain, unmeasured
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System, symbol_values
from symsim.program.program import Program
from symsim.program.value import Value

if TYPE_CHECKING:
    from symsim.grid.symbols import Symbols

LOW, HIGH = "t_step_low", "t_step_high"
_MOVED = 1e-6


class Reported(Protocol):
    """What is reported of variants (`reported.py`)."""

    @property
    def program(self) -> Program: ...
    @property
    def results(self) -> Sequence[Evaluation]: ...
    def quantity(self, name: str) -> Value: ...
    def every(self, read: Callable[[Symbols], Any]) -> Value: ...


def end_of_interval(reported: Reported, name: str, moved: Callable[[Mapping[str, float]], Reported]) -> Value:
    """LOW or HIGH. moved: the same with symbols times these factors."""
    program, step = reported.program, reported.quantity("time.step")
    width = program.apply("mul", program.number(stored().factor), program.apply("sqrt", _variance(reported, step, moved)))
    grown = _exponential(program, width)
    return program.apply("mul" if name == HIGH else "div", step, grown)


def _variance(reported: Reported, step: Value, moved: Callable[[Mapping[str, float]], Reported]) -> Value:
    program, spreads, system = reported.program, stored(), reported.results[0].system
    assert system is not None
    own: dict[str, Value] = {"machine": program.number(spreads.of("machine", "estimated"))}
    for kind, factors in _factors(reported, spreads).items():
        there = moved(factors).quantity("time.step")
        change = program.apply("sub", program.apply("div", there, step), program.number(1))
        own[kind] = program.apply("mul", change, program.number(1 / _MOVED))
    share = program.apply("div", reported.quantity("time.bubble"), step)
    own["bubble"] = program.apply("mul", share, program.number(spreads.of("bubble", "estimated")))
    for kind, there in _unmeasured(reported, step, moved).items():
        own[kind] = program.apply("mul", there, program.number(spreads.of(kind, "estimated")))
    anchored, run = [a.moves for a in system.anchored], spreads.of("run", "estimated")
    terms: list[tuple[Value, float]] = [(program.number(1), run**2)]
    for kind, move in own.items():
        left = remaining({k: float(k == kind) for k in own}, anchored, spreads) if anchored else {kind: 1.0}
        terms += [(program.product(1, [(move, 1), (own[k], 1)]), by) for k, by in left.items() if by and k in own]
    return program.total(terms)


def _unmeasured(reported: Reported, step: Value, moved: Callable[[Mapping[str, float]], Reported]) -> dict[str, Value]:
    """By kind of UNMEASURED, 1 at the points that it widens and 0 at the others: of a system with other numbers than a measured one, those that move
    the step count alone."""
    program, others = reported.program, set[Standing]()
    found = {kind: reported.every(partial(_is_of, kind, others)) for kind in UNMEASURED}
    for other in sorted(others, key=lambda one: one.changed):
        here = reported.every(partial(_is_other, other))
        if other.jumps:
            there = here
        else:
            step_there = moved(dict.fromkeys(other.changed, 1 + _MOVED)).quantity("time.step")
            there = program.apply("mul", here, program.apply("ne", step_there, step))
        of_near = reported.every(_is_source)
        within = program.apply("mul", of_near, program.total([(here, 1), (there, -1)]))
        found["system"] = program.total([(found["system"], 1), (there, 1)])
        found["source"] = program.total([(found["source"], 1), (within, 1)])
    return found


def _is_of(kind: str, others: set[Standing], symbols: Symbols) -> Any:
    """1 where a point is of this kind whatever moves its step; notes what else systems are."""

    def read(system: System, strategy: Strategy) -> float:
        found = Standing() if system.anchored else standing(system, strategy)
        if found.changed:
            others.add(found)
            return 0.0
        return float(unmeasured(symbols.result.model, strategy, system) == kind)

    return symbols.of_systems(read)


def _is_other(other: Standing, symbols: Symbols) -> Any:
    return symbols.of_systems(lambda system, strategy: float(not system.anchored and standing(system, strategy) == other))


def _is_source(symbols: Symbols) -> Any:
    """1 where steps of the measured system that it is near to are of another framework or kind."""
    return symbols.of_systems(lambda system, strategy: float(unmeasured(symbols.result.model, strategy, system, ()) == "source"))


def _factors(reported: Reported, spreads: Spreads) -> dict[str, dict[str, float]]:
    """By kind, what its numbers are multiplied by where all are off by a millionth of their spreads."""
    found: dict[str, dict[str, float]] = {}
    for result in reported.results:
        assert result.system is not None
        for number in uncertain(result.system, dict.fromkeys(symbol_values(result.system, result.strategy), 0.0)):
            if result.values.get(number.symbol):
                found.setdefault(number.kind, {})[number.symbol] = 1 + number.way * _MOVED * spreads.of(number.kind, number.tag)
    return found


def _exponential(program: Program, x: Value) -> Value:
    """e^x for x of 0 to 2, to nine digits: Pade's quotient of a quarter, squared twice."""
    x = program.apply("mul", x, program.number(0.25))
    square = program.apply("mul", x, x)
    even = program.total([(program.number(1), 120), (square, 12)])
    odd = program.total([(x, 60), (program.apply("mul", square, x), 1)])
    root = program.apply("div", program.apply("add", even, odd), program.apply("sub", even, odd))
    root = program.apply("mul", root, root)
    return program.apply("mul", root, root)
