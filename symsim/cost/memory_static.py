"""Bytes of one rank of stage i that stay for the whole step: weights, gradients, optimizer states; and what the update needs."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from symsim.algebra.expr import ONE, ZERO, Expr, expr, maximum, minimum, product, symbol
from symsim.algebra.key import layers, of_stage
from symsim.algebra.kinds import DEPTH, EMBEDDING
from symsim.algebra.quantity import BYTE, ELEMENT, Quantity
from symsim.cost.compiled_update import of_compiled_update
from symsim.cost.count import counted_parameters
from symsim.cost.exchange_buffers import exchange_buffers
from symsim.cost.gathering import never_sharded
from symsim.cost.held import some_frozen, trained_part
from symsim.cost.memory_narrow import narrow_copies, narrowed_copies
from symsim.cost.memory_rank import Rank, define_stage, rational, total
from symsim.cost.mirrored import of_other
from symsim.cost.orthogonal import orthogonal_temporaries
from symsim.cost.reduce import bucket_size, ends, expert_groups, reductions, shards
from symsim.cost.states import beside_blocks, kept_beside_update, main_type, parameter_type, states
from symsim.cost.stored import instead
from symsim.inputs.optimizers import OPTIMIZERS
from symsim.inputs.strategy import Strategy
from symsim.inputs.traced import once
from symsim.ir.block import WIDTHS
from symsim.ir.exceptions import of_linear_module
from symsim.ir.roles import role_of
from symsim.lowering.differentiate import elements
from symsim.pipeline.stages import holds, runs
from symsim.placement.mesh import local_size

MIB = 2**20
_WIDTHS = frozenset(("f", "f_e", "f_s"))  # of the feed-forward networks of one model
_DEGREES = frozenset(("tp", "etp"))  # that split them
_SOURCE_OF_ADAM = "Adam: Mixed Precision Training, arXiv:1710.03740; types: Megatron-Core optimizer/optimizer_config.py"

# Bytes of libraries' workspaces that PyTorch's allocator hands out, by generation of the accelerator
WORKSPACES = {"none": 0, "ampere": 8 * MIB + 128 * 1024 + 4 * MIB, "hopper": 64 * MIB}


class Static(NamedTuple):
    """Bytes that stay for the whole step; host: bytes kept on the host instead; link: bytes over its link a step, of what."""

    weights: Expr
    gradients: Expr
    optimizer: Expr
    constant: Expr
    host: tuple[Expr, ...]
    link: Mapping[str, Expr]


def _of_each(rank: Rank, width: int | Fraction, store: str) -> Expr:
    """Bytes of `width` a trained parameter, split over the ranks that share it where the placement has this store so."""
    return sum((trained_part(rank.lowered, part) * width / shard for part, shard in _copies(rank, store)), ZERO)


def _of_frozen(rank: Rank, width: int | Fraction) -> Expr:
    """Bytes of `width` a parameter that is not trained, which lies where the others do."""
    if not some_frozen(rank.lowered):
        return ZERO
    frozen = {part: of_stage("P", part).expr - trained_part(rank.lowered, part) for part in ("dense", "expert")}
    return sum((frozen[part] * width / shard for part, shard in _copies(rank, "parameters")), ZERO)


def _of_reference(rank: Rank) -> Expr:
    """Bytes of a frozen model in the type of the computation, without adapters, sharded as the trained one's parameters are."""
    adapted = rank.strategy.tuner_type != "full"
    width = WIDTHS[rank.strategy.precision]
    return _of_frozen(rank, width) + (ZERO if adapted else _of_each(rank, width, "parameters"))


def _stored(rank: Rank) -> Expr:
    """Bytes more, less than none, for frozen weights that are stored in few bits."""
    split = rank.lowered.mesh.placement.stores["parameters"]
    groups: tuple[tuple[bool | None, bool], ...] = ((False, False), (True, True)) if expert_groups(rank.lowered) else ((None, False),)
    copies = [(own, shards(rank.lowered, expert).shard if split else ONE) for own, expert in groups]
    return total(instead(rank.lowered, name, shard, own) * symbol(holds(name)) for name in rank.lowered.blocks for own, shard in copies)


def _copies(rank: Rank, store: str) -> list[tuple[str, Expr]]:
    """The dense part and the experts, and over how many ranks one copy of what is stored of them is sharded."""
    split, apart = rank.lowered.mesh.placement.stores[store], expert_groups(rank.lowered)
    return [(part, shards(rank.lowered, expert).shard if split else ONE) for part, expert in (("dense", False), ("expert", apart))]


