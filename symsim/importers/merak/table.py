"""Arguments of Merak that no formula reads, besides those of the Hugging Face Trainer, and what is to be said of each.

Merak merak_args/args.py at 1593043 (2026-02-11), docs/api_doc.md; what reads each is named where it is not the argument's own name.
"""

from __future__ import annotations

from symsim.importers.keys import Silent, silent
from symsim.importers.trainer import EVALUATION, PATHS, SAVING, TRAINER

_TRACED = "how the graph of the model is captured, once before training"
_SIZES = "for tracing alone: the model's own sizes hold"
_GENERATED = "text generation, which is another workload than a training step"
_SCALED = "a number of the loss scale, at any value one pass over fp16 gradients for overflow (below 1 % of a step) and one number summed over ranks"
_ONE_ENGINE = "MerakTrainer runs an engine of its own, which does not read it"
_SCRIPT = "read by the script that makes the model and the data, not by Merak; --of names a model to symsim"
MERAK: dict[str, Silent] = {
    **TRAINER,
    **silent("no_cost_effect", _TRACED, "trace_method trace_model input_names cache_sharding cache_name leaf_modules"),
    **silent("no_cost_effect", _SIZES, "num_layers num_heads hidden_size"),
    **silent("no_cost_effect", "the first values of the weights", "init_method_std"),
    **silent("no_cost_effect", "a permission, checked as the optimizer is made", "zero_allow_untested_optimizer"),
    **silent("no_cost_effect", "stored and never read (core/zero/stage1.py): the reduction's bucket decides", "zero_allgather_bucket_size"),
    **silent("no_cost_effect", "declared and never read", "split_inputs"),
    **silent("no_cost_effect", PATHS, "finetune no_load_rng no_load_optim no_save_rng"),
    **silent("not_modelled", SAVING, "save no_save_optim"),
    **silent("no_cost_effect", "how many checkpoints stay on disk", "save_total_limit"),
    **silent("not_modelled", EVALUATION, "eval_iters return_logits"),
    **silent("not_modelled", _GENERATED, "text_generation"),
    **silent("no_cost_effect", _GENERATED, "out_seq_length temperature"),
    **silent("no_cost_effect", _SCALED, "loss_scale initial_scale_power loss_scale_window hysteresis min_loss_scale"),
    **silent("no_cost_effect", "the adapter's name", "adapter_name"),
    **silent("no_cost_effect", "a loss of the script's; cross entropy over the logits is taken", "loss_fn"),
    **silent("no_cost_effect", "convolutions, which a decoder has none of", "conv_para_list"),
    **silent("no_cost_effect", "attributes of modules that follow from the linear maps that are split", "tp_attr_list"),
    **silent(
        "no_cost_effect",
        _ONE_ENGINE,
        "fsdp deepspeed gradient_checkpointing gradient_checkpointing_kwargs fsdp_config accelerator_config tp_size group_by_length torch_compile",
    ),
    **silent(
        "no_cost_effect",
        _SCRIPT,
        """model_name model_name_or_path model_path config_name tokenizer_name tokenizer_path dataset_name dataset_config_name data_files
        data_path train_file validation_file cache_dir block_size preprocessing_num_workers""",
    ),
}
