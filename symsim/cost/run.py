"""A run of many steps, from its step: how long it takes with checkpoints, evaluations and failures, what it costs and what it draws.

    t_wall = (steps and evaluations) M exp(R / M) (exp((tau + delta) / M) - 1) / tau

with delta the seconds that training waits for a checkpoint, tau the training between two of them, M the mean time between failures of all
ranks together, and R what a failure costs besides work that is done again: the restart and reading the checkpoint back; where checkpoints are
written beside training, also the time until one is whole. That is Daly's model of failures that come at random (Future Generation Computer
Systems 22, 2006, sec. 3), of which formulas hold the series. The interval is the best of his higher order, unless one is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symsim.algebra.expr import ONE, ZERO, Expr, ceil, floor, maximum, minimum, sqrt, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key
from symsim.algebra.quantity import BYTE, NONE, SECOND, Quantity, Unit
from symsim.algebra.reductions import stages_sum
from symsim.cost.forwards import forward_pass
from symsim.cost.held import some_frozen
from symsim.cost.largest import SOURCE as OF_LARGEST
from symsim.cost.largest import expected_largest
from symsim.cost.reduce import expert_groups, shards
from symsim.cost.states import main_type, parameter_type, state_bytes, states
from symsim.errors import InputError
from symsim.inputs.optimizers import OPTIMIZERS
from symsim.inputs.run import RAMP_PARTS
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System
from symsim.ir.block import WIDTHS
from symsim.lowering.lowered import Lowered

PART = "run"
QUANTILES = ("50", "90", "99")
OF_NORMAL = ("xi", *(f"xi{percent}" for percent in QUANTILES))
# of the series of exp x (1) and of (exp x - 1)/x (2)
TERMS = {1: 5, 2: 6}
_DALY = "Daly, Future Generation Computer Systems 22, 2006, eq. 37"
_RAMP = "Megatron-LM num_microbatches_calculator.py (--rampup-batch-size)"


def of_run(quantity: str) -> Key:
    return Key(quantity, "step", part=PART)


def define_run(book: Derivation, system: System | None, lowered: Lowered, given: Mapping[str, Any]) -> None:
    """All definitions of the run. given: its numbers by name, as the user gives them. InputError without a system, and for one that cannot."""
    if system is None:
        raise InputError("a run takes the time of its steps on a system, and none is named: give one with -y")
    if "async_save" in given and given["async_save"] and system.host is None:
        raise InputError(f"--set async_save=1: system {system.name} has no host link (host: bandwidth), over which checkpoints are copied")
    strategy = lowered.profile.strategy
    _step(book, given, strategy)
    _checkpoint(book, system, lowered, given)
    kept = _interval(book, given)
    if "days" in given:
        # t = M (exp(T / M) - 1) solved for the training T, by Pade's approximant of the logarithm: to 1.5 % where these formulas hold
        between = of_run("between").expr
        y = symbol("days") * 86400 / between
        _failures(book, minimum(kept, 3 * between * y * (2 + y) / (6 + 6 * y + y**2)))
        _length_of_days(book, given, strategy)
    else:
        work = _work(book, given)
        _failures(book, minimum(kept, work))
        _length(book, given, strategy)
    _answers(book, system)


def _define(book: Derivation, quantity: str, amount: Expr, meaning: str, latex: str, unit: Unit = NONE, source: str = "") -> Expr:
    return book.define(of_run(quantity), Quantity(amount, unit), meaning, unit=unit, latex=latex, source=source).expr


def _sequences() -> Expr:
    """Of a step."""
    return symbol("m") * symbol("dp") * symbol("b")


def _step(book: Derivation, given: Mapping[str, Any], strategy: Strategy) -> None:
    """The mean step, its quantiles, and what is more or less about the steps of a growing batch."""
    mean = symbol("t_step")
    if "jitter" in given:
        meaning = "expected largest of as many normal numbers as there are ranks"
        largest = _define(book, "xi", expected_largest(symbol("world")), meaning, r"\xi_{\mathrm{ranks}}", source=OF_LARGEST)
        mean = mean * (1 + symbol("jitter") * largest)
        for percent in QUANTILES:
            meaning = f"what the largest of as many normal numbers does not exceed in {percent} of 100 cases"
            largest = _define(book, f"xi{percent}", expected_largest(symbol("world"), percent), meaning, rf"\xi_{{{percent}}}", source=OF_LARGEST)
            meaning = f"a step that {percent} of 100 steps do not exceed: that of the slowest rank"
            _define(book, f"p{percent}", symbol("t_step") * (1 + symbol("jitter") * largest), meaning, rf"t_{{{percent}}}", SECOND)
    _define(book, "step", mean, "a step, on average", r"\bar{t}", SECOND)
    if RAMP_PARTS[0] in given:
        more = symbol("ramp_samples") * (symbol("h_ramp") - 1 / _sequences())
        _define(book, "more", more, "steps more than at the full batch, as the batch grows", r"n_+", source=_RAMP)
        pipeline = book.definitions["t_pipeline"].expr
        often = strategy.pipeline_flushes
        longer = (pipeline.substitute({"m": symbol("m") + often}) - pipeline) / often * of_run("step").expr / symbol("t_step")
        _define(book, "longer", longer, "what one more micro-batch adds to a step", r"\Delta t", SECOND)
        fixed = of_run("step").expr - symbol("m") * of_run("longer").expr
        _define(book, "fixed", fixed, "of a step, what does not grow with its micro-batches", r"t_0", SECOND)


def _checkpoint(book: Derivation, system: System, lowered: Lowered, given: Mapping[str, Any]) -> None:
    """Bytes of weights and states, each once, and seconds to hand them to the store and to read them back."""
    bytes_ = _define(book, "checkpoint", _bytes_saved(lowered), "a checkpoint: trained weights and the optimizer's states, each once", r"D", BYTE)
    all_ranks = symbol("B_store") if "B_store" in given else symbol("world") * symbol("B_save")
    store = _define(book, "write", bytes_ / all_ranks, "writing a checkpoint to the store", r"t_{\mathrm{write}}", SECOND)
    if system.host is not None:
        # ranks copy their shares over the host link, one piece while another is written
        copied = bytes_ / (symbol("world") * symbol("B_host"))
        copy = _define(book, "copy", copied, "copying every rank's share of a checkpoint to its host", r"t_{\mathrm{copy}}", SECOND)
        at_once = symbol("async_save")
        blocked = at_once * copy + (1 - at_once) * maximum(copy, store)
    else:
        blocked = store
    _define(book, "blocked", blocked, "what training waits for a checkpoint", r"\delta", SECOND)


def _bytes_saved(lowered: Lowered) -> Expr:
    """Weights that are trained in their type, and states; FSDP's weights are the copy that is updated."""
    strategy = lowered.profile.strategy
    only_main = strategy.zero == 3 and lowered.profile.assumptions["fsdp_parameters"] == "main"
    trained = symbol("N_trained" if some_frozen(lowered) else "N")
    weights = trained * WIDTHS[main_type(strategy) if only_main else parameter_type(strategy)]
    if not OPTIMIZERS[strategy.optimizer].by_shape and not strategy.fp32_embedding_moments:
        return weights + trained * state_bytes(strategy, updates_parameters=only_main)
    held = ZERO
    for expert in (False, True):
        own = shards(lowered, expert and expert_groups(lowered))
        across = lowered.mesh.degree("etp") * lowered.mesh.degree("ep") if expert and expert_groups(lowered) else lowered.mesh.degree("tp")
        copies = own.owners if lowered.mesh.placement.stores["optimizer states"] else ONE
        held = held + states(lowered, expert=expert, updates_parameters=only_main) * copies * across
    return weights + stages_sum(held)


