"""What a moment of the step holds besides the block at work: gradients made before, layers rebuilt, a forward beside."""

from __future__ import annotations

from symsim.algebra.expr import ZERO, Expr, expr, maximum, minimum, symbol
from symsim.cost.count import held_output_layer
from symsim.cost.memory_gathered import gathered_parameters, parameters_of, reduction_buffer, root_parameters, shard_gradients, unit_bytes
from symsim.cost.memory_rank import Rank, saved_layers, total
from symsim.ir.block import WIDTHS


def running_forms(rank: Rank) -> list[tuple[str, str]]:
    """Blocks and the names of the forms in which they run: as they are, and recomputed in full."""
    found = []
    for name in rank.lowered.blocks:
        found.append((name, name))
        if name in rank.lowered.checkpointed:
            found.append((name, f"{name}_ckpt"))
    return [(plain, name) for plain, name in found if plain != "embedding"]


def runs(rank: Rank, plain: str, name: str) -> Expr:
    """1 where the stage runs the block in this form."""
    if plain not in rank.lowered.checkpointed:
        return rank.has[plain]
    again = symbol(f"L_{plain}_ckpt_i")
    return minimum(1, again if name != plain else symbol(f"L_{plain}_i") - again)


def saved_after(rank: Rank, plain: str, name: str) -> Expr:
    """Saved bytes of what comes after the block's last layer on the stage: freed by its backward, not there in its forward."""
    if plain == "head":
        return ZERO
    later = symbol("A_head") * symbol("loss_i")
    if plain == "mtp":
        return later
    if "mtp" in rank.lowered.blocks:
        later = later + symbol("A_mtp") * symbol("mtp_i")
    for kind in _kinds_after(rank, plain):
        later = later + saved_layers(rank, kind)
    leading = rank.strategy.recompute_method == "block" or rank.strategy.recompute_layers_per_stage is not None
    if name != plain and rank.strategy.recompute == "full" and leading:
        later = later + symbol(f"A_{plain}") * (symbol(f"L_{plain}_i") - symbol(f"L_{plain}_ckpt_i"))
    return later


def pairs_run(rank: Rank) -> Expr:
    """1 where a forward runs beside a backward: with overlap_moe_expert_parallel_comm, while forwards are left after the
    warm-up, which has one more then, so that as many micro-batches are whole when a pair begins as without it
    (Megatron-Core schedules.py get_pp_rank_microbatches, combined_1f1b.py)."""
    if not rank.strategy.overlap_moe_expert_parallel_comm:
        return ZERO
    return minimum(1, maximum(0, (symbol("m") - symbol("alive_i")) * symbol("vpp")))


def forwarded(rank: Rank) -> Expr:
    """A chunk that its forward has left while the backward beside it is at its first layer; counted already by
    schedules whose in-flight chunks begin with their forward."""
    return ZERO if rank.schedule.pairs else _layers_saved(rank, None) / symbol("vpp")


def _layers_saved(rank: Rank, count: Expr | None) -> Expr:
    """Saved bytes of the stage's first `count` layers, or of all."""
    found, before = ZERO, ZERO
    for kind in rank.model.kind_names():
        layers = symbol(f"L_{kind}_i")
        taken = layers if count is None else minimum(layers, maximum(0, count - before))
        found, before = found + symbol(f"A_{kind}") * taken, before + layers
    return found


def beside(rank: Rank, kind: str) -> Expr:
    """What the forward of another micro-batch holds beside the backward of the last layer of this kind: the layers that it
    has passed, as many as the backward has, and the layer it is in, at its worst kernel."""
    paired = pairs_run(rank)
    if not paired or kind not in rank.model.layer_kinds:
        return ZERO
    passed = _layers_saved(rank, total(symbol(f"L_{k}_i") for k in _kinds_after(rank, kind))) / symbol("vpp")
    running = [(k, n) for k, n in running_forms(rank) if k in rank.model.layer_kinds]
    if rank.schedule.pairs:
        return paired * maximum(*((symbol(f"W_fwd_{n}") - symbol(f"A_{n}")) * runs(rank, k, n) for k, n in running))
    return paired * (passed + maximum(*(symbol(f"W_fwd_{n}") * runs(rank, k, n) for k, n in running)))


