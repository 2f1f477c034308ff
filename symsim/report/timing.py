"""The chapter on the step: its formula, its parts, what follows from it, and how far it may be off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from symsim.algebra.expr import Expr
from symsim.algebra.quantity import BYTE, SECOND, Definition
from symsim.cost.run import PART as RUN
from symsim.evaluation.interval import moves
from symsim.inputs.spreads import KINDS, OF_STEP, stored
from symsim.report.amounts import THIN, percent, plain, seconds
from symsim.report.document import Code, Column, Equation, Equations, Math, Paragraph, Part, Ref, Row, Section, Span, Spans, Table, spans
from symsim.report.ink import Ink
from symsim.report.step import ROUNDING, Step

_LEAST_MOVE = 5e-4
PIPELINE = ("t_pipeline", "t_bubble", "exposed_pp")
# of a short report: what the others are made of stands in the notation
_SHORT = ("t_step", "t_slow", "t_tail", "t_optimizer", "tokens_per_second", "mfu", "hfu")


def sections(step: Step, ink: Ink) -> list[Section]:
    opening = section(step, ink)
    return [opening, *_uncertainty(step)]


def section(step: Step, ink: Ink, short: bool = False) -> Section:
    """short: without the parts, which the first page draws, the sums and maxima over stages, and what is left of each message."""
    said: list[Span] = ["A step is the pipeline", Ref("The pipeline", ", section {},"), " and what follows it on the stage with the longest tail"]
    said += [Ref("A stage", ", section {}"), "."]
    parts: list[Part] = [Paragraph(spans(*said)), Equations(tuple(_of(step, ink, "t_step"))), *([] if short else [_parts(step)])]
    book = step.result.derivation.definitions
    of_step = [d.symbol for d in book.values() if d.key.scope == "step" and d.key.part != RUN and d.unit != BYTE and d.symbol not in PIPELINE]
    chosen = [n for n in of_step if n != "t_step" and (not short or n in _SHORT)]
    nothing = [n for n in chosen if n in step.never]
    equations = tuple(e for n in chosen if n not in nothing for e in _of(step, ink, n, short))
    equations += tuple(ink.zeros(nothing)) if not short else ()
    return Section("The step", (*parts, _over_stages(step, ink, equations, short), Equations(equations)))


def _of(step: Step, ink: Ink, name: str, short: bool = False) -> list[Equation]:
    definition, value = step.result.derivation.definitions[name], float(step.result.step_numbers[name])
    expression = definition.expr.substitute(step.nothing) if short else definition.expr
    # sums that cancel leave a rest of rounding
    value = value if abs(value) > ROUNDING * step.number("t_step") else 0.0
    return (
        ink.spelled(name, expression, value, SECOND, known=step.result.step_numbers)
        if definition.unit == SECOND
        else [_ratio(ink, definition, expression, value)]
    )


def _parts(step: Step) -> Table:
    rows = [Row((p.name, seconds(p.seconds), percent(p.share))) for p in step.parts if p.seconds]
    rows.append(Row(("one step", seconds(step.number("t_step")), percent(1.0)), "total"))
    columns = (Column("part", 26), Column("time", 8, True), Column("share", 7, True))
    return Table(spans("Parts of a step."), columns, tuple(rows), key="parts")


def _over_stages(step: Step, ink: Ink, equations: Sequence[Equation], short: bool) -> Paragraph:
    """What the notation of these equations means."""
    written = " ".join(line for e in equations for line in e.lines)
    said: list[Span] = ["Sums and maxima go over the ranks ", Math("i"), ". "]
    if r"\big|" in written:
        said.append("What stands behind a bar says of which rank a value is: of the one where the quantity named there is the largest. ")
    if r"\overline" in written:
        said.append(_MIRRORED)
    if any(e.key == "t_place" for e in equations):
        said += ["The ranks wait for the one that makes them wait longest, ", Math(r"t^{(i)}_{\mathrm{wait}}"), ": its own ", Math("m - 1")]
        said.append(" micro-batches, and its idle time before its first backward and after its last forward. ")
    if longer := step.result.derivation.of(scope="sizes", longest=True):
        said.append("A tilde marks the same of the longest rows")
        for n, d in enumerate(longer):
            said += [" and " if n else ": in the time of every kernel, ", ink.symbol(d.symbol), " stands for ", ink.symbol(d.key.quantity)]
        said.append(". ")
    if _TRILLION in written:
        said += ["Cost and energy are those of ", Math(_TRILLION), " tokens. "]
    return Paragraph(spans(*said, _LEFT_OUT if short else ""))


def _uncertainty(step: Step) -> list[Section]:
    """By kind of numbers how far they may be off, what the step changes by, and the share of its interval."""
    found = step.interval
    if found is None:
        return []
    spreads, made = stored(), moves(step.result, known=step.elasticities)
    rows, told = [], set[str]()
    for (kind, tag), move in sorted(made.items(), key=lambda item: -found.shares.get(item[0][0], 0.0)):
        if abs(move) > _LEAST_MOVE:
            known = "" if kind in OF_STEP else tag
            share = percent(found.shares.get(kind, 0.0)) if kind not in told else ""
            rows.append(Row((KINDS[kind], known, percent(spreads.of(kind, tag)), f"{move:.3f}".replace("-", "\u2212"), share)))
            told.add(kind)
    for kind in ("machine", "run"):
        rows.append(Row((KINDS[kind], "", percent(spreads.of(kind, "estimated")), "1", percent(found.shares[kind]))))
    columns = (Column("numbers", 22), Column("known as", 8), Column("spread", 7, True), Column("moves", 6, True), Column("of the variance", 8, True))
    said = (
        f"In {percent(found.level)} of cases a step takes between {seconds(found.low)} and {seconds(found.high)}. A kind of numbers is off by its "
        "spread, all of the kind together, kinds apart; a step moves by the elasticity of its formula (moves). Spreads are "
        f"estimated from {spreads.source}. What was measured of a machine is known better than what was estimated or borrowed."
    )
    return [Section("How far it may be off", (Paragraph(_coded(said)), Table(spans("Kinds of numbers."), columns, tuple(rows))), 2)]


def _coded(text: str) -> Spans:
    """Text with what stands between backticks as code."""
    return spans(*(Code(part) if n % 2 else part for n, part in enumerate(text.split("`"))))


_MIRRORED = "A line above is the mean over a stage and its mirror image, which one rank holds and half of the micro-batches pass each. "
_LEFT_OUT = "Here and below, what is nothing at these sizes is left out of a formula."
_TRILLION = "10^{12}"
_OF_TOKENS = {
    "tokens_per_second": ("r", "tokens/s"),
    "cost_per_trillion_tokens": ("c", "USD"),
    "energy_per_trillion_tokens": ("e", "MWh"),
}
# units of what a trillion tokens take, in those of a rate and seconds
_JOULES = {"USD": 1, "MWh": 3600 * 10**6}


def _ratio(ink: Ink, definition: Definition, expression: Expr, value: float) -> Equation:
    """Of numbers that are no times; what is counted in tokens goes by a short name and with its unit, that of many tokens by a power of ten."""
    name, unit = _OF_TOKENS.get(definition.symbol, ("", ""))
    if name:
        ink.names[definition.symbol] = rf"{name}_{{\mathrm{{tokens}}}}"
    if unit in _JOULES:
        expression = expression * _JOULES[unit] / 10**12
    made = ink.equation(definition.symbol, expression)
    if unit in _JOULES:
        made = replace(made, lines=(rf"{_TRILLION}\,{made.lines[0]}", *made.lines[1:]))
    text = plain(value).replace(THIN, r"\,") + (rf"\,\mathrm{{{unit}}}" if unit else "")
    return replace(made, lines=(*made.lines[:-1], f"{made.lines[-1]} = {text}"), value=f"{plain(value)} {unit}".strip())
