"""Gradient buffers as Megatron-Core lays them out: buckets of parameters, padded for sharding.

A numeric walk over one rank's parameters (its length grows with the layers held; the closed forms do not need it).
Source: megatron.core optimizer/param_layout.py, distributed/distributed_data_parallel.py (0.20.0).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from symsim.evaluation import Evaluation
from symsim.ir import Tensor
from symsim.passes.count import counted_parameters
from symsim.passes.differentiate import elements
from symsim.passes.reduce import BUCKET_SIZE, BUCKET_SIZE_PER_RANK, expert_groups
from symsim.stages import Stage

PARAMETER_ALIGNMENT = 64
BUCKET_ALIGNMENT = 128
HIGH_BUSBW_ALIGNMENT = 2**16


@dataclass(frozen=True)
class Buffer:
    """One contiguous gradient buffer: elements of each bucket (padding included) and of the parameters alone."""

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
    strategy = result.strategy
    ranks = {"dense": strategy.dp * strategy.cp, "expert": strategy.expert_dp}
    separate = expert_groups(result.lowered)
    made = []
    for chunk in range(len(stage.chunks)):
        owned: dict[str, list[tuple[int, bool]]] = {"dense": [], "expert": []}
        for size, module, alone in _parameters(result, stage, chunk):
            owned["expert" if separate and module == "experts" else "dense"].append((size, alone))
        limit = max(BUCKET_SIZE, BUCKET_SIZE_PER_RANK * ranks["dense"]) if stage.index == chunk == 0 else None
        for kind, sizes in owned.items():
            if sizes:
                shard = ranks[kind] // strategy.num_distributed_optimizer_instances
                split = buckets(sizes, shard, limit, strategy.zero > 0, strategy.pad_buckets_for_high_nccl_busbw)
                made.append(Buffer(chunk, kind, shard, tuple(split), sum(n for n, _ in sizes)))
    return made


def buckets(sizes: list[tuple[int, bool]], shard: int, limit: int | None, padded: bool, busbw: bool) -> Iterator[int]:
    """Bucket lengths, last parameter first (the order of backward): a bucket closes when it holds `limit` elements.
    `alone`: the parameter gets a bucket of its own. PyTorch's DistributedDataParallel closes its buckets the same way.
    """
    unit = math.lcm(shard, BUCKET_ALIGNMENT, HIGH_BUSBW_ALIGNMENT if busbw else 1) if padded else 1
    filled = 0
    for size, alone in reversed(sizes):
        if alone and filled:
            yield -(-filled // unit) * unit
            filled = 0
        start = -(-filled // PARAMETER_ALIGNMENT) * PARAMETER_ALIGNMENT if padded else filled
        filled = start + size
        if alone or (limit is not None and filled >= limit):
            yield -(-filled // unit) * unit
            filled = 0
    if filled:
        yield -(-filled // unit) * unit


def _parameters(result: Evaluation, stage: Stage, chunk: int) -> Iterator[tuple[int, str, bool]]:
    """Parameters of a rank's model chunk in the order of the model: (elements, module, gets a bucket of its own)."""
    at = result.stage_values(stage)
    tied = result.model.tie_word_embeddings and result.strategy.pp > 1
    if at["embedding_i"] and chunk == 0:
        yield from _of_block(result, "embedding", tied)
    for layer in range(stage.chunks[chunk].first, stage.chunks[chunk].last):
        yield from _of_block(result, _kind_of(result, layer), False)
    if chunk < len(stage.chunks) - 1:
        return
    if at["last_layer_i"]:
        yield from (p for p in _of_block(result, "head", False) if p[1] == "norm")
    for _ in range(int(at["mtp_copies_i"])):
        yield from _of_block(result, "mtp", False)
    held = {"P_output": at["output_i"], "P_output_bias": at["loss_i"] if result.model.lm_head_bias else 0}
    for name in (n for n, here in held.items() if here):
        yield int(result.numbers[name] if name in result.numbers else result.stage_numbers(stage)[name]), "lm_head", tied and name == "P_output"


def _kind_of(result: Evaluation, layer: int) -> str:
    for segment in result.model.layers:
        length = segment.repeat * len(segment.kinds)
        if layer < length:
            return segment.kinds[layer % len(segment.kinds)]
        layer -= length
    raise IndexError(layer)


def _of_block(result: Evaluation, name: str, alone: bool) -> Iterator[tuple[int, str, bool]]:
    """A block's parameters in order of use, but attention's output projection first and its norms last (as Megatron-Core
    declares them), and experts one by one."""
    placed = result.lowered.blocks[name].placed
    used = {t: i for i, op in enumerate(placed.block.ops) for t in op.inputs}
    local_experts = result.model.moe.num_moe_experts // result.strategy.ep if result.model.moe else 1
    experts: list[int] = []

    def flush() -> Iterator[tuple[int, str, bool]]:
        for size in experts * (local_experts if experts else 0):
            yield size, "experts", False
        experts.clear()

    inside = [used[t.name] for t in placed.block.parameters() if "attention." in t.name and t.name in used]

    def order(tensor: Tensor) -> float:
        if "attention.o_proj." in tensor.name:
            return min(inside) - 0.5
        if tensor.module == "norm" and "attention." in tensor.name:
            return max(inside) + 0.5
        return used.get(tensor.name, 0)

    for tensor in sorted(counted_parameters(placed, name), key=order):
        size = int(elements(placed, tensor.name).evaluate(result.values))
        if "E" in tensor.dims:
            experts.append(size // local_experts)
            continue
        yield from flush()
        yield size, tensor.module, alone and tensor.name.endswith("word_embeddings.weight")
    yield from flush()
