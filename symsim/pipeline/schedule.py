"""What every pipeline schedule is written with: the row of closed forms, and the symbols in them.

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
    t_uneven, t_late  what stages that differ save in zb_h1 of work, and of messages, zero where they are equal

A micro-batch passes pp * vpp chunks; a chunk of the slowest rank takes tf / vpp. In dualpipe a rank holds one stage
of each direction and a micro-batch passes one of the two, so there tf is one stage.

The makespan lasts from the first forward to the end of the last backward of any rank. With equal stages (sum_tf = pp*tf
and so on) it is exact: the tests compare it with the written-out order of operations replayed in time
(`symsim.pipeline.orders`), and with orders of PyTorch, Megatron-Core and Merak. With unequal stages the slowest rank
keeps the pace and the others fill and drain the pipe, which is an estimate whose error the tests measure. Where the others are so short that less
than nothing would be left for them, the slowest rank's own work is the makespan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from symsim.algebra.expr import ONE, ZERO, Expr, Number, ceil, maximum, minimum, symbol

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
    model (mirrored). exact_while: where the makespan is exact for equal stages; elsewhere it may be low. apart: the bubble where
    no barrier ends the step (assumption step_barrier), of the rank that is longest at its own operations; the bubble itself
    where rank 0 is the first to begin and the last to end, or where no form is known. at_head: micro-batches that the last chunk of the
    model holds at once from the start of a forward to the end of its input gradients: what the output head keeps is held of each. saved: what
    t_place and its like are over the seconds of each stage, by what follows `t_`. estimate: how far the makespan is off where it is
    not exact, if it may be too long there as well as too short.
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
    apart: Expr = ZERO
    at_head: Expr = ONE
    saved: Mapping[str, Expr] = field(default_factory=dict)
    estimate: str = ""

    @property
    def mirrored(self) -> bool:
        """Whether a rank holds two stages, i and pp - 1 - i."""
        return self.placement == "mirrored"

    @property
    def without_barrier(self) -> Schedule:
        """The schedule of steps that follow each other on every rank as soon as it is free: the time from one to the next."""
        return replace(self, makespan=WORK + self.apart, bubble=self.apart)


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


def positive(value: Expr | Number) -> Expr:
    return maximum(0, value)


def is_positive(value: Expr) -> Expr:
    """1 where an integer expression is above zero, else 0."""
    return minimum(1, positive(value))


def with_fill(name: str, meaning: str, source: str, fill: Expr, in_flight: Expr, alive: Expr | None = None, **rest: object) -> Schedule:
    """A schedule whose makespan is the work of the slowest rank and `fill`."""
    alike = {"before_input_gradients": in_flight, "alive": in_flight if alive is None else alive, "apart": fill}
    return replace(Schedule(name, meaning, source, WORK + fill, fill, in_flight, **alike), **rest)  # type: ignore[arg-type]


def chunk_passes(chunk: Expr, sum_chunk: Expr, ahead: Expr) -> Expr:
    """What the v - 1 returns from the last rank to the first cost when `ahead` micro-batches are shorter than a round."""
    return (v - 1) * positive(sum_chunk + p * tc - ahead * chunk)


def grouped_alive(total: Expr, size: Expr) -> Expr:
    """Of `total` forwards in the interleaved order, those of chunk j."""
    return minimum(size, positive(total - j * size)) + positive(1 - j) * positive(total - v * size)


PIPE: Condition = (p - 2, "pp above 1")
