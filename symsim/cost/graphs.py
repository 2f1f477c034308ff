"""CUDA graphs: which operations of a block are launched as one, and the static inputs that stay for it (cuda_graph_impl, cuda_graph_scope).

    attn            the norm before attention up to the residual sum behind it
    mlp             the norm before a dense feed-forward network up to the sum behind it
    moe_router      the norm before a mixture, its router, and the shared experts where they do not run beside the exchange
    moe_preprocess  tokens sorted for their way
    moe             all of a mixture; nothing given: the whole layer
    full_iteration  forward and backward of all micro-batches

Sources: Megatron-Core transformer/transformer_config.py (cuda_graph_modules), transformer/transformer_layer.py, transformer/cuda_graphs.py;
TransformerEngine pytorch/graph.py (make_graphed_callables: a graph each way for every layer and micro-batch in flight, its inputs copied).
"""

from __future__ import annotations

from symsim.algebra.expr import ONE, ZERO, Expr
from symsim.algebra.key import layers, of_stage
from symsim.cost.memory_rank import Rank, define_stage, stream
from symsim.frameworks.kernels import Profile
from symsim.ir.block import Block
from symsim.ir.operations import OPERATIONS, Norm
from symsim.lowering.communicate import Placed


def graphs_of(profile: Profile, name: str, block: Block) -> list[frozenset[int]]:
    """The operations of a block (by their places) that each of its graphs captures, each way."""
    strategy = profile.strategy
    whole = frozenset(range(len(block.ops)))
    if strategy.cuda_graph_impl == "full_iteration":
        return [whole]
    if strategy.cuda_graph_impl == "none" or name not in profile.model.layer_kinds:
        return []
    if not strategy.cuda_graph_scope:
        return [whole]
    ends = [i for i, op in enumerate(block.ops) if op.name == "add_attention"]
    split = max(ends, default=-1)
    mixer = frozenset(i for i in whole if i <= split)
    rest = whole - mixer
    experts = frozenset(i for i in rest if block.ops[i].module == "experts")
    before = frozenset(i for i in rest - experts if i < min(experts, default=0))
    shared = frozenset(i for i in rest if block.ops[i].module == "shared_experts")
    routed = before | (frozenset() if strategy.moe_shared_expert_overlap else shared)
    roles = {i: OPERATIONS[block.ops[i].kind].role for i in experts}
    sent = min((i for i, role in roles.items() if role == "exchange"), default=len(block.ops))
    sorting = frozenset(i for i, role in roles.items() if role == "moves" and i < sent)
    of_mixture = {"moe": rest, "moe_router": routed, "moe_preprocess": sorting}
    captured = {"attn": mixer, **(of_mixture if experts else {"mlp": rest})}
    return [found for scope in strategy.cuda_graph_scope if (found := captured.get(scope))]


def launched(profile: Profile, name: str, placed: Placed, indices: list[int]) -> tuple[list[int], Expr]:
    """Of these operations those that the host launches one by one, and how many graphs it launches for the others."""
    graphs = graphs_of(profile, name, placed.block)
    if profile.strategy.cuda_graph_impl == "full_iteration":
        return [], ZERO
    replayed = sum((ONE for graph in graphs if not graph.isdisjoint(indices)), ZERO)
    return [i for i in indices if not any(i in graph for graph in graphs)], replayed


def static_inputs(rank: Rank) -> Expr:
    """Copies of the stream that graphs of layers read, one for each graph of every micro-batch in flight. Defines M_stage_graphs."""
    profile, found = rank.lowered.profile, ZERO
    if profile.strategy.cuda_graph_impl not in ("local", "transformer_engine"):
        return ZERO
    for kind in rank.model.kind_names():
        # a mixture's graphs follow each other on one input
        graphs = graphs_of(profile, kind, rank.lowered.blocks[kind].placed.block)
        reading = len([g for g in graphs if any(isinstance(rank.lowered.blocks[kind].placed.block.ops[i].attrs, Norm) for i in g)])
        found = found + reading * layers(kind).expr
    return define_stage(
        rank,
        of_stage("M", "graphs"),
        found * stream(rank) * of_stage("alive_i").expr,
        "static inputs of CUDA graphs",
        r"M^{(i)}_{\mathrm{graphs}}",
        source="TransformerEngine pytorch/graph.py make_graphed_callables",
    )
