"""The options of a command line and the words that follow each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from symsim.importers.shell.scope import Word


@dataclass(frozen=True)
class Option:
    """`--name value ..` or `--name=value`. name: with its dashes."""

    name: str
    values: tuple[Word, ...]
    where: str


def options(words: Sequence[Word], short: bool = False) -> tuple[list[Word], list[Option]]:
    """The words before the first option, and the options with the words that follow each. short: `-x` is an option too."""
    before: list[Word] = []
    found: list[Option] = []
    for word in words:
        name, equals, value = word.text.partition("=")
        dashed = name.startswith("--") and len(name) > 2 or (short and re.fullmatch(r"-[A-Za-z]\w*", name) is not None)
        if dashed and word.why is None or (dashed and equals):
            found.append(Option(name, (Word(value, word.where, word.why),) if equals else (), word.where))
        elif found:
            found[-1] = Option(found[-1].name, (*found[-1].values, word), found[-1].where)
        else:
            before.append(word)
    return before, found
