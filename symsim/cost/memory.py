"""Peak memory of one rank of stage i: the bytes that stay, and the moments of a step at which more is held.

    M_stage_peak = max over moments of (weights + gradients + optimizer states + what the moment holds)

The moments are the forward of the last micro-batch in flight and its backward in each kind of layer (with what the
worst kernel holds, `cost/workspace.py`), the loss, the embedding's gradient, and the optimizer. Within a run of equal
layers memory grows or shrinks by the same amount a layer, so its ends are enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from symsim.algebra.expr import ONE, ZERO, Expr, Number, maximum, minimum, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key, layers, of_block, of_stage, of_step
from symsim.algebra.kinds import EMBEDDING, in_words
from symsim.algebra.quantity import BYTE, Definition, Quantity
from symsim.algebra.reductions import stages_max
from symsim.cost.count import label
from symsim.cost.graphs import static_inputs
from symsim.cost.memory_activations import Activations, define_activations, define_workspaces
from symsim.cost.memory_autocast import held_until_end
from symsim.cost.memory_backward import (
    at_first,
    beside,
    embedded,
    first_layers,
    forwarded,
    gradients_after,
    kinds_before,
    pairs_run,
    rebuilt,
    running_forms,
    runs,
    saved_after,
    worst,
)
from symsim.cost.memory_gathered import (
    copied_out,
    first_gather,
    gathered_parameters,
    reduction_buffer,
    shard_gradients,
    trained_parameters,
    whole_gradients,
)
from symsim.cost.memory_load import loading
from symsim.cost.memory_rank import LIVENESS, Rank, away, define_stage, rank_of, rational, stream
from symsim.cost.memory_static import MIB, Static, define_static, optimizer_temporaries, reduction_buffers, summed_shards
from symsim.cost.reserve import define_reserve
from symsim.cost.states import define_scalars
from symsim.inputs.traced import once
from symsim.ir.block import WIDTHS
from symsim.ir.roles import role_of
from symsim.lowering.lowered import Lowered

_FSDP = "torch distributed/fsdp/_fully_shard"

# CUDA context and NCCL channels, outside PyTorch's allocator
CONTEXT = {"none": 0, "cuda": 500 * MIB}

STAGE_PARTS = ("weights", "gradients", "optimizer", "activations", "transient", "peak")

HOST_PARTS = {"host": of_stage("H", "host"), "host_link_per_step": of_stage("H_stage_link", "step")}


@once
def peak_memory(book: Derivation, lowered: Lowered) -> None:
    """Definitions of memory, all in bytes of one rank of stage i: M_stage_weights, _gradients, _optimizer, _activations,
    M_at_* for each moment, M_stage_peak and M_stage_transient; H_stage_host and H_stage_link_step where states or
    activations live on the host."""
    rank = rank_of(book, lowered)
    define_scalars(book, lowered)
    static = define_static(rank)
    define_workspaces(rank)
    activations = define_activations(rank)
    static = static._replace(constant=static.constant + static_inputs(rank))
    _define_peak(rank, static, activations, _define_moments(rank, static, activations))
    _define_host(rank, static, activations)
    define_reserve(rank)


def moments(book: Derivation) -> list[Definition]:
    """What a rank of stage i holds at each moment of a step."""
    return book.of("M_at")


def binding_moment(book: Derivation, numbers: Mapping[str, Number]) -> Definition:
    """The moment at which a stage of these numbers holds the most; of a stage that holds nothing the last, since it runs no block."""
    most = max(moments(book), key=lambda d: numbers[d.symbol])
    return most if numbers[most.symbol] else moments(book)[-1]


@once
def _define_moments(rank: Rank, static: Static, activations: Activations) -> list[Expr]:
    """Defines what each moment of a step holds."""
    base = static.weights + static.optimizer + static.constant
    # PyTorch's gradients come into being in backward; Megatron-Core's buffers are always there
    held = static.gradients if rank.framework.main_gradients else static.gradients * (1 - rank.fresh) + rank.fresh * summed_shards(rank)
    found: list[Expr] = []

    def at(key: Key, value: Expr, meaning: str, *, present: Expr = ONE, source: str = LIVENESS, assumptions: tuple[str, ...] = ()) -> None:
        latex = rf"\hat{{M}}^{{(i)}}_{{{label(key.rest)}}}"
        found.append(define_stage(rank, key, (base + value) * present, meaning, latex, source=source, assumptions=assumptions))

    others = activations.earlier + activations.own
    # under zero=3 they are there all the time
    buckets = ZERO if rank.strategy.zero == 3 else reduction_buffers(rank)
    for name, again in running_forms(rank):
        moment, saved = partial(Key, "M_at", "stage", name, again), of_block("A", name, again).expr
        # the layer at work has its own, and the tensors of the one beside it are on their way
        waiting = away(rank, name) * (1 + minimum(1, maximum(0, layers(name).expr - 1))) if away(rank, name) else ZERO
        rest = held + others - saved_after(rank, name, again) - saved + waiting
        present, last = runs(rank, name, again), _the_last(name, again)
        forward = rest + worst(name, again) + gathered_parameters(rank, name) + held_until_end(rank, name) + embedded(rank, name)
        at(moment(phase="forward"), forward, f"forward of {last}", present=present)
        backward = rest + rebuilt(rank, name, again) + worst(name, again, backward=True) + gradients_after(rank, name)
        backward = backward + gathered_parameters(rank, name, backward=True) + beside(rank, name) + buckets + whole_gradients(rank, name)
        at(moment(phase="backward"), backward, f"backward of {last}", present=present)
        if name in rank.model.layer_kinds and (before := kinds_before(rank, name)) and not rank.framework.main_gradients:
            front = held + activations.earlier + buckets + whole_gradients(rank, name) + at_first(rank, name, before, again)
            at(moment(phase="first"), front, f"backward of the first {in_words(name)} layer{' that is recomputed' if again else ''}", present=present)
        if rank.strategy.zero == 3 and name in rank.model.layer_kinds:
            several = minimum(1, maximum(0, layers(name).expr - 1)) * present
            behind = reduction_buffer(rank, name) + rank.fresh * shard_gradients(rank, trained_parameters(rank, name)) - saved + away(rank, name)
            meaning = f"backward of the layer before {last}, whose gradients are reduced"
            at(moment(phase="second"), backward + behind, meaning, present=several, source=_FSDP)
            if not rank.framework.main_gradients:
                gathered = embedded(rank, name) + rest + stream(rank) + copied_out(rank, name)
                at(moment(phase="gather"), gathered, f"parameters of {last} as they are gathered for forward", present=several, source=_FSDP)
    first = static.gradients + activations.earlier + first_layers(rank) + pairs_run(rank) * forwarded(rank) + buckets
    meaning = "backward of the first layer and of the embedding, with all other gradients made"
    at(of_stage("M_at", "first_layers"), first + whole_gradients(rank, EMBEDDING), meaning)
    if rank.strategy.zero == 3:
        meaning = "parameters of the root and of the first layer as they are gathered"
        at(of_stage("M_at", "first_gather"), held + activations.earlier + first_gather(rank), meaning, source=_FSDP)
        if rank.assume["fsdp_initialization"] == "device":
            whole = of_stage("P").expr * WIDTHS[rank.strategy.precision]
            meaning, latex = "parameters as they are made, before they are cut into shards", r"\hat{M}^{(i)}_{\mathrm{whole}}"
            found.append(define_stage(rank, of_stage("M_at", "whole"), whole, meaning, latex, assumptions=("fsdp_initialization",)))
    if rank.assume["checkpoint_unpacking"] == "mxfp4":
        meaning, latex = "the checkpoint's last experts as they are unpacked", r"\hat{M}^{(i)}_{\mathrm{load}}"
        source = "transformers 4.55 integrations/mxfp4.py, convert_moe_packed_tensors"
        key, assumed = of_stage("M_at", "load"), ("checkpoint_unpacking",)
        found.append(define_stage(rank, key, loading(rank), meaning, latex, source=source, assumptions=assumed))
    at(
        of_stage("M_at", "optimizer"),
        static.gradients + optimizer_temporaries(rank),
        "the optimizer's update",
        source="torch.optim.adamw; Megatron-Core optimizer/distrib_optimizer.py (fp32 copies of gradients reduced in less); TransformerEngine "
        "pytorch/optimizers/fused_adam.py, pytorch/tensor/utils.py",
        assumptions=("optimizer_implementation",),
    )
    return found


@once
def _define_peak(rank: Rank, static: Static, activations: Activations, found: list[Expr]) -> None:
    """Defines the peak over the moments, and what of it is neither kept for the step nor saved."""
    fragments = rank.assume["memory"] == "reserved" and rank.assume["allocator"] == "caching"
    share, rule = rational(str(rank.strategy.allocator_in_use)) if fragments else ONE, rank.lowered.profile.conventions.held.get("peak")
    peak = define_stage(
        rank,
        of_stage("M", "peak"),
        maximum(*found) / share + CONTEXT[rank.assume["device_context"]] if rule is None else rule(rank.lowered),
        "peak memory of one rank of stage i",
        r"M^{(i)}",
        source="the largest of the moments; reserved: SimuMax v1.2 (mem_factor)",
        assumptions=("memory", *(("allocator",) if rank.assume["memory"] == "reserved" else ()), "device_context"),
    )
    rank.book.define(
        of_step("M", "peak"),
        Quantity(stages_max(peak), BYTE),
        "peak memory of the rank that needs most",
        unit=BYTE,
        latex=r"M",
        source="the largest over stages",
    )
    steady = static.weights + static.gradients + static.optimizer + activations.all
    define_stage(
        rank,
        of_stage("M", "transient"),
        maximum(0, peak - steady),
        "of the peak, what is neither kept for the step nor saved",
        r"M^{(i)}_{\mathrm{transient}}",
    )


@once
def _define_host(rank: Rank, static: Static, activations: Activations) -> None:
    """Defines what the host keeps, and what passes its link a step."""
    kept, link = static.host, dict(static.link)
    if "drive" in link:
        meaning, source = "bytes of optimizer states read from a drive and written to it, a step", "DeepSpeed runtime/swap_tensor/optimizer_utils.py"
        define_stage(rank, of_stage("H_stage_link", "drive"), link.pop("drive"), meaning, r"H^{(i)}_{\mathrm{drive}}", source=source)
    if activations.host is not None and activations.moved is not None:
        kept, link = (*kept, activations.host), {**link, "activations": 2 * activations.moved * symbol("m")}
    if kept:
        define_stage(
            rank,
            of_stage("H", "host"),
            sum(kept, ZERO),
            "bytes kept in host memory",
            r"H^{(i)}",
            source="Megatron-Core optimizer/cpu_offloading; TransformerEngine cpu_offload.py",
        )
        for what, moved in link.items():
            define_stage(
                rank,
                of_stage("H_stage_link", what),
                moved,
                f"bytes of {what} over the host link a step{'' if what == 'parameters' else ', both ways'}",
                rf"H^{{(i)}}_{{\mathrm{{{what}}}}}",
                source="Megatron-Core optimizer/cpu_offloading; TransformerEngine cpu_offload.py",
            )
        define_stage(
            rank,
            of_stage("H_stage_link", "step"),
            sum((of_stage("H_stage_link", what).expr for what in link), ZERO),
            "bytes over the host link a step, both ways",
            r"H^{(i)}_{\mathrm{link}}",
            source="Megatron-Core optimizer/cpu_offloading; TransformerEngine cpu_offload.py",
        )


def _the_last(name: str, again: bool) -> str:
    return role_of(name).last or f"the last {in_words(name)} layer" + (" that is recomputed" if again else "")
