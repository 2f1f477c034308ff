"""slime's launch scripts: the actor's update, of its own arguments and Megatron-LM's."""

from __future__ import annotations

from pathlib import Path

import pytest

import symsim
from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.reading import load_job

FILES = Path(__file__).parent / "imported" / "slime"
BASE = ("--hidden-dropout", "0", "--attention-dropout", "0", "--global-batch-size", "64", "--actor-num-nodes", "1", "--actor-num-gpus-per-node", "8")

# of slime/utils/arguments.py; engines' arguments are known by the beginning of their names
NAMES = """actor-num-nodes actor-num-gpus-per-node rollout-num-gpus rollout-num-gpus-per-engine colocate offload-train offload-rollout
release-train train-env-vars update-weight-mode update-weight-buffer-size custom-model-provider-path recompute-loss-function
log-probs-chunk-size only-train-params-name-list freeze-params-name-list allgather-cp hf-checkpoint rollout-function-path rollout-temperature
rollout-max-prompt-len rollout-max-response-len rollout-max-context-len over-sampling-batch-size partial-rollout prompt-data apply-chat-template
input-key label-key rollout-batch-size n-samples-per-prompt num-steps-per-rollout balance-data use-dynamic-batch-size max-tokens-per-gpu
log-probs-max-tokens-per-gpu eval-prompt-data n-samples-per-eval-prompt ref-load save-hf eps-clip eps-clip-high kl-coef kl-loss-type
advantage-estimator use-kl-loss entropy-coef use-tis use-wandb wandb-group use-tensorboard dump-details rm-type custom-rm-path
enable-mtp-training sglang-mem-fraction-static router-policy train-backend""".split()


def job(*arguments: str, model: str = "qwen3-8b", lenient: bool = False, **variables: str) -> Job:
    return load_job("slime", *BASE, *arguments, model=model, lenient=lenient, variables=variables)


def test_a_script_with_rows_of_bounded_tokens() -> None:
    """It ends where a variable of the environment is empty, and is read as if that were set; a list that nothing sets is empty."""
    made = load_job("slime", str(FILES / "dense" / "run.sh"))
    found = made.placed()
    assert made.architecture is not None and made.architecture.num_layers == 36
    assert (found.tp, found.cp, found.dp, found.zero, found.precision, found.recompute) == (2, 2, 4, 1, "bf16", "full")
    # 18432 tokens hold two rows of 8192; 32 * 8 / 2 samples over four ranks
    assert (found.seq_length, found.packed_document_length, found.micro_batch_size, found.microbatches) == (18432, 8192, 1, 16)
    told = {row.key: row.fate for row in made.rows}
    assert told["--use-kl-loss"] == told["--colocate"] == told["--num-rollout"] == "not_modelled"
    assert told["--max-tokens-per-gpu"] == told["--num-steps-per-rollout"] == told["--balance-data"] == "mapped"
    assert made.assumptions["row_balance"] == "balanced"


def test_a_script_whose_model_is_elsewhere() -> None:
    made = load_job("slime", str(FILES / "experts" / "run.sh"))
    found = made.placed()
    assert made.architecture is not None and made.architecture.name == "qwen3-30b-a3b"
    assert (found.ep, found.etp, found.dp, found.moe_token_dispatcher_type) == (8, 1, 8, "alltoall")
    assert (found.seq_length, found.micro_batch_size, found.microbatches) == (4096, 2, 8)


def test_the_model_s_file_is_read_where_it_lies_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    names = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --vocab-size 256 --disable-bias-linear"
    (tmp_path / "models" / "qwen3-30B-A3B.sh").write_text(f"MODEL_ARGS=({names})\n")
    (tmp_path / "run.sh").write_text(
        (FILES / "experts" / "run.sh").read_text().replace("--expert-model-parallel-size 8 --expert-tensor-parallel-size 1", "")
    )
    made = load_job("slime", str(tmp_path / "run.sh"))
    assert made.architecture is not None and made.architecture.num_layers == 4


