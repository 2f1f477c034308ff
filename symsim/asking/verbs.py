"""The questions, as functions of a result: elasticity, crossing, largest, smallest, needed, along."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from symsim.algebra.expr import Number
from symsim.algebra.formula import Formula
from symsim.algebra.vocabulary import domain
from symsim.asking.answers import Along, Crossing, Elasticities, Extreme, Holding, Meeting, Move, Row, Valued
from symsim.asking.branch import Closed, branch, in_symbols, solved, unrounded
from symsim.asking.curve import exactly
from symsim.asking.moving import Moving, moving
from symsim.asking.signs import Range, Signs, Stretch, sign
from symsim.asking.subject import Subject, measured, subject
from symsim.asking.truth import Comparison, Condition, Truth, condition, one_by_one, truth, value_at
from symsim.errors import InputError, cut, in_doubles, nearest
from symsim.evaluation.numbers import Evaluation
from symsim.evaluation.run import run_of
from symsim.grid.axes import Axis, parse_axis
from symsim.grid.conditions import parse_quantity
from symsim.grid.units import same
from symsim.inputs.known import BASE, EXAMPLES, UNITS
from symsim.inputs.run import RUN, asks_run, read_run_number

# characters of a formula that is still read
_LONGEST = 400
_MOST_MEETINGS, _MOST_ROWS = 20, 2_000
_LONGEST_NAME = 60
# to what share of an integer its difference is taken, at least
_FURTHER = Fraction(9, 8)
# how far floats may move what is solved for
_SOLVED = 1e-6


@in_doubles()
def elasticity(result: Evaluation, name: str, by: str | Iterable[str] | None = None) -> Elasticities:
    """Percent by which a quantity changes for a percent more of each symbol, the largest first.

    by: one name, several (also 'B_1, s'), or None for all real symbols and sizes. Of a real symbol the exact derivative times symbol over
    value, of an integer the exact difference to the first value from 9/8 of it on that can run. InputError for what there is not, and where
    the quantity is 0.
    """
    asked = subject(result, name)
    formula = asked.formula(result)
    value = formula.value(result.values)
    if not value:
        raise InputError(f"{cut(name)} is 0 here: it has no elasticity")
    moves, still, left = [], [], []
    for one in _moved_by(result, formula.symbols, by):
        found = _move(one, asked, formula, value)
        if isinstance(found, str):
            left.append((one.name, found))
        elif found.elasticity or by is not None:
            moves.append(found)
        else:
            still.append(one.name)
    moves.sort(key=lambda m: -abs(m.elasticity))
    said = f"elasticity {name.strip()}" + ("" if by is None else f" by {by if isinstance(by, str) else ', '.join(by)}")
    return Elasticities(said, Valued(asked.text, value, asked.unit), tuple(moves), tuple(still), tuple(left))


def _moved_by(result: Evaluation, symbols: set[str], by: str | Iterable[str] | None) -> list[Moving]:
    if by is not None:
        names = [n.strip() for n in by.split(",")] if isinstance(by, str) else list(by)
        if not any(names):
            raise InputError("by= names no symbol: by='B_1, s' names two, and without it all are tried")
        return [moving(result, name) for name in dict.fromkeys(names)]
    found = []
    for name in sorted(symbols | ({f"Phi_{result.strategy.precision}"} if "Phi" in symbols else set())):
        try:
            one = moving(result, name)
        except InputError:
            continue
        if not one.degree and not (one.whole and one.part == "system") and one.now:
            found.append(one)
    return found


def _move(one: Moving, asked: Subject, formula: Formula, value: Number) -> Move | str:
    """A row of the table, or why there is none."""
    now = one.now
    if not now:
        return "it is 0 here, of which there is no percent"
    if not one.whole:
        try:
            slope = one.slope(formula)
        except InputError as error:
            # what another option settles has no other value
            return str(error)
        return Move(one.name, now, one.unit, one.meaning, float(slope) * float(now) / float(value), None, _along_with(one, formula, None))
    # tiles make steps: further off than the next value they count for little
    to = next(one.runnable(-(-int(now) * _FURTHER.numerator // _FURTHER.denominator), 1, 64 * int(now) + 64), None)
    if to is None:
        return "no larger value of it can run"
    try:
        other = Fraction(exactly(value_at(one, asked, to)))
    except InputError as error:
        return str(error)
    here = Fraction(exactly(value))
    return Move(one.name, now, one.unit, one.meaning, float((other - here) * int(now) / ((to - int(now)) * here)), to, _along_with(one, formula, to))


def _along_with(one: Moving, formula: Formula, to: int | None) -> tuple[tuple[str, Number, Number], ...]:
    """What else of a formula's symbols another value of the symbol moves: of an integer, to what."""
    values = one.result.values
    if to is None:
        return tuple((name, values[name], values[name]) for name in one.following(formula) or {} if name != one.name)
    there = one.at(to).values
    moved = (n for n in sorted(formula.symbols - {one.name}) if n in there and there[n] != values[n])
    return tuple((n, there[n], values[n]) for n in moved)


