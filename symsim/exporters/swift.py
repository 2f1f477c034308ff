"""A YAML of arguments for `megatron sft` of ms-swift: Megatron-LM's arguments by its names, a model of the hub and a data set that ms-swift knows.

Argument names and defaults: ms-swift at commit 3602360a5 (2026-08-22), swift/megatron/arguments/megatron_args.py, swift/megatron/model/utils.py;
types of models: mcore-bridge 1.6.5, which it reads them with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symsim.errors import InputError
from symsim.exporters import megatron
from symsim.importers.swift.megatron import OPPOSITE, RENAMED, SAME
from symsim.inputs.assumptions import resolve
from symsim.inputs.hub import sources
from symsim.inputs.reading import format_yaml
from symsim.inputs.strategy import Strategy
from symsim.inputs.trained import depths
from symsim.inputs.tuning import named
from symsim.lowering.adapt import ALL_LINEAR, MEGATRON_NAMES

if TYPE_CHECKING:
    from symsim.exporters.export import Asked

_LISTS = ("recompute_modules",)
# arguments of older versions alone
_GONE = frozenset(["log_params_norm", "moe_flex_dispatcher_backend"])
# more rows of packed samples than a hundred steps of most batches have
_DATA = "AI-ModelScope/alpaca-gpt4-data-en"
_MODELS = frozenset(
    """deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5 ernie4_5_moe gemma4 gemma4_unified glm4 glm4_moe glm4_moe_lite glm_moe_dsa gpt_oss
    internlm3 llama llama4 minimax_m2 nemotron_h olmoe qwen2 qwen2_moe qwen3 qwen3_5 qwen3_5_moe qwen3_moe qwen3_next""".split()
)
# parameters that are trained whole beside adapters
_WHOLE = {"embedding": "word_embeddings", "lm_head": "output_layer"}


def files(asked: "Asked") -> dict[str, str]:
    """train.yaml. InputError for a model that is on no hub, and for one that ms-swift's Megatron does not train."""
    a, s = asked.architecture, asked.strategy
    hub = sources().get(a.name)
    if hub is None:
        raise InputError(f"ms-swift trains a model of a hub, and {a.name} has no source there; 'symsim list models' has those that do")
    if a.modelling.removesuffix("_text") not in _MODELS:
        raise InputError(f"ms-swift does not train {a.name} by Megatron-Core: mcore-bridge reads {', '.join(sorted(_MODELS))}, not {a.modelling}")
    made: dict[str, Any] = {"ENV": _environment(asked), "model": hub, "dataset": [_DATA], "train_iters": 100}
    made |= {"max_length": s.seq_length, "packing": True, "torch_dtype": {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[s.precision]}
    made["recompute_granularity"] = s.recompute if s.recompute in ("full", "selective") else "none"
    made |= {"cross_entropy_loss_fusion": False, "use_distributed_optimizer": s.zero == 1}
    if s.vpp > 1:
        made["overlap_p2p_comm"] = s.overlap_p2p_comm
    elif s.pp > 1 and s.p2p_comm != "asynchronous":
        made["batch_p2p_comm"] = s.p2p_comm == "batched"
    back = {argument: key for names in (RENAMED, OPPOSITE) for key, argument in names.items()}
    for argument in megatron.run_arguments(asked):
        name = argument[0].removeprefix("--").replace("-", "_")
        key = back.get(name, name)
        if key in {*SAME, *RENAMED} - _GONE:
            made[key] = True if len(argument) == 1 else list(argument[1:]) if key in _LISTS else _value(argument[1])
    made |= {**_adapters(s), **_headed(s), **_dispatched(s)}
    if a.has_sinks and "attention_backend" not in made:
        # flash, the default there, has no sinks
        made["attention_backend"] = "fused"
    made |= {} if s.gradient_accumulation_fusion else {"gradient_accumulation_fusion": False}
    made["apply_rope_fusion"] = resolve(asked.assumptions)["apply_rope_fusion"] == "true"
    if made.get("cp_comm_type") == "a2a+p2p":
        # its two degrees are no arguments of ms-swift
        made["cp_comm_type"] = "p2p"
    if a.moe is not None:
        made["moe_router_load_balancing_type"] = s.moe_router_load_balancing_type
        made["moe_router_dtype"] = "fp32" if s.moe_router_dtype == "fp32" else "none"
    trained = depths(a, s.mtp_num_layers)
    return {"train.yaml": format_yaml({**made, **({"mtp_num_layers": trained} if trained else {})})}


def _environment(asked: "Asked") -> dict[str, Any]:
    """Variables; Megatron-FSDP wants more queues for kernels than the one that ms-swift sets."""
    node, nodes = megatron.machines(asked.strategy)
    queues = {"CUDA_DEVICE_MAX_CONNECTIONS": 32} if asked.strategy.zero in (2, 3) else {}
    return {"NPROC_PER_NODE": node, "NNODES": nodes, **queues, **megatron.environment(asked)}


def _dispatched(s: Strategy) -> dict[str, Any]:
    """What Megatron-Core knows of an exchange of tokens, and ms-swift has no arguments for; deepep is the default of both."""
    if s.moe_token_dispatcher_type != "flex":
        return {}
    given = {
        "moe_flex_dispatcher_backend": "" if s.moe_flex_dispatcher_backend == "deepep" else s.moe_flex_dispatcher_backend,
        f"moe_{s.moe_flex_dispatcher_backend}_num_sms": s.moe_flex_dispatcher_num_sms,
        "moe_permute_fusion_into_hybridep": s.moe_permute_fusion_into_hybridep,
        "moe_expert_rank_capacity_factor": s.moe_expert_rank_capacity_factor,
        "moe_paged_stash": s.moe_paged_stash,
    }
    given = {name: value for name, value in given.items() if value}
    return {"megatron_extra_kwargs": given} if given else {}


def _adapters(s: Strategy) -> dict[str, Any]:
    """LoRA, of linear maps by Megatron-Core's names."""
    if s.tuner_type != "lora":
        return {}
    # names alone, of all layers
    names = [ALL_LINEAR if entry.name == "layers" else entry.name for entry in map(named, s.target_modules)]
    targets = list(dict.fromkeys("all-linear" if name == ALL_LINEAR else MEGATRON_NAMES.get(name, name) for name in names))
    made: dict[str, Any] = {"tuner_type": "lora", "lora_rank": s.lora_rank, "lora_dropout": s.lora_dropout, "target_modules": targets}
    whole = [_WHOLE[name] for name in s.modules_to_save or () if name in _WHOLE]
    return {**made, "modules_to_save": whole} if whole else made


def _headed(s: Strategy) -> dict[str, Any]:
    """The head of a task that is no language model's."""
    if s.task_type == "seq_cls":
        return {"task_type": "seq_cls", "num_labels": s.num_labels}
    return {"task_type": "embedding"} if s.task_type == "embedding" else {}


def said(asked: "Asked") -> list[str]:
    return []


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
