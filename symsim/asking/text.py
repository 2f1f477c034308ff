"""Answers in 80 columns of text, and the tornado plot."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from symsim.algebra.expr import Expr, Number, Symbol
from symsim.algebra.quantity import BYTE
from symsim.grid.units import COUNT
from symsim.report.amounts import THIN, human, rate, seconds, whole
from symsim.report.columns import WIDTH, digits, table, wrapped
from symsim.report.tornado import Arm, tornado_svg

if TYPE_CHECKING:
    from symsim.asking.answers import Along, Crossing, Elasticities, Extreme, Holding, Meeting, Valued
    from symsim.asking.branch import Closed, End

_MOST_TERMS = 6
_BAR = 16


def amount(value: Number, unit: str) -> str:
    """A number with its unit, four digits."""
    if unit == "byte":
        return human(whole(value), BYTE)
    if unit == "s":
        return seconds(value)
    if unit in ("byte/s", "FLOP/s"):
        return rate(float(value), unit.replace("byte", "B"))
    if unit == "USD/s":
        return f"{float(value) * 3600:.4g} USD/h"
    if isinstance(value, int) or (isinstance(value, Fraction) and value.denominator == 1):
        return f"{digits(int(value))}{_after(unit)}"
    return f"{float(value):.4g}{_after(unit)}"


def precise(value: Number, unit: str, figures: int = 6) -> str:
    """The same with six digits, or all of an integer."""
    sizes = {"byte/s": (("TB/s", 12), ("GB/s", 9), ("MB/s", 6)), "FLOP/s": (("PFLOP/s", 15), ("TFLOP/s", 12), ("GFLOP/s", 9))}
    if unit in sizes:
        word, power = next(((w, p) for w, p in sizes[unit] if abs(float(value)) >= 10**p), sizes[unit][-1])
        return f"{float(value) / 10**power:.{figures}g} {word}"
    if unit == "s":
        word, size = next(((w, n) for w, n in (("s", 1.0), ("ms", 1e-3)) if abs(float(value)) >= n), ("us", 1e-6))
        return f"{float(value) / size:.{figures}g} {word}"
    if unit == "USD/s":
        return f"{float(value) * 3600:.{figures}g} USD/h"
    if unit == "byte" and abs(float(value)) >= 2**10:
        word, power = next((w, p) for w, p in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)) if abs(float(value)) >= 2**p)
        return f"{float(value) / 2**power:.{figures}g} {word}"
    return f"{digits(int(value))}{_after(unit)}" if value == int(value) else f"{float(value):.{figures}g}{_after(unit)}"


def _after(unit: str) -> str:
    return "" if unit in ("1", COUNT, "") else f" {unit}"


def over_text(form: Expr) -> str:
    """A formula over one symbol with six digits a number: 4.16094 + 5.43417e+11/B_1."""
    parts = []
    for monomial, coefficient in sorted(form.terms.items(), key=lambda item: [p for _, p in item[0]]):
        names = [(a.name if isinstance(a, Symbol) else a.key[1], p) for a, p in monomial]
        top = [n if p == 1 else f"{n}**{p}" for n, p in names if p > 0]
        under = [n if p == -1 else f"{n}**{-p}" for n, p in names if p < 0]
        number = f"{abs(float(coefficient)):.6g}"
        text = "*".join([*([number] if number != "1" or not top else []), *top])
        text += "".join(f"/{n}" for n in under)
        parts.append((" - " if coefficient < 0 else " + ") + text)
    joined = "".join(parts).removeprefix(" + ")
    return ("-" + joined.removeprefix(" - ") if joined.startswith(" - ") else joined) or "0"


def _sides(sides: Sequence[Valued], figures: int = 6) -> str:
    return ", ".join(f"{v.text} is {precise(v.value, v.unit, figures)}" for v in sides)


def _telling(sides: Sequence[Valued], others: Sequence[Valued]) -> int:
    """As many digits as tell what two neighbours have apart."""
    pairs = [(one, other) for one, other in zip(sides, others) if one.value != other.value]
    told = (n for n in (6, 9, 12) if all(precise(one.value, one.unit, n) != precise(other.value, other.unit, n) for one, other in pairs))
    return next(told, 15)


def extreme_text(answer: Extreme) -> str:
    return "\n".join(_extreme(answer))


def crossing_text(answer: Crossing) -> str:
    return "\n".join(_crossing(answer))


def _extreme(answer: Extreme) -> list[str]:
    name, unit = answer.symbol, answer.unit
    lines = [answer.question]
    now = f"now {precise(answer.now, unit)}, where it {'holds' if answer.holds_now else 'does not hold'}"
    if answer.value is None:
        lines.append(wrapped(f"it holds at no {name} from {precise(answer.low, unit)} to {precise(answer.high, unit)}; {now}", "  "))
        return [*lines, wrapped(answer.how, "  ")]
    lines.append(wrapped(f"{name} = {precise(answer.value, unit)} ({now})", "  "))
    figures = _telling(answer.sides, answer.beyond_sides)
    lines += [wrapped(f"there {_sides(answer.sides, figures)}", "  ")] if answer.sides else []
    if answer.beyond is not None:
        lines.append(wrapped(f"the next that can run, {precise(answer.beyond, unit)}, does not: {_sides(answer.beyond_sides, figures)}", "  "))
    elif answer.value in (answer.low, answer.high):
        lines.append(wrapped(f"it holds to the end of the range, {precise(answer.value, unit)}", "  "))
    lines.append(wrapped(answer.how, "  "))
    for holding in answer.holding:
        lines += _branch(name, unit, holding)
    return [*lines, *_closed(name, unit, answer.closed)]


def _branch(name: str, unit: str, holding: Holding) -> list[str]:
    form = holding.branch.active
    said = f"{holding.text} there"
    if form is None:
        said += f" stands on {name} in a root or a divisor"
    elif len(form.terms) > _MOST_TERMS:
        said += f" has {len(form.terms)} terms in {name}"
    else:
        said += f" = {over_text(form)}{_after(holding.unit)}"
    ends = [f"{word} {precise(e.at, unit)}{_what(e)}" for word, e in (("down to", holding.branch.below), ("up to", holding.branch.above)) if e]
    said += f", {' and '.join(ends)}" if ends else ", all over the range"
    lines = [wrapped(said, "  ")]
    if holding.symbols is not None:
        lines.append(wrapped(f"in symbols {holding.symbols}", "    "))
    return lines


def _what(end: End) -> str:
    if not end.changes:
        return " (further is not proved)"
    more = len(end.changes) - 1
    return f" ({end.changes[0]}{f' and {more} more' if more else ''})"


def _closed(name: str, unit: str, closed: Closed | None) -> list[str]:
    if closed is None:
        return []
    word = "linear" if closed.degree == 1 else "quadratic"
    text = f" = {closed.text}" if closed.text else ""
    word += ", without rounding to whole tiles and the like" if closed.smooth else f" in {name}"
    return [wrapped(f"closed form ({word}): {name}{text} = {precise(closed.value, unit)}", "  ")]


def _crossing(answer: Crossing) -> list[str]:
    name, unit = answer.symbol, answer.unit
    lines = [answer.question, wrapped(f"now {name} = {precise(answer.now, unit)}{': ' if answer.sides else ''}{_sides(answer.sides)}", "  ")]
    if not answer.meetings:
        where = f"from {precise(answer.low, unit)} to {precise(answer.high, unit)}"
        larger = {1: answer.left, -1: answer.right, 0: ""}[answer.larger_now]
        said = f"equal nowhere {where}; {larger} is larger throughout" if larger else f"equal everywhere {where}"
        lines.append(wrapped(f"they are {said}", "  "))
    for meeting in answer.meetings:
        lines += _meeting(answer, meeting)
    return [*lines, wrapped(answer.how, "  ")]


def _meeting(answer: Crossing, meeting: Meeting) -> list[str]:
    name, unit = answer.symbol, answer.unit
    larger = {1: answer.left, -1: answer.right, 0: "neither"}
    value, until = precise(meeting.value, unit), precise(meeting.until, unit)
    where, sides = f"at {name} = {value}", _sides(meeting.sides)
    if answer.whole and meeting.until != meeting.value:
        equal = len({v.value for v in meeting.sides}) == 1 and (len(meeting.sides) > 1 or meeting.sides == meeting.until_sides)
        word = ("from", "to") if equal else ("between", "and")
        where = f"{word[0]} {name} = {value} {word[1]} {until}"
        figures = _telling(meeting.sides, meeting.until_sides)
        sides = f"at {value} {_sides(meeting.sides, figures)}; at {until} {_sides(meeting.until_sides, figures)}"
    said = f"{where}: {sides}; below it {larger[meeting.before]} is larger, above it {larger[meeting.after]}"
    lines = [wrapped(said, "  ")]
    for holding in meeting.holding:
        lines += _branch(name, unit, holding)
    return [*lines, *_closed(name, unit, meeting.closed)]


def elasticities_text(answer: Elasticities) -> str:
    of = answer.of
    longest = max((abs(m.elasticity) for m in answer.moves), default=1.0) or 1.0
    told = []
    for move in answer.moves:
        how = "derivative" if move.to is None else f"to {digits(move.to)}"
        told.append((move.symbol, precise(move.value, move.unit), f"{move.elasticity:+.6f}", how))
    # names are whole, and bars as long as they leave room for
    taken = sum(max(len(row[c]) for row in told) + 2 for c in range(4)) if told else 0
    room = max(1, min(_BAR, WIDTH - taken - 2))
    bars = [("+" if m.elasticity > 0 else "-") * max(int(bool(m.elasticity)), round(abs(m.elasticity) / longest * room)) for m in answer.moves]
    rows = [(*row, bar) for row, bar in zip(told, bars)]
    # a line ends between names
    asked = ", ".join(part.strip() for part in answer.question.split(","))
    title = wrapped(f"{asked}: percent of it for a percent more ({amount(of.value, of.unit)} now)")
    lines = ["\n".join(line.rstrip() for line in table(title, ("", "now", "percent", "by", ""), rows).splitlines())]
    if any(m.to is not None for m in answer.moves):
        lines.append(wrapped("derivative: exact, along the branch that is active. to N: the exact difference to N, which can run.", "  "))
    for move in (m for m in answer.moves if m.along):
        if move.to is None:
            lines.append(wrapped(f"with {move.symbol} moves {', '.join(name for name, _, _ in move.along)}", "  "))
        else:
            moved = (f"{name} = {precise(there, '')} ({precise(now, '')} now)" for name, there, now in move.along)
            lines.append(wrapped(f"with {move.symbol} = {digits(move.to)} goes {', '.join(moved)}", "  "))
    if answer.still:
        lines.append(wrapped(f"without effect here: {', '.join(answer.still)}", "  "))
    lines += [wrapped(f"{name}: {why}", "  ") for name, why in answer.left]
    return "\n".join(lines)


def along_text(answer: Along) -> str:
    header = (answer.symbol, *(text for text, _ in answer.quantities))
    units = [unit for _, unit in answer.quantities]
    rows = [
        [precise(row.value, answer.unit), *(amount(n, u) for n, u in zip(row.numbers, units))]
        if not row.refused
        else [precise(row.value, answer.unit), *("-" for _ in units)]
        for row in answer.rows
    ]
    lines = [table(answer.question, header, rows).replace(THIN, ",")]
    lines += [wrapped(f"{precise(row.value, answer.unit)}: {row.refused}", "  ") for row in answer.rows if row.refused]
    return "\n".join(lines)


def tornado(answer: Elasticities) -> str:
    """The elasticities as a plot."""
    arms = [Arm(m.symbol, m.elasticity, precise(m.value, m.unit), m.meaning + (f", to {digits(m.to)}" if m.to else "")) for m in answer.moves]
    title = f"{answer.of.text}: percent for a percent more of each ({amount(answer.of.value, answer.of.unit)} now)"
    return str(tornado_svg(title, arms))
