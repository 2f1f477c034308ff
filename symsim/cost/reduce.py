"""reduce: the messages of a step's end, and of sharded parameters.

Each parameter's gradient is a partial sum over known axes (`differentiate`): over data and context ranks always, over
tensor ranks where its tokens were split (sequence parallelism). Which collectives carry them is the ZeRO stage:

    0  all_reduce of gradients                      2  reduce_scatter every micro-batch, all_gather once
    1  reduce_scatter of gradients, all_gather      3  all_gather of parameters in forward and backward,
       of parameters (distributed optimizer)           reduce_scatter of gradients, every micro-batch (FSDP)

Sources: Megatron-Core distributed/param_and_grad_buffer.py, finalize_model_grads.py; torch.distributed.fsdp.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from symsim.algebra.expr import ONE, ZERO, Expr, ceil, expr, maximum, minimum, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import of_block
from symsim.algebra.kinds import DEPTH, EMBEDDING, HEAD, in_words
from symsim.cost.count import counted_parameters
from symsim.cost.gathering import kept_layers, late, never_sharded, replicated
from symsim.cost.held import before_output, held_output_layer, some_frozen, trained_of, trained_output_layer, trained_part
from symsim.cost.shared_weights import borrowed, lent
from symsim.cost.stored import stored_elements, stored_type
from symsim.frameworks.narrow import recipe_of
from symsim.inputs.optimizers import OPTIMIZERS
from symsim.inputs.strategy import Strategy
from symsim.ir.block import MODULES, NARROW, Tensor
from symsim.ir.messages import Message, Purpose
from symsim.ir.operations import OPERATIONS, PRODUCTS, Projection
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import elements
from symsim.lowering.lowered import Lowered
from symsim.pipeline.shared import held_elsewhere, shared
from symsim.pipeline.stages import gathers_on_arrival, holds, stages, table_copies

# Megatron-Core distributed/distributed_data_parallel.py: elements of a gradient bucket, and at least so many per rank
BUCKET_SIZE = 40_000_000
BUCKET_SIZE_PER_RANK = 1_000_000


@dataclass(frozen=True)
class Shards:
    """The ranks that share one kind of parameter: experts' or all others', how many, over how many a copy is sharded, how many such
    copies there are, and over how many ranks the optimizer's states are sharded."""

    expert: bool
    ranks: Expr
    shard: Expr
    instances: Expr
    owners: Expr

    @property
    def whole(self) -> str:
        """The label of all of them."""
        return "edp" if self.expert else "dp_cp"

    @property
    def inside(self) -> str:
        """The label of those that share one copy."""
        return self.whole if self.instances == ONE else f"intra_{self.whole}"

    @property
    def between(self) -> str:
        """The label of those that hold the same of different copies."""
        return f"inter_{self.whole}"


def expert_groups(lowered: Lowered) -> bool:
    """Megatron-Core gives experts their own gradient group when e > 1 or etp differs from tp (tensor_parallel/layers.py)."""
    strategy = lowered.profile.strategy
    return strategy.ep > 1 or strategy.expert_tp != strategy.tp or strategy.expert_shard_ranks is not None


def shards(lowered: Lowered, expert: bool) -> Shards:
    mesh, strategy = lowered.mesh, lowered.profile.strategy
    ranks = mesh.degree("edp") if expert else mesh.degree("dp") * mesh.group(mesh.context_axes)
    inside, instances = ranks / mesh.degree("inst"), mesh.degree("inst")
    if replicated(strategy, expert):
        inside, instances = ONE, ranks
    elif expert and strategy.expert_shard_ranks is not None:
        inside = expr(strategy.expert_shard_ranks)
        instances = ONE if strategy.expert_shard_ranks == strategy.expert_dp else ranks / strategy.expert_shard_ranks
    return Shards(expert, ranks, inside, instances, ranks if strategy.outer_dp_sharding_strategy == "optim" else inside)


