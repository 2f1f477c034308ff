"""Kernels of a pipeline stage, one micro-batch: how often each runs, how long, what it multiplies and moves, what bounds it.

A kernel's seconds stand in one formula over the rates of the machine, so what bounds it can be asked of the formula:

    compute alone    its seconds were HBM infinitely fast and starts free
    memory alone     its seconds were the multipliers infinitely fast and starts free
    latency alone    its seconds were both infinitely fast

and the longest of the three binds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from symsim.algebra.expr import Expr, Number
from symsim.algebra.key import of_block
from symsim.algebra.vocabulary import SYMBOLS
from symsim.cost.count import flops
from symsim.cost.deferred import at_once
from symsim.cost.repeated import layers_again
from symsim.evaluation.numbers import Evaluation
from symsim.inputs.curves import SYMBOLS as COEFFICIENTS
from symsim.inputs.system import Peak
from symsim.ir.operations import OPERATIONS, UNCOUNTED
from symsim.lowering.remember import Remembered
from symsim.pipeline.stages import runs
from symsim.placement.sizes import REACHES, entries_per_query, keys_per_query, own_keys, own_symbols, span
from symsim.report.amounts import four, rate

BOUNDS = ("compute", "memory", "latency")
_LATENCIES = tuple(n for n in COEFFICIENTS if SYMBOLS[n].unit == "s")
# the types that have a rate, by its symbol
RATES = {f"Phi_{kind}": kind for kind in Peak.model_fields}


@dataclass(frozen=True)
class Kernel:
    """One kernel of a block. phase: forward, or a backward kernel's own name (dgrad, wgrad, backward).

    seconds, flops and bytes are those of one call; calls counts a micro-batch's on the stage, those of recomputation too: their mean, where
    some micro-batches run nothing again, or weight gradients wait until after the last.
    definition names the seconds in the derivation. peak is the rate of the multiplier it uses, FLOP/s.
    """

    block: str
    operation: str
    phase: str
    definition: str
    calls: Number
    seconds: float
    flops: float
    bytes: float
    bound: str
    peak: float

    @property
    def total(self) -> float:
        """Seconds of all calls."""
        return float(self.calls) * self.seconds

    @property
    def flops_per_second(self) -> float:
        return self.flops / self.seconds

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds

    @property
    def intensity(self) -> float:
        """FLOP a byte."""
        return self.flops / self.bytes


def moves(kernel: Kernel) -> bool:
    """Whether the rate to look at is that of its bytes: it is bound by memory, or multiplies nothing."""
    return kernel.bound == "memory" or not kernel.flops


def achieved(kernel: Kernel) -> str:
    """Bytes or FLOPs a second, in words."""
    return rate(kernel.bytes_per_second, "B/s") if moves(kernel) else rate(kernel.flops_per_second, "FLOP/s")


def often(kernel: Kernel) -> str:
    """Its calls; a mean that is no whole number has its four digits."""
    return str(int(kernel.calls)) if kernel.calls == int(kernel.calls) else four(float(kernel.calls))


def block_kernels(result: Evaluation, name: str) -> list[Kernel]:
    """Every kernel of a block once, forward first, in the order in which they run; those that are an exchange are messages."""
    remembered, numbers = result.lowered.blocks[name], _worked(result)
    placed, own = remembered.placed, float(result.values["Phi"])
    made = []
    for index, op in enumerate(placed.block.ops):
        if op.kind in UNCOUNTED or OPERATIONS[op.kind].bound == "exchange":
            continue
        found = of_block("t", name, operation=op.name, phase="forward").text
        work, moved = flops(placed, index, op.products, local=True).expr, of_block("Q", name, operation=op.name).text
        made.append(_kernel(result, name, op.name, "forward", found, work, moved, numbers, own))
    for kernel in remembered.differentiated.backward:
        op = placed.block.ops[kernel.forward]
        if OPERATIONS[op.kind].bound == "exchange":
            continue
        found = of_block("t", name, operation=op.name, phase=kernel.label).text
        if not result.numbers[found]:  # a gradient is handed on
            continue
        work = flops(placed, kernel.forward, kernel.products, local=True).expr
        moved = of_block("U", name, operation=op.name, phase=kernel.label).text
        made.append(_kernel(result, name, op.name, kernel.label, found, work, moved, numbers, own))
    return made


def stage_kernels(result: Evaluation, stage: int, blocks: Mapping[str, Iterable[Kernel]]) -> list[Kernel]:
    """Kernels of one rank of a stage with their calls, longest together first. blocks: those of every block."""
    numbers = result.stage_numbers(result.stages[stage])
    made = []
    for name, found in blocks.items():
        times, again = calls(result, name, numbers)
        weights = times * at_once(result.strategy, name).evaluate(numbers)
        forward = {k.operation: times + again.get(k.operation, 0) for k in found}
        made += [replace(k, calls=forward[k.operation] if k.phase == "forward" else weights if k.phase == "wgrad" else times) for k in found]
    return sorted((k for k in made if k.calls), key=lambda k: -k.total)


def calls(result: Evaluation, name: str, numbers: Mapping[str, Number]) -> tuple[int, dict[str, Number]]:
    """How often a stage runs a block for one micro-batch, and how often each operation runs again."""
    lowered, often = result.lowered, int(numbers[runs(name)])
    whole = layers_again(result.strategy, lowered, name).evaluate(numbers)
    again: dict[str, Number] = {}
    variants: Iterable[tuple[Remembered | None, Number]] = ((lowered.blocks[name], often - whole), (lowered.checkpointed.get(name), whole))
    for variant, count in variants:
        for index in variant.recomputed if variant is not None else ():
            operation = lowered.blocks[name].placed.block.ops[index].name
            again[operation] = again.get(operation, 0) + count
    return often, again


def _worked(result: Evaluation) -> dict[str, Number]:
    """Numbers with the keys that attention's kernel works through, whatever convention counts its FLOPs."""
    known = result.numbers
    # of a row of documents each token sees its own
    row = span("both", result.strategy).evaluate(known)
    inside = min(known["w"], row) if "w" in known else row
    own = _worked_of_kinds(result)
    both = min(2 * inside - 1, row)
    chosen = min(known["k_x"], row / 2) if "k_x" in known else row / 2
    sparse = min(known["n_k"], chosen) if "n_k" in known else chosen
    return {**known, "n_k": sparse, "n_z": row / 2, "n_b": row, "n_w": inside, "n_c": inside / 2, "n_v": both, **own}


