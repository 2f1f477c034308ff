"""Seconds of every block: its kernels, its messages, and what of the messages no kernel hides.

For a block `n`, of one micro-batch on one rank:

    t_f_n, t_i_n, t_w_n, t_r_n    kernels of forward; of backward for input gradients and for weight gradients; run again
    c_f_n_AXIS, c_b_n_AXIS        messages over an axis, forward and backward (with those that recomputation repeats)
    e_f_n_AXIS, e_b_n_AXIS        what of them is exposed: max(0, message - what it runs beside)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from symsim.algebra.expr import ZERO, Expr, maximum, summed, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key, of_block
from symsim.algebra.kinds import in_words
from symsim.algebra.quantity import SECOND, Quantity, total
from symsim.cost.beside_product import left_beside_product
from symsim.cost.collectives import Network
from symsim.cost.count import label
from symsim.cost.exchange_overlap import left_of_exchange, slowed, taken_by_collective
from symsim.cost.gathering import sharded
from symsim.cost.graphs import launched
from symsim.cost.half_batches import exposed, turns_of
from symsim.cost.kernel_time import backward_seconds, forward_seconds, launches, merging_seconds
from symsim.frameworks.kernels import Profile
from symsim.inputs.traced import once
from symsim.ir.messages import Message, between_ranks
from symsim.ir.operations import OPERATIONS, UNCOUNTED, Projection
from symsim.ir.roles import role_of
from symsim.lowering.communicate import Placed
from symsim.lowering.differentiate import CAST, BackwardOp
from symsim.lowering.lowered import Lowered
from symsim.lowering.remember import Remembered

# seconds of the host for kernels, forward (False), backward, or of weight gradients (None)
Host = Callable[[Iterable[tuple[int, str]], bool | None], Expr]


@dataclass(frozen=True)
class BlockTime:
    """A block's definitions: seconds of forward, input gradients, weight gradients and recomputation, and of exposed messages by axis."""

    forward: Key
    inputs: Key
    weights: Key
    again: Key
    exposed_forward: Mapping[str, Key]
    exposed_backward: Mapping[str, Key]


@once
def block_times(book: Derivation, network: Network, lowered: Lowered) -> dict[tuple[str, bool], BlockTime]:
    """Definitions of every block as it runs, and (again) as it is recomputed in full, where it shares its kernels' times."""
    made = {}
    for name, remembered in lowered.blocks.items():
        kernels = kernel_times(book, name, remembered.placed, remembered.differentiated.backward, lowered.profile)
        made[name, False] = block_time(book, network, lowered, name, False, remembered, kernels)
        if name in lowered.checkpointed:
            made[name, True] = block_time(book, network, lowered, name, True, lowered.checkpointed[name], kernels)
    return made


@dataclass(frozen=True)
class _Kernels:
    """References to the seconds of a block's kernels: forward by operation index, backward by (index, label). launches: what the host launches for
    each by (index, label), forward without a label; empty where its launches are hidden."""

    forward: Mapping[int, Quantity]
    backward: Mapping[tuple[int, str], Quantity]
    launches: Mapping[tuple[int, str], Expr]


@once
def kernel_times(book: Derivation, name: str, placed: Placed, back: tuple[BackwardOp, ...], profile: Profile) -> _Kernels:
    """Definitions of the kernels of a block, forward and backward, whatever of them runs again."""
    forward, backward = {}, {}
    for index, op in enumerate(placed.block.ops):
        if op.kind in UNCOUNTED:
            continue
        forward[index] = book.define(
            of_block("t", name, module=op.module, operation=op.name, phase="forward"),
            forward_seconds(placed, index, profile),
            f"{op.name}, forward",
            unit=SECOND,
            latex=rf"t_{{{label(op.name)}}}",
        )
    for kernel in back:
        op = placed.block.ops[kernel.forward]
        backward[kernel.forward, kernel.label] = book.define(
            of_block("t", name, module=op.module, operation=op.name, phase=kernel.label),
            backward_seconds(placed, kernel, profile),
            f"{op.name}, {kernel.label}",
            unit=SECOND,
            latex=rf"t^{{\mathrm{{{kernel.label}}}}}_{{{label(op.name)}}}",
        )
    counted = () if profile.assumptions["host_launch"] == "hidden" else [*((i, "") for i in forward), *backward]
    launched = {(i, label): launches(placed, i, profile, label) for i, label in counted}
    return _Kernels(forward, backward, launched)


