"""The time of a step: stages, pipeline, gradients, optimizer.

    t_step = t_pipeline + max_i (e_dp_i + t_opt_i)

A stage's times are sums over its blocks; the pipeline is the schedule's closed form at the slowest stage's times and
the sums over stages; gradients and parameters that no computation hides, and the optimizer, follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from symsim.algebra.expr import ONE, ZERO, Expr, ceil, maximum, minimum, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key, of_block, of_stage, of_step
from symsim.algebra.quantity import SECOND, Quantity, total
from symsim.algebra.reductions import stages_at, stages_max, stages_pair, stages_sum
from symsim.algebra.typeset import entry
from symsim.cost.block_time import BlockTime, block_times
from symsim.cost.collectives import Network
from symsim.cost.compressed import compressed, compression_passes, momentum_messages
from symsim.cost.count import label
from symsim.cost.deferred import at_once, define_left_over
from symsim.cost.forwards import further_seconds
from symsim.cost.headlines import headlines
from symsim.cost.held import trained_part
from symsim.cost.host import host_seconds, host_traffic
from symsim.cost.lengths import longest_rows
from symsim.cost.orthogonal import orthogonal_messages, update_rounds, update_seconds
from symsim.cost.reduce import arrivals, boundary, bucket_size, ends, expert_groups, reductions, shards, update_messages
from symsim.cost.repeated import layers_again
from symsim.cost.states import main_type, parameter_type, state_bytes, states
from symsim.cost.stragglers import waited_share
from symsim.cost.update_passes import moved_beside
from symsim.errors import InputError
from symsim.frameworks.narrow import recipe_of
from symsim.inputs import curves
from symsim.inputs.conventions import REPLAYED
from symsim.inputs.optimizers import OPTIMIZERS
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System
from symsim.inputs.traced import once
from symsim.ir.block import WIDTHS
from symsim.lowering.lowered import Lowered
from symsim.pipeline.schedules import Schedule, schedule_of
from symsim.pipeline.shared import groups_of_stages
from symsim.pipeline.stages import runs

# the parts of a micro-batch's seconds on a stage
PHASES = ("forward", "inputs", "weights", "again")
STAGE_TIMES = {
    **{said: of_stage("t", phase=phase) for said, phase in zip(("forward", "input_gradients", "weight_gradients", "recompute"), PHASES)},
    "tail": of_stage("t", "tail"),
}
# what an update multiplies
UPDATE = of_stage("t", "update")


def step_time(book: Derivation, system: System, lowered: Lowered) -> None:
    """All definitions of time: of blocks, of stage i, and of the step."""
    check_system(system, lowered.profile.strategy)
    network = network_of(book, system, lowered)
    from_blocks(book, system, lowered, network, block_times(book, network, lowered))


def from_blocks(book: Derivation, system: System, lowered: Lowered, network: Network, blocks: Mapping[tuple[str, bool], BlockTime]) -> None:
    """The definitions of time that stand on those of blocks: of stage i, and of the step."""
    _stage_times(book, network, lowered, blocks)
    define_boundary(book, network, lowered)
    define_tail(book, network, lowered)
    _step(book, system, lowered)


def network_of(book: Derivation, system: System, lowered: Lowered) -> Network:
    """What the messages of a step take on a system."""
    experts, rule = lowered.profile.model.moe, lowered.profile.conventions.collective
    strategy, assumptions = lowered.profile.strategy, lowered.profile.assumptions
    once = experts is not None and assumptions["moe_exchange"] == "once_per_node"
    copies = groups_of_stages(lowered.profile.model, strategy)
    moe = experts if experts and strategy.moe_token_dispatcher_type == "flex" else None
    limit = experts.moe_router_group_topk if experts and (once or moe) else None
    ring = strategy.zero == 3 and assumptions["fsdp_rings"] == "one"
    turns = (once or moe is not None) and assumptions["expert_load"] == "in_turn"
    full = assumptions["unit_ranks"] == "full"
    of_experts: dict[str, Any] = {"full_units": full, "once_per_unit": once, "node_limit": limit, "moe": moe, "in_turn": turns}
    return Network(book, system, strategy, lowered.mesh, copies=copies, collective=rule, one_ring=ring, **of_experts)


def check_system(system: System, strategy: Strategy) -> None:
    """InputError when the system has no rate for the types a strategy multiplies, or no network for its ranks."""
    offloads = (strategy.optimizer_cpu_offload, strategy.cpu_offloading_num_layers, strategy.offload_parameters, strategy.offload_operations)
    if system.host is None and any(offloads):
        raise InputError(f"system {system.name} has no host link (host: bandwidth), over which the strategy offloads")
    if strategy.optimizer_offload_device == "nvme" and strategy.optimizer_cpu_offload and system.host is not None and system.host.drive is None:
        where = "host.drive, on which the strategy keeps optimizer states: --set host.drive='6 GB/s' says what a rank reaches of it"
        raise InputError(f"system {system.name} gives no bandwidth of a drive, {where}")
    outermost = system.network[-1] if system.network else None
    joined = 1 if outermost is None else outermost.ranks
    if joined != "all" and strategy.world_size > joined:
        raise InputError(f"system {system.name} joins {joined} ranks, and the strategy has {strategy.world_size}; its network needs one more tier")
    recipe = recipe_of(strategy)
    for kind in (strategy.precision, *((recipe.operand,) if recipe is not None else ())):
        if getattr(system.accelerator.peak, kind) is None:
            known = ", ".join(k for k in type(system.accelerator.peak).model_fields if getattr(system.accelerator.peak, k) is not None)
            raise InputError(f"system {system.name} gives no peak rate for {kind}, which the strategy multiplies in; it gives {known}")


@once
def _stage_times(book: Derivation, network: Network, lowered: Lowered, blocks: Mapping[tuple[str, bool], BlockTime]) -> None:
    """Definitions of stage i, one micro-batch: tf_stage, ti_stage, tw_stage, tr_stage, exposed messages by axis; once a
    step: e_dp_stage and t_opt_stage."""
    strategy = lowered.profile.strategy
    often = {n: symbol(runs(n)) for n in lowered.blocks}
    again = {n: layers_again(strategy, lowered, n) for n in lowered.checkpointed}

    def define(key: Key, parts: list[Quantity], meaning: str, latex: str, *, assumptions: tuple[str, ...] = ()) -> Quantity:
        return book.define(key, total(parts, SECOND), meaning, unit=SECOND, latex=latex, assumptions=assumptions)

    def seconds(key: Key) -> Quantity:
        return Quantity(key.expr, SECOND)

    axes = list(dict.fromkeys(a for b in blocks.values() for a in (*b.exposed_forward, *b.exposed_backward)))
    times = {(n, False): often[n] - again.get(n, ZERO) for n in lowered.blocks} | {(n, True): again[n] for n in again}
    for phase in ("forward", "backward"):
        for axis in axes:
            exposed = {form: (block.exposed_forward if phase == "forward" else block.exposed_backward).get(axis) for form, block in blocks.items()}
            parts = [seconds(key) * times[form] for form, key in exposed.items() if key is not None]
            parts += [network.seconds(m) * m.count for m in arrivals(lowered) if m.axis == axis and m.phase == phase]
            latex = rf"\epsilon^{{{phase[0]},{label(axis)},(i)}}"
            define(of_stage("e", phase=phase, axis=axis), parts, f"stage i: exposed messages over {axis}, {phase}", latex)
    alone = {n: blocks[n, False] for n in lowered.blocks}
    weights = [seconds(block.weights) * often[n] * at_once(strategy, n) for n, block in alone.items()]
    define(of_stage("t", phase="weights"), weights, "stage i: backward, weight gradients", "t_w^{(i)}")
    repeated = [seconds(block.again) * times[form] for form, block in blocks.items()]
    define(of_stage("t", phase="again"), repeated, "stage i: recomputation before backward", "t_r^{(i)}")
    _sharded_parameters(book, network, lowered)
    zero = _sharding(lowered)
    over = [*axes, "fsdp"] if zero == 3 else axes
    extra = {phase: [seconds(of_stage("e", phase=phase, axis=axis)) for axis in over] for phase in ("forward", "backward")}
    if zero == 2 and strategy.gradient_sync == "every_microbatch":
        extra["backward"].append(_scattered_every_microbatch(book, network, lowered))
    forward = [seconds(block.forward) * often[n] for n, block in alone.items()] + extra["forward"]
    if strategy.host_waits and lowered.profile.assumptions["host_launch"] == "counted":
        forward.append(Quantity(symbol("t_launch") * strategy.host_waits, SECOND))
    define(of_stage("t", phase="forward"), forward, "stage i: forward of a micro-batch", "t_f^{(i)}")
    inputs = [seconds(block.inputs) * often[n] for n, block in alone.items()] + extra["backward"]
    define(of_stage("t", phase="inputs"), inputs, "stage i: backward, input gradients", "t_i^{(i)}")
    whole = [seconds(of_stage("t", phase=phase)) for phase in PHASES]
    define(of_stage("t"), whole, "stage i: a micro-batch, forward and backward", r"t^{(i)}_{\mathrm{stage}}")


def _sharding(lowered: Lowered) -> int:
    """The ZeRO stage whose messages are sent: by another rule of the update, gradients once at its end."""
    zero = lowered.profile.strategy.zero
    return zero if lowered.profile.conventions.update is None else min(zero, 1)


def _sharded_parameters(book: Derivation, network: Network, lowered: Lowered) -> None:
    """FSDP: a unit's parameters arrive while the unit before it computes, its gradients leave while the next one does;
    what is exposed is the root's gather, which comes first, and its scatter, which comes last (in a pipeline those of every chunk's first
    unit), what is not gathered ahead, and whatever the computation is too short for."""
    if _sharding(lowered) != 3:
        return
    made: dict[str, Quantity] = {"forward": Quantity(ZERO, SECOND), "backward": Quantity(ZERO, SECOND)}
    root: dict[str, Quantity] = dict(made)
    ahead = lowered.profile.assumptions["fsdp_prefetch"]
    taken = {"forward": ZERO, "backward": ZERO}
    alone_after: Expr = ZERO  # gradients that leave with nothing beside them
    # a chunk begins with nothing of its own to gather beside, and ends with nothing to scatter beside: a layer of each
    held = sum((symbol(runs(n)) for n in lowered.profile.model.kind_names()), ZERO)
    alone = minimum(1, lowered.profile.strategy.vpp / maximum(1, held)) if lowered.profile.strategy.pp > 1 else ZERO
    for message in update_messages(lowered, book):
        if message.per == "microbatch":
            phase, seconds = message.phase, network.seconds(message) * message.count
            made[phase] = made[phase] + seconds
            taken[phase] = taken[phase] + seconds.expr * network.processors(message.axis)
            if ahead == "gathers" and message.row.scatters:
                alone_after = alone_after + seconds.expr
                continue
            if message.purpose == "root" and (message.row.gathers if phase == "forward" else message.row.scatters):
                root[phase] = root[phase] + seconds
            else:
                root[phase] = root[phase] + seconds * maximum(message.late, alone)
    for phase, beside in (("forward", ("forward",)), ("backward", ("inputs", "weights"))):
        whole = book.define(
            of_stage("c", phase=phase, axis="fsdp"),
            made[phase],
            f"stage i: gathers and scatters of sharded parameters, {phase}",
            unit=SECOND,
            latex=rf"c^{{{phase[0]},\mathrm{{fsdp}},(i)}}",
        )
        compute = ZERO
        for n in lowered.blocks:
            compute = compute + sum((of_block("t", n, phase=p).expr for p in beside), ZERO) * symbol(runs(n))
        if phase == "backward":
            compute = compute + of_stage("t", phase="again").expr
        after = alone_after if phase == "backward" else ZERO
        least = maximum(root[phase].expr, taken[phase]) if taken[phase] else root[phase].expr
        exposed = whole.expr if ahead == "false" else maximum(whole.expr - after - compute, least) + after
        book.define(
            of_stage("e", phase=phase, axis="fsdp"),
            Quantity(exposed, SECOND),
            f"stage i: what of it computation does not hide, {phase}",
            unit=SECOND,
            latex=rf"\epsilon^{{{phase[0]},\mathrm{{fsdp}},(i)}}",
            assumptions=("fsdp_prefetch",),
        )


def _scattered_every_microbatch(book: Derivation, network: Network, lowered: Lowered) -> Quantity:
    times = [(m, network.seconds(m) * m.count) for m in update_messages(lowered, book) if m.per == "microbatch"]
    whole = total((seconds for _, seconds in times), SECOND)
    if lowered.profile.strategy.overlap_grad_reduce:
        backward = sum((_backward_of(n) * symbol(runs(n)) for n in lowered.blocks), of_stage("t", phase="again").expr)
        taken = sum((seconds.expr * network.processors(m.axis) for m, seconds in times), ZERO)
        whole = Quantity(maximum(taken, whole.expr - backward), SECOND)
    return book.define(
        of_stage("e", phase="backward", axis="zero2"),
        whole,
        "stage i: gradients scattered every micro-batch (ZeRO-2), what nothing hides",
        unit=SECOND,
        latex=r"\epsilon^{b,\mathrm{zero2},(i)}",
    )


def _backward_of(block: str) -> Expr:
    return of_block("t", block, phase="inputs").expr + of_block("t", block, phase="weights").expr


@once
def define_boundary(book: Derivation, network: Network, lowered: Lowered) -> None:
    """One boundary tensor between neighbouring stages: its shape ahead of it where shapes vary, and the launch behind it where the
    host waits (Megatron-Core p2p_communication.py)."""
    strategy = lowered.profile.strategy
    seconds = Quantity(ZERO, SECOND)
    if strategy.pp > 1:
        seconds = total(map(network.seconds, boundary(lowered)), SECOND)
        if strategy.batch_p2p_sync and lowered.profile.assumptions["host_launch"] == "counted":
            seconds = seconds + Quantity(symbol("t_launch"), SECOND)
    book.define(Key("tc", "pipeline"), seconds, "one boundary tensor sent to the next stage", unit=SECOND, latex="t_c")


@once
def _sent(book: Derivation, network: Network, lowered: Lowered) -> tuple[Quantity, Mapping[str, Quantity], Mapping[str, Expr]]:
    """Defines what messages of gradients and of parameters take, once a step. Gives what those of the update take; of the others what the root's
    take, and what they take of the multiprocessors."""
    gradient = Quantity(ZERO, SECOND)
    parameter = Quantity(ZERO, SECOND)
    of_update = Quantity(ZERO, SECOND)
    rooted = {"grad": Quantity(ZERO, SECOND), "param": Quantity(ZERO, SECOND)}
    beside_it = {"grad": ZERO, "param": ZERO}
    update = lowered.profile.conventions.update
    if update is not None:
        gradient, parameter = (Quantity(value, SECOND) for value in update(lowered))
    for message in (*update_messages(lowered, book), *orthogonal_messages(lowered), *momentum_messages(lowered)) if update is None else ():
        if message.purpose == "update":
            of_update = of_update + network.seconds(message) * message.count
        elif message.per == "step":
            cost = network.seconds(message) * message.count
            # gradients are summed, parameters passed on as they are
            gradient, parameter = (gradient + cost, parameter) if message.row.sums else (gradient, parameter + cost)
            what = "grad" if message.row.sums else "param"
            beside_it[what] = beside_it[what] + cost.expr * network.processors(message.axis)
            rooted[what] = rooted[what] + (cost if message.purpose == "root" else Quantity(ZERO, SECOND))
    for what, seconds, meaning in (("grad", gradient, "gradients reduced"), ("param", parameter, "parameters gathered")):
        latex = rf"c^{{\mathrm{{{what}}},(i)}}"
        book.define(of_stage("c", what), seconds, f"stage i: {meaning} over data ranks", unit=SECOND, latex=latex)
    return of_update, rooted, beside_it


@once
def define_tail(book: Derivation, network: Network, lowered: Lowered) -> None:
    """Gradients reduced as the pipeline empties, the optimizer's passes over HBM once a step, parameters gathered."""
    strategy, often = lowered.profile.strategy, ends(lowered.profile.strategy)
    of_update, rooted, beside_it = _sent(book, network, lowered)
    grads, params = (Quantity(of_stage("c", what).expr, SECOND) for what in ("grad", "param"))

    def define(key: Key, quantity: Quantity, meaning: str, latex: str, assumptions: tuple[str, ...] = ()) -> Quantity:
        return book.define(key, quantity, meaning, unit=SECOND, latex=latex, assumptions=assumptions)

    _buckets(book, lowered)
    if update_rounds(lowered):
        products = Quantity(update_seconds(lowered), SECOND)
        define(UPDATE, products, "stage i: products of matrices in the update", r"t_{\mathrm{products}}^{(i)}")
    exposed = []
    for c, overlap, beside, what in (
        (grads, strategy.overlap_grad_reduce, often * sum((of_stage("t", phase=p).expr for p in PHASES[1:]), ZERO), "grad"),
        (params, strategy.overlap_param_gather, (often if strategy.zero == 3 else 1) * of_stage("t", phase="forward").expr, "param"),
    ):
        several = of_stage("n_bucket", what if of_stage("n_bucket", what) in book else "")
        hidden = _beside_update(lowered, c) if what == "param" else ZERO
        least = (ZERO,) if hidden else ()
        left = Quantity(maximum(c.expr - hidden - beside, c.expr / several.expr - hidden, *least), SECOND) if c.expr and overlap else c
        if c.expr and overlap and what == "grad" and strategy.gradient_sync == "every_group" and _sharding(lowered) > 1:
            # a chunk's gradients leave while the next group of micro-batches runs; the last has its own last micro-batch alone
            rounds, own = strategy.vpp * reductions(strategy), beside / strategy.vpp
            behind = beside * symbol("m") * (1 - 1 / rounds)
            left = Quantity(maximum(c.expr - behind - own, c.expr / rounds - own, c.expr / several.expr), SECOND)
        if _sharding(lowered) == 3 and lowered.profile.assumptions["fsdp_prefetch"] == "true" and c.expr and strategy.expert_shard_ranks is None:
            # beside the last backward or the first forward, whose own gathers and scatters these replace
            left = Quantity(maximum(c.expr - beside, rooted[what].expr), SECOND)
        if beside_it[what] and left.expr != c.expr:
            left = Quantity(maximum(left.expr, beside_it[what]), SECOND)
        word = "gradients" if what == "grad" else "parameters"
        exposed.append(define(of_stage("e", what), left, f"stage i: exposed messages of {word}", rf"\epsilon^{{\mathrm{{{what}}},(i)}}"))
    host_traffic(book, lowered, define)
    define(of_stage("e", "dp"), total(exposed, SECOND), "stage i: exposed messages over data ranks, once a step", r"\epsilon^{\mathrm{dp},(i)}")
    passes = "stage i: optimizer, passes over gradients, states and parameters"
    rule = lowered.profile.conventions.passes
    taken = _optimizer(lowered) + of_update + host_seconds(lowered, define) if rule is None else Quantity(rule(lowered), SECOND)
    define(of_stage("t", "opt"), taken, passes, r"t_{\mathrm{opt}}^{(i)}")
    after = [key for key in (of_stage("e", "dp"), of_stage("t", "opt"), of_stage("e", "offload")) if key in book]
    tail = total((Quantity(key.expr, SECOND) for key in after), SECOND)
    define(of_stage("t", "tail"), tail, "stage i: what follows the pipeline", r"t_{\mathrm{tail}}^{(i)}")


