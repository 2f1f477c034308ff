"""The chapter on assumptions: those that a number of the report rests on, with what their alternatives move, and the rest by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from symsim.evaluation.alternative import alternative
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.assumptions import ASSUMPTIONS, Remembered
from symsim.inputs.effects import QUANTITIES, Effect, said_in_brief, stored
from symsim.inputs.models import load_model
from symsim.report.document import Code, Column, Emphasis, Paragraph, Row, Section, Spans, Table, joined, spans
from symsim.report.ink import Ink

_MATTER, _TRIED = 4, 6  # of a short report, and those of which its own step is asked
_MOVED = ("step", "peak")  # by which an alternative matters
# what an alternative moves stands behind the meaning: beside it, one of the two would leave half of the line empty
_COLUMNS = (Column("assumption", 8.2), Column("in force", 5.6), Column("meaning, and what an alternative moves", 39.4), Column("by", 2.2))
_BRIEF = (Column("assumption", 9), Column("in force", 5.5), Column("meaning", 29), Column("an alternative moves", 12))

# assumptions that nothing but seconds and memory rests on, which a report without a system does not show
OF_A_SYSTEM = frozenset(
    (
        "kernel_time network tp_async_backward gradient_scaling deterministic_attention stragglers row_balance host_launch "
        "fsdp_unit fsdp_prefetch mfu_flops mfu_windows moe_grouped_gemm unit_ranks fsdp_rings "
        "moe_exchange step_barrier te_dummy_wgrad library_workspace device_context memory optimizer_implementation fsdp_parameters "
        "checkpoint_unpacking"
    ).split()
)


def in_force(result: Evaluation) -> dict[str, str]:
    """Assumptions that something shown may rest on."""
    return {n: v for n, v in result.assumptions.items() if result.system is not None or n not in OF_A_SYSTEM or v != ASSUMPTIONS[n].default}


def section(result: Evaluation, ink: Ink, short: bool = False) -> Section:
    """Those that a definition names, the user changed, or that were read and whose alternative moves a known model: in a table; the others by name.

    short: of the table what is not at its default, and the alternatives that move this step or its peak the most.
    """
    # before the report itself asks for their values
    read = result.assumptions.read.copy() if isinstance(result.assumptions, Remembered) else set(ASSUMPTIONS)
    listed, effects = in_force(result), stored()
    named = {a for d in result.derivation.definitions.values() for a in d.assumptions}
    changed = {a for a, v in result.assumptions.items() if v != ASSUMPTIONS[a].default}
    alternatives = {n: [e for e in effects.effects if e.assumption == n] for n in listed}
    shown = [n for n in listed if n in named | changed or n in read and any(map(_size, alternatives[n]))]
    own = short and result.system is not None
    if short:
        alternatives, most = _of_most(result, {n: alternatives[n] for n in shown if own or n in named}, own)
        shown = [n for n in shown if n in changed or n in most]
    number = "number" if result.system is None else "step and peak (MFU where the step stays, else FLOPs, bytes kept and messages)"
    over = "of this step, and of its peak" if own else f"over the default's {number}, the least and the most of {', '.join(effects.cases)} on "
    over += "" if own else f"{effects.system}, each under one strategy (docs/assumptions.md)"
    said = spans(
        "What follows neither from the einsums nor from the placement is assumed. ",
        Code("--set assume.NAME=VALUE"),
        f" overrides an assumption. What an alternative moves is its change {over}.",
    )
    rows = [_row(result, ink, n, alternatives.get(n, []), short) for n in shown]
    columns = _BRIEF if short else _COLUMNS
    caption = "Assumptions whose alternatives move most." if short else "Assumptions that a number above rests on."
    others = [n for n in listed if n not in shown]
    table = Table(spans(caption), columns, tuple(rows), broken=True)
    return Section("Assumptions", (Paragraph(said), *([table] if rows else []), *([Paragraph(_also(result, others, short))] if others else [])))


def _of_most(result: Evaluation, known: Mapping[str, Sequence[Effect]], own: bool) -> tuple[dict[str, list[Effect]], list[str]]:
    """Effects of the alternatives that move most, and their names. own: those of this step, of as many as known models let expect the most of."""
    found = {n: list(effects) for n, effects in known.items()}
    if own:
        alike = [m for m in stored().cases if (load_model(m).architecture.moe is None) == (result.model.moe is None)]
        expected = {n: max((_size(e, alike) for e in effects), default=0.0) for n, effects in found.items()}
        likely = sorted(found, key=lambda n: -expected[n])[:_TRIED]
        choices = {n: [e.choice for e in found[n] if _size(e)] for n in likely}
        found = {n: [alternative(result, n, c) for c in choices[n] if c != result.assumptions.get(n)] for n in likely}
    sizes = {n: max(map(_size, effects), default=0.0) for n, effects in found.items()}
    return found, sorted((n for n in sizes if sizes[n]), key=lambda n: -sizes[n])[:_MATTER]


def _row(result: Evaluation, ink: Ink, name: str, alternatives: list[Effect], short: bool) -> Row:
    known = ASSUMPTIONS[name]
    if short:
        moved = _together([said_in_brief(e, _MOVED) for e in alternatives if _size(e)])
        return Row((Code(name), Code(_chosen(result, name)), known.meaning, moved.replace(" -", " \u2212")))
    quantities = _shown if result.system is not None else lambda e: QUANTITIES
    moved = "; ".join(said_in_brief(e, quantities(e)) for e in alternatives if e.moves or e.refused).replace(" -", " \u2212")
    said = spans(known.meaning, ". ", Emphasis("Alternatives:"), f" {moved or 'move none of the three'}")
    return Row((Code(name), Code(_chosen(result, name)), said, ink.sources.cited(known.source) if known.source else ""))


def _shown(effect: Effect) -> Sequence[str]:
    """Step and peak, by what these do not say MFU, and of an alternative that moves none of them all that it moves."""
    moved = [q for q in QUANTITIES if any(q in m for m in effect.moves.values())]
    first = [q for q in moved if q in _MOVED] + ["mfu"] * ("mfu" in moved and "step" not in moved)
    return first or moved


def _together(said: Iterable[str]) -> str:
    """'math, eager: step +25 %; peak +200 %': choices that move the same are named together."""
    choices: dict[str, list[str]] = {}
    for line in said:
        choice, _, moves = line.partition(": ")
        choices.setdefault(moves, []).append(choice)
    return "; ".join(f"{', '.join(names)}: {moves}" for moves, names in choices.items())


def _size(effect: Effect, models: Sequence[str] | None = None) -> float:
    """The largest share by which an alternative moves a step or a peak, of these models alone where they are given."""
    moves = [m for model, m in effect.moves.items() if models is None or model in models]
    return max((abs(m[q]) for m in moves for q in _MOVED if q in m), default=0.0)


def _also(result: Evaluation, names: list[str], short: bool) -> Spans:
    """The rest by name, or how many they are; what they mean is a question away."""
    if short:
        return spans(f"{len(names)} more are in force: the whole report and ", Code("symsim eval"), " name them.")
    values = joined([spans(Code(f"{n}={_chosen(result, n)}")) for n in names])
    return spans("Also in force: ", *values, "; ", Code("symsim show assumption NAME"), " says what each is.")


def _chosen(result: Evaluation, name: str) -> str:
    chosen, default = result.assumptions.get(name, ""), ASSUMPTIONS[name].default
    return chosen if chosen == default else f"{chosen} (default {default})"
