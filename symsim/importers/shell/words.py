"""What the words of a script stand for: variables, lists, defaults, whole-number arithmetic and tests, as far as they can be known."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from symsim.errors import InputError, cut
from symsim.importers.keys import natural
from symsim.importers.shell.arithmetic import Arithmetic, Unfit
from symsim.importers.shell.conditions import Condition
from symsim.importers.shell.scope import BEGIN, HARD, HERE, KEPT, NUMBER, PLACE, SOFT, Scope, Value, Word
from symsim.importers.shell.tokens import Part, Token, words_of
from symsim.importers.shell.writers import changed

_PARAMETER = re.compile(r"(#(?=.))?([A-Za-z_]\w*|[0-9]+|[@*?$!#-])(\[[^\]]*\])?(:?[-=+?])?(.*)", re.ASCII | re.DOTALL)
# `expr A OP B ..`, which is arithmetic like $((A OP B ..))
_EXPR = re.compile(r"""\s*expr((?:\s+(?:[0-9]+|\$\w+|\$\{\w+\}|\\?[*()]|'[*]'|"[*]"|[-+/%]))+)\s*""", re.ASCII)
# ${NAME%pattern} and the like, which change a value
_CHANGE = re.compile(r"(##?|%%?|//?|,,|\^\^)(.*)", re.DOTALL)
# ${NAME:from}, ${NAME:from:count}
_PART = re.compile(r":([^:,]+)(?::([^:,]+))?")
# ((NAME++)), ((NAME += ..)): the only arithmetic that sets a variable here
_COUNTED = re.compile(r"\s*(?:(?P<name>[A-Za-z_]\w*)\s*(?:(?P<post>\+\+|--)|(?P<operator>[-+*/%]?)=(?!=)(?P<rest>.*))"
                      r"|(?P<pre>\+\+|--)(?P<counted>[A-Za-z_]\w*))\s*", re.ASCII | re.DOTALL)  # fmt: skip
# the script's own name
_ITSELF = ("0", "BASH_SOURCE")
_INDIRECT = re.compile(r"!([A-Za-z_]\w*|[0-9]+|#)", re.ASCII)


class Expansion:
    """Expands the words of one script."""

    def __init__(self, scope: Scope, where: str) -> None:
        self.scope, self.where, self.deep = scope, where, 0
        # why the last test could not be decided, where a variable is the reason
        self.doubt = ""
        # the variable whose value is expanded, which --var could give
        self.naming = ""
        # what a command writes, where it only writes its words; else why that is not known, where a word is the reason
        self.written: Callable[[str, int], tuple[str | None, str | None]] = lambda text, line: (None, None)

    def clean(self, text: str) -> str:
        """The text without the characters that marks are made of."""
        return re.sub(f"[{BEGIN}-{KEPT}]", "?", text)

    def fields(self, token: Token) -> list[str]:
        """The words, as values, that a word becomes: variables put in, split where they are not quoted."""
        text, nothing = "", False
        for part in token.parts:
            value = self.part(part)
            # that a word stood in quotes is no part of its value, which is split anew here
            if isinstance(value, list):
                nothing = nothing or not value
                held = [one.replace(HERE, "") for one in value]
                text += HARD.join(one + HERE for one in held) if part.quoted else re.sub(r"\s", SOFT, SOFT.join(held))
            elif part.quoted or part.kind == "text":
                text += value.replace(HERE, "") + (HERE if part.quoted else "")
            else:
                text += re.sub(r"\s", SOFT, value.replace(HERE, ""))
        found = []
        here = self.scope.place(f"{self.where}:{token.line}")
        for piece in re.split(f"[{HARD}{SOFT}]", text):
            letters = PLACE.sub("", piece)
            if letters and not (nothing and letters.strip(HERE) == ""):
                found.append((piece if PLACE.match(piece) else here + piece).replace(KEPT, " "))
            marks = [mark[0] for mark in PLACE.finditer(piece)]
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
        return "".join(" ".join(value) if isinstance(value, list) else value for value in values).replace(KEPT, " ")

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
            written, why = self.written(part.text, part.line)
            if written is not None:
                return self.scope.marked(written.rstrip("\n"), where)
            source = f"$({part.text})"
            if why is not None:
                return self.scope.unknown(source, why)
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
        empty = value is None or (operator[0] == ":" and not (value if isinstance(value, list) else PLACE.sub("", value)))
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
            text_found += joined.replace(" ", KEPT) if part.quoted else joined
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
        if value is None and name in _ITSELF and index in (None, "[0]"):
            return self.scope.marked(self.where, where)
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
            words += [(PLACE.sub("", text), quoted) for text in texts]
        try:
            held = Condition([word for word in words if word[0] != "\n"], self.scope, double).value()
            self.doubt = next(filter(None, (self.scope.reason(word) for word, _ in words)), "") if held is None else ""
            return held
        except (Unfit, IndexError):
            return None


def value_of(text: str, where: str, variables: Mapping[str, str] | None = None) -> Word:
    """A text of a configuration file with its $VARs and ${VAR:-default}s put in, from the variables given."""
    scope = Scope(dict(variables or {}))
    expand = Expansion(scope, where)
    return scope.word(expand.inside(expand.clean(text), 0), where).at(where)
