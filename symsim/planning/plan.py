"""The best strategies of a space, and the certificate that nothing in it is better.

Every configuration of the space is refused by a rule, evaluated, or lies in a cell whose bound is worse than what was found
(symsim/program/bounds.py): the numbers of the certificate add up to the configurations of the space.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from symsim.api.python import model_of
from symsim.api.result import Result
from symsim.errors import InputError, nearest
from symsim.evaluation.quantities import FITS, QUANTITIES
from symsim.grid.answer import Engine, answer
from symsim.grid.axes import Axis
from symsim.grid.names import text_of
from symsim.grid.question import ask
from symsim.grid.space import Space
from symsim.grid.sweep import Sweep
from symsim.inputs.models import LoadedModel
from symsim.inputs.strategies import Ranks, on_ranks, read_strategy
from symsim.planning.frameworks import framework_of
from symsim.planning.space import Asked, axes_of, options_of
from symsim.program.base import read_base

GOALS = {
    "tokens_per_second": "tokens_per_second",
    "cost": "cost_per_trillion_tokens",
    "energy": "energy_per_trillion_tokens",
    "memory": "memory.peak",
}
# of the best configurations, those looked through for strategies that differ in kind
_LOOKED_THROUGH = 2_000
# what makes two strategies differ in kind
_KIND = ("tp", "cp", "pp", "ep", "zero", "recompute")
_MOST_RANKS = 1 << 20
_FURTHEST = 64  # times the ranks asked for, where nothing fits them

Progress = Callable[[str, float, float], None]


def _silent(what: str, done: float, total: float) -> None:
    return None


@dataclass(frozen=True)
class Certificate:
    """configurations: of the whole space. refused: how many each rule stops, the first that each breaks. excluded: by bounds of the cells that
    they lie in, none of them better than `bound` (None where nothing was excluded). evaluated: all others, in memory or not."""

    configurations: int
    refused: Mapping[str, int]
    why: Mapping[str, str]
    excluded: int
    evaluated: int
    bound: float | None
    derivations: int

    def to_json(self) -> dict[str, Any]:
        return {
            "configurations": self.configurations,
            "refused": dict(self.refused),
            "excluded_by_bounds": self.excluded,
            "evaluated": self.evaluated,
            "largest_excluded_bound": self.bound,
        }


@dataclass(frozen=True)
class Choice:
    """A strategy of a plan, with all that symsim says of it."""

    options: Mapping[str, Any]
    result: Result

    @property
    def text(self) -> str:
        """As -s takes it: what differs from the defaults."""
        given = self.result.strategy.model_dump(mode="json", exclude_unset=True, exclude_defaults=True)
        told = {**{n: v for n, v in given.items() if n != "dp"}, "world": self.options["world"]}
        return ",".join(f"{n}={'+'.join(map(str, v)) if isinstance(v, list) else text_of(v)}" for n, v in told.items())

    @cached_property
    def numbers(self) -> dict[str, Any]:
        return self.result.to_json()

    def to_json(self) -> dict[str, Any]:
        found = self.numbers
        kept = ("time", "memory", "tokens_per_second", "mfu", "hfu", "cost_per_trillion_tokens", "energy_per_trillion_tokens")
        own = {name: found[name] for name in kept if name in found}
        own["memory"] = {name: value for name, value in found["memory"].items() if name != "stages"}
        own["time"] = {name: value for name, value in found["time"].items() if name != "stages"}
        within = self.result.interval
        return {
            "strategy": self.text,
            **own,
            "binds": binds(self.result),
            **({"interval": [within.low, within.high]} if within is not None else {}),
        }


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

    def at(self, strategy: str | Mapping[str, Any]) -> Result:
        """Another strategy, on the same ranks with the same batch. InputError where it cannot run."""
        given = read_strategy(strategy)[0].model_dump(exclude_unset=True)
        options = {**options_of(self.asked), **{n: v for n, v in given.items() if n not in ("dp", "num_microbatches")}}
        return self.asked.evaluated(options)

    def to_json(self) -> dict[str, Any]:
        """The object of `symsim plan --json`."""
        return {"best": [one.to_json() for one in self.best], "fits": self.fits, "certificate": self.certificate.to_json()}

    def __repr__(self) -> str:
        from symsim.planning.text import plan_text

        return plan_text(self)


def binds(result: Result) -> str:
    """Of what a step takes besides kernels, the largest part; 'compute' where kernels are more than nine tenths."""
    number = {name: float(result.value(f"time.{name}")) for name in ("step", "compute", "bubble", "optimizer")}
    if number["compute"] > 0.9 * number["step"]:
        return "compute"
    parts = {"bubble": number["bubble"], "optimizer": number["optimizer"]}
    parts |= {f"messages over {axis}": float(time) for axis, time in result.to_json()["time"]["exposed"].items()}
    return max(parts, key=lambda name: parts[name])


def plan(
    model: Any,
    system: str | None,
    *,
    world: int,
    global_batch_size: int | None = None,
    tokens_per_step: int | None = None,
    seq_length: int = 4096,
    goal: str = "tokens_per_second",
    framework: str = "megatron",
    fix: str | Mapping[str, Any] | None = None,
    allow: Sequence[str] = (),
    fits_with: float = 1.0,
    top: int = 5,
    overrides: Mapping[str, Any] | None = None,
    progress: Progress = _silent,
) -> Plan:
    """The best strategies that `framework` can run on `world` accelerators, with the certificate that no other of its space is better.

    model, system: as of `derive`. The batch is `global_batch_size` sequences or `tokens_per_step` tokens. goal: tokens_per_second, cost, energy
    or memory. fix: options that every strategy has. allow: further axes, as of --axis. fits_with: share of the memory that may be filled.
    overrides: what --set takes. InputError for what cannot be asked, and where no configuration can run.

    >>> found = plan("smollm2-360m", "h100-sxm", world=4, global_batch_size=16, fix="cp=1,pp=1,vpp=1,recompute=none,overlap_grad_reduce=true")
    >>> found.fits, found.certificate.excluded, found.best[0].result.strategy.world_size
    (True, 0, 4)
    """
    began = time.perf_counter()
    loaded = model if isinstance(model, LoadedModel) else model_of(model)
    batch = _batch(global_batch_size, tokens_per_step, seq_length)
    given, ranks = read_strategy(fix)
    if ranks is not None:
        raise InputError("--fix world: the number of ranks is given by --world")
    fixed = given.model_dump(exclude_unset=True)
    for name in {"global_batch_size", "seq_length", "dp"} & fixed.keys():
        raise InputError(f"--fix {name}: {_GIVEN[name]}")
    if not 0 < fits_with <= 1:
        raise InputError(f"--fits-with {fits_with:g}: a share of the memory above 0 and up to 1 is needed")
    if goal not in GOALS:
        raise InputError(f"--for {goal}: {nearest(goal, list(GOALS))}")
    if not 1 <= world <= _MOST_RANKS:
        raise InputError(f"--world {world}: a number of accelerators from 1 to {_MOST_RANKS:,} is needed")
    on_ranks(given, Ranks(world, "--fix"))
    made = read_base(loaded, {}, system, overrides or {})
    if made.system is None:
        raise InputError("a plan needs a system: give one with -y")
    asked = Asked(
        loaded, made.architecture, made.system, world, batch, seq_length, framework_of(framework), fixed, tuple(allow), dict(overrides or {})
    )
    condition = FITS if fits_with == 1 else f"memory.peak + memory.reserve <= {fits_with:g}*memory.capacity"
    sweep, rows = _searched(asked, [condition], GOALS[goal], _LOOKED_THROUGH, progress)
    fits, smallest = bool(rows), None
    if not fits:
        smallest = _smallest(asked, condition)
        sweep, rows = _searched(asked, [], "memory.peak", _LOOKED_THROUGH, progress)
    best = [Choice(options, asked.evaluated(options)) for options in _differing(rows, top)]
    return Plan(asked, GOALS[goal], best, _certificate(sweep), fits_with, fits, smallest, time.perf_counter() - began)


_GIVEN = {
    "global_batch_size": "the batch is given by --global-batch-size or --tokens-per-step",
    "seq_length": "the length of a sequence is given by --seq-length",
    "dp": "it is what the other degrees leave of --world",
}


def _batch(sequences: int | None, tokens: int | None, seq_length: int) -> int:
    if (sequences is None) == (tokens is None):
        raise InputError("a plan needs a batch: give --global-batch-size (sequences a step) or --tokens-per-step, one of the two")
    if sequences is None:
        assert tokens is not None
        if tokens % seq_length:
            near = max(1, round(tokens / seq_length)) * seq_length
            raise InputError(f"--tokens-per-step {tokens}: it is no multiple of --seq-length {seq_length}; {near} is the nearest that is")
        sequences = tokens // seq_length
    if sequences < 1:
        raise InputError(f"--global-batch-size {sequences}: a number of sequences from 1 up is needed")
    return sequences


def _searched(asked: Asked, where: Sequence[str], goal: str, count: int, progress: Progress) -> tuple[Sweep, list[dict[str, Any]]]:
    """The best points of the space, as the options of their strategies, and the sweep that found them."""
    options = options_of(asked)
    options.pop("world")
    base = read_base(asked.loaded, options, asked.system, asked.overrides)
    axes, derived, joined = axes_of(asked)
    axes.append(Axis(("world",), ((asked.world,),)))
    space = Space(base, axes, derived)
    question = ask(where=[*where, *joined], top=count, by=goal, columns="time.step,memory.peak", timed=True)
    sweep = Sweep(space, question)
    try:
        sweep.prepare(progress)
        found = answer(sweep, Engine(), progress=progress)
    except InputError as error:
        if "can run" not in str(error):
            raise
        raise InputError(f"nothing in the space can run: {sweep_reason(sweep) or error}") from None
    assert found.rows is not None
    names = [n for n in found.rows if n not in ("time.step", "memory.peak", goal, "world")]
    rows = []
    for k in range(found.count):
        own = {n: _plain(found.rows[n][k]) for n in names if n in space.columns or n in space.derived}
        rows.append({**options, **own, "world": asked.world})
    return sweep, rows


def sweep_reason(sweep: Sweep) -> str:
    """The rule that stops the most points of a sweep, in its words."""
    reasons = sweep.refused() if sweep.space.points else []
    return reasons[0].why if reasons else ""


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, str) and value in ("true", "false"):
        return value == "true"
    return value


def _differing(rows: Sequence[dict[str, Any]], top: int) -> list[dict[str, Any]]:
    """The first of each kind."""
    kinds: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        kinds.setdefault(tuple(str(row.get(n)) for n in _KIND), row)
        if len(kinds) == top:
            break
    return list(kinds.values())


def _certificate(sweep: Sweep) -> Certificate:
    reasons = sweep.refused()
    excluded = sum(n for n, _ in sweep.excluded.values())
    bounds = [b for n, b in sweep.excluded.values() if n]
    largest = sweep.question.largest[0]
    bound = (-min(bounds) if largest else min(bounds)) if bounds else None
    running = sweep.running
    return Certificate(
        sweep.space.points,
        {r.rule: r.points for r in reasons},
        {r.rule: r.why for r in reasons},
        excluded,
        running - excluded,
        bound if bound is None or math.isfinite(bound) else None,
        len(sweep.variants),
    )


def _smallest(asked: Asked, condition: str) -> int | None:
    """The first of twice, four times, ... as many ranks on which something fits."""
    ranks = asked.world
    while ranks < _FURTHEST * asked.world:
        ranks *= 2
        try:
            if _searched(replace(asked, world=ranks), [condition], "time.step", 1, _silent)[1]:
                return ranks
        except InputError:
            continue
    return None


assert set(GOALS.values()) <= set(QUANTITIES)
