"""Reading TOML strictly: plain data, the line of every key, and one sentence for anything wrong."""

from __future__ import annotations

import re
import tomllib

from symsim.errors import InputError
from symsim.inputs.reading import Document, KeyPath, read_text

_LARGEST = 2**19
_SECTION = re.compile(r"\s*\[\[?\s*([^\[\]#]+?)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"\s*([A-Za-z0-9_.\-\"' ]+?)\s*=")
_AT = re.compile(r"\(at (?:line (\d+), column \d+|end of document)\)")


def read_toml(path: str) -> Document:
    """The contents of a TOML file. InputError where it cannot be read, is too large, or nests too deeply."""
    text = read_text(path, _LARGEST)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _AT.search(str(error))
        line = found[1] if found and found[1] else str(text.count("\n") + 1)
        raise InputError(f"{path}:{line}: not TOML: {_AT.sub('', str(error)).strip().rstrip(':')}") from None
    except (RecursionError, ValueError, OverflowError):
        raise InputError(f"{path}: nested too deeply, or a number too large to be one") from None
    if not data:
        raise InputError(f"{path}: the file is empty")
    return Document(data, path, _lines(text))


def _lines(text: str) -> dict[KeyPath, int]:
    """Where sections and keys begin, as far as a line by itself shows it."""
    lines: dict[KeyPath, int] = {}
    section: KeyPath = ()
    for number, line in enumerate(text.split("\n"), 1):
        head, key = _SECTION.fullmatch(line), _KEY.match(line)
        if head is not None:
            section = _path(head[1])
            lines.setdefault(section, number)
        elif key is not None:
            lines.setdefault((*section, *_path(key[1])), number)
    return lines


def _path(text: str) -> KeyPath:
    return tuple(part.strip().strip("\"'") for part in text.split("."))