def _kinds_after(rank: Rank, kind: str) -> list[str]:
    """Kinds of layers that all come after the last of this kind."""
    last = max(i for i, s in enumerate(rank.model.layers) if kind in s.kinds)
    return [k for k in rank.model.kind_names() if min(i for i, s in enumerate(rank.model.layers) if k in s.kinds) > last]


def rebuilt(rank: Rank, plain: str, name: str) -> Expr:
    """Layers of a recomputed group whose saved tensors are rebuilt together, besides the one at work."""
    if name == plain or rank.strategy.recompute != "full" or rank.strategy.recompute_method != "uniform":
        return ZERO
    together = expr(rank.strategy.recompute_num_layers)
    if rank.strategy.recompute_layers_per_stage is not None:
        together = maximum(1, minimum(together, symbol(f"L_{plain}_ckpt_i")))
    return symbol(f"A_{plain}") * (together - 1)


def gradients_after(rank: Rank, name: str) -> Expr:
    """PyTorch's gradients of the head that exist before this block's backward: its own where the step has one micro-batch
    (under FSDP they wait, whole, for the root's reduction), and always that of a table it shares with the embedding."""
    if rank.framework.main_gradients or name == "head":
        return ZERO
    of_head = held_output_layer(rank.book) * WIDTHS[rank.strategy.precision]
    return (of_head if rank.strategy.zero == 3 else rank.fresh * of_head) + _tied_gradient(rank)


def _tied_gradient(rank: Rank) -> Expr:
    """The gradient that the head makes of a table it shares with the stage's embedding: it waits for the lookup's, and
    both are there as they are added (torch autograd input_buffer.cpp)."""
    if rank.framework.main_gradients or not rank.model.tie_word_embeddings:
        return ZERO
    return symbol("P_output") * (symbol("loss_i") - symbol("output_i")) * WIDTHS[rank.strategy.precision]


def first_layers(rank: Rank) -> Expr:
    """What the backward of the stage's first layer, or of the embedding, holds besides the gradients of all."""
    kind = rank.model.layers[0].kinds[0]
    variant = f"{kind}_ckpt" if kind in rank.lowered.checkpointed else kind
    layer = (symbol(f"W_bwd_{variant}") + symbol("A_embedding")) * rank.has[kind] * symbol("first_i")
    table = symbol("W_bwd_embedding") * symbol("first_i")
    if rank.framework.main_gradients:
        return table
    if rank.strategy.zero == 3:
        waiting = gradients_after(rank, kind)
        # the shards of this layer's gradients and of the root's are still to come
        to_come = shard_gradients(rank, parameters_of(rank, kind) + root_parameters(rank))
        units = gathered_parameters(rank, kind, backward=True) + reduction_buffer(rank, kind) + waiting - to_come
        last = gathered_parameters(rank, "embedding", backward=True) + waiting - shard_gradients(rank, root_parameters(rank))
        return maximum(layer + units * symbol("first_i"), table + last, *_sums(rank, 2 * _tied_gradient(rank) + last))
    width = WIDTHS[rank.strategy.precision]
    tables = symbol("P_embedding_embedding") * width * symbol("first_i")
    head, sums = _tied_gradient(rank), _sums(rank, (3 - rank.fresh) * _tied_gradient(rank))
    return maximum(layer - rank.fresh * (unit_bytes(rank, kind) * symbol("first_i") + tables) + head, table - rank.fresh * tables + head, *sums)


def _sums(rank: Rank, held: Expr) -> list[Expr]:
    """What is held as the two gradients of a shared table are added."""
    return [held] if _tied_gradient(rank) else []
