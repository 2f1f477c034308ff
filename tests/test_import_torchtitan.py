"""torchtitan's TOML: the mesh, FSDP, layers over stages, recomputation and 8 bits, and a row for every key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import symsim
from symsim.errors import InputError
from symsim.importers.job import Job
from symsim.importers.reading import load_job
from symsim.importers.torchtitan.tables import FLAVORS
from symsim.inputs.shipped import list_models

FILES = Path(__file__).parent / "imported" / "torchtitan"

# every key of the last JobConfig, and those of v0.1.0 that it no longer has
NAMES = """job.dump_folder job.description job.print_config job.save_config_file job.custom_config_module profiling.enable_profiling
profiling.save_traces_folder profiling.profile_freq profiling.profiler_active profiling.profiler_warmup profiling.enable_memory_snapshot
profiling.save_memory_snapshot_folder metrics.log_freq metrics.enable_tensorboard metrics.disable_color_printing metrics.save_tb_folder
metrics.save_for_all_ranks metrics.enable_wandb model.name model.flavor model.hf_assets_path model.tokenizer_path model.converters
model.print_after_conversion optimizer.name optimizer.lr optimizer.beta1 optimizer.beta2 optimizer.eps optimizer.weight_decay
infra.set_gpu_affinity parallelism.prefetch_distance optimizer.follow_fsdp_groups parallelism.prefetch_before_data
optimizer.implementation optimizer.early_step_in_backward lr_scheduler.warmup_steps lr_scheduler.total_steps lr_scheduler.decay_ratio
lr_scheduler.decay_type lr_scheduler.min_lr_factor training.dataloader.num_workers training.dataset training.dataset_path
training.local_batch_size training.global_batch_size training.seq_len training.max_norm training.steps training.enable_cpu_offload training.dtype
training.mixed_precision_param training.mixed_precision_reduce training.gc_freq training.gc_debug parallelism.data_parallel_replicate_degree
parallelism.data_parallel_shard_degree parallelism.fsdp_reshard_after_forward parallelism.tensor_parallel_degree
parallelism.disable_loss_parallel parallelism.enable_async_tensor_parallel parallelism.pipeline_parallel_degree
parallelism.module_fqns_per_model_part parallelism.pipeline_parallel_first_stage_less_layers parallelism.pipeline_parallel_last_stage_less_layers
parallelism.pipeline_parallel_layers_per_stage parallelism.pipeline_parallel_schedule parallelism.pipeline_parallel_schedule_csv
parallelism.pipeline_parallel_microbatch_size parallelism.pipeline_parallel_expert_parallel_overlap parallelism.context_parallel_degree
parallelism.context_parallel_load_balancer parallelism.context_parallel_rotate_method parallelism.expert_parallel_degree
parallelism.expert_tensor_parallel_degree parallelism.expert_parallel_comm_backend checkpoint.enable checkpoint.interval checkpoint.folder
checkpoint.async_mode checkpoint.keep_latest_k checkpoint.load_only checkpoint.export_dtype checkpoint.initial_load_path
activation_checkpoint.mode activation_checkpoint.selective_ac_option
activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns activation_checkpoint.early_stop activation_checkpoint.memory_budget
activation_checkpoint.visualize_memory_budget_pareto activation_checkpoint.preserve_rng_state activation_checkpoint.determinism_check
activation_checkpoint.debug compile.enable compile.components compile.backend quantize.linear.float8.enable_fsdp_float8_all_gather
quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp quantize.linear.float8.recipe_name quantize.linear.float8.filter_fqns
quantize.linear.float8.emulate quantize.grouped_mm.float8.fqns quantize.linear.mx.mxfp8_dim1_cast_kernel_choice quantize.linear.mx.recipe_name
quantize.linear.mx.filter_fqns quantize.grouped_mm.mx.recipe_name quantize.grouped_mm.mx.fqns comm.init_timeout_seconds
comm.train_timeout_seconds comm.trace_buf_size comm.save_traces_folder comm.save_traces_file_prefix comm.mode memory_estimation.enable
memory_estimation.disable_fake_mode fault_tolerance.enable fault_tolerance.process_group fault_tolerance.group_size
fault_tolerance.semi_sync_method experimental.custom_import experimental.custom_args_module validation.enable validation.dataset
validation.local_batch_size validation.seq_len validation.freq validation.steps debug.seed debug.deterministic
debug.deterministic_warn_only debug.moe_force_load_balance
job.print_args model.tokenizer_path lr_scheduler.lr_min training.compile training.seed training.deterministic
parallelism.pipeline_parallel_split_points checkpoint.enable_checkpoint float8.recipe_name float8.force_recompute_fp8_weight_in_bwd
mx.recipe_name mx.use_fp8_dim1_cast_triton_kernel""".split()


def job(tmp_path: Path, text: str, **options: Any) -> Job:
    path = tmp_path / "train.toml"
    path.write_text(text)
    return load_job("torchtitan", str(path), **options)


def strategy(made: Job) -> dict[str, Any]:
    return dict(made.strategy or {})


def rows(made: Job) -> dict[str, Any]:
    return {row.key: row for row in made.rows}


def test_scales_of_rows(tmp_path: Path) -> None:
    """torchao float8/config.py: rowwise_with_gw_hp multiplies weight gradients in 16 bits."""
    text = (FILES / "dense" / "llama3_8b.toml").read_text()
    for recipe, fate, wide in (("rowwise", "not_modelled", None), ("rowwise_with_gw_hp", "mapped", False)):
        changed = text.replace("[quantize.linear.float8]", f'[quantize.linear.float8]\nrecipe_name = "{recipe}"')
        assert changed != text
        (tmp_path / "a.toml").write_text(changed)
        made = load_job("torchtitan", str(tmp_path / "a.toml"), variables={"world": "64"})
        assert rows(made)["quantize.linear.float8.recipe_name"].fate == fate and strategy(made).get("fp8_wgrad") is wide


def test_fully_sharded_in_eight_bits() -> None:
    made = load_job("torchtitan", str(FILES / "dense" / "llama3_8b.toml"), variables={"world": "64"})
    assert made.architecture is not None and made.architecture.name == "llama3-8b"
    found = strategy(made)
    assert found["dp"] == 64 and found["zero"] == 3 and found["seq_length"] == 8192 and found["micro_batch_size"] == 1
    assert found["fp8"] == "tensorwise" and found["fusion"] == "te" and found["recompute"] == "sac_mm_attn" and found["grad_reduce_in_fp32"]
    assert made.assumptions == {"fsdp_parameters": "main", "recompute_early_stop": "false"}
    told = rows(made)
    assert told["quantize.linear.float8.enable_fsdp_float8_all_gather"].fate == "mapped" and found["fp8_param_gather"] is True
    assert told["compile.enable"].fate == "derived"
    assert told["world"].fate == "mapped" and told["checkpoint.enable"].fate == "not_modelled"


def test_a_pipeline_of_uneven_stages() -> None:
    made = load_job("torchtitan", str(FILES / "pipeline" / "qwen3_32b.toml"))
    found = strategy(made)
    # 64 layers, embedding and head as one each, over 8 stages: 9 9 8 ..., less one at either end
    assert found["pipeline_model_parallel_layout"] == "Et*8|t*9|t*8|t*8|t*8|t*8|t*8|t*7L"
    assert found["schedule"] == "interleaved" and found["vpp"] == 2 and found["sp"] and found["tp_comm_overlap"]
    assert found["micro_batch_size"] == 2 and found["num_microbatches"] == 16 // 2 * (128 // (16 * 4))
    assert found["dp"] == 4 and found["zero"] == 3 and rows(made)["parallelism.data_parallel_shard_degree"].fate == "mapped"
    # by default parameters stay from a stage's first forward on, and gradients wait for its last backward
    kept = {"reshard_after_forward": False, "reshard_after_backward": False, "gradient_sync": "every_flush", "pipeline_flushes": 2}
    assert {name: found[name] for name in kept} == kept


def test_parameters_are_updated_inside_backward(tmp_path: Path) -> None:
    """Which leaves no gradient to clip, and of one micro-batch a step."""
    early = '[model]\nname = "llama3"\nflavor = "8B"\n[optimizer]\nearly_step_in_backward = true\n'
    shards = "[parallelism]\ndata_parallel_shard_degree = 8\n"
    for more, mapped in (
        (shards, True),
        (f"{shards}[compile]\nenable = true\n", True),
        (f"{shards}[training]\nlocal_batch_size = 1\nglobal_batch_size = 16\n", False),
        ("[parallelism]\ndata_parallel_shard_degree = 4\npipeline_parallel_degree = 2\n", False),
        (f"{shards}[training]\nenable_cpu_offload = true\n", False),
    ):
        made = job(tmp_path, early + more)
        fate = {row.key: row.fate for row in made.rows}["optimizer.early_step_in_backward"]
        assert fate == ("mapped" if mapped else "not_modelled"), more
        assert (made.placed().optimizer_in_bwd, made.placed().clip_grad) == ((True, 0) if mapped else (False, 1)), more


def test_replicas_of_shards(tmp_path: Path) -> None:
    text = '[model]\nname="llama3"\nflavor="8B"\n[parallelism]\ndata_parallel_replicate_degree=4\ndata_parallel_shard_degree=8\n'
    found = strategy(job(tmp_path, text))
    assert found["dp"] == 32 and found["num_distributed_optimizer_instances"] == 4 and found["zero"] == 3
    alone = strategy(job(tmp_path, text.replace("=8\n", "=1\n")))
    assert alone["dp"] == 4 and alone["zero"] == 0 and alone["overlap_grad_reduce"]


def test_experts(tmp_path: Path) -> None:
    text = '[model]\nname="deepseek_v3"\nflavor="16B"\n[parallelism]\ntensor_parallel_degree=2\nexpert_parallel_degree=8\n'
    found = strategy(job(tmp_path, text, variables={"NGPU": "16"}))
    assert found["ep"] == 8 and found["etp"] == 1 and found["dp"] == 8 and found["zero"] == 3
    # without experts spread over ranks, they are split as all else is
    assert strategy(job(tmp_path, text.replace("expert_parallel_degree=8\n", ""))).get("etp") is None


@pytest.mark.parametrize(
    ("section", "wanted"),
    [
        ("", {"recompute": "full", "recompute_method": "block", "recompute_num_layers": 16}),
        ('mode = "none"', {}),
        ('mode = "full"', {"recompute": "full"}),
        ('selective_ac_option = "1"', {"recompute": "full"}),
        ('selective_ac_option = "4"', {"recompute": "full", "recompute_method": "block", "recompute_num_layers": 8}),
    ],
)
def test_checkpoints(tmp_path: Path, section: str, wanted: dict[str, Any]) -> None:
    found = strategy(job(tmp_path, f'[model]\nflavor = "8B"\n[activation_checkpoint]\n{section}\n'))
    assert {name: value for name, value in found.items() if name.startswith("recompute")} == wanted


def test_gradients_are_reduced_in_the_type_that_is_asked_for(tmp_path: Path) -> None:
    made = [strategy(job(tmp_path, f'[model]\nflavor = "8B"\n[training]\nmixed_precision_reduce = "{kind}"\n')) for kind in ("float32", "bfloat16")]
    assert [found["grad_reduce_in_fp32"] for found in made] == [True, False]


@pytest.mark.parametrize("key", NAMES)
def test_every_name_has_a_row(tmp_path: Path, key: str) -> None:
    section, _, name = key.rpartition(".")
    value = (
        "[]" if name in ("converters", "filter_fqns", "fqns", "components", "module_fqns_per_model_part", "pipeline_parallel_split_points") else "1"
    )
    known = {
        "training.global_batch_size": "64",
        "model.flavor": '"8B"',
        "model.name": '"llama3"',
        "optimizer.name": '"AdamW"',
        "activation_checkpoint.mode": '"none"',
    }
    words = {
        "optimizer.implementation": '"foreach"', "training.dtype": '"float32"', "training.mixed_precision_param": '"bfloat16"',
        "training.mixed_precision_reduce": '"float32"', "parallelism.fsdp_reshard_after_forward": '"never"',
        "parallelism.pipeline_parallel_schedule": '"1F1B"', "parallelism.context_parallel_rotate_method": '"allgather"',
        "parallelism.expert_parallel_comm_backend": '"standard"', "parallelism.pipeline_parallel_schedule_csv": '""',
    }  # fmt: skip
    text = f"[{section}]\n{name} = {({**known, **words}).get(key, value)}\n"
    assert key in rows(job(tmp_path, text))


def test_every_flavor_is_a_model() -> None:
    assert {name for flavors in FLAVORS.values() for name in flavors.values()} <= set(list_models())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[training]\nseq_length = 4096\n", "train.toml:2: a torchtitan file has no key 'training.seq_length': did you mean 'training.seq_len"),
        ("[parallelism]\ndata_parallel_shard_degree = 1.5\n", "data_parallel_shard_degree is 1.5; it should be a whole number from -1 up"),
        ("[training]\nglobal_batch_size = 0.5\n", "training.global_batch_size is 0.5; it should be a whole number from -1 up"),
        ("[training]\nlocal_batch_size = 0\n", "train.toml:2: training.local_batch_size is 0; it should be a whole number from 1 up"),
        ("[training\n", "train.toml:1: not TOML"),
        ("[a]\nb = 1\nb = 2\n", "train.toml:3: not TOML: Cannot overwrite a value"),
        ("", "the file is empty"),
        ('[parallelism]\npipeline_parallel_schedule = "1F2B"\npipeline_parallel_degree = 2\n', "did you mean '1F1B'"),
        ("a = " + "[" * 5000 + "]" * 5000, "nested too deeply|not TOML"),
        ("[training]\nseq_len = inf\n", "it should be a number"),
    ],
)
def test_what_cannot_be(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        job(tmp_path, text)


def test_degrees_say_how_many_ranks(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--var world=16: the degrees of .* make 8 ranks"):
        job(tmp_path, "[parallelism]\ndata_parallel_shard_degree = 8\n", variables={"world": "16"})


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [
        ("tensor_parallel_degree = 4\ndata_parallel_shard_degree = 1", {"zero": 0, "precision": "fp32", "autocast": False, "dp": 1}),
        ("pipeline_parallel_degree = 2\ndata_parallel_shard_degree = 1", {"zero": 0, "precision": "fp32", "autocast": False}),
        ("data_parallel_replicate_degree = 4\ndata_parallel_shard_degree = 1", {"zero": 0, "precision": "bf16", "autocast": True, "dp": 4}),
        ("data_parallel_shard_degree = 2", {"zero": 3, "precision": "bf16", "autocast": False, "dp": 2}),
        # what is left to shards is two of them
        ("tensor_parallel_degree = 8", {"zero": 3, "precision": "bf16", "autocast": False, "dp": 2}),
        ("tensor_parallel_degree = 4\ncontext_parallel_degree = 2", {"zero": 3, "precision": "bf16", "autocast": False, "dp": 1}),
    ],
)
def test_types_are_mixed_by_what_shards(tmp_path: Path, parallelism: str, expected: dict[str, Any]) -> None:
    made = job(tmp_path, f'[model]\nname = "llama3"\nflavor = "8B"\n[parallelism]\n{parallelism}\n').placed()
    assert {name: getattr(made, name) for name in expected} == expected


def test_types_that_nothing_mixes_here_are_said(tmp_path: Path) -> None:
    head, alone = '[model]\nname = "llama3"\nflavor = "8B"\n', "[parallelism]\ndata_parallel_shard_degree = 1\n"
    for more in ("[compile]\nenable = true\n", '[model]\nname = "llama3"\nflavor = "8B"\nconverters = ["quantize.linear.float8"]\n'):
        made = job(tmp_path, (more if more.startswith("[model]") else head + more) + alone)
        (row,) = [row for row in made.rows if row.key == "training.mixed_precision_param"]
        assert row.fate == "not_modelled" and made.placed().precision == "bf16"
    (row,) = [r for r in job(tmp_path, f'{head}{alone}[training]\ndtype = "bfloat16"\n').rows if r.key == "training.mixed_precision_param"]
    assert row.fate == "derived" and "bf16 by default" in row.why


def test_a_model_of_transformers(tmp_path: Path) -> None:
    """experiments/transformers_modeling_backend."""
    text = '[model]\nname = "transformers_modeling_backend"\nflavor = "{}"\nhf_assets_path = "./t"\n[hf_transformers]\nmodel = "Qwen/Qwen3-4B"\n'
    whole = job(tmp_path, text.format("full"))
    assert whole.architecture is not None and whole.architecture.name == "qwen3-4b"
    assert job(tmp_path, text.format("debugmodel")).architecture is None


OLDER = """
[model]
name = "llama3"
flavor = "8B"
norm_type = "rmsnorm"

