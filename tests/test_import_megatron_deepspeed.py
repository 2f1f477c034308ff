"""Megatron-DeepSpeed's arguments: BLOOM's, DeepSpeed-MoE's, and those of sequence parallelism, with the counts that their authors give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import symsim
from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.keys import Entry
from symsim.importers.reading import Options, read_job

# bigscience train/tr11-176B-ml/tr11-176B-ml.slurm at 9e64ede, its numbers
BLOOM = """--tensor-model-parallel-size 4 --pipeline-model-parallel-size 12 --pp-partition-method type:transformer|embedding --num-layers 70
    --hidden-size 14336 --num-attention-heads 112 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 2 --global-batch-size 2048
    --embed-layernorm --sync-tp-duplicated-parameters --bf16 --position-embedding-type alibi --checkpoint-activations --pad-vocab-size-to 250880
    --kill-switch-path stop --deepspeed --deepspeed_config ds.json --zero-stage 0 --deepspeed-activation-checkpointing --world-size 384""".split()
PLAIN = """--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 8
    --global-batch-size 512 --fp16 --vocab-size 50257 --deepspeed --deepspeed_config ds.json --checkpoint-activations""".split()


def job(*words: str, lenient: bool = False) -> Job:
    return read_job("megatron", list(words), Options(lenient=lenient))


def rows(made: Job) -> dict[str, Entry]:
    return {row.key: row for row in made.rows}


def parameters(made: Job) -> int:
    assert made.architecture is not None
    return int(symsim.derive(made.architecture, {}).to_json()["params"]["total"])


def test_bloom_has_its_parameters_and_stages() -> None:
    made = job(*BLOOM)
    strategy, told = dict(made.strategy or {}), rows(made)
    assert parameters(made) == 176_247_271_424  # the model card's
    derived = symsim.derive(made.architecture, strategy, made.assumptions)
    assert [stage.chunks[0].last - stage.chunks[0].first for stage in derived.stages] == [5, *[6] * 10, 5]
    assert (strategy["recompute"], strategy["schedule"], strategy["dp"]) == ("full", "ds_default", 8)
    assert strategy["account_for_embedding_in_pipeline_split"] and strategy["account_for_loss_in_pipeline_split"]
    assert strategy["zero"] == 1 and made.assumptions["zero_reduction"] == "all_reduce" and "bf16 optimizer" in told["--zero-stage"].why
    assert told["--position-embedding-type"].fate == "mapped" and told["--kill-switch-path"].fate == "no_cost_effect"


def test_embedding_and_head_have_stages_of_their_own_where_there_are_two_more_than_layers() -> None:
    """72 stages of BLOOM's 70 layers (bigscience train/tr13-mtf)."""
    words = [*BLOOM]
    words[words.index("--pipeline-model-parallel-size") + 1] = "72"
    made = job(*words, "--world-size", "288")
    derived = symsim.derive(made.architecture, dict(made.strategy or {}), made.assumptions)
    assert [stage.chunks[0].last - stage.chunks[0].first for stage in derived.stages] == [0, *[1] * 70, 0]


def test_names_of_2021_are_those_that_followed_them() -> None:
    words = [*PLAIN, "--deepspeed", *"--model-parallel-size 2 --batch-size 4 --warmup 0.1 --world-size 8".split()]
    made = job(*(word for at, word in enumerate(words) if "--micro-batch-size" not in words[max(at - 1, 0) : at + 1]))
    strategy = dict(made.strategy or {})
    assert (strategy["tp"], strategy["micro_batch_size"]) == (2, 4) and rows(made)["--warmup"].fate == "no_cost_effect"


def test_a_mixture_of_deepspeed_has_its_parameters() -> None:
    made = job(*PLAIN, *"--moe-expert-parallel-size 64 --num-experts 128 --world-size 64 --no-pipeline-parallel".split())
    strategy, architecture = dict(made.strategy or {}), made.architecture
    assert architecture is not None and architecture.moe is not None and architecture.moe.moe_router_topk == 1
    h, layers, experts = 2048, 24, 128
    attention, network, norms, router = 4 * h * h + 4 * h, 8 * h * h + 5 * h, 4 * h, h * experts
    plain = layers * (attention + norms) + (50304 + 2048) * h + 2 * h
    assert parameters(made) == plain + 12 * network + 12 * (experts * network + router)  # about 52 * 10^9, arXiv:2201.05596, table 1
    assert (strategy["ep"], strategy["etp"], strategy["moe_expert_capacity_factor"]) == (64, 1, 1.0)
    assert strategy["moe_pad_expert_input_to_capacity"] and strategy["zero"] == 1


