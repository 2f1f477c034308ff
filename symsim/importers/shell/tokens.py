"""A shell script as words and operators: quotes, escapes, `$..` and lists, each piece with its line.

word = { text | 'text' | "text" | "$NAME" | "${..}" | "$(..)" | "$((..))" | "`..`" }, or NAME=( { word } )
The text that ends with WORD follows `<<` as a word of its own, quoted where WORD is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from symsim.errors import InputError, cut

PartKind = Literal["text", "parameter", "arithmetic", "command"]
# <a path of your own>, in a script that is to be filled in: no shell would read it as one that is; a word alone behind NAME=
_BLANK = re.compile(r"<[A-Za-z][\w./'-]*(?: +[\w./'-]+)*(?: +[\w./'-]*[A-Za-z])>(?!&)")
_FILLED = re.compile(r"<[A-Za-z][\w./' -]*[A-Za-z]>(?!&)")
_OPERATORS = (";;", "&&", "||", "|&", "&>>", "&>", ">>", "<<<", "<<-", "<<", ">&", "<&", ">|", "<>", ";", "|", "&", "(", ")", "<", ">")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*(?:\[[^\]\s]*\])?\+?=", re.ASCII)
# NAME=, NAME[..]=, NAME+= at the beginning of a word
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]\s]*\])?(\+?)=", re.ASCII | re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# what ((..)) may follow
_BEFORE = ("\n", ";", "&&", "||", "|", "(", "&")
_WORDS_BEFORE = ("for", "if", "elif", "while", "until", "then", "else", "do", "!")
_SPECIAL = "@*#?$!-0123456789"


@dataclass(frozen=True)
class Part:
    """A piece of a word. text: as written, or what stands inside ${..}, $((..)) or $(..). quoted: its expansion is not split."""

    kind: PartKind
    text: str
    quoted: bool
    line: int


@dataclass(frozen=True)
class Token:
    """A word of a script, or an operator (`operator` is its text). array: the words of NAME=( .. )."""

    parts: tuple[Part, ...]
    line: int
    source: str
    operator: str = ""
    array: "tuple[Token, ...] | None" = None


def tokens_of(text: str, where: str, line: int) -> list[Token]:
    """The words and operators of a script; InputError names the line of a quote or bracket without end."""
    return _Lexer(text.replace("\r\n", "\n"), where, line).tokens()


def words_of(text: str, where: str, line: int) -> tuple[Token, ...]:
    """The words inside `${NAME:-..}`; operators there are text."""
    return (Token(_Lexer(text, where, line).parts_until_end(), line, text),)


class _Lexer:
    def __init__(self, text: str, where: str, line: int) -> None:
        self.text, self.where, self.line, self.at = text, where, line, 0
        # texts behind << whose lines have not come yet, and those that have, in the order of their <<
        self.heredocs: list[tuple[str, bool, bool]] = []
        self.bodies: list[Token] = []

    def error(self, line: int, what: str) -> InputError:
        return InputError(f"{self.where}:{line}: {what}")

    def tokens(self) -> list[Token]:
        found: list[Token] = []
        while True:
            self._blank()
            if self.at >= len(self.text):
                return list(self._with_bodies(found))
            found += self._token(not found or found[-1].operator in _BEFORE or found[-1].source in _WORDS_BEFORE)

    def _blank(self) -> None:
        while self.at < len(self.text):
            if self.text.startswith("\\\n", self.at):
                self.at += 2
                self.line += 1
            elif self.text[self.at] in " \t\r":
                self.at += 1
            elif self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

    def _token(self, first: bool) -> list[Token]:
        line, start = self.line, self.at
        if self.text[start] == "\n":
            self.at += 1
            self.line += 1
            self._read_heredocs()
            return [Token((), line, "\n", "\n")]
        if first and self.text.startswith("((", start):
            inner = self._balanced("(", ")")
            return [Token((Part("arithmetic", inner[1:-1], True, line),), line, "((")]
        if self.text.startswith(("<(", ">("), start):
            self.at += 1
            inner = self._balanced("(", ")")
            return [Token((Part("command", inner, True, line),), line, f"<({inner})")]
        if _BLANK.match(self.text, start):
            return [self._word()]
        for operator in _OPERATORS:
            if self.text.startswith(operator, start):
                self.at += len(operator)
                if operator in ("<<", "<<-"):
                    self._blank()
                    word = self._word().source
                    delimiter = word.strip("'\"\\")
                    self.heredocs.append((delimiter, operator == "<<-", delimiter == word))
                    return [Token((), line, "<<", "<<")]
                return [Token((), line, operator, operator)]
        return [self._word()]

    def _with_bodies(self, found: list[Token]) -> Iterator[Token]:
        """The tokens, with the text behind each `<<`; of one at the end of all, nothing."""
        bodies = iter(self.bodies)
        for token in found:
            yield token
            if token.operator == "<<" and (body := next(bodies, None)) is not None:
                yield body

    def _read_heredocs(self) -> None:
        for delimiter, indented, expanded in self.heredocs:
            start, rows = self.line, ""
            while True:
                if self.at >= len(self.text):
                    raise self.error(start, f"the text that ends with {cut(delimiter)} has no end")
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                row = self.text[self.at : end].rstrip("\r")
                row = row.lstrip("\t") if indented else row
                self.at = end + 1
                self.line += 1
                if row == delimiter:
                    break
                rows += row + "\n"
            parts = [Part("text", rows, True, start)]
            if expanded:
                # as between quotes, but that quotes are text
                try:
                    parts = _Lexer(rows.replace('"', '\\"') + '"', self.where, start)._quoted(start)
                except InputError:
                    # a mark of the shell in a text for others
                    pass
            self.bodies.append(Token(tuple(parts), start, rows))
        self.heredocs = []

    def _word(self) -> Token:
        line, start, parts = self.line, self.at, []
        while self.at < len(self.text):
            if self.text[self.at] == "<" and (blank := self._blank_left(start)) is not None:
                parts.append(Part("text", blank, True, line))
                self.at += len(blank)
            elif self.text[self.at] in " \t\r\n;&|<>()":
                break
            else:
                parts += self._piece()
        written = self.text[start : self.at]
        if self.text.startswith("(", self.at) and _ASSIGNED.fullmatch(written):
            return self._array(line, written, tuple(parts))
        if not parts and not written:
            raise self.error(line, "a word should follow")
        # a file descriptor before a redirection belongs to it
        if written.isdigit() and self.at < len(self.text) and self.text[self.at] in "<>":
            return (self._token(False) or [Token((), line, ";", ";")])[0]
        return Token(tuple(parts), line, written)

    def _blank_left(self, start: int) -> str | None:
        """`<a path of your own>`, in a word that begins at start."""
        found = (_FILLED if ASSIGNMENT.fullmatch(self.text, start, self.at) else _BLANK).match(self.text, self.at)
        return found[0] if found is not None else None

    def _array(self, line: int, written: str, parts: tuple[Part, ...]) -> Token:
        self.at += 1
        words: list[Token] = []
        while True:
            self._blank()
            if self.at >= len(self.text):
                raise self.error(line, f"the list {cut(written)}( has no closing bracket")
            if self.text[self.at] == "\n":
                self.at += 1
                self.line += 1
            elif self.text[self.at] == ")":
                self.at += 1
                return Token(parts, line, written, array=tuple(words))
            elif self.text[self.at] in "(;&|<>":
                raise self.error(self.line, f"'{self.text[self.at]}' inside the list {cut(written)}( .. ) should be in quotes")
            else:
                words.append(self._word())

    def parts_until_end(self) -> tuple[Part, ...]:
        parts: list[Part] = []
        while self.at < len(self.text):
            if self.text[self.at] in " \t\r\n;&|<>()":
                parts.append(Part("text", self.text[self.at], False, self.line))
                self.line += self.text[self.at] == "\n"
                self.at += 1
            else:
                parts += self._piece()
        return tuple(parts)

    def _piece(self) -> list[Part]:
        letter, line = self.text[self.at], self.line
        if letter == "\\":
            following = self.text[self.at + 1 : self.at + 2]
            self.at += 2
            self.line += following == "\n"
            return [] if following == "\n" else [Part("text", following, True, line)]
        if letter == "'":
            end = self.text.find("'", self.at + 1)
            if end < 0:
                raise self.error(line, "the quote ' has no end")
            inner = self.text[self.at + 1 : end]
            self.at = end + 1
            self.line += inner.count("\n")
            return [Part("text", inner, True, line)]
        if letter == '"':
            self.at += 1
            return self._quoted(line)
        if letter == "$":
            return [self._dollar(False)]
        if letter == "`":
            return [self._backticks(False)]
        end = self.at + 1
        while end < len(self.text) and self.text[end] not in " \t\r\n;&|<>()'\"$`\\":
            end += 1
        found = self.text[self.at : end]
        self.at = end
        return [Part("text", found, False, line)]

    def _quoted(self, opened: int) -> list[Part]:
        parts = [Part("text", "", True, self.line)]
        while True:
            if self.at >= len(self.text):
                raise self.error(opened, 'the quote " has no end')
            letter, line = self.text[self.at], self.line
            if letter == '"':
                self.at += 1
                return parts
            if letter == "$":
                parts.append(self._dollar(True))
            elif letter == "`":
                parts.append(self._backticks(True))
            elif letter == "\\":
                following = self.text[self.at + 1 : self.at + 2]
                self.at += 2
                self.line += following == "\n"
                if following != "\n":
                    parts.append(Part("text", following if following in '$`"\\' else letter + following, True, line))
            else:
                end = re.compile(r'["$`\\]|\n').search(self.text, self.at)
                stop = len(self.text) if end is None else end.start() + (end[0] == "\n")
                parts.append(Part("text", self.text[self.at : stop], True, line))
                self.line += self.text.count("\n", self.at, stop)
                self.at = stop

    def _dollar(self, quoted: bool) -> Part:
        line, following = self.line, self.text[self.at + 1 : self.at + 2]
        if following == "(":
            self.at += 1
            inner = self._balanced("(", ")")
            if inner.startswith("(") and inner.endswith(")"):
                return Part("arithmetic", inner[1:-1], quoted, line)
            return Part("command", inner, quoted, line)
        if following == "{":
            self.at += 1
            return Part("parameter", self._balanced("{", "}"), quoted, line)
        name = _NAME.match(self.text, self.at + 1)
        if name is not None:
            self.at = name.end()
            return Part("parameter", name[0], quoted, line)
        if following and following in _SPECIAL:
            self.at += 2
            return Part("parameter", following, quoted, line)
        self.at += 1
        return Part("text", "$", quoted, line)

    def _backticks(self, quoted: bool) -> Part:
        line, end = self.line, self.text.find("`", self.at + 1)
        if end < 0:
            raise self.error(line, "the quote ` has no end")
        inner = self.text[self.at + 1 : end]
        self.at = end + 1
        self.line += inner.count("\n")
        return Part("command", inner, quoted, line)

    def _balanced(self, opening: str, closing: str) -> str:
        """What stands inside the bracket at `at`, which moves behind it; quotes inside may hold brackets."""
        line, start, depth = self.line, self.at + 1, 0
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter == "\\":
                self.at += 1
            elif letter == "'" and not (opening == "{"):
                end = self.text.find("'", self.at + 1)
                self.at = len(self.text) if end < 0 else end
            elif letter == opening:
                depth += 1
            elif letter == closing:
                depth -= 1
                if depth == 0:
                    inner = self.text[start : self.at]
                    self.at += 1
                    self.line += inner.count("\n")
                    return inner
            self.at += 1
        raise self.error(line, f"the bracket {opening} has no end")
