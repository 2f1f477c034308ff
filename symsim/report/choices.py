"""What other choices would do to the step: each is evaluated alone, on the same ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from symsim.algebra.formula import Derivation
from symsim.algebra.quantity import BYTE
from symsim.errors import InputError
from symsim.evaluation.beside import beside, of_fp8, recomputing
from symsim.evaluation.numbers import Evaluation
from symsim.evaluation.quantities import QUANTITIES
from symsim.inputs.settings import text_of
from symsim.lowering.checks import check
from symsim.report.amounts import human, plain, signed_percent
from symsim.report.document import Code, Column, Row, Spans, Table, spans
from symsim.report.step import Step

_WORTH = 0.01  # share of a step that a part must have for what shrinks it to be tried
_MOST_SIZES = 12  # micro-batches that are tried
_MOST_SEQUENCES = 1 << 20
_MOST_TP = 8  # of the degrees of tensor parallelism that are tried
# what a choice tells of itself
_TOLD = ("tokens_per_second", "memory.peak", "memory.reserve")
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


@dataclass(frozen=True)
class Sizes:
    """Micro-batches. now: the present one's sequences; fits: the largest that does, if any; beyond: the next that can run, which does not; all:
    whether none was left out; kept: what is the same of them, unless it is the batch."""

    now: int
    fits: Choice | None
    beyond: Choice | None
    all: bool
    kept: str = ""

    @property
    def said(self) -> str:
        """'1 sequence, as here; 2 take 116.9 GiB'."""
        parts = []
        if self.fits is None:
            parts.append("none")
        else:
            size = self.fits.result.strategy.micro_batch_size
            parts.append(f"{size:,} sequence{'s' if size > 1 else ''}{', as here' if size == self.now else self.kept}")
        if self.beyond is not None:
            size = self.beyond.result.strategy.micro_batch_size
            parts.append(f"{size:,} take{'s' if size == 1 else ''} {human(self.beyond.peak, BYTE)}")
        elif self.fits is not None:
            parts.append("no larger one divides the batch" if self.all else "larger ones were not tried")
        return "; ".join(parts)

    def __iter__(self) -> Iterator[Choice]:
        """Those that are other than the present one."""
        return (c for c in (self.fits, self.beyond) if c is not None and c.result.strategy.micro_batch_size != self.now)


def _needed(result: Evaluation) -> Evaluation:
    """With no more definitions than what a choice tells of it stands on."""
    every, needed = result.derivation.definitions, {QUANTITIES[name].symbol for name in _TOLD} | {"M_stage_peak"}
    for name in reversed(every):
        if name in needed:
            needed |= every[name].expr.symbols()
    own = {name: one for name, one in every.items() if name in needed}
    return replace(result, counted=replace(result.counted, derivation=Derivation(own)))


def tables(step: Step | None) -> tuple[Table, ...]:
    """Every choice with its tokens a second and its peak, the fastest first; nothing where there is no time."""
    if step is None:
        return ()
    now, room = step.number("tokens_per_second"), step.capacity
    made = sorted([*sizes(step), *filter(_runs, _choices(step))], key=lambda c: -c.rate)
    rows = tuple(Row((c.said, plain(c.rate), signed_percent(c.rate / now - 1), human(c.peak, BYTE), _room(c, room))) for c in made)
    columns = (Column("choice", 26), Column("tokens a second", 9, True), Column("change", 6, True), Column("peak memory", 8, True), Column("", 5))
    said = spans(
        "What other choices would do, each alone, evaluated on the same ranks. ",
        *(Code("symsim eval --next"), " has every change of one option, ", Code("symsim ask"), " the number that a goal needs."),
    )
    return (Table(said, columns, rows, key="choices"),)


def _room(choice: Choice, room: int) -> str:
    """What a reader should know of the peak: whether there is room for it, and for what should stay free beside it."""
    return "too much" if choice.peak > room else "tight" if choice.peak + int(choice.result.value("memory.reserve")) > room else ""


def _runs(choice: Choice) -> bool:
    """Whether all that is asked besides goes with it, say a ramp of the batch."""
    try:
        return choice.rate > 0 and choice.peak > 0
    except InputError:
        return False


def _choices(step: Step) -> Iterator[Choice]:
    strategy = step.result.strategy
    twice = strategy.model_copy(update={"num_microbatches": 2 * strategy.microbatches, "global_batch_size": None})
    yield Choice(
        spans(f"twice the micro-batches, {2 * strategy.microbatches:,}, and so twice the batch"), replace(_needed(step.result), strategy=twice)
    )
    for options in (*_options(step), *_degrees(step)):
        try:
            other = beside(step.result, options)
        except InputError:
            continue
        shown = {n: v for n, v in options.items() if v is not None}
        yield Choice(spans(Code(",".join(f"{name}={text_of(value)}" for name, value in shown.items()))), _needed(other))


def sizes(step: Step) -> Sizes:
    """The largest micro-batch of the same batch that fits, and the next that can run: upwards from the present one, or downwards where it does
    not fit."""
    strategy, now = step.result.strategy, step.result.strategy.micro_batch_size
    rows = now * strategy.microbatches
    present = Choice(spans(f"micro-batches of {now}"), step.result)
    upwards = present.peak <= step.capacity
    fits, beyond = (present, None) if upwards else (None, present)
    others = range(now + 1, rows + 1) if upwards else range(now - 1, 0, -1)
    divisors = [n for n in others if rows % n == 0]
    for size in divisors[:_MOST_SIZES]:
        tried = _sized(step, size, rows // size)
        if tried is None:
            continue
        if tried.peak > step.capacity:
            beyond = tried
            if upwards:
                break
        else:
            fits = replace(tried, said=spans(*tried.said, ": the largest that fit"))
            if not upwards:
                break
    return Sizes(now, fits, beyond, len(divisors) <= _MOST_SIZES)


def largest(step: Step, same: Sizes) -> Sizes:
    """The largest micro-batch that fits: of the same batch where one is given, else of as many micro-batches. same: those of the same batch."""
    strategy = step.result.strategy
    if strategy.global_batch_size is not None:
        return same
    tried: dict[int, Choice | None] = {}
    # halves of micro-batches need even ones
    unit = 2 if strategy.tp_comm_halves != "none" else 1

    def fits(units: int) -> bool:
        tried[units] = found = _sized(step, units * unit, strategy.microbatches)
        return found is not None and found.peak <= step.capacity

    now, most = same.now // unit, _MOST_SEQUENCES // unit
    low, high = (now, 2 * now) if fits(now) else (0, now)
    while high < most and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    kept = f" in each of {strategy.microbatches:,} micro-batches" if strategy.microbatches > 1 else " in the one micro-batch"
    return Sizes(same.now, tried.get(low), tried.get(high), False, kept)


def _sized(step: Step, size: int, count: int) -> Choice | None:
    """So many micro-batches of so many sequences; None where they cannot run."""
    other = step.result.strategy.model_copy(update={"micro_batch_size": size, "num_microbatches": count, "global_batch_size": None})
    try:
        check(step.result.model, other)
    except InputError:
        return None
    tried = Choice(spans(f"micro-batches of {size}, {count} of them"), replace(_needed(step.result), strategy=other))
    return tried if _runs(tried) else None


def _degrees(step: Step) -> Iterator[dict[str, Any]]:
    """Other degrees of tensor parallelism and of the pipeline, with as many ranks and the same batch."""
    strategy = step.result.strategy
    rows = strategy.micro_batch_size * strategy.microbatches * strategy.dp
    node = step.system.network[0].ranks if step.system.network else 1
    most = _MOST_TP if node == "all" else min(node, _MOST_TP)
    degrees = [("tp", 1 << n) for n in range(most.bit_length()) if 1 << n <= most]
    degrees += [("pp", n) for n in (strategy.pp // 2, 2 * strategy.pp) if n >= 1 and strategy.pp > 1]
    for name, degree in degrees:
        now = getattr(strategy, name)
        ranks = strategy.dp * now
        if degree == now or ranks % degree or rows % (ranks // degree * strategy.micro_batch_size):
            continue
        options: dict[str, Any] = {name: degree}
        if name == "tp" and (degree == 1) == strategy.sp:
            options["sp"] = degree > 1
        options["dp"] = ranks // degree
        given = strategy.global_batch_size is not None
        options["num_microbatches"] = None if given else rows // (ranks // degree * strategy.micro_batch_size)
        yield options


def _options(step: Step) -> Iterator[dict[str, Any]]:
    """Recomputation, or none; and what would shrink the parts of the step that are worth it."""
    strategy, depth = step.result.strategy, step.result.strategy.pp
    yield recomputing(strategy)
    large = {p.definition for p in step.parts if p.share > _WORTH}
    layers = int(step.result.numbers["L"])
    if "t_bubble" in large and strategy.vpp == 1 and strategy.schedule == "1f1b" and layers % depth == 0 and layers > depth:
        yield {"vpp": layers // depth, "overlap_p2p_comm": True}
    if "t_compute" in large:
        yield from of_fp8(strategy, step.system).values()
    if strategy.cuda_graph_impl == "none" and step.launching > _WORTH * float(step.stage(step.slowest)["t_stage"]):
        # a graph of a layer is Megatron's
        yield {"cuda_graph_impl": "local" if strategy.fusion == "te" else "full_iteration"}
    for part, options in _HIDES.items():
        if part in large and any(getattr(strategy, name) != value for name, value in options.items()):
            yield dict(options)