def gradient_width(rank: Rank) -> int | Fraction:
    return 4 if rank.strategy.grad_reduce_in_fp32 else WIDTHS[rank.strategy.precision]


@once
def define_static(rank: Rank) -> Static:
    """Defines what stays for the whole step: weights, gradients, optimizer states, and what is always there."""
    strategy = rank.strategy
    precision, main = WIDTHS[strategy.precision], main_type(strategy)
    own = WIDTHS[parameter_type(strategy)]
    only_main = strategy.zero == 3 and rank.assume["fsdp_parameters"] == "main"
    weights = _of_each(rank, WIDTHS[main] if only_main else own, "parameters") + _of_frozen(rank, precision)
    weights = weights + _stored(rank)
    shards_of_weights = weights
    weights = weights + strategy.reference_models * _of_reference(rank)
    if strategy.offload_parameters:
        weights = ZERO
    if strategy.param_persistence_threshold:
        weights = weights + precision * _whole_on_every_rank(rank)
    weights = weights + narrow_copies(rank)
    held = {part: rule(rank.lowered) for part, rule in rank.lowered.profile.conventions.held.items()}
    kept_weights = define_stage(
        rank,
        of_stage("M", "weights"),
        held.get("weights", _of_both(rank, weights)),
        ("parameters, with the forms in which a recipe keeps them" if strategy.fp8 != "none" else "parameters")
        + (", and those of reference models" if strategy.reference_models else ""),
        r"M^{(i)}_{\mathrm{weights}}",
        source="Megatron-Core docs/user-guide/features/dist_optimizer.md; FP8: TransformerEngine module/linear.py (cached for all micro-batches)",
        assumptions=(*(("fsdp_parameters",) if strategy.zero == 3 else ()), *(("fp8_layouts",) if strategy.fp8 != "none" else ())),
    )
    gradients = define_stage(
        rank,
        of_stage("M", "gradients"),
        held.get("gradients", _of_both(rank, _gradients(rank) + summed_shards(rank))),
        "gradients accumulated over the step",
        r"M^{(i)}_{\mathrm{gradients}}",
        source="Megatron-Core distributed/param_and_grad_buffer.py; ZeRO, arXiv:1910.02054, sec. 3 and 5",
    )
    kept_states = _with_blocks(rank, sum((states(rank.lowered, expert=e, updates_parameters=only_main) for e in (False, True)), ZERO))
    away = rational(strategy.optimizer_offload_fraction) if strategy.optimizer_cpu_offload else expr(0)
    on_host, moved = _on_host(rank, shards_of_weights, kept_states, away)
    buffered = strategy.zero == 3 and rank.assume["reduction_buffers"] != "none"
    flex = rank.model.moe is not None and strategy.moe_token_dispatcher_type == "flex"
    always = _dummies(rank) + (reduction_buffers(rank) if buffered else ZERO)
    optimizer = define_stage(
        rank,
        of_stage("M", "optimizer"),
        held.get("optimizer", (_of_both(rank, kept_states) / 2 if rank.schedule.mirrored else kept_states) * (1 - away)),
        "optimizer states: the copy that is updated, and its moments",
        r"M^{(i)}_{\mathrm{optimizer}}",
        source=_SOURCE_OF_ADAM if strategy.optimizer == "adam" else OPTIMIZERS[strategy.optimizer].source,
    )
    constant = define_stage(
        rank,
        of_stage("M", "constant"),
        always + WORKSPACES[rank.assume["library_workspace"]] + exchange_buffers(rank.lowered),
        "placeholder weight gradients and library workspaces"
        + (", a buffer of reductions" if buffered else "")
        + (", a dispatcher's" if flex else ""),
        r"M^{(i)}_{\mathrm{constant}}",
        source="TransformerEngine module/base.py get_dummy_wgrad, get_cublas_workspace_size_bytes; PyTorch CublasHandlePool.cpp",
        assumptions=("te_dummy_wgrad", "library_workspace", *(("reduction_buffers",) if buffered else ())),
    )
    return Static(kept_weights, gradients, optimizer, constant, on_host, moved)


