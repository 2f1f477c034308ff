"""What a step's numbers say: where its time goes, which stage is the slowest and why, whether it fits in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from symsim.algebra.expr import ZERO, Call, Expr, Number, symbol
from symsim.algebra.facts import Fact, apply
from symsim.algebra.key import of_block, of_stage, of_step
from symsim.algebra.kinds import kind_of
from symsim.algebra.quantity import BYTE
from symsim.algebra.reductions import FUNCTIONS
from symsim.algebra.vocabulary import SYMBOLS
from symsim.cost.deferred import at_once
from symsim.cost.memory import binding_moment
from symsim.cost.repeated import layers_again
from symsim.cost.reserve import RESERVES
from symsim.cost.step_time import STAGE_TIMES, exposed_axes, exposed_of_stage
from symsim.evaluation.above_peak import above_peak
from symsim.evaluation.elasticity import elasticities
from symsim.evaluation.interval import Interval, interval
from symsim.evaluation.launches import launching, launching_of_step
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.conventions import OWN
from symsim.inputs.known import TAGS
from symsim.inputs.spreads import KINDS
from symsim.inputs.system import System, quantities
from symsim.ir.roles import role_of
from symsim.pipeline.fullest import falls
from symsim.pipeline.schedules import schedule_of, schedule_sizes
from symsim.pipeline.stages import runs
from symsim.report.amounts import human, percent, seconds, whole
from symsim.report.kernels import Kernel, block_kernels, stage_kernels
from symsim.report.totals import ranges

# what a stage's peak memory is the sum of, and how it is said
MEMORY_PARTS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer states",
    "activations": "activations",
    "transient": "transient",
}
AXES = {
    "tp": "tensor-parallel messages",
    "etp": "tensor-parallel (experts)",
    "etp_ep": "expert-parallel (etp and ep)",
    "ep": "expert-parallel messages",
    "cp": "context-parallel messages",
    "pp": "pipeline messages",
    "fsdp": "sharded parameters",
    "dp": "data-parallel messages",
    "zero2": "gradients scattered (ZeRO-2)",
    "host": "copies to and from the host",
}
LAUNCHES = "waiting for the host's launches"
WAITING = {"stragglers": "waiting for slower ranks", "lengths": "waiting for the longest rows"}
ROUNDING = 1e-12
_COMPARED = ("pp", "group")
_MOST_CHANGED = 3  # numbers of a system, that are named


@dataclass(frozen=True)
class Part:
    """Seconds of a step under one heading; the parts of a step add up to it. of: the same without that what is hidden is left out."""

    name: str
    of: str
    definition: str
    seconds: float
    share: float


class Step:
    """Numbers of a result with a system that several outputs show."""

    def __init__(self, result: Evaluation):
        if result.system is None:
            raise ValueError("a step takes time on a system")
        self.result, self.system = result, result.system

    @cached_property
    def above_peak(self) -> str:
        """The convention that makes MFU or HFU exceed 100 %, in a sentence; empty where neither does."""
        return above_peak(self.result)

    @cached_property
    def interval(self) -> Interval | None:
        """Between which seconds the step lies, by the spreads of what it stands on; none where another system's rules are followed."""
        own = self.result.lowered.profile.conventions == OWN
        return interval(self.result, self.elasticities if own else None)

    @cached_property
    def elasticities(self) -> Mapping[str, float]:
        """Percent by which the step changes for a percent more of each free symbol."""
        return elasticities(self.result)

    @property
    def depth(self) -> int:
        """Stages of the pipeline."""
        return len(self.result.stages)

    def stage(self, index: int) -> Mapping[str, Number]:
        """Numbers of a stage."""
        return self.result.stage_numbers(self.result.stages[index])

    @property
    def slowest(self) -> int:
        """The stage whose micro-batch takes longest."""
        return self.result.slowest

    @property
    def fullest(self) -> int:
        """The stage whose rank needs most memory."""
        return self.result.fullest

    @cached_property
    def kernels(self) -> list[Kernel]:
        """Of one micro-batch on the slowest stage, longest first."""
        return stage_kernels(self.result, self.slowest, self.block_kernels)

    @cached_property
    def block_kernels(self) -> Mapping[str, list[Kernel]]:
        """Of every block its kernels once, in the order in which they run."""
        return {name: block_kernels(self.result, name) for name in self.result.lowered.blocks}

    @cached_property
    def launching(self) -> float:
        """Seconds of one micro-batch on the slowest stage in which its kernels wait to be launched by the host."""
        return launching(self.result, self.slowest)

    @cached_property
    def axes(self) -> list[str]:
        """Over which a block's messages go."""
        return [key.axis for key in exposed_of_stage(self.result.derivation) if key.phase == "forward"]

    def exposed(self, stage: int) -> float:
        """Seconds of messages that nothing hides, of one micro-batch of a stage."""
        numbers = self.stage(stage)
        return float(sum(numbers[key.text] for key in exposed_of_stage(self.result.derivation)))

    @cached_property
    def nothing(self) -> dict[str, Expr]:
        """Definitions that are zero on every stage at the given sizes, and seconds of the pipeline that are: what a short formula leaves out."""
        values, stages = self.result.step_numbers, [self.stage(n) for n in self.result.line.first.values()]
        book = self.result.derivation.definitions
        known = [n for n in values if n in book or n in SYMBOLS and SYMBOLS[n].unit == "s"]
        return {n: ZERO for n in (*known, *(n for n in stages[0] if n in book)) if not any(numbers.get(n, values.get(n)) for numbers in stages)}

    @cached_property
    def never(self) -> set[str]:
        """Definitions that are zero at all sizes: their terms are, if they have any."""
        book, found = self.result.derivation.definitions, dict[str, Expr]()
        while more := [n for n, d in book.items() if n not in found and _nothing(d.expr.substitute(found))]:
            found |= dict.fromkeys(more, ZERO)
        return set(found)

    @cached_property
    def holding(self) -> tuple[tuple[Expr, Expr], ...]:
        """Of what formulas of a pipeline compare, (larger or equal, the other) as they are here."""
        sizes, at_once = schedule_sizes(self.result.strategy), symbol("m") / self.result.strategy.pipeline_flushes
        enough = (name for name in _COMPARED if self.depth > 1 and at_once.evaluate(sizes) >= sizes[name])
        return tuple((at_once, symbol(name)) for name in enough)

    def decided(self, expression: Expr) -> tuple[Expr, list[tuple[Expr, Expr]]]:
        """The expression where `holding` does, and what of that decided something."""
        asked = {Fact(a, ">=", b): (a, b) for a, b in self.holding if a.symbols() | b.symbols() <= expression.symbols()}
        if not asked:
            return expression, []
        ((_, made),), unused = apply([("", expression)], list(asked))
        return (made, [pair for fact, pair in asked.items() if fact not in unused]) if len(unused) < len(asked) else (expression, [])

    def number(self, name: str) -> float:
        return float(self.result.step_numbers[name])

    @property
    def parts(self) -> list[Part]:
        """Where the time of a step goes."""
        exposed = exposed_axes(self.result.derivation)
        messages = {axis: exposed[axis] for axis in (*(a for a in exposed if a != "dp"), "dp")}
        named = [_named("kernels of the slowest stage", "t_compute"), _named("pipeline bubble (waiting)", "t_bubble")]
        for axis, name in messages.items():
            words = carried(self.result, axis)
            named.append((words if axis in WAITING else f"{words}, not hidden", words, name))
        named += [_named("optimizer", "t_optimizer")]
        named += [_named("reference and further forwards", "t_further")] if of_step("t", "further") in self.result.derivation else []
        step = self.number("t_step")
        # sums that cancel leave a rest of rounding
        found = [(words, of, name, self.number(name) if abs(self.number(name)) > ROUNDING * step else 0.0) for words, of, name in named]
        if waits := launching_of_step(self.result):
            kernels, *others = found
            found = [(*kernels[:3], kernels[3] - waits), (LAUNCHES, LAUNCHES, "", waits), *others]
        return [Part(words, of, name, time, time / step) for words, of, name, time in found]

    def blocks(self, numbers: Mapping[str, Number]) -> dict[str, float]:
        """Seconds of each block in one micro-batch of a stage, kernels and exposed messages; what is the whole stage's goes by ''."""
        book, lowered = self.result.derivation, self.result.lowered
        made: dict[str, float] = {}
        for name in lowered.blocks:
            often = numbers[runs(name)]
            again = layers_again(self.result.strategy, lowered, name).evaluate(numbers)
            now = at_once(self.result.strategy, name).evaluate(numbers)
            each = {phase: numbers[of_block("t", name, phase=phase).text] for phase in ("forward", "inputs", "weights")}
            kernels = often * (each["forward"] + each["inputs"] + now * each["weights"])
            for whole_again, times in ((False, often - again), (True, again)):
                own = partial(of_block, block=name, again=whole_again)
                once = [own("t", phase="again"), *(own("e", phase=phase, axis=axis) for phase in ("forward", "backward") for axis in self.axes)]
                kernels += times * sum(numbers[key.text] for key in once if key in book)
            made[name] = float(kernels)
        made[""] = float(numbers["t_stage"]) - sum(made.values())
        return made

    @property
    def why_slowest(self) -> str:
        """One sentence about the slowest stage."""
        slowest = self.stage(self.slowest)
        classes = [(self.stage(first), members) for first, members in zip(self.result.line.first.values(), self.result.line.members.values())]
        mean = sum(numbers["t_stage"] * len(members) for numbers, members in classes) / self.depth
        time = f"{seconds(slowest['t_stage'])} a micro-batch"
        if self.depth == 1:
            return f"One stage: {time}."
        over = float(slowest["t_stage"] - mean)
        if over / float(mean) < 1e-9:
            return f"All {self.depth} stages take the same: {time}."
        mine = self.blocks(slowest)
        others = [(self.blocks(numbers), len(members)) for numbers, members in classes]
        more = {b: mine[b] - sum(other[b] * count for other, count in others) / self.depth for b in mine}
        # what is a twentieth of it is named, the rest is said together
        named = sorted((b for b in more if abs(more[b]) >= over / 20), key=lambda b: -more[b])
        rest = over - sum(more[b] for b in named)
        where = [f"{signed(more[b])} in {_place(b)}" for b in named] + ([f"{signed(rest)} elsewhere"] if abs(rest) >= over / 2000 else [])
        alike = sorted(n for numbers, members in classes if numbers["t_stage"] == slowest["t_stage"] for n in members)
        who = f"Stage {self.slowest} is" if len(alike) == 1 else f"Stages {ranges(alike)} are"
        return f"{who} the slowest: {time}, {seconds(over)} ({percent(over / float(mean))}) above the mean of all: {', '.join(where)}."

    # memory

    @property
    def capacity(self) -> int:
        """Bytes of one accelerator."""
        return whole(self.system.accelerator.memory.value)

    def memory(self, stage: int) -> dict[str, int]:
        """Bytes of each of MEMORY_PARTS at the peak, to which they add up but for rounding. Where the whole of all does not
        stand at one moment, it is gradients, then activations, that are not there yet."""
        parts = {part: whole(self.stage(stage)[of_stage("M", part).text]) for part in MEMORY_PARTS}
        absent = sum(parts.values()) - self.peak(stage)
        for part in ("gradients", "activations"):
            away = min(max(0, absent - len(parts)), parts[part])
            parts[part] -= away
            absent -= away
        return parts

    @cached_property
    def alike_in_memory(self) -> list[tuple[int, ...]]:
        """Stages with the same bytes together."""
        return self.result.alike_in(("M_stage_peak", *(f"M_stage_{part}" for part in MEMORY_PARTS)))

    def peak(self, stage: int) -> int:
        return whole(self.stage(stage)["M_stage_peak"])

    def moment(self, stage: int) -> str:
        """When the peak is reached, in words."""
        return binding_moment(self.result.derivation, self.stage(stage)).meaning

    @cached_property
    def reserve(self) -> dict[str, int]:
        """Bytes that should be free beside the peak: each of RESERVES, and all."""
        numbers = self.result.step_numbers
        return {"all": whole(numbers["M_reserve"]), **{part: whole(numbers[of_step("M_reserve", part).text]) for part in RESERVES}}

    @property
    def fits(self) -> bool:
        return self.peak(self.fullest) <= self.capacity

    @property
    def verdict(self) -> str:
        """The verdict in brief, and why it is tight where the reserve decides."""
        if not self.fits or self._room >= self.reserve["all"]:
            return self.verdict_in_brief
        parts = [f"{human(self.reserve[part], BYTE)} {said}" for part, said in RESERVES.items() if self.reserve[part]]
        return f"{self.verdict_in_brief}, where {human(self.reserve['all'], BYTE)} should be: {', '.join(parts)}"

    @property
    def _room(self) -> int:
        return self.capacity - self.peak(self.fullest)

    @property
    def verdict_in_brief(self) -> str:
        """'fits, 12.3 GiB (15 %) to spare', 'fits, tight: ...' where the reserve decides, or by how much and on which stages it does not."""
        amount = f"{human(abs(self._room), BYTE)} ({100 * abs(self._room) / self.capacity:.0f} %)"
        if self.fits:
            return f"fits, {'' if self._room >= self.reserve['all'] else 'tight: '}{amount} to spare"
        over = self._over()
        where = f" on stage{'s' if len(over) > 1 else ''} {ranges(over)}" if self.depth > 1 else ""
        return f"does not fit: {amount} too much{where}"

    def _over(self) -> list[int]:
        """Stages of which a rank needs more than the accelerator has."""
        if not falls(schedule_of(self.result.strategy)):
            return [n for n in range(self.depth) if self.peak(n) > self.capacity]
        found: list[int] = []
        for stages in self.result.line.members.values():
            found += stages[: bisect_left(stages, True, key=lambda n: self.peak(n) <= self.capacity)]
        return sorted(found)


