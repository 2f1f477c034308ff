"""verl's keys that no formula reads, and the places of its supervised trainer's keys.

Names and defaults: verl b178a3cd (2026-01-29), verl/trainer/config/_generated_ppo_trainer.yaml, _generated_ppo_megatron_trainer.yaml,
sft_trainer.yaml; verl/workers/config.
"""

from __future__ import annotations

from symsim.importers.keys import Silent, silent
from symsim.importers.trainer import DATA, EVALUATION, LENGTH, LOADING, LOGS, OTHER_MODELS, PATHS, RATES, RNG, SAVING

ACTOR = "actor_rollout_ref.actor"
MODEL = "actor_rollout_ref.model"
ROLLOUT = "generation between training steps is another workload; the actor's step is timed"
COLOCATED = (
    "goes to the host while another phase runs and comes back before the update: bytes of what it names over the host link twice a phase, "
    "outside the steps"
)
_NUMBERS = "numbers of the loss"
_ADVANTAGES = "how rewards become advantages, between the steps"
_FORWARDS = "forwards of other models between the steps: another workload"
_PASS = "one more pass over the logits or two: below 1 % of a step"
_PIECES = "entropy in pieces, or again in backward: 4 bytes a logit less at the peak"
_TOWERS = "towers for images and sound are another workload"


def _of(section: str, keys: str) -> str:
    return " ".join(f"{section}.{key}" for key in keys.split())


