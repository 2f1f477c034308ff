"""The time of a step: stages, pipeline, gradients, optimizer.

    t_step = t_pipeline + max_i (e_dp_i + t_opt_i)

A stage's times are sums over its blocks; the pipeline is the schedule's closed form at the slowest stage's times and
the sums over stages; gradients and parameters that no computation hides, and the optimizer, follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from symsim.algebra.expr import ONE, ZERO, Expr, ceil, maximum, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.quantity import NONE, SECOND, Quantity, total
from symsim.algebra.reductions import stages_at, stages_max, stages_pair, stages_sum
from symsim.algebra.typeset import entry
from symsim.cost.block_time import BlockTime, block_times
from symsim.cost.collectives import Network
from symsim.cost.count import label
from symsim.cost.memory_static import main_type, state_bytes
from symsim.cost.reduce import (
    BUCKET_SIZE,
    BUCKET_SIZE_PER_RANK,
    arrivals,
    boundary,
    expert_groups,
    shards,
    update_messages,
)
from symsim.cost.utilisation import utilisation
from symsim.errors import InputError
from symsim.inputs import curves
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System
from symsim.ir.block import WIDTHS
from symsim.lowering.lowered import Lowered
from symsim.pipeline.schedules import T_PLACE, Schedule, schedule_of
from symsim.pipeline.stages import runs, table_copies

STAGE_TIMES = {"forward": "tf", "input_gradients": "ti", "weight_gradients": "tw", "recompute": "tr", "tail": "t_tail"}
HEADLINES = ("tokens_per_second", "mfu", "hfu", "cost_per_trillion_tokens", "energy_per_trillion_tokens")


def step_time(book: Derivation, system: System, lowered: Lowered) -> None:
    """All definitions of time: of blocks, of stage i, and of the step."""
    check_system(system, lowered.profile.strategy)
    once = lowered.profile.assumptions["moe_exchange"] == "once_per_node"
    limit = lowered.profile.model.moe.moe_router_group_topk if lowered.profile.model.moe else None
    copies = max(2, table_copies(lowered.profile.model, lowered.profile.strategy))
    network = Network(book, system, lowered.profile.strategy, lowered.mesh, once_per_unit=once, node_limit=limit, table_copies=copies)
    blocks = block_times(book, network, lowered)
    _stage_times(book, network, lowered, blocks)
    _step(book, system, lowered)


def check_system(system: System, strategy: Strategy) -> None:
    """InputError when the system has no rate for the types a strategy multiplies, or no network for its ranks."""
    if system.host is None and (strategy.optimizer_cpu_offload or strategy.cpu_offloading_num_layers):
        raise InputError(f"system {system.name} has no host link (host: bandwidth), over which the strategy offloads")
    outermost = system.network[-1] if system.network else None
    joined = 1 if outermost is None else outermost.ranks
    if joined != "all" and strategy.world_size > joined:
        raise InputError(f"system {system.name} joins {joined} ranks, and the strategy has {strategy.world_size}; its network needs one more tier")
    for kind in (strategy.precision, *(("fp8",) if strategy.fp8 != "none" else ())):
        if getattr(system.accelerator.peak, kind) is None:
            known = ", ".join(k for k in type(system.accelerator.peak).model_fields if getattr(system.accelerator.peak, k) is not None)
            raise InputError(f"system {system.name} gives no peak rate for {kind}, which the strategy multiplies in; it gives {known}")


def _stage_times(book: Derivation, network: Network, lowered: Lowered, blocks: Mapping[str, BlockTime]) -> None:
    """Definitions of stage i, one micro-batch: tf_stage, ti_stage, tw_stage, tr_stage, exposed messages by axis; once a
    step: e_dp_stage and t_opt_stage."""
    strategy = lowered.profile.strategy
    often = {n: symbol(runs(n)) for n in lowered.blocks}
    again = {n: symbol(f"L_{n}_ckpt_i") for n in lowered.checkpointed}

    def define(name: str, parts: list[Quantity], meaning: str, latex: str, *, assumptions: tuple[str, ...] = ()) -> Quantity:
        return book.define(name, total(parts, SECOND), meaning, unit=SECOND, group="stages", latex=latex, assumptions=assumptions)

    def seconds(name: str) -> Quantity:
        return Quantity(symbol(name), SECOND)

    axes = list(dict.fromkeys(a for b in blocks.values() for a in (*b.exposed_forward, *b.exposed_backward)))
    times = {n: often[n] - again.get(n, ZERO) for n in lowered.blocks} | {f"{n}_ckpt": again[n] for n in again}
    for phase, word in (("f", "forward"), ("b", "backward")):
        for axis in axes:
            exposed = {tag: (block.exposed_forward if phase == "f" else block.exposed_backward).get(axis) for tag, block in blocks.items()}
            parts = [seconds(name) * times[tag] for tag, name in exposed.items() if name is not None]
            parts += [network.seconds(m) * m.count for m in arrivals(lowered) if m.axis == axis and m.phase == word]
            define(f"e_{phase}_{axis}_stage", parts, f"stage i: exposed messages over {axis}, {word}", rf"\epsilon^{{{phase},{label(axis)},(i)}}")
    define("tw_stage", [seconds(blocks[n].weights) * often[n] for n in lowered.blocks], "stage i: backward, weight gradients", "t_w^{(i)}")
    repeated = [seconds(block.again) * times[tag] for tag, block in blocks.items()]
    define("tr_stage", repeated, "stage i: recomputation before backward", "t_r^{(i)}")
    _sharded_parameters(book, network, lowered)
    fsdp = strategy.zero == 3 and "e_f_fsdp_stage" in book.definitions
    extra = {p: [seconds(f"e_{p}_{a}_stage") for a in axes] + ([seconds(f"e_{p}_fsdp_stage")] if fsdp else []) for p in ("f", "b")}
    if strategy.zero == 2:
        extra["b"].append(_scattered_every_microbatch(book, network, lowered))
    define("tf_stage", [seconds(blocks[n].forward) * often[n] for n in lowered.blocks] + extra["f"], "stage i: forward of a micro-batch", "t_f^{(i)}")
    define("ti_stage", [seconds(blocks[n].inputs) * often[n] for n in lowered.blocks] + extra["b"], "stage i: backward, input gradients", "t_i^{(i)}")
    whole = [seconds(f"{t}_stage") for t in ("tf", "ti", "tw", "tr")]
    define("t_stage", whole, "stage i: a micro-batch, forward and backward", "t^{(i)}")
    _boundary(book, network, lowered)
    _tail(book, network, lowered)


def _sharded_parameters(book: Derivation, network: Network, lowered: Lowered) -> None:
    """FSDP: a unit's parameters arrive while the unit before it computes, its gradients leave while the next one does;
    what is exposed is the root's gather, which comes first, and its scatter, which comes last, and whatever the computation is
    too short for."""
    if lowered.profile.strategy.zero != 3:
        return
    made: dict[str, Quantity] = {"f": Quantity(ZERO, SECOND), "b": Quantity(ZERO, SECOND)}
    root: dict[str, Quantity] = dict(made)
    for message in update_messages(lowered, book):
        if message.per == "microbatch":
            phase = "f" if message.phase == "forward" else "b"
            seconds = network.seconds(message) * message.count
            made[phase] = made[phase] + seconds
            if message.what == "root" and message.op == ("all_gather" if phase == "f" else "reduce_scatter"):
                root[phase] = root[phase] + seconds
    for phase, word, beside in (("f", "forward", ("t_f",)), ("b", "backward", ("t_i", "t_w"))):
        whole = book.define(
            f"c_{phase}_fsdp_stage",
            made[phase],
            f"stage i: gathers and scatters of sharded parameters, {word}",
            unit=SECOND,
            group="stages",
            latex=rf"c^{{{phase},\mathrm{{fsdp}},(i)}}",
        )
        compute = ZERO
        for n in lowered.blocks:
            compute = compute + sum((symbol(f"{p}_{n}") for p in beside), ZERO) * symbol(runs(n))
        if phase == "b":
            compute = compute + symbol("tr_stage")
        prefetched = lowered.profile.assumptions["fsdp_prefetch"] == "true"
        exposed = maximum(whole.expr - compute, root[phase].expr) if prefetched else whole.expr
        book.define(
            f"e_{phase}_fsdp_stage",
            Quantity(exposed, SECOND),
            f"stage i: what of it computation does not hide, {word}",
            unit=SECOND,
            group="stages",
            latex=rf"\epsilon^{{{phase},\mathrm{{fsdp}},(i)}}",
            assumptions=("fsdp_prefetch",),
        )


def _scattered_every_microbatch(book: Derivation, network: Network, lowered: Lowered) -> Quantity:
    messages = [m for m in update_messages(lowered, book) if m.per == "microbatch"]
    whole = total((network.seconds(m) * m.count for m in messages), SECOND)
    if lowered.profile.strategy.overlap_grad_reduce:
        backward = sum(((symbol(f"t_i_{n}") + symbol(f"t_w_{n}")) * symbol(runs(n)) for n in lowered.blocks), symbol("tr_stage"))
        whole = Quantity(maximum(0, whole.expr - backward), SECOND)
    return book.define(
        "e_b_zero2_stage",
        whole,
        "stage i: gradients scattered every micro-batch (ZeRO-2), what nothing hides",
        unit=SECOND,
        group="stages",
        latex=r"\epsilon^{b,\mathrm{zero2},(i)}",
    )


def _boundary(book: Derivation, network: Network, lowered: Lowered) -> None:
    """One boundary tensor between neighbouring stages."""
    seconds = network.seconds(boundary(lowered)) if lowered.profile.strategy.pp > 1 else Quantity(ZERO, SECOND)
    book.define("tc", seconds, "one boundary tensor sent to the next stage", unit=SECOND, group="time", latex="t_c")


def _tail(book: Derivation, network: Network, lowered: Lowered) -> None:
    """Once a step: gradients reduced, the optimizer's passes over HBM, parameters gathered."""
    strategy = lowered.profile.strategy
    gradient = Quantity(ZERO, SECOND)
    parameter = Quantity(ZERO, SECOND)
    rooted = {"grad": Quantity(ZERO, SECOND), "param": Quantity(ZERO, SECOND)}
    for message in update_messages(lowered, book):
        if message.per == "step":
            cost = network.seconds(message) * message.count
            gradient, parameter = (gradient, parameter + cost) if message.op == "all_gather" else (gradient + cost, parameter)
            what = "param" if message.op == "all_gather" else "grad"
            rooted[what] = rooted[what] + (cost if message.what == "root" else Quantity(ZERO, SECOND))

    def define(name: str, quantity: Quantity, meaning: str, latex: str, assumptions: tuple[str, ...] = ()) -> Quantity:
        return book.define(name, quantity, meaning, unit=SECOND, group="stages", latex=latex, assumptions=assumptions)

    grads = define("c_grad_stage", gradient, "stage i: gradients reduced over data ranks", r"c^{\mathrm{grad},(i)}")
    params = define("c_param_stage", parameter, "stage i: parameters gathered over data ranks", r"c^{\mathrm{param},(i)}")
    group = shards(lowered, False)
    # a stage of an empty chunk has no bucket, and nothing to divide among them
    held = symbol("P_stage_dense") + symbol("P_stage_expert")
    buckets = maximum(1, ceil(held / maximum(BUCKET_SIZE, BUCKET_SIZE_PER_RANK * group.ranks)))
    if strategy.overlap_grad_reduce or strategy.overlap_param_gather:
        book.define("n_bucket", Quantity(buckets), "gradient buckets of stage i", group="stages", latex=r"n_{\mathrm{bucket}}")
    exposed = []
    for c, overlap, beside, what in (
        (grads, strategy.overlap_grad_reduce, symbol("ti_stage") + symbol("tw_stage") + symbol("tr_stage"), "grad"),
        (params, strategy.overlap_param_gather, symbol("tf_stage"), "param"),
    ):
        left = Quantity(maximum(c.expr - beside, c.expr / symbol("n_bucket")), SECOND) if overlap and c.expr else c
        if strategy.zero == 3 and lowered.profile.assumptions["fsdp_prefetch"] == "true" and c.expr:
            # beside the last backward or the first forward, whose own gathers and scatters these replace
            left = Quantity(maximum(c.expr - beside, rooted[what].expr), SECOND)
        word = "gradients" if what == "grad" else "parameters"
        exposed.append(define(f"e_{what}_stage", left, f"stage i: exposed messages of {word}", rf"\epsilon^{{\mathrm{{{what}}},(i)}}"))
    _offload(book, lowered, define)
    define("e_dp_stage", total(exposed, SECOND), "stage i: exposed messages over data ranks, once a step", r"\epsilon^{\mathrm{dp},(i)}")
    passes = "stage i: optimizer, passes over gradients, states and parameters"
    define("t_opt_stage", _optimizer(lowered), passes, r"t_{\mathrm{opt}}^{(i)}")
    after = [n for n in ("e_dp_stage", "t_opt_stage", "e_offload_stage") if n in book.definitions]
    tail = total((Quantity(symbol(n), SECOND) for n in after), SECOND)
    define("t_tail_stage", tail, "stage i: what follows the pipeline", r"t_{\mathrm{tail}}^{(i)}")


