"""NeMo Automodel's recipes: experts, sharding, pipelines and states, and a row for every key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import symsim
from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.reading import load_job
from symsim.inputs.reading import format_yaml

FILES = Path(__file__).parent / "imported" / "automodel"
BASE: dict[str, Any] = {
    "model": {"pretrained_model_name_or_path": "meta-llama/Llama-3.1-8B"},
    "step_scheduler": {"global_batch_size": 64, "local_batch_size": 4},
    "dataset": {"seq_len": 2048},
}


def job(tmp_path: Path, variables: dict[str, str] | None = None, **data: Any) -> Job:
    path = tmp_path / "recipe.yaml"
    path.write_text(format_yaml({**BASE, **data}))
    return load_job("automodel", str(path), variables=variables)


def test_experts_adapters_share_a_rank(tmp_path: Path) -> None:
    """moe_rank_scaling: the rank over the experts of a token (components/_peft/lora.py)."""
    data = {"model": {"pretrained_model_name_or_path": "mistralai/Mixtral-8x7B-v0.1"}}
    made = job(tmp_path, **data, peft={"dim": 8, "moe_rank_scaling": True})
    assert (made.strategy or {})["lora_expert_rank"] == 4
    assert {row.key: (row.fate, row.to) for row in made.rows}["peft.moe_rank_scaling"] == ("mapped", "lora_expert_rank")
    with pytest.raises(InputError, match="peft.dim at least the 2 experts of a token: 1 over them is no rank"):
        job(tmp_path, **data, peft={"dim": 1, "moe_rank_scaling": True})


def test_experts_over_ranks() -> None:
    made = load_job("automodel", str(FILES / "experts" / "qwen3_moe.yaml"), variables={"world": "16", "packed_document_length": "1000"})
    found = dict(made.strategy or {})
    assert made.architecture is not None and made.architecture.name == "qwen3-30b-a3b"
    assert (found["ep"], found["etp"], found["dp"], found["zero"], found["fusion"]) == (8, 1, 16, 3, "te")
    # no unit around the model's tells those of its layers to wait
    assert (found["micro_batch_size"], found["num_microbatches"], "gradient_sync" in found) == (4, 4, False)
    assert found["exp_avg_dtype"] == "bf16" and found["store_param_remainders"] and "main_params_dtype" not in found
    assert found["seq_length"] == 4096 and found["packed_document_length"] == 1000 and "norm_fusion" not in found
    assert (found["moe_token_dispatcher_type"], found["moe_flex_dispatcher_backend"]) == ("flex", "deepep")
    assert made.assumptions["apply_rope_fusion"] == "true"


def test_an_older_switch_of_the_exchange_and_stored_weights(tmp_path: Path) -> None:
    text = (FILES / "experts" / "qwen3_moe.yaml").read_text()
    for switch, wanted in (("true", "flex"), ("false", None)):
        path = tmp_path / f"{switch}.yaml"
        stored = "  quantization_config: {_target_: transformers.FineGrainedFP8Config, dequantize: true}\n"
        path.write_text(text.replace("dispatcher: deepep", f"enable_deepep: {switch}").replace("distributed:\n", f"{stored}distributed:\n", 1))
        made = load_job("automodel", str(path), variables={"world": "16"})
        assert dict(made.strategy or {}).get("moe_token_dispatcher_type") == wanted
        told = {row.key: row for row in made.rows}
        assert told["model.backend.enable_deepep"].fate == "mapped" and told["model.quantization_config.dequantize"].fate == "no_cost_effect"


def test_products_in_8_bits() -> None:
    made = load_job("automodel", str(FILES / "adapters" / "llama.yaml"))
    found = dict(made.strategy or {})
    assert (found["fp8"], found["dp"], found["num_microbatches"]) == ("tensorwise", 8, 1)
    assert (found["tuner_type"], found["lora_rank"], found["target_modules"]) == ("lora", 8, ["linear_qkv", "o_proj", "linear_fc1", "down_proj"])
    assert {row.key: row.fate for row in made.rows}["fp8.filter_fqns"] == "mapped"


def test_a_pipeline_with_chunks(tmp_path: Path) -> None:
    pipeline = {"pp_schedule": "interleaved1f1b", "pp_microbatch_size": 2, "layers_per_stage": 4}
    made = job(tmp_path, {"world": "16"}, distributed={"strategy": "fsdp2", "pp_size": 4, "pipeline": pipeline})
    found = dict(made.strategy or {})
    assert (found["pp"], found["vpp"], found["schedule"], found["zero"]) == (4, 2, "interleaved", 3)
    assert not found["reshard_after_backward"] and found["gradient_sync"] == "every_flush"
    assert (found["micro_batch_size"], found["num_microbatches"], found["pipeline_flushes"]) == (2, 8, 4)
    assert symsim.derive(made.architecture, found).strategy.dp == 4


def test_replicas_and_managers_of_before(tmp_path: Path) -> None:
    ddp = dict(job(tmp_path, distributed={"strategy": "ddp"}).strategy or {})
    assert ddp["zero"] == 0 and ddp["overlap_grad_reduce"]
    manager = {"_target_": "nemo_automodel.components.distributed.megatron_fsdp.MegatronFSDPManager", "zero_dp_strategy": 2}
    assert dict(job(tmp_path, distributed=manager).strategy or {})["zero"] == 2


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"distributed": {"tpsize": 2}}, "an Automodel file has no key 'distributed.tpsize': did you mean 'distributed.tp_size'"),
        ({"distributed": {"strategy": "zero"}}, "strategy is zero; it should be one of"),
        ({"optimizer": {"_target_": "my.Own"}}, "an optimizer of PyTorch"),
        ({"distributed": {"activation_checkpointing": "some"}}, "true or false"),
    ],
)
def test_what_cannot_be_is_a_sentence(tmp_path: Path, data: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        job(tmp_path, **data)


def test_ranks_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a multiple of 6"):
        job(tmp_path, {"world": "8"}, distributed={"tp_size": 3, "pp_size": 2})


def test_four_bits_and_magnitudes(tmp_path: Path) -> None:
    peft = {"_target_": "nemo_automodel.components._peft.lora.PeftConfig", "match_all_linear": True, "use_dora": True}
    found = dict(job(tmp_path, peft=peft, quantization={"load_in_4bit": True, "bnb_4bit_use_double_quant": False}).strategy or {})
    assert found["use_dora"] is True and found["quantize_base"] == "nf4"


def test_sizes_that_stand_in_the_file_are_the_model_s(tmp_path: Path) -> None:
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2}
    target = "transformers.models.llama.configuration_llama.LlamaConfig"
    config = {"_target_": target, "architectures": ["LlamaForCausalLM"], "vocab_size": 1000, "rms_norm_eps": 1e-5, **sizes}
    made = job(tmp_path, model={"_target_": "nemo_automodel.NeMoAutoModelForCausalLM.from_config", "config": config})
    assert made.architecture is not None
    found = made.architecture
    assert (found.num_layers, found.hidden_size, found.vocab_size, found.attention.num_query_groups) == (3, 256, 1000, 2)
    told = {row.key: row.fate for row in made.rows}
    assert told["model.config.hidden_size"] == told["model.config._target_"] == "mapped" and told["model.config.rms_norm_eps"] == "no_cost_effect"
    unknown = job(tmp_path, model={"config": {"_target_": "nemo_automodel.models.newest.config.NewestConfig", "hidden_size": 4}})
    assert {row.key: row.fate for row in unknown.rows}["model.config._target_"] == "refused"


def test_patterns_take_linear_maps_out(tmp_path: Path) -> None:
    made = job(tmp_path, peft={"dim": 4, "exclude_modules": ["*.o_proj", "*vision_tower*"]})
    assert dict(made.strategy or {})["exclude_modules"] == ["o_proj"]
    none = job(tmp_path, peft={"dim": 4, "exclude_modules": ["*vision_tower*"]})
    assert "exclude_modules" not in dict(none.strategy or {})
    assert {row.key: row.fate for row in none.rows}["peft.exclude_modules"] == "no_cost_effect"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["*_proj"], [f"{name}_proj" for name in "q k v o gate up down".split()]),
        (["*.layers.0.*_proj"], [f"layers.0-0.{name}_proj" for name in "q k v o gate up down".split()]),
        (["*attn*", "model.layers.3.mlp.up_proj"], ["q_proj", "k_proj", "v_proj", "o_proj", "layers.3-3.up_proj"]),
        (["*vision*"], ["all_linear"]),
    ],
)
def test_patterns_put_adapters_beside_what_they_match(tmp_path: Path, names: list[str], expected: list[str]) -> None:
    made = job(tmp_path, peft={"dim": 4, "target_modules": names})
    assert dict(made.strategy or {})["target_modules"] == expected
    (row,) = (row for row in made.rows if row.key == "peft.target_modules")
    assert row.fate == ("not_modelled" if expected == ["all_linear"] else "mapped")


def test_liger_takes_modules_and_not_the_loss(tmp_path: Path) -> None:
    """By default too, of transformers' modules; a model with code of its own has norms of one kernel."""
    model: dict[str, Any] = {"pretrained_model_name_or_path": "Qwen/Qwen2.5-7B", "force_hf": True}
    for asked in ({"use_liger_kernel": True}, {}):
        found = dict(job(tmp_path, model={**model, **asked}).strategy or {})
        assert found["fused_kernels"] == ["norm", "activation", "rope"] and "cross_entropy_fusion" not in found
    assert "fused_kernels" not in dict(job(tmp_path, model={**model, "use_liger_kernel": False}).strategy or {})
    split = job(tmp_path, model={**model, "use_liger_kernel": True}, distributed={"tp_size": 2}, variables={"world": "8"})
    assert "fused_kernels" not in dict(split.strategy or {})
    assert {row.key: row.fate for row in split.rows}["model.use_liger_kernel"] == "no_cost_effect"
    own = job(tmp_path, model={"pretrained_model_name_or_path": "Qwen/Qwen2.5-7B", "use_liger_kernel": True})
    assert dict(own.strategy or {})["fused_kernels"] == ["norm"]
    assert {row.key: row.fate for row in own.rows}["model.use_liger_kernel"] == "no_cost_effect"


