"""Random questions, each answered by `symsim ask` and by a scan of evaluations that know nothing of it.

    python tests/draws/asks.py --count 200 --seed 1 --points 12
    python tests/draws/asks.py --count 200 --seed 1 --points 12 --any     # of any model, with any options, on any system

A question is of a configuration drawn from `asks_cases.py`, or of any (`knobs.py`): the largest or smallest value of a symbol under a limit of a
quantity, where a quantity meets a number, what is needed for a limit, or an elasticity. Each point of the scan is derived again with the symbol's
value, as `--set` does. No point may do that lies beyond the answer; the answer does, and the next value that can run does not; where the sign changes
between two points there is a crossing; none nearer is enough than what is needed; elasticities equal central differences to 6 digits. Exit code 1
where one does not.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import asks_cases as cases
from knobs import surroundings

from symsim.algebra.expr import Number
from symsim.asking.moving import Moving
from symsim.errors import InputError

# with the unit of a limit
QUANTITIES = {"time.step": "s", "memory.peak": "B", "tokens_per_second": ""}
_STEP = Fraction(1, 10**5)


def ask_extreme(case: cases.Case, one: Moving, quantity: str, points: list[Number], numbers: list[float]) -> str:
    """What is wrong with the largest or the smallest value; empty where nothing is."""
    limit = case.rng.choice(numbers) * case.rng.choice((1, 0.999, 1.001))
    name = cases.ranged(one, Fraction(points[0]), Fraction(points[-1]))
    way = case.rng.choice((1, -1))
    said = f"{quantity} <= {limit!r} {QUANTITIES[quantity]}"
    found = (case.result.largest if way > 0 else case.result.smallest)(name, where=said)
    held = [x for x, n in zip(points, numbers) if n <= limit * (1 - 1e-11)]
    if found.value is None:
        return f"no answer, and {float(held[0])} does: {said}" if held else ""
    if any((x - found.value) * way > 0 and abs(float(x / found.value) - 1) > 1e-9 for x in held):
        return f"{float(found.value)} for {[float(x) for x in held][-way]}: {said}"
    if cases.number(one, quantity, found.value) > limit * (1 + 1e-11):
        return f"{float(found.value)} does not do: {said}"
    beyond = found.beyond is not None and cases.number(one, quantity, found.beyond) <= limit * (1 - 1e-11)
    return f"{found.beyond} does: {said}" if beyond else ""


def ask_needed(case: cases.Case, one: Moving, quantity: str, points: list[Number], numbers: list[float]) -> str:
    """What is wrong with the nearest value that a limit needs, where it does not hold now."""
    limit = case.rng.choice(numbers)
    if float(case.result.value(quantity)) <= limit * (1 + 1e-11):
        return ""
    found = case.result.needed(cases.ranged(one, Fraction(points[0]), Fraction(points[-1])), for_=f"{quantity} <= {limit!r} {QUANTITIES[quantity]}")
    held = [x for x, n in zip(points, numbers) if n <= limit * (1 - 1e-11)]
    if found.value is None:
        return f"nothing is enough for {limit}, and {float(held[0])} is" if held else ""
    if cases.number(one, quantity, found.value) > limit * (1 + 1e-11):
        return f"{float(found.value)} is not enough for {limit}"
    away = abs(float(found.value) - float(one.now)) * (1 - 1e-9)
    nearer = [float(x) for x in held if abs(float(x) - float(one.now)) < away and (x - one.now) * (found.value - one.now) > 0]
    return f"{float(found.value)} for {limit}, and {nearer[0]} is nearer" if nearer else ""


def any_case(seed: int, number: int) -> cases.Case:
    """The configuration of this number, of all that there are; those that cannot run are passed over."""
    rng = random.Random(f"any {seed} {number}")
    while True:
        one = surroundings(rng)
        try:
            result = one.alone({})
        except InputError:
            continue
        return cases.Case(result, rng, one.said())


def ask_crossing(case: cases.Case, one: Moving, quantity: str, points: list[Number], numbers: list[float]) -> str:
    """What is wrong with the crossings of a quantity and a number."""
    target = (min(numbers) + max(numbers)) / 2
    found = case.result.crossing(quantity, f"{target!r} {QUANTITIES[quantity]}", over=cases.ranged(one, Fraction(points[0]), Fraction(points[-1])))
    for a, b, u, v in zip(points, points[1:], numbers, numbers[1:]):
        between = [m for m in found.meetings if float(a) <= m.until and m.value <= float(b)]
        if (u < target) != (v < target) and not between:
            return f"no crossing of {target} between {float(a)} and {float(b)}"
    return ""


def ask_elasticity(case: cases.Case, one: Moving, quantity: str) -> str:
    """What is wrong with an elasticity; a branch that changes within the step is passed over."""
    found = case.result.elasticity(quantity, by=one.name)[one.name]
    now = Fraction(repr(float(one.now)))
    low, here, high = (cases.number(one, quantity, now * (1 + k * _STEP)) for k in (-1, 0, 1))
    wanted = (high - low) / (2 * float(_STEP) * here)
    bent = abs((high - here) - (here - low)) > 1e-3 * abs(high - low) + 1e-13 * here
    return "" if bent or abs(found - wanted) <= 1e-6 * max(abs(wanted), 1e-3) else f"{found!r} for {wanted!r}"


ASKS = {"extreme": ask_extreme, "crossing": ask_crossing, "needed": ask_needed}


def run(count: int, seed: int, points: int, drawn: Callable[[int, int], cases.Case]) -> tuple[Counter[str], list[str]]:
    tally: Counter[str] = Counter()
    wrong: list[str] = []
    cases.POINTS = points
    number = 0
    while sum(tally.values()) < count:
        case = drawn(seed, number)
        number += 1
        quantity, kind = case.rng.choice(tuple(QUANTITIES)), case.rng.choice(("extreme", "extreme", "crossing", "needed", "elasticity"))
        one = cases.symbol_of(case, cases.REAL if kind == "elasticity" else cases.REAL + cases.WHOLE, "t_step")
        if one is None:
            continue
        try:
            if kind == "elasticity":
                said = ask_elasticity(case, one, quantity)
            else:
                scanned = cases.values_of(one, *cases.some_range(one))
                numbers = [cases.number(one, quantity, x) for x in scanned]
                said = ASKS[kind](case, one, quantity, scanned, numbers)
        except InputError as error:
            tally[f"{kind}: refused"] += 1
            print(f"refused: {error} ({case.said}, {one.name})", file=sys.stderr)
            continue
        tally[kind] += 1
        if said:
            wrong.append(f"{kind} of {quantity} by {one.name}: {said} ({case.said})")
    return tally, wrong


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--count", type=int, default=200)
    reader.add_argument("--seed", type=int, default=1)
    reader.add_argument("--points", type=int, default=12)
    reader.add_argument("--any", action="store_true", help="of any model, with any options, on any system")
    asked, begun = reader.parse_args(), time.monotonic()
    tally, wrong = run(asked.count, asked.seed, asked.points, any_case if asked.any else cases.drawn)
    print("\n".join(f"{what:24} {times:6}" for what, times in tally.items()))
    print(f"{len(wrong)} wrong, {time.monotonic() - begun:.0f} s")
    print("\n".join(wrong[:20]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