[optimizer]
fused = true

[training]
batch_size = 8
warmup_steps = 100
data_parallel_degree = -1
tensor_parallel_degree = 2
enable_loss_parallel = false

[experimental]
pipeline_parallel_degree = 4
pipeline_parallel_schedule = "1f1b"
enable_async_tensor_parallel = true

[float8]
enable_float8_linear = true
"""


def test_keys_of_before_the_section_of_parallelism(tmp_path: Path) -> None:
    made = job(tmp_path, OLDER, variables={"NGPU": "64"})
    found, rows = strategy(made), {row.key: row for row in made.rows}
    assert {name: found[name] for name in ("tp", "pp", "dp", "micro_batch_size", "num_microbatches", "fp8", "tp_comm_overlap")} == {
        "tp": 2, "pp": 4, "dp": 8, "micro_batch_size": 2, "num_microbatches": 4, "fp8": "tensorwise", "tp_comm_overlap": True,
    }  # fmt: skip
    assert made.assumptions["loss_parallel"] == "false" and "optimizer_implementation" not in made.assumptions
    assert rows["training.tensor_parallel_degree"].to == "tp" and rows["training.warmup_steps"].fate == "no_cost_effect"
    assert rows["float8.enable_float8_linear"].value == "true" and rows["training.enable_loss_parallel"].value == "false"


def test_replicas_of_before_the_section_of_parallelism(tmp_path: Path) -> None:
    text = '[model]\nflavor = "8B"\n[training]\ndata_parallel_degree = 8\ndata_parallel_type = "{}"\n'
    assert strategy(job(tmp_path, text.format("ddp")))["zero"] == 0 and strategy(job(tmp_path, text.format("fsdp")))["zero"] == 3


def test_keys_of_the_summer_of_2025(tmp_path: Path) -> None:
    text = '[model]\nname = "llama4"\nflavor = "17bx16e"\nconverters = ["float8"]\nuse_flex_attn = false\nattn_mask_type = "{}"\n'
    text += '[float8]\nmoe_fqns = ["experts"]\n'
    found = {row.key: row.fate for row in job(tmp_path, text.format("causal")).rows}
    assert found["float8.moe_fqns"] == "mapped" and found["model.use_flex_attn"] == found["model.attn_mask_type"] == "no_cost_effect"
    assert {row.key: row.fate for row in job(tmp_path, text.format("block_causal")).rows}["model.attn_mask_type"] == "not_modelled"


def test_modules_of_every_stage_are_a_layout(tmp_path: Path) -> None:
    parts = [["tok_embeddings", *(f"layers.{n}" for n in range(20))], [*(f"layers.{n}" for n in range(20, 32)), "norm", "output"]]
    text = '[model]\nflavor = "8B"\n[parallelism]\npipeline_parallel_degree = {}\nmodule_fqns_per_model_part = {}\n'
    made = job(tmp_path, text.format(2, parts))
    assert strategy(made)["pipeline_model_parallel_layout"] == "Et*20|t*12L" and strategy(made).get("vpp", 1) == 1
    with pytest.raises(InputError, match="as many parts as a multiple of 4 stages; it has 2"):
        job(tmp_path, text.format(4, parts))
    other = job(tmp_path, text.format(2, [["tok_embeddings", "vision"], ["layers.0"]]))
    assert {row.key: row.fate for row in other.rows}["parallelism.module_fqns_per_model_part"] == "not_modelled"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[training]\nbatch_size = 3\n[parallelism]\npipeline_parallel_degree=2\npipeline_parallel_microbatch_size=2", "training.batch_size is 3"),
        ("[parallelism]\npipeline_parallel_degree=2\npipeline_parallel_microbatch_size=3", "training.local_batch_size is not given; it should be a"),
        ("[training]\nlocal_batch_size = 1e308\nglobal_batch_size = 16", "training.local_batch_size is 1e\\+308; it should be at most 10\\^18"),
    ],
)
def test_batches_that_cannot_be(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        job(tmp_path, f'[model]\nflavor = "8B"\n{text}\n')


def test_a_module_of_primus_that_runs_torchtitan(tmp_path: Path) -> None:
    """Its overrides are torchtitan's sections, its model's file says name, flavor and converter; what it leaves out is Primus's default."""
    overrides = "      training: {seq_len: 8192, mock_data: true}\n      parallelism: {tensor_parallel_degree: 2}\n      sink_level: null\n"
    turbo = "      primus_turbo: {enable_primus_turbo: true, use_moe_fp8: true}\n"
    file = tmp_path / "p.yaml"
    head = "modules:\n  pre_trainer:\n    framework: torchtitan\n    model: MODEL\n    overrides:\n"
    file.write_text(head.replace("MODEL", "llama3.1_8B-fp8.yaml") + overrides + turbo)
    made = load_job("torchtitan", str(file), variables={"world": "8"})
    found, told = strategy(made), rows(made)
    assert made.architecture is not None and made.architecture.name == "llama3-8b"
    assert (found["tp"], found["seq_length"], found["micro_batch_size"], found["fp8"]) == (2, 8192, 8, "tensorwise")
    assert told["training.mock_data"].fate == "no_cost_effect" and told["primus_turbo.use_moe_fp8"].fate == "not_modelled"
    file.write_text(head.replace("MODEL", "qwen3_32b.yaml") + overrides)
    plain = load_job("torchtitan", str(file))
    assert plain.architecture is not None and plain.architecture.name == "qwen3-32b" and strategy(plain)["fusion"] == "compile"
    for text, said in (("a: 1\n", "p.yaml: no module of Primus with framework: torch"), (head.replace("MODEL", "x"), "p.yaml:4: model is x; it")):
        file.write_text(text)
        with pytest.raises(InputError, match=said):
            load_job("torchtitan", str(file))
    file.write_text(head.replace("MODEL", "qwen3_32b.yaml") + overrides)
    with pytest.raises(InputError, match="framework is torchtitan; 'symsim import torchtitan' reads it"):
        load_job("megatron", str(file))


