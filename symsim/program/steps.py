"""The steps of an unrolled derivation as one program over inputs, which stand for numbers or arrays that are not known yet."""

from __future__ import annotations

from dataclasses import dataclass

from symsim.program.program import Program
from symsim.program.scope import Scope
from symsim.program.unrolled import Unrolled
from symsim.program.value import Value

# an input stands for as many points as this, so that what depends on fewer inputs is computed first
POINTS = 1 << 20


@dataclass(frozen=True)
class Lowered:
    """inputs: by name. outputs: by name, the value and, where it is what is left of another, that one."""

    inputs: dict[str, Value]
    outputs: dict[str, tuple[Value, ...]]

    @property
    def results(self) -> list[Value]:
        return [value for found in self.outputs.values() for value in found]


def lowered(unrolled: Unrolled, *, kept: bool = False) -> Lowered:
    """The steps as values of a program. kept: every step is a value of its own, by its name, which no sum or product reaches into."""
    program = Program([POINTS] * max(1, len(unrolled.arguments)), small=0)
    inputs = {a.name: program.input(a.name, axis) for axis, a in enumerate(unrolled.arguments)}
    known: dict[str, Value] = dict(inputs)
    for step in unrolled.steps:
        found = Scope(program, known, {}).lower(step.body, step.counts)
        known[step.name] = program.kept(step.name, found) if kept else found
    scope = Scope(program, known, {})
    parts = {o.name: (o.body, *(() if o.left_of is None else (o.left_of,))) for o in unrolled.outputs}
    return Lowered(inputs, {name: tuple(scope.lower(p, exact=True) for p in found) for name, found in parts.items()})
