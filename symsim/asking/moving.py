"""A symbol that a question moves: where it may lie, and the model, the strategy or the system with another value of it.

What cannot run has no value: a size is derived again with everything that follows from it, and is refused as `symsim eval` refuses it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from symsim.algebra.expr import Expr, Number, symbol
from symsim.algebra.formula import Formula
from symsim.algebra.typeset import entry
from symsim.algebra.vocabulary import domain
from symsim.asking.curve import Curve, curve, exactly
from symsim.asking.subject import formula_of, number_of
from symsim.asking.symbols import named_symbol, no_symbol, settings_symbols
from symsim.errors import InputError
from symsim.evaluation.evaluated import check_imbalance, evaluated
from symsim.evaluation.numbers import Evaluation
from symsim.evaluation.run import run_of
from symsim.grid.names import field_of, largest
from symsim.inputs.deciding import DEGREES
from symsim.inputs.limits import LARGEST_SIZE
from symsim.inputs.models import override_architecture
from symsim.inputs.run import RUN
from symsim.inputs.settable import architecture_keys, system_path
from symsim.inputs.settings import settings_of
from symsim.inputs.strategies import override_strategy
from symsim.inputs.strategy import Strategy
from symsim.inputs.symbols_set import FREE_SYMBOLS, STRATEGY_SYMBOLS
from symsim.inputs.system import symbol_values
from symsim.inputs.systems import override_system
from symsim.ir.block import NARROW
from symsim.lowering.checks import check

# by how much of its value a real symbol is moved, either way, where no range is given
FACTOR = 1000
_LARGEST = 10**9
# how finely the end of what may be set is found
_FINE = 1e-9
_MOST_RANKS = 4096
# of values in a row that cannot run, how many are passed over
_MOST_PASSED = 20_000
# base unit -> the unit in which a setting is written, and its size
_WRITTEN = {
    "byte/s": ("GB/s", Fraction(10**9)),
    "FLOP/s": ("TFLOP/s", Fraction(10**12)),
    "s": ("s", Fraction(1)),
    "W": ("W", Fraction(1)),
    "USD/s": ("USD/h", Fraction(1, 3600)),
}


@dataclass(frozen=True)
class Moving:
    """A symbol of a result. now: its value there, as it is set; unit: base units, '1' for none; whole: integers alone."""

    result: Evaluation
    name: str
    part: str
    unit: str
    whole: bool
    _known: dict[Number, Evaluation] = field(default_factory=dict, compare=False, repr=False)
    _formulas: dict[Expr, Formula] = field(default_factory=dict, compare=False, repr=False)
    _curves: dict[Expr, Curve | None] = field(default_factory=dict, compare=False, repr=False)

    @property
    def now(self) -> Number:
        path, system = system_path(self.name), self.result.system
        if path is None or path[-1] not in NARROW or system is None:
            return self.result.values[self.name]
        return float(getattr(system.accelerator.peak, path[-1]).value)

    @cached_property
    def reach(self) -> Fraction:
        """What formulas have of a peak that is set: of FP8's the share that products reach (`fp8_share`)."""
        now = Fraction(exactly(self.now))
        return Fraction(exactly(self.result.values[self.name])) / now if now else Fraction(1)

    @property
    def meaning(self) -> str:
        return entry(self.name).meaning

    @property
    def degree(self) -> bool:
        """Whether it is a degree of parallelism, of which each value has formulas of its own."""
        return self.name in DEGREES

    @property
    def least(self) -> int:
        """The least that a size or a number may be at all."""
        return int(RUN[self.name].least) if self.name in RUN else 1 if self.whole else 0

    def bounds(self) -> tuple[float, float]:
        """Where it is looked at unless a range is given."""
        if self.whole:
            if self.degree:
                return (2.0 if self.name == "dp" and self.now > 1 else 1.0), float(_MOST_RANKS)
            if self.name in RUN:
                return float(self.least), float(min(LARGEST_SIZE, RUN[self.name].most))
            most = largest(field_of(self.name)) if self.part == "strategy" else _LARGEST
            batch = self.result.strategy.global_batch_size
            if batch is not None and STRATEGY_SYMBOLS.get(self.name) == "micro_batch_size":
                # none larger can run
                most = batch
            return 1.0, float(min(_LARGEST, most))
        now = float(self.now)
        if not now:
            return 0.0, self._settable(1.0)
        return self._settable(now / FACTOR), self._settable(now * FACTOR)

    def _settable(self, end: float) -> float:
        """The end of a range of a real symbol, or where what may be set ends on the way there: shares at 1, a load imbalance at 1 and at the
        ranks that share the load."""
        if not self.refused(end):
            return end
        near, far = float(self.now), end
        while abs(far - near) > _FINE * abs(near):
            middle = math.sqrt(near * far) if near * far > 0 else (near + far) / 2
            near, far = (near, middle) if self.refused(middle) else (middle, far)
        even = float(f"{near:.6g}")
        return near if self.refused(even) else even

    def at(self, value: Number) -> Evaluation:
        """Everything derived again with this value; InputError where it cannot run."""
        if value == self.now:
            return self.result
        if value not in self._known:
            self._known[value] = self._derived(value)
        return self._known[value]

    def _derived(self, value: Number) -> Evaluation:
        r, named, own = self.result, dict(self.result.overrides), self.result.lowered.profile.conventions
        if self.part == "strategy":
            return evaluated(r.architecture, self._strategy(value), r.assumptions, named, r.system, own)
        if self.part == "system":
            return evaluated(r.architecture, r.strategy, r.assumptions, named, override_system(r.system, self._change(value)), own)
        if self.part == "symbol":
            return evaluated(r.architecture, r.strategy, r.assumptions, {**named, self.name: exactly(value)}, r.system, own)
        model = override_architecture(r.architecture, {architecture_keys()[self.name]: int(value)})
        return evaluated(model, r.strategy, r.assumptions, named, r.system, own)

    def _strategy(self, value: Number) -> Strategy:
        option = STRATEGY_SYMBOLS.get(self.name, self.name)
        strategy = self.result.strategy
        if option == "num_microbatches" and strategy.global_batch_size is not None:
            # the batch is what micro-batches make of it
            strategy = Strategy(**{n: v for n, v in strategy.model_dump(exclude_unset=True).items() if n != "global_batch_size"})
        return override_strategy(strategy, {option: int(value)})

    def _change(self, value: Number) -> dict[tuple[str, ...], str]:
        path = system_path(self.name)
        assert path is not None
        word, size = _WRITTEN.get(self.unit, ("", Fraction(1)))
        number = Fraction(exactly(value)) / size
        return {path: f"{int(number) if number.denominator == 1 else float(number)!r} {word}".strip()}

    def refused(self, value: Number) -> str:
        """Why a value cannot run; empty where it can, as far as the rules of a strategy, of a system and of what may be set go."""
        try:
            if self.part == "strategy":
                check(self.result.architecture, self._strategy(value))
            elif self.part == "architecture":
                check(override_architecture(self.result.architecture, {architecture_keys()[self.name]: int(value)}), self.result.strategy)
            elif self.part == "system":
                override_system(self.result.system, self._change(value))
            else:
                settings_of({self.name: Fraction(exactly(value))})
                if self.name in FREE_SYMBOLS:
                    check_imbalance(self.result.model, self.result.strategy, exactly(value))
                else:
                    run_of(replace(self.result, overrides={**self.result.overrides, self.name: exactly(value)}))
        except InputError as error:
            return str(error)
        return ""

    def runnable(self, start: int, step: int, end: float) -> Iterator[int]:
        """The values that can run from a start on, upwards or downwards, as far as the end; a long row of others ends them."""
        passed = 0
        value = start
        while (end - value) * step >= 0 and passed <= _MOST_PASSED:
            if self.refused(value):
                passed += 1
            else:
                passed = 0
                yield value
            value += step

    def values(self, value: Number) -> Mapping[str, Number]:
        """The numbers of all symbols with this value."""
        moved = override_system(self.result.system, self._change(value)) if self.part == "system" and not self.whole else None
        if moved is not None:
            return {**self.result.values, **symbol_values(moved, self.result.strategy)}
        return self.at(value).values

    def formula(self, amount: Expr) -> Formula:
        """An amount of the result as a formula."""
        if amount not in self._formulas:
            self._formulas[amount] = formula_of(self.result, amount)
        return self._formulas[amount]

    def curve(self, amount: Expr) -> Curve | None:
        """An amount as a function of this symbol; None where it is another formula at other values, or what follows from the symbol follows in
        no simple way."""
        if amount not in self._curves:
            self._curves[amount] = self._curve(amount)
        return self._curves[amount]

    def _curve(self, amount: Expr) -> Curve | None:
        if (self.degree and (self.name != "dp" or self.now == 1)) or len(self._others) < 2:
            return None
        formula = self.formula(amount)
        follows = self.following(formula)
        if follows is None:
            return None
        fixed = {n: v for n, v in self.result.values.items() if n != self.name}
        made = curve(formula, self.name, {**fixed, **follows})
        # numbers of a system are symbols of every formula, whatever they are; of a run a term may be there or not
        return made if (self.part == "system" and not self.whole) or self._agrees(made, amount) else None

    def slope(self, formula: Formula) -> Number:
        """The derivative of a formula by a real symbol, with that of what follows from it."""
        values = self.result.values
        follows = self.following(formula) or {}
        total: Number = formula.slope(self.name, values)
        if self.reach != 1:
            total = total * float(self.reach)
        for name, amount in follows.items():
            if name != self.name:
                total = total + formula.slope(name, values) * amount.diff(self.name).evaluate({**values, self.name: self.now})
        return total

    def following(self, formula: Formula) -> dict[str, Expr] | None:
        """What of the formula's symbols moves with this one as it is set, as expressions over it; None where one moves in another way."""
        tables = [self.values(v) for v in self._others]
        moved = [n for n in sorted(formula.symbols - {self.name}) if any(t.get(n) != self.result.values[n] for t in tables)]
        found = {n: self._along(n, [t[n] for t in tables]) if all(n in t for t in tables) else None for n in moved}
        found |= {self.name: symbol(self.name) * self.reach} if self.reach != 1 else {}
        return {n: amount for n, amount in found.items() if amount is not None} if None not in found.values() else None

    @cached_property
    def _others(self) -> tuple[Number, ...]:
        """Two further values that can run."""
        if not self.whole:
            here = Fraction(exactly(self.now))
            if not here:
                return Fraction(1, 10**6), Fraction(2, 10**6)
            below, above = (here * Fraction(3, 4), here * Fraction(7, 8)), (here * Fraction(5, 4), here * Fraction(9, 8))
            return below if self._can_run(below[0]) else above
        now = int(self.now)
        if not now:
            return tuple(itertools.islice(self.runnable(1, 1, _MOST_PASSED), 2))
        near = next(self.runnable(now + 1, 1, now + _MOST_PASSED), None)
        far = next(self.runnable(4 * now, now, 64 * now), None)
        return tuple(v for v in (near, far) if v is not None)

    def _can_run(self, value: Number) -> bool:
        """Whether a real symbol may be so small: a load imbalance is no less than 1."""
        try:
            self.at(value)
        except InputError:
            return False
        return True

    def _along(self, name: str, found: list[Number]) -> Expr | None:
        """A number that moves with the symbol: in proportion, inversely, or along a line."""
        x, (x0, y0) = symbol(self.name), (Fraction(exactly(self.now)), Fraction(exactly(self.result.values[name])))
        points = [(Fraction(exactly(v)), Fraction(exactly(y))) for v, y in zip(self._others, found)]
        slope = (points[0][1] - y0) / (points[0][0] - x0)
        for made in (x * (y0 / x0), y0 * x0 / x, x * slope + (y0 - slope * x0)) if x0 else (x * slope + y0,):
            if all(_near(made.evaluate({self.name: v}), y) for v, y in points):
                return made
        return None

    def _agrees(self, made: Curve, amount: Expr) -> bool:
        """Whether the formula of this result is that of the others too."""
        for value in self._others:
            other = self.at(value)
            if not _near(made.at(value), number_of(other, amount)):
                return False
        return True


def _near(one: Number, other: Number) -> bool:
    return math.isclose(float(one), float(other), rel_tol=1e-12)


def moving(result: Evaluation, name: str) -> Moving:
    """The symbol that a user names: as formulas do (s, B_1), or as settings do (seq_length, network.1.bandwidth). InputError for what is none, or is
    not free."""
    spelt = named_symbol(result, name.strip())
    if spelt not in result.values or spelt == "world":
        raise no_symbol(result, name.strip(), [*(n for n in result.values if _part(n)), *settings_symbols(result)])
    part = _part(spelt)
    if not part:
        raise InputError(f"{spelt} follows from other symbols and cannot be moved: {entry(spelt).meaning}")
    whole = domain(spelt).endswith("integer") or (spelt in RUN and RUN[spelt].whole)
    return Moving(result, spelt, part, entry(spelt).unit, whole)


def _part(name: str) -> str:
    if name in STRATEGY_SYMBOLS or name in DEGREES:
        return "strategy"
    if system_path(name) is not None:
        return "system"
    if name in FREE_SYMBOLS or name in RUN:
        return "symbol"
    return "architecture" if name in architecture_keys() else ""