def test_the_last_layer_of_every_two_has_experts() -> None:
    made = job(*PLAIN, *"--num-experts 8 --expert-interval 3 --world-size 8 --num-layers 24 --disable-moe-token-dropping".split())
    assert made.architecture is not None and "moe_expert_capacity_factor" not in dict(made.strategy or {})
    assert made.architecture.model_dump()["layers"] == ({"repeat": 8, "kinds": ("dense", "dense", "moe")},)


def test_ulysses_and_a_json_of_deepspeed(tmp_path: Path) -> None:
    settings = {"train_batch_size": 512, "zero_optimization": {"stage": 3}, "fp16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
    (tmp_path / "ds.json").write_text(json.dumps(settings))
    made = job(str(tmp_path / "ds.json"), *PLAIN, *"--ds-sequence-parallel-size 4 --zero-stage 1 --use-flash-attn-v2 --world-size 16".split())
    strategy, told = dict(made.strategy or {}), rows(made)
    assert (strategy["cp"], strategy["cp_comm_type"], strategy["dp"], strategy["zero"]) == (4, "a2a", 4, 3)
    assert strategy["grad_reduce_in_fp32"] and strategy["global_batch_size"] == 512 and "attention_kernel" not in made.assumptions
    assert told["zero_optimization.stage"].fate == "mapped" and told["--zero-stage"].fate == "no_cost_effect"
    assert symsim.derive(made.architecture, strategy, made.assumptions).strategy.zero == 3


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("--normalization rmsnorm --num-key-value-heads 4 --swiglu", {}),
        ("--cpu-optimizer --zero-stage 2", {"optimizer_cpu_offload": True, "zero": 2, "offload_gradients": True}),
        ("--pipeline-model-parallel-size 5", {"schedule": "ds_default", "pipeline_model_parallel_layout": "Et*5|t*5|t*5|t*5|t*4L"}),
        ("--pipeline-model-parallel-size 4 --enable-zbh1-pipeline", {"schedule": "zb_h1"}),
        ("--synchronize-each-layer --checkpoint-num-layers 2", {"synchronize_checkpoint_boundary": True, "recompute_num_layers": 2}),
    ],
)
def test_arguments_of_its_own_are_options_here(more: str, expected: dict[str, Any]) -> None:
    made = job(*PLAIN, *more.split(), "--global-batch-size", "160", "--world-size", "5" if " 5" in more else "4")
    assert expected.items() <= dict(made.strategy or {}).items()
    if "kv" in more or "key-value" in more:
        assert made.architecture is not None and made.architecture.attention.num_query_groups == 4


def test_a_pyramid_of_experts_is_a_sentence() -> None:
    with pytest.raises(InputError, match="layers of different numbers of experts"):
        job(*PLAIN, *"--num-experts 64 64 128 --world-size 64".split())
    with pytest.raises(InputError, match="num_experts is 6 8; it should be a number"):
        job(*PLAIN[: PLAIN.index("--deepspeed")], "--num-experts", "6", "8")


SCRIPT = """ZERO=1
MICRO=4
CONFIG=./ds_$SLURM_JOBID.json
cat <<END > $CONFIG
{
  "train_micro_batch_size_per_gpu": $MICRO,
  "zero_optimization": {"stage": $ZERO, "reduce_bucket_size": 90000000},
  "data_types": {"grad_accum_dtype": "fp32"},
  "bf16": {"enabled": true}
}
END
deepspeed --num_nodes 2 --num_gpus 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 \\
    --bf16 --vocab-size 50257 --max-position-embeddings 2048 --micro-batch-size $MICRO \\
    --global-batch-size 512 --zero-stage $ZERO --deepspeed --deepspeed_config $CONFIG
"""


def test_the_json_that_a_script_writes_is_read(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text(SCRIPT)
    strategy = dict(job(str(file)).strategy or {})
    assert (strategy["ddp_bucket_size"], strategy["grad_reduce_in_fp32"], strategy["dp"]) == (90_000_000, True, 16)
    # another that is given stands in its place
    other = tmp_path / "ds.json"
    other.write_text(json.dumps({"zero_optimization": {"stage": 1, "reduce_bucket_size": 70_000_000}, "train_micro_batch_size_per_gpu": 4}))
    assert (job(str(file), str(other)).strategy or {})["ddp_bucket_size"] == 70_000_000
    file.write_text(SCRIPT.replace("90000000", "${BUCKET}"))
    made = job(str(file))
    assert (made.strategy or {})["ddp_bucket_size"] == 500_000_000
    assert any("train.sh:7: $BUCKET has no value; --var BUCKET=VALUE gives it" in note for note in made.notes)
    file.write_text(SCRIPT.replace('"stage": $ZERO,', '"stage": ,'))
    with pytest.raises(InputError, match=r"train\.sh:7: not JSON"):
        job(str(file))
