"""LLaMA-Factory's YAML: what is timed of it, the DeepSpeed JSON that it names, and a row for every argument."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import symsim
from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.reading import load_job
from symsim.inputs.reading import format_yaml

FILES = Path(__file__).parent / "imported" / "llama-factory"
BASE = {"model_name_or_path": "meta-llama/Llama-3.1-8B", "stage": "sft", "finetuning_type": "full", "bf16": True}

# of the classes at ff6d4d12e
NAMES = """kt_config adapter_name_or_path cache_dir resize_vocab split_special_tokens rope_scaling flash_attn shift_attn mixture_of_depths use_unsloth
use_unsloth_gc enable_liger_kernel moe_aux_loss_coef disable_gradient_checkpointing use_reentrant_gc upcast_layernorm train_from_scratch
infer_backend use_kv_cache hf_hub_token trust_remote_code quantization_bit quantization_type double_quantization image_max_pixels
export_dir vllm_maxlen sglang_maxlen use_kt kt_weight_path template dataset cutoff_len streaming mix_strategy max_samples val_size packing
neat_packing tokenized_path freeze_trainable_layers lora_rank lora_alpha lora_target use_dora pissa_init oft_rank pref_beta simpo_gamma ppo_epochs
ref_model reward_model use_galore galore_rank use_apollo apollo_rank use_badam badam_mode use_swanlab pure_bf16 stage finetuning_type
use_llama_pro use_adam_mini use_muon use_hyper_parallel hyper_parallel_cp_size use_dft_loss freeze_vision_tower compute_accuracy plot_loss
ray_num_workers enable_torch_profiler fp8 fp8_backend overwrite_output_dir do_sample temperature max_new_tokens task n_shot
per_device_train_batch_size gradient_accumulation_steps learning_rate bf16 deepspeed""".split()


def job(tmp_path: Path, data: dict[str, Any], *more: str, **options: Any) -> Job:
    path = tmp_path / "train.yaml"
    path.write_text(format_yaml({**BASE, **data}))
    return load_job("llama-factory", str(path), *more, **options)


def strategy(made: Job) -> dict[str, Any]:
    return dict(made.strategy or {})


def rows(made: Job) -> dict[str, Any]:
    return {row.key: row for row in made.rows}


def test_full_with_zero_3_by_its_name() -> None:
    made = load_job("llama-factory", str(FILES / "full" / "train.yaml"), variables={"world": "16", "packed_document_length": "1500"})
    assert made.architecture is not None and made.architecture.name == "qwen2.5-7b"
    found = strategy(made)
    assert found["zero"] == 3 and found["dp"] == 16 and found["num_microbatches"] == 4 and found["recompute"] == "full"
    assert found["seq_length"] == 8192 and found["packed_document_length"] == 1500 and found["precision"] == "bf16"
    assert made.assumptions["fsdp_prefetch"] == "false" and made.assumptions["recompute_early_stop"] == "false"
    told = rows(made)
    assert told["deepspeed"].fate == "derived" and told["neat_packing"].fate == "mapped" and told["enable_liger_kernel"].fate == "mapped"


def test_adapters_and_pairs_are_said() -> None:
    made = load_job("llama-factory", str(FILES / "lora" / "train.yaml"))
    told = rows(made)
    assert {told[key].fate for key in ("stage", "quantization_bit", "lora_rank")} == {"mapped"} and strategy(made)["further_forwards"] == 1
    assert strategy(made)["quantize_base"] == "nf4_double"
    assert strategy(made)["tuner_type"] == "lora" and strategy(made)["lora_rank"] == 8 and strategy(made)["target_modules"] == ["all_linear"]
    assert strategy(made)["zero"] == 0 and strategy(made)["overlap_grad_reduce"] and strategy(made)["dp"] == 8


def test_only_the_last_layers_are_trained(tmp_path: Path) -> None:
    made = strategy(job(tmp_path, {"finetuning_type": "freeze", "freeze_trainable_layers": 4, "model_name_or_path": "meta-llama/Meta-Llama-3-8B"}))
    assert made["trainable_parameters"] == ["layers.28-31"] and "layers" in made["freeze_parameters"]


def test_modules_of_the_layers_that_are_trained(tmp_path: Path) -> None:
    """`norm` is in the names of a layer's norms too."""
    base = {"finetuning_type": "freeze", "freeze_trainable_layers": -3, "model_name_or_path": "meta-llama/Meta-Llama-3-8B"}
    made = strategy(job(tmp_path, {**base, "freeze_trainable_modules": "self_attn,mlp", "freeze_extra_modules": "embed_tokens"}))
    assert made["trainable_parameters"] == ["layers.0-2.attention", "layers.0-2.mlp", "embedding"]
    assert strategy(job(tmp_path, {**base, "freeze_extra_modules": "norm"}))["trainable_parameters"] == ["layers.0-2", "norm"]
    with pytest.raises(
        InputError, match=r"freeze_trainable_modules is q_proj; it should be of all, input_layernorm, self_attn, post_attention_layernorm, mlp"
    ):
        job(tmp_path, {**base, "freeze_trainable_modules": "q_proj"})
    unknown = rows(job(tmp_path, {"finetuning_type": "freeze", "freeze_trainable_modules": "mlp", "model_name_or_path": "nobody/knows"}))
    assert unknown["freeze_trainable_modules"].fate == "not_modelled"


