"""What an Automodel recipe shards over data ranks, and when its gradients are reduced and its parameters freed.

What the keys do: Automodel 36044ad3, components/moe/fsdp_mixin.py, components/moe/parallelizer.py, components/distributed/utils.py get_sync_ctx.
"""

from __future__ import annotations

from typing import Any

from symsim.importers.keys import Keys

_STRATEGIES = {"fsdp2": "fsdp2", "megatron_fsdp": "megatron_fsdp", "ddp": "ddp"}
_MANAGERS = {
    "FSDP2Manager": "fsdp2",
    "FSDP2Config": "fsdp2",
    "MegatronFSDPManager": "megatron_fsdp",
    "NVFSDPManager": "megatron_fsdp",
    "DDPManager": "ddp",
}
_EMPTIED = "with a pipeline parameters are kept after backward and gradients reduced when it has emptied"
_DEFERRED = "gradients wait unsharded for the last micro-batch, by default"
_OLDER = "parallelizer._target_"
_OUTER, _OWN = "distributed.moe.wrap_outer_model", "model.backend.enable_fsdp_optimizations"


def sharded(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str]) -> None:
    kind = keys.choice("distributed.strategy", _STRATEGIES, None, to="zero")
    manager = str(keys.given["distributed._target_"].value).rpartition(".")[2] if "distributed._target_" in keys.given else ""
    if kind is None:
        kind = _MANAGERS.get(manager, "fsdp2")
    # components/distributed/config.py MoEParallelizerConfig
    again = keys.flag("distributed.reshard_after_forward", strategy["ep"] == 1, to="reshard_after_forward")
    again = keys.flag("parallelizer.reshard_after_forward", again, to="reshard_after_forward")
    experts = keys.flag("distributed.moe.reshard_after_forward", again, to="reshard_after_forward", why="units of experts and of the rest alike here")
    stage = keys.integer("distributed.zero_dp_strategy", 3, to="zero")
    waits = keys.flag("distributed.defer_fsdp_grad_sync", True, to="gradient_sync")
    overlaps = [keys.flag(f"distributed.{name}", True, to=name) for name in ("overlap_grad_reduce", "overlap_param_gather")]
    if keys.flag("distributed.average_in_collective", False, to="assume.gradient_scaling"):
        assumptions["gradient_scaling"] = "collective"
    keys.number("distributed.bucket_cap_mb", None, to="ddp_bucket_size")
    if kind == "ddp" or strategy["dp"] * strategy["cp"] == 1:
        strategy |= {"zero": 0, "overlap_grad_reduce": True}
        strategy.pop("num_distributed_optimizer_instances", None)
        return
    strategy["zero"] = min(stage, 3) if kind == "megatron_fsdp" else 3
    if strategy["zero"] < 3:
        strategy |= {"overlap_grad_reduce": overlaps[0], "overlap_param_gather": overlaps[0] and overlaps[1]}
        return
    if not again or not experts:
        strategy["reshard_after_forward"] = False
    if kind == "fsdp2":
        _gradients(keys, strategy, waits)
    assumptions["fsdp_parameters"] = "both" if kind == "megatron_fsdp" else "main"


def _gradients(keys: Keys, strategy: dict[str, Any], waits: bool) -> None:
    """When FSDP2 reduces gradients, and whether it frees parameters after backward. The units of a model whose experts are spread are their own
    roots where the model around them is none: a pipeline finds none to tell, unless the model's own rule does."""
    # until 2026 the unit around the model was none
    outer = keys.flag(_OUTER, _OLDER not in keys.given, to="gradient_sync")
    own = keys.flag(_OWN, False, to="gradient_sync, reshard_after_backward")
    if strategy["ep"] == 1 and _OUTER in keys.given:
        keys.note(_OUTER, "no_cost_effect", why="read where experts are spread over ranks alone")
    apart = strategy["ep"] > 1 and not outer
    several = strategy["num_microbatches"] > 1
    if strategy["pp"] > 1 and apart:
        if own:
            strategy |= {"reshard_after_backward": False, "gradient_sync": "last_microbatch"}
    elif strategy["pp"] > 1 and waits:
        often = "every_flush" if strategy.get("pipeline_flushes", 1) > 1 else "last_microbatch"
        strategy |= {"reshard_after_backward": False, "gradient_sync": often}
        keys.note("distributed.strategy", "derived", "zero, reshard_after_backward, gradient_sync", _EMPTIED)
    elif strategy["pp"] == 1 and several and own and strategy["ep"] > 1:
        strategy |= {"reshard_after_backward": False, "gradient_sync": "last_microbatch"}
    elif strategy["pp"] == 1 and several and waits and not apart:
        strategy["gradient_sync"] = "last_microbatch"
        if "distributed.defer_fsdp_grad_sync" not in keys.given:
            keys.note("distributed.defer_fsdp_grad_sync", "derived", "gradient_sync", _DEFERRED)
