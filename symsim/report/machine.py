"""The system of a report: every number of its file with its symbol, how it is known, and its source."""

from __future__ import annotations

import re
from itertools import groupby

from symsim.algebra.typeset import entry
from symsim.evaluation.numbers import Evaluation
from symsim.frameworks.narrow import recipe_of
from symsim.inputs.curves import SYMBOLS as COEFFICIENTS
from symsim.inputs.known import Known
from symsim.inputs.reading import KeyPath
from symsim.inputs.system import System, quantities
from symsim.ir.block import NARROW
from symsim.ir.messages import DISPATCHERS
from symsim.report.document import Code, Column, Paragraph, Row, Section, Table, joined, spans
from symsim.report.ink import Ink
from symsim.report.step import Step, tags

_PLACES: dict[str, tuple[str, ...]] = {symbol: ("kernels", *place) for symbol, place in COEFFICIENTS.items()} | {
    "n_sm": ("accelerator", "multiprocessors"),
    "B_hbm": ("accelerator", "memory_bandwidth"),
    "W_chip": ("accelerator", "power"),
    "c_chip": ("accelerator", "price"),
    "B_host": ("host", "bandwidth"),
    "B_dram": ("host", "memory_bandwidth"),
    "t_launch": ("host", "launch"),
    "t_gather": ("host", "gather"),
    **{f"B_sm_{name}": ("accelerator", "exchange", name) for name in DISPATCHERS},
}
_SYMBOLS = {place: symbol for symbol, place in _PLACES.items()}
_OF_A_TIER = {"bandwidth": "B", "latency": "alpha", "launch": "lambda"}


def symbol_of(system: System, path: KeyPath) -> str:
    """The symbol that stands for a system's number in formulas, '' for one that none uses as it is."""
    if path[:2] == ("accelerator", "peak"):
        return f"Phi_{path[2]}" if path[2] not in NARROW or system.accelerator.fp8_share is None else ""
    if path[0] == "network":
        tier = int(path[1]) + 1
        if path[2] in ("calls", "exchange"):
            return f"{'lambda' if path[2] == 'calls' else 'eta'}_{tier}_{path[3]}_{path[4]}"
        if path[2] == "efficiency":
            return f"eta_{tier}_{path[3]}" if path[3] != "default" else ""
        return f"{_OF_A_TIER[str(path[2])]}_{tier}" if path[2] in _OF_A_TIER else ""
    return _SYMBOLS.get(tuple(map(str, path)), "")


_TIER = re.compile(r"(?:R|B|C|alpha|chi|lambda|eta)_(\d+)(?:_\w+)?")


def meaning(system: System | None, name: str) -> str:
    """What a symbol is; that of a tier with the tier's name and the ranks that it joins."""
    tier = tier_of(name)
    return entry(name).meaning + (f" ({joins(system, tier)})" if system is not None and tier else "")


def tier_of(name: str) -> int:
    """The tier of the network that a symbol is of, from 1; 0 for one of none."""
    found = _TIER.fullmatch(name)
    return int(found[1]) if found else 0


def joins(system: System, tier: int) -> str:
    """'nvlink, inside a node of 8 ranks', 'infiniband, between nodes': a tier from 1; the last but one joins a node."""
    of, last = system.network[tier - 1], len(system.network)
    if tier == last:
        return f"{of.name}, {'between nodes' if last > 1 else 'among all ranks' if of.ranks == 'all' else f'among {of.ranks} ranks'}"
    return f"{of.name}, {'inside a node of' if tier == last - 1 else 'among'} {of.ranks} ranks"


def title(system: System, path: KeyPath) -> str:
    """'network.nvlink.latency'."""
    return ".".join(_names(system, path))


def _names(system: System, path: KeyPath) -> list[str]:
    """The keys of a number; a tier goes by its name."""
    return [system.network[int(p)].name if n == 1 and path[0] == "network" else str(p) for n, p in enumerate(path)]


def section(step: Step, ink: Ink) -> Section:
    """The numbers of the system file that this step stands on, their meaning and sources; the others by name."""
    system = step.system
    used, others = _used(step.result)
    counted = ", ".join(f"{n} {tag}" for tag, n in tags(system).items())
    tiers = [f" Tier {n} of its network joins {t.ranks} ranks ({joins(system, n)})." for n, t in enumerate(system.network, 1)]
    said = f"{system.name}: {system.title}. Of its numbers {counted}.{''.join(tiers)}"
    rows: list[Row] = []
    for part, numbers in groupby(used, key=lambda one: str(one[0][0])):
        rows += [Row((Code(part),), "group"), *(_row(system, ink, path, known) for path, known in numbers)]
    unused = spans("In the file, too, and of no effect here: ", *joined([spans(Code(title(system, path))) for path in others]), ".")
    named = (Column("number", 9.5), Column("symbol", 5, names=True), Column("is", 28))
    columns = (*named, Column("value", 6.6, True), Column("known as", 4.4), Column("by", 1.8))
    table = Table(spans(f"Numbers of {system.name}, as its file gives them."), columns, tuple(rows))
    return Section("The machine", (Paragraph(spans(said)), table, *([Paragraph(unused)] if others else [])))


def _used(result: Evaluation) -> tuple[list[tuple[KeyPath, Known]], list[KeyPath]]:
    """Numbers in whose stead a symbol stands in a formula of the step, and those without one; the places of all others."""
    assert result.system is not None
    strategy, recipe = result.strategy, recipe_of(result.strategy)
    multiplied = {f"Phi_{kind}" for kind in (strategy.precision, *([recipe.operand] if recipe is not None else []))}
    read = multiplied.union(*(d.expr.symbols() for d in result.derivation.definitions.values())) | {""}
    used, others = [], []
    for path, known in quantities(result.system):
        rate = f"Phi_{path[-1]}" if path[:2] == ("accelerator", "peak") else ""
        narrow = path[-1] == "fp8_share"
        if rate in read if rate else recipe is not None if narrow else symbol_of(result.system, path) in read:
            used.append((path, known))
        else:
            others.append(path)
    return used, others


def symbols(result: Evaluation) -> set[str]:
    """Those that the table defines."""
    assert result.system is not None
    return {symbol_of(result.system, path) for path, _ in _used(result)[0]} - {""}


def _unnamed(path: KeyPath) -> str:
    """What a number is that formulas do not use as it is."""
    if path[0] == "network":
        of_tier = f"tier {int(path[1]) + 1}"
        if path[2] == "efficiency":
            return f"share of {of_tier}'s bandwidth that collectives without one of their own reach"
        return f"what one ring moves over {of_tier} at most" if path[2] == "ring" else ""
    if path[:2] == ("accelerator", "peak"):
        return f"peak rate of an accelerator on {path[2]}"
    if path == ("host", "memory"):
        return "a rank's share of the memory of its node's host"
    return {"fp8_share": "share of the peak that FP8 products reach, over that of bf16", "memory": "memory of an accelerator"}.get(str(path[-1]), "")


def _row(system: System, ink: Ink, path: KeyPath, known: Known) -> Row:
    name, source = symbol_of(system, path), system.sources.get(known.source, known.source)
    means = (ink.symbol(name), entry(name).meaning) if name else ((), _unnamed(path))
    return Row((Code(".".join(_names(system, path)[1:])), *means, known.text, known.tag, ink.sources.cited(source) if source else ""))
