"""Commands of ms-swift: every argument has a row, and what they say of a step is what symsim evaluates."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import measured_cases
import measured_swift
import pytest
import yaml
from import_names import of_vocabulary
from measured_row import Case
from shared import SHARED

from symsim.api.cli import main
from symsim.api.result import derive
from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.reading import load_job
from symsim.importers.swift.megatron import DEFAULTS
from symsim.inputs.assumptions import ASSUMPTIONS
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system
from symsim.lowering.checks import check

NAMES = (Path(__file__).parent / "swift_names.txt").read_text().split()
# of the environment, or of conversion of checkpoints
NO_ARGUMENT = ("NPROC_PER_NODE", "SWIFT_UPDATE_WEIGHTS_BUCKET_SIZE")
JOBS = Path(__file__).parent / "imported" / "swift"
SCRIPT = (JOBS / "dense" / "train.sh").read_text()


def job(command: str, **options: Any) -> Job:
    return load_job("swift", *command.split(), **options)


def rows(found: Job) -> dict[str, Any]:
    return {row.key: row for row in found.rows}


def placed(command: str, **options: Any) -> Strategy:
    return job(command, **options).placed()


def script(tmp_path: Path, text: str, name: str = "train.sh") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def told(command: str, **options: Any) -> str:
    with pytest.raises(InputError) as error:
        job(command, **options)
    return str(error.value)


# every argument


def disposed(name: str) -> bool:
    """Whether the importer knows the name: a row, or a sentence about its value."""
    words = [f"{name}=x", "megatron", "rlhf"] if name.isupper() else ["megatron", "rlhf", f"--{name}", "x"]
    try:
        load_job("swift", *words, "--micro_batch_size", "1")
    except InputError as error:
        return "has no key" not in str(error)
    return True


def test_every_name_has_a_disposition() -> None:
    assert len(NAMES) == len(set(NAMES)) == 407
    lost = [name for name in NAMES if not disposed(name)]
    assert lost == []
    assert not disposed("tensor_model_parallel_sizes")


def test_the_names_are_those_of_the_vocabulary() -> None:
    known = of_vocabulary("ms_swift")
    assert len(known) == 397 and set(known) <= set(NAMES)


def test_defaults_are_those_of_the_vocabulary() -> None:
    path = SHARED / "vocabulary.yaml"
    if not path.exists():
        pytest.skip("../shared/vocabulary.yaml is not on this machine")
    data = yaml.safe_load(path.read_text())
    said = {alias["key"]: alias for entry in data["canonical"].values() for alias in entry["aliases"].get("ms_swift", [])}
    for version, defaults in DEFAULTS.items():
        for key, default in defaults.items():
            assert yaml.safe_load(said[key][f"{version}_default"]) == default, (key, version)


def test_every_row_says_why() -> None:
    found = job(
        "megatron rlhf --model Qwen/Qwen3-8B --rlhf_type dpo --beta 0.1 --lora_rank 8 --tuner_type lora --save_steps 5 --seed 3 --max_length 100"
    )
    for row in found.rows:
        assert row.to or row.why, row.key


# Megatron-SWIFT


def test_a_script_of_the_seeds_version(tmp_path: Path) -> None:
    found = load_job("swift", script(tmp_path, SCRIPT))
    assert found.architecture is not None and found.architecture.name == "qwen2.5-14b"
    assert dict(found.strategy or {}) == {
        "micro_batch_size": 1,
        "global_batch_size": 16,
        "tp": 4,
        "sp": True,
        "seq_length": 8192,
        "recompute": "selective",
        "cross_entropy_fusion": "native",
        "dp": 2,
    }
    assert found.assumptions == {"apply_rope_fusion": "true", "layernorm_linear_fusion": "fused", "te_dummy_wgrad": "false"}
    ledger = rows(found)
    assert ledger["save"].fate == "no_cost_effect" and "$(date" in ledger["save"].value
    assert ledger["packing"].fate == "derived" and "packed_document_length" in ledger["packing"].why
    assert ledger["dataset"].value == "my/instructions#5000 my/conversations"
    assert any("--load" in note for note in found.notes)


def test_versions_have_their_own_defaults() -> None:
    parallel = "--tensor_model_parallel_size 2 --sequence_parallel true --expert_model_parallel_size 4"
    command = f"NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-30B-A3B {parallel}"
    seed, head = job(command, version="seed"), job(command, version="head")
    assert (seed.placed().expert_tp, head.placed().expert_tp) == (2, 1)
    assert (seed.placed().cross_entropy_fusion, head.placed().cross_entropy_fusion) == ("unfused", "native")
    assert (seed.assumptions["moe_grouped_gemm"], head.assumptions.get("moe_grouped_gemm", "true")) == ("false", "true")
    assert (seed.placed().moe_router_dtype, head.placed().moe_router_dtype) == ("compute", "fp32")
    assert (seed.placed().moe_router_load_balancing_type, head.placed().moe_router_load_balancing_type) == ("aux_loss", "none")
    assert (seed.assumptions["apply_rope_fusion"], head.assumptions.get("apply_rope_fusion", "false")) == ("true", "false")
    assert seed.assumptions["moe_probabilities"] == "combine" and "moe_probabilities" not in head.assumptions
    assert seed.placed().recompute == head.placed().recompute == "selective"


def test_the_version_follows_from_the_names() -> None:
    plain = "--model Qwen/Qwen3-8B --max_length 64"
    assert rows(job(f"megatron sft {plain}"))["--version"].value == "head"
    assert rows(job(f"megatron sft {plain} --num_workers 3"))["--version"].value == "seed"
    parallel = "--sequence_parallel true --tensor_model_parallel_size 4 --expert_model_parallel_size 4"
    moe = f"NPROC_PER_NODE=4 megatron sft --load Qwen3-30B-A3B-mcore {parallel}"
    between = job(f"{moe} --padding_free true")
    assert between.placed().expert_tp == 1 and any("between" in note for note in between.notes)
    assert "etp*ep=4*4" in told(f"{moe} --padding_free true", version="seed")


def test_ranks() -> None:
    command = "megatron sft --model Qwen/Qwen3-8B --tensor_model_parallel_size 4 --global_batch_size 64"
    assert placed(f"NPROC_PER_NODE=8 NNODES=2 {command}").dp == 4
    assert job(command, variables={"NPROC_PER_NODE": "8"}).placed().dp == 2
    assert job(command, variables={"world": "16"}).placed().dp == 4
    launched = command.replace("megatron sft", "torchrun --nproc_per_node=8 --nnodes 2 swift/cli/_megatron/sft.py")
    assert placed(launched).dp == 4
    assert placed(command).dp == 1 and rows(job(command))["NPROC_PER_NODE"].fate == "derived"
    assert "6 ranks are no multiple of tp=4*cp=1*pp=1" in told(f"NPROC_PER_NODE=6 {command}")


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ("--recompute_granularity full --recompute_method block --recompute_num_layers 3", {"recompute": "full", "recompute_num_layers": 3}),
        ("--recompute_granularity none", {"recompute": "none"}),
        ("--recompute_modules core_attn mlp", {"recompute": "selective", "recompute_modules": ("core_attn", "mlp")}),
        ("--use_distributed_optimizer false", {"zero": 0}),
        ("--use_megatron_fsdp true", {"zero": 3}),
        ("--use_megatron_fsdp true --data_parallel_sharding_strategy optim_grads", {"zero": 2}),
        ("--optimizer sgd", {"optimizer": "sgd_momentum"}),
        ("--optimizer dist_muon --muon_tp_mode duplicated", {"optimizer": "muon", "zero": 1, "muon_tp_mode": "duplicated"}),
        ("--optimizer sgd --sgd_momentum 0", {"optimizer": "sgd"}),
        ("--fp16 true", {"precision": "fp16", "grad_reduce_in_fp32": False}),
        ("--torch_dtype float16 --accumulate_allreduce_grads_in_fp32 true", {"precision": "fp16", "grad_reduce_in_fp32": True}),
        ("--torch_dtype bfloat16", {"precision": "bf16", "grad_reduce_in_fp32": True}),
        ("--fp8_format e4m3 --fp8_recipe blockwise", {"fp8": "blockwise"}),
        ("--fp8_format hybrid", {"fp8": "delayed"}),
        ("--fp4_format e2m1 --fp4_recipe nvfp4", {"fp8": "nvfp4"}),
        ("--log_params_norm true", {"log_params_norm": True}),
        ("--clip_grad 0", {"clip_grad": 0}),
        ("--cross_entropy_loss_fusion false", {"cross_entropy_fusion": "unfused"}),
        ("--cross_entropy_fusion_impl te", {"cross_entropy_fusion": "te"}),
        ("--cross_entropy_fusion_impl linear", {"cross_entropy_fusion": "linear"}),
        ("--pipeline_model_parallel_size 2 --virtual_pipeline_model_parallel_size 3", {"pp": 2, "vpp": 3, "overlap_p2p_comm": True}),
        ("--pipeline_model_parallel_size 2", {"pp": 2, "overlap_p2p_comm": False}),
        ("--pipeline_model_parallel_size 2 --decoder_first_pipeline_num_layers 16", {"num_layers_in_first_pipeline_stage": 16}),
        ("--context_parallel_size 2 --cp_comm_type a2a", {"cp": 2, "cp_comm_type": "a2a"}),
        ("--sequence_parallel true", {"sp": False}),
        ("--max_length 100 --packing true --packing_length 300", {"seq_length": 300}),
        ("--max_length 100 --packing_length 300", {"seq_length": 100}),
        (
            "--use_precision_aware_optimizer true --exp_avg_dtype bf16 --optimizer_cpu_offload true",
            {"exp_avg_dtype": "bf16", "optimizer_cpu_offload": True, "use_precision_aware_optimizer": True},
        ),
    ],
)
def test_options(arguments: str, expected: dict[str, Any]) -> None:
    found = job(f"megatron sft --model Qwen/Qwen3-8B {arguments}", variables={"NPROC_PER_NODE": "4"}, version="head")
    strategy = found.placed()
    assert {name: getattr(strategy, name) for name in expected} == expected
    for name in re.findall(r"--(\w+)", arguments):
        assert rows(found)[name].fate in ("mapped", "derived", "no_cost_effect", "not_modelled")


@pytest.mark.parametrize(
    "arguments, assumptions",
    [
        ("--attention_backend unfused", {"attention_kernel": "math"}),
        ("--attention_backend flash_3", {"attention_kernel": "flash"}),
        ("--apply_rope_fusion true", {"apply_rope_fusion": "true"}),
        ("--no_rope_fusion true", {"apply_rope_fusion": "false"}),
        ("--moe_grouped_gemm false", {"moe_grouped_gemm": "false"}),
        ("--moe_permute_fusion true", {"moe_permute_fusion": "true"}),
    ],
)
def test_assumptions(arguments: str, assumptions: dict[str, str]) -> None:
    found = job(f"megatron sft --model Qwen/Qwen3-30B-A3B {arguments}", version="head")
    assert {name: found.assumptions.get(name, ASSUMPTIONS[name].default) for name in assumptions} == assumptions


@pytest.mark.parametrize("more", ["", " --moe_enable_deepep true"])
def test_deepep(more: str) -> None:
    command = f"megatron sft --model Qwen/Qwen3-30B-A3B --expert_model_parallel_size 4 --moe_token_dispatcher_type flex{more}"
    found = job(command, version="head", variables={"NPROC_PER_NODE": "4"})
    assert found.placed().moe_token_dispatcher_type == "flex" and found.placed().moe_flex_dispatcher_backend == "deepep"
    assert {row.fate for key, row in rows(found).items() if key.startswith(("moe_token", "moe_enable"))} == {"mapped"}


def test_what_the_model_lacks_is_left_out() -> None:
    command = "megatron sft --model Qwen/Qwen3-8B --moe_shared_expert_overlap true --expert_model_parallel_size 4 --moe_aux_loss_coeff 0.01"
    found = rows(job(command))
    assert {found[key].fate for key in ("moe_shared_expert_overlap", "expert_model_parallel_size", "moe_aux_loss_coeff")} == {"no_cost_effect"}
    shared = rows(job("megatron sft --model Qwen/Qwen3-30B-A3B --moe_shared_expert_overlap true"))["moe_shared_expert_overlap"]
    assert shared.fate == "no_cost_effect" and "shared experts" in shared.why


def test_arguments_of_the_shape() -> None:
    changed = job("megatron sft --load Qwen2.5-7B-mcore --num_layers 4 --hidden_size 1792 --untie_embeddings_and_output_weights false").architecture
    assert changed is not None and (changed.num_layers, changed.hidden_size, changed.tie_word_embeddings) == (4, 1792, True)
    alone = job("megatron pt --num_layers 2 --hidden_size 512 --num_attention_heads 8 --num_query_groups 2 --padded_vocab_size 1000").architecture
    assert alone is not None and (alone.num_layers, alone.query_groups, alone.vocab_size) == (2, 2, 1000)
    assert alone.mlp is not None and alone.mlp.ffn_hidden_size == 2048 and alone.attention.qkv_bias
    experts = job(
        "megatron pt --num_layers 2 --hidden_size 512 --num_attention_heads 8 --padded_vocab_size 1000 --num_experts 4 --moe_ffn_hidden_siz 99"
    )
    assert experts.architecture is not None and experts.architecture.moe is not None and experts.architecture.moe.moe_ffn_hidden_size == 99


def test_further_keys_of_megatron() -> None:
    found = job("""megatron sft --model Qwen/Qwen3-8B --megatron_extra_kwargs {"overlap_grad_reduce":true}""")
    assert found.placed().overlap_grad_reduce
    inside = """{"num_distributed_optimizer_instances":2,"tensorboard_dir":"x"}"""
    handed = job(f"megatron sft --model Qwen/Qwen3-8B --extra_megatron_kwargs {inside}", variables={"world": "4"})
    assert handed.placed().num_distributed_optimizer_instances == 2
    assert "did you mean" in told("""megatron sft --model Qwen/Qwen3-8B --megatron_extra_kwargs {"overlap_grad_reduces":true}""")
    again = told("""megatron sft --model Qwen/Qwen3-8B --overlap_grad_reduce true --megatron_extra_kwargs {"overlap_grad_reduce":true}""")
    assert "overlap_grad_reduce is given again" in again


# Hugging Face's trainer


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ("", {"num_microbatches": 4, "recompute": "full", "zero": 0, "overlap_grad_reduce": True, "fusion": "eager", "dp": 4}),
        ("--per_device_train_batch_size 3", {"micro_batch_size": 3, "num_microbatches": 2}),
        ("--gradient_checkpointing false --gradient_accumulation_steps 7", {"recompute": "none", "num_microbatches": 7}),
        ("--sequence_parallel_size 2", {"cp": 2, "cp_comm_type": "a2a", "dp": 2}),
        ("--sequence_parallel_size 4 --of qwen2.5-3b", {"cp": 4, "cp_comm_type": "a2a+p2p", "hierarchical_context_parallel_sizes": (2, 2), "dp": 1}),
        ("--deepspeed zero1", {"zero": 1, "overlap_grad_reduce": False, "grad_reduce_in_fp32": False}),
        ("--deepspeed zero2_offload", {"zero": 2, "optimizer_cpu_offload": True, "offload_gradients": True}),
        ("--deepspeed default-zero3", {"zero": 3}),
        ("--deepspeed zero3-offload", {"zero": 3, "offload_parameters": True}),
        ("--deepspeed zero2 --sequence_parallel_size 2", {"zero": 2, "cp": 2, "dp": 2}),
        ("--deepspeed zero1 --deepspeed_autotp_size 2", {"zero": 1, "tp": 2, "dp": 2}),
        ("--fsdp fsdp2", {"zero": 3, "recompute": "full", "gradient_sync": "last_microbatch"}),
        ("--use_liger_kernel true --max_length 4096", {"cross_entropy_fusion": "liger", "cross_entropy_chunks": 32}),
        ("--optim paged_adamw_8bit", {"optimizer_bits": 8}),
        ("--torch_dtype float16 --max_grad_norm 0", {"precision": "fp16", "clip_grad": 0}),
    ],
)
def test_options_of_the_trainer(arguments: str, expected: dict[str, Any]) -> None:
    arguments, _, model = arguments.partition(" --of ")
    found = job(f"NPROC_PER_NODE=4 swift sft --model Qwen/Qwen3-8B --tuner_type full {arguments}", version="head", model=model or None)
    strategy = found.placed()
    assert {name: getattr(strategy, name) for name in expected} == expected
    for name in re.findall(r"--(\w+)", arguments):
        assert name in rows(found)


def test_kernels_of_the_trainer() -> None:
    command = "swift sft --tuner_type full --model Qwen/Qwen3-30B-A3B --attn_impl"
    assert job(f"{command} sdpa", version="seed").assumptions["attention_kernel"] == "efficient"
    assert job(f"{command} sdpa", version="head").assumptions.get("attention_kernel", "flash") == "flash"
    assert job(f"{command} eager", version="head").assumptions["attention_kernel"] == "eager"
    assert job(f"{command} flash_attn", version="seed").assumptions["attention_kernel"] == "flash"
    assert job(f"{command} flash_attn --experts_impl eager", version="head").assumptions["moe_grouped_gemm"] == "false"


# other workloads


def test_reinforcement_learning_is_said_to_be_another_workload() -> None:
    command = "--model Qwen/Qwen3-8B --rlhf_type grpo --num_generations 8 --vllm_gpu_memory_utilization 0.5 --beta 0.04 --ref_model x --use_vllm true"
    learning = rows(job(f"megatron rlhf {command} --micro_batch_size 1"))
    for key in ("rlhf_type", "num_generations", "vllm_gpu_memory_utilization", "beta", "ref_model", "use_vllm"):
        assert learning[key].fate == "not_modelled" and "workload" in learning[key].why, key
    for program in ("megatron", "swift"):
        made = job(f"{program} rlhf {command} --max_length 1024 --max_completion_length 3072")
        assert made.placed().seq_length == 4096 and rows(made)["max_completion_length"].to == "seq_length"
        assert job(f"{program} rlhf {command} --max_length 1024").placed().seq_length == 1024 + 512
    tuned = rows(job("megatron sft --model Qwen/Qwen3-8B --num_generations 8 --beta 0.04"))
    assert {tuned[key].fate for key in ("num_generations", "beta")} == {"no_cost_effect"}


def test_adapters_are_those_of_the_strategy() -> None:
    for command in ("megatron sft --tuner_type lora", "megatron sft --train_type lora", "swift sft --per_device_train_batch_size 1"):
        found = job(f"{command} --model Qwen/Qwen3-8B --lora_rank 16 --target_modules all-linear --modules_to_save embed_tokens lm_head")
        key = "train_type" if "train_type" in command else "tuner_type"
        assert rows(found)[key].to == "tuner_type" and rows(found)["lora_rank"].fate == "mapped"
        assert found.strategy is not None and found.strategy["lora_rank"] == 16 and found.strategy["lora_dropout"] == 0.05
        assert found.strategy["modules_to_save"] == ["embedding", "lm_head"] and found.strategy["tuner_type"] == "lora"
    named = job("megatron sft --tuner_type lora --model Qwen/Qwen3-8B --target_modules q_proj v_proj o_proj visual.attn")
    assert named.strategy is not None and named.strategy["target_modules"] == ["linear_qkv", "o_proj"]
    assert rows(named)["target_modules"].fate == "not_modelled" and "visual.attn" in rows(named)["target_modules"].why
    eager = job("swift sft --model Qwen/Qwen3-8B --target_modules q_proj v_proj")
    assert eager.strategy is not None and eager.strategy["target_modules"] == ["q_proj", "v_proj"]
    ranked = job("swift sft --tuner_type adalora --adalora_init_r 20 --lora_rank 8 --model Qwen/Qwen3-8B")
    assert ranked.placed().lora_rank == 20 and rows(ranked)["adalora_init_r"].fate == "mapped"
    towers = job("megatron sft --tuner_type lora_llm --model Qwen/Qwen3-8B")
    assert rows(towers)["tuner_type"].fate == "mapped" and towers.placed().tuner_type == "lora"
    other = rows(job("swift sft --tuner_type vera --model Qwen/Qwen3-8B"))
    assert other["tuner_type"].fate == "not_modelled" and "timed as LoRA" in other["tuner_type"].why


def test_frozen_parameters_are_those_of_the_strategy() -> None:
    """Prefixes: layers.1 is 10 to 19 too; a share of the parameters is whole layers from the embedding on."""
    command = "megatron sft --tuner_type full --model Qwen/Qwen3-8B"
    found = job(f"{command} --freeze_parameters model.embed_tokens model.layers.1 model.layers.20.mlp --trainable_parameters lm_head")
    assert found.strategy is not None and found.strategy["trainable_parameters"] == ["lm_head"]
    assert found.strategy["freeze_parameters"] == ["embedding", "layers.1-1", "layers.10-19", "layers.20-20.mlp"]
    half = job(f"{command} --freeze_parameters_ratio 0.5")
    assert half.strategy is not None and half.strategy["freeze_parameters"] == ["embedding", "layers.0-17"]  # of 36
    every = job(f"{command} --freeze_parameters_ratio 1 --trainable_parameters lm_head").strategy
    assert every is not None and every["freeze_parameters"] == ["embedding", "layers", "lm_head", "final_norm"]
    pattern = job(f"{command} --freeze_parameters_regex model.embed_tokens|model.layers.[0-1] --trainable_parameters_regex .*lm_head.*")
    assert pattern.strategy is not None and pattern.strategy["freeze_parameters"] == ["embedding", "layers.0-1", "layers.10-19"]
    assert pattern.strategy["trainable_parameters"] == ["lm_head"] and rows(pattern)["freeze_parameters_regex"].fate == "mapped"
    parts = job("megatron sft --model Qwen/Qwen3-30B-A3B --freeze_parameters_regex .*experts.*|.*self_attn.*")
    assert dict(parts.strategy or {})["freeze_parameters"] == ["attention", "experts"]
    strange = rows(job(f"{command} --freeze_parameters_regex ((a+)+)+$"))["freeze_parameters_regex"]
    assert strange.fate == "not_modelled"
    unknown = rows(job(f"{command} --freeze_parameters visual.merger"))
    assert unknown["freeze_parameters"].fate == "not_modelled" and "visual.merger" in unknown["freeze_parameters"].why


@pytest.mark.parametrize(
    ("pattern", "entries"),
    [
        (r"layers\.[0-9]\.", ["layers.0-9"]),
        (r"^model\.layers\.(2[0-9]|3[0-5])\..*", ["layers.20-35"]),
        (r".*\.mlp\..*", ["mlp"]),
        (r"layers\.\d+\.self_attn\.(?:q|k)_proj", ["k_proj", "q_proj"]),
        (r".*norm.*", ["norm"]),
        (r"^(?!lm_head|.*layers\.3).*", ["embedding", "final_norm", "layers.0-2", "layers.4-29"]),
        (r"decoder\.layers\.7\.mlp\.linear_fc1", ["pre_mlp_norm", "gate_proj", "up_proj"]),
    ],
)
def test_patterns_are_found_in_names(pattern: str, entries: list[str]) -> None:
    """Of 36 layers; Megatron's product of gate and up holds the norm before it."""
    found = job(f"megatron sft --tuner_type full --model Qwen/Qwen3-8B --freeze_parameters_regex {pattern}")
    expected = [f"layers.7-7.{name}" for name in entries] if "layers\\.7" in pattern else entries
    assert sorted(dict(found.strategy or {})["freeze_parameters"]) == sorted(expected)
    assert rows(found)["freeze_parameters_regex"].fate == "mapped"


