"""Two source trees evaluate the same drawn configurations: is everything that they say the same?

    python tests/draws/same.py --before DIR --after DIR                 3,000 configurations of every model
    python tests/draws/same.py --before DIR --after DIR --count 300 --seed 7 --jobs 2

Each configuration is a model of models/, a drawn strategy, system, assumptions and settings, evaluated as `symsim eval --json`
does, in one process of each tree; one in twenty by the command itself, with its notes on standard error. Keys, texts, whole
numbers, refusals and their sentences must be the same; floats must be within a relative --tolerance (0: the same bits).
A traceback is a difference in any case. Exit code 1 when there is one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

import same_drawn

WHOLE_EVERY = 20
_REWRITTEN = "the same object, written otherwise"
_NEWER = re.compile(r"(strategy|assumptions)\.\w+$")
Said = tuple[int, str, str, float]
Pair = tuple[list[str], Said, Said]


def asked(count: int, seed: int, only: str | None = None) -> list[tuple[list[str], bool]]:
    """The arguments of every evaluation, and whether the command itself runs."""
    return [(same_drawn.case(seed, number, only), number % WHOLE_EVERY == 0) for number in range(count)]


class Tree:
    """A process of a source tree that answers line by line."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        environment = {**os.environ, "PYTHONPATH": str(tree.resolve())}
        command = [sys.executable, str(Path(__file__).with_name("same_run.py")), str(tree)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def ask(self, case: tuple[list[str], bool]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(case) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise SystemExit(f"{self.tree}: its process has ended") from None

    def answer(self) -> Said:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.tree}: its process has ended with code {self.process.wait()}")
        status, text, complaint, seconds = json.loads(line)
        return status, text, complaint, seconds

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def pairs(before: Path, after: Path, cases: Sequence[tuple[list[str], bool]]) -> list[Pair]:
    """What both trees say to every case; answers that are the same come back without their text."""
    trees, found = (Tree(before), Tree(after)), []
    try:
        for case in cases:
            for tree in trees:
                tree.ask(case)
            old, new = (tree.answer() for tree in trees)
            if old[:3] == new[:3]:
                old, new = (old[0], "", old[2], old[3]), (new[0], "", new[2], new[3])
            found.append((case[0], old, new))
    finally:
        for tree in trees:
            tree.close()
    return found


# --- comparing -----------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What became of the configurations of a model."""

    tried: int = 0
    answered: int = 0
    refused: int = 0
    different: int = 0
    largest: float = 0.0
    seconds: list[float] = field(default_factory=lambda: [0.0, 0.0])


def differences(old: Any, new: Any, where: str = "") -> Iterator[tuple[str, str, float]]:
    """Where two objects differ, what is different, and the relative difference of two floats (infinite for all else)."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(k for k in new if k not in old)]:
            place = f"{where}.{key}" if where else key
            if key not in old or key not in new:
                yield place, "only before" if key in old else "only after", math.inf
            else:
                yield from differences(old[key], new[key], place)
        if old.keys() == new.keys() and list(old) != list(new):
            yield where, "the same keys in another order", math.inf
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (a, b) in enumerate(zip(old, new)):
            yield from differences(a, b, f"{where}[{number}]")
    elif isinstance(old, float) and isinstance(new, float):
        if old != new:
            yield where, f"{old!r} before, {new!r} after", abs(new - old) / max(abs(old), abs(new))
    elif type(old) is not type(new) or old != new:
        yield where, f"{_short(old)} before, {_short(new)} after", math.inf


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 150 else text[:147] + "..."


def compared(old: Said, new: Said) -> list[tuple[str, str, float]]:
    """What differs between two answers to one case."""
    if -1 in (old[0], new[0]):
        return [("a traceback", f"{_told(old)} before, {_told(new)} after", math.inf)]
    if old[0] != new[0]:
        return [("fate", f"{_told(old)} before, {_told(new)} after", math.inf)]
    found = [("message", f"{_short(old[2])} before, {_short(new[2])} after", math.inf)] if old[2] != new[2] else []
    if old[1] != new[1]:
        found += list(differences(json.loads(old[1]), json.loads(new[1]))) or [("text", _REWRITTEN, math.inf)]
    return found


def _told(said: Said) -> str:
    return "an answer" if said[0] == 0 else f"status {said[0]} ({said[2].strip()[:200]})"


def table(found: Sequence[Pair], tolerance: float, show: int, newer: bool = False) -> tuple[str, int]:
    """The first differences with their command lines, a line for each model, and how many configurations differ. newer: options and
    assumptions that the later tree alone has are no difference."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    shown: list[str] = []
    for arguments, old, new in found:
        tally = tallies[arguments[1]]
        tally.tried += 1
        tally.answered += old[0] == 0
        tally.refused += old[0] == 2
        tally.seconds = [tally.seconds[0] + old[3], tally.seconds[1] + new[3]]
        all_of_it = [one for one in compared(old, new) if not (newer and _NEWER.match(one[0]) and one[1] == "only after")]
        tally.largest = max([tally.largest, *(size for *_, size in all_of_it)])
        beyond = [one for one in all_of_it if one[2] > tolerance]
        if beyond:
            tally.different += 1
            shown.append("\n".join([f"symsim {shlex.join(arguments)}", *(f"  {place}: {what}" for place, what, _ in beyond[:6])]))
    whole = Tally(*(sum(getattr(t, n) for t in tallies.values()) for n in ("tried", "answered", "refused", "different")))
    whole.largest = max((t.largest for t in tallies.values()), default=0.0)
    whole.seconds = [sum(t.seconds[k] for t in tallies.values()) for k in (0, 1)]
    head = f"{'model':28} {'tried':>6} {'answered':>9} {'refused':>8} {'different':>10} {'largest difference':>20} {'CPU s before':>13} {'after':>7}"
    lines = [_line(name, tally) for name, tally in [*sorted(tallies.items()), ("all", whole)]]
    return "\n".join([*shown[:show], *([""] if shown else []), head, *lines]), whole.different


def _line(name: str, tally: Tally) -> str:
    largest = "other than floats" if tally.largest == math.inf else f"{tally.largest:.3g}"
    counts = f"{tally.tried:6} {tally.answered:9} {tally.refused:8} {tally.different:10}"
    return f"{name:28} {counts} {largest:>20} {tally.seconds[0]:13.1f} {tally.seconds[1]:7.1f}"


def run(before: Path, after: Path, cases: Sequence[tuple[list[str], bool]], jobs: int = 1) -> list[Pair]:
    """All cases, by so many pairs of processes."""
    with ThreadPoolExecutor(jobs) as pool:
        slices = [pool.submit(pairs, before, after, cases[k::jobs]) for k in range(jobs)]
        return [pair for one in slices for pair in one.result()]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", type=Path, required=True, help="a source tree")
    parser.add_argument("--after", type=Path, default=Path(__file__).parents[2], help="another; this one unless given")
    parser.add_argument("--count", type=int, default=3000, help="configurations; each model in turn (3000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="pairs of processes, each of which has one of both trees (1)")
    parser.add_argument("--tolerance", type=float, default=0.0, help="relative difference that floats may have (0)")
    parser.add_argument("--model", help="only this one")
    parser.add_argument("--newer", action="store_true", help="options and assumptions that only the second tree has are no difference")
    parser.add_argument("--show", type=int, default=10, help="differences to print (10)")
    given = parser.parse_args()
    for tree in (given.before, given.after):
        if not (tree / "symsim" / "__init__.py").is_file():
            parser.error(f"{tree} is no source tree: it has no symsim/__init__.py")
    found = run(given.before, given.after, asked(given.count, given.seed, given.model), given.jobs)
    text, different = table(found, given.tolerance, given.show, given.newer)
    print(text)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
