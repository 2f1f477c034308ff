"""What travels beside computation, and in what order ranks lie, refused with the reason where it cannot.

The rules are those of Megatron-Core transformer/transformer_config.py and megatron/training/arguments.py, as in `checks.py`.
"""

from __future__ import annotations

from symsim.errors import InputError
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy
from symsim.inputs.trained import depths


def overlap(architecture: Architecture, strategy: Strategy) -> None:
    """InputError for messages that do not travel beside computation as asked."""
    if sorted(strategy.rank_order.split("-")) != ["cp", "dp", "ep", "pp", "tp"]:
        raise InputError(f"rank_order={strategy.rank_order} should name each of tp, cp, ep, dp and pp once, such as tp-cp-ep-dp-pp")
    if strategy.overlap_p2p_comm and strategy.vpp == 1:
        raise InputError("overlap_p2p_comm works with interleaved stages only; give vpp=2 or more")
    if strategy.tp_comm_overlap and not strategy.sp:
        raise InputError("tp_comm_overlap cuts the gathers and scatters of sequence parallelism; give sp=true")
    if strategy.tp_comm_halves != "none" and (strategy.sp or strategy.micro_batch_size % 2):
        what = (
            "an all-reduce, and with sp=true there is none" if strategy.sp else f"a micro-batch, and micro_batch_size is {strategy.micro_batch_size}"
        )
        raise InputError(f"tp_comm_halves={strategy.tp_comm_halves} cuts {what}")
    if strategy.overlap_param_gather and not (strategy.overlap_grad_reduce and strategy.zero):
        raise InputError("overlap_param_gather needs overlap_grad_reduce=true and a distributed optimizer (zero=1 or more)")
    if strategy.overlap_param_gather_with_optimizer_step and not (strategy.overlap_param_gather and strategy.vpp > 1 and strategy.zero < 3):
        raise InputError("overlap_param_gather_with_optimizer_step needs overlap_param_gather=true, vpp=2 or more, and zero=1 or 2")
    exchanged = strategy.moe_token_dispatcher_type != "allgather"
    if strategy.moe_shared_expert_overlap:
        if architecture.moe is None or not architecture.moe.moe_shared_expert_intermediate_size:
            raise InputError(f"moe_shared_expert_overlap: {architecture.name} has no shared experts")
        if not exchanged:
            raise InputError("moe_shared_expert_overlap needs moe_token_dispatcher_type=alltoall")
    if strategy.overlap_moe_expert_parallel_comm:
        if strategy.ep == 1 or not exchanged:
            needed = "ep=2 or more and moe_token_dispatcher_type=alltoall"
            raise InputError(f"overlap_moe_expert_parallel_comm hides an all-to-all over experts; give {needed}")
        if strategy.moe_shared_expert_overlap:
            raise InputError("overlap_moe_expert_parallel_comm and moe_shared_expert_overlap hide the same messages; give one of them")
        if strategy.recompute == "full":
            raise InputError("overlap_moe_expert_parallel_comm does not run with recompute=full")
        _two_microbatches(architecture, strategy)
    if strategy.overlap_dispatch_backward_with_experts_wgrad:
        if strategy.ep == 1 or not exchanged:
            needed = "ep=2 or more and moe_token_dispatcher_type=alltoall"
            raise InputError(f"overlap_dispatch_backward_with_experts_wgrad hides an all-to-all over experts; give {needed}")
        if strategy.overlap_moe_expert_parallel_comm or strategy.moe_shared_expert_overlap:
            other = "overlap_moe_expert_parallel_comm" if strategy.overlap_moe_expert_parallel_comm else "moe_shared_expert_overlap"
            raise InputError(f"overlap_dispatch_backward_with_experts_wgrad and {other} hide the same message; give one of them")
    if strategy.ep_overlap_early_attn_memory_release and not strategy.overlap_moe_expert_parallel_comm:
        raise InputError("ep_overlap_early_attn_memory_release needs overlap_moe_expert_parallel_comm=true")
    if strategy.delay_wgrad_compute and not strategy.overlap_moe_expert_parallel_comm:
        raise InputError("delay_wgrad_compute needs overlap_moe_expert_parallel_comm=true")


def _two_microbatches(architecture: Architecture, strategy: Strategy) -> None:
    """What Megatron-Core does not cut into a forward and a backward side by side (transformer_config.py:3002); schedules that it has not, and
    other frameworks, pair micro-batches by rules of their own."""
    if strategy.fusion != "te" or strategy.schedule not in ("1f1b", "interleaved"):
        return
    name = "overlap_moe_expert_parallel_comm"
    if strategy.pp > 1 and strategy.vpp == 1:
        raise InputError(
            f"{name} with pp={strategy.pp} needs virtual stages: of one chunk a rank no two micro-batches meet; give vpp=2 or more, or pp=1"
        )
    if strategy.recompute == "selective" and strategy.recompute_operations is None and "moe" in strategy.recompute_modules:
        raise InputError(f"{name} does not run with recompute_modules=moe, which holds the exchanges; give moe_act, or drop one of the two")
    trained = depths(architecture, strategy.mtp_num_layers)
    if trained > 1:
        raise InputError(f"{name} works with one depth of multi-token prediction at most, and {trained} are trained; give mtp_num_layers=1 or 0")
    if strategy.precision == "fp32":
        raise InputError(f"{name} needs precision=bf16 or fp16")
    graphed = [module for module in strategy.cuda_graph_scope if module in ("moe", "mlp")]
    if strategy.cuda_graph_impl == "transformer_engine" and graphed:
        raise InputError(f"{name} does not run with cuda_graph_scope={graphed[0]}, which it cuts; give moe_router or attn")
