"""Schedules whose micro-batches turn at a rank or enter from both ends: ZB-V and DualPipe."""

from __future__ import annotations

from symsim.algebra.expr import ONE, Expr, floor, maximum, minimum
from symsim.pipeline.schedule import (
    PIPE,
    WORK,
    Condition,
    Schedule,
    fill_f,
    fill_i,
    i,
    is_positive,
    j,
    m,
    p,
    positive,
    sum_tf,
    sum_tir,
    tc,
    tf,
    tfb,
    tir,
    tw,
    with_fill,
)

_PARTS = ((tf, "forward"), (tir, "input gradient"), (tw, "weight gradient"))


def zbv() -> Schedule:
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
    # the same of the rank that is longest at its own operations, where it starts its next step as it ends
    own = maximum(
        fill_f - turn * (x + w) + 2 * turn * tc,
        fill_i / 2 - turn * f + (4 * turn - 2) * tc,
        fill_i - 2 * turn * w + (6 * turn - 2) * tc,
        fill_f - f + x - 2 * turn * w + (4 * turn - 2) * tc,
        x + (turn - 1) * w - turn * f + 2 * turn * tc,
        (turn - 1) * (w - f) + (2 * turn - 2) * tc,
        (turn - 1) * (f - x) + (2 * turn - 2) * tc,
        fill_f - (2 * turn + 1) * w + 4 * turn * tc,
        (fill_f + fill_i) / 2 - f + x - 2 * turn * w + (6 * turn - 2) * tc,
        (fill_f + fill_i) / 2 - (2 * turn + 1) * w + 6 * turn * tc,
        x - f + (4 * turn - 2) * tc,
        fill_f / 2 - turn * w + 4 * turn * tc,
        fill_i / 2 - turn * w + 4 * turn * tc,
        2 * turn * tc,
    )
    is_long, is_short = is_positive(m - 2 * turn), is_positive(p - m + 1)
    short, between = _short_of_v(f, x, w)
    alive = minimum(m, 2 * p - 1 - i) * positive(1 - j) + minimum(m, i + 1) * minimum(j, 1)
    barrier = is_short * short + (1 - is_long - is_short) * between
    return with_fill(
        "zbv",
        "two chunks a rank in the shape of a V, weight gradients apart: the memory of 1F1B without its bubble",
        "Pipeline Parallelism with Controllable Memory (arXiv 2405.15362), ZB-V; torch.distributed.pipelining ScheduleZBVZeroBubble",
        positive(is_long * long + barrier),
        minimum(m, 2 * p - 1 - i) + minimum(m, i + 1),
        alive,
        requires=(PIPE, (maximum(m - 2 * p + 1, p + 1 - m), "num_microbatches of 2*pp - 1 or more, or of pp + 1 or fewer")),
        exact_while=tuple((part / 2 - 2 * tc, f"two messages take no longer than the {name} of a chunk") for part, name in _PARTS),
        splits_backward=True,
        chunks=2,
        placement="v",
        apart=positive(is_long * own + barrier),
    )


def _short_of_v(f: Expr, x: Expr, w: Expr) -> tuple[Expr, Expr]:
    """The bubble of ZB-V with pp micro-batches or fewer, and with pp + 1."""
    turn = p - 1
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
    return short, between


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


def dualpipev() -> Schedule:
    total = _v_of_pairs(p, m, tf / 2, tir / 2, tw / 2, tfb / 2, sum_tf / 2, fill_i / 2, middle=0)
    return with_fill(
        "dualpipev",
        "DualPipe folded: two chunks a rank in the shape of a V, forward of one micro-batch beside backward of another",
        "DualPipeV (deepseek-ai/DualPipe); torch.distributed.pipelining ScheduleDualPipeV",
        total - WORK,
        2 * p + 1,
        (2 * p - i) * positive(1 - j) + (i + 1) * minimum(j, 1),
        requires=(PIPE, (m - 2 * p, "num_microbatches of 2*pp or more")),
        exact_while=_pair_times(2 * tc),
        splits_backward=True,
        pairs=True,
        chunks=2,
        placement="v",
    )


def dualpipe() -> Schedule:
    # two mirrored halves of pp/2 ranks, each a V for half of the micro-batches; a chunk is a whole stage
    half = p / 2
    total = _v_of_pairs(half, m / 2, tf, tir, tw, tfb, sum_tf / 2, sum_tir / 2 - tir, middle=1)
    from_end = minimum(i, p - 1 - i)
    return with_fill(
        "dualpipe",
        "micro-batches from both ends of the pipe, two stages a rank, forward of one micro-batch beside backward of another",
        "DeepSeek-V3 (arXiv 2412.19437) section 3.2.1 and Table 2; deepseek-ai/DualPipe",
        total - WORK,
        p + 1,
        (p - from_end) * positive(1 - j) + (from_end + 1) * minimum(j, 1),
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