def _offload(book: Derivation, lowered: Lowered, define: Callable[..., Quantity]) -> None:
    """Traffic over the host link: activations leave and return beside computation; gradients leave, and parameters return,
    after the pipeline. What the host itself computes is not counted."""
    moved = {what: symbol(f"H_stage_link_{what}") for what in ("activations", "optimizer") if f"H_stage_link_{what}" in book.definitions}
    if not moved:
        return
    seconds = {what: n / symbol("B_host") for what, n in moved.items()}
    if "activations" in seconds:
        seconds["activations"] = maximum(0, seconds["activations"] - symbol("m") * symbol("t_stage"))
    exposed = sum(seconds.values(), ZERO)
    define("e_offload_stage", Quantity(exposed, SECOND), "stage i: host traffic that computation does not hide", r"\epsilon^{\mathrm{host},(i)}")


def _optimizer(lowered: Lowered) -> Quantity:
    """HBM passes of one step (Megatron-Core distributed/param_and_grad_buffer.py, optimizer/clip_grads.py, apex
    multi_tensor_adam): zero the gradient buffer and scale it before the reduction (read, write), on all a rank's
    parameters; then, on the share it owns, the norm (read) and clipping (read, write) of gradients, the update (read
    gradient, read and write what the optimizer keeps), and the copy into the model's type (read fp32, write).
    """
    strategy = lowered.profile.strategy
    g = 4 if strategy.grad_reduce_in_fp32 else WIDTHS[strategy.precision]
    low = WIDTHS[strategy.precision]
    states = state_bytes(strategy)
    copied = main_type(strategy) != strategy.precision
    apart = expert_groups(lowered)
    here = 1 - Fraction(str(strategy.optimizer_offload_fraction)) if strategy.optimizer_cpu_offload else 1
    seconds = Quantity(ZERO, SECOND)
    for held, expert in ((symbol("P_stage_dense"), False), (symbol("P_stage_expert"), True)):
        group = shards(lowered, expert and apart)
        owned = held / (group.shard if strategy.zero else ONE)
        whole = owned if strategy.zero == 3 else held
        passes = [whole * g] + ([whole * 2 * g] if group.ranks != ONE else [])
        passes += [owned * g] + ([owned * 2 * g] if strategy.clip_grad else [])
        updated = owned * here
        if here:
            passes += [updated * (g + 2 * states + (0 if copied else 2 * low))] + ([updated * (4 + low)] if copied else [])
        if expert and lowered.profile.model.moe is None:
            continue
        seconds = seconds + Quantity(sum((curves.memory_bound(p, kind="elementwise") for p in passes), ZERO), SECOND)
    return seconds


