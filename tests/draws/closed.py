"""Drawn configurations: are the formulas of the step and of the peak closed, equal to `eval`, and differentiable?

    python tests/draws/closed.py --count 200 --seed 1
    python tests/draws/closed.py --count 200 --seed 1 --kinds     # a kind of layer is called head, e, stage, ...

Of `t_step` and `M_peak` every free symbol is a size, a degree, or a number of the system or the data; the formula written out over
classes of stages, and its one closed form, give the number that `eval` gives, to 1e-12; and the elasticity by every real symbol is
that of central differences, to 6 digits, where no maximum changes hands in between. Exit code 1 where one is not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import same_drawn

import symsim
from symsim.algebra.formula import Formula
from symsim.algebra.vocabulary import domain
from symsim.api.result import Result
from symsim.errors import InputError
from symsim.inputs.architecture import Architecture

STEP = 1e-5
# words that names of definitions and symbols are made of, and such names
_JOINED = "x_ckpt x_i x_stage tp_stage t_stage kind__head L_dense_i".split()
RESERVED = (*"head embedding mtp e s i L m pp stage step tail slow sum max at first middle N".split(), *_JOINED)
_AGREE, _SIX = 1e-12, 1e-6


@dataclass
class Tally:
    """What was compared, and what was wrong with it."""

    compared: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def see(self, what: str, right: bool, said: str) -> None:
        self.compared[what] += 1
        if not right:
            self.wrong.append(f"{what}: {said}")


def named_so(model: str, word: str) -> Architecture:
    """The model, whose first kind of layer goes by another name."""
    base = symsim.load_model(model)
    names = {kind: word if kind == base.kind_names()[0] else kind for kind in base.layer_kinds}
    layers = tuple(part.model_copy(update={"kinds": tuple(names[k] for k in part.kinds)}) for part in base.layers)
    return base.model_copy(update={"layers": layers, "layer_kinds": {names[k]: kind for k, kind in base.layer_kinds.items()}})


def derived(arguments: list[str], word: str = "") -> Result | None:
    """The derivation that the arguments of `symsim eval` ask for, the first kind of layer called so; None where they are refused."""
    options = list(zip(arguments[2::2], arguments[3::2]))
    settings = dict(value.split("=", 1) for option, value in options if option == "--set")
    assumed = {n.removeprefix("assume."): settings.pop(n) for n in list(settings) if n.startswith("assume.")}
    strategy, system = (next((v for o, v in options if o == option), None) for option in ("-s", "-y"))
    try:
        return symsim.derive(named_so(arguments[1], word) if word else arguments[1], strategy, assumed, settings, system)
    except InputError:
        return None


def check(result: Result, tally: Tally, where: str) -> None:
    for name in ("t_step", "M_peak"):
        if name not in result.derivation.definitions:
            continue
        formula, number = result.formula(name), float(result.step_numbers[name])
        if name == "M_peak":
            stages = [result.stage_numbers(stage)["M_stage_peak"] for stage in result.stages]
            tally.see(f"{name}: the largest of the stages", number == float(max(stages)), where)
        free = formula.symbols
        stage = {*result.stage_values(result.stages[0]), *result.derivation.definitions}
        opened = free & stage | free - result.values.keys()
        tally.see(f"{name}: no symbol open", not opened, f"{sorted(opened)} {where}")
        values = {n: result.values[n] for n in free}
        for what, found in (("written out", formula.value(values)), ("closed form", formula.expand().evaluate(values))):
            tally.see(f"{name}: {what} equals eval", abs(float(found) - number) <= _AGREE * number, f"{float(found)!r} for {number!r} {where}")
        for symbol in sorted(s for s in free if not domain(s).endswith("integer") and values[s]):
            _elasticity(formula, symbol, values, tally, f"{name} by {symbol} {where}")


def _elasticity(formula: Formula, symbol: str, values: dict, tally: Tally, where: str) -> None:
    below, here, above = (float(formula.value({**values, symbol: float(values[symbol]) * (1 + k * STEP)})) for k in (-1, 0, 1))
    if abs((above - here) - (here - below)) > 1e-3 * STEP * here * max(STEP, abs(above - below) / (2 * STEP * here)):
        tally.compared["elasticities: a branch changes here"] += 1
        return
    found, wanted = float(formula.elasticity(symbol, values)), (above - below) / (2 * STEP * here)
    tally.see("elasticities equal differences", abs(found - wanted) <= _SIX * max(abs(wanted), 1e-3), f"{found!r} for {wanted!r} {where}")


def _unmoved(result: Result, other: Result, tally: Tally, where: str) -> None:
    """The name of a kind changes no number of the step and the peak."""
    for name in ("t_step", "M_peak"):
        if name in result.derivation.definitions:
            here, there = result.step_numbers[name], other.step_numbers[name]
            tally.see(f"{name}: as under the kind's own name", abs(here - there) <= _AGREE * there, f"{here} for {there} {where}")


def run(count: int, seed: int, *, kinds: bool = False) -> Tally:
    tally, number = Tally(), 0
    while tally.compared["configurations"] < count:
        arguments = same_drawn.case(seed, number)
        number += 1
        word = RESERVED[tally.compared["configurations"] % len(RESERVED)] if kinds else ""
        result = derived(arguments[:-1], word)
        if result is not None:
            tally.compared["configurations"] += 1
            where = f"({' '.join(arguments)}{f', its first kind called {word}' if word else ''})"
            check(result, tally, where)
            own = derived(arguments[:-1]) if word else None
            if own is not None:
                _unmoved(result, own, tally, where)
    return tally


def lines(tally: Tally, seconds: float) -> Iterator[str]:
    for what, times in tally.compared.items():
        wrong = sum(w.startswith(what) for w in tally.wrong)
        yield f"{what:40} {times:6}  {wrong or 'none'} wrong"
    yield f"{seconds:.0f} s"
    yield from tally.wrong[:20]


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--count", type=int, default=200)
    reader.add_argument("--seed", type=int, default=1)
    reader.add_argument("--kinds", action="store_true", help="call a kind of layer by a word of other names")
    asked, begun = reader.parse_args(), time.monotonic()
    tally = run(asked.count, asked.seed, kinds=asked.kinds)
    print("\n".join(lines(tally, time.monotonic() - begun)))
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
