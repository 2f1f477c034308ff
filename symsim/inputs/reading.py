"""Reading YAML and JSON strictly: plain data, the line of every key, and one sentence for anything wrong.

YAML is read from a parser's events with a stack, so no input can run code or exhaust the Python stack; aliases are
written out up to a bound. Scalars follow YAML 1.2's core schema (`989e12` is a number, `on` and `1_000` are text).
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from symsim.errors import InputError, cut, nearest, printable
from symsim.inputs.anchors import MERGE, Anchors, merged
from symsim.inputs.plain_yaml import Event, plain_events

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

KeyPath = tuple["str | int", ...]

# files are read before anything is known of them: YAML takes some 15 microseconds a byte, JSON one
_LARGEST_TABLE, _LARGEST_JSON, _LARGEST_YAML = 16 * 2**20, 4 * 2**20, 2**19
_LARGEST_KEPT = 2**15
_LONGEST_NUMBER = 400
_DEEPEST = 100

_INT = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_SURROGATE = re.compile("[\ud800-\udfff]")
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass(frozen=True)
class Document:
    """A mapping read from a file, and where its keys stand."""

    data: dict[str, Any]
    where: str
    lines: Mapping[KeyPath, int] = field(default_factory=dict, repr=False)

    def line_of(self, key_path: "KeyPath | list[str | int]") -> int | None:
        """The line (from 1) of a key, or of a list's element; None when it is not there."""
        return self.lines.get(tuple(key_path))

    def place(self, key_path: KeyPath) -> str:
        """`FILE:LINE` of the key, or of the nearest key above it that is there."""
        for length in range(len(key_path), 0, -1):
            line = self.lines.get(tuple(key_path[:length]))
            if line is not None:
                return f"{self.where}:{line}"
        return self.where


@dataclass(frozen=True)
class Repeated:
    """A key that is given again: its path, the value that it had, the line of that, and the line where it stands again."""

    path: KeyPath
    value: Any
    first: int
    line: int


def dotted(key_path: "KeyPath | list[str | int]") -> str:
    """`moe.router[2]` for ('moe', 'router', 2)."""
    text = ""
    for part in key_path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def read_text(path: "str | Path", most: int = _LARGEST_TABLE) -> str:
    """The text of a UTF-8 file of at most so many bytes; InputError says why it cannot be read."""
    try:
        with open(path, "rb") as file:
            raw = file.read(most + 1)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a directory, not a file") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > most:
        raise InputError(f"{path}: is larger than {most // 1024} KiB, so it is not a file that can be read here")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: not UTF-8 text (byte 0x{raw[error.start]:02x})") from None


def write_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; InputError says why it cannot be written."""
    beside = None
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no directory {path.parent}")
    try:
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        # mkstemp makes files for their owner alone; a result should follow the user's umask
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(beside, 0o666 & ~mask)
        os.replace(beside, path)
        beside = None
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        if beside is not None:
            os.unlink(beside)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file whole or not at all; characters that no reader can see are escaped."""
    write_file(path, printable(text).encode())


def read_yaml(path: "str | Path", repeated: list[Repeated] | None = None) -> Document:
    """A YAML mapping; repeated: takes the keys that are given again, of which the last holds, where they are not to be refused."""
    text = read_text(path, _LARGEST_YAML)
    return parse_yaml(text, str(path)) if repeated is None else _parsed(text, str(path), repeated)


def parse_yaml(text: str, where: str) -> Document:
    """Plain data of a YAML mapping, the caller's own; tags, duplicate keys and non-finite numbers are refused."""
    if len(text) > _LARGEST_KEPT:
        return _parsed(text, where)
    kept = _kept(text, where)
    return Document(deepcopy(kept.data), where, kept.lines)


@lru_cache(maxsize=128)
def _kept(text: str, where: str) -> Document:
    return _parsed(text, where)


def _parsed(text: str, where: str, repeated: list[Repeated] | None = None) -> Document:
    builder = _Builder(where, repeated)
    plain = plain_events(text)
    for event in _events(text, where) if plain is None else plain:
        if isinstance(event.what, str):
            if event.plain and event.what == MERGE and builder.wants_key:
                builder.mark_merge()
            scalar = event.plain and not builder.wants_key
            builder.add(_core_scalar(event.what, f"{where}:{event.line}") if scalar else event.what, event.line)
        elif event.what is not None:
            builder.open(event.what, event.line)
        else:
            builder.close()
    return builder.document("YAML")


