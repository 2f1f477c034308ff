"""Drawn configurations: does every command say the same of one?

    python tests/draws/commands.py --count 100 --seed 1

What `symsim eval` says of a step, of its cost and of the peak stands beside what says it too: `run`, `sweep` over one value, both sides of a
`diff` with itself, `ask` for a table of one row, and the kernel that `compile` writes. Parts of a difference add up. Exit code 1 where two differ.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import in_process
import same_drawn

ROUNDING = 1e-12
# quantities that eval's object has under the same dotted name
NAMES = (
    *("time.step", "time.bubble", "time.compute", "time.optimizer", "memory.peak", "mfu", "hfu", "tokens_per_second"),
    *("cost_per_trillion_tokens", "energy_per_trillion_tokens"),
)


@dataclass
class Tally:
    """How often each command was held against eval, and where it said something else."""

    compared: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def see(self, command: str, found: Mapping[str, float], wanted: Mapping[str, float], where: str) -> None:
        self.compared[command] += 1
        for name, number in wanted.items():
            # eval rounds bytes up to whole ones
            own = found.get(name, math.nan)
            own = math.ceil(own) if name.startswith("memory.") and own == own else own
            if not math.isclose(own, number, rel_tol=ROUNDING):
                self.wrong.append(f"{command}: {name} is {found.get(name)} and not {number} ({where})")


def numbers(said: Mapping[str, Any]) -> dict[str, float]:
    """Quantities of eval's object by name: those that this system has."""
    found: dict[str, float] = {}
    for name in NAMES:
        part: Any = said
        for key in name.split("."):
            part = part.get(key) if isinstance(part, Mapping) else None
        found |= {} if part is None else {name: part}
    return found


def told(*arguments: str) -> Any:
    """What a command prints as JSON. ValueError where it ends otherwise."""
    ended = in_process.run(*arguments, "--json")
    if ended.returncode:
        raise ValueError(f"symsim {' '.join(arguments)} ends with {ended.returncode}: {ended.stderr}")
    return json.loads(ended.stdout)


def check(arguments: list[str], tally: Tally) -> bool:
    """Hold all commands against one evaluation; False where it needs no time or is refused."""
    model, given = arguments[1], [text for text in arguments[2:] if text != "--json"]
    ended = in_process.run("eval", model, *given, "--json")
    if ended.returncode or "-y" not in given:
        return False
    wanted, where = numbers(json.loads(ended.stdout)), " ".join([model, *given])
    at = given.index("-s") + 1
    options = dict(text.split("=", 1) for text in given[at].split(","))
    length = options.pop("seq_length", "4096")
    shorter = [*given[:at], ",".join(f"{name}={value}" for name, value in options.items()), *given[at + 1 :]]

    tally.see("run", numbers(told("run", model, *given, "--steps", "7")), wanted, where)
    (row,) = told("sweep", model, *shorter, "--axis", f"seq_length={length}", "--columns", ",".join(wanted))
    tally.see("sweep", row, wanted, where)
    ((answer,),) = (question["rows"] for question in told("ask", model, *given, f"{', '.join(wanted)} over s={length}"))
    tally.see("ask", dict(zip(wanted, answer["numbers"], strict=True)), wanted, where)
    beside = told("diff", model, "-s", given[at], *given)
    for side in ("one", "other"):
        ends = {"time.step": beside["time"][-1][side], "memory.peak": beside["memory"][-1][side]}
        tally.see("diff", ends, {name: wanted[name] for name in ends}, where)
        sums = {part: math.fsum(r[side] for r in beside[part][:-1]) for part in ("time", "memory")}
        tally.see("parts of diff", sums, {part: beside[part][-1][side] for part in sums}, where)
    module: dict[str, Any] = {}
    exec(in_process.run("compile", model, *given).stdout, module)
    kernel = {name: float(value) for name, value in module["kernel"]().items() if name in wanted}
    tally.see("compile", kernel, wanted, where)
    return True


def run(count: int, seed: int) -> Tally:
    """Draws until so many have been compared."""
    tally, number, done = Tally(), 0, 0
    while done < count:
        done += check(same_drawn.case(seed, number), tally)
        number += 1
    return tally


def lines(tally: Tally, seconds: float) -> Iterator[str]:
    for command, times in tally.compared.items():
        wrong = sum(text.startswith(f"{command}:") for text in tally.wrong)
        yield f"{command:20} {times:6}  {wrong or 'none'} wrong"
    yield f"{seconds:.0f} s"
    yield from tally.wrong[:20]


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--count", type=int, default=100)
    reader.add_argument("--seed", type=int, default=1)
    asked, begun = reader.parse_args(), time.monotonic()
    tally = run(asked.count, asked.seed)
    print("\n".join(lines(tally, time.monotonic() - begun)))
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
