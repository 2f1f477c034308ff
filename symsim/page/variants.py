"""Derivations that a page can show beside its own: of other pipelines, of what runs again in backward, with and without sequence parallelism."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, cast

from symsim.cost.step_time import exposed_axes
from symsim.errors import InputError
from symsim.evaluation.evaluated import evaluated
from symsim.evaluation.numbers import Evaluation
from symsim.grid.names import DEGREES, SIZES
from symsim.grid.stored import Kept, deciding
from symsim.inputs.settings import text_of
from symsim.inputs.strategy import Strategy
from symsim.inputs.traced import Memory
from symsim.lowering.lowered import Lowered
from symsim.report.choices import OF_RECOMPUTATION

Options = Mapping[str, Any]
_MESSAGES = "its messages go over other ranks than those of this page; 'symsim derive' makes its formulas"


@dataclass(frozen=True)
class Choice:
    """Of several options one, which a reader moves. values: what each is called, and the options of it; the first is the page's own."""

    name: str
    meaning: str
    latex: str
    values: tuple[tuple[str, Options], ...]


@dataclass(frozen=True)
class Variants:
    """choices: those with several values. made: of every combination of their values, the last choice's fastest, the derivation, or the sentence
    that refuses it; the first is the page's own."""

    choices: tuple[Choice, ...]
    made: tuple[Evaluation | str, ...]

    @property
    def derived(self) -> list[Evaluation]:
        return [one for one in self.made if not isinstance(one, str)]


def variants(result: Evaluation) -> Variants:
    """A derivation with those beside it. A value that cannot run where all else is the page's own is left out."""
    memory = Memory(SIZES, DEGREES, deciding(result.model))
    choices = []
    for choice in _choices(result.strategy):
        first, *others = choice.values
        left = [first, *(v for v in others if not isinstance(_with(result, [v], memory), str))]
        if len(left) > 1:
            choices.append(Choice(choice.name, choice.meaning, choice.latex, tuple(left)))
    combined = [[v for v in chosen if v[1]] for chosen in product(*(c.values for c in choices))]
    return Variants(tuple(choices), tuple(_with(result, chosen, memory) if chosen else result for chosen in combined))


def _choices(strategy: Strategy) -> Iterator[Choice]:
    """What can be chosen; of a value that is the page's own nothing is changed."""
    yield Choice("pipeline", "stages, and chunks of layers that a rank runs", r"p,\,v", ((_pipeline(strategy, {}), {}), *_pipelines(strategy)))
    yield Choice("recompute", "what runs again in backward instead of being kept", "", ((_again(strategy), {}), *_recomputed(strategy)))
    if strategy.tp > 1:
        text, other = ("on", "off") if strategy.sp else ("off", "on")
        yield Choice("sp", "sequence parallelism within the ranks of tp", "", ((text, {}), (other, {"sp": not strategy.sp})))


def _pipelines(strategy: Strategy) -> Iterator[tuple[str, Options]]:
    """Half and twice the stages, and layers in one chunk a rank or in two."""
    if strategy.pp == 1:
        return
    half = [{"pp": strategy.pp // 2}] if strategy.pp % 2 == 0 and strategy.pp > 2 else []
    for options in (*half, {"pp": 2 * strategy.pp}, {"vpp": 1 if strategy.vpp > 1 else 2}):
        yield _pipeline(strategy, options), options


def _pipeline(strategy: Strategy, options: Options) -> str:
    return ", ".join(f"{name} = {options.get(name, getattr(strategy, name))}" for name in ("pp", "vpp"))


def _recomputed(strategy: Strategy) -> Iterator[tuple[str, Options]]:
    """Nothing, the modules that run again by default, or whole layers: what of these the page does not have in its own way."""
    for kind in ("none", "selective", "full"):
        if kind != strategy.recompute:
            yield _again(Strategy(recompute=kind)), {"recompute": kind}


def _again(strategy: Strategy) -> str:
    """What runs again, as options: of those that are given with `recompute` all that are not their defaults."""
    given = {n: getattr(strategy, n) for n in OF_RECOMPUTATION if getattr(strategy, n) != Strategy.model_fields[n].default}
    if strategy.recompute == "selective" and strategy.recompute_operations is None:
        given["recompute_modules"] = strategy.recompute_modules
    return ", ".join([strategy.recompute, *("+".join(v) if n == "recompute_modules" else f"{n}={text_of(v)}" for n, v in given.items())])


def _with(result: Evaluation, chosen: Sequence[tuple[str, Options]], memory: Memory) -> Evaluation | str:
    """The same sizes and ranks a stage with other options; the sentence that refuses it, where it cannot run or its messages go over other ranks."""
    options = {name: value for _, own in chosen for name, value in own.items()}
    ours = {n: getattr(result.strategy, n) for n in result.strategy.model_fields_set}
    kept = {n: v for n, v in ours.items() if not ("recompute" in options and n in OF_RECOMPUTATION)}
    sizes: dict[str, Any] = {"dp": result.strategy.dp, "num_microbatches": result.strategy.microbatches, "global_batch_size": None}
    try:
        made = evaluated(
            result.model, Strategy(**{**kept, **sizes, **options}), result.assumptions, dict(result.overrides), result.system, memory=memory
        )
    except InputError as error:
        return str(error)
    if result.system is not None and exposed_axes(made.derivation).keys() != exposed_axes(result.derivation).keys():
        return _MESSAGES
    # what is made with a memory reads the strategy of its last derivation
    return replace(made, lowered=cast(Lowered, Kept(dict.fromkeys(made.lowered.checkpointed), made.lowered.alone)))
