"""What the words of a script stand for: variables, lists, defaults, whole-number arithmetic and tests, as far as they can be known.

A value is text with marks inside: where a piece was written, and what could not be known. So a script that puts a whole command line
into one variable still gives a word each its own line, and one unknown word leaves the others as they are.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import eq, ge, gt, le, lt, ne

from symsim.errors import InputError, cut
from symsim.importers.keys import natural
from symsim.importers.shell.arithmetic import COMPARISONS, Arithmetic, Unfit
from symsim.importers.shell.tokens import Part, Token, words_of
from symsim.importers.shell.writers import changed

Value = str | list[str]
_BEGIN, _END, _HARD, _SOFT, _HERE, _KEPT = "\ue000", "\ue001", "\ue002", "\ue003", "\ue004", "\ue005"
_MARK = re.compile(f"{_BEGIN}([LU])([0-9]+){_END}")
_PLACE = re.compile(f"{_BEGIN}L([0-9]+){_END}")
_PARAMETER = re.compile(r"(#(?=.))?([A-Za-z_]\w*|[0-9]+|[@*?$!#-])(\[[^\]]*\])?(:?[-=+?])?(.*)", re.ASCII | re.DOTALL)
_TESTS: dict[str, Callable[[int, int], bool]] = {"-lt": lt, "-gt": gt, "-le": le, "-ge": ge, "-eq": eq, "-ne": ne}
# `expr A OP B ..`, which is arithmetic like $((A OP B ..))
_EXPR = re.compile(r"""\s*expr((?:\s+(?:[0-9]+|\$\w+|\$\{\w+\}|\\?[*()]|'[*]'|"[*]"|[-+/%]))+)\s*""", re.ASCII)
# ${NAME%pattern} and the like, which change a value
_CHANGE = re.compile(r"(##?|%%?|//?|,,|\^\^)(.*)", re.DOTALL)
# ${NAME:from}, ${NAME:from:count}
_PART = re.compile(r":([^:,]+)(?::([^:,]+))?")
# ((NAME++)), ((NAME += ..)): the only arithmetic that sets a variable here
_COUNTED = re.compile(r"\s*(?:(?P<name>[A-Za-z_]\w*)\s*(?:(?P<post>\+\+|--)|(?P<operator>[-+*/%]?)=(?!=)(?P<rest>.*))"
                      r"|(?P<pre>\+\+|--)(?P<counted>[A-Za-z_]\w*))\s*", re.ASCII | re.DOTALL)  # fmt: skip
_LONGEST = 2**20
_MOST_ARGUMENTS = 1000
# the variable that holds the number of arguments
NUMBER = "#"
_INDIRECT = re.compile(r"!([A-Za-z_]\w*|[0-9]+|#)", re.ASCII)


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
        return f"{_BEGIN}L{len(self._places) - 1}{_END}"

    def unknown(self, source: str, why: str, unset: bool = False) -> str:
        """The mark for what cannot be known. unset: only since nothing sets it."""
        self._unknown.append((source, why, unset))
        return f"{_BEGIN}U{len(self._unknown) - 1}{_END}"

    def marked(self, text: str, where: str) -> str:
        """A text as a value."""
        return self.place(where) + text

    def again(self, piece: str) -> str:
        """A word as text of a script that is read again."""
        return _PLACE.sub("", piece).replace(_HERE, "")

    def plain(self, text: str) -> str:
        """The text without its marks; what is not known as it was written."""
        return _MARK.sub(lambda m: self._unknown[int(m[2])][0] if m[1] == "U" else "", text).replace(_HERE, "")

    def reason(self, text: str) -> str | None:
        """Why a text is not known, None where it is."""
        return next((self._unknown[int(m[2])][1] for m in _MARK.finditer(text) if m[1] == "U"), None)

    def emptied(self, text: str) -> str:
        """The text with nothing in the place of variables that nothing sets."""
        return _MARK.sub(lambda m: m[0] if m[1] == "U" and not self._unknown[int(m[2])][2] else "", text)

    def same(self, one: Value | None, other: Value | None) -> bool:
        """Whether two values are alike."""
        if isinstance(one, str) and isinstance(other, str):
            return self.plain(one) == self.plain(other) and (self.reason(one) is None) == (self.reason(other) is None)
        if isinstance(one, list) and isinstance(other, list):
            return len(one) == len(other) and all(map(self.same, one, other))
        return one is other

    def word(self, text: str, where: str) -> Word:
        """The word of a field. where: of words that hold no text of their own."""
        mark = _PLACE.search(text)
        empty = not self.sources and self.reason(text) is not None and not self.plain(self.emptied(text)) and _HERE not in text
        return Word(self.plain(text), self._places[int(mark[1])] if mark else where, self.reason(text), empty)

    def environment(self, prefix: Mapping[str, Value], where: str) -> dict[str, Word]:
        """The variables that a command sees."""
        seen = {name: self.values[name] for name in self.values if name in self.exported} | dict(self.given) | dict(prefix)
        return {name: self.word(value, where) for name, value in seen.items() if isinstance(value, str)}


class Expansion:
    """Expands the words of one script."""

    def __init__(self, scope: Scope, where: str) -> None:
        self.scope, self.where, self.deep = scope, where, 0
        # why the last test could not be decided, where a variable is the reason
        self.doubt = ""
        # the variable whose value is expanded, which --var could give
        self.naming = ""
        # what a command writes, where it only writes its words
        self.written: Callable[[str, int], str | None] = lambda text, line: None

    def clean(self, text: str) -> str:
        """The text without the characters that marks are made of."""
        return re.sub(f"[{_BEGIN}-{_KEPT}]", "?", text)

    def fields(self, token: Token) -> list[str]:
        """The words, as values, that a word becomes: variables put in, split where they are not quoted."""
        text, nothing = "", False
        for part in token.parts:
            value = self.part(part)
            if isinstance(value, list):
                nothing = nothing or not value
                text += _HARD.join(value) if part.quoted else re.sub(r"\s", _SOFT, _SOFT.join(value))
            elif part.quoted or part.kind == "text":
                text += value + (_HERE if part.quoted else "")
            else:
                text += re.sub(r"\s", _SOFT, value)
        found = []
        here = self.scope.place(f"{self.where}:{token.line}")
        for piece in re.split(f"[{_HARD}{_SOFT}]", text):
            held = _PLACE.sub("", piece)
            if held and not (nothing and held.strip(_HERE) == ""):
                found.append((piece if _PLACE.match(piece) else here + piece).replace(_KEPT, " "))
            marks = [mark[0] for mark in _PLACE.finditer(piece)]
            here = marks[-1] if marks else here
        return found

    def unquoted(self, name: str) -> list[str]:
        """The words of a variable as `${NAME[@]}` without quotes has them."""
        return self.fields(Token((Part("parameter", f"{name}[@]", False, 0),), 0, f"${name}"))

    def text(self, token: Token, skip: int = 0) -> str:
        """The value of a word that is not split. skip: letters of `NAME=` at its beginning."""
        parts = list(token.parts)
        if skip and parts:
            parts[0] = Part(parts[0].kind, parts[0].text[skip:], parts[0].quoted, parts[0].line)
        values = [self.part(part) for part in parts]
        return "".join(" ".join(value) if isinstance(value, list) else value for value in values).replace(_KEPT, " ")

    def part(self, part: Part) -> Value:
        where = f"{self.where}:{part.line}"
        if part.kind == "text":
            lines = part.text.split("\n")
            marked = [self.scope.place(f"{self.where}:{part.line + i}") + line for i, line in enumerate(lines)]
            return "\n".join(marked)
        if part.kind == "command":
            counted = _EXPR.fullmatch(part.text)
            if counted is not None:
                return self.arithmetic(re.sub(r"[\\'\"]", "", counted[1]), part.line)
            written = self.written(part.text, part.line)
            if written is not None:
                return self.scope.marked(written.rstrip("\n"), where)
            source = f"$({part.text})"
            given = f"; --var {self.naming}=VALUE gives it" if self.naming else ""
            return self.scope.unknown(source, f"{where}: the output of '{cut(part.text.strip())}' is not known, since nothing is run{given}")
        if part.kind == "arithmetic":
            return self.arithmetic(part.text, part.line)
        return self.parameter(part, where)

    def parameter(self, part: Part, where: str) -> Value:
        indirect = _INDIRECT.fullmatch(part.text)
        if indirect is not None:
            return self.parameter(Part("parameter", self.named_by(indirect[1], where), part.quoted, part.line), where)
        match = _PARAMETER.fullmatch(part.text)
        source = f"${part.text}" if match is not None and not (match[3] or match[4] or match[5]) else f"${{{part.text}}}"
        if match is not None and not (match[1] or match[4]) and (piece := _PART.fullmatch(match[5])) is not None:
            return self.piece(match, piece, part, where)
        change = _CHANGE.fullmatch(match[5]) if match is not None and not (match[1] or match[4]) and match[2] != "!" else None
        if match is None or (match[5] and not match[4] and change is None) or (match[2] == "!" and match[5]):
            return self.scope.unknown(source, f"{where}: {source} is an expansion that is not followed here; write its value out")
        length, name, index, operator, rest = match.groups()
        value = self.chosen(name, index, source, where)
        if part.quoted and isinstance(value, list) and (index == "[*]" or name == "*"):
            value = self.separator().join(value)
        if change is not None:
            return self.unset(name, source, where) if value is None else self.altered(value, change, source, where)
        if length:
            counted = value if isinstance(value, list) else None if value is None else self.scope.plain(value)
            return str(len(counted or ""))
        if name == "#":
            return str(len(self.scope.positional))
        if operator is None or operator.endswith("?"):
            return self.unset(name, source, where) if value is None else value
        empty = value is None or (operator[0] == ":" and not (value if isinstance(value, list) else _PLACE.sub("", value)))
        if operator.endswith("+"):
            return "" if empty else self.inside(rest, part.line)
        if not empty:
            assert value is not None
            return value
        default = self.inside(rest, part.line)
        if operator.endswith("="):
            self.scope.set(name, default)
        return default

    def named_by(self, name: str, where: str) -> str:
        """The name that ${!NAME} stands for: that in the variable, or the last argument. InputError where that is none."""
        if name == NUMBER:
            return str(len(self.scope.positional))
        held = self.scope.get(name)
        text = self.scope.plain(held) if isinstance(held, str) and self.scope.reason(held) is None else ""
        # of others nothing is said but that they are not followed
        return text if re.fullmatch(r"[A-Za-z_]\w*|[0-9]+", text, re.ASCII) else f"{name}!"

    def piece(self, match: re.Match[str], piece: re.Match[str], part: Part, where: str) -> Value:
        """${@:3}, ${NAME:0:2}: some arguments, elements or letters."""
        _, name, index, _, _ = match.groups()
        source = f"${{{part.text}}}"
        value = self.chosen(name, index, source, where)
        if value is None:
            return self.unset(name, source, where)
        bounds = [self.arithmetic(text, part.line) for text in piece.groups() if text is not None]
        why = next(filter(None, map(self.scope.reason, [*bounds, *([value] if isinstance(value, str) else [])])), None)
        if why is not None:
            return self.scope.unknown(source, why)
        first, count = (*(int(text) for text in bounds), None)[:2]
        assert first is not None
        if name in ("@", "*"):
            # $0 is the script
            value = ["$0", *value]
        if count is not None and count < 0 or first < -len(value):
            return self.scope.unknown(source, f"{where}: {source} is an expansion that is not followed here; write its value out")
        found = value if isinstance(value, list) else self.scope.plain(value)
        first += len(found) if first < 0 else 0
        found = found[first:] if count is None else found[first : first + count]
        if isinstance(found, str):
            return self.scope.marked(found, where)
        return self.separator().join(found) if part.quoted and name == "*" else found

    def separator(self) -> str:
        """What "${NAME[*]}" has between its elements."""
        held = self.scope.get("IFS")
        return " " if held is None else self.scope.plain(held)[:1] if isinstance(held, str) else " "

    def altered(self, value: Value, change: re.Match[str], source: str, where: str) -> Value:
        """A value, or every element of a list, without what the pattern takes away or with something else in its place."""
        if isinstance(value, list):
            return [str(self.altered(one, change, source, where)) for one in value]
        line = int(where.rpartition(":")[2])
        operator = change[1]
        pattern, _, other = change[2].partition("/") if operator.startswith("/") else (change[2], "", "")
        texts = [self.inside(text, line) for text in (pattern, other)]
        why = next(filter(None, (self.scope.reason(text) for text in (value, *texts))), None)
        found = None if why else changed(self.scope.plain(value), operator, *map(self.scope.plain, texts))
        if found is None:
            return self.scope.unknown(source, why or f"{where}: {source} is an expansion that is not followed here; write its value out")
        return self.scope.marked(found, where)

    def inside(self, text: str, line: int) -> str:
        """What stands behind `:-` in a parameter."""
        self.deep += 1
        if self.deep > 20:
            raise InputError(f"{self.where}:{line}: nested too deeply")
        text_found = ""
        for part in (part for token in words_of(text, self.where, line) for part in token.parts):
            value = self.part(part)
            joined = " ".join(value) if isinstance(value, list) else value
            text_found += joined.replace(" ", _KEPT) if part.quoted else joined
        self.deep -= 1
        return text_found

    def unset(self, name: str, source: str, where: str) -> str:
        if name in self.scope.skipped:
            return ""
        if (place := natural(name)) is not None and place > 0:
            return self.scope.unknown(source, self.missing(place + self.scope.shifted, source, where), unset=True)
        return self.scope.unknown(source, f"{where}: {source} has no value; --var {name}=VALUE gives it", unset=True)

    def missing(self, place: int, source: str, where: str) -> str:
        """The sentence for an argument of the script that is not given."""
        scope = self.scope
        if scope.called:
            return f"{where}: {source} has no value: {scope.shifted + len(scope.positional)} arguments are given"
        named = self.naming or scope.asked.get(place, "")
        said = ", ".join(filter(None, (f"argument {place}" if scope.shifted else "", named)))
        all_of = " ".join(scope.asked.get(one, "..") for one in range(1, max(scope.asked, default=0) + 1))
        behind = f", or the script's arguments behind it: {cut(all_of, 200)}" if all_of else ""
        return f"{where}: {source}{f' ({said})' if said else ''} has no value; --var {place}=VALUE gives it{behind}"

    def chosen(self, name: str, index: str | None, source: str, where: str) -> Value | None:
        """The value of a variable, all of a list for `[@]`, else one element."""
        value = self.scope.get(name)
        if name in ("?", "$", "!", "-"):
            return self.scope.unknown(source, f"{where}: {source} is not known, since nothing is run")
        if value is None and index in ("[@]", "[*]") and not self.scope.sources:
            # no environment has lists
            return []
        if value is None or name in ("@", "*"):
            return value
        if index in ("[@]", "[*]"):
            return value if isinstance(value, list) else [value]
        elements = value if isinstance(value, list) else [value]
        number = 0 if index is None else natural(index[1:-1])
        if number is not None:
            return elements[number] if number < len(elements) else None
        return self.scope.unknown(source, f"{where}: {source} is an expansion that is not followed here; write its value out")

    def arithmetic(self, text: str, line: int) -> str:
        """The value of $(( .. )) over whole numbers."""
        where = f"{self.where}:{line}"
        expanded = self.inside(text, line)
        why = self.scope.reason(expanded)
        if why is not None:
            return self.scope.unknown(f"$(({text}))", why)
        try:
            return str(Arithmetic(self.scope.plain(expanded), self.named).value())
        except Unfit as unfit:
            said = str(unfit) or f"{where}: $(({text})) is not arithmetic that is followed here; write its value out"
            return self.scope.unknown(f"$(({text}))", said.replace("WHERE", where))

    def named(self, name: str) -> str:
        value = self.scope.get(name)
        if isinstance(value, str) and (why := self.scope.reason(value)) is not None:
            raise Unfit(why)
        if not isinstance(value, str):
            raise Unfit(f"WHERE: ${name} has no value; --var {name}=VALUE gives it")
        return self.scope.plain(value)

    def arithmetic_test(self, token: Token) -> bool | None:
        """Whether (( .. )) is not 0; None where that is not known, or where it sets a variable."""
        return self.counted(token.parts[0].text, token.line)

    def counted(self, text: str, line: int) -> bool | None:
        """The same of its text."""
        match = _COUNTED.fullmatch(text)
        if match is not None:
            name = match["name"] or match["counted"]
            step = match["post"] or match["pre"]
            sum_of = f"{name} {step[0]} 1" if step else f"{name} {match['operator']} ({match['rest']})" if match["operator"] else match["rest"]
            value = self.arithmetic(sum_of, line)
            if self.scope.reason(value) is None:
                self.scope.set(name, self.scope.marked(value, f"{self.where}:{line}"))
                return None
        for name in re.findall(r"([A-Za-z_]\w*)\s*(?:\+\+|--|[-+*/%]?=(?!=))", text, re.ASCII):
            self.scope.set(name, self.scope.unknown(f"${name}", f"{self.where}:{line}: ${name} is counted; --var {name}=VALUE gives it"))
        value = self.arithmetic(text, line)
        return None if self.scope.reason(value) is not None else value != "0"

    def test(self, tokens: Sequence[Token], double: bool) -> bool | None:
        """Whether [ .. ] or [[ .. ]] holds; None where only a run could tell."""
        words: list[tuple[str, bool]] = []
        for token in tokens:
            if token.operator or not token.parts:
                words.append((token.operator or token.source, False))
                continue
            quoted = any(part.quoted for part in token.parts)
            texts = [self.text(token)] if double else self.fields(token)
            words += [(_PLACE.sub("", text), quoted) for text in texts]
        try:
            held = _Condition([word for word in words if word[0] != "\n"], self.scope, double).value()
            self.doubt = next(filter(None, (self.scope.reason(word) for word, _ in words)), "") if held is None else ""
            return held
        except (Unfit, IndexError):
            return None


class _Condition:
    """either = both { "||" both }, both = not { "&&" not }, not = "!" not | "(" either ")" | one of the tests."""

    def __init__(self, words: list[tuple[str, bool]], scope: Scope, double: bool) -> None:
        self.words, self.scope, self.double, self.at = words, scope, double, 0

    def value(self) -> bool | None:
        if not self.words:
            return False
        found = self.either()
        if self.at < len(self.words):
            raise Unfit
        return found

    def next(self) -> str:
        return self.words[self.at][0] if self.at < len(self.words) else ""

    def either(self) -> bool | None:
        found = self.both()
        while self.next() in ("||", "-o"):
            self.at += 1
            right = self.both()
            found = True if found is True or right is True else None if found is None or right is None else False
        return found

    def both(self) -> bool | None:
        found = self.single()
        while self.next() in ("&&", "-a"):
            self.at += 1
            right = self.single()
            found = False if found is False or right is False else None if found is None or right is None else True
        return found

    def single(self) -> bool | None:
        negated = False
        while self.next() == "!" and self.at + 1 < len(self.words):
            negated = not negated
            self.at += 1
        found = self.test()
        return found if found is None or not negated else not found

    def test(self) -> bool | None:
        if self.next() == "(":
            self.at += 1
            found = self.either()
            if self.next() != ")":
                raise Unfit
            self.at += 1
            return found
        text, _ = self.words[self.at]
        following = self.words[self.at + 1][0] if self.at + 1 < len(self.words) else ""
        if following in ("=", "==", "!=", "=~", "<", ">") or following in _TESTS:
            right, quoted = self.words[self.at + 2]
            self.at += 3
            return self.compared(text, following, right, quoted)
        if re.fullmatch(r"-[a-zA-Z]", text) and self.at + 1 < len(self.words) and following not in ("&&", "||", ")"):
            self.at += 2
            if text not in ("-z", "-n"):
                return None
            held = self.scope.emptied(following)
            if self.scope.reason(held) is not None:
                return None
            return (held.strip(_HERE) == "") == (text == "-z")
        self.at += 1
        return None if self.scope.reason(text) is not None else self.scope.plain(text) != ""

    def compared(self, left: str, operator: str, right: str, quoted: bool) -> bool | None:
        if operator in ("=", "==", "!=") and "" in map(self.scope.plain, (left, right)):
            # whether it is empty, as -z asks
            left, right = map(self.scope.emptied, (left, right))
        if self.scope.reason(left) is not None or self.scope.reason(right) is not None or operator == "=~":
            return None
        one, other = self.scope.plain(left), self.scope.plain(right)
        if operator in ("=", "==", "!="):
            alike = fnmatch.fnmatchcase(one, other) if self.double and not quoted else one == other
            return alike == (operator != "!=")
        if operator in ("<", ">"):
            return bool(COMPARISONS[operator](one, other))
        try:
            a, b = int(one[:30]), int(other[:30])
        except ValueError:
            return None
        return _TESTS[operator](a, b)