def _interval(book: Derivation, given: Mapping[str, Any]) -> Expr:
    """Failures of all ranks, the best interval between checkpoints, and the one that is kept, which it returns."""
    blocked, step, write = (of_run(name).expr for name in ("blocked", "step", "write"))
    between = _define(book, "between", symbol("mtbf") / symbol("world"), "mean time between failures of all ranks together", "M", SECOND)
    source = "Young, Communications of the ACM 17, 1974"
    young = _define(book, "young", sqrt(2 * blocked * between), "best interval, first order", r"\tau_Y", SECOND, source)
    share = blocked / (2 * between)
    higher = young * (1 + sqrt(share) / 3 + share / 9) - blocked
    best = _define(book, "best", higher, "best interval, higher order: the training between two checkpoints", r"\tau_D", SECOND, _DALY)
    apart = symbol("t_save") if "t_save" in given else symbol("save_interval") * step if "save_interval" in given else best
    apart = maximum(apart, step, symbol("async_save") * write)
    meaning = "training between two checkpoints: no less than a step, nor than a checkpoint takes that is written beside it"
    return _define(book, "interval", apart, meaning, r"\tau", SECOND)


def _failures(book: Derivation, stretch: Expr) -> None:
    """What a failure costs, and the share of the time that counts. stretch: what is trained between two checkpoints, of a shorter run all of it."""
    blocked, write, between, kept = (of_run(name).expr for name in ("blocked", "write", "between", "interval"))
    apart = _define(
        book, "stretch", stretch, "training that a failure may undo: between two checkpoints, of a shorter run all of it", r"\tau_f", SECOND
    )
    read = _define(book, "load", write, "reading a checkpoint back", r"t_{\mathrm{load}}", SECOND)
    lost = symbol("t_restart") + read + (apart + blocked) / 2 + symbol("async_save") * write
    _define(book, "lost", lost, "what a failure costs: the restart, and what is done again", r"t_{\mathrm{lost}}", SECOND)
    idle = _define(book, "idle", of_run("lost").expr - (apart + blocked) / 2, "what a failure costs besides work that is done again", "R", SECOND)
    again = _define(book, "again", (apart + blocked) / between, "failures in an interval and its checkpoint", "x")
    source = "Daly, Future Generation Computer Systems 22, 2006, sec. 3: series of (exp x - 1)/x and exp(R/M)"
    working = 1 / ((1 + blocked / kept) * _series(again, 2) * _series(idle / between, 1))
    _define(book, "working", working, "share of the time that is spent on steps and evaluations that count", r"\omega", source=source)


