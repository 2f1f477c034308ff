"""Einsums over named dimensions: the strings that layers are written in, what follows from them, and what is wrong with one.

    b s h, a d h -> b s a d         h is in both operands and not in the result: it is summed over
    R h, E(R) f_e h -> R f_e        the row R chooses its expert: E is neither summed over nor in the result
    b s a d, b z g(a) d -> b s a z  a query head chooses its group of keys

Dimensions are named in the order they have in memory; those of a result are all dimensions of an operand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from symsim.errors import nearest

_DIMENSION = re.compile(r"([^\s,()>]+?)(?:\(([^\s,()>]+)\))?$")


class IRError(AssertionError):
    """A layer or a pass made an inconsistent block; a bug of symsim, never of its input."""


@dataclass(frozen=True)
class Einsum:
    """The dimensions of each operand and of the result; `chosen` pairs a dimension with the one that chooses it."""

    operands: tuple[tuple[str, ...], ...]
    result: tuple[str, ...]
    chosen: tuple[tuple[str, str], ...] = ()

    @cached_property
    def contracted(self) -> tuple[str, ...]:
        """Dimensions summed over, in the order of the first operand."""
        aside = {*self.result, *(d for d, _ in self.chosen)}
        return tuple(dict.fromkeys(d for dims in self.operands for d in dims if d not in aside))

    @cached_property
    def product(self) -> tuple[str, ...]:
        """Every dimension multiplied out: 2 FLOP a point."""
        return tuple(dict.fromkeys((*(d for d in self.result if d not in dict(self.chosen)), *self.contracted)))

    @property
    def dimensions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(d for dims in (*self.operands, self.result) for d in dims))

    def transpose(self, operand: int) -> "Einsum":
        """The einsum of the gradient of an operand: of the result's gradient with the other operands."""
        others = (dims for i, dims in enumerate(self.operands) if i != operand)
        return Einsum((self.result, *others), self.operands[operand], self.chosen)

    def rename(self, names: "dict[str, str]") -> "Einsum":
        """The same over other dimensions."""

        def renamed(dims: Iterable[str]) -> tuple[str, ...]:
            return tuple(names.get(d, d) for d in dims)

        chosen = tuple((names.get(d, d), names.get(by, by)) for d, by in self.chosen)
        return Einsum(tuple(map(renamed, self.operands)), renamed(self.result), chosen)

    def __str__(self) -> str:
        by = dict(self.chosen)

        def shown(dims: Iterable[str]) -> str:
            return " ".join(f"{d}({by[d]})" if d in by else d for d in dims)

        return f"{', '.join(map(shown, self.operands))} -> {shown(self.result)}"


@lru_cache(maxsize=1024)
def parsed(text: str) -> Einsum:
    """The einsum a string says. IRError where it says none: the string with a mark under what is wrong."""
    before, arrow, after = text.partition("->")
    if not arrow or "->" in after:
        raise fault(text, "an einsum is `operands -> result`, with one ->")
    chosen: dict[str, str] = {}
    operands = [_side(text, part, chosen) for part in before.split(",")]
    if len(operands) < 2:
        raise fault(text, "an einsum has two operands, parted by a comma")
    made = Einsum(tuple(operands), _side(text, after, chosen), tuple(chosen.items()))
    _check(text, made)
    return made


def _side(text: str, part: str, chosen: dict[str, str]) -> tuple[str, ...]:
    dims = []
    for word in part.split():
        found = _DIMENSION.match(word)
        if not found:
            raise fault(text, f"`{word}` is no dimension: a name, or name(chooser)", word)
        name, by = found.groups()
        if name in dims:
            raise fault(text, f"{name} stands twice in one tensor", name)
        if by:
            chosen[name] = by
        dims.append(name)
    return tuple(dims)


def _check(text: str, made: Einsum) -> None:
    """What a string alone can tell: sums are over dimensions of both operands, results have no others."""
    first, by = made.operands[0], dict(made.chosen)
    operands = {d for dims in made.operands for d in dims}
    for dim in made.result:
        if dim not in operands:
            raise fault(text, f"the result has {dim}, and no operand has it: {nearest(dim, list(made.contracted) or sorted(operands))}", dim, at=-1)
    for dim, chooser in by.items():
        if chooser not in first:
            raise fault(text, f"{dim} is chosen by {chooser}, which the first operand lacks", f"{dim}({chooser})")
    for dim in made.contracted:
        if dim not in first:
            raise fault(text, f"{dim} is summed over, and the first operand lacks it: {nearest(dim, list(first))}", dim)
        if not any(dim in dims for dims in made.operands[1:]):
            raise fault(text, f"{dim} is summed over, and no other operand has it", dim)


def fault(text: str, said: str, word: str = "", *, at: int = 0, where: str = "") -> IRError:
    """An error that quotes the string and marks a word of it: its first place, or (at=-1) its last."""
    places = [m.start() for m in re.finditer(rf"(?<![\w.]){re.escape(word)}(?![\w.])", text)] if word else []
    mark = f"\n    {' ' * places[at]}{'^' * len(word)}" if places else ""
    return IRError(f"{where}{': ' if where else ''}{said}, in the einsum\n    {text}{mark}")
