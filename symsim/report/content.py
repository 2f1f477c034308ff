"""What a report says, once: the model and strategy, notation, the derivation of every block, totals, assumptions."""

from __future__ import annotations

from dataclasses import dataclass

from symsim.algebra.kinds import kind_of
from symsim.algebra.quantity import BYTE, ELEMENT, FLOP
from symsim.evaluation.numbers import Evaluation
from symsim.evaluation.run import run_of
from symsim.inputs.architecture import format_layers
from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.inputs.effects import said_in_brief, stored
from symsim.inputs.lengths import row_tokens
from symsim.inputs.strategy import Strategy
from symsim.report import memory, notation, pipeline, roofline, timing, totals
from symsim.report import run as of_run
from symsim.report.amounts import exact, human, whole
from symsim.report.blocks import Blocks
from symsim.report.document import Code, Column, Paragraph, Part, Report, Row, Section, Span, Table, spans
from symsim.report.ink import Ink
from symsim.report.step import Step
from symsim.report.totals import Totals
from symsim.version import __version__


@dataclass(frozen=True)
class _Opening:
    result: Evaluation
    ink: Ink
    totals: Totals

    def section(self) -> Section:
        options = self._options()
        answer = [timing.answer(Step(self.result))] if self.result.system is not None else []
        return Section(
            "Model and strategy",
            (
                Paragraph(self._model()),
                Paragraph(self._strategy()),
                *([options] if options.rows else []),
                *self._placement(),
                *answer,
                self._summary(),
                self.totals.picture(),
            ),
        )

    def _model(self) -> tuple[Span, ...]:
        model = self.result.model
        source = f" ({model.source})" if model.source else ""
        said = f"{model.name}{source} has {model.num_layers} decoder layers, "
        extra = f", and {model.mtp_num_layers} multi-token prediction depth{'s' if model.mtp_num_layers > 1 else ''}" if model.mtp_num_layers else ""
        return spans(
            said,
            Code(format_layers(tuple(s.model_copy(update={"kinds": tuple(map(kind_of, s.kinds))}) for s in model.layers))),
            extra + ". Every operation is an einsum over named dimensions; the strategy places those names on a mesh of ranks, "
            "and FLOPs, bytes and messages follow by rule: twice the product of an operation's dimensions, the sizes of its operands, and the "
            "redistributions its placement requires.",
        )

    def _strategy(self) -> tuple[Span, ...]:
        s = self.result.strategy
        made: list[Span] = [f"{exact(s.world_size)} rank{'s' if s.world_size > 1 else ''}: "]
        degrees = [(n, v) for n, v in (("tp", s.tp), ("cp", s.cp), ("dp", s.dp), ("pp", s.pp)) if v > 1 or n == "tp"]
        for n, (name, value) in enumerate(degrees):
            made += [" \u00d7 " if n else "", self.ink.valued(name, value)]
        if self.result.model.moe:
            made += [" for dense tensors, and "]
            for n, (name, value) in enumerate((("etp", s.expert_tp), ("ep", s.ep), ("edp", s.expert_dp), ("pp", s.pp))):
                made += [" \u00d7 " if n else "", self.ink.valued(name, value)]
            made.append(" for experts, over the same ranks")
        tokens = row_tokens(s)
        long = f"{exact(s.seq_length)} tokens" if tokens == s.seq_length else f"{float(tokens):,.0f} tokens on average"
        made.append(
            f". A micro-batch is {s.micro_batch_size} sequence{'s' if s.micro_batch_size > 1 else ''} of {long} "
            f"on each data-parallel rank, and a step has {exact(s.microbatches)} of them."
        )
        if idle := idle_pipeline(s):
            made.append(f" {idle}")
        return spans(*made)

    def _options(self) -> Table:
        rows = [Row((Code(name), value, meaning)) for name, value, meaning in changed_options(self.result.strategy)]
        columns = (Column("option", 14), Column("value", 8), Column("meaning", 34))
        return Table(spans("The strategy's options that are not at their defaults."), columns, tuple(rows))

    def _placement(self) -> list[Part]:
        """The strategy as the compiler reads it: dimensions by the axes they lie on."""
        rows = tuple(Row((what, Code(axes))) for what, axes in self.result.placed())
        said = "Placement: the axes of the mesh that named dimensions lie on; sp is tp where nothing else of an operation lies on it."
        return [Table(spans(said), (Column("dimensions", 20), Column("on", 20)), rows)] if rows else []

    def _summary(self) -> Table:
        number, most = self.result.numbers, [self.totals.stage_numbers(first) for _, first in self.totals.alike]
        rows = [("parameters", number["N"], ELEMENT)]
        if "N_active" in number:
            rows.append(("parameters a token uses", number["N_active"], ELEMENT))
        if "N_trained" in number:
            rows.append(("parameters that are trained", number["N_trained"], ELEMENT))
        rows += [("FLOPs forward, one micro-batch", number["F"], FLOP), ("FLOPs backward", number["G"], FLOP)]
        if number["R"]:
            rows.append(("FLOPs run again in backward", number["R"], FLOP))
        if "F_further" in number:
            rows.append(("FLOPs of further forwards, one micro-batch", number["F_further"], FLOP))
        rows += [
            ("parameters on one rank, at most", max(n["P_stage"] for n in most), ELEMENT),
            ("bytes one micro-batch keeps on one rank, at most", max(n["A_stage"] for n in most), BYTE),
        ]
        columns = (Column("result", 30), Column("about", 10, True), Column("exactly", 16, True))
        return Table(spans("Results at the given sizes."), columns, tuple(Row((t, human(whole(n), u), exact(whole(n)))) for t, n, u in rows))


