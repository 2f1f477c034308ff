"""What a moment of the step holds besides the block at work: gradients made before, layers rebuilt, a forward beside."""

from __future__ import annotations

from collections.abc import Iterable

from symsim.algebra.expr import ONE, ZERO, Expr, expr, maximum, minimum, symbol
from symsim.algebra.key import layers, of_block, of_stage
from symsim.algebra.kinds import EMBEDDING, HEAD
from symsim.cost.held import trained_of, trained_output_layer
from symsim.cost.memory_gathered import gathered_parameters, reduction_buffer, shard_gradients, still_gathered, trained_parameters, trained_root
from symsim.cost.memory_rank import Rank, ahead, on_device, saved_layers, stream, total
from symsim.cost.shared_weights import lent_by_stage
from symsim.cost.states import parameter_type
from symsim.ir.block import WIDTHS
from symsim.ir.operations import LinearCrossEntropy
from symsim.ir.roles import ROLES, role_of
from symsim.pipeline.stages import runs as runs_of


def running_forms(rank: Rank) -> list[tuple[str, bool]]:
    """Blocks and the forms in which they run: as they are, and (again) recomputed in full."""
    found = []
    for name in rank.lowered.blocks:
        found.append((name, False))
        if name in rank.lowered.checkpointed:
            found.append((name, True))
    return [(name, again) for name, again in found if not role_of(name).before]


def runs(rank: Rank, name: str, again: bool) -> Expr:
    """1 where the stage runs the block in this form."""
    if name not in rank.lowered.checkpointed:
        return rank.has[name]
    recomputed = layers(name, again=True).expr
    return minimum(1, recomputed if again else layers(name).expr - recomputed)


def saved_after(rank: Rank, name: str, again: bool) -> Expr:
    """Saved bytes of what comes after the block's last layer on the stage: freed by its backward, not there in its forward."""
    after = [n for n in role_of(name).followed_by if n in rank.lowered.blocks]
    later = total(of_block("A", n).expr * symbol(runs_of(n)) for n in after)
    if name in ROLES:
        return later
    for kind in _kinds_after(rank, name):
        later = later + saved_layers(rank, kind)
    strategy = rank.strategy
    if again and strategy.recompute == "full" and (strategy.recompute_method == "block" or strategy.recompute_layers_per_stage is not None):
        later = later + of_block("A", name).expr * (layers(name).expr - layers(name, again=True).expr)
    return later


def embedded(rank: Rank, name: str) -> Expr:
    """What the embedding made, in the forward of later layers where the first one does not keep it: a local of the model's forward, whose modules
    are called one by one (transformers modeling_llama.py LlamaModel.forward, inputs_embeds)."""
    kind = rank.model.layers[0].kinds[0]
    first = rank.lowered.checkpointed.get(kind, rank.lowered.blocks[kind])
    if not rank.framework.op_by_op or name not in rank.model.layer_kinds or first.placed.block.inputs[0] in {s.name for s in first.saved}:
        return ZERO
    others = maximum(0, total(layers(k).expr for k in rank.model.kind_names()) - 1)
    return stream(rank) * symbol("first_i") * minimum(1, others)


def gradients_ahead(rank: Rank, name: str) -> Expr:
    """Bytes of gradients of what layers read beside the stream: sums over the layers that read it, which wait until the first of these has run
    backward. Behind the last of them, on the last stage, there are none."""
    if name not in rank.model.layer_kinds or not rank.lowered.passed_on[1:]:
        return ZERO
    order = [kind for segment in reversed(rank.model.layers) for kind in reversed(segment.kinds * segment.repeat)]
    reads = {kind for kind in order if any(n in rank.lowered.blocks[kind].placed.block.inputs for _, n in rank.lowered.passed_on[1:])}
    last = next(i for i, kind in enumerate(order) if kind in reads)
    return ahead(rank) * (1 - symbol("loss_i") if order.index(name) <= last else ONE)


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
        held = layers(kind).expr
        taken = held if count is None else minimum(held, maximum(0, count - before))
        found, before = found + on_device(rank, kind) * taken, before + held
    return found