def _worked_of_kinds(result: Evaluation) -> dict[str, Number]:
    """The same of keys that kinds of layers have of their own."""
    model, found = result.model, dict[str, Number]()
    for kind in model.kind_names():
        for dim, name in own_keys(model, kind).items():
            own = own_symbols(model, kind)
            keys = entries_per_query("exact", own["m_x"]) if dim == "n_e" else keys_per_query("exact", REACHES[dim], result.strategy, **own)
            found[name] = keys.evaluate(result.numbers)
    return found


def _kernel(
    result: Evaluation, block: str, operation: str, phase: str, definition: str, work: Expr, moved: str, numbers: Mapping[str, Number], own: float
) -> Kernel:
    formula = result.derivation.definitions[definition].expr
    alone = bounds(formula, result.numbers)
    used = [rate for name, rate in peaks(result).items() if name in formula.symbols()]
    return Kernel(
        block=block,
        operation=operation,
        phase=phase,
        definition=definition,
        calls=1,
        seconds=float(result.numbers[definition]),
        flops=float(work.evaluate(numbers)),
        bytes=float(result.numbers[moved]),
        bound=max(BOUNDS, key=lambda b: alone[b]),
        peak=max(used, default=own),
    )


def peaks(result: Evaluation) -> dict[str, float]:
    """Peak rates that the system gives, by symbol; formulas may reach for less of them (fp8_share)."""
    if result.system is None:
        return {}
    found = {name: getattr(result.system.accelerator.peak, kind) for name, kind in RATES.items()}
    return {name: float(known.value) for name, known in found.items() if known is not None}


def bounds(formula: Expr, numbers: Mapping[str, Number]) -> dict[str, float]:
    """Seconds of a kernel's formula for each of BOUNDS alone."""
    return {
        "compute": _alone(formula, numbers, memory=False, latency=False),
        "memory": _alone(formula, numbers, compute=False, latency=False),
        "latency": _alone(formula, numbers, compute=False, memory=False),
    }


def _alone(formula: Expr, numbers: Mapping[str, Number], *, compute: bool = True, memory: bool = True, latency: bool = True) -> float:
    known = {name: numbers[name] for name in formula.symbols()}
    if not compute:
        known |= {n: math.inf for n in RATES if n in known}
    if not memory:
        known["B_hbm"] = math.inf
    if not latency:
        known |= {n: 0.0 for n in _LATENCIES}
    return float(formula.evaluate(known))
