"""Pipeline schedules as data: each is a row of closed forms, with no loop over ranks or micro-batches.

`schedule.py` explains a row and its symbols; the rows of two families are in files of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache

from symsim.algebra.expr import ZERO, Expr, Number, floor, maximum, minimum, symbol
from symsim.errors import InputError
from symsim.inputs.strategy import Strategy
from symsim.pipeline.flushes import flushed
from symsim.pipeline.places import T_PLACE, split_path
from symsim.pipeline.schedule import (
    PIPE,
    WORK,
    Condition,
    Schedule,
    chunk_passes,
    fill_b,
    fill_f,
    fill_i,
    first_group,
    group,
    grouped_alive,
    i,
    is_positive,
    last_group,
    m,
    p,
    positive,
    sum_tb,
    sum_tf,
    tb,
    tc,
    tf,
    ti,
    tir,
    tr,
    tw,
    v,
    with_fill,
)
from symsim.pipeline.schedules_fork import grouped_interleaved, one_forward_one_backward_v, v_half, v_min
from symsim.pipeline.schedules_merak import (
    MERGED_EXCHANGES,
    SHORT_EXCHANGES,
    SINGLE_EXCHANGES,
    ds_default,
    last_no_recompute,
    merak_1f1b,
    pre_recompute,
    shifted_critical_path,
)
from symsim.pipeline.schedules_v import dualpipe, dualpipev, zbv


def _gpipe() -> Schedule:
    return with_fill(
        "gpipe",
        "all forwards, then all backwards",
        "GPipe (arXiv 1811.06965) section 2.3; torch.distributed.pipelining ScheduleGPipe",
        fill_f + fill_b + 2 * (p - 1) * tc,
        m,
        at_head=m,
    )


# p micro-batches are under way; the round trip of each over p - 1 boundaries delays the one that follows p later
_ROUND_TRIPS = 2 * (p - 1 + floor((m - 1) * (p - 1) / p))


def _1f1b(exchanges: Expr = _ROUND_TRIPS, exact_while: tuple[Condition, ...] = ()) -> Schedule:
    """exchanges: messages that delay the pipeline."""
    return with_fill(
        "1f1b",
        "one forward, one backward, after a warm-up of pp - 1 - i forwards",
        "PipeDream-Flush (arXiv 2006.09503); Megatron-LM (arXiv 2104.04473) section 2.2.1; Megatron-Core schedules.py",
        fill_f + fill_b - symbol("t_place") + exchanges * tc,
        minimum(m, p - i),
        exact_while=exact_while,
        saved={"place": T_PLACE},
    )


_LATENCY_UNDER_A_CHUNK: tuple[Condition, ...] = (
    (tf / v - tc, "a message takes no longer than the forward of a chunk"),
    ((ti + tw + tr) / v - tc, "a message takes no longer than the backward of a chunk"),
)
_WHOLE_GROUPS: tuple[Condition, ...] = (
    (maximum(group - p, group - m), "group of pp micro-batches or more"),
    (maximum(group * floor(m / group) - m, m - group * floor(m / group) - p), "micro-batches in whole groups, or at least pp in the last one"),
)


def _waited_returns() -> Expr:
    """What returns cost where every forward of the warm-up and every backward of the flush waits for its exchange: a rank's first group of
    passes takes an exchange each, or the micro-batch is not back by then. On two ranks one exchange too many, where groups are larger."""
    rounds = (tf, sum_tf, first_group), (tb, sum_tb, last_group)
    waited = sum((maximum(sum_of / v + p * tc - ahead * of / v, first_group * tc) for of, sum_of, ahead in rounds), ZERO)
    return (v - 1) * waited


def _interleaved(waits: bool = False) -> Schedule:
    under_way = minimum(m * v, (v - 1) * first_group + 2 * (p - 1 - i) + 1)
    returns = chunk_passes(tf / v, sum_tf / v, first_group) + chunk_passes(tb / v, sum_tb / v, last_group)
    returns = _waited_returns() if waits else returns
    return with_fill(
        "interleaved",
        "1F1B over vpp chunks a rank, groups of micro-batches through one chunk after the other",
        "Megatron-LM (arXiv 2104.04473) section 2.2.2; Megatron-Core schedules.py",
        (fill_f + fill_b) / v + 2 * (p - 1) * tc + returns,
        under_way,
        grouped_alive(under_way, first_group),
        requires=(PIPE, *_WHOLE_GROUPS),
        exact_while=_LATENCY_UNDER_A_CHUNK,
        chunks="any",
    )


def _looped_bfs() -> Schedule:
    returns = chunk_passes(tf / v, sum_tf / v, m) + chunk_passes(tb / v, sum_tb / v, m)
    return with_fill(
        "looped_bfs",
        "all micro-batches through one chunk after the other, then back",
        "Breadth-First Pipeline Parallelism (arXiv 2211.05953) section 4; torch.distributed.pipelining ScheduleLoopedBFS",
        (fill_f + fill_b) / v + 2 * (p - 1) * tc + returns,
        m * v,
        m,
        requires=(PIPE,),
        chunks="any",
        at_head=m,
    )


def _h1_terms(message: Expr) -> tuple[Expr, Expr, Expr]:
    """What zb_h1 takes beyond the work of a rank, by the three paths that can be the longest."""
    ahead = minimum(m, p)
    # round trips after the first p micro-batches, which the weight gradients hide as long as they are longer
    round_trips = positive(floor((m - 1) * (p - 1) / p) - (p - 1)) * positive(2 * message - tw) if message != ZERO else ZERO
    gradients = (p - ahead) * tf + fill_i + 2 * (p - 1) * message
    forwards = fill_f + (p - ahead) * tir + (2 * (p - 1) + ahead - 3 + 2 * is_positive(m - p)) * message
    both = fill_f + fill_i - minimum(m - 1, p - 1) * tw + 2 * (p - 1 + minimum(p - 1, positive(m - 2))) * message
    return gradients, forwards + round_trips, both + round_trips


def _zb_h1() -> Schedule:
    gradients, forwards, both = _h1_terms(tc)
    barrier, unsent, is_long = maximum(gradients, forwards, both), maximum(*_h1_terms(ZERO)), is_positive(m - p + 1)
    saved = symbol("t_uneven") + symbol("t_late")
    return with_fill(
        "zb_h1",
        "1F1B with weight gradients apart, i micro-batches late on rank i: the memory of 1F1B",
        "Zero Bubble Pipeline Parallelism (arXiv 2401.10241) section 2.3, ZB-H1",
        barrier - saved,
        minimum(m, p),
        before_input_gradients=minimum(m, p - i),
        requires=(PIPE,),
        splits_backward=True,
        apart=positive(is_long * maximum(gradients, both) + (1 - is_long) * barrier - saved),
        saved={
            "uneven": is_long * (WORK + unsent - split_path(ZERO)),
            "late": is_long * (barrier - unsent - split_path(tc) + split_path(ZERO)),
        },
    )


def _zb_h2() -> Schedule:
    gradients = fill_i - (p - 1) * tf + 2 * (p - 1) * tc
    both = fill_f + fill_i - 2 * (p - 1) * tw + 2 * (p - 1) * tc
    return with_fill(
        "zb_h2",
        "zb_h1 with twice the warm-up and twice the delay of the weight gradients",
        "Zero Bubble Pipeline Parallelism (arXiv 2401.10241) section 2.3, ZB-H2",
        maximum(fill_f + (p - 1) * tc, gradients, both),
        2 * p - 1,
        before_input_gradients=2 * (p - i) - 1,
        requires=(PIPE, (m - 2 * p + 1, "num_microbatches of 2*pp - 1 or more")),
        exact_while=((tf + ti + tr - 2 * tc, "two messages take no longer than a forward and an input gradient"),),
        splits_backward=True,
        apart=positive(maximum(gradients, both)),
    )


def _interleaved_zb() -> Schedule:
    f, x, w = tf / v, tir / v, tw / v
    other_f, other_x = fill_f / v, fill_i / v
    # as many micro-batches as ranks, or more
    under_way = (v - 1) * first_group + p
    exact = 2 * (1 - minimum(1, positive(m - p)))
    gradients = other_x + 2 * (p - 1) * tc
    forwards = other_f + (3 * (p - 1) - exact) * tc
    both = other_f + other_x - (p - 1) * w + (4 * (p - 1) - exact) * tc
    many = maximum(gradients, forwards, both)
    # fewer: the gradients of a chunk return before the weight gradients of the one after it have filled the wait
    returns = (v - 1) * positive((p - m) * x - m * w + p * tc)
    few = maximum(
        other_f + (p - m) * x + (m + 2 * p - 5) * tc,
        (p - m) * (f + x + w) - w + (2 * p - 1) * tc,
        (p - m) * f + other_x + 2 * (p - 1) * tc + returns,
        other_f + other_x - (m - 1) * w + 2 * (p - 1 + positive(m - 2)) * tc + returns,
    )
    # one: forward through every chunk, back through every chunk
    late = minimum(v, p) - 1
    one = other_f + maximum(
        v * other_x - (v - 1) * w + (p * v + p - 2) * tc,
        v * other_x - late * x - (v - 1 - late) * w + (p * v + p - 2 - late) * tc,
        2 * other_x - late * x + (late - 1) * w + (3 * p - 2 - late) * tc,
    )
    is_many, is_one = is_positive(m - p + 1), minimum(1, positive(2 - m))
    fill = is_many * many + is_one * one + (1 - is_many - is_one) * few
    return with_fill(
        "interleaved_zb",
        "interleaved with weight gradients apart, i chunks late on rank i",
        "torch.distributed.pipelining ScheduleInterleavedZeroBubble, after arXiv 2401.10241",
        chunk_passes(f, sum_tf / v, first_group) + fill,
        minimum(m * v, under_way),
        grouped_alive(minimum(m * v, under_way), first_group),
        before_input_gradients=minimum(m * v, under_way - i),
        requires=(
            PIPE,
            (v - 2, "vpp above 1 (with one chunk a rank it is zb_h1)"),
            (maximum(2 * m - p - 1, 1 - m), "more micro-batches than pp/2, or one"),
            *_WHOLE_GROUPS,
        ),
        exact_while=(
            (
                w - 2 * tc - 2 * tc * is_positive(p - m),
                "two messages (four with fewer than pp micro-batches) take no longer than the weight gradients of a chunk",
            ),
            (x - 2 * tc * is_positive(p - m), "with fewer than pp micro-batches, two messages take no longer than the input gradients of a chunk"),
            *_LATENCY_UNDER_A_CHUNK,
        ),
        splits_backward=True,
        chunks="any",
    )


class _Rows(Mapping[str, Schedule]):
    """Schedules by name, each made when it is first asked for: a step has one."""

    def __init__(self, made: Mapping[str, Callable[[], Schedule]]) -> None:
        self._made = {name: cache(row) for name, row in made.items()}

    def __getitem__(self, name: str) -> Schedule:
        return self._made[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


SCHEDULES = _Rows(
    {
        "gpipe": _gpipe,
        "1f1b": _1f1b,
        "interleaved": _interleaved,
        "looped_bfs": _looped_bfs,
        "zb_h1": _zb_h1,
        "zb_h2": _zb_h2,
        "interleaved_zb": _interleaved_zb,
        "grouped_interleaved": grouped_interleaved,
        "zbv": zbv,
        "v_half": v_half,
        "v_min": v_min,
        "1f1b_v": one_forward_one_backward_v,
        "dualpipe": dualpipe,
        "dualpipev": dualpipev,
        "ds_default": ds_default,
        "merak_1f1b": merak_1f1b,
        "pre_recompute_1f1b": pre_recompute,
        "last_no_recompute_1f1b": last_no_recompute,
        "shifted_critical_path": shifted_critical_path,
    }
)

# 1f1b whose ranks stand still for a message: the orders of exchanges are those of Merak and of DeepSpeed
_BLOCKING = {"batched": MERGED_EXCHANGES, "single": SINGLE_EXCHANGES}


def schedule_of(strategy: Strategy) -> Schedule:
    """The schedule that `strategy` names, with the messages as it sends them, as often a step as it empties the pipeline; 1f1b with vpp above 1 is
    interleaved, as in Megatron-Core."""
    name = "interleaved" if strategy.schedule == "1f1b" and strategy.vpp > 1 else strategy.schedule
    exchanges = strategy.p2p_comm if name == "1f1b" and strategy.pp > 1 else ""
    waits = name == "interleaved" and strategy.overlap_p2p_comm and not strategy.overlap_p2p_comm_warmup_flush
    return _row(name, exchanges, waits, strategy.pipeline_flushes)


@cache
def _row(name: str, exchanges: str, waits: bool, times: int) -> Schedule:
    if times > 1:
        return flushed(_row(name, exchanges, waits, 1), times)
    if exchanges in _BLOCKING:
        return _1f1b(_BLOCKING[exchanges], SHORT_EXCHANGES)
    return _interleaved(waits=True) if waits else SCHEDULES[name]


def schedule_sizes(strategy: Strategy) -> dict[str, Number]:
    """The sizes that a schedule's closed forms take from a strategy: pp, vpp, m and group, which is pp by default (Megatron-Core)."""
    group = round_of(strategy, strategy.microbatches) or strategy.microbatch_group_size_per_vp_stage or strategy.pp
    return {"pp": strategy.pp, "vpp": strategy.vpp, "m": strategy.microbatches, "group": group}


def round_of(strategy: Strategy, microbatches: int) -> int | None:
    """Of PyTorch's interleaved_zb, which divides the m micro-batches of a flush into m // pp equal rounds, how many a round has; of others None."""
    if strategy.schedule != "interleaved_zb" or strategy.microbatch_group_size_per_vp_stage is not None:
        return None
    at_once = microbatches // strategy.pipeline_flushes
    return at_once // max(1, at_once // strategy.pp)


def window_of(strategy: Strategy, stage: int, microbatches: int | None = None) -> int:
    """Passes of a micro-batch through a chunk that a rank has under way at once. microbatches: by default those of the strategy."""
    held = {} if microbatches is None else {"m": microbatches}
    return int(schedule_of(strategy).in_flight.evaluate({**schedule_sizes(strategy), **held, "i": stage}))


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
            often = f", pipeline_flushes={strategy.pipeline_flushes}" if strategy.pipeline_flushes > 1 else ""
            which = f"a flush of schedule={schedule.name}" if often else f"schedule={schedule.name}"
            raise InputError(f"{which} needs {words}; it has {given}{grouped}{often}")