@in_doubles()
def crossing(result: Evaluation, left: str, right: str, over: str) -> Crossing:
    """Where two quantities are equal as one symbol moves. over: its name, or a range of it ('B_1=200:900 GB/s'). InputError for names that there are
    not, and for units that differ."""
    sides = [_short(subject(result, text), word) for text, word in ((left, "left"), (right, "right"))]
    same([(s.text, s.unit) for s in sides], f"{left} = {right}")
    measured(sides, f"{left} = {right}")
    one, within = _range(result, over)
    # of what is derived value by value: that two are equal may hold at none of the values that can run, which is the larger one changes
    compared = Comparison("le", sides[0], sides[1], f"{left.strip()} = {right.strip()}")
    found = truth(one, Condition("le", compared.text, comparison=compared), within)
    here = _sides(one, [compared], one.now)
    meetings = []
    for _, _, of in found.curves:
        stretches = _that_run(one, of.stretches) if one.whole else of.stretches
        meetings = [_meeting(one, compared, within, *pair) for pair in _meetings(stretches)[:_MOST_MEETINGS]]
    if not found.curves:
        meetings = _between_values(one, compared, found)
    said = f"crossing {compared.text} over {over.strip()}"
    return Crossing(
        said,
        sides[0].text,
        sides[1].text,
        one.name,
        one.unit,
        one.whole,
        one.now,
        within.low,
        within.high,
        here,
        sign(compared.difference.number(result)),
        tuple(meetings),
        found.how,
        found.proved,
    )


def _short(of: Subject, word: str) -> Subject:
    """A long expression by its place."""
    return of if len(of.text) <= _LONGEST_NAME else replace(of, text=f"the {word} side")


def _that_run(one: Moving, stretches: Sequence[Stretch]) -> list[Stretch]:
    """The stretches from the first to the last of their integers that can run."""
    found: list[Stretch] = []
    for stretch in stretches:
        low, high = math.ceil(stretch.low), math.floor(stretch.high)
        first, last = (next(one.runnable(start, way, end), None) for start, way, end in ((low, 1, high), (high, -1, low)))
        # a long row that cannot run ends a search from one side: what is found from the other stands for both
        first, last = (last if first is None else first), (first if last is None else last)
        if first is None or last is None:
            continue
        if found and found[-1].sign == stretch.sign:
            found[-1] = replace(found[-1], high=float(last))
        else:
            found.append(Stretch(float(first), float(last), stretch.sign))
    return found


def _meetings(stretches: Sequence[Stretch]) -> list[tuple[float, float, int, int]]:
    """Neighbouring values at which the sign changes, with the signs on either side; a stretch of equality is one meeting."""
    found: list[tuple[float, float, int, int]] = []
    for k, (one, other) in enumerate(zip(stretches, stretches[1:])):
        if other.sign == 0:
            after = stretches[k + 2].sign if k + 2 < len(stretches) else 0
            found.append((other.low, other.high, one.sign, after))
        elif one.sign != 0:
            found.append((one.high, other.low, one.sign, other.sign))
        elif k == 0:
            found.append((one.low, one.high, 0, other.sign))
    return found


def _meeting(one: Moving, compared: Comparison, within: Range, low: float, high: float, before: int, after: int) -> Meeting:
    x, other = (int(low), int(high)) if one.whole else (Fraction(low), Fraction(high))
    told = [s for s in (compared.left, compared.right) if not s.amount.is_constant]
    sides, until = (tuple(Valued(s.text, _on_curve(one, s, v), s.unit or compared.difference.unit) for s in told) for v in (x, other))
    holding = tuple(h for s in (compared.left, compared.right) if (h := _holding(one, s, x, within)) is not None)
    return Meeting(low, high, before, after, sides, until if one.whole and low != high else (), holding, _closed(one, compared, x, high))


