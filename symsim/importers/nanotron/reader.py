"""A nanotron YAML.

What its keys do: nanotron 2411b022 (2026-04-07), src/nanotron/trainer.py, helpers.py, models/base.py build_model, parallel/tensor_parallel/nn.py,
optim/gradient_accumulator.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError
from symsim.importers.documents import SAID, documents_said, packed_rows
from symsim.importers.job import Job
from symsim.importers.keys import Entry, Keys
from symsim.importers.nanotron.model import AT, model_of
from symsim.importers.nanotron.tables import SECTIONS, SILENT
from symsim.importers.optimizers import OPTIMIZERS
from symsim.importers.ranks import known_variables, world_size
from symsim.importers.repeated import read_repeated
from symsim.importers.rules import settle, split_sequence
from symsim.importers.sections import of_sections, under
from symsim.importers.trainer import buckets

if TYPE_CHECKING:
    from symsim.importers.reading import Options
    from symsim.inputs.architecture import Architecture

_TYPES = {
    spelling: short for short, long in (("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32")) for spelling in (long, f"torch.{long}", short)
}
_ENGINES = {"1f1b": "1f1b", "afab": "gpipe", "ONE_FORWARD_ONE_BACKWARD": "1f1b", "ALL_FORWARD_ALL_BACKWARD": "gpipe"}
_MODES = {spelling: split for name, split in (("all_reduce", False), ("reduce_scatter", True)) for spelling in (name, name.upper())}
_KERNELS = {
    "bias_activation_fusion": "an activation and its gate are kernels of their own",
    "bias_dropout_fusion": "the residual addition is a kernel of its own",
    "gradient_accumulation_fusion": "weight gradients are written and then added",
}
# the older name first
_BESIDE = ("tp_column_linear_async_communication", "tp_linear_async_communication")


def read(inputs: Sequence[str], options: "Options") -> Job:
    """The job of a nanotron YAML. InputError for a key that there is not or a value that cannot be."""
    if len(inputs) != 1:
        raise InputError(f"'symsim import nanotron' reads one YAML, and {len(inputs)} files are given")
    known_variables(options, SAID)
    document, repeated = read_repeated(inputs[0], options.lenient, "nanotron's loader")
    given = of_sections(document, ("data_stages",))
    keys = Keys("a nanotron file", given, {**SILENT, **under(SECTIONS, given)}, options.lenient)
    strategy: dict[str, Any] = {"fusion": "te"}
    assumptions: dict[str, str] = {}
    _mesh(keys, strategy, assumptions, options)
    architecture = model_of(keys, options, int(strategy["tp"]), strategy)
    _batch(keys, strategy, options)
    _update(keys, strategy, assumptions)
    _kernels(keys, strategy, assumptions)
    if keys.flag("parallelism.moe_layer_recompute", False, to="recompute, recompute_modules") and architecture is not None and architecture.moe:
        strategy |= {"recompute": "selective", "recompute_modules": ["moe"]}
    if keys.flag("parallelism.recompute_layer", False, to="recompute"):
        strategy["recompute"] = "full"
        strategy.pop("recompute_modules", None)
    _stages(keys, strategy, architecture)
    settle(keys, strategy, architecture, "nanotron")
    split_sequence(keys, strategy, architecture, "nanotron")
    told = [row for row in keys.finish() if row.value != "(default)" or row.fate in ("derived", "not_modelled")]
    notes = () if architecture is not None else ("the file describes no model: --of MODEL gives one",)
    plain = {"tp": 1, "cp": 1, "pp": 1, "ep": 1}
    strategy = {name: value for name, value in strategy.items() if plain.get(name) != value or name not in plain}
    return Job("nanotron", (*told, *repeated), architecture, strategy, None, assumptions, notes)


def _mesh(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], options: "Options") -> None:
    for name, option in (
        ("tp", "tp"),
        ("pp", "pp"),
        ("dp", "dp"),
        ("context_parallel_size", "cp"),
        ("expert_parallel_size", "ep"),
    ):
        strategy[option] = keys.integer(f"parallelism.{name}", 1, to=option, least=1)
    each = strategy["tp"] * strategy["cp"] * strategy["pp"]
    world = world_size(options)
    if world is not None and world != each * strategy["dp"]:
        raise InputError(f"--var world={world}: the degrees of {keys.place('parallelism.dp')} make {each * strategy['dp']} ranks")
    if strategy["ep"] > 1:
        strategy["etp"] = 1
        keys.rows["etp"] = Entry("etp", "(default)", "derived", "etp", "experts are whole on their ranks")
    split = keys.choice("parallelism.tp_mode", _MODES, False, to="sp")
    if split and strategy["tp"] > 1:
        strategy["sp"] = True
    elif split:
        keys.note("parallelism.tp_mode", "no_cost_effect", why="nothing to split at tp=1")
    beside = False
    for key in _BESIDE:
        beside = keys.flag(f"parallelism.{key}", beside, to="assume.tp_async_backward", why="messages beside products in backward")
    again = keys.flag("parallelism.tp_recompute_allgather", True, to="assume.save_gathered", why="gathers run again for weight gradients")
    if strategy["tp"] == 1:
        for key in (*_BESIDE, "tp_recompute_allgather"):
            if f"parallelism.{key}" in keys.given:
                keys.note(f"parallelism.{key}", "no_cost_effect", why="no messages at tp=1")
        return
    if beside:
        assumptions["tp_async_backward"] = "true"
    if not again:
        assumptions["save_gathered"] = "true"


def _batch(keys: Keys, strategy: dict[str, Any], options: "Options") -> None:
    for key, option in (("micro_batch_size", "micro_batch_size"), ("batch_accumulation_per_replica", "num_microbatches")):
        found = keys.integer(f"tokens.{key}", None, to=option, least=1)
        if found is None:
            keys.note(f"tokens.{key}", "derived", option, "1, since the file does not say")
        strategy[option] = found or 1
    strategy["seq_length"] = keys.integer("tokens.sequence_length", None, to="seq_length", least=1)
    if strategy["seq_length"] is None:
        raise InputError(f"{keys.place('tokens.sequence_length')}: tokens.sequence_length is not given")
    said = documents_said(options, strategy)
    if keys.flag(f"{AT}._use_doc_masking", False):
        packed_rows(keys, f"{AT}._use_doc_masking", said)


def _update(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    """Types, the optimizer, and replicas: PyTorch's DDP, whose buckets leave beside the last backward."""
    strategy["precision"] = keys.choice("model.dtype", _TYPES, "bf16", to="precision")
    wide = keys.flag("optimizer.accumulate_grad_in_fp32", True, to="grad_reduce_in_fp32, main_params_dtype")
    strategy["grad_reduce_in_fp32"] = wide or strategy["precision"] == "fp32"
    if not wide and strategy["precision"] != "fp32":
        strategy["main_params_dtype"] = strategy["precision"]
        keys.note("optimizer.accumulate_grad_in_fp32", to="grad_reduce_in_fp32, main_params_dtype", why="weights are updated as they are")
    stage = keys.choice("optimizer.zero_stage", {"0": 0, "1": 1}, 0, to="zero")
    strategy |= {"zero": stage, "overlap_grad_reduce": True}
    name = str(keys.text("optimizer.optimizer_factory.name", "adamW")).casefold()
    if name not in ("adamw", "adam", "sgd"):
        raise keys.wrong("optimizer.optimizer_factory.name", "adamW or sgd")
    OPTIMIZERS[name].apply(keys, "optimizer.optimizer_factory.name", strategy, assumptions)
    # the older place of the optimizer's keys
    fused = keys.flag("optimizer.torch_adam_is_fused", False, to="assume.optimizer_implementation")
    if not keys.flag("optimizer.optimizer_factory.torch_adam_is_fused", fused, to="assume.optimizer_implementation") and name != "sgd":
        assumptions["optimizer_implementation"] = "foreach"
    strategy["clip_grad"] = keys.number("optimizer.clip_grad", 0.0, to="clip_grad")
    buckets(keys, strategy, "model.ddp_bucket_cap_mb", 4 if wide else 2)
    if "model.ddp_bucket_cap_mb" not in keys.given:
        strategy["ddp_bucket_size"] = 25 * 2**20 // (4 if wide else 2)
        keys.note("model.ddp_bucket_cap_mb", "derived", "ddp_bucket_size", "25 MiB by default")


