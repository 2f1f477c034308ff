"""Megatron-DeepSpeed, Megatron-LM on DeepSpeed's engine: its arguments in Megatron-LM's words, and what the engine runs.

Read: deepspeedai/Megatron-DeepSpeed 4efb479 (megatron/arguments.py, model/gpt_model.py, model/transformer.py get_num_experts_per_layer), and
BigScience's of BLOOM, 007719a (megatron/arguments.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError
from symsim.importers.deepspeed.reader import of_settings
from symsim.importers.deepspeed.tables import WHOLE
from symsim.importers.keys import Entry, Given, Keys, Silent, Unresolved, natural, shown, silent
from symsim.importers.megatron.source import Source
from symsim.importers.rules import split_sequence, uneven_stages
from symsim.importers.sections import of_sections

if TYPE_CHECKING:
    from symsim.importers.reading import Options
    from symsim.inputs.architecture import Architecture

_TELLING = frozenset(
    """deepspeed deepspeed_config zero_stage no_pipeline_parallel ds_sequence_parallel_size pp_partition_method embed_layernorm
    deepspeed_activation_checkpointing moe_expert_parallel_size glu_activation num_key_value_heads""".split()
)
# an argument, and Megatron-LM's of the same meaning
_NAMES = {
    "num_key_value_heads": "num_query_groups",
    "topk": "moe_router_topk",
    "moe_expert_parallel_size": "expert_model_parallel_size",
    "moe_train_capacity_factor": "moe_expert_capacity_factor",
    "moe_loss_coeff": "moe_aux_loss_coeff",
    "ds_sequence_parallel_size": "context_parallel_size",
    "pad_vocab_size_to": "padded_vocab_size",
    "model_parallel_size": "tensor_model_parallel_size",
    "batch_size": "micro_batch_size",
    "warmup": "lr_warmup_fraction",
    "checkpoint_num_layers": "recompute_num_layers",
    "distribute_checkpointed_activations": "distribute_saved_activations",
    "partition_activations": "distribute_saved_activations",
    "use_flash_attn_v1": "use_flash_attn",
    "use_flash_attn_v2": "use_flash_attn",
    "use_flash_attn_triton": "use_flash_attn",
    "use_flash_attn_builder": "use_flash_attn",
    "rotary_position_embeddings_theta": "rotary_base",
    "tokenizer_name_or_path": "tokenizer_model",
}
_VALUES = {
    "normalization": {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"},
    "position_embedding_type": {"absolute": "learned_absolute", "rotary": "rope"},
}
_GATES = {"geglu": "gelu", "swiglu": "silu", "reglu": "relu", "liglu": "relu"}
_HERE = "(default)"
_TAUGHT = "distillation: a teacher's forward in every step, which reference_models has of a model of the same size"
_LENGTHS = "lengths that grow with the steps, or tokens that some layers leave out: the step at full length is timed"

TABLE: Mapping[str, Silent] = {
    **silent("no_cost_effect", "the engine that runs the step; its JSON is read where it is among the inputs", "deepspeed deepspeed_config"),
    **silent("no_cost_effect", "the optimizer's kernel is DeepSpeed's fused one", "ds_fused_adam"),
    **silent("no_cost_effect", "read with checkpoint_activations: whose function runs a layer again", "deepspeed_activation_checkpointing"),
    **silent("no_cost_effect", "one buffer for checkpoints that are there all the same", "contigious_checkpointing scattered_embeddings"),
    **silent("no_cost_effect", "of the run: what is timed or logged", "profile_backward log_path log_level log_level_replica codecarbon_dir"),
    **silent("no_cost_effect", "of the run: when it ends, which steps it leaves out", "kill_switch_path skip_train_iteration_range train_tokens"),
    **silent("no_cost_effect", "of the run: evaluation", "eval_only moe_eval_capacity_factor inference ds_inference valid_num_workers"),
    **silent("no_cost_effect", "of the run: its files", "universal_checkpoint load_tag no_load_lr_state reset_iteration reset_progress load_teacher"),
    **silent("no_cost_effect", "a check as the run begins", "abort_on_unmet_fused_kernel_constraints"),
    **silent("no_cost_effect", "the learning rate", "lr_decay_tokens lr_warmup_tokens override_lr_scheduler use_checkpoint_lr_scheduler"),
    **silent("no_cost_effect", "what is logged", "no_log_learnig_rate_to_tensorboard"),
    **silent("no_cost_effect", "which samples of the loss count", "loss_on_targets_only reweight_loss_based_on_position_frequency norm_target_loss"),
    **silent(
        "no_cost_effect",
        "which data are read",
        """train_weighted_split_paths train_weighted_split_paths_path valid_weighted_split_paths valid_weighted_split_paths_path
        test_weighted_split_paths test_weighted_split_paths_path train_data_exact_num_epochs return_data_index train_idx_path train_desc_path
        train_doc_idx_path train_sample_idx_path train_shuffle_idx_path repeated_dataloader aml_data_download_path use_dataset_only""",
    ),
    **silent("no_cost_effect", "groups that ZeRO asks for, with the same messages", "create_moe_param_group"),
    **silent("no_cost_effect", "which experts tokens go to", "disable_moe_top2_2nd_expert_sampling moe_min_capacity"),
    **silent("no_cost_effect", "read by no step of today's engine", "zero_reduce_scatter zero_contigious_gradients split_transformers tile_factor"),
    **silent("no_cost_effect", "where ZeRO-3's parameters are made; the JSON's offload_param says where they stay", "remote_device use_pin_memory"),
    **silent("no_cost_effect", "a test for one rank of sequence parallelism, and of the zero-bubble order", "force_ds_sequence_parallel"),
    **silent("no_cost_effect", "as many bytes over a link, in another order", "enable_zbh1_exact_semantics"),
    **silent(
        "no_cost_effect", "factors of muP, and the shapes that it compares with", "mup mup_input_mult mup_attn_mult mup_output_mult load_base_shapes"
    ),
    **silent("not_modelled", "norms of all tensor-parallel ranks are summed once a step: 2 h a norm", "sync_tp_duplicated_parameters"),
    **silent("not_modelled", "a LayerNorm that keeps its output, not its input: as many bytes, or less", "mem_efficient_ln"),
    **silent("no_cost_effect", "a LayerNorm that keeps its input", "disable_mem_efficient_ln"),
    **silent("not_modelled", "the table in fp32: 2 bytes an entry more, and a cast of its rows", "embedding_weights_in_fp32"),
    **silent("not_modelled", "checkpoints wait on the host: 2 bytes a hidden state and layer over the host link each way", "checkpoint_in_cpu"),
    **silent("not_modelled", "Tutel's kernels in place of masks and products that sort rows", "use_tutel"),
    **silent("not_modelled", "linears in tiles: less gathered at once, more products", "memory_centric_tiled_linear"),
    **silent("not_modelled", "attention in chunks of the sequence that wait on the host", _FPDT := "ds_sequence_parallel_fpdt"),
    **silent("no_cost_effect", "read with ds_sequence_parallel_fpdt", f"{_FPDT}_chunk_size {_FPDT}_offloading"),
    **silent("not_modelled", _LENGTHS, "random_ltd data_efficiency_curriculum_learning curriculum_learning"),
    **silent("not_modelled", _TAUGHT, "mos kd"),
    **silent("no_cost_effect", "read with mos or kd", "kd_alpha_ce kd_beta_ce kd_temp num_layers_teacher num_experts_teacher"),
    **silent("no_cost_effect", "read with mos or kd", "hidden_size_teacher num_attention_heads_teacher"),
    **silent("refused", "a stage of the embedding; leave it out, and give pipeline_model_parallel_layout: E|tt|ttL", "standalone_embedding_stage"),
    **silent("refused", "the name of experts before num_experts was a list; give num_experts", "num_experts_switch"),
}


def speaks(source: Source) -> bool:
    """Whether arguments are Megatron-DeepSpeed's."""
    return source.dialect == "arguments" and (source.settings is not None or bool(_TELLING & source.given.keys()))


