"""What a block has in common with blocks that were written before it, but for the names around its operations: rows of tables, and messages.

A depth of multi-token prediction has a whole layer inside (`mtp.attention.core`), so that names are alike where one ends with the other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from symsim.ir.messages import Message
from symsim.report.document import Cell, Code, Row, Span, as_spans

AGAIN = " (run again)"  # of an operation that backward recomputes, behind its name
REPEATED = ", recomputed"  # of a message that backward sends again, behind what it is of
_FEWEST = 4  # fewer equal rows, or messages, than this are written out again
_NUMBERS = re.compile(r"[\d, ]+")
_DOTTED = re.compile(r"\w+(\.\w+)+")  # an operation in what a message says
_NUMBERED = ("plain", "inner")


def since(rows: Sequence[Row], earlier: Mapping[str, Sequence[Row]]) -> tuple[Row, ...]:
    """The rows, with the numbered ones that follow one another in an earlier table, too, named instead of repeated. earlier: tables by their name."""
    under: list[tuple[Row, Row | None]] = []
    heading: Row | None = None
    for row in rows:
        heading = row if row.role == "group" else None if row.role == "plain" else heading
        if row.role != "group":
            under.append((row, heading))
    alone = [row for row, _ in under]
    known = {where: [r for r in table if r.role != "group"] for where, table in earlier.items()}
    made: list[Row] = []
    at, last = 0, None
    while at < len(alone):
        where, start, length = _longest(alone[at:], known) if alone[at].role in _NUMBERED else ("", 0, 0)
        if length >= _FEWEST:
            ours, theirs = _range(alone[at : at + length]), _range(known[where][start : start + length])
            again = ", run again" if _again(alone[at]) and not _again(known[where][start]) else ""
            made.append(Row((f"{ours}: as in {where}{again}" if ours == theirs else f"{ours}: as {theirs} in {where}{again}",), "group"))
            at, last = at + length, None
            continue
        row, heading = under[at]
        if heading is not None and heading is not last:
            made.append(heading)
        made.append(row)
        at, last = at + 1, heading
    return tuple(made)


def same_as(rows: Sequence[Row], earlier: Mapping[str, Sequence[Row]]) -> str:
    """The earlier table that has the same rows; none of none."""
    return next((where for where, known in earlier.items() if len(known) == len(rows) and all(map(_same, rows, known))), "")


def _longest(rows: Sequence[Row], known: Mapping[str, Sequence[Row]]) -> tuple[str, int, int]:
    """The table, the place in it and the length of the longest run of rows that these begin with."""
    best = ("", 0, 0)
    for where, table in known.items():
        for start in range(len(table)):
            once = not _again(rows[0]) or _again(table[start])
            pairs = enumerate(zip(rows, table[start:]))
            length = next((n for n, (a, b) in pairs if not (_same(a, b) if once else _same_again(a, b))), min(len(rows), len(table) - start))
            # what a message between two operations belongs to is not said by their numbers
            while length and start + length < len(table) and rows[length - 1].role not in _NUMBERED:
                length -= 1
            best = max(best, (where, start, length), key=lambda found: found[2])
    return best


def _range(rows: Sequence[Row]) -> str:
    numbers = [str(r.cells[0]) for r in rows if r.role in _NUMBERED]
    return f"{numbers[0]}\u2013{numbers[-1]}" if len(numbers) > 1 else numbers[0]


def _same(a: Row, b: Row) -> bool:
    return (a.role == "message") == (b.role == "message") and len(a.cells) == len(b.cells) and all(map(_same_cell, a.cells, b.cells))


def _again(row: Row) -> bool:
    return row.role in _NUMBERED and AGAIN in as_spans(row.cells[1])


def _same_again(a: Row, b: Row) -> bool:
    """Whether the first is the second, recomputed: what is kept for it is another matter, and has a table."""
    if a.role == "message":
        return _same(a, b)
    once = Row((a.cells[0], tuple(s for s in as_spans(a.cells[1]) if s != AGAIN), *a.cells[2:-1], b.cells[-1]), a.role)
    return _again(a) and len(a.cells) == len(b.cells) and _same(once, b)


def _same_cell(a: Cell, b: Cell) -> bool:
    ours, theirs = as_spans(a), as_spans(b)
    return len(ours) == len(theirs) and all(map(_same_span, ours, theirs))


def _same_span(a: Span, b: Span) -> bool:
    if isinstance(a, Code) and isinstance(b, Code):
        return _same_name(a.text, b.text)
    if isinstance(a, str) and isinstance(b, str) and _NUMBERS.fullmatch(a) and _NUMBERS.fullmatch(b):
        # places in this block's tables
        return a.count(",") == b.count(",")
    return a == b


def _same_name(a: str, b: str) -> bool:
    return a == b or a.endswith(f".{b}") or b.endswith(f".{a}")


def inside(operations: Sequence[Row], earlier: Mapping[str, Sequence[Row]]) -> list[str]:
    """Earlier tables all of whose operations are among these under any names, the longest first: each operation is in one of them at most."""
    left, found = Counter(_formulas(operations)), []
    for where, rows in sorted(earlier.items(), key=lambda item: -len(item[1])):
        own = Counter(_formulas(rows))
        if own and own <= left:
            left -= own
            found.append(where)
    return found


def _formulas(rows: Sequence[Row]) -> list[tuple[Cell, ...]]:
    """Dimensions, placement, FLOPs and bytes of each operation."""
    return [row.cells[2:6] for row in rows if row.role in _NUMBERED]


def beside(messages: Sequence[Message], earlier: Mapping[str, Sequence[Message]]) -> tuple[list[str], list[Message]]:
    """Blocks all of whose messages are among these, those with most first, and the messages that are in none of them."""
    found, left = [], list(messages)
    for where, known in sorted(earlier.items(), key=lambda item: -len(item[1])):
        rest = without(left, known) if len(known) >= _FEWEST else None
        if rest is not None:
            found.append(where)
            left = rest
    return found, left


def at_operations(messages: Sequence[Message], earlier: Mapping[str, Sequence[Message]]) -> tuple[str, list[str], list[Message]]:
    """The earlier block that has most of these messages, its operations that have the same ones here, and the messages at none of these."""
    best: tuple[str, list[str], list[Message]] = ("", [], list(messages))
    for where, known in earlier.items():
        names, left = [], list(messages)
        for name, own in _by_operation(messages).items():
            theirs = [m for n, of in _by_operation(known).items() if _same_name(n, name) for m in of]
            if len(own) == len(theirs) and without(own, theirs) is not None:
                names.append(name)
                left = [m for m in left if m not in own]
        best = min(best, (where, names, left), key=lambda found: len(found[2]))
    return best if len(messages) - len(best[2]) >= _FEWEST else ("", [], list(messages))


def _by_operation(messages: Sequence[Message]) -> dict[str, list[Message]]:
    made: dict[str, list[Message]] = {}
    for message in messages:
        found = _DOTTED.search(message.what)
        if found is not None:
            made.setdefault(operation(found[0]), []).append(message)
    return made


def operation(name: str) -> str:
    """The name of an operation without that of the collective that it needs."""
    return re.sub(r"\.(all_gather|reduce_scatter|all_to_all)$", "", name)


def without(messages: Sequence[Message], part: Sequence[Message], ending: str = "", phase: str = "") -> list[Message] | None:
    """The messages but for a part of them, each at most once; None where one of the part is not among them. ending: what messages here say
    beyond those of the part; phase: theirs, if it is not the part's."""
    left = list(messages)
    for message in part:
        at = next((n for n, m in enumerate(left) if _same_message(m, message, ending, phase)), None)
        if at is None:
            return None
        del left[at]
    return left


def once(messages: Sequence[Message], forward: Sequence[Message]) -> list[Message] | None:
    """The messages without those that backward sends again, where these are some, and those of the forward given."""
    again = [m for m in messages if m.what.endswith(REPEATED)]
    if len(again) < _FEWEST or without(again, forward, REPEATED, "backward") != []:
        return None
    return [m for m in messages if m not in again]


def _same_message(a: Message, b: Message, ending: str, phase: str) -> bool:
    words, known = a.what.split(), f"{b.what}{ending}".split()
    return (
        (a.phase, a.one_call, a.count, a.per) == (phase or b.phase, b.one_call, b.count, b.per)
        and len(words) == len(known)
        and all(map(_same_name, (w.rstrip(",;") for w in words), (w.rstrip(",;") for w in known)))
    )
