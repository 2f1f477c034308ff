"""axolotl's YAML: what is timed of it, how it shards, and a row for every key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from symsim.api.result import derive
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


def test_other_values_of_the_models_own_keys(tmp_path: Path) -> None:
    for key in ("model_config", "overrides_of_model_config"):
        found = rows(job(tmp_path, {key: {"output_router_logits": True, "rope_theta": 1e6}}))[key]
        assert (found.fate, found.why) == ("no_cost_effect", "weight of an auxiliary loss; sets the angles of rotary positions")
        found = rows(job(tmp_path, {key: {"output_router_logits": True, "num_hidden_layers": 4}}))[key]
        assert found.fate == "not_modelled" and "num_hidden_layers" in found.why


def test_modules_of_gpt_neox_are_trained_whole(tmp_path: Path) -> None:
    whole = {"base_model": "EleutherAI/pythia-1.4b", "adapter": "lora", "lora_r": 8, "lora_modules_to_save": ["embed_in", "embed_out"]}
    found = job(tmp_path, whole)
    assert strategy(found)["modules_to_save"] == ["embedding", "lm_head"] and rows(found)["lora_modules_to_save"].fate == "mapped"


@pytest.mark.parametrize("way", [True, "legacy", "hidden_states", "disk", False])
def test_activations_on_the_host(tmp_path: Path, way: Any) -> None:
    made = job(tmp_path, {"gradient_checkpointing": True, "activation_offloading": way})
    fates = {True: "mapped", "legacy": "mapped", "hidden_states": "mapped", "disk": "not_modelled", False: "no_cost_effect"}
    assert rows(made)["activation_offloading"].fate == fates[way]
    assert (strategy(made) != strategy(job(tmp_path, {"gradient_checkpointing": True}))) == (fates[way] == "mapped")
    assert rows(job(tmp_path, {"gradient_checkpointing": False, "activation_offloading": "legacy"}))["activation_offloading"].fate == "not_modelled"


def test_switches_that_are_off(tmp_path: Path) -> None:
    off = job(tmp_path, {"deepspeed": False, "fsdp": False})
    assert strategy(off) == strategy(job(tmp_path, {})) and rows(off)["deepspeed"].fate == "no_cost_effect"


@pytest.mark.parametrize("backend, way", [("auto", "a2a"), ("ulysses", "a2a"), ("ring", "p2p"), (None, "a2a")])
def test_the_plugin_of_context_parallelism(tmp_path: Path, backend: str | None, way: str) -> None:
    section = {"size": 4, "load_balance": "head_tail", **({"backend": backend} if backend else {})}
    made = job(tmp_path, {"context_parallel": section, "sequence_len": 8192})
    assert (made.placed().cp, made.placed().cp_comm_type) == (4, way)
    assert rows(made)["context_parallel.size"].fate == "mapped"


def test_layers_that_are_drawn_are_as_many(tmp_path: Path) -> None:
    """LISA: gradients reach the embedding whichever layers are trained."""
    found = strategy(job(tmp_path, {"lisa_n_layers": 4, "lisa_step_interval": 20}))
    assert found["freeze_parameters"] == ["layers"] and found["trainable_parameters"] == ["layers.0-3"]
    assert "freeze_parameters" not in strategy(job(tmp_path, {"lisa_n_layers": 99}))


@pytest.mark.parametrize(("more", "wide"), [({}, True), ({"peft_autocast_adapter_dtype": False}, False), ({"deepspeed": "zero2.json"}, False)])
def test_adapters_are_fp32_and_cast(tmp_path: Path, more: dict[str, Any], wide: bool) -> None:
    (tmp_path / "zero2.json").write_text('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}')
    found = strategy(job(tmp_path, {"adapter": "lora", "lora_r": 8, "lora_target_linear": True, **more}))
    assert found.get("autocast", False) == wide


def test_functions_of_adapters(tmp_path: Path) -> None:
    lora = {"adapter": "lora", "lora_r": 8, "lora_target_linear": True, "lora_qkv_kernel": True, "lora_mlp_kernel": True}
    found = strategy(job(tmp_path, lora))
    assert found["fused_adapters"] == ["qkv", "mlp"] and found["fused_kernels"] == ["activation"]
    compiled = job(tmp_path, {**lora, "torch_compile": True})
    assert "fused_adapters" not in strategy(compiled) and rows(compiled)["lora_qkv_kernel"].fate == "not_modelled"
    assert "fused_adapters" not in strategy(job(tmp_path, {"lora_qkv_kernel": True}))
    plain = {"adapter": "qlora", "lora_r": 8, "load_in_4bit": True}
    told = job(tmp_path, plain)
    assert strategy(told)["fused_adapters"] == ["qkv", "o", "mlp"] and rows(told)["lora_mlp_kernel"].fate == "derived"
    sharded = {"fsdp_config": {"reshard_after_forward": True}}
    for more in ({"lora_mlp_kernel": False}, {"rl": "dpo"}, {"trust_remote_code": True}, sharded):
        assert "fused_adapters" not in strategy(job(tmp_path, {**plain, **more})), more
    assert "fused_adapters" in strategy(job(tmp_path, {**plain, **sharded, "fsdp_version": 2}))


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
    assert {told[key].fate for key in ("adapter", "load_in_4bit", "lora_r")} == {"mapped"} and told["pad_to_sequence_len"].fate == "derived"
    found = strategy(made)
    assert found["quantize_base"] == "nf4_double"
    assert (found["tuner_type"], found["lora_rank"], found["lora_dropout"], found["target_modules"]) == ("lora", 32, 0.05, ["all_linear"])
    assert found["zero"] == 2 and found["overlap_grad_reduce"] and found["optimizer_bits"] == 8
    assert "fp32_embedding_moments" not in found
    assert told["deepspeed"].fate == "derived" and told["optimizer"].fate == "mapped"


def test_ways_of_adapters(tmp_path: Path) -> None:
    """Layouts of bitsandbytes, magnitudes, experts by their parameters, patterns of names, and what frameworks run and symsim does not."""
    lora = {"adapter": "lora", "base_model": "mistralai/Mixtral-8x7B-v0.1"}
    eight = strategy(job(tmp_path, {**lora, "load_in_8bit": True, "peft_use_dora": True}))
    assert eight["quantize_base"] == "int8" and eight["use_dora"] is True
    plain = {"bnb_4bit_use_double_quant": False, "bnb_4bit_quant_type": "fp4"}
    four = strategy(job(tmp_path, {**lora, "load_in_4bit": True, "bnb_config_kwargs": plain, "quantize_moe_experts": True}))
    assert four["quantize_base"] == "fp4" and four["quantize_experts"] is True
    split = job(tmp_path, {**lora, "load_in_4bit": True, "tensor_parallel_size": 2, "base_model": "meta-llama/Meta-Llama-3-8B"})
    assert "quantize_base" not in strategy(split) and rows(split)["load_in_4bit"].fate == "not_modelled"
    experts = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    named = strategy(job(tmp_path, {**lora, "lora_target_modules": ["q_proj"], "lora_target_parameters": experts}))
    assert named["target_modules"] == ["q_proj", "moe.experts.fc1", "moe.experts.fc2"]
    assert strategy(job(tmp_path, {**lora, "lora_target_modules": ["up_proj"]}))["target_modules"] == ["moe.experts.fc1"]
    pattern = r"model.language_model.layers.[\d]+.(mlp|self_attn).(up|down|q|o)_proj"
    dense = {"adapter": "qlora", "base_model": "meta-llama/Meta-Llama-3-8B", "lora_target_modules": pattern}
    assert strategy(job(tmp_path, dense))["target_modules"] == ["q_proj", "o_proj", "up_proj", "down_proj"]
    listed = strategy(job(tmp_path, {**dense, "lora_target_modules": r".*\.(q_proj|v_proj)$"}))
    assert listed["target_modules"] == ["q_proj", "v_proj"]
    ranked = job(tmp_path, {**dense, "lora_target_modules": ["q_proj", "v_proj"], "lora_rank_pattern": {r"layers\.[01]\..*": 4, "v_proj": 2}})
    assert strategy(ranked)["rank_pattern"] == ["layers.0-1.q_proj=4", "layers.0-1.v_proj=4", "layers.2-31.v_proj=2"]


def test_adapters_in_some_layers(tmp_path: Path) -> None:
    lora = {"adapter": "lora", "base_model": "meta-llama/Meta-Llama-3-8B", "lora_target_modules": ["q_proj", "v_proj"]}
    made = job(tmp_path, {**lora, "peft_layers_to_transform": [0, 1, 2, 30, 31]})
    assert strategy(made)["target_modules"] == ["layers.0-2.q_proj", "layers.30-31.q_proj", "layers.0-2.v_proj", "layers.30-31.v_proj"]
    assert rows(made)["peft_layers_to_transform"].fate == "mapped"
    every = {**lora, "lora_target_linear": True, "lora_target_modules": None}
    assert strategy(job(tmp_path, {**every, "peft_layers_to_transform": 7}))["target_modules"] == ["layers.7-7"]
    whole = strategy(job(tmp_path, {**lora, "peft_layers_to_transform": list(range(32))}))
    assert whole["target_modules"] == ["q_proj", "v_proj"]
    for wrong, said in ((["first"], "it should be a layer's number, or a list of them"), ([32, 40], "there are layers 0 to 31, and so no adapters")):
        with pytest.raises(InputError, match=said):
            job(tmp_path, {**lora, "peft_layers_to_transform": wrong})


def test_names_of_no_linear_map(tmp_path: Path) -> None:
    """A slip is refused where nothing else is named, as peft does; where what is named is no part of the model here, all have adapters, and the
    row says so."""
    lora = {"adapter": "lora", "base_model": "meta-llama/Meta-Llama-3-8B"}
    with pytest.raises(InputError, match=r"lora_target_modules=q_prj: no linear map of the model is called q_prj \(did you mean 'q_proj'\?\)"):
        job(tmp_path, {**lora, "lora_target_modules": ["q_prj"]})
    none, some = (job(tmp_path, {**lora, "lora_target_modules": names}) for names in (["mm_connector"], ["q_prj", "v_proj"]))
    assert [strategy(made)["target_modules"] for made in (none, some)] == [["all_linear"], ["v_proj"]]
    why = [rows(made)["lora_target_modules"].why for made in (none, some)]
    start = "no linear map here is called "
    assert why == [start + "mm_connector: all linear maps have adapters in their place", start + "q_prj: no adapters beside them"]


def test_adapters_of_single_maps_where_kernels_join_them(tmp_path: Path) -> None:
    """fp8 has te's kernels here, which is known after the adapters: `eval` refused q_proj."""
    made = job(tmp_path, {"adapter": "lora", "lora_r": 8, "lora_target_modules": ["q_proj", "layers.3.mlp.up_proj"], "fp8": True})
    assert strategy(made)["target_modules"] == ["linear_qkv", "layers.3-3.linear_fc1"]
    assert rows(made)["joint products"].fate == "derived"
    assert made.architecture is not None and derive(made.architecture, made.placed()).value("params.trained") == 8 * (
        32 * (4096 + 6144) + 4096 + 28672
    )


