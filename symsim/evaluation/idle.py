"""Options that were given and move nothing here: said out loud, so that no key is silently without effect."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from symsim.algebra.key import of_stage
from symsim.cost.collectives import groups, inside_unit
from symsim.cost.matrices import weights_of
from symsim.errors import InputError
from symsim.evaluation.evaluated import evaluated
from symsim.evaluation.json_object import json_object
from symsim.evaluation.numbers import Evaluation
from symsim.frameworks.linear_loss import BY_PIECES, LINEAR_LOSSES
from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import ASSUMPTIONS, Remembered
from symsim.inputs.models import override_architecture
from symsim.inputs.optimizers import OPTIMIZERS
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import symbol_values
from symsim.inputs.systems import changed_system, system_document
from symsim.inputs.trained import trained
from symsim.inputs.tuning import tunes
from symsim.inputs.watched import Path, paths_read, was_read
from symsim.lowering.adapt import EXPERT_RANK
from symsim.lowering.checks import check
from symsim.pipeline.schedules import schedule_of, schedule_sizes
from symsim.pipeline.shared import groups_of_stages
from symsim.pipeline.stages import stages
from symsim.placement.sizes import values

# Options that decide when things happen, and so show in times alone
TIME_ONLY = (
    "rank_order",
    "tp_comm_overlap",
    "tp_comm_overlap_ag",
    "tp_comm_overlap_rs",
    "tp_comm_overlap_rs_dgrad",
    "tp_comm_bulk_dgrad",
    "tp_comm_bulk_wgrad",
    "tp_comm_overlap_disable_qkv",
    "tp_comm_overlap_disable_fc1",
    "tp_comm_halves",
    "overlap_grad_reduce",
    "overlap_param_gather",
    "overlap_param_gather_with_optimizer_step",
    "overlap_p2p_comm",
    "overlap_p2p_comm_warmup_flush",
    "p2p_comm",
    "batch_p2p_sync",
    "host_waits",
    "synchronize_checkpoint_boundary",
    "moe_shared_expert_overlap",
    "clip_grad",
    "allgather_bucket_size",
    "overlap_cpu_optimizer_d2h_h2d",
    "host_update",
)
# Those that show in times, and under some strategies in memory too
TIMED = (
    *TIME_ONLY,
    "ddp_bucket_size",
    "pipeline_flushes",
    "overlap_moe_expert_parallel_comm",
    "delay_wgrad_compute",
    "overlap_dispatch_backward_with_experts_wgrad",
    "ep_overlap_early_attn_memory_release",
)

# Options whose effect depends on other options or on the model. Degrees, sizes and batches always show.
CONDITIONAL = (
    "cp_comm_type",
    "cp_partition_mode",
    "zero",
    "num_distributed_optimizer_instances",
    "outer_dp_sharding_strategy",
    "expert_shard_ranks",
    "reshard_after_forward",
    "reshard_after_backward",
    "gradient_sync",
    "prefetch_bucket_size",
    "max_live_parameters",
    "max_reuse_distance",
    "param_persistence_threshold",
    "grad_reduce_in_fp32",
    "pad_buckets_for_high_nccl_busbw",
    "recompute_method",
    "recompute_num_layers",
    "recompute_layers_per_stage",
    "num_microbatches_with_partial_activation_checkpoints",
    "recompute_modules",
    "recompute_operations",
    "recompute_from_fp8",
    "activation_func_fp8_input_store",
    "fp32_residual_connection",
    "bias_activation_fusion",
    "bias_dropout_fusion",
    "masked_softmax_fusion",
    "use_fused_mhc",
    "cross_entropy_fusion",
    "cross_entropy_chunks",
    "fused_kernels",
    "fused_adapters",
    "cuda_graph_impl",
    "cuda_graph_scope",
    "use_transformer_engine_op_fuser",
    "fp8_output_proj",
    "moe_token_dispatcher_type",
    "moe_flex_dispatcher_backend",
    "moe_flex_dispatcher_num_sms",
    "moe_permute_fusion_into_hybridep",
    "moe_expert_rank_capacity_factor",
    "moe_paged_stash",
    "moe_expert_capacity_factor",
    "moe_pad_expert_input_to_capacity",
    "moe_router_padding_for_quantization",
    "moe_router_dtype",
    "moe_router_load_balancing_type",
    "moe_z_loss",
    "optimizer_rank",
    "fp32_embedding_moments",
    "local_step_clipper",
    "muon_tp_mode",
    "muon_num_ns_steps",
    "muon_split_qkv",
    "muon_fp32_matmul_prec",
    "muon_scalar_optimizer",
    "use_precision_aware_optimizer",
    "store_param_remainders",
    "main_params_dtype",
    "main_grads_dtype",
    "exp_avg_dtype",
    "exp_avg_sq_dtype",
    "optimizer_offload_fraction",
    "optimizer_offload_device",
    "offload_gradients",
    "attention_sparse_ratio",
    "deallocate_pipeline_outputs",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
    "variable_seq_lengths",
    "wgrad_deferral_limit",
    "num_labels",
    "lora_rank",
    "lora_expert_rank",
    "oft_block_size",
    "lora_dropout",
    "lora_dropout_position",
    "target_modules",
    "exclude_modules",
    "modules_to_save",
    "use_dora",
    "quantize_base",
    "quantize_experts",
    "freeze_parameters",
    "trainable_parameters",
    "trained_before",
    "fp8_wgrad",
    "schedule",
    *TIMED,
)


def idle_options(result: Evaluation) -> list[str]:
    """Given options without effect on this model under this strategy: those that nothing read, neither for the derivation nor for the output,
    and those that only decide what comes out the same (`_SAME`). The result is of a strategy that remembers (`watched`); nothing is derived
    again. Without a system, options that show in times alone are left out (`untimed_options`)."""
    given = {n: v for n, v in result.strategy.model_dump().items() if n in result.strategy.model_fields_set}
    named = [n for n in CONDITIONAL if n in given and given[n] != Strategy.model_fields[n].default and (result.system or n not in TIMED)]
    if not named:
        return []
    read = was_read(result.strategy)
    if not read.issuperset(named):
        json_object(result)
        read = was_read(result.strategy)
    return [n for n in named if (n not in read or _decides_the_same(result, n)) and _may_be_default(result, given, n)]


def acting(result: Evaluation) -> Strategy:
    """The strategy without its options that have no effect, but for those that others need. The result is of one that remembers."""
    left = result.strategy.model_dump(exclude_unset=True)
    idle = [*idle_options(result), *(["etp"] if left.get("etp") == result.strategy.tp else [])]
    for name in idle:
        without = {n: v for n, v in left.items() if n != name}
        with suppress(InputError):
            check(result.model, Strategy(**without))
            left = without
    return Strategy(**left)


def _decides_the_same(result: Evaluation, name: str) -> bool:
    """Whether what an option decides is what its default would."""
    default = result.strategy.model_copy(update={name: Strategy.model_fields[name].default})
    return name in _SAME and _SAME[name](result, default)


def _same_schedule(result: Evaluation, other: Strategy) -> bool:
    """Whether the schedule is the same; without a system, whether it holds as much."""
    if result.strategy.pp == 1 and result.strategy.microbatches == 1:
        return True
    own, there = schedule_of(result.strategy), schedule_of(other)
    alike = own is there if result.system is not None else all(getattr(own, held) == getattr(there, held) for held in _HELD)
    return alike and schedule_sizes(result.strategy) == schedule_sizes(other)


_HELD = ("in_flight", "before_input_gradients", "alive", "whole", "at_head", "weights", "pairs", "splits_backward", "chunks", "placement")


def _same_units(result: Evaluation, other: Strategy) -> bool:
    """Whether every group has as many members inside every unit of the network."""
    axes, numbers = groups(other, result.lowered.mesh, groups_of_stages(result.model, result.strategy)), result.numbers
    members, full = result.derivation.of("mu", scope="network"), result.lowered.profile.assumptions["unit_ranks"] == "full"
    return all(inside_unit(axes[d.key.axis], d.key.tier, full).evaluate(numbers) == numbers[d.symbol] for d in members)


def _in_fp32(result: Evaluation, other: Strategy) -> bool:
    return result.strategy.precision == "fp32"


def _nothing_beside_the_sum(result: Evaluation, other: Strategy) -> bool:
    """Whether a residual addition has neither a bias nor dropout before it."""
    parameters = (t for block in result.lowered.blocks.values() for t in block.placed.block.parameters())
    return not result.model.hidden_dropout and not any(t.role == "bias" for t in parameters)


def _loss_of_the_module(result: Evaluation, other: Strategy) -> bool:
    """Whether PyTorch's own loss stands behind the output layer, which has no forms."""
    named = {result.strategy.cross_entropy_fusion, other.cross_entropy_fusion}
    return result.strategy.fusion != "te" and named.isdisjoint({*LINEAR_LOSSES, *BY_PIECES, "torch"})


