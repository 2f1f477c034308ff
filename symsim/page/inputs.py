"""What a reader of a page can move: the symbols that its formulas stand on, and the values of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from symsim.algebra.expr import Number
from symsim.algebra.typeset import entry
from symsim.algebra.vocabulary import domain
from symsim.evaluation.quantities import QUANTITIES
from symsim.inputs.system import System
from symsim.ir.block import NARROW
from symsim.page.variants import Choice
from symsim.program.unrolled import DEGREES, Argument

Group = Literal["sizes", "machine", "coefficients"]
_MICRO_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_SEQUENCES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
# sizes of a micro-batch, which decide what is kept for backward
SIZES = ("b", "s", "u")
_RANKS_OF_A_UNIT = (2, 4, 8, 16, 32, 36, 64, 72, 128, 144, 256, 512, 576)
# numbers of a machine that its data sheet or its bill tells; all others were measured or estimated
_OF_SHEETS = ("Phi_", "B_", "R_", "W_chip", "c_chip", "n_sm")
# a unit that people say, and how many of the symbol's own it is
_SAID = {"byte/s": ("GB/s", 1e9), "FLOP/s": ("TFLOP/s", 1e12), "USD/s": ("USD/h", 1 / 3600), "s": ("\u00b5s", 1e-6), "1": ("", 1.0)}


@dataclass(frozen=True)
class Input:
    """base: its value in the report. values: whole numbers that it may take, in rising order; none where it may be any number from `least` up, and
    0 only where `zero`. unit: what a reader sees, `scale` of the symbol's own. share: it cannot exceed 1; within: nor the input of this name.
    labels: what each value is called, where not by its number."""

    name: str
    group: Group
    base: Number
    meaning: str
    latex: str
    values: tuple[int, ...] = ()
    unit: str = ""
    scale: float = 1.0
    share: bool = False
    labels: tuple[str, ...] = ()
    least: float = 0.0
    zero: bool = False
    within: str = ""


def inputs_of(arguments: Iterable[Argument], system: System | None) -> list[Input]:
    """One for every argument, in their order, and the memory of an accelerator, which is compared with what they give."""
    found = [_of_peak(_input(a), system) for a in arguments]
    if system is not None:
        room = int(system.accelerator.memory.value)
        found.append(Input("memory", "machine", float(room), QUANTITIES["memory.capacity"].meaning, r"M", (), "GiB", 2.0**30))
    return found


def of_choice(choice: Choice) -> Input:
    """Which of several derivations it is, by its place among them."""
    labels = tuple(said for said, _ in choice.values)
    return Input(choice.name, "sizes", 0, choice.meaning, choice.latex, tuple(range(len(labels))), labels=labels)


def _of_peak(one: Input, system: System | None) -> Input:
    """A narrow rate as `--set` takes it: the data sheet's, of which formulas have the share that products reach."""
    kind = one.name.removeprefix("Phi_")
    peak = getattr(system.accelerator.peak, kind) if system is not None and kind in NARROW else None
    return one if peak is None else replace(one, scale=one.scale * float(one.base) / float(peak.value))


def _input(argument: Argument) -> Input:
    name, base = argument.name, argument.default
    latex = entry(name).latex
    values = tuple(_values(name, base)) if isinstance(base, int) else ()
    if values:
        return Input(name, "machine" if name.startswith(_OF_SHEETS) else "sizes", base, argument.meaning, latex, values)
    unit, scale = _SAID.get(argument.unit, (argument.unit, 1.0))
    group: Group = "sizes" if name == "lam" else "machine" if name.startswith(_OF_SHEETS) else "coefficients"
    share = domain(name) == "share" or argument.meaning.startswith("share of") and base <= 1
    if name == "lam":
        # the busiest of ep ranks gets the tokens of all of them at most
        return Input(name, group, base, argument.meaning, latex, least=1.0, within="ep")
    # nothing can take no time, and a coefficient be 0; a rate cannot, nor a share that is reached
    zero = argument.unit == "s" or argument.unit == "1" and not (share and base)
    return Input(name, group, base, argument.meaning, latex, (), unit, scale, share, zero=zero)


def _values(name: str, base: int) -> Iterable[int]:
    """Whole numbers around the base."""
    if name in DEGREES:
        # of a degree of 1 there are no messages in the formulas
        return sorted(n for n in {base, *_doublings(base, 3)} if n > 1)
    if name == "m":
        return sorted({base, *_doublings(base, 3), *_MICRO_BATCHES})
    if name == "b":
        return sorted({base, *_SEQUENCES})
    if name in ("s", "u"):
        return sorted(n for n in {base, *_doublings(base, 6)} if n >= 128 or n == base)
    if name.startswith("R_"):
        return sorted({base, *_RANKS_OF_A_UNIT})
    if name == "n_sm":
        return sorted({base, *range(2, 2 * base + 1, 2)})
    # a rate of the machine's, or a count
    return ()


def _doublings(base: int, times: int) -> Iterator[int]:
    """Twice, four times, ... as much, and the halves as long as they are whole."""
    for k in range(1, times + 1):
        yield base * 2**k
        if base % 2**k == 0:
            yield base // 2**k
