"""A strategy as another system's files: what comes back, and a sentence for all that does not."""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import symsim
from symsim.errors import InputError
from symsim.errors import sentence as cut_for_a_terminal
from symsim.exporters.export import Asked, export, lost, plain, plain_model
from symsim.exporters.megatron import machines
from symsim.exporters.registry import TARGETS
from symsim.importers.megatron.arguments import FLAGS
from symsim.importers.merak.shards import in_halves
from symsim.inputs.assumptions import resolve
from symsim.inputs.strategies import load_strategy

MODELS = {
    "simumax": ("llama3-8b", "llama2-13b", "mixtral-8x7b"),
    "megatron": ("llama3-8b", "gpt3-175b", "qwen2.5-7b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b", "qwen3-30b-a3b"),
}
MODELS["swift"] = tuple(name for name in MODELS["megatron"] if name not in ("gpt3-175b", "mixtral-8x7b"))
# models that every target can say whole
WHOLE = ("llama3-8b", "llama2-13b", "qwen2.5-7b")
# options that a target can say, and values of them
SAYABLE: dict[str, dict[str, tuple[Any, ...]]] = {
    "simumax": {
        "tp": (1, 2, 4), "pp": (1, 2, 4), "dp": (1, 2, 4), "micro_batch_size": (1, 2), "num_microbatches": (4, 8), "seq_length": (2048, 8192),
        "zero": (0, 1), "grad_reduce_in_fp32": (True, False), "precision": ("bf16", "fp16"), "cross_entropy_fusion": ("unfused", "te"),
        "recompute": ("none", "full", "selective"),
    },
    "megatron": {
        "tp": (1, 2, 4), "pp": (1, 2, 4), "dp": (1, 2, 4), "cp": (1, 2), "micro_batch_size": (1, 2), "num_microbatches": (4, 8),
        "seq_length": (2048, 8192), "zero": (0, 1), "grad_reduce_in_fp32": (True, False), "cross_entropy_fusion": ("unfused", "te", "native"),
        "recompute": ("none", "full", "selective"), "fp8": ("none", "tensorwise", "blockwise"), "fp32_residual_connection": (True, False),
        "clip_grad": (0.0, 1.0), "optimizer": ("adam", "sgd", "sgd_momentum"), "moe_token_dispatcher_type": ("alltoall", "allgather", "flex"),
    },
}  # fmt: skip
MODELS["deepspeed"] = ("llama3-8b", "qwen2.5-7b")
SAYABLE["deepspeed"] = {
    "dp": (2, 4, 8), "micro_batch_size": (1, 2), "num_microbatches": (1, 4), "zero": (0, 1, 2, 3), "precision": ("bf16", "fp16"),
    "grad_reduce_in_fp32": (True, False), "clip_grad": (0.0, 1.0), "optimizer": ("adam", "sgd", "sgd_momentum"),
}  # fmt: skip
# bf16 with fp32 gradients is fixed there
_NOT_SWIFT = ("fp32_residual_connection", "grad_reduce_in_fp32")
MODELS["torchtitan"] = ("llama3-8b", "qwen3-8b", "qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v2-lite")
SAYABLE["torchtitan"] = {
    "tp": (1, 2), "pp": (1, 2, 4), "dp": (2, 4), "cp": (1, 2), "micro_batch_size": (1, 2), "num_microbatches": (8, 16), "seq_length": (2048, 8192),
    "zero": (3,), "precision": ("bf16", "fp32"), "clip_grad": (0.5, 1.0), "recompute": ("none", "full", "sac_mm_attn"),
    "schedule": ("1f1b", "gpipe", "interleaved", "looped_bfs"), "fp8": ("none", "tensorwise", "mxfp8"), "reshard_after_forward": (True, False),
}  # fmt: skip
SAYABLE["swift"] = {name: values for name, values in SAYABLE["megatron"].items() if name not in _NOT_SWIFT}
COMPLETE = {
    "simumax": {"recompute_method": "block", "recompute_num_layers": 2},
    "megatron": {"recompute_method": "uniform"},
    "swift": {"recompute_method": "uniform"},
    "torchtitan": {"recompute_method": "uniform"},
}


@st.composite
def sayable(draw: st.DrawFn, kind: str, suffix: str) -> Asked:
    """A model and a strategy that the target can say."""
    options = {name: draw(st.sampled_from(values), label=name) for name, values in SAYABLE[kind].items()}
    options |= {"sp": options.get("tp", 1) > 1 and (kind == "torchtitan" or draw(st.booleans(), label="sp")), "etp": 1}
    if options.get("recompute") == "full":
        options |= COMPLETE[kind]
    architecture = symsim.load_model(draw(st.sampled_from(MODELS[kind]), label="model"))
    if kind == "torchtitan":
        chosen = {"recompute_early_stop": "false"} if options["recompute"] != "none" else {}
        return Asked(architecture, load_strategy(_of_torchtitan(options, architecture, suffix)), assumptions=chosen)
    if kind == "deepspeed" and options["zero"] == 0 and options["precision"] == "fp16":
        options["grad_reduce_in_fp32"] = False
    if kind == "swift":
        options["variable_seq_lengths"] = True
    if kind in ("swift", "megatron") and options["pp"] > 1:
        # all that Megatron-Core does between stages of one chunk
        options |= {"p2p_comm": "batched", "batch_p2p_sync": True}
    if architecture.moe is None:
        options.pop("etp")
        options.pop("moe_token_dispatcher_type", None)
    else:
        options |= {"ep": draw(st.sampled_from((1, 2)), label="ep"), "dp": options["dp"] * 2, "sp": options["tp"] > 1}
        if options["ep"] == 1 and options.get("moe_token_dispatcher_type") == "flex":
            options["moe_token_dispatcher_type"] = "alltoall"
    if architecture.moe is not None and kind == "simumax":
        options |= {"moe_pad_expert_input_to_capacity": True, "moe_expert_capacity_factor": 1.0}
    if any(kind.window for kind in architecture.layer_kinds.values()) or kind == "simumax":
        options["cp_comm_type"] = "a2a"
    return Asked(architecture, load_strategy(options))