def test_models_of_other_kinds_and_of_earlier_versions(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text('[model]\nname = "flux"\nflavor = "flux-dev"\n[training]\nseq_len = 512\n')
    with pytest.raises(InputError, match=r"t.toml:2: model.name is flux, which makes images"):
        load_job("torchtitan", str(path))
    for flavor, model in (("7B", "llama2-7b"), ("meta-llama/Llama-2-13b-hf", "llama2-13b")):
        path.write_text(f'[model]\nname = "llama2"\nflavor = "{flavor}"\n[training]\nseq_len = 512\n')
        architecture = load_job("torchtitan", str(path)).architecture
        assert architecture is not None and architecture.name == model


_LLAMA = 2 * 2048 * 256 + 256 + 6 * (4 * 256 * 256 + 3 * 256 * 768 + 2 * 256)
_QWEN = 2048 * 256 + 256 + 8 * (2 * 256 * 2048 + 2 * 256 * 1024 + 3 * 256 * 3072 + 2 * 256 + 2 * 128)
_LATENT = 256 * 16 * 192 + 256 * 576 + 512 + 512 * 16 * 256 + 16 * 128 * 256 + 2 * 256
_DEEPSEEK = 2 * 2048 * 256 + 256 + 6 * _LATENT + 3 * 256 * 1024 + 5 * (10 * 3 * 256 * 256 + 256 * 8)


@pytest.mark.parametrize(("name", "total"), [("llama3", _LLAMA), ("qwen3", _QWEN), ("deepseek_v3", _DEEPSEEK)])
def test_debug_models_have_their_sizes(tmp_path: Path, name: str, total: int) -> None:
    """Of their definitions (torchtitan/models/*/__init__.py _debugmodel): embedding and head of 2048 rows, unless tied, and the layers."""
    path = tmp_path / "debug.toml"
    path.write_text(f'[model]\nname = "{name}"\nflavor = "debugmodel"\n[training]\nlocal_batch_size = 8\nseq_len = 2048\n')
    made = load_job("torchtitan", str(path))
    assert made.architecture is not None and symsim.derive(made.architecture).value("params.total") == total
    assert {row.key: row.fate for row in made.rows}["model.flavor"] == "mapped"
    path.write_text(path.read_text().replace("debugmodel", "debugmodel_moe"))
    assert load_job("torchtitan", str(path)).architecture is None