@pytest.mark.parametrize(
    ("model", "pattern", "megatron", "eager"),
    [
        ("Qwen/Qwen3-8B", r".*\.(q_proj|v_proj)", ["linear_qkv"], ["q_proj", "v_proj"]),
        ("Qwen/Qwen3-8B", r".*self_attn.*", ["linear_qkv", "o_proj"], ["q_proj", "k_proj", "v_proj", "o_proj"]),
        ("Qwen/Qwen3-8B", r"^model\.layers\.\d+\.mlp\.(gate|down)_proj$", ["linear_fc1", "down_proj"], ["gate_proj", "down_proj"]),
        ("Qwen/Qwen3-8B", r"decoder\.layers\.\d+\.mlp\.linear_fc[12]", ["linear_fc1", "down_proj"], ["gate_proj", "up_proj", "down_proj"]),
        # one weight in Phi-3's modelling code
        ("microsoft/phi-4", r".*\.(?:qkv_proj|o_proj)", ["linear_qkv", "o_proj"], ["attention.qkv", "o_proj"]),
        (
            "deepseek-ai/DeepSeek-V3",
            r".*shared_experts\.(gate|up)_proj",
            ["moe.shared_experts.gate_up"],
            ["moe.shared_experts.gate_proj", "moe.shared_experts.up_proj"],
        ),
    ],
)
def test_adapters_by_a_pattern_of_whole_names(model: str, pattern: str, megatron: list[str], eager: list[str]) -> None:
    for tool, expected in (("megatron", megatron), ("swift", eager)):
        found = job(f"{tool} sft --tuner_type lora --model {model} --target_regex {pattern}")
        assert dict(found.strategy or {})["target_modules"] == expected
        assert rows(found)["target_regex"].fate == "mapped"


