"""Keys of files with sections: `zero_optimization.stage` for the stage inside zero_optimization."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from symsim.errors import InputError, cut
from symsim.importers.keys import Given
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
