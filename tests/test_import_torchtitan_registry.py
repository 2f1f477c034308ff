"""torchtitan's configurations in Python: what a function makes, followed without running it, and what arguments change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import symsim
from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.reading import load_job

FILE = Path(__file__).parent / "imported" / "torchtitan" / "registry" / "config_registry.py"


def made(name: str, *arguments: str, **options: Any) -> Job:
    return load_job("torchtitan", str(FILE), "--config", name, "--module", "llama3", *arguments, **options)


def written(tmp_path: Path, body: str) -> Job:
    path = tmp_path / "config_registry.py"
    path.write_text(f"def train():\n{body}\n")
    return load_job("torchtitan", str(path), "--module", "llama3", model="llama3-8b")


def strategy(job: Job) -> dict[str, Any]:
    return dict(job.strategy or {})


def test_a_function_is_followed() -> None:
    job = made("dense", variables={"world": "16"})
    found = strategy(job)
    assert job.architecture is not None and job.architecture.name == "llama3-8b"
    assert found["seq_length"] == 4096 and found["micro_batch_size"] == 2 and found["tp"] == 4 and found["sp"] and found["dp"] == 4
    assert found["cross_entropy_fusion"] == "chunked" and found["cross_entropy_chunks"] == 16
    assert found["recompute"] == "full" and found["cuda_graph_impl"] == "full_iteration" and found["fusion"] == "eager"
    rows = {row.key: row for row in job.rows}
    assert rows["model_spec.flavor"].fate == "mapped" and rows["optimizer.lr"].value == "0.0003"
    assert rows["training.disable_cuda_graphs"].fate == "derived" and rows["training.disable_cuda_graphs"].value == "(default)"
    assert rows["training.num_tokens_per_microbatch_per_dp_rank"].value == "8192"


def test_fsdp_is_of_one_rank_too() -> None:
    """models/*/parallelize.py: fully_shard holds the types of parameters and products whatever the mesh."""
    alone, copies = (
        made("dense", variables={"world": "4"}),
        made("dense", "--parallelism.data_parallel_replicate_degree", "2", "--parallelism.data_parallel_shard_degree", "1"),
    )
    assert (alone.placed().dp, alone.placed().zero, alone.assumptions["fsdp_parameters"]) == (1, 3, "main")
    assert (copies.placed().dp, copies.placed().zero, copies.placed().num_distributed_optimizer_instances) == (2, 3, 2)
    # 4 bytes of a parameter, and 8 of its moments
    memory = symsim.derive(alone.architecture, alone.strategy, alone.assumptions)
    assert memory.value("memory.optimizer") == 2 * memory.value("memory.weights")


def test_what_a_second_function_changes() -> None:
    found = strategy(made("narrow"))
    assert found["fp8"] == "mxfp8" and "fp8_output_proj" not in found and "recompute" not in found and "cuda_graph_impl" not in found
    assert found["micro_batch_size"] == 1


def test_a_pipeline_cuts_its_own_micro_batches() -> None:
    job = made("staged", variables={"world": "16"})
    found = strategy(job)
    # 2 rows a micro-batch, 8 of them
    assert found["pp"] == 2 and found["dp"] == 2 and found["micro_batch_size"] == 2 and found["num_microbatches"] == 8
    assert found["recompute"] == "sac_mm_attn" and found["fused_kernels"] == ("activation",) and "cuda_graph_impl" not in found
    # 64 rows a step, of 2 ranks and 2 rows each
    longer = made("staged", "--training.num_tokens_per_train_step", str(64 * 4096), variables={"world": "16"})
    assert strategy(longer)["num_microbatches"] == 16


def test_arguments_go_before_what_is_written() -> None:
    found = strategy(made("dense", "--parallelism.tensor-parallel-degree", "8", "activation-checkpoint:none", "--training.disable-cuda-graphs"))
    assert found["tp"] == 8 and "recompute" not in found and "cuda_graph_impl" not in found
    assert not strategy(made("dense", "--parallelism.no-enable-sequence-parallel")).get("sp")


def test_files_of_early_2026_have_rows_and_their_length(tmp_path: Path) -> None:
    body = "    return Trainer.Config(model_spec=model_registry('8B'), training=TrainingConfig(local_batch_size=3, seq_len=1024))"
    found = strategy(written(tmp_path, body))
    assert found["micro_batch_size"] == 3 and found["seq_length"] == 1024 and "cuda_graph_impl" not in found


@pytest.mark.parametrize(
    ("body", "option", "value"),
    [
        ("    return Trainer.Config(optimizer=OptimizersContainer.Config(implementation='fused_opt_states_bf16'))", "exp_avg_dtype", "bf16"),
        ("    g = [ParamGroupConfig(optimizer_name=n) for n in NAMES]\n    return Trainer.Config(loss=ChunkedLossWrapper.Config())", "zero", 3),
        (
            "    g = [ParamGroupConfig(pattern='a', optimizer_name='DistMuon'), ParamGroupConfig(pattern='b', optimizer_name='AdamW')]\n"
            "    return Trainer.Config(optimizer=OptimizersContainer.Config(param_groups=g))",
            "optimizer",
            "muon",
        ),
        ("    c = Trainer.Config()\n    c.training.max_norm = 2 * 0.25\n    return c", "clip_grad", 0.5),
        ("    c = Trainer.Config()\n    if 1 in c.x:\n        print('y')\n    return c", "zero", 3),
        (
            "    return Trainer.Config(model_spec=model_registry('8B', converters=[NVFP4LinearConverter.Config("
            "fqns=nvfp4_bf16_tail_fqns(len(LAYERS), 0.15))]))",
            "num_layers_at_end_in_bf16",
            5,
        ),
        ("    return Trainer.Config(model_spec=model_registry('8B', converters=[LoRAConverter.Config(rank=4)]))", "lora_rank", 4),
        ("    return Trainer.Config(model_spec=model_registry('8B', converters=[MXFP8LinearConverter.Config()]))", "fp8_output_proj", True),
    ],
)
def test_forms_that_are_read(tmp_path: Path, body: str, option: str, value: object) -> None:
    assert strategy(written(tmp_path, body))[option] == value


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    c = Trainer.Config()\n    while unknown():\n        c.training.steps = 3\n    return c", "may change c"),
        ("    c = Trainer.Config()\n    setattr(c, 'compile', 1)\n    return c", "may change c"),
        ("    c = Trainer.Config()\n    c.training.max_norm = c\n    return c", "holds itself"),
        ("    a = [1]\n" + "    a = [a, a]\n" * 30 + "    return Trainer.Config(x=a)", "too much"),
        ("    a = [1]\n" + "    a = [a]\n" * 2000 + "    return Trainer.Config(x=a)", "too much"),
        ("    return train()", "calls itself"),
        ("    return 3", "returns no configuration"),
        ("    c = traced(Trainer.Config(), registry)\n    c.compile = Compile()\n    return c", "another file, .* the configuration that it"),
        (
            "    return traced(llama3_8b(), registry)\n\n\nfrom torchtitan.models.llama3.config_registry import llama3_8b",
            "give --config llama3_8b of torchtitan.models.llama3.config_registry",
        ),
        ("    return Trainer.Config(training=TrainingConfig(max_context_length=rows()))", "should be a whole number"),
        ("    return Trainer.Config(training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=3000))", "a multiple of"),
        ("    return Trainer.Config(training=TrainingConfig(max_norms=1.0))", "no key 'training.max_norms'"),
        ("    return Trainer.Config(activation_checkpoint=OtherAC.Config())", "it should be one of none, full"),
    ],
)
def test_what_cannot_be_followed_is_said(tmp_path: Path, body: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        written(tmp_path, body)


def test_a_configuration_is_named() -> None:
    with pytest.raises(InputError, match="give --config NAME, one of dense, narrow, staged"):
        load_job("torchtitan", str(FILE))
    with pytest.raises(InputError, match="no configuration 'dens': did you mean 'dense'"):
        made("dens")
    with pytest.raises(InputError, match="is no argument of torchtitan"):
        made("dense", "steps")


def test_the_model_is_of_the_registry_that_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    body = 'def train():\n    return Trainer.Config(model_spec=model_registry("8B"), training=TrainingConfig(max_context_length=2048))\n'
    path.write_text(f"from torchtitan.models.qwen3 import model_registry\n{body}")
    job = load_job("torchtitan", str(path))
    assert job.architecture is not None and job.architecture.name == "qwen3-8b"
    parts = 'parallelism=ParallelismConfig(pipeline_parallel_degree=2, module_fqns_per_model_part=[["tok_embeddings", %s], [%s, "norm", "lm_head"]])'
    layers = [f'"layers.{layer}"' for layer in range(36)]
    split = parts % (", ".join(layers[:20]), ", ".join(layers[20:]))
    path.write_text(f"from torchtitan.models.qwen3 import model_registry\n{body.replace('training=', split + ', training=')}")
    assert strategy(load_job("torchtitan", str(path)))["pipeline_model_parallel_layout"] == "Et*20|t*16L"


def test_float8_is_scaled_by_rows_where_no_recipe_is_given(tmp_path: Path) -> None:
    spec = 'model_registry("8B", converters=[Float8LinearConverter.Config(%smodel_compile_enabled=True)])'
    job = written(tmp_path, f"    return Trainer.Config(model_spec={spec % ''})")
    assert strategy(job)["fp8"] == "tensorwise"
    row = next(row for row in job.rows if row.key == "model_spec.converters.0.recipe_name")
    assert (row.value, row.fate) == ("(default)", "not_modelled") and "every row" in row.why


def test_the_folder_where_one_stands_is_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "qwen3").mkdir()
    (tmp_path / "qwen3" / "config_registry.py").write_text(
        "from . import model_registry\n\ndef train():\n    return Trainer.Config(hf_model='Qwen/Qwen3-4B', model_spec=model_registry('32B'))\n"
    )
    monkeypatch.chdir(tmp_path / "qwen3")
    job = load_job("torchtitan", "config_registry.py")
    assert job.architecture is not None and job.architecture.name == "qwen3-32b"
    other = load_job("torchtitan", "config_registry.py", "--module", "transformers_modeling_backend", "--model_spec.flavor", "sft_full")
    assert other.architecture is not None and other.architecture.name == "qwen3-4b"


def test_adapters_of_every_linear_map_are_the_output_layers_too(tmp_path: Path) -> None:
    for targets, told in (("", True), (", target_modules=['wq', 'wv']", False)):
        job = written(tmp_path, f"    return Trainer.Config(model_spec=model_registry('8B', converters=[LoRAConverter.Config(rank=4{targets})]))")
        rows = [row for row in job.rows if row.fate == "not_modelled" and row.to == "target_modules"]
        assert bool(rows) is told and ("output layer" in rows[0].why if told else True)
        assert next(row for row in job.rows if row.key == "model_spec.converters").to == "tuner_type"