def beside(rank: Rank, kind: str) -> Expr:
    """What the forward of another micro-batch holds beside the backward of the last layer of this kind: the layers that it
    has passed, as many as the backward has, and the layer it is in, at its worst kernel."""
    paired = pairs_run(rank)
    if not paired or kind not in rank.model.layer_kinds:
        return ZERO
    passed = _layers_saved(rank, total(layers(k).expr for k in _kinds_after(rank, kind))) / symbol("vpp")
    running = [(k, again) for k, again in running_forms(rank) if k in rank.model.layer_kinds]
    if rank.schedule.pairs:
        return paired * maximum(*((worst(k, again) - of_block("A", k, again).expr) * runs(rank, k, again) for k, again in running))
    forward = maximum(*(worst(k, again) * runs(rank, k, again) for k, again in running))
    if rank.strategy.ep_overlap_early_attn_memory_release:
        forward = maximum(0, forward - _of_attention(rank, kind))
    return paired * (passed + forward)


def _of_attention(rank: Rank, kind: str) -> Expr:
    """Saved bytes of a layer that nothing but its attention needs: free once its backward has run, ahead of the other micro-batch's experts
    (Megatron-Core ep_overlap_early_attn_memory_release)."""
    saved = rank.lowered.blocks[kind].saved
    return sum((s.bytes for s in saved if all(keeper.operation.startswith("attention.") for keeper in s.by)), ZERO)


def worst(name: str, again: bool, *, backward: bool = False) -> Expr:
    """What the block holds at its worst kernel."""
    return of_block("W", name, again, phase="backward" if backward else "forward").expr


def _kinds_after(rank: Rank, kind: str) -> list[str]:
    """Kinds of layers that all come after the last of this kind."""
    last = max(i for i, s in enumerate(rank.model.layers) if kind in s.kinds)
    return [k for k in rank.model.kind_names() if min(i for i, s in enumerate(rank.model.layers) if k in s.kinds) > last]


def kinds_before(rank: Rank, kind: str) -> list[str]:
    """Kinds of layers that all come before the first of this kind."""
    first = min(i for i, s in enumerate(rank.model.layers) if kind in s.kinds)
    return [k for k in rank.model.kind_names() if max(i for i, s in enumerate(rank.model.layers) if k in s.kinds) < first]


def rebuilt(rank: Rank, name: str, again: bool) -> Expr:
    """Layers of a recomputed group whose saved tensors are rebuilt together, besides the one at work."""
    if not again or rank.strategy.recompute != "full" or rank.strategy.recompute_method != "uniform":
        return ZERO
    together = expr(rank.strategy.recompute_num_layers)
    if rank.strategy.recompute_layers_per_stage is not None:
        together = maximum(1, minimum(together, layers(name, again=True).expr))
    return of_block("A", name).expr * (together - 1)


def gradients_after(rank: Rank, name: str) -> Expr:
    """Gradients that exist before this block's backward: of what layers read beside the stream, and PyTorch's of the head, and, where the step has
    one micro-batch, of kinds of layers behind it."""
    ahead_of_it = gradients_ahead(rank, name)
    if rank.framework.main_gradients or role_of(name).behind:
        return ahead_of_it + (_of_head(rank) if name == HEAD and _added_in_forward(rank) and not rank.framework.main_gradients else ZERO)
    behind = total(_trained(rank, k) for k in _kinds_after(rank, name)) if name in rank.model.layer_kinds else ZERO
    return ahead_of_it + _of_head(rank) + (_lent(rank) if name in rank.model.layer_kinds else ZERO) + _waiting(rank, behind)


def at_first(rank: Rank, name: str, before: Iterable[str], again: bool) -> Expr:
    """What the backward of the first layer of a kind holds, with layers of other kinds before it: what those have saved, and the gradients of all
    behind it."""
    kept = total(saved_layers(rank, k) for k in before) + of_block("A", EMBEDDING).expr * symbol("first_i")
    behind = total(_trained(rank, k) for k in rank.model.kind_names() if k not in before) - trained_parameters(rank, name)
    work = worst(name, again, backward=True) + gathered_parameters(rank, name, backward=True)
    return kept + work + _of_head(rank) + _lent(rank) + _waiting(rank, behind)


