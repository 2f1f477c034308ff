"""The keys of another system's configuration, each read once, and what became of every one of them.

A reader takes the keys that it knows (`integer`, `flag`, ...) and says what each is here; `finish` goes through the others with a
table of those that change no formula and of those whose effect is not modelled. A key in neither is an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from symsim.errors import InputError, cut, near, nearest
from symsim.inputs.reading import Document

Fate = Literal["mapped", "derived", "no_cost_effect", "not_modelled", "refused"]
FATES: tuple[Fate, ...] = get_args(Fate)
# beyond all that is counted
_LARGEST = 10**18
_MOST_HINTS = 10
# `_comment` and the like, of files whose format has no comments
_REMARK = re.compile(r"_[A-Za-z]\w*(?<!_)")
_SPELT_TRUE, _SPELT_FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_NOTHING: tuple[Any, ...] = (None, False, 0, "", "none", "None", "null", "false", "False", "0", (), [], {})


@dataclass(frozen=True)
class Given:
    """A value as a source has it, and where: `FILE:LINE`, or what else names the place."""

    value: Any
    where: str


@dataclass(frozen=True)
class Unresolved:
    """A value that cannot be known from a script, as it is written there. why: the sentence for whoever asks for it."""

    text: str
    why: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Entry:
    """A row of the ledger: what became of a key."""

    key: str
    value: str
    fate: Fate
    to: str = ""
    why: str = ""


@dataclass(frozen=True)
class Silent:
    """What is known of a key that no formula reads. neutral: values at which it asks for nothing; none, false, 0 and the like where empty."""

    fate: Fate
    why: str
    neutral: tuple[Any, ...] = ()


def silent(fate: Fate, why: str, keys: str, neutral: Iterable[Any] = ()) -> dict[str, Silent]:
    """A table of keys, given as words, of which the same is to be said."""
    return dict.fromkeys(keys.split(), Silent(fate, why, tuple(neutral)))


def of_document(document: Document) -> dict[str, Given]:
    """The keys at the top of a file that was read."""
    return {key: Given(value, document.place((key,))) for key, value in document.data.items()}


@dataclass
class Keys:
    """Keys given, the table of the silent ones, and the ledger as far as it is written.

    what: the kind of file, in a sentence. lenient: unknown and refused keys become rows of the ledger, not errors.
    """

    what: str
    given: Mapping[str, Given]
    table: Mapping[str, Silent]
    lenient: bool = False
    rows: dict[str, Entry] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)

    def has(self, key: str) -> bool:
        """Whether the key is given with a value; it counts as known, not yet as read."""
        self.known.add(key)
        if key not in self.given:
            return False
        value = self.given[key].value
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Unresolved):
                raise InputError(f"{one.why} (for {key})")
        return value is not None

    def integer(self, key: str, default: Any = None, *, to: str = "", why: str = "", least: int = 0) -> Any:
        """A whole number from `least` up, or the default."""
        if not self.has(key):
            return default
        number = self._number(key)
        if number != int(number) or not least <= number <= _LARGEST:
            raise self.wrong(key, f"a whole number from {least} up" if number <= _LARGEST else f"at most 10^{len(str(_LARGEST)) - 1}")
        self._read(key, to, why)
        return int(number)

    def number(self, key: str, default: Any = None, *, to: str = "", why: str = "") -> Any:
        """A finite number, or the default."""
        if not self.has(key):
            return default
        value = self._number(key)
        self._read(key, to, why)
        return value

    def flag(self, key: str, default: Any = None, *, to: str = "", why: str = "") -> Any:
        """True or false, or the default; why: of true."""
        if not self.has(key):
            return default
        value = self.given[key].value
        text = str(value).strip().lower()
        if text not in (*_SPELT_TRUE, *_SPELT_FALSE):
            raise self.wrong(key, "true or false")
        on = text in _SPELT_TRUE
        self._read(key, to, why if on else "")
        return on

    def choice(self, key: str, choices: Mapping[str, Any], default: Any = None, *, to: str = "", why: str = "") -> Any:
        """What one of the names stands for, or the default."""
        if not self.has(key):
            return default
        text = str(self.given[key].value).strip()
        if text not in choices:
            hint = nearest(text, list(choices), "")
            raise self.wrong(key, f"one of {', '.join(choices)}{f' ({hint})' if hint else ''}")
        self._read(key, to, why)
        return choices[text]

    def text(self, key: str, default: Any = None, *, to: str = "", why: str = "") -> Any:
        """Text, or the default."""
        if not self.has(key):
            return default
        if not isinstance(self.given[key].value, (str, int, float)):
            raise self.wrong(key, "text")
        self._read(key, to, why)
        return str(self.given[key].value)

    def texts(self, key: str, default: Any = None, *, to: str = "", why: str = "") -> Any:
        """A list of texts (from a list, or words), or the default."""
        if not self.has(key):
            return default
        value = self.given[key].value
        found = value.split() if isinstance(value, str) else value
        if not isinstance(found, (list, tuple)) or not all(isinstance(one, (str, int, float)) for one in found):
            raise self.wrong(key, "a list of names")
        self._read(key, to, why)
        return [str(one) for one in found]

    def note(self, key: str, fate: Fate = "mapped", to: str = "", why: str = "") -> None:
        """Say what became of a key, in place of what was said before; of one that is not given, that its default holds."""
        self.known.add(key)
        said = self.rows.get(key)
        given = shown(self.given[key].value) if key in self.given else "(default)"
        if said is not None and fate == "mapped":
            to, why = to or said.to, why or said.why
        self.rows[key] = Entry(key, given, fate, to, why)

    def _read(self, key: str, to: str, why: str) -> None:
        """A value is read: it does something, unless it was said that it does not, or not all that it asks for."""
        if key not in self.rows or self.rows[key].fate == "mapped":
            self.note(key, to=to, why=why)

    def place(self, key: str) -> str:
        """Where a key stands; of one that is not given, the file."""
        if key in self.given:
            return self.given[key].where
        return next((one.where.rpartition(":")[0] or one.where for one in self.given.values()), self.what)

    def wrong(self, key: str, right: str) -> InputError:
        """The sentence for a value that cannot be."""
        one = self.given.get(key)
        if one is None:
            return InputError(f"{self.place(key)}: {key} is not given; it should be {right}")
        return InputError(f"{one.where}: {key} is {cut(shown(one.value))}; it should be {right}")

    def refuse(self, key: str, why: str) -> None:
        """The key asks for what cannot be answered: an error, or with --lenient a row."""
        if not self.lenient:
            raise InputError(f"{self.given[key].where}: {key}={cut(shown(self.given[key].value))}: {why}; --lenient goes on without it")
        self.note(key, "refused", why=why)

    def slip(self, key: str) -> str:
        """The first key given that is none here and may be meant for `key`, which is missing; "" where there is none."""
        strange = [given for given in self.given if given not in self.table and given not in self.known]
        return next((given for given in strange if near(given, [key])), "")

    def finish(self) -> tuple[Entry, ...]:
        """The ledger in the order of the keys given, with all that was not read. InputError for an unknown key."""
        unknown = 0
        for key, one in self.given.items():
            if key in self.rows:
                continue
            if key in self.table:
                self._silent(key, one.value, self.table[key])
            elif key in self.known and one.value is None:
                self.note(key, "no_cost_effect", why="not set")
            elif key in self.known:
                self.note(key, "no_cost_effect", why="not read here, since another key decides")
            elif _REMARK.fullmatch(key) is not None and isinstance(one.value, (str, list, dict)):
                self.note(key, "no_cost_effect", why="a remark: the name begins with an underscore")
            else:
                # a name that is near is looked for among thousands; a file of something else has hundreds of strange ones
                unknown += 1
                hint = f": {nearest(key, sorted({*self.table, *self.known} - self.given.keys()))}" if unknown <= _MOST_HINTS else ""
                if not self.lenient:
                    raise InputError(f"{one.where}: {self.what} has no key '{cut(key)}'{hint}; --lenient goes on without it")
                self.note(key, "refused", why=f"no such key{hint}")
        order = {key: place for place, key in enumerate(self.given)}
        return tuple(sorted(self.rows.values(), key=lambda row: order.get(row.key, len(order))))

    def _silent(self, key: str, value: Any, known: Silent) -> None:
        nothing = (None, *known.neutral) if known.neutral else _NOTHING
        off = not value if isinstance(value, (dict, list)) else value in nothing
        if known.fate == "no_cost_effect" or not off:
            if known.fate == "refused":
                self.refuse(key, known.why)
            else:
                self.note(key, known.fate, why=known.why)
        else:
            self.note(key, "no_cost_effect", why="off at this value")

    def _number(self, key: str) -> float:
        value = self.given[key].value
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise self.wrong(key, "a number")
        return number


def natural(text: object) -> int | None:
    """The whole number that digits spell, up to all that is counted; None for what is none."""
    spelt = str(text)
    return int(spelt) if spelt.isascii() and spelt.isdigit() and len(spelt) < len(str(_LARGEST)) else None


def shown(value: Any) -> str:
    """A value as one would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return " ".join(map(shown, value))
    if isinstance(value, dict):
        return f"({len(value)} entries)"
    return "null" if value is None else str(value)
