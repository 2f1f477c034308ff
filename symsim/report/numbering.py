"""Numbers of a report's sections, equations, tables and figures, and what refers to them.

An anchor is the kind of a place and its number (sec4.1, eq12, tab3, fig2, src5): every format has a label by this name.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from symsim.report.document import Equation, Equations, Paragraph, Part, Ref, Report, Row, Section, Table


def numbered(report: Report) -> Report:
    """The report with its numbers, and every `Ref` with the number of what it names; a Ref to what the report does not have goes."""
    places = _Places()
    sections = tuple(map(places.section, report.sections))
    return replace(report, sections=tuple(_referred(s, places.known) for s in sections))


@dataclass
class _Places:
    """Counters, and by key the number and the anchor of every place."""

    known: dict[str, tuple[str, str]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def section(self, section: Section) -> Section:
        if section.level == 1:
            number = str(self._next("sec"))
            self.counts["sub"] = 0
        else:
            number = f"{self.counts['sec']}.{self._next('sub')}"
        self._know(section.key or section.heading, number, f"sec{number}")
        return replace(section, number=number, parts=tuple(map(self._part, section.parts)))

    def _next(self, kind: str) -> int:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return self.counts[kind]

    def _know(self, key: str, number: str, anchor: str) -> None:
        if key:
            self.known.setdefault(key, (number, anchor))

    def _part(self, part: Part) -> Part:
        if isinstance(part, Paragraph):
            return part
        if isinstance(part, Equations):
            return replace(part, equations=tuple(map(self._equation, part.equations)))
        kind = "tab" if isinstance(part, Table) else "fig"
        number = self._next(kind)
        self._know(part.key, str(number), f"{kind}{number}")
        for place, row in enumerate(part.rows if isinstance(part, Table) else (), start=1):
            self._know(row.anchor, str(place), row.anchor)
        return replace(part, number=number)

    def _equation(self, equation: Equation) -> Equation:
        number = self._next("eq")
        self._know(f"={equation.key}" if equation.key else "", f"({number})", f"eq{number}")
        return replace(equation, number=number)


def _referred(node: Any, known: dict[str, tuple[str, str]]) -> Any:
    """A part of a document with the numbers of its references; what has none is the same object."""
    if isinstance(node, Ref):
        number, anchor = known.get(node.key, ("", ""))
        return replace(node, number=number, anchor=anchor) if anchor else ""
    if isinstance(node, tuple):
        made = tuple(_referred(n, known) for n in node)
        return node if all(a is b for a, b in zip(made, node)) else made
    if isinstance(node, (Section, Table, Row, Paragraph)):
        new = {f.name: _referred(getattr(node, f.name), known) for f in fields(node)}
        return node if all(value is getattr(node, name) for name, value in new.items()) else replace(node, **new)
    return node