def _hides_nothing(what: str) -> Callable[[Evaluation, Strategy], bool]:
    """Whether all of a stage's messages of gradients, or of parameters, stay exposed, or are beside something anyhow."""
    keys = of_stage("c", what).text, of_stage("e", what).text

    def same(result: Evaluation, other: Strategy) -> bool:
        prefetched = result.strategy.zero == 3 and result.assumptions["fsdp_prefetch"] == "true" and result.strategy.expert_shard_ranks is None
        stages = (result.stage_numbers(result.stages[place]) for place in result.line.places)
        if result.strategy.zero == 2 or result.strategy.gradient_sync == "every_group":
            return False
        return prefetched or all(numbers[keys[0]] == numbers[keys[1]] for numbers in stages)

    return same


def _one_stage(result: Evaluation, other: Strategy) -> bool:
    return result.strategy.pp == 1


def _one_rank_counts(result: Evaluation, other: Strategy) -> bool:
    """Whether a rank's own counts of tokens an expert are all that its auxiliary loss is of."""
    return result.strategy.moe_router_load_balancing_type != "global_aux_loss" and result.strategy.tp == result.strategy.cp == 1


def _same_split(result: Evaluation, other: Strategy) -> bool:
    """Whether every stage has the layers that it has anyhow."""
    own, there = (stages(result.model, strategy, result.model.mtp_num_layers) for strategy in (result.strategy, other))
    return own == there