def test_a_pattern_of_some_layers_or_of_nothing_says_so() -> None:
    some = job(r"swift sft --tuner_type lora --model Qwen/Qwen3-8B --target_regex model\.layers\.(?:1\d\..*q|3.*up)_proj")
    assert dict(some.strategy or {})["target_modules"] == ["layers.10-19.q_proj", "layers.3-3.up_proj", "layers.30-35.up_proj"]
    odd = job(r"swift sft --tuner_type lora --model Qwen/Qwen3-8B --target_regex .*\.\d?[13579]\..*_proj")
    assert rows(odd)["target_regex"].fate == "not_modelled" and "o_proj" in dict(odd.strategy or {})["target_modules"]
    none = rows(job("swift sft --tuner_type lora --model Qwen/Qwen3-8B --target_regex q_proj"))["target_regex"]
    assert none.fate == "not_modelled" and none.why.startswith("no linear map here is called q_proj")


@pytest.mark.parametrize(
    ("model", "pattern", "entries"),
    [
        # every fourth layer of Qwen3-Next has attention, the others a linear_attn
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", r".*self_attn.*", [*(f"{n}_proj" for n in ("attention.gate", "q", "k", "v", "o")), "q_norm", "k_norm"]),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", r"layers\.[0-7]\.linear_attn", ["layers.0-2.attention", "layers.4-6.attention"]),
        # what a pattern leaves out has several names here, of which a family has one
        ("Qwen/Qwen3-30B-A3B", r"^(?!.*mlp\.gate|.*experts|.*norm|.*self_attn).*", ["embedding", "lm_head"]),
    ],
)
def test_patterns_know_mixers_and_what_they_leave_out(model: str, pattern: str, entries: list[str]) -> None:
    found = job(f"swift sft --tuner_type full --model {model} --freeze_parameters_regex {pattern}")
    assert sorted(dict(found.strategy or {})["freeze_parameters"]) == sorted(entries)


