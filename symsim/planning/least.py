"""What no strategy of a set can do without: a least time of a step and a least peak, of the definitions that all members have in common.

A step takes at least m micro-batches of the slowest stage, and a stage its kernels and what nothing hides of its messages, none of them
negative; a rank holds at least its weights, gradients, optimizer states and the activations that wait for their backward, all at once when the
last of these begins. What is not in common is left out of the sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from operator import and_

from symsim.algebra.expr import ZERO, Expr, Number, maximum, minimum, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key, layers, of_block, of_stage, of_step
from symsim.algebra.kinds import EMBEDDING
from symsim.algebra.quantity import BYTE, SECOND, Definition, Unit
from symsim.algebra.reductions import stages_at, stages_max, stages_pair, stages_sum
from symsim.cost.count import Counted
from symsim.cost.reserve import RESERVES
from symsim.evaluation.numbers import Evaluation
from symsim.frameworks.choices import framework_of
from symsim.ir.roles import role_of
from symsim.pipeline.schedules import schedule_of
from symsim.pipeline.stages import runs
from symsim.planning.certain import Common, Derived
from symsim.planning.ways import Way

LEAST_TIME, LEAST_MEMORY, LEAST_NEED = of_step("t", "least"), of_step("M", "least"), of_step("M", "least_needed")
_STAGE_TIME, _STAGE_MEMORY = of_stage("t", "least"), of_stage("M", "least")
_PEAK, _ACTIVATIONS, _RESERVE = of_stage("M", "peak"), of_stage("M", "activations"), of_step("M", "reserve")
# a block's, by its name; None where they are not known
Ways = Callable[[str], Sequence[Way] | None]
_STAY = tuple(of_stage("M", part) for part in ("weights", "gradients", "optimizer"))
_PARTS = (*_STAY, of_stage("M", "earlier"))


class Least:
    """A derivation with definitions of the least peak and of the least time of all strategies that differ from its own in some options alone.

    of_memory: with the peak alone, since a set that does not fit is asked for no more; of_both: with the time too. known: that any of the two is
    more than zero. exact: that all members take this time and need this memory. further: that a stage's time or a rank's peak is known as a whole.
    """

    def __init__(self, derived: Derived, free: frozenset[str], ways: Ways):
        """ways: gives those of a block under all rows of the free options."""
        self.derived, self._free, self._ways = derived, free, ways
        self._common = common = Common(derived, free)
        self._held = _memory(derived, common)
        self.further = _has(common, of_stage("t")) or _has(common, _PEAK)
        self.exact = not free or all(_has(common, key) for key in (of_step("t", "step"), _PEAK, _RESERVE))

    @cached_property
    def _taken(self) -> list[Definition]:
        return _time(self.derived, self._common, self._free, self._ways)

    @property
    def known(self) -> bool:
        return bool(self._held or self._taken)

    @cached_property
    def of_memory(self) -> Evaluation:
        return _with(self.derived, self._held)

    @cached_property
    def of_both(self) -> Evaluation:
        return _with(self.derived, [*self._taken, *self._held])


def _with(derived: Derived, made: Sequence[Definition]) -> Evaluation:
    nothing = {key.text: _said(key, ZERO, unit) for key, unit in ((LEAST_TIME, SECOND), (LEAST_MEMORY, BYTE), (LEAST_NEED, BYTE))}
    definitions = {**derived.result.derivation.definitions, **nothing, **{d.symbol: d for d in made}}
    return replace(derived.result, counted=Counted(Derivation(definitions), {}))


def _said(key: Key, amount: Expr, unit: Unit) -> Definition:
    return Definition(key, amount, unit, "what no strategy of a set can do without")


def _time(derived: Derived, common: Common, free: frozenset[str], ways: Ways) -> list[Definition]:
    book, mirrored = common.definitions, schedule_of(derived.result.strategy).placement == "mirrored"
    if _has(common, of_step("t", "step")):
        return [_said(LEAST_TIME, symbol("t_step"), SECOND)]
    tail = stages_max(of_stage("t", "tail").expr) if _has(common, of_stage("t", "tail")) and not mirrored else ZERO
    if _has(common, of_step("t", "pipeline")):
        return [_said(LEAST_TIME, symbol("t_pipeline") + tail, SECOND)]
    if _has(common, of_stage("t")):
        own, more = of_stage("t"), []
    else:
        amount, of_ways = _of_blocks(derived, common, free, ways)
        if not amount and not tail:
            return []
        own, more = _STAGE_TIME, [*of_ways, _said(_STAGE_TIME, amount, SECOND)]
    assert own.text in book or more
    least_of = {of_step("t", "least", phase=str(k)): one for k, one in enumerate(_pipeline(derived.result, own.expr))}
    said = [_said(key, one, SECOND) for key, one in least_of.items()]
    return [*more, *said, _said(LEAST_TIME, maximum(*(key.expr for key in least_of)) + tail, SECOND)]


def _pipeline(result: Evaluation, own: Expr) -> list[Expr]:
    """No pipeline whose stages take so long is faster than any of these: the slowest stage works through all micro-batches, and waits for what the
    others do before its first and after its last, as far as a schedule's closed form rises with the time of every stage."""
    strategy, m = result.strategy, symbol("m")
    schedule = schedule_of(strategy)
    slowest = stages_max(stages_pair(own) if schedule.placement == "mirrored" else own)
    if strategy.pp == 1 or result.assumptions["step_barrier"] != "true":
        return [m * slowest]
    if schedule.name == "interleaved":
        return [m * slowest + (stages_sum(own) - slowest) / symbol("vpp")]
    if schedule.name == "1f1b":
        # of the stages that it may wait for the last
        return [m * slowest, stages_sum(own) + (m - 1) * stages_at(own, symbol("loss_i"))]
    return [m * slowest]