def _on_curve(one: Moving, of: Subject, x: Number) -> Number:
    curve = one.curve(of.amount)
    return curve.at(x) if curve is not None else value_at(one, of, x)


def _between_values(one: Moving, compared: Comparison, found: Truth) -> list[Meeting]:
    """Among values that were derived one by one, neighbours between which the larger one changes."""

    def larger(value: float) -> int:
        return sign(compared.difference.number(one.at(int(value))))

    made = []
    for part, following in zip(found.parts, found.parts[1:]):
        before, after = larger(part.high), larger(following.low)
        sides, until = (_sides(one, [compared], int(v)) for v in (part.high, following.low))
        made += [Meeting(part.high, following.low, before, after, sides, until, (), None)] if before != after else []
    return made


def largest(result: Evaluation, name: str, where: str) -> Extreme:
    """The largest value of a symbol for which a condition holds. name: of the symbol, or a range of it; where: a condition with units, as
    'M_peak <= 80 GiB'. Integers are values that can run. InputError for names that there are not."""
    return _extreme(result, name, where, f"largest {name.strip()} where {where.strip()}", "largest")


def smallest(result: Evaluation, name: str, where: str) -> Extreme:
    """The smallest value of a symbol for which a condition holds; as `largest`."""
    return _extreme(result, name, where, f"smallest {name.strip()} where {where.strip()}", "smallest")


def needed(result: Evaluation, name: str, for_: str) -> Extreme:
    """The value of a symbol that a condition needs, the nearest to the present one: where the condition holds already, the last value on the way to
    where it does not. As `largest`."""
    return _extreme(result, name, for_, f"needed {name.strip()} for {for_.strip()}", "needed")


@in_doubles()
def _extreme(result: Evaluation, name: str, where: str, question: str, kind: str) -> Extreme:
    asked = condition(result, where)
    one, within = _range(result, name)
    holds_now = asked.holds(lambda c: c.holds(result))
    found = truth(one, asked, within)
    value, way = _chosen(one, found, kind)
    beyond = None if value is None else _beyond(one, found, value, way)
    if found.curves and not _confirmed(one, asked, value, beyond):
        found = one_by_one(one, asked, within)
        value, way = _chosen(one, found, kind)
        beyond = None if value is None else _beyond(one, found, value, way)
    compared = asked.comparisons
    holding: tuple[Holding, ...] = ()
    closed = None
    if value is not None and found.curves:
        binding = _binding(found, value, way)
        holding = tuple(h for s in (binding.left, binding.right) if (h := _holding(one, s, value, within)) is not None)
        # at the end of a range nothing is solved for
        inside = beyond is not None or (not one.whole and float(value) not in (within.low, within.high))
        closed = _closed(one, binding, value, value if beyond is None else beyond) if inside else None
    return Extreme(
        question,
        one.name,
        one.unit,
        one.whole,
        value,
        one.now,
        holds_now,
        within.low,
        within.high,
        _sides(one, compared, value),
        beyond,
        _sides(one, compared, beyond),
        found.how,
        found.proved,
        holding,
        closed,
    )


def _confirmed(one: Moving, asked: Condition, value: Number | None, beyond: Number | None) -> bool:
    """Whether what is derived again at the answer and beyond it says the same; of real symbols nothing is derived otherwise."""
    if not one.whole:
        return True
    try:
        here = value is None or asked.holds(lambda c: c.holds(one.at(value)) or c.close(one.at(value)))
        return here and (beyond is None or not asked.holds(lambda c: c.holds(one.at(beyond)) and not c.close(one.at(beyond))))
    except InputError:
        return False


def _sides(one: Moving, compared: Sequence[Comparison], x: Number | None) -> tuple[Valued, ...]:
    """The quantities of the comparisons at a value, each once; numbers are not said again."""
    if x is None:
        return ()
    sides = {s.text: (s, c.difference.unit) for c in compared for s in (c.left, c.right) if not s.amount.is_constant}
    return tuple(Valued(text, value_at(one, s, x), s.unit or unit) for text, (s, unit) in sides.items() if text != one.name)