def test_rows_that_are_padded_by_name_are_said_there() -> None:
    padded = "megatron sft --model Qwen/Qwen3-8B --padding_free false --micro_batch_size"
    unsaid = rows(job(f"{padded} 4"))["padding_free"]
    assert unsaid.fate == "derived" and "--var" in unsaid.why
    lengths = {"packed_document_length": "900"}
    one = job(f"{padded} 1", variables=lengths)
    assert rows(one)["padding_free"].fate == "mapped" and one.placed().padding_free
    assert rows(job(f"{padded} 4", variables=lengths))["padding_free"].fate == "derived"


def test_of_an_unknown_model_all_names_of_a_pattern_count() -> None:
    found = job(r"swift sft --model nobody/knows --tuner_type lora --target_regex .*\.(q_proj|v_proj)")
    assert dict(found.strategy or {})["target_modules"] == ["q_proj", "v_proj"]


def test_patterns_leave_out_experts_that_are_no_modules() -> None:
    """Of transformers 5; a dense layer's network and shared experts are some."""
    for model, expected in (
        ("Qwen/Qwen3-30B-A3B", ["q_proj", "k_proj", "v_proj", "o_proj"]),
        ("deepseek-ai/DeepSeek-V3", [f"{network}.{name}_proj" for network in ("mlp", "moe.shared_experts") for name in ("gate", "up", "down")]),
    ):
        found = job(f"swift sft --tuner_type lora --model {model} --target_regex .*(?:self_attn.[qkvo]|gate|up|down)_proj")
        assert [name for name in dict(found.strategy or {})["target_modules"] if name != "o_proj" or "Qwen" in model] == expected
        assert found.architecture is not None
        check(found.architecture, found.placed())  # refuses names beside which peft puts no adapters


