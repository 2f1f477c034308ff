"""A file of derivations/: its source, the paper's letters, and claims. docs/audit.md explains the keys."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

VERDICTS = ("equal", "equal_under", "tested", "differs", "source_contradicts_itself", "symsim_wrong", "out_of_scope")
CLASSES = ("inference", "schedule", "arithmetic")

Verdict = Literal["equal", "equal_under", "tested", "differs", "source_contradicts_itself", "symsim_wrong", "out_of_scope"]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def _expression(given: Any) -> Any:
    """A formula may be written as a bare number."""
    return str(given) if isinstance(given, (int, float)) and not isinstance(given, bool) else given


Text = Annotated[str, BeforeValidator(_expression)]


class Source(Part):
    """Where claims were printed."""

    title: str
    authors: str
    year: int
    arxiv: str | None = None
    doi: str | None = None
    url: str | None = None
    repository: str | None = None
    commit: str | None = None
    file: str | None = None
    note: str = ""

    @model_validator(mode="after")
    def _found(self) -> "Source":
        if not (self.arxiv or self.doi or self.url or (self.repository and self.commit and self.file)):
            raise ValueError("says nowhere to find it: give arxiv, doi, url, or repository, commit and file")
        return self

    @property
    def where(self) -> str:
        """Its address."""
        if self.arxiv:
            return f"arXiv:{self.arxiv}"
        return self.doi or self.url or f"{self.repository}@{(self.commit or '')[:8]} {self.file}"

    def __str__(self) -> str:
        return f"{self.authors} {self.year}, {self.where}"


class Of(Part):
    """What a claim is of: a model, a strategy, a system, settings and assumptions, as `symsim derive` takes them."""

    model: str | None = None
    strategy: str | None = None
    system: str | None = None
    set: dict[str, Any] = Field(default_factory=dict)
    assume: dict[str, Any] = Field(default_factory=dict)


class Neglect(Part):
    """A term that a source leaves out: symsim less published."""

    term: Text
    why: str


class Against(Part):
    """Another place of the same source that says something else."""

    at: str
    formula: Text


class Stored(Part):
    """A verdict that was approved. difference: symsim less published; switch: other choices of assumptions under which that is zero;
    instead: what the source's own premises give, in its letters."""

    verdict: Verdict = Field(alias="is")
    difference: Text | None = None
    switch: str = ""
    instead: Text | None = None
    against: Against | None = None
    class_: Literal["inference", "schedule", "arithmetic"] | None = Field(None, alias="class")
    why: str = ""

    @model_validator(mode="after")
    def _complete(self) -> "Stored":
        if self.verdict == "out_of_scope" and self.class_ is None:
            raise ValueError(f"is: out_of_scope needs a class: {', '.join(CLASSES)}")
        if self.verdict == "source_contradicts_itself" and self.instead is None and self.against is None:
            raise ValueError("is: source_contradicts_itself needs `instead` or `against`")
        if self.switch and self.verdict not in ("differs", "source_contradicts_itself"):
            raise ValueError(f"is: {self.verdict} needs no switch")
        if self.verdict in ("differs", "source_contradicts_itself", "symsim_wrong", "out_of_scope") and not self.why:
            raise ValueError(f"is: {self.verdict} needs a why")
        return self


def _short(given: Any) -> Any:
    return {"is": given} if isinstance(given, str) else given


class ClaimEntry(Part):
    id: str
    at: str
    status: Literal["seen", "recalled", "inferred"]
    latex: str = ""
    title: str = ""
    formula: Text | None = None
    says: Text | None = None
    symbols: dict[str, Text] = Field(default_factory=dict)
    of: Of = Field(default_factory=Of)
    given: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    neglects: tuple[Neglect, ...] = ()
    note: str = ""
    verdict: Annotated[Stored | None, BeforeValidator(_short)] = None

    @model_validator(mode="after")
    def _complete(self) -> "ClaimEntry":
        if self.verdict is None or self.verdict.verdict != "out_of_scope":
            missing = [n for n in ("formula", "says") if getattr(self, n) is None]
            if missing:
                raise ValueError(f"{self.id} has no {missing[0]}")
        return self


Amount = int | float | str
"""A number, or arithmetic on numbers as text."""


class RowEntry(Part):
    """A printed number. what: of what, in a word; within: how near symsim's must be, as a share; misses: why it is not."""

    printed: Amount
    what: str = ""
    says: Text | None = None
    of: Of = Field(default_factory=Of)
    values: dict[str, Amount] = Field(default_factory=dict)
    stage: int = Field(0, ge=0)
    within: float | None = Field(None, ge=0, lt=1)
    misses: str = ""


class TableEntry(Part):
    """A table of printed numbers; what a row leaves out is its table's. values: numbers of symbols and definitions."""

    id: str
    at: str
    status: Literal["seen", "recalled", "inferred"]
    title: str = ""
    unit: str = ""
    says: Text | None = None
    of: Of = Field(default_factory=Of)
    values: dict[str, Amount] = Field(default_factory=dict)
    within: float = Field(1e-9, ge=0, lt=1)
    note: str = ""
    rows: tuple[RowEntry, ...] = Field(min_length=1)


class File(Part):
    source: Source
    symbols: dict[str, Text] = Field(default_factory=dict)
    same: tuple[str, ...] = ()
    of: Of = Field(default_factory=Of)
    claims: tuple[ClaimEntry, ...] = ()
    tables: tuple[TableEntry, ...] = ()
