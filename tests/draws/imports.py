"""Mutated job descriptions of other systems: none may end in a traceback, a hang or half a directory, and nothing in one is run.

    python tests/draws/imports.py simumax --count 100000       so many cases of a kind, a table of what became of them
    python tests/draws/imports.py megatron --number 1234       one case again, with what it is

A case is a job of tests/imported/KIND with one of its files, or one of its arguments (`arguments.txt`, a line each), changed. What
is answered is read again: `symsim eval` of the directory ends in 0 or 2. Exit code 1 when there is a fault.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import inputs_bad
from inputs_run import Case, Outcome, place_of_work, run

JOBS = Path(__file__).parent.parent / "imported"
KINDS = tuple(sorted(p.name for p in JOBS.iterdir() if p.is_dir()))
SEED, FIRST = 11, 3
# what a shell, YAML, Python or a template would act on
ACTIVE = (
    "$(touch RAN)", "`touch RAN`", "; touch RAN", "| touch RAN", "&& touch RAN", "> RAN", "${X:=$(touch RAN)}", "$((2**99999))", "$X", "${X}", "${X",
    "*", "'", '"', "\\", "!!python/object/apply:os.system ['touch RAN']", "&a [*a]", "{{ 7*7 }}",
    "__import__('os').system('touch RAN')", "<(touch RAN)",
)  # fmt: skip
_EVALUATED = 32  # of so many answered jobs one is evaluated


@cache
def jobs(kind: str) -> tuple[dict[str, str], ...]:
    """The files of every job of a kind, by name."""
    return tuple({p.name: p.read_text() for p in sorted(job.iterdir())} for job in sorted((JOBS / kind).iterdir()))


def case(kind: str, number: int, seed: int = SEED) -> Case:
    """The mutated job of a number."""
    rng = random.Random(f"{kind} {seed} {number}")
    files = dict(rng.choice(jobs(kind)))
    arguments = files.pop("arguments.txt", "").splitlines()
    changed: dict[str, bytes | None] = {name: text.encode() for name, text in files.items()}
    named = arguments or sorted(files)
    if arguments and (not files or rng.random() < 0.5):
        at = rng.randrange(len(named))
        named[at] = (inputs_bad._text(rng, named[at]) if rng.random() < 0.7 else named[at] + rng.choice(ACTIVE)).replace("\0", "")
    else:
        name = rng.choice(sorted(files))
        changed[name] = _changed(rng, name, files[name])
    kept = ("--lenient",) if rng.random() < 0.3 else ()
    return Case(("import", kind, *kept, "-o", "out", "--", *named), changed, directory="out")


def _changed(rng: random.Random, name: str, text: str) -> bytes | None:
    if rng.random() < 0.25:
        at = rng.randrange(len(text) + 1)
        return (text[:at] + rng.choice(ACTIVE) + text[at:]).encode()
    data = json.loads(text) if name.endswith(".json") else None
    return inputs_bad._file(rng, text, data, as_json=data is not None)


def outcome(kind: str, number: int, place: Path, seed: int = SEED) -> Outcome:
    """What became of a case; of some that were answered, what their evaluation came to."""
    asked = case(kind, number, seed)
    found = run(asked, place)
    if found.fault or found.status or number % _EVALUATED:
        return found
    return run(Case(("import", *asked.arguments[1:]), asked.files, directory="out"), place, ("eval", "out", "--json"))


def faults_said(faults: Sequence[tuple[int, str]]) -> int:
    """Print every fault with the first numbers of its cases; the exit code."""
    for fault, times in Counter(fault for _, fault in faults).most_common():
        print(f"{times} of: {fault!r}, numbers {[n for n, f in faults if f == fault][:FIRST]}")
    return 1 if faults else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--number", type=int)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args(arguments)
    faults: list[tuple[int, str]] = []
    with place_of_work() as place:
        if given.number is not None:
            print(case(given.kind, given.number, given.seed))
            print(outcome(given.kind, given.number, place, given.seed))
            return 0
        tally: Counter[str] = Counter()
        longest: tuple[float, Any] = (0.0, None)
        for number in range(given.first, given.first + given.count):
            found = outcome(given.kind, number, place, given.seed)
            tally["fault" if found.fault else "refused" if found.status else "answered"] += 1
            longest = max(longest, (found.seconds, number))
            if found.fault:
                faults.append((number, found.fault))
    became = ", ".join(f"{n} {what}" for what, n in sorted(tally.items()))
    print(f"{given.kind}: {given.count} cases, {became}; longest {longest[0]:.1f} s ({longest[1]})")
    return faults_said(faults)


if __name__ == "__main__":
    sys.exit(main())
