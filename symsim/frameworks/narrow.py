"""Casts to the narrow types of a recipe: of a linear map's input and of its output's gradient, and what is kept of either.

Read at TransformerEngine 2.20 (paths under transformer_engine/pytorch/) and Megatron-Core 0.20 (paths under megatron/core/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from symsim.frameworks.kernels import Kernels
from symsim.frameworks.recipes import RECIPES, Recipe
from symsim.frameworks.recompute import DISCARD
from symsim.inputs.strategy import Strategy
from symsim.inputs.tuning import TunedKind
from symsim.ir.block import Dim, Op
from symsim.ir.exceptions import exceptional
from symsim.ir.operations import Attention, Attributes, Cast, Projection

STORED = "stored"  # what attention keeps of its result, in another type
BOTH = 2  # rows, and columns for the transposed products of backward


def recipe_of(strategy: Strategy) -> Recipe | None:
    """The recipe in force; None where products are of the computation's type."""
    return RECIPES.get(strategy.fp8)


def recipe_in(k: Kernels) -> Recipe | None:
    """The recipe of a block: none in layers that it leaves out."""
    kind = k.profile.model.layer_kinds.get(k.block.name)
    return None if isinstance(kind, TunedKind) and kind.wide else recipe_of(k.profile.strategy)


def recipe_for(k: Kernels, attributes: Attributes) -> Recipe | None:
    """The recipe of a linear map: none for exceptions (router, gates of shared experts, output layer without fp8_output_proj)."""
    output = k.profile.strategy.fp8_output_proj and isinstance(attributes, Projection) and "lm_head" in attributes.labels
    return recipe_in(k) if output or not exceptional("high_precision", attributes) else None


def pads_rows(k: Kernels) -> bool:
    """Whether the rows of every expert are copied to multiples that a recipe's products need, and back (moe/experts.py quantization_padding,
    quantization_unpadding): not where a dispatcher sorts them so (fused_a2a.py hybrid_ep_dispatch pad_multiple), or the router chooses so many."""
    s = k.profile.strategy
    sorted_so = s.moe_token_dispatcher_type == "flex" and s.moe_flex_dispatcher_backend == "hybridep"
    return recipe_in(k) is not None and not (sorted_so or s.moe_pad_expert_input_to_capacity or s.moe_router_padding_for_quantization)


def forms(assumptions: Mapping[str, str], recipe: Recipe) -> int:
    """How often a tensor is written that both directions multiply (assumption fp8_layouts)."""
    one = not recipe.block and assumptions["fp8_layouts"] == "any"
    return 1 if one else BOTH


def narrowed(k: Kernels, op: Op) -> tuple[str, list[str], Projection]:
    """The input of a linear map as it is multiplied, what is kept of it, and the map's attributes.

    What is kept is the narrow copy, or the input as it was where something else keeps or rebuilds that, so that a copy would come on
    top (module/linear.py save_original_input; Megatron-Core extensions/transformer_engine.py set_save_original_input).
    """
    x, at = op.inputs[0], op.of(Projection)
    recipe = recipe_for(k, at)
    if recipe is None:
        return x, [as_stored(k, x)], at
    wide = not k.profile.strategy.fp8_wgrad
    original = wide or (recipe.keeps_original and (exceptional("keeps_original", at) or discarded(k, x)))
    both = 1 if wide else forms(k.profile.assumptions, recipe)
    made = quantise(k, x, recipe, "input", 1 if original else both)
    gathered = f"{recipe.operand}x2" if recipe.block else recipe.operand
    at = replace(
        at,
        multiplied=recipe.operand,
        gradient_dtype=None if wide else gathered,
        gradient_cast=recipe.cast(both),
        input_cast=recipe.cast(1) if original and not wide else None,
        wide=wide,
    )
    return made[0], [as_stored(k, x)] if original else made, at


def narrowed_attention(k: Kernels, op: Op, packed: list[str]) -> tuple[list[str], Attention, str | None]:
    """Queries, keys and values as attention multiplies them, its attributes, and the type in which it keeps its output where that is not
    its own. With fp8_multi_head_attention they are narrow as they come, and nothing is cast; under delayed scaling the output that backward
    reads is narrow too (attention/dot_product_attention/backends.py FusedAttnFunc). Of FP4 recipes, attention is in FP8."""
    strategy, at = k.profile.strategy, op.of(Attention)
    recipe = recipe_in(k)
    if recipe is None or not strategy.fp8_dot_product_attention:
        return packed, at, strategy.attention_output_store
    recipe = recipe if recipe.operand == "fp8" else RECIPES["tensorwise"]
    made = [quantise(k, x, recipe, name, forms(k.profile.assumptions, recipe))[0] for x, name in zip(packed, "qkv")]
    if strategy.fp8_multi_head_attention:
        k.ops[-len(made) :] = [replace(cast, attrs=Cast(0, 0)) for cast in k.ops[-len(made) :]]
    stored = strategy.attention_output_store or (None if recipe.keeps_original else recipe.operand)
    return made, replace(at, multiplied=recipe.operand, gradient_cast=recipe.cast(1)), stored


def discarded(k: Kernels, x: str) -> bool:
    """Whether recomputation drops a tensor and makes it again for those that kept it."""
    maker = _maker(k, x)
    return maker is not None and not maker.regions.isdisjoint(_dropped(k))


def dropping(k: Kernels) -> bool:
    """Whether recomputation drops what the operation at hand makes."""
    assert k.source is not None
    return not k.source.regions.isdisjoint(_dropped(k))


def _dropped(k: Kernels) -> frozenset[str]:
    """The modules in force whose results are dropped."""
    strategy = k.profile.strategy
    modules = strategy.recompute == "selective" and strategy.recompute_operations is None
    return DISCARD & set(strategy.recompute_modules) if modules else frozenset()


def _maker(k: Kernels, x: str) -> Op | None:
    """The operation that made what a tensor looks into."""
    while (looked_into := k.tensors[x].view_of) is not None:
        x = looked_into
    return next((op for op in k.ops if x in op.outputs), None)


def as_stored(k: Kernels, x: str) -> str:
    """What is kept of a tensor that is to be kept as it is: attention's result as attention keeps it."""
    maker = _maker(k, x)
    stored = maker.outputs[-1] if maker is not None and maker.kind == "attention" else x
    return stored if stored.endswith(f".{STORED}") else x


def store(k: Kernels, x: str, name: str) -> str:
    """An FP8 copy of a tensor, made outside the region whose operation reads it."""
    made = k.make(name, k.dims_of(x), "fp8")
    k.emit("quantise", [x], [made], name=name, attrs=Cast())
    k.ops[-1] = replace(k.ops[-1], regions=k.ops[-1].regions - _dropped(k))
    return made


def quantise(k: Kernels, x: str, recipe: Recipe, name: str, count: int) -> list[str]:
    """A narrow copy of x, and the scales of its blocks."""
    made = [k.make(f"{name}.{recipe.operand}", k.dims_of(x), recipe.operand)]
    if recipe.block:
        last = k.dims_of(x)[-1]
        blocks = f"{last}/{recipe.block}"
        k.dims[blocks] = Dim(k.dims[last].size / recipe.block, parts=(last,))
        made.append(k.make(f"{name}.scale", (*k.dims_of(x)[:-1], blocks), recipe.scale, "index"))
    cast = replace(recipe.cast(count), maxima=recipe.maxima == "gather" and name == "input")
    k.emit("quantise", [x], made, name="quantise" if name == "input" else f"quantise_{name}", attrs=cast)
    return made
