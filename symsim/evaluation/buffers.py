"""Gradient buffers as Megatron-Core lays them out: buckets of parameters, padded for sharding.

A numeric walk over one rank's parameters (its length grows with the layers held; the closed forms do not need it).
Source: megatron.core optimizer/param_layout.py, distributed/distributed_data_parallel.py (0.20.0).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from symsim.algebra.kinds import DEPTH, EMBEDDING, HEAD
from symsim.cost.count import counted_parameters
from symsim.cost.gathering import replicated
from symsim.cost.reduce import bucket_size, expert_groups, shards
from symsim.evaluation.numbers import Evaluation
from symsim.ir.block import Tensor
from symsim.lowering.differentiate import elements
from symsim.pipeline.shared import own_copies
from symsim.pipeline.stages import Stage

PARAMETER_ALIGNMENT = 64
BUCKET_ALIGNMENT = 128
HIGH_BUSBW_ALIGNMENT = 2**16


@dataclass(frozen=True)
class Buffer:
    """One contiguous gradient buffer: elements of each bucket, and of all without the padding of their ends (Megatron-Core's
    numel_unpadded; parameters start at multiples of PARAMETER_ALIGNMENT)."""

    chunk: int
    kind: str
    shard: int
    buckets: tuple[int, ...]
    parameters: int

    @property
    def elements(self) -> int:
        return sum(self.buckets)


def gradient_buffers(result: Evaluation, stage: Stage) -> list[Buffer]:
    """For each model chunk of a rank of the stage, the dense buffer and that of the experts where they have their own group.

    Only the first chunk of the first stage has several buckets (Megatron-Core disables bucketing on later chunks and stages).
    """
    strategy, separate = result.strategy, expert_groups(result.lowered)
    sharing = {kind: shards(result.lowered, kind == "expert") for kind in ("dense", "expert")}
    size = int(bucket_size(strategy, sharing["dense"].ranks).evaluate(result.values))
    made = []
    for chunk in range(len(stage.chunks)):
        owned: dict[str, list[tuple[int, bool]]] = {"dense": [], "expert": []}
        for held, module, alone in _parameters(result, stage, chunk):
            owned["expert" if separate and module == "experts" else "dense"].append((held, alone))
        limit = size if stage.index == chunk == 0 else None
        for kind, sizes in owned.items():
            if sizes:
                # what every rank has whole is padded for those that own its states
                over = sharing[kind].ranks if replicated(strategy, kind == "expert") else sharing[kind].shard
                shard = int(over.evaluate(result.values))
                padded = strategy.zero > 0
                split = buckets(sizes, shard, limit, padded, padded and strategy.pad_buckets_for_high_nccl_busbw)
                made.append(Buffer(chunk, kind, shard, tuple(split), sum(fills(sizes, limit, padded))))
    return made


def buckets(sizes: list[tuple[int, bool]], shard: int, limit: int | None, padded: bool, busbw: bool) -> Iterator[int]:
    """Bucket lengths, last parameter first (the order of backward). PyTorch's DistributedDataParallel closes its buckets the
    same way."""
    unit = bucket_unit(shard, padded, busbw)
    for filled in fills(sizes, limit, padded):
        yield -(-filled // unit) * unit


def bucket_unit(shard: int, padded: bool, busbw: bool) -> int:
    """What a bucket's length is a multiple of."""
    return math.lcm(shard, BUCKET_ALIGNMENT, HIGH_BUSBW_ALIGNMENT if busbw else 1) if padded else 1


