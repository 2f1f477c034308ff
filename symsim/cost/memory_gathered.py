"""Parameters gathered for use, and the buffers of gathers and reductions, while a block runs under FSDP."""

from __future__ import annotations

from symsim.algebra.expr import ONE, ZERO, Expr, expr, maximum, minimum, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key, layers, of_block
from symsim.algebra.kinds import EMBEDDING, HEAD
from symsim.cost.gathering import ahead, at_work, kept_layers, replicated, unsharded
from symsim.cost.held import before_output, held_output_layer, trained_of, trained_output_layer, trained_part
from symsim.cost.memory_narrow import narrow_ahead, narrow_at_work, narrow_everywhere
from symsim.cost.memory_rank import Rank, stream, total
from symsim.cost.memory_static import gradient_width
from symsim.cost.reduce import shards
from symsim.cost.stored import instead_gathered
from symsim.ir.block import MODULES, WIDTHS
from symsim.ir.roles import role_of


def parameters_of(rank: Rank, kind: str) -> Expr:
    return total(key.expr for key in _parameters(rank.book, kind))


def trained_parameters(rank: Rank, kind: str) -> Expr:
    return total(trained_of(rank.book, "P", kind, key.module) for key in _parameters(rank.book, kind))


def unit_bytes(rank: Rank, kind: str) -> Expr:
    """Bytes of a layer's parameters, gathered."""
    return WIDTHS[rank.strategy.precision] * (parameters_of(rank, kind) - unsharded(rank.lowered, kind)) + instead_gathered(rank.lowered, kind)


def gathered_width(rank: Rank, kind: str) -> Expr:
    """Bytes that a gathered parameter of a layer takes, in the mean."""
    precision, less = WIDTHS[rank.strategy.precision], instead_gathered(rank.lowered, kind)
    return precision + less / parameters_of(rank, kind) if less else expr(precision)


def reduction_buffer(rank: Rank, kind: str) -> Expr:
    """The buffer from which a layer's gradients are reduced, or a bucket's; none where one is always there (assumption reduction_buffers)."""
    bucket = rank.strategy.ddp_bucket_size
    if rank.assume["reduction_buffers"] != "none":
        return ZERO
    return (trained_parameters(rank, kind) - _replicated(rank, kind) if bucket is None else expr(bucket)) * gradient_width(rank)


def _replicated(rank: Rank, kind: str) -> Expr:
    """Of a layer's trained parameters, those of a part that is whole on every rank, whose gradients no micro-batch reduces."""
    own = [key for key in _parameters(rank.book, kind) if replicated(rank.strategy, key.module == "experts")]
    return total(trained_of(rank.book, "P", kind, key.module) for key in own)


def whole_gradients(rank: Rank, name: str) -> Expr:
    """Gradients that stay whole until they are reduced, where their owners accumulate shards: of one chunk of the rank while its group of
    micro-batches runs; under zero=2 of the block at work, where no other buffer takes them."""
    strategy = rank.strategy
    if strategy.gradient_sync == "every_group":
        return total(trained_part(rank.lowered, part) for part in ("dense", "expert")) * gradient_width(rank) / strategy.vpp
    if strategy.zero != 2 or strategy.gradient_sync in ("every_flush", "last_microbatch") or not rank.framework.main_gradients:
        return ZERO
    role = role_of(name)
    if not role.on_stream:
        own = trained_output_layer(rank.book, rank.lowered) if role.behind else trained_of(rank.book, "P", name, "embedding")
        return own * gradient_width(rank) * symbol(role.largest)
    return trained_parameters(rank, name) * gradient_width(rank) * rank.has[name]


def still_gathered(rank: Rank) -> Expr:
    """Layers that are gathered whatever runs: all where nothing is freed before the step, or the rank's other chunks where forward frees none."""
    strategy = rank.strategy
    if strategy.zero != 3 or (strategy.reshard_after_backward and (strategy.reshard_after_forward is not False or strategy.vpp == 1)):
        return ZERO
    everything = total(unit_bytes(rank, k) * layers(k).expr for k in rank.model.kind_names()) + narrow_everywhere(rank)
    return everything * (1 - expr(1) / strategy.vpp) if strategy.reshard_after_backward else everything


