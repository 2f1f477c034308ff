"""How large a cluster: the best strategy of each size, and the run that it makes: how long, what it costs, what can be trained.

A run is that of `symsim run` (symsim/cost/run.py): steps, checkpoints, failures and restarts, of the strategy with the most tokens a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from symsim.api.result import Result
from symsim.errors import InputError
from symsim.evaluation.run import run_of
from symsim.planning.plan import NothingRuns, Plan

_HOURS = 3600.0


@dataclass(frozen=True)
class Need:
    """What a run is to be: tokens of it, days and US dollars that it may take; numbers of the run besides (mtbf, B_store, ..), as of --set."""

    tokens: float | None = None
    days: float | None = None
    budget: float | None = None
    numbers: Mapping[str, Any] | None = None

    @property
    def asks(self) -> bool:
        return self.tokens is not None or self.days is not None or self.budget is not None


@dataclass(frozen=True)
class Size:
    """A number of accelerators of a system: its plan, and the run of its best. run: numbers by name (days, tokens, goodput, cost, ..), None where
    there is none; does: whether it meets what is needed; why: where not."""

    plan: Plan
    run: Mapping[str, float] | None = None
    does: bool = True
    why: str = ""

    @property
    def world(self) -> int:
        return self.plan.asked.world

    @property
    def system(self) -> str:
        return self.plan.asked.system

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"world": self.world, "system": self.system, **self.plan.to_json(changes=False)}
        if self.run is not None:
            named = {"days": "days", "tokens": "tokens", "goodput": "goodput", "cost": "cost_usd"}
            told["run"] = {key: self.run[name] for name, key in named.items() if name in self.run}
            told["does"] = self.does
        return told


def sizes_json(sizes: Sequence[Size], need: Need) -> dict[str, Any]:
    """The object of `symsim plan --json` of several sizes, or of a run."""
    answers = {what: {"world": size.world, "system": size.system} for what, size in chosen(sizes, need).items()}
    return {"sizes": [size.to_json() for size in sizes], **({"answers": answers} if answers else {})}


def sized(plan: Plan, need: Need) -> Size:
    """The run of a plan's best. InputError for a budget where the system has no price."""
    best = plan.best[0]
    if not plan.fits:
        return Size(plan, None, False, "nothing fits")
    if not need.asks:
        return Size(plan)
    price = _price(best.result)
    if need.budget is not None and price is None:
        raise InputError(f"--budget: system {plan.asked.system} has no price: --set accelerator.price='2 USD/h' gives one")
    length: dict[str, Any] = {"tokens": need.tokens} if need.tokens is not None else {"days": _affordable(need, plan.asked.world, price)}
    asked = replace(plan.asked, overrides={**plan.asked.overrides, **(need.numbers or {}), **length})
    try:
        made = run_of(asked.evaluated(best.options))
    except InputError as error:
        return Size(plan, None, False, str(error))
    assert made is not None
    known = made.numbers
    does = (need.days is None or known["days"] <= need.days) and (need.budget is None or known["cost"] <= need.budget)
    return Size(plan, known, does)


def _price(result: Result) -> float | None:
    """US dollars an accelerator and second."""
    assert result.system is not None
    return float(result.values["c_chip"]) if result.system.accelerator.price is not None else None


def _affordable(need: Need, world: int, price: float | None) -> float:
    """Days of the cluster that may be taken."""
    affordable = [need.days] if need.days is not None else []
    if need.budget is not None and price is not None:
        affordable.append(need.budget / (world * price * 24 * _HOURS))
    return min(affordable)


def of_each(worlds: Sequence[tuple[int, Callable[[], Plan]]]) -> tuple[list[Plan], list[str]]:
    """Plans of those on which anything can run, and a sentence for each of the others. InputError as of the first where nothing runs on any."""
    plans: list[Plan] = []
    refused: list[tuple[int, NothingRuns]] = []
    for world, made in worlds:
        try:
            plans.append(made())
        except NothingRuns as error:
            refused.append((world, error))
    if not plans and refused:
        raise refused[0][1]
    return plans, [f"{world:,} accelerators are left out: {error}" for world, error in refused]


def smallest(sizes: Sequence[Size]) -> Size | None:
    """Of those that do, the one of the fewest accelerators; of these the cheaper, then the faster one."""
    return min((s for s in sizes if s.does), key=lambda s: (s.world, _cost(s), _days(s)), default=None)


def cheapest(sizes: Sequence[Size]) -> Size | None:
    """Of those that do, the one whose run costs least; None where no price is known."""
    return min((s for s in sizes if s.does and s.run is not None and "cost" in s.run), key=lambda s: (_cost(s), _days(s)), default=None)


def fastest(sizes: Sequence[Size]) -> Size | None:
    return min((s for s in sizes if s.does and s.run is not None), key=lambda s: (_days(s), _cost(s)), default=None)


def most_tokens(sizes: Sequence[Size]) -> Size | None:
    """The one that trains the most tokens in what is given."""
    return max((s for s in sizes if s.does and s.run is not None), key=lambda s: (_run(s, "tokens", 0.0), -s.world), default=None)


def chosen(sizes: Sequence[Size], need: Need) -> dict[str, Size]:
    """The sizes that answer, by what they are: of a run of so many tokens the smallest, the cheapest and the fastest that do it, else what trains the
    most. Where no run is asked for, one size is its own answer, and of several none is."""
    if not need.asks:
        return {"only": sizes[0]} if len(sizes) == 1 and sizes[0].does else {}
    found = {"most": most_tokens} if need.tokens is None else {"smallest": smallest, "cheapest": cheapest, "fastest": fastest}
    return {what: size for what, of in found.items() if (size := of(sizes)) is not None and size.run is not None}


def _cost(size: Size) -> float:
    return _run(size, "cost", float("inf"))


def _days(size: Size) -> float:
    return _run(size, "days", float("inf"))


def _run(size: Size, name: str, absent: float) -> float:
    return size.run.get(name, absent) if size.run is not None else absent