def timed_of_stage(book: Derivation) -> list[str]:
    """Names of a stage's seconds: t..._stage of its kernels and messages, e..._stage of messages that nothing hides."""
    return [n for n, d in book.definitions.items() if d.group == "stages" and n.endswith("_stage") and n.startswith(("t", "e_"))]


def exposed_of_stage(book: Derivation) -> list[str]:
    """Of them, those of a micro-batch's messages: e_f_AXIS_stage and e_b_AXIS_stage."""
    return [n for n in timed_of_stage(book) if n.startswith(("e_f_", "e_b_"))]


def _over_stages(book: Derivation, schedule: Schedule) -> None:
    """Definitions of the step that are reductions over stages: the slowest rank's times (t_slow, and of it tf, ti, tw, tr, tfb and
    e_AXIS), sums over ranks (sum_t, sum_tf, ...), t_place, and the longest tail (t_tail, and of it e_dp, t_opt, e_offload)."""

    def define(name: str, value: Expr, meaning: str = "", latex: str = "") -> None:
        known = entry(name)
        book.define(name, Quantity(value, SECOND), meaning or known.meaning, unit=SECOND, group="step", latex=latex or known.latex)

    def own(name: str) -> Expr:
        return stages_pair(symbol(name)) if schedule.placement == "mirrored" else symbol(name)

    slowest, last = own("t_stage"), own("t_tail_stage")
    define("t_slow", stages_max(slowest))
    define("sum_t", stages_sum(slowest))
    for name in ("tf", "ti", "tw", "tr"):
        define(name, stages_at(own(f"{name}_stage"), slowest))
    for name in ("tf", "ti", "tw", "tr"):
        define(f"sum_{name}", stages_sum(own(f"{name}_stage")))
    define("tfb", symbol("t_slow"))
    if "t_place" in schedule.makespan.symbols():
        define("t_place", T_PLACE)
    for name in exposed_of_stage(book):
        define(name.removesuffix("_stage"), stages_at(own(name), slowest))
    define("t_tail", stages_max(last))
    for name in ("e_dp", "t_opt", "e_offload"):
        if f"{name}_stage" in book.definitions:
            define(name, stages_at(own(f"{name}_stage"), last))


