"""The best strategies of a space, and the certificate that nothing in it is better.

Every configuration of the space is refused by a rule, evaluated, or lies in a cell whose bound is worse than what was found, or does not fit
(search.py): the numbers of the certificate add up to the configurations of the space.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from symsim.api.python import model_of, path_of, strategy_of
from symsim.api.result import Result
from symsim.errors import InputError
from symsim.evaluation.elasticity import elasticities
from symsim.evaluation.idle import acting, idle_assumptions
from symsim.evaluation.numbers import Evaluation
from symsim.evaluation.quantities import QUANTITIES
from symsim.exporters.export import unwritten
from symsim.grid.axes import Axis
from symsim.grid.collection import no_collection
from symsim.grid.command import Point
from symsim.grid.family import DERIVED, Family
from symsim.grid.names import field_of
from symsim.grid.space import Space
from symsim.grid.stored import Asked as Derivable
from symsim.grid.stored import evaluations
from symsim.inputs.models import LoadedModel
from symsim.inputs.settings import settings_of, text_of
from symsim.inputs.strategies import Ranks, load_strategy, on_ranks, read_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System
from symsim.inputs.systems import load_system
from symsim.inputs.tuning import TRAINED
from symsim.planning.frameworks import framework_of
from symsim.planning.given import MOST_RANKS, axes, one_of, share, whole
from symsim.planning.given import tokens as tokens_of
from symsim.planning.search import Goal, Search
from symsim.planning.space import GIVEN, Asked, options_beside, options_of, space_of
from symsim.program.base import Base, read_base
from symsim.report.resources import shares, words

if TYPE_CHECKING:
    from symsim.planning.knobs import Change
    from symsim.planning.written import Written
    from symsim.report.figure import Figure

GOALS = {
    "tokens_per_second": "tokens_per_second",
    "cost": "cost_per_trillion_tokens",
    "energy": "energy_per_trillion_tokens",
    "memory": "memory.peak",
}
# numbers of an accelerator without which there is no such goal
_NEEDS = {"cost": ("price", "2 USD/h"), "energy": ("power", "700 W")}
# what makes two strategies differ in kind
_KIND = ("tp", "cp", "pp", "ep", "zero", "recompute")
# of a job's strategy what a plan keeps besides what is trained
_DOCUMENTS = ("packed_document_length", "document_lengths")
_FURTHEST = 64  # times the ranks asked for, where nothing fits them

Progress = Callable[[str, float, float], None]


def _silent(what: str, done: float, total: float) -> None:
    return None


@dataclass(frozen=True)
class Certificate:
    """configurations: of the whole space. refused: how many each rule stops, the first that each breaks. slower: ruled out by the bounds of
    the cells that they lie in, none of them better than `bound` (None where nothing was). larger: ruled out by what they need of memory at
    least. evaluated: all others, in memory or not. cells: sets of configurations that were looked at together; derivations: of formulas."""

    configurations: int
    refused: Mapping[str, int]
    why: Mapping[str, str]
    slower: int
    larger: int
    evaluated: int
    bound: float | None
    cells: int
    derivations: int

    @property
    def excluded(self) -> int:
        return self.slower + self.larger

    def to_json(self) -> dict[str, Any]:
        return {
            "configurations": self.configurations,
            "refused": dict(self.refused),
            "excluded_by_bounds": self.excluded,
            "excluded_by_time": self.slower,
            "excluded_by_memory": self.larger,
            "evaluated": self.evaluated,
            "largest_excluded_bound": self.bound,
        }


@dataclass(frozen=True)
class Choice:
    """A strategy of a plan. known: its numbers."""

    asked: Asked
    options: Mapping[str, Any]
    known: Evaluation

    @cached_property
    def result(self) -> Result:
        """All that symsim says of it, derived where more than numbers is asked for."""
        return self.asked.evaluated(self.options)

    @cached_property
    def text(self) -> str:
        """As -s takes it: what differs from the defaults and moves something of it."""
        return _spelt(self.acting)

    @cached_property
    def acting(self) -> Mapping[str, Any]:
        """The options that differ from the defaults and move something of it."""
        return self._apart(acting(self.asked.remembering(self.options)))

    @property
    def whole(self) -> str:
        """As -s takes it: all that differs from the defaults."""
        return _spelt(self._apart(self.known.strategy))

    def _apart(self, strategy: Strategy) -> dict[str, Any]:
        given = strategy.model_dump(mode="json", exclude_unset=True, exclude_defaults=True)
        return {**{n: v for n, v in given.items() if n != "dp"}, "world": self.options["world"]}

    @cached_property
    def numbers(self) -> dict[str, Any]:
        return self.result.to_json()

    @cached_property
    def system(self) -> System:
        system = self.result.system
        assert system is not None
        return system

    @cached_property
    def elasticities(self) -> Mapping[str, float]:
        """Percent by which the step changes for a percent more of each free symbol."""
        return elasticities(self.result)

    @property
    def binds(self) -> dict[str, float]:
        """What of the machine the step waits for, and the share of it that goes with each, the largest first."""
        return {words(self.system, of): share for of, share in shares(self.elasticities).items()}

    @cached_property
    def idle(self) -> list[str]:
        """The assumptions besides the defaults that move nothing."""
        return idle_assumptions(self.result, self.result.assumptions)

    def to_json(self) -> dict[str, Any]:
        found = self.numbers
        kept = ("time", "memory", "tokens_per_second", "mfu", "hfu", "cost_per_trillion_tokens", "energy_per_trillion_tokens", "above_peak")
        own = {name: found[name] for name in kept if name in found}
        own["memory"] = {name: value for name, value in found["memory"].items() if name != "stages"}
        own["time"] = {name: value for name, value in found["time"].items() if name != "stages"}
        within = self.result.interval
        return {
            "strategy": self.text,
            **own,
            "binds": self.binds,
            **({"interval": [within.low, within.high]} if within is not None else {}),
        }


def _spelt(options: Mapping[str, Any]) -> str:
    return ",".join(f"{n}={text_of(v)}" for n, v in options.items())


class NothingRuns(InputError):
    """No configuration of a space can: the sentence of a rule."""

    def __init__(self, reason: str):
        super().__init__(f"nothing in the space can run: {reason}")
        self.reason = reason


@dataclass(frozen=True, repr=False)
class Plan:
    """best: strategies that differ in kind, the best first. fits: whether they fit; else they are those that need the least memory.
    goal: the quantity that was best. smallest: where none fits, ranks on which one does, if any were found."""

    asked: Asked
    goal: str
    best: Sequence[Choice]
    certificate: Certificate
    share: float
    fits: bool = True
    smallest: int | None = None
    seconds: float = 0.0

    def at(self, strategy: Strategy | str | os.PathLike[str] | Mapping[str, Any]) -> Result:
        """Another strategy, on the same ranks with the same batch. InputError where it says others, and where it cannot run."""
        return self.asked.evaluated(options_beside(self.asked, strategy_of(strategy) or {}))

    @cached_property
    def changes(self) -> "Sequence[Change]":
        """What one further option of the framework would do to the first of the best, each alone, the best first; none where nothing fits."""
        from symsim.planning.knobs import single_changes

        return single_changes(self.asked, self.best[0].options, self.share, self.goal) if self.fits else ()

    @cached_property
    def unwritten(self) -> str:
        """Why `symsim export` writes no file of the framework for the model; "" where it does."""
        return unwritten(self.asked.framework.target, self.asked.model)

    @cached_property
    def written(self) -> "Written":
        """What the file that `symsim export` writes does not say of the first of the best; nothing where none fits, or no file starts it."""
        from symsim.planning.written import Written, written

        return written(self.best[0]) if self.fits and not self.unwritten else Written()

    @property
    def furthest(self) -> int:
        """The most ranks on which `smallest` is looked for."""
        return _FURTHEST * self.asked.world

    def settings(self, choice: Choice) -> dict[str, Any]:
        """What --set says for a strategy, as `overrides` of `derive`: what the framework does by itself, and what was given."""
        return self.asked.settings(choice.idle)

    def line(self, choice: Choice) -> str:
        """A strategy as `symsim eval MODEL` takes it: -s, --set and -y."""
        return Point(choice.text, [f"{n}={text_of(v)}" for n, v in self.settings(choice).items()], self.asked.system).text

    def to_json(self, changes: bool = True) -> dict[str, Any]:
        """The object of `symsim plan --json`. changes: with what one option more would do."""
        return {
            "best": [one.to_json() for one in self.best],
            "settings": self.settings(self.best[0]),
            "fits": self.fits,
            **({} if self.fits else {"smallest": self.smallest}),
            **({"unwritten": self.unwritten} if self.unwritten else {}),
            **({"written": self.written.to_json()} if self.written.unsaid else {}),
            "certificate": self.certificate.to_json(),
            **({"changes": [one.to_json() for one in self.changes]} if changes else {}),
        }

    def __repr__(self) -> str:
        from symsim.planning.text import plan_text

        return plan_text(self)

    def _repr_html_(self) -> str:
        from symsim.planning.text import plan_shown
        from symsim.report.notebook import html

        return html(plan_shown(self))

    def _repr_latex_(self) -> str:
        from symsim.planning.text import plan_shown
        from symsim.report.notebook import latex

        return latex(plan_shown(self))

    def _repr_mimebundle_(self, include: Collection[str] | None = None, exclude: Collection[str] | None = None) -> dict[str, str]:
        from symsim.report.notebook import bundle

        return bundle(self, include, exclude)

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each of the best: its strategy as -s takes it, and its numbers. InputError without pandas."""
        from symsim.api.frames import frame_of

        return frame_of([flat(choice) for choice in self.best])

    def plot(self) -> "Figure":
        """Where the time of a step goes under each of the best, the best first, called by the options that not all of them share."""
        from symsim.report.figure import steps_figure

        texts = [{n: text_of(v) for n, v in one.options.items()} for one in self.best]
        apart = [n for n in dict.fromkeys(n for one in texts for n in one) if len({one.get(n) for one in texts}) > 1]
        named = (", ".join(f"{n}={one[n]}" for n in apart if n in one) for one in texts)
        results = {f"{k}. {name}".strip(): one.result for k, (name, one) in enumerate(zip(named, self.best), 1)}
        return steps_figure(f"the best plans of {self.asked.model.name}", results)


