"""The chapter on a stage: its seconds of one micro-batch, and what follows the pipeline on it."""

from __future__ import annotations

from symsim.algebra.key import Scope
from symsim.algebra.quantity import SECOND, Definition
from symsim.algebra.typeset import width
from symsim.cost.step_time import STAGE_TIMES, UPDATE
from symsim.report import update
from symsim.report.amounts import seconds
from symsim.report.document import Column, Equations, Paragraph, Ref, Row, Section, Table, spans
from symsim.report.ink import Ink
from symsim.report.step import Step, stage_seconds
from symsim.report.totals import ranges


def _timed(step: Step, scope: Scope) -> list[Definition]:
    return [d for d in step.result.derivation.of(scope=scope) if "second" in str(d.unit)]


def section(step: Step, ink: Ink) -> Section:
    """The formula of a stage, the seconds of every stage, and the equations with the values of the slowest."""
    slowest = {**step.result.numbers, **step.stage(step.slowest)}
    defined = [*_timed(step, "pipeline"), *_timed(step, "stage")]
    own = next(d for d in defined if d.symbol == "t_stage")
    nothing = [d.symbol for d in defined if d.symbol in step.never]
    widest = max(width(ink.names[d.symbol]) for d in defined)
    buckets = step.result.derivation.definitions.get("n_bucket")
    equations = ink.spelled("n_bucket", buckets.expr, slowest["n_bucket"], beside=widest) if buckets is not None else []
    for d in defined:
        if d.key == UPDATE:
            equations.append(update.total(step, ink, slowest[d.symbol]))
        elif d.symbol not in step.never and d is not own:
            equations += ink.spelled(d.symbol, d.expr, slowest[d.symbol], SECOND, widest, slowest)
    if nothing:
        equations += ink.zeros(nothing)
    values = f"Values are those of stage {step.slowest}, whose micro-batch takes longest." if step.depth > 1 else "There is one stage."
    said = spans(
        "A micro-batch on a stage is forward, the gradients of inputs and of weights, and what runs again, each the sum over the blocks of the stage",
        Ref("Blocks", " (section {})"),
        f", their kernels and the messages that nothing hides. {values}",
    )
    opening = Equations(tuple(ink.spelled(own.symbol, own.expr, slowest[own.symbol], SECOND)))
    products = (update.table(step, ink, slowest),) if UPDATE in step.result.derivation else ()
    return Section("A stage", (Paragraph(said), opening, _seconds(step, ink), Equations(tuple(equations)), *products))


def _seconds(step: Step, ink: Ink) -> Table:
    found = stage_seconds(step)
    shown = [n for n in STAGE_TIMES if any(f[n] for f in found.values())]
    classes: dict[tuple[str, ...], list[int]] = {}
    for stages, f in found.items():
        classes.setdefault(tuple(seconds(f[k]) for k in shown), []).extend(stages)
    rows = tuple(Row((ranges(sorted(members)), *cells)) for cells, members in classes.items())
    columns = (Column(ink.symbol("i"), 9), *(Column(n.replace("_", " "), 10, True) for n in shown))
    said = "Seconds of one rank of every stage: one micro-batch, and what follows the pipeline (tail)."
    return Table(spans(said), columns, rows, key="stage seconds")
