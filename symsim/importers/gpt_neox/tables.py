"""GPT-NeoX's keys that no formula reads.

Names and defaults: gpt-neox ea7aefd8 (2026-05-19), megatron/neox_arguments/neox_args.py and deepspeed_args.py.
"""

from __future__ import annotations

from symsim.importers.assumed import NARROW_WEIGHT_GRADIENTS
from symsim.importers.keys import Silent, silent
from symsim.importers.trainer import DATA, EVALUATION, LENGTH, LOADING, LOGS, PATHS, RATES, RNG, SAVING

_GENERATION = "read where the model generates, not in training"
_LAUNCH = "which machines are used, and how ranks are started"
_START = "how weights are made before the first step"
_EXAMPLES = "another loss than the next token's, over pairs of rows and with a reference model's forward: another workload"
_LOSSES = "numbers of a loss that is named by train_impl"
_FORMAT = "numbers of the 8-bit recipe that te_* switches ask for"
_TE = "attention's products in 8 bits: at up to twice the rate"
_MUP = "factors of the width in weights and logits: as many products"
_ONLINE = "weights and samples that another program exchanges with the training, between steps"

# keys that GPT-NeoX hands to DeepSpeed as they are
DEEPSPEED = frozenset(
    """train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps optimizer scheduler prescale_gradients
    gradient_predivide_factor sparse_gradients fp16 bf16 amp gradient_clipping zero_optimization curriculum_learning steps_per_print
    wall_clock_breakdown dump_state flops_profiler communication_data_type autotuning activation_checkpointing sparse_attention data_efficiency
    tensorboard wandb csv_monitor elasticity comms_logger compression_training checkpoint data_types zero_allow_untested_optimizer aio""".split()
)

_SCALED = ("loss_scale", "loss_scale_window", "initial_scale_power", "hysteresis", "min_loss_scale")