def _whole(value: Expr) -> Expr:
    """A makespan by the whole of a rank's seconds, where it holds the parts of them in their sum alone."""
    parts = symbol("t_slow") - symbol("tf") - symbol("ti") - symbol("tw")
    sums = symbol("sum_t") - symbol("sum_tf") - symbol("sum_ti") - symbol("sum_tw")
    made = value.substitute({"tr": parts, "sum_tr": sums, "tfb": symbol("t_slow")})
    return value if made.symbols() & {"tf", "ti", "tw", "sum_tf", "sum_ti", "sum_tw"} else made


def _exposed_of_stage(book: Derivation) -> dict[str, list[str]]:
    """Axis -> names, of the slowest stage, of its exposed messages forward and backward."""
    found: dict[str, list[str]] = {}
    for name in exposed_of_stage(book):
        found.setdefault(name.split("_", 2)[2].removesuffix("_stage"), []).append(name.removesuffix("_stage"))
    return found


def exposed_axes(book: Derivation) -> dict[str, str]:
    """Axis -> name of the step's exposed seconds over it."""
    return {name.removeprefix("exposed_"): name for name in book.definitions if name.startswith("exposed_")}


def _step(book: Derivation, system: System, lowered: Lowered) -> None:
    """Definitions of the whole step, from the slowest stage, the sums over stages and the schedule's closed form."""
    strategy = lowered.profile.strategy
    schedule = schedule_of(strategy)
    _over_stages(book, schedule)
    alone = strategy.pp == 1
    waits = ZERO if alone else _whole(schedule.bubble.substitute({"tc": ZERO}))
    pipeline = symbol("m") * symbol("t_slow") if alone else _whole(schedule.makespan)

    def define(name: str, quantity: Quantity, meaning: str, latex: str, assumptions: tuple[str, ...] = ()) -> None:
        book.define(name, quantity, meaning, unit=quantity.unit, group="step", latex=latex, assumptions=assumptions)

    if schedule.name == "interleaved" and not strategy.overlap_p2p_comm:
        pipeline = pipeline + 2 * symbol("m") * symbol("vpp") * symbol("tc")
    define("t_pipeline", Quantity(pipeline, SECOND), f"the pipeline ({schedule.name}: {schedule.meaning})", r"t_{\mathrm{pipeline}}")
    define("t_bubble", Quantity(waits, SECOND), "time the slowest stage waits for others", r"t_{\mathrm{bubble}}")
    over = ZERO
    for axis, names in _exposed_of_stage(book).items():
        exposed = Quantity(symbol("m") * sum((symbol(n) for n in names), ZERO), SECOND)
        meaning = f"messages over {axis} that nothing hides, of the slowest stage"
        define(f"exposed_{axis}", exposed, meaning, rf"\epsilon^{{{label(axis)}}}")
        over = over + symbol(f"exposed_{axis}")
    if strategy.pp > 1:
        # interleaved stages wait for every boundary tensor unless it travels beside computation (Megatron-Core schedules.py)
        waited = 2 * symbol("m") * symbol("vpp") * symbol("tc") if schedule.name == "interleaved" and not strategy.overlap_p2p_comm else ZERO
        sent = Quantity(_whole(schedule.bubble) - waits + waited, SECOND)
        define("exposed_pp", sent, "boundary tensors on the way through the pipeline", rf"\epsilon^{{{label('pp')}}}")
        over = over + symbol("exposed_pp")
    define("exposed_dp", Quantity(symbol("e_dp"), SECOND), "gradients and parameters over data ranks", rf"\epsilon^{{{label('dp')}}}")
    if "e_offload_stage" in book.definitions:
        define("exposed_host", Quantity(symbol("e_offload"), SECOND), "traffic over the host link", rf"\epsilon^{{{label('host')}}}")
    define("t_optimizer", Quantity(symbol("t_opt"), SECOND), "the optimizer", r"t_{\mathrm{opt}}")
    define("t_step", Quantity(symbol("t_pipeline") + symbol("t_tail"), SECOND), "one step", r"t_{\mathrm{step}}")
    compute = symbol("t_pipeline") - symbol("t_bubble") - over
    define("t_compute", Quantity(compute, SECOND), "kernels of the slowest stage", r"t_{\mathrm{compute}}")
    replicas = symbol("m") * symbol("dp")
    tokens = Quantity(replicas * symbol("b") * symbol("s") / symbol("t_step"), NONE / SECOND)
    define("tokens_per_second", tokens, "tokens of all ranks a second", r"\mathrm{tokens}/\mathrm{s}")
    utilisation(book, lowered)
    over_tokens = 10**12 / symbol("tokens_per_second") * symbol("world")
    if system.accelerator.price is not None:
        cost = Quantity(over_tokens * symbol("c_chip"))
        define("cost_per_trillion_tokens", cost, "US dollars for 10^12 tokens", r"\mathrm{USD}/10^{12}\,\mathrm{tokens}")
    if system.accelerator.power is not None:
        energy = Quantity(over_tokens * symbol("W_chip") / (3600 * 10**6))
        meaning = "MWh of the accelerators, at full power, for 10^12 tokens"
        define("energy_per_trillion_tokens", energy, meaning, r"\mathrm{MWh}/10^{12}\,\mathrm{tokens}")