MIXTURE = {"pretrained_model_name_or_path": "Qwen/Qwen3-30B-A3B"}


@pytest.mark.parametrize(
    ("backend", "load"),
    [
        ({"fake_balanced_gate": True}, "in_turn"),
        ({"fake_balanced_gate": True, "fake_gate_noise": 0.5}, "random"),
        ({"fake_balanced_gate": False}, None),
        ({"attn": "te", "fake_balanced_gate": True}, "in_turn"),
    ],
)
def test_a_gate_that_balances_puts_a_tokens_experts_in_a_row(tmp_path: Path, backend: dict[str, Any], load: str | None) -> None:
    made = job(tmp_path, {"world": "8"}, model={**MIXTURE, "backend": backend}, distributed={"ep_size": 8})
    assert made.assumptions.get("expert_load") == load
    # a backend's kernels are Transformer Engine's unless it says otherwise
    assert dict(made.strategy or {})["fusion"] == "te"


@pytest.mark.parametrize(
    ("model", "asked", "found"),
    [
        (MIXTURE, {}, "torch_fp32"),
        (MIXTURE, {"fp32_upcast": False}, "torch"),
        ({"pretrained_model_name_or_path": "meta-llama/Llama-3.1-8B"}, {}, None),
        ({"pretrained_model_name_or_path": "meta-llama/Llama-3.1-8B"}, {"fp32_upcast": False}, "torch"),
    ],
)
def test_the_loss_is_pytorchs(tmp_path: Path, model: dict[str, Any], asked: dict[str, Any], found: str | None) -> None:
    loss = {"_target_": "nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy", **asked}
    assert dict(job(tmp_path, model=model, loss_fn=loss).strategy or {}).get("cross_entropy_fusion") == found