def bucket_size(strategy: Strategy, ranks: Expr) -> Expr:
    """Gradients of a bucket."""
    given = strategy.ddp_bucket_size
    return maximum(BUCKET_SIZE, BUCKET_SIZE_PER_RANK * ranks) if given is None else expr(given)


def in_buckets(message: Message, strategy: Strategy) -> Message:
    """A message of gradients or parameters as one of each bucket, where their size is given; the last is as long as the others."""
    size = strategy.ddp_bucket_size
    if message.row.gathers and strategy.allgather_bucket_size is not None:
        size = strategy.allgather_bucket_size
    if size is None:
        return message
    number = maximum(1, ceil(message.payload / size))
    sent, received = message.send_elements / number, message.receive_elements / number
    return replace(message, send_elements=sent, receive_elements=received, count=message.count * number)


def step_messages(lowered: Lowered, dense: Expr, expert: Expr) -> list[Message]:
    """End-of-step messages of one rank holding `dense` and `expert` parameters (elements)."""
    strategy = lowered.profile.strategy
    gradient = "fp32" if strategy.grad_reduce_in_fp32 else strategy.precision
    made: list[Message] = []
    if strategy.zero == 3:
        return made
    for elements_held, group in ((dense, shards(lowered, False)), (expert, shards(lowered, True))):
        if group.ranks == ONE or not elements_held:
            continue
        n, share = elements_held, elements_held / group.shard
        what = "expert" if group.expert else "dense"
        if strategy.zero == 0 and OPTIMIZERS[strategy.optimizer].compressed:
            continue
        if strategy.zero == 0:
            summed = Message("step", "all_reduce", group.whole, group.ranks, n, n, gradient, f"{what} gradients")
            made.append(_synchronised(summed, strategy))
            continue
        if group.shard != ONE:
            phase = "backward" if strategy.zero == 2 else "step"
            whole_again = lowered.profile.assumptions["zero_reduction"] == "all_reduce"
            op, kept = ("all_reduce", n) if whole_again else ("reduce_scatter", share)
            reduced = Message(phase, op, group.inside, group.shard, n, kept, gradient, f"{what} gradients")
            made.append(_synchronised(reduced, strategy))
        if group.instances != ONE:
            summed = Message("step", "all_reduce", group.between, group.instances, share, share, gradient, f"{what} gradient shards")
            made.append(replace(summed, per="step", count=summed.count * ends(strategy)))
        if group.shard != ONE:
            own = group.expert if expert_groups(lowered) else None
            narrow = narrow_parameters(lowered, own, trained=True) if strategy.fp8_param_gather else ZERO
            for part, dtype in in_types(lowered, n, narrow):
                whole = f"{what} parameters" + (f" in {dtype.upper()}" if dtype in NARROW else "")
                made.append(Message("step", "all_gather", group.inside, group.shard, part / group.shard, part, dtype, whole, per="step"))
    return [in_buckets(m, strategy) for m in made]


def reductions(strategy: Strategy) -> Expr:
    """How often a step reduces the gradients of a chunk: under zero=2 and 3 after every micro-batch, or every group of them that runs through
    it in a row."""
    often = {"every_group": ceil(symbol("m") / symbol("group")), "every_microbatch": symbol("m")} if strategy.zero >= 2 else {}
    return often.get(strategy.gradient_sync, expr(ends(strategy)))


def ends(strategy: Strategy) -> int:
    """How often a step's pipeline is empty and its gradients are reduced (torch distributed/pipelining/stage.py perform_reduce_grad)."""
    return 1 if strategy.zero >= 2 and strategy.gradient_sync == "last_microbatch" else strategy.pipeline_flushes


def _synchronised(message: Message, strategy: Strategy) -> Message:
    often = reductions(strategy)
    return replace(message, per="microbatch") if often == symbol("m") else replace(message, per="step", count=message.count * often)


