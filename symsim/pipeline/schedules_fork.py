"""Schedules that the zero-bubble fork of Megatron-LM runs and nobody else: sail-sg/zero-bubble-pipeline-parallelism, scheduler/ (read 2026-11)."""

from __future__ import annotations

from dataclasses import replace

from symsim.algebra.expr import Expr, Number, floor, maximum, minimum
from symsim.pipeline.schedule import (
    PIPE,
    Condition,
    Schedule,
    chunk_passes,
    fill_f,
    fill_i,
    first_group,
    group,
    grouped_alive,
    i,
    is_positive,
    j,
    last_group,
    m,
    p,
    positive,
    sum_tb,
    sum_tf,
    sum_tir,
    tb,
    tc,
    tf,
    tir,
    tw,
    v,
    with_fill,
)


def grouped_interleaved() -> Schedule:
    f, x, w = tf / v, tir / v, tw / v
    whole, missing = f + x + w, first_group - last_group
    under_way = minimum(m * v, (v - 1) * first_group + p - i)
    back = chunk_passes(f, sum_tf / v, first_group) + chunk_passes(x + w, sum_tir / v, last_group)
    return with_fill(
        "grouped_interleaved",
        "interleaved in groups of pp/2 to pp micro-batches, the first backward as early as can be, weight gradients right behind",
        "PipeOffload (arXiv 2503.01328); sail-sg/zero-bubble-pipeline-parallelism, scheduler/group_interleaved_1f1b.py",
        # where the last group is short, its forwards return while fewer of others are left to run
        (fill_f + fill_i) / v + 2 * (p - 1) * tc + back + (v - 1) * positive(missing * (f - w + 2 * tc)),
        under_way,
        grouped_alive(under_way, first_group),
        requires=(
            PIPE,
            (v - 2, "vpp above 1"),
            (minimum(2 * group - p, p - group), "groups of half as many micro-batches as stages, up to as many"),
            (maximum(m - p, group - m), "pp micro-batches or more, or one group at most"),
        ),
        exact_while=(
            (w - 2 * tc, "two messages take no longer than the weight gradients of a chunk"),
            (first_group * whole - p * (f + tc), "a forward is back from the last rank before the first has been through a group"),
            (first_group * whole - p * (x + tc), "an input gradient is back from the first rank before the last has been through a group"),
            ((p - 1) * (f + x + tc) - (p - 1 - first_group) * whole - f - tc, "the first rank makes up for its delay after its last forward"),
            (maximum(group - p, -missing, group - m), "micro-batches in whole groups, or groups of pp"),
        ),
        splits_backward=True,
        chunks="any",
    )


_GREEDY = "Pipeline Parallelism with Controllable Memory (arXiv 2405.15362); sail-sg/zero-bubble-pipeline-parallelism, scheduler/zbv_greedy.py"
_V_NEEDS: tuple[Condition, ...] = ((p - 3, "pp of 3 or more"), (m - 2 * p + 1, "num_microbatches of 2*pp - 1 or more"))
# the order is made for passes that take equally long, whatever they take
_AS_MADE: tuple[Condition, ...] = (
    (minimum(tf - tir, tir - tf), "input gradients take as long as forwards"),
    (minimum(tf - tw, tw - tf), "weight gradients take as long as forwards"),
    (-tc, "messages take no time"),
)


def _of_v(name: str, meaning: str, source: str, fill: Expr, under_way: Expr, of_first: Expr, until_input: Expr, **rest: object) -> Schedule:
    """Two chunks a rank in the shape of a V. of_first: those of under_way that are of chunk 0, which the rest of them are not of."""
    row = with_fill(
        name,
        meaning,
        source,
        positive(fill),
        under_way,
        positive(1 - j) * of_first + minimum(j, 1) * (under_way - of_first),
        before_input_gradients=until_input,
        requires=_V_NEEDS,
        exact_while=_AS_MADE,
        estimate="of equal stages within 5 % of what the order takes, and 0.4 % in the mean",
        splits_backward=True,
        chunks=2,
        placement="v",
    )
    return replace(row, **rest)  # type: ignore[arg-type]


