"""What no strategy of a set can do without: a least time of a step and a least peak, of the definitions that all members have in common.

A step takes at least m micro-batches of the slowest stage, and a stage its kernels and what nothing hides of its messages, none of them
negative; a rank holds at least its weights, gradients, optimizer states and the activations that wait for their backward, all at once when the
last of these begins. What is not in common is left out of the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

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


@dataclass(frozen=True)
class Least:
    """A derivation with definitions of the least time and the least peak of a set of strategies. known: that any of the two is more than zero.
    exact: that all members take this time and need this memory. further: that a
    stage's time or a rank's peak is known as a whole."""

    result: Evaluation
    derived: Derived
    known: bool
    exact: bool
    further: bool


def least(derived: Derived, free: frozenset[str], ways: Ways) -> Least:
    """Of all strategies that differ from its own in these options alone. ways: gives those of a block under all rows of these."""
    common = Common(derived, free)
    made = [*_time(derived, common, free, ways), *_memory(derived, common)]
    further = _has(common, of_stage("t")) or _has(common, _PEAK)
    exact = not free or all(_has(common, key) for key in (of_step("t", "step"), _PEAK, _RESERVE))
    known = {key.text: _said(key, ZERO, unit) for key, unit in ((LEAST_TIME, SECOND), (LEAST_MEMORY, BYTE), (LEAST_NEED, BYTE))}
    definitions = {**derived.result.derivation.definitions, **known, **{d.symbol: d for d in made}}
    return Least(replace(derived.result, counted=Counted(Derivation(definitions), {})), derived, bool(made), exact, further)


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
        amount = _of_blocks(derived, common, free, ways)
        if not amount and not tail:
            return []
        own, more = _STAGE_TIME, [_said(_STAGE_TIME, amount, SECOND)]
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


def _of_blocks(derived: Derived, common: Common, free: frozenset[str], ways: Ways) -> Expr:
    """A stage's kernels, recomputation, and messages that nothing hides: of a block the least of its ways, where all are known, else what is
    common."""
    found = ZERO
    for name in dict.fromkeys(d.key.block for d in common.definitions.values() if d.key.scope == "block"):
        # while it is free what runs again, ways are many, and the least of them is that nothing does
        known = None if derived.of_numbers & free or "recompute" in free else ways(name)
        own = None if known is None else _least_way(derived, common, free, name, known)
        found = found + (_of_common(derived, common, free, name) if own is None else own)
    return found


def _least_way(derived: Derived, common: Common, free: frozenset[str], name: str, ways: Sequence[Way]) -> Expr | None:
    """None where the derivation is none of these, or a way stands on what is not known."""
    base = common.definitions
    if not any(all(base.get(s) == d for s, d in way.definitions.items()) for way in ways):
        return None
    amounts: list[dict[Expr, Expr]] = []
    for way in ways:
        told, amount = _Told(way.definitions, common), dict[Expr, Expr]()
        for key, times in _parts_of_way(derived, free, name, way):
            one = told.of(key.text)
            if one is None:
                return None
            amount[one] = amount.get(one, ZERO) + times
        amounts.append(amount)
    # what all have is no matter of which is the least
    shared = {one: times for one, times in amounts[0].items() if all(other.get(one) == times for other in amounts[1:])}
    apart = dict.fromkeys(sum((one * times for one, times in amount.items() if one not in shared), ZERO) for amount in amounts)
    return sum((one * times for one, times in shared.items()), minimum(*apart) if len(apart) > 1 else next(iter(apart)))


def _parts_of_way(derived: Derived, free: frozenset[str], name: str, way: Way) -> Iterator[tuple[Key, Expr]]:
    """What a block takes of a stage's micro-batch, and how often: its kernels, and what runs again and what nothing hides of messages where it is
    known which of its layers are under full recomputation."""
    strategy, in_full, often = derived.result.strategy, name in derived.result.lowered.checkpointed, symbol(runs(name))
    waits = strategy.defer_embedding_wgrad_compute or "defer_embedding_wgrad_compute" in free
    partial = "num_microbatches_with_partial_activation_checkpoints"
    known = in_full == way.in_full and getattr(strategy, partial) is None and partial not in free
    fully = layers(name, again=True).expr if in_full else ZERO
    for made in way.definitions.values():
        key = made.key
        if key.scope != "block" or key.block != name or key.operation or not key.phase:
            continue
        if key.quantity == "t" and key.phase != "again":
            # its backward may be put off (`PHASES`)
            if not (waits and role_of(name).behind and key.phase == "weights"):
                yield key, often
        elif known and (key.quantity == "t" or (key.quantity == "e" and key.axis)):
            yield key, fully if key.again else often - fully


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
