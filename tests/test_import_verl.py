"""verl's launch scripts and overrides: the actor's update on FSDP and on Megatron-Core; all else is named as another workload."""

from __future__ import annotations

from pathlib import Path

import pytest

from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.reading import load_job

FILES = Path(__file__).parent / "imported" / "verl"
ACTOR = "actor_rollout_ref.actor"
BASE = ("actor_rollout_ref.model.path=Qwen/Qwen2.5-7B", "data.max_prompt_length=512", "data.max_response_length=512")


def job(*overrides: str, **variables: str) -> Job:
    return load_job("verl", *BASE, *overrides, variables=variables)


def test_a_script_on_fsdp() -> None:
    """The script stops without arguments, and its paths hang on the environment: it is read as if it had both."""
    made = load_job("verl", str(FILES / "fsdp" / "run.sh"))
    found = dict(made.strategy or {})
    assert made.architecture is not None and made.architecture.name == "qwen2.5-7b"
    assert (found["zero"], found["dp"], found["seq_length"], found["recompute"], found["fusion"]) == (3, 16, 4096, "full", "eager")
    assert (found["micro_batch_size"], found["num_microbatches"]) == (4, 128 * 8 // 16 // 4)
    told = {row.key: row for row in made.rows}
    assert told["actor_rollout_ref.rollout.gpu_memory_utilization"].why.startswith("generation between training steps is another workload")
    assert told[f"{ACTOR}.fsdp_config.optimizer_offload"].fate == "not_modelled" and told["trainer.save_freq"].fate == "not_modelled"


def test_a_script_on_megatron_with_packed_rows() -> None:
    made = load_job("verl", str(FILES / "megatron" / "run.sh"), variables={"packed_document_length": "2048"})
    found = dict(made.strategy or {})
    assert (found["tp"], found["sp"], found["ep"], found["etp"], found["dp"], found["zero"]) == (2, True, 8, 1, 16, 1)
    assert (found["recompute"], found["moe_router_dtype"], found["seq_length"], found["packed_document_length"]) == ("full", "fp32", 20480, 2048)
    assert found["num_microbatches"] == 64 * 16 // 16 // 10 + 1
    told = {row.key: row.fate for row in made.rows}
    key = f"{ACTOR}.megatron.override_transformer_config.moe_router_dtype"
    assert told[key] == "mapped" and told[f"{ACTOR}.megatron.param_offload"] == "not_modelled"


def test_models_that_are_not_there() -> None:
    """A critic without its advantages, a reward model that is off, and rules that score."""
    critic, model, rule = "critic.ppo_micro_batch_size_per_gpu=4", "reward_model.micro_batch_size=4", "reward_model.overlong_buffer.len=512"
    for more, fates in (
        (("algorithm.adv_estimator=grpo", "reward_model.enable=False"), ["no_cost_effect"] * 3),
        (("algorithm.adv_estimator=grpo", "critic.enable=True", "reward_model.enable=True"), ["not_modelled", "not_modelled", "no_cost_effect"]),
        (("algorithm.adv_estimator=gae",), ["not_modelled", "not_modelled", "no_cost_effect"]),
        ((), ["not_modelled", "not_modelled", "no_cost_effect"]),
    ):
        told = {row.key: row.fate for row in job(critic, model, rule, *more).rows}
        assert [told[key.partition("=")[0]] for key in (critic, model, rule)] == fates, more


def test_overrides_alone() -> None:
    found = dict(
        job(f"{ACTOR}.ulysses_sequence_parallel_size=2", f"{ACTOR}.fsdp_config.fsdp_size=4", f"++{ACTOR}.ppo_mini_batch_size=32").strategy or {}
    )
    assert (found["cp"], found["cp_comm_type"], found["dp"], found["num_distributed_optimizer_instances"]) == (2, "a2a", 4, 2)
    assert found["num_microbatches"] == 8 and dict(job(world="32").strategy or {})["dp"] == 32
    assert dict(job(f"{ACTOR}.fsdp_config.model_dtype=bf16").strategy or {})["main_params_dtype"] == "bf16"
    tuned = dict(job("actor_rollout_ref.model.lora_rank=16", "actor_rollout_ref.model.target_modules=all-linear").strategy or {})
    assert (tuned["tuner_type"], tuned["lora_rank"], tuned["target_modules"]) == ("lora", 16, ["all_linear"])
    free = job("actor_rollout_ref.model.use_remove_padding=True", "trainer.balance_batch=True", document_lengths="lognormal:300+0.5")
    assert dict(free.strategy or {})["padding_free"] and free.assumptions["row_balance"] == "balanced"
    assert dict(job("actor_rollout_ref.model.use_fused_kernels=True").strategy or {})["cross_entropy_fusion"] == "cut"


def test_what_layers_save_waits_on_the_host(tmp_path: Path) -> None:
    """verl/utils/activation_offload.py: all units of FSDP but the last, their checkpoints or all that they save; Megatron-Core does not read it."""
    key = "actor_rollout_ref.model.enable_activation_offload"
    kept = job(f"{key}=True")
    assert dict(kept.strategy or {})["cpu_offloading_num_layers"] == 27 and dict(kept.strategy or {})["recompute"] == "full"
    assert next(row for row in kept.rows if row.key == key).to == "recompute, cpu_offloading_num_layers"
    everything = job(f"{key}=True", "actor_rollout_ref.model.enable_gradient_checkpointing=False")
    assert dict(everything.strategy or {})["cpu_offloading_num_layers"] == 27 and "recompute" not in dict(everything.strategy or {})
    assert "cpu_offloading_num_layers" not in dict(job(f"{key}=True", "model_engine=megatron").strategy or {})
    (tmp_path / "config.json").write_text(
        '{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": 96}'
    )
    shallow = load_job("verl", *BASE, f"{key}=True", model=str(tmp_path))
    assert "cpu_offloading_num_layers" not in dict(shallow.strategy or {})
    assert next(row for row in shallow.rows if row.key == key).why == "fewer than three layers stay where they are"


def test_an_engine_is_chosen_by_its_group_or_its_file(tmp_path: Path) -> None:
    for override in ("model_engine=megatron", "actor@actor_rollout_ref.actor=megatron_actor"):
        assert dict(job(override).strategy or {})["zero"] == 1
    assert dict(job("model_engine=dp").strategy or {})["zero"] == 3
    with pytest.raises(InputError, match=r"fsdp_size is 0.5; it should be a whole number from -1 up"):
        job(f"{ACTOR}.fsdp_config.fsdp_size=0.5")
    with pytest.raises(InputError, match="model_engine is mlite; it should be one of dp, megatron, veomni"):
        job("model_engine=mlite")
    told = {row.key: row.fate for row in job("distillation.enabled=True", "distillation.teacher_models.a.model_path=x").rows}
    assert told["distillation.enabled"] == "not_modelled" and told["distillation.teacher_models.a.model_path"] == "no_cost_effect"
    whole = dict(job("model_engine=megatron", f"{ACTOR}.megatron.use_megatron_fsdp=True").strategy or {})
    assert whole["zero"] == 3


def test_the_supervised_trainer(tmp_path: Path) -> None:
    script = tmp_path / "sft.sh"
    words = "data.train_batch_size=64 data.micro_batch_size_per_gpu=4 data.max_length=2048 model.partial_pretrain=Qwen/Qwen2.5-0.5B optim.lr=1e-4"
    script.write_text(f"torchrun --nproc_per_node=4 -m verl.trainer.fsdp_sft_trainer {words} $@\n")
    made = load_job("verl", str(script))
    found = dict(made.strategy or {})
    assert (found["dp"], found["seq_length"], found["micro_batch_size"], found["num_microbatches"]) == (4, 2048, 4, 4)
    assert {"model.partial_pretrain", "data.train_batch_size"} <= {row.key for row in made.rows}


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        (f"{ACTOR}.ppo_mini_batch=3", "verl has no key 'actor_rollout_ref.actor.ppo_mini_batch': did you mean"),
        (f"{ACTOR}.strategy=ddp", "strategy is ddp; it should be one of"),
        (f"{ACTOR}.ulysses_sequence_parallel_size=3", "a divisor of the 8 ranks"),
        (f"{ACTOR}.megatron.tensor_model_parallel_size=3", "such that tp"),
    ],
)
def test_what_cannot_be_is_a_sentence(override: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        job(override)


def test_two_trainings_and_none(tmp_path: Path) -> None:
    line = "python -m verl.trainer.main_ppo trainer.nnodes={} data.max_prompt_length=1 trainer.n_gpus_per_node=1\n"
    (tmp_path / "two.sh").write_text(line.format(1) + line.format(2))
    with pytest.raises(InputError, match="2 commands here start a training"):
        load_job("verl", str(tmp_path / "two.sh"))
    (tmp_path / "none.sh").write_text("echo hello\n")
    with pytest.raises(InputError, match="no command here starts verl"):
        load_job("verl", str(tmp_path / "none.sh"))


def test_rows_longer_than_any_document_are_a_sentence() -> None:
    dynamic = (f"{ACTOR}.use_dynamic_bsz=true", f"{ACTOR}.ppo_max_token_len_per_gpu=4096", "data.max_response_length=1000000000000001")
    with pytest.raises(InputError):
        job(*dynamic)


def test_liger_takes_modules_of_the_model() -> None:
    found = dict(job("actor_rollout_ref.model.use_liger=True").strategy or {})
    assert found["fused_kernels"] == ["norm", "activation", "rope"] and "cross_entropy_fusion" not in found
    assert "fused_kernels" not in dict(job("actor_rollout_ref.model.use_liger=False").strategy or {})
