"""Moving a system's numbers to steps and kernels measured on the machine itself.

The logarithm of number j of the system moves by s_j z_k + s_0 z_0: s_j is the spread of its kind k for how it is known, s_0 that of the machine as a
whole (`symsim/inputs/spreads.py`). Of all z that give what was measured the one of least |z|^2 is taken: with A what each z moves the
logarithms of the measured seconds by, and C the covariance of z (1, or what earlier steps have left of it),

    z = C A' (A C A' + N)^-1 (r + A z)        r: ln(measured / predicted) at z; N: variances of what each is off by itself

repeated until nothing moves, with predictions and elasticities of the exact formula (Gauss-Newton). One step is met exactly (N = 0);
of several each keeps what is its own. No share rises above 1, or above what it is where the file has it above 1.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from symsim.calibration.shares import Numbers
from symsim.errors import InputError
from symsim.evaluation.elasticity import elasticities
from symsim.evaluation.interval import deviations, moves, remaining, solved
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.reading import Document, write_text
from symsim.inputs.spreads import KINDS, stored, uncertain
from symsim.inputs.system import System
from symsim.inputs.systems import format_system
from symsim.inputs.validation import validate

_TRACED = 0.005  # of the seconds of a kind of kernels, added up over a step
_ROUNDS, _CLOSE, _FAR, _MET = 12, 1e-5, 0.7, 1e-4
_MOST, _HALVES = 4.0**6, 24


@dataclass(frozen=True)
class Measured:
    """Seconds measured of a step, or of one kind of kernels in it (`steps.KERNELS`) on a rank of the slowest stage; `said` names what ran."""

    at: Evaluation
    seconds: float
    said: str
    kind: str = ""

    def on(self, system: System) -> "Measured":
        return replace(self, at=replace(self.at, system=system))

    @cached_property
    def predicted(self) -> float:
        """What the formula says for it; 0 for kernels that no second of the step depends on."""
        if not self.kind:
            return float(self.at.step_numbers["t_step"])
        share = sum(move for (kind, _), move in self._compute.items() if kind == self.kind)
        return share * float(self.at.step_numbers["t_compute"])

    @cached_property
    def _compute(self) -> dict[tuple[str, str], float]:
        return moves(self.at, "t_compute")

    def moved_by(self, held: frozenset[str]) -> dict[str, float]:
        """What each kind moves its logarithm by when it is off by its spread; numbers `held` do not move."""
        if self.kind:
            own = {key: move for key, move in self._compute.items() if key[0] == self.kind}
            total = sum(own.values())
            return deviations({key: move / total for key, move in own.items()}, stored())
        return _without(self.at, held)


def _without(at: Evaluation, held: frozenset[str]) -> dict[str, float]:
    """What the kinds of a system's numbers, and the machine as a whole, move a step by, where some numbers stay."""
    assert at.system is not None
    spreads, found = stored(), elasticities(at)
    made: dict[str, float] = {"machine": 0.0}
    for number in uncertain(at.system, found):
        if number.symbol not in held:
            move = number.way * found[number.symbol]
            made[number.kind] = made.get(number.kind, 0.0) + move * spreads.of(number.kind, number.tag)
            made["machine"] += move * spreads.of("machine", number.tag)
    return made


