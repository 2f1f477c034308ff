"""nanotron's keys that no formula reads.

Names and defaults: nanotron 2411b022 (2026-04-07), src/nanotron/config/config.py, parallelism_config.py, models_config.py, lighteval_config.py.
"""

from __future__ import annotations

from symsim.importers.keys import Silent, silent
from symsim.importers.trainer import DATA, EVALUATION, HUB, LENGTH, LOADING, LOGS, PATHS, RATES, RNG, SAVING

_TURNED = "frequencies of rotary embeddings, and how its halves are laid out"
_START = "how weights are made before the first step"
_TOKENS = "numbers of a tokenizer, or of generation"
_DOCUMENTS = "attention stays inside a document: --var packed_document_length=N gives their mean length"


def _of(section: str, keys: str) -> str:
    return " ".join(f"{section}.{key}" for key in keys.split())


SILENT: dict[str, Silent] = {
    **silent("no_cost_effect", PATHS, _of("general", "project run step consumed_train_samples benchmark_csv_path ignore_sanity_checks entity")),
    **silent("no_cost_effect", RNG, "general.seed"),
    # of files from before it was published (brrr), StarCoder2's among them
    **silent("no_cost_effect", PATHS, "general.kill_switch_path model.tokenizer_name_or_path checkpoints.load_from_specific_checkpoint"),
    **silent("no_cost_effect", PATHS, "general.name kill_switch_path"),
    **silent("no_cost_effect", RNG, "model.seed brrr_data.seed"),
    **silent("no_cost_effect", RATES, "optimizer.learning_rate"),
    **silent(
        "no_cost_effect",
        "uploads of checkpoints belong to the run",
        """checkpoints.s3.upload_s3_path checkpoints.s3.remove_after_upload checkpoints.s3.s5cmd_numworkers checkpoints.s3.s5cmd_concurrency
        checkpoints.s3.s5cmd_path checkpoints.s3 optimizer.no_load_optim""",
    ),
    **silent("not_modelled", "belongs to the run: a profiler's hooks in the steps that it records", "profile"),
    **silent("not_modelled", SAVING, "checkpoints.checkpoint_interval"),
    **silent(
        "no_cost_effect",
        SAVING,
        _of(
            "checkpoints",
            """checkpoints_path save_initial_state save_final_state resume_checkpoint_path load_lr_scheduler load_optimizer
            checkpoints_path_is_shared_file_system""",
        ),
    ),
    **silent(
        "no_cost_effect",
        _START,
        "model.init_method.std model.init_method.path model.init_method.use_mup model.init_method.scaling_method"
        " model.init_method.initializer_range model.init_method.n_residuals_per_layer model.init_method.rescale_prenorm_residual",
    ),
    **silent("no_cost_effect", _START, "model.model_config.initializer_range"),
    **silent("no_cost_effect", _TOKENS, _of("model.model_config", "bos_token_id eos_token_id pad_token_id use_cache")),
    **silent("no_cost_effect", _TOKENS, _of("tokenizer", "tokenizer_name_or_path tokenizer_revision tokenizer_max_length")),
    **silent(
        "no_cost_effect",
        _TURNED,
        _of(
            "model.model_config",
            "rope_theta rope_interleaved interleaved_rotary rope_seq_len_interpolation_factor max_position_embeddings",
        ),
    ),
    **silent("no_cost_effect", "read by no layer here", _of("model.model_config", "pretraining_tp rms_norm_eps layer_norm_epsilon")),
    **silent("no_cost_effect", "products of as many numbers", _of("model.model_config", "scale_attn_weights scale_attention_softmax_in_fp32")),
    **silent("no_cost_effect", "inside a fused attention kernel", _of("model.model_config", "attention_softmax_in_fp32")),
    **silent("no_cost_effect", LOGS, "model.model_config.log_attn_probs"),
    **silent("not_modelled", "another mask than the causal one", "model.model_config.flex_attention_mask"),
    **silent("no_cost_effect", "heads that a ring's step takes at a time", "model.model_config.ring_attn_heads_k_stride"),
    **silent("not_modelled", _DOCUMENTS, "model.model_config._use_doc_masking"),
    **silent("not_modelled", "one more pass over the logits: below 1 % of a step", "model.model_config.z_loss_enabled"),
    **silent("no_cost_effect", "read with z_loss_enabled", "model.model_config.z_loss_coefficient"),
    **silent("no_cost_effect", "the weight of a loss", "model.model_config.moe_config.router_aux_loss_coef"),
    **silent("no_cost_effect", "the weight of a loss", _of("model.model_config", "moe_z_loss_weight moe_loss_weight moe_glu")),
    **silent(
        "no_cost_effect", "how tokens are exchanged with one expert-parallel rank: not at all", "model.model_config.moe_config.token_dispatcher_type"
    ),
    **silent("no_cost_effect", LENGTH, "tokens.train_steps"),
    **silent("not_modelled", EVALUATION, "tokens.val_check_interval", (-1, None)),
    **silent("no_cost_effect", EVALUATION, "tokens.limit_val_batches tokens.limit_test_batches"),
    **silent("no_cost_effect", RATES, _of("optimizer", "weight_decay weight_decay_exclude_named_params optimizer_factory.adam_eps")),
    **silent("no_cost_effect", RATES, _of("optimizer.optimizer_factory", "adam_beta1 adam_beta2")),
    **silent("no_cost_effect", RATES, _of("optimizer", "adam_eps adam_beta1 adam_beta2")),
    **silent("no_cost_effect", DATA, "data_stages data.seed data.dataset"),
    **silent("not_modelled", LOADING, "data.num_loading_workers", (1,)),
}

# sections of which every key is the same
SECTIONS: dict[str, Silent] = {
    **silent("no_cost_effect", _TURNED, "model.model_config.rope_scaling"),
    **silent("no_cost_effect", RATES, "optimizer.learning_rate_scheduler learning_rate_scheduler"),
    **silent("no_cost_effect", LOGS, "logging metrics_logging experiment_logger"),
    **silent("not_modelled", "belongs to the run: a profiler's hooks in the steps that it records", "profiler"),
    **silent("no_cost_effect", EVALUATION, "lighteval"),
    **silent("no_cost_effect", HUB, "s3_upload"),
    **silent("no_cost_effect", DATA, "data data_stages doremi brrr_data.dataset"),
}
