"""axolotl's YAML: what is timed of it, how it shards, and a row for every key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.reading import load_job
from symsim.inputs.reading import format_yaml

FILES = Path(__file__).parent / "imported" / "axolotl"
BASE = {"base_model": "meta-llama/Llama-3.1-8B", "sequence_len": 4096, "bf16": True}

# of the schemas at 067b021c8, its plugins and older examples
NAMES = """base_model_config tokenizer_type trust_remote_code output_dir hub_model_id datasets test_datasets dataset_prepared_path
shuffle_merged_datasets pretraining_dataset dataset_processes dataloader_num_workers accelerator_config world_size local_rank ddp seed
ddp_timeout ddp_bucket_cap_mb gc_steps torch_empty_cache_steps bf16 fp16 fp8 bfloat16 float16 tf32 float32 gradient_checkpointing
selective_checkpointing activation_offloading layer_offloading freeze_mm_modules unfrozen_parameters sequence_len eval_sequence_len
sample_packing pad_to_sequence_len curriculum_sampling multipack_real_batches batch_flattening use_pose streaming xformers_attention
sdp_attention flex_attention flash_attention flash_attn_cross_entropy sage_attention eager_attention attn_implementation
experts_implementation lora_mlp_kernel chunked_cross_entropy tiled_mlp deepspeed deepcompile fsdp fsdp_config fsdp_version fp32_norms
val_set_size dp_shard_size dp_replicate_size sequence_parallel_degree context_parallel_size ring_attn_func tensor_parallel_size
special_tokens tokens torch_compile max_steps warmup_steps eval_steps save_steps logging_steps use_tensorboard profiler_steps
neftune_noise_alpha rl rl_beta trl vllm qat quantization reward_model num_labels chat_template plugins load_in_8bit load_in_4bit adapter lora_r
lora_alpha lora_target_modules peft_use_dora relora gptq gradient_accumulation_steps micro_batch_size batch_size eval_batch_size
auto_find_batch_size group_by_length learning_rate optimizer optim_args optim_target_modules lr_scheduler adam_beta1 dion_lr qgalore_rank
max_grad_norm num_epochs lisa_n_layers wandb_project mlflow_run_name comet_mode use_ray use_otel_metrics liger_rope
liger_fused_linear_cross_entropy cut_cross_entropy spectrum_top_fraction kd_trainer lm_eval_tasks llmcompressor expert_parallel_size
use_scattermoe s2_attention max_packed_sequence_len evaluation_strategy""".split()


def job(tmp_path: Path, data: dict[str, Any], **options: Any) -> Job:
    path = tmp_path / "train.yaml"
    path.write_text(format_yaml({**BASE, **data}))
    return load_job("axolotl", str(path), **options)


def strategy(made: Job) -> dict[str, Any]:
    return dict(made.strategy or {})


def rows(made: Job) -> dict[str, Any]:
    return {row.key: row for row in made.rows}


def test_fully_sharded_and_packed() -> None:
    made = load_job("axolotl", str(FILES / "full" / "llama.yaml"), variables={"world": "16", "packed_document_length": "2000"})
    assert made.architecture is not None and made.architecture.name == "llama3.1-8b"
    found = strategy(made)
    assert found["zero"] == 3 and found["dp"] == 16 and found["gradient_sync"] == "last_microbatch" and found["grad_reduce_in_fp32"] is False
    assert found["seq_length"] == 8192 and found["packed_document_length"] == 2000 and found["recompute"] == "full"
    assert "main_params_dtype" not in found and made.assumptions == {"recompute_early_stop": "true", "fsdp_parameters": "main"}
    told = rows(made)
    assert told["sample_packing"].fate == "mapped" and told["liger_fused_linear_cross_entropy"].fate == "mapped"
    assert told["fsdp_config.transformer_layer_cls_to_wrap"].fate == "no_cost_effect"


def test_adapters_on_four_bits_are_said() -> None:
    made = load_job("axolotl", str(FILES / "qlora" / "mistral.yml"))
    told = rows(made)
    assert {told[key].fate for key in ("adapter", "load_in_4bit", "pad_to_sequence_len")} == {"not_modelled"} and told["lora_r"].fate == "mapped"
    found = strategy(made)
    assert (found["tuner_type"], found["lora_rank"], found["lora_dropout"], found["target_modules"]) == ("lora", 32, 0.05, ["all_linear"])
    assert found["zero"] == 2 and found["overlap_grad_reduce"] and found["optimizer_bits"] == 8
    assert told["deepspeed"].fate == "derived" and told["optimizer"].fate == "mapped"


def test_replicas_keep_the_type_that_they_are_loaded_in(tmp_path: Path) -> None:
    found = strategy(job(tmp_path, {}))
    assert found["zero"] == 0 and found["main_params_dtype"] == "bf16" and found["grad_reduce_in_fp32"] is False and found["overlap_grad_reduce"]
    assert "main_params_dtype" not in strategy(job(tmp_path, {"bf16": False, "float32": True}))


def test_degrees(tmp_path: Path) -> None:
    found = strategy(job(tmp_path, {"dp_shard_size": 4, "dp_replicate_size": 2, "tensor_parallel_size": 2, "fsdp_config": {"fsdp_version": 2}}))
    assert found["tp"] == 2 and found["dp"] == 8 and found["num_distributed_optimizer_instances"] == 2 and found["zero"] == 3
    ring = strategy(job(tmp_path, {"context_parallel_size": 2}))
    assert ring["cp"] == 2 and ring["cp_comm_type"] == "p2p"
    assert strategy(job(tmp_path, {"context_parallel_size": 2, "sample_packing": True}))["cp_comm_type"] == "all_gather"


@pytest.mark.parametrize(("mode", "wanted"), [(True, "full"), ("offload", "full"), (False, None), ("unsloth", "full")])
def test_checkpoints(tmp_path: Path, mode: Any, wanted: str | None) -> None:
    assert strategy(job(tmp_path, {"gradient_checkpointing": mode})).get("recompute") == wanted


@pytest.mark.parametrize("key", NAMES)
def test_every_name_has_a_row(tmp_path: Path, key: str) -> None:
    assert key in rows(job(tmp_path, {key: BASE.get(key)}))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"context_parapllel_size": 2}, "has no key 'context_parapllel_size': did you mean 'context_parallel_size'"),
        ({"micro_batch_size": "two"}, "it should be a number"),
        ({"auto_find_batch_size": True}, "give it"),
        ({"optimizer": "adamw_torch_fuse"}, "did you mean 'adamw_torch_fused'"),
        ({"batch_size": 7, "micro_batch_size": 2}, "a multiple of micro_batch_size, 2"),
    ],
)
def test_what_cannot_be(tmp_path: Path, data: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        job(tmp_path, data)


def test_keys_of_older_files(tmp_path: Path) -> None:
    found = rows(job(tmp_path, {"relora_warmup_steps": 10, "eval_table_max_new_tokens": 128, "pretraining_dataset": {"path": "c4", "name": "en"}}))
    assert {found[key].fate for key in ("relora_warmup_steps", "eval_table_max_new_tokens", "pretraining_dataset")} == {"no_cost_effect"}