def in_types(lowered: Lowered, elements_gathered: Expr, narrow: Expr) -> list[tuple[Expr, str]]:
    """Parameters that are gathered, by the type in which they are: those kept in a recipe's type as the recipe gathers them."""
    precision, recipe = lowered.profile.strategy.precision, recipe_of(lowered.profile.strategy)
    if lowered.profile.strategy.quantize_base != "none" and narrow:
        return [(part, dtype) for part, dtype in ((elements_gathered - narrow, precision), (narrow, stored_type(lowered))) if part]
    if recipe is None or not recipe.gathers or not narrow:
        return [(elements_gathered, precision)] if elements_gathered else []
    return [(part, dtype) for part, dtype in ((elements_gathered - narrow, precision), (narrow, recipe.gathers)) if part]


def narrow_weights(placed: Placed) -> list[Tensor]:
    """The weights of a block that a recipe's products multiply."""
    return [
        t
        for op in placed.block.ops
        if op.kind in PRODUCTS and op.of(Projection).multiplied
        for t in (placed.block.tensors[i] for i in op.inputs)
        if t.kind == "parameter" and not t.borrowed and set(op.einsums[0].contracted) & set(t.dims)
    ]


def narrow_of_block(lowered: Lowered, name: str, expert: bool | None = None, *, trained: bool = False) -> Expr:
    """Elements of a block's weights that a recipe's products multiply; expert: of experts, or all others; trained: of those that are."""
    placed = lowered.blocks[name].placed
    own = (t for t in narrow_weights(placed) if (t.gradient or not trained) and (expert is None or (t.module == "experts") == expert))
    return sum((elements(placed, t.name) for t in own), ZERO)


def narrow_parameters(lowered: Lowered, expert: bool | None, *, trained: bool = False) -> Expr:
    """The same of all blocks of a stage."""
    return sum((narrow_of_block(lowered, name, expert, trained=trained) * symbol(holds(name)) for name in lowered.blocks), ZERO)


def tensor_parallel_gradients(lowered: Lowered, name: str, axis: str = "tp") -> Expr:
    """Elements of a block's parameters whose gradient is summed over tp (or etp) at the end of the step (one coalesced call):
    norms and other weights that saw only their rank's tokens, and head norms that saw only its heads."""
    remembered = lowered.blocks[name]
    placed = remembered.placed
    reduced = remembered.differentiated.reduced_over
    marked = _expert_biases(lowered, placed) if axis == "tp" else set()
    found = ZERO
    for tensor in counted_parameters(placed):
        if axis in reduced.get(tensor.name, ()) or (tensor.name in marked and tensor.gradient):
            found = found + elements(placed, tensor.name)
    return found


def _expert_biases(lowered: Lowered, placed: Placed) -> set[str]:
    """Biases of the experts' row-parallel product, where they count as parameters that saw a share of the tokens."""
    mesh = lowered.mesh
    if not (mesh.sequence_parallel and mesh.active("tp")) or lowered.profile.assumptions["expert_bias_gradient"] == "own":
        return set()
    rows = [op for op in placed.block.ops if op.einsums and op.einsums[0].chosen and "f_e" in op.einsums[0].contracted]
    return {t for op in rows for t in op.inputs[1:] if not set(op.einsums[0].contracted) & set(placed.block.tensors[t].dims)}


@dataclass(frozen=True)
class Unit:
    """What FSDP gathers at once: elements one rank holds before sharding, how many such units, and whose ranks share it; the root
    is what is in no other. trained: of the elements, those that have gradients; whole: those that are never sharded; kept: of the units,
    those that stay gathered for backward; late: the share that is gathered only when the unit runs; narrow: elements that are kept and
    gathered in a recipe's type. again: what is in a unit that ran before, gathered for another layer, whose gradient that one's backward
    has."""

    what: str
    elements: Expr
    times: Expr
    trained: Expr
    expert: bool = False
    root: bool = False
    whole: Expr = ZERO
    kept: Expr = ZERO
    late: Expr = ZERO
    narrow: Expr = ZERO
    again: bool = False


