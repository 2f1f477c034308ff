"""Two published formulas held against each other: the same, or apart by exactly so much.

A side is the printed formula of a claim, in symsim's names, or a formula that no claim has. Nothing is derived: under the facts,
the first side less the second must equal `difference`, which is 0 of an identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from symsim.algebra.expr import Expr, expr, symbol
from symsim.algebra.facts import apply, declared, read_facts
from symsim.algebra.grammar import parse
from symsim.algebra.vocabulary import domain
from symsim.audit.claims import Claim, mapped
from symsim.audit.proving import is_zero, tidy
from symsim.audit.schema import Text
from symsim.errors import InputError, cut, nearest
from symsim.inputs.reading import Document, parse_yaml, read_text
from symsim.inputs.shipped import derivations_directory
from symsim.inputs.validation import validate

_TOP = "\ncomparisons:"
KINDS = Literal["identity", "error", "convention", "approximation", "omission", "units", "comparison"]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Side(Part):
    """A claim's formula, or one in symsim's names, times a factor and with a term added."""

    claim: str | None = None
    formula: Text | None = None
    at: str = ""
    times: Text = "1"
    plus: Text = "0"

    @model_validator(mode="after")
    def _one(self) -> "Side":
        if (self.claim is None) == (self.formula is None):
            raise ValueError("a side has a claim or a formula")
        if self.formula is not None and not self.at:
            raise ValueError("a formula needs `at`, where it stands")
        return self


class Entry(Part):
    id: str
    title: str
    a: Side
    b: Side
    kind: KINDS
    given: tuple[str, ...] = ()
    difference: Text = "0"
    why: str = ""

    @model_validator(mode="after")
    def _said(self) -> "Entry":
        if self.kind != "identity" and not self.why:
            raise ValueError(f"{self.id} is no identity: it needs a why")
        return self


class File(Part):
    letters: dict[str, str] = Field(default_factory=dict, description="symbols that symsim has not, and what they are")
    comparisons: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """What became of a comparison. difference: a less b under the facts; red: what is not as it was written."""

    entry: Entry
    a: Expr
    b: Expr
    difference: Expr
    red: str = ""

    @property
    def passes(self) -> bool:
        return not self.red

    def to_json(self) -> dict[str, Any]:
        entry = self.entry
        row: dict[str, Any] = {
            "id": entry.id,
            "kind": entry.kind,
            "given": list(entry.given),
            "difference": str(self.difference) if self.difference else "",
        }
        row |= {"a": entry.a.claim or entry.a.at, "b": entry.b.claim or entry.b.at, "passes": self.passes}
        return row | ({"red": self.red} if self.red else {})


def shipped_comparisons() -> list[Path]:
    """The files of comparisons that come with symsim."""
    return [p for p in sorted(derivations_directory().glob("*.yaml")) if _TOP in "\n" + read_text(p)]


def chosen_comparisons(names: Sequence[str], claims: Callable[[str], Claim | None]) -> tuple[list[Comparison], list[str]]:
    """The comparisons of files and by id, or all where nothing is named, and the names that are none of these."""
    shipped = {p.stem: p for p in shipped_comparisons()}
    found: list[Comparison] = []
    others = []
    for name in names or shipped:
        holding = [p for p in shipped.values() if f"- id: {name}\n" in read_text(p)]
        if name in shipped or (name.endswith((".yaml", ".yml")) and _TOP in "\n" + read_text(name)):
            found += compare(shipped.get(name, Path(name)), claims)
        elif holding:
            found += [c for c in compare(holding[0], claims) if c.entry.id == name]
        else:
            others.append(name)
    return found, others


def compare(path: "str | Path", claims: Callable[[str], Claim | None]) -> list[Comparison]:
    """The comparisons of a file; `claims` finds one by its id. InputError names file and line of what does not fit."""
    return compared(parse_yaml(read_text(path), str(path)), claims)


def compared(document: Document, claims: Callable[[str], Claim | None]) -> list[Comparison]:
    read = validate(File, document.data, document.where, document)
    found: dict[str, Comparison] = {}
    for number, entry in enumerate(read.comparisons):
        place = document.place(("comparisons", number))
        if entry.id in found:
            raise InputError(f"{place}: '{cut(entry.id)}' is the id of two comparisons")
        known = read.letters.keys() | declared(read_facts(entry.given))
        sides = [_side(side, claims, known, f"{place}: {name}") for name, side in (("a", entry.a), ("b", entry.b))]
        found[entry.id] = _held(entry, sides[0], sides[1], _read(entry.difference, known, f"{place}: difference"), place)
    used = {n for c in found.values() for n in c.a.symbols() | c.b.symbols()}
    for letter in read.letters.keys() - used:
        raise InputError(f"{document.place(('letters', letter))}: no comparison has '{cut(letter)}'")
    return list(found.values())


def _side(side: Side, claims: Callable[[str], Claim | None], known: "set[str]", where: str) -> Expr:
    times, plus = _read(side.times, known, where), _read(side.plus, known, where)
    if side.formula is not None:
        return times * _read(side.formula, known, where) + plus
    assert side.claim is not None
    claim = claims(side.claim)
    if claim is None:
        raise InputError(f"{where}: no claim is named '{cut(side.claim)}'")
    if claim.formula is None:
        raise InputError(f"{where}: {side.claim} has no formula")
    return times * _layers_as_one(mapped(claim.formula, _meanings(claim))) + plus


def _meanings(claim: Claim) -> Mapping[str, Expr]:
    assert claim.formula is not None
    return {letter: parse(claim.letters.get(letter, letter)) for letter in claim.formula.symbols()}


def _layers_as_one(amount: Expr) -> Expr:
    """L for the layers of a model of one kind, as claims have it."""
    names = amount.symbols()
    return amount if {"L_dense", "L_moe"} <= names else amount.substitute({"L_dense": symbol("L")})


def _read(text: str, known: "set[str]", where: str) -> Expr:
    found = parse(text, where=where)
    for name in sorted(found.symbols()):
        if name not in known and domain(name) == "real":
            raise InputError(f"{where}: '{cut(name)}' is neither a symbol of symsim nor one of letters: {nearest(name, sorted(known))}")
    return found


def _held(entry: Entry, a: Expr, b: Expr, said: Expr, place: str) -> Comparison:
    """Whether a less b is what is said; InputError for a fact that is not needed, and for a disagreement over nothing."""
    facts = read_facts(entry.given)

    def under(amount: Expr, without: int = -1) -> Expr:
        named = amount.symbols() | {n for f in facts if f.relation == "=" for n in f.symbols if f.symbols & amount.symbols()}
        taken = [f for number, f in enumerate(facts) if number != without and f.symbols & named]
        return apply([("difference", amount)], taken)[0][-1][1] if taken else amount

    try:
        left = under(a - b - said)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    for number, fact in enumerate(facts):
        if fact.relation != ":" and is_zero(under(a - b - said, number)):
            raise InputError(f"{place}: {entry.id} does not need the fact '{cut(str(fact))}'")
    difference = under(a - b)
    zero = is_zero(difference)
    red = "" if is_zero(left) else f"a less b is {cut(str(tidy(difference)), 200)}, not {cut(str(said), 200)}"
    if not red and zero != (entry.kind == "identity"):
        red = "both sides are the same" if zero else "it is no identity"
    return Comparison(entry, a, b, expr(0) if zero else tidy(difference), red)