@pytest.mark.parametrize(
    ("sizes", "outer", "own", "waits", "found"),
    [
        # pp, ep, micro-batches around; (gradient_sync, whether parameters are freed after backward)
        ((2, 8, 2), True, True, True, ("every_flush", False)),
        ((2, 8, 2), False, True, True, ("last_microbatch", False)),
        ((2, 8, 2), False, False, True, (None, True)),
        ((2, 8, 2), True, True, False, (None, True)),
        ((1, 8, 2), True, True, True, ("last_microbatch", False)),
        ((1, 8, 2), True, False, True, ("last_microbatch", True)),
        ((1, 8, 2), False, False, True, (None, True)),
        # what the units of a mixture are told is of experts that are spread alone
        ((1, 1, 2), True, False, True, ("last_microbatch", True)),
        ((1, 1, 2), False, True, True, ("last_microbatch", True)),
        ((2, 1, 2), False, True, True, ("every_flush", False)),
        ((1, 8, 1), True, True, True, (None, True)),
    ],
)
def test_when_gradients_are_reduced(
    tmp_path: Path, sizes: tuple[int, int, int], outer: bool, own: bool, waits: bool, found: tuple[str | None, bool]
) -> None:
    """components/moe/fsdp_mixin.py: a pipeline tells the model's own unit, or the model its units; without either every micro-batch reduces."""
    pp, ep, rounds = sizes
    made = job(
        tmp_path,
        {"world": str(8 * pp)},
        model={**MIXTURE, "backend": {"enable_fsdp_optimizations": own}},
        step_scheduler={"local_batch_size": 4, "global_batch_size": 4 * 8 * rounds},
        distributed={"pp_size": pp, "ep_size": ep, "defer_fsdp_grad_sync": waits, "moe": {"wrap_outer_model": outer}},
    )
    strategy = dict(made.strategy or {})
    assert (strategy.get("gradient_sync"), strategy.get("reshard_after_backward", True)) == found
    assert strategy.get("pipeline_flushes", 1) == (rounds if pp > 1 else 1)
    # units of the mixture's own way of sharding stay gathered
    assert strategy.get("reshard_after_forward", True) is (ep == 1)