def test_a_specification_that_only_passes_arguments_on(tmp_path: Path) -> None:
    """GLM-4-9B-0414's sizes, of slime's own file of them, give its parameters (zai-org/GLM-Z1-9B-0414 has them)."""
    (tmp_path / "models").mkdir()
    sizes = """--spec "slime_plugins.models.glm4" "get_glm_spec" --swiglu --num-layers 40 --hidden-size 4096 --ffn-hidden-size 13696
    --num-attention-heads 32 --group-query-attention --num-query-groups 2 --use-rotary-position-embeddings
    --disable-bias-linear --add-qkv-bias --normalization RMSNorm --vocab-size 151552 --post-self-attn-layernorm
    --post-mlp-layernorm --untie-embeddings-and-output-weights"""
    (tmp_path / "models" / "qwen3-30B-A3B.sh").write_text(f"MODEL_ARGS=({sizes})\n")
    (tmp_path / "run.sh").write_text(
        (FILES / "experts" / "run.sh")
        .read_text()
        .replace("--expert-model-parallel-size 8 --expert-tensor-parallel-size 1", "")
        .replace("/Qwen3-30B-A3B", "/GLM-Z1-9B-0414")
    )
    made = load_job("slime", str(tmp_path / "run.sh"))
    assert made.architecture is not None and symsim.derive(made.architecture).value("params.total") == 9_400_279_040
    told = {row.key: row.fate for row in made.rows}
    assert told["--spec"] == "no_cost_effect" and told["--post-mlp-layernorm"] == "mapped"


def test_every_name_has_a_row() -> None:
    for name in NAMES:
        rows = {row.key: row for row in job(f"--{name}", "1", lenient=True).rows}
        assert rows[f"--{name}"].why.partition(":")[0] != "no such key", name


def test_lengths_that_are_told() -> None:
    packed = job(
        "--rollout-max-response-len", "4096", "--use-dynamic-batch-size", "--max-tokens-per-gpu", "8192", packed_document_length="1000"
    ).placed()
    assert (packed.packed_document_length, packed.microbatches) == (1000, 1)
    free = job("--rollout-max-response-len", "4096", packed_document_length="1000").placed()
    assert free.padding_free and (free.seq_length, free.microbatches) == (4096, 8)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--colocates",), "slime has no key 'colocates': did you mean 'colocate'"),
        (("--max-tokens-per-gpu", "many"), "max_tokens_per_gpu is many; it should be a number"),
        (("--debug-rollout-only",), "nothing is trained"),
    ],
)
def test_what_cannot_be_is_a_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        job(*arguments)


def test_adapters_of_miles() -> None:
    made = job("--lora-rank", "16", "--lora-alpha", "32", "--target-modules", "q_proj,o_proj,down_proj", "--exclude-modules", "o_proj")
    found = made.placed()
    assert (found.tuner_type, found.lora_rank, found.target_modules) == ("lora", 16, ("linear_qkv", "o_proj", "down_proj"))
    assert found.exclude_modules == ("o_proj",)
    told = {row.key: row.fate for row in made.rows}
    assert told["--lora-rank"] == told["--target-modules"] == "mapped" and told["--lora-alpha"] == "no_cost_effect"
    assert job("--lora-rank", "0", "--target-modules", "all-linear").placed().tuner_type == "full"


def test_the_trainer_of_transformers_modules() -> None:
    """miles' and slime's earlier one: checkpoints of layers are Megatron-LM's, the rest is said."""
    found = job("--train-backend", "fsdp", "--gradient-checkpointing", "--attn-implementation", "flash_attention_3")
    told = {row.key: row.fate for row in found.rows}
    assert found.placed().recompute == "full" and told["--gradient-checkpointing"] == "mapped"
    assert told["--train-backend"] == "not_modelled" and told["--attn-implementation"] == "no_cost_effect"
    assert {row.key: row.fate for row in job("--train-backend", "megatron").rows}["--train-backend"] == "no_cost_effect"
