"""NeMo-RL's configurations: the policy's update on FSDP and on Megatron-Core; all else is named as another workload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.reading import load_job
from symsim.inputs.reading import format_yaml

FILES = Path(__file__).parent / "imported" / "nemo-rl"
MODEL = "meta-llama/Llama-3.1-8B"


def job(tmp_path: Path, policy: dict[str, Any], lenient: bool = False, more: dict[str, Any] | None = None, **variables: str) -> Job:
    path = tmp_path / "run.yaml"
    path.write_text(format_yaml({"policy": {"model_name": MODEL, **policy}, "cluster": {"gpus_per_node": 8}, **(more or {})}))
    return load_job("nemo-rl", str(path), lenient=lenient, variables=variables)


def fates(made: Job) -> dict[str, str]:
    return {row.key: row.fate for row in made.rows}


def test_sharded_and_packed_with_adapters() -> None:
    made = load_job("nemo-rl", str(FILES / "sharded" / "sft.yaml"))
    found = made.placed()
    assert (found.tp, found.sp, found.cp, found.dp, found.zero, found.recompute) == (2, True, 2, 4, 3, "full")
    # 8192 tokens hold two rows of 4096; 128 rows over four ranks
    assert (found.seq_length, found.packed_document_length, found.micro_batch_size, found.microbatches) == (8192, 4096, 1, 16)
    assert (found.tuner_type, found.lora_rank, found.target_modules) == ("lora", 16, ("all_linear",))
    assert made.assumptions == {"fsdp_parameters": "main", "optimizer_implementation": "for_loop", "lora_scaling": "rank"}


def test_a_reward_model_has_another_head(tmp_path: Path) -> None:
    told = fates(job(tmp_path, {"reward_model_cfg": {"enabled": True, "reward_model_type": "bradley_terry"}}))
    assert told["policy.reward_model_cfg.enabled"] == "not_modelled" and told["policy.reward_model_cfg.reward_model_type"] == "no_cost_effect"
    assert fates(job(tmp_path, {"reward_model_cfg": {"enabled": False}}))["policy.reward_model_cfg.enabled"] == "no_cost_effect"


def cluster(tmp_path: Path, nodes: int, more: dict[str, Any], **policy: Any) -> Job:
    return job(tmp_path, policy, more={"cluster": {"num_nodes": nodes, "gpus_per_node": 8}, **more})


def test_ranks_of_a_reward_model_do_not_train(tmp_path: Path) -> None:
    """nemo_rl/algorithms/grpo.py setup: nodes of its own, or ranks of the only node."""
    more = {"data": {"default": {"env_name": "reward_model"}}, "env": {"reward_model": {"resources": {"gpus_per_node": 2, "num_nodes": 3}}}}
    assert cluster(tmp_path, 7, more).placed().dp == 32
    assert cluster(tmp_path, 1, more).placed().dp == 6
    apart = {"colocated": {"enabled": False, "resources": {"num_nodes": 2, "gpus_per_node": 8}}}
    assert cluster(tmp_path, 7, more, generation=apart).placed().dp == 16
    assert cluster(tmp_path, 7, {"env": more["env"]}).placed().dp == 56
    with pytest.raises(InputError, match=r"num_nodes is 3; it should be more than the nodes of the other models"):
        cluster(tmp_path, 3, more)


def test_nodes_of_teachers_do_not_train(tmp_path: Path) -> None:
    """nemo_rl/models/policy/teacher_worker_group.py: names of one model share it, and the first name's own values hold."""
    own = {"enabled": True, "default_teacher_cfg": {"num_nodes": 2}, "teacher_overrides": {"code": {"num_nodes": 3}}}
    asked = {"enabled": True, "non_colocated_teachers": own, "teacher_model_by_agent_name": {"math": "a", "more": "a", "code": "b"}}
    assert cluster(tmp_path, 7, {"on_policy_distillation": asked}).placed().dp == 16
    assert cluster(tmp_path, 15, {"on_policy_distillation": asked | {"deduplicate_shared_teacher_checkpoints": False}}).placed().dp == 64
    for off in (asked | {"enabled": False}, asked | {"non_colocated_teachers": own | {"enabled": False}}):
        assert cluster(tmp_path, 7, {"on_policy_distillation": off}).placed().dp == 56


