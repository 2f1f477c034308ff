"""Weights split finer than tensor parallelism splits products: sharded data parallelism of groups inside the replicas.

Megatron-LM at d98e8a64, core/model_parallel_config.py, docs/api-guide/core/generalized_tensor_parallel.md: the ranks of a group have other
data, gather each weight ahead of its product, forward and backward, and scatter its gradient.
"""

from __future__ import annotations

from typing import Any

from symsim.importers.keys import Keys

_DENSE, _EXPERTS = "tensor_parallel_num_weight_shards", "expert_tensor_parallel_num_weight_shards"
_SIZES = {_DENSE: "gtp_weight_remat_size", _EXPERTS: "expert_gtp_weight_remat_size"}


def weight_shards(keys: Keys, strategy: dict[str, Any], assumptions: dict[str, str], experts: bool) -> None:
    """The groups of weight shards as FSDP of several instances, behind what says the data-parallel degree."""
    tp = int(strategy.get("tp", 1))
    degree = _degree(keys, _DENSE, tp)
    own = _degree(keys, _EXPERTS, int(strategy.get("etp", tp)))
    ranks = int(strategy["dp"]) * int(strategy.get("cp", 1))
    if degree == 1:
        for key in (_EXPERTS, _SIZES[_EXPERTS]):
            if own > 1 and experts and keys.has(key):
                told = f"a rank would keep 1/{own} of their bytes, and gather the rest twice and scatter gradients once a micro-batch"
                keys.note(key, "not_modelled", why=f"of experts' weights alone: {told}")
        return
    if ranks % degree:
        raise keys.wrong(_given(keys, _DENSE), f"tp times a divisor of the {ranks} ranks that share a weight")
    sharded = strategy.get("zero", 1) != 0
    strategy["zero"] = 3
    strategy.pop("num_distributed_optimizer_instances", None)
    if ranks > degree:
        strategy["num_distributed_optimizer_instances"] = ranks // degree
        if sharded:
            strategy["outer_dp_sharding_strategy"] = "optim"
    assumptions["fsdp_unit"] = "module"
    keys.note(_given(keys, _DENSE), "mapped", "zero, num_distributed_optimizer_instances", f"3, of groups of {degree} ranks: a gather a weight")
    if experts and own > 1:
        why = f"experts' weights have as many instances as the others: {ranks // degree}"
        keys.note(_given(keys, _EXPERTS), "mapped", "num_distributed_optimizer_instances", why)


def _given(keys: Keys, key: str) -> str:
    return key if keys.has(key) else _SIZES[key]


def _degree(keys: Keys, key: str, tensor: int) -> int:
    """Ranks of a group: the shards over the tensor-parallel degree, or as given."""
    shards, ranks = keys.integer(key, None, least=1), keys.integer(_SIZES[key], None, least=1)
    for name in (key, _SIZES[key]):
        if keys.has(name):
            keys.note(name, "no_cost_effect", why="one shard a tensor-parallel rank")
    if shards is not None and shards % tensor:
        raise keys.wrong(key, f"a multiple of the {tensor} ranks that split a product")
    return shards // tensor if shards is not None else ranks or 1