def _chosen(one: Moving, found: Truth, kind: str) -> tuple[Number | None, int]:
    """The value that is asked for, and the way in which the next one does not do: 1 upwards, -1 downwards."""
    parts = [p for p in found.parts if p.holds]
    ends = [(p.high, 1, p) for p in parts] if kind != "smallest" else []
    ends += [(p.low, -1, p) for p in parts] if kind != "largest" else []
    if kind == "needed":
        edges = {found.parts[0].low, found.parts[-1].high}
        inner = [e for e in ends if e[0] not in edges] or ends
        ends = sorted(inner, key=lambda e: _apart(e[0], float(one.now)))
    else:
        ends.sort(key=lambda e: -e[1] * e[0])
    for end, way, part in ends:
        if not one.whole:
            return Fraction(end), way
        other = part.low if way > 0 else part.high
        value = next(one.runnable(int(end), -way, other), None)
        if value is None:
            # a long row that cannot run ends the search from there: the last that is met on the way to it
            value = max(one.runnable(int(other), way, end), key=lambda v: v * way, default=None)
        if value is not None:
            return value, way
    return None, 1


def _apart(x: float, now: float) -> float:
    return abs(math.log(x / now)) if x > 0 and now > 0 else abs(x - now)


def _beyond(one: Moving, found: Truth, value: Number, way: int) -> Number | None:
    """The next value at which it does not hold."""
    outside = [p for p in found.parts if not p.holds and (p.low > value if way > 0 else p.high < value)]
    if not outside:
        return None
    if not one.whole:
        return None
    end = found.parts[-1].high if way > 0 else found.parts[0].low
    return next(one.runnable(int(value) + way, way, end), None)


def _binding(found: Truth, value: Number, way: int) -> Comparison:
    """Of several comparisons the one whose sign changes next to the value."""

    def distance(of: Signs) -> float:
        edges = [s.high if way > 0 else s.low for s in of.stretches]
        return min((abs(float(value) - e) for e in edges if e not in (of.stretches[0].low, of.stretches[-1].high)), default=math.inf)

    return min(found.curves, key=lambda entry: distance(entry[2]))[0]


def _holding(one: Moving, of: Subject, x: Number, within: Range) -> Holding | None:
    curve = one.curve(of.amount)
    if curve is None or of.amount.is_constant or one.name not in one.formula(of.amount).symbols:
        return None
    formula = one.formula(of.amount)
    # not where the formula's symbol is another number than is set
    kept = in_symbols(formula, {**one.values(x)}, one.name) if one.reach == 1 else None
    return Holding(of.text, of.unit, branch(curve, x, within), kept if kept is not None and len(str(kept)) <= _LONGEST else None)


def _closed(one: Moving, compared: Comparison, x: Number, other: Number) -> Closed | None:
    """The value solved for, where the active branches are linear or quadratic in the symbol and solved next to the answer: in symbols where that is
    short, else in numbers. other: the neighbour for which the condition decides otherwise."""
    found = _solved(one, compared, x, (float(x) + float(other)) / 2)
    return found if found is not None and _next_to(found, *sorted((float(x), float(other)))) else None


def _next_to(found: Closed, low: float, high: float) -> bool:
    """Whether a solution is that of the question: what rounds moves it a little, and another branch may have one far off."""
    room = float(_FURTHER) if found.smooth else 1.0
    return low / room * (1 - _SOLVED) <= found.value <= high * room * (1 + _SOLVED)


def _solved(one: Moving, compared: Comparison, x: Number, near: float) -> Closed | None:
    """Of the branch over the symbol alone, as it is printed; in symbols where that is the same branch: of two that meet at x either may be taken."""
    values, formula = {**one.values(x)}, one.formula(compared.difference.amount)
    curve = one.curve(compared.difference.amount)
    active = None if curve is None else branch(curve, x, Range(float(x), float(x), one.whole)).active
    if active is None:
        return None
    found = solved(active, one.name, {}, near)
    if found is None:
        found = solved(unrounded(active), one.name, {}, near)
        found = None if found is None else replace(found, smooth=True)
    if found is None:
        return None
    form = in_symbols(formula, values, one.name, one.following(formula), smooth=found.smooth) if one.reach == 1 else None
    same_root = solved(form, one.name, values, near)
    told = same_root is not None and len(same_root.text) <= _LONGEST and math.isclose(same_root.value, found.value, rel_tol=_SOLVED)
    return replace(found, text=same_root.text if same_root is not None and told else "")


