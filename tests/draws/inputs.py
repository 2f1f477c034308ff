"""Mutated inputs and well-formed combinations of all that symsim takes: none may end in a traceback, a hang or half a file.

    python tests/draws/inputs.py                               200,000 mutated inputs and 20,000 combinations, a table of what became of them
    python tests/draws/inputs.py --part 3/20                   the third of twenty slices of them
    python tests/draws/inputs.py --only points --number 1234   one case again, with what it is

A case is drawn from the seed, its kind and its number, and run in this process. Refused: one line of at most 300 characters
that a terminal can show, exit code 2, no file. Answered: exit code 0, notes that are such lines, a whole file. Anything else,
and ten seconds of CPU, is a fault. Exit code 1 when there is one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import inputs_bad
import inputs_good
from inputs_run import Case, Outcome, place_of_work, run

SEED = 9
GOOD = "combinations"
FIRST = 3


def drawn(kind: str, seed: int, number: int) -> Case:
    return inputs_good.case(seed, number) if kind == GOOD else inputs_bad.case(kind, seed, number)


def counts(bad: int, good: int) -> dict[str, int]:
    """How many cases of each kind."""
    whole = sum(inputs_bad.SHARES.values())
    return {**{kind: bad * share // whole for kind, share in inputs_bad.SHARES.items()}, GOOD: good}


def outcomes(wanted: dict[str, range], seed: int, seconds: float = float("inf")) -> Iterator[tuple[str, int, Outcome]]:
    """The cases run, all kinds side by side, so that a run that ends after so many seconds has seen something of each."""
    ends = time.monotonic() + seconds
    order = sorted(((i + 0.5) / len(numbers), kind, number) for kind, numbers in wanted.items() for i, number in enumerate(numbers))
    with place_of_work() as place:
        for _, kind, number in order:
            if time.monotonic() > ends:
                return
            yield kind, number, run(drawn(kind, seed, number), place)


def table(found: Iterator[tuple[str, int, Outcome]]) -> tuple[str, int]:
    """A line for each kind, the first cases of each fault, and how many faults there are."""
    tried, answered, refused, faulty, seconds = (Counter[str]() for _ in range(5))
    longest: dict[str, tuple[float, int]] = {}
    faults: dict[tuple[str, str], list[tuple[int, Outcome]]] = defaultdict(list)
    for kind, number, outcome in found:
        tried[kind] += 1
        seconds[kind] += outcome.seconds  # type: ignore[assignment]
        longest[kind] = max(longest.get(kind, (0.0, 0)), (outcome.seconds, number))
        if outcome.fault:
            faulty[kind] += 1
            faults[kind, outcome.fault].append((number, outcome))
        else:
            (refused if outcome.status else answered)[kind] += 1
    rows = [("kind", "tried", "answered", "refused", "faults", "seconds", "longest")]
    rows += [
        (k, str(tried[k]), str(answered[k]), str(refused[k]), str(faulty[k]), f"{seconds[k]:.0f}", f"{longest[k][0]:.1f} s ({longest[k][1]})")
        for k in tried
    ]
    rows.append(("all", *(str(sum(c.values())) for c in (tried, answered, refused, faulty)), f"{sum(seconds.values()):.0f}", ""))
    text = "".join("  ".join(cell.ljust(w) for cell, w in zip(row, (14, 8, 9, 8, 7, 8, 8))).rstrip() + "\n" for row in rows)
    for (kind, fault), cases in sorted(faults.items(), key=lambda item: -len(item[1])):
        text += f"\n{len(cases)} of {kind}: {fault!r}\n    numbers {', '.join(str(n) for n, _ in cases[:FIRST])}: {cases[0][1].detail[:300]!r}\n"
    return text, sum(faulty.values())


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--bad", type=int, default=200_000, help="mutated inputs")
    reader.add_argument("--good", type=int, default=20_000, help="well-formed combinations")
    reader.add_argument("--seed", type=int, default=SEED)
    reader.add_argument("--part", default="1/1", metavar="K/N", help="the k-th of n slices of the numbers")
    reader.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    reader.add_argument("--only", metavar="KIND", choices=[*inputs_bad.KINDS, GOOD])
    reader.add_argument("--number", type=int, help="one case, shown")
    given = reader.parse_args()
    if given.number is not None:
        case = drawn(given.only, given.seed, given.number)
        print(case)
        with place_of_work() as place:
            print(run(case, place))
        return 0
    part, parts = map(int, given.part.split("/"))
    asked = {k: n for k, n in counts(given.bad, given.good).items() if given.only in (None, k)}
    began = time.perf_counter()
    text, faults = table(outcomes({k: range(n * (part - 1) // parts, n * part // parts) for k, n in asked.items()}, given.seed, given.seconds))
    print(f"seed {given.seed}, part {given.part}, {time.perf_counter() - began:.0f} s\n{text}", end="")
    return int(faults > 0)


if __name__ == "__main__":
    # what is printed of a case may hold what no terminal shows
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    raise SystemExit(main())