def flat(choice: Choice) -> dict[str, Any]:
    """The numbers that a sweep has columns for, by the same names."""
    names = ("time.step", "tokens_per_second", "mfu", "hfu", "memory.peak", "cost_per_trillion_tokens", "energy_per_trillion_tokens")
    known = choice.known.step_numbers
    there = [n for n in names if "." in n or n in known]
    return {"strategy": choice.text, **{n: choice.known.value(n) for n in there}, "binds": next(iter(choice.binds))}


def plan(
    model: Any,
    system: str | None,
    *,
    world: int,
    global_batch_size: int | None = None,
    tokens_per_step: int | str | None = None,
    seq_length: int | None = None,
    goal: str = "tokens_per_second",
    framework: str = "megatron",
    fix: Strategy | str | os.PathLike[str] | Mapping[str, Any] | None = None,
    allow: Sequence[str] | str = (),
    fits_with: float = 1.0,
    top: int = 5,
    overrides: Mapping[str, Any] | None = None,
    target: str = "",
    progress: Progress = _silent,
) -> Plan:
    """The best strategies that `framework` can run on `world` accelerators, with the certificate that no other of its space is better.

    model, system: as of `derive`. The batch is `global_batch_size` sequences or `tokens_per_step` tokens; of a job that says neither, its own,
    and so are the tokens of a sequence (of a model 4096). goal: tokens_per_second, cost, energy or memory. fix: options that every strategy
    has, besides what a job's own says of the parameters that are trained. allow: further axes, one or several, as of --axis. fits_with: share
    of the memory that may be filled. overrides: what --set takes. target: what the best is to be written for by `symsim export`, with the suffix of
    its file ("torchtitan .toml"), of which the refusals hold too. InputError for what cannot be asked, and where no configuration can run.

    >>> found = plan("smollm2-360m", "h100-sxm", world=4, global_batch_size=16, fix="cp=1,pp=1,vpp=1,recompute=none,overlap_grad_reduce=true")
    >>> found.fits, found.certificate.excluded, found.best[0].result.strategy.world_size
    (True, 0, 4)
    """
    began = time.perf_counter()
    loaded = model if isinstance(model, LoadedModel) else model_of(model)
    batch, length = _rows(loaded, global_batch_size, tokens_per_step, seq_length)
    overrides = overrides or {}
    given, changed = _fixed("--fix", *read_strategy(strategy_of(fix))), _fixed("--set", *read_strategy(None, settings_of(overrides).strategy))
    for name in given.keys() & changed.keys():
        raise InputError(f"{name} is given by --fix and by --set; give it in one of them")
    fixed = {**trained_by(loaded), **given, **changed}
    overrides = {name: value for name, value in overrides.items() if not settings_of({name: value}).strategy}
    fits_with, goal = share(fits_with), one_of("--for", goal, GOALS)
    world, top = whole("--world", world, "accelerators", MOST_RANKS), whole("--top", top, "strategies")
    for where, options in (("--fix", given), ("--set", changed)):
        on_ranks(read_strategy(options)[0], Ranks(world, where))
    made = read_base(loaded, {}, path_of(system, "the system") if system is not None else None, overrides)
    if made.system is None:
        raise InputError("a plan needs a system: give one with -y")
    _check_system(made.system, made.system_changes, goal)
    asked = Asked(loaded, made.architecture, made.system, world, batch, length, framework_of(framework), fixed, axes(allow), overrides, target)
    best, certificate, fits = best_of(asked, fits_with, GOALS[goal], top, progress)
    smallest = None if fits else _smallest(asked, fits_with)
    return Plan(asked, GOALS[goal], best, certificate, fits_with, fits, smallest, time.perf_counter() - began)


