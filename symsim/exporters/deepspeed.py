"""A DeepSpeed JSON: batch, precision, ZeRO and the optimizer. The model and the trainer's own arguments are not in it.

Keys: DeepSpeed 0.16.4, runtime/config.py and runtime/zero/config.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from symsim.exporters import refused
from symsim.inputs.strategy import Strategy

if TYPE_CHECKING:
    from symsim.exporters.export import Asked

_BUCKETS = {"ddp_bucket_size": "reduce_bucket_size", "allgather_bucket_size": "allgather_bucket_size"}
_LIMITS = ("max_live_parameters", "max_reuse_distance", "prefetch_bucket_size", "param_persistence_threshold")
_OPTIMIZERS = {
    **{"adam": "AdamW", "sgd": "SGD", "sgd_momentum": "SGD", "lion": "Lion", "lamb": "Lamb", "muon": "Muon"},
    **{"onebit_adam": "OneBitAdam", "onebit_lamb": "OneBitLamb", "zero_one_adam": "ZeroOneAdam"},
}
# the version whose types without ZeRO are others (runtime/engine.py _do_optimizer_sanity_check)
_CHANGED = "0.17.6"
# that ZeRO takes without being told to (runtime/zero/utils.py)
_TESTED = ("adam", "lion")


def files(asked: "Asked") -> dict[str, str]:
    """ds.json. InputError for types that no version puts together."""
    s = asked.strategy
    refused.check(refused.rules_of("deepspeed"), asked.architecture, s)
    made: dict[str, Any] = {
        # DeepSpeed counts tensor ranks as replicas, and refuses another number
        "train_batch_size": s.micro_batch_size * s.microbatches * s.dp * s.tp,
        "train_micro_batch_size_per_gpu": s.micro_batch_size,
        "gradient_accumulation_steps": s.microbatches,
        "gradient_clipping": s.clip_grad,
        "bf16": {"enabled": s.precision == "bf16"},
        "fp16": {"enabled": s.precision == "fp16"},
        "data_types": {"grad_accum_dtype": "fp32" if s.grad_reduce_in_fp32 else s.precision},
        "optimizer": {"type": _OPTIMIZERS.get(s.optimizer, "AdamW"), "params": {"lr": 1e-4}},
        "zero_optimization": _zero(s, asked),
    }
    if s.optimizer == "sgd_momentum":
        made["optimizer"]["params"]["momentum"] = 0.9
    if s.zero and s.optimizer not in _TESTED:
        made["zero_allow_untested_optimizer"] = True
    if s.cp > 1 and s.cp_comm_type == "a2a":
        made |= {"sequence_parallel_size": s.cp, "data_parallel_size": s.dp}
    if s.tp > 1:
        made["tensor_parallel"] = {"autotp_size": s.tp}
    return {"ds.json": json.dumps(made, indent=2) + "\n"}


def said(asked: "Asked") -> list[str]:
    s, model = asked.strategy, asked.architecture
    found = [f"a DeepSpeed JSON holds no model and no sequence length: the trainer is told {model.name} and {s.seq_length}"]
    if s.tp > 1 and model.moe is not None:
        found.append(f"experts with autotp_size={s.tp} are split without sequence parallelism, which is not modelled: the file is not read back")
    if s.tp > 1 and s.zero == 3:
        # runtime/engine.py _configure_tensor_parallel_states
        found.append("DeepSpeed has tensor ranks beside ZeRO stage 3 in newer versions alone: 0.19.5 starts so, 0.16.4 does not")
    if s.optimizer == "muon":
        found.append(f"DeepSpeed has Muon since {_CHANGED}")
    if s.zero == 0 and s.precision == "bf16":
        runs = f"before {_CHANGED} alone" if s.grad_reduce_in_fp32 else f"since {_CHANGED} alone"
        found.append(f"DeepSpeed sums gradients of bf16 in {'fp32' if s.grad_reduce_in_fp32 else 'bf16'} without ZeRO {runs}")
    return found


def _zero(s: Strategy, asked: "Asked") -> dict[str, Any]:
    prefetch = asked.assumptions.get("fsdp_prefetch", "true") == "true"
    made: dict[str, Any] = {"stage": s.zero, "overlap_comm": prefetch if s.zero == 3 else s.overlap_grad_reduce}
    made["contiguous_gradients"] = asked.assumptions.get("reduction_buffers", "one") != "none"
    keys = {**_BUCKETS, **({name: f"stage3_{name}" for name in _LIMITS} if s.zero == 3 else {})}
    made |= {key: getattr(s, name) for name, key in keys.items() if getattr(s, name) is not None}
    if s.optimizer_cpu_offload:
        made["offload_optimizer"] = {"device": s.optimizer_offload_device, "pin_memory": True}
        if s.optimizer_offload_fraction < 1 and s.zero == 3:
            made["offload_optimizer"]["ratio"] = s.optimizer_offload_fraction
    if s.offload_parameters:
        made["offload_param"] = {"device": "cpu", "pin_memory": True}
    if s.zero == 3 and s.reshard_after_forward is not True and s.reshard_after_forward is not False:
        made["zero_hpz_partition_size"] = int(s.reshard_after_forward)
    if s.num_distributed_optimizer_instances > 1:
        made["mics_shard_size"] = s.dp // s.num_distributed_optimizer_instances
    return made
