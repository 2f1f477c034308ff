"""Random questions about small configurations, and a dense scan that answers them by evaluation alone."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction

import symsim
from symsim.api.result import Result
from symsim.asking.moving import Moving, moving
from symsim.errors import InputError

MODELS = ("llama3-8b", "mixtral-8x7b", "gpt3-175b", "deepseek-v2", "gemma-2-9b")
STRATEGIES = (
    "tp=2,sp=true,pp=2,num_microbatches=8",
    "tp=4,pp=2,dp=2,num_microbatches=4,zero=1",
    "dp=8,global_batch_size=32,zero=3",
    "tp=2,pp=4,vpp=2,num_microbatches=8",
    "cp=2,tp=2,sp=true,num_microbatches=2,recompute=full",
    "ep=4,dp=4,num_microbatches=4",
)
SYSTEMS = ("h100-sxm", "a100-sxm-80", "b200-sxm")
REAL = ("B_1", "B_2", "B_hbm", "Phi_bf16", "eta_gemm", "eta_mem", "alpha_1", "lambda_1", "t_gemm", "t_mem")
WHOLE = ("s", "b", "m", "f", "h")
POINTS = 60


@dataclass(frozen=True)
class Case:
    """A result, and what was drawn beside it."""

    result: Result
    rng: random.Random
    said: str


def drawn(seed: int, number: int) -> Case:
    """The configuration of this number; those that cannot run are passed over."""
    rng = random.Random(f"asks {seed} {number}")
    while True:
        model, strategy, system = rng.choice(MODELS), rng.choice(STRATEGIES), rng.choice(SYSTEMS)
        try:
            result = symsim.derive(model, strategy, system=system)
            result.value("time.step")
        except InputError:
            continue
        return Case(result, rng, f"{model} -s {strategy} -y {system}")


def values_of(one: Moving, low: Fraction, high: Fraction) -> list[int | Fraction]:
    """Points over a range: of integers all that can run there, or a part of them; of real numbers evenly by their digits."""
    if not one.whole:
        ratio = float(high / low) ** (1 / POINTS)
        return [low, *(low * Fraction(ratio**k) for k in range(1, POINTS)), high]
    found = [v for v in range(int(low), int(high) + 1) if not one.refused(v)]
    return found[:: max(1, len(found) // POINTS)]


def number(one: Moving, name: str, x: int | Fraction) -> float:
    """A quantity with another value of the symbol, derived again as `--set` does."""
    return float(one.at(x).value(name))


def some_range(one: Moving) -> tuple[Fraction, Fraction]:
    """Where questions are asked: a few times the present value, either way."""
    if one.whole:
        now = int(one.now)
        return Fraction(max(1, now // 4)), Fraction(max(8, min(4 * now, now + 6000)))
    now = Fraction(repr(float(one.now)))
    return now / 4, min(now * 4, Fraction(1)) if one.name.startswith("eta") else now * 4


def ranged(one: Moving, low: Fraction, high: Fraction) -> str:
    """NAME=LOW:HIGH, with the unit of the symbol."""
    word, size = {"byte/s": ("GB/s", 10**9), "FLOP/s": ("TFLOP/s", 10**12), "s": ("s", 1)}.get(one.unit, ("", 1))
    ends = ":".join(str(int(v)) if one.whole else repr(float(v / size)) for v in (low, high))
    return f"{one.name}={ends} {word}".strip()


def symbol_of(case: Case, names: tuple[str, ...], subject: str) -> Moving | None:
    """A symbol that the subject stands on and that is not 0."""
    here = [n for n in names if n in case.result.formula(subject).symbols and case.result.values.get(n)]
    return moving(case.result, case.rng.choice(here)) if here else None
