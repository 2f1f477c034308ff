"""torchtitan's configurations in Python: a function of a config_registry.py, followed statement by statement, and never run.

What a function makes is read where it is a call with keywords, a literal, arithmetic of numbers, another function of the same file, or an
attribute of what was made before; names of classes stay names. Anything else stays as it is written, with the reason.
Names: torchtitan b5bcd76c6 (2026-08-21), config/manager.py, config/configs.py, trainer.py.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from symsim.errors import InputError, cut, nearest
from symsim.importers.keys import Given, Unresolved
from symsim.importers.merak.python_text import applied, parsed, source
from symsim.inputs.reading import read_text

_LARGEST_FILE = 2**20
_MOST_STEPS, _MOST_DEPTH = 20_000, 40
_LARGEST = 10**18


@dataclass
class Made:
    """What a call made: the name of its class or function, and what it was given, by keyword or place."""

    name: str
    where: str
    fields: dict[str, Given] = field(default_factory=dict)

    @property
    def is_class(self) -> bool:
        return self.name.rpartition(".")[2].lstrip("_")[:1].isupper()

    def part(self, name: str, where: str) -> "Made":
        """What stands under a name; made empty where nothing does, or what cannot be read."""
        one = self.fields.get(name)
        if one is None or not isinstance(one.value, Made):
            one = self.fields[name] = Given(Made("", where), where)
        found: Made = one.value
        return found


@dataclass(frozen=True)
class Configuration:
    """A configuration by its dotted keys, with the name of every class under the section that it is; the module that it is of, by --module or the
    file's folder, and where its function stands."""

    given: dict[str, Given]
    module: Given | None
    where: str


def read_registry(path: str, arguments: Sequence[str]) -> Configuration:
    """The configuration that `--config NAME` names, with what `--SECTION.KEY VALUE` says on top. InputError where there is none, or a
    statement of it cannot be followed."""
    reader = _Reader(read_text(path, _LARGEST_FILE), path)
    options = _options(arguments)
    name, module = options.pop("config", None), options.pop("module", None)
    names = reader.names()
    if name is None and len(names) == 1:
        name = Given(names[0], path)
    if name is None:
        told = f"one of {', '.join(names[:20])}" if names else "a function without arguments in a config_registry.py"
        raise InputError(f"{path}: which of its configurations? give --config NAME, {told}")
    if name.value not in names:
        raise InputError(f"{path}: there is no configuration '{cut(str(name.value))}': {nearest(str(name.value), names)}")
    made = reader.call(str(name.value), [], {}, path)
    if not isinstance(made, Made):
        raise InputError(f"{reader.place_of(str(name.value))}: {name.value} returns no configuration that can be read{_because(made)}")
    if made.name and not made.is_class:
        first = made.fields.get("0")
        base = first.value.text.partition("(")[0] if first is not None and isinstance(first.value, Unresolved) else ""
        other = f"--config {cut(base)} of {reader.imported[base]}" if base in reader.imported else "the configuration that it changes"
        raise InputError(f"{made.where}: {made.name} is of another file, and one is read: give {other}, and what is changed here as arguments")
    given = reader.keys(made, "", 0)
    for key, one in options.items():
        for other in [other for other in given if other.startswith(f"{key}.")] if isinstance(one.value, _Chosen) else []:
            del given[other]
        given[key] = Given(one.value.name, one.where) if isinstance(one.value, _Chosen) else one
    folder = reader.model() or Path(path).absolute().parent.name
    return Configuration(given, module or (Given(folder, path) if folder else None), reader.place_of(str(name.value)))


@dataclass(frozen=True)
class _Chosen:
    """A class that an argument chooses, as in `activation_checkpoint:full`."""

    name: str


def _options(arguments: Sequence[str]) -> dict[str, Given]:
    """`--section.key value`, `--section.key=value`, `--section.flag`, `--section.no-flag`, `section:choice`, as tyro reads them."""
    found: dict[str, Given] = {}
    left = list(arguments)
    while left:
        word = left.pop(0)
        key, equals, text = word.partition("=")
        if not word.startswith("--"):
            section, colon, choice = word.partition(":")
            if not colon:
                raise InputError(f"{cut(word)}: is no argument of torchtitan; give --SECTION.KEY VALUE")
            found[section.replace("-", "_")] = Given(_Chosen(choice), word)
            continue
        key = key[2:].replace("-", "_")
        head, _, last = key.rpartition(".")
        if equals or (left and not left[0].startswith("--")):
            found[key] = Given(_spelt(text if equals else left.pop(0)), word.partition("=")[0])
        elif last.startswith("no_"):
            found[f"{head}.{last[3:]}" if head else last[3:]] = Given(False, word)
        else:
            found[key] = Given(True, word)
    return found