def fsdp_units(lowered: Lowered, derivation: Derivation) -> list[Unit]:
    """FSDP wraps every layer, experts with a group of their own apart, weights that layers share apart, and what is left as one root unit."""
    apart = expert_groups(lowered)

    def held(block: str, expert: bool | None = None) -> Expr:
        keys = [of_block("P", block, module=m) for m in MODULES if expert is None or (m == "experts") == expert]
        return sum((key.expr for key in keys if key in derivation), ZERO)

    def trained(block: str, expert: bool | None = None) -> Expr:
        own = [m for m in MODULES if of_block("P", block, module=m) in derivation and (expert is None or (m == "experts") == expert)]
        return sum((trained_of(derivation, "P", block, m) for m in own), ZERO)

    units = []
    for kind in lowered.profile.model.kind_names():
        times, kept = symbol(holds(kind)), kept_layers(lowered, kind)
        for expert, name in ((False, f"{in_words(kind)} layer"), (True, f"experts of a {in_words(kind)} layer"))[: 2 if apart else 1]:
            own = expert if apart else None
            whole = never_sharded(lowered, kind, expert=own)
            learnt = trained(kind, expert=own)
            narrow = narrow_of_block(lowered, kind, own) if lowered.profile.strategy.fp8_param_gather else stored_elements(lowered, kind, own)
            units.append(Unit(name, held(kind, expert=own), times, learnt, expert, whole=whole, kept=kept, late=late(lowered, kind), narrow=narrow))
        units = [*units[:-1], *_shared_apart(lowered, kind, units[-1])]
    root = held(EMBEDDING) * symbol("embedding_i") + held_output_layer(derivation)
    learnt = trained(EMBEDDING) * symbol("embedding_i") + trained_output_layer(derivation, lowered)
    for module in before_output(derivation):
        root = root + of_block("P", HEAD, module=module).expr * symbol("last_layer_i")
        learnt = learnt + trained_of(derivation, "P", HEAD, module) * symbol("last_layer_i")
    if DEPTH in lowered.blocks:
        root = root + held(DEPTH) * symbol("mtp_copies_i")
        learnt = learnt + trained(DEPTH) * symbol("mtp_copies_i")
    often = minimum(1, root) if lowered.profile.strategy.pp > 1 else ONE
    return [u for u in (*units, Unit("root", root, often, learnt, root=True)) if u.elements]


def _shared_apart(lowered: Lowered, kind: str, layer: Unit) -> list[Unit]:
    """A layer's unit as that of its own weights, and that of those it shares with others, or has from another."""
    shares, has = lent(lowered, kind), borrowed(lowered, kind)
    what = f"weights that {in_words(kind)} layers share"
    of_others = [Unit(what, has, layer.times, ZERO, again=True)] if has else []
    if not shares or shares == sum((elements(lowered.blocks[kind].placed, t.name) for t in counted_parameters(lowered.blocks[kind].placed)), ZERO):
        return [layer, *of_others]
    own = replace(layer, elements=layer.elements - shares, trained=layer.trained - shares)
    return [own, Unit(what, shares, layer.times, shares), *of_others]


def _purpose(unit: Unit) -> Purpose:
    return "root" if unit.root else ""