def between(found: Interval) -> str:
    """'80 %: 11.4 s to 13.5 s, most of it from attention': an interval, the kind of numbers that widens it most, and what was never measured."""
    besides = f", besides {KINDS[found.unmeasured]}" if found.unmeasured not in (None, found.most) else ""
    said = f"{100 * found.level:.0f} %: {seconds(found.low)} to {seconds(found.high)}, most of it from {KINDS[found.most]}{besides}"
    changed = found.standing.changed
    if not changed:
        return said
    more = f" and {len(changed) - _MOST_CHANGED} more" if len(changed) > _MOST_CHANGED else ""
    are = "differs" if len(changed) == 1 else "differ"
    return f"{said} ({', '.join(changed[:_MOST_CHANGED])}{more} {are} from {found.standing.near}, which was measured)"


def carried(result: Evaluation, axis: str) -> str:
    """What goes over an axis, in words."""
    if axis == "etp_ep" and result.strategy.moe_token_dispatcher_type != "allgather":
        return "token-count messages"  # Megatron-Core gathers those alone over both axes
    return WAITING.get(axis) or AXES.get(axis) or "messages over " + axis.replace("_", " and ")


def _nothing(expression: Expr) -> bool:
    """Whether every term is a reduction over stages of what is nothing, or there is none."""
    return all(any(isinstance(a, Call) and a.function in FUNCTIONS and _nothing(a.arguments[0]) for a, _ in term) for term in expression.terms)


def _named(words: str, symbol: str) -> tuple[str, str, str]:
    return words, words, symbol


def _place(block: str) -> str:
    return role_of(block).words or (f"its layers of kind {kind_of(block)}" if block else "sharded parameters")


def signed(time: float) -> str:
    return seconds(time) if time >= 0 else f"\u2212{seconds(-time)}"


def tags(system: System) -> dict[str, int]:
    """How many of a system's numbers are known in which way."""
    known = [k.tag for _, k in quantities(system)]
    return {tag: known.count(tag) for tag in TAGS if tag in known}


def stage_seconds(step: Step) -> dict[tuple[int, ...], dict[str, float]]:
    """Seconds of equal stages under the names of `eval --json`."""
    names = {said: key.text for said, key in STAGE_TIMES.items()}
    return {stages: {k: float(step.stage(stages[0])[n]) for k, n in names.items()} for stages in step.result.alike_in(names.values())}
