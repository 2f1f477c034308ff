"""The one exception that carries bad input back to the user, and how a text of the user's is shown in a sentence."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

# a sentence with what stands before it on a terminal, "symsim: ", has at most 300 characters
_LONGEST = 280
_LONGEST_WORD = 100
_LONGEST_NAME = 40
# names of messages that say of what they are; one that is cut can be typed nowhere
_LONGEST_NEAR = 180
_MOST_NAMES = 8
_NEAREST_NAMES = 5
_MOST_NEAR = 3

# words that say of what kind a name is, and not which
_FILLERS = frozenset("size degree num number of count the enable use is group world type kind mode stage level value factor".split())
_PART_OF_A_NAME = 0.4

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


@contextmanager
def in_doubles() -> Iterator[None]:
    """InputError where a number becomes too large to be told, as what is multiplied by 1e400 does; also a decorator."""
    try:
        yield
    except OverflowError:
        raise InputError("a number becomes larger than 1.8e308, the largest of double precision: smaller ones are needed") from None


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


def nearest(name: str, valid: Sequence[str], otherwise: str | None = None) -> str:
    """A clause naming the valid spelling that is near `name`; where none is, `otherwise`, or the choices, the closest of many."""
    name = name[: 2 * _LONGEST_WORD]
    close = near(name, valid)
    if close:
        return f"did you mean {' or '.join(_quoted(n) for n in close)}?"
    if otherwise is not None:
        return otherwise
    names = sorted(set(valid))
    if len(names) > _MOST_NAMES:
        import difflib

        names = difflib.get_close_matches(name, names, n=_NEAREST_NAMES, cutoff=0.0)
        return f"valid names: {', '.join(cut(n, _LONGEST_NAME) for n in names)}, ..."
    return f"valid names: {', '.join(cut(n, _LONGEST_NAME) for n in names)}"


def _quoted(name: str) -> str:
    return f"'{cut(name, _LONGEST_NEAR)}'"


def near(name: str, valid: Sequence[str]) -> list[str]:
    """The valid names that `name` may be a slip or a variant of: one, or up to three that are equally near; often none.

    Near is a name of which it is the first word, with a digit in it (h200 of h200-sxm); one with few letters changed, swapped, missing or added;
    else one with the same words, or a part of its words; else one that begins alike.
    """
    given = _plain(name)
    for distance in (_behind_first_word, _slips, _words_apart, _beginnings_apart):
        found = [(d, n) for n in dict.fromkeys(valid) if (d := distance(given, _plain(n))) is not None]
        if found:
            least = min(d for d, _ in found)
            close = [n for d, n in found if d == least]
            # TBps is TB/s rather than Tb/s
            alike = [n for n in close if sum(letter in n for letter in name) == max(sum(letter in m for letter in name) for m in close)]
            close = alike if len(alike) == 1 else close
            if len(close) <= _MOST_NEAR:
                return close
    return []


def _plain(text: str) -> str:
    return text.casefold().replace("-", "_").strip("_ ")


def _behind_first_word(given: str, name: str) -> float | None:
    """Letters behind the first word, where that is given and has a digit: then no digit of it is a slip."""
    return float(len(name) - len(given)) if name.startswith(f"{given}_") and any(map(str.isdigit, given)) else None


def _slips(given: str, name: str) -> float | None:
    """Letters changed, missing, added, or swapped with their neighbour; None for more than a quarter of them."""
    allowed = max(1, max(len(given), len(name)) // 4)
    if abs(len(given) - len(name)) > allowed or min(len(given), len(name)) <= 1:
        return None
    # a slip makes good at most one letter that only one of the two has
    if any(sum(max(0, one.count(c) - other.count(c)) for c in set(one)) > allowed for one, other in ((given, name), (name, given))):
        return None
    before: list[int] = []
    row = list(range(len(name) + 1))
    for i, letter in enumerate(given, 1):
        before, above, row = row, before, [i]
        for j, other in enumerate(name, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == name[j - 2] and given[i - 2] == other:
                cost = min(cost, above[j - 2] + 1)
            row.append(cost)
    return row[-1] if row[-1] <= allowed else None


def _words_apart(given: str, name: str) -> float | None:
    """Letters of the words that only one of the two has: none but words such as `size` in one, or a part of the other's."""
    ours, theirs = ({w for w in re.split(r"[._ ]", text) if w} for text in (given, name))
    told, known = ours - _FILLERS, theirs - _FILLERS
    if told and told == known:
        return 0.0
    last = name.rpartition(".")[2]
    if "." in name and given in (last, name.split(".")[1]):
        return 0.5 if given == last else 0.75
    letters = len("".join(theirs))
    if told and ours <= theirs and len("".join(ours)) >= _PART_OF_A_NAME * letters:
        return float(letters - len("".join(ours)))
    return None


def _beginnings_apart(given: str, name: str) -> float | None:
    """Letters behind those in common, where these are most of the shorter."""
    common = len(os.path.commonprefix([given, name]))
    shorter, longer = sorted((len(given), len(name)))
    if common >= 3 and (common == shorter or (common >= 5 and 4 * common >= 3 * shorter)):
        return float(longer - common)
    return None
