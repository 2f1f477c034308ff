"""Peak memory of one rank of stage i: the bytes that stay, and the moments of a step at which more is held.

    M_stage_peak = max over moments of (weights + gradients + optimizer states + what the moment holds)

The moments are the forward of the last micro-batch in flight and its backward in each kind of layer (with what the
worst kernel holds, `cost/workspace.py`), the loss, the embedding's gradient, and the optimizer. Within a run of equal
layers memory grows or shrinks by the same amount a layer, so its ends are enough.
"""

from __future__ import annotations

from collections.abc import Mapping

from symsim.algebra.expr import ONE, ZERO, Expr, Number, maximum, minimum, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.kinds import in_words
from symsim.algebra.quantity import BYTE, Quantity
from symsim.algebra.reductions import stages_max
from symsim.cost.count import label
from symsim.cost.memory_activations import Activations, define_activations, define_workspaces
from symsim.cost.memory_backward import beside, first_layers, forwarded, gradients_after, pairs_run, rebuilt, running_forms, runs, saved_after
from symsim.cost.memory_gathered import first_gather, gathered_parameters, parameters_of, reduction_buffer, shard_gradients
from symsim.cost.memory_rank import LIVENESS, Rank, define_stage, rank_of, rational
from symsim.cost.memory_static import MIB, Static, define_static, optimizer_temporaries
from symsim.lowering.lowered import Lowered

# CUDA context and NCCL channels, outside PyTorch's allocator
CONTEXT = {"none": 0, "cuda": 500 * MIB}

STAGE_PARTS = ("weights", "gradients", "optimizer", "activations", "transient", "peak")

HOST_PARTS = {"host": "H_stage_host", "host_link_per_step": "H_stage_link_step"}


def peak_memory(book: Derivation, lowered: Lowered) -> None:
    """Definitions of memory, all in bytes of one rank of stage i: M_stage_weights, _gradients, _optimizer, _activations,
    M_at_* for each moment, M_stage_peak and M_stage_transient; H_stage_host and H_stage_link_step where states or
    activations live on the host."""
    rank = rank_of(book, lowered)
    static = define_static(rank)
    define_workspaces(rank)
    activations = define_activations(rank)
    _define_peak(rank, static, activations, _define_moments(rank, static, activations))
    _define_host(rank, static, activations)


def moments(book: Derivation) -> dict[str, str]:
    """What each moment is, by the name of its definition."""
    return {name: d.meaning for name, d in book.definitions.items() if name.startswith("M_at_")}


def binding_moment(numbers: Mapping[str, Number]) -> str:
    """The moment at which a stage holds the most, by the name of its definition without `M_at_`."""
    return max((name for name in numbers if name.startswith("M_at_")), key=lambda name: numbers[name]).removeprefix("M_at_")