def best_of(asked: Asked, share: float, goal: str, top: int = 1, progress: Progress = _silent) -> tuple[Sequence[Choice], Certificate, bool]:
    """The best of each kind of a space for a quantity, with the certificate, and whether they fit; where none does, those that need the least memory.
    InputError where none can run."""
    search, rows = _searched(asked, share, "memory.peak" if goal == "memory.peak" else "time.step", top, progress)
    fits = bool(rows)
    if not fits:
        search, rows = _searched(asked, None, "memory.peak", top, progress)
    best = [Choice(asked, options, known) for options, known in zip(rows, _known(asked, search, rows))]
    return best, _certificate(search, _goal_at(goal if fits else "memory.peak", best[0])), fits


def _fixed(where: str, strategy: Strategy, ranks: Ranks | None) -> dict[str, Any]:
    """Options that are given of all strategies of a plan. InputError for those that it has by what is asked."""
    found = strategy.model_dump(exclude_unset=True)
    for name in (*(("world",) if ranks is not None else ()), *(GIVEN.keys() & found.keys())):
        raise InputError(f"{where} {name}: {GIVEN[name]}")
    return found


def trained_by(loaded: LoadedModel) -> dict[str, Any]:
    """What a job's strategy says of the parameters that are trained, and of documents in a row: a plan looks for another way to train the same."""
    if loaded.strategy is None:
        return {}
    own = read_strategy(loaded.strategy)[0]
    return {name: value for name in (*TRAINED, *_DOCUMENTS) if (value := getattr(own, name)) != type(own).model_fields[name].default}