def shard_gradients(rank: Rank, parameters: Expr) -> Expr:
    """Reduced gradients of so many parameters, where no buffer holds them from the start."""
    return ZERO if rank.framework.main_gradients else parameters * gradient_width(rank) / shards(rank.lowered, False).shard


def gathered_parameters(rank: Rank, name: str, *, backward: bool = False) -> Expr:
    """Whole parameters, and buffers of their gathers, while a block runs under FSDP (torch distributed/fsdp/_fully_shard):
    the root's stay gathered, forward keeps the last gather's buffer until the next, backward gathers one unit ahead; of a rank alone, which gathers
    nothing and copies its own, none of either."""
    if rank.strategy.zero != 3:
        return ZERO
    width = WIDTHS[rank.strategy.precision]
    root, kinds = width * root_parameters(rank), rank.model.kind_names()
    several = _several(rank)
    kept = total(kept_layers(rank.lowered, k) * parameters_of(rank, k) for k in kinds)
    largest = several * maximum(*((gathered_width(rank, k) * ahead(rank.lowered, k, kept) + narrow_ahead(rank, k)) * rank.has[k] for k in kinds))
    everything = total(unit_bytes(rank, k) * layers(k).expr for k in kinds) + narrow_everywhere(rank)
    after_forward = rank.strategy.reshard_after_forward
    resharded = after_forward is not False and rank.strategy.reshard_after_backward
    part = ZERO if isinstance(after_forward, bool) or not resharded else everything / after_forward
    if role_of(name).before:
        return root + part + still_gathered(rank) if backward else root * (1 + several)
    if role_of(name).of_root:
        return root + part + (width * kept if resharded else everything) + (largest if resharded or not backward else ZERO)
    next_to_run = gathered_width(rank, name) * ahead(rank.lowered, name, kept) + narrow_ahead(rank, name) if resharded or not backward else ZERO
    next_to_run = several * next_to_run
    working = maximum(kept, at_work(rank.lowered, name)) if kept else at_work(rank.lowered, name)
    running = gathered_width(rank, name) * working + narrow_at_work(rank, name)
    return root + part + (running if resharded else everything) + next_to_run


def copied_out(rank: Rank, name: str) -> Expr:
    """The same as a layer's gathered parameters are copied out in forward, until when the buffer of the gather before is there too
    (torch distributed/fsdp/_fully_shard/_fsdp_param_group.py wait_for_unshard)."""
    return gathered_parameters(rank, name) + _several(rank) * gathered_width(rank, name) * ahead(rank.lowered, name)


def _several(rank: Rank) -> Expr:
    """1 where several ranks share parameters, 0 where one has all of its own (torch distributed/fsdp/_fully_shard/_fsdp_param_group.py unshard)."""
    return ONE if rank.strategy.expert_shard_ranks is not None else minimum(1, shards(rank.lowered, False).shard - 1)


def first_gather(rank: Rank) -> Expr:
    """The root's gathered parameters and its gather's buffer, the first layer's two, and what the embedding made."""
    kind = rank.model.layers[0].kinds[0]
    root = WIDTHS[rank.strategy.precision] * root_parameters(rank)
    return ((1 + _several(rank)) * (root + unit_bytes(rank, kind)) + stream(rank) + of_block("A", EMBEDDING).expr) * symbol("first_i")


def trained_root(rank: Rank) -> Expr:
    """Of the root's parameters, those that are trained."""
    found = trained_of(rank.book, "P", EMBEDDING, "embedding") * symbol("embedding_i") + trained_output_layer(rank.book, rank.lowered)
    for module in before_output(rank.book):
        found = found + trained_of(rank.book, "P", HEAD, module) * symbol("last_layer_i")
    return found


def root_parameters(rank: Rank) -> Expr:
    if replicated(rank.strategy, False):
        return ZERO
    found = of_block("P", EMBEDDING, module="embedding").expr * symbol("embedding_i") + held_output_layer(rank.book)
    for module in before_output(rank.book):
        found = found + of_block("P", HEAD, module=module).expr * symbol("last_layer_i")
    return found


def _parameters(book: Derivation, block: str) -> list[Key]:
    return [key for key in (of_block("P", block, module=m) for m in MODULES) if key in book]
