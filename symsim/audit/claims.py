"""Claims: read strictly from a file, every letter of a paper mapped, every sentence about an error with its line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from symsim.algebra.expr import Expr, symbol
from symsim.algebra.grammar import parse
from symsim.audit.schema import File, Neglect, Of, Source, Stored
from symsim.errors import InputError, cut, nearest
from symsim.inputs.reading import Document, KeyPath, parse_yaml, read_text
from symsim.inputs.shipped import derivations_directory
from symsim.inputs.validation import validate


@dataclass(frozen=True)
class Subject:
    """What a claim is of. Equal ones are derived once."""

    model: str
    strategy: str = ""
    system: str = ""
    settings: tuple[tuple[str, Any], ...] = ()
    assumptions: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        said = [self.model, self.strategy, self.system, *(f"{n}={v}" for n, v in self.settings), *(f"assume.{n}={v}" for n, v in self.assumptions)]
        return ", ".join(part for part in said if part)


@dataclass(frozen=True)
class Claim:
    """A published formula, what it says in symsim's names, and under which conditions.

    letters: what stands behind each letter of the source, and behind those of `instead` and `against`. lines: FILE:LINE of its keys.
    """

    id: str
    at: str
    status: str
    source: Source
    subject: Subject | None
    says: str
    formula: Expr | None
    letters: Mapping[str, str]
    given: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    neglects: tuple[Neglect, ...] = ()
    stored: Stored | None = None
    latex: str = ""
    title: str = ""
    note: str = ""
    instead: Expr | None = None
    against: Expr | None = None
    file: str = ""
    lines: Mapping[str, str] = field(default_factory=dict, repr=False)

    def place(self, key: str = "") -> str:
        """FILE:LINE of one of its keys, or where it begins."""
        return self.lines.get(key) or self.lines.get("", self.file)


def shipped_sources() -> dict[str, Path]:
    """Files of claims that come with symsim, by name."""
    files = sorted(derivations_directory().glob("*.yaml"))
    return {f.stem: f for f in files if _has_claims(read_text(f))}


def _has_claims(text: str) -> bool:
    return text.startswith(("source:", "claims:", "tables:")) or "\nclaims:" in text or "\ntables:" in text


def read_claims(path: "str | Path") -> list[Claim]:
    """The claims of a file. InputError names file and line of what does not fit."""
    return claims_of(parse_yaml(read_text(path), str(path)))


def claims_of(document: Document) -> list[Claim]:
    read = validate(File, document.data, document.where, document)
    both = sorted(read.symbols.keys() & set(read.same))
    if both:
        raise InputError(f"{document.place(('symbols', both[0]))}: '{both[0]}' is both in symbols and in same")
    found: dict[str, Claim] = {}
    for number in range(len(read.claims)):
        claim = _claim(read, number, document)
        if claim.id in found:
            raise InputError(f"{claim.place('id')}: '{cut(claim.id)}' is the id of two claims (first {found[claim.id].place('id')})")
        found[claim.id] = claim
    return list(found.values())


def _claim(read: File, number: int, document: Document) -> Claim:
    entry = read.claims[number]
    here: KeyPath = ("claims", number)
    lines = {".".join(map(str, path[2:])): document.place(path) for path in document.lines if path[:2] == here}
    letters = {**{n: n for n in read.same}, **read.symbols, **entry.symbols}
    stored = entry.verdict
    out = stored is not None and stored.verdict == "out_of_scope"

    def formula(text: str | None, key: str) -> Expr | None:
        if text is None or (out and key != "formula"):
            return None
        place = lines.get(key, lines.get("", document.where))
        found = parse(text, where=place)
        if not out:
            _check_letters(found, letters, place)
        return found

    return Claim(
        id=entry.id,
        at=entry.at,
        status=entry.status,
        source=read.source,
        subject=None if out else subject_of(read.of, entry.of, lines.get("of", lines.get("", document.where))),
        says=entry.says or "",
        formula=formula(entry.formula, "formula"),
        letters=letters,
        given=entry.given,
        keep=entry.keep,
        neglects=entry.neglects,
        stored=stored,
        latex=entry.latex,
        title=entry.title,
        note=entry.note,
        instead=formula(stored.instead if stored else None, "verdict.instead"),
        against=formula(stored.against.formula if stored and stored.against else None, "verdict.against.formula"),
        file=document.where,
        lines=lines,
    )


def _check_letters(formula: Expr, letters: Iterable[str], place: str) -> None:
    for letter in sorted(formula.symbols() - set(letters)):
        hint = nearest(letter, list(letters), "")
        said = f"the letter '{cut(letter)}' is mapped to nothing: say what it is in symbols, or that it is symsim's own in same"
        raise InputError(f"{place}: {said}{f' ({hint})' if hint else ''}")


def subject_of(default: Of, own: Of, place: str) -> Subject:
    """A claim's own `of` over the file's, key by key."""
    model = own.model if own.model is not None else default.model
    if not model:
        raise InputError(f"{place}: of names no model")
    strategy, system = ((a if a is not None else b) or "" for a, b in ((own.strategy, default.strategy), (own.system, default.system)))
    settings = {**default.set, **own.set}
    assumptions = {n: _word(v) for n, v in {**default.assume, **own.assume}.items()}
    return Subject(model, strategy, system, tuple(sorted(settings.items())), tuple(sorted(assumptions.items())))


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def mapped(formula: Expr, meanings: Mapping[str, Expr]) -> Expr:
    """A formula in the source's letters, in symsim's names."""
    return formula.substitute({n: meanings.get(n, symbol(n)) for n in formula.symbols()})