def rows_of_job(loaded: LoadedModel) -> dict[str, int]:
    """What a job's strategy says of the rows of a step: seq_length, and how many as global_batch_size, where it says so."""
    if loaded.strategy is None:
        return {}
    own = load_strategy(loaded.strategy)
    found = {"seq_length": own.seq_length} if "seq_length" in own.model_fields_set else {}
    if {"global_batch_size", "num_microbatches"} & own.model_fields_set:
        found["global_batch_size"] = own.micro_batch_size * own.microbatches * own.dp
    return found


def _check_system(name: str, changes: Mapping[tuple[str, ...], str], goal: str) -> None:
    """InputError for numbers that do not read, and for a goal that needs one which the system lacks."""
    accelerator = load_system(name, changes).accelerator
    needed, such_as = _NEEDS.get(goal, ("", ""))
    if needed and getattr(accelerator, needed) is None:
        raise InputError(f"--for {goal}: system {name} has no {needed}: --set accelerator.{needed}='{such_as}' gives one")


def _goal_at(goal: str, best: Choice) -> Callable[[float], float]:
    """What the goal is of a step of so many seconds (or a peak of so many bytes), on these ranks with this batch."""
    if goal == "memory.peak":
        return lambda least: least
    value, step = float(best.known.value(goal)), float(best.known.value("time.step"))
    # tokens a second fall with the step, what a token costs rises with it
    return lambda least: value * step / least if goal == "tokens_per_second" else value * least / step


