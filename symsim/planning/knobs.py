"""The next knob: what each change of one option or size does to the step of a strategy. All are evaluated; none goes by a rule of thumb.

What may change is the space of the framework that the strategy is of (`space.py`), one of its axes at a time, on the same ranks with the same
batch, and the further options that a plan tries alone (`frameworks.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symsim.errors import InputError
from symsim.evaluation.numbers import Evaluation
from symsim.exporters import refused
from symsim.grid.conditions import evaluate, parse_any
from symsim.grid.stored import Asked as Sought
from symsim.grid.stored import Memories, evaluations
from symsim.inputs.models import LoadedModel
from symsim.inputs.settings import text_of
from symsim.inputs.strategies import load_strategy, on_ranks, read_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.systems import load_system
from symsim.lowering.checks import Rule, check
from symsim.planning.frameworks import FRAMEWORKS, Framework
from symsim.planning.space import Asked, choices_of
from symsim.program.base import Base
from symsim.report.step import Step

# a change below this share of a step is none that a table would show
_LEAST = 1e-4
# micro-batches are enough where twice as many gain less
_ENOUGH = 0.05
_MOST_MICRO_BATCHES = 1 << 12
# changes that are shown unless asked for otherwise
MOST = 3

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """What a change does to a step (seconds) and to the peak (bytes). part: of the step, the one that shrinks the most, from and to seconds."""

    text: str
    before: float
    after: float
    memory: int
    part: str
    part_before: float
    part_after: float

    def to_json(self) -> dict[str, Any]:
        part = {"name": self.part, "before": self.part_before, "after": self.part_after}
        return {"change": self.text, "before": self.before, "after": self.after, "memory": self.memory, "part": part}


@dataclass(frozen=True)
class Batch:
    """Where no batch is given: a number of micro-batches after which twice as many gain little, and the tokens a second before and with it."""

    enough: int
    before: float
    after: float


@dataclass(frozen=True, repr=False)
class Next:
    """The changes that gain most, the best first, no two of one knob, of so many evaluated. fits: whether what they start from does; where not,
    they are those after which it would, the shortest step first."""

    changes: Sequence[Change]
    evaluated: int
    fits: bool = True
    batch: Batch | None = None

    def __repr__(self) -> str:
        """As `symsim eval --next` ends."""
        from symsim.planning.knobs_text import next_text

        return next_text(self).rstrip("\n")

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"evaluated": self.evaluated, "fits": self.fits, "changes": [c.to_json() for c in self.changes]}
        if self.batch is not None:
            told["num_microbatches"] = {"enough": self.batch.enough, "tokens_per_second": [self.batch.before, self.batch.after]}
        return told


def next_knobs(base: Base, most: int = MOST) -> Next:
    """The changes of one option or size that shorten the step the most. InputError without a system, and as `derive`."""
    if base.system is None:
        raise InputError("--next compares steps on a system: give one with -y")
    strategy = on_ranks(base.strategy, base.ranks)
    system = load_system(base.system, base.system_changes)
    start = Sought(base.architecture, strategy, base.assumptions, base.symbols, system)
    check(start.trained, strategy)
    memories = Memories()
    options = _same_batch(strategy)
    framework = next(f for f in FRAMEWORKS.values() if f.fixed["fusion"] == strategy.fusion)
    loaded = LoadedModel(base.architecture, base.system)
    ranks, sequences = int(options["world"]), int(options["global_batch_size"])
    asked = Asked(loaded, base.architecture, base.system, ranks, sequences, strategy.seq_length, framework, {})
    tried = [*_one_axis(asked, strategy), *_further(framework)]
    # of a job that another framework runs, its rules are not known
    found = _tried(start, options, tried, memories, most, [rule for rule in framework.refused if not _refuses(rule, start)])
    return Next(found.changes, found.evaluated, found.fits, _batch(start, memories))


def single_changes(asked: Asked, options: Options, share: float = 1.0, goal: str = "time.step") -> Sequence[Change]:
    """The framework's further options that would shorten the step of a strategy of a plan the most, one at a time. share: of the memory that may be
    filled. goal: with memory.peak those that need the least memory."""
    base = asked.evaluated(options)
    assert base.system is not None
    start = Sought(asked.model, base.strategy, base.assumptions, base.overrides, base.system)
    return _tried(start, _same_batch(base.strategy), _further(asked.framework), Memories(), MOST, asked.refused, share, goal).changes


def _same_batch(strategy: Strategy) -> dict[str, Any]:
    """The options that are given, with the ranks and the batch in place of what follows from them."""
    given = strategy.model_dump(exclude_unset=True)
    for name in ("dp", "num_microbatches"):
        given.pop(name, None)
    sequences = strategy.micro_batch_size * strategy.dp * strategy.microbatches
    return {**given, "world": strategy.world_size, "global_batch_size": sequences}


def _one_axis(asked: Asked, strategy: Strategy) -> Iterator[Options]:
    """Another row of one axis of the space; of stages and their chunks one of the two. What follows from an axis changes with it."""
    here = strategy.model_dump()
    nodes = {name: parse_any(text, name) for name, text in asked.framework.derived.items()}
    now = {name: evaluate(node, here) for name, node in nodes.items()}
    for name, value in now.items():
        if here[name] != value:
            yield {name: value}
    for choice in choices_of(asked):
        for row in choice.rows:
            change = {n: v for n, v in zip(choice.names, row) if here[n] != (tuple(v.split("+")) if n == "recompute_modules" else v)}
            if not change or len(change.keys() & {"pp", "vpp"}) > 1 or (change.keys() == {"recompute_modules"} and strategy.recompute != "selective"):
                continue
            then = {name: evaluate(node, {**here, **change}) for name, node in nodes.items()}
            yield {**change, **{name: value for name, value in then.items() if value != now[name] and value != here[name]}}


def _further(framework: Framework) -> list[Options]:
    return [read_strategy(text)[0].model_dump(exclude_unset=True) for text in framework.further]


def _refuses(rule: Rule, asked: Sought) -> bool:
    try:
        rule(asked.trained, asked.strategy)
    except InputError:
        return True
    return False


def _tried(
    start: Sought,
    options: Options,
    changes: Iterable[Options],
    memories: Memories,
    most: int,
    rules: Sequence[Rule],
    share: float = 1.0,
    goal: str = "time.step",
) -> Next:
    """The start and all changes of it that can run, by rules besides those of a strategy too, evaluated together, and the best of each knob."""
    ran: list[Options] = []
    asked = [start]
    for change in changes:
        try:
            made = Sought(start.model, load_strategy({**options, **change}), start.assumptions, start.overrides, start.system)
            check(made.trained, made.strategy)
            refused.check(rules, made.trained, made.strategy)
        except InputError:
            continue
        if made.strategy != start.strategy:
            ran.append(change)
            asked.append(made)
    first, *others = _evaluated(asked, memories)
    assert first is not None
    fits, peak = _fits(first, share), float(first.value("memory.peak"))
    best: dict[str, tuple[float, Change]] = {}
    for change, other in zip(ran, others):
        if other is None or not _fits(other, share):
            continue
        made_of = _change(change, first, other)
        knob = next(iter(change))
        before, after = (peak, peak + made_of.memory) if goal == "memory.peak" else (made_of.before, made_of.after)
        better = after < before * (1 - _LEAST) or not fits
        if better and (knob not in best or after < best[knob][0]):
            best[knob] = after, made_of
    return Next([found for _, found in sorted(best.values(), key=lambda own: own[0])][:most], len(ran), fits)


def _evaluated(asked: Sequence[Sought], memories: Memories) -> list[Evaluation | None]:
    """Together, which shares what is derived; one by one where one of them is refused as it is derived."""
    try:
        return list(evaluations(asked, memories))
    except InputError:
        found: list[Evaluation | None] = []
        for one in asked:
            try:
                found += evaluations([one], memories)
            except InputError:
                found.append(None)
        return found


def _fits(at: Evaluation, share: float) -> bool:
    return bool(at.value("memory.peak") + at.value("memory.reserve") <= at.value("memory.capacity") * share)


def _change(change: Options, first: Evaluation, other: Evaluation) -> Change:
    here, there = ({p.name: p.seconds for p in Step(at).parts} for at in (first, other))
    part = min(here, key=lambda name: there.get(name, 0.0) - here[name])
    text = ",".join(f"{n}={text_of(v)}" for n, v in change.items())
    memory = int(other.value("memory.peak") - first.value("memory.peak"))
    before, after = (float(at.value("time.step")) for at in (first, other))
    return Change(text, before, after, memory, part, here[part], there.get(part, 0.0))


def _batch(start: Sought, memories: Memories) -> Batch | None:
    """Where a strategy gives no batch, how many micro-batches would be enough."""
    strategy = start.strategy
    if strategy.model_fields_set & {"num_microbatches", "global_batch_size"}:
        return None
    rates: list[tuple[int, float]] = []
    count = strategy.microbatches
    while count <= _MOST_MICRO_BATCHES:
        made = Sought(start.model, load_strategy({**_given(strategy), "num_microbatches": count}), start.assumptions, start.overrides, start.system)
        found = _evaluated([made], memories)[0]
        if found is None:
            break
        rates.append((count, float(found.value("tokens_per_second"))))
        if len(rates) > 1 and rates[-1][1] < rates[-2][1] * (1 + _ENOUGH):
            break
        count *= 2
    enough = rates[max(0, len(rates) - 2)]
    return Batch(enough[0], rates[0][1], enough[1]) if len(rates) > 2 else None


def _given(strategy: Strategy) -> dict[str, Any]:
    return strategy.model_dump(exclude_unset=True)