SILENT: dict[str, Silent] = {
    **silent(
        "no_cost_effect",
        _NUMBERS,
        _of(
            ACTOR,
            """clip_ratio clip_ratio_low clip_ratio_high clip_ratio_c tau_pos tau_neg loss_agg_mode loss_scale_factor kl_loss_coef kl_loss_type
            policy_loss grpo_beta""",
        ),
    ),
    **silent("not_modelled", _FORWARDS, _of(ACTOR, "use_kl_loss")),
    **silent("not_modelled", _PASS, _of(ACTOR, "entropy_coeff calculate_entropy calculate_sum_pi_squared"), (0, "0", 0.0, "0.0", False)),
    **silent("not_modelled", _PIECES, _of(ACTOR, "entropy_from_logits_with_chunking entropy_checkpointing sum_pi_squared_checkpointing")),
    **silent("not_modelled", _PIECES, _of(f"{ACTOR}.fsdp_config", "entropy_from_logits_with_chunking entropy_checkpointing")),
    **silent("no_cost_effect", "the entropy's own kernel", _of(ACTOR, "use_torch_compile fsdp_config.use_torch_compile")),
    **silent("no_cost_effect", RNG, _of(ACTOR, "data_loader_seed shuffle fsdp_config.seed megatron.seed")),
    **silent("no_cost_effect", "which rows a rank takes", _of(ACTOR, "rollout_n use_prefix_grouper")),
    **silent("no_cost_effect", _TOWERS, _of(ACTOR, "freeze_vision_tower")),
    **silent("no_cost_effect", "the same roll-outs are trained on so often", _of(ACTOR, "ppo_epochs")),
    **silent("no_cost_effect", PATHS, _of(ACTOR, "load_weight")),
    **silent(
        "no_cost_effect",
        RATES,
        _of(
            f"{ACTOR}.optim",
            """lr lr_warmup_steps_ratio total_training_steps weight_decay lr_warmup_steps betas min_lr_ratio num_cycles lr_scheduler_type
            warmup_style lr_scheduler lr_warmup_init lr_decay_steps lr_decay_style min_lr weight_decay_incr_style lr_wsd_decay_style
            lr_wsd_decay_steps use_checkpoint_opt_param_scheduler warmup_steps_ratio""",
        ),
    ),
    **silent(
        "no_cost_effect",
        "how units are made and shown to the optimizer, and when gathers are issued",
        _of(
            f"{ACTOR}.fsdp_config",
            "wrap_policy wrap_policy.min_num_params wrap_policy.transformer_layer_cls_to_wrap use_orig_params forward_prefetch",
        ),
    ),
    **silent("no_cost_effect", "wrong for the actor, which is trained", _of(ACTOR, "fsdp_config.forward_only megatron.forward_only")),
    **silent(
        "no_cost_effect",
        "how weights come from and go to files",
        _of(f"{ACTOR}.megatron", "use_dist_checkpointing dist_checkpointing_path dist_checkpointing_prefix use_mbridge vanilla_mbridge"),
    ),
    **silent("not_modelled", COLOCATED, _of(f"{ACTOR}.fsdp_config", "param_offload optimizer_offload grad_offload")),
    **silent("not_modelled", COLOCATED, _of(f"{ACTOR}.megatron", "param_offload grad_offload optimizer_offload")),
    **silent(
        "no_cost_effect",
        PATHS,
        _of(
            MODEL,
            """hf_config_path tokenizer_path use_shm trust_remote_code custom_chat_template external_lib lora_adapter_path fsdp_config
            save_hf_model_only custom_model_backend""",
        ),
    ),
    **silent("no_cost_effect", RATES, _of(MODEL, "lora_alpha")),
    **silent("no_cost_effect", "the type that files hold; model_dtype decides", _of(MODEL, "torch_dtype")),
    **silent("no_cost_effect", "other types than the parameters' and gradients'", _of(f"{ACTOR}.fsdp_config", "mixed_precision.buffer_dtype")),
    **silent("no_cost_effect", "further arguments of the optimizer", _of(f"{ACTOR}.optim", "override_optimizer_config")),
    **silent("no_cost_effect", "an empty section", "optim"),
    **silent(
        "no_cost_effect", "an empty section", _of(f"{ACTOR}.megatron", "override_ddp_config override_transformer_config override_mcore_model_config")
    ),
    **silent("no_cost_effect", "as the model's own key says", _of(ACTOR, "use_remove_padding megatron.use_remove_padding")),
    **silent("no_cost_effect", "which version of FSDP", _of(f"{ACTOR}.fsdp_config", "strategy")),
    **silent("no_cost_effect", "read with use_fused_kernels", _of(MODEL, "fused_kernel_options fused_kernel_options.impl_backend")),
    **silent("not_modelled", "a feed-forward network in pieces: its kept tensors for a piece alone", _of(MODEL, "tiled_mlp.enabled")),
    **silent("no_cost_effect", "read with tiled_mlp", _of(MODEL, "tiled_mlp.num_shards")),
    **silent("not_modelled", _FORWARDS, "distillation.enabled"),
    **silent("not_modelled", _PASS, "distillation.distillation_loss.loss_mode", ("k1", "k2", "k3")),
    **silent("not_modelled", "sequences over as many ranks as their lengths need", _of(f"{ACTOR}.megatron", "dynamic_context_parallel")),
    **silent("not_modelled", _PIECES, _of(f"{ACTOR}.megatron", "entropy_from_logits_with_chunking")),
    **silent(
        "no_cost_effect",
        "rows rounded up by some tokens",
        _of(f"{ACTOR}.megatron", "pad_bshd_to_minibatch_max pad_to_length pad_to_length_bucket max_seqlen_per_dp_cp_rank"),
    ),
    **silent("no_cost_effect", "which log-probabilities the ratio is of", f"{ACTOR}.use_rollout_log_probs"),
    **silent("no_cost_effect", "a mean over tokens or over samples", f"{ACTOR}.use_token_level_loss"),
    **silent(
        "not_modelled",
        "of earlier versions, where it cut stages into chunks of so many layers: virtual_pipeline_model_parallel_size does",
        f"{ACTOR}.megatron.num_layers_per_virtual_pipeline_stage",
    ),
    **silent(
        "not_modelled",
        "of earlier versions: layers that run again, as override_transformer_config says",
        _of(
            f"{MODEL}.gradient_checkpointing_kwargs",
            " ".join(f"activations_checkpoint_{what}" for what in ("method", "granularity", "num_layers")),
        ),
    ),
    # of Search-R1, VerlTool and others that let an agent call tools
    **silent("no_cost_effect", "which tokens count in the loss", f"{ACTOR}.state_masking"),
    **silent("no_cost_effect", "in how many pieces", _of(f"{ACTOR}.megatron", "entropy_from_logits_chunk_size")),
    **silent("no_cost_effect", LENGTH, "trainer.total_epochs trainer.total_training_steps data.train_batch_size data.gen_batch_size"),
    **silent("not_modelled", SAVING, "trainer.save_freq", (-1, "-1")),
    **silent("not_modelled", EVALUATION, "trainer.test_freq trainer.val_before_train", (-1, "-1", False)),
    **silent("not_modelled", LOADING, "data.dataloader_num_workers data.num_workers"),
}

