"""Bytes that the micro-batches in flight hold on one rank of stage i: at the worst kernel of each block, and saved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from symsim.algebra.expr import ONE, ZERO, Expr, maximum, symbol
from symsim.algebra.key import layers, of_block, of_stage
from symsim.algebra.kinds import DEPTH, EMBEDDING, HEAD, in_words
from symsim.algebra.quantity import BYTE, NONE, Quantity
from symsim.cost.compiled_update import of_compiled_update
from symsim.cost.count import label
from symsim.cost.deferred import deferred, define_waiting
from symsim.cost.memory_rank import LIVENESS, Rank, ahead, away, define_away, define_stage, saved_layers, stream, total
from symsim.cost.mirrored import of_other
from symsim.cost.repeated import kept_whole
from symsim.cost.workspace import Delayed, Moment, backward_moments, forward_moments
from symsim.inputs.strategy import Strategy
from symsim.inputs.traced import once
from symsim.lowering.remember import Remembered
from symsim.pipeline.schedules import schedule_of
from symsim.pipeline.stages import layers_before, runs


class Activations(NamedTuple):
    """Saved bytes of the earlier micro-batches in flight, of the last, and of all; host, moved: bytes on the host, and
    of a micro-batch over its link in one direction, where any."""

    earlier: Expr
    own: Expr
    all: Expr
    host: Expr | None
    moved: Expr | None


def in_flight(strategy: Strategy) -> Expr:
    """Micro-batches whose activations stage i holds at once; a chunk of a virtual stage counts for its share."""
    return schedule_of(strategy).in_flight / (symbol("vpp") if strategy.vpp > 1 else 1)


@once
def define_workspaces(rank: Rank) -> None:
    """W_fwd_* and W_bwd_*: what each block holds at its worst kernel, its own saved tensors included."""
    variants = [(n, False, b) for n, b in rank.lowered.blocks.items()] + [(n, True, b) for n, b in rank.lowered.checkpointed.items()]
    for name, again, remembered in variants:
        _workspaces_of(rank, name, again, remembered)


@once
def _workspaces_of(rank: Rank, name: str, again: bool, remembered: Remembered) -> None:
    op_by_op = rank.framework.op_by_op
    called = name in rank.model.layer_kinds
    forward = forward_moments(
        remembered, returns_logits=rank.framework.returns_logits, op_by_op=op_by_op, called=called, cached=rank.strategy.autocast
    )
    delayed: Delayed = "all" if rank.strategy.delay_wgrad_compute else ""
    delayed = "experts" if rank.strategy.overlap_dispatch_backward_with_experts_wgrad else delayed
    # shards wait for the reduction of a layer, which frees more than their update takes; the embedding's update ends backward (memory_static)
    in_turn = rank.strategy.optimizer_in_bwd and rank.strategy.zero < 3 and name != EMBEDDING
    backward = backward_moments(
        remembered,
        keep_gathered=rank.framework.keeps_gathered,
        whole=again,
        into_main_gradient=rank.framework.placeholders,
        delayed=delayed,
        op_by_op=op_by_op,
        updated=of_compiled_update(rank.strategy, rank.assume) if in_turn else None,
    )
    words = in_words(name) + (", recomputed in full" if again else "")
    title = label(f"{name}_ckpt" if again else name)
    for phase, short, found in (("forward", "fwd", forward), ("backward", "bwd", backward)):
        rank.book.define(
            of_block("W", name, again, phase=phase),
            Quantity(maximum(*(_held_at(rank, m) for m in found)) if found else ZERO, BYTE),
            f"{words}: bytes at the worst kernel of {phase} ({_kernels(found)})",
            unit=BYTE,
            latex=rf"W^{{\mathrm{{{short}}}}}_{{{title}}}",
            source=LIVENESS,
        )


def _held_at(rank: Rank, moment: Moment) -> Expr:
    """Parameter gradients stay where they are the first of a step and no buffer waits for them; else they are added at once."""
    if rank.framework.main_gradients:
        return moment.activations + moment.latest
    if rank.strategy.zero == 3:
        return moment.activations + moment.gradients
    return moment.activations + moment.latest + rank.fresh * (moment.gradients - moment.latest)


@once
def define_activations(rank: Rank) -> Activations:
    """Defines the saved activations of the micro-batches in flight."""
    alive = rank.book.define(
        of_stage("alive_i"),
        Quantity(in_flight(rank.strategy), NONE),
        "micro-batches whose activations stage i holds at once",
        unit=NONE,
        latex=r"n^{(i)}",
        source=rank.schedule.source,
    ).expr
    of_head = of_block("A", HEAD).expr * symbol("loss_i")
    of_depths, depths_alive = _last_chunk(rank)
    define_away(rank)
    waiting = total(away(rank, k) * layers(k).expr for k in rank.model.kind_names())
    saved = of_stage("A").expr + _sent(rank) + _come(rank) - waiting
    offloaded = _offloaded_layers(rank)
    earlier = define_stage(
        rank,
        of_stage("M", "earlier"),
        _in_flight_besides(rank, alive, saved - of_head - of_depths)
        + (rank.schedule.at_head - 1) * of_head
        + (depths_alive - 1) * of_depths
        + (rank.schedule.whole + kept_whole(rank.strategy)) * _recomputed_layers(rank)
        + _waiting(rank),
        "activations of the micro-batches whose backward is still to come",
        r"M^{(i)}_{\mathrm{earlier}}",
    )
    own, rule = saved - (ZERO if offloaded is None else offloaded), rank.lowered.profile.conventions.held.get("activations")
    activations = define_stage(
        rank,
        of_stage("M", "activations"),
        of_stage("M", "earlier").expr + own if rule is None else rule(rank.lowered),
        "saved activations of all micro-batches in flight",
        r"M^{(i)}_{\mathrm{activations}}",
    )
    if waiting:
        return Activations(earlier, own, activations, alive * waiting, waiting)
    return Activations(earlier, own, activations, offloaded, offloaded)


def _in_flight_besides(rank: Rank, alive: Expr, saved: Expr) -> Expr:
    """Of all micro-batches in flight but the last of stage i; of a rank that holds two stages, as many of each as have passed it and not
    come back: pp - i of stage i and i + 1 of the other."""
    if not rank.schedule.mirrored:
        return (alive - 1) * saved
    return (symbol("pp") - symbol("i") - 1) * saved + (symbol("i") + 1) * of_other(rank.book, rank.model, saved)


def _last_chunk(rank: Rank) -> tuple[Expr, Expr]:
    """Bytes that multi-token prediction saves of a micro-batch, and of how many at once: it is in the model's last chunk alone, which holds
    others than the mean of the rank's chunks. Zero of a rank of one chunk, whose mean it is."""
    if DEPTH not in rank.lowered.blocks or rank.strategy.vpp == 1:
        return ZERO, ONE
    return of_block("A", DEPTH).expr * symbol(runs(DEPTH)), rank.schedule.alive.substitute({"j": symbol("vpp") - 1})


