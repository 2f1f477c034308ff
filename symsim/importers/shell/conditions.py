"""Whether a test of a script holds: [ .. ] and [[ .. ]] over words as far as they are known."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from operator import eq, ge, gt, le, lt, ne

from symsim.importers.shell.arithmetic import COMPARISONS, Unfit
from symsim.importers.shell.scope import HERE, Scope

_TESTS: dict[str, Callable[[int, int], bool]] = {"-lt": lt, "-gt": gt, "-le": le, "-ge": ge, "-eq": eq, "-ne": ne}


class Condition:
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
            return (held.strip(HERE) == "") == (text == "-z")
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