def _define_moments(rank: Rank, static: Static, activations: Activations) -> list[Expr]:
    """Defines what each moment of a step holds."""
    base = static.weights + static.optimizer + static.constant
    # PyTorch's gradients come into being in backward; Megatron-Core's buffers are always there
    held = static.gradients if rank.framework.main_gradients else static.gradients * (1 - rank.fresh)
    found: list[Expr] = []

    def at(name: str, value: Expr, meaning: str, *, present: Expr = ONE, source: str = LIVENESS, assumptions: tuple[str, ...] = ()) -> None:
        found.append(
            define_stage(
                rank,
                f"M_at_{name}",
                (base + value) * present,
                meaning,
                rf"\hat{{M}}^{{(i)}}_{{{label(name)}}}",
                source=source,
                assumptions=assumptions,
            )
        )

    others = activations.earlier + activations.own
    for plain, name in running_forms(rank):
        rest = held + others - saved_after(rank, plain, name) - symbol(f"A_{name}")
        present, last = runs(rank, plain, name), _the_last(plain, name)
        at(f"forward_{name}", rest + symbol(f"W_fwd_{name}") + gathered_parameters(rank, plain), f"forward of {last}", present=present)
        worst = rest + rebuilt(rank, plain, name) + symbol(f"W_bwd_{name}") + gradients_after(rank, plain)
        worst = worst + gathered_parameters(rank, plain, backward=True) + beside(rank, plain)
        at(f"backward_{name}", worst, f"backward of {last}", present=present)
        if rank.strategy.zero == 3 and plain in rank.model.layer_kinds:
            behind = reduction_buffer(rank, plain) + shard_gradients(rank, parameters_of(rank, plain)) - symbol(f"A_{name}")
            at(
                f"second_{name}",
                worst + behind,
                f"backward of the layer before {last}, whose gradients are reduced",
                present=minimum(1, maximum(0, symbol(f"L_{plain}_i") - 1)) * present,
                source="torch distributed/fsdp/_fully_shard",
            )
    at(
        "first_layers",
        static.gradients + activations.earlier + first_layers(rank) + pairs_run(rank) * forwarded(rank),
        "backward of the first layer and of the embedding, with all other gradients made",
    )
    if rank.strategy.zero == 3:
        at(
            "first_gather",
            held + activations.earlier + first_gather(rank),
            "parameters of the root and of the first layer as they are gathered",
            source="torch distributed/fsdp/_fully_shard",
        )
    at(
        "optimizer",
        static.gradients + optimizer_temporaries(rank),
        "the optimizer's update",
        source="torch.optim.adamw; Megatron-Core optimizer/distrib_optimizer.py (fp32 copies of gradients reduced in less)",
        assumptions=("optimizer_implementation",),
    )
    return found


def _define_peak(rank: Rank, static: Static, activations: Activations, found: list[Expr]) -> None:
    """Defines the peak over the moments, and what of it is neither kept for the step nor saved."""
    share = rational("0.94") if rank.assume["memory"] == "reserved" else ONE
    peak = define_stage(
        rank,
        "M_stage_peak",
        maximum(*found) / share + CONTEXT[rank.assume["device_context"]],
        "peak memory of one rank of stage i",
        r"M^{(i)}",
        source="the largest of the moments; reserved: SimuMax v1.2 (mem_factor 0.94)",
        assumptions=("memory", "device_context"),
    )
    rank.book.define(
        "M_peak",
        Quantity(stages_max(peak), BYTE),
        "peak memory of the rank that needs most",
        unit=BYTE,
        group="step",
        latex=r"M",
        source="the largest over stages",
    )
    steady = static.weights + static.gradients + static.optimizer + activations.all
    define_stage(
        rank,
        "M_stage_transient",
        maximum(0, peak - steady),
        "of the peak, what is neither kept for the step nor saved",
        r"M^{(i)}_{\mathrm{transient}}",
    )


def _define_host(rank: Rank, static: Static, activations: Activations) -> None:
    """Defines what the host keeps, and what passes its link a step."""
    kept, link = static.host, {} if static.link is None else {"optimizer": static.link}
    if activations.offloaded is not None:
        kept, link = (*kept, activations.offloaded), {**link, "activations": 2 * activations.offloaded * symbol("m")}
    if kept:
        define_stage(
            rank,
            "H_stage_host",
            sum(kept, ZERO),
            "bytes kept in host memory",
            r"H^{(i)}",
            source="Megatron-Core optimizer/cpu_offloading; TransformerEngine cpu_offload.py",
        )
        for what, moved in link.items():
            define_stage(
                rank,
                f"H_stage_link_{what}",
                moved,
                f"bytes of {what} over the host link a step, both ways",
                rf"H^{{(i)}}_{{\mathrm{{{what}}}}}",
                source="Megatron-Core optimizer/cpu_offloading; TransformerEngine cpu_offload.py",
            )
        define_stage(
            rank,
            "H_stage_link_step",
            sum((symbol(f"H_stage_link_{what}") for what in link), ZERO),
            "bytes over the host link a step, both ways",
            r"H^{(i)}_{\mathrm{link}}",
            source="Megatron-Core optimizer/cpu_offloading; TransformerEngine cpu_offload.py",
        )


def _the_last(plain: str, name: str) -> str:
    if plain == "head":
        return "the final norm, the logits and the loss"
    if plain == "mtp":
        return "the last multi-token prediction depth"
    return f"the last {in_words(plain)} layer" + (" that is recomputed" if name != plain else "")
