"""Commands of a script that only write their words, and expansions that change a value: what a shell makes of text that is known."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Callable, Sequence

# patterns are tried at every length of a value
_LONGEST = 4096
_FIELD = re.compile(r"%(?:%|(0?[0-9]{0,2})([sdi]))")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}
_ESCAPE = re.compile(r"\\.", re.DOTALL)


def written(words: Sequence[str]) -> str | None:
    """What a command writes; None for one that is not known to write its words alone, or not in this form."""
    writer = _WRITERS.get(words[0]) if words else None
    return writer(words[1:]) if writer is not None else None


def writes(words: Sequence[str]) -> bool:
    """Whether the command is one of those."""
    return bool(words) and words[0] in _WRITERS


def changed(text: str, operator: str, pattern: str, other: str) -> str | None:
    """A value behind ${NAME#..}, ##, %, %%, /, //, ,, or ^^; None where that is not followed. other: in the place of what / finds."""
    if operator in (",,", "^^"):
        return (text.lower() if operator == ",," else text.upper()) if not pattern else None
    if len(text) > _LONGEST:
        return None
    if operator in ("/", "//"):
        # patterns with marks can match at many lengths
        known = pattern and not any(mark in pattern for mark in "*?[\\") and pattern[0] not in "#%"
        return text.replace(pattern, other, -1 if operator == "//" else 1) if known else None
    ends = range(len(text) + 1)
    if operator.startswith("#"):
        found = [at for at in ends if fnmatch.fnmatchcase(text[:at], pattern)]
        return text[(max if operator == "##" else min)(found) :] if found else text
    found = [at for at in ends if fnmatch.fnmatchcase(text[at:], pattern)]
    return text[: (min if operator == "%%" else max)(found)] if found else text


def _echo(words: Sequence[str]) -> str | None:
    ended = words[:1] == ["-n"]
    rest = words[1:] if ended else words
    if rest and re.fullmatch(r"-[neE]+", rest[0]):
        return None
    return " ".join(rest) + ("" if ended else "\n")


def printed(words: Sequence[str]) -> str | None:
    """What printf makes of its format and words: %s, %d with a width, and plain escapes; None for others."""
    if not words or len(words) > _LONGEST:
        return None
    form, rest = words[0], list(words[1:])
    fields = [field for field in _FIELD.finditer(form) if field[2]]
    if _FIELD.sub("", form).count("%") or any(escape not in _ESCAPES for escape in _ESCAPE.findall(form)):
        return None
    if any(field[2] != "s" and not re.fullmatch(r"-?[0-9]{1,18}", word) for field, word in zip(fields * len(words), rest, strict=False)):
        return None
    plain = _ESCAPE.sub(lambda escape: _ESCAPES[escape[0]], form)
    text = ""
    while True:
        here, rest = rest[: len(fields)], rest[len(fields) :]
        taken = iter(here)
        text += _FIELD.sub(lambda field: "%" if not field[2] else _field(field, next(taken, None)), plain)  # noqa: B023
        if not rest or not fields:
            return text


def _field(field: re.Match[str], word: str | None) -> str:
    if field[2] == "s":
        return (word or "").rjust(int(field[1] or 0))
    return f"{int(word or 0):{field[1]}d}"


def _basename(words: Sequence[str]) -> str | None:
    words = [word for word in words if word != "--"]
    if not 1 <= len(words) <= 2 or words[0].startswith("-"):
        return None
    name = posixpath.basename(words[0].rstrip("/")) or words[0][:1]
    return (name.removesuffix(words[1]) or name if len(words) == 2 else name) + "\n"


def _dirname(words: Sequence[str]) -> str | None:
    words = [word for word in words if word != "--"]
    return (posixpath.dirname(words[0].rstrip("/")) or ("/" if words[0].startswith("/") else ".")) + "\n" if len(words) == 1 else None


def _resolved(words: Sequence[str]) -> str | None:
    """A path as it is: links are not followed, since no file is looked at."""
    words = [word for word in words if word not in ("-f", "-e", "-m", "-s", "--")]
    return posixpath.normpath(words[0]) + "\n" if len(words) == 1 and words[0] and not words[0].startswith("-") else None


_WRITERS: dict[str, Callable[[Sequence[str]], str | None]] = {"echo": _echo, "printf": printed, "basename": _basename, "dirname": _dirname}
_WRITERS |= dict.fromkeys(("realpath", "readlink"), _resolved)


def read_words(words: Sequence[str], text: str, apart: str) -> dict[str, str] | None:
    """What `read [-r] A B` makes of a text's first line: a value each, what is left for the last; `read -r -d "" A` of all of it. None where it
    is another use of `read`."""
    whole = words[:-1] == ["-r", "-d", ""]
    if whole:
        return {words[-1]: text.strip()} if words[-1].isascii() and words[-1].isidentifier() else None
    names = words[1:] if words[:1] == ["-r"] else words
    if len(apart) != 1 or not names or not all(name.isascii() and name.isidentifier() for name in names):
        return None
    found = text.partition("\n")[0].strip(" \t").split(None if apart == " " else apart, len(names) - 1)
    return dict(zip(names, [*found, *[""] * len(names)], strict=False))
