"""Weights split finer than tensor parallelism splits products: sharded data parallelism of groups inside the replicas.

Megatron-LM at d98e8a64, core/model_parallel_config.py, docs/api-guide/core/generalized_tensor_parallel.md: the ranks of a group have other
data, gather each weight ahead of its product, forward and backward, and scatter its gradient.
"""

from __future__ import annotations

from typing import Any

from symsim.importers.keys import Keys

_DENSE, _EXPERTS = "tensor_parallel_num_weight_shards", "expert_tensor_parallel_num_weight_shards"
_SIZES = {_DENSE: "gtp_weight_remat_size", _EXPERTS: "expert_gtp_weight_remat_size"}


def weight_shards(keys: Keys, strategy: dict[str, Any], mixture: bool, experts: bool) -> None:
    """The groups of weight shards as FSDP of several instances, behind what says the data-parallel degree.

    mixture: the model has experts; experts: it may have.
    """
    tp = int(strategy.get("tp", 1))
    degree = _degree(keys, _DENSE, tp)
    own = _degree(keys, _EXPERTS, int(strategy.get("etp", tp)))
    ranks = int(strategy["dp"]) * int(strategy.get("cp", 1))
    told = experts and keys.has(_given(keys, _EXPERTS))
    if degree == 1 and not (told and own > 1):
        return
    sharded = strategy.get("zero", 1) != 0
    if degree == 1 and not sharded:
        why = f"a rank would keep 1/{own} of experts' bytes, and gather the rest twice and scatter gradients once a micro-batch"
        keys.note(_given(keys, _EXPERTS), "not_modelled", why=f"without use_distributed_optimizer the other states are whole: {why}")
        return
    of_experts = ranks * tp // (int(strategy.get("etp", tp)) * int(strategy.get("ep", 1)))
    for size, shared, key in ((degree, ranks, _DENSE), (own if experts else 1, of_experts, _EXPERTS)):
        if shared % size:
            raise keys.wrong(_given(keys, key), f"{'etp' if key == _EXPERTS else 'tp'} times a divisor of the {shared} ranks that share a weight")
    if strategy.pop("num_distributed_optimizer_instances", 1) > 1:
        keys.refuse("num_distributed_optimizer_instances", "Megatron-LM runs weights in shards with one instance")
    strategy["zero"] = 3
    if ranks > degree:
        strategy["num_distributed_optimizer_instances"] = ranks // degree
    if sharded and (ranks > degree or (experts and of_experts > own)):
        strategy["outer_dp_sharding_strategy"] = "optim"
    if degree > 1:
        keys.note(
            _given(keys, _DENSE), "mapped", "zero, num_distributed_optimizer_instances", f"3, of groups of {degree} ranks, ahead of the computation"
        )
    if (told or mixture) and not sharded and own == 1 < of_experts:
        why = f"without use_distributed_optimizer experts' states are whole there; here they are in {ranks // degree} copies, as the other weights"
        keys.note(_given(keys, _EXPERTS) if told else _EXPERTS, "not_modelled", why=why)
        return
    if told or mixture:
        strategy["expert_shard_ranks"] = own
    if told:
        why = f"groups of {own} ranks gather and scatter experts' weights" if own > 1 else "experts' weights are whole on every rank"
        why += ", the others are whole on every rank" if degree == 1 else ""
        keys.note(_given(keys, _EXPERTS), "mapped", "zero, expert_shard_ranks", why)


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