def _of_torchtitan(options: dict[str, Any], architecture: Any, suffix: str) -> dict[str, Any]:
    """What goes together there: FSDP keeps parameters over a step where there is a pipeline, whose schedules fix the chunks of a rank."""
    schedule = options.pop("schedule")
    chunks = 2 if schedule in ("interleaved", "looped_bfs") else 1
    options |= {"fusion": "eager" if options["fp8"] == "none" else "te", "cp_comm_type": "all_gather"}
    options["etp"] = options["tp"]
    older = suffix == ".toml"
    options["cp"] = 1 if architecture.attention.sinks or (older and architecture.attention.kind == "mla") else options["cp"]
    options["pp"] = 1 if older and architecture.name.startswith(("qwen3", "gpt-oss")) else options["pp"]
    options["precision"] = "bf16" if options["fp8"] != "none" else options["precision"]
    if architecture.moe is not None:
        options |= {"ep": 2, "etp": 1}
    if options["pp"] > 1:
        options |= {"reshard_after_backward": False, "gradient_sync": "last_microbatch", "schedule": schedule, "vpp": chunks}
    return options


FILES = [(kind, suffix) for kind, target in TARGETS.items() for suffix in target.suffix.split() or [""]]


@pytest.mark.parametrize(("kind", "suffix"), FILES)
@settings(max_examples=25)
@given(data=st.data())
def test_what_a_target_can_say_comes_back(kind: str, suffix: str, data: st.DataObject) -> None:
    asked = data.draw(sayable(kind, suffix))
    with tempfile.TemporaryDirectory() as directory:
        paths, said = export(kind, asked, Path(directory) / f"job{suffix}")
        job = symsim.load_job(kind, *map(str, paths))
    assert job.strategy is not None
    back, there = plain(load_strategy(job.strategy)), plain(asked.strategy)
    assert {name: back[name] for name in SAYABLE[kind]} == {name: there[name] for name in SAYABLE[kind]}
    # numbers from which no cost follows are tests/test_arithmetic.py's
    lost = [sentence for sentence in said if "cannot say" in sentence and "cannot say arithmetic." not in sentence]
    if job.architecture is not None:
        assert lost or plain_model(job.architecture) == plain_model(asked.architecture)
        assert asked.architecture.name not in WHOLE or not lost, lost


@pytest.mark.parametrize("kind", ["megatron", "simumax"])
def test_what_is_lost_of_a_model_changes_no_count(kind: str, tmp_path: Path) -> None:
    for model in set(MODELS[kind]) - set(WHOLE):
        architecture = symsim.load_model(model)
        options = {
            "tp": 2,
            "sp": True,
            "seq_length": 2048,
            **({"moe_pad_expert_input_to_capacity": True, "moe_expert_capacity_factor": 1.0} if architecture.moe else {}),
        }
        options |= {"etp": 1} if architecture.moe and architecture.moe.expert_bias else {}
        paths, _ = export(kind, Asked(architecture, load_strategy(options)), tmp_path / f"{model}{TARGETS[kind].suffix}")
        job = symsim.load_job(kind, *map(str, paths))
        ours, theirs = (symsim.derive(one, job.strategy, job.assumptions) for one in (architecture, job.architecture))
        assert ours.value("params.total") == theirs.value("params.total") and ours.value("flops.forward") == theirs.value("flops.forward"), model


def test_what_a_target_cannot_say_is_a_sentence(tmp_path: Path) -> None:
    strategy = load_strategy("tp=2,overlap_grad_reduce=true,clip_grad=0")
    _, said = export("simumax", Asked(symsim.load_model("gemma-2-9b"), strategy, symsim.load_system("h100-sxm")), tmp_path)
    assert "SimuMax cannot say overlap_grad_reduce=true: what is written means false" in said
    assert "SimuMax cannot say tie_word_embeddings=true: what is written means false" in said
    assert any("of h100-sxm the curves, the host, price and power are left out" in one for one in said)