def _lent(rank: Rank) -> Expr:
    """What several layers use has its gradient summed in autograd's buffer until the last of them has run."""
    return lent_by_stage(rank.lowered) * WIDTHS[parameter_type(rank.strategy)]


def _trained(rank: Rank, kind: str) -> Expr:
    return trained_parameters(rank, kind) * layers(kind).expr


def _waiting(rank: Rank, parameters: Expr) -> Expr:
    """Bytes of gradients of so many parameters where the step has one micro-batch."""
    return rank.fresh * (shard_gradients(rank, parameters) if rank.strategy.zero == 3 else parameters * WIDTHS[parameter_type(rank.strategy)])


def _of_head(rank: Rank) -> Expr:
    """Gradients of the head that exist before the backward of layers: its own where the step has one micro-batch (under FSDP they wait, whole,
    for the root's reduction), and always that of a table it shares with the embedding."""
    of_head = trained_output_layer(rank.book, rank.lowered) * WIDTHS[parameter_type(rank.strategy)]
    if rank.strategy.zero == 3 and _added_in_forward(rank):
        return shard_gradients(rank, rank.fresh * trained_output_layer(rank.book, rank.lowered))  # reduced behind the last chunk
    return (of_head if rank.strategy.zero == 3 else rank.fresh * of_head) + _tied_gradient(rank)


def _added_in_forward(rank: Rank) -> bool:
    """Whether the chunks of a loss have each added to the output layer's gradient, which then waits for nothing."""
    head = rank.lowered.blocks.get(HEAD)
    return head is not None and any(isinstance(op.attrs, LinearCrossEntropy) and op.attrs.adds for op in head.placed.block.ops)


def _tied_gradient(rank: Rank) -> Expr:
    """The gradient that the head makes of a table it shares with the stage's embedding: it waits for the lookup's, and
    both are there as they are added (torch autograd input_buffer.cpp)."""
    if rank.framework.main_gradients or not rank.model.tie_word_embeddings or not trained_output_layer(rank.book, rank.lowered):
        return ZERO
    found = of_stage("P_output").expr * (symbol("loss_i") - symbol("output_i")) * WIDTHS[parameter_type(rank.strategy)]
    return rank.fresh * found if _added_in_forward(rank) else found


def first_layers(rank: Rank) -> Expr:
    """What the backward of the stage's first layer, or of the embedding, holds besides the gradients of all."""
    kind = rank.model.layers[0].kinds[0]
    layer = (worst(kind, kind in rank.lowered.checkpointed, backward=True) + of_block("A", EMBEDDING).expr) * rank.has[kind] * symbol("first_i")
    table = worst(EMBEDDING, False, backward=True) * symbol("first_i")
    if rank.framework.main_gradients:
        return table + still_gathered(rank)
    if rank.strategy.zero == 3:
        waiting = _of_head(rank)
        # the shards of this layer's gradients and of the root's are still to come
        to_come = shard_gradients(rank, trained_parameters(rank, kind) + trained_root(rank))
        units = gathered_parameters(rank, kind, backward=True) + reduction_buffer(rank, kind) + waiting - to_come
        last = gathered_parameters(rank, EMBEDDING, backward=True) + waiting - shard_gradients(rank, trained_root(rank))
        return maximum(layer + units * symbol("first_i"), table + last, *_sums(rank, 2 * _tied_gradient(rank) + last))
    width = WIDTHS[parameter_type(rank.strategy)]
    tables = trained_of(rank.book, "P", EMBEDDING, "embedding") * width * symbol("first_i")
    head, sums = _tied_gradient(rank), _sums(rank, (3 - rank.fresh) * _tied_gradient(rank))
    return maximum(
        layer - rank.fresh * (trained_parameters(rank, kind) * width * symbol("first_i") + tables) + head, table - rank.fresh * tables + head, *sums
    )


def _sums(rank: Rank, held: Expr) -> list[Expr]:
    """What is held as the two gradients of a shared table are added."""
    return [held] if _tied_gradient(rank) and not _added_in_forward(rank) else []