def _gradients(rank: Rank) -> Expr:
    """Bytes of gradients that a rank accumulates: none where each is used up at once, or where the host does, unless they wait for the last
    micro-batch unsharded."""
    if rank.strategy.optimizer_in_bwd:
        return ZERO
    if rank.strategy.offload_gradients and rank.lowered.mesh.placement.stores["gradients"]:
        return ZERO
    return _of_each(rank, gradient_width(rank), "gradients")


def summed_shards(rank: Rank) -> Expr:
    """Bytes of a rank's shards of gradients that were reduced as the pipeline emptied, beside those that the next micro-batches add up whole."""
    strategy, whole = rank.strategy, not rank.lowered.mesh.placement.stores["gradients"]
    apart = ends(strategy) > 1 and strategy.zero >= 2 and whole and not strategy.offload_gradients
    return _of_each(rank, gradient_width(rank), "optimizer states") if apart else ZERO


def _on_host(rank: Rank, weights: Expr, kept_states: Expr, away: Expr) -> tuple[tuple[Expr, ...], dict[str, Expr]]:
    """Bytes that are on the host in place of the rank, and over its link a step: shards of parameters, and a share of the states."""
    strategy, kept = rank.strategy, []
    moved: dict[str, Expr] = {}
    if strategy.offload_parameters:
        kept.append(weights)
        moved["parameters"] = weights * _gathers(strategy)
    if strategy.optimizer_cpu_offload:
        gradients = _of_each(rank, 4, "optimizer states")
        kept.append((gradients if strategy.optimizer_offload_device == "nvme" else gradients + kept_states) * away)
        if strategy.optimizer_offload_device == "nvme":
            moved["drive"] = 2 * kept_states * away
        # parameters that wait on the host are updated where they are, and gradients that are summed there are there
        both_ways = (0 if strategy.offload_gradients else 4) + (0 if strategy.offload_parameters else 4)
        moved["optimizer"] = _of_each(rank, both_ways, "optimizer states") * away
        if strategy.offload_gradients:
            moved["gradients"] = _of_each(rank, gradient_width(rank), "optimizer states") * reductions(strategy)
    elif strategy.offload_parameters:
        moved["optimizer"] = weights
    return tuple(kept), moved


def _gathers(strategy: Strategy) -> Expr:
    """How often a step gathers the shards of a parameter over all ranks: forward, and backward where they are freed between."""
    forward = symbol("m") if strategy.reshard_after_backward else expr(ends(strategy))
    return forward + (symbol("m") if strategy.reshard_after_forward is True else ZERO)


def reduction_buffers(rank: Rank) -> Expr:
    """Buffers of a bucket that gradients are copied into before they are reduced (assumption reduction_buffers)."""
    copies = {"none": 0, "one": 1, "two": 2}[rank.assume["reduction_buffers"]]
    return copies * gradient_width(rank) * bucket_size(rank.strategy, shards(rank.lowered, False).ranks)


def _whole_on_every_rank(rank: Rank) -> Expr:
    """What the other ranks' shares of parameters take that are not sharded (param_persistence_threshold)."""
    apart, found = expert_groups(rank.lowered), ZERO
    for kind in rank.model.kind_names():
        for expert in (False, True):
            others = 1 - 1 / shards(rank.lowered, expert and apart).shard
            found = found + never_sharded(rank.lowered, kind, expert=expert) * layers(kind).expr * others
    return found


class _Shape(NamedTuple):
    """A weight on one rank, of experts that of one: its elements, and how many of them a row has."""

    elements: Expr
    columns: Expr


def _te_weights(rank: Rank, name: str) -> list[_Shape]:
    """The weights of a block's linear modules that are trained."""
    placed, found = rank.lowered.blocks[name].placed, []
    for op in placed.block.ops:
        if not of_linear_module(op.kind, op.attrs):
            continue
        weight = next(t for t in op.inputs if placed.block.tensors[t].kind == "parameter")
        tensor, inner = placed.block.tensors[weight], op.einsums[0].contracted
        if tensor.gradient:
            columns = product(local_size(placed.mesh, placed.block, d, placed.layouts[weight].get(d, ())) for d in tensor.dims if d in inner)
            found.append(_Shape(elements(placed, weight) / (_local_experts(rank) if "E" in tensor.dims else 1), columns))
    return found


def _local_experts(rank: Rank) -> Expr:
    return symbol("E") / rank.lowered.mesh.degree("ep")


