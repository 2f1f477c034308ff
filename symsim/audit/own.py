"""A formula of the user's own against a definition: `symsim audit --formula EXPR --is NAME --model M`."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symsim.algebra.expr import ZERO, Expr
from symsim.algebra.facts import Fact, read_facts
from symsim.algebra.grammar import parse
from symsim.audit.claims import Claim, Subject
from symsim.audit.explaining import Nearest, nearest_switches
from symsim.audit.schema import Source
from symsim.audit.subjects import Derivations
from symsim.audit.table import counted, sized
from symsim.audit.verdicts import Outcome, judge
from symsim.errors import InputError
from symsim.evaluation.quantities import QUANTITIES

SOURCE = Source(title="a formula of one's own", authors="", year=0, url="the command line")
_OPTIONS = (("says", "is"), ("formula", "formula"), ("given", "given"), ("keep", "keep"), ("of", "model"))
_HEAD = 11
_MOST_LINES = 20
_SHOWN = 6


@dataclass(frozen=True)
class Own:
    """A formula of the user's own, and what it is said to be of."""

    formula: str
    says: str
    model: str
    strategy: str
    system: str
    settings: Mapping[str, str]
    given: Sequence[str]
    keep: Sequence[str]
    explained: bool


def run_own(own: Own, as_json: bool, show: Callable[[str], None]) -> int:
    """The exit status: 1 where the formula is not what symsim derives."""
    claim = own_claim(own.formula, own.says, own_subject(own.model, own.strategy, own.system, own.settings), own.given, own.keep)
    found, closest = own_outcome(claim, Derivations(), own.explained)
    if as_json:
        # processes, tables and comparisons come with it, for which a formula of one's own does not wait
        from symsim.audit.running import Audit

        answer = Audit((found,)).to_json()
        answer["results"][0] |= {"published": str(found.published), "derived": str(found.derived)}
        if closest is not None:
            answer["results"][0]["nearest"] = {"switches": dict(closest.switches), "difference": str(closest.left)}
        show(json.dumps(answer, indent=2) + "\n")
    else:
        show(own_text(found, closest, own.explained))
    return 0 if found.verdict in ("equal", "equal_under", "tested") else 1


def own_claim(formula: str, says: str, subject: Subject, given: Sequence[str], keep: Sequence[str] = ()) -> Claim:
    """A formula in symsim's own names as a claim; keep: definitions that stay symbols, several separated by commas. InputError names what
    does not read."""
    found, says = parse(_in_symbols(formula, "--formula"), where="--formula"), _in_symbols(says, "--is")
    facts: tuple[Fact, ...] = tuple(f for text in given for f in _facts(text))
    lines = {key: f"--{option}" for key, option in _OPTIONS}
    letters = {name: name for name in found.symbols()}
    kept = tuple(name.strip() for text in keep for name in text.split(",") if name.strip())
    return Claim("own", "", "seen", SOURCE, subject, says, found, letters, tuple(map(str, facts)), kept, file="--formula", lines=lines)


def _in_symbols(text: str, where: str) -> str:
    """The definition behind the name of a quantity (flops.forward: F), another text as it is. InputError for such a name beside others."""
    if text.strip() in QUANTITIES:
        return QUANTITIES[text.strip()].symbol
    for name in sorted(QUANTITIES, key=len, reverse=True):
        if "." in name and name in text:
            raise InputError(f"{where}: in an expression {name} is {QUANTITIES[name].symbol}")
    return text


def _facts(text: str) -> tuple[Fact, ...]:
    try:
        return read_facts(text)
    except InputError as error:
        raise InputError(f"--given: {error}") from None


def own_subject(model: str, strategy: str, system: str, settings: Mapping[str, Any]) -> Subject:
    """What a formula is of, as the options of `symsim derive` say it."""
    assumed = {n.removeprefix("assume."): str(v) for n, v in settings.items() if n.startswith("assume.")}
    rest = {n: v for n, v in settings.items() if not n.startswith("assume.")}
    return Subject(model, strategy, system, tuple(sorted(rest.items())), tuple(sorted(assumed.items())))


def own_outcome(claim: Claim, derivations: Derivations, explained: bool) -> tuple[Outcome, Nearest | None]:
    """The verdict of one's own formula, facts that are not needed left out; explained: with the switches that come nearest."""
    found = judge(claim, derivations, lenient=True)
    return found, nearest_switches(found, derivations) if explained else None


def own_text(found: Outcome, closest: Nearest | None, explained: bool) -> str:
    """What is said of one's own formula, in 80 columns."""
    claim = found.claim
    lines = [f"{claim.says:{_HEAD}}of {claim.subject}"]
    if len(claim.says) > _HEAD - 2:
        lines = textwrap.wrap(f"{claim.says} of {claim.subject}", 80, break_on_hyphens=False)
    lines += _row("verdict", found.verdict.replace("_", " "))
    if found.difference:
        lines += [line for said in sized(found) for line in _row("", said)]
        lines += _row("", f"symsim less published: {found.difference}", found.difference)
    lines += _row("published", str(found.published), found.published)
    if found.verdict == "tested":
        lines += _row("symsim", f"{claim.says}, equal at {found.points} random points; floor, ceil, max or min stay")
    else:
        lines += _row("symsim", str(found.derived), found.derived)
    lines += [line for head, said in (("given", claim.given), ("kept", claim.keep)) if said for line in _row(head, ", ".join(said))]
    if explained and found.difference:
        lines += _row("nearest", _nearest_said(closest), closest.left if closest is not None else ZERO)
    return "\n".join(lines) + "\n"


def _nearest_said(closest: Nearest | None) -> str:
    if closest is None:
        return "no single or paired switch of assumptions leaves less"
    return f"{closest}: equal" if closest.equal else f"{closest}: symsim less published is {closest.left}"


def _row(head: str, text: str, amount: Expr = ZERO) -> list[str]:
    """amount: what the text is of, which is not shown whole where that is long."""
    lines = textwrap.wrap(text, 80 - _HEAD, break_on_hyphens=False, break_long_words=False) or [""]
    if amount and len(lines) > _MOST_LINES:
        lines = [*lines[:_SHOWN], f"... {len(lines) - _SHOWN} more lines of {counted(len(amount.terms), 'term')}: --json has all"]
    return [f"{head:{_HEAD}}{lines[0]}", *(" " * _HEAD + line for line in lines[1:])]