@dataclass(frozen=True)
class Anchor:
    """A system moved to what was measured, and how.

    before, after: what was measured, with what the system as it was and as it is now predicts. off: by kind, by how many of its
    spreads it was off. changed: numbers by their path in the file, before and after. data: the contents of the new system's file.
    """

    system: System
    before: tuple[Measured, ...]
    after: tuple[Measured, ...]
    off: Mapping[str, float]
    changed: Mapping[str, tuple[str, str]]
    data: Mapping[str, Any]

    @property
    def surprise(self) -> float:
        """By how many spreads the system was off: more than three are rare."""
        return math.sqrt(sum(x * x for x in self.off.values()))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the system's file, whole or not at all; it goes by the file's name. InputError where it cannot be written."""
        target = Path(path)
        if target.suffix not in (".yaml", ".yml"):
            raise InputError(f"{target}: a system file ends in .yaml")
        write_text(target, format_system({**self.data, "name": target.stem}))


def anchor(measured: Sequence[Measured]) -> Anchor:
    """The system of the measured steps, moved to them. InputError where no shares explain them, or nothing was measured."""
    if not measured:
        raise InputError("nothing is measured: --step, --rows or --trace gives seconds")
    system = measured[0].at.system
    assert system is not None
    for one in measured:
        if one.predicted <= 0:
            raise InputError(f"{one.said}: by prediction no second of the step goes to {KINDS[one.kind]}, so that their time moves nothing")
    numbers = Numbers(system, measured[0].at.strategy)
    off, held, found = dict[str, float](), numbers.fixed, list(measured)
    for _ in range(_ROUNDS):
        new = _round(system, found, off, held)
        close = all(abs(new[kind] - off.get(kind, 0.0)) < _CLOSE for kind in new)
        off = new
        values, held = numbers.moved(off)
        now = numbers.system_with(values)
        found = [one.on(now) for one in measured]
        if close:
            break
    if len(found) == 1 and not _met(found[0]):
        off, values = _along(measured[0], off, numbers)
        found = [measured[0].on(numbers.system_with(values))]
    steps = [one for one in found if not one.kind]
    entries = [{"step": [f"{one.seconds:.6g} s", "measured"], "of": one.said, "moves": _six(one.moved_by(numbers.fixed))} for one in steps]
    data, changed = numbers.anchored(values, "; ".join(f"{one.said}: {one.seconds:.6g} s" for one in measured), entries)
    made = validate(System, data, "the anchored system", Document(data, "the anchored system"))
    return Anchor(made, tuple(measured), tuple(one.on(made) for one in measured), off, changed, data)


def _six(made: Mapping[str, float]) -> dict[str, float]:
    return {kind: float(f"{move:.6g}") for kind, move in made.items() if move}


def _met(one: Measured) -> bool:
    return abs(math.log(one.seconds / one.predicted)) < _MET


def _along(one: Measured, off: Mapping[str, float], numbers: Numbers) -> tuple[dict[str, float], dict[str, float]]:
    """One step where shares become whole on the way, which makes rounds turn back: on in the direction in which they led, to the step. By how
    many spreads kinds are off there, and the numbers. InputError where no shares explain the step."""
    slower = one.seconds > one.predicted
    signs = {kind: abs(by) if slower else -abs(by) for kind, by in off.items()}

    def at(scale: float) -> float:
        values, _ = numbers.moved({kind: scale * by for kind, by in signs.items()})
        return math.log(one.on(numbers.system_with(values)).predicted / one.seconds)

    near, far = 0.0, 1.0
    while (at(far) < 0) is slower and far < _MOST:
        near, far = far, 4 * far
    if (at(far) < 0) is slower:
        raise _beyond(one, numbers)
    for _ in range(_HALVES):
        middle = (near + far) / 2
        near, far = (middle, far) if (at(middle) < 0) is slower else (near, middle)
    found = {kind: far * by for kind, by in signs.items()}
    return found, numbers.moved(found)[0]


def _beyond(one: Measured, numbers: Numbers) -> InputError:
    """Why no shares explain a step."""
    least = one.on(numbers.best()).predicted
    if one.seconds < least:
        reason = f"at its peaks and bandwidths {numbers.system.name} takes at least {least:.4g} s, with every share at 1 and no latency"
    else:
        reason = "no shares of the system lead there"
    return InputError(f"{one.said}: {one.seconds:.4g} s are measured, but {reason}; is it the same run?")


def _round(system: System, measured: Sequence[Measured], off: Mapping[str, float], held: frozenset[str]) -> dict[str, float]:
    """By how many spreads kinds are off, from predictions and elasticities where they are off by `off`."""
    spreads = stored()
    noise = spreads.anchored * spreads.of("run", "estimated")
    earlier = [dict(a.moves) for a in system.anchored]
    rows = [one.moved_by(held) for one in measured]
    spread = [remaining(row, earlier, spreads) if earlier else row for row in rows]
    steps = sum(not one.kind for one in measured)
    own = [_TRACED if one.kind else noise if steps > 1 else 1e-6 for one in measured]
    known = [[sum(v * s.get(k, 0.0) for k, v in row.items()) + (i == j) * own[i] ** 2 for j, s in enumerate(spread)] for i, row in enumerate(rows)]
    left = [math.log(one.seconds / one.predicted) for one in measured]
    # far off, formulas bend: no round changes a prediction by more than a factor of two
    left = [math.copysign(min(abs(r), _FAR), r) + sum(v * off.get(k, 0.0) for k, v in row.items()) for r, row in zip(left, rows)]
    gains = solved(known, left)
    kinds = {k for row in spread for k in row} | set(off)
    return {k: sum(s.get(k, 0.0) * gain for s, gain in zip(spread, gains)) for k in kinds}
