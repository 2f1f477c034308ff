"""Options that take one value and were given two: the first would be dropped without a word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from symsim.errors import InputError, cut


def check_once(options: Sequence[Any], words: Sequence[str]) -> None:
    """InputError for an option of a command that is given twice on its command line. options: click's, of which those that may be repeated, and
    those without a value, are no matter."""
    names = {name: option for option in options for name in (*option.opts, *option.secondary_opts) if name.startswith("-")}
    taking = {name: option for name, option in names.items() if not getattr(option, "is_flag", False) and not getattr(option, "count", False)}
    given: dict[int, str] = {}
    for name, value in _values(taking, words):
        option = taking[name]
        first = given.get(id(option))
        given[id(option)] = value
        if first is not None and not option.multiple:
            together = f"; one text has all options: {name} {cut(first)},{cut(value)}" if option.name == "strategy" and "=" in first + value else ""
            raise InputError(f"{name} is given twice, '{cut(first)}' and '{cut(value)}'{together}")


def _values(taking: dict[str, Any], words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The options among words, by the name that is used, and their values."""
    left = iter(words)
    for word in left:
        if word == "--":
            return
        name, equals, value = word.partition("=")
        if name in taking and name.startswith("--"):
            yield name, value if equals else next(left, "")
        elif word[:2] in taking and not word.startswith("--"):
            yield word[:2], word[2:] or next(left, "")
