"""Jobs that are several files of different kinds, given in any order: which is which, and a name out of a file's."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from symsim.errors import InputError
from symsim.inputs.reading import Document, read_json


def by_kind(paths: Sequence[str], kind_of: Callable[[Document], str]) -> dict[str, Document]:
    """The files by what each is; InputError for a second of one kind, and whatever kind_of raises."""
    files: dict[str, Document] = {}
    for path in paths:
        document = read_json(path)
        kind = kind_of(document)
        if kind in files:
            raise InputError(f"{path}: a second {kind} file; the first is {files[kind].where}")
        files[kind] = document
    return files


def as_name(text: str, default: str) -> str:
    """Text as the name of a model or a system."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:60] or default