@once
def _dummies(rank: Rank) -> Expr:
    """One unused gradient for every shape of weight: autograd wants one where the real one went to the main gradient."""
    if not rank.framework.placeholders:
        return ZERO
    holders: dict[_Shape, dict[str, None]] = {}
    for name in (*rank.model.kind_names(), *([DEPTH] if DEPTH in rank.lowered.blocks else [])):
        for shape in _te_weights(rank, name):
            holders.setdefault(shape, {})[name] = None
    width, found = WIDTHS[rank.strategy.precision], ZERO
    seen: list[tuple[_Shape, Expr]] = []
    for shape, names in holders.items():
        own = here = minimum(1, total(symbol(runs(n)) for n in names))
        for other, there in seen:
            # networks of one block; those of other layers are taken to be of other widths
            own = own * _differ(shape, other) if there == here else own
        found = found + shape.elements * width * own
        seen.append((shape, here))
    return found


def _differ(one: _Shape, other: _Shape) -> Expr:
    """1 where two shapes differ, else 0: those of feed-forward networks are the same where their widths are, others never."""
    ratio = one.elements / other.elements if len(one.elements.terms) == len(other.elements.terms) == 1 else ONE
    if ratio.symbols().isdisjoint(_WIDTHS) or ratio.symbols() - _WIDTHS - _DEGREES or one.columns / other.columns not in (ONE, ratio):
        return ONE
    ((monomial, coefficient),) = ratio.terms.items()
    over = Expr({tuple((a, p) for a, p in monomial if p > 0): Fraction(coefficient).numerator})
    under = Expr({tuple((a, -p) for a, p in monomial if p < 0): Fraction(coefficient).denominator})
    return minimum(1, maximum(0, over - under)) + minimum(1, maximum(0, under - over))


def _with_blocks(rank: Rank, kept_states: Expr) -> Expr:
    """The states, what whole blocks leave out of moments under a name of its own."""
    beside = sum((beside_blocks(rank.lowered, expert=e) for e in (False, True)), ZERO)
    if beside == ZERO or rank.schedule.mirrored:
        return kept_states
    meaning = "moments of small tensors in fp32, and scales of blocks that are not full"
    latex = r"M^{(i)}_{\mathrm{unblocked}}"
    named = define_stage(rank, of_stage("M", "unblocked"), beside, meaning, latex, source="bitsandbytes optim/optimizer.py; torchao optim/adam.py")
    return kept_states - beside + named


def optimizer_temporaries(rank: Rank) -> Expr:
    """Bytes that the update behind backward makes beside what it changes. Where parameters are updated inside backward the embedding's comes last,
    beside its gradient; of others they take the place of what the kernel of the gradient has read, which is freed then and is no smaller where a
    micro-batch has more tokens than a layer is wide, unless `of_compiled_update` says more."""
    strategy, compiled = rank.strategy, of_compiled_update(rank.strategy, rank.assume)
    if strategy.optimizer_in_bwd:
        last = _updated(rank, EMBEDDING) if compiled else []
        return WIDTHS[parameter_type(strategy)] * last[0] + compiled(last[0]) if compiled and last else ZERO
    away = rational(strategy.optimizer_offload_fraction) if strategy.optimizer_cpu_offload else expr(0)
    width = WIDTHS[main_type(strategy)]
    found = _gradients_in_fp32(rank) + maximum(_unscaled_moments(rank), narrowed_copies(rank))
    row = OPTIMIZERS[strategy.optimizer]
    looped, each = row.looped, expr(4)
    if strategy.optimizer == "adam":
        how = rank.assume["optimizer_implementation"]
        found = found + (_at_once(rank, width) if how == "foreach" else ZERO)
        found = found + (compiled(_define_largest(rank)) if compiled else ZERO)
        looped, each = 2 if how == "for_loop" else 0, expr(width)
    elif looped and main_type(strategy) != "fp32":
        looped += row.widened  # gradient, and Adafactor's parameter, in fp32 (transformers optimization.py, came_pytorch CAME.py)
    if row.largest or looped:
        found = found + row.largest * _define_largest(rank)
    if looped:
        meaning = "temporaries of a parameter that is updated, and those of the parameter before it, whose names are still bound"
        found = found + each * _define_elements(rank, "looped", _looped(rank, looped, row.bound), meaning)
    if row.orthogonal:
        meaning = "stage i: bytes while the worst matrix of the update is made orthogonal"
        key, latex = of_stage("W", "update"), r"W^{(i)}_{\mathrm{update}}"
        worst = Quantity(orthogonal_temporaries(rank.lowered, width), BYTE)
        found = found + rank.book.define(key, worst, meaning, unit=BYTE, latex=latex).expr
    return found * (1 - away)