def _nothing_gathered(result: Evaluation, other: Strategy) -> bool:
    """Whether parameters lie whole where they are used."""
    return result.strategy.zero != 3


def _no_experts(result: Evaluation, other: Strategy) -> bool:
    return result.model.moe is None


def _experts_without_adapters(result: Evaluation, other: Strategy) -> bool:
    """Whether no adapter is one of experts."""
    parameters = (t for block in result.lowered.blocks.values() for t in block.placed.block.parameters())
    return not any(EXPERT_RANK in t.dims for t in parameters)


# Options that are read wherever there is what they decide, and whether that comes out as it would by default
_SAME: Mapping[str, Callable[[Evaluation, Strategy], bool]] = {
    "schedule": _same_schedule,
    "rank_order": _same_units,
    "grad_reduce_in_fp32": _in_fp32,
    "overlap_grad_reduce": _hides_nothing("grad"),
    "overlap_param_gather": _hides_nothing("param"),
    "bias_dropout_fusion": _nothing_beside_the_sum,
    "cross_entropy_fusion": _loss_of_the_module,
    "store_param_remainders": lambda result, other: not result.strategy.use_precision_aware_optimizer,
    "cp_partition_mode": lambda result, other: result.strategy.cp == 1,
    "freeze_parameters": lambda result, other: result.strategy.tuner_type != "full",
    "fp8_wgrad": lambda result, other: result.strategy.fp8 == "none",
    "gradient_sync": lambda result, other: result.strategy.zero < 2,
    "moe_router_load_balancing_type": _one_rank_counts,
    "fp32_embedding_moments": lambda result, other: not any(w.looked_up for w in weights_of(result.lowered)),
    "local_step_clipper": lambda result, other: not OPTIMIZERS[result.strategy.optimizer].local,
    "num_labels": lambda result, other: result.strategy.task_type not in ("seq_cls", "token_cls"),
    "optimizer_offload_device": lambda result, other: not result.strategy.optimizer_cpu_offload,
    "trained_before": lambda result, other: not tunes(result.strategy),
    "lora_expert_rank": _experts_without_adapters,
    **dict.fromkeys(("moe_expert_rank_capacity_factor", "quantize_experts"), _no_experts),
    **dict.fromkeys(("max_live_parameters", "max_reuse_distance", "param_persistence_threshold", "prefetch_bucket_size"), _nothing_gathered),
    **dict.fromkeys(("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"), _same_split),
    **dict.fromkeys(("deallocate_pipeline_outputs", "variable_seq_lengths"), _one_stage),
}