@once
def block_time(book: Derivation, network: Network, lowered: Lowered, name: str, whole: bool, remembered: Remembered, kernels: _Kernels) -> BlockTime:
    title, words = _titled(name, whole), _said(name, whole)

    rule = lowered.profile.conventions.again.get("seconds")

    def define(phase: str, parts: Iterable[Quantity], host: Expr, meaning: str, latex: str, messages: Expr = ZERO, waits: Expr = ZERO) -> None:
        """The kernels one after the other and what they wait for, or the host where it is slower than they and what shows of their messages are: it
        runs ahead meanwhile."""
        device = total(parts, SECOND).expr + waits
        seconds = maximum(device, host - messages) if device and host else device
        book.define(
            of_block("t", name, whole, phase=phase),
            Quantity(seconds, SECOND),
            f"{words}: kernels of {meaning}",
            unit=SECOND,
            latex=rf"{latex}_{{{title}}}",
            assumptions=("host_launch",) if host else (),
        )

    exposed: dict[str, dict[str, Key]] = {"forward": {}, "backward": {}}
    for phase, sent in (("forward", remembered.differentiated.forward_messages), ("backward", remembered.backward_messages)):
        messages = _by_convention(lowered, name, between_ranks(sent))
        for axis in dict.fromkeys(m.axis for _, m in messages):
            over = tuple((i, m) for i, m in messages if m.axis == axis)
            exposed[phase][axis] = _exposed(book, network, lowered, name, whole, phase, axis, over, remembered, kernels)
    if not whole:
        shown = sum((key.expr for key in exposed["forward"].values()), ZERO)
        own = _by_convention(lowered, name, between_ranks(remembered.differentiated.backward_messages))
        back = sum((_share_of(book, network, name, own, axis, key) for axis, key in exposed["backward"].items()), ZERO)
        inputs = {at: q for at, q in kernels.backward.items() if at[1] != "wgrad"}
        weights = {at: q for at, q in kernels.backward.items() if at[1] == "wgrad"}
        host = partial(_host, lowered, name, remembered, kernels)
        waits = _behind(network, lowered, remembered, kernels, host)
        define("forward", kernels.forward.values(), host([(i, "") for i in kernels.forward], False), "forward", r"t^{f}", shown, waits)
        define("inputs", inputs.values(), host(inputs, True), "backward, input gradients", r"t^{i}", back)
        define("weights", weights.values(), host(weights, None), "backward, weight gradients", r"t^{w}")
    again = [(i, "") for i in kernels.forward if i in remembered.recomputed]
    repeated = [kernels.forward[i] for i, _ in again] if rule is None else [Quantity(rule(name, whole), SECOND)]
    if whole:
        repeated += _synchronised(lowered)
    define("again", repeated, _host(lowered, name, remembered, kernels, again, False), "run again in backward", r"t^{r}")
    return BlockTime(
        of_block("t", name, phase="forward"),
        of_block("t", name, phase="inputs"),
        of_block("t", name, phase="weights"),
        of_block("t", name, whole, phase="again"),
        exposed["forward"],
        exposed["backward"],
    )