def test_modules_beside_adapters_by_the_ends_of_their_names(tmp_path: Path) -> None:
    """peft 0.19: `norm` is the end of every norm's name."""
    base = {"finetuning_type": "lora", "model_name_or_path": "Qwen/Qwen3-8B"}
    made = job(tmp_path, {**base, "additional_target": "embed_tokens,lm_head,norm"})
    assert strategy(made)["modules_to_save"] == ["embedding", "lm_head", "norm"] and rows(made)["additional_target"].fate == "mapped"
    some = job(tmp_path, {**base, "additional_target": "layernorm,mlp"})
    assert (
        sorted(strategy(some)["modules_to_save"]) == ["pre_attention_norm", "pre_mlp_norm"] and rows(some)["additional_target"].fate == "not_modelled"
    )


def test_the_json_that_it_names_or_is_given(tmp_path: Path) -> None:
    settings = {"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2, "overlap_comm": True}}
    (tmp_path / "mine.json").write_text(json.dumps(settings))
    named = job(tmp_path, {"deepspeed": "mine.json"})
    assert strategy(named)["zero"] == 2 and strategy(named)["overlap_grad_reduce"] and rows(named)["deepspeed"].fate == "mapped"
    given = job(tmp_path, {"deepspeed": "elsewhere/z.json"}, str(tmp_path / "mine.json"))
    assert given.strategy == named.strategy
    with pytest.raises(InputError, match="its name says no stage"):
        job(tmp_path, {"deepspeed": "elsewhere/z.json"})
    # from the root of a checkout, whose examples/ holds both
    (tmp_path / "examples" / "deepspeed").mkdir(parents=True)
    (tmp_path / "examples" / "full").mkdir()
    (tmp_path / "examples" / "deepspeed" / "z.json").write_text(json.dumps(settings))
    assert job(tmp_path / "examples" / "full", {"deepspeed": "examples/deepspeed/z.json"}).strategy == named.strategy
    offloaded = strategy(job(tmp_path, {"deepspeed": "ds_z3_offload_config.json"}))
    assert offloaded["optimizer_cpu_offload"] and offloaded["zero"] == 3


def test_types_of_weights(tmp_path: Path) -> None:
    assert strategy(job(tmp_path, {"pure_bf16": True}))["main_params_dtype"] == "bf16"
    cast = job(tmp_path, {})
    assert rows(cast)["autocast"].fate == "derived" and strategy(cast)["autocast"] and "main_params_dtype" not in strategy(cast)
    whole = job(tmp_path, {"finetuning_type": "full"})
    assert strategy(whole)["autocast"] and symsim.derive(whole.architecture, strategy(whole)).strategy.autocast
    assert rows(job(tmp_path, {"enable_liger_kernel": True}))["autocast"].fate == "not_modelled"


def test_one_layer_at_a_time_is_the_middle_one(tmp_path: Path) -> None:
    """BAdam's mean step: of L layers the one at (L - 1)/2 has the mean backward; its weights are not cast."""
    made = job(tmp_path, {"finetuning_type": "full", "use_badam": True})
    assert made.architecture is not None
    middle = (made.architecture.num_layers - 1) // 2
    assert strategy(made)["trainable_parameters"] == [f"layers.{middle}"] and "autocast" not in strategy(made)
    stays = job(tmp_path, {"finetuning_type": "full", "use_badam": True, "badam_switch_mode": "fixed", "badam_start_block": 3})
    assert strategy(stays)["trainable_parameters"] == ["layers.3"]
    shares = job(tmp_path, {"finetuning_type": "full", "use_badam": True, "badam_mode": "ratio"})
    assert rows(shares)["badam_mode"].fate == "not_modelled" and "freeze_parameters" not in strategy(shares)
    whole, part = (symsim.derive(m.architecture, strategy(m)).to_json()["params"]["total"] for m in (made, shares))
    assert whole == part


def test_rotations(tmp_path: Path) -> None:
    made = job(tmp_path, {"finetuning_type": "oft", "oft_block_size": 64, "oft_target": "q_proj,v_proj"})
    assert {name: strategy(made)[name] for name in ("tuner_type", "oft_block_size", "target_modules")} == {
        "tuner_type": "oft",
        "oft_block_size": 64,
        "target_modules": ["q_proj", "v_proj"],
    }
    # peft: (h / o) blocks of o (o - 1) / 2 numbers for each map
    assert symsim.derive(made.architecture, strategy(made)).value("params.trained") == 32 * 2 * 4096 // 64 * (64 * 63 // 2)
    assert strategy(job(tmp_path, {"finetuning_type": "oft"}))["oft_block_size"] == 32
    assert "24 an element of what goes into a rotated map" in rows(job(tmp_path, {"finetuning_type": "oft"}))["autocast"].why
    counted = job(tmp_path, {"finetuning_type": "oft", "oft_rank": 8, "oft_block_size": 0, "module_dropout": 0.1})
    assert {key: rows(counted)[key].fate for key in ("oft_rank", "module_dropout")} == {"oft_rank": "not_modelled", "module_dropout": "not_modelled"}


def test_checkpoints(tmp_path: Path) -> None:
    assert strategy(job(tmp_path, {}))["recompute"] == "full"
    assert "recompute" not in strategy(job(tmp_path, {"disable_gradient_checkpointing": True}))
    waiting = job(tmp_path, {"use_unsloth_gc": True})
    assert waiting.architecture is not None and strategy(waiting)["cpu_offloading_num_layers"] == waiting.architecture.num_layers - 1
    assert job(tmp_path, {"use_reentrant_gc": False}).assumptions["recompute_early_stop"] == "true"
    assert "recompute" not in strategy(job(tmp_path, {"disable_gradient_checkpointing": True, "gradient_checkpointing": True}))


@pytest.mark.parametrize("key", NAMES)
def test_every_name_has_a_row(tmp_path: Path, key: str) -> None:
    assert key in rows(job(tmp_path, {key: None}))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"cutof_len": 4096}, "has no key 'cutof_len': did you mean 'cutoff_len'"),
        ({"finetuning_type": "ful"}, "one of full, lora, oft, freeze .did you mean 'full'"),
        ({"finetuning_type": "dora"}, "finetuning_type is dora; it should be lora with use_dora: true"),
        ({"finetuning_type": "qlora"}, "finetuning_type is qlora; it should be lora with quantization_bit: 4"),
        ({"tensor_model_parallel_size": 3}, "tp=3 does not divide num_attention_heads=32"),
    ],
)
def test_what_cannot_be(tmp_path: Path, data: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        job(tmp_path, data)


def test_attention_by_its_longer_name(tmp_path: Path) -> None:
    made = job(tmp_path, {"flash_attn": "flash_attention_2"})
    assert rows(made)["flash_attn"].fate == "mapped" and "attention_kernel" not in made.assumptions


def test_rows_of_ppo_are_prompts_and_answers(tmp_path: Path) -> None:
    assert strategy(job(tmp_path, {"stage": "ppo", "cutoff_len": 1024, "max_new_tokens": 512}))["seq_length"] == 1536
    assert strategy(job(tmp_path, {"stage": "ppo", "cutoff_len": 1024}))["seq_length"] == 2048
    told = {row.key: row.fate for row in job(tmp_path, {"stage": "sft", "cutoff_len": 1024, "max_new_tokens": 512}).rows}
    assert told["max_new_tokens"] != "mapped" and strategy(job(tmp_path, {"stage": "sft", "cutoff_len": 1024}))["seq_length"] == 1024


SCRIPT = """MODEL=Qwen/Qwen2.5-7B
export CUDA_VISIBLE_DEVICES=0,1,2,3
cat > ds.json << END
{"zero_optimization": {"stage": 3}}
END
NNODES=2 llamafactory-cli train --model_name_or_path $MODEL --stage sft --do_train --finetuning_type full --template qwen --cutoff_len 4096 \\
    --deepspeed ds.json --per_device_train_batch_size 2 --gradient_accumulation_steps ${STEPS:-4} --bf16
"""


def test_a_script_that_starts_it(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT)
    found = strategy(load_job("llama-factory", str(path)))
    assert (found["zero"], found["dp"], found["micro_batch_size"], found["num_microbatches"], found["seq_length"]) == (3, 8, 2, 4, 4096)
    other = strategy(load_job("llama-factory", str(path), variables={"STEPS": "2", "world": "16", "packed_document_length": "900"}))
    assert (other["num_microbatches"], other["dp"]) == (2, 16)
    path.write_text(SCRIPT.replace("$MODEL", "$MODELS"))
    with pytest.raises(InputError, match=r"train\.sh:6: \$MODELS has no value; --var MODELS=VALUE gives it"):
        load_job("llama-factory", str(path))
    path.write_text("python prepare.py")
    with pytest.raises(InputError, match="no command starts LLaMA-Factory"):
        load_job("llama-factory", str(path))


def test_a_script_with_a_yaml_and_keys_behind_it(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(format_yaml({**BASE, "per_device_train_batch_size": 8, "cutoff_len": 1024}))
    path = tmp_path / "train.sh"
    path.write_text("torchrun --nproc_per_node 4 src/train.py --stage sft x\n")
    with pytest.raises(InputError, match=r"train\.sh:1: stage is sft x; it should be one of"):
        load_job("llama-factory", str(path))
    path.write_text("llamafactory-cli train base.yaml more\n")
    with pytest.raises(InputError, match=r"train\.sh:1: 'more' is no argument of a training"):
        load_job("llama-factory", str(path))
    path.write_text("llamafactory-cli train base.yaml cutoff_len=2048 per_device_train_batch_size=1\n")
    found = strategy(load_job("llama-factory", str(path)))
    assert (found["seq_length"], found["micro_batch_size"]) == (2048, 1)


def test_copies_in_few_bits_are_said(tmp_path: Path) -> None:
    told = rows(job(tmp_path, {"model_name_or_path": "TechxGenus/Meta-Llama-3-8B-Instruct-AWQ", "finetuning_type": "lora"}))
    assert told["model_name_or_path"].fate == "mapped" and "stored in few bits" in told["model_name_or_path"].why
    assert "few bits" not in rows(job(tmp_path, {}))["model_name_or_path"].why


def test_a_decoder_that_rests_behind_a_trained_projector(tmp_path: Path) -> None:
    held = strategy(job(tmp_path, {"finetuning_type": "full", "freeze_language_model": True}))
    assert (held["freeze_parameters"], held["trained_before"]) == (["embedding", "lm_head", "final_norm", "layers"], True)


def test_sequences_of_a_step_say_how_many_ranks_run(tmp_path: Path) -> None:
    """96 of one, three times a rank, as open-thoughts' files have it."""
    data = {"global_batch_size": 96, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 3}
    assert strategy(job(tmp_path, data))["dp"] == 32
    assert strategy(job(tmp_path, data, variables={"world": "8"}))["dp"] == 8
    with pytest.raises(InputError, match="global_batch_size is 97; it should be a multiple of"):
        job(tmp_path, {**data, "global_batch_size": 97})


def test_its_trainer_of_megatron_core(tmp_path: Path) -> None:
    """Degrees ask for it (USE_MCA=1): Megatron-Core's kernels and defaults, and no checkpoints unless they are asked for."""
    degrees = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "sequence_parallel": True, "use_distributed_optimizer": True}
    made = job(tmp_path, {**degrees, "gradient_accumulation_steps": 8, "per_device_train_batch_size": 1}, variables={"world": "16"})
    found = strategy(made)
    assert (found["tp"], found["pp"], found["dp"], found["sp"], found["zero"], found["num_microbatches"]) == (2, 2, 4, True, 1, 8)
    assert not {"fusion", "recompute"} & found.keys() and not found["grad_reduce_in_fp32"]
    told = rows(made)
    assert all(told[key].fate == "mapped" for key in degrees) and told["accumulate_allreduce_grads_in_fp32"].fate == "derived"
    host = {"optimizer_cpu_offload": True, "optimizer_offload_fraction": 0.5}
    experts = {"model_name_or_path": "Qwen/Qwen3-30B-A3B", "expert_model_parallel_size": 4, "moe_token_dispatcher_type": "alltoall"}
    found = strategy(job(tmp_path, {**experts, "recompute_granularity": "full", "use_distributed_optimizer": True, **host}))
    assert (found["ep"], found["etp"], found["recompute"], found["moe_token_dispatcher_type"]) == (4, 1, "full", "alltoall")
    assert found["optimizer_offload_fraction"] == 0.5 and found["use_precision_aware_optimizer"]
    assert rows(job(tmp_path, {"recompute_granularity": "full"}))["recompute_granularity"].fate == "no_cost_effect"


def test_its_trainer_of_megatron_bridge(tmp_path: Path) -> None:
    """examples/megatron_bridge/llama3_sft.yaml: other defaults, with keys that its first trainer of Megatron-Core has not."""
    data = {"tensor_model_parallel_size": 2, "mixed_precision": "bf16_mixed", "use_packed_sequences": False, "export_hf_on_finish": False}
    found = strategy(job(tmp_path, data, variables={"world": "16"}))
    assert (found["tp"], found["dp"], found["zero"], found["precision"]) == (2, 8, 1, "bf16")
    assert found["overlap_grad_reduce"] and found["overlap_param_gather"] and found.get("grad_reduce_in_fp32", True)
    told = rows(job(tmp_path, {**data, "use_packed_sequences": True}))
    assert told["use_packed_sequences"].fate == "not_modelled" and told["mixed_precision"].fate == "mapped"
    assert told["use_distributed_optimizer"].fate == "derived"
    assert strategy(job(tmp_path, {**data, "mixed_precision": "bf16_with_mxfp8_mixed"}))["fp8"] == "mxfp8"