SILENT: dict[str, Silent] = {
    **silent(
        "no_cost_effect",
        PATHS,
        """save load s3_path s3_chunk_size config_files vocab_file merge_file fused_kernels_build_path user_script base_shapes_file
        iteration adlr_autoresume adlr_autoresume_interval""",
    ),
    **silent(
        "no_cost_effect",
        DATA,
        """data_path train_data_paths train_label_data_paths train_reward_data_paths test_data_paths test_label_data_paths
        test_reward_data_paths valid_data_paths valid_label_data_paths valid_reward_data_paths pos_train_data_paths neg_train_data_paths
        pos_train_label_data_paths neg_train_label_data_paths pos_valid_data_paths neg_valid_data_paths pos_valid_label_data_paths
        neg_valid_label_data_paths pos_test_data_paths neg_test_data_paths pos_test_label_data_paths neg_test_label_data_paths
        train_data_weights valid_data_weights test_data_weights weight_by_num_documents weighted_sampler_alpha data_impl split use_shared_fs
        mmap_warmup short_seq_prob allow_chopped eod_mask_loss deepscale deepscale_config dataset_impl""",
    ),
    # of forks: StableLM's and Llemma's
    **silent("no_cost_effect", "read in fp16 alone", " ".join(f"bf16.{name}" for name in _SCALED)),
    **silent("no_cost_effect", RATES, "decay_lr_to warmup_iters"),
    **silent("no_cost_effect", "num_kv_heads says how many there are", "attention_type"),
    **silent("no_cost_effect", "rows are padded to seq_length where samples do not fill them, and computed whole", "pack_impl"),
    **silent("not_modelled", LOADING, "num_workers", (2, "2")),
    **silent(
        "no_cost_effect",
        LOGS,
        """use_wandb wandb_group wandb_run_name wandb_team wandb_project wandb_host wandb_init_all_ranks git_hash log_dir log_interval
        tensorboard_dir tensorboard_writer use_comet comet_workspace comet_project comet_experiment_name comet_tags comet_others comet_experiment
        peak_theoretical_tflops char_level_ppl gradient_noise_scale_n_batches gradient_noise_scale_cpu_offload memory_profiling_path
        profile_step_start profile_step_stop memory_profiling""",
    ),
    **silent(
        "not_modelled",
        "a pass over gradients, parameters or states for what is logged: below 1 % of a step",
        "log_grad_norm log_optimizer_states log_gradient_noise_scale profile profile_backward",
    ),
    **silent(
        "no_cost_effect",
        RATES,
        """lr min_lr lr_decay_style lr_decay_iters lr_decay_fraction warmup override_lr_scheduler use_checkpoint_lr_scheduler weight_decay
        layernorm_epsilon rms_norm_epsilon scalenorm_epsilon loss_scale loss_scale_window min_scale hysteresis dynamic_loss_scale
        mamba_selective_fp32_params clip_grad moe_jitter_eps""",
    ),
    **silent("no_cost_effect", RNG, "seed"),
    **silent("no_cost_effect", LENGTH, "train_iters train_epochs exit_interval curriculum_seqlen"),
    **silent(
        "no_cost_effect", _START, "init_method init_method_std output_layer_init_method use_cpu_initialization lazy_mpu_init opt_pos_emb_offset"
    ),
    **silent("no_cost_effect", _START, "finetune no_load_optim no_load_rng checkpoint_validation_with_forward_pass"),
    **silent(
        "no_cost_effect",
        _MUP,
        """use_mup coord_check save_base_shapes mup_init_scale mup_attn_temp mup_output_temp mup_embedding_mult mup_rp_embedding_mult
        mup_width_scale""",
    ),
    **silent("not_modelled", SAVING, "checkpoint_factor extra_save_iters"),
    **silent("no_cost_effect", SAVING, "checkpoint_scale keep_last_n_checkpoints no_save_optim no_save_rng save_interval"),
    **silent("not_modelled", EVALUATION, "eval_interval do_valid do_test"),
    **silent("no_cost_effect", EVALUATION, "eval_iters eval_tasks eval_results_prefix do_train"),
    **silent(
        "no_cost_effect",
        _GENERATION,
        """text_gen_type precompute_model_name temperature top_p top_k return_logits maximum_tokens prompt_end sample_input_file
        sample_output_file num_samples recompute onnx_safe""",
    ),
    **silent(
        "no_cost_effect",
        _LAUNCH,
        """distributed_backend local_rank rank deepspeed_mpi deepspeed_slurm hostfile include exclude master_port master_addr launcher
        force_multi autotuning_run no_ssh_check comment account detect_nvlink_pairs deepspeed deepspeed_extra_args""",
    ),
    **silent("no_cost_effect", "frequencies and lengths of positions", "rotary_emb_base rotary_save_freqs_buffer rpe_num_buckets rpe_max_distance"),
    **silent("no_cost_effect", "products of as many numbers", "apply_query_key_layer_scaling"),
    **silent("not_modelled", "softmax in 4 bytes a score where attention is written out: 2 are counted", "attention_softmax_in_fp32"),
    **silent("not_modelled", "logits and loss in 2 bytes: 2 bytes a logit less", "fp16_lm_cross_entropy"),
    **silent("not_modelled", "checkpoints wait on the host: 2 bytes a hidden state and layer over the host link each way", "checkpoint_in_cpu"),
    **silent("no_cost_effect", "checkpoints in one buffer: the same bytes", "contiguous_checkpointing"),
    **silent("no_cost_effect", "which function checkpoints a layer; the same layers run again", "deepspeed_activation_checkpointing"),
    **silent("no_cost_effect", "the only way there is", "output_layer_parallelism"),
    **silent("not_modelled", _TE, "te_fp8_mha"),
    **silent("no_cost_effect", "Transformer Engine's linear maps, as all are here", "te_columnparallel te_rowparallel"),
    **silent("no_cost_effect", NARROW_WEIGHT_GRADIENTS, "te_fp8_wgrad"),
    **silent("no_cost_effect", _FORMAT, "te_fp8_format te_fp8_amax_history_len te_fp8_amax_compute_algo te_fp8_margin"),
    **silent("not_modelled", _EXAMPLES, "train_impl", ("normal",)),
    **silent(
        "no_cost_effect",
        _LOSSES,
        """dpo_fp32 dpo_reference_free dpo_beta kto_fp32 kto_desirable_weight kto_undesirable_weight kto_beta fp32_reinforce kl_impl
        kl_div_beta reinforce_leave_one_out""",
    ),
    **silent("not_modelled", "one more pass over the logits: below 1 % of a step", "z_loss"),
    **silent("no_cost_effect", _ONLINE, "serve_model_weights weight_server_port online_dataserver_ips online_dataserver_ports"),
    **silent("not_modelled", "a few trained vectors ahead of every row: other parameters are frozen", "soft_prompt_tuning"),
    **silent("not_modelled", "layers that share weights: fewer parameters, gradients and states", "num_unique_layers"),
    **silent("no_cost_effect", "read with num_unique_layers alone", "param_sharing_style"),
    **silent("not_modelled", "attention over chosen blocks: the share of scores that the layout leaves", "sparsity_config"),
    **silent("no_cost_effect", "read by layers of another kind", "gmlp_attn_dim dim_att head_size ffn_dim"),
    **silent(
        "no_cost_effect",
        "read by layers of another kind",
        """mamba_selective_scan_fusion mamba_causal_conv_fusion mamba_inner_func_fusion mamba_use_bias_in_conv mamba_use_bias_in_linears""",
    ),
    **silent("not_modelled", "rounds of the router's balancing over its logits: below 1 % of a step", "moe_router_type", ("topk",)),
    **silent("no_cost_effect", "the auxiliary loss in 4 bytes a logit of the router", "moe_lbl_in_fp32"),
    **silent("no_cost_effect", "set anew from gradient_accumulation_steps before it is read (until 91c44bc3)", "gas"),
    # of the fork that trained StableLM (Stability-AI/StableLM configs)
    **silent("no_cost_effect", LOGS, "wandb_name"),
    **silent("no_cost_effect", PATHS, "s3_sync_interval no_checkpoint_arg_validation"),
    **silent("no_cost_effect", EVALUATION, "eval_batch_size"),
    **silent("no_cost_effect", RATES, "cooldown"),
    **silent("no_cost_effect", "in which order a head's numbers are turned", "rotary_interleaved"),
    **silent("no_cost_effect", "logits in 4 bytes, as is counted", "full_precision_lm_cross_entropy"),
    **silent("not_modelled", "attention inside a document alone: of full rows here", "reset_attention_mask"),
    **silent("no_cost_effect", "positions that begin again with a document", "reset_position_ids"),
}