def _of_blocks(derived: Derived, common: Common, free: frozenset[str], ways: Ways) -> tuple[Expr, list[Definition]]:
    """A stage's kernels, recomputation, and messages that nothing hides: of a block the least of its ways, where all are known, else what is
    common; and the definitions that these stand on."""
    found, made, any_known = ZERO, list[Definition](), not derived.of_numbers & free
    for name, _ in Counter(d.key.block for d in common.definitions.values() if d.key.scope == "block").most_common():
        known = ways(name) if any_known else None
        # of the largest the most depends
        any_known &= bool(found) or known is not None
        own = None if known is None else _least_ways(derived, common, free, name, known)
        if own is None:
            found = found + _of_common(derived, common, free, name)
            continue
        for number, (times, amount) in enumerate(own.items()):
            made.append(_said(of_block("t", name, phase="least", part=str(number)), amount, SECOND))
            found = found + made[-1].key.expr * times
    return found, made


def _least_ways(derived: Derived, common: Common, free: frozenset[str], name: str, ways: Sequence[Way]) -> dict[Expr, Expr] | None:
    """By how often a stage takes it, what no way of a block takes less than. None where the derivation is none of the ways, or one stands on what is
    not known."""
    base = common.definitions
    if not any(all(base.get(s) == d for s, d in way.definitions.items()) for way in ways):
        return None
    taken: list[dict[Expr, Counter[Expr]]] = []
    for way in ways:
        told = _Told(way.definitions, common)
        for parts in _parts_of_way(derived, free, name, way):
            taken.append({times: Counter() for _, times in parts})
            for key, times in parts:
                one = told.of(key.text)
                if one is None:
                    return None
                if one:
                    taken[-1][times][one] += 1
    return {times: _least([amounts[times] for amounts in taken]) for times in taken[0] if all(times in amounts for amounts in taken)}


def _least(amounts: Sequence[Counter[Expr]]) -> Expr:
    """The least of several sums of what is never less than 0: one that has all that another has is not."""
    least: list[Counter[Expr]] = []
    for amount in amounts:
        if not any(other <= amount for other in least):
            least = [*(other for other in least if not amount <= other), amount]
    shared = reduce(and_, least)
    apart = [sum((one * n for one, n in (amount - shared).items()), ZERO) for amount in least]
    return sum((one * n for one, n in shared.items()), minimum(*apart) if len(apart) > 1 else ZERO)


def _parts_of_way(derived: Derived, free: frozenset[str], name: str, way: Way) -> list[list[tuple[Key, Expr]]]:
    """What a block takes of a stage's micro-batch, and how often: its kernels, what runs again, and what nothing hides of messages. Where it is not
    known how many of its layers are under full recomputation, that of none and that of all: no number of them takes less than both."""
    strategy, often = derived.result.strategy, symbol(runs(name))
    waits = strategy.defer_embedding_wgrad_compute or "defer_embedding_wgrad_compute" in free
    partial = "num_microbatches_with_partial_activation_checkpoints"
    own = [d.key for d in way.definitions.values() if d.key.scope == "block" and d.key.block == name and not d.key.operation and d.key.phase]
    always = [(k, often) for k in own if k.quantity == "t" and k.phase != "again" and not (waits and role_of(name).behind and k.phase == "weights")]
    varies = [k for k in own if (k.quantity == "t" and k.phase == "again") or (k.quantity == "e" and k.axis)]
    if getattr(strategy, partial) is not None or partial in free:
        return [always]
    if not way.in_full:
        return [always + [(k, often) for k in varies]]
    if "recompute" in free:
        return [always + [(k, often) for k in varies if k.again == whole] for whole in (False, True)]
    fully = layers(name, again=True).expr
    return [always + [(k, fully if k.again else often - fully) for k in varies]]


