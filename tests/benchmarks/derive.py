"""How long a derivation takes, how many operations its result has, and that neither grows with layers, ranks or micro-batches.

`python tests/benchmarks/derive.py` prints CPU milliseconds, each as a ratio to the base case of the same run: first of
counts and memory alone, then with a system, so with the time of a step. An operation is an addition, a multiplication or
division, or a function's comparison or rounding, each definition written out once (`operations`).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass

from symsim.algebra.expr import Call, Expr
from symsim.algebra.formula import Derivation
from symsim.api.result import Result, derive
from symsim.inputs.architecture import Architecture
from symsim.inputs.layer_pattern import Segment
from symsim.inputs.models import load_model
from symsim.inputs.strategy import Strategy
from symsim.inputs.system import System
from symsim.inputs.systems import load_system

SYSTEM = "h100-sxm"
# with more than one replica of everything, so that further ones add no message that was not there
BASE = {"tp": 8, "pp": 4, "ep": 8, "dp": 16, "sp": True, "num_microbatches": 32}


def deep(model: Architecture, times: int) -> Architecture:
    return model.model_copy(update={"layers": tuple(Segment(repeat=s.repeat * times, kinds=s.kinds) for s in model.layers)})


def operations(expression: Expr) -> int:
    """Additions between terms, multiplications and divisions inside them, and one for each further argument of max and min
    or for a rounding."""
    count = max(0, len(expression.terms) - 1)
    for monomial, coefficient in expression.terms.items():
        factors = sum(abs(power) for _, power in monomial)
        count += max(0, factors - 1) + (abs(coefficient) != 1 and factors > 0)
        count += sum(_of_call(atom) for atom, _ in monomial if isinstance(atom, Call))
    return count


def _of_call(call: Call) -> int:
    own = {"sum": 0, "max": len(call.arguments) - 1, "min": len(call.arguments) - 1}.get(call.function, 1)
    return own + sum(operations(argument) for argument in call.arguments)


def standing_on(book: Derivation, names: Iterable[str]) -> int:
    """Operations in the named definitions and in everything that they stand on."""
    needed = set(names)
    for definition in reversed(list(book.definitions.values())):
        if definition.symbol in needed:
            needed |= definition.expr.symbols()
    return sum(operations(d.expr) for name, d in book.definitions.items() if name in needed)


@dataclass(frozen=True)
class Size:
    """Definitions, and operations in all of them, in those that seconds stand on, and in those that the peak of memory
    stands on (definitions that both need count in both)."""

    definitions: int
    operations: int
    of_time: int
    of_memory: int


def size(book: Derivation) -> Size:
    seconds = [name for name, d in book.definitions.items() if dict(d.unit.powers).get("second") or d.key.scope == "step"]
    peak = [name for name in book.definitions if name.startswith(("M_stage_", "H_stage_"))]
    every = sum(operations(d.expr) for d in book.definitions.values())
    return Size(len(book.definitions), every, standing_on(book, seconds), standing_on(book, peak))


def milliseconds(model: Architecture, strategy: Strategy, system: System | None, repeats: int = 15) -> tuple[float, float, Result]:
    """Least CPU time of several derivations, and of evaluating each: every stage, and the step."""
    to_derive = to_evaluate = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        result = derive(model, strategy, system=system)
        derived = time.process_time()
        evaluated(result)
        to_derive, to_evaluate = min(to_derive, derived - start), min(to_evaluate, time.process_time() - derived)
    return to_derive * 1000, to_evaluate * 1000, result


def evaluated(result: Result) -> None:
    """Numbers of everything: the model, every stage, and the step."""
    for stage in result.stages:
        result.stage_numbers(stage)
    _ = result.step_numbers


def help_seconds() -> float:
    """CPU seconds of `symsim --help` in a process of its own, Python's start-up included."""
    code = (
        "import resource, subprocess, sys; subprocess.run([sys.executable, '-c', 'import sys; from symsim.api.cli import main; main([\"--help\"])'],"
        " stdout=subprocess.DEVNULL); u = resource.getrusage(resource.RUSAGE_CHILDREN); print(u.ru_utime + u.ru_stime)"
    )
    return min(float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) for _ in range(5))


def cases() -> list[tuple[str, Architecture, Strategy]]:
    """The base case, and one each with more layers, stages, ranks and micro-batches."""
    model = load_model("deepseek-v3").architecture
    return [
        ("tp=8 pp=4 ep=8 dp=16 m=32", model, Strategy(**BASE)),
        ("layers x 16 (976)", deep(model, 16), Strategy(**BASE)),
        ("pp x 4 (16 stages)", model, Strategy(**BASE | {"pp": 16})),
        ("ranks x 64 (dp=1024)", model, Strategy(**BASE | {"dp": 1024})),
        ("micro-batches x 32 (1024)", model, Strategy(**BASE | {"num_microbatches": 1024})),
    ]


def main() -> None:
    machine = load_system(SYSTEM)
    for title, system in (("counts and memory", None), (f"with the time of a step on {SYSTEM}", machine)):
        print(f"deepseek-v3, {title}\n{'':28}{'derive':>8}{'':>7}{'evaluate':>9}{'':>7}{'defini-':>9}{'operations: of':>21}{'of':>8}")
        print(f"{'':28}{'ms':>8}{'ratio':>7}{'ms':>9}{'ratio':>7}{'tions':>9}{'all':>7}{'time':>14}{'memory':>8}")
        base: tuple[float, float] | None = None
        for name, architecture, strategy in cases():
            to_derive, to_evaluate, result = milliseconds(architecture, strategy, system)
            base = base or (to_derive, to_evaluate)
            of = size(result.derivation)
            print(
                f"{name:28}{to_derive:8.1f}{to_derive / base[0]:7.2f}{to_evaluate:9.1f}{to_evaluate / base[1]:7.2f}"
                f"{of.definitions:9}{of.operations:7}{of.of_time if system else '-':>14}{of.of_memory:8}"
            )
        print()
    print(f"symsim --help: {help_seconds():.3f} CPU seconds")


if __name__ == "__main__":
    main()