def _behind(network: Network, lowered: Lowered, remembered: Remembered, kernels: _Kernels, host: Host) -> Expr:
    """What experts wait for the host, which stops until it has read how many rows come and has no launches ahead then: what it takes it to launch
    them, less the exchange and themselves (Megatron-Core transformer/moe/token_dispatcher.py _maybe_dtoh_and_synchronize; DeepEP deep_ep/buffer.py
    dispatch; branch hybrid-ep, csrc/hybrid_ep/executor/executor.cu metadata_preprocess_core). Nothing where rows are of a fixed number, or another
    micro-batch's kernels run meanwhile."""
    strategy, ops = lowered.profile.strategy, remembered.placed.block.ops
    sent = [i for i in kernels.forward if OPERATIONS[ops[i].kind].role == "exchange"]
    fixed = strategy.moe_pad_expert_input_to_capacity or strategy.moe_expert_rank_capacity_factor is not None
    if not sent or strategy.fusion != "te" or fixed or strategy.overlap_moe_expert_parallel_comm:
        return ZERO
    inside = [i for i in kernels.forward if sent[0] <= i < sent[-1]]
    launching = host([(i, "") for i in inside], False)
    own = (network.seconds(m) * m.count for i, m in between_ranks(remembered.differentiated.forward_messages) if i == sent[0])
    meanwhile = total([*own, *(kernels.forward[i] for i in inside)], SECOND).expr
    return maximum(0, launching - meanwhile) if launching else ZERO


def _synchronised(lowered: Lowered) -> list[Quantity]:
    """The launches that show for a layer where the host waits at both ends of a checkpoint, forward and backward (DeepSpeed
    runtime/activation_checkpointing/checkpointing.py, CheckpointFunction)."""
    strategy = lowered.profile.strategy
    if not strategy.synchronize_checkpoint_boundary or lowered.profile.assumptions["host_launch"] == "hidden":
        return []
    together = strategy.recompute_num_layers if strategy.recompute_method == "uniform" else 1
    return [Quantity(symbol("t_launch") * Fraction(4, together), SECOND)]


def _share_of(book: Derivation, network: Network, name: str, own: list[tuple[int, Message]], axis: str, exposed: Key) -> Expr:
    """Of what shows of a backward's messages over an axis, the part of the backward itself: the others bring back what forward had."""
    sent = of_block("c", name, phase="backward", axis=axis)
    seconds = total((network.seconds(m) * m.count for _, m in own if m.axis == axis), SECOND)
    if book[sent].expr == seconds.expr:
        return exposed.expr
    apart = book.define(
        of_block("c", name, phase="backward", axis=axis, part="own"),
        seconds,
        f"{name}: messages over {axis} of the backward itself",
        unit=SECOND,
        latex=rf"c^{{b,{label(axis)}}}_{{{label(name)},\mathrm{{own}}}}",
    )
    return exposed.expr * apart.expr / sent.expr


def _by_convention(lowered: Lowered, name: str, messages: list[tuple[int, Message]]) -> list[tuple[int, Message]]:
    for rule in lowered.profile.conventions.messages.values():
        messages = [(i, made) for i, m in messages for made in rule(name, m)]
    return messages


def _said(name: str, whole: bool) -> str:
    return f"{in_words(name)}, recomputed in full" if whole else in_words(name)


def _titled(name: str, whole: bool) -> str:
    return label(f"{name}_ckpt" if whole else name)


def _host(lowered: Lowered, name: str, remembered: Remembered, kernels: _Kernels, which: Iterable[tuple[int, str]], backward: bool | None) -> Expr:
    """Seconds of the host: a launch a kernel (backward None: a weight gradient is one) or a CUDA graph, which has the weight gradients with
    the others, and, where sharded parameters are gathered module by module, a gather for each in every pass that reads them."""
    profile, placed = lowered.profile, remembered.placed
    if profile.assumptions["host_launch"] == "hidden":
        return ZERO
    run = list(which)
    alone, graphs = launched(profile, name, placed, [i for i, _ in run])
    apart = set(alone)
    run = [(i, label) for i, label in run if i in apart]
    made = summed(kernels.launches[at] for at in run) * symbol("t_launch")
    if backward is None and not profile.strategy.gradient_accumulation_fusion:
        made = 2 * made
    if graphs and backward is not None:
        made = made + graphs * symbol("t_launch")
    if profile.strategy.zero == 3 and backward is not None and profile.assumptions["fsdp_unit"] == "module":
        held = {t.name for t in placed.block.parameters()}
        modules = ((kernels.launches[i, ""], placed.block.ops[i]) for i, label in run if label != CAST)
        reading = ((n, op.attrs, op) for n, op in modules if held & set(op.inputs))
        gathers = (n * (len(at.labels) if isinstance(at, Projection) else 1) * sharded(lowered, placed, op) for n, at, op in reading)
        made = made + sum(gathers, ZERO) * symbol("t_gather")
    return made


