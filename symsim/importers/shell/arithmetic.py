"""Whole-number arithmetic of a shell, over names that stand for numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import eq, ge, gt, le, lt, ne
from typing import Any

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {"<": lt, ">": gt, "<=": le, ">=": ge, "==": eq, "!=": ne}
_LARGEST = 2**63


class Unfit(Exception):
    """Outside of what is followed."""


class Arithmetic:
    """choice = joined ["?" choice ":" choice], joined = compared { ("&&" | "||") compared }, compared = sum [("<" | ..) sum],
    sum = product { ("+" | "-") product }, product = power { ("*" | "/" | "%") power }.
    """

    def __init__(self, text: str, named: Callable[[str], str], depth: int = 0) -> None:
        self.tokens = re.findall(r"[0-9]+|[A-Za-z_]\w*|\*\*|[<>=!]=|&&|\|\||\S", text, re.ASCII)
        self.named, self.at, self.depth = named, 0, depth
        if depth > 20 or len(self.tokens) > 1000:
            raise Unfit

    def value(self) -> int:
        found = self.choice()
        if self.at < len(self.tokens):
            raise Unfit
        return found

    def choice(self) -> int:
        self.depth += 1
        if self.depth > 20:
            raise Unfit
        held = self.joined()
        if self.take("?") is not None:
            one = self.choice()
            if self.take(":") is None:
                raise Unfit
            other = self.choice()
            held = one if held else other
        self.depth -= 1
        return held

    def joined(self) -> int:
        found = self.compared()
        while operator := self.take("&&", "||"):
            right = self.compared()
            found = int(bool(found and right) if operator == "&&" else bool(found or right))
        return found

    def take(self, *valid: str) -> str | None:
        if self.at < len(self.tokens) and self.tokens[self.at] in valid:
            self.at += 1
            return self.tokens[self.at - 1]
        return None

    def compared(self) -> int:
        left = self.sum()
        comparison = self.take(*COMPARISONS)
        return left if comparison is None else int(COMPARISONS[comparison](left, self.sum()))

    def sum(self) -> int:
        found = self.product()
        while operator := self.take("+", "-"):
            right = self.product()
            found = self.bounded(found + right if operator == "+" else found - right)
        return found

    def product(self) -> int:
        found = self.power()
        while operator := self.take("*", "/", "%"):
            right = self.power()
            if operator != "*" and right == 0:
                raise Unfit("WHERE: a division by 0")
            whole = 0 if operator == "*" else abs(found) // abs(right) * (1 if (found < 0) == (right < 0) else -1)
            found = self.bounded(found * right if operator == "*" else whole if operator == "/" else found - whole * right)
        return found

    def power(self) -> int:
        base = self.single()
        if self.take("**") is None:
            return base
        exponent = self.power()
        if not 0 <= exponent < 64:
            raise Unfit
        return self.bounded(base**exponent)

    def single(self) -> int:
        if self.take("-"):
            return -self.single()
        if self.take("+"):
            return self.single()
        if self.take("!"):
            return int(not self.single())
        if self.take("("):
            found = self.choice()
            if self.take(")") is None:
                raise Unfit
            return found
        if self.at >= len(self.tokens):
            raise Unfit
        token = self.tokens[self.at]
        self.at += 1
        if token.isdigit() and token.isascii():
            return self.bounded(int(token[:30]))
        if not re.fullmatch(r"[A-Za-z_]\w*", token, re.ASCII):
            raise Unfit
        return Arithmetic(self.named(token), self.named, self.depth + 1).value()

    def bounded(self, number: int) -> int:
        if abs(number) >= _LARGEST:
            raise Unfit("WHERE: a number beyond 64 bits")
        return number
