"""LLaMA-Factory's trainers of Megatron-Core (USE_MCA=1, or Megatron-Bridge's): its own arguments of batch and length, Megatron-Core's of all else.

Names and defaults: ROLL's mcore_adapter (2026-08), training_args.py DistributingParallelArguments and MegatronArguments, trainer/trainer.py;
LLaMA-Factory ff6d4d12 train/mca, hparams/megatron_bridge_args.py MegatronBridgeArguments, train/megatron_bridge/config_builder.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from symsim.importers.keys import Entry, Given, Keys
from symsim.importers.megatron.handed import handed
from symsim.importers.megatron.source import Source, put_field
from symsim.importers.ranks import spread
from symsim.importers.rules import states_on_host

if TYPE_CHECKING:
    from symsim.importers.reading import Options
    from symsim.inputs.architecture import Architecture

HANDED = """tensor_model_parallel_size pipeline_model_parallel_size virtual_pipeline_model_parallel_size expert_model_parallel_size
    expert_tensor_parallel_size context_parallel_size sequence_parallel account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split
    pipeline_model_parallel_layout overlap_p2p_comm variable_seq_lengths recompute_granularity recompute_method recompute_modules
    recompute_num_layers bias_activation_fusion apply_rope_fusion cross_entropy_loss_fusion moe_layer_recompute moe_token_dispatcher_type
    moe_aux_loss_coeff moe_grouped_gemm moe_expert_capacity_factor moe_pad_expert_input_to_capacity moe_token_drop_policy
    moe_shared_expert_overlap moe_router_dtype calculate_per_token_loss transformer_impl cuda_graph_impl cuda_graph_scope fp8_recipe fp8_param
    fp8 accumulate_allreduce_grads_in_fp32 use_distributed_optimizer overlap_grad_reduce overlap_param_gather ddp_average_in_collective
    ddp_bucket_size optimizer optimizer_cpu_offload optimizer_offload_fraction attention_backend masked_softmax_fusion mixed_precision""".split()
_DEGREES = HANDED[:6]
_DEFAULTS: dict[str, Any] = {
    "expert_tensor_parallel_size": 1,
    "moe_token_dispatcher_type": "allgather",
    "overlap_p2p_comm": True,
    "accumulate_allreduce_grads_in_fp32": False,
}
# which of the two a file is for
_BRIDGE = ("mixed_precision", "use_packed_sequences", "megatron_pretrained_checkpoint", "export_hf_on_finish", "extra_config")
_DEFAULTS_OF_BRIDGE: dict[str, Any] = {
    "use_distributed_optimizer": True,
    "overlap_grad_reduce": True,
    "overlap_param_gather": True,
    "accumulate_allreduce_grads_in_fp32": True,
}
_OTHERS = "optim flash_attn disable_gradient_checkpointing enable_liger_kernel use_unsloth_gc upcast_layernorm".split()
_EARLIER, _BRIDGES = "mcore_adapter's defaults", "Megatron-Bridge's defaults there"


def asked(keys: Keys) -> bool:
    """Whether the file is for that trainer: LLaMA-Factory's other ones have no degrees by these names."""
    return any(name in keys.given for name in _DEGREES)


def of_megatron(
    keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], architecture: "Architecture | None", options: "Options"
) -> list[Entry]:
    """Set what Megatron-Core runs, and return the rows of its arguments. InputError for a value that cannot be."""
    source, given = Source(dialect="recipe"), frozenset(keys.given)
    for name in HANDED:
        one = keys.given.get(name)
        keys.known.add(name)
        if one is not None and one.value is not None:
            put_field(source, name, name, one.value, one.where)
    # of what waits on the host, which is nothing by default
    share = {"optimizer_offload_fraction": 0.0} if "optimizer_cpu_offload" in given else {}
    bridged = any(name in given for name in _BRIDGE)
    for name, value in {**(_DEFAULTS_OF_BRIDGE if bridged else _DEFAULTS), **share}.items():
        if not any(argument == name for _, _, argument in source.written):
            put_field(source, name, name, value, _BRIDGES if bridged else _EARLIER)
    source.given["bf16"] = Given(strategy["precision"] == "bf16", _EARLIER)
    strategy.pop("fusion", None)
    strategy["clip_grad"] = keys.number("max_grad_norm", 1.0, to="clip_grad")
    for name in _OTHERS:
        if name in keys.given:
            keys.note(name, "no_cost_effect", why="read by LLaMA-Factory's other trainers")
    rows = handed(keys, source, strategy, assumptions, architecture)
    states_on_host(keys, strategy)
    spread(keys, options, strategy)
    own = {key for key, _, _ in source.written if key not in given}
    return [replace(row, value="(default)", fate="derived" if row.fate == "mapped" else row.fate) if row.key in own else row for row in rows]
