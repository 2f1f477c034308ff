"""What sharded parameters are gathered ahead, kept gathered or never sharded: the limits of FSDP, in elements.

Without a limit a unit (a layer) is gathered while the one before it computes, and freed after it. With limits, as DeepSpeed has
them, every module that is entered gathers whole parameters ahead until there are `prefetch_bucket_size` more, unless
`max_live_parameters` are gathered already: more modules are entered than have parameters, so that the latter number is reached. What
is needed again within `max_reuse_distance` parameters is not freed; and what has at most `param_persistence_threshold` elements is
never sharded.

Source: DeepSpeed runtime/zero/partitioned_param_coordinator.py fetch_sub_module, __params_to_release; partition_parameters.py.
"""

from __future__ import annotations

from symsim.algebra.expr import ONE, ZERO, Expr, expr, floor, maximum, minimum, product, symbol
from symsim.algebra.key import layers, of_block
from symsim.cost.count import counted_parameters
from symsim.cost.shared_weights import borrowed
from symsim.inputs.strategy import Strategy
from symsim.ir.block import MODULES, Op, Tensor
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import elements
from symsim.lowering.lowered import Lowered


def held(lowered: Lowered, block: str, *, expert: bool | None = None) -> Expr:
    """Parameters of a block that one rank holds before they are sharded; expert: those of experts, or all others'."""
    own = {t.module for t in counted_parameters(lowered.blocks[block].placed) if expert is None or (t.module == "experts") == expert}
    return sum((of_block("P", block, module=m).expr for m in MODULES if m in own), ZERO)


def replicated(strategy: Strategy, expert: bool) -> bool:
    """Whether the experts, or all other parameters, are whole on every rank where FSDP shards the rest (Megatron-LM
    docs/api-guide/core/generalized_tensor_parallel.md: groups of weight shards for experts alone, or for the others)."""
    if strategy.zero != 3 or strategy.expert_shard_ranks is None:
        return False
    return (strategy.expert_shard_ranks if expert else strategy.dp * strategy.cp // strategy.num_distributed_optimizer_instances) == 1


def unsharded(lowered: Lowered, block: str, *, expert: bool | None = None) -> Expr:
    """Of the parameters that a rank holds of a block, those of a part that is whole on every rank."""
    parts = [part for part in (False, True) if replicated(lowered.profile.strategy, part) and expert in (None, part)]
    return sum((held(lowered, block, expert=part) for part in parts), ZERO)


def never_sharded(lowered: Lowered, block: str, *, expert: bool | None = None) -> Expr:
    """Of those, the parameters that stay whole on every rank, for they are small, or of a part that is not sharded."""
    if whole := unsharded(lowered, block, expert=expert):
        return whole
    threshold = lowered.profile.strategy.param_persistence_threshold
    if not threshold or lowered.profile.strategy.zero != 3:
        return ZERO
    return sum((whole * small(one, threshold) for whole, one in _parameters(lowered, block, expert)), ZERO)


def small(size: Expr, threshold: int) -> Expr:
    """1 where a parameter has at most so many elements, else 0."""
    return minimum(1, maximum(0, threshold + 1 - size))


def sharded(lowered: Lowered, placed: Placed, op: Op) -> Expr:
    """1 where an operation reads a parameter that is sharded, else 0."""
    threshold = lowered.profile.strategy.param_persistence_threshold
    read = [placed.block.tensors[t] for t in op.inputs if placed.block.tensors[t].kind == "parameter"]
    if read and all(replicated(lowered.profile.strategy, t.module == "experts") for t in read):
        return ZERO
    if not threshold:
        return ONE
    return 1 - product(small(_alone(lowered, placed, t), threshold) for t in read)


def kept_layers(lowered: Lowered, kind: str) -> Expr:
    """Layers of a kind that stay gathered between forward and backward: a parameter that y others follow is needed again after
    2 y, so the last half of `max_reuse_distance` parameters stay; kinds have their shares of them."""
    distance = lowered.profile.strategy.max_reuse_distance
    if not distance:
        return ZERO
    everything = sum((held(lowered, k) * layers(k).expr for k in lowered.profile.model.kind_names()), ZERO)
    # a stage may have no layer
    return floor(layers(kind).expr * minimum(1, expr(distance) / (2 * maximum(1, everything))))


def by_parameter(lowered: Lowered) -> bool:
    """Whether parameters are gathered one by one, and not a layer's together."""
    limited = (getattr(lowered.profile.strategy, name) is not None for name in ("prefetch_bucket_size", "max_live_parameters"))
    return any(limited) and lowered.profile.assumptions["fsdp_unit"] == "module"


def at_work(lowered: Lowered, kind: str) -> Expr:
    """Parameters gathered for what computes: a layer's, or the largest of them."""
    whole = held(lowered, kind) - never_sharded(lowered, kind) + borrowed(lowered, kind)
    return _largest(lowered, kind) if by_parameter(lowered) else whole


def ahead(lowered: Lowered, kind: str, kept: Expr = ZERO) -> Expr:
    """Parameters gathered for what computes next, beside what computes and `kept` others."""
    everything = sum((held(lowered, k) * layers(k).expr for k in lowered.profile.model.kind_names()), ZERO)
    limit = _limit(lowered, at_work(lowered, kind) + kept)
    if limit is None:
        return held(lowered, kind) - never_sharded(lowered, kind) + borrowed(lowered, kind)
    if by_parameter(lowered):
        # whole parameters until the limit is reached, so that the last may exceed it by all but one element
        return minimum(everything, limit + _largest(lowered, kind) * minimum(1, limit))
    unit = held(lowered, kind) - never_sharded(lowered, kind)
    return minimum(unit if lowered.profile.strategy.prefetch_bucket_size is None else everything, limit)


def late(lowered: Lowered, kind: str) -> Expr:
    """The share of a layer's parameters that is gathered only when the layer is at work: 0 without a limit, and where parameters are
    gathered one by one and any are gathered ahead."""
    limit = _limit(lowered, at_work(lowered, kind))
    if limit is None:
        return ZERO
    unit = ONE if by_parameter(lowered) else held(lowered, kind) - never_sharded(lowered, kind)
    return 1 - minimum(1, limit / unit)


def _limit(lowered: Lowered, gathered: Expr) -> Expr | None:
    """Parameters that may be gathered ahead while so many are; None: no limit."""
    size, live = lowered.profile.strategy.prefetch_bucket_size, lowered.profile.strategy.max_live_parameters
    if live is None:
        return None if size is None else expr(size)
    room = maximum(0, live - gathered)
    return room if size is None or (size and by_parameter(lowered)) else minimum(size, room)


def _largest(lowered: Lowered, kind: str) -> Expr:
    return maximum(*(one for _, one in _parameters(lowered, kind)))


def _parameters(lowered: Lowered, block: str, expert: bool | None = None) -> list[tuple[Expr, Expr]]:
    """Elements of each parameter of a block on one rank, and of one of its tensors: each expert has its own."""
    placed = lowered.blocks[block].placed
    owned = [t for t in counted_parameters(placed) if expert is None or (t.module == "experts") == expert]
    return [(elements(placed, t.name), _alone(lowered, placed, t)) for t in owned]


def _alone(lowered: Lowered, placed: Placed, tensor: Tensor) -> Expr:
    whole = elements(placed, tensor.name)
    return whole / (symbol("E") / lowered.mesh.degree("ep")) if "E" in tensor.dims else whole