def _beside_update(lowered: Lowered, gathered: Quantity) -> Expr:
    """Seconds of the first chunk's gather beside the update of the others, which have optimizers of their own (Megatron-Core
    optimizer/__init__.py get_megatron_optimizer, optimizer.py ChainedOptimizer.step_with_ready_grads)."""
    strategy = lowered.profile.strategy
    if not strategy.overlap_param_gather_with_optimizer_step:
        return ZERO
    return minimum(gathered.expr / strategy.vpp, _optimizer(lowered, alone=True).expr * (1 - Fraction(1, strategy.vpp)))


def _buckets(book: Derivation, lowered: Lowered) -> None:
    """Into how many buckets the gradients of a stage are cut, and its parameters, where they are gathered in others."""
    strategy = lowered.profile.strategy
    # a stage of an empty chunk has no bucket, and nothing to divide among them
    held = trained_part(lowered, "dense") + trained_part(lowered, "expert")
    buckets = maximum(1, ceil(held / bucket_size(strategy, shards(lowered, False).ranks)))
    if strategy.overlap_grad_reduce or strategy.overlap_param_gather:
        book.define(of_stage("n_bucket"), Quantity(buckets), "gradient buckets of stage i", latex=r"n_{\mathrm{bucket}}")
    if strategy.overlap_param_gather and strategy.allgather_bucket_size is not None:
        several = maximum(1, ceil(held / strategy.allgather_bucket_size))
        latex = r"n_{\mathrm{bucket,param}}"
        book.define(of_stage("n_bucket", "param"), Quantity(several), "buckets in which stage i gathers its parameters", latex=latex)


