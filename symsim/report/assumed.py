"""The chapter on assumptions: those that a number of the report rests on, with what their alternatives move, and the rest by name."""

from __future__ import annotations

from symsim.evaluation.numbers import Evaluation
from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.inputs.effects import Effect, said_in_brief, stored
from symsim.report.document import Code, Column, Paragraph, Row, Section, Spans, Table, joined, spans
from symsim.report.ink import Ink

_MATTER = 4  # of a short report
_MOVED = ("step", "peak")  # by which an alternative matters
_COLUMNS = (Column("assumption", 10), Column("in force", 6), Column("meaning", 23), Column("by", 2.6), Column("an alternative moves", 16))
_BRIEF = (Column("assumption", 9), Column("in force", 5), Column("meaning", 28), Column("an alternative moves", 14))

# assumptions that nothing but seconds and memory rests on, which a report without a system does not show
OF_A_SYSTEM = frozenset(
    (
        "kernel_time network tp_async_backward gradient_scaling deterministic_attention stragglers row_balance host_launch "
        "fsdp_unit fsdp_prefetch mfu_flops mfu_windows moe_grouped_gemm fsdp_rings "
        "moe_exchange step_barrier te_dummy_wgrad library_workspace device_context memory optimizer_implementation fsdp_parameters"
    ).split()
)


def in_force(result: Evaluation) -> dict[str, str]:
    """Assumptions that something shown may rest on."""
    return {n: v for n, v in result.assumptions.items() if result.system is not None or n not in OF_A_SYSTEM or v != ASSUMPTIONS[n].default}


def section(result: Evaluation, ink: Ink, short: bool = False) -> Section:
    """Those that a definition names, the user changed, or whose alternative moves a known model: in a table; the others by name.

    short: of the table what is not at its default, and the alternatives that move a step or a peak the most.
    """
    listed, effects = in_force(result), stored()
    named = {a for d in result.derivation.definitions.values() for a in d.assumptions}
    changed = {a for a, v in result.assumptions.items() if v != ASSUMPTIONS[a].default}
    alternatives = {n: [e for e in effects.effects if e.assumption == n] for n in listed}
    shown = [n for n in listed if n in named | changed or any(map(_size, alternatives[n]))]
    if short:
        most = sorted((n for n in shown if n in named), key=lambda n: -max(map(_size, alternatives[n]), default=0.0))[:_MATTER]
        shown = [n for n in shown if n in changed or n in most]
    said = spans(
        "What follows neither from the einsums nor from the placement is assumed. ",
        Code("--set assume.NAME=VALUE"),
        " overrides an assumption. What an alternative moves is its change over the default's number, the least and the most of ",
        f"{', '.join(effects.cases)} on {effects.system}, each under one strategy (docs/assumptions.md).",
    )
    rows = [_row(result, ink, n, alternatives[n], short) for n in shown]
    columns = _BRIEF if short else _COLUMNS
    caption = "Assumptions whose alternatives move most." if short else "Assumptions that a number above rests on."
    others = [n for n in listed if n not in shown]
    table = Table(spans(caption), columns, tuple(rows))
    return Section("Assumptions", (Paragraph(said), *([table] if rows else []), *([Paragraph(_also(result, others, short))] if others else [])))


def _row(result: Evaluation, ink: Ink, name: str, alternatives: list[Effect], short: bool) -> Row:
    known = ASSUMPTIONS[name]
    source = [] if short else [ink.sources.cited(known.source) if known.source else ""]
    if short:
        moved = "; ".join(said_in_brief(e, _MOVED) for e in alternatives if _size(e))
    else:
        moved = "; ".join(said_in_brief(e) for e in alternatives if e.moves or e.refused)
    return Row((Code(name), _chosen(result, name), known.meaning, *source, moved or "none of the three"))


def _size(effect: Effect) -> float:
    """The largest share by which an alternative moves a step or a peak."""
    return max((abs(m[q]) for m in effect.moves.values() for q in _MOVED if q in m), default=0.0)


def _also(result: Evaluation, names: list[str], short: bool) -> Spans:
    """The rest by name, or how many they are; what they mean is a question away."""
    if short:
        return spans(f"{len(names)} more are in force: the whole report and ", Code("symsim eval"), " name them.")
    values = joined([spans(Code(f"{n}={_chosen(result, n)}")) for n in names])
    return spans("Also in force: ", *values, "; ", Code("symsim show assumption NAME"), " says what each is.")


def _chosen(result: Evaluation, name: str) -> str:
    chosen, default = result.assumptions[name], ASSUMPTIONS[name].default
    return chosen if chosen == default else f"{chosen} (default {default})"