def fsdp_messages(lowered: Lowered, units: list[Unit]) -> list[Message]:
    """ZeRO-3: every unit is gathered for forward, and again for backward unless kept, and its gradient is scattered, every
    micro-batch."""
    strategy = lowered.profile.strategy
    if strategy.zero != 3:
        return []
    gradient = "fp32" if strategy.grad_reduce_in_fp32 else strategy.precision
    once = "microbatch" if strategy.reshard_after_backward else "step"
    kept = strategy.reshard_after_forward
    made: list[Message] = []
    for unit in units:
        group = shards(lowered, unit.expert)
        n, share, gathered = unit.trained, unit.trained / group.shard, unit.elements - unit.whole
        times, of, late = unit.times * (1 if strategy.reshard_after_backward else ends(strategy)), _purpose(unit), unit.late
        for part, dtype in in_types(lowered, gathered, unit.narrow) if group.shard != ONE else ():
            what = unit.what + (f" in {dtype.upper()}" if dtype != strategy.precision else "")
            gather = Message("forward", "all_gather", group.inside, group.shard, part / group.shard, part, dtype, what, times, once, of, late)
            if kept or not unit.again:
                made.append(gather)
            elif strategy.reshard_after_backward:
                # gathered once, and after the backward of every layer but the last that has it
                made.append(replace(gather, phase="backward"))
            if unit.whole and dtype == strategy.precision:
                never = replace(gather, what=f"{what}, what is never sharded", phase="step", per="step", late=ZERO)
                made.append(replace(never, send_elements=unit.whole / group.shard, receive_elements=unit.whole, count=unit.times))
            if kept:
                held_by = group.shard if isinstance(kept, bool) else minimum(group.shard, kept)
                again = replace(gather, phase="backward", group=held_by, send_elements=part / held_by, per="microbatch")
                made.append(replace(again, count=unit.times - unit.kept))
        if group.shard != ONE and n:
            scattered = Message("backward", "reduce_scatter", group.inside, group.shard, n, share, gradient, unit.what, unit.times, purpose=of)
            made.append(_synchronised(scattered, strategy))
        if group.instances != ONE and n:
            summed = Message("backward", "all_reduce", group.between, group.instances, share, share, gradient, unit.what, unit.times, purpose=of)
            made += _dealt_out(lowered, unit, summed) if group.owners != group.shard else [_synchronised(summed, strategy)]
    return made


def _dealt_out(lowered: Lowered, unit: Unit, summed: Message) -> list[Message]:
    """Between instances that own a share of the states each: gradients go to their owners, and what is updated comes back, once a step
    (Megatron-Core docs/user-guide/features/megatron_fsdp.md, Hybrid-FSDP)."""
    group = shards(lowered, unit.expert)
    scattered = replace(summed, phase="step", op="reduce_scatter", receive_elements=unit.trained / group.owners, per="step")
    made = [scattered]
    for part, dtype in in_types(lowered, unit.trained, unit.narrow if unit.trained == unit.elements else ZERO):
        what = f"{unit.what}, updated" + (f" in {dtype.upper()}" if dtype in NARROW else "")
        back = replace(scattered, op="all_gather", send_elements=part / group.owners, receive_elements=part / group.shard, dtype=dtype)
        made.append(replace(back, what=what))
    return made


def boundary(lowered: Lowered) -> list[Message]:
    """What goes to the next chunk: of the stream `[s/(c t), b, h]` (Megatron-Core schedules.py), and of each tensor that layers read beside it
    (every tensor of a stage's results is sent: DeepSpeed runtime/pipe/engine.py _exec_send_activations, torch distributed/pipelining/stage.py); a
    share where ranks that all have the whole tensor send one each. Where shapes vary, the three numbers of each are sent ahead of it
    (Megatron-Core p2p_communication.py _communicate_shapes)."""
    made, shares = [], lowered.mesh.degree("tp") if _gathers(lowered) else 1
    for placed, name in lowered.passed_on:
        n, tensor = elements(placed, name) / shares, placed.block.tensors[name]
        what = "activation beside the stream" if tensor.borrowed else "activation"
        one = Message("forward", "p2p", "pp", symbol("pp"), n, n, tensor.dtype, what)
        shape = replace(one, send_elements=ONE * 3, receive_elements=ONE * 3, dtype="int64", what="shape")
        made += [shape, one] if lowered.profile.strategy.variable_seq_lengths else [one]
    return made


def _gathers(lowered: Lowered) -> bool:
    return gathers_on_arrival(lowered.profile.strategy, lowered.profile.assumptions)


def pipeline_messages(lowered: Lowered, sends: "Expr | int", receives: "Expr | int") -> list[Message]:
    """Boundary tensors of a stage, forward to the next chunk and its gradient back."""
    made: list[Message] = []
    directions = (("forward", sends, receives), ("backward", receives, sends))
    for (phase, out, back), one in ((way, one) for way in directions for one in boundary(lowered)):
        what = one.what if phase == "forward" else f"gradient of the {one.what}" if one.what != "shape" else f"{one.what} of the gradient"
        if out:
            made.append(replace(one, phase=phase, receive_elements=ZERO, what=f"{what}, sent", count=ONE * out))
        if back:
            made.append(replace(one, phase=phase, send_elements=ZERO, what=f"{what}, received", count=ONE * back))
    return made