def _series(x: Expr, first: int) -> Expr:
    """1 + x/first + x^2/(first (first + 1)) + ...: of exp x for 1, of (exp x - 1)/x for 2. With six terms 0.1 % too little at 1.3."""
    found = ONE
    for n in reversed(range(first, first + TERMS[first] - 1)):
        found = 1 + x * found / n
    return found


def _evaluation(book: Derivation, given: Mapping[str, Any], strategy: Strategy) -> Expr:
    """Seconds of evaluation a step, on average."""
    if "eval_interval" not in given:
        return ZERO
    meaning = "an evaluation: forward of its batches through the pipeline"
    one = _define(book, "evaluation", symbol("eval_iters") * forward_pass(strategy), meaning, r"t_v", SECOND)
    return one / symbol("eval_interval")


def _work(book: Derivation, given: Mapping[str, Any]) -> Expr:
    """Steps and tokens, and the time that the steps take."""
    more = of_run("more").expr if of_run("more") in book else ZERO
    each = _sequences() * symbol("s")
    if "steps" in given:
        _define(book, "tokens", (symbol("steps") - more) * each, "tokens of the run", r"T_{\mathrm{run}}")
        steps = symbol("steps")
    else:
        _define(book, "tokens", symbol("tokens"), "tokens of the run", r"T_{\mathrm{run}}")
        steps = ceil(symbol("tokens") / each + more)
    steps = _define(book, "steps", steps, "steps of the run", r"n_{\mathrm{run}}")
    seconds = steps * of_run("step").expr - _saved(book)
    return _define(book, "work", seconds, "all steps, one after the other", r"t_{\mathrm{steps}}", SECOND)


def _length(book: Derivation, given: Mapping[str, Any], strategy: Strategy) -> None:
    """The time that the run takes."""
    evaluations = of_run("steps").expr * _evaluation(book, given, strategy)
    _define(book, "wall", (of_run("work").expr + evaluations) / of_run("working").expr, "the run", r"t_{\mathrm{run}}", SECOND)


def _saved(book: Derivation) -> Expr:
    """By how much the steps of a ramp are shorter than those of the full batch."""
    if of_run("more") not in book:
        return ZERO
    return of_run("more").expr * (of_run("step").expr - of_run("fixed").expr)


def _length_of_days(book: Derivation, given: Mapping[str, Any], strategy: Strategy) -> None:
    """The steps that fit in so many days, and their tokens."""
    step, more = of_run("step").expr, of_run("more").expr if of_run("more") in book else ZERO
    evaluation = _evaluation(book, given, strategy)
    steps = maximum(1, floor((symbol("days") * 86400 * of_run("working").expr + _saved(book)) / (step + evaluation)))
    steps = _define(book, "steps", steps, "steps of the run", r"n_{\mathrm{run}}")
    _define(book, "tokens", (steps - more) * _sequences() * symbol("s"), "tokens of the run", r"T_{\mathrm{run}}")
    _define(book, "work", steps * step - _saved(book), "all steps, one after the other", r"t_{\mathrm{steps}}", SECOND)
    _define(book, "wall", (of_run("work").expr + steps * evaluation) / of_run("working").expr, "the run", r"t_{\mathrm{run}}", SECOND)


def _answers(book: Derivation, system: System) -> None:
    """What is asked of a run."""
    wall, world = of_run("wall").expr, symbol("world")
    _define(book, "days", wall / 86400, "days", r"\mathrm{days}")
    _define(book, "goodput", of_run("work").expr / wall, "share of the run's time that is spent on steps that count", r"\mathrm{goodput}")
    _define(book, "failures", wall / of_run("between").expr, "failures to be expected", r"n_{\mathrm{fail}}")
    _define(book, "saves", wall * of_run("working").expr / of_run("interval").expr, "checkpoints", r"n_{\mathrm{save}}")
    _define(book, "hours", world * wall / 3600, "hours of accelerators", r"h_{\mathrm{acc}}")
    if system.accelerator.price is not None:
        _define(book, "cost", world * wall * symbol("c_chip"), "US dollars", r"\mathrm{USD}")
    if system.accelerator.power is not None:
        drawn = world * symbol("W_chip") * symbol("k_node") * symbol("pue") * wall / (3600 * 10**6)
        meaning = "MWh of the site: accelerators at full power, their nodes and the building"
        energy = _define(book, "energy", drawn, meaning, r"E")
        _define(book, "carbon", energy * 1000 * symbol("carbon"), "kg of CO2 of the grid", r"\mathrm{CO_2}")