def _events(text: str, where: str) -> Iterator[Event]:
    """What a full parser finds; InputError for what is no YAML, or more of it than plain data."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.events import (
        AliasEvent,
        DocumentStartEvent,
        MappingEndEvent,
        MappingStartEvent,
        ScalarEvent,
        SequenceEndEvent,
        SequenceStartEvent,
    )

    documents = 0
    anchors = Anchors(where)
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            line = event.start_mark.line + 1
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise InputError(f"{where}:{line}: a second YAML document begins here; one is expected")
            if isinstance(event, AliasEvent):
                yield from anchors.written_out(str(event.anchor), line)
            if isinstance(event, (ScalarEvent, MappingStartEvent, SequenceStartEvent)) and event.tag is not None:
                tag = str(event.tag).replace("tag:yaml.org,2002:", "!!")
                raise InputError(f"{where}:{line}: tag {tag} is not accepted; only plain values are")
            if isinstance(event, ScalarEvent):
                yield anchors.seen(Event(event.value, line, event.implicit[0]), event.anchor)
            elif isinstance(event, (MappingStartEvent, SequenceStartEvent)):
                yield anchors.seen(Event({} if isinstance(event, MappingStartEvent) else [], line), event.anchor)
            elif isinstance(event, (MappingEndEvent, SequenceEndEvent)):
                yield anchors.seen(Event(None, line), None)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = min(mark.line + 1, text.count("\n") + 1) if mark else 1
        raise InputError(f"{where}:{line}: not YAML: {' '.join(str(error.problem or error.context).split())}") from None
    except YAMLError as error:
        position = getattr(error, "position", None)
        line = text.count("\n", 0, position) + 1 if isinstance(position, int) else 1
        reason = "it holds a control character" if position is not None else "it does not read"
        raise InputError(f"{where}:{line}: not YAML: {reason}") from None
    except RecursionError:
        raise InputError(f"{where}: nested too deeply") from None


def read_json(path: "str | Path", infinite: bool = False) -> Document:
    return parse_json(read_text(path, _LARGEST_JSON), str(path), infinite)


def parse_json(text: str, where: str, infinite: bool = False) -> Document:
    """Plain data of a JSON object; duplicate keys, NaN and Infinity are refused. infinite: NaN and Infinity, which Python writes for floats, are
    what transformers 5 writes for them, {"__float__": "Infinity"}: no number where one is read."""

    def refuse(constant: str) -> None:
        if infinite:
            return
        # a string may hold the same word, so only a token of its own counts
        line = next((text.count("\n", 0, t.start()) + 1 for t in _JSON_TOKEN.finditer(text) if t[0] == constant), 1)
        raise InputError(f"{where}:{line}: {constant} is not a number that can be used here")

    def number(kind: type) -> Any:
        def read(digits: str) -> Any:
            if len(digits) > _LONGEST_NUMBER or not math.isfinite(float(digits)):
                line = next((text.count("\n", 0, t.start()) + 1 for t in _JSON_TOKEN.finditer(text) if t[0] == digits), 1)
                raise InputError(f"{where}:{line}: {cut(digits)} is too large a number")
            return kind(digits)

        return read

    if not text.strip():
        raise InputError(f"{where}: the file is empty")
    try:
        json.loads(text, parse_constant=refuse, parse_int=number(int), parse_float=number(float))
    except json.JSONDecodeError as error:
        raise InputError(f"{where}:{error.lineno}: not JSON: {error.msg} (column {error.colno})") from None
    except RecursionError:
        raise InputError(f"{where}: nested too deeply") from None

    # The text is JSON now; a second walk over its tokens finds the line of every key.
    builder = _Builder(where)
    line, counted = 1, 0
    for token in _JSON_TOKEN.finditer(text):
        line += text.count("\n", counted, token.start())
        counted = token.start()
        if token[0] in "{[":
            builder.open({} if token[0] == "{" else [], line)
        elif token[0] in "}]":
            builder.close()
        elif token[0] not in ",:":
            builder.add(json.loads(token[0], parse_constant=lambda constant: {"__float__": constant}), line)
    return builder.document("JSON")


class _Builder:
    """Nested data from a flat series of open, add and close."""

    def __init__(self, where: str, repeated: list[Repeated] | None = None) -> None:
        self.where, self.repeated = where, repeated
        self.root: Any = None
        self.lines: dict[KeyPath, int] = {}
        self._open: list[tuple[Any, KeyPath]] = []
        self._keys: list[str | None] = []
        self._merges: set[KeyPath] = set()

    @property
    def wants_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1][0], dict) and self._keys[-1] is None

    def _place(self, value: Any, line: int) -> KeyPath:
        if not self._open:
            self.root = value
            return ()
        parent, path = self._open[-1]
        if isinstance(parent, dict):
            key = self._keys[-1]
            assert key is not None
            parent[key] = value
            self._keys[-1] = None
            return (*path, key)
        parent.append(value)
        self.lines[(*path, len(parent) - 1)] = line
        return (*path, len(parent) - 1)

    def add(self, value: Any, line: int) -> None:
        if isinstance(value, str) and _SURROGATE.search(value):
            # an escape such as \ud800 makes text that no file or terminal can hold
            raise InputError(f"{self.where}:{line}: text with half a Unicode character (a lone surrogate escape)")
        if not self.wants_key:
            self._place(value, line)
            return
        parent, path = self._open[-1]
        if value in parent:
            first = self.lines[(*path, value)]
            if self.repeated is not None:
                self.repeated.append(Repeated((*path, value), parent.pop(value), first, line))
            else:
                raise InputError(f"{self.where}:{line}: '{cut(dotted((*path, value)))}' is given twice (first on line {first})")
        self._keys[-1] = value
        self.lines[(*path, value)] = line

    def mark_merge(self) -> None:
        """The key that comes next brings the keys of another mapping."""
        self._merges.add((*self._open[-1][1], MERGE))

    def open(self, container: Any, line: int) -> None:
        if self.wants_key:
            raise InputError(f"{self.where}:{line}: a key must be a plain name, not a list or mapping")
        if len(self._open) == _DEEPEST:
            raise InputError(f"{self.where}:{line}: nested too deeply (more than {_DEEPEST} levels)")
        self._open.append((container, self._place(container, line)))
        self._keys.append(None)

    def close(self) -> None:
        self._open.pop()
        self._keys.pop()

    def document(self, language: str) -> Document:
        if self.root is None:
            raise InputError(f"{self.where}: the file is empty")
        if not isinstance(self.root, dict):
            kind = "list" if isinstance(self.root, list) else "single value"
            raise InputError(f"{self.where}: holds a {kind}; a {language} mapping of keys to values is expected")
        if self._merges:
            self.root, self.lines = merged(self.root, self.lines, frozenset(self._merges), self.where)
        return Document(self.root, self.where, self.lines)


def _core_scalar(text: str, place: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _NOT_FINITE.fullmatch(text):
        raise InputError(f"{place}: {text} is not a number that can be used here")
    if not (_INT.fullmatch(text) or _FLOAT.fullmatch(text) or _BASED.fullmatch(text)):
        return text
    if len(text) > _LONGEST_NUMBER:
        raise InputError(f"{place}: {cut(text)} is too large a number")
    if _INT.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    value = float(text)
    if not math.isfinite(value):
        raise InputError(f"{place}: {text} is too large a number")
    return value


def format_yaml(data: Mapping[str, Any], indent: str = "") -> str:
    """Block YAML of nested mappings with scalars and lists of scalars; `parse_yaml` reads it back unchanged."""
    text = ""
    for key, value in data.items():
        head = f"{indent}{_yaml_text(str(key))}:"
        if isinstance(value, Mapping) and value:
            text += f"{head}\n{format_yaml(value, indent + '  ')}"
        elif isinstance(value, (list, tuple)):
            text += f"{head} [{', '.join(map(_yaml_value, value))}]\n"
        else:
            text += f"{head} {_yaml_value(value)}\n"
    return text


_PLAIN = re.compile(r"(?:[A-Za-z]|[0-9]+ \*)[\w ./()*+-]*(?<! )", re.ASCII)


def _yaml_text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text not in _WORDS:
        return text
    # JSON strings are YAML, save that YAML does not allow these characters bare
    quoted = json.dumps(text, ensure_ascii=False)
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff]", lambda match: f"\\u{ord(match[0]):04x}", quoted)


def _yaml_value(value: Any) -> str:
    if isinstance(value, str):
        return _yaml_text(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_yaml_value, value))}]"
    return json.dumps(value)


def from_validation_error(error: "ValidationError", document: Document | None, where: str, model: "type[BaseModel] | None" = None) -> InputError:
    """One sentence for the first problem pydantic found; misspelt keys come first, as they cause the others."""
    problems = error.errors(include_url=False)
    first = min(problems, key=lambda p: p["type"] != "extra_forbidden")
    # pydantic adds the tag of a union's branch to the location; keys end where the data does
    path: KeyPath = tuple(first["loc"])
    place = document.place(path) if document is not None else where
    kind, context, given = first["type"], first.get("ctx") or {}, first.get("input")
    name = dotted(path)
    if kind == "extra_forbidden":
        owner = _model_at(model, path[:-1])
        inside = f" in {dotted(path[:-1])}" if path[:-1] else ""
        hint = f": {nearest(str(path[-1]), list(owner.model_fields))}" if owner is not None else ""
        return InputError(f"{place}: unknown key '{cut(str(path[-1]))}'{inside}{hint}")
    if kind == "missing":
        return InputError(f"{place}: {name} is missing")
    if kind in ("value_error", "assertion_error"):
        reason = str(context.get("error") or first["msg"])
        return InputError(f"{place}: {name + ': ' if name else ''}{reason}")
    shown = cut(json.dumps(given, default=lambda value: type(value).__name__))
    if kind == "literal_error":
        choices = _choices(model, path)
        advice = str(context.get("expected", "")).replace("'", "")
        if isinstance(given, str) and choices:
            # it knows the fields of a strategy, which are read by this module
            from symsim.inputs.spellings import VALUES

            meant = VALUES.get((name, given.casefold())) or nearest(given, choices, "")
            return InputError(f"{place}: {name} is {shown}; valid: {advice}{f' ({meant})' if meant else ''}")
        return InputError(f"{place}: {name} is {shown}; valid: {advice}")
    reason = re.sub(r"^Input should be (a valid |an? )?", "", first["msg"]).split(", ")[0]
    return InputError(f"{place}: {name or 'the value'} is {shown}; it should be {_article(reason)}")


def _article(reason: str) -> str:
    return {
        "integer": "a whole number",
        "boolean": "true or false",
        "string": "text",
        "number": "a number",
        "tuple": "a list",
        "list": "a list",
        "dictionary": "a mapping",
        "None": "empty",
    }.get(reason, "a mapping" if reason.startswith("dictionary") else reason)


def _parts(annotation: Any) -> list[Any]:
    """The types inside an annotation such as `dict[str, LayerKind]` or `Mlp | None`."""
    inner = get_args(annotation)
    return [annotation] if not inner else [part for argument in inner for part in _parts(argument)]


def _model_at(model: "type[BaseModel] | None", path: KeyPath) -> "type[BaseModel] | None":
    from pydantic import BaseModel

    for part in path:
        if model is None:
            return None
        if part not in model.model_fields:
            # a key of a dict of models, or a list's index: the model was found with the field before it
            continue
        candidates = [t for t in _parts(model.model_fields[str(part)].annotation) if isinstance(t, type) and issubclass(t, BaseModel)]
        model = candidates[0] if candidates else None
    return model


def _choices(model: "type[BaseModel] | None", path: KeyPath) -> list[str]:
    while path and isinstance(path[-1], int):
        path = path[:-1]
    owner = _model_at(model, path[:-1])
    if owner is None or not path or path[-1] not in owner.model_fields:
        return []
    return [part for part in _parts(owner.model_fields[str(path[-1])].annotation) if isinstance(part, str)]
