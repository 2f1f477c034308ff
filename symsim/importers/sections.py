"""Keys of files with sections: `zero_optimization.stage` for the stage inside zero_optimization."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from symsim.errors import InputError, cut
from symsim.importers.keys import Given, Silent
from symsim.inputs.reading import Document, KeyPath


def of_sections(document: Document, whole: Collection[str] = ()) -> dict[str, Given]:
    """Every key of a file by its dotted name and where it stands; the sections named in `whole`, and empty ones, are values of their own.

    InputError where two keys have one name.
    """
    found: dict[str, Given] = {}
    _collect(document, document.data, (), whole, found)
    return found


def _collect(document: Document, data: Mapping[str, Any], above: KeyPath, whole: Collection[str], found: dict[str, Given]) -> None:
    for key, value in data.items():
        path = (*above, key)
        name = ".".join(map(str, path))
        if isinstance(value, dict) and value and name not in whole:
            _collect(document, value, path, whole, found)
            continue
        if name in found:
            raise InputError(f"{document.place(path)}: '{cut(name)}' is given twice")
        found[name] = Given(value, document.place(path))


def under(sections: Mapping[str, Silent], given: Collection[str]) -> dict[str, Silent]:
    """What a section's name says of every key below it that is given, and of the section itself; the longest name that fits decides.

    For sections that a program hands on, whose keys are those of something else.
    """
    found: dict[str, Silent] = {}
    for name in sorted(sections, key=len):
        found |= {key: sections[name] for key in given if key == name or key.startswith(f"{name}.")}
    return found


_REFERENCE = re.compile(r"\$\{(?:oc\.select:)?([\w.]+)(?:,([^${}]*))?\}")
_DEPTH = 8


def referred(given: Mapping[str, Given]) -> dict[str, Given]:
    """The keys with values that are a reference to another key as a whole, `${batch_size}` or `${oc.select:actor.n,1}` (OmegaConf), in its place.

    What refers to nothing here stays as it is written, or is its default.
    """

    def value_of(value: Any, depth: int) -> Any:
        match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if match is None or depth == _DEPTH:
            return value
        if match[1] in given:
            return value_of(given[match[1]].value, depth + 1)
        return value if match[2] is None else match[2].strip()

    return {key: replace(one, value=value_of(one.value, 0)) for key, one in given.items()}
