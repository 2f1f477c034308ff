"""Why points of a sweep cannot run: how many the first rule that each breaks refuses, and that rule's sentence about one of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from symsim.errors import InputError
from symsim.evaluation.evaluated import evaluated
from symsim.evaluation.run import run_of
from symsim.grid.family import DERIVED, Array, Family
from symsim.grid.group import Group
from symsim.grid.of_run import has_run
from symsim.grid.reported import Reported
from symsim.grid.variant import Undone, strategy_at, taken
from symsim.grid.work import Numbering
from symsim.program.numpy_kernel import LONGEST, NumpyKernel
from symsim.program.plan import NUMPY_CALL, make_plan
from symsim.program.program import Program, restricted


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


class _Count:
    """How many points there are, and the number of one of them."""

    def begin(self, numbering: Numbering, length: int) -> None:
        self.numbering, self.length, self.points, self.one = numbering, length, 0, -1

    def wanted(self, value: object) -> bool:
        return True

    def __call__(self, vector: int, refused: Array) -> None:
        hits = np.flatnonzero(np.broadcast_to(refused, (self.length,)))
        if len(hits) and not self.points:
            self.one = int(self.numbering.numbers(hits[:1] + vector * self.length)[0])
        self.points += len(hits)


def refused_runs(groups: Iterable[Group], sizes: Sequence[int]) -> Refused:
    """Points that can run, but not for as many steps as are asked for."""
    points, why = 0, ""
    for group in groups:
        reported = Reported(group, Program(sizes))
        there = has_run(reported)
        if there is None:
            break
        program, values = restricted([reported.program.apply("and", reported.runs(), reported.program.apply("not", there))], group.chosen)
        plan, found = make_plan(program, values, longest=LONGEST, call=NUMPY_CALL), _Count()
        found.begin(Numbering(plan, group.chosen, sizes), plan.length)
        NumpyKernel(plan).scan(0, plan.blocks, found)
        points += found.points
        why = why or (_reason_of_run(group, tuple(int(k) for k in np.unravel_index(found.one, sizes))) if found.points else "")
    return Refused("run", points, why)


def _reason_of_run(group: Group, point: tuple[int, ...]) -> str:
    """What `symsim run` says of a point."""
    own = group.variants[int(group.which[tuple(k if n > 1 else 0 for k, n in zip(point, group.which.shape))])]
    asked = Undone(own.family, own.chosen, own.fields, own.masks, point).asked
    try:
        run_of(evaluated(asked.model, asked.strategy, asked.assumptions, asked.overrides, asked.system))
    except InputError as error:
        return str(error)
    return ""
