"""The name of a layer kind inside the names of symbols and definitions: `F_dense`, `L_moe_i`, `A_kind__head_ckpt`.

A user may call a kind anything. The names of everything else are words joined by single underscores (`F_head`, `t_stage`,
`L_moe_i`), so a kind is spelt as one word that none of them can be:

    dense, moe, full, ...     themselves: words that no other name has (ORDINARY; a test holds them against all names)
    chunked_moe               chunked__moe: underscores doubled, which no other name does
    head, e, x2, a-b          kind__head, kind__e, kind__x2, kind__aZ2dZb: marked, and what is no letter or digit in hexadecimal

Different kinds are spelt differently, and `kind_of` reads a spelling back. `respelt` (`trained.py`) does it for an architecture before
anything is derived, so no pass meets a kind by the name that the user gave it.
"""

from __future__ import annotations

import re

# the blocks that are no layer: what the stream of the layers comes from, what reads it, a depth of multi-token prediction
EMBEDDING, HEAD, DEPTH = BLOCKS = ("embedding", "head", "mtp")
ORDINARY = frozenset(
    "dense moe full local linear compressed picked chunked nope sliding windowed global mamba conv following sparse layer lin other plain wide "
    "narrow".split()
)

_MARK = "kind__"
_JOINED = re.compile(r"[A-Za-z][A-Za-z0-9]*(_+[A-Za-z0-9]+)+")

# Of a whole name, the part that is a kind: no single underscore is inside it
SPELT = r"(?:[A-Za-z0-9]|__)+"


def spelt(kind: str) -> str:
    """The word that stands for a kind in names."""
    if kind in ORDINARY:
        return kind
    if _JOINED.fullmatch(kind) and not kind.startswith("kind_"):
        return kind.replace("_", "__")
    return _MARK + "".join(_marked(c) for c in kind)


def _marked(character: str) -> str:
    if character == "_":
        return "__"
    if character == "Z":
        return "ZZ"
    return character if character.isascii() and character.isalnum() else f"Z{ord(character):x}Z"


def kind_of(word: str) -> str:
    """The kind that is spelt so; any other word (a block's that is no layer, say) is itself."""
    if not word.startswith(_MARK):
        return word.replace("__", "_")

    def read(found: re.Match[str]) -> str:
        text = found[0]
        return "_" if text == "__" else "Z" if text == "ZZ" else chr(int(text[1:-1], 16))

    return re.sub(r"__|ZZ|Z[0-9a-f]+Z", read, word.removeprefix(_MARK))


def as_named(text: str) -> str:
    """A name in which kinds stand as the user named them: of a formula that is printed."""
    marked = re.sub(_MARK + SPELT, lambda found: in_words(found[0]), text) if _MARK in text else text
    return marked.replace("__", "_")


def in_words(block: str) -> str:
    """A block in words: a kind by the name that the user gave it, marked where a block that is no layer has the same."""
    kind = kind_of(block)
    return f"kind {kind}" if kind != block and kind in BLOCKS else kind
