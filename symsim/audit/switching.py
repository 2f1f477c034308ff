"""A claim's two sides, as it is and under other choices of assumptions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from symsim.algebra.expr import Expr
from symsim.audit.claims import Claim
from symsim.audit.proving import Sides, about, prove, sides_of, tidy
from symsim.audit.subjects import Derivations
from symsim.errors import InputError, cut

Switches = tuple[tuple[str, str], ...]
"""Names and values, as --set takes them: assume.NAME for an assumption, else a setting."""

_ASSUMED = "assume."


def sides_under(claim: Claim, derivations: Derivations) -> Sides:
    """The sides of a claim that is in scope."""
    assert claim.subject is not None
    try:
        derived = derivations.of(claim.subject)
    except InputError as error:
        raise InputError(f"{claim.place('of')}: {error}") from None
    return sides_of(claim, derived)


def read_switches(text: str, place: str) -> Switches:
    """'assume.attention_kernel=math, fusion=eager' by name. InputError where a part is no NAME=VALUE."""
    found = []
    for part in text.split(","):
        name, equals, value = (p.strip() for p in part.partition("="))
        if not (equals and name and value):
            raise InputError(f"{place}: '{cut(part.strip())}' is not NAME=VALUE")
        found.append((name, value))
    return tuple(found)


def left_under(claim: Claim, switches: Iterable[tuple[str, str]], derivations: Derivations) -> Expr:
    """symsim less published with these switches, under those facts that then say something. InputError where they do not go with the
    subject, or a name is not there then."""
    assert claim.subject is not None
    given = dict(switches)
    assumed = {n.removeprefix(_ASSUMED): v for n, v in given.items() if n.startswith(_ASSUMED)}
    settings = dict(claim.subject.settings) | {n: v for n, v in given.items() if not n.startswith(_ASSUMED)}
    assumptions = dict(claim.subject.assumptions) | assumed
    subject = replace(claim.subject, settings=tuple(sorted(settings.items())), assumptions=tuple(sorted(assumptions.items())))
    sides = sides_under(replace(claim, subject=subject), derivations)
    proof = prove(sides, about(sides, sides.difference), sides.difference)
    if not proof.holds:
        sides = sides.alone
        proof = prove(sides, about(sides, sides.difference), sides.difference)
    return tidy(proof.left)