def test_nodes_of_judges_are_counted_beside_the_cluster(tmp_path: Path) -> None:
    megatron = {"enabled": True, "tensor_model_parallel_size": 8, "pipeline_model_parallel_size": 1, "context_parallel_size": 8}
    with pytest.raises(InputError, match=r"does not divide the 80 ranks that train.*num_gpu_nodes=2 are none: take them off cluster.num_nodes"):
        cluster(tmp_path, 10, {"env": {"nemo_gym": {"num_gpu_nodes": 2}}}, megatron_cfg=megatron)


def test_megatron_beside_ranks_that_generate() -> None:
    made = load_job("nemo-rl", str(FILES / "megatron" / "grpo.yaml"))
    found = made.placed()
    assert (found.tp, found.pp, found.ep, found.dp, found.sp, found.zero) == (4, 2, 4, 4, True, 1)
    assert (found.micro_batch_size, found.microbatches, found.seq_length, found.recompute) == (1, 64, 4096, "full")
    assert found.optimizer_cpu_offload and found.optimizer_offload_fraction == 0.5 and found.use_precision_aware_optimizer
    assert found.freeze_parameters == ("router",) and found.gradient_accumulation_fusion is False and found.overlap_param_gather
    told = fates(made)
    assert told["policy.generation.vllm_cfg.tensor_parallel_size"] == told["grpo.num_prompts_per_step"] == "no_cost_effect"
    assert told["policy.megatron_cfg.optimizer.optimizer_cpu_offload"] == told["cluster.num_nodes"] == "mapped"
    assert "grpo_math_1B.yaml" in made.notes[0]


