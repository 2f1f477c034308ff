"""Python on a page of the guide, run again: what stands below every `>>>` of its ```pycon blocks, in one namespace, where the page's own files lie.

Output goes on to the next `>>>`; where it ends in a line `[...]` as many lines are shown as before. An error is its last line below
`Traceback (most recent call last):`.
"""

from __future__ import annotations

import contextlib
import io
import re
import traceback
from collections.abc import Iterator
from typing import Any

_BLOCK = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CUT = "[...]"


def remade(page: str, directory: str) -> str:
    """The page with the output of its Python made again."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(directory):
        return _BLOCK.sub(lambda block: f"```pycon\n{_block(block[1], namespace)}```", page)


def _block(text: str, namespace: dict[str, Any]) -> str:
    made = []
    for source, shown in _examples(text):
        made += [f"{'... ' if n else '>>> '}{line}".rstrip() for n, line in enumerate(source)]
        told = _run("\n".join(source) + "\n", namespace)
        if shown and shown[-1] == _CUT:
            told = [*told[: len(shown) - 1], _CUT]
        made += told
    return "\n".join(made) + "\n" * (1 + text.endswith("\n\n"))


def _examples(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """The lines of each statement, and those shown below it."""
    source: list[str] = []
    shown: list[str] = []
    for line in text.rstrip("\n").splitlines():
        if line.startswith(">>> "):
            if source:
                yield source, shown
            source, shown = [line[4:]], []
        elif line.startswith("...") and not shown and (line == "..." or line[3] == " "):
            source.append(line[4:])
        else:
            shown.append(line)
    yield source, shown


def _run(source: str, namespace: dict[str, Any]) -> list[str]:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        try:
            exec(compile(source, "<page>", "single"), namespace)
        except Exception as error:
            return ["Traceback (most recent call last):", *"".join(traceback.format_exception_only(error)).splitlines()]
    return shown.getvalue().rstrip("\n").splitlines()
