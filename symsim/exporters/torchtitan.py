"""A torchtitan TOML: a model by its name and flavor, the mesh, batch, precision, recomputation and the optimizer; or the same in Python.

Keys: torchtitan at the parent of 9810191bb (2026-02-23, the last with TOML files), config/job_config.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from symsim.exporters import refused, torchtitan_python
from symsim.exporters.torchtitan_models import flavor_of
from symsim.importers.pytorch_pipeline import SCHEDULES
from symsim.importers.torchtitan.reader import spread
from symsim.inputs.architecture import Architecture
from symsim.inputs.hub import sources
from symsim.inputs.strategy import Strategy
from symsim.pipeline.stages import stages

if TYPE_CHECKING:
    from symsim.exporters.export import Asked

_SPELT = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved1f1b": "Interleaved1F1B",
    "loopedbfs": "LoopedBFS",
    "interleavedzerobubble": "InterleavedZeroBubble",
    "zbvzerobubble": "ZBVZeroBubble",
    "dualpipev": "DualPipeV",
}
_IMPLEMENTATIONS = {"fused": "fused", "foreach": "foreach", "for_loop": "for-loop"}
_CONVERTERS = {"tensorwise": "float8", "mxfp8": "mx"}
_MOST_EVERY = 1000
Section = dict[str, Any]


def files(asked: "Asked") -> dict[str, str]:
    """train.toml, or train.py where a file in Python is asked for. InputError for a model that is no flavor of torchtitan's, and for what it
    does not start with."""
    a, s = asked.architecture, asked.strategy
    suffix = asked.suffix or ".toml"
    name, flavor = flavor_of(a, suffix)
    refused.check(refused.rules_of("torchtitan", suffix), a, s)
    sections: dict[str, Section] = {
        "model": {
            "name": name,
            "flavor": flavor,
            "hf_assets_path": f"./assets/hf/{sources().get(a.name, a.name).rpartition('/')[2]}",
            **_converters(s),
        },
        "optimizer": _optimizer(asked),
        "training": _training(s),
        "parallelism": {**_mesh(s), **_overlap(asked), **_pipeline(a, s)},
        "activation_checkpoint": _recomputed(a, s, asked.assumptions),
    }
    if s.fp8 in _CONVERTERS:
        sections[f"quantize.linear.{_CONVERTERS[s.fp8]}"] = {"filter_fqns": ["output", "router.gate"]}
    if s.fusion == "compile":
        sections["compile"] = {"enable": True}
    if asked.suffix == ".py":
        return {"train.py": torchtitan_python.text(asked, name, flavor, sections)}
    text = f"# {a.name} on {s.world_size} ranks; for the last torchtitan with TOML files (the parent of 9810191bb, 2026-02-23)\n"
    for section, keys in sections.items():
        text += f"\n[{section}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in keys.items())
    return {"train.toml": text}


def said(asked: "Asked") -> list[str]:
    if asked.suffix == ".py" and asked.strategy.fp8 == "tensorwise":
        return ["torchtitan scales every row of a product in 8 bits, not a tensor, since 2026-02"]
    return []


def _converters(s: Strategy) -> Section:
    return {"converters": [f"quantize.linear.{_CONVERTERS[s.fp8]}"]} if s.fp8 in _CONVERTERS else {}


def _optimizer(asked: "Asked") -> Section:
    way = asked.assumptions.get("optimizer_implementation", "fused")
    return {"name": "AdamW", "lr": 3e-4, "implementation": _IMPLEMENTATIONS.get(way, "fused")}


def _training(s: Strategy) -> Section:
    """With a pipeline the local batch is what is cut into micro-batches; gradients of several are accumulated."""
    local = s.micro_batch_size * (s.flush_microbatches if s.pp > 1 else 1)
    made: Section = {"local_batch_size": local, "seq_len": s.seq_length, "steps": 1000, "dataset": "c4"}
    if s.pp == 1 or s.pipeline_flushes > 1:
        made["global_batch_size"] = s.micro_batch_size * s.microbatches * s.dp
    if s.clip_grad:
        made["max_norm"] = float(s.clip_grad)
    made["dtype"] = "bfloat16" if s.precision == s.main_params_dtype == "bf16" else "float32"
    made["mixed_precision_param"] = "float32" if s.precision == "fp32" else "bfloat16"
    return {**made, **({"enable_cpu_offload": True} if s.optimizer_cpu_offload and s.zero == 3 else {})}


def _mesh(s: Strategy) -> Section:
    replicas = s.num_distributed_optimizer_instances if s.zero else s.dp
    made = {
        "data_parallel_replicate_degree": replicas,
        "data_parallel_shard_degree": s.dp // replicas,
        "tensor_parallel_degree": s.tp,
        "context_parallel_degree": s.cp,
        "pipeline_parallel_degree": s.pp,
        "expert_parallel_degree": s.ep,
    }
    if s.ep > 1:
        made["expert_tensor_parallel_degree"] = s.expert_tp
    return made


def _overlap(asked: "Asked") -> Section:
    s, assumed = asked.strategy, asked.assumptions
    made: Section = {}
    if s.zero == 3:
        made["fsdp_reshard_after_forward"] = "never" if s.reshard_after_forward is False else "always"
    if s.cp > 1:
        made["context_parallel_rotate_method"] = "alltoall" if s.cp_comm_type == "p2p" else "allgather"
    if s.tp_comm_overlap:
        made["enable_async_tensor_parallel"] = True
    if s.tp > 1 and assumed.get("loss_parallel") == "false":
        made["disable_loss_parallel"] = True
    if s.ep > 1 and assumed.get("moe_exchange") == "once_per_node":
        made["expert_parallel_comm_backend"] = "deepep"
    return made


def _pipeline(a: Architecture, s: Strategy) -> Section:
    """The schedule, and which modules every stage holds, where torchtitan's own spread of the layers is another."""
    if s.pp == 1:
        return {}
    asked = "interleaved" if s.schedule == "1f1b" and s.vpp > 1 else s.schedule
    name = next((name for name, (schedule, _) in SCHEDULES.items() if schedule == asked), "1f1b")
    made: Section = {"pipeline_parallel_schedule": _SPELT[name], "pipeline_parallel_microbatch_size": s.micro_batch_size}
    chunks = sorted((chunk for stage in stages(a, s, 0) for chunk in stage.chunks), key=lambda chunk: (chunk.first, chunk.last))
    counts = [chunk.last - chunk.first for chunk in chunks]
    ends = chunks[0].embedding and chunks[-1].loss
    if ends and s.vpp == SCHEDULES[name][1] and counts == spread(len(counts), a.num_layers, 1, 1):
        return made
    parts = [["tok_embeddings"] * c.embedding + [f"layers.{layer}" for layer in range(c.first, c.last)] + ["norm", "output"] * c.loss for c in chunks]
    return {**made, "module_fqns_per_model_part": parts}


def _recomputed(a: Architecture, s: Strategy, assumed: Mapping[str, str]) -> Section:
    early = {"early_stop": assumed.get("recompute_early_stop") == "true"}
    if s.recompute == "full" and s.recompute_method == "block":
        chunk = -(-a.num_layers // (s.pp * s.vpp))
        nth = next((n for n in range(2, min(chunk, _MOST_EVERY) + 1) if math.ceil(chunk / n) == s.recompute_num_layers), None)
        return {"mode": "selective", "selective_ac_option": str(nth), **early} if nth else {"mode": "full", **early}
    if s.recompute == "full":
        return {"mode": "full", **early}
    if s.recompute.startswith("sac_"):
        return {"mode": "selective", "selective_ac_option": "op", **early}
    return {"mode": "none"}


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)
