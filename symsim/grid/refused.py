"""Why points of a sweep cannot run: how many the first rule that each breaks refuses, and that rule's sentence about one of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from symsim.errors import InputError
from symsim.grid.family import DERIVED, Array, Family
from symsim.grid.variant import strategy_at, taken


@dataclass(frozen=True)
class Refused:
    """rule: a function of `symsim.lowering.checks`, or another reason's name. points: whose first reason it is. why: of one of them."""

    rule: str
    points: int
    why: str


def refused(families: Iterable[Family], impossible: Iterable[tuple[Family, InputError]]) -> list[Refused]:
    """The most frequent first. impossible: families whose model cannot be made, all of whose points are refused."""
    points: dict[str, int] = {}
    why: dict[str, str] = {}
    for family, error in impossible:
        points["model"] = points.get("model", 0) + math.prod(map(len, family.chosen))
        why.setdefault("model", str(error))
    for family in families:
        sizes = [len(positions) for positions in family.chosen]
        total = math.prod(sizes)
        left = np.ones([1] * len(sizes), dtype=bool)
        for rule, allowed in family.allowed:
            before, left = left, left & taken(allowed, family.chosen)
            count = _points(before, total) - _points(left, total)
            if count:
                points[rule] = points.get(rule, 0) + count
                if rule not in why:
                    why[rule] = _reason(family, rule, before & ~left)
    return [Refused(rule, points[rule], why[rule]) for rule in sorted(points, key=lambda r: -points[r])]


def _points(mask: Array, total: int) -> int:
    return int(mask.sum()) * (total // mask.size)


def _reason(family: Family, rule: str, where: Array) -> str:
    """What the rule says of the first point at which it is broken."""
    at = np.unravel_index(int(np.argmax(where)), where.shape)
    point = tuple(int(positions[k]) for positions, k in zip(family.chosen, at))
    if rule.startswith(DERIVED):
        key = rule.removeprefix(DERIVED)
        return f"{key}={family.space.derived[key].text.lstrip('=')} is none that {key} can be"
    if rule not in family.rules:
        return "an imbalance is more than the ranks that share the experts"
    try:
        family.rules[rule](family.architecture, strategy_at(family.fields, point))
    except InputError as error:
        return str(error)
    return ""