def test_a_file_inherits_what_lies_where_it_says(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("policy: {train_micro_batch_size: 2, dtensor_cfg: {tensor_parallel_size: 4}}\n")
    found = job(tmp_path, {"train_micro_batch_size": 8}, more={"defaults": "base.yaml"}).placed()
    assert (found.tp, found.dp, found.micro_batch_size, found.microbatches) == (4, 2, 8, 32)


@pytest.mark.parametrize(("name", "wanted"), [("torchao.optim.AdamW8bit", ("adam", 8)), ("dion.MuonReference", ("muon", None))])
def test_optimizers_of_other_packages(tmp_path: Path, name: str, wanted: tuple[str, int | None]) -> None:
    found = dict(job(tmp_path, {"optimizer": {"name": name}}).strategy or {})
    assert (found["optimizer"], found.get("optimizer_bits")) == wanted


def test_a_loss_with_the_output_layer_in_it(tmp_path: Path) -> None:
    on = {"megatron_cfg": {"enabled": True, "use_linear_ce_fusion_loss": True, "linear_ce_fusion_chunk_size": 256}}
    assert dict(job(tmp_path, on).strategy or {})["cross_entropy_fusion"] == "linear"


def test_the_engine_is_the_one_whose_keys_are_set_where_the_base_is_not_here(tmp_path: Path) -> None:
    set_ = {"megatron_cfg": {"tensor_model_parallel_size": 4}}
    made = job(tmp_path, set_, more={"defaults": "./grpo-qwen3-32b-4n8g.yaml"})
    assert (made.placed().tp, made.placed().zero, fates(made)["policy.megatron_cfg.enabled"]) == (4, 1, "derived")
    assert job(tmp_path, set_, more={"defaults": "../../grpo_math_1B.yaml"}).placed().zero == 3
    both = {**set_, "dtensor_cfg": {"tensor_parallel_size": 2}}
    assert job(tmp_path, both, more={"defaults": "./other.yaml"}).placed().tp == 2


def test_a_name_too_long_for_a_file_is_none_that_lies_there(tmp_path: Path) -> None:
    made = job(tmp_path, {}, more={"defaults": "a" * 300 + ".yaml"})
    assert "is not beside it" in made.notes[0]


def test_lengths_and_kernels(tmp_path: Path) -> None:
    packed = {"sequence_packing": {"enabled": True, "train_mb_tokens": 8192}, "max_total_sequence_length": 4096}
    assert job(tmp_path, packed, packed_document_length="1024").placed().microbatches == 8
    rows = {"dynamic_batching": {"enabled": True, "train_mb_tokens": 16384}, "max_total_sequence_length": 4096}
    assert job(tmp_path, rows).placed().micro_batch_size == 4
    pairs = job(tmp_path, {"train_micro_batch_size": 1}, more={"dpo": {"max_num_steps": 3}}).placed()
    assert (pairs.micro_batch_size, pairs.microbatches) == (2, 64)
    te = job(tmp_path, {"dtensor_cfg": {"enabled": True, "automodel_kwargs": {"backend": {"linear": "te", "attn": "te"}}}})
    assert te.placed().fusion == "te" and fates(te)["policy.dtensor_cfg.automodel_kwargs.backend.linear"] == "mapped"
    narrow = {"enabled": True, "fp8_cfg": {"enabled": True, "fp8": "e4m3", "fp8_recipe": "blockwise", "fp8_param": False}}
    assert job(tmp_path, {"megatron_cfg": narrow}).placed().fp8 == "blockwise"
    off = job(tmp_path, {"megatron_cfg": {**narrow, "fp8_cfg": {"enabled": False, "fp8_recipe": "blockwise"}, "recompute_granularity": "full"}})
    assert off.placed().fp8 == "none" and off.placed().recompute == "none"
    tuned = job(tmp_path, {"megatron_cfg": {"enabled": True, "peft": {"enabled": True, "dim": 32, "target_modules": ["linear_qkv"]}}}).placed()
    assert (tuned.lora_rank, tuned.target_modules) == (32, ("linear_qkv",))


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ({"train_micro_batchsize": 2}, "a NeMo-RL file has no key 'policy.train_micro_batchsize': did you mean 'policy.train_micro_batch_size'"),
        ({"precision": "int8"}, "policy.precision is int8; it should be one of"),
        ({"dtensor_cfg": {"tensor_parallel_size": 3}}, "such that tp[*]cp=3 divides the 8 ranks"),
        ({"megatron_cfg": {"enabled": True, "tensor_model_parallel_size": 3}}, "tp[*]cp[*]pp=3[*]1[*]1 does not divide the 8 ranks that train"),
    ],
)
def test_what_cannot_be_is_a_sentence(tmp_path: Path, policy: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        job(tmp_path, policy)


def test_an_exchange_with_a_copy_a_node(tmp_path: Path) -> None:
    backend = {"automodel_kwargs": {"backend": {"dispatcher": "deepep"}}}
    experts = {"model_name": "Qwen/Qwen3-30B-A3B", "dtensor_cfg": {"expert_parallel_size": 8, **backend}}
    made = job(tmp_path, experts)
    assert made.assumptions["moe_exchange"] == "once_per_node"
    key = "policy.dtensor_cfg.automodel_kwargs.backend.dispatcher"
    assert fates(made)[key] == "mapped"
    alone = job(tmp_path, {**experts, "dtensor_cfg": backend})
    assert "moe_exchange" not in alone.assumptions and fates(alone)[key] == "no_cost_effect"


def test_keys_of_before_and_of_adapters(tmp_path: Path) -> None:
    lora = {"enabled": True, "dim": 8, "lora_dtype": "bfloat16"}
    told = fates(job(tmp_path, {"activation_checkpointing_enabled": False, "dtensor_cfg": {"lora_cfg": lora}}))
    assert told["policy.activation_checkpointing_enabled"] == "no_cost_effect"
    assert told["policy.dtensor_cfg.lora_cfg.lora_dtype"] == "not_modelled"


def test_where_adapters_drop_and_a_gate_that_balances(tmp_path: Path) -> None:
    """Automodel's dropout is of what adapters make unless it is said; Megatron-Bridge's of what goes into them."""
    for asked, found in (({}, "post"), ({"dropout_position": "pre"}, "pre"), ({"dropout": 0.0, "dropout_position": "post"}, "pre")):
        lora = {"enabled": True, "dim": 8, "dropout": 0.1, **asked}
        assert job(tmp_path, {"dtensor_cfg": {"enabled": True, "lora_cfg": lora}}).placed().lora_dropout_position == found
    (row,) = [row for row in job(tmp_path, {"dtensor_cfg": {"enabled": True, "lora_cfg": lora}}).rows if row.key.endswith("dropout_position")]
    assert (row.fate, row.why) == ("no_cost_effect", "nothing is dropped")
    backend = {"fake_balanced_gate": True}
    made = job(tmp_path, {"dtensor_cfg": {"enabled": True, "automodel_kwargs": {"backend": backend}}})
    assert made.assumptions["expert_load"] == "in_turn"
