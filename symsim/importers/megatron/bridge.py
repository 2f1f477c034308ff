"""Keys of Megatron-Bridge's recipes that are none of Megatron-LM's arguments.

Names: Megatron-Bridge at 067f987 (2026-08-22), src/megatron/bridge: data/builders, data/sources, data/packing/config.py, training/config.py,
training/mixed_precision.py, models/qwen_vl; and of its datasets before 2026-03, data/builders/finetuning_dataset.py, hf_dataset.py.
"""

from __future__ import annotations

from symsim.importers.documents import LONGEST
from symsim.importers.keys import Silent, silent

_SAMPLES = "which samples are read, and how they become rows"
_IMAGES = "another workload: images, and the tower that reads them"
_TEACHER = "another workload: a teacher's forward, and a loss against its outputs"

BRIDGE: dict[str, Silent] = {
    **silent(
        "no_cost_effect",
        _SAMPLES,
        """
        path pin_memory drop_last persistent_workers dataloader_save dataloader_load dataset_name dataset_root dataset_subset hf_dataset
        hf_validation_dataset hf_test_dataset hf_output_root hf_validation_proportion hf_rewrite memmap_workers max_train_samples preprocessing
        do_validation do_test val_proportion rewrite delete_raw hf_kwargs hf_filter_lambda process_example_fn split_val_from_train download_mode
        source source_weights blend_seed validation_source test_source hf_processor_path hf_processor_kwargs maker_name maker_kwargs task_encoder
        num_val_workers shuffle_buffer_size packing_buffer_size random_seed prompt num_base_examples dataset_kwargs blend_kwargs blend
        skip_getting_attention_mask_from_dataset defer_in_batch_packing_to_step packed_sequence_specs offline_packing_specs
        """,
    ),
    **silent("not_modelled", LONGEST, "pad_to_max_length", (True, "true", "True", None)),
    **silent("no_cost_effect", "padding of at most as many tokens a row", "pad_to_multiple_of in_batch_packing_pad_to_multiple_of"),
    **silent("not_modelled", _IMAGES, "image_size num_images visual_keys min_pixels max_pixels use_hf_vision_model"),
    **silent(
        "not_modelled",
        _IMAGES,
        """freeze_vision_model freeze_vision_projection freeze_sound_encoder
        freeze_sound_projection freeze_sound_model freeze_audio_model freeze_audio_projection""",
    ),
    **silent("not_modelled", _TEACHER, "teacher kd_config"),
    **silent(
        "no_cost_effect",
        "which objects hold groups of ranks, and which device a process takes",
        "use_decentralized_pg external_gpu_device_mapping _pg_collection data_parallel_size",
    ),
    **silent("no_cost_effect", "evaluation, between steps", "eval_context_parallel_size"),
    **silent(
        "no_cost_effect",
        "the tokenizer; the model has its rows of words",
        """sp_tokenizer_kwargs hf_tokenizer_kwargs chat_template_path use_tokenizer_vocab_size force_system_message image_tag_type
        hf_model_revision""",
    ),
    **silent("no_cost_effect", "made by what other keys say", "_train_iters_from_num_epochs mtp_enabled restore_modelopt_state"),
    **silent(
        "no_cost_effect",
        "sets the angles of rotary positions",
        "rope_scaling rope_scaling_factor yarn_mscale yarn_mscale_all_dim yarn_rotary_scaling_factor yarn_original_max_position_embeddings",
    ),
    **silent("refused", "modules of a specification in Python, which is not read; --of MODEL gives the model", "transformer_layer_spec"),
    **silent("refused", "a residual stream of several parts (mHC); --of MODEL gives a model that has one", "enable_mhc_connections"),
    **silent("no_cost_effect", "read with enable_mhc_connections", "mhc_num_residual_streams mhc_sinkhorn_iterations mhc_init_gating_factor"),
    **silent("not_modelled", "logits are gathered over tensor ranks", "parallel_output", (True, "true", "True", None)),
    **silent("not_modelled", "the embedding's rows are on all tensor ranks", "scatter_embedding_sequence_parallel", (True, "true", "True", None)),
    **silent("not_modelled", "casts inside autocast: a pass over weights for each of them", "autocast_enabled"),
    **silent("not_modelled", "a mask of any form: attention without the kernels of causal rows", "use_arbitrary_attention_mask"),
    **silent("not_modelled", "dense products as groups of one: launches of another kernel", "dense_grouped_gemm"),
    **silent("not_modelled", "a layer as one module, with kernels of its own", "use_transformer_engine_full_layer_spec"),
    **silent("no_cost_effect", "learning rates cost the same at any value", "finetune_lr"),
    **silent("no_cost_effect", "the length of the run", "num_epochs"),
    **silent("no_cost_effect", "a number more or less that all ranks sum up", "check_optimizer_step_success skip_sync_grad_norm_across_mp"),
}

# sections inside a section of a recipe, of whose keys packed_sequence_size alone decides of a step
INNER = frozenset(
    "packed_sequence_specs offline_packing_specs dataset_kwargs maker_kwargs source hf_dataset preprocessing blend_kwargs teacher kd_config".split()
)
