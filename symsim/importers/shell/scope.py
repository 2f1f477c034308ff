"""The variables and arguments of a script, and its words: values are text with marks inside, where a piece was written, and what could not
be known. So a script that puts a whole command line into one variable still gives a word each its own line, and one unknown word leaves the
others as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from symsim.errors import InputError
from symsim.importers.keys import natural

Value = str | list[str]
BEGIN, END, HARD, SOFT, HERE, KEPT = "\ue000", "\ue001", "\ue002", "\ue003", "\ue004", "\ue005"
MARK = re.compile(f"{BEGIN}([LU])([0-9]+){END}")
PLACE = re.compile(f"{BEGIN}L([0-9]+){END}")
_LONGEST = 2**20
_MOST_ARGUMENTS = 1000
# the variable that holds the number of arguments
NUMBER = "#"
# what the name of a file that the script writes begins with, among those of variables
WRITTEN = ">"


@dataclass(frozen=True)
class Word:
    """A word of a command. where: FILE:LINE. why: the sentence for a word that cannot be known, whose text is as written. empty: it is but
    a variable that nothing sets, in a script that reads no other."""

    text: str
    where: str
    why: str | None = None
    empty: bool = False

    def known(self) -> str:
        """The text; InputError where it cannot be known."""
        if self.why is not None:
            raise InputError(self.why)
        return self.text

    def at(self, where: str) -> "Word":
        """The word as one that stands there, and not on a line of its own."""
        return replace(self, where=where, why=None if self.why is None else self.why.replace(f"{where}:0:", f"{where}:"))


@dataclass
class Scope:
    """The variables of a script. given: those of the user, which a script does not change. skipped: set in branches that are not taken.
    positional: the arguments of the script or function, None where one is left out; shifted: how many the script took away before them;
    called: no other ones are there. asked: names that the script has for its arguments, by their places. sources: another script is read
    in, which may set any."""

    given: Mapping[str, str]
    values: dict[str, Value] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    positional: list[str | None] = field(default_factory=list)
    shifted: int = 0
    called: bool = False
    asked: dict[int, str] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    sources: bool = False
    _places: list[str] = field(default_factory=list)
    _unknown: list[tuple[str, str, bool]] = field(default_factory=list)

    def get(self, name: str) -> Value | None:
        """The value of a variable or of an argument of the script; None where it has none."""
        if name.isdigit():
            place = natural(name) or 0
            return self.positional[place - 1] if 0 < place <= len(self.positional) else None
        if name in self.given:
            return self.given[name]
        return [one for one in self.positional if one is not None] if name in ("@", "*") else self.values.get(name)

    def begin(self) -> None:
        """Take the arguments of a script that the user gives, by their places; all of them, where their number is given too."""
        places = {place: text for name, text in self.given.items() if (place := natural(name)) and place <= _MOST_ARGUMENTS}
        self.positional = [places.get(place) for place in range(1, max(places, default=0) + 1)]
        self.shifted, self.called, self.asked = 0, NUMBER in self.given, {}

    def shift(self, count: int) -> bool:
        """Take arguments away at the front; False where there are fewer."""
        if self.called and count > len(self.positional):
            return False
        self.positional = self.positional[count:]
        self.shifted += count
        return True

    def set(self, name: str, value: Value) -> None:
        """Give a variable its value. InputError for one too long to be a command's."""
        if (len(value) if isinstance(value, str) else sum(map(len, value))) > _LONGEST:
            raise InputError(f"the script's variable {name} holds more than {_LONGEST // 1024} KiB")
        self.values[name] = value

    def place(self, where: str) -> str:
        """The mark for what is written there."""
        if not self._places or self._places[-1] != where:
            self._places.append(where)
        return f"{BEGIN}L{len(self._places) - 1}{END}"

    def unknown(self, source: str, why: str, unset: bool = False) -> str:
        """The mark for what cannot be known. unset: only since nothing sets it."""
        self._unknown.append((source, why, unset))
        return f"{BEGIN}U{len(self._unknown) - 1}{END}"

    def marked(self, text: str, where: str) -> str:
        """A text as a value."""
        return self.place(where) + text

    def again(self, piece: str) -> str:
        """A word as text of a script that is read again."""
        return PLACE.sub("", piece).replace(HERE, "")

    def said(self, word: "Word") -> str:
        """A word as a value."""
        return self.marked(word.text, word.where) if word.why is None else self.unknown(word.text, word.why)

    def plain(self, text: str) -> str:
        """The text without its marks; what is not known as it was written."""
        return MARK.sub(lambda m: self._unknown[int(m[2])][0] if m[1] == "U" else "", text).replace(HERE, "")

    def reason(self, text: str) -> str | None:
        """Why a text is not known, None where it is."""
        return next((self._unknown[int(m[2])][1] for m in MARK.finditer(text) if m[1] == "U"), None)

    def emptied(self, text: str) -> str:
        """The text with nothing in the place of variables that nothing sets."""
        return MARK.sub(lambda m: m[0] if m[1] == "U" and not self._unknown[int(m[2])][2] else "", text)

    def same(self, one: Value | None, other: Value | None) -> bool:
        """Whether two values are alike."""
        if isinstance(one, str) and isinstance(other, str):
            return self.plain(one) == self.plain(other) and (self.reason(one) is None) == (self.reason(other) is None)
        if isinstance(one, list) and isinstance(other, list):
            return len(one) == len(other) and all(map(self.same, one, other))
        return one is other

    def word(self, text: str, where: str) -> Word:
        """The word of a field. where: of words that hold no text of their own."""
        mark = PLACE.search(text)
        empty = not self.sources and self.reason(text) is not None and not self.plain(self.emptied(text)) and HERE not in text
        return Word(self.plain(text), self._places[int(mark[1])] if mark else where, self.reason(text), empty)

    def files(self, where: str) -> dict[str, Word]:
        """What the script has written so far, by the names of files as they are spelt."""
        return {
            name.removeprefix(WRITTEN): replace(self.word(text, where), text=self.plain(text))
            for name, text in self.values.items()
            if name.startswith(WRITTEN) and isinstance(text, str)
        }

    def environment(self, prefix: Mapping[str, Value], where: str) -> dict[str, Word]:
        """The variables that a command sees."""
        seen = {name: self.values[name] for name in self.values if name in self.exported} | dict(self.given) | dict(prefix)
        return {name: self.word(value, where) for name, value in seen.items() if isinstance(value, str)}