def recomputed(source: Source) -> None:
    """Whole layers that run again, by the name that Megatron-LM had for them until 2022-05 and refuses since, and its descendants have."""
    if "checkpoint_activations" in source.given:
        source.rename("checkpoint_activations", "recompute_granularity", "full")
        source.rename("checkpoint_num_layers", "recompute_num_layers")
        _default(source, "recompute_method", "uniform")


def in_megatrons_words(source: Source, lenient: bool) -> None:
    """Put its arguments into Megatron-LM's names and values, and its own defaults where they are others. InputError for what no model here has."""
    for own, name in _NAMES.items():
        source.rename(own, name)
    for name, spelt in _VALUES.items():
        if name in source.given:
            one = source.given[name]
            source.given[name] = replace(one, value=spelt.get(str(one.value), one.value))
    if "num_query_groups" in source.given:
        _default(source, "group_query_attention", True)
    if _number(source, "context_parallel_size", 1) > 1:
        _default(source, "cp_comm_type", ["a2a"])
    _gates(source)
    _mixture(source, lenient)
    for name, value in (("transformer_impl", "local"), ("no_rope_fusion", True), ("no_gradient_accumulation_fusion", True)):
        _default(source, name, value)
    if "use_flash_attn" not in source.given:
        _default(source, "attention_backend", "unfused")


