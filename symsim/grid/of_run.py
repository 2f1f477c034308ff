"""Where points of a grid have a run that its formulas are good for: what `symsim/evaluation/run.py` asks of one configuration, over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from symsim.cost.run import TERMS, of_run
from symsim.evaluation.numbers import Evaluation
from symsim.evaluation.run import LEAST_WORKING, SERIES
from symsim.inputs.run import asks_run
from symsim.program.program import Program
from symsim.program.scope import Scope
from symsim.program.value import Value

# terms of the series beside which those of the formulas are held: to 1e-12 where these are 1 % too little
_MOST = 24


class Reported(Protocol):
    """What is reported of variants (`reported.py`)."""

    @property
    def program(self) -> Program: ...
    @property
    def results(self) -> Sequence[Evaluation]: ...
    @property
    def base(self) -> Scope: ...


def has_run(reported: Reported) -> Value | None:
    """True where a run is one; None where none is asked for."""
    program, given = reported.program, reported.results[0].overrides
    if not asks_run(given):
        return None
    working, again, idle, between, step = (reported.base.value(of_run(name).text) for name in ("working", "again", "idle", "between", "step"))
    found = program.apply("le", program.number(LEAST_WORKING), working)
    beyond = program.number(1)
    for first, failures in ((2, again), (1, program.product(1, [(idle, 1), (between, -1)]))):
        long, short = (_series(program, failures, first, terms) for terms in (_MOST, TERMS[first]))
        beyond = program.product(1, [(beyond, 1), (long, 1), (short, -1)])
    found = program.apply("and", found, program.apply("le", beyond, program.number(1 + SERIES)))
    if "days" in given:
        found = program.apply("and", found, program.apply("le", step, program.product(86400, [(reported.base.value("days"), 1)])))
    return found


def _series(program: Program, x: Value, first: int, terms: int) -> Value:
    """1 + x/first + x^2/(first (first + 1)) + .. of so many terms."""
    found = program.number(1)
    for n in reversed(range(first, first + terms - 1)):
        found = program.total([(program.number(1), 1), (program.product(1 / n, [(x, 1), (found, 1)]), 1)])
    return found
