"""The chapter on the run: what it takes and costs, the definitions that say so, and the numbers it stands on."""

from __future__ import annotations

from dataclasses import replace

from symsim.algebra.quantity import BYTE, SECOND, Definition
from symsim.algebra.vocabulary import SYMBOLS
from symsim.cost.run import OF_NORMAL, PART
from symsim.evaluation.run import Run
from symsim.inputs.run import in_use
from symsim.report.amounts import human, percent, plain
from symsim.report.document import Code, Column, Equation, Equations, Paragraph, Row, Section, Table, spans
from symsim.report.ink import Ink, in_units
from symsim.report.text_run import amount, duration, said

_PARTS = {"steps": "steps that count", "evaluation": "evaluation", "checkpoints": "waiting for checkpoints", "failures": "failures"}


def section(run: Run, ink: Ink) -> Section:
    known = run.numbers
    rows = [
        ("tokens", amount(known["tokens"])),
        ("steps", f"{known['steps']:,.0f}"),
        ("takes", duration(known["wall"])),
        ("hours of accelerators", amount(known["hours"])),
        *[(name, f"{amount(known[key] / size)} {unit}") for key, name, unit, size in _AMOUNTS if key in known],
        ("goodput", percent(known["goodput"])),
    ]
    answers = Table(spans("The run."), (Column("result", 24), Column("value", 24)), tuple(Row(row) for row in rows))
    shares = tuple(Row((_PARTS[name], duration(n), percent(n / known["wall"]))) for name, n in run.parts.items() if n)
    where = Table(spans("Where its time goes."), (Column("part", 26), Column("time", 12, True), Column("share", 7, True)), shares)
    columns = (Column("number", 9), Column("symbol", 6), Column("value", 10, True), Column("meaning", 34), Column("source", 6))
    numbers = tuple(
        Row((Code(n), ink.symbol(n), said(run.at, n), SYMBOLS[n].meaning, "given" if n in run.at.overrides else ink.sources.cited(row.source)))
        for n, row in in_use(run.at.overrides)
    )
    told = "Steps, and besides them evaluations, checkpoints and failures. A time is in seconds, energy in MWh, carbon in kg."
    assumed = Table(spans("What the run stands on besides its step; ", Code("--set NAME=VALUE"), " overrides each."), columns, numbers)
    return Section("The run", (Paragraph(spans(told)), answers, where, Equations(_equations(run, ink)), _sources(run, ink), assumed))


_AMOUNTS = (("cost", "cost", "USD", 1), ("energy", "energy", "MWh", 1), ("carbon", "carbon dioxide", "t", 1000))


def _equations(run: Run, ink: Ink) -> tuple[Equation, ...]:
    made: list[Equation] = []
    for d in run.at.derivation.of(scope="step", part=PART):
        if d.key.quantity in OF_NORMAL:
            # twenty chords, which say nothing to a reader: the table below has what they are of
            ink.note(d.expr)
            made.append(Equation(ink.symbol(d.symbol).latex, (plain(run.at.step_numbers[d.symbol]),), d.symbol))
            continue
        whole, *parts = ink.spelled(d.symbol, d.expr)
        made += [replace(whole, lines=(*whole.lines[:-1], f"{whole.lines[-1]} = {_value(run, d)}")), *parts]
    return tuple(made)


def _value(run: Run, definition: Definition) -> str:
    value = run.at.step_numbers[definition.symbol]
    if definition.unit == BYTE or definition.unit == SECOND and value < 1000:
        return in_units(human(round(value) if definition.unit == BYTE else value, definition.unit))
    return in_units(plain(value) + (" s" if definition.unit == SECOND else ""))


def _sources(run: Run, ink: Ink) -> Table:
    defined = run.at.derivation.of(scope="step", part=PART)
    rows = tuple(Row((ink.symbol(d.symbol), d.meaning, ink.sources.cited(d.source) if d.source else "")) for d in defined)
    return Table(spans("What is defined above."), (Column("symbol", 8, names=True), Column("is", 44), Column("source", 6)), rows)