def _rows(loaded: LoadedModel, sequences: int | None, tokens: int | str | None, length: int | None) -> tuple[int, int]:
    """Sequences a step and their length, as asked, and else as a job has them."""
    own = rows_of_job(loaded)
    seq_length = length if length is not None else own.get("seq_length", 4096)
    seq_length = whole("--seq-length", seq_length, "tokens")
    if sequences is None and tokens is None:
        sequences = own.get("global_batch_size")
    if (sequences is None) == (tokens is None):
        raise InputError("a plan needs a batch: give --global-batch-size (sequences a step) or --tokens-per-step, one of the two")
    if sequences is None:
        together = tokens_of(tokens)
        if together % seq_length:
            near = max(1, round(together / seq_length)) * seq_length
            raise InputError(f"--tokens-per-step {together}: it is no multiple of --seq-length {seq_length}; {near} is the nearest that is")
        sequences = together // seq_length
    return whole("--global-batch-size", sequences, "sequences"), seq_length


def _searched(asked: Asked, share: float | None, objective: str, top: int, progress: Progress) -> tuple[Search, list[dict[str, Any]]]:
    """The best of each kind, as the options of their strategies, and the search that found them."""
    options = options_of(asked)
    options.pop("world")
    sizes, choices, derived = space_of(asked)

    def make(chosen: Mapping[str, Any]) -> Base:
        return asked.base({**options, **chosen})

    # every value is read now, as of a sweep's axes, and not when the search comes to it
    Space(make({}), [Axis(choice.names, tuple(zip(*choice.rows))) for choice in choices], option="--allow")
    search = Search([*sizes, Axis(("world",), ((asked.world,),))], derived, choices, make, Goal(objective, share, _KIND, top), refused=asked.refused)
    with no_collection():
        found = search.run(progress)
    if not search.account.evaluated and not search.account.larger:
        raise NothingRuns(_reason(search, [rule.__name__ for rule in asked.held]))
    return search, [{**options, **_sizes_at(search.space, one.point), **search.options(one.rows), "world": asked.world} for one in found]


def _known(asked: Asked, search: Search, rows: Sequence[Mapping[str, Any]]) -> list[Evaluation]:
    """The numbers of strategies, by their options: of what passes make, the search made most."""
    derivable = []
    for base in map(asked.base, rows):
        strategy = on_ranks(base.strategy, base.ranks)
        system = search.space.system(base.system, base.system_changes)
        derivable.append(Derivable(base.architecture, strategy, base.assumptions, base.symbols, system))
    return evaluations(derivable, search.memories)


def _sizes_at(space: Space, point: int) -> dict[str, Any]:
    """What the axes, and what is derived of them, are at a point."""
    positions = np.unravel_index(point, space.sizes)
    found = {c.name: c.shown[positions[c.axis]] for c in space.columns.values()}
    fields = Family(space, [np.arange(n) for n in space.sizes]).fields
    for name in space.given:
        own = fields[field_of(name.name)]
        found[name.name] = own[tuple(min(int(k), n - 1) for k, n in zip(positions, own.shape))].item() if isinstance(own, np.ndarray) else own
    return found


def _reason(search: Search, held: Sequence[str]) -> str:
    """The last of what strategies are held to that stops any, which all before it let pass; else the rule that stops the most configurations, in its
    words; that degrees of the grid make no whole ranks only where no other stops any."""
    refused = search.account.refused
    last = next((rule for rule in reversed(held) if rule in refused), None)
    if last is None and refused:
        last = max(refused, key=lambda rule: (not rule.startswith(DERIVED), refused[rule]))
    return search.account.why[last] if last is not None else ""


def _certificate(search: Search, largest: Callable[[float], float]) -> Certificate:
    found = search.account
    refused = dict(sorted(found.refused.items(), key=lambda item: -item[1]))
    bound = largest(found.bound) if math.isfinite(found.bound) else None
    return Certificate(search.configurations, refused, found.why, found.slower, found.larger, found.evaluated, bound, found.cells, found.derivations)


def _smallest(asked: Asked, share: float) -> int | None:
    """The first of twice, four times, ... as many ranks on which something fits."""
    ranks = asked.world
    while ranks < _FURTHEST * asked.world:
        ranks *= 2
        try:
            if _searched(replace(asked, world=ranks), share, "time.step", 1, _silent)[1]:
                return ranks
        except InputError:
            continue
    return None


assert set(GOALS.values()) <= set(QUANTITIES)