def _waiting(rank: Rank) -> Expr:
    """What waits for weight gradients of the output layer, where the stage has it."""
    key = define_waiting(rank.book, rank.lowered)
    return ZERO if key is None else deferred(rank.strategy) * key.expr * symbol("loss_i")


def _recomputed_layers(rank: Rank) -> Expr:
    """What a micro-batch holds more where the schedule keeps it whole in spite of recomputation."""
    kinds = rank.lowered.checkpointed
    return total(of_block("A", k).expr * layers(k).expr - saved_layers(rank, k) for k in kinds)


def _sent(rank: Rank) -> Expr:
    """What the stage's chunks have sent on, where it is not freed then (the head sends nothing)."""
    if rank.strategy.pp == 1 or rank.strategy.deallocate_pipeline_outputs:
        return ZERO
    return stream(rank) * (symbol("vpp") - symbol("loss_i"))


def _come(rank: Rank) -> Expr:
    """What came to the stage's chunks beside the stream, which is theirs until their backward (as the stream is, which the first layer keeps); and of
    the first chunk what it has sent on so, where that is not freed then."""
    freed = symbol("first_i") if rank.strategy.deallocate_pipeline_outputs else ZERO
    return ahead(rank) * (symbol("vpp") - freed) if rank.strategy.pp > 1 and ahead(rank) else ZERO


def _offloaded_layers(rank: Rank) -> Expr | None:
    """Saved bytes of the leading layers that go to the host between forward and backward; of those that run again, their checkpoints."""
    count = rank.strategy.cpu_offloading_num_layers
    if not count:
        return None
    return sum((of_block("A", k, k in rank.lowered.checkpointed).expr * n for k, n in layers_before(rank.model, count).items()), ZERO)


def _kernels(found: Iterable[Moment]) -> str:
    return " or ".join(dict.fromkeys(m.kernel for m in found))