def test_kernels_losses_and_heads(tmp_path: Path) -> None:
    liger = {"liger_rms_norm": True, "liger_glu_activation": True, "liger_rope": True, "chunked_cross_entropy": True}
    found = strategy(job(tmp_path, {**liger, "chunked_cross_entropy_num_chunks": 4}))
    assert found["fused_kernels"] == ["norm", "activation", "rope"]
    assert (found["cross_entropy_fusion"], found["cross_entropy_chunks"]) == ("output_chunks", 4)
    reward = strategy(job(tmp_path, {"reward_model": True, "cut_cross_entropy": True}))
    assert (reward["task_type"], reward["num_labels"]) == ("seq_cls", 1) and "cross_entropy_fusion" not in reward
    patterns = ["^lm_head.weight$", "model.layers.2[0-3]+.mlp"]
    opened = strategy(job(tmp_path, {"base_model": "meta-llama/Meta-Llama-3-8B", "unfrozen_parameters": patterns}))
    assert opened["trainable_parameters"] == ["lm_head", "layers.20-23.mlp"]
    assert opened["freeze_parameters"] == ["embedding", "layers", "lm_head", "final_norm"]


@pytest.mark.parametrize("pattern", ["model.layers.5[7-5]+.mlp", "model.layers.+.mlp", "model.layers.1+++.mlp", "model.layers.1x.mlp"])
def test_a_pattern_that_is_none_names_nothing(tmp_path: Path, pattern: str) -> None:
    made = job(tmp_path, {"base_model": "meta-llama/Meta-Llama-3-8B", "unfrozen_parameters": ["lm_head.weight", pattern]})
    (row,) = [row for row in made.rows if row.key == "unfrozen_parameters"]
    assert row.fate == "not_modelled" and pattern in row.why and "trainable_parameters" not in strategy(made)


