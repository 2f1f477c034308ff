"""DeepSpeed-Chat's supervised training as a DeepSpeed JSON with the Trainer's arguments, which it makes of its own.

Names and defaults: DeepSpeedExamples, applications/DeepSpeed-Chat/training/step1_supervised_finetuning/main.py; the JSON: dschat/utils/ds_utils.py
get_train_ds_config; adapters: dschat/utils/module/lora.py, whose base weights rest while norms, biases and embeddings are trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symsim.importers.keys import Silent, natural, silent
from symsim.importers.trainer import DATA, LOGS, OTHER_MODELS, RATES
from symsim.inputs.reading import Document

ALIASES = {"lora_dim": "lora_r"}
TABLE: dict[str, Silent] = {
    **silent("derived", "what its name says of the JSON that the program makes", "offload"),
    **silent("no_cost_effect", "all linear maps of its layers, whatever they are called", "lora_module_name"),
    **silent("no_cost_effect", RATES, "num_warmup_steps lora_learning_rate"),
    **silent("no_cost_effect", DATA, "data_split sft_only_data_path data_output_path add_eot_token eot_token"),
    **silent("no_cost_effect", LOGS, "print_loss enable_tensorboard tensorboard_path"),
    **silent("not_modelled", "logits and loss in 4 bytes, or in 2 where it is off: 2 bytes a logit", "compute_fp32_loss"),
    **silent("no_cost_effect", "read with lora_dim alone", "only_optimize_lora"),
    **silent("not_modelled", "a byte of a mask an element, where a model without dropout keeps none", "dropout", (0, "0", "0.0")),
    **silent("not_modelled", OTHER_MODELS, "num_padding_at_beginning actor_model_name_or_path critic_model_name_or_path"),
}


def is_told(data: Mapping[str, Any]) -> bool:
    """Whether arguments are DeepSpeed-Chat's: a stage, and DeepSpeed without a file."""
    return "zero_stage" in data and data.get("deepspeed") in (True, "true", "True", None) and "model_name_or_path" in data


def told(document: Document) -> Document:
    """The arguments with the JSON that DeepSpeed-Chat makes of them, and what it does where nothing is said."""
    given = document.data
    kind, device = str(given.get("dtype") or "fp16"), {"device": "cpu" if given.get("offload") else "none"}
    settings: dict[str, Any] = {
        "zero_optimization": {
            "stage": natural(str(given["zero_stage"])) or 0,
            "overlap_comm": True,
            "offload_param": device,
            "offload_optimizer": device,
            "stage3_param_persistence_threshold": 10_000,
            "stage3_max_live_parameters": 30_000_000,
            "stage3_prefetch_bucket_size": 30_000_000,
            "memory_efficient_linear": False,
        },
        "bf16": {"enabled": kind == "bf16"},
        "fp16": {"enabled": kind != "bf16"},
        "gradient_clipping": 1.0,
        "prescale_gradients": False,
        "optimizer": {"type": "Adam", "params": {"lr": given.get("learning_rate") or 1e-3}},
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
    }
    data = {key: value for key, value in given.items() if key != "dtype"}
    data |= {"deepspeed": settings, "bf16" if kind == "bf16" else "fp16": True, "max_grad_norm": 1.0}
    data.setdefault("max_seq_len", 512)
    data.setdefault("per_device_train_batch_size", 16)
    if natural(str(given.get("lora_dim") or 0)):
        data |= {"use_peft": True, "lora_target_modules": "all-linear", "lora_dropout": 0.0}
        data.setdefault("only_optimize_lora", False)
    return Document(data, document.where, document.lines)