@once
def _optimizer(lowered: Lowered, alone: bool = False) -> Quantity:
    """HBM passes of one step (Megatron-Core distributed/param_and_grad_buffer.py, optimizer/clip_grads.py, apex
    multi_tensor_adam): zero the gradient buffer and scale it before the reduction (read, write), on all a rank's
    parameters; then, on the share it owns, the norm (read) and clipping (read, write) of gradients, the update (read
    gradient, read and write what the optimizer keeps), and the copy into the model's type (read fp32, write); and what is counted for logs
    (Megatron-Core optimizer/clip_grads.py count_zeros_fp32, training/utils calc_params_l2_norm). The assumption
    gradient_scaling may leave the scaling to the share that a rank owns, or to the collective. What else an optimizer moves and multiplies
    follows from its row. alone: the update and the copy, without what comes before them.
    """
    strategy = lowered.profile.strategy
    row = OPTIMIZERS[strategy.optimizer]
    g = 4 if strategy.grad_reduce_in_fp32 else WIDTHS[strategy.precision]
    low = WIDTHS[parameter_type(strategy)]
    alike = state_bytes(strategy)
    copied = main_type(strategy) != parameter_type(strategy)
    apart = expert_groups(lowered)
    here = 1 - Fraction(str(strategy.optimizer_offload_fraction)) if strategy.optimizer_cpu_offload else 1
    seconds = Quantity(ZERO, SECOND)
    for held, expert in ((trained_part(lowered, "dense"), False), (trained_part(lowered, "expert"), True)):
        group = shards(lowered, expert and apart)
        owned = held / (group.owners if strategy.zero else ONE)
        whole = held / group.shard if strategy.zero == 3 else held
        scaled = {"all": [whole], "owned": [owned], "both": [whole, owned], "collective": []}[lowered.profile.assumptions["gradient_scaling"]]
        passes = [whole * g] + ([held * 2 * g for held in scaled] if group.ranks != ONE and not compressed(lowered) else [])
        passes += [compression_passes(lowered, held, group.ranks)]
        passes += [owned * g] + ([owned * 2 * g] if strategy.clip_grad else [])
        passes += [owned * g] * strategy.log_num_zeros_in_grad + [owned * WIDTHS[main_type(strategy)]] * strategy.log_params_norm
        passes = [] if alone else passes
        updated = owned * here
        if here:
            by_shape = 2 * here * (states(lowered, expert=expert) - owned * alike) if row.by_shape or strategy.fp32_embedding_moments else ZERO
            moves = moved_beside(strategy, lowered.profile.assumptions, g)
            passes += [updated * (g + 2 * alike + moves + (0 if copied else 2 * low)) + by_shape] + ([updated * (4 + low)] if copied else [])
        if expert and lowered.profile.model.moe is None:
            continue
        seconds = seconds + Quantity(sum((curves.memory_bound(p, kind="elementwise") for p in passes if p), ZERO), SECOND)
    return seconds + Quantity(UPDATE.expr if update_rounds(lowered) else ZERO, SECOND)


