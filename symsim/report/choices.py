"""What other choices would do to the step: each is evaluated alone, on the same ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from symsim.algebra.quantity import BYTE
from symsim.errors import InputError
from symsim.evaluation.beside import beside
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.settings import text_of
from symsim.lowering.checks import check
from symsim.report.amounts import human, plain, signed_percent
from symsim.report.document import Code, Column, Row, Spans, Table, spans
from symsim.report.step import Step

_WORTH = 0.01  # share of a step that a part must have for what shrinks it to be tried
_MOST_SIZES = 12  # micro-batches that are tried
# what hides the messages of an axis
_HIDES: Mapping[str, Mapping[str, Any]] = {
    "exposed_tp": {"tp_comm_overlap": True},
    "exposed_ep": {"overlap_moe_expert_parallel_comm": True},
    "exposed_dp": {"overlap_grad_reduce": True, "overlap_param_gather": True},
}


@dataclass(frozen=True)
class Choice:
    """said: what is changed. result: the evaluation with it."""

    said: Spans
    result: Evaluation

    @property
    def rate(self) -> float:
        return float(self.result.value("tokens_per_second"))

    @property
    def peak(self) -> int:
        return int(self.result.value("memory.peak"))


def table(step: Step) -> Table:
    """Every choice with its tokens a second and its peak, the fastest first."""
    now, room = step.number("tokens_per_second"), step.capacity
    made = sorted(filter(_runs, _choices(step)), key=lambda c: -c.rate)
    rows = tuple(
        Row((c.said, plain(c.rate), signed_percent(c.rate / now - 1), human(c.peak, BYTE), "too much" if c.peak > room else "")) for c in made
    )
    columns = (Column("choice", 26), Column("tokens a second", 9, True), Column("change", 6, True), Column("peak memory", 8, True), Column("", 5))
    said = spans(
        "What other choices would do, each alone, evaluated on the same ranks. ",
        *(Code("symsim eval --next"), " has every change of one option, ", Code("symsim ask"), " the number that a goal needs."),
    )
    return Table(said, columns, rows, key="choices")


def _runs(choice: Choice) -> bool:
    """Whether all that is asked besides goes with it, say a ramp of the batch."""
    try:
        return choice.rate > 0 and choice.peak > 0
    except InputError:
        return False


def _choices(step: Step) -> Iterator[Choice]:
    strategy = step.result.strategy
    twice = strategy.model_copy(update={"num_microbatches": 2 * strategy.microbatches, "global_batch_size": None})
    yield Choice(spans(f"twice the micro-batches, {2 * strategy.microbatches:,}, and so twice the batch"), replace(step.result, strategy=twice))
    yield from _sizes(step)
    for options in _options(step):
        try:
            other = beside(step.result, options)
        except InputError:
            continue
        yield Choice(spans(Code(",".join(f"{name}={text_of(value)}" for name, value in options.items()))), other)


def _sizes(step: Step) -> Iterator[Choice]:
    """The largest micro-batch of the same batch that fits, and the next that can run, which does not."""
    strategy, fits = step.result.strategy, None
    rows = strategy.micro_batch_size * strategy.microbatches
    for size in [n for n in range(strategy.micro_batch_size + 1, rows + 1) if rows % n == 0][:_MOST_SIZES]:
        count = rows // size
        other = strategy.model_copy(update={"micro_batch_size": size, "num_microbatches": count, "global_batch_size": None})
        try:
            check(step.result.model, other)
        except InputError:
            continue
        said = f"micro-batches of {size}, {count} of them"
        tried = Choice(spans(said), replace(step.result, strategy=other))
        if not _runs(tried):
            continue
        if tried.peak > step.capacity:
            yield tried
            break
        fits = replace(tried, said=spans(f"{said}: the largest that fit"))
    if fits is not None:
        yield fits


def _options(step: Step) -> Iterator[dict[str, Any]]:
    """Recomputation, or none; and what would shrink the parts of the step that are worth it."""
    strategy, depth = step.result.strategy, step.result.strategy.pp
    yield {"recompute": "full" if strategy.recompute == "none" else "none"}
    large = {p.definition for p in step.parts if p.share > _WORTH}
    layers = int(step.result.numbers["L"])
    if "t_bubble" in large and strategy.vpp == 1 and strategy.schedule == "1f1b" and layers % depth == 0 and layers > depth:
        yield {"vpp": layers // depth, "overlap_p2p_comm": True}
    if strategy.cuda_graph_impl == "none" and step.launching > _WORTH * float(step.stage(step.slowest)["t_stage"]):
        # a graph of a layer is Megatron's
        yield {"cuda_graph_impl": "local" if strategy.fusion == "te" else "full_iteration"}
    for part, options in _HIDES.items():
        if part in large and any(getattr(strategy, name) != value for name, value in options.items()):
            yield dict(options)
