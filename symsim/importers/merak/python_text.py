"""Calls and attributes in Python text, read from its syntax tree and never run.

What a call is given is read where it is a literal, a name that stands for one, or arithmetic of numbers; anything else stays as it is
written, with the reason (`Unresolved`), for a reader to refuse where it needs the value.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from symsim.errors import InputError, cut
from symsim.importers.keys import Unresolved

_MOST_NODES = 200_000
_MOST_DEPTH = 60
# lists of lists of names grow by powers
_MOST_READ = 100_000
_LARGEST = 10**18
_LONGEST = 60
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


@dataclass(frozen=True)
class Argument:
    """What a call is given. name: the keyword, or for a position the name of the variable there (`init(pp, tp, dp)`), else none."""

    name: str | None
    value: Any
    where: str


@dataclass(frozen=True)
class Call:
    """A call of a function or a class by the last part of its name: `Merak.init(2, dp=1)` is `init` of `Merak`."""

    name: str
    of: str
    positional: tuple[Argument, ...]
    keywords: tuple[Argument, ...]
    where: str


@dataclass(frozen=True)
class Script:
    """What a text calls, in its order, and the attributes it sets, by the last part of the name (`config.use_cache = False`)."""

    calls: tuple[Call, ...]
    attributes: tuple[Argument, ...]


def read_script(text: str, where: str, variables: Mapping[str, str] | None = None) -> Script:
    """The calls and attributes of a text. variables: values of names, given by the user. InputError where it is no Python."""
    tree = parsed(text, where)
    names = _Names(tree, where, dict(variables or {}))
    found = [names.call(node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls = sorted((call for call in found if call is not None), key=lambda call: int(call.where.rpartition(":")[2]))
    sets = [(target, node.value) for node in ast.walk(tree) if isinstance(node, ast.Assign) for target in node.targets]
    attributes = tuple(Argument(to.attr, names.value(value), names.place(to)) for to, value in sets if isinstance(to, ast.Attribute))
    return Script(tuple(calls), attributes)


def parsed(text: str, where: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except SyntaxError as error:
        raise InputError(f"{where}:{error.lineno or 1}: not Python: {error.msg}") from None
    except (RecursionError, MemoryError):
        raise InputError(f"{where}: nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{where}: not Python: {error}") from None
    if sum(1 for _ in ast.walk(tree)) > _MOST_NODES:
        raise InputError(f"{where}: is too long to be a training script")
    return tree


class _Names:
    """Values of the names in one text: those the user gives, and those assigned once, or always alike."""

    def __init__(self, tree: ast.Module, where: str, given: Mapping[str, str]) -> None:
        self.where, self.given = where, given
        self.assigned: dict[str, list[ast.expr]] = {}
        self.left = _MOST_READ
        for node in ast.walk(tree):
            for name, value in _assignments(node):
                self.assigned.setdefault(name, []).append(value)

    def call(self, node: ast.Call) -> Call | None:
        name, of = (node.func.id, "") if isinstance(node.func, ast.Name) else ("", "")
        if isinstance(node.func, ast.Attribute):
            name, of = node.func.attr, node.func.value.id if isinstance(node.func.value, ast.Name) else ""
        if not name:
            return None
        positional = tuple(Argument(a.id if isinstance(a, ast.Name) else None, self.value(a), self.place(a)) for a in node.args)
        keywords = tuple(self._keywords(node))
        return Call(name, of, positional, keywords, self.place(node))

    def _keywords(self, node: ast.Call) -> Iterator[Argument]:
        """`**{"a": 1}` and `**kwargs` of a known dict stand for their keys."""
        for keyword in node.keywords:
            value = self.value(keyword.value)
            if keyword.arg is not None:
                yield Argument(keyword.arg, value, self.place(keyword.value))
            elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
                for key, inner in value.items():
                    yield Argument(key, inner, self.place(keyword.value))
            else:
                yield Argument(None, self.unread(keyword.value), self.place(keyword.value))

    def place(self, node: ast.expr) -> str:
        return f"{self.where}:{node.lineno}"

    def unread(self, node: ast.expr) -> Unresolved:
        """An expression as it is written, which a run alone would give a value."""
        text = source(node)
        hint = f"--var {text}=VALUE gives it" if _NAME.fullmatch(text) else "write its value, or give the key a name and that with --var"
        return Unresolved(text, f"{self.place(node)}: '{text}' has no value before the script runs, and nothing of it is run; {hint}")

    def value(self, node: ast.expr, seen: frozenset[str] = frozenset(), depth: int = 0) -> Any:
        """The value of an expression; `Unresolved` where it is none of the few forms that are read."""
        self.left -= 1
        if depth > _MOST_DEPTH or self.left < 0:
            return self.unread(node)
        if isinstance(node, ast.Constant):
            return self._constant(node)
        if isinstance(node, ast.Attribute) and (said := self.given.get(source(node))) is not None:
            return _spelt(said)
        if isinstance(node, ast.Name):
            return self._name(node, seen, depth)
        if isinstance(node, (ast.List, ast.Tuple)):
            inner = [self.value(element, seen, depth + 1) for element in node.elts]
            return self.unread(node) if any(isinstance(one, Unresolved) for one in inner) else inner
        if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
            return {key.value: self.value(value, seen, depth + 1) for key, value in zip(node.keys, node.values) if isinstance(key, ast.Constant)}
        if isinstance(node, (ast.UnaryOp, ast.BinOp)):
            made = self._arithmetic(node, seen, depth)
            return self.unread(node) if made is None else made
        return self.unread(node)

    def _constant(self, node: ast.Constant) -> Any:
        value = node.value
        plain = value is None or isinstance(value, (bool, str)) or (isinstance(value, (int, float)) and abs(value) <= _LARGEST)
        return value if plain else self.unread(node)

    def _name(self, node: ast.Name, seen: frozenset[str], depth: int) -> Any:
        name = node.id
        if name in self.given:
            return _spelt(self.given[name])
        if name in seen or name not in self.assigned:
            return self.unread(node)
        found = [self.value(value, seen | {name}, depth + 1) for value in self.assigned[name][:20]]
        alike = all(type(one) is type(found[0]) and one == found[0] for one in found)
        return found[0] if alike and not isinstance(found[0], Unresolved) else self.unread(node)

    def _arithmetic(self, node: ast.UnaryOp | ast.BinOp, seen: frozenset[str], depth: int) -> int | float | None:
        operands = [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, node.right]
        values = [self.value(one, seen, depth + 1) for one in operands]
        if any(isinstance(one, bool) or not isinstance(one, (int, float)) for one in values):
            return None
        try:
            made = applied(node.op, values)
        except (ZeroDivisionError, OverflowError):
            return None
        return made if made is not None and math.isfinite(made) and abs(made) <= _LARGEST else None


def applied(op: ast.operator | ast.unaryop, values: list[Any]) -> Any:
    if isinstance(op, (ast.USub, ast.UAdd)):
        return -values[0] if isinstance(op, ast.USub) else values[0]
    if len(values) < 2:
        return None
    left, right = values
    if isinstance(op, ast.Add):
        return left + right
    if isinstance(op, ast.Sub):
        return left - right
    if isinstance(op, ast.Mult):
        return left * right
    if isinstance(op, ast.FloorDiv):
        return left // right
    return left / right if isinstance(op, ast.Div) else None


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names and what they are set to: `a = 1`, `a, b = 1, 2`, `a: int = 1`; of `a += 1` and of loops, what cannot be read."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _paired(target, node.value)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield from _paired(node.target, node.value)
    elif isinstance(node, (ast.AugAssign, ast.For, ast.NamedExpr)):
        target = node.target
        for name in ast.walk(target):
            if isinstance(name, ast.Name):
                yield name.id, node.value if isinstance(node, ast.NamedExpr) else name
    elif isinstance(node, ast.arg):
        yield node.arg, ast.copy_location(ast.Name(node.arg, ast.Load()), node)


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, (ast.Tuple, ast.List)):
        pairs = zip(target.elts, value.elts) if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) else ()
        for one, part in pairs or ((one, one) for one in target.elts):
            yield from _paired(one, part)


def _spelt(text: str) -> Any:
    """What a user gives for a name: a number, true, false or none, else text."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) and abs(number) <= _LARGEST else text
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def source(node: ast.AST) -> str:
    try:
        return cut(" ".join(ast.unparse(node).split()), _LONGEST)
    except (RecursionError, ValueError):
        return "..."
