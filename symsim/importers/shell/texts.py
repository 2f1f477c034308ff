"""Files that a script names: those that it writes itself, and scripts beside it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from symsim.importers.shell.scope import Word
from symsim.inputs.reading import Document, parse_json


def json_written(text: Word) -> Document:
    """The JSON in a text of a script, with the script's lines. InputError where it is none, or hangs on what only a run could tell."""
    script, _, line = text.where.rpartition(":")
    return parse_json("\n" * (int(line) - 1) + text.known(), script)


def beside(word: Word, scripts: Sequence[str]) -> str | None:
    """The file that a word of the last script names, from here or from its folder; None where none lies there, or in the two folders above, or
    where it is one of the scripts."""
    if word.why is not None:
        return None
    folder = os.path.dirname(scripts[-1])
    near = os.path.abspath(os.path.join(folder, "..", ".."))
    near = os.path.abspath(folder) if near == os.sep else near
    places = (word.text, os.path.join(folder, word.text))
    found = next((one for one in places if os.path.isfile(one) and os.path.abspath(one).startswith(near + os.sep)), None)
    return None if found is None or any(os.path.exists(one) and os.path.samefile(one, found) for one in scripts) else found