def v_half() -> Schedule:
    f, x, w = tf / 2, tir / 2, tw / 2
    every_f, every_x = sum_tf / 2, sum_tir / 2
    # 1 of an odd number of ranks and 2 of an even one
    over = p - 2 * floor((p - 1) / 2)
    # paths that pass each micro-batch's whole work on a rank, and those that pass its forwards, or its input gradients, on two
    whole = maximum(
        2 * every_f + every_x - (3 * over + 1) * x,
        every_f - (over + 1) * f + 2 * every_x - 2 * over * x,
        3 * every_f - 2 * f + every_x - 2 * over * x - (p + over - 1) * w,
        every_f - (2 * over - 1) * f + 3 * every_x - 3 * x - (p + over - 1) * w,
    )
    forwards = m * (2 * f - 2 * x - w) + every_f - 4 * f + 3 * every_x - 2 * (over - 1) * x
    gradients = m * (2 * x - 2 * f - w) + 2 * every_f + 2 * every_x - 2 * (over + 1) * x - floor(p / 2) * w
    turns = (2 * m + 5 * p - over - 8) * tc
    each = floor(p / 2) + 1
    return _of_v(
        "v_half",
        "two chunks a rank in the shape of a V, weight gradients apart: half the memory of 1F1B",
        _GREEDY,
        maximum(whole + 6 * (p - 1) * tc, forwards + turns, gradients + turns),
        2 * each,
        maximum(2 * each - 1 - i, each + floor((p + 1 - i) / 4)),
        2 * each,
    )


def _is_rank(rank: Number) -> Expr:
    return positive(1 - maximum(i - rank, rank - i))


def _thirds() -> tuple[Expr, Expr]:
    """1 where three divide the ranks, and where they leave two over."""
    return floor(p / 3) - floor((p - 1) / 3), floor((p + 1) / 3) - floor(p / 3)


def v_min() -> Schedule:
    f, x, w = tf / 2, tir / 2, tw / 2
    every_f, every_x = sum_tf / 2, sum_tir / 2
    thirds, two = _thirds()
    # of passes that take equally long the bubble has 4 pp - 5 - 2 thirds
    whole = maximum(
        every_f + f + 3 * every_x - (4 + 2 * thirds) * x - 2 * w,
        2 * every_f - f + 2 * every_x - (2 + 2 * thirds) * x - 2 * w,
    )
    # paths of forwards, and of input gradients, go from rank to rank and have the pace of their mean
    forwards = m * (6 * every_f / p - 2 * (f + x + w)) + every_f - 8 * f + 3 * every_x - 2 * thirds * x + 3 * w
    gradients = m * (6 * every_x / p - 2 * (f + x + w)) + 2 * every_f + two * f + 2 * every_x - (6 + 2 * thirds + 2 * two) * x + (1 + two) * w
    turns = (6 - 2 / floor(p / 3)) * m + 4 * p - 10 - 2 * thirds
    each = floor((p + 4) / 3)
    fewer = two * _is_rank(0)
    few = is_positive(6 - p) * _is_rank(2)
    return _of_v(
        "v_min",
        "two chunks a rank in the shape of a V, weight gradients apart: a third of the memory of 1F1B",
        _GREEDY,
        maximum(whole + (2 * m + 4 * p - 5 - 2 * thirds) * tc, forwards + (turns - 3) * tc, gradients + turns * tc),
        2 * each - fewer,
        maximum(2 * each - 1 - i, each + floor((p + 2 - i) / 6)) - fewer + two * few,
        2 * each - two * (_is_rank(0) + _is_rank(1) + few),
    )


def one_forward_one_backward_v() -> Schedule:
    f, b = tf / 2, tb / 2
    every_f, every_b = sum_tf / 2, sum_tb / 2
    thirds, two = _thirds()
    # 1 of 3, 5, 6 and 9 ranks, whose pattern bends less where backwards are short
    few = thirds * is_positive(10 - p) + two * is_positive(6 - p)
    ends = positive(p - 1 - 2 * two - 3 * thirds)
    whole = (every_f - (p - ends) * f) + 2 * (every_b - b)
    # of backwards twice as long as forwards the bubble is the same
    short = (7 - 2 * few) * p / 2
    forwards = m * ((6 - 2 * few) * every_f / p - 2 * f - (2 - few) * b) + (ends + 4 * (p - 1) - 2 * short) * f + short * b
    each = floor((2 * p + 3) / 3)
    return _of_v(
        "1f1b_v",
        "two chunks a rank in the shape of a V, backwards whole: two thirds of the memory of 1F1B",
        _GREEDY.replace("zbv_greedy", "v1f1b"),
        maximum(whole + (2 * m + 4 * p - 8) * tc, forwards + ((1 - few) * (6 - 2 / floor(p / 3)) + 2 * few) * m * tc),
        2 * each,
        maximum(2 * each - 1 - i - floor(i / 2), each + is_positive(p - i - 3)),
        2 * each,
        exact_while=((-tf, "an order that has an exact form"),),
        estimate="of equal stages within 2 % of what the order takes where a backward is twice a forward or more, else within 8 %",
        splits_backward=False,
    )
