"""What a rank holds of the stage at the other end of the pipeline, where it holds two (DualPipe).

Rank i holds stage i for micro-batches that enter at the first stage, and stage pp - 1 - i for those that enter at the other end. A stage's
symbols of the latter are those of stage i with `_across` in them (deepseek-ai/DualPipe; DeepSeek-V3, arXiv:2412.19437, sec. 3.2).
"""

from __future__ import annotations

from symsim.algebra.expr import Expr, symbol
from symsim.algebra.quantity import Definition, Quantity
from symsim.algebra.vocabulary import across
from symsim.cost.memory_rank import Rank
from symsim.pipeline.stages import facts


def of_both(rank: Rank, value: Expr) -> Expr:
    """Bytes of stage i, and of the other stage that the rank holds; a table that both have is held once (arXiv:2412.19437, sec. 3.2.2)."""
    return value * rank.schedule.weights if not mirrored(rank) else value + of_other(rank, value)


def mirrored(rank: Rank) -> bool:
    return rank.schedule.placement == "mirrored"


def of_other(rank: Rank, value: Expr) -> Expr:
    """The same of the other stage."""
    # in one order, in which what is defined stands in the book
    return value.substitute({name: there for name in sorted(value.symbols()) if (there := _there(rank, name)) is not None})


def _there(rank: Rank, name: str) -> Expr | None:
    definition = rank.book.get(name)
    if definition is not None:
        return _of_stage_there(rank, definition) if definition.key.scope == "stage" else None
    if name == "i":
        return symbol("pp") - 1 - symbol("i")
    if name == "embedding_i":
        return symbol(across(name)) * (1 - symbol(name))
    return symbol(across(name)) if name in facts(rank.model.layer_kinds) else None


def _of_stage_there(rank: Rank, definition: Definition) -> Expr | None:
    """A definition of the other stage by a name of its own; one that is the same on every stage keeps its name."""
    there = of_other(rank, definition.expr)
    if there == definition.expr:
        return None
    key, mirror = definition.key, "stage j = pp - 1 - i"
    meaning = definition.meaning.replace("stage i", mirror) if "stage i" in definition.meaning else f"{definition.meaning}, of {mirror}"
    latex = definition.latex.replace("(i)", "(j)")
    part = f"{key.part}_across" if key.part else "across"
    return rank.book.define(key._replace(part=part), Quantity(there, definition.unit), meaning, unit=definition.unit, latex=latex).expr