def fills(sizes: list[tuple[int, bool]], limit: int | None, padded: bool) -> Iterator[int]:
    """Bucket lengths before their ends are padded: a bucket closes when it holds `limit` elements. padded (the distributed
    optimizer's layout): parameters start aligned, and one that is `alone` gets a bucket of its own."""
    filled = 0
    for size, alone in reversed(sizes):
        start = -(-filled // PARAMETER_ALIGNMENT) * PARAMETER_ALIGNMENT if padded else filled
        alone = alone and padded
        if alone and filled:
            yield start
            start = 0
        filled = start + size
        if alone or (limit is not None and filled >= limit):
            yield filled
            filled = 0
    if filled:
        yield filled


def _parameters(result: Evaluation, stage: Stage, chunk: int) -> Iterator[tuple[int, str, bool]]:
    """Parameters of a rank's model chunk in the order of the model: (elements, module, gets a bucket of its own).

    A table of which other stages hold a copy is alone (language_module.py setup_embeddings_and_output_layer).
    """
    model, held = result.model, stage.chunks[chunk]
    tied = model.tie_word_embeddings
    copied = result.strategy.pp > 1 and (tied or model.mtp_num_layers > 0)
    if held.embedding or held.mtp:
        yield from _of_block(result, EMBEDDING, copied)
    copies = own_copies(model, stage)
    for layer in range(held.first, held.last):
        yield from _of_block(result, copies.get(layer) or _kind_of(result, layer), False)
    if (held.last == model.num_layers and held.last > held.first) if model.mtp_num_layers else held.loss:
        yield from (p for p in _of_block(result, HEAD, False) if p[1] != "lm_head")
    for _ in range(min(held.mtp, 1) if held.mtp and model.mtp_use_repeated_layer else held.mtp):
        yield from _of_block(result, DEPTH, False)
    at = result.stage_values(stage)
    output = {"P_output": at["output_i"], "P_output_bias": at["loss_i"] if model.lm_head_bias else 0}
    for name in (n for n, here in output.items() if here and held.loss):
        size = int(result.numbers[name] if name in result.numbers else result.stage_numbers(stage)[name])
        yield size, "lm_head", copied and tied and not held.mtp and name == "P_output"


def _kind_of(result: Evaluation, layer: int) -> str:
    for segment in result.model.layers:
        length = segment.repeat * len(segment.kinds)
        if layer < length:
            return segment.kinds[layer % len(segment.kinds)]
        layer -= length
    raise IndexError(layer)


# The order in which Megatron-Core's modules register what they hold (transformer/attention.py, multi_latent_attention.py,
# moe/moe_layer.py, moe/shared_experts.py); what is in neither follows its use.
REGISTERED = {
    "attention": (
        *("sinks", "o_proj", "qkv", "q_proj", "q_layernorm", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"),
        *("q_norm", "k_norm", "q_a_layernorm", "kv_a_layernorm"),
    ),
    "moe": ("gate", "latent", "experts", "shared_expert_gate", "shared_experts"),
}


def _of_block(result: Evaluation, name: str, alone: bool) -> Iterator[tuple[int, str, bool]]:
    """A block's parameters in the order of their modules, and experts one by one."""
    placed = result.lowered.blocks[name].placed
    used = {t: i for i, op in enumerate(placed.block.ops) for t in op.inputs}
    local_experts = result.model.moe.num_moe_experts // result.strategy.ep if result.model.moe else 1
    experts: list[int] = []

    def flush() -> Iterator[tuple[int, str, bool]]:
        for size in experts * (local_experts if experts else 0):
            yield size, "experts", False
        experts.clear()

    def module(tensor: Tensor) -> tuple[str, str]:
        """The module that registers a tensor, and its part of it."""
        path = tensor.name.split(".")
        return next(((p, path[i + 1]) for i, p in enumerate(path) if p in REGISTERED), ("", ""))

    owned = counted_parameters(placed)
    first = {m: min(used.get(t.name, 0) for t in owned if module(t)[0] == m) for m in {module(t)[0] for t in owned}}

    def order(tensor: Tensor) -> tuple[int, int, int]:
        owner, part = module(tensor)
        registered = REGISTERED.get(owner, ())
        at = used.get(tensor.name, 0)
        return (first[owner], registered.index(part), at) if part in registered else (at, 0, at)

    for tensor in sorted(owned, key=order):
        size = int(elements(placed, tensor.name).evaluate(result.values))
        if "E" in tensor.dims:
            experts.append(size // local_experts)
            continue
        yield from flush()
        yield size, tensor.module, alone and tensor.role == "table"
    yield from flush()
