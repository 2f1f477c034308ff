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
    """The file that a word of the last script names, from here, from its folder, or from the two above it, of which one is where such scripts are
    started; None where none lies there, or where it is one of the scripts. So too of the first script's folder, which leads to the others."""
    if word.why is not None:
        return None
    folders = list(dict.fromkeys(os.path.dirname(script) for script in (scripts[-1], scripts[0])))
    above = [os.path.join(folder, up) for folder in folders for up in ("", "..", os.path.join("..", ".."))]
    near = [path + os.sep for folder in above if (path := os.path.abspath(folder)) != os.sep]
    places = (word.text, *(os.path.normpath(os.path.join(folder, word.text)) for folder in above))
    found = next((one for one in places if os.path.isfile(one) and os.path.abspath(one).startswith(tuple(near))), None)
    return None if found is None or any(os.path.exists(one) and os.path.samefile(one, found) for one in scripts) else found
