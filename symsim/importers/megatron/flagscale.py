"""FlagScale's training files in Megatron-LM's words: arguments in sections, which its runner puts on a command line, and those of its own.

FlagScale flagscale/backends/Megatron-LM/megatron/training/arguments.py.patch, flagscale/runner (read 2026-11).
"""

from __future__ import annotations

from symsim.importers.keys import Entry, Silent, natural, shown, silent
from symsim.importers.megatron.adapters import DIM, DROPOUT, SCHEME, TARGETS
from symsim.importers.megatron.source import Source

_HETEROGENEOUS = "stages on accelerators of several kinds, each with a mesh of its own: all are alike here"
_APART = "each micro-batch of each stage runs other layers again: between recompute=none and what recompute says"
TABLE: dict[str, Silent] = {
    **silent(
        "no_cost_effect",
        "of FlagScale: names the tokenizer, the data and the files of a run",
        """
        tokenizer_path special_tokens_file legacy_tokenizer no_shared_fs training_dataset_only vision_root valid_path interleaved_dataset
        rampup_save_interval prompt_path wandb_log_model wandb_log_model_interval
        allow_missing_vision_projection_checkpoint apply_sft_dataset_separated_loss_mask_if_existed
        """,
    ),
    **silent("no_cost_effect", "how weights begin, and which steps are left out", "norm_init_weight auto_skip_spiky_loss spiky_loss_threshold"),
    **silent(
        "no_cost_effect",
        "towers for images and sound are another workload",
        "freeze_ViT disable_vision_class_token vision_model_type language_model_type mm_patch_merge_type image_grid_pinpoints",
    ),
    **silent(
        "not_modelled",
        _HETEROGENEOUS,
        """
        enable_hetero hetero_pipeline_layer_split hetero_process_meshes hetero_device_types hetero_current_device_type
        hetero_use_cpu_communication expert_tensor_parallel_size_per_process_mesh
        """,
    ),
    **silent(
        "not_modelled",
        _APART,
        "recompute_granularity_per_stage_micro_batch recompute_method_per_stage_micro_batch recompute_num_layers_per_stage_micro_batch",
    ),
    **silent(
        "not_modelled", "a shared embedding's gradient without its rows of no use: less than one message", "use_partial_reduce_for_shared_embedding"
    ),
    **silent("not_modelled", "the embedding on a stage of its own: pipeline_model_parallel_layout has it", "standalone_embedding_stage"),
    **silent("not_modelled", "a forward beside another micro-batch's backward: what of the exchange of tokens is exposed", "moe_fb_overlap"),
    **silent("no_cost_effect", "read where a feed-forward network has no width", "multiple_of hidden_dim_multiplier"),
    **silent("no_cost_effect", "numbers of adapters' beginnings", "lora_alpha lora_dropout_position lora_in_init_method lora_out_init_method"),
}
# flagscale/train/peft/lora.py; train_qwen2_5_vl.py
_RENAMED = {
    "peft_type": SCHEME,
    "lora_dim": DIM,
    "lora_dropout": DROPOUT,
    "lora_target_modules": TARGETS,
    "enable_variable_seq_lengths": "variable_seq_lengths",
}


def in_megatrons_words(source: Source) -> None:
    """Adapters by Megatron-Bridge's names; the width of a gated network from the hidden size, as Llama's first code has it."""
    if "peft_type" not in source.given:
        # LLaMA-Factory and others have names like these; FlagScale reads them with this one
        source.rename("enable_variable_seq_lengths", _RENAMED["enable_variable_seq_lengths"])
    else:
        for own, name in _RENAMED.items():
            source.rename(own, name)
    exchanged = source.given.get("moe_token_dispatcher_type")
    if exchanged is not None and exchanged.value != "allgather":
        source.rename("moe_fb_overlap", "overlap_moe_expert_parallel_comm")
    given = {name: source.given[name] for name in ("multiple_of", "hidden_size") if name in source.given}
    numbers = [natural(shown(one.value)) for one in given.values()]
    if "ffn_hidden_size" in source.given or len(given) < 2 or not all(numbers) or "swiglu" not in source.given:
        return
    multiple, hidden = (number for number in numbers if number)
    width = 8 * hidden // 3
    if "hidden_dim_multiplier" in source.given:
        try:
            width = int(width * float(shown(source.given["hidden_dim_multiplier"].value)))
        except (ValueError, OverflowError):
            return
    width = -(-width // multiple) * multiple
    for key, said, argument in source.written:
        if argument == "hidden_dim_multiplier":
            source.run.append(Entry(key, said, "mapped", "mlp.ffn_hidden_size", "of which multiple_of makes a multiple"))
    source.written[:] = [row for row in source.written if row[2] != "hidden_dim_multiplier"]
    source.given.pop("hidden_dim_multiplier", None)
    source.rename("multiple_of", "ffn_hidden_size", width)
