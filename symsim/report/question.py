"""What a report is of, in words: the model, the options of the strategy, the batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from symsim.algebra.kinds import kind_of, spelt
from symsim.algebra.quantity import ELEMENT
from symsim.algebra.vocabulary import SYMBOLS
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.architecture import Architecture
from symsim.inputs.layer_pattern import Segment, format_layers
from symsim.inputs.lengths import row_tokens
from symsim.inputs.strategy import Strategy
from symsim.inputs.tuning import TunedKind
from symsim.report.amounts import exact, human
from symsim.report.document import Code, Column, Math, Row, Span, Spans, Table, joined, spans
from symsim.report.ink import DIMENSIONS, Ink, dimension_latex

# said in the same paragraph as degrees and sizes
_SAID = frozenset("tp cp dp pp ep etp edp seq_length micro_batch_size num_microbatches".split())


def model(result: Evaluation, ink: Ink) -> Spans:
    """The model, its layers and its parameters."""
    of, numbers = result.model, result.numbers
    source: list[Span] = [" ", ink.sources.cited(of.source)] if of.source else []
    extra = f", and {of.mtp_num_layers} multi-token prediction depth{'s' if of.mtp_num_layers > 1 else ''}" if of.mtp_num_layers else ""
    runs = groupby(_runs(of.layers), key=lambda segment: segment.kinds)
    layers = format_layers(tuple(Segment(repeat=sum(one.repeat for one in run), kinds=kinds) for kinds, run in runs))
    held = f"{extra}, and {human(numbers['N'], ELEMENT)} parameters"
    active = f", of which a token uses {human(numbers['N_active'], ELEMENT)}" if "N_active" in numbers else ""
    # both are of all parameters
    trained = f"{' and' if active else ', of which'} {human(numbers['N_trained'], ELEMENT)} are trained" if "N_trained" in numbers else ""
    kind = "encoder" if all(kind.bidirectional for kind in of.layer_kinds.values()) else "decoder"
    return spans(of.name, *source, f" has {of.num_layers} {kind} layers, ", Code(layers), f"{held}{active}{trained}.", *_told_apart(of))


def _runs(segments: Iterable[Segment]) -> Iterator[Segment]:
    """With kinds as the user named them; what is not repeated stands kind by kind."""
    for segment in segments:
        kinds = tuple(map(kind_of, segment.kinds))
        if segment.repeat > 1:
            yield segment.model_copy(update={"kinds": kinds})
        else:
            yield from (Segment(repeat=len(tuple(run)), kinds=(kind,)) for kind, run in groupby(kinds))


def _told_apart(model: Architecture) -> list[Span]:
    """Of the kinds of layers that the strategy tells apart, what each is."""
    made: list[Span] = []
    for name, kind in model.layer_kinds.items():
        if isinstance(kind, TunedKind) and name != spelt(kind.base):
            wide = ", with products in the computation's type" if kind.wide else ""
            made += [" ", Code(kind_of(name)), f": {_TUNED[kind.trains, kind.enters]}{wide}."]
    return made


# by whether a parameter of it is trained, and whether its input needs a gradient
_TUNED = {
    (False, False): "a frozen layer below all that is trained, without backward",
    (True, False): "the lowest trained layer, whose input needs no gradient",
    (False, True): "a frozen layer that hands gradients on",
    (True, True): "a trained layer",
}


# an option that is a degree, in words
_WAYS = {
    **{"tp": "tensor", "cp": "context", "dp": "data", "pp": "pipeline"},
    **{"etp": "tensor", "ep": "expert", "edp": "data"},
}


def strategy(result: Evaluation, ink: Ink) -> Spans:
    """The ranks by degrees, the batch, and the other options that are not at their defaults."""
    s = result.strategy
    made: list[Span] = [f"{exact(s.world_size)} rank{'s' if s.world_size > 1 else ''}: "]
    degrees = [(n, v) for n, v in (("tp", s.tp), ("cp", s.cp), ("dp", s.dp), ("pp", s.pp)) if v > 1 or n == "tp"]
    for n, (name, value) in enumerate(degrees):
        made += [", " if n else "", _WAYS[name], " ", ink.valued(name, value)]
    if result.model.moe:
        made += [" for dense tensors, and "]
        for n, (name, value) in enumerate((("etp", s.expert_tp), ("ep", s.ep), ("edp", s.expert_dp), ("pp", s.pp))):
            made += [", " if n else "", _WAYS[name], " ", ink.valued(name, value)]
        made.append(" for experts, over the same ranks")
    tokens = row_tokens(s)
    long = f"{exact(s.seq_length)} tokens" if tokens == s.seq_length else f"{float(tokens):,.0f} tokens on average"
    made.append(
        f". A micro-batch is {s.micro_batch_size} sequence{'s' if s.micro_batch_size > 1 else ''} of {long} "
        f"on each data-parallel rank, and a step has {exact(s.microbatches)} of them: {exact(_tokens(s))} tokens. "
    )
    others = [spans(Code(f"{name}={value}")) for name, value, _ in changed_options(s) if name not in _SAID]
    if others:
        made += ["Further options: ", *joined(others), ". "]
    if idle := idle_pipeline(s):
        made.append(idle)
    return spans(*made)


def options(result: Evaluation) -> list[Table]:
    """What options are that are neither degrees nor sizes, which the first page says."""
    rows = tuple(Row((Code(name), Code(value), meaning)) for name, value, meaning in changed_options(result.strategy) if name not in _SAID)
    columns = (Column("option", 14), Column("value", 8), Column("meaning", 34))
    return [Table(spans("Options of the strategy that are not at their defaults, beside degrees and sizes."), columns, rows)] if rows else []


def placement(result: Evaluation, ink: Ink) -> list[Table]:
    """The strategy as the compiler reads it: dimensions by the axes they lie on."""

    def dimension(text: str) -> Spans:
        """'s in attention' with its symbol as the tables of operations have it."""
        name, _, rest = text.partition(" ")
        shown = ink.symbol(name) if name in SYMBOLS else Math(dimension_latex(name)) if name in DIMENSIONS else name
        return spans(shown, f" {rest}") if rest else spans(shown)

    rows = tuple(Row((joined([dimension(d) for d in what.split(", ")]), Code(axes))) for what, axes in result.placed())
    said = "Placement: the axes of the mesh that named dimensions lie on; sp is tp where nothing else of an operation lies on it."
    return [Table(spans(said), (Column("dimensions", 20), Column("on", 20)), rows)] if rows else []


def batch(strategy: Strategy) -> str:
    """Sequence length, micro-batch and micro-batches of a step under their options' names, whether given or not."""
    given = strategy.model_fields_set

    def said(name: str, value: int) -> str:
        return f"{name}={value}{'' if name in given else ' (default)'}"

    follows = "num_microbatches" not in given and "global_batch_size" in given
    micro = f"num_microbatches={strategy.microbatches}" if follows else said("num_microbatches", strategy.microbatches)
    sizes = f"{said('seq_length', strategy.seq_length)}, {said('micro_batch_size', strategy.micro_batch_size)}"
    return f"{sizes}, {micro}: {_tokens(strategy):,} tokens a step"


def _tokens(strategy: Strategy) -> int:
    """Of a step."""
    return round(row_tokens(strategy) * strategy.micro_batch_size * strategy.microbatches * strategy.dp)


def idle_pipeline(strategy: Strategy) -> str:
    """What to set where a step has fewer micro-batches than the pipeline has stages, so that some stage always waits; else nothing."""
    pp, often, m = strategy.pp, strategy.pipeline_flushes, strategy.flush_microbatches
    if m >= pp:
        return ""
    enough = 4 * pp * often
    whole = enough * strategy.micro_batch_size * strategy.dp
    of = "a step" if often == 1 else "between two flushes"
    return (
        f"{m} micro-batch{'es' if m > 1 else ''} {of} keep{'s' if m == 1 else ''} at most {m} of {pp} pipeline stages busy: set num_microbatches "
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