def _kernels(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    for option, why in _KERNELS.items():
        strategy[option] = False
        keys.rows[option] = Entry(option, "(default)", "derived", option, why)
    kernel = str(keys.text(f"{AT}._attn_implementation", "flash_attention_2", to="assume.attention_kernel"))
    if kernel == "eager":
        assumptions["attention_kernel"] = "math"
    if strategy["cp"] > 1 and "ring" not in kernel:
        strategy["cp_comm_type"] = "all_gather"
    if keys.flag(f"{AT}._fused_rms_norm", True, to="norm_fusion") is False:
        strategy["norm_fusion"] = False
    if keys.flag(f"{AT}._fused_rotary_emb", True, to="assume.apply_rope_fusion"):
        assumptions["apply_rope_fusion"] = "true"
    factor = keys.number(f"{AT}.moe_capacity_factor", None, to="moe_expert_capacity_factor")
    if factor is not None:
        strategy["moe_expert_capacity_factor"] = factor
    keys.flag(f"{AT}._use_qkv_packed", True, to="attention.fused_qkv", why="queries, keys and values of one product")


def _stages(keys: Keys, strategy: dict[str, Any], architecture: "Architecture | None") -> None:
    """The engine, and layers over stages by their FLOPs, the head among them (build_model)."""
    engine = keys.choice("parallelism.pp_engine", _ENGINES, "1f1b", to="schedule")
    pp = int(strategy["pp"])
    if pp == 1:
        if "parallelism.pp_engine" in keys.given:
            keys.note("parallelism.pp_engine", "no_cost_effect", why="one stage needs no schedule")
        return
    strategy["schedule"] = engine
    if architecture is None:
        return
    counts = spread_layers(architecture, pp) if pp <= architecture.num_layers + 1 else [0, 0]
    if 0 in counts[:-1] or sum(counts) != architecture.num_layers:
        raise keys.wrong("parallelism.pp", f"a number of stages that {architecture.num_layers} layers and the head fill")
    parts = [f"t*{count}" if count else "" for count in counts]
    strategy["pipeline_model_parallel_layout"] = "|".join(["E" + parts[0], *parts[1:-1], parts[-1] + "L"])
    why = "layers over stages by their products, the head counted: " + " ".join(map(str, counts))
    keys.rows["stages"] = Entry("stages", "(default)", "derived", "pipeline_model_parallel_layout", why)


def spread_layers(architecture: "Architecture", pp: int) -> list[int]:
    """Layers of every stage: a stage is full once the sum of costs has passed its share; embedding and losses cost nothing."""
    width, heads = architecture.hidden_size, architecture.attention
    inner = architecture.mlp.ffn_hidden_size if architecture.mlp is not None else 0
    layer = 4 * heads.num_attention_heads * architecture.head_dim * width
    layer += 3 * inner * width
    costs = [0, *[layer] * architecture.num_layers, 0, architecture.vocab_size * width]
    stage, done, counts = 0, 0, [0] * pp
    for place, cost in enumerate(costs):
        if 0 < place <= architecture.num_layers:
            counts[stage] += 1
        done += cost
        if done * pp > sum(costs) * (stage + 1) and stage < pp - 1:
            stage += 1
    return counts