@in_doubles()
def along(result: Evaluation, names: str | Iterable[str], over: str) -> Along:
    """Quantities along a range of a symbol ('B_1=200:900:50 GB/s', 's=2048:16384:*2'). A value that cannot run has a row that says why."""
    texts = [t.strip() for t in names.split(",")] if isinstance(names, str) else list(names)
    asked = [subject(result, text) for text in texts]
    name, equals, _ = over.partition("=")
    if not equals:
        raise InputError(f"'{cut(over)}' is no range: write {cut(over.strip())}=START:END:STEP, with a unit where it has one")
    one = moving(result, name)
    rows, values = [], _axis(one, over)
    if len(values) > _MOST_ROWS:
        raise InputError(f"'{cut(over.strip())}' has {len(values):,} values, and at most {_MOST_ROWS:,} are asked: a longer step has fewer")
    for value in values:
        try:
            if one.whole and (value != int(value) or value < one.least):
                raise InputError(f"{one.name} is an integer from {one.least} up")
            if asks_run(result.overrides):
                run_of(one.at(value))
            rows.append(Row(value, tuple(value_at(one, s, value) for s in asked)))
        except InputError as error:
            rows.append(Row(value, (), str(error)))
    said = f"{', '.join(texts)} over {over.strip()}"
    return Along(said, one.name, one.unit, tuple((s.text, s.unit) for s in asked), tuple(rows))


def _axis(one: Moving, over: str) -> list[Number]:
    axis = parse_axis(over)
    if not isinstance(axis, Axis) or len(axis.names) != 1:
        raise InputError(f"'{cut(over)}' is no range of numbers")
    return [_number(one, value) for value in axis.columns[0]]


def _number(one: Moving, value: object) -> Number:
    """A value of an axis in base units."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise InputError(f"{one.name} is a number, and {cut(str(value))} is none")
    if one.name in RUN:
        # with its own units: hours, kg/kWh
        return read_run_number(one.name, value, "")
    word = str(value).strip().partition(" ")[2].strip()
    if word[:1].isalpha() and word not in UNITS:
        own = [unit for unit, (kind, _) in UNITS.items() if BASE[kind] == one.unit]
        raise InputError(f"{one.name}={cut(str(value))}: it is in {one.unit}, of which '{cut(word)}' is no unit: {nearest(word, own)}")
    node = parse_quantity(str(value) if not isinstance(value, float) else repr(value), one.name)
    if node.kind != "number" or not isinstance(node.value, (int, Fraction)):
        raise InputError(f"{one.name}: '{cut(str(value))}' is not a number from {one.least} up")
    if node.unit:
        if BASE[UNITS[node.unit][0]] != one.unit:
            raise InputError(f"{one.name}={cut(str(value))}: it is in {one.unit}")
    elif one.unit != "1" and one.unit in BASE.values():
        example = next(EXAMPLES[kind] for kind, unit in BASE.items() if unit == one.unit)
        raise InputError(f"{one.name}={cut(str(value))}: a number of {one.unit} has a unit, as {example}")
    return node.value


def _range(result: Evaluation, text: str) -> tuple[Moving, Range]:
    """A symbol, and where it is looked at: all that it may be, or as its range says."""
    name, equals, _ = text.partition("=")
    one = moving(result, name)
    low, high = one.bounds()
    if equals:
        ends = [float(v) for v in _axis(one, text)] if text.count(":") == 2 else [float(v) for v in _ends(one, text)]
        low, high = min(ends), max(ends)
        if low < one.least or (domain(one.name) == "share" and high > 1):
            raise InputError(f"'{cut(text)}': {one.name} is {f'an integer from {one.least} up' if one.whole else f'a {domain(one.name)}'}")
        why = "" if one.whole else one.refused(low) or one.refused(high)
        if why:
            raise InputError(f"'{cut(text)}': {why}")
    return one, Range(low, high, one.whole)


def _ends(one: Moving, text: str) -> list[Number]:
    """Both ends of NAME=START:END, with one unit."""
    start, colon, end = text.partition("=")[2].partition(":")
    if not colon:
        raise InputError(f"'{cut(text)}' is no range: write {one.name}=START:END, with a unit where it has one")
    unit = end.strip().lstrip("+-0123456789.eE ").strip()
    first = start.strip() if not unit or unit in start else f"{start.strip()} {unit}"
    return [_number(one, first), _number(one, end.strip())]
