"""A configuration of torchtitan in Python, as it takes them since 2026-02 in place of TOML files: one function that a run names.

Names: torchtitan b5bcd76c6 (2026-08-21), config/configs.py, trainer.py, components/loss.py, components/optimizer/optimizer.py,
distributed/activation_checkpoint.py, models/*/__init__.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from symsim.inputs.architecture import Architecture
from symsim.inputs.hub import sources
from symsim.inputs.strategy import Strategy
from symsim.inputs.trained import depths

if TYPE_CHECKING:
    from symsim.exporters.export import Asked

FUNCTION = "train"
_GONE = """pipeline_parallel_microbatch_size enable_async_tensor_parallel disable_loss_parallel context_parallel_rotate_method
    expert_parallel_comm_backend expert_tensor_parallel_degree""".split()
_CONVERTERS = {"tensorwise": "Float8LinearConverter", "mxfp8": "MXFP8LinearConverter"}
_PLACES = {
    "torchtitan.components.data": ("ConcatThenSplitPackingConfig", "GrainDataLoader"),
    "torchtitan.components.loss": ("ChunkedLossWrapper", "CrossEntropyLoss"),
    "torchtitan.components.optimizer": ("OptimizersContainer", "default_adamw"),
    "torchtitan.components.quantization": tuple(_CONVERTERS.values()),
    "torchtitan.config": ("CompileConfig", "ParallelismConfig", "TrainingConfig"),
    "torchtitan.distributed.activation_checkpoint": ("FullAC", "SelectiveAC"),
    "torchtitan.hf_datasets.text_datasets": ("DATASETS",),
    "torchtitan.models.common.config_utils": ("decoder_vocab_size",),
    "torchtitan.trainer": ("Trainer",),
}


@dataclass(frozen=True)
class _Text:
    """A piece of the file, as it stands there."""

    text: str


@dataclass(frozen=True)
class _Call:
    name: str
    fields: dict[str, Any]


def text(asked: "Asked", name: str, flavor: str, sections: dict[str, dict[str, Any]]) -> str:
    """The file. sections: those of the last version with TOML files."""
    a, s = asked.architecture, asked.strategy
    fields = {
        "model_spec": _Text("model_spec"),
        "hf_assets_path": f"./assets/hf/{sources().get(a.name, a.name).rpartition('/')[2]}",
        "loss": _loss(s),
        "optimizer": _Call("default_adamw", {"lr": 3e-4}),
        "training": _Call("TrainingConfig", _training(s, sections["training"])),
        "dataloader": _Text('GrainDataLoader.Config(dataset=ConcatThenSplitPackingConfig(dataset=DATASETS["c4"]))'),
        "parallelism": _Call("ParallelismConfig", _parallelism(s, sections["parallelism"])),
        "activation_checkpoint": _recomputed(s),
        "compile": _compiled(s),
    }
    body = f"def {FUNCTION}() -> Trainer.Config:\n    model_spec = {_written(_model(a, s, name, flavor, sections['parallelism']), 1)}\n"
    config = _written(_Call("Trainer.Config", {key: value for key, value in fields.items() if not _plain(value)}), 1)
    way = sections["optimizer"]["implementation"]
    if way != "fused":
        body += f"    config = {config}\n    config.optimizer.implementation = {_written(way, 1)}\n    return config\n"
    else:
        body += f"    return {config}\n"
    said = f"{a.name} on {s.world_size} ranks, for torchtitan since 2026-02 (b5bcd76c6):"
    head = f'"""{said} --config {FUNCTION},\nand --module with the name of this file, where Python finds it."""\n\n'
    used = {place: [one for one in names if f"{one}" in body] for place, names in _PLACES.items()}
    used[f"torchtitan.models.{name}"] = ["model_registry"]
    return head + "".join(f"from {place} import {', '.join(names)}\n" for place, names in sorted(used.items()) if names) + f"\n\n{body}"


def _plain(value: Any) -> bool:
    """Whether a call says nothing."""
    return isinstance(value, _Call) and not value.fields and value.name in ("ParallelismConfig", "CompileConfig")


def _model(a: Architecture, s: Strategy, name: str, flavor: str, parallelism: dict[str, Any]) -> _Call:
    fields: dict[str, Any] = {"": flavor}
    if "expert_parallel_comm_backend" in parallelism:
        fields["moe_comm_backend"] = parallelism["expert_parallel_comm_backend"]
    if s.tp_comm_overlap and s.fusion != "compile" and name == "llama3":
        fields["tp_gemm_backend"] = "dist_gemm"
    if s.fp8 in _CONVERTERS:
        # the output layer and routers run in 16 bits
        left = {"filter_fqns": ["lm_head", "router.gate"]} if s.fp8 == "tensorwise" else {"fqns": ["attention", "feed_forward"]}
        fields["converters"] = [_Call(f"{_CONVERTERS[s.fp8]}.Config", {**left, "model_compile_enabled": s.fusion == "compile"})]
    trained = depths(a, s.mtp_num_layers)
    if trained and name == "deepseek_v3":
        fields["num_mtp_layers"] = trained
    return _Call("model_registry", fields)


def _loss(s: Strategy) -> _Call | _Text:
    plain = _Text("CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model_spec))")
    if s.cross_entropy_fusion == "chunked":
        return _Call("ChunkedLossWrapper.Config", {"loss_fn": plain, **({"num_chunks": s.cross_entropy_chunks} if s.cross_entropy_chunks else {})})
    return plain


def _training(s: Strategy, older: dict[str, Any]) -> dict[str, Any]:
    """Rows as tokens; a pipeline cuts no batch, but runs so many micro-batches."""
    made: dict[str, Any] = {
        "num_tokens_per_microbatch_per_dp_rank": s.micro_batch_size * s.seq_length,
        "max_context_length": s.seq_length,
        "steps": older["steps"],
    }
    if s.pp == 1 or s.pipeline_flushes > 1:
        made["num_tokens_per_train_step"] = s.micro_batch_size * s.microbatches * s.dp * s.seq_length
    made |= {key: older[key] for key in ("max_norm", "dtype", "mixed_precision_param", "enable_cpu_offload") if key in older}
    if s.cuda_graph_impl != "full_iteration":
        made["disable_cuda_graphs"] = True
    return made


def _parallelism(s: Strategy, older: dict[str, Any]) -> dict[str, Any]:
    ones = [key for key, value in older.items() if key.endswith("_degree") and value == 1 and key != "data_parallel_shard_degree"]
    made = {key: value for key, value in older.items() if key not in (*_GONE, *ones)}
    if s.pp > 1:
        made["num_pp_microbatches"] = s.flush_microbatches
    if "module_fqns_per_model_part" in made:
        parts = made["module_fqns_per_model_part"]
        made["module_fqns_per_model_part"] = [["lm_head" if name == "output" else name for name in part] for part in parts]
    return made


def _recomputed(s: Strategy) -> _Call | None:
    if s.recompute == "none":
        return None
    return _Call("FullAC.Config" if s.recompute == "full" else "SelectiveAC.Config", {})


def _compiled(s: Strategy) -> _Call:
    if s.fusion != "compile":
        return _Call("CompileConfig", {})
    return _Call("CompileConfig", {"enable": True, **({"enable_async_tensor_parallel": True} if s.tp_comm_overlap else {})})


def _written(value: Any, deep: int) -> str:
    """A value as Python has it; calls of several words have a line each."""
    if isinstance(value, _Text):
        return value.text
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list) and any(isinstance(one, list) for one in value):
        inner = "    " * (deep + 1)
        return "[\n" + "".join(f"{inner}{_written(one, deep)},\n" for one in value) + "    " * deep + "]"
    if isinstance(value, list):
        return "[" + ", ".join(_written(one, deep) for one in value) + "]"
    if not isinstance(value, _Call):
        return repr(value)
    given = [(f"{key}=" if key else "") + _written(one, deep + 1) for key, one in value.fields.items()]
    if len(given) < 2:
        return f"{value.name}({', '.join(given)})"
    inner = "    " * (deep + 1)
    return f"{value.name}(\n" + "".join(f"{inner}{one},\n" for one in given) + "    " * deep + ")"
