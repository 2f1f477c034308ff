"""What commands inside `$( .. )` write, where they only write their words."""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from symsim.errors import InputError
from symsim.importers.shell.grammar import Simple, parse
from symsim.importers.shell.tokens import ASSIGNMENT, tokens_of
from symsim.importers.shell.words import Expansion
from symsim.importers.shell.writers import writes, written

# what leads a command's output elsewhere, or takes it from there
_ELSEWHERE = frozenset("| |& & < > >> << <<< ( )".split())


def output(text: str, where: str, line: int, expand: Expansion, assign: Callable[[Simple], object]) -> tuple[str | None, str | None]:
    """What is written by assignments or `cd`, then one command that only writes its words, or `pwd`, all of them known. Else nothing, and why
    the words are not known, where it is such a command. assign: follows a statement of assignments."""
    try:
        statements = parse(text, where, line)
    except InputError:
        return None, None
    simple = [joined.statement for joined in statements if isinstance(joined.statement, Simple) and not joined.negated]
    joints = {joined.joint for joined in statements}
    if not simple or len(simple) < len(statements) or "||" in joints or any(token.operator in _ELSEWHERE for token in tokens_of(text, where, line)):
        return None, None
    scope, folder = expand.scope, ""
    before = dict(scope.values)
    try:
        for one in simple[:-1]:
            if joints == {";"} and all(ASSIGNMENT.match(token.source) for token in one.words):
                assign(one)
                continue
            words, why = _words(one, expand)
            words = [word for word in words if word != "--"]
            if why is not None or len(words) != 2 or words[0] != "cd":
                return None, why
            folder = posixpath.join(folder, words[1])
        words, why = _words(simple[-1], expand)
    finally:
        scope.values = before
    if words == ["pwd"]:
        return posixpath.normpath(folder or "."), None
    if why is not None:
        return None, why if writes(words) else None
    return written(words), None


def _words(simple: Simple, expand: Expansion) -> tuple[list[str], str | None]:
    """The words of a command, and why one of them is not known."""
    pieces = [piece for token in simple.words for piece in expand.fields(token)]
    return [expand.scope.plain(piece) for piece in pieces], next(filter(None, map(expand.scope.reason, pieces)), None)
