"""Configurations in Python (since 2026-02) by the keys of the last version with TOML files, and what they ask for besides.

Names: torchtitan b5bcd76c6 (2026-08-21), config/configs.py, trainer.py, components/loss.py, components/optimizer/optimizer.py,
components/quantization/*.py, components/lora.py, distributed/activation_checkpoint.py, models/common/config_utils.py, overrides/*.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from symsim.errors import InputError
from symsim.importers.adapted import Names, adapters
from symsim.importers.keys import Entry, Given, Keys, Silent, silent
from symsim.importers.torchtitan.registry import Configuration
from symsim.importers.trainer import DATA, EVALUATION, LOGS, PATHS, RATES, SAVING

if TYPE_CHECKING:
    from symsim.inputs.architecture import Architecture

_RENAMED = {
    "hf_assets_path": "model.hf_assets_path",
    "hf_model": "hf_transformers.model",
    "dump_folder": "job.dump_folder",
    "training.max_context_length": "training.seq_len",
    "compile.enable_async_tensor_parallel": "parallelism.enable_async_tensor_parallel",
    "activation_checkpoint.force_recompute_mm_shapes_by_fqns": "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns",
    "debug.print_config": "job.print_config",
    "debug.save_config_file": "job.save_config_file",
    "model_spec.flavor": "model.flavor",
    "model_spec.0": "model.flavor",
    "model_spec.moe_comm_backend": "parallelism.expert_parallel_comm_backend",
}
_SECTIONS = {"profiler": "profiling", "validator": "validation"}
_TOKENS, _STEP = "training.num_tokens_per_microbatch_per_dp_rank", "training.num_tokens_per_train_step"
_PIECES, _GRAPHS, _GEMMS = "parallelism.num_pp_microbatches", "training.disable_cuda_graphs", "model_spec.tp_gemm_backend"
_MODES = {"FullAC": "full", "SelectiveAC": "selective", "MemoryBudgetAC": "memory_budget", "memory-budget": "memory_budget"}
_SECTION_OF = {
    "Float8LinearConverter": "quantize.linear.float8",
    "MXFP8LinearConverter": "quantize.linear.mx",
    "NVFP4LinearConverter": "quantize.linear.nvfp4",
    "Float8GroupedExpertsConverter": "quantize.grouped_mm.float8",
    "MXFP8GroupedExpertsConverter": "quantize.grouped_mm.mx",
    "LoRAConverter": "lora",
}
_LINEAR_MAPS = {"wq": ("q_proj",), "wk": ("k_proj",), "wv": ("v_proj",), "wkv": ("k_proj", "v_proj"), "wqkv": ("q_proj", "k_proj", "v_proj")}
_LINEAR_MAPS |= {"wo": ("o_proj",), "w1": ("gate_proj",), "w2": ("down_proj",), "w3": ("up_proj",)}
_ADAPTED = Names("lora.rank", "lora.dropout", "lora.target_modules", "lora.modules_to_save")
_FUSED = {"fused_swiglu": "activation", "fused_grouped_experts": "activation", "helion_rope": "rope"}

_CLASSES = "which class, files and outputs"
SECTIONS: dict[str, Silent] = {
    **silent("no_cost_effect", DATA, "dataloader tokenizer"),
    **silent("no_cost_effect", LOGS, "metrics profiling.profiler_active"),
    **silent("no_cost_effect", RATES, "lr_scheduler optimizer.param_groups optimizer.optimizer_factory_kwargs_by_name"),
    **silent("no_cost_effect", EVALUATION, "validation.dataloader validation.freq validation.steps"),
    **silent("no_cost_effect", SAVING, "checkpoint"),
    **silent("no_cost_effect", "the loss of the next token", "loss.loss_fn loss.global_vocab_size"),
    **silent("no_cost_effect", "whether the layers around it are compiled, which compile says", "converters.model_compile_enabled"),
}
SILENT: dict[str, Silent] = {
    **silent("no_cost_effect", _CLASSES, "model_spec training parallelism compile comm debug profiling validation optimizer override dataloader"),
    **silent("no_cost_effect", PATHS, "debug.enable_structured_logging"),
    **silent("no_cost_effect", "which of PyTorch's interfaces places tensors: the same shards", "parallelism.spmd_backend debug.spmd_typechecking"),
    **silent("no_cost_effect", "which kernel computes attention: a fused one either way", "model_spec.attn_backend"),
    **silent("no_cost_effect", "rows of experts padded by a few, for their products", "quantize.grouped_mm.mx.pad_multiple"),
    **silent("no_cost_effect", "how much an adapter's output counts", "lora.alpha"),
    **silent("no_cost_effect", "of a mask that context parallelism is balanced by", "parallelism.context_parallel_ptrr_mask_key"),
    **silent("not_modelled", "gathers in symmetric memory: fewer multiprocessors taken from products", "parallelism.enable_fsdp_symm_mem"),
    **silent("not_modelled", "records of every operation: for finding faults alone", "debug.detect_anomaly"),
    **silent("not_modelled", "memory for a fixed number of rows of experts, however many arrive", "model_spec.non_blocking_capacity_factor"),
}


def of_registry(made: Configuration) -> tuple[dict[str, Given], dict[str, Given], dict[str, str]]:
    """The keys as they are written, by the names and values of the last version with TOML files, and the written names by those."""
    written = _placed(made)
    found: dict[str, Given] = {}
    old: dict[str, str] = {}
    for key, one in written.items():
        head, dot, rest = key.partition(".")
        name = _RENAMED.get(key, f"{_SECTIONS[head]}{dot}{rest}" if head in _SECTIONS else key)
        found[name] = one
        if name != key:
            old[name] = key
    where = made.where
    if made.module is not None:
        written["--module"] = found["model.name"] = made.module
        old["model.name"] = "--module"
    _recomputed(found, old, where)
    _optimizer(found, old)
    _rows(found, old, where)
    _converted(found, old)
    if "training.local_batch_size" not in written:
        found.setdefault(_GRAPHS, Given(False, where))
        old[_GRAPHS] = _GRAPHS
    return written, found, old


def _placed(made: Configuration) -> dict[str, Given]:
    """Arguments by place under their names: of `model_registry("8B")` and `default_adamw(3e-4)`."""
    names = {"model_spec.0": "model_spec.flavor", "optimizer.0": "optimizer.lr"}
    return {names.get(key, key): one for key, one in made.given.items()}


def _whole(found: Mapping[str, Given], key: str, default: int) -> int:
    one = found.get(key)
    if one is None or one.value is None:
        return default
    if type(one.value) is not int or one.value < 1:
        raise InputError(f"{one.where}: {key} is {str(one.value)[:60]}; it should be a whole number above 0")
    return int(one.value)


def _rows(found: dict[str, Given], old: dict[str, str], where: str) -> None:
    """Tokens of a micro-batch and of a step, as rows of seq_len tokens; a pipeline's micro-batches are so many times as many rows."""
    if _TOKENS not in found and "training.local_batch_size" in found:
        return
    length, tokens = _whole(found, "training.seq_len", 2048), _whole(found, _TOKENS, 16384)
    where = found[_TOKENS].where if _TOKENS in found else where
    if tokens % length:
        raise InputError(f"{where}: {_TOKENS} is {tokens}; it should be a multiple of training.max_context_length, {length}, for rows of that length")
    whole = found.get(_STEP)
    pieces = _whole(found, _PIECES, 1) if _whole(found, "parallelism.pipeline_parallel_degree", 1) > 1 else 1
    for name, key, value in (
        ("training.local_batch_size", _TOKENS, tokens // length * pieces),
        ("parallelism.pipeline_parallel_microbatch_size", _PIECES, tokens // length),
    ):
        found[name] = Given(value, found.pop(key).where if key in found else where)
        old[name] = key
    if whole is not None:
        many = whole.value if whole.value == -1 else _whole(found, _STEP, 1) // length
        found["training.global_batch_size"] = Given(many, found.pop(_STEP).where)
        old["training.global_batch_size"] = _STEP


def _recomputed(found: dict[str, Given], old: dict[str, str], where: str) -> None:
    """A class for the mode; every second product runs again in the selective one, which is the default."""
    one = found.get("activation_checkpoint")
    if one is None and "activation_checkpoint.mode" in found:
        return
    mode = "none" if one is not None and one.value is None else str(one.value if one is not None else "selective").rpartition(".")[2]
    if one is not None:
        where = one.where
        found["activation_checkpoint.mode"] = Given(_MODES.get(mode, mode), found.pop("activation_checkpoint").where)
        old["activation_checkpoint.mode"] = "activation_checkpoint"
    if _MODES.get(mode, mode) == "selective":
        found["activation_checkpoint.selective_ac_option"] = Given("op", where)
        old["activation_checkpoint.selective_ac_option"] = "activation_checkpoint (SelectiveAC)"


def _optimizer(found: dict[str, Given], old: dict[str, str]) -> None:
    """The optimizer of the first group that is none of AdamW's, else AdamW."""
    groups = [key for key in found if key.startswith("optimizer.param_groups.") and key.endswith(".optimizer_name")]
    if not groups:
        return
    first = next((key for key in groups if str(found[key].value).casefold() not in ("adamw", "adam")), groups[0])
    found["optimizer.name"] = Given(str(found[first].value).removeprefix("Dist"), found[first].where)
    old["optimizer.name"] = first
    del found[first]


def _converted(found: dict[str, Given], old: dict[str, str]) -> None:
    """Converters of linear maps as sections of their own."""
    key = "model_spec.converters"
    if key not in found:
        return
    names = found[key].value if isinstance(found[key].value, list) else [found[key].value]
    for number, name in enumerate(names):
        section, above = _SECTION_OF.get(str(name), f"model_spec.converters.{name}"), f"{key}.{number}."
        for inner in [inner for inner in found if inner.startswith(above)]:
            rest = inner.removeprefix(above)
            renamed = "converters.model_compile_enabled" if rest == "model_compile_enabled" else f"{section}.{rest}"
            found[renamed] = found.pop(inner)
            old[renamed] = inner
        if section.startswith("quantize.grouped_mm"):
            found.setdefault(f"{section}.fqns", Given(["experts"], found[key].where))
            old.setdefault(f"{section}.fqns", f"{key}.{number} ({name})")
        if name == "Float8LinearConverter":
            # of a TOML file it is a scale for a tensor
            found.setdefault(f"{section}.recipe_name", Given("rowwise", found[key].where))
            old.setdefault(f"{section}.recipe_name", f"{key}.{number}.recipe_name")
    found["model.converters"] = Given([_SECTION_OF.get(str(name), str(name)) for name in names], found.pop(key).where)
    old["model.converters"] = key


def apply(keys: Keys, strategy: dict[str, Any], architecture: "Architecture | None") -> None:
    """What configurations in Python say that TOML files have no key for."""
    _loss(keys, strategy)
    _graphs(keys, strategy)
    _adapters(keys, strategy, architecture)
    _overridden(keys, strategy)
    _narrow(keys, strategy, architecture)
    depths = keys.integer("model_spec.num_mtp_layers", 0, to="mtp_num_layers")
    if depths and architecture is not None and architecture.mtp_num_layers:
        strategy["mtp_num_layers"] = depths
    if keys.text(_GEMMS, "default", to="tp_comm_overlap") != "default":
        strategy["tp_comm_overlap"] = True


def _loss(keys: Keys, strategy: dict[str, Any]) -> None:
    name = str(keys.text("loss", "")).rpartition(".")[2]
    chunks = keys.integer("loss.num_chunks", None, to="cross_entropy_chunks", least=1)
    if name == "ChunkedLossWrapper":
        strategy |= {"cross_entropy_fusion": "chunked", **({"cross_entropy_chunks": chunks} if chunks else {})}
        keys.note("loss", to="cross_entropy_fusion", why="the output layer and the loss, a chunk of tokens after the other")
    elif name:
        keys.note("loss", "no_cost_effect", why="the loss of the next token, op by op")


def _graphs(keys: Keys, strategy: dict[str, Any]) -> None:
    """Forward and backward are one CUDA graph unless that is switched off, or a pipeline is there."""
    if keys.flag(_GRAPHS, True, to="cuda_graph_impl") or strategy["pp"] > 1:
        return
    strategy["cuda_graph_impl"] = "full_iteration"
    keys.note(_GRAPHS, to="cuda_graph_impl", why="forward and backward of a micro-batch are launched as one")


def _adapters(keys: Keys, strategy: dict[str, Any], architecture: "Architecture | None") -> None:
    if "lora" in keys.texts("model.converters", []):
        told = [part for name in keys.texts(_ADAPTED.targets, []) for part in _LINEAR_MAPS.get(name, (name,))]
        adapters(keys, strategy, architecture, _ADAPTED, told)
        keys.note("model.converters", to="tuner_type" if strategy.get("fp8", "none") == "none" else "fp8, tuner_type")
        if not told:
            # components/lora.py convert: every Linear.Config, lm_head's among them
            why = "the output layer and routers have adapters there too, by default: rank numbers more of each of their inputs and outputs"
            keys.rows[_ADAPTED.targets] = Entry(_ADAPTED.targets, "(default)", "not_modelled", "target_modules", why)


def _overridden(keys: Keys, strategy: dict[str, Any]) -> None:
    """Fused kernels in place of modules, by the functions that put them there."""
    named = [name.rpartition(".")[2] for name in keys.texts("override.imports", [], to="fused_kernels")]
    fused = sorted({_FUSED[name] for name in named if name in _FUSED})
    left = [name for name in named if name not in _FUSED]
    if fused and strategy["fusion"] == "eager":
        strategy["fused_kernels"] = tuple(fused)
    elif fused:
        keys.note("override.imports", "no_cost_effect", why="kernels are fused already")
    if left:
        keys.note("override.imports", "not_modelled", "fused_kernels", f"{', '.join(left)}: kernels in place of modules, which are not known here")


def _narrow(keys: Keys, strategy: dict[str, Any], architecture: "Architecture | None") -> None:
    """Which linear maps a converter takes: all, by parts of their names, or those of leading layers (`nvfp4_bf16_tail_fqns(layers, share)`)."""
    section = {"mxfp8": "quantize.linear.mx", "nvfp4": "quantize.linear.nvfp4"}.get(str(strategy.get("fp8")))
    if section is None:
        return
    key = f"{section}.fqns"
    keys.known |= {key, f"{key}.0", f"{key}.0.0"}
    share = keys.number(f"{key}.1", None, to="num_layers_at_end_in_bf16")
    named = set(keys.texts(key, [], to="fp8"))
    if share is not None:
        layers = architecture.num_layers if architecture is not None else 0
        strategy["num_layers_at_end_in_bf16"] = math.ceil(layers * share)
    elif not named and section.endswith("mx"):
        strategy["fp8_output_proj"] = True
    elif not named:
        keys.note("model.converters", "not_modelled", "fp8", "the output layer's products are narrow too there, and in 16 bits here")
    elif not ("layers" in named or {"attention", "feed_forward"} <= named):
        keys.note(key, "not_modelled", "fp8", "linear maps with these names alone are narrow there, all of a layer here")