SECTIONS: dict[str, Silent] = {
    **silent("not_modelled", ROLLOUT, "actor_rollout_ref.rollout rollout async_training actor_rollout_ref.agent retriever max_turns do_search"),
    **silent("not_modelled", OTHER_MODELS, "critic reward_model"),
    **silent(
        "no_cost_effect",
        "functions on the host that score answers, between the steps",
        _of("reward_model", "reward_manager reward_loop_source overlong_buffer reward_kwargs launch_reward_fn_async"),
    ),
    **silent("no_cost_effect", _FORWARDS, "actor_rollout_ref.ref ref reward custom_reward_function reward_manager sandbox_fusion"),
    **silent("no_cost_effect", RATES, f"{MODEL}.lora"),
    **silent("no_cost_effect", _ADVANTAGES, "algorithm actor_rollout_ref.actor.policy_loss"),
    **silent("no_cost_effect", _NUMBERS, f"{ACTOR}.router_replay {ACTOR}.megatron.router_replay {ACTOR}.tis_imp_ratio_cap"),
    **silent("no_cost_effect", _FORWARDS, "distillation"),
    **silent("no_cost_effect", _NUMBERS, f"{ACTOR}.adaptive_entropy"),
    **silent("no_cost_effect", DATA, "data"),
    **silent("no_cost_effect", SAVING, f"{ACTOR}.checkpoint checkpoint actor_rollout_ref.checkpoint_engine"),
    **silent("no_cost_effect", LOGS, f"{ACTOR}.profiler {ACTOR}.profile actor_rollout_ref.profiler global_profiler profiler trace"),
    **silent(
        "no_cost_effect",
        PATHS,
        f"{MODEL}.override_config trainer ray_init ray_kwargs transfer_queue hydra defaults actor_rollout_ref.nccl_timeout",
    ),
    **silent("no_cost_effect", PATHS, "config-path config-name"),
    **silent("no_cost_effect", "ranks that generate beside those that train", "actor_rollout_ref.hybrid_engine"),
    **silent("no_cost_effect", "prediction of further tokens, used in generation", f"{MODEL}.mtp"),
}

# places of the supervised trainer's keys among the actor's; longer ones first
SUPERVISED: dict[str, str] = {
    "model.partial_pretrain": f"{MODEL}.path",
    "model.strategy": f"{ACTOR}.strategy",
    "engine": f"{ACTOR}.strategy",
    "model.fsdp_config.": f"{ACTOR}.fsdp_config.",
    "engine.": f"{ACTOR}.fsdp_config.",
    "model.": f"{MODEL}.",
    "optim.": f"{ACTOR}.optim.",
    "data.train_batch_size": f"{ACTOR}.ppo_mini_batch_size",
    "data.micro_batch_size_per_gpu": f"{ACTOR}.ppo_micro_batch_size_per_gpu",
    "data.micro_batch_size": f"{ACTOR}.ppo_micro_batch_size",
    "data.use_dynamic_bsz": f"{ACTOR}.use_dynamic_bsz",
    "data.max_token_len_per_gpu": f"{ACTOR}.ppo_max_token_len_per_gpu",
    "data.max_length": "data.max_prompt_length",
    "ulysses_sequence_parallel_size": f"{ACTOR}.ulysses_sequence_parallel_size",
    "use_remove_padding": f"{MODEL}.use_remove_padding",
}