def test_dropout_is_of_what_adapters_make(tmp_path: Path) -> None:
    for asked, found in (({}, "post"), ({"dropout_position": "pre"}, None)):
        made = job(tmp_path, peft={"dim": 8, "dropout": 0.1, **asked})
        assert dict(made.strategy or {}).get("lora_dropout_position") == found


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({}, ["each"]),
        ({"peft": {"dim": 8, "use_memory_efficient_lora": False}}, None),
        ({"peft": {"dim": 8, "use_dora": True}}, None),
        ({"compile": {"enabled": True}}, None),
        ({"distributed": {"tp_size": 2}}, None),
    ],
)
def test_adapters_are_in_functions_of_their_own(more: dict[str, Any], found: list[str] | None, tmp_path: Path) -> None:
    """Not where weights are split or compiled, and not with magnitudes; their scale is as wide as the rank in any case."""
    made = job(tmp_path, {"world": "8"}, **{"peft": {"dim": 8}, "distributed": {"strategy": "fsdp2"}, **more})
    assert dict(made.strategy or {}).get("fused_adapters") == found
    assert dict(made.assumptions or {})["lora_scaling"] == "rank"
    symsim.derive("llama3-8b", made.placed(), made.assumptions)


def test_a_model_named_twice_and_its_type(tmp_path: Path) -> None:
    config = {"_target_": "transformers.AutoConfig.from_pretrained", "pretrained_model_name_or_path": "Qwen/Qwen2.5-7B", "name_or_path": "x"}
    made = job(tmp_path, model={"config": config, "dtype": "float32"})
    told = {row.key: row for row in made.rows}
    assert made.architecture is not None and made.architecture.name == "qwen2.5-7b"
    assert told["model.config.name_or_path"].fate == "no_cost_effect" and told["model.dtype"].fate == "mapped"
    assert "main_params_dtype" not in dict(made.strategy or {})


