"""What follows from the seconds of a step."""

from __future__ import annotations

from symsim.algebra.expr import symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key, of_step
from symsim.algebra.quantity import NONE, SECOND, Quantity
from symsim.cost.utilisation import utilisation
from symsim.inputs.system import System
from symsim.inputs.traced import once
from symsim.lowering.lowered import Lowered

HEADLINES = ("tokens_per_second", "mfu", "hfu", "cost_per_trillion_tokens", "energy_per_trillion_tokens")


@once
def headlines(book: Derivation, system: System, lowered: Lowered) -> None:
    """What people compare: tokens a second, utilisation, cost and energy."""

    def define(key: Key, quantity: Quantity, meaning: str, latex: str) -> None:
        book.define(key, quantity, meaning, unit=quantity.unit, latex=latex)

    replicas = symbol("m") * symbol("dp")
    tokens = Quantity(replicas * symbol("b") * symbol("s") / symbol("t_step"), NONE / SECOND)
    define(of_step("tokens_per_second"), tokens, "tokens of all ranks a second", r"\mathrm{tokens}/\mathrm{s}")
    utilisation(book, lowered)
    over_tokens = 10**12 / symbol("tokens_per_second") * symbol("world")
    if system.accelerator.price is not None:
        cost = Quantity(over_tokens * symbol("c_chip"))
        define(of_step("cost_per_trillion_tokens"), cost, "US dollars for 10^12 tokens", r"\mathrm{USD}/10^{12}\,\mathrm{tokens}")
    if system.accelerator.power is not None:
        energy = Quantity(over_tokens * symbol("W_chip") / (3600 * 10**6))
        meaning = "MWh of the accelerators, at full power, for 10^12 tokens"
        define(of_step("energy_per_trillion_tokens"), energy, meaning, r"\mathrm{MWh}/10^{12}\,\mathrm{tokens}")
