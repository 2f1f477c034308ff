"""Two evaluations set side by side, part by part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from symsim.algebra.quantity import BYTE
from symsim.api.result import Result
from symsim.report.amounts import human, percent, seconds
from symsim.report.columns import stroke, table
from symsim.report.step import MEMORY_PARTS, Step

_BAR = 20
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Row:
    """One part of two steps, or of two peaks: seconds, or bytes."""

    name: str
    one: float
    other: float

    @property
    def more(self) -> float:
        """None of it is the rounding of sums that are taken in another order."""
        return 0.0 if math.isclose(self.one, self.other, rel_tol=_ROUNDING) else self.other - self.one


@dataclass(frozen=True)
class Difference:
    """Parts of a step and of the peak of two evaluations; the parts of each add up to its last row."""

    one: Result
    other: Result
    time: Sequence[Row]
    memory: Sequence[Row]

    def to_json(self) -> dict[str, Any]:
        def said(rows: Sequence[Row]) -> list[dict[str, Any]]:
            return [{"part": r.name, "one": r.one, "other": r.other, "difference": r.more} for r in rows]

        return {"time": said(self.time), "memory": said(self.memory)}


def difference(one: Result, other: Result) -> Difference:
    """Part by part, the largest difference first. ValueError without systems."""
    return Difference(one, other, _time(one, other), _memory(one, other))


def _time(one: Result, other: Result) -> list[Row]:
    here, there = ({p.name: p.seconds for p in Step(r).parts} for r in (one, other))
    rows = [Row(name, here.get(name, 0.0), there.get(name, 0.0)) for name in dict.fromkeys([*here, *there])]
    rows = sorted((r for r in rows if r.one or r.other), key=lambda r: -abs(r.more))
    return [*rows, Row("one step", float(one.value("time.step")), float(other.value("time.step")))]


def _memory(one: Result, other: Result) -> list[Row]:
    here, there = (step.memory(step.fullest) for step in map(Step, (one, other)))
    rows = [Row(words, float(here[part]), float(there[part])) for part, words in MEMORY_PARTS.items()]
    rows = sorted((r for r in rows if r.one or r.other), key=lambda r: -abs(r.more))
    return [*rows, Row("peak of the fullest rank", float(one.value("memory.peak")), float(other.value("memory.peak")))]


def parts_table(title: str, result: Result) -> str:
    """Where the time of a step goes, as 'symsim eval' shows it."""
    parts = [p for p in Step(result).parts if p.seconds]
    most = max(p.share for p in parts)
    rows = [[p.name, seconds(p.seconds), _share(p.share), stroke(p.share / most, _BAR).ljust(_BAR)] for p in parts]
    return table(title, ["", "time", "share", ""], rows)


def difference_text(found: Difference, names: tuple[str, str]) -> str:
    """Two tables in 80 columns; names: of the two, as the columns are headed."""
    time = [
        [r.name, seconds(r.one), seconds(r.other), _signed(seconds(abs(r.more)), r.more), _share(r.more / found.time[-1].one)] for r in found.time
    ]
    memory = [
        [
            r.name,
            human(int(r.one), BYTE),
            human(int(r.other), BYTE),
            _signed(human(int(abs(r.more)), BYTE), r.more),
            _share(r.more / found.memory[-1].one),
        ]
        for r in found.memory
    ]
    header = ["", *names, "difference", "of the first"]
    return "\n".join([table("Time of a step (of messages what nothing hides)", header, time), "", table("Peak memory", header, memory)]) + "\n"


def _signed(text: str, value: float) -> str:
    return text if not value else f"{'+' if value > 0 else '-'}{text}"


def _share(share: float) -> str:
    """What rounds to nothing has no sign."""
    said = percent(share).replace("\u2009", " ")
    return "0.0 %" if said == "-0.0 %" else said
