"""The stages of a pipeline that is cut evenly, over symbols: what the first, those between and the last hold at any depth.

A reduction over them (`reductions.py`) is an expression in pp, as a paper writes it: the first stage, pp - 2 equal ones, and the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from symsim.algebra.expr import Expr, Number
from symsim.algebra.reductions import Ranks
from symsim.errors import InputError, cut


@dataclass(frozen=True)
class Part:
    """Equal stages in a row: their name, one of them in words, the places of the first and the last, and what it holds, by symbol."""

    label: str
    said: str
    first: Expr
    last: Expr
    holds: Mapping[str, Expr]


@dataclass(frozen=True)
class EvenLine:
    """The parts of a pipeline, in order, each stage of a part holding the same.

    also: symbols that follow pp, as the strategy leaves them to it. depths: the numbers of stages that
    cut the layers so.
    """

    parts: tuple[Part, ...]
    also: Mapping[str, Expr]
    depths: frozenset[int]
    layers: int

    def check(self, values: Mapping[str, Number]) -> None:
        """InputError where so many layers are not cut so into so many stages."""
        pp, layers = values.get("pp"), values.get("L", self.layers)
        if pp is not None and (layers != self.layers or pp not in self.depths):
            known = ", ".join(map(str, sorted(self.depths)))
            asked = f"L={cut(str(layers))} layers on pp={cut(str(pp))} stages are cut in another way"
            raise InputError(f"{asked}: the formula is of L={self.layers} and pp={known}")

    @cached_property
    def alone(self) -> Ranks:
        """Ranks that hold a stage each."""
        return tuple(((k,), part.first, part.last) for k, part in enumerate(self.parts))

    @cached_property
    def pairs(self) -> Ranks:
        """Ranks that hold a stage and its mirror image each."""
        return tuple((tuple(sorted((k, len(self.parts) - 1 - k))), part.first, part.last) for k, part in enumerate(self.parts))

    @cached_property
    def heaviest(self) -> tuple[tuple[int, ...], ...]:
        return tuple((k,) for k in range(len(self.parts)))

    @cached_property
    def places(self) -> tuple[int, ...]:
        """The parts, each by its first stage, which no other of it exceeds in what is in flight."""
        return tuple(range(len(self.parts)))

    def stands_for(self, stage: int) -> int:
        """The stage that stands for those equal to one: a part is one."""
        return stage

    def label(self, stage: int) -> str:
        return self.parts[stage].label

    def said(self, stage: int) -> str:
        return self.parts[stage].said

    def own(self, stage: int) -> Mapping[str, Expr]:
        """The symbols of a stage of a part, and the place `i` of its first."""
        return {**self.parts[stage].holds, "i": self.parts[stage].first}

    @cached_property
    def spread(self) -> tuple[tuple[str, tuple[tuple[Expr, Expr], ...], Mapping[str, Expr]], ...]:
        """Of each class its name, the places of the first and the last of consecutive stages, and what a stage holds."""
        return tuple((part.label, ((part.first, part.last),), part.holds) for part in self.parts)
