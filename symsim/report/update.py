"""What an update multiplies: a row for matrices of the same sides, and the sum over the rows."""

from __future__ import annotations

from collections.abc import Mapping

from symsim.algebra.active import as_here
from symsim.algebra.expr import Number
from symsim.cost.orthogonal import Round, round_seconds, update_rounds
from symsim.cost.step_time import UPDATE
from symsim.inputs.optimizers import OPTIMIZERS
from symsim.report.amounts import exact, plain, seconds
from symsim.report.document import Column, Equation, Math, Ref, Row, Spans, Table, spans
from symsim.report.ink import Ink, in_units
from symsim.report.step import Step

_KEY = "update"


def total(step: Step, ink: Ink, value: Number) -> Equation:
    """The sum over the rows of the table, with its value."""
    definition = step.result.derivation[UPDATE]
    ink.defined[definition.symbol] = None
    line = rf"{{\textstyle\sum_n}} c_n t_n = {in_units(seconds(value))}"
    return Equation(ink.names[definition.symbol], (line,), definition.symbol, meaning=definition.meaning, value=seconds(value))


def table(step: Step, ink: Ink, numbers: Mapping[str, Number]) -> Table:
    """Sides of the matrices that a rank of the stage of `numbers` takes whole, how often a step, and seconds of one time."""
    lowered, rows = step.result.lowered, list[tuple[Number, Row]]()
    for one in update_rounds(lowered):
        often, time = one.times.evaluate(numbers), round_seconds(lowered, one).evaluate(numbers)
        shorter, longer = one.sides
        k, n = (exact(side.evaluate(numbers)) for side in one.sides)
        sides = (ink.math(as_here(shorter, numbers)), k, ink.math(as_here(longer, numbers)), n)
        rows += [(often * time, Row((*sides, _count(often), seconds(time), seconds(often * time))))] if often else []
    rows.sort(key=lambda row: -row[0])
    columns = (
        Column("shorter side", 13),
        Column("length", 5, True),
        Column("longer side", 13),
        Column("length", 5, True),
        Column(Math("c_n"), 7, True),
        Column(Math("t_n"), 7, True),
        Column("together", 7, True),
    )
    return Table(_caption(step, update_rounds(lowered)[0]), columns, tuple(row for _, row in rows), key=_KEY)


def _caption(step: Step, one: Round) -> Spans:
    what = "a round" if OPTIMIZERS[step.result.strategy.optimizer].orthogonal else "a projection"
    return spans(
        f"Matrices that the update multiplies on one rank, the longest first: {what} of one takes {len(one.products)} products (closed form",
        Ref("Kernels", " in section {}"),
        "), ",
        Math("t_n"),
        " together, ",
        Math("c_n"),
        " times a step.",
    )


def _count(often: Number) -> str:
    return exact(often) if often == int(often) else plain(float(often))