@pytest.mark.parametrize(
    "name, options", [("mixtral-8x7b", {"tp": 2, "sp": True, "dp": 4}), ("llama3-8b", {"tp": 2, "dp": 4}), ("mixtral-8x7b", {"dp": 8})]
)
def test_experts_over_tensor_ranks_are_said_not_to_come_back_from_deepspeed(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    (path,), said = export("deepspeed", Asked(symsim.load_model(name), load_strategy({**options, "zero": 1})), tmp_path / "ds.json")
    lost = [sentence for sentence in said if "the file is not read back" in sentence]
    if "sp" in options:
        assert len(lost) == 1
        with pytest.raises(InputError, match="needs sp=true"):
            symsim.load_job("deepspeed", str(path), model=name)
    else:
        assert not lost and symsim.load_job("deepspeed", str(path), model=name).placed().dp == options["dp"]


@pytest.mark.parametrize(
    "options, written, sentences",
    [
        ({"cp_comm_type": "a2a"}, ("a2a", "2.8.0"), []),
        ({"cp_comm_type": "a2a", "cp_saved_output": "projection"}, ("a2a", "2.3.0"), []),
        ({"cp_comm_type": "p2p"}, ("a2a", "2.8.0"), ["SimuMax cannot say cp_comm_type=p2p: what is written means a2a"]),
        ({"cp_comm_type": "all_gather"}, ("all_gather", "2.8.0"), ["SimuMax 1.2 reads cp_comm_type=all_gather and does not run it"]),
        ({"cp_comm_type": "p2p", "tp": 8}, ("all_gather", "2.8.0"), ["cp_comm_type=p2p", "SimuMax 1.2 reads cp_comm_type=all_gather"]),
    ],
)
def test_context_ranks_are_written_as_simumax_runs(options: dict[str, Any], written: tuple[str, str], sentences: list[str], tmp_path: Path) -> None:
    asked = Asked(symsim.load_model("llama3-8b"), load_strategy({"cp": 2, "dp": 2, **options}), symsim.load_system("h100-sxm"))
    paths, said = export("simumax", asked, tmp_path)
    strategy = json.loads(next(path for path in paths if path.name == "strategy.json").read_text())
    assert (strategy["cp_comm_type"], strategy["te_version"]) == written
    of_context = [sentence for sentence in said if "cp_" in sentence]
    assert len(of_context) == len(sentences) and all(any(part in one for one in of_context) for part in sentences)


def test_adapters_are_ms_swifts_too(tmp_path: Path) -> None:
    chosen = "tp=2,etp=1,sp=true,dp=4,tuner_type=lora,lora_rank=16,lora_dropout=0.1,target_modules=linear_qkv+o_proj+down_proj"
    result = symsim.derive("gpt-oss-20b", chosen, {"apply_rope_fusion": "true", "layernorm_linear_fusion": "fused"})
    asked = Asked(result.model, result.strategy, assumptions=result.assumptions)
    (path,), said = export("swift", asked, tmp_path / "train.yaml")
    back = symsim.load_job("swift", str(path)).placed()
    assert (back.tuner_type, back.lora_rank, back.lora_dropout) == ("lora", 16, 0.1)
    assert back.target_modules == ("linear_qkv", "linear_proj", "linear_fc2")
    said = [sentence for sentence in said if "te_dummy" not in sentence and "moe_" not in sentence]
    assert said == ["ms-swift cannot say target_modules=linear_qkv+o_proj+down_proj: what is written means linear_qkv+linear_proj+linear_fc2"]
    _, said = export("megatron", asked, tmp_path / "train.sh")
    assert "Megatron-LM cannot say tuner_type=lora: what is written means full" in said
    assert not [sentence for sentence in said if "layer_kinds" in sentence or "latent" in sentence]


def test_layers_of_adapters_are_no_names_for_ms_swift(tmp_path: Path) -> None:
    """What is written is what it can read, and a sentence says which layers are meant."""
    chosen = "tp=2,sp=true,tuner_type=lora,target_modules=layers.0-3+layers.8-9.o_proj"
    asked = Asked(symsim.load_model("qwen3-8b"), load_strategy(chosen))
    said = export("swift", asked, tmp_path / "train.yaml")[1]
    written = yaml.safe_load((tmp_path / "train.yaml").read_text())
    assert written["target_modules"] == ["all-linear", "linear_proj"]
    assert any(one.startswith("ms-swift cannot say target_modules=layers.0-3+layers.8-9.o_proj") for one in said)


def test_what_decides_nothing_is_not_lost(tmp_path: Path) -> None:
    """p2p_comm is of 1f1b."""
    strategy = load_strategy("pp=2,schedule=gpipe,num_microbatches=4")
    _, said = export("megatron", Asked(symsim.load_model("llama3-8b"), strategy), tmp_path / "train.sh")
    assert "Megatron-LM cannot say schedule=gpipe: what is written means 1f1b" in said
    assert not [sentence for sentence in said if "p2p_comm" in sentence]


@pytest.mark.parametrize("kind", TARGETS)
def test_every_option_comes_back_or_is_said(kind: str) -> None:
    """Each option away from its default, one at a time: the files say it, or a sentence does."""
    architecture = symsim.load_model({"torchtitan": "deepseek-v2-lite", "swift": "qwen3-30b-a3b"}.get(kind, "mixtral-8x7b"))
    base = {"tp": 2, "sp": True, "dp": 4, "pp": 2, "num_microbatches": 4}
    changes: list[dict[str, Any]] = [
        {"overlap_grad_reduce": True}, {"optimizer": "sgd"}, {"fp32_residual_connection": True}, {"clip_grad": 0.5}, {"zero": 0},
        {"moe_router_load_balancing_type": "aux_loss"}, {"moe_router_dtype": "fp32"}, {"cpu_offloading_num_layers": 1, "pp": 1},
        {"schedule": "gpipe"}, {"cross_entropy_fusion": "native"}, {"fp8": "blockwise"}, {"num_layers_in_first_pipeline_stage": 12},
        {"account_for_embedding_in_pipeline_split": True, "account_for_loss_in_pipeline_split": True},
    ]  # fmt: skip

    def told(options: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
        asked = Asked(architecture, load_strategy(options))
        made = import_module(f"symsim.exporters.{TARGETS[kind].module}").files(asked)
        return made, lost(kind, asked, made)

    before = told(base)
    # torchtitan counts embedding and head as layers by itself
    for change in changes[: -1 if kind == "torchtitan" else None]:
        assert told({**base, **change}) != before, change


def test_an_uneven_split_is_laid_out_for_megatron(tmp_path: Path) -> None:
    """Its own arguments divide evenly or are refused; a layout says the same stages."""
    asked = Asked(symsim.load_model("deepseek-v3"), load_strategy("pp=8,vpp=2,ep=8,num_microbatches=16,overlap_p2p_comm=true"))
    (path,), said = export("megatron", asked, tmp_path / "train.sh")
    assert '--pipeline-model-parallel-layout "Et*3|t*4|' in path.read_text() and not [s for s in said if "cannot say" in s]
    even = Asked(symsim.load_model("llama3-8b"), load_strategy("pp=4,vpp=2,num_microbatches=4"))
    (path,), _ = export("megatron", even, tmp_path / "even.sh")
    assert "layout" not in path.read_text() and "--num-virtual-stages-per-pipeline-rank 2" in path.read_text()


SHARDS = (
    "num_distributed_optimizer_instances=16,outer_dp_sharding_strategy=optim,expert_shard_ranks=2",
    "num_distributed_optimizer_instances=4,outer_dp_sharding_strategy=optim,expert_shard_ranks=1",
    "expert_shard_ranks=8",
    "num_distributed_optimizer_instances=8,expert_shard_ranks=2",
    "num_distributed_optimizer_instances=4,outer_dp_sharding_strategy=optim",
)


@pytest.mark.parametrize("sharded", SHARDS)
def test_weights_in_shards_come_back_from_megatron(sharded: str, tmp_path: Path) -> None:
    """Weight shards where experts have degrees of their own, else groups of FSDP."""
    asked = Asked(symsim.load_model("mixtral-8x7b"), load_strategy(f"tp=2,sp=true,ep=2,dp=16,zero=3,{sharded}"))
    (path,), said = export("megatron", asked, tmp_path / "train.sh")
    assert not [sentence for sentence in said if "cannot say" in sentence]
    assert ("-num-weight-shards" in path.read_text()) == ("expert_shard_ranks" in sharded) == ("--use-megatron-fsdp" not in path.read_text())


def test_what_megatron_assumes_otherwise_is_said(tmp_path: Path) -> None:
    chosen = {"attention_kernel": "math", "optimizer_implementation": "foreach"}
    asked = Asked(symsim.load_model("llama3-8b"), load_strategy("tp=2"), assumptions=chosen)
    _, said = export("megatron", asked, tmp_path / "train.sh")
    assert "Megatron-LM cannot say assume.optimizer_implementation=foreach: what is written means fused" in said
    assert not [sentence for sentence in said if "attention_kernel" in sentence]
    assert any("--set assume.apply_rope_fusion=true" in sentence for sentence in said)


@pytest.mark.parametrize(
    ("model", "named", "not_named"),
    [
        ("llama3-70b", "--rotary-base --use-rope-scaling --norm-epsilon", "yarn --mscale router clamp"),
        ("gpt3-175b", "--norm-epsilon", "rotary rope"),
        ("deepseek-v3", "--rotary-base --rope-type --mscale --norm-epsilon --moe-router-topk-scaling-factor", "--use-rope-scaling --yarn clamp"),
        ("gpt-oss-20b", "--rotary-base --yarn-beta-fast --activation-func-clamp-value --glu-linear-offset", "--use-rope-scaling --mscale router"),
        ("mixtral-8x7b", "--rotary-base --norm-epsilon", "router clamp"),
    ],
)
def test_numbers_without_a_cost_are_named_where_the_model_has_them(model: str, named: str, not_named: str, tmp_path: Path) -> None:
    """Megatron-LM has defaults of its own for them, which start and train another model."""
    unsaid = symsim.load_model(model).model_copy(update={"arithmetic": None})
    (path,), said = export("megatron", Asked(unsaid, load_strategy("dp=2")), tmp_path / "train.sh")
    (sentence,) = [one for one in said if "add by hand" in one]
    assert all(word in sentence for word in named.split()) and not [word for word in not_named.split() if word in sentence]
    assert cut_for_a_terminal(sentence) == sentence
    assert model in sentence and f"# {sentence}\n" in path.read_text()


@pytest.mark.parametrize(
    ("kind", "file", "model", "options"),
    [
        ("megatron", "train.sh", "gemma-2-9b", "tp=2,pp=2,num_microbatches=4"),
        ("swift", "train.yaml", "qwen3-8b", "tp=2"),
        ("torchtitan", "train.toml", "llama3-8b", "dp=8,zero=3"),
        ("torchtitan", "train.py", "llama3-8b", "dp=8,zero=3,fp8=tensorwise"),
        ("deepspeed", "ds.json", "llama3-8b", "dp=8,zero=3,fusion=eager"),
    ],
)
def test_files_that_take_comments_begin_with_what_they_do_not_say(kind: str, file: str, model: str, options: str, tmp_path: Path) -> None:
    asked = Asked(symsim.load_model(model), load_strategy(options))
    (path,), said = export(kind, asked, tmp_path / file)
    comments = [line.removeprefix("# ") for line in path.read_text().splitlines() if line.startswith("#")]
    assert said and comments[-len(said) :] == (said if path.suffix != ".json" else []), comments
    if kind == "megatron":
        assert "Megatron-LM cannot say mlp.gated=true: what is written means false" in comments and path.read_text().startswith("#!/bin/bash\n")


def test_what_torchtitan_has_no_kernel_for_is_said(tmp_path: Path) -> None:
    asked = Asked(symsim.load_model("llama3-8b"), load_strategy("dp=8,zero=3"), assumptions={"optimizer_implementation": "compiled"})
    (path,), said = export("torchtitan", asked, tmp_path / "train.toml")
    assert 'implementation = "fused"' in path.read_text()
    assert "torchtitan cannot say assume.optimizer_implementation=compiled: what is written means fused" in said


def test_the_export_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from symsim.api.cli import main

    with pytest.raises(SystemExit) as left:
        main(["export", "simumax", "llama3-8b", "-s", "tp=2,sp=true,num_microbatches=2", "-y", "h100-sxm", "-o", str(tmp_path / "job")])
    assert left.value.code == 0 and "wrote" in capsys.readouterr().err
    assert {p.name for p in (tmp_path / "job").iterdir()} == {"strategy.json", "model.json", "system.json"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["export", "simumx", "llama3-8b", "-o", "x"], "symsim does not export 'simumx': did you mean 'simumax'?"),
        (["export", "simumax", "llama3-8b"], "symsim export writes a file: give one with -o"),
        (["export", "simumax", "jamba", "-o", "x"], "no model or file is named 'jamba'"),
    ],
)
def test_what_cannot_be_exported(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    from symsim.api.cli import main

    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2 and sentence in capsys.readouterr().err


def test_alternating_layers_are_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="SimuMax cannot say the layers of llama4-maverick"):
        export("simumax", Asked(symsim.load_model("llama4-maverick"), load_strategy("tp=2")), tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("kind", TARGETS)
def test_halves_of_layers_are_refused_where_layers_are_said(kind: str, tmp_path: Path) -> None:
    asked = Asked(in_halves(symsim.load_model("llama3-8b")), load_strategy("pp=2,num_microbatches=4"))
    place = tmp_path / f"job{TARGETS[kind].suffix.split(' ')[0]}"
    if TARGETS[kind].has_model:
        with pytest.raises(InputError, match="cannot say the layers of llama3-8b: dense_a"):
            export(kind, asked, place)
        assert not place.exists()
    else:
        assert export(kind, asked, place)[0] == [place]


# models that differ in what a script says of them, and strategies of every part
DIFFERENT = ("gpt3-175b", "deepseek-v3", "gpt-oss-20b", "qwen3-next-80b-a3b", "llama4-scout", "gemma-2-9b")
STRATEGIES = (
    "tp=2,etp=1,sp=true,pp=2,vpp=2,num_microbatches=4,overlap_p2p_comm=true,recompute=full,recompute_method=block,fp8=mxfp8,dp=16",
    "dp=24,num_distributed_optimizer_instances=2,outer_dp_sharding_strategy=optim,cp=2,cp_comm_type=a2a,zero=3,recompute=selective,recompute_modules=layernorm+core_attn,cross_entropy_fusion=te,optimizer=sgd_momentum",
    "pp=3,num_microbatches=3,use_precision_aware_optimizer=true,exp_avg_dtype=bf16,optimizer_cpu_offload=true,precision=fp16,clip_grad=0",
    "activation_func_fp8_input_store=true,fp8=tensorwise,dp=2,overlap_grad_reduce=true,moe_router_load_balancing_type=aux_loss",
)


@pytest.mark.parametrize("model", DIFFERENT)
def test_arguments_are_those_of_megatron(model: str, tmp_path: Path) -> None:
    for number, text in enumerate(STRATEGIES):
        (path,), _ = export("megatron", Asked(symsim.load_model(model), load_strategy(text)), tmp_path / f"{number}.sh")
        words = [word for word in shlex.split(path.read_text(), comments=True) if not word.startswith("$")]
        first = next(place for place, word in enumerate(words) if word.startswith("--"))
        arguments: list[list[str]] = []
        for word in words[first:]:
            if word.startswith("--"):
                arguments.append([])
            if word.startswith("--") or (arguments and "=(" not in word and word not in ("torchrun", ")", "pretrain_gpt.py")):
                arguments[-1].append(word)
        for name, *values in arguments:
            if name not in ("--nproc-per-node", "--nnodes"):
                assert of_its_kind(name.removeprefix("--"), values), (name, values)


# of a strategy what a script has to say, and what it must not, so that Megatron-LM at d98e8a64 starts (training/arguments.py validate_args,
# core/transformer/transformer_config.py)
STARTS = (
    ("llama3-8b", "dp=8,zero=3", "--ckpt-format fsdp_dtensor", "CUDA_DEVICE_MAX_CONNECTIONS"),
    ("llama3-8b", "dp=8,zero=1", "CUDA_DEVICE_MAX_CONNECTIONS=1", "--ckpt-format"),
    ("mixtral-8x7b", "dp=8,ep=8,overlap_moe_expert_parallel_comm=true", "CUDA_DEVICE_MAX_CONNECTIONS=32", "CUDA_DEVICE_MAX_CONNECTIONS=1"),
    ("llama3-8b", "dp=8,fp8=tensorwise,fp8_dot_product_attention=true", "--fp8-recipe tensorwise", "--fp8-dot-product-attention"),
    ("llama3-8b", "tp=2,sp=true,tp_comm_overlap=true,tp_comm_overlap_disable_qkv=true", "--tp-comm-overlap", "disable-qkv"),
    ("gpt3-175b", "tp=8,sp=true,seq_length=4096", "--max-position-embeddings 4096", "--max-position-embeddings 2048"),
    ("gpt3-175b", "tp=8,sp=true,seq_length=1024", "--max-position-embeddings 2048", "--max-position-embeddings 1024"),
    ("deepseek-v3.2", "tp=8,sp=true,ep=8,etp=1,dp=8", "--no-rope-fusion", "--rope-fusion"),
    (
        "mixtral-8x7b",
        "dp=8,ep=8,moe_token_dispatcher_type=flex,moe_flex_dispatcher_backend=hybridep,moe_expert_rank_capacity_factor=1.5",
        "--moe-use-grouped-tensor",
        "--use-transformer-engine-op-fuser",
    ),
)


@pytest.mark.parametrize(("model", "strategy", "there", "absent"), STARTS)
def test_megatron_starts_with_a_script(model: str, strategy: str, there: str, absent: str, tmp_path: Path) -> None:
    (path,), said = export("megatron", Asked(symsim.load_model(model), load_strategy(strategy)), tmp_path / "train.sh")
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert there in "\n".join(lines) and absent not in "\n".join(lines)
    if "4096" in there:
        assert any("position_embedding_rows=2048" in sentence for sentence in said)


def test_what_megatron_does_not_start_with_is_not_written(tmp_path: Path) -> None:
    asked = Asked(symsim.load_model("llama3-8b"), load_strategy("pp=2,vpp=2,num_microbatches=4"))
    with pytest.raises(InputError, match="with overlap_p2p_comm=true only; give it, or pp=4 or more"):
        export("megatron", asked, tmp_path / "train.sh")
    experts = Asked(symsim.load_model("gpt-oss-20b"), load_strategy("tp=2,sp=true,dp=4"))
    with pytest.raises(InputError, match="as gpt-oss-20b has, over etp=2 ranks; give etp=1"):
        export("megatron", experts, tmp_path / "train.sh")
    few = Asked(symsim.load_model("llama3-8b"), load_strategy("pp=4,vpp=2,num_microbatches=3,microbatch_group_size_per_vp_stage=3"))
    with pytest.raises(InputError, match="as many micro-batches as stages, pp=4, or more through a chunk in a row; there are 3"):
        export("megatron", few, tmp_path / "train.sh")
    assert not (tmp_path / "train.sh").exists()


def of_its_kind(name: str, values: list[str]) -> bool:
    """Whether Megatron-LM's parser takes these values: add_argument of training/arguments.py at d98e8a64, and fields of its configurations."""
    if name.replace("-", "_") in FLAGS:
        return not values
    one = len(values) == 1
    if name in WHOLE_NUMBERS or name in ("hierarchical-context-parallel-sizes",):
        return (one or name not in WHOLE_NUMBERS) and all(value.isdigit() for value in values)
    if name in NUMBERS:
        return one and float(values[0]) >= 0
    if name in CHOICES:
        return all(value in CHOICES[name].split() for value in values) and (one or name == "moe-router-load-balancing-type")
    if name in PATTERNS:
        return one and re.fullmatch(PATTERNS[name], values[0]) is not None
    return name in ("cp-comm-type", "recompute-modules") and bool(values)


WHOLE_NUMBERS = """
    context-parallel-size cpu-offloading-num-layers decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers expert-model-parallel-size
    expert-tensor-parallel-size ffn-hidden-size global-batch-size hidden-size kv-channels kv-lora-rank linear-conv-kernel-dim linear-key-head-dim
    linear-num-key-heads linear-num-value-heads linear-value-head-dim make-vocab-size-divisible-by max-position-embeddings micro-batch-size
    microbatch-group-size-per-virtual-pipeline-stage moe-ffn-hidden-size moe-router-group-topk moe-router-num-groups moe-router-topk
    moe-shared-expert-intermediate-size mtp-num-layers num-attention-heads num-distributed-optimizer-instances num-experts num-layers
    num-query-groups num-virtual-stages-per-pipeline-rank pipeline-model-parallel-size q-lora-rank qk-head-dim qk-pos-emb-head-dim
    recompute-num-layers rotary-base rotary-seq-len-interpolation-factor seq-length tensor-model-parallel-size train-iters v-head-dim vocab-size
    yarn-original-max-position-embeddings""".split()
NUMBERS = """
    activation-func-clamp-value attention-dropout clip-grad glu-linear-offset hidden-dropout init-method-std lr moe-aux-loss-coeff
    moe-expert-capacity-factor moe-router-topk-scaling-factor mscale mscale-all-dim norm-epsilon optimizer-offload-fraction rope-scaling-factor
    rotary-percent rotary-scaling-factor sgd-momentum yarn-beta-fast yarn-beta-slow""".split()
CHOICES = {
    "cross-entropy-fusion-impl": "native te", "data-parallel-sharding-strategy": "no_shard optim optim_grads optim_grads_params",
    "exp-avg-dtype": "fp32 fp16 bf16 fp8", "exp-avg-sq-dtype": "fp32 fp16 bf16 fp8", "main-grads-dtype": "fp32 bf16",
    "main-params-dtype": "fp32 fp16", "experimental-attention-variant": "gdn gdn2 dsa gated_delta_net", "fp8-format": "e4m3 hybrid",
    "fp8-recipe": "tensorwise delayed mxfp8 blockwise custom", "moe-router-dtype": "fp32 fp64", "normalization": "LayerNorm RMSNorm",
    "moe-router-load-balancing-type": "aux_loss seq_aux_loss global_aux_loss sinkhorn quantile_balancing none",
    "moe-router-score-function": "softmax sigmoid sqrtsoftplus", "moe-token-dispatcher-type": "allgather alltoall flex",
    "optimizer": "adam sgd muon dist_muon lion soap adaptive_muon", "position-embedding-type": "learned_absolute rope yarn mrope relative none",
    "recompute-granularity": "full selective", "recompute-method": "uniform block", "softmax-type": "vanilla off-by-one learnable",
    "ckpt-format": "torch torch_dist torch_dcp fsdp_dtensor", "rope-type": "rope yarn",
    "outer-dp-sharding-strategy": "no_shard optim", "tokenizer-type": "NullTokenizer", "attention-backend": "flash fused unfused local auto",
}  # fmt: skip
_FLAGGED = r"\[[01]\]\*\d+(\+\[[01]\]\*\d+)*"
PATTERNS = {
    **dict.fromkeys(("linear-attention-freq", "moe-layer-freq", "no-rope-freq", "window-attn-skip-freq"), _FLAGGED),
    "pipeline-model-parallel-layout": r"E?[tmL*|0-9]+", "window-size": r"\d+,\d+",
}  # fmt: skip


def test_nodes_hold_equally_many_ranks() -> None:
    assert [machines(load_strategy(f"dp={ranks}")) for ranks in (1, 8, 12, 24, 22)] == [(1, 1), (8, 1), (6, 2), (8, 3), (2, 11)]


def test_two_spellings_of_one_strategy_are_equal() -> None:
    assert plain(load_strategy("tp=2,global_batch_size=8,dp=2")) == plain(load_strategy("tp=2,etp=2,num_microbatches=4,dp=2"))
    assert plain_model(symsim.load_model("llama3-8b"))["attention"]["kv_channels"] == 128
    emptied = "pp=4,zero=3,dp=2,num_microbatches=8,gradient_sync="
    assert plain(load_strategy(f"{emptied}every_flush")) == plain(load_strategy(f"{emptied}last_microbatch"))
    assert resolve({})


@pytest.mark.parametrize("model", ["bamba-9b", "minimax-text-01", "lfm2-1.2b", "kimi-linear-48b-a3b"])
def test_layers_that_no_file_can_say_are_refused(model: str, tmp_path: Path) -> None:
    architecture = symsim.load_model(model)
    with pytest.raises(InputError, match=f"cannot say the layers of {model}: \\w+ has mixer: "):
        export("megatron", Asked(architecture, load_strategy("tp=1")), tmp_path / "train.sh")


def test_what_no_file_can_say_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot say what gemma-4-12b has: kv_channels of its layers full"):
        export("megatron", Asked(symsim.load_model("gemma-4-12b"), load_strategy("tp=1")), tmp_path / "x.sh")
    with pytest.raises(InputError, match="cannot say what gemma-4-e2b has: per_layer_input"):
        export("megatron", Asked(symsim.load_model("gemma-4-e2b"), load_strategy("tp=1")), tmp_path / "x.sh")


STRETCHED = "torchtitan cannot say arithmetic.rope_type=default: what is written means llama3"


def test_the_newest_torchtitan_takes_a_function(tmp_path: Path) -> None:
    strategy = load_strategy("tp=2,sp=true,dp=4,zero=3,fusion=compile,tp_comm_overlap=true,cross_entropy_fusion=chunked,cross_entropy_chunks=16")
    (path,), said = export("torchtitan", Asked(symsim.load_model("llama3-8b"), strategy), tmp_path / "job.py")
    text = path.read_text()
    assert [sentence for sentence in said if "cannot say" in sentence] == [STRETCHED]
    assert 'model_spec = model_registry("8B")' in text and "from torchtitan.models.llama3 import model_registry" in text
    assert "enable_async_tensor_parallel=True" in text and "num_chunks=16" in text and "disable_cuda_graphs=True" in text
    compile(text, str(path), "exec")  # it is Python; nothing of it is run
    graphs = load_strategy("dp=4,zero=3,fusion=eager,cuda_graph_impl=full_iteration")
    (path,), said = export("torchtitan", Asked(symsim.load_model("llama3-8b"), graphs), tmp_path / "job.py")
    assert "disable_cuda_graphs" not in path.read_text() and [sentence for sentence in said if "cannot say" in sentence] == [STRETCHED]


@pytest.mark.parametrize("suffix", ["toml", "py"])
def test_micro_batches_of_a_flush_are_torchtitans(suffix: str, tmp_path: Path) -> None:
    text = "pp=4,dp=2,zero=3,fusion=compile,micro_batch_size=2,num_microbatches=24,pipeline_flushes=3,reshard_after_backward=false,schedule=gpipe"
    (path,), said = export("torchtitan", Asked(symsim.load_model("llama3-8b"), load_strategy(text)), tmp_path / f"job.{suffix}")
    back = symsim.load_job("torchtitan", str(path)).placed()
    assert (back.num_microbatches, back.pipeline_flushes, back.micro_batch_size) == (24, 3, 2)
    assert not [one for one in said if "pipeline_flushes" in one or "num_microbatches" in one]


def test_what_the_newest_torchtitan_has_no_more(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="torchtitan since 2026-02 has no llama2"):
        export("torchtitan", Asked(symsim.load_model("llama2-7b"), load_strategy("dp=4,zero=3")), tmp_path / "job.py")
    narrow = load_strategy("dp=4,zero=3,fp8=tensorwise")
    assert any("scales every row" in one for one in export("torchtitan", Asked(symsim.load_model("llama3-8b"), narrow), tmp_path / "job.py")[1])
    assert not any("scales every row" in one for one in export("torchtitan", Asked(symsim.load_model("llama3-8b"), narrow), tmp_path / "job.toml")[1])
    ring = load_strategy("dp=2,cp=2,zero=3,fusion=eager,cp_comm_type=p2p")
    _, said = export("torchtitan", Asked(symsim.load_model("llama3-8b"), ring), tmp_path / "job.py")
    assert "torchtitan cannot say cp_comm_type=p2p: what is written means all_gather" in said


@pytest.mark.parametrize(
    "options, assumed, written",
    [
        ({"log_params_norm": True, "log_num_zeros_in_grad": True}, {}, ["--log-params-norm", "--log-num-zeros-in-grad"]),
        ({}, {"deterministic_attention": "true", "allocator": "expandable"}, ["--deterministic-mode", "expandable_segments:True"]),
        ({"dsa_indexer_loss": "sparse"}, {}, ["--experimental-attention-variant dsa", "--dsa-indexer-topk 2048", "--dsa-indexer-use-sparse-loss"]),
        ({"offload_operations": ("moe.experts.fc1", "attention.core")}, {}, ["--offload-modules expert_fc1 core_attn"]),
        ({"mtp_num_layers": 1}, {"expert_load": "random"}, ["--mtp-num-layers 1", "--moe-router-force-load-balancing"]),
    ],
)
def test_what_megatron_has_an_argument_for_is_written(options: dict[str, Any], assumed: dict[str, str], written: list[str], tmp_path: Path) -> None:
    plan = {"tp": 2, "sp": True, "dp": 4, "ep": 8, "etp": 1, "moe_token_dispatcher_type": "alltoall"} | options
    result = symsim.derive("deepseek-v3.2", load_strategy(plan), assumed)
    (path,), said = export("megatron", Asked(result.model, result.strategy, assumptions=result.assumptions), tmp_path / "train.sh")
    text = path.read_text()
    assert [part for part in written if part not in text] == []
    named = {*options, *assumed, "dsa_indexer"}
    assert not [sentence for sentence in said if "cannot say" in sentence and any(name in sentence for name in named)]


def test_experts_one_after_the_other_are_written_by_leaving_an_argument_out(tmp_path: Path) -> None:
    for held, there in (("true", True), ("false", False)):
        asked = Asked(symsim.load_model("mixtral-8x7b"), load_strategy("dp=8,ep=8"), assumptions={"moe_grouped_gemm": held})
        (path,), said = export("megatron", asked, tmp_path / "train.sh")
        assert ("--moe-grouped-gemm" in path.read_text()) is there
        assert not [sentence for sentence in said if "moe_grouped_gemm" in sentence]


def test_heads_and_what_is_trained_beside_adapters_are_ms_swifts_too(tmp_path: Path) -> None:
    options = "tp=2,sp=true,tuner_type=lora,modules_to_save=embedding+lm_head,task_type=seq_cls,num_labels=7,gradient_accumulation_fusion=false"
    result = symsim.derive("llama3-8b", options, {"allocator": "expandable"})
    (path,), said = export("swift", Asked(result.model, result.strategy, assumptions=result.assumptions), tmp_path / "train.yaml")
    back = symsim.load_job("swift", str(path)).placed()
    assert (back.modules_to_save, back.task_type, back.num_labels) == (("embedding", "lm_head"), "seq_cls", 7)
    assert not [sentence for sentence in said if "cannot say" in sentence]
