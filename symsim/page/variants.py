"""Derivations that a page can show beside its own: of other pipelines and recomputation, with and without FP8 or sequence parallelism."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from symsim.cost.step_time import exposed_axes
from symsim.errors import InputError
from symsim.evaluation.beside import OF_RECOMPUTATION, beside, of_fp8
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.settings import text_of
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System

Options = Mapping[str, Any]
Value = tuple[str, Options]
_MESSAGES = "its messages go over other ranks than those of this page; 'symsim derive' makes its formulas"


@dataclass(frozen=True)
class Choice:
    """Of several options one, which a reader moves. values: what each is called, and the options of it; the first is the page's own."""

    name: str
    meaning: str
    latex: str
    values: tuple[Value, ...]


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
    made: dict[str, Evaluation | str] = {str([]): result}

    def of(chosen: Iterable[Value]) -> Evaluation | str:
        options = [own for _, own in chosen if own]
        if str(options) not in made:
            made[str(options)] = _with(result, options)
        return made[str(options)]

    choices = []
    for choice in _choices(result.strategy, result.system):
        left = tuple(value for value in choice.values if not isinstance(of([value]), str))
        if len(left) > 1:
            choices.append(replace(choice, values=left))
    return Variants(tuple(choices), tuple(map(of, product(*(c.values for c in choices)))))


def _choices(strategy: Strategy, system: System | None) -> Iterator[Choice]:
    """What can be chosen; of a value that is the page's own nothing is changed."""
    yield Choice("pipeline", "stages, and chunks of layers that a rank runs", r"p,\,v", ((_pipeline(strategy, {}), {}), *_pipelines(strategy)))
    yield Choice("recompute", "what runs again in backward instead of being kept", "", ((_again(strategy), {}), *_recomputed(strategy)))
    yield Choice("fp8", "recipe of matrix products in FP8", "", ((strategy.fp8, {}), *(of_fp8(strategy, system).items())))
    if strategy.tp > 1:
        text, other = ("on", "off") if strategy.sp else ("off", "on")
        yield Choice("sp", "sequence parallelism within the ranks of tp", "", ((text, {}), (other, {"sp": not strategy.sp})))


def _pipelines(strategy: Strategy) -> Iterator[Value]:
    """Half and twice the stages, and layers in one chunk a rank or in two."""
    if strategy.pp == 1:
        return
    half = [{"pp": strategy.pp // 2}] if strategy.pp % 2 == 0 and strategy.pp > 2 else []
    for options in (*half, {"pp": 2 * strategy.pp}, {"vpp": 1 if strategy.vpp > 1 else 2}):
        yield _pipeline(strategy, options), options


def _pipeline(strategy: Strategy, options: Options) -> str:
    return ", ".join(f"{name} = {options.get(name, getattr(strategy, name))}" for name in ("pp", "vpp"))


def _recomputed(strategy: Strategy) -> Iterator[Value]:
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


def _with(result: Evaluation, chosen: Sequence[Options]) -> Evaluation | str:
    """The same sizes and ranks a stage with other options; the sentence that refuses it, where it cannot run or its messages go over other ranks."""
    sizes = {"dp": result.strategy.dp, "num_microbatches": result.strategy.microbatches, "global_batch_size": None}
    try:
        made = beside(result, {**sizes, **{name: value for own in chosen for name, value in own.items()}})
    except InputError as error:
        return str(error)
    if result.system is not None and exposed_axes(made.derivation).keys() != exposed_axes(result.derivation).keys():
        return _MESSAGES
    return made
