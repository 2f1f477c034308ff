"""A formula of the user's own against a definition: `symsim audit --formula EXPR --is NAME --model M`."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symsim.algebra.facts import Fact, read_facts
from symsim.algebra.grammar import parse
from symsim.audit.claims import Claim, Subject
from symsim.audit.explaining import Nearest, nearest_switches
from symsim.audit.schema import Source
from symsim.audit.subjects import Derivations
from symsim.audit.table import sized
from symsim.audit.verdicts import Outcome, judge
from symsim.errors import InputError

SOURCE = Source(title="a formula of one's own", authors="", year=0, url="the command line")


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
    explained: bool


def run_own(own: Own, as_json: bool, show: Callable[[str], None]) -> int:
    """The exit status: 1 where the formula is not what symsim derives."""
    claim = own_claim(own.formula, own.says, own_subject(own.model, own.strategy, own.system, own.settings), own.given)
    found, closest = own_outcome(claim, Derivations(), own.explained)
    if as_json:
        # processes, tables and comparisons come with it, for which a formula of one's own does not wait
        from symsim.audit.running import Audit

        answer = Audit((found,)).to_json()
        if closest is not None:
            answer["results"][0]["nearest"] = {"switches": dict(closest.switches), "difference": str(closest.left)}
        show(json.dumps(answer, indent=2) + "\n")
    else:
        show(own_text(found, closest, own.explained))
    return 0 if found.verdict in ("equal", "equal_under", "tested") else 1


def own_claim(formula: str, says: str, subject: Subject, given: Sequence[str]) -> Claim:
    """A formula in symsim's own names as a claim. InputError names what does not read."""
    found = parse(formula, where="--formula")
    facts: tuple[Fact, ...] = tuple(f for text in given for f in _facts(text))
    lines = {key: f"--{option}" for key, option in (("says", "is"), ("formula", "formula"), ("given", "given"), ("of", "model"))}
    letters = {name: name for name in found.symbols()}
    return Claim("own", "", "seen", SOURCE, subject, says, found, letters, tuple(map(str, facts)), file="--formula", lines=lines)


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
    rows = [(claim.says, f"of {claim.subject}"), ("published", str(found.published)), ("symsim", str(found.derived))]
    if found.verdict == "tested":
        rows[2] = ("symsim", f"{claim.says}, equal at {found.points} random points; floor, ceil, max or min stay")
    if claim.given:
        rows.append(("given", ", ".join(claim.given)))
    rows.append(("verdict", found.verdict.replace("_", " ")))
    if found.difference:
        rows += [("", "symsim less published: " + str(found.difference)), *(("", line) for line in sized(found))]
    if explained and found.difference:
        rows.append(("nearest", _nearest_said(closest)))
    width = max(len(head) for head, _ in rows) + 2
    lines = [line for head, text in rows for line in _row(head, text, width)]
    return "\n".join(lines) + "\n"


def _nearest_said(closest: Nearest | None) -> str:
    if closest is None:
        return "no single or paired switch of assumptions leaves less"
    return f"{closest}: equal" if closest.equal else f"{closest}: symsim less published is {closest.left}"


def _row(head: str, text: str, width: int) -> list[str]:
    wrapped = textwrap.wrap(text, 80 - width, break_on_hyphens=False, break_long_words=False) or [""]
    return [f"{head:{width}}{wrapped[0]}", *(" " * width + line for line in wrapped[1:])]