@pytest.mark.parametrize(
    "pattern", [r"((a+)+)+$", r"[a-z_.\d]*[a-z_.\d]*[a-z_.\d]*x9", ".?" * 40 + "x9", "(.|..)" * 30 + "x9", "a" * 500, r"a{9999}", r"(?P<x>a)\1"]
)
def test_patterns_that_take_too_long_or_are_other_ones_are_not_run(pattern: str) -> None:
    """How long they would take is reckoned from the pattern itself."""
    for option in ("--tuner_type full --freeze_parameters_regex", "--tuner_type lora --target_regex"):
        found = rows(job(f"swift sft --model Qwen/Qwen3-8B {option} {pattern}"))
        assert found[option.rpartition("--")[2]].fate == "not_modelled"


def test_mixers_that_peft_has_no_adapters_for_and_parameters_beside_all_maps() -> None:
    mamba = job("swift sft --tuner_type lora --model nvidia/NVIDIA-Nemotron-Nano-9B-v2")
    assert (mamba.placed().target_modules, mamba.placed().exclude_modules) == (("all_linear",), ("out_proj",))
    assert job("megatron sft --tuner_type lora --model nvidia/NVIDIA-Nemotron-Nano-9B-v2").placed().exclude_modules is None
    some = job("swift sft --tuner_type lora --model openai/gpt-oss-20b --target_parameters 7.mlp.experts.gate_up_proj 15.mlp.experts.down_proj")
    assert some.placed().target_modules == ("all_linear", "layers.7-7.moe.experts.fc1", "layers.15-15.moe.experts.fc2")


def test_one_linear_map_of_a_layer_is_that_alone() -> None:
    maps = "model.layers.3.mlp.down_proj decoder.layers.4.self_attention.linear_qkv"
    found = job(f"megatron sft --tuner_type full --model Qwen/Qwen3-8B --freeze_parameters {maps}")
    names = ["layers.3-3.down_proj", *(f"layers.4-4.{name}" for name in ("k_proj", "q_proj", "v_proj", "pre_attention_norm"))]
    assert sorted(dict(found.strategy or {})["freeze_parameters"]) == sorted(names)


def test_layers_that_are_drawn_are_as_many() -> None:
    """LISA of the Trainer: gradients reach the embedding whichever layers are trained."""
    found = job("swift sft --tuner_type full --model Qwen/Qwen3-8B --lisa_activated_layers 2 --lisa_step_interval 20")
    assert found.strategy is not None and found.strategy["trainable_parameters"] == ["layers.0-1"]
    assert found.strategy["freeze_parameters"] == ["layers"]


def test_adapters_of_another_kind_and_none() -> None:
    full = rows(job("megatron sft --model Qwen/Qwen3-8B --lora_rank 8"))
    assert full["lora_rank"].fate == "no_cost_effect" and "tuner_type" not in full
    for kind, said in (("dora", "lora with use_dora true"), ("qlora", "lora with quant_method bnb and quant_bits 4")):
        assert f"tuner_type is {kind}; it should be {said}" in told(f"swift sft --tuner_type {kind} --model Qwen/Qwen3-8B")
    layers = rows(job("swift sft --tuner_type llamapro --model Qwen/Qwen3-8B"))["tuner_type"]
    assert layers.fate == "not_modelled" and "trains whole layers" in layers.why


def test_towers_are_said_to_be_another_workload() -> None:
    found = rows(job("MAX_PIXELS=1003520 megatron sft --model Qwen/Qwen3-8B --vit_attn_impl flash_attn --freeze_vit true"))
    assert found["vit_attn_impl"].fate == found["MAX_PIXELS"].fate == "not_modelled" and found["freeze_vit"].fate == "no_cost_effect"


# files and the command line


