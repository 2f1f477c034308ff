"""Unrolled derivations of one model as one program: options add forms of the steps that read them, and do not multiply steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from symsim.algebra.expr import ZERO, Expr
from symsim.program.program import Program
from symsim.program.scope import Scope
from symsim.program.steps import POINTS
from symsim.program.unrolled import Argument, Output, Unrolled
from symsim.program.value import Value

Places = frozenset[int]
# what a name is, whether it counts something, and in which derivations that is so
Forms = dict[tuple[Expr, bool], set[int]]


@dataclass(frozen=True)
class Together:
    """arguments: those of any derivation. inputs: of the program, by name: the arguments, and what is true of some derivations (`told`). truths: of
    each derivation which of these are. outputs: what all give, each with its value and, where it is what is left of another, that one."""

    arguments: tuple[Argument, ...]
    inputs: Mapping[str, Value]
    told: tuple[str, ...]
    truths: tuple[tuple[bool, ...], ...]
    outputs: tuple[tuple[Output, tuple[Value, ...]], ...]

    @property
    def results(self) -> list[Value]:
        return [value for _, found in self.outputs for value in found]


def together(every: Sequence[Unrolled]) -> Together:
    """Derivations of the same outputs, by their places; an argument's default is that of the first which has it."""
    arguments = {a.name: a for one in reversed(every) for a in one.arguments}
    steps: dict[str, Forms] = {}
    for place, one in enumerate(every):
        for step in one.steps:
            steps.setdefault(step.name, {}).setdefault((step.body, step.counts), set()).add(place)
    parts = [_parts([one.outputs[k] for one in every]) for k in range(len(every[0].outputs))]
    told: dict[Places, str] = {}
    for forms in (*steps.values(), *(forms for own in parts for forms in own)):
        for of in list(forms.values())[1:]:
            told.setdefault(frozenset(of), f"is_{len(told)}")
    names = [*arguments, *told.values()]
    program = Program([POINTS] * max(1, len(names)), small=0)
    inputs = {name: program.input(name, axis) for axis, name in enumerate(names)}
    known = dict(inputs)

    def lowered(forms: Forms, exact: bool = False) -> Value:
        found = [(Scope(program, known, {}).lower(body, exact or counts), of) for (body, counts), of in forms.items()]
        value = found[0][0]
        for other, of in found[1:]:
            value = program.where(inputs[told[frozenset(of)]], other, value)
        return value

    for name in _in_order(steps):
        known[name] = program.kept(name, lowered(steps[name]))
    outputs = tuple((own, tuple(lowered(forms, True) for forms in found)) for own, found in zip(every[0].outputs, parts))
    truths = tuple(tuple(place in of for of in told) for place in range(len(every)))
    return Together(tuple(arguments.values()), inputs, tuple(told.values()), truths, outputs)


def _parts(own: Sequence[Output]) -> tuple[Forms, ...]:
    """The forms of an output in all derivations, and those of what it is left of."""
    found: tuple[Forms, Forms] = ({}, {})
    for place, output in enumerate(own):
        found[0].setdefault((output.body, True), set()).add(place)
        found[1].setdefault((output.left_of or ZERO, True), set()).add(place)
    return found if own[0].left_of is not None else found[:1]


def _in_order(steps: Mapping[str, Forms]) -> list[str]:
    """Names of steps, each after those that any of its forms uses."""
    uses = {name: sorted({s for body, _ in forms for s in body.symbols()} & steps.keys()) for name, forms in steps.items()}
    return list(TopologicalSorter(uses).static_order())