def _gradients_in_fp32(rank: Rank) -> Expr:
    """Bytes of copies of gradients that were reduced in less than the update reads."""
    strategy = rank.strategy
    narrow = not strategy.grad_reduce_in_fp32 and strategy.precision != "fp32"
    if not narrow or not (rank.framework.main_gradients or strategy.sub_group_size is not None):
        return ZERO
    return _at_once(rank, 4) if kept_beside_update(strategy) or strategy.main_grads_dtype == "fp32" else ZERO


def _unscaled_moments(rank: Rank) -> Expr:
    """Bytes of fp32 copies of narrower states, of all that one optimizer updates: of experts, or of all others. Its kernel reads two moments in
    bf16 as they are (TransformerEngine pytorch/optimizers/fused_adam.py get_unscaled_state, fuse_unscale)."""
    strategy, main = rank.strategy, main_type(rank.strategy)
    if not rank.framework.main_gradients or not strategy.use_precision_aware_optimizer:
        return ZERO
    moments = [strategy.exp_avg_dtype or main, strategy.exp_avg_sq_dtype or main]
    narrow = ([] if moments == ["bf16", "bf16"] else [t for t in moments if t != "fp32"]) + [main] * (main != "fp32")
    each = [trained_part(rank.lowered, part) / shard for part, shard in _copies(rank, "optimizer states")]
    together = maximum(*each) if expert_groups(rank.lowered) else sum(each, ZERO)
    return 4 * len(narrow) * together


def _at_once(rank: Rank, width: int | Fraction) -> Expr:
    """Bytes of `width` a parameter that a rank updates in one go (DeepSpeed runtime/zero/stage3.py, sub groups: gradients in fp32 of one)."""
    whole, size = _of_each(rank, width, "optimizer states"), rank.strategy.sub_group_size
    return whole if size is None else minimum(whole, size * width)


def _define_elements(rank: Rank, which: str, value: Expr, meaning: str) -> Expr:
    latex = rf"P^{{(i)}}_{{\mathrm{{{which}}}}}"
    return rank.book.define(of_stage("P", which), Quantity(value, ELEMENT), meaning, unit=ELEMENT, latex=latex).expr


def _of_both(rank: Rank, value: Expr) -> Expr:
    """Bytes of stage i, and of the other stage where the rank holds two."""
    return value + of_other(rank.book, rank.model, value) if rank.schedule.mirrored else value * rank.schedule.weights


def _define_largest(rank: Rank) -> Expr:
    elements = maximum(*(n for name in rank.lowered.blocks for n in _updated(rank, name)))
    return _define_elements(rank, "largest", elements, "the largest parameter that one rank updates")


def _looped(rank: Rank, own: int, bound: int) -> Expr:
    """Elements of temporaries as one parameter after the other of a block is updated, `own` of each: of torch.optim.adam _single_tensor_adam the
    root and the denominator, beside those of the parameter before that are still bound."""
    candidates: list[Expr] = []
    for name in rank.lowered.blocks:
        sizes = _updated(rank, name)
        candidates += [own * n + bound * before for before, n in zip((ZERO, *sizes), sizes)]
    return maximum(*candidates)


def _updated(rank: Rank, name: str) -> list[Expr]:
    """Elements of a block's trained parameters on one rank, in the order of modules: norms stand behind the others, and behind these what kernels
    take besides tensors (xIELU's two numbers, a scale of every expert)."""
    block, placed = rank.lowered.blocks[name].placed.block, rank.lowered.blocks[name].placed
    read = list(dict.fromkeys(t for op in block.ops for t in op.inputs))
    at = {t: (block.tensors[t].module == "norm", n) for n, t in enumerate(read)}
    sizes = []
    for tensor in sorted((t for t in counted_parameters(placed) if t.gradient), key=lambda t: at.get(t.name, (True, len(read)))):
        expert = "E" in tensor.dims and expert_groups(rank.lowered)
        split = rank.lowered.mesh.placement.stores["optimizer states"]
        shard = shards(rank.lowered, expert).owners if split else ONE
        present = symbol(own) if (own := role_of(name).largest) else rank.has[name]
        sizes.append(elements(placed, tensor.name) / shard * present)
    return sizes