def test_yaml_and_json(tmp_path: Path) -> None:
    found = load_job("swift", str(JOBS / "yaml" / "train.yaml"))
    assert found.placed().dp == 4 and found.placed().sp and found.placed().expert_tp == 1 and any("megatron sft" in note for note in found.notes)
    data = {"model": "Qwen/Qwen3-8B", "per_device_train_batch_size": 2, "tuner_type": "full"}
    path = script(tmp_path, json.dumps(data), "train.json")
    assert load_job("swift", path).placed().fusion == "eager"
    with_more = load_job("swift", "swift", "sft", path, "--gradient_accumulation_steps", "4")
    assert (with_more.placed().micro_batch_size, with_more.placed().num_microbatches) == (2, 4)
    with pytest.raises(InputError, match="begin with 'megatron sft'"):
        load_job("swift", script(tmp_path, "model: Qwen/Qwen3-8B\n", "short.yaml"))


def test_arguments_alone(tmp_path: Path) -> None:
    path = script(tmp_path, "--model Qwen/Qwen3-8B\n--tensor_model_parallel_size 2\n--global_batch_size 32\n", "args.txt")
    assert load_job("swift", path).placed().tp == 2


def test_a_file_of_arguments_beside_a_script(tmp_path: Path) -> None:
    script(tmp_path, "model: Qwen/Qwen3-8B\ntensor_model_parallel_size: 2\nmoe_aux_loss_coeff: 1.0e-6\n", "sft.yaml")
    found = load_job("swift", script(tmp_path, "NPROC_PER_NODE=8 megatron sft configs/sft.yaml --max_length 64\n"))
    assert (found.placed().tp, found.placed().dp, found.placed().seq_length) == (2, 4, 64)


def test_a_file_of_fsdp_with_notes(tmp_path: Path) -> None:
    held = {"_note": {"a": 1}, "fsdp": "full_shard auto_wrap", "fsdp_config": {"activation_checkpointing": True, "activation_cpu_offload": True}}
    (tmp_path / "fsdp.json").write_text(json.dumps(held))
    found = load_job("swift", script(tmp_path, "swift sft --model Qwen/Qwen3-8B --tuner_type full --fsdp ./configs/fsdp.json\n"))
    assert found.placed().zero == 3 and rows(found)["fsdp._note.a"].fate == "no_cost_effect"
    # what all layers but the last save waits on the host (swift/callbacks/activation_cpu_offload.py)
    assert rows(found)["fsdp_config.activation_cpu_offload"].to == "recompute, cpu_offloading_num_layers"
    assert (found.placed().cpu_offloading_num_layers, found.placed().recompute) == (35, "full")


def test_parts_of_a_job_under_ray(tmp_path: Path) -> None:
    text = "rlhf_type: grpo\nmodel: Qwen/Qwen3-8B\nmicro_batch_size: 2\ntrain:\n  gpus: 4\n  tensor_model_parallel_size: 2\nrollout:\n  gpus: 4\n"
    script(tmp_path, text, "ray.yaml")
    path = script(tmp_path, 'HERE="$(cd "$(dirname "$0")" && pwd)"\nmegatron rlhf --use_ray true --config "$HERE/ray.yaml"\n')
    found = load_job("swift", path)
    assert (found.placed().tp, found.placed().dp, found.placed().micro_batch_size) == (2, 2, 2)
    assert rows(found)["rollout"].fate == "not_modelled" and rows(found)["gpus"].to == "dp"


def test_sums_in_a_script_are_read(tmp_path: Path) -> None:
    text = "n=4\nNPROC_PER_NODE=$n swift sft --model Qwen/Qwen3-8B --tuner_type full --gradient_accumulation_steps $(expr 16 / $n)\n"
    found = load_job("swift", script(tmp_path, text))
    assert (found.placed().dp, found.placed().num_microbatches) == (4, 4)


def test_sentences_name_file_and_line(tmp_path: Path) -> None:
    path = script(tmp_path, SCRIPT.replace("--micro_batch_size 1", "--micro_batch_sizes 1"))
    with pytest.raises(InputError, match=r"train\.sh:14: 'megatron sft' has no key 'micro_batch_sizes': did you mean 'micro_batch_size'"):
        load_job("swift", path)
    assert rows(load_job("swift", path, lenient=True))["micro_batch_sizes"].fate == "refused"
    path = script(tmp_path, SCRIPT.replace("$TP", "$DEGREE"))
    with pytest.raises(InputError, match="DEGREE.*--var"):
        load_job("swift", path)
    assert load_job("swift", path, variables={"DEGREE": "2"}).placed().tp == 2
    with pytest.raises(InputError, match="2 commands train"):
        load_job("swift", script(tmp_path, SCRIPT + SCRIPT))
    with pytest.raises(InputError, match="no command 'megatron sft'"):
        load_job("swift", script(tmp_path, "swift export --to_mcore true\n"))


def test_conversions_beside_the_training_are_passed_over(tmp_path: Path) -> None:
    text = "swift export --model Qwen/Qwen2.5-14B --to_mcore true\n" + SCRIPT + "swift infer --model out\n"
    assert load_job("swift", script(tmp_path, text)).placed().tp == 4


def test_an_unknown_model_is_asked_for() -> None:
    assert "--of MODEL names" in "".join(row.why for row in job("megatron sft --model No/Such-3B --max_length 64").rows)
    found = job("megatron sft --model No/Such-3B --max_length 64", model="qwen3-8b")
    assert found.architecture is not None and found.architecture.name == "qwen3-8b"


