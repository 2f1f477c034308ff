"""OpenRLHF's supervised training as a DeepSpeed JSON with the Trainer's arguments, which it makes of its own.

Names of today, in sections, and of before: openrlhf/cli/train_sft.py; the JSON: utils/deepspeed/deepspeed_utils.py get_train_ds_config
(3c3be623, 2026-08-13).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from symsim.importers.keys import Silent, natural, silent
from symsim.importers.trainer import DATA, EVALUATION, HUB, LENGTH, LOGS, PATHS, RATES, RNG
from symsim.inputs.reading import Document

PROGRAM = re.compile(r"openrlhf[./]cli[./]train_sft(?:\.py)?")
# of today, and of before
_NAMES = {
    "model.model_name_or_path": "pretrain",
    "train.batch_size": "train_batch_size",
    "train.micro_batch_size": "micro_train_batch_size",
    "data.max_len": "max_len",
    "model.gradient_checkpointing_enable": "gradient_checkpointing",
    "ds.zero_stage": "zero_stage",
    "ds.zpg": "zpg",
    "ds.adam_offload": "adam_offload",
    "ds.overlap_comm": "overlap_comm",
    "ds.grad_accum_dtype": "grad_accum_dtype",
    "ds.tensor_parallel_size": "ds_tensor_parallel_size",
    "ds.packing_samples": "packing_samples",
    "ds.use_liger_kernel": "use_liger_kernel",
    "ds.attn_implementation": "attn_implementation",
    "ds.lora.rank": "lora_rank",
    "ds.lora.dropout": "lora_dropout",
    "ds.lora.target_modules": "target_modules",
    "ds.load_in_4bit": "load_in_4bit",
    "ds.ring_attn_size": "ring_attn_size",
    "adam.lr": "learning_rate",
}
ALIASES = {
    own: name
    for names, name in {
        ("pretrain", "model.model_name_or_path"): "model_name_or_path",
        ("micro_train_batch_size", "train.micro_batch_size"): "per_device_train_batch_size",
        ("max_len", "data.max_len"): "max_seq_length",
        ("model.gradient_checkpointing_enable",): "gradient_checkpointing",
        ("packing_samples", "ds.packing_samples"): "padding_free",
        ("ds.use_liger_kernel",): "use_liger_kernel",
        ("ds.attn_implementation",): "attn_implementation",
        ("lora_rank", "ds.lora.rank"): "lora_r",
        ("ds.lora.dropout",): "lora_dropout",
        ("target_modules", "ds.lora.target_modules"): "lora_target_modules",
        ("ds.load_in_4bit",): "load_in_4bit",
    }.items()
    for own in names
}
TABLE: dict[str, Silent] = {
    **silent(
        "derived",
        "what its name says of the JSON that the program makes",
        """
        zero_stage ds.zero_stage zpg ds.zpg adam_offload ds.adam_offload overlap_comm ds.overlap_comm grad_accum_dtype ds.grad_accum_dtype
        ds_tensor_parallel_size ds.tensor_parallel_size train.batch_size ds.param_dtype optim.name
        """,
    ),
    **silent("not_modelled", "a ring of ranks that split a sequence: cp with p2p has it", "ring_attn_size ds.ring_attn_size", (1, "1")),
    **silent("not_modelled", "where shards are gathered, moved by the compiler: what of the gathers is exposed", "deepcompile ds.deepcompile"),
    **silent("no_cost_effect", "heads of a ring that are exchanged at once", "ring_head_stride ds.ring_head_stride"),
    **silent(
        "no_cost_effect",
        "a function of the framework at a checkpoint",
        "gradient_checkpointing_use_reentrant model.gradient_checkpointing_reentrant",
    ),
    **silent("not_modelled", "an auxiliary loss over router logits: below 1 % of a step", "aux_loss_coef model.aux_loss_coef", (0, "0")),
    **silent("no_cost_effect", "numbers of adapters' beginnings", "ds.lora.alpha"),
    **silent(
        "no_cost_effect",
        RATES,
        """
        adam.lr adam.betas adam.eps adam.weight_decay adam_betas l2 lr_scheduler lr_warmup_ratio lr_warmup_steps muon.lr muon.momentum muon.ns_steps
        muon.nesterov muon.no_nesterov
        """,
    ),
    **silent("no_cost_effect", LENGTH, "max_epochs train.max_epochs"),
    **silent("no_cost_effect", RNG, "train.seed train.full_determinism_enable full_determinism"),
    **silent("not_modelled", EVALUATION, "eval.steps", (-1, "-1")),
    **silent("no_cost_effect", HUB, "use_ms"),
    **silent("no_cost_effect", LOGS, "use_wandb wandb_org use_tensorboard logger.logging_steps logger.wandb.key logger.wandb.org logger.wandb.group"),
    **silent("no_cost_effect", LOGS, "logger.wandb.project logger.wandb.run_name logger.tensorboard_dir wandb_group"),
    **silent(
        "no_cost_effect",
        PATHS,
        """
        save_path ckpt_path ckpt.output_dir ckpt.save_steps ckpt.save_hf ckpt.disable_ds ckpt.path ckpt.max_num ckpt.max_mem ckpt.load_enable
        load_checkpoint save_hf_ckpt disable_ds_ckpt max_ckpt_num max_ckpt_mem use_ds_universal_ckpt ds.use_universal_ckpt disable_fast_tokenizer
        data.disable_fast_tokenizer
        """,
    ),
    **silent(
        "no_cost_effect",
        DATA,
        """
        max_samples input_key output_key input_template multiturn pretrain_mode tokenizer_chat_template apply_chat_template train_split
        eval_split dataset_probs dataset_split eval.dataset eval.split data.dataset data.dataset_probs data.dataset_split data.max_samples
        data.multiturn data.input_key data.output_key data.input_template data.tokenizer_chat_template data.apply_chat_template
        data.num_workers model.pretrain_mode_enable
        """,
    ),
}


def told(document: Document) -> Document:
    """The arguments with the JSON that OpenRLHF makes of them, and what it does where nothing is said."""
    given: Mapping[str, Any] = document.data
    own = {old: given[new] if new in given else given.get(old) for new, old in _NAMES.items()}
    kind = str(given.get("ds.param_dtype") or ("bf16" if given.get("bf16", True) else "fp16"))
    stage = natural(str(own["zero_stage"] or 2)) or 0
    zero: dict[str, Any] = {
        "stage": stage,
        "offload_optimizer": {"device": "cpu" if own["adam_offload"] else "none", "pin_memory": True},
        "reduce_bucket_size": "auto",
        "zero_hpz_partition_size": natural(str(own["zpg"] or 1)) or 1,
    }
    if stage == 3:
        zero |= {f"stage3_{name}": "auto" for name in ("param_persistence_threshold", "prefetch_bucket_size")} | {"reduce_scatter": True}
    if own["overlap_comm"]:
        zero |= {"overlap_comm": True, "contiguous_gradients": True}
    settings: dict[str, Any] = {
        "zero_optimization": zero,
        "bf16": {"enabled": kind == "bf16"},
        "fp16": {"enabled": kind == "fp16"},
        "gradient_clipping": given.get("max_norm", given.get("optim.max_norm", 1.0)),
        "optimizer": {"type": "Muon" if given.get("optim") == "muon" else "Adam", "params": {"lr": own["learning_rate"] or 5e-6}},
        "train_micro_batch_size_per_gpu": own["micro_train_batch_size"] or 8,
        "train_batch_size": own["train_batch_size"] or 128,
    }
    if own["grad_accum_dtype"]:
        settings["data_types"] = {"grad_accum_dtype": own["grad_accum_dtype"]}
    if (natural(str(own["ds_tensor_parallel_size"] or 1)) or 1) > 1:
        settings["tensor_parallel"] = {"autotp_size": own["ds_tensor_parallel_size"]}
    data = {key: value for key, value in given.items() if key not in ("train_batch_size", "max_norm", "optim")}
    data |= {"deepspeed": settings, kind: True, "max_grad_norm": settings["gradient_clipping"]}
    data.setdefault(*("max_len", 2048) if "data.max_len" not in data else ("data.max_len", 2048))
    if "micro_train_batch_size" not in data:
        data.setdefault("train.micro_batch_size", 8)
    data["use_peft"] = bool(natural(str(own["lora_rank"] or 0)))
    if own["load_in_4bit"]:
        data["use_bnb_nested_quant"] = True
    if own["target_modules"] is None:
        data["target_modules"] = "all-linear"
    data.setdefault("use_liger_kernel", bool(own["use_liger_kernel"]))
    return Document(data, document.where, document.lines)