def batch(strategy: Strategy) -> str:
    """Sequence length, micro-batch and micro-batches of a step under their options' names, whether given or not."""
    given = strategy.model_fields_set

    def said(name: str, value: int) -> str:
        return f"{name}={value}{'' if name in given else ' (default)'}"

    follows = "num_microbatches" not in given and "global_batch_size" in given
    micro = f"num_microbatches={strategy.microbatches}" if follows else said("num_microbatches", strategy.microbatches)
    tokens = round(row_tokens(strategy) * strategy.micro_batch_size * strategy.microbatches * strategy.dp)
    sizes = f"{said('seq_length', strategy.seq_length)}, {said('micro_batch_size', strategy.micro_batch_size)}"
    return f"{sizes}, {micro}: {tokens:,} tokens a step"


def idle_pipeline(strategy: Strategy) -> str:
    """What to set where a step has fewer micro-batches than the pipeline has stages, so that some stage always waits; else nothing."""
    pp, m = strategy.pp, strategy.microbatches
    if m >= pp:
        return ""
    enough = 4 * pp
    whole = enough * strategy.micro_batch_size * strategy.dp
    return (
        f"{m} micro-batch{'es' if m > 1 else ''} a step keep{'s' if m == 1 else ''} at most {m} of {pp} pipeline stages busy: set num_microbatches "
        f"(such as {enough}) or global_batch_size (such as {whole})."
    )


def changed_options(strategy: Strategy) -> list[tuple[str, str, str]]:
    """(name, value as it is given on the command line, meaning) of the options that are not at their defaults."""
    made = []
    for name, field in type(strategy).model_fields.items():
        value = getattr(strategy, name)
        if value is not None and value != field.default:
            text = "+".join(map(str, value)) if isinstance(value, tuple) else str(value).lower() if isinstance(value, bool) else str(value)
            made.append((name, text, field.description or ""))
    return made


def report(result: Evaluation) -> Report:
    """The whole report as data."""
    ink, numbers = Ink(result), Totals(result)
    opening = _Opening(result, ink, numbers).section()
    blocks = Blocks(result, ink)
    derivation = Section(
        "Derivation by block",
        (
            Paragraph(
                spans(
                    "Every distinct block is derived once. Sizes are those one rank holds: a dimension placed on an axis is divided "
                    "by its degree. The value at the given sizes stands at the end of a formula."
                )
            ),
        ),
    )
    derived = [blocks.section(name) for name in result.lowered.blocks]
    summed = Section("Totals", (Paragraph(spans("Blocks times how often they occur.")),))
    after = totals.sections(result, ink, numbers)
    if result.system is not None:
        step = Step(result)
        after += [*timing.sections(step, ink), pipeline.section(step, ink), *memory.sections(step, ink), roofline.section(step)]
        after += [of_run.section(run, ink)] if (run := run_of(result)) is not None else []
    return Report(
        f"The cost of training {result.model.name}",
        subtitle(result),
        (opening, notation.section(result, ink), derivation, *derived, summed, *after, assumptions(result)),
    )


def subtitle(result: Evaluation) -> str:
    s = result.strategy
    degrees = ", ".join(f"{n}={v}" for n, v in (("tp", s.tp), ("cp", s.cp), ("dp", s.dp), ("pp", s.pp), ("vpp", s.vpp), ("ep", s.ep)) if v > 1)
    flags = ", sp=true" if s.sp else ""
    on = f" on {result.system.name}" if result.system is not None else ""
    return f"{degrees or 'one rank'}{flags}{on}; derived by symsim {__version__}"


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


def assumptions(result: Evaluation) -> Section:
    """Those that a definition names or the user changed first, the rest after; of each what its alternatives move in known models."""
    listed = in_force(result)
    named = {a for d in result.derivation.definitions.values() for a in d.assumptions}
    changed = {a for a, v in result.assumptions.items() if v != ASSUMPTIONS[a].default}
    effects = stored()
    moved = {n: "; ".join(said_in_brief(e) for e in effects.effects if e.assumption == n) for n in listed}
    columns = (Column("assumption", 11), Column("in force", 6.5), Column("meaning", 20), Column("source", 13), Column("an alternative moves", 14))

    def table(caption: str, names: list[str]) -> list[Part]:
        rows = tuple(Row((Code(n), _chosen(result, n), ASSUMPTIONS[n].meaning, ASSUMPTIONS[n].source, moved[n])) for n in names)
        return [Table(spans(caption), columns, rows)] if rows else []

    first = [n for n in listed if n in named | changed]
    said = Paragraph(
        spans(
            "What follows neither from the einsums nor from the placement is assumed. ",
            Code("--set assume.NAME=VALUE"),
            " overrides an assumption. What an alternative moves is its change over the default's number, the least and the most of ",
            f"{', '.join(effects.cases)} on {effects.system}, each under one strategy (docs/assumptions.md).",
        )
    )
    return Section(
        "Assumptions",
        (
            said,
            *table("Named by a definition above, or not at the default.", first),
            *table("Also in force.", [n for n in listed if n not in first]),
        ),
    )


def _chosen(result: Evaluation, name: str) -> str:
    chosen, default = result.assumptions[name], ASSUMPTIONS[name].default
    return chosen if chosen == default else f"{chosen} (default {default})"