def test_a_directory_with_a_config(tmp_path: Path) -> None:
    config = {"model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config |= {"intermediate_size": 128, "vocab_size": 256, "head_dim": 16}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = job(f"megatron sft --model {tmp_path} --max_length 64")
    assert found.architecture is not None and found.architecture.hidden_size == 64


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "job"
    command = "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-8B --max_length 512".split()
    for arguments in (["import", "swift", "-o", str(directory), *command], ["eval", str(directory), "--set", "packed_document_length=128"]):
        with pytest.raises(SystemExit) as status:
            main(arguments)
        assert status.value.code == 0
    assert "dp=8" in capsys.readouterr().out


# the benchmark tables of ms-swift's page

MODELS = {"dense_qwen2.5_14b": "Qwen2.5-14B", "moe_qwen1.5_moe_a2.7b": "Qwen1.5-MoE-A2.7B"}
PAGE = Path(__file__).parents[1] / "docs" / "from-swift.md"


def words(arguments: dict[str, Any]) -> list[str]:
    return [word for key, value in arguments.items() for word in (f"--{key}", str(value).lower() if isinstance(value, bool) else str(value))]


def benchmark(case: Case, tables: dict[str, Any]) -> Job:
    """The job of a cell, from the arguments of its script; the mixture's DeepSpeed rows have those of the dense model's."""
    _, table, system = case.id.split("/")
    if system == "megatron":
        command = ["megatron", "sft", "--load", f"{MODELS[table]}-mcore", *words(tables[table]["scripts"]["megatron"]["args"])]
    else:
        written = tables["dense_qwen2.5_14b"]["scripts"]["deepspeed"]["args"]
        command = ["swift", "sft", "--model", f"Qwen/{MODELS[table]}", *words({**written, "deepspeed": system})]
    return load_job("swift", "NPROC_PER_NODE=8", *command, version="seed", variables={"packed_document_length": str(measured_swift.DOCUMENT)})


def test_the_benchmark_of_the_seed(capsys: pytest.CaptureFixture[str]) -> None:
    """The arguments of the scripts alone give the numbers that docs/accuracy.md has for the six rows, and the page shows them."""
    cases = [case for case in measured_cases.cases("swift") if case.id.split("/")[1] in MODELS]
    if not cases:
        pytest.skip("../shared/measured/swift.yaml is not on this machine")
    tables = yaml.safe_load((SHARED / "measured" / "swift.yaml").read_text())["seed_tables"]
    lines = ["| run | step, measured | here | error | memory, measured | here | error |", "|---|---|---|---|---|---|---|"]
    for case in cases:
        found, machine = benchmark(case, tables), load_system(case.system)
        as_seen = {name: case.assumptions[name] for name in ("memory", "device_context", "library_workspace") if name in case.assumptions}
        mine = derive(found.architecture, found.placed(), {**found.assumptions, **as_seen}, {}, machine)
        theirs = derive(case.architecture, case.strategy, case.assumptions, {}, machine)
        step, peak = (float(mine.value(name)) for name in ("time.step", "memory.peak"))
        assert (step, peak) == tuple(float(theirs.value(name)) for name in ("time.step", "memory.peak")), case.id
        assert case.step_seconds is not None and case.memory_bytes is not None
        errors = [f"{100 * (value / told - 1):+.1f} %" for value, told in ((step, case.step_seconds), (peak, case.memory_bytes))]
        cells = [f"{case.step_seconds} s", f"{step:.4g} s", errors[0], f"{case.memory_bytes / 2**30:.4g} GiB", f"{peak / 2**30:.4g} GiB", errors[1]]
        lines.append(f"| {MODELS[case.id.split('/')[1]]}, {case.id.split('/')[2]} | {' | '.join(cells)} |")
    assert len(cases) == 6
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    shown = PAGE.read_text().split("<!-- table -->\n")[1].split("<!-- end of table -->")[0]
    assert shown.strip() == "\n".join(lines)


@pytest.mark.long
def test_every_published_command_is_read() -> None:
    """Arguments of the training commands in ms-swift's examples that say how long a step took, of all its versions."""
    path = SHARED / "measured" / "swift.yaml"
    if not path.exists():
        pytest.skip("../shared/measured/swift.yaml is not on this machine")
    data = yaml.safe_load(path.read_text())
    commands = [c for header in (*data["script_headers"], *data["script_headers_memory_only"]) for c in header["commands"] if "prog" in c]
    read = 0
    for command in commands:
        if command["prog"].split()[1] not in ("sft", "pt", "rlhf"):
            continue
        variables = [f"{name}={value}" for name, value in (command["env"] or {}).items() if "$" not in str(value)]
        load_job("swift", *variables, *command["prog"].split(), *words(command["args"]))
        read += 1
    assert read == 101


def test_rows_are_padded_to_what_sequence_ranks_share() -> None:
    sft = "NPROC_PER_NODE=4 swift sft --model Qwen/Qwen3-8B --sequence_parallel_size 4 --max_length 8191"
    found = job(sft, version="head")
    assert found.strategy["seq_length"] == 8192 and next(r for r in found.rows if r.key == "max_length").why.startswith("padded to 8,192")
    assert job(sft.replace("8191", "8192"), version="head").strategy["seq_length"] == 8192


def test_heads_and_base_weights_of_fine_tuning() -> None:
    sft = "swift sft --model Qwen/Qwen3-8B --tuner_type"
    four = placed(f"{sft} lora --quant_method bnb --quant_bits 4 --use_dora true", version="head")
    assert (four.quantize_base, four.use_dora) == ("nf4_double", True)
    head = placed(f"{sft} full --task_type seq_cls --num_labels 5 --use_liger_kernel true", version="head")
    assert (head.task_type, head.num_labels, head.cross_entropy_fusion) == ("seq_cls", 5, "unfused")
    assert head.fused_kernels == ("norm", "activation", "rope")
    reward = placed("swift rlhf --rlhf_type rm --model Qwen/Qwen3-8B --tuner_type full", version="head")
    assert (reward.task_type, reward.num_labels) == ("seq_cls", 1)
    others = job(f"{sft} lora --quant_method hqq --quant_bits 4", version="head")
    assert rows(others)["quant_method"].fate == "not_modelled" and "quantize_base" not in (others.strategy or {})


def test_names_of_ms_swift_2() -> None:
    command = "--model_id_or_path qwen/Qwen3-8B --sft_type lora --lora_target_modules DEFAULT --lora_dropout_p 0.1 --dtype AUTO --batch_size 2"
    made = job(f"NPROC_PER_NODE=2 swift sft {command} --use_flash_attn false --deepspeed default-zero2 --check_dataset_strategy warning")
    found, told = made.placed(), rows(made)
    assert (found.micro_batch_size, found.lora_dropout, found.target_modules, found.zero) == (2, 0.1, ("q_proj", "k_proj", "v_proj"), 2)
    assert (told["dtype"].value, told["dtype"].to, told["check_dataset_strategy"].fate) == ("AUTO", "precision", "no_cost_effect")
    assert made.assumptions["attention_kernel"] == "eager" and made.architecture is not None
    with pytest.raises(InputError, match="has no key 'dtype'"):
        job("swift sft --model Qwen/Qwen3-8B --dtype AUTO")


def test_what_the_newest_arguments_become() -> None:
    mixture = "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-30B-A3B --expert_model_parallel_size 8"
    muon = "--optimizer muon --muon_split_qkv false --muon_scalar_optimizer lion --muon_fp32_matmul_prec high"
    placed = placed_of(f"{mixture} --moe_z_loss_coeff 1e-3 {muon}")
    assert placed.moe_z_loss and not placed.muon_split_qkv
    assert (placed.muon_scalar_optimizer, placed.muon_fp32_matmul_prec) == ("lion", "high")
    sparse = "NPROC_PER_NODE=8 megatron sft --model {} --expert_model_parallel_size 8"
    sparse += " --dsa_indexer_loss_coeff 0.01 --dsa_indexer_use_sparse_loss true"
    assert placed_of(sparse.format("deepseek-ai/DeepSeek-V3.2")).dsa_indexer_loss == "sparse"
    ledger = rows(job(sparse.format("Qwen/Qwen3-30B-A3B") + " --use_fused_mhc true --csa_dense_mode true --linear_decoupled_in_proj true"))
    for key in ("dsa_indexer_loss_coeff", "use_fused_mhc", "csa_dense_mode", "linear_decoupled_in_proj"):
        assert ledger[key].fate == "no_cost_effect" and ledger[key].why, key


def test_residual_streams_of_megatron(tmp_path: Path) -> None:
    """Mixed op by op unless fused kernels are asked for; what is made again of more layers than one is said."""
    from test_compressed_attention import CONFIG

    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    command, again = f"megatron sft --model {tmp_path}", " --recompute_granularity selective --recompute_modules mhc"
    assert placed_of(command).use_fused_mhc is False and placed_of(f"{command} --use_fused_mhc true").use_fused_mhc is True
    assert rows(job(command))["use_fused_mhc"].fate == "derived"
    assert rows(job(f"{command} --mhc_recompute_layer_num 2"))["mhc_recompute_layer_num"].fate == "no_cost_effect"
    for count, fate in ((1, "mapped"), (4, "not_modelled")):
        found = job(f"{command}{again} --mhc_recompute_layer_num {count}")
        assert found.placed().recompute_modules == ("mhc",) and rows(found)["mhc_recompute_layer_num"].fate == fate
    assert rows(job(command + again))["mhc_recompute_layer_num"].fate == "not_modelled"


def placed_of(command: str) -> Strategy:
    return job(command).placed()


def test_biases_beside_adapters() -> None:
    command = "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen2.5-7B --tuner_type lora --target_modules q_proj --lora_bias {}"
    assert job(command.format("all")).placed().modules_to_save == ("bias",)
    # q, k and v are one product of Megatron's, with one bias of its parts
    assert set(job(command.format("lora_only")).placed().modules_to_save or ()) == {f"attention.{name}_proj.bias" for name in "qkv"}
    assert job(command.format("none")).placed().modules_to_save is None
    assert rows(job(command.format("all").replace("Qwen2.5-7B", "Qwen3-8B")))["lora_bias"].fate == "no_cost_effect"
    assert "lora_bias is some" in told(command.format("some"))


def test_the_embedding_of_the_next_token_without_a_gradient() -> None:
    command = "NPROC_PER_NODE=8 megatron sft --model deepseek-ai/DeepSeek-V3 --mtp_num_layers 1 --expert_model_parallel_size 8"
    detached = job(f"{command} --mtp_decoder_input_detach true")
    assert detached.architecture is not None and detached.architecture.mtp_detaches_embedding

    def backward(found: Job) -> set[str]:
        result = derive(found.architecture, found.placed())
        remembered = result.lowered.blocks["mtp"]
        return {remembered.placed.block.ops[kernel.forward].name for kernel in remembered.differentiated.backward}

    # the norm of the embedding has a weight of its own to train
    assert backward(job(command)) - backward(detached) == {"embedding.lookup"}


def test_how_rows_are_parted_over_context_ranks() -> None:
    command = "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-8B --context_parallel_size 2 --cp_partition_mode {}"
    assert placed_of(command.format("contiguous")).cp_partition_mode == "contiguous"
    assert placed_of(command.format("zigzag")).cp_partition_mode == "zigzag"
    assert "one of zigzag, contiguous" in told(command.format("stripes"))


def test_settings_that_a_script_writes(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"

    def zero(name: str, text: str, end: str = "'END'") -> int:
        file.write_text(f"D=out/$(date +%s)\ncat > $D/s.json << {end}\n{text}\nEND\nswift sft --model Qwen/Qwen2.5-7B --{name} $D/s.json\n")
        return int((load_job("swift", str(file)).strategy or {})["zero"])

    assert zero("deepspeed", '{"zero_optimization": {"stage": 2}}') == 2
    assert zero("fsdp", '{"fsdp": "full_shard auto_wrap", "fsdp_config": {"fsdp_version": 2}}') == 3
    with pytest.raises(InputError, match=r"train\.sh:3: \$Z has no value; --var Z=VALUE gives it \(for deepspeed\)"):
        zero("deepspeed", '{"zero_optimization": {"stage": $Z}}', "END")


def test_a_decoder_that_rests_behind_a_trained_projector() -> None:
    """It has no adapters then, and gradients go back through it all the same."""
    found = job("megatron sft --model Qwen/Qwen3-8B --freeze_llm true --freeze_aligner false --tuner_type lora")
    held = dict(found.strategy or {})
    assert (held["freeze_parameters"], held["trained_before"]) == (["embedding", "lm_head", "final_norm", "layers"], True)
    assert "tuner_type" not in held and "lora_rank" not in held
    assert "trained_before" not in (job("megatron sft --model Qwen/Qwen3-8B --freeze_llm false").strategy or {})


@pytest.mark.parametrize(
    ("words", "cast"),
    [
        ("swift sft --tuner_type lora", True),
        ("swift sft --tuner_type lora --lora_dtype float32", True),
        ("swift sft --tuner_type lora --lora_dtype bfloat16", False),
        ("swift sft --tuner_type lora --deepspeed zero2", False),
        ("swift sft --tuner_type full", False),
        ("megatron sft --tuner_type lora --lora_dtype bfloat16", False),
        ("megatron sft --tuner_type lora --lora_dtype float32", False),
    ],
)
def test_adapters_of_replicas_are_fp32_unless_told(words: str, cast: bool) -> None:
    """peft casts them, which lora_dtype stands against (swift/tuners/peft.py)."""
    found = job(f"{words} --model Qwen/Qwen3-8B")
    assert dict(found.strategy or {}).get("autocast", False) is cast
    if "lora_dtype" in words:
        assert rows(found)["lora_dtype"].fate == ("mapped" if cast else "no_cost_effect")


def test_states_on_the_host_need_no_switch_beside_them() -> None:
    """Megatron-LM's command line asks for --use_precision_aware_optimizer; ms-swift and Megatron-Core's optimizer do not."""
    command = "megatron sft --model Qwen/Qwen3-8B --micro_batch_size 1 --global_batch_size 16 --optimizer_cpu_offload true"
    found = job(command)
    assert found.placed().optimizer_cpu_offload and found.placed().use_precision_aware_optimizer
    assert rows(found)["use_precision_aware_optimizer"].fate == "not_modelled"
    assert rows(job(f"{command} --use_precision_aware_optimizer true"))["use_precision_aware_optimizer"].fate == "mapped"