def test_other_workloads_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="flow_matching trains a model of images or video"):
        job(tmp_path, flow_matching={"sigma_min": 0.0})
    made = job(tmp_path, temperature=0.02, dllm={"mask_token_id": 3}, distributed={"autocast_dtype": "bfloat16", "offload_policy": None})
    told = {row.key: row for row in made.rows}
    assert told["temperature"].fate == told["dllm.mask_token_id"].fate == told["distributed.autocast_dtype"].fate == "not_modelled"
    assert told["distributed.offload_policy"].fate == "no_cost_effect"


def test_a_mixture_with_tensor_parallelism_splits_its_sequence(tmp_path: Path) -> None:
    model = {"pretrained_model_name_or_path": "mistralai/Mixtral-8x7B-v0.1"}
    assert dict(job(tmp_path, model=model, distributed={"tp_size": 4}).strategy or {})["sp"] is True


def test_a_decoder_that_rests_behind_a_trained_projector(tmp_path: Path) -> None:
    held = dict(job(tmp_path, freeze_config={"freeze_language_model": True, "freeze_vision_tower": False}).strategy or {})
    assert (held["freeze_parameters"], held["trained_before"]) == (["embedding", "lm_head", "final_norm", "layers"], True)


def test_keys_of_newer_recipes(tmp_path: Path) -> None:
    """Master weights by their type, checkpoints of a model below a drafter, and keys that no formula reads."""
    adam = {"_target_": "transformer_engine.pytorch.optimizers.FusedAdam", "master_weights": True, "warmup_ratio": 0.05, "min_lr_ratio": 0.1}
    model = {**BASE["model"], "base_activation_checkpointing": True, "kda_mode": "chunk", "text_config": {"cp_full_attn_backend": "ffpa"}}
    wanted = {"torch.float32": None, "torch.float16": "fp16"}
    for spelt, kept in wanted.items():
        made = job(tmp_path, optimizer={**adam, "master_weight_dtype": spelt}, model=model)
        found, fates = dict(made.strategy or {}), {row.key: row.fate for row in made.rows}
        assert found.get("main_params_dtype") == kept and found["recompute"] == "full"
        assert fates["optimizer.master_weight_dtype"] == "mapped" == fates["model.base_activation_checkpointing"]
        others = ("optimizer.warmup_ratio", "optimizer.min_lr_ratio", "model.kda_mode", "model.text_config.cp_full_attn_backend")
        assert {fates[key] for key in others} == {"no_cost_effect"}
    for key, value in (("kda_mode", "fused_recurrent"), ("canvas_length", 256), ("extract_submodel", "language_model")):
        made = job(tmp_path, model={**BASE["model"], key: value})
        assert {row.key: row.fate for row in made.rows}[f"model.{key}"] == "not_modelled"


def test_more_parts_of_sequences_than_a_delta_rule_has_heads(tmp_path: Path) -> None:
    """examples/vlm_finetune/qwen3_5_moe/qwen3_5_122b_128k_ep8cp32.yaml has 16 key heads on 32 ranks."""
    model = {"pretrained_model_name_or_path": "Qwen/Qwen3.5-122B-A10B"}
    found = {}
    for cp in (16, 32):
        distributed = {"strategy": "fsdp2", "ep_size": 8, "cp_size": cp}
        made = job(tmp_path, {"world": "64"}, model=model, distributed=distributed, dataset={"seq_len": 131072})
        found[cp] = (made.placed().cp, made.placed().dp, made.placed().seq_length, {row.key: row.fate for row in made.rows}["distributed.cp_size"])
    assert found == {16: (16, 4, 131072, "mapped"), 32: (1, 64, 4096, "not_modelled")}
