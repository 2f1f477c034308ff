"""Single facts broken one after the other: does each turn a test red?

    python tests/draws/mutations.py                  all of mutations_facts.py and mutations_costs.py
    python tests/draws/mutations.py --only memory    those whose file, fact or tests have this word
    python tests/draws/mutations.py --audit          those of mutations_claims.py, each held by a published claim in place of tests
    python tests/draws/mutations.py --find           the others, by the whole audit: claims for the table

Each fact is a piece of text that stands once in the tree: a row of the table of operations, a placement, a transposition, a
message, a moment of memory, a makespan. In a copy of the tree, never in place, the text is changed, only the tests that are named
with it run, and the copy is mended again. They run as a clone that stands alone runs them, without ../shared. `red`: a test fails.
`NOT`: all pass without the fact. `broken`: pytest ran no test to its end, so the change is no fact but an error. Before any of it the
named tests must pass as the tree stands. Exit code 1 unless every one is red.

With --audit the claim, comparison or table that is named with the fact must turn red, alone; with --find the line names all that do.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import mutations_costs
import mutations_facts
from mutations_claims import CLAIMS
from mutations_facts import Fact

ROOT = Path(__file__).parents[2]
COPIED = ("symsim", "tests", "models", "derivations", "docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "pyproject.toml")
FACTS = (*mutations_facts.FACTS, *mutations_costs.FACTS)
SHOWN = 6
FAILED = 1  # pytest's exit code


def copied(tree: Path, to: Path) -> Path:
    """What tests read of a tree."""
    for name in COPIED:
        if (tree / name).is_dir():
            shutil.copytree(tree / name, to / name, ignore=shutil.ignore_patterns("__pycache__", "img"))
        elif (tree / name).exists():
            shutil.copy(tree / name, to / name)
    return to


def ran(tree: Path, tests: Sequence[str]) -> tuple[int, str]:
    """pytest's exit code for some tests of a tree, up to the first that fails, and what it printed."""
    environment = os.environ | {
        "PYTHONPATH": str(tree),
        "PYTHONDONTWRITEBYTECODE": "1",  # bytecode is not read anew when a file changes twice in a second
        "SYMSIM_CACHE": str(tree / "cache"),
        "SYMSIM_SHARED": str(tree / "none"),
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "", *(f"tests/{t}" for t in tests)]
    made = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    return made.returncode, made.stdout + made.stderr


def broken(tree: Path, fact: Fact) -> str:
    """What becomes of the tests of a fact without it: red, NOT or broken."""
    path = tree / "symsim" / fact.file
    stands = path.read_text()
    if stands.count(fact.text) != 1:
        raise SystemExit(f"symsim/{fact.file} has this text {stands.count(fact.text)} times, not once: {fact.text}")
    path.write_text(stands.replace(fact.text, fact.changed))
    try:
        code, _ = ran(tree, fact.tests)
    finally:
        path.write_text(stands)
    return {0: "NOT", FAILED: "red"}.get(code, "broken")


def outcomes(tree: Path, facts: Sequence[Fact]) -> Iterator[tuple[Fact, str, float]]:
    """Each fact, what became of its tests, and in how many seconds; SystemExit where they fail as the tree stands."""
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(tree, Path(folder))
        code, said = ran(copy, sorted({test for fact in facts for test in fact.tests}))
        if code:
            raise SystemExit(f"{said}\nthe tests fail before any fact is broken")
        for fact in facts:
            start = time.monotonic()
            yield fact, broken(copy, fact), time.monotonic() - start


def audited(tree: Path, names: Sequence[str] = ()) -> list[str] | None:
    """What of `symsim audit`, or of these of its ids, is not as approved in a tree, and the claims that do not read; None where it does not
    run to its end."""
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "SYMSIM_CACHE": str(tree / "cache")}
    made = subprocess.run([sys.executable, "-m", "symsim", "audit", *names, "--json"], cwd=tree, env=environment, capture_output=True, text=True)
    if not made.stdout:
        return None
    parts = json.loads(made.stdout)
    return [row["id"] for key in ("results", "comparisons", "tables") for row in parts[key] if not row["passes"]] + made.stderr.splitlines()


def red_claims(tree: Path, facts: Sequence[Fact], claims: Mapping[tuple[str, str], str]) -> Iterator[tuple[Fact, list[str] | None]]:
    """Each fact, and what turns red without it: of the claim that `claims` has for it, else of the whole audit. SystemExit where something
    is red as the tree stands."""
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(tree, Path(folder))
        named = {fact: [claims[key]] if (key := (fact.file, fact.says)) in claims else [] for fact in facts}
        if stands := audited(copy, sorted({name for names in named.values() for name in names}) if all(named.values()) else ()):
            raise SystemExit(f"red before any fact is broken: {', '.join(stands)}")
        for fact in facts:
            path = copy / "symsim" / fact.file
            text = path.read_text()
            path.write_text(text.replace(fact.text, fact.changed))
            try:
                yield fact, audited(copy, named[fact])
            finally:
                path.write_text(text)


def audit_line(fact: Fact, red: list[str] | None) -> str:
    fate = "broken" if red is None else "red" if red else "NOT"
    more = f" and {len(red) - SHOWN} more" if red and len(red) > SHOWN else ""
    return f"{fate:7}{fact.file:34} {fact.says:72} {', '.join((red or [])[:SHOWN])}{more}"


def held_by_claims(tree: Path, facts: Sequence[Fact], claims: Mapping[tuple[str, str], str]) -> int:
    held = 0
    for fact, red in red_claims(tree, facts, claims):
        print(audit_line(fact, red), flush=True)
        held += bool(red)
    print(f"{len(facts)} facts broken: the audit turns red without {held}")
    return 0 if held == len(facts) else 1


def line(fact: Fact, fate: str, seconds: float) -> str:
    return f"{fate:7}{seconds:5.1f} s  {fact.file:34} {fact.says:72} {', '.join(t.split('::')[-1] for t in fact.tests)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tree", type=Path, default=ROOT, help="the tree that is copied (this one)")
    parser.add_argument("--only", default="", help="facts whose file, words or tests have this in them")
    parser.add_argument("--audit", action="store_true", help="the claim of mutations_claims.py is what must turn red")
    parser.add_argument("--find", action="store_true", help="facts that have no claim there, by the whole audit")
    given = parser.parse_args()
    chosen = [f for f in FACTS if given.only in " ".join((f.file, f.says, *f.tests))]
    if not chosen:
        parser.error(f"no fact has '{given.only}' in its file, its words or its tests")
    if given.audit or given.find:
        return held_by_claims(given.tree, [f for f in chosen if ((f.file, f.says) in CLAIMS) is given.audit], CLAIMS)
    fates = []
    for fact, fate, seconds in outcomes(given.tree, chosen):
        print(line(fact, fate, seconds), flush=True)
        fates.append(fate)
    print(f"{len(fates)} facts broken: {', '.join(f'{fates.count(f)} {f}' for f in ('red', 'NOT', 'broken'))}")
    return 0 if set(fates) == {"red"} else 1


if __name__ == "__main__":
    sys.exit(main())