def _spelt(text: str) -> Any:
    if text in ("True", "False", "None", "true", "false", "none"):
        return {"true": True, "false": False, "none": None}[text.lower()]
    return int(text) if text.isascii() and text.removeprefix("-").isdigit() and len(text) < 19 else text


def _because(value: Any) -> str:
    return f": {value.why}" if isinstance(value, Unresolved) else ""


class _Returned(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class _Reader:
    """The functions of one file, and how their statements are followed."""

    def __init__(self, text: str, where: str) -> None:
        self.where, self.left, self.depth = where, _MOST_STEPS, 0
        body = parsed(text, where).body
        self.functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
        self.imported = {a.asname or a.name: node.module or "" for node in body if isinstance(node, ast.ImportFrom) for a in node.names}
        self.constants: dict[str, Any] = {}
        for node in body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.constants[node.targets[0].id] = self.value(node.value, self.constants)

    def names(self) -> list[str]:
        """Functions that a run can name."""
        return [
            name
            for name, node in self.functions.items()
            if not name.startswith("_") and len(node.args.args) == len(node.args.defaults) and all(d is not None for d in node.args.kw_defaults)
        ]

    def model(self) -> str:
        """The module of the models whose registry the file imports; "" where it stands beside it."""
        return self.imported.get("model_registry", "").removesuffix(".config_registry").rpartition(".")[2]

    def keys(self, made: Made, above: str, depth: int) -> dict[str, Given]:
        """Every value by its dotted name; what is made of classes also by the class: `loss` is ChunkedLossWrapper. Members of lists by number."""
        self.left -= 1
        if depth > _MOST_DEPTH or self.left < 0:
            raise InputError(f"{made.where}: what is made here holds itself, or too much")
        found: dict[str, Given] = {}
        for name, one in made.fields.items():
            key, value = f"{above}{name}", one.value
            if isinstance(value, Made):
                if value.name:
                    found[key] = Given(value.name, one.where)
                found |= self.keys(value, f"{key}.", depth + 1)
                continue
            found[key] = Given(self.plain(value, made.where), one.where)
            for number, part in enumerate(value) if isinstance(value, list) else ():
                if isinstance(part, Made):
                    found |= self.keys(part, f"{key}.{number}.", depth + 1)
        return found

    def plain(self, value: Any, where: str, depth: int = 0) -> Any:
        """A value with names of classes in place of what they made."""
        self.left -= 1
        if depth > _MOST_DEPTH or self.left < 0:
            raise InputError(f"{where}: what is made here holds itself, or too much")
        if isinstance(value, list):
            return [self.plain(one, where, depth + 1) for one in value]
        return value.name if isinstance(value, Made) else value

    def place_of(self, name: str) -> str:
        return f"{self.where}:{self.functions[name].lineno}"

    def place(self, node: ast.AST) -> str:
        return f"{self.where}:{getattr(node, 'lineno', 1)}"

    def unread(self, node: ast.AST, why: str = "has no value before it runs, and nothing of it is run") -> Unresolved:
        text = source(node)
        return Unresolved(text, f"{self.place(node)}: '{text}' {why}; write its value, or give it as --SECTION.KEY VALUE")

    def call(self, name: str, positional: list[Any], keywords: dict[str, Any], where: str) -> Any:
        """What a function of the file returns."""
        node, arguments = self.functions[name], self.functions[name].args
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            raise InputError(f"{where}: {name} calls itself, or too many others")
        names = [argument.arg for argument in arguments.args]
        local: dict[str, Any] = {}
        for argument, default in zip(names[len(names) - len(arguments.defaults) :], arguments.defaults):
            local[argument] = self.value(default, self.constants)
        for keyword, made in zip(arguments.kwonlyargs, arguments.kw_defaults):
            local[keyword.arg] = self.value(made, self.constants) if made is not None else self.unread(keyword)
        local |= dict(zip(names, positional)) | keywords
        try:
            self.follow(node.body, {**self.constants, **local})
        except _Returned as returned:
            return returned.value
        finally:
            self.depth -= 1
        return None

    def follow(self, body: Sequence[ast.stmt], local: dict[str, Any]) -> None:
        for node in body:
            self.left -= 1
            if self.left < 0:
                raise InputError(f"{self.where}: too many statements for a configuration")
            if isinstance(node, ast.Return):
                raise _Returned(None if node.value is None else self.value(node.value, local))
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                value = self.value(node.value, local)
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self.assign(target, value, local, node)
            elif isinstance(node, ast.Expr):
                self.effect(node.value, local)
            elif isinstance(node, ast.For) and isinstance(node.target, ast.Name) and isinstance(of := self.value(node.iter, local), list):
                for one in of:
                    local[node.target.id] = one
                    self.follow(node.body, local)
            elif isinstance(node, ast.If) and isinstance(holds := self.value(node.test, local), bool):
                self.follow(node.body if holds else node.orelse, local)
            elif not isinstance(node, (ast.Assert, ast.Import, ast.ImportFrom, ast.Pass, ast.FunctionDef, ast.AnnAssign, ast.Raise)):
                self.unfollowed(node, local)

    def unfollowed(self, node: ast.AST, local: dict[str, Any]) -> None:
        """A statement that is not followed: what it sets is not known; InputError where it may set a configuration."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                local[inner.id] = self.unread(node)
            for name in _touched(inner):
                if isinstance(made := local.get(name), Made) and made.is_class:
                    raise InputError(f"{self.place(node)}: '{source(node)}' may change {name}, and nothing of it is run; write out what it sets")

    def assign(self, target: ast.expr, value: Any, local: dict[str, Any], node: ast.AST) -> None:
        if isinstance(target, ast.Name):
            local[target.id] = value
        elif isinstance(target, ast.Attribute) and (made := self.owner(target, local)) is not None:
            made.fields[target.attr] = Given(value, self.place(node))
        elif isinstance(target, (ast.Tuple, ast.List)):
            for one in target.elts:
                self.assign(one, self.unread(node), local, node)
        else:
            self.unfollowed(node, local)

    def owner(self, node: ast.Attribute, local: dict[str, Any]) -> Made | None:
        """What an attribute is of: `config.training` of `config.training.steps`."""
        path: list[str] = []
        at: ast.expr = node.value
        while isinstance(at, ast.Attribute):
            path.append(at.attr)
            at = at.value
        made = local.get(at.id) if isinstance(at, ast.Name) else None
        for name in reversed(path):
            made = made.part(name, self.place(node)) if isinstance(made, Made) else None
        return made if isinstance(made, Made) else None

    def effect(self, node: ast.expr, local: dict[str, Any]) -> None:
        """A call for its effect: a function of the file, or what is added to a list."""
        added = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("append", "extend")
        if added and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Attribute):
            made = self.owner(node.func.value, local)
            if made is not None:
                one = made.fields.get(node.func.value.attr)
                values = [self.value(argument, local) for argument in node.args]
                more = values if node.func.attr == "append" else [v for value in values for v in (value if isinstance(value, list) else [value])]
                before = one.value if one is not None and isinstance(one.value, list) else []
                made.fields[node.func.value.attr] = Given([*before, *more], self.place(node))
                return
        if isinstance(node, ast.Constant) or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.functions):
            self.value(node, local)
        else:
            self.unfollowed(node, local)

    def value(self, node: ast.expr, local: dict[str, Any], depth: int = 0) -> Any:
        """The value of an expression; `Unresolved` where it is none of the few forms that are read."""
        self.left -= 1
        if depth > _MOST_DEPTH or self.left < 0:
            return self.unread(node, "is nested too deeply")
        if isinstance(node, ast.Constant):
            plain = (
                node.value is None or isinstance(node.value, (bool, str)) or (isinstance(node.value, (int, float)) and abs(node.value) <= _LARGEST)
            )
            return node.value if plain else self.unread(node)
        if isinstance(node, ast.Name):
            return local.get(node.id, self.unread(node))
        if isinstance(node, ast.Attribute):
            return self.attribute(node, local, depth)
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self.value(one, local, depth + 1) for one in node.elts]
        if isinstance(node, ast.Dict):
            return self.entries(node, local, depth)
        if isinstance(node, ast.Call):
            return self.called(node, local, depth)
        if isinstance(node, (ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp)):
            return self.computed(node, local, depth)
        return self.unread(node)

    def attribute(self, node: ast.Attribute, local: dict[str, Any], depth: int) -> Any:
        of = self.value(node.value, local, depth + 1)
        if isinstance(of, Made) and node.attr in of.fields:
            return of.fields[node.attr].value
        return self.unread(node)

    def entries(self, node: ast.Dict, local: dict[str, Any], depth: int) -> Any:
        found: dict[str, Any] = {}
        for key, one in zip(node.keys, node.values):
            value = self.value(one, local, depth + 1)
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                found[key.value] = value
            elif key is None and isinstance(value, dict):
                found |= value
            else:
                return self.unread(node)
        return found

    def computed(self, node: ast.expr, local: dict[str, Any], depth: int) -> Any:
        if isinstance(node, ast.IfExp):
            holds = self.value(node.test, local, depth + 1)
            return self.value(node.body if holds else node.orelse, local, depth + 1) if isinstance(holds, bool) else self.unread(node)
        if isinstance(node, ast.UnaryOp):
            value = self.value(node.operand, local, depth + 1)
            if isinstance(node.op, ast.Not) and isinstance(value, bool):
                return not value
            made = applied(node.op, [value]) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
            return self.unread(node) if made is None else made
        if not isinstance(node, ast.BinOp):
            return self.unread(node)
        values = [self.value(one, local, depth + 1) for one in (node.left, node.right)]
        if all(isinstance(one, list) for one in values) and isinstance(node.op, ast.Add):
            return values[0] + values[1] if len(values[0]) + len(values[1]) < _MOST_STEPS else self.unread(node)
        if any(isinstance(one, bool) or not isinstance(one, (int, float)) for one in values):
            return self.unread(node)
        try:
            made = applied(node.op, values)
        except (ZeroDivisionError, OverflowError):
            made = None
        return made if made is not None and abs(made) <= _LARGEST else self.unread(node)

    def called(self, node: ast.Call, local: dict[str, Any], depth: int) -> Any:
        """A function of the file is followed; `cast(T, x)` and `deepcopy(x)` are x; any other call is what it is called, and given."""
        name = source(node.func)
        positional = [self.value(argument, local, depth + 1) for argument in node.args]
        keywords: dict[str, Given] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, local, depth + 1)
            if keyword.arg is not None:
                keywords[keyword.arg] = Given(value, self.place(keyword.value))
            elif isinstance(value, dict):
                keywords |= {key: Given(one, self.place(keyword.value)) for key, one in value.items()}
        last = name.rpartition(".")[2]
        if last in ("cast", "deepcopy") and positional:
            return _copied(positional[-1])
        if last == "replace" and positional and isinstance(positional[0], Made):
            made = _copied(positional[0])
            made.fields |= keywords
            return made
        if isinstance(node.func, ast.Name) and name in self.functions:
            return self.call(name, positional, {key: one.value for key, one in keywords.items()}, self.place(node))
        if "config_registry" in self.imported.get(name, ""):
            return self.unread(node, f"is of {self.imported[name]}, and one file is read: give that file, and what this one changes as arguments")
        places = {str(number): Given(value, self.place(node)) for number, value in enumerate(positional)}
        return Made(name.removesuffix(".Config"), self.place(node), {**places, **keywords})


def _touched(node: ast.AST) -> list[str]:
    """Names of what a node may change: what it sets a part of, calls a method of, or hands to a call."""
    parts: list[ast.expr] = []
    if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
        parts = [node]
    elif isinstance(node, ast.Call):
        parts = [node.func, *node.args, *(keyword.value for keyword in node.keywords)]
    found = []
    for part in parts:
        while isinstance(part, (ast.Attribute, ast.Subscript, ast.Starred)):
            part = part.value
        found += [part.id] if isinstance(part, ast.Name) else []
    return found


def _copied(value: Any) -> Any:
    return Made(value.name, value.where, dict(value.fields)) if isinstance(value, Made) else value
