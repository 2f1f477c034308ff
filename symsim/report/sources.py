"""The sources of a report: papers, data sheets and files of frameworks, each once, in the order in which they are named."""

from __future__ import annotations

from symsim.report.document import Column, Ref, Row, Section, Table, spans

ROOFLINE = "Williams, Waterman and Patterson, Roofline, CACM 52(4), 2009"


class Sources:
    """What a report names, by the text of the source."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def cited(self, text: str) -> Ref:
        """A reference to a source, new or not."""
        number = self._known.setdefault(" ".join(text.split()), len(self._known) + 1)
        return Ref(f"src{number}", "[{}]")

    def section(self) -> list[Section]:
        """The chapter, where anything was named. Written last."""
        if not self._known:
            return []
        rows = tuple(Row((f"[{n}]", text), anchor=f"src{n}") for text, n in self._known.items())
        said = spans("Papers, data sheets and files of frameworks, in the order in which they are named in brackets.")
        table = Table(said, (Column("", 2.4), Column("", 52.4)), rows)
        return [Section("Sources", (table,))]