def test_a_plugin_for_the_loss_turns_it_on(tmp_path: Path) -> None:
    plugin = {"plugins": ["axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"]}
    assert strategy(job(tmp_path, plugin))["cross_entropy_fusion"] == "cut"
    assert "cross_entropy_fusion" not in strategy(job(tmp_path, {**plugin, "cut_cross_entropy": False}))
    assert "cross_entropy_fusion" not in strategy(job(tmp_path, {"plugins": ["axolotl.integrations.liger.LigerPlugin"]}))


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
        ({"auto_find_batch_size": True}, "give false, and the size that it found"),
        ({"optimizer": "adamw_torch_fuse"}, "did you mean 'adamw_torch_fused'"),
        ({"batch_size": 7, "micro_batch_size": 2}, "a multiple of micro_batch_size, 2"),
        ({"adapter": "dora"}, "adapter is dora; it should be lora with peft_use_dora: true"),
    ],
)
def test_what_cannot_be(tmp_path: Path, data: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        job(tmp_path, data)


def test_what_is_read_twice_says_what_is_missing(tmp_path: Path) -> None:
    found = rows(job(tmp_path, {"adapter": "llama-adapter", "lora_r": 8}))["adapter"]
    assert (found.fate, found.why) == ("not_modelled", "llama-adapter is timed as LoRA, whose products are others")


def test_keys_of_older_files(tmp_path: Path) -> None:
    found = rows(job(tmp_path, {"relora_warmup_steps": 10, "eval_table_max_new_tokens": 128, "pretraining_dataset": {"path": "c4", "name": "en"}}))
    assert {found[key].fate for key in ("relora_warmup_steps", "eval_table_max_new_tokens", "pretraining_dataset")} == {"no_cost_effect"}


@pytest.mark.parametrize("size, padded, fate", [(50257, 50272, "mapped"), (32000, 32000, "no_cost_effect")])
def test_embeddings_are_resized_to_a_multiple_of_32(tmp_path: Path, size: int, padded: int, fate: str) -> None:
    (tmp_path / "a.yaml").write_text("base_model: a/b\nmicro_batch_size: 1\nresize_token_embeddings_to_32x: true\nflash_attn_rms_norm: true\n")
    text = (Path(__file__).parents[1] / "models" / "llama2-7b.yaml").read_text()
    (tmp_path / "m.yaml").write_text(re.sub("vocab_size: .*", f"vocab_size: {size}", text))
    made = load_job("axolotl", str(tmp_path / "a.yaml"), model=str(tmp_path / "m.yaml"))
    assert made.architecture is not None and made.architecture.vocab_size == padded
    assert {row.key: row.fate for row in made.rows}["resize_token_embeddings_to_32x"] == fate
    assert list((made.strategy or {})["fused_kernels"]) == ["norm"]


def test_experts_that_are_unpacked_as_they_are_loaded(tmp_path: Path) -> None:
    """Mxfp4Config with dequantize: a moment on the device where it holds all parameters, none that lasts where they are cut before the first step."""
    data = {"base_model": "openai/gpt-oss-20b", "model_quantization_config": "Mxfp4Config", "model_quantization_config_kwargs": {"dequantize": True}}
    made = job(tmp_path, {**data, "adapter": "lora"})
    assert made.assumptions["checkpoint_unpacking"] == "mxfp4"
    assert {row.key: row.fate for row in made.rows}["model_quantization_config"] == "mapped"
    for other in ({"fsdp_version": 2, "fsdp_config": {"reshard_after_forward": True}}, {"model_quantization_config": "FineGrainedFP8Config"}):
        made = job(tmp_path, {**data, **other})
        assert "checkpoint_unpacking" not in made.assumptions
        assert {row.key: row.fate for row in made.rows}["model_quantization_config"] == "no_cost_effect"
    made = job(tmp_path, {**data, "model_quantization_config_kwargs": {"dequantize": False}})
    assert {row.key: row.fate for row in made.rows}["model_quantization_config"] == "not_modelled"


def test_parts_of_sequences_between_which_a_state_goes(tmp_path: Path) -> None:
    """examples/nemotron-h/nano-30b-a3b-qlora-cp.yaml: as many tokens a step on as many ranks, in rows of a part each."""
    data = {"base_model": "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "fsdp_version": 2, "fsdp_config": {"reshard_after_forward": True}}
    whole = job(tmp_path, data, variables={"world": "8"}).placed()
    made = job(tmp_path, {**data, "context_parallel_size": 2}, variables={"world": "8"})
    parts = made.placed()
    assert (whole.cp, whole.dp, whole.seq_length) == (1, 8, 4096) and (parts.cp, parts.dp, parts.seq_length) == (1, 8, 2048)
    (told,) = [row for row in made.rows if row.key == "context_parallel_size"]
    assert told.fate == "not_modelled" and "1 of 2 are missing" in told.why
    assert job(tmp_path, {"context_parallel_size": 2, **{key: data[key] for key in ("fsdp_version", "fsdp_config")}}).placed().cp == 2
