"""The whole lowering, top to bottom.

Architecture -> declare -> Block            operations over named dimensions
             -> fuse    -> Block            the kernels that run, what each keeps
             -> adapt   -> Block            adapters, and no gradients that nothing trained needs
             -> store   -> Block            frozen weights that are stored in few bits, made anew for their products
             -> communicate -> Placed       layouts, and the redistributions they require
             -> differentiate -> Differentiated   backward kernels, messages of both directions
             -> remember -> Remembered      what is kept, what is computed again
             -> count -> Derivation         named definitions, exact
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from symsim.algebra.kinds import DEPTH, EMBEDDING, HEAD
from symsim.frameworks.choices import framework_of
from symsim.frameworks.fuse import fuse
from symsim.frameworks.kernels import Profile
from symsim.frameworks.recompute import KERNEL, RUN
from symsim.inputs.architecture import Architecture
from symsim.inputs.assumptions import resolve
from symsim.inputs.conventions import OWN, Conventions
from symsim.inputs.strategy import Strategy
from symsim.inputs.traced import once, parts_of
from symsim.inputs.trained import respelt
from symsim.ir.block import Block, Net
from symsim.layers.decoder import decoder_layer
from symsim.layers.embedding import embedding
from symsim.layers.head import head, task_head
from symsim.layers.hyper_connections import STREAMS
from symsim.layers.mtp import mtp_depth
from symsim.lowering.adapt import adapt
from symsim.lowering.communicate import communicate
from symsim.lowering.differentiate import Differentiated, differentiate
from symsim.lowering.lowered import Lowered
from symsim.lowering.marked import marked
from symsim.lowering.remember import Remembered, remember
from symsim.lowering.store import store
from symsim.lowering.unrecorded import unrecorded
from symsim.lowering.verify import passed
from symsim.placement.given import named_placement
from symsim.placement.mesh import Mesh, mesh_of
from symsim.placement.names import placement_of
from symsim.placement.sizes import dimensions, own_keys

# by a model's place in memory, which nothing else takes while it is kept
_ALONE: dict[int, tuple[Architecture, Mapping[str, Block]]] = {}
_MOST_KEPT = 8


def lower(model: Architecture, strategy: Strategy, assumptions: Mapping[str, str], conventions: Conventions = OWN) -> Lowered:
    """Lower every distinct block. Time does not depend on the number of layers, ranks or micro-batches."""
    profile, mesh, declared = declared_under(model, strategy, resolve(assumptions), conventions)
    blocks = {name: lower_block(block, profile, mesh) for name, block in declared.items()}
    checkpointed = {}
    if strategy.recompute not in ("none", "selective"):
        checkpointed = {name: lower_block(declared[name], profile, mesh, whole=True) for name in profile.model.kind_names()}
    return Lowered(profile, mesh, parts_of(strategy, "block", blocks), parts_of(strategy, "checkpointed", checkpointed))


def declared_under(
    model: Architecture, strategy: Strategy, assumptions: Mapping[str, str], conventions: Conventions = OWN
) -> tuple[Profile, Mesh, dict[str, Block]]:
    """What decides which kernels run, where dimensions lie, and the blocks before any of it is done."""
    profile, mesh = placed_under(model, strategy, assumptions, conventions)
    declared = declare(profile, mesh)
    if strategy.placement is not None:
        placement = named_placement(profile.model, strategy, declared)
        profile, mesh = replace(profile, placement=placement), replace(mesh, placement=placement)
    return profile, mesh, declared


def placed_under(model: Architecture, strategy: Strategy, assumptions: Mapping[str, str], conventions: Conventions = OWN) -> tuple[Profile, Mesh]:
    """The same without blocks, where the strategy's own table says where dimensions lie."""
    profile = Profile(_spelt(model, strategy), strategy, assumptions, framework_of(strategy, assumptions), placement_of(strategy), conventions)
    return profile, mesh_of(strategy, gathers_in_ring=profile.framework.ring.gathers)


@once
def _spelt(model: Architecture, strategy: Strategy) -> Architecture:
    return respelt(model)


def declared_alone(model: Architecture) -> Mapping[str, Block]:
    """The blocks of a model under no strategy: names of its operations and their dimensions. Those of the last few models are kept."""
    known = _ALONE.pop(id(model), None)
    if known is None or known[0] is not model:
        known = model, _declared_alone(model)
    _ALONE[id(model)] = known
    if len(_ALONE) > _MOST_KEPT:
        del _ALONE[next(iter(_ALONE))]
    return known[1]


