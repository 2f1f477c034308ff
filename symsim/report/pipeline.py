"""The chapter on the schedule: makespan, bubble and micro-batches in flight in closed form, and the pipeline drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from symsim.algebra.active import as_here
from symsim.algebra.expr import Expr
from symsim.algebra.quantity import SECOND
from symsim.pipeline.schedules import schedule_of, schedule_sizes
from symsim.report.amounts import exact, percent, seconds
from symsim.report.document import Code, Column, Equation, Equations, Math, Paragraph, Part, Row, Section, Spans, Table, Timeline, joined, spans
from symsim.report.ink import Ink, worded
from symsim.report.step import Step
from symsim.report.timing import PIPELINE
from symsim.report.totals import contents, left_out, ranges, thinned

_DRAWN = 4000  # operations of a picture, at most
_LINES = 8  # equations of a formula in a short report, before it has those alone that decide here
_EVEN = 5  # stages from which even numbers are a sentence
_MOST_STAGES = 256  # of a pipeline whose order is replayed for a picture


def section(step: Step, ink: Ink, short: bool = False) -> Section:
    """short: without the messages between stages, and the table of what is in flight."""
    result = step.result
    schedule = schedule_of(result.strategy)
    shown = [n for n in PIPELINE if n in result.derivation.definitions and not (short and n == "exposed_pp")]
    decided = {n: step.decided(step.result.derivation.definitions[n].expr) for n in shown}
    (opening, chosen), *others = (_equations(step, ink, name, decided[name][0], short) for name in shown)
    rest = [equations for equations, _ in others]
    after = Equations(tuple(e for equations in rest for e in equations))
    if result.strategy.pp == 1:
        said = "One stage holds the whole model, so the micro-batches run one after the other and no rank waits for another."
        return Section("The pipeline", (Paragraph(spans(said)), Equations(tuple(opening)), after))
    bubble = step.number("t_bubble")
    said = f": {schedule.meaning} "
    often = result.strategy.pipeline_flushes
    waits = f", {often} times a step, each for a part of the micro-batches" if often > 1 else ""
    waits += f". The slowest stage waits {seconds(bubble)}, {percent(bubble / step.number('t_step'))} of the step."
    waits += f" That is an estimate, {schedule.estimate}." if schedule.estimate else ""
    in_flight, facts = step.decided(schedule.in_flight)
    waits += " In place of maxima stands what is the largest here." if chosen or any(one for _, one in others) else ""
    where = _where(ink, dict.fromkeys(f for _, found in (*decided.values(), (in_flight, facts)) for f in found))
    cited = ink.sources.cited(schedule.source)
    parts: list[Part] = [Paragraph(spans(Code(schedule.name), *worded(said), cited, waits, *where)), Equations(tuple(opening))]
    held = ink.spelled(ink.local("in flight", r"n^{(i)}_{\mathrm{fwd}}"), in_flight)
    parts.append(Equations((*after.equations, *held)))
    parts.append(_held(step) if short else _flight(step, ink))
    stages = result.strategy.pp * result.strategy.vpp
    if stages > _MOST_STAGES:
        parts.append(Paragraph(spans(f"A pipeline of {stages:,} stages is not drawn: at most {_MOST_STAGES} are.")))
        return Section("The pipeline", tuple(parts))
    return Section("The pipeline", (*parts, picture(step)))


def _equations(step: Step, ink: Ink, name: str, expression: Expr, short: bool) -> tuple[list[Equation], bool]:
    """The formula, and whether it has in place of maxima what decides here: of a short report where it would have many parts."""
    numbers, chosen = step.result.step_numbers, False
    if short:
        expression = expression.substitute(step.nothing)
        # read by an ink of its own, which leaves no symbols behind
        chosen = len(Ink(step.result).spelled(name, expression, numbers[name], SECOND, known=numbers)) > _LINES
        if chosen:
            expression = as_here(expression, {**schedule_sizes(step.result.strategy), **numbers})
    return ink.spelled(name, expression, numbers[name], SECOND, known=numbers), chosen


def _where(ink: Ink, holding: Iterable[tuple[Expr, Expr]]) -> Spans:
    """Where formulas hold whose minima are decided."""
    said = [spans(Math(rf"{ink.math(a).latex} \ge {ink.math(b).latex}")) for a, b in holding]
    return spans(" Formulas here and below are those of ", *joined(said, " and "), ".") if said else ()


def _held(step: Step) -> Paragraph:
    """What each stage runs, equal stages together."""
    classes: dict[str, list[int]] = {}
    for n in range(step.depth):
        classes.setdefault(contents(step.result, step.stage(n)), []).append(n)
    said = [f"{f'stage {ranges(of)} runs' if len(of) == 1 else f'stages {ranges(of)} run'} {held}" for held, of in classes.items()]
    return Paragraph(spans(f"S{'; '.join(said)[1:]}."))


def in_flight(step: Step, stage: int) -> int:
    """Forwards of one chunk that a rank of the stage holds at most."""
    return int(schedule_of(step.result.strategy).in_flight.evaluate({**schedule_sizes(step.result.strategy), "i": stage}))


def _flight(step: Step, ink: Ink) -> Part:
    """Forwards that every stage holds: in a sentence where they fall or rise evenly from rank to rank, else in a table."""
    chunks = step.result.strategy.vpp
    held = [in_flight(step, n) for n in range(step.depth)]
    apart = held[1] - held[0]
    if len(held) >= _EVEN and apart and all(b - a == apart for a, b in zip(held, held[1:])):
        each = f"{abs(apart)} {'fewer' if apart < 0 else 'more'} on each rank behind it"
        of = f" passes through one of its {chunks} chunks" if chunks > 1 else ""
        said = f"Of forwards whose backward is still to come, rank 0 holds at most {exact(held[0])}{of}, {each}"
        return Paragraph(spans(f"{said}, and rank {len(held) - 1} {exact(held[-1])}."))
    return _flight_table(step, ink, held)


def _flight_table(step: Step, ink: Ink, held: Sequence[int]) -> Table:
    classes: dict[int, list[int]] = {}
    for n, count in enumerate(held):
        classes.setdefault(count, []).append(n)
    counts = {tuple(members): count for count, members in classes.items()}
    shown, every = thinned(list(counts)), list(counts)
    rows = tuple(Row((ranges(list(s)), exact(counts[s]), f"{counts[s] / step.result.strategy.vpp:.4g}")) for s in shown)
    columns = (Column(ink.symbol("i"), 12), Column("chunks' forwards held", 12, True), Column("micro-batches of the stage", 14, True))
    return Table(spans(f"Forwards whose backward is still to come, at most.{left_out(every)}"), columns, rows)


def picture(step: Step) -> Timeline:
    """The schedule at the slowest stage's seconds, in milliseconds; of very many micro-batches as many as can be drawn."""
    strategy = step.result.strategy
    sizes = schedule_sizes(strategy)
    often = strategy.pipeline_flushes
    stages, chunks, group, asked = strategy.pp, strategy.vpp, int(sizes["group"]), strategy.flush_microbatches
    drawn = min(asked, max(4 * max(stages, group), _DRAWN // (stages * chunks) // group * group))
    numbers = step.result.step_numbers
    durations: dict[str, float] = {n: 1e3 * float(numbers[n]) for n in ("tf", "ti", "tw", "tr", "tc", "tfb") if n in numbers}
    taken = ", ".join(
        f"{word} {seconds(float(numbers[n]))}"
        for n, word in (("tf", "forward"), ("ti", "input gradients"), ("tw", "weight gradients"), ("tr", "recomputation"))
        if numbers[n]
    )
    left = f" {drawn} of {exact(asked)} micro-batches are drawn." if drawn < asked else ""
    unequal = len({step.stage(n)["t_stage"] for n in step.result.line.first.values()}) > 1
    equal = "Every stage is drawn with the seconds of the slowest" if unequal else "Seconds of a stage"
    whole = "One step" if often == 1 else f"One of the {often} times that a step fills and empties the pipeline,"
    said = f"{whole} of {schedule_of(strategy).name}. {equal}: {taken}.{left}"
    return Timeline(spans(said), schedule_of(strategy).name, stages, drawn, chunks, durations, group)
