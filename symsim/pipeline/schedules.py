"""Pipeline schedules as data: each is a row of closed forms, with no loop over ranks or micro-batches.

Symbols (all Expr; durations in seconds):

    pp, vpp, m        pipeline stages, chunks a rank, micro-batches a step
    group             micro-batches that run through one chunk in a row (microbatch_group_size_per_vp_stage)
    i, j              pipeline rank and chunk of that rank, both from zero
    tf                forward of one micro-batch through all chunks of the slowest rank
    ti, tw            its input gradients and its weight gradients; the whole backward is ti + tw
    tr                recompute that precedes the backward (or the input gradients)
    tfb               a forward and a whole backward, of two micro-batches, overlapped (DualPipe); without overlap tf + ti + tw + tr
    tc                one message between neighbouring stages that nothing hides
    sum_tf, sum_ti, sum_tw, sum_tr
                      the same durations summed over all pipeline ranks
    t_place           what the place of the slowest stage saves in 1f1b, merak_1f1b and ds_default (T_PLACE), zero where stages are equal

A micro-batch passes pp * vpp chunks; a chunk of the slowest rank takes tf / vpp. In dualpipe a rank holds one stage
of each direction and a micro-batch passes one of the two, so there tf is one stage.

The makespan lasts from the first forward to the end of the last backward of any rank. With equal stages (sum_tf = pp*tf
and so on) it is exact: the tests compare it with the written-out order of operations replayed in time
(`report.schedule_orders`), and with orders of PyTorch, Megatron-Core and Merak. With unequal stages the slowest rank
keeps the pace and the others fill and drain the pipe, which is an estimate whose error the tests measure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from symsim.algebra.expr import ONE, ZERO, Expr, Number, ceil, floor, maximum, minimum, symbol
from symsim.algebra.reductions import longest_wait
from symsim.errors import InputError
from symsim.inputs.strategy import Strategy

Condition = tuple[Expr, str]
"""An expression that must not be negative, and the words that say so."""


@dataclass(frozen=True)
class Schedule:
    """A pipeline schedule in closed form.

    makespan: seconds of one step. bubble: the makespan less the work of the busiest rank (a pair counts as its parts).
    in_flight: chunk activations that rank `i` holds at its peak, each from the start of a forward to the end of the
    backward (of the weight gradients where the backward is split). before_input_gradients: the same to the end of the
    input gradients only, after which a weight gradient needs less. alive: the part of in_flight that belongs to chunk
    `j`. whole: of in_flight, micro-batches that are kept whole while the rest are recomputed, beyond the one whose
    backward runs. weights: copies of each parameter in the pipeline. requires: what the order of operations needs.
    pairs: in_flight counts whole the forward that runs beside a backward. chunks: how many a rank holds. placement:
    rank i holds chunks i + j*pp (loop), i and 2*pp - 1 - i (v), or the stages i and pp - 1 - i of two copies of the
    model (mirrored). exact_while: where the makespan is exact for equal stages; elsewhere it may be low.
    """

    name: str
    meaning: str
    source: str
    makespan: Expr
    bubble: Expr
    in_flight: Expr
    before_input_gradients: Expr
    alive: Expr
    whole: Expr = ZERO
    weights: Expr = ONE
    pairs: bool = False
    requires: tuple[Condition, ...] = ()
    exact_while: tuple[Condition, ...] = ()
    splits_backward: bool = False
    chunks: Literal["any", 1, 2] = 1
    placement: Literal["loop", "v", "mirrored"] = "loop"


p, v, m, group, i, j = (symbol(name) for name in ("pp", "vpp", "m", "group", "i", "j"))
tf, ti, tw, tr, tfb, tc = (symbol(name) for name in ("tf", "ti", "tw", "tr", "tfb", "tc"))
sum_tf, sum_ti, sum_tw, sum_tr = (symbol(name) for name in ("sum_tf", "sum_ti", "sum_tw", "sum_tr"))
# the gradient of the input cannot start before the recompute has ended, on any rank
tir, sum_tir = ti + tr, sum_ti + sum_tr
tb, sum_tb = tir + tw, sum_tir + sum_tw
# time in the other ranks, each passed once: (pp - 1) times the slowest rank's where all are equal
fill_f, fill_i, fill_b = sum_tf - tf, sum_tir - tir, sum_tb - tb
WORK = m * (tf + tb)
# micro-batches of the first and of the last group
first_group = minimum(group, m)
last_group = m - first_group * (ceil(m / first_group) - 1)


def _positive(value: Expr | Number) -> Expr:
    return maximum(0, value)


def _is_positive(value: Expr) -> Expr:
    """1 where an integer expression is above zero, else 0."""
    return minimum(1, _positive(value))


def _schedule(name: str, meaning: str, source: str, fill: Expr, in_flight: Expr, alive: Expr | None = None, **rest: object) -> Schedule:
    """A schedule whose makespan is the work of the slowest rank and `fill`."""
    alike = {"before_input_gradients": in_flight, "alive": in_flight if alive is None else alive}
    return replace(Schedule(name, meaning, source, WORK + fill, fill, in_flight, **alike), **rest)  # type: ignore[arg-type]


_PIPE: Condition = (p - 2, "pp above 1")
_MERAK = "Merak (arXiv 2206.04959), Merak/core/pipeline/schedule.py"


def _gpipe() -> Schedule:
    return _schedule(
        "gpipe",
        "all forwards, then all backwards",
        "GPipe (arXiv 1811.06965) section 2.3; torch.distributed.pipelining ScheduleGPipe",
        fill_f + fill_b + 2 * (p - 1) * tc,
        m,
    )


T_PLACE = (m - 1) * symbol("t_slow") - longest_wait(symbol("t_stage"))
"""t_place in 1f1b: a stage i has no micro-batch of its own left to do while the last pp - 1 - i drain, so the pipeline waits for
max_i((m - p + i) t_i + sum_{j>i} t_j) and not for m - 1 micro-batches of the slowest stage. Zero where all are equal; of 200 random
pipelines it is exact in 174 and 4.3 % low at most (tests)."""


def _1f1b() -> Schedule:
    # p micro-batches are under way; the round trip of each over p - 1 boundaries delays the one that follows p later
    round_trips = floor((m - 1) * (p - 1) / p)
    return _schedule(
        "1f1b",
        "one forward, one backward, after a warm-up of pp - 1 - i forwards",
        "PipeDream-Flush (arXiv 2006.09503); Megatron-LM (arXiv 2104.04473) section 2.2.1; Megatron-Core schedules.py",
        fill_f + fill_b - symbol("t_place") + 2 * (p - 1 + round_trips) * tc,
        minimum(m, p - i),
    )


def _chunk_passes(chunk: Expr, sum_chunk: Expr, ahead: Expr) -> Expr:
    """What the v - 1 returns from the last rank to the first cost when `ahead` micro-batches are shorter than a round."""
    return (v - 1) * _positive(sum_chunk + p * tc - ahead * chunk)


def _grouped_alive(total: Expr, size: Expr) -> Expr:
    """Of `total` forwards in the interleaved order, those of chunk j."""
    return minimum(size, _positive(total - j * size)) + _positive(1 - j) * _positive(total - v * size)


_LATENCY_UNDER_A_CHUNK: tuple[Condition, ...] = (
    (tf / v - tc, "a message takes no longer than the forward of a chunk"),
    ((ti + tw + tr) / v - tc, "a message takes no longer than the backward of a chunk"),
)
_WHOLE_GROUPS: tuple[Condition, ...] = (
    (maximum(group - p, group - m), "group of pp micro-batches or more"),
    (maximum(group * floor(m / group) - m, m - group * floor(m / group) - p), "micro-batches in whole groups, or at least pp in the last one"),
)


def _interleaved() -> Schedule:
    under_way = minimum(m * v, (v - 1) * first_group + 2 * (p - 1 - i) + 1)
    returns = _chunk_passes(tf / v, sum_tf / v, first_group) + _chunk_passes(tb / v, sum_tb / v, last_group)
    return _schedule(
        "interleaved",
        "1F1B over vpp chunks a rank, groups of micro-batches through one chunk after the other",
        "Megatron-LM (arXiv 2104.04473) section 2.2.2; Megatron-Core schedules.py",
        (fill_f + fill_b) / v + 2 * (p - 1) * tc + returns,
        under_way,
        _grouped_alive(under_way, first_group),
        requires=(_PIPE, *_WHOLE_GROUPS),
        exact_while=_LATENCY_UNDER_A_CHUNK,
        chunks="any",
    )


def _looped_bfs() -> Schedule:
    returns = _chunk_passes(tf / v, sum_tf / v, m) + _chunk_passes(tb / v, sum_tb / v, m)
    return _schedule(
        "looped_bfs",
        "all micro-batches through one chunk after the other, then back",
        "Breadth-First Pipeline Parallelism (arXiv 2211.05953) section 4; torch.distributed.pipelining ScheduleLoopedBFS",
        (fill_f + fill_b) / v + 2 * (p - 1) * tc + returns,
        m * v,
        m,
        requires=(_PIPE,),
        chunks="any",
    )


def _zb_h1() -> Schedule:
    ahead = minimum(m, p)
    forwards = fill_f + (p - ahead) * tir + (2 * (p - 1) + ahead - 3 + 2 * _is_positive(m - p)) * tc
    both = fill_f + fill_i - minimum(m - 1, p - 1) * tw + 2 * (p - 1 + minimum(p - 1, _positive(m - 2))) * tc
    # round trips after the first p micro-batches, which the weight gradients hide as long as they are longer
    round_trips = _positive(floor((m - 1) * (p - 1) / p) - (p - 1)) * _positive(2 * tc - tw)
    gradients = (p - ahead) * tf + fill_i + 2 * (p - 1) * tc
    return _schedule(
        "zb_h1",
        "1F1B with weight gradients apart, i micro-batches late on rank i: the memory of 1F1B",
        "Zero Bubble Pipeline Parallelism (arXiv 2401.10241) section 2.3, ZB-H1",
        maximum(gradients, forwards + round_trips, both + round_trips),
        ahead,
        before_input_gradients=minimum(m, p - i),
        requires=(_PIPE,),
        splits_backward=True,
    )


def _zb_h2() -> Schedule:
    return _schedule(
        "zb_h2",
        "zb_h1 with twice the warm-up and twice the delay of the weight gradients",
        "Zero Bubble Pipeline Parallelism (arXiv 2401.10241) section 2.3, ZB-H2",
        maximum(fill_f + (p - 1) * tc, fill_i - (p - 1) * tf + 2 * (p - 1) * tc, fill_f + fill_i - 2 * (p - 1) * tw + 2 * (p - 1) * tc),
        2 * p - 1,
        before_input_gradients=2 * (p - i) - 1,
        requires=(_PIPE, (m - 2 * p + 1, "num_microbatches of 2*pp - 1 or more")),
        exact_while=((tf + ti + tr - 2 * tc, "two messages take no longer than a forward and an input gradient"),),
        splits_backward=True,
    )


def _interleaved_zb() -> Schedule:
    f, x, w = tf / v, tir / v, tw / v
    other_f, other_x = fill_f / v, fill_i / v
    # as many micro-batches as ranks, or more
    under_way = (v - 1) * first_group + p
    exact = 2 * (1 - minimum(1, _positive(m - p)))
    gradients = other_x + 2 * (p - 1) * tc
    forwards = other_f + (3 * (p - 1) - exact) * tc
    both = other_f + other_x - (p - 1) * w + (4 * (p - 1) - exact) * tc
    many = maximum(gradients, forwards, both)
    # fewer: the gradients of a chunk return before the weight gradients of the one after it have filled the wait
    returns = (v - 1) * _positive((p - m) * x - m * w + p * tc)
    few = maximum(
        other_f + (p - m) * x + (m + 2 * p - 5) * tc,
        (p - m) * (f + x + w) - w + (2 * p - 1) * tc,
        (p - m) * f + other_x + 2 * (p - 1) * tc + returns,
        other_f + other_x - (m - 1) * w + 2 * (p - 1 + _positive(m - 2)) * tc + returns,
    )
    # one: forward through every chunk, back through every chunk
    late = minimum(v, p) - 1
    one = other_f + maximum(
        v * other_x - (v - 1) * w + (p * v + p - 2) * tc,
        v * other_x - late * x - (v - 1 - late) * w + (p * v + p - 2 - late) * tc,
        2 * other_x - late * x + (late - 1) * w + (3 * p - 2 - late) * tc,
    )
    is_many, is_one = _is_positive(m - p + 1), minimum(1, _positive(2 - m))
    fill = is_many * many + is_one * one + (1 - is_many - is_one) * few
    return _schedule(
        "interleaved_zb",
        "interleaved with weight gradients apart, i chunks late on rank i",
        "torch.distributed.pipelining ScheduleInterleavedZeroBubble, after arXiv 2401.10241",
        _chunk_passes(f, sum_tf / v, first_group) + fill,
        minimum(m * v, under_way),
        _grouped_alive(minimum(m * v, under_way), first_group),
        before_input_gradients=minimum(m * v, under_way - i),
        requires=(
            _PIPE,
            (v - 2, "vpp above 1 (with one chunk a rank it is zb_h1)"),
            (maximum(2 * m - p - 1, 1 - m), "more micro-batches than pp/2, or one"),
            *_WHOLE_GROUPS,
        ),
        exact_while=(
            (
                w - 2 * tc - 2 * tc * _is_positive(p - m),
                "two messages (four with fewer than pp micro-batches) take no longer than the weight gradients of a chunk",
            ),
            (x - 2 * tc * _is_positive(p - m), "with fewer than pp micro-batches, two messages take no longer than the input gradients of a chunk"),
            *_LATENCY_UNDER_A_CHUNK,
        ),
        splits_backward=True,
        chunks="any",
    )


_PARTS = ((tf, "forward"), (tir, "input gradient"), (tw, "weight gradient"))


def _zbv() -> Schedule:
    f, x, w = tf / 2, tir / 2, tw / 2
    # a long pipe: 2 pp - 1 micro-batches or more; the terms are the paths that can be the longest
    turn = p - 1
    long = maximum(
        fill_i / 2 + (5 * turn - 2) * tc,
        fill_i - 2 * turn * w + (6 * turn - 2) * tc,
        x + (turn - 1) * w + 3 * turn * tc,
        f + (turn - 1) * w + (3 * turn - 2) * tc,
        fill_f / 2 - f + x + (5 * turn - 2) * tc,
        fill_f / 2 - w + 5 * turn * tc,
        (fill_f + fill_i) / 2 - f + x - 2 * turn * w + (6 * turn - 2) * tc,
        (fill_f + fill_i) / 2 - (2 * turn + 1) * w + 6 * turn * tc,
        fill_f - f - (turn - 1) * x + (3 * turn - 2) * tc,
        fill_f - f + x - 2 * turn * w + (4 * turn - 2) * tc,
        fill_f - turn * x - w + 3 * turn * tc,
        fill_f - (2 * turn + 1) * w + 4 * turn * tc,
    )
    # a short one: pp or fewer, which all start before the first of them comes back
    late = m - 1
    short = maximum(
        fill_f - 2 * late * f + fill_i + 4 * turn * tc,
        fill_f + fill_i - late * (f + x) + 2 * (2 * turn - late) * tc,
        fill_f + fill_i - 2 * late * (x + w) + 4 * turn * tc,
        fill_f + fill_i - late * (3 * x + w) + 2 * (2 * turn - late) * tc,
    )
    # in between, a micro-batch more than ranks: other cases have no form here
    between = maximum(
        2 * turn * x - 2 * x + (4 * turn - 2) * tc,
        2 * turn * x - x - w + 4 * turn * tc,
        fill_i - 2 * w + 4 * turn * tc,
        f + 2 * turn * x - 2 * x - w + 4 * turn * tc,
        f + 2 * turn * x - x - 3 * w + (4 * turn + 2) * tc,
        (turn - 1) * (f + x) + 2 * turn * tc,
        fill_f / 2 + turn * tc,
        (fill_f + fill_i) / 2 - 2 * w + 2 * turn * tc,
        fill_f / 2 + f + (turn - 2) * x - w + 2 * turn * tc,
        fill_f / 2 + f + (turn - 1) * x - 3 * w + 2 * p * tc,
        fill_f - turn * (x + w) + 2 * turn * tc,
        fill_f - x - (2 * turn - 1) * w + (4 * turn - 2) * tc,
        fill_f - (2 * turn + 1) * w + 4 * turn * tc,
    )
    is_long, is_short = _is_positive(m - 2 * turn), _is_positive(p - m + 1)
    alive = minimum(m, 2 * p - 1 - i) * _positive(1 - j) + minimum(m, i + 1) * minimum(j, 1)
    return _schedule(
        "zbv",
        "two chunks a rank in the shape of a V, weight gradients apart: the memory of 1F1B without its bubble",
        "Pipeline Parallelism with Controllable Memory (arXiv 2405.15362), ZB-V; torch.distributed.pipelining ScheduleZBVZeroBubble",
        is_long * long + is_short * short + (1 - is_long - is_short) * between,
        minimum(m, 2 * p - 1 - i) + minimum(m, i + 1),
        alive,
        requires=(_PIPE, (maximum(m - 2 * p + 1, p + 1 - m), "num_microbatches of 2*pp - 1 or more, or of pp + 1 or fewer")),
        exact_while=tuple((part / 2 - 2 * tc, f"two messages take no longer than the {name} of a chunk") for part, name in _PARTS),
        splits_backward=True,
        chunks=2,
        placement="v",
    )


def _v_of_pairs(ranks: Expr, count: Expr, f: Expr, x: Expr, w: Expr, pair: Expr, sum_f: Expr, fill_x: Expr, middle: int) -> Expr:
    """The makespan of `count` micro-batches through a V over `ranks` ranks, forward of one beside backward of another.

    middle: messages at the bottom of the V, 0 where the last rank holds both chunks there and 1 where it has a mirrored peer.
    """
    boundaries = ranks - 1
    round_trips = (1 + (1 - middle)) * floor((((1 + middle) * ranks - 1) * (count - 2 * ranks) + 1) / ranks)
    messages = (5 + middle) * boundaries - 2 + 4 * middle + round_trips
    steady = (2 * count - ranks - 2) * pair + messages * tc
    ends = 2 * sum_f + (ranks + 2) * x + 3 * w
    return steady + ends + boundaries * maximum(w, x + tc) + maximum(sum_f, fill_x + (2 - middle) * boundaries * tc)


def _pair_times(message: Expr) -> tuple[Condition, ...]:
    """Of pairs, a message being so many seconds in the units of tf."""
    return (
        (tfb - tf, "a pair takes no less than its forward"),
        (tfb - tir - tw - 2 * message, "a pair outlasts its backward by two messages"),
        (tf + tir + tw - tfb, "a pair takes no more than its parts"),
        (maximum(tir - tf, -message), "an input gradient takes no less than a forward, where messages take time"),
        *((part - 2 * message, f"two messages take no longer than the {name} of a chunk") for part, name in _PARTS),
    )


def _dualpipev() -> Schedule:
    total = _v_of_pairs(p, m, tf / 2, tir / 2, tw / 2, tfb / 2, sum_tf / 2, fill_i / 2, middle=0)
    return _schedule(
        "dualpipev",
        "DualPipe folded: two chunks a rank in the shape of a V, forward of one micro-batch beside backward of another",
        "DualPipeV (deepseek-ai/DualPipe); torch.distributed.pipelining ScheduleDualPipeV",
        total - WORK,
        2 * p + 1,
        (2 * p - i) * _positive(1 - j) + (i + 1) * minimum(j, 1),
        requires=(_PIPE, (m - 2 * p, "num_microbatches of 2*pp or more")),
        exact_while=_pair_times(2 * tc),
        splits_backward=True,
        pairs=True,
        chunks=2,
        placement="v",
    )


def _dualpipe() -> Schedule:
    # two mirrored halves of pp/2 ranks, each a V for half of the micro-batches; a chunk is a whole stage
    half = p / 2
    total = _v_of_pairs(half, m / 2, tf, tir, tw, tfb, sum_tf / 2, sum_tir / 2 - tir, middle=1)
    from_end = minimum(i, p - 1 - i)
    return _schedule(
        "dualpipe",
        "micro-batches from both ends of the pipe, two stages a rank, forward of one micro-batch beside backward of another",
        "DeepSeek-V3 (arXiv 2412.19437) section 3.2.1 and Table 2; deepseek-ai/DualPipe",
        total - WORK,
        p + 1,
        (p - from_end) * _positive(1 - j) + (from_end + 1) * minimum(j, 1),
        weights=2 * ONE,
        requires=(
            (p - 4, "pp of 4 or more"),
            (2 * floor(p / 2) - p, "an even pp"),
            (2 * floor(m / 2) - m, "an even num_microbatches"),
            (m - 2 * p, "num_microbatches of 2*pp or more"),
        ),
        exact_while=_pair_times(tc),
        splits_backward=True,
        pairs=True,
        placement="mirrored",
    )


# Merak sends and receives in one blocking exchange with the neighbour, so every one stands in the way
_SHORT_EXCHANGES: tuple[Condition, ...] = (
    (tf - 2 * tc, "two exchanges take no longer than a forward"),
    (ti + tw - 2 * tc, "two exchanges take no longer than a backward"),
)
_DEEPER = minimum(1, p - 2)
_EXCHANGES = 2 * (p - 1) + (m - 1) + _DEEPER * _positive(m - 2)
_HOISTED = fill_f + (sum_ti + sum_tw) - (ti + tw) + _EXCHANGES * tc
# a hoisted recompute as long as the forwards that it runs beside, or longer
_LONGER_RECOMPUTE = maximum(0, (p - 1) * (tr - tf), _DEEPER * (maximum(tr - tf, (p - 2) * (tr - tf)) + tc))
_BEFORE_LAST = _positive(minimum(i - p + 3, p - 1 - i))


def _ds_default() -> Schedule:
    exchanges = 2 * (p - 1) + 2 * (m - 1) + 2 * _DEEPER * _positive(m - 2)
    return _schedule(
        "ds_default",
        "1F1B by the step clock of DeepSpeed, every send and receive a blocking call of its own",
        f"DeepSpeed runtime/pipe/schedule.py TrainSchedule; {_MERAK}:75-183",
        fill_f + fill_b - symbol("t_place") + exchanges * tc,
        minimum(m, p - i),
        requires=(_PIPE,),
        exact_while=_SHORT_EXCHANGES,
    )


def _merak_1f1b() -> Schedule:
    return _schedule(
        "merak_1f1b",
        "ds_default with the send and the receive of a step merged",
        f"{_MERAK}:185-254",
        fill_f + fill_b - symbol("t_place") + _EXCHANGES * tc,
        minimum(m, p - i),
        requires=(_PIPE,),
        exact_while=_SHORT_EXCHANGES,
    )


def _pre_recompute() -> Schedule:
    return _schedule(
        "pre_recompute_1f1b",
        "merak_1f1b whose last pp - 1 - i recomputes on rank i run while the gradient is still on its way",
        f"{_MERAK}:256-331",
        _HOISTED + _LONGER_RECOMPUTE,
        minimum(m, p - i),
        whole=minimum(1, p - 1 - i),
        requires=(_PIPE, (m - p, "num_microbatches of pp or more")),
        exact_while=_SHORT_EXCHANGES,
    )


def _last_no_recompute() -> Schedule:
    return _schedule(
        "last_no_recompute_1f1b",
        "pre_recompute_1f1b without recompute on the last rank, and the first recompute of the rank before it ahead of its gradient",
        f"{_MERAK}:334-430",
        _HOISTED + _LONGER_RECOMPUTE - tr + tc + maximum(-tr, _DEEPER * tc - ti - tw),
        minimum(m, p - i),
        whole=ONE,
        requires=(_PIPE, (m - p, "num_microbatches of pp or more"), (m - 3, "3 micro-batches or more")),
        exact_while=_SHORT_EXCHANGES,
    )


def _shifted_critical_path() -> Schedule:
    behind = maximum(2 * (tr - tf), (p - 1) * (tr - tf))
    longer = maximum(0, minimum(p, m - 1) * (tr - tf) + _DEEPER * tc, _DEEPER * (behind + 2 * tc))
    swapped = maximum(-tr, tf - ti - tw + minimum(p - 1, 3) * _DEEPER * tc)
    return _schedule(
        "shifted_critical_path",
        "last_no_recompute_1f1b whose rank before the last runs a third forward ahead of its first backward",
        f"{_MERAK}:432-589",
        _HOISTED + longer + swapped - 2 * tr + (2 - _DEEPER) * tc,
        minimum(m, p - i) + _BEFORE_LAST,
        whole=ONE,
        requires=(_PIPE, (m - p, "num_microbatches of pp or more"), (m - 4, "4 micro-batches or more")),
        exact_while=_SHORT_EXCHANGES,
    )


SCHEDULES: dict[str, Schedule] = {
    s.name: s
    for s in (
        _gpipe(),
        _1f1b(),
        _interleaved(),
        _looped_bfs(),
        _zb_h1(),
        _zb_h2(),
        _interleaved_zb(),
        _zbv(),
        _dualpipe(),
        _dualpipev(),
        _ds_default(),
        _merak_1f1b(),
        _pre_recompute(),
        _last_no_recompute(),
        _shifted_critical_path(),
    )
}


def schedule_of(strategy: Strategy) -> Schedule:
    """The schedule that `strategy` names; 1f1b with vpp above 1 is interleaved, as in Megatron-Core."""
    name = "interleaved" if strategy.schedule == "1f1b" and strategy.vpp > 1 else strategy.schedule
    return SCHEDULES[name]


def schedule_sizes(strategy: Strategy) -> dict[str, Number]:
    """The sizes that a schedule's closed forms take from a strategy: pp, vpp, m and group.

    The group is pp by default (Megatron-Core); PyTorch's interleaved_zb divides the micro-batches into m // pp equal rounds.
    """
    group_size = strategy.microbatch_group_size_per_vp_stage or strategy.pp
    if strategy.schedule == "interleaved_zb" and strategy.microbatch_group_size_per_vp_stage is None:
        group_size = strategy.microbatches // max(1, strategy.microbatches // strategy.pp)
    return {"pp": strategy.pp, "vpp": strategy.vpp, "m": strategy.microbatches, "group": group_size}


def check_schedule(strategy: Strategy) -> None:
    """InputError with the reason when the schedule of `strategy` cannot run with its stages, chunks and micro-batches."""
    schedule, sizes = schedule_of(strategy), schedule_sizes(strategy)
    if strategy.schedule not in ("1f1b", "gpipe") and strategy.pp == 1:
        raise InputError(f"schedule={strategy.schedule} needs pp above 1")
    if schedule.chunks != "any" and strategy.vpp != schedule.chunks:
        raise InputError(f"schedule={strategy.schedule} needs vpp={schedule.chunks}, not vpp={strategy.vpp}")
    for condition, words in schedule.requires:
        if condition.evaluate(sizes) < 0:
            given = ", ".join(f"{label}={sizes[key]}" for label, key in (("pp", "pp"), ("num_microbatches", "m")))
            grouped = f", microbatch_group_size_per_vp_stage={sizes['group']}" if schedule.chunks == "any" else ""
            raise InputError(f"schedule={schedule.name} needs {words}; it has {given}{grouped}")
