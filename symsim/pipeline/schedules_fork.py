"""Schedules that the zero-bubble fork of Megatron-LM runs and nobody else: sail-sg/zero-bubble-pipeline-parallelism, scheduler/ (read 2026-11)."""

from __future__ import annotations

from symsim.algebra.expr import maximum, minimum
from symsim.pipeline.schedule import (
    PIPE,
    Schedule,
    chunk_passes,
    fill_f,
    fill_i,
    first_group,
    group,
    grouped_alive,
    i,
    last_group,
    m,
    p,
    positive,
    sum_tf,
    sum_tir,
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
