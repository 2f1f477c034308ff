"""The numbers of a run that people ask for (the object `run` of `symsim run --json`, docs/run.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from typing import Any

from symsim.cost.run import PART, QUANTILES
from symsim.errors import InputError, cut
from symsim.evaluation.interval import Interval, interval
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.run import LENGTHS, RAMP, RAMP_PARTS, RAMP_SHARE, asks_run, in_use

# a run of a day then takes three years
LEAST_WORKING = 1e-3
# by how much the formulas' series (symsim/cost/run.py) may make the share of useful time too large
SERIES = 0.01
_OPTIONAL = {"cost": "cost_usd", "energy": "energy_mwh", "carbon": "co2_kg"}


@dataclass(frozen=True)
class Run:
    """A run at its sizes. start: the day on which it begins, if one was said."""

    at: Evaluation
    start: date | None = None

    @cached_property
    def numbers(self) -> dict[str, float]:
        """Every definition of the run, by its quantity: wall, work, blocked, .. (`symsim/cost/run.py`); seconds, bytes, dollars, MWh, kg."""
        known = self.at.step_numbers
        return {d.key.quantity: float(known[d.symbol]) for d in self.at.derivation.of(scope="step", part=PART)}

    @property
    def days(self) -> float:
        return self.numbers["days"]

    @cached_property
    def interval(self) -> Interval | None:
        """Between which seconds a step lies (`Result.interval`): the run's length moves with it."""
        return interval(self.at)

    @property
    def days_between(self) -> tuple[float, float] | None:
        """As the step's interval; none where the days were given."""
        if self.interval is None or "days" in self.at.overrides:
            return None
        return self.days * self.interval.low / self._step, self.days * self.interval.high / self._step

    @property
    def _step(self) -> float:
        return float(self.at.step_numbers["t_step"])

    @property
    def end(self) -> date | None:
        """The day on which it ends."""
        return None if self.start is None else self.start + timedelta(days=math.floor(self.days))

    @cached_property
    def parts(self) -> dict[str, float]:
        """Seconds of the run by what they are spent on; they add up to it."""
        known = self.numbers
        useful = known["wall"] * known["working"]
        checkpoints = useful * known["blocked"] / known["interval"]
        return {
            "steps": known["work"],
            "evaluation": max(0.0, useful - known["work"]) if "evaluation" in known else 0.0,
            "checkpoints": checkpoints,
            "failures": known["wall"] - useful - checkpoints,
        }

    def to_json(self) -> dict[str, Any]:
        known = self.numbers
        days = self.days_between
        return {
            **{name: round(known[name]) for name in ("tokens", "steps")},
            "days": self.days,
            **({"days_between": list(days)} if days else {}),
            **({"start": self.start.isoformat(), "end": self.end.isoformat()} if self.start and self.end else {}),
            "accelerator_hours": known["hours"],
            **{key: known[name] for name, key in _OPTIONAL.items() if name in known},
            "goodput": known["goodput"],
            "seconds": {"run": known["wall"], **{name: value for name, value in self.parts.items() if value}},
            "step": {"mean": known["step"], **{f"p{q}": known[f"p{q}"] for q in QUANTILES if f"p{q}" in known}},
            "checkpoint": {
                "bytes": math.ceil(known["checkpoint"]),
                "write": known["write"],
                "wait": known["blocked"],
                "interval": known["interval"],
                "best_interval": known["best"],
                "number": known["saves"],
            },
            "failures": {"time_between": known["between"], "lost": known["lost"], "number": known["failures"]},
            "numbers": {name: float(self.at.values[name]) for name, _ in in_use(self.at.overrides)},
        }


def run_of(at: Evaluation, start: date | None = None) -> Run | None:
    """The run of an evaluation; None where nothing says how long one is. InputError for a run that never ends."""
    if not asks_run(at.overrides):
        return None
    made = Run(at, start)
    known = made.numbers
    if known["working"] < LEAST_WORKING:
        between, lost = known["between"], known["lost"]
        raise InputError(f"the ranks fail every {between:.4g} s and a failure costs {lost:.4g} s, so that the run never ends: see mtbf, t_save")
    if (failures := _failures_beyond(known)) is not None:
        raise InputError(f"{failures}, more than the formulas of a run are good for (to 1 %): see mtbf, t_save")
    if known["tokens"] < 1 or float(at.overrides.get("days", math.inf)) * 86400 < known["step"]:
        name = next(name for name in LENGTHS if name in at.overrides)
        raise InputError(f"{name}={float(at.overrides[name]):g} is less than a step of the run")
    if RAMP_PARTS[0] in at.overrides and known["steps"] < (growing := float(at.values["ramp_samples"]) * float(at.values[RAMP_SHARE])):
        raise InputError(f"{RAMP}: the batch grows over {math.ceil(growing)} steps, and the run has {int(known['steps'])}")
    if start is not None and made.days >= (date.max - start).days:
        raise InputError(f"the run takes {made.days:.3g} days: from {start} on that is beyond the calendar")
    return made


def _failures_beyond(known: dict[str, float]) -> str | None:
    """Failures in an interval with its checkpoint, and in what one costs besides, where Daly's exponentials are more than 1 % above their series."""
    interval, restart = known["again"], known["idle"] / known["between"]
    exact = known["interval"] / (known["interval"] + known["blocked"]) * interval * math.exp(-restart) / math.expm1(interval)
    return (
        None
        if known["working"] <= (1 + SERIES) * exact
        else f"there are {interval:.3g} failures in an interval and its checkpoint, and {restart:.3g} in a restart"
    )


def day_of(text: str) -> date:
    """A day as 2026-12-01. InputError for what is none."""
    try:
        found = date.fromisoformat(text.strip())
    except ValueError:
        raise InputError(f"--start {cut(text, 40)} is no day; it is given as 2026-12-01") from None
    return found
