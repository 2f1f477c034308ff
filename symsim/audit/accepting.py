"""`--accept ID`: the verdict that was found takes the place of the stored one in its file; every other byte stays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from symsim.audit.verdicts import Outcome
from symsim.errors import InputError
from symsim.inputs.reading import KeyPath, read_text, write_file


@dataclass(frozen=True)
class _Span:
    """Where a value stands in a text, the column of its key, and whether it stands inside brackets."""

    start: int
    end: int
    column: int
    flow: bool


def accept(outcome: Outcome, number: int) -> str:
    """Store the verdict found of a file's claim of this number; a line that says what became of it. InputError where it wants words first."""
    claim, stored = outcome.claim, outcome.claim.stored
    if not outcome.red:
        return f"{claim.id} is {outcome.verdict}, as stored"
    if outcome.verdict in ("symsim_wrong", "out_of_scope"):
        raise InputError(f"{claim.place('verdict')}: {claim.id} is {outcome.verdict}, which is not accepted")
    if outcome.switched and stored is not None:
        raise InputError(f"{claim.place('verdict.switch')}: {claim.id} is not equal with {stored.switch}: take the switch out, and accept it then")
    plain = outcome.verdict in ("equal", "equal_under", "tested")
    if not plain and (stored is None or not stored.why):
        wanted = f"verdict: {{is: {outcome.verdict}, why: ...}}"
        raise InputError(f"{claim.place('verdict')}: {claim.id} {outcome.verdict}; say why first, as {wanted}, and accept it then")
    text = read_text(claim.file)
    here: KeyPath = ("claims", number)
    spans = _spans(text)
    if plain and (*here, "verdict") not in spans:
        changed = _added(text, spans, here, "verdict", outcome.verdict)
    elif plain:
        changed = _put(text, spans[(*here, "verdict")], outcome.verdict)
    else:
        changed = _differing(text, outcome, (*here, "verdict"))
    write_file(Path(claim.file), changed.encode())
    return f"{claim.id}: {outcome.red}; now stored as {outcome.verdict}"


def _differing(text: str, outcome: Outcome, verdict: KeyPath) -> str:
    text = _put(text, _spans(text)[(*verdict, "is")], outcome.verdict)
    difference = f'"{outcome.difference}"'
    spans = _spans(text)
    if (*verdict, "difference") in spans:
        return _put(text, spans[(*verdict, "difference")], difference)
    return _added(text, spans, verdict, "difference", difference)


def _put(text: str, span: _Span, value: str) -> str:
    return text[: span.start] + value + text[span.end :]


def _added(text: str, spans: dict[KeyPath, _Span], within: KeyPath, key: str, value: str) -> str:
    """A key after the last one of a mapping."""
    inside = [(path, span) for path, span in spans.items() if path[:-1] == within and len(path) == len(within) + 1]
    last = max(inside, key=lambda item: item[1].end)[1]
    between = ", " if last.flow else "\n" + " " * last.column
    return text[: last.end] + f"{between}{key}: {value}" + text[last.end :]


def _spans(text: str) -> dict[KeyPath, _Span]:
    """Where every value of a YAML text stands, by the path of keys to it."""
    from ruamel.yaml import YAML
    from ruamel.yaml.events import MappingEndEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent

    found: dict[KeyPath, _Span] = {}
    opened: list[list] = []  # [path, keys or a count, the key read, its column, whether in brackets, where it starts]
    end = 0

    def place() -> tuple[KeyPath, int, bool]:
        if not opened:
            return (), 0, False
        path, kind, key, column, flow, _ = opened[-1]
        if kind == "list":
            opened[-1][2] = key + 1
            return (*path, key), column, flow
        opened[-1][2] = None
        return (*path, key), column, flow

    for event in YAML(typ="safe", pure=True).parse(text):
        if isinstance(event, ScalarEvent):
            if opened and opened[-1][1] == "map" and opened[-1][2] is None:
                opened[-1][2], opened[-1][3] = event.value, event.start_mark.column
                continue
            end = len(text[: event.end_mark.index].rstrip()) if event.style in ("|", ">") else event.end_mark.index
            path, column, flow = place()
            found[path] = _Span(event.start_mark.index, end, column, flow)
        elif isinstance(event, (MappingStartEvent, SequenceStartEvent)):
            path, column, flow = place()
            kind = "map" if isinstance(event, MappingStartEvent) else "list"
            inside = flow or bool(event.flow_style)
            opened.append([path, kind, None if kind == "map" else 0, event.start_mark.column, inside, (event.start_mark.index, column, flow)])
        elif isinstance(event, (MappingEndEvent, SequenceEndEvent)):
            path, _, _, _, inside, (start, column, flow) = opened.pop()
            end = event.end_mark.index if inside else end
            found[path] = _Span(start, end, column, flow)
    return found