def exposed_of_stage(book: Derivation) -> list[Key]:
    """A stage's seconds of a micro-batch's messages that nothing hides, by phase and axis."""
    return [key for key in book.keys("e", scope="stage", longest=False) if key.phase]


def _schedule(lowered: Lowered) -> Schedule:
    schedule = schedule_of(lowered.profile.strategy)
    return schedule if lowered.profile.assumptions["step_barrier"] == "true" else schedule.without_barrier


@once
def _over_stages(book: Derivation, lowered: Lowered) -> None:
    """Definitions of the step that are reductions over stages: the slowest rank's times (t_slow, and of it tf, ti, tw, tr, tfb and
    e_AXIS), sums over ranks (sum_t, sum_tf, ...), t_place, and the longest tail (t_tail, and of it e_dp, t_opt, e_offload)."""

    def define(key: Key, value: Expr, meaning: str = "", latex: str = "") -> None:
        if not meaning:
            latex, meaning = entry(key.text).latex, entry(key.text).meaning
        book.define(key, Quantity(value, SECOND), meaning, unit=SECOND, latex=latex)

    schedule = _schedule(lowered)

    def own(key: Key) -> Expr:
        return stages_pair(key.expr) if schedule.mirrored else key.expr

    slowest, last = own(of_stage("t")), own(of_stage("t", "tail"))
    define(of_step("t", "slow"), stages_max(slowest))
    define(of_step("sum_t"), stages_sum(slowest))
    for phase in PHASES:
        define(of_step("t", phase=phase), stages_at(own(of_stage("t", phase=phase)), slowest))
    for phase in PHASES:
        define(of_step("sum_t", phase=phase), stages_sum(own(of_stage("t", phase=phase))))
    define(of_step("tfb"), of_step("t", "slow").expr)
    for part, saved in schedule.saved.items():
        define(of_step("t", part), saved)
    for exposed in exposed_of_stage(book):
        phase, axis = exposed.phase, exposed.axis
        meaning, latex = f"exposed messages over {axis} of the slowest stage, {phase}", rf"\epsilon^{{{phase[0]},{label(axis)}}}"
        define(of_step("e", phase=phase, axis=axis), stages_at(own(exposed), slowest), meaning, latex)
    define(of_step("t", "tail"), stages_max(last))
    for quantity, part in (("e", "dp"), ("t", "opt"), ("e", "offload")):
        if of_stage(quantity, part) in book:
            define(of_step(quantity, part), stages_at(own(of_stage(quantity, part)), last))


