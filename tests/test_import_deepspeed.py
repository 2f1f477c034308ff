"""DeepSpeed's JSON with the Trainer's arguments: `auto` filled in, ZeRO's stages and what each key is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from import_names import of_vocabulary

import symsim
from symsim.api.result import Result
from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.reading import load_job

FILES = Path(__file__).parent / "imported" / "deepspeed"
LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 256, "hidden_act": "silu", "rms_norm_eps": 1e-6,
}  # fmt: skip

# of the newest version; those of 0.16 are asserted against ../shared/vocabulary.yaml
NAMES = """train_batch_size zero_optimization.stage zero_optimization.overlap_comm zero_optimization.sub_group_size zero_optimization.zenflow
zero_optimization.stage3_allgather_sequential zero_optimization.enable_sanity_checks zero_optimization.leaf_module bf16.check_grad_overflow
bf16.bf16_optimizer_states tensor_parallel.autotp_size sequence_parallel_size data_types.grad_accum_dtype compile.deepcompile memory_breakdown
managed_gradient_accumulation torch_autocast.enabled expert_parallel flops_profiler comms_logger data_efficiency elasticity""".split()


def nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value  # type: ignore[no-any-return]


def job(tmp_path: Path, settings: dict[str, Any], arguments: dict[str, Any] | None = None, **options: Any) -> Job:
    files = {"ds.json": {"train_micro_batch_size_per_gpu": 1, **settings}, "config.json": LLAMA, "args.json": arguments}
    paths = []
    for name, data in files.items():
        if data is not None:
            (tmp_path / name).write_text(json.dumps(data))
            paths.append(str(tmp_path / name))
    return load_job("deepspeed", *paths, **options)


def rows(made: Job) -> dict[str, Any]:
    return {row.key: row for row in made.rows}


def test_eight_bits_of_the_trainer(tmp_path: Path) -> None:
    """Embeddings keep 32 bits where the Trainer's parameters are the model's own; an optimizer of the JSON has its own bits."""
    trainer, found = {"optim": "adamw_bnb_8bit", "per_device_train_batch_size": 1}, {}
    for stage in (0, 1, 3):
        strategy = job(tmp_path, {"zero_optimization": {"stage": stage}}, trainer).strategy or {}
        found[stage] = (strategy["optimizer_bits"], strategy.get("fp32_embedding_moments", False))
    assert found == {0: (8, True), 1: (8, False), 3: (8, False)}
    own = job(tmp_path, {"optimizer": {"type": "AdamW"}}, trainer).strategy or {}
    assert not {"optimizer_bits", "fp32_embedding_moments"} & own.keys()


def test_a_recipe_of_the_trainer() -> None:
    made = load_job("deepspeed", str(FILES / "zero3" / "zero3_auto.json"), str(FILES / "zero3" / "training_args.yaml"), variables={"world": "16"})
    assert made.architecture is not None and made.architecture.name == "qwen2.5-7b"
    strategy = dict(made.strategy or {})
    assert strategy == {
        "fusion": "eager", "micro_batch_size": 2, "num_microbatches": 8, "precision": "bf16", "optimizer": "adam", "clip_grad": 1.0,
        "recompute": "full", "seq_length": 8192, "dp": 16, "grad_reduce_in_fp32": False, "zero": 3,
        "ddp_bucket_size": 3584**2, "prefetch_bucket_size": 9 * 3584**2 // 10, "param_persistence_threshold": 35840,
        "max_live_parameters": 10**9, "max_reuse_distance": 10**9, "sub_group_size": 10**9,
    }  # fmt: skip
    assert made.assumptions == {"recompute_early_stop": "true", "fsdp_unit": "module", "fsdp_prefetch": "true", "reduction_buffers": "one"}
    told = {row.key: row for row in made.rows if row.value.startswith("auto: ")}
    hidden = 3584
    assert told["zero_optimization.reduce_bucket_size"].value == f"auto: {hidden * hidden}"
    assert told["zero_optimization.stage3_prefetch_bucket_size"].value == f"auto: {int(0.9 * hidden * hidden)}"
    assert told["zero_optimization.stage3_param_persistence_threshold"].value == f"auto: {10 * hidden}"
    assert told["train_batch_size"].value == "auto: 256" and told["gradient_clipping"].value == "auto: 1.0"


def test_the_arguments_name_the_json() -> None:
    by_name = load_job("deepspeed", str(FILES / "zero3" / "training_args.yaml"))
    assert by_name.strategy == load_job("deepspeed", str(FILES / "zero3" / "zero3_auto.json"), str(FILES / "zero3" / "training_args.yaml")).strategy


def test_adapters_of_a_script(tmp_path: Path) -> None:
    arguments = {"use_peft": True, "lora_target_modules": ["q_proj", "o_proj"], "bf16": True, "max_seq_length": 512, "per_device_train_batch_size": 1}
    made = job(tmp_path, {"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}, arguments)
    found = dict(made.strategy or {})
    assert (found["tuner_type"], found["lora_rank"], found["target_modules"]) == ("lora", 16, ["q_proj", "o_proj"]) and "autocast" not in found
    assert {row.key: row.fate for row in made.rows}["use_peft"] == "mapped"


def test_ranks_follow_from_the_batch() -> None:
    made = load_job("deepspeed", str(FILES / "zero2" / "zero2_offload.json"), model="llama2-7b")
    strategy = dict(made.strategy or {})
    assert strategy["dp"] == 256 // (4 * 2) and strategy["precision"] == "fp16" and strategy["optimizer_cpu_offload"]
    assert strategy["overlap_grad_reduce"] and made.assumptions == {"zero_reduction": "all_reduce", "reduction_buffers": "two"}
    assert strategy["ddp_bucket_size"] == 5 * 10**8
    assert any("no training arguments" in note for note in made.notes)


def test_stage_1_reduces_whole_buckets_unless_told(tmp_path: Path) -> None:
    """Once a step, and twice the elements of a scatter (runtime/zero/stage_1_and_2.py)."""
    received = {}
    for together in (True, False):
        zero = {"stage": 1, "use_multi_rank_bucket_allreduce": together}
        made = job(tmp_path, {"zero_optimization": zero, "bf16": {"enabled": True}})
        derived = symsim.derive("llama2-7b", {**dict(made.strategy or {}), "dp": 8}, made.assumptions)
        reduced = [m for m in derived.to_json()["messages"] if m["what"] == "dense gradients"]
        assert [m["op"] for m in reduced] == ["all_reduce" if together else "reduce_scatter"]
        received[together] = sum(m["recv_bytes"] * m["count"] for m in reduced)
    assert received[True] == pytest.approx(8 * received[False])


@pytest.mark.parametrize("stage", range(4))
def test_stages(tmp_path: Path, stage: int) -> None:
    made = job(tmp_path, {"zero_optimization": {"stage": stage}, "bf16": {"enabled": True}})
    assert dict(made.strategy or {})["zero"] == stage
    # overlap_comm is on by default at stage 3 alone
    assert dict(made.strategy or {}).get("overlap_grad_reduce", False) is False
    assert made.assumptions.get("fsdp_prefetch") == ("true" if stage == 3 else None)
    assert rows(made)["zero_optimization.overlap_comm"].fate == "derived"


def test_third_batch_size(tmp_path: Path) -> None:
    strategy = dict(job(tmp_path, {"train_batch_size": 64}, variables={"world": "8"}).strategy or {})
    assert strategy["micro_batch_size"] == 1 and strategy["num_microbatches"] == 8 and strategy["dp"] == 8
    with pytest.raises(InputError, match=r"ds.json:1: train_batch_size is 60; it should be"):
        job(tmp_path, {"train_batch_size": 60}, variables={"world": "8"})


def test_groups_inside_groups(tmp_path: Path) -> None:
    assert dict(job(tmp_path, {"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}}).strategy or {})["reshard_after_forward"] == 4
    made = job(tmp_path, {"zero_optimization": {"stage": 3, "mics_shard_size": 4}}, variables={"world": "16"})
    assert dict(made.strategy or {})["num_distributed_optimizer_instances"] == 4


def test_types_of_gradients(tmp_path: Path) -> None:
    both = {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
    made = job(tmp_path, both)
    assert dict(made.strategy or {})["grad_reduce_in_fp32"] and rows(made)["data_types.grad_accum_dtype"].fate == "not_modelled"
    assert rows(job(tmp_path, {**both, "communication_data_type": "fp32"}))["data_types.grad_accum_dtype"].fate == "mapped"


@pytest.mark.parametrize(
    ("settings", "arguments", "said"),
    [
        (
            {"zero_optimization": {"stag": 2}},
            None,
            r"ds.json:1: a DeepSpeed JSON has no key 'zero_optimization.stag': did you mean 'zero_optimization.stage'",
        ),
        ({"zero_optimization": {"stage": 4}}, None, "one of 0, 1, 2, 3"),
        ({"bf16": {"enabled": True}, "fp16": {"enabled": True}}, None, "left out beside bf16"),
        ({"train_micro_batch_size_per_gpu": 4}, {"per_device_train_batch_size": 2}, "the arguments make it 2"),
        ({"optimizer": {"type": "Adm"}}, None, "did you mean 'adam"),
        ({"zero_optimization": {"stage": 3, "mics_shard_size": 3}}, None, "a divisor of the 8 data-parallel ranks"),
        ({"zero_optimization": {"stage": 3, "mics_shard_size": 0.5}}, None, "a whole number from -1 up"),
    ],
)
def test_what_cannot_be(tmp_path: Path, settings: dict[str, Any], arguments: dict[str, Any] | None, said: str) -> None:
    with pytest.raises(InputError, match=said):
        job(tmp_path, settings, arguments)


def test_variables_are_known(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--var wrld is not read here: did you mean 'world'"):
        job(tmp_path, {}, variables={"wrld": "8"})
    with pytest.raises(InputError, match="--var world=0: it should be a whole number above 0"):
        job(tmp_path, {}, variables={"world": "0"})


@pytest.mark.parametrize("key", NAMES)
def test_every_name_of_the_list_has_a_row(tmp_path: Path, key: str) -> None:
    assert key in rows(job(tmp_path, nested(key, None)))


def test_every_name_of_the_vocabulary_has_a_row(tmp_path: Path) -> None:
    names = of_vocabulary("deepspeed")
    # its 39 are the fields of zero_optimization; those outside it are on top
    assert sum(name.startswith("zero_optimization.") for name in names) >= 39
    sections = {"zero_optimization.offload_optimizer", "zero_optimization.offload_param", "activation_checkpointing"}
    for key in names:
        value: Any = {"device": "cpu"} if "offload_" in key and key in sections else {"profile": True} if key in sections else None
        assert any(name == key or name.startswith(f"{key}.") for name in rows(job(tmp_path, nested(key, value)))), key


def test_remarks_and_devices(tmp_path: Path) -> None:
    found = rows(job(tmp_path, {"_comment": "ours", "cuda_visible_devices": "0,1", "comms_config": {"verbose": False}}))
    assert {found[key].fate for key in ("_comment", "cuda_visible_devices", "comms_config")} == {"no_cost_effect"}


def test_momenta_of_one_bit_are_an_optimizer_of_symsims(tmp_path: Path) -> None:
    for name, option in (("OneBitAdam", "onebit_adam"), ("OneBitLamb", "onebit_lamb"), ("ZeroOneAdam", "zero_one_adam")):
        file = tmp_path / "ds.json"
        file.write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "optimizer": {"type": name}}))
        made = load_job("deepspeed", str(file), model="llama2-7b")
        assert (made.strategy or {})["optimizer"] == option and (made.strategy or {})["zero"] == 0
        assert {row.key: row.fate for row in made.rows}["optimizer.type"] == "mapped"


def test_steps_between_messages(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    text = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "optimizer": {"type": "ZeroOneAdam", "params": {"local_step_clipper": 4}}}
    file.write_text(json.dumps(text))
    made = load_job("deepspeed", str(file), model="llama2-7b")
    assert (made.strategy or {})["local_step_clipper"] == 4
    assert {row.key: row.to for row in made.rows}["optimizer.params"] == "local_step_clipper"
    text["optimizer"] = {"type": "ZeroOneAdam", "params": {"local_step_clipper": 0}}
    file.write_text(json.dumps(text))
    with pytest.raises(InputError, match="with a local_step_clipper from 1 up"):
        load_job("deepspeed", str(file), model="llama2-7b")


def test_groups_that_are_updated_one_after_the_other_and_narrow_main_parameters(tmp_path: Path) -> None:
    """Gradients of one group in fp32 at a time; main parameters and moments in the type of products, which autocast then finds as it wants them."""
    zero = {"stage": 3, "sub_group_size": 10**8}
    text = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero, "torch_autocast": {"enabled": True, "dtype": "bfloat16"}}
    found = []
    for switches in ({}, {"bf16_master_weights_and_grads": True}, {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}):
        file = tmp_path / "ds.json"
        file.write_text(json.dumps({**text, "bf16": {"enabled": True, **switches}}))
        made = load_job("deepspeed", str(file), model="llama2-7b", variables={"world": "8"})
        told, strategy = {row.key: row.fate for row in made.rows}, dict(made.strategy or {})
        assert strategy["sub_group_size"] == 10**8 and told["torch_autocast.enabled"] == "no_cost_effect"
        found.append(tuple(strategy.get(name) for name in ("main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")))
    assert found == [(None, None, None), ("bf16", "fp32", "fp32"), ("bf16", None, None)]
    with pytest.raises(InputError, match="sub_group_size=5 needs zero=3, and zero is 1"):
        symsim.derive("llama2-7b", "sub_group_size=5")
    options = "dp=8,zero=3,fusion=eager,grad_reduce_in_fp32=false"
    made_of = [symsim.derive("llama2-7b", options + more) for more in ("", ",sub_group_size=1000")]
    held = [float(one.stage_numbers(one.stages[0])["M_at_optimizer"]) for one in made_of if isinstance(one, Result)]
    assert held[1] - held[0] == 4000


def test_a_script_that_the_launcher_starts(tmp_path: Path) -> None:
    (tmp_path / "zero2.json").write_text(json.dumps({"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}))
    script = tmp_path / "train.sh"
    script.write_text(
        "STEPS=4\ndeepspeed --num_gpus 4 train.py --model_name_or_path meta-llama/Llama-2-7b-hf --bf16 True --deepspeed zero2.json \\\n"
        "  --per_device_train_batch_size 2 --gradient_accumulation_steps $STEPS --model_max_length 2048 --gradient_checkpointing True\n"
    )
    made = load_job("deepspeed", str(script))
    said = dict(made.strategy or {})
    expected = {"dp": 4, "zero": 2, "micro_batch_size": 2, "num_microbatches": 4, "seq_length": 2048, "recompute": "full", "precision": "bf16"}
    assert {key: said.get(key) for key in expected} == expected
    assert dict(load_job("deepspeed", str(script), variables={"world": "16", "STEPS": "4"}).strategy or {})["dp"] == 16
    script.write_text("python train.py --lr 1\n")
    with pytest.raises(InputError, match="no command starts a training"):
        load_job("deepspeed", str(script))
    script.write_text("torchrun --nproc_per_node=8 train.py --per_device_train_batch_size 2\n")
    with pytest.raises(InputError, match="train.sh: no file here is a DeepSpeed JSON"):
        load_job("deepspeed", str(script))


@pytest.mark.parametrize(
    "words, expected",
    [
        # Chinese-LLaMA-Alpaca's
        (
            "--trainable q_proj,v_proj --modules_to_save embed_tokens,lm_head --lora_rank 64 --load_in_kbits 16",
            ("lora", 64, ["q_proj", "v_proj"], None),
        ),
        ("--trainable q_proj --lora_rank 8 --load_in_kbits 4", ("lora", 8, ["q_proj"], "nf4_double")),
        ("--trainable q_proj --lora_rank 8 --load_in_kbits 8", ("lora", 8, ["q_proj"], "int8")),
        ("--trainable q_proj --lora_rank 8 --full_finetuning True", (None, None, None, None)),
        # qlora.py's
        ("--source_max_len 384 --target_max_len 128 --bits 4 --quant_type nf4 --double_quant", ("lora", 64, ["all_linear"], "nf4_double")),
        ("--source_max_len 384 --target_max_len 128 --bits 4 --double_quant False", ("lora", 64, ["all_linear"], "nf4")),
        ("--source_max_len 384 --target_max_len 128 --full_finetune --bits 16", (None, None, None, None)),
    ],
)
def test_adapters_by_names_of_scripts(tmp_path: Path, words: str, expected: tuple[Any, ...]) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto", "loss_scale": 0}}')
    script = tmp_path / "run.sh"
    given = "--model_name_or_path meta-llama/Llama-2-7b-hf --bf16 --per_device_train_batch_size 2 --dataset_dir data"
    script.write_text(f"torchrun --nproc_per_node 8 train.py --deepspeed ds.json {given} {words}\n")
    made = load_job("deepspeed", str(script))
    found = dict(made.strategy or {})
    assert tuple(found.get(name) for name in ("tuner_type", "lora_rank", "target_modules", "quantize_base")) == expected
    if "source_max_len" in words:
        assert found["seq_length"] == 512
    if "modules_to_save" in words:
        assert found["modules_to_save"] == ["embedding", "lm_head"]
    assert not [row for row in made.rows if row.fate == "refused"]


def test_the_json_that_the_script_writes(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        'cat > ds.json << EOF\n{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}\nEOF\n'
        "deepspeed --num_gpus 4 train.py --model_name_or_path meta-llama/Llama-2-7b-hf --deepspeed ds.json --per_device_train_batch_size 2\n"
    )
    made = load_job("deepspeed", str(script))
    assert (made.placed().zero, made.placed().dp, made.placed().micro_batch_size) == (2, 4, 2)


OPENRLHF = {
    "sections": """--data.max_len 4096 --data.dataset a/b --train.batch_size 64 --train.micro_batch_size 2 --model.model_name_or_path
        meta-llama/Meta-Llama-3-8B --ds.zero_stage 3 --ds.param_dtype bf16 --ds.attn_implementation flash_attention_2 --adam.lr 5e-6
        --ds.packing_samples --model.gradient_checkpointing_enable --ds.overlap_comm --ds.adam_offload""",
    "before": """--max_len 4096 --dataset a/b --train_batch_size 64 --micro_train_batch_size 2 --pretrain meta-llama/Meta-Llama-3-8B
        --zero_stage 3 --bf16 --flash_attn --learning_rate 5e-6 --packing_samples --gradient_checkpointing --overlap_comm --adam_offload""",
}


@pytest.mark.parametrize("names", OPENRLHF)
def test_supervised_training_of_openrlhf(names: str, tmp_path: Path) -> None:
    """Its scripts hold a command in a variable that is read of lines; the JSON is what the program makes."""
    script = tmp_path / "sft.sh"

    def made(more: str = "") -> Job:
        words = f"{OPENRLHF[names]} {more}".replace("\n", " \\\n")
        script.write_text(f"read -r -d '' training_commands <<EOF\nopenrlhf.cli.train_sft {words}\nEOF\ndeepspeed --module $training_commands\n")
        return load_job("deepspeed", str(script), variables={"world": "8"})

    whole = made()
    found = {name: getattr(whole.placed(), name) for name in ("zero", "dp", "micro_batch_size", "num_microbatches", "seq_length", "recompute")}
    assert found == {"zero": 3, "dp": 8, "micro_batch_size": 2, "num_microbatches": 4, "seq_length": 4096, "recompute": "full"}
    assert whole.placed().precision == "bf16" and whole.placed().optimizer_cpu_offload and whole.placed().tuner_type == "full"
    assert whole.architecture is not None and whole.architecture.name == "llama3-8b"
    assert not [row for row in whole.rows if row.fate in ("refused", "not_modelled")]
    prefix = "ds.lora." if names == "sections" else "lora_"
    tuned = made(f"--{prefix}rank 16 --{'ds.' * (names == 'sections')}load_in_4bit").placed()
    assert (tuned.tuner_type, tuned.lora_rank, tuned.target_modules, tuned.quantize_base) == ("lora", 16, ("all_linear",), "nf4_double")
    script.write_text("deepspeed --module openrlhf.cli.train_sft --pretrain meta-llama/Meta-Llama-3-8B\n")
    alone = load_job("deepspeed", str(script), variables={"world": "8"}).placed()
    assert (alone.zero, alone.micro_batch_size, alone.num_microbatches, alone.seq_length, alone.clip_grad) == (2, 8, 2, 2048, 1)


def test_a_module_that_the_launcher_starts(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    script = tmp_path / "run.sh"
    script.write_text("torchrun --nproc-per-node=8 -m a.train --model meta-llama/Llama-2-7b-hf --deepspeed ds.json --per_device_max_tokens 8192\n")
    made = load_job("deepspeed", str(script))
    assert (made.placed().dp, made.placed().zero, made.placed().seq_length) == (8, 3, 8192)
    script.write_text("python -m pip install x\npython -m torch.distributed.run --nproc_per_node 4 -m a.b --deepspeed ds.json\n")
    assert load_job("deepspeed", str(script), model="llama2-7b").placed().dp == 4


def test_adapters_that_a_script_may_make_by_itself_are_said(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}))
    fates = {}
    for name, given in {"silent": {"lora_r": 8}, "off": {"lora_r": 8, "use_peft": False}}.items():
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"per_device_train_batch_size": 1, **given}))
        made = load_job("deepspeed", str(tmp_path / "ds.json"), str(path))
        fates[name] = next(entry.fate for entry in made.rows if entry.key.endswith("lora_r"))
        assert (made.strategy or {}).get("tuner_type", "full") == "full"
    assert fates == {"silent": "not_modelled", "off": "no_cost_effect"}


LLAVA = "--vision_tower clip --version v1"
MINICPM = "--llm_type qwen --tune_vision true --max_slice_nums 9 --tune_llm"
RESTING = ["embedding", "lm_head", "final_norm", "layers"]
LINEAR = ["all_linear"]


def of_words(tmp_path: Path, words: str, settings: str = "--deepspeed zero2.json") -> Job:
    (tmp_path / "zero2.json").write_text(json.dumps({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}))
    (tmp_path / "train.sh").write_text(
        f"deepspeed train.py {settings} --model_name_or_path meta-llama/Meta-Llama-3-8B --per_device_train_batch_size 2 --bf16 True {words}\n"
    )
    return load_job("deepspeed", str(tmp_path / "train.sh"))


@pytest.mark.parametrize(
    ("words", "key", "rests"),
    [
        (f"{LLAVA} --tune_mm_mlp_adapter True", "tune_mm_mlp_adapter", True),
        (f"{LLAVA} --tune_mm_mlp_adapter False", "tune_mm_mlp_adapter", False),
        (f"{LLAVA} --mm_tunable_parts=mm_mlp_adapter", "mm_tunable_parts", True),
        (f"{LLAVA} --mm_tunable_parts=mm_vision_tower,mm_mlp_adapter,mm_language_model", "mm_tunable_parts", False),
        (f"{MINICPM} false", "tune_llm", True),
        (f"{MINICPM} true", "tune_llm", False),
        ("--freeze_llm True --freeze_mlp False --force_image_size 448", "freeze_llm", True),
    ],
)
def test_decoders_that_rest_behind_a_tower(words: str, key: str, rests: bool, tmp_path: Path) -> None:
    """LLaVA and LLaVA-NeXT llava/train/train.py, MiniCPM-V finetune/finetune.py, InternVL internvl_chat_finetune.py."""
    made = of_words(tmp_path, words)
    found = dict(made.strategy or {})
    assert (found.get("freeze_parameters"), found.get("trained_before")) == ((RESTING, True) if rests else (None, None))
    assert ({row.key: row.fate for row in made.rows}[key] == "mapped") is rests


@pytest.mark.parametrize(
    ("words", "rank", "maps"),
    [
        (f"{LLAVA} --lora_enable True --lora_r 128", 128, LINEAR),
        (f"{LLAVA} --lora_enable True", 64, LINEAR),
        ("--use_llm_lora 16 --freeze_llm True --freeze_backbone True --freeze_mlp True", 16, LINEAR),
        (f"{MINICPM} false --use_lora true", 64, ["q_proj", "k_proj", "v_proj"]),
        ("--train_data_path a.json --use_lora", 64, ["q_proj", "v_proj"]),
        ("--data_path a.json --lazy_preprocess True --use_lora True", 64, LINEAR),
    ],
)
def test_adapters_that_scripts_make_of_their_own(words: str, rank: int, maps: list[str], tmp_path: Path) -> None:
    found = dict(of_words(tmp_path, words).strategy or {})
    assert (found["tuner_type"], found["lora_rank"], found["target_modules"]) == ("lora", rank, maps)
    assert "freeze_parameters" not in found and "trained_before" not in found


def test_words_of_a_trained_embedding_beside_adapters(tmp_path: Path) -> None:
    """MiniCPM-V trains what embeds tokens whole beside its adapters."""
    assert dict(of_words(tmp_path, f"{MINICPM} false --use_lora true").strategy or {})["modules_to_save"] == ["embedding"]


def test_packed_rows_of_internvl(tmp_path: Path) -> None:
    made = of_words(tmp_path, "--use_packed_ds True --max_packed_tokens 16384 --max_seq_length 4096")
    told = {row.key: row for row in made.rows}
    assert dict(made.strategy or {})["seq_length"] == 16384 and told["use_packed_ds"].fate == "derived" and told["max_packed_tokens"].fate == "mapped"
    assert dict(of_words(tmp_path, "--use_packed_ds False --max_seq_length 4096").strategy or {})["seq_length"] == 4096


@pytest.mark.parametrize(
    ("more", "rank", "trained"), [("", None, False), ("--lora_dim 128", 128, True), ("--lora_dim 8 --only_optimize_lora", 8, False)]
)
def test_supervised_training_of_deepspeed_chat(more: str, rank: int | None, trained: bool, tmp_path: Path) -> None:
    """The JSON of dschat/utils/ds_utils.py, and adapters beside which norms and embeddings are trained (dschat/utils/module/lora.py)."""
    words = f"--max_seq_len 512 --zero_stage 3 --offload --dtype bf16 --gradient_checkpointing --data_split 2,4,4 {more} --deepspeed"
    made = of_words(tmp_path, words.replace("--bf16 True", ""), settings="")
    found = dict(made.strategy or {})
    assert (found["zero"], found["optimizer_cpu_offload"], found["offload_parameters"], found["precision"]) == (3, True, True, "bf16")
    assert (found["seq_length"], found["micro_batch_size"], found["recompute"], found["clip_grad"]) == (512, 2, "full", 1.0)
    assert (found["param_persistence_threshold"], found["max_live_parameters"], found["prefetch_bucket_size"]) == (10_000, 30_000_000, 30_000_000)
    assert found.get("lora_rank") == rank and ("trainable_parameters" in found) is trained
    assert {row.key: row.fate for row in made.rows}["zero_stage"] == "derived"


@pytest.mark.parametrize(
    ("words", "key", "rows", "references", "forwards"),
    [
        ("--loss_type sigmoid,bco_pair --sigmoid_loss_weight 0.8 --bco_pair_loss_weight 0.2 --rpo_alpha 1", "loss_type", 4, 1, None),
        ("--dpo_alpha=1.0 --beta=0.1 --gamma=0", "dpo_alpha", 4, 1, None),
        ("--dpo_beta 0.1 --use_lora True --train_data_path a.json", "dpo_beta", 4, None, 1),
        ("--loss_type ipo --precompute_ref_log_probs True", "loss_type", 4, None, None),
        ("--loss_type dapo --beta 0.1", "", 2, None, None),
        ("--beta 0.1", "", 2, None, None),
    ],
)
def test_direct_preferences_of_scripts(words: str, key: str, rows: int, references: int | None, forwards: int | None, tmp_path: Path) -> None:
    """InternVL's mixed preferences, LLaVA-NeXT's train_dpo.py, MiniCPM's finetune_dpo_trainer.py."""
    made = of_words(tmp_path, words)
    found = dict(made.strategy or {})
    assert (found["micro_batch_size"], found.get("reference_models"), found.get("further_forwards")) == (rows, references, forwards)
    fates = {row.key: row.fate for row in made.rows}
    assert fates[key] == "mapped" if key else fates["beta"] == "not_modelled"
    assert not key or {fates[name] for name in ("beta", "gamma", "rpo_alpha", "sigmoid_loss_weight", "bco_pair_loss_weight") if name in fates} <= {
        "no_cost_effect"
    }


def test_a_json_by_deepspeeds_own_argument(tmp_path: Path) -> None:
    """DeepSpeedExamples training/DeepSpeed-SuperOffload: a JSON that the script writes, named by --deepspeed_config."""
    settings = '{"train_batch_size": 4, "gradient_accumulation_steps": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}'
    for also in ("", "--deepspeed "):
        (tmp_path / "run.sh").write_text(
            f"cat > ds.json << EOF\n{settings}\nEOF\n"
            f'CMD="deepspeed --num_gpus=2 train.py {also}--deepspeed_config=ds.json --model_name microsoft/phi-4 --max_length 1024"\neval $CMD\n'
        )
        made = load_job("deepspeed", str(tmp_path / "run.sh"))
        assert made.architecture is not None and made.architecture.name == "phi-4"
        assert (made.placed().zero, made.placed().dp, made.placed().micro_batch_size, made.placed().seq_length) == (3, 2, 2, 1024)