def _default(source: Source, name: str, value: Any) -> None:
    source.given.setdefault(name, Given(value, _HERE))


def _number(source: Source, name: str, default: int) -> int:
    text = shown(source.given[name].value) if name in source.given else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default


def _gates(source: Source) -> None:
    """A gated activation, whose network is as wide as one without unless it is said."""
    if "glu_activation" not in source.given or str(source.given["glu_activation"].value) not in _GATES:
        return
    name = str(source.given["glu_activation"].value)
    source.rename("glu_activation", "activation_func", _GATES[name])
    _default(source, "gated_linear_unit", True)
    _default(source, "ffn_hidden_size", 4 * _number(source, "hidden_size", 0))


def _mixture(source: Source, lenient: bool) -> None:
    """Experts in every so manieth layer, of which each takes as many rows as its capacity, with a network for all tokens beside them."""
    counts = _counts(source, lenient)
    if counts <= 1:
        _dense(source)
        return
    layers, every = _number(source, "num_layers", 0), _number(source, "expert_interval", 2)
    source.rename("expert_interval", "moe_layer_freq")
    _default(source, "moe_token_dispatcher_type", "alltoall")
    where = source.given["moe_layer_freq"].where if "moe_layer_freq" in source.given else _HERE
    source.given["moe_layer_freq"] = Given([int((at + 1) % max(1, every) == 0) for at in range(min(layers, 10**5))], where)
    _default(source, "moe_router_topk", 1)
    dropless = source.given.pop("disable_moe_token_dropping", None)
    if dropless is not None:
        source.run.append(Entry("--disable-moe-token-dropping", "true", "mapped", "moe_expert_capacity_factor", "all rows are computed"))
        source.given.pop("moe_expert_capacity_factor", None)
    else:
        _default(source, "moe_expert_capacity_factor", 1.0)
        _default(source, "moe_pad_expert_input_to_capacity", True)
    split = source.given.pop("enable_expert_tensor_parallelism", None) is not None
    _default(source, "expert_tensor_parallel_size", _number(source, "tensor_model_parallel_size", 1) if split else 1)
    kind = source.given.pop("mlp_type", None)
    if kind is not None and kind.value == "residual":
        _default(source, "moe_shared_expert_intermediate_size", _number(source, "ffn_hidden_size", 4 * _number(source, "hidden_size", 0)))
        _default(source, "moe_shared_expert_gate", True)
        why = "a network for all tokens beside the experts, with one weight a token: two there, h + 2 parameters a layer more"
        source.run.append(Entry("--mlp-type", "residual", "derived", "moe.moe_shared_expert_intermediate_size", why))


def _dense(source: Source) -> None:
    """No experts: what is said of them has no effect."""
    for name in ("num_experts", "expert_interval", "mlp_type", "disable_moe_token_dropping", "enable_expert_tensor_parallelism"):
        if name in source.given:
            said = shown(source.given.pop(name).value)
            source.run.append(Entry(f"--{name.replace('_', '-')}", said, "no_cost_effect", why="one expert is a feed-forward network"))


def _counts(source: Source, lenient: bool) -> int:
    """The number of experts of every mixture. InputError where layers have different ones."""
    if "num_experts" not in source.given:
        return 1
    one = source.given["num_experts"]
    values = one.value if isinstance(one.value, list) else [one.value]
    if any(isinstance(value, Unresolved) for value in values):
        return 2
    if len(set(map(str, values))) > 1 and not lenient:
        said = "layers of different numbers of experts (a pyramid) are not modelled; --lenient takes the largest for all"
        raise InputError(f"{one.where}: --num-experts {' '.join(map(str, values[:8]))}: {said}")
    largest = max((number for value in values if (number := natural(value)) is not None), default=2)
    source.given["num_experts"] = replace(one, value=largest if len(values) > 1 else values[0])
    return largest


def gated(architecture: "Architecture | None") -> "Architecture | None":
    """The model with DeepSpeed's gates, which have no bias (deepspeed/moe/sharded_moe.py TopKGate)."""
    if architecture is None or architecture.moe is None:
        return architecture
    return architecture.model_copy(update={"moe": architecture.moe.model_copy(update={"router_bias": False})})