def arrivals(lowered: Lowered) -> list[Message]:
    """What stage i gathers over tensor ranks after shares of a boundary tensor have come, every micro-batch (Megatron-LM until
    2022, p2p_communication.py _communicate: with scatter_gather_tensors_in_pipeline and without sequence parallelism)."""
    made: list[Message] = []
    for one in (m for m in boundary(lowered) if m.what != "shape" and _gathers(lowered)):
        for phase, often in (("forward", "received_i"), ("backward", "returned_i")):
            what = f"{one.what} on arrival" if phase == "forward" else f"gradient of the {one.what} on arrival"
            group, n = lowered.mesh.degree("tp"), one.send_elements
            made.append(Message(phase, "all_gather", "tp", group, n, n * group, one.dtype, what, symbol(often)))
    return made


def update_messages(lowered: Lowered, derivation: Derivation) -> list[Message]:
    """What a rank of stage i sends for gradients and parameters, over the symbols of the stage: once a step, and every
    micro-batch where they are sharded so. Reports evaluate this list and time prices it; a count is 0 where a stage has none."""
    return [
        *fsdp_messages(lowered, fsdp_units(lowered, derivation)),
        *_over_data_ranks(lowered),
        *_over_tensor_ranks(lowered),
        *_copied_table(lowered),
        *_shared_weights(lowered),
        *_router_bias(lowered),
        *_maxima(lowered),
    ]


def _gradient_type(lowered: Lowered) -> str:
    strategy = lowered.profile.strategy
    return "fp32" if strategy.grad_reduce_in_fp32 else strategy.precision


def _where_there_are(lowered: Lowered, amount: Expr, *, of_experts: bool = False) -> Expr:
    """1 where a stage has any of this amount, else 0; 1 alone where every stage must have some."""
    strategy, model = lowered.profile.strategy, lowered.profile.model
    at_ends = strategy.account_for_embedding_in_pipeline_split, strategy.account_for_loss_in_pipeline_split
    uneven = strategy.pipeline_model_parallel_layout, *at_ends
    mixed = of_experts and len({model.layer_kinds[k].ffn for k in model.kind_names()}) > 1
    return minimum(1, amount) if strategy.pp > 1 and (mixed or any(uneven) or some_frozen(lowered)) else ONE


def _layers_with_experts(lowered: Lowered) -> Expr:
    """How many of a stage's blocks have experts."""
    blocks = lowered.blocks.items()
    return sum((symbol(holds(name)) for name, own in blocks if any("E" in t.dims for t in counted_parameters(own.placed))), ZERO)


def _over_data_ranks(lowered: Lowered) -> list[Message]:
    """Gradients and parameters over the ranks that share them; experts apart where they have ranks of their own."""
    dense, expert = trained_part(lowered, "dense"), trained_part(lowered, "expert")
    if not expert_groups(lowered):
        return scaled(step_messages(lowered, dense + expert, ZERO), _where_there_are(lowered, dense + expert))
    has_experts = lowered.profile.model.moe is not None
    # that a stage has layers with experts says that it has parameters of them, where all are trained
    there = expert if some_frozen(lowered) else _layers_with_experts(lowered)
    return [
        *scaled(step_messages(lowered, dense, ZERO), _where_there_are(lowered, dense)),
        *scaled(step_messages(lowered, ZERO, expert if has_experts else ZERO), _where_there_are(lowered, there, of_experts=True)),
    ]


def _over_tensor_ranks(lowered: Lowered) -> list[Message]:
    """Gradients of norms and other weights that saw a share of the tokens (of experts' adapters: of the rows), summed over tensor ranks in
    one call."""
    made = []
    for axis, what in (("tp", "parameters that saw a share of the tokens"), ("etp", "adapters that saw a share of the rows")):
        n = sum((tensor_parallel_gradients(lowered, b, axis) * symbol(holds(b)) for b in lowered.blocks), ZERO)
        if n and lowered.mesh.active(axis):
            often, group = _where_there_are(lowered, n), lowered.mesh.degree(axis)
            made.append(Message("step", "all_reduce", axis, group, n, n, _gradient_type(lowered), f"gradients of {what}", often, "step"))
    return made


