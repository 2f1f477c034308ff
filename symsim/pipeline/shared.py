"""Weights that several layers use, where stages cut between them: a stage that has such a layer, and not the one that holds them, has a copy, and
copies are one weight as a tied table is: their gradients are summed over the stages that have one (Megatron-Core distributed/finalize_model_grads.py
_allreduce_word_embedding_grads; DeepSpeed runtime/pipe/module.py TiedLayerSpec, allreduce_tied_weight_gradients).

A layer that borrows is counted on its stage as one of the kind that holds, where it is the first there of those that share: parameters,
gradients, states and messages follow as of any layer that holds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from symsim.inputs.architecture import Architecture, LayerKind
from symsim.inputs.strategy import Strategy
from symsim.pipeline.stages import Stage, stages, table_copies


@dataclass(frozen=True)
class Sharing:
    """Which layers use one weight. of: for every layer the layer that holds what it shares, None where it shares nothing. kinds: of every layer
    the kind that it is counted as where it holds a copy."""

    of: tuple[int | None, ...]
    kinds: tuple[str, ...]


def sharing(model: Architecture) -> Sharing | None:
    """None where no layer borrows."""
    return _sharing(tuple(k for s in model.layers for k in s.kinds * s.repeat), tuple(model.layer_kinds.items())) if model.shares_weights else None


@lru_cache(maxsize=32)
def _sharing(layers: tuple[str, ...], kinds: tuple[tuple[str, LayerKind], ...]) -> Sharing:
    known = dict(kinds)
    holding: list[int] = []
    since, of, named = 0, [], []
    for i, name in enumerate(layers):
        kind = known[name]
        holds = "held" in (kind.weights, kind.shared_block)
        if holds:
            holding, since = [*holding, i], 0
        of.append(i if holds else holding[-kind.in_turn :][since % min(kind.in_turn, len(holding))] if kind.borrows else None)
        since += kind.borrows
        named.append(holder_of(name, kinds) or name)
    return Sharing(tuple(of), tuple(named))


def holder_of(name: str, kinds: Iterable[tuple[str, LayerKind]]) -> str | None:
    """The kind of layer that does what this one does with weights of its own; None where there is none, or it borrows nothing."""
    known = dict(kinds)
    held = {field: "held" for field in ("weights", "shared_block") if getattr(known[name], field) == "borrowed"}
    wanted = known[name].model_copy(update={**held, "in_turn": 1})
    return next((n for n, other in known.items() if held and other == wanted), None)


def own_copies(model: Architecture, stage: Stage) -> dict[int, str]:
    """Of a stage's layers those that hold what others share, or a copy of it, with the kind that they are counted as."""
    shares = sharing(model)
    if shares is None:
        return {}
    here: dict[int, int] = {}
    for chunk in stage.chunks:
        for layer in range(chunk.first, chunk.last):
            if (of := shares.of[layer]) is not None:
                here.setdefault(of, layer)
    return {layer: shares.kinds[layer] for layer in here.values()}


def shared(kind: str, stages: int) -> str:
    """The symbol of how many weights of layers of a kind a stage has that so many stages have."""
    return f"shared_{stages}_{kind}_i"


def groups_of_stages(model: Architecture, strategy: Strategy) -> dict[str, int]:
    """Stages that have one weight and sum its gradient, by the label of their group: those of the words' table, and those of layers' weights."""
    found = {"embd": table_copies(model, strategy)}
    if model.shares_weights:
        found |= {f"shared_{n}": n for here in held_elsewhere(model, stages(model, strategy, model.mtp_num_layers)) for _, n in here}
    return {label: n for label, n in found.items() if n > 1}


def held_elsewhere(model: Architecture, made: Sequence[Stage]) -> list[Counter[tuple[str, int]]]:
    """Of every stage the weights that other stages have too: how many, by the kind that holds them and the number of stages that have a copy."""
    shares = sharing(model)
    if shares is None:
        return [Counter() for _ in made]
    used = [{of for chunk in stage.chunks for of in shares.of[chunk.first : chunk.last] if of is not None} for stage in made]
    on = Counter(of for here in used for of in here)
    return [Counter((shares.kinds[of], on[of]) for of in here if on[of] > 1) for here in used]