def _may_be_default(result: Evaluation, given: Mapping[str, Any], name: str) -> bool:
    """Whether the other options do not need this one."""
    try:
        check(result.model, Strategy(**{**given, name: Strategy.model_fields[name].default}))
    except InputError:
        return False
    return True


def untimed_options(result: Evaluation) -> list[str]:
    """Given options that would show in times, where no system is given to take times from."""
    given = result.strategy.model_fields_set if result.system is None else ()
    return [n for n in TIME_ONLY if n in given and getattr(result.strategy, n) != Strategy.model_fields[n].default]


def idle_fields(result: Evaluation, original: Architecture, changes: Mapping[Path, Any]) -> list[str]:
    """Fields of the original architecture that were changed without effect: nothing read them, neither for the derivation nor for the output,
    and no formula has the sizes that they are. The result is of an architecture that remembers (`watched`); nothing is derived again."""
    if not changes:
        return []
    json_object(result)
    read = paths_read(result.model)
    unread = [path for path in changes if read is not None and path not in read]
    changed = override_architecture(original, changes) if unread else original
    sizes = {name for d in result.derivation.definitions.values() for name in d.expr.symbols()} if unread else set()
    return [".".join(path) for path in unread if _is_idle(result, original, changed, changes, path, sizes)]


def idle_assumptions(result: Evaluation, given: Collection[str]) -> list[str]:
    """Given assumptions without effect: those that nothing read, neither for the derivation nor for the output, and those without which
    every formula is the same. The result is of assumptions that remember (`Remembered`)."""
    assumptions = result.assumptions
    # `get` is no reading of it
    named = [n for n in given if assumptions.get(n) != ASSUMPTIONS[n].default]
    if not named or not isinstance(assumptions, Remembered):
        return []
    json_object(result)
    read = set(assumptions.read)
    return [n for n in named if n not in read or _follows_without(result, n)]


def _follows_without(result: Evaluation, assumption: str) -> bool:
    """Whether all that is defined is the same with an assumption's default."""
    given = {n: v for n, v in result.assumptions.items() if n != assumption}
    other = evaluated(result.architecture, result.strategy, given, dict(result.overrides), result.system, result.lowered.profile.conventions)
    here, there = (r.derivation.definitions for r in (result, other))
    return here.keys() == there.keys() and all(d.expr == there[n].expr for n, d in here.items())


def idle_numbers(result: Evaluation, reference: str, changes: Mapping[Path, str]) -> list[str]:
    """Numbers of the system that were changed without effect: of the symbols that they are the values of, no formula has one."""
    if result.system is None or not changes:
        return []
    document, symbols = system_document(reference), {n for d in result.derivation.definitions.values() for n in d.expr.symbols()}
    values, found = symbol_values(result.system, result.strategy), []
    for path in changes:
        before = symbol_values(changed_system(document, {p: v for p, v in changes.items() if p != path}), result.strategy)
        moved = {n for n in values.keys() | before.keys() if values.get(n) != before.get(n)}
        if moved and moved.isdisjoint(symbols):
            found.append(".".join(path))
    return found


def _is_idle(
    result: Evaluation, original: Architecture, changed: Architecture, changes: Mapping[Path, Any], path: Path, sizes: Collection[str]
) -> bool:
    """Whether a change of a field that nothing read differs from what the model has, moves no size, and is not needed by the others."""
    try:
        other = override_architecture(original, {p: v for p, v in changes.items() if p != path})
        with_it, without = (trained(model, result.strategy) for model in (changed, other))
        check(without, result.strategy)
    except InputError:
        return False
    old, new = values(without, result.strategy), values(with_it, result.strategy)
    return other != changed and not any(old.get(name) != new.get(name) for name in sizes)