@cache
def _whole(value: Expr, alone: bool = False) -> Expr:
    """A makespan by the whole of a rank's seconds, where it holds the parts of them in their sum alone; `alone`, without boundary tensors."""
    if alone:
        return _whole(value.substitute({"tc": ZERO, "t_late": ZERO}))
    parts = symbol("t_slow") - symbol("tf") - symbol("ti") - symbol("tw")
    sums = symbol("sum_t") - symbol("sum_tf") - symbol("sum_ti") - symbol("sum_tw")
    made = value.substitute({"tr": parts, "sum_tr": sums, "tfb": symbol("t_slow")})
    return value if made.symbols() & {"tf", "ti", "tw", "sum_tf", "sum_ti", "sum_tw"} else made


def exposed_axes(book: Derivation) -> dict[str, str]:
    """Axis -> name of the step's exposed seconds over it."""
    return {d.key.axis: d.symbol for d in book.of("exposed")}


@once
def _step(book: Derivation, system: System, lowered: Lowered) -> None:
    """Definitions of the whole step, from the slowest stage, the sums over stages and the schedule's closed form."""
    strategy = lowered.profile.strategy
    schedule = _schedule(lowered)
    _over_stages(book, lowered)
    alone = strategy.pp == 1
    waits = ZERO if alone else _whole(schedule.bubble, alone=True)
    pipeline = symbol("m") * symbol("t_slow") if alone else _whole(schedule.makespan)

    def define(key: Key, quantity: Quantity, meaning: str, latex: str, assumptions: tuple[str, ...] = ()) -> None:
        book.define(key, quantity, meaning, unit=quantity.unit, latex=latex, assumptions=assumptions)

    if schedule.name == "interleaved" and not strategy.overlap_p2p_comm:
        pipeline = pipeline + 2 * symbol("m") * symbol("vpp") * symbol("tc")
    pipeline = pipeline + define_left_over(book, strategy)
    conventions = lowered.profile.conventions
    pipeline = conventions.slower * (pipeline if conventions.pipeline is None else symbol(REPLAYED))
    define(of_step("t", "pipeline"), Quantity(pipeline, SECOND), f"the pipeline ({schedule.name}: {schedule.meaning})", r"t_{\mathrm{pipeline}}")
    define(of_step("t", "bubble"), Quantity(waits, SECOND), "time the slowest stage waits for others", r"t_{\mathrm{bubble}}")
    over = ZERO
    for axis in dict.fromkeys(key.axis for key in exposed_of_stage(book)):
        both = (key.expr for key in book.keys("e", scope="step", axis=axis))
        exposed = Quantity(symbol("m") * sum(both, ZERO), SECOND)
        meaning = f"messages over {axis} that nothing hides, of the slowest stage"
        define(of_step("exposed", axis=axis), exposed, meaning, rf"\epsilon^{{{label(axis)}}}")
        over = over + of_step("exposed", axis=axis).expr
    if strategy.pp > 1:
        # interleaved stages wait for every boundary tensor unless it travels beside computation (Megatron-Core schedules.py)
        waited = 2 * symbol("m") * symbol("vpp") * symbol("tc") if schedule.name == "interleaved" and not strategy.overlap_p2p_comm else ZERO
        sent = Quantity(_whole(schedule.bubble) - waits + waited, SECOND)
        define(of_step("exposed", axis="pp"), sent, "boundary tensors on the way through the pipeline", rf"\epsilon^{{{label('pp')}}}")
        over = over + of_step("exposed", axis="pp").expr
    after = Quantity(of_step("e", "dp").expr, SECOND)
    define(of_step("exposed", axis="dp"), after, "gradients and parameters over data ranks", rf"\epsilon^{{{label('dp')}}}")
    if of_stage("e", "offload") in book:
        on_host = Quantity(of_step("e", "offload").expr, SECOND)
        define(of_step("exposed", axis="host"), on_host, "traffic over the host link", rf"\epsilon^{{{label('host')}}}")
    define(of_step("t", "optimizer"), Quantity(symbol("t_opt"), SECOND), "the optimizer", r"t_{\mathrm{opt}}")
    slower = waited_share(system, lowered) * symbol("t_pipeline")
    if slower:
        meaning = "waiting for the slowest of many ranks"
        define(of_step("exposed", axis="stragglers"), Quantity(slower, SECOND), meaning, rf"\epsilon^{{{label('stragglers')}}}", ("stragglers",))
        slower = of_step("exposed", axis="stragglers").expr
    waiting = longest_rows(book, lowered)
    whole = symbol("t_pipeline") + slower + waiting + further_seconds(book, strategy) + symbol("t_tail")
    define(of_step("t", "step"), Quantity(whole, SECOND), "one step", r"t_{\mathrm{step}}")
    compute = symbol("t_pipeline") - symbol("t_bubble") - over
    define(of_step("t", "compute"), Quantity(compute, SECOND), "kernels of the slowest stage", r"t_{\mathrm{compute}}")
    headlines(book, system, lowered)