def _declared_alone(model: Architecture) -> dict[str, Block]:
    strategy, given = Strategy(), resolve({})
    profile = Profile(respelt(model), strategy, given, framework_of(strategy, given), placement_of(strategy))
    return declare(profile, mesh_of(strategy))


def declare(profile: Profile, mesh: Mesh) -> dict[str, Block]:
    """The blocks of a model, by name."""
    return {name: declared_block(profile, mesh, name) for name in blocks_of(profile.model)}


def blocks_of(model: Architecture) -> list[str]:
    """Their names: 'embedding', each layer kind, 'head', and 'mtp' when there are depths."""
    return [EMBEDDING, *model.kind_names(), HEAD, *([DEPTH] if model.mtp_num_layers else [])]


@once
def declared_block(profile: Profile, mesh: Mesh, name: str) -> Block:
    model, strategy = profile.model, profile.strategy
    kind = model.last_kind if name == DEPTH else name if name in model.layer_kinds else ""
    net = _net(profile, mesh, name, kind)
    if name == EMBEDDING:
        return net.block(embedding(net, model))
    if name == HEAD and strategy.task_type == "causal_lm":
        return net.block([head(net, _stream(net, profile), model, tied=model.tie_word_embeddings)])
    if name == HEAD:
        return net.block([task_head(net, _stream(net, profile), model, strategy.task_type)])
    if name == DEPTH:
        return net.block([mtp_depth(net, _stream(net, profile), model)])
    return net.block([decoder_layer(net, _stream(net, profile), model, model.layer_kinds[name])])


def _net(profile: Profile, mesh: Mesh, name: str, kind: str) -> Net:
    """kind: the kind of layer whose own sizes the block has, and experts where it has any."""
    model = profile.model
    own = {dim: f"{dim}_{kind}" for dim in model.layer_kinds[kind].own} | own_keys(model, kind) if kind else {}
    experts = kind != "" and (model.layer_kinds[kind].ffn == "moe" or model.layer_kinds[kind].beside_experts)
    load = "balanced" if model.moe is None else profile.assumptions["expert_load"]
    return Net(name, profile.declared, dimensions(model, profile.strategy, mesh, own, load, experts))


def _stream(net: Net, profile: Profile) -> str:
    dims = STREAMS if profile.model.hyper_connections or profile.model.altup else "b s h"
    return net.input("x", dims, "fp32" if profile.strategy.fp32_residual_connection else None)


def lower_block(block: Block, profile: Profile, mesh: Mesh, *, whole: bool = False) -> Remembered:
    """[declared Block] -> fused Block -> adapted Block -> stored Block -> Placed -> Differentiated -> Remembered."""
    return remembered(differentiated(block, profile, mesh), profile, whole)


@once
def differentiated(block: Block, profile: Profile, mesh: Mesh) -> Differentiated:
    model, strategy, framework = profile.model, profile.strategy, profile.framework
    few_groups = model.attention.kind == "gqa" and model.groups_of(block.name) < strategy.tp

    declared = passed("declare", marked(block, model, strategy))
    fused = passed("fuse", fuse(declared, profile))
    adapted = passed("adapt", adapt(unrecorded(fused, framework.unrecorded), profile))
    stored = passed("store", store(adapted, profile))
    placed = passed("communicate", communicate(stored, mesh, shared=framework.shares_redistributions, expand_groups=few_groups))
    return passed("differentiate", differentiate(placed, framework))


@once
def remembered(block: Differentiated, profile: Profile, whole: bool) -> Remembered:
    strategy, framework, placed = profile.strategy, profile.framework, block.placed
    found = remember(
        block,
        regions=_regions(strategy) | {KERNEL} | frozenset(r for op in placed.block.ops for r in op.regions if r.startswith(RUN)),
        full=whole and strategy.recompute == "full",
        distribute=strategy.distribute_saved_activations,
        stored=strategy.recompute if whole and strategy.recompute.startswith("sac") else "",
        keep_gathered=framework.keeps_gathered,
        early_stop=framework.stops_early,
        narrow=strategy.recompute_from_fp8 or (),
        conventions=profile.conventions,
        leaves=profile.conventions.leaves if whole else (),
    )
    return passed("remember", found)


def _regions(strategy: Strategy) -> frozenset[str]:
    """The recompute modules in force. Full recomputation by layers (uniform) takes the depths of multi-token prediction too,
    by blocks it skips them (Megatron-Core multi_token_prediction.py)."""
    if strategy.recompute == "selective":
        return frozenset(strategy.recompute_modules) if strategy.recompute_operations is None else frozenset()
    return frozenset({"mtp"}) if strategy.recompute == "full" and strategy.recompute_method == "uniform" else frozenset()
