"""The part of YAML that most files keep to, read in a hundredth of the time: mappings and lists by indentation or on a line, plain and quoted
words, folded text.

What is read so means the same to a full parser; a text that has anything else is left to one (None), and so is all that may be wrong in it.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple


class Event(NamedTuple):
    """A step through a text. what: {}, [] as one begins, None as it ends, else text. plain: as it is written, without quotes."""

    what: Any
    line: int
    plain: bool = False


class _Other(Exception):
    """The text has more of YAML than is read here."""


# a key, and a value that may be no other of YAML's forms: it begins with nothing that says so, has no ': ' and no ' #' in it
_KEY = re.compile(r'(?:(-{0,2}[A-Za-z0-9_][A-Za-z0-9_./-]*)|"([^"\\]*)"|\'([^\']*)\'):(?: +(.*))?')
_PLAIN = re.compile(r"(?:[A-Za-z0-9_./(+~$]|<(?!<)|-[0-9.])[^#:]*(?:(?:(?<! )#|:(?! ))[^#:]*)*")
_QUOTED = re.compile(r'"([^"\\]*)"|\'([^\']*)\'')
_COMMENT = re.compile(r"(?:^| +)#.*| +$")
# between brackets: marks, and words of letters that are no marks
_FLOW = re.compile(r' *(?:([\[\]{},]|: )|((?:[A-Za-z0-9_./(+]|-[0-9.])[A-Za-z0-9_./()+*-]*(?: +[A-Za-z0-9_./()+*-]+)*)|"([^"\\]*)"|\'([^\']*)\')')
_DEEPEST, _LONGEST = 50, 1000


def plain_events(text: str) -> list[Event] | None:
    """The events of a text, in the order of a parser's; None where one is needed."""
    lines = text.split("\n")
    if not all(line.isprintable() and len(line) <= _LONGEST for line in lines):
        return None
    reader = _Reader(lines)
    try:
        start = reader.skip()
        if start is None:
            return None
        reader.block(start, 0)
        return reader.events if reader.skip() is None else None
    except _Other:
        return None


class _Reader:
    """at: the line that is read next, from 0."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.at = 0
        self.events: list[Event] = []

    def skip(self) -> int | None:
        """How far the next line is indented that has something on it; None at the end."""
        while self.at < len(self.lines):
            line = self.lines[self.at]
            content = line.lstrip(" ")
            if content and content[0] != "#":
                return len(line) - len(content)
            self.at += 1
        return None

    def block(self, indent: int, depth: int) -> None:
        if depth > _DEEPEST:
            raise _Other
        listed = self._item(indent) is not None
        self.events.append(Event([] if listed else {}, self.at + 1))
        while self.skip() == indent:
            item = self._item(indent)
            if listed != (item is not None):
                break
            if item is None:
                self._pair(self.lines[self.at][indent:], indent, depth)
            else:
                self._listed(item, indent, depth)
        if (after := self.skip()) is not None and after > indent:
            raise _Other
        self.events.append(Event(None, self.at))

    def _item(self, indent: int) -> str | None:
        """What follows a dash, if the line begins with one."""
        line = self.lines[self.at]
        return line[indent + 1 :] if line.startswith("-", indent) and line[indent + 1 : indent + 2] in ("", " ") else None

    def _listed(self, item: str, indent: int, depth: int) -> None:
        content = item.lstrip(" ")
        inner = indent + 1 + len(item) - len(content)
        if not _KEY.fullmatch(_COMMENT.sub("", content)):
            return self._value(content, indent, depth, listed=True)
        if depth == _DEEPEST:
            raise _Other
        self.events.append(Event({}, self.at + 1))
        self._pair(content, inner, depth + 1)
        while self.skip() == inner and self._item(inner) is None:
            self._pair(self.lines[self.at][inner:], inner, depth + 1)
        self.events.append(Event(None, self.at))

    def _pair(self, content: str, indent: int, depth: int) -> None:
        found = _KEY.fullmatch(content)
        if not found:
            raise _Other
        self.events.append(Event(next(part for part in found.groups() if part is not None), self.at + 1))
        self._value(found[4] or "", indent, depth)

    def _value(self, content: str, indent: int, depth: int, listed: bool = False) -> None:
        """A value after its key or dash, which stands at `indent`; the next line is that of the next."""
        if content == ">-":
            return self._folded(indent)
        line = self.at + 1
        bare = _COMMENT.sub("", content)
        self.at += 1
        after = self.skip()
        inner = after is not None and (after > indent or (after == indent and not listed and self._item(indent) is not None))
        if bare == "" and inner:
            assert after is not None
            return self.block(after, depth + 1)
        if inner:
            raise _Other
        if content[:1] in ("[", "{"):
            self.events += _flow(content, line)
        elif content[:1] in ("'", '"'):
            self.events.append(_quoted(bare, line))
        elif bare == "" or (_PLAIN.fullmatch(bare) and not bare.endswith(":")):
            self.events.append(Event(bare, line, True))
        else:
            raise _Other

    def _folded(self, indent: int) -> None:
        line, words = self.at + 1, []
        self.at += 1
        inner = None
        while self.at < len(self.lines):
            text = self.lines[self.at]
            content = text.lstrip(" ")
            at = len(text) - len(content)
            if not content or at <= indent:
                break
            if at != (inner or at) or text.endswith(" "):
                raise _Other
            inner = at
            words.append(content)
            self.at += 1
        # a line without text in it would begin a paragraph
        if not words or (self.at < len(self.lines) and not self.lines[self.at].strip() and self.skip() is not None):
            raise _Other
        self.events.append(Event(" ".join(words), line))


def _quoted(text: str, line: int) -> Event:
    found = _QUOTED.fullmatch(text)
    if not found:
        raise _Other
    return Event(found[1] if found[1] is not None else found[2], line)


def _flow(text: str, line: int) -> list[Event]:
    """What stands between brackets on one line, and nothing after it but a comment."""
    tokens: list[tuple[str, Event | None]] = []
    at = depth = 0
    while not tokens or depth:
        found = _FLOW.match(text, at)
        if not found:
            raise _Other
        at = found.end()
        mark = found[1] or ""
        depth += (mark in ("[", "{")) - (mark in ("]", "}"))
        word = next((part for part in found.groups()[1:] if part is not None), "")
        tokens.append((mark, None if mark else Event(word, line, found[2] is not None)))
    if _COMMENT.sub("", text[at:]):
        raise _Other
    events: list[Event] = []
    if _flow_value(tokens, 0, line, events, 0) != len(tokens):
        raise _Other
    return events


def _flow_value(tokens: list[tuple[str, Event | None]], at: int, line: int, events: list[Event], depth: int) -> int:
    """The value that begins at a token goes to the events; where the next token is."""
    mark, word = tokens[at]
    if word is not None:
        events.append(word)
        return at + 1
    if mark not in ("[", "{") or depth > _DEEPEST:
        raise _Other
    end = "]" if mark == "[" else "}"
    events.append(Event([] if mark == "[" else {}, line))
    at += 1
    while tokens[at][0] != end:
        if mark == "{":
            key = tokens[at][1]
            if key is None or tokens[at + 1][0] != ": ":
                raise _Other
            events.append(key)
            at += 2
        at = _flow_value(tokens, at, line, events, depth + 1)
        if tokens[at][0] == "," and tokens[at + 1][0] != end:
            at += 1
        elif tokens[at][0] != end:
            raise _Other
    events.append(Event(None, line))
    return at + 1