@once
def _exposed(
    book: Derivation,
    network: Network,
    lowered: Lowered,
    name: str,
    whole: bool,
    phase: str,
    axis: str,
    messages: tuple[tuple[int, Message], ...],
    remembered: Remembered,
    kernels: _Kernels,
) -> Key:
    """Messages of a block over one axis: their seconds, and what of it nothing hides."""
    strategy, forward = lowered.profile.strategy, phase == "forward"
    times = [(i, m, network.seconds(m) * m.count) for i, m in messages]
    title, over = _titled(name, whole), label(axis)
    sent = book.define(
        of_block("c", name, whole, phase=phase, axis=axis),
        total((t for _, _, t in times), SECOND),
        f"{_said(name, whole)}: messages over {axis}, {phase}",
        unit=SECOND,
        latex=rf"c^{{{phase[0]},{over}}}_{{{title}}}",
    )
    hidden: Quantity = sent
    rests_on: tuple[str, ...] = ()
    of_layer = axis == "tp" and role_of(name).on_stream
    # userbuffers and asynchronous backwards are of TransformerEngine's linear layers: not of the output layer, nor of experts
    if of_layer and strategy.tp_comm_halves != "none":
        hidden = _in_halves(network, lowered, times, remembered, kernels)
    elif of_layer and (not forward or strategy.tp_comm_overlap):
        rests_on = ("tp_async_backward",)
        parts = [(left_beside_product(lowered, i, m, t, remembered, kernels.forward, kernels.backward), t) for i, m, t in times]
        hidden = total((slowed(left, t, network.processors(axis)) for left, t in parts), SECOND)
    elif axis in lowered.mesh.ring_axes:
        degree = lowered.mesh.degree(axis)
        attention = [i for i in kernels.forward if OPERATIONS[remembered.placed.block.ops[i].kind].role == "attention"]
        steps = {i: _without_merging(lowered, remembered, i, kernels.forward[i]) for i in attention}
        again = [steps[i] for i in attention if i in remembered.recomputed]
        own = list(steps.values()) if forward else [kernels.backward[i, "backward"] for i in attention] + again
        beside = total(own, SECOND) * ((degree - 1) / degree)
        hidden = slowed(_beyond(sent, beside), sent, network.processors(axis))
    elif axis == "ep":
        taken = network.taken(axis) if strategy.moe_token_dispatcher_type == "flex" else network.processors(axis) or taken_by_collective()
        hidden = left_of_exchange(lowered, forward, sent, times, remembered, kernels.forward, kernels.backward, taken)
    key = of_block("e", name, whole, phase=phase, axis=axis)
    book.define(
        key,
        hidden,
        f"{_said(name, whole)}: messages over {axis} that nothing hides, {phase}",
        unit=SECOND,
        latex=rf"\epsilon^{{{phase[0]},{over}}}_{{{title}}}",
        assumptions=rests_on,
    )
    return key


def _without_merging(lowered: Lowered, remembered: Remembered, index: int, attention: Quantity) -> Quantity:
    """Attention's forward without what merges the steps of a ring behind the last of them."""
    merging = merging_seconds(remembered.placed, index, lowered.profile, backward=False)
    return Quantity(attention.expr - merging.expr, SECOND)


def _in_halves(network: Network, lowered: Lowered, times: list[tuple[int, Message, Quantity]], remembered: Remembered, kernels: _Kernels) -> Quantity:
    """Tensor-parallel messages of two half batches; those that are no all-reduce are whole."""
    forward = {i: q.expr for i, q in kernels.forward.items()}
    backward = {at: q.expr for at, q in kernels.backward.items()}
    turns, after = turns_of(network, remembered, [(i, m) for i, m, _ in times], forward, backward)
    others = total((t for _, m, t in times if not m.row.reduces), SECOND)
    return exposed(lowered.profile.strategy.tp_comm_halves, turns, after) + others


def _beyond(message: Quantity, beside: Quantity) -> Quantity:
    return Quantity(maximum(0, message.expr - beside.expr), SECOND) if beside.expr else message