class _Told:
    """Definitions of a way by what all strategies of the set have in common: by their symbols, where the derivation has the same."""

    def __init__(self, own: Mapping[str, Definition], common: Common):
        self._own, self._common = own, common
        # of a symbol what it stands for; None where that is not known
        self._made: dict[str, Expr | None] = {}

    def of(self, name: str) -> Expr | None:
        """By symbols that are common; None where it stands on others."""
        if name not in self._made:
            self._made[name] = self._told(name)
        return self._made[name]

    def _told(self, name: str) -> Expr | None:
        made = self._own.get(name)
        if made is None:
            return symbol(name) if name in self._common else None
        others: dict[str, Expr | Number] = {}
        for part in made.expr.symbols():
            told = self._made[part] if part in self._made else self.of(part)
            if told is None:
                return None
            if told != symbol(part):
                others[part] = told
        if others:
            return made.expr.substitute(others)
        return symbol(name) if made == self._common.definitions.get(name) else made.expr


def _of_common(derived: Derived, common: Common, free: frozenset[str], name: str) -> Expr:
    """As far as they are common."""
    strategy, again = derived.result.strategy, derived.result.lowered.checkpointed
    waits = strategy.defer_embedding_wgrad_compute or "defer_embedding_wgrad_compute" in free
    found = ZERO
    for (block, whole), kernels in common.again.items() if strategy.num_microbatches_with_partial_activation_checkpoints is None else ():
        of_all = layers(name, again=True).expr if name in again else ZERO
        for kernel in kernels if block == name else ():
            if kernel in common:
                found = found + symbol(kernel) * (of_all if whole else symbol(runs(name)) - of_all)
    for made in common.definitions.values():
        key = made.key
        if key.scope != "block" or key.block != name or key.quantity not in ("t", "e") or made.symbol not in common:
            continue
        often, checkpointed = symbol(runs(key.block)), layers(key.block, again=True).expr if key.block in again else ZERO
        if key.quantity == "e" and key.axis and key.phase:
            found = found + made.key.expr * (checkpointed if key.again else often - checkpointed)
        elif key.operation and not key.again and not (waits and role_of(key.block).behind and key.phase == "wgrad"):
            found = found + made.key.expr * often
    return found


def _memory(derived: Derived, common: Common) -> list[Definition]:
    """The peak, or the least that it is; and that with what is kept free beside it."""
    if _has(common, _PEAK):
        found = [_said(LEAST_MEMORY, stages_max(_PEAK.expr), BYTE)]
    else:
        parts = [key.expr for key in _PARTS if _has(common, key)]
        if not parts:
            return []
        least = maximum(sum(parts, ZERO), _at_the_turn(derived, common))
        found = [_said(_STAGE_MEMORY, least, BYTE), _said(LEAST_MEMORY, stages_max(_STAGE_MEMORY.expr), BYTE)]
    return [*found, _said(LEAST_NEED, LEAST_MEMORY.expr + _reserve(common), BYTE)]


def _at_the_turn(derived: Derived, common: Common) -> Expr:
    """What is held when the last micro-batch in flight turns from forward to backward: all that it saved too, but what the embedding did, which a
    stage may have alone. A block holds what it saved at the worst kernel of its backward (`define_workspaces`)."""
    result, embedding = derived.result, of_block("A", EMBEDDING)
    if schedule_of(result.strategy).placement == "mirrored" or not all(_has(common, key) for key in (*_STAY, _ACTIVATIONS, embedding)):
        return ZERO
    weights, gradients, optimizer = (key.expr for key in _STAY)
    # of a step's first micro-batch there are none yet, where no buffer waits for them
    made = 1 if framework_of(result.strategy, result.assumptions).main_gradients else minimum(1, symbol("m") - 1)
    return weights + gradients * made + optimizer + _ACTIVATIONS.expr - embedding.expr * symbol(runs(EMBEDDING))


def _reserve(common: Common) -> Expr:
    """Parts of what is kept free beside the least peak."""
    found = ZERO
    for part in RESERVES:
        made = common.definitions.get(of_step("M_reserve", part).text)
        if made is not None:
            amount = made.expr.substitute({"M_peak": LEAST_MEMORY.expr})
            found = found + (amount if common.holds(amount) else ZERO)
    return found


def _has(common: Common, key: Key) -> bool:
    return key.text in common.definitions and key.text in common
