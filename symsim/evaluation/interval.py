"""The interval of a step's time, from the spreads of what it stands on.

With x_j the logarithm of how far number j of the system is off, the logarithm of the step changes by sum_j e_j x_j, e_j the elasticity of
the exact formula. x_j is s_j z_k, where s_j is the spread of its kind k for how it is known, and z_k is shared by the kind: kinds are independent, so
that the variance of the step is sum_k (sum_j e_j s_j)^2. A step of a framework or kind that was never measured there is off as a whole
besides. Steps that a system was anchored on (`symsim anchor`) are known to
within the run-to-run spread; what that leaves of z is their posterior.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from symsim.evaluation.elasticity import elasticities
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.conventions import OWN
from symsim.inputs.spreads import UNMEASURED, Spreads, Standing, other_than, stored, uncertain, unmeasured

Moves = dict[tuple[str, str], float]
"""Percent by which a step's time changes with a percent of a kind's seconds, by kind and how the numbers are known."""

ENDS = {"time.step_low": "low", "time.step_high": "high"}


@dataclass(frozen=True)
class Interval:
    """Seconds between which a step lies with this probability, and by kind the share of the variance that it gives. standing: of a system that is a
    measured one with other numbers, which, and the symbols of those that the step moves with."""

    low: float
    high: float
    level: float
    shares: Mapping[str, float]
    standing: Standing = Standing()

    @property
    def most(self) -> str:
        """The kind that gives most of it."""
        return max(self.shares, key=lambda kind: self.shares[kind])

    @property
    def unmeasured(self) -> str | None:
        """Which of UNMEASURED widens it; none where steps were measured."""
        return next((kind for kind in UNMEASURED if kind in self.shares), None)


def moves(at: Evaluation, name: str = "t_step", known: Mapping[str, float] | None = None) -> Moves:
    """By how much a definition of the step changes with each kind of numbers of the system, with the bubble, and whole where none was measured.

    known: its elasticities.
    """
    assert at.system is not None
    found = known if known is not None else elasticities(at, name)
    made: Moves = {}
    for number in uncertain(at.system, found):
        key = (number.kind, "estimated" if number.tag == "estimated" else "measured")
        made[key] = made.get(key, 0.0) + number.way * found[number.symbol]
    made["bubble", "estimated"] = float(at.step_numbers["t_bubble"]) / float(at.step_numbers["t_step"])
    if none_of := unmeasured(at.model, at.strategy, at.system, found):
        made[none_of, "estimated"] = 1.0
    return made


def deviations(made: Moves, spreads: Spreads) -> dict[str, float]:
    """What each kind moves the step by when it is off by its spread; the machine as a whole besides."""
    found = {"machine": spreads.of("machine", "estimated")}
    for (kind, tag), move in made.items():
        found[kind] = found.get(kind, 0.0) + move * spreads.of(kind, tag)
    return found


def interval(at: Evaluation, known: Mapping[str, float] | None = None) -> Interval | None:
    """The interval of a step; none without a system, or where another system's rules are followed (`--compat`). known: the step's elasticities."""
    if at.system is None or at.lowered.profile.conventions != OWN:
        return None
    known = known if known is not None else elasticities(at)
    found = interval_of(float(at.step_numbers["t_step"]), moves(at, known=known), [a.moves for a in at.system.anchored])
    return replace(found, standing=other_than(at.strategy, at.system, known)) if found.unmeasured == "system" else found


def interval_of(step: float, made: Moves, anchored: Sequence[Mapping[str, float]] = ()) -> Interval:
    """The interval of a step of so many seconds that these kinds move, on a system anchored on steps that its kinds move so."""
    spreads = stored()
    own, run = deviations(made, spreads), spreads.of("run", "estimated")
    left = remaining(own, anchored, spreads) if anchored else own
    shares = {kind: move * left[kind] for kind, move in own.items()}
    shares["run"] = run * run
    width = spreads.factor * math.sqrt(sum(shares.values()))
    total = sum(shares.values())
    return Interval(step * math.exp(-width), step * math.exp(width), spreads.level, {k: v / total for k, v in shares.items() if v})


def remaining(own: Mapping[str, float], anchored: Sequence[Mapping[str, float]], spreads: Spreads) -> dict[str, float]:
    """The covariance of z after steps were measured, times what moves this step, by kind: (1 + sum a a' / noise^2)^-1 own.

    The noise of a step grows with their number: steps of one machine share more than kinds of numbers say.
    """
    noise = spreads.anchored * spreads.of("run", "estimated") * math.sqrt(len(anchored))
    kinds = sorted({*own, *(kind for a in anchored for kind in a)})
    precision = [[float(i == j) + sum(a.get(i, 0.0) * a.get(j, 0.0) for a in anchored) / noise**2 for j in kinds] for i in kinds]
    return dict(zip(kinds, solved(precision, [own.get(kind, 0.0) for kind in kinds])))


def solved(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """x of matrix x = right, by elimination with row exchange."""
    rows = [[*row, r] for row, r in zip(matrix, right)]
    for i in range(len(rows)):
        pivot = max(range(i, len(rows)), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(i + 1, len(rows)):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i])]
    found = [0.0] * len(rows)
    for i in reversed(range(len(rows))):
        found[i] = (rows[i][-1] - sum(a * x for a, x in zip(rows[i][i:-1], found[i:]))) / rows[i][i]
    return found
