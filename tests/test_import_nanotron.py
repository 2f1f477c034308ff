"""nanotron's YAML: the mesh, layers over stages as it spreads them, the three families, and a row for every key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from symsim.api.python import derive
from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.nanotron.reader import spread_layers
from symsim.importers.reading import load_job
from symsim.inputs.models import load_model
from symsim.inputs.reading import format_yaml

FILES = Path(__file__).parent / "imported" / "nanotron"
MODEL = dict(hidden_size=256, intermediate_size=512, num_attention_heads=4, num_hidden_layers=4, vocab_size=1000)
# of the dataclasses at 2411b022, some of every class
NAMES = """general.benchmark_csv_path general.ignore_sanity_checks checkpoints.save_initial_state checkpoints.load_optimizer
checkpoints.checkpoints_path_is_shared_file_system model.init_method.path model.model_config.pretraining_tp model.model_config.rope_scaling
model.model_config.rope_interleaved model.model_config.z_loss_enabled model.model_config.flex_attention_mask model.model_config.log_attn_probs
model.model_config.ring_attn_heads_k_stride model.model_config._use_doc_masking tokenizer.tokenizer_revision tokens.val_check_interval
tokens.limit_test_batches optimizer.weight_decay_exclude_named_params optimizer.optimizer_factory.adam_eps optimizer.adam_beta1
optimizer.learning_rate_scheduler.lr_decay_steps logging.log_level_replica metrics_logging.log_level profiler.record_shapes lighteval.batch_size
lighteval.slurm.gpus_per_node s3_upload.s5cmd_path parallelism.context_parallel_size parallelism.tp_recompute_allgather
general.kill_switch_path model.seed profile
checkpoints.s3.upload_s3_path optimizer.no_load_optim""".split()


def job(tmp_path: Path, **more: Any) -> Job:
    data: dict[str, Any] = {"model": {"dtype": "bfloat16", "model_config": MODEL}, "tokens": {"sequence_length": 512}}
    for key, value in more.items():
        section = data
        *path, last = key.split("__")
        for name in path:
            section[name] = dict(section.get(name) or {})
            section = section[name]
        section[last] = value
    path_of = tmp_path / "config.yaml"
    path_of.write_text(format_yaml(data))
    return load_job("nanotron", str(path_of))


def test_a_dense_job() -> None:
    made = load_job("nanotron", str(FILES / "dense" / "config.yaml"))
    found = dict(made.strategy or {})
    assert (found["tp"], found["sp"], found["pp"], found["dp"], found["zero"], found["recompute"]) == (2, True, 2, 16, 1, "full")
    assert found["pipeline_model_parallel_layout"] == "Et*16|t*12L" and found["ddp_bucket_size"] == 25 * 2**18
    assert made.assumptions["tp_async_backward"] == "true" and not found["gradient_accumulation_fusion"]


def test_experts_windows_and_bf16_alone() -> None:
    made = load_job("nanotron", str(FILES / "experts" / "config.yaml"), variables={"packed_document_length": "700"})
    model, found = made.architecture, dict(made.strategy or {})
    assert model is not None and model.moe is not None and model.moe.moe_shared_expert_intermediate_size == 1408
    assert {kind.window for kind in model.layer_kinds.values()} == {1024} and {kind.rope for kind in model.layer_kinds.values()} == {True, False}
    assert found["main_params_dtype"] == "bf16" and not found["grad_reduce_in_fp32"] and found["packed_document_length"] == 700


def test_sections_given_twice(tmp_path: Path) -> None:
    """The last holds, as PyYAML has it (nanotron's own example of experts has moe_config twice)."""
    file = tmp_path / "config.yaml"
    text = format_yaml({"model": {"dtype": "bfloat16", "model_config": MODEL}, "tokens": {"sequence_length": 512}})
    file.write_text(text + "optimizer:\n  clip_grad: 1.0\noptimizer:\n  clip_grad: 0.5\n")
    with pytest.raises(InputError, match=r"'optimizer' is given twice \(first on line \d+\); --lenient takes the last, as nanotron's loader does"):
        load_job("nanotron", str(file))
    made = load_job("nanotron", str(file), lenient=True)
    assert (made.strategy or {})["clip_grad"] == 0.5
    assert [row.why for row in made.rows if row.key == "optimizer"][0].endswith("and the last one holds, as nanotron's loader has it")


def test_layers_of_mamba(tmp_path: Path) -> None:
    """Parameters are those of its modules (examples/mamba/mamba.py): 3 products and a convolution, decays and skips, steps' rank a sixteenth."""
    scan = {"bias": False, "conv_bias": True, "d_conv": 4, "d_state": 16, "dt_rank": "auto", "dt_min": 0.001, "expand": 2, "use_fast_path": True}
    sizes = {"is_mamba_config": True, "d_model": 256, "num_hidden_layers": 3, "vocab_size": 1000, "ssm_cfg": scan, "pad_vocab_size_multiple": 16}
    made = job(tmp_path, model={"dtype": "bfloat16", "model_config": {**sizes, "residual_in_fp32": True, "rms_norm": True, "fused_add_norm": True}})
    assert made.strategy is not None and made.strategy["fp32_residual_connection"] is True
    inner, rank = 512, 16
    layer = 256 * 2 * inner + inner * 4 + inner + inner * (rank + 32) + rank * inner + inner + inner * 16 + inner + inner * 256 + 256
    assert derive(made.architecture, {}).value("params.total") == 3 * layer + 256 + 1000 * 256
    told = {row.key.removeprefix("model.model_config."): row.fate for row in made.rows}
    assert told["ssm_cfg.dt_rank"] == "derived" and told["pad_vocab_size_multiple"] == "no_cost_effect" and told["ssm_cfg.d_state"] == "mapped"
    wide = job(tmp_path, model={"dtype": "bfloat16", "model_config": {**sizes, "residual_in_fp32": False, "ssm_cfg": {**scan, "dt_rank": 8}}})
    assert wide.architecture is not None and wide.architecture.selective_scan is not None and wide.architecture.selective_scan.step_rank == 8
    assert "fp32_residual_connection" not in (wide.strategy or {})


def test_frequencies_in_a_section(tmp_path: Path) -> None:
    sizes = {**MODEL, "rope_scaling": {"factor": 32.0, "rope_type": "llama3"}}
    told = {row.key: row.fate for row in job(tmp_path, model={"dtype": "bfloat16", "model_config": sizes}).rows}
    assert told["model.model_config.rope_scaling.factor"] == "no_cost_effect"


@pytest.mark.parametrize("place", ["9" * 5000, "²", "2"])
def test_layers_that_see_everything_are_named_by_numbers(tmp_path: Path, place: str) -> None:
    sizes = {**MODEL, "sliding_window_size": 64, "global_attn_layers": [place]}
    made = job(tmp_path, model={"dtype": "bfloat16", "model_config": sizes}).architecture
    assert made is not None and sum(kind.window is None for kind in made.layer_kinds.values()) == (place == "2")


def test_the_head_counts_as_its_products() -> None:
    model = load_model("llama3-8b").architecture
    layer, head = 4 * 4096 * 4096 + 3 * 14336 * 4096, 128256 * 4096
    counts = spread_layers(model, 4)
    assert sum(counts) == 32 and counts[-1] < counts[0]
    # a stage is full once it has passed its share of all
    assert (counts[0] - 1) * layer <= (32 * layer + head) / 4 < counts[0] * layer


def test_older_places_of_the_optimizers_keys(tmp_path: Path) -> None:
    made = job(tmp_path, optimizer__torch_adam_is_fused=True, optimizer__adam_beta1=0.9)
    assert "optimizer_implementation" not in made.assumptions
    assert job(tmp_path).assumptions["optimizer_implementation"] == "foreach"


def test_a_mixture_on_tensor_parallel_ranks_is_split(tmp_path: Path) -> None:
    mixture = {**MODEL, "is_llamoe_config": True, "moe_num_experts": 4, "num_experts_per_tok": 1, "moe_capacity_factor": 1}
    made = job(tmp_path, model__model_config=mixture, parallelism__tp=2, parallelism__tp_mode="ALL_REDUCE", parallelism__moe_layer_recompute=True)
    found = dict(made.strategy or {})
    assert found["sp"] and found["moe_expert_capacity_factor"] == 1 and found["recompute_modules"] == ["moe"]
    assert {row.key: row.fate for row in made.rows}["sp"] == "derived"


def test_every_name_has_a_row(tmp_path: Path) -> None:
    made = job(tmp_path, **{name.replace(".", "__"): None for name in NAMES})
    assert set(NAMES) <= {row.key for row in made.rows}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"parallelism__tpp": 2}, "a nanotron file has no key 'parallelism.tpp': did you mean 'parallelism.tp'"),
        ({"model__model_config": {"is_other_config": True}}, "a model of another kind"),
        ({"parallelism__tp_mode": "SHARD"}, "tp_mode is SHARD; it should be one of"),
        ({"tokens__sequence_length": None}, "sequence_length is not given"),
        ({"parallelism__pp": 10**9}, "a number of stages that"),
    ],
)
def test_what_cannot_be_is_a_sentence(tmp_path: Path, more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        job(tmp_path, **more)


def test_messages_beside_products_by_their_older_name(tmp_path: Path) -> None:
    made = job(tmp_path, parallelism={"tp": 2, "tp_column_linear_async_communication": True}, general={"name": "x"})
    assert made.assumptions["tp_async_backward"] == "true"
    told = {row.key: row.fate for row in made.rows}
    assert told["parallelism.tp_column_linear_async_communication"] == "mapped" and told["general.name"] == "no_cost_effect"
