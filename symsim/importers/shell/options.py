"""The options of a command line and the words that follow each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from symsim.importers.shell.scope import Word


@dataclass(frozen=True)
class Option:
    """`--name value ..` or `--name=value`. name: with its dashes."""

    name: str
    values: tuple[Word, ...]
    where: str


def _filled(words: Sequence[Word]) -> list[Word]:
    """The words, where `<a path of your own>` is one, as a script that is to be filled in has it."""
    found: list[Word] = []
    at = 0
    while at < len(words):
        word, end = words[at], at + 1
        if word.text.startswith("<") and ">" not in word.text:
            closing = next((n for n in range(end, len(words)) if words[n].text.startswith("--") or ">" in words[n].text), len(words))
            if closing < len(words) and not words[closing].text.startswith("--"):
                end = closing + 1
        found.append(word if end == at + 1 else replace(word, text=" ".join(one.text for one in words[at:end])))
        at = end
    return found


def options(words: Sequence[Word], short: bool = False) -> tuple[list[Word], list[Option]]:
    """The words before the first option, and the options with the words that follow each. short: `-x` is an option too."""
    before: list[Word] = []
    found: list[Option] = []
    for word in _filled(words):
        name, equals, value = word.text.partition("=")
        dashed = name.startswith("--") and len(name) > 2 or (short and re.fullmatch(r"-[A-Za-z]\w*", name) is not None)
        if dashed and word.why is None or (dashed and equals):
            found.append(Option(name, (Word(value, word.where, word.why),) if equals else (), word.where))
        elif found:
            found[-1] = Option(found[-1].name, (*found[-1].values, word), found[-1].where)
        else:
            before.append(word)
    return before, found
