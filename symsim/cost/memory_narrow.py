"""What the narrow forms of weights take: by rows, and by columns for the transposed products of backward.

They are made once a step and stay (TransformerEngine module/base.py, weight workspaces). With fp8_param_gather they are the weights.
Under zero=3 a rank keeps its share of the weights in one form, where it keeps any beside those that the optimizer updates; the others
are made of what is gathered and go with it (TransformerEngine module/linear.py, is_fsdp2; Megatron-Core
distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py keep_fp8_transpose_cache).
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from symsim.algebra.expr import ZERO, Expr, symbol
from symsim.algebra.key import Key, layers
from symsim.algebra.quantity import BYTE, Quantity
from symsim.cost.count import label
from symsim.cost.gathering import replicated
from symsim.cost.memory_rank import Rank
from symsim.cost.reduce import expert_groups, narrow_of_block, narrow_parameters, shards
from symsim.cost.states import kept_beside_update
from symsim.frameworks.narrow import forms, recipe_of
from symsim.frameworks.recipes import Recipe
from symsim.ir.block import WIDTHS
from symsim.pipeline.stages import holds


def narrow_copies(rank: Rank) -> Expr:
    """Bytes of the forms of weights that stay for the step, less what they stand in place of: of layers, and of the depths of
    multi-token prediction."""
    recipe = recipe_of(rank.strategy)
    if recipe is None:
        return ZERO
    kept = rank.lowered.profile.conventions.fp8_weights
    if kept is not None:
        return _of_blocks(rank, Fraction(kept - WIDTHS[rank.strategy.precision]))
    if rank.strategy.zero == 3:
        instead = rank.strategy.fp8_param_gather and rank.assume["fsdp_parameters"] == "both"
        shares = _shares(rank) * (recipe.weight_bytes - WIDTHS[rank.strategy.precision]) if instead else ZERO
        cached = _of_blocks(rank, recipe.weight_bytes) if rank.strategy.keep_fp8_transpose_cache else ZERO
        return shares + cached
    return _of_blocks(rank, _bytes_at_work(rank, recipe))


def narrow_at_work(rank: Rank, kind: str) -> Expr:
    """Bytes of a layer's narrow forms, under zero=3, beside what is gathered of it or in its place."""
    recipe = recipe_of(rank.strategy)
    return ZERO if recipe is None else _sharded(rank, kind) * _bytes_at_work(rank, recipe)


def _sharded(rank: Rank, kind: str) -> Expr:
    """A layer's weights that a recipe's products multiply, of the parts that are gathered."""
    parts = [part for part in (False, True) if not replicated(rank.strategy, part)]
    return narrow_of_block(rank.lowered, kind, parts[0] if len(parts) == 1 else None)


def narrow_ahead(rank: Rank, kind: str) -> Expr:
    """Bytes that a gathered layer takes more, less than none, for being gathered in a recipe's type."""
    recipe, precision = recipe_of(rank.strategy), rank.strategy.precision
    if recipe is None or not rank.strategy.fp8_param_gather:
        return ZERO
    return _sharded(rank, kind) * (WIDTHS[recipe.gathers or precision] - WIDTHS[precision])


def narrow_everywhere(rank: Rank) -> Expr:
    """The same of all layers, where they stay gathered."""
    return sum((narrow_at_work(rank, k) * layers(k).expr for k in rank.model.kind_names()), ZERO)


def narrowed_copies(rank: Rank) -> Expr:
    """Bytes of the type of the computation through which the fp32 copies that a rank updates become narrow weights, all of them together
    (TransformerEngine pytorch/tensor/utils.py quantize_master_weights). An update of its own writes those of delayed scaling; weights of MXFP8
    are gathered in the wider type."""
    recipe, strategy = recipe_of(rank.strategy), rank.strategy
    written = strategy.use_precision_aware_optimizer and not kept_beside_update(strategy)
    if recipe is None or not recipe.gathers or not strategy.fp8_param_gather or strategy.zero == 3 or written or not rank.framework.main_gradients:
        return ZERO
    return _shares(rank, trained=True) * WIDTHS[strategy.precision]


def _bytes_at_work(rank: Rank, recipe: Recipe) -> Fraction:
    """Bytes of all forms of a weight, less those of the weight where it has no other."""
    instead = WIDTHS[rank.strategy.precision] if rank.strategy.fp8_param_gather else 0
    return forms(rank.lowered.profile.assumptions, recipe) * recipe.weight_bytes - instead


def _shares(rank: Rank, *, trained: bool = False) -> Expr:
    """Narrow weights of a rank's shards; of those that are trained, what it updates."""
    groups: Iterable[tuple[bool | None, bool]] = ((False, False), (True, True)) if expert_groups(rank.lowered) else ((None, False),)
    found = ZERO
    for own, expert in groups:
        group = shards(rank.lowered, expert)
        found = found + narrow_parameters(rank.lowered, own, trained=trained) / (group.owners if trained else group.shard)
    return found


def _of_blocks(rank: Rank, each: Fraction) -> Expr:
    """So many bytes for every weight that a recipe's products multiply."""
    found = ZERO
    for name in rank.lowered.blocks:
        weights = narrow_of_block(rank.lowered, name)
        if not weights:
            continue
        copies = rank.book.define(
            Key("M_fp8", "stage", name),
            Quantity(weights * each, BYTE),
            f"{name}: narrow forms of weights" + (", less the weights" if rank.strategy.fp8_param_gather else ""),
            unit=BYTE,
            latex=rf"M^{{\mathrm{{fp8}}}}_{{{label(name)}}}",
        )
        found = found + copies.expr * symbol(holds(name))
    return found