def _copied_table(lowered: Lowered) -> list[Message]:
    """Stages that hold a copy of one table sum its gradient (Megatron-Core finalize_model_grads.py)."""
    model = lowered.profile.model
    copies = table_copies(model, lowered.profile.strategy)
    if copies < 2:
        return []
    held = maximum(symbol("embedding_i"), symbol("loss_i")) if model.tie_word_embeddings else symbol("embedding_i")
    placed = lowered.blocks[EMBEDDING].placed
    table = next(t for t in placed.block.parameters() if "V" in t.dims)
    if not table.gradient:
        return []
    n = elements(placed, table.name)
    what = "gradient of the embedding table that several stages hold"
    return [Message("step", "all_reduce", "embd", ONE * copies, n, n, _gradient_type(lowered), what, held, "step")]


def _shared_weights(lowered: Lowered) -> list[Message]:
    """Stages with layers that share weights have a copy each, and sum its gradient."""
    model, made = lowered.profile.model, []
    stages_of = {key for here in held_elsewhere(model, stages(model, lowered.profile.strategy, model.mtp_num_layers)) for key in here}
    for kind, many in sorted(stages_of):
        n = lent(lowered, kind, trained=True)
        what, often = "gradients of weights that layers of several stages share", symbol(shared(kind, many))
        made.append(Message("step", "all_reduce", f"shared_{many}", ONE * many, n, n, _gradient_type(lowered), what, often, "step"))
    return [one for one in made if one.send_elements]


def _router_bias(lowered: Lowered) -> list[Message]:
    """Tokens per expert of all routers of the stage, for the selection bias (Megatron-Core moe_utils.py
    get_updated_expert_bias, which finalize_model_grads.py calls for every module that has one, depths of MTP too)."""
    model, mesh = lowered.profile.model, lowered.mesh
    axes = ("tp", "dp", *mesh.context_axes)
    group = mesh.group(axes)
    if model.moe is None or model.moe.moe_router_enable_expert_bias == "none" or group == ONE:
        return []
    routed = [b for b in lowered.blocks if any(OPERATIONS[op.kind].inner == "balance" for op in lowered.blocks[b].placed.block.ops)]
    layers = sum((symbol(holds(b)) for b in routed), ZERO)
    if not layers:
        return []
    n, often = symbol("E") * layers, _where_there_are(lowered, layers, of_experts=True)
    return [Message("step", "all_reduce", "tp_dp_cp", group, n, n, "fp32", "tokens per expert for the router bias", often, "step")]


def _maxima(lowered: Lowered) -> list[Message]:
    """Delayed scaling: the maxima of all tensors that a stage casts, inputs and weights after a micro-batch's forward, gradients after its
    backward (TransformerEngine pytorch/quantization.py reduce_and_update_fp8_tensors; Megatron-Core fp8_utils.py, one context a chunk)."""
    recipe, axes = recipe_of(lowered.profile.strategy), ("tp", "dp", *lowered.mesh.context_axes)
    group = lowered.mesh.group(axes)
    if recipe is None or recipe.maxima != "forward" or group == ONE:
        return []
    n = ZERO
    for name, block in lowered.blocks.items():
        products = [op for op in block.placed.block.ops if op.kind in PRODUCTS and op.of(Projection).multiplied]
        n = n + len(products) * symbol(holds(name))
    often = symbol("m") * symbol("vpp")
    made = (("inputs and weights", 2 * n), ("gradients", n))
    return [Message("step", "all_reduce", "tp_dp_cp", group, size, size, "fp32", f"maxima of {what}", often, "step") for what, size in made]


def scaled(messages: list[Message], times: Expr) -> list[Message]:
    return [replace(m, count=m.count * times) for m in messages]
