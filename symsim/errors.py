"""The one exception that carries bad input back to the user, and how a text of the user's is shown in a sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence

# a sentence with what stands before it on a terminal, "symsim: ", has at most 300 characters
_LONGEST = 280
_LONGEST_WORD = 100
_LONGEST_NAME = 40
_MOST_NAMES = 8
_NEAREST_NAMES = 5

# control characters but newline and tab, marks that turn or hide what follows them, halves of characters
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


class InputError(Exception):
    """Bad input: one sentence saying what is wrong, where, and what would be right.

    The command line prints it on stderr and exits with status 2; nothing has been written by then.
    """

    def __init__(self, message: str) -> None:
        super().__init__(sentence(message))


def printable(text: str) -> str:
    r"""The text with an escape such as \x1b for each character that a terminal would obey, and that no file can hold."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def sentence(text: str) -> str:
    """A message as one line of bounded length: what is too long is cut, first inside its longest words."""
    line = printable(" ".join(text[: 2**16].split()))
    if len(line) > _LONGEST:
        line = " ".join(_shortened(word, _LONGEST_WORD) for word in line.split(" "))
    return _shortened(line, _LONGEST)


def _shortened(text: str, length: int) -> str:
    """Cut in the middle, since a message says what is wrong first and what would be right last."""
    kept = length - 3
    return text if len(text) <= length else f"{text[: kept - kept // 3]}...{text[-(kept // 3) :]}"


def cut(text: str, length: int = 60) -> str:
    """Text short enough to quote in a sentence."""
    return text if len(text) <= length else text[:length] + "..."


def nearest(name: str, valid: Sequence[str]) -> str:
    """A clause naming the valid spelling closest to `name`, or the choices, the closest of many, when none is close."""
    import difflib

    name = name[: 2 * _LONGEST_WORD]
    close = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{cut(close[0])}'?"
    names = sorted(set(valid))
    if len(names) > _MOST_NAMES:
        names = difflib.get_close_matches(name, names, n=_NEAREST_NAMES, cutoff=0.0)
        return f"valid names: {', '.join(cut(n, _LONGEST_NAME) for n in names)}, ..."
    return f"valid names: {', '.join(cut(n, _LONGEST_NAME) for n in names)}"
