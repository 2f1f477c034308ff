"""What a rank holds of the stage at the other end of the pipeline, where it holds two (DualPipe).

Rank i holds stage i for micro-batches that enter at the first stage, and stage pp - 1 - i for those that enter at the other end. A stage's
symbols of the latter are those of stage i with `_across` in them (deepseek-ai/DualPipe; DeepSeek-V3, arXiv:2412.19437, sec. 3.2).
"""

from __future__ import annotations

from symsim.algebra.expr import Expr, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.quantity import Definition, Quantity
from symsim.algebra.vocabulary import across
from symsim.inputs.architecture import Architecture
from symsim.pipeline.stages import facts


def of_other(book: Derivation, model: Architecture, value: Expr) -> Expr:
    """What is of stage i, of the other stage; a table that both have is held once (arXiv:2412.19437, sec. 3.2.2)."""
    # in one order, in which what is defined stands in the book
    return value.substitute({name: there for name in sorted(value.symbols()) if (there := _there(book, model, name)) is not None})


def _there(book: Derivation, model: Architecture, name: str) -> Expr | None:
    definition = book.get(name)
    if definition is not None:
        return _of_stage_there(book, model, definition) if definition.key.scope == "stage" else None
    if name == "i":
        return symbol("pp") - 1 - symbol("i")
    if name == "embedding_i":
        return symbol(across(name)) * (1 - symbol(name))
    return symbol(across(name)) if name in facts(model.layer_kinds) else None


def _of_stage_there(book: Derivation, model: Architecture, definition: Definition) -> Expr | None:
    """A definition of the other stage by a name of its own; one that is the same on every stage keeps its name."""
    there = of_other(book, model, definition.expr)
    if there == definition.expr:
        return None
    key, mirror = definition.key, "stage j = pp - 1 - i"
    meaning = definition.meaning.replace("stage i", mirror) if "stage i" in definition.meaning else f"{definition.meaning}, of {mirror}"
    latex = definition.latex.replace("(i)", "(j)")
    part = f"{key.part}_across" if key.part else "across"
    return book.define(key._replace(part=part), Quantity(there, definition.unit), meaning, unit=definition.unit, latex=latex).expr
