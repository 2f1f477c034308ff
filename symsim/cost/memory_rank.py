"""A rank of stage i whose memory is counted, and how a part of it is defined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from symsim.algebra.expr import ZERO, Expr, ceil, expr, minimum, symbol
from symsim.algebra.formula import Derivation
from symsim.algebra.key import Key, layers, of_block
from symsim.algebra.kinds import HEAD, in_words
from symsim.algebra.quantity import BYTE, Quantity
from symsim.cost.count import label
from symsim.frameworks.framework import Framework
from symsim.frameworks.recompute import runs_of
from symsim.inputs.architecture import Architecture
from symsim.inputs.strategy import Strategy
from symsim.ir.block import WIDTHS
from symsim.ir.roles import role_of
from symsim.lowering.differentiate import elements
from symsim.lowering.lowered import Lowered
from symsim.pipeline.schedules import Schedule, schedule_of
from symsim.pipeline.stages import runs

LIVENESS = "tensors alive between the kernel that makes them and the last that reads them (docs/rules.md)"


@dataclass(frozen=True)
class Rank:
    """A rank of stage i, whose memory is defined in `book`, and what a placed step says of it.

    fresh: 1 while the step has one micro-batch, whose gradients are the first and stay; where each is freed by its own update none stays.
    """

    book: Derivation
    lowered: Lowered
    model: Architecture
    strategy: Strategy
    assume: Mapping[str, str]
    framework: Framework
    schedule: Schedule
    fresh: Expr
    has: Mapping[str, Expr]

    @property
    def stands_on(self) -> tuple[Any, ...]:
        return self.lowered, self.schedule


def rank_of(book: Derivation, lowered: Lowered) -> Rank:
    profile = lowered.profile
    has = {n: present(n) for n in lowered.blocks}
    fresh = ZERO if profile.strategy.optimizer_in_bwd else 1 - minimum(symbol("m") / profile.strategy.pipeline_flushes - 1, 1)
    schedule = schedule_of(profile.strategy)
    return Rank(book, lowered, profile.model, profile.strategy, profile.assumptions, profile.framework, schedule, fresh, has)


def present(block: str) -> Expr:
    """1 where a rank of the stage runs the block, else 0."""
    often = symbol(runs(block))
    return often if role_of(block).single else minimum(1, often)


def define_stage(rank: Rank, key: Key, value: Expr, meaning: str, latex: str, *, source: str = LIVENESS, assumptions: tuple[str, ...] = ()) -> Expr:
    return rank.book.define(key, Quantity(value, BYTE), meaning, unit=BYTE, latex=latex, source=source, assumptions=assumptions).expr


def on_device(rank: Rank, kind: str) -> Expr:
    """Of a block's saved bytes, those that do not wait on the host."""
    return of_block("A", kind).expr - away(rank, kind)


def away(rank: Rank, kind: str) -> Expr:
    """Of a block's saved bytes, those that wait on the host between forward and backward: tensors that the named operations alone keep."""
    key = of_block("A_host", kind)
    return key.expr if key in rank.book else ZERO


def define_away(rank: Rank) -> None:
    """A_host_KIND where operations of the kind are named."""
    for kind in rank.model.kind_names():
        remembered = rank.lowered.blocks[kind]
        named = runs_of([op.name for op in remembered.placed.block.ops], rank.strategy.offload_operations or ())
        sizes = [s.bytes for s in remembered.saved if all(by.operation in named for by in s.by)]
        if sizes:
            meaning, latex = f"{in_words(kind)}: saved bytes that wait on the host", rf"A^{{\mathrm{{host}}}}_{{{label(kind)}}}"
            rank.book.define(of_block("A_host", kind), Quantity(total(sizes), BYTE), meaning, unit=BYTE, latex=latex)


def saved_layers(rank: Rank, kind: str) -> Expr:
    held = layers(kind).expr
    if kind not in rank.lowered.checkpointed:
        return on_device(rank, kind) * held
    again = layers(kind, again=True).expr
    kept = again
    if rank.strategy.recompute_method == "uniform":
        kept = again / rank.strategy.recompute_num_layers
        kept = ceil(kept) if rank.strategy.recompute_layers_per_stage is not None else kept
    return of_block("A", kind).expr * (held - again) + of_block("A", kind, again=True).expr * kept


def stream(rank: Rank) -> Expr:
    """Bytes of the residual stream between layers."""
    placed = rank.lowered.blocks[HEAD].placed
    return elements(placed, "x") * WIDTHS[placed.block.tensors["x"].dtype]


def ahead(rank: Rank) -> Expr:
    """Bytes of what layers read beside the stream."""
    return total(elements(placed, name) * WIDTHS[placed.block.tensors[name].dtype] for placed, name in rank.lowered.passed_on[1:])


def total(values: Iterable[Expr]) -> Expr:
    return sum(values, ZERO)


def rational(value: "float | str") -> Expr:
    return expr(Fraction(str(value)))
