"""By how much a step's time changes with each number of the system: exact derivatives of its definitions, all in one pass.

The definitions are evaluated already; their derivatives go backwards over them, from the step to the stages that its reductions choose or add
up, and on to blocks and messages. Definitions that the step does not stand on, or that do not change it there, are not looked at.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symsim.algebra.expr import Expr, Number, symbol
from symsim.algebra.partials import partials
from symsim.algebra.quantity import Definition
from symsim.algebra.reductions import OverLine, named, reduced
from symsim.evaluation.numbers import Evaluation

Parts = dict[tuple[int, Expr], float]
"""How much a value changes with expressions over a stage's definitions, by stage and expression."""


@dataclass(frozen=True)
class _Traced:
    """A number, and what it is made of: expressions at stages, with their weights."""

    value: Number
    parts: Parts

    def __add__(self, other: "_Traced") -> "_Traced":
        parts = dict(self.parts)
        for key, weight in other.parts.items():
            parts[key] = parts.get(key, 0.0) + weight
        return _Traced(self.value + other.value, parts)

    def __mul__(self, count: Number) -> "_Traced":
        return _Traced(self.value * count, {key: weight * float(count) for key, weight in self.parts.items()})

    def __truediv__(self, count: int) -> "_Traced":
        return self * (1 / count)

    def __eq__(self, other: object) -> bool:
        return self is other


def slopes(at: Evaluation, name: str) -> dict[str, float]:
    """The derivatives of a definition of the whole step by every free symbol, by name; those of zero are left out."""
    weights: dict[str, float] = {name: 1.0}
    stages: dict[int, dict[str, float]] = {}
    of_step, others = _by_scope(at)
    for definition in reversed(of_step):
        weight = weights.pop(definition.symbol, 0.0)
        if weight:
            _of_step(at, definition, weight, weights, stages)
    for stage, own in stages.items():
        _of_stage(at, stage, own)
        for free, weight in own.items():
            weights[free] = weights.get(free, 0.0) + weight
    for definition in reversed(others):
        weight = weights.pop(definition.symbol, 0.0)
        if weight:
            _spread(weights, partials(definition.expr, at.numbers), weight)
    return {free: weight for free, weight in weights.items() if weight}


def elasticities(at: Evaluation, name: str = "t_step") -> dict[str, float]:
    """Percent by which a definition of the whole step changes for a percent more of each free symbol (`slopes` over its value)."""
    value = float(at.step_numbers[name])
    return {free: slope * float(at.values[free]) / value for free, slope in slopes(at, name).items() if free in at.values}


def _by_scope(at: Evaluation) -> tuple[list[Definition], list[Definition]]:
    every = at.derivation.definitions.values()
    return [d for d in every if d.key.scope == "step"], [d for d in every if d.key.scope not in ("step", "stage")]


def _spread(into: dict[str, float], found: Mapping[str, float], weight: float) -> None:
    for free, slope in found.items():
        into[free] = into.get(free, 0.0) + weight * slope


def _of_step(at: Evaluation, definition: Definition, weight: float, weights: dict[str, float], stages: dict[int, dict[str, float]]) -> None:
    """A definition's weight, handed on to what it stands on: symbols, and expressions of stages."""
    plain, nodes = named(definition.expr)
    traced = {key: _reduced(at, call) for key, call in nodes.items()}
    known = ChainMap({key: t.value for key, t in traced.items()}, at.step_numbers)
    found = partials(plain, known)
    for key, t in traced.items():
        slope = weight * found.pop(key, 0.0)
        for (stage, body), part in t.parts.items() if slope else ():
            own = stages.setdefault(stage, {})
            _spread(own, partials(body, at.stage_numbers(at.stages[stage])), slope * part)
    _spread(weights, found, weight)


def _of_stage(at: Evaluation, stage: int, own: dict[str, float]) -> None:
    """What a stage's definitions weigh, handed on to what they stand on, in place."""
    numbers = at.stage_numbers(at.stages[stage])
    for definitions in reversed(at.stage_definitions):
        for definition in reversed(definitions):
            weight = own.pop(definition.symbol, 0.0)
            if weight:
                _spread(own, partials(definition.expr, numbers), weight)


def _reduced(at: Evaluation, call: Any) -> _Traced:
    """A reduction over stages, with what it is made of."""

    def of(stage: int, body: Expr, given: Mapping[str, Any]) -> _Traced:
        numbers = at.stage_numbers(at.stages[stage])
        inner = {name: made for name, made in given.items() if isinstance(made, _Traced)}
        if not inner and not given:
            return _Traced(body.evaluate(numbers), {(stage, body): 1.0})
        known = ChainMap({name: made.value if isinstance(made, _Traced) else made for name, made in given.items()}, *numbers.maps)
        found = partials(body, known)
        total = _Traced(body.evaluate(known), {})
        for name, made in inner.items():
            total = _Traced(total.value, (total + made * found.pop(name, 0.0)).parts)
        # what is left of the body changes as its own symbols do
        own = {(stage, symbol(name)): slope for name, slope in found.items() if name not in given}
        return _Traced(total.value, (total + _Traced(0, own)).parts)

    def most(values: Any) -> Any:
        return max(values, key=lambda t: t.value)

    def first_of_most(pairs: Any) -> Any:
        return max(pairs, key=lambda pair: pair[1].value)[0]

    made: _Traced = reduced(call, OverLine(at.line, of, at.placed_names, most, first_of_most))
    return made