def engine(
    keys: Keys, source: Source, options: dict[str, Any], assumptions: dict[str, str], architecture: "Architecture | None", asked: "Options"
) -> list[Entry]:
    """What DeepSpeed's engine runs of a step: ZeRO, types and messages as its JSON says, or its stage alone; the rows of that."""
    _stages(keys, options, architecture)
    if keys.flag("synchronize_each_layer", False, to="synchronize_checkpoint_boundary") and options.get("recompute") == "full":
        options["synchronize_checkpoint_boundary"] = True
    stage = keys.integer("zero_stage", 1, to="zero")
    raw = of_sections(source.settings, WHOLE) if source.settings is not None else {}
    raw = {key: one for key, one in raw.items() if key not in _BATCH}
    place = source.given["zero_stage"].where if "zero_stage" in source.given else _HERE
    if "zero_optimization.stage" in raw:
        keys.note("zero_stage", "no_cost_effect", why="the JSON's stage decides")
    elif "deepspeed" in source.given or source.settings is not None:
        raw["zero_optimization.stage"] = Given(stage, place)
    for name in ("bf16", "fp16"):
        raw.setdefault(f"{name}.enabled", Given(options.get("precision") == name, _HERE))
    raw.setdefault("gradient_clipping", Given(options.get("clip_grad", 1.0), _HERE))
    if keys.flag("cpu_optimizer", False, to="optimizer_cpu_offload"):
        raw.setdefault("zero_optimization.offload_optimizer.device", Given("cpu", place))
    mesh: dict[str, Any] = {name: options[name] for name in ("tp", "cp", "pp", "precision") if name in options}
    told: dict[str, Any] = {"micro_batch_size": 1, "num_microbatches": 1, "clip_grad": 1.0, **mesh}
    for name in ("use_distributed_optimizer", "batch_p2p_comm", "batch_p2p_sync"):
        keys.rows.pop(name, None)
    for name in ("p2p_comm", "batch_p2p_sync"):
        options.pop(name, None)
    rows = of_settings(raw, keys, told, assumptions, architecture, replace(asked, variables={}), by_arguments=False)
    options |= {name: value for name, value in told.items() if name not in ("micro_batch_size", "num_microbatches", "dp", *mesh)}
    split_sequence(keys, options, architecture, "Megatron-DeepSpeed")
    if keys.flag("cpu_torch_adam", False, to="host_update") and options.get("optimizer_cpu_offload"):
        options["host_update"] = "torch"
    for name, one in source.given.items():
        if one.where == _HERE and name in keys.rows:
            keys.rows[name] = replace(keys.rows[name], value=_HERE, fate="derived", why=f"{shown(one.value)} in Megatron-DeepSpeed")
    keys.rows.pop("world", None)
    own = {key for key, one in raw.items() if one.where in (_HERE, place)}
    by_stage = next((row for row in rows if row.key in own and row.key == "zero_optimization.stage"), None)
    if by_stage is not None:
        given = "zero_stage" in source.given
        why = by_stage.why or ("" if given else f"{stage} in Megatron-DeepSpeed, where its JSON, which may be among the inputs, says nothing else")
        keys.note("zero_stage", by_stage.fate if given else "derived", by_stage.to, why)
    return [row for row in rows if row.key not in (*own, "world")]


_BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def _stages(keys: Keys, options: dict[str, Any], architecture: "Architecture | None") -> None:
    """Layers over the stages of DeepSpeed's pipeline, among which the embedding and the head count where the method names them."""
    method, pp = str(keys.text("pp_partition_method", "type:transformer", to="pp")), int(options.get("pp", 1))
    own = keys.flag("no_pipeline_parallel", False, why="one stage, without the pipeline's engine")
    zero_bubble = keys.flag("enable_zbh1_pipeline", False, to="schedule")
    if pp == 1 or own:
        return
    options["schedule"] = "zb_h1" if zero_bubble else "ds_default"
    if not method.startswith("type:transformer"):
        why = "stages of other parts than layers there; of equal layers here"
        keys.note("pp_partition_method", "not_modelled", "pp", why)
    ends = "embedding" in method
    if architecture is None:
        return
    if ends and (architecture.num_layers + 2) % pp == 0:
        options |= {"account_for_embedding_in_pipeline_split": True, "account_for_loss_in_pipeline_split": True}
        keys.note("pp_partition_method", to="account_for_embedding_in_pipeline_split, account_for_loss_in_pipeline_split")
        return
    layout = uneven_stages(architecture.num_layers, pp, ends=ends)
    if layout is not None:
        options["pipeline_model_parallel_layout"] = layout
        keys.note("pp_partition_method", "derived", "pipeline_model_parallel_layout", "one layer more in the first stages")
